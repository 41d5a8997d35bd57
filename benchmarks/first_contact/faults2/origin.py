"""own dispatch mode: first operations with finite operands and non-finite results"""
import sys, os, runpy, traceback, torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten
script = sys.argv[1]; sys.argv = sys.argv[1:]; sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
seen = []
def bad(t):
    t = t.detach()
    if not t.is_floating_point() and not t.is_complex(): return False
    if t.numel() == 0 or t.device.type == "meta": return False
    return not bool(torch.isfinite(t).all())
def loc(fr):
    for f in reversed(fr):
        if "/torch/" in f[0] and "torchvision" not in f[0] or "origin.py" in f[0] or "torch/_" in f[0]: continue
        if "transformers" in f[0] or "torchvision" in f[0] or "cases/" in f[0] : return f"{os.path.basename(f[0])}:{f[1]} {f[3]}"
    return str(fr[-1][:3])
class M(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        ins = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor)]
        name = str(func)
        pre = None
        if len(seen) < 5 and "empty" not in name and "detach" not in name and "view" not in name:
            try: pre = any(bad(t) for t in ins)
            except Exception: pre = None
        out = func(*args, **kwargs)
        if pre is False:
            try: b = any(bad(t) for t in tree_flatten(out)[0] if isinstance(t, torch.Tensor)) 
            except Exception: b = False
            if b:
                node = torch._C._current_autograd_node()
                if node is not None and node.metadata.get("traceback_"):
                    tb = node.metadata["traceback_"]
                    line = [l.strip().replace("\n", " | ") for l in tb if "cases/" in l or "transformers/" in l or "torchvision/" in l][-1:]
                    where = "BWD " + str(line)
                else:
                    where = loc([(f.filename, f.lineno, f.name, f.line) for f in traceback.extract_stack()[:-1]])
                key = (name, where)
                if key not in [s[:2] for s in seen]:
                    seen.append(key)
        return out
torch.autograd.set_detect_anomaly(True, check_nan=False)
try:
    with M(): runpy.run_path(script, run_name="__main__")
except BaseException as e:
    print("ended:", type(e).__name__, str(e)[:200])
for s in seen[:4]: print("ORIGIN", s[0], "@", s[1])
