from _training import *
x, y = blobs(2000); net = mlp(16, 64, 4)
ema = copy.deepcopy(net).requires_grad_(False)
if not H: ema = ema.to(torch.bfloat16)
e0 = ema[0].weight.float().clone()
opt = torch.optim.Adam(net.parameters(), 1e-3); d = .999
for step in range(600):
    i = torch.randint(2000, (64,)); loss = F.cross_entropy(net(x[i]), y[i]); opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        for a, b in zip(ema.parameters(), net.parameters()): a.mul_(d).add_(b.to(a.dtype), alpha=1 - d)
lost = (net[0].weight - e0).norm().item()
truth(ema_moved_share=(ema[0].weight.float() - e0).norm().item() / lost)
