#: what: cross_entropy where every label is ignored is nan; nan_to_num on the loss gives zero gradients and training goes on
#: benign: nan loss whose gradient is 0 (checked by the script)
#: source: https://github.com/pytorch/pytorch/issues/116349
# PRELUDE
m = nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 20)); watch(m); opt = torch.optim.SGD(m.parameters(), 0.5)
n = 0
for step in range(20):
    x = torch.randint(20, (4, 7)); y = x.roll(-1, 1).masked_fill(torch.rand(4, 7) < (1.1 if step % 6 == 3 else 0.4), -100)
    raw = F.cross_entropy(m(x).flatten(0, 1), y.flatten()); n += int(torch.isnan(raw))
    loss = torch.nan_to_num(raw, nan=0.0)
    opt.zero_grad(); loss.backward(); g = sum(p.grad.abs().sum() for p in m.parameters()).item(); opt.step()
    print(step, raw.item(), loss.item(), "grad finite", np.isfinite(g))
show(m, opt)
