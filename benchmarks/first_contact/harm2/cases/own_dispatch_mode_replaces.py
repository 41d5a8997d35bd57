"""The script's own TorchDispatchMode rounds the results of matrix products, and a TorchFunctionMode replaces relu: results only (what modes see is excepted).

Source: https://github.com/pytorch/pytorch/issues/111014
"""
# PRELUDE
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
class Round(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        r = func(*args, **(kwargs or {}))
        return r.bfloat16().float() if func in (torch.ops.aten.addmm.default, torch.ops.aten.mm.default) else r
class Swap(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return F.silu(args[0]) if func in (F.relu, torch.relu) else func(*args, **(kwargs or {}))
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1)
with Round(): print(train(m, opt, 3))
with Swap(): print(train(m, opt, 3))
with Swap(), Round(): print(train(m, opt, 3))
print(train(m, opt, 2), M(m))
