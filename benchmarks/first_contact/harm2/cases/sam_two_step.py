"""Sharpness-aware minimization: weights moved before a second backward, then moved back; batch norm's momentum switched off between.

Source: arXiv:2010.01412 (SAM) and its known PyTorch version davda54/sam
"""
# PRELUDE
torch.manual_seed(0)
m = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4)); W(m)
base = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
for s in range(5):
    x, y = batch(s)
    F.mse_loss(m(x), y).backward()
    n = torch.stack([p.grad.norm() for p in m.parameters()]).norm()
    with torch.no_grad():
        es = [p.grad * (0.05 / (n + 1e-12)) for p in m.parameters()]
        for p, e in zip(m.parameters(), es): p.add_(e)
    base.zero_grad(); m[1].momentum = 0.0
    loss = F.mse_loss(m(x), y); loss.backward(); m[1].momentum = 0.1
    with torch.no_grad():
        for p, e in zip(m.parameters(), es): p.sub_(e)
    base.step(); base.zero_grad()
    print(float(loss.detach()).hex())
print(M(m), R())
