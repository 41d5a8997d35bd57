#: what: the same, but the loss stays nan (only logged) while its gradients are exactly zero, so no weight is harmed
#: benign: a nan loss with finite gradients
#: source: https://github.com/pytorch/pytorch/issues/70348
# PRELUDE
m = nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 20)); watch(m); opt = torch.optim.Adam(m.parameters(), 1e-2)
tot = []
for step in range(20):
    x = torch.randint(20, (4, 7)); y = x.roll(-1, 1).masked_fill(torch.rand(4, 7) < (1.1 if step == 7 else 0.4), -100)
    loss = F.cross_entropy(m(x).flatten(0, 1), y.flatten()); opt.zero_grad(); loss.backward()
    print(step, loss.item(), all(torch.isfinite(p.grad).all().item() for p in m.parameters())); opt.step(); tot.append(loss.item())
print("mean", np.nanmean(tot), "weights finite", all(torch.isfinite(p).all().item() for p in m.parameters())); show(m, opt)
