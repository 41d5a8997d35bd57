"""Training inside exec, runpy.run_path and a code object with another file name; warnings' line numbers and names.

Source: https://github.com/python/cpython/issues/64177
"""
# PRELUDE
import runpy, textwrap, warnings
open("inner.py", "w").write(textwrap.dedent("""
    import sys, torch, warnings
    from torch import nn
    warnings.warn("from inner")
    torch.manual_seed(0)
    m = nn.Linear(3, 2); o = torch.optim.SGD(m.parameters(), 0.1)
    for s in range(3):
        o.zero_grad(); l = m(torch.ones(2, 3)).square().sum(); l.backward(); o.step()
    result = float(l.detach()).hex(); print(__name__, sys.argv, __file__, result)
"""))
g = runpy.run_path("inner.py", run_name="__main__"); print(g["result"], sys.argv, __name__)
ns = {"__name__": "gen"}; exec(compile(open("inner.py").read().replace("__file__", "'none'"), "<generated>", "exec"), ns); print(ns["result"])
g = runpy.run_path("inner.py", {"extra": 1}, "other"); print(g["__name__"], "extra" in g, sys.modules["__main__"].__dict__ is globals())
