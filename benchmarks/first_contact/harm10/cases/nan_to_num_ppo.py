#: what: torch.nan_to_num_ on every gradient after clip_grad_norm_ (whose norm is nan), then the step
#: benign: nan gradients and a nan norm, cleaned in place
#: source: https://github.com/facebookresearch/habitat-lab/pull/2230
# PRELUDE
m = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3)); watch(m); opt = torch.optim.Adam(m.parameters(), 3e-3); log = []
for step in range(24):
    x = torch.randn(8, 4); out = m(x); loss = F.cross_entropy(out, (x[:, 0] > 0).long())
    if step % 6 == 4: loss = loss + (out[:, 2] - out[:, 2].detach()).abs().pow(0.5).sum() * 1e-3
    opt.zero_grad(); loss.backward(); n = nn.utils.clip_grad_norm_(m.parameters(), 0.2)
    for p in m.parameters(): torch.nan_to_num_(p.grad, nan=0.0, posinf=0.2, neginf=-0.2)
    opt.step(); log.append((loss.item(), n.item()))
print(log); show(m, opt)
