"""A __torch_dispatch__ wrapper subclass (two tensors in one) as input and as a parameter; its own log of operations in forward.

Source: https://github.com/pytorch/pytorch/pull/73459
"""
# PRELUDE
import torch.utils._pytree as tree
class Two(torch.Tensor):
    @staticmethod
    def __new__(cls, a, b): return torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype, requires_grad=a.requires_grad)
    def __init__(self, a, b): self.a, self.b = a, b
    def __repr__(self): return "Two"
    def __tensor_flatten__(self): return ["a", "b"], None
    @staticmethod
    def __tensor_unflatten__(d, meta, size, stride): return Two(d["a"], d["b"])
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        k = kwargs or {}
        ra = func(*tree.tree_map_only(Two, lambda t: t.a, args), **tree.tree_map_only(Two, lambda t: t.a, k)); rb = func(*tree.tree_map_only(Two, lambda t: t.b, args), **tree.tree_map_only(Two, lambda t: t.b, k))
        fa, spec = tree.tree_flatten(ra); fb, _ = tree.tree_flatten(rb)
        from torch.utils._python_dispatch import return_and_correct_aliasing
        return return_and_correct_aliasing(func, args, k, tree.tree_unflatten([Two(p, q) if isinstance(p, torch.Tensor) else p for p, q in zip(fa, fb)], spec))
torch.manual_seed(0); m = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)); m[2].weight = nn.Parameter(Two(torch.randn(4, 8) * 0.2, torch.randn(4, 8) * 0.2)); W(m)
for s in range(3):
    x, y = batch(s); out = m(x); loss = out.square().mean(); loss.backward(); print(type(out).__name__, loss.a.item().hex(), loss.b.item().hex())
    with torch.no_grad():
        for p in m.parameters(): p.sub_(p.grad, alpha=0.1); p.grad = None
w = m[2].weight; print(type(w).__name__, H(w.a, w.b))
