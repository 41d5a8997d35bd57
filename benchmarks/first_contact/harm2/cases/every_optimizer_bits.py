"""Every optimizer of torch.optim with default settings, 3 steps each: weights and state.

Source: https://docs.pytorch.org/docs/stable/optim.html
"""
# PRELUDE
names = [n for n in dir(torch.optim) if isinstance(getattr(torch.optim, n), type) and issubclass(getattr(torch.optim, n), torch.optim.Optimizer)]
for n in names:
    if n in ("Optimizer", "SparseAdam", "LBFGS"):
        continue
    m = net(); W(m)
    ps = [p for p in m.parameters() if n != "Muon" or p.ndim == 2]
    opt = getattr(torch.optim, n)(ps, lr=1e-3)
    print(n, train(m, opt, 3), M(m), H([sorted(map(str, s)) for s in opt.state.values()]))
print(R())
