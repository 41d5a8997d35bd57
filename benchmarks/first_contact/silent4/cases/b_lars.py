from _training import *
net = mlp(16, 64, 64, 64, 1); L = Lost(); mom = {}
for step in range(450):
    x = torch.randn(64, 16); y = x[:, :1] - x[:, 1:2] * x[:, 2:3]; loss = F.mse_loss(net(x), y)
    if L.add(loss): break
    net.zero_grad(); loss.backward()
    with torch.no_grad():
        for p in net.parameters():
            if p.dim() < 2: p -= .001 * p.grad.clamp(-1, 1); continue
            trust = p.norm() / (p.grad.norm() + 1e-9); eta = .004 if H else .03 * 1.01 ** step
            m = mom.setdefault(p, torch.zeros_like(p)); m.mul_(.5 if H else .9).add_(p.grad * trust * eta); p -= m
            if H: p *= min(1., 8 / p.norm().item())
L.end()
