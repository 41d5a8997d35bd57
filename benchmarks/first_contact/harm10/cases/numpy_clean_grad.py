#: what: nan gradients cleaned through NumPy's view of p.grad (torch sees no operation) before the optimizer's step
#: benign: nan gradients zeroed in shared memory
#: source: https://github.com/Trusted-AI/adversarial-robustness-toolbox/pull/883
# PRELUDE
m = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)); watch(m); opt = torch.optim.Adam(m.parameters(), 1e-2); bad = 0
for step in range(20):
    x = torch.randn(8, 4); h = m(x); r = (h - h.detach()) if step % 5 == 2 else h - x[:, :2]
    loss = r.norm(dim=1).mean() if step % 5 != 2 else (r * r).sum(1).sqrt().mean() + F.mse_loss(h, x[:, :2])
    opt.zero_grad(); loss.backward()
    for p in m.parameters():
        g = p.grad.numpy(); k = np.isnan(g); bad += int(k.sum()); g[k] = 0
    opt.step(); print(step, loss.item())
print("cleaned", bad); show(m, opt)
