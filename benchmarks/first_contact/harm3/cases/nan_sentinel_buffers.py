"""Benign nan: scale buffers that hold nan until they are calibrated, a best-so-far of nan, nan in padded rows of float buffers, an uninitialized output beyond each length; training never reads them."""
# PRELUDE
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net(1)
        self.register_buffer("scale", torch.full((3,), float("nan")))
        self.register_buffer("best", torch.tensor(float("nan")))
        self.register_buffer("pad", torch.cat([torch.ones(4, 2), torch.full((2, 2), float("nan"))]))

    def forward(self, x, k):
        y = self.body(x)
        if k >= 2:
            self.scale[k - 2] = y.detach().abs().max()
        lost = y.detach().square().mean()
        self.best = lost if self.best.isnan() else torch.minimum(self.best, lost)
        return y * self.pad[:4].mean()


m = Net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(5):
    x, t = batch(s)
    opt.zero_grad()
    F.mse_loss(m(x, s), t).backward()
    opt.step()
    print(s, H(m.scale, m.best, m.pad), M(m.body))
