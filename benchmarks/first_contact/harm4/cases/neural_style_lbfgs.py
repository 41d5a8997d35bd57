"""The neural style tutorial: loss modules inside the network keep their loss as an attribute, the input image is the parameter, LBFGS with a closure, weights frozen."""
# PRELUDE
def gram(x):
    f = x.view(x.shape[0] * x.shape[1], -1)
    return f @ f.t() / x.numel()


class ContentLoss(nn.Module):
    def __init__(self, target):
        super().__init__()
        self.target = target.detach()

    def forward(self, x):
        self.loss = F.mse_loss(x, self.target)
        return x


class StyleLoss(nn.Module):
    def __init__(self, target):
        super().__init__()
        self.target = gram(target).detach()

    def forward(self, x):
        self.loss = F.mse_loss(gram(x), self.target)
        return x


cnn = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(inplace=False), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
content, style = torch.rand(1, 3, 12, 12), torch.rand(1, 3, 12, 12)
model = nn.Sequential()
for i, layer in enumerate(cnn):
    model.add_module(f"l{i}", layer)
    if isinstance(layer, nn.Conv2d):
        model.add_module(f"s{i}", StyleLoss(model(style)))
    else:
        model.add_module(f"c{i}", ContentLoss(model(content)))
image = content.clone().requires_grad_(True)
model.eval()
model.requires_grad_(False)
W(model)
opt = torch.optim.LBFGS([image])
run = [0]
while run[0] <= 40:
    def closure():
        with torch.no_grad():
            image.clamp_(0, 1)
        opt.zero_grad()
        model(image)
        s = sum(k.loss for k in model if isinstance(k, StyleLoss))
        c = sum(k.loss for k in model if isinstance(k, ContentLoss))
        loss = 1e5 * s + c
        loss.backward()
        run[0] += 1
        if run[0] % 20 == 0:
            print(run, float(s.detach()).hex(), float(c.detach()).hex())
        return s + c

    opt.step(closure)
with torch.no_grad():
    image.clamp_(0, 1)
print(run, H(image, image.grad), M(model), R())
