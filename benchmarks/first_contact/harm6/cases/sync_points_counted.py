"""A profiler of the script's own that patches Tensor.item, tolist, cpu, numpy, __bool__, __float__, isnan, isfinite, Tensor.detach, Tensor.clone, nonzero, torch.isinf and counts host syncs by caller for each step: the counts must be those of the script."""
import collections
# PRELUDE
counts = collections.Counter()


def patch(owner, name):
    old = getattr(owner, name)

    def counted(*a, **k):
        counts[name] += 1
        return old(*a, **k)

    setattr(owner, name, counted)
    return owner, name, old


m = net()
W(m)
opt = torch.optim.AdamW(m.parameters(), 1e-2)
print(train(m, opt, 3))
undo = [patch(torch.Tensor, n) for n in ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "isnan", "isfinite", "detach", "clone", "nonzero", "to", "data_ptr", "untyped_storage", "size", "dim", "max", "abs", "sum", "__repr__", "is_floating_point", "copy_")]
undo += [patch(torch, n) for n in ("isnan", "isinf", "isfinite", "empty", "zeros", "stack", "tensor", "where", "amax", "no_grad")]
total = {}
for s in range(12):
    x, y = batch(s)
    counts.clear()
    opt.zero_grad()
    loss = F.mse_loss(m(x), y)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(m.parameters(), 0.5)
    opt.step()
    if loss.item() > 100 or bool(norm > 100):
        break
    seen = dict(sorted(counts.items()))
    print(s, float(loss).hex(), seen)
for owner, name, old in reversed(undo):
    setattr(owner, name, old)
print(train(m, opt, 2, 30), M(m), R())
