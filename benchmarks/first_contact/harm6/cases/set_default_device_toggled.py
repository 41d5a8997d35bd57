"""torch.set_default_device set and unset, and torch.device contexts entered before a call of the model and left after it (between forward and loss, between backward and step, across steps), for twenty steps; meta devices for shapes; which device new tensors get at each place."""
# PRELUDE
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net()

    def forward(self, x):
        return self.body(x) + torch.zeros(4)


m = Net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
places = []
where = lambda: places.append(torch.empty(1).device.type)
stack = lambda: torch._C._len_torch_function_stack()
for s in range(24):
    x, y = batch(s)
    depth = stack()
    k = s % 8
    ctx = torch.device("cpu")
    if k == 1:
        torch.set_default_device("cpu")
    if k == 2:
        ctx.__enter__()
    opt.zero_grad()
    where()
    out = m(x)
    if k == 1:
        torch.set_default_device(None)
    if k == 2:
        ctx.__exit__(None, None, None)
    out = out * 1.0
    if k == 3:
        ctx.__enter__()
        where()
    if k == 4:
        torch.set_default_device("meta")
        where()
        shape = torch.empty(3, 4).sum(0).shape
        torch.set_default_device("cpu")
        where()
    loss = F.mse_loss(out, y)
    loss = loss + 0 * torch.ones(1, device="cpu").sum()
    if k == 5:
        with torch.device("meta"):
            where()
            big = nn.Linear(100, 100)
            print(big(torch.ones(2, 100)).device, big.weight.is_meta)
    loss.backward()
    if k == 3:
        ctx.__exit__(None, None, None)
        where()
    if k == 6:
        torch.set_default_device("cpu")
        for p in m.parameters():
            p.grad.mul_(torch.tensor(0.9))
    opt.step()
    if k == 6:
        torch.set_default_device("meta")
        where()
        torch.set_default_device("cpu")
    if k == 7:
        torch.set_default_device(None)
    print(s, loss.item().hex(), M(m), torch.get_default_device(), H(places))
print(places[:20], torch.randn(2).device, R())
