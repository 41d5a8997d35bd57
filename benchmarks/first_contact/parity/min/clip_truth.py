"""Truth of cases/f12: with which weights B's four micro-batches enter head.weight's gradient, against A's (plain torch, least squares)."""
import sys; sys.path.insert(0, "cases")
from tiny import *
x, y = next(iter(batches()))
def grads(parts, clip=True):
    torch.manual_seed(0); m = GPT()
    for a, b in parts:
        (ce(m(a), b) * len(a) / 8).backward()
        if clip: nn.utils.clip_grad_norm_(m.parameters(), 0.2)
    return m.head.weight.grad.flatten()
mb = list(zip(x.chunk(4), y.chunk(4)))
G = torch.stack([grads([p], False) for p in mb], 1)
for n, g in (("A", grads([(x, y)])), ("B", grads(mb))):
    w = torch.linalg.lstsq(G, g[:, None]).solution.flatten(); print(n, w.tolist(), "rest", float((G @ w - g).norm() / g.norm()))
