"""Gradients of nan inside are replaced by a hook on the tensor (a recipe of the forum) before they reach a weight."""
# PRELUDE
seed(10)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 12), nn.Linear(12, 1)

    def forward(self, x):
        h = self.a(x)
        if h.requires_grad:
            h.register_hook(lambda g: torch.nan_to_num(g, 0.0, 1.0, -1.0))
        r = F.relu(h)
        n = torch.sqrt(r)  # gradient at 0: inf * 0
        return self.b(n)


net = Net()
watch(net)
opt = torch.optim.SGD(net.parameters(), 0.05)
for step in range(25):
    x = torch.randn(16, 6)
    loss = (net(x) - x.sum(1, keepdim=True)).abs().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, dig(loss, net.a.weight.grad))
end(net, opt)
