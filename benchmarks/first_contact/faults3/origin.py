"""The set's own truth finder: runs a script under a TorchDispatchMode and prints the first operations that make a nonfinite
result from finite operands (mask fills shown too), with the script's line, the variable `step`, and in a backward the forward's line."""
import os, runpy, sys, traceback
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
script = os.path.abspath(sys.argv[1]); sys.argv = sys.argv[1:]
MAX = int(os.environ.get("MAX", 6)); seen = {}; rank = os.environ.get("RANK", "")
def bad(t):
    try: return (t.is_floating_point() or t.is_complex()) and t.device.type == "cpu" and not bool(torch.isfinite(t).all())
    except Exception: return False
SKIP = ("empty", "empty_like", "empty_strided", "detach", "view", "uniform_", "normal_", "alias", "t", "split", "chunk", "select", "slice", "expand", "unbind", "new_empty", "new_empty_strided", "_unsafe_view", "transpose", "permute", "as_strided", "unsqueeze", "squeeze")
class M(TorchDispatchMode):
    def __torch_dispatch__(self, f, types, args=(), kw=None):
        kw = kw or {}
        n = str(f)
        ins = [x for x in tree_leaves((args, kw)) if isinstance(x, torch.Tensor)]
        if n.split(".")[1] in SKIP: return f(*args, **kw)
        try: b = any(bad(x) for x in ins)
        except Exception: b = True
        out = f(*args, **kw)
        if not b and len(seen) < MAX and any(bad(x) for x in tree_leaves(out) if isinstance(x, torch.Tensor)):
            fr, lines, step, inner = sys._getframe(1), [], None, None
            while fr:
                fn = fr.f_code.co_filename
                if inner is None and "torch/utils/_python" not in fn and "/torch/" not in fn: inner = f"{os.path.basename(fn)}:{fr.f_lineno}"
                if os.path.abspath(fn) == script:
                    lines.append(fr.f_lineno)
                    if step is None: step = fr.f_locals.get("step", fr.f_globals.get("step"))
                fr = fr.f_back
            fwd = None
            node = torch._C._current_autograd_node() if hasattr(torch._C, "_current_autograd_node") else None
            if node is not None:
                tb = node.metadata.get("traceback_")
                ls = [l.split("\n")[0].strip() for l in (tb or []) if script in l]
                al = [l.split("\n")[0].strip() for l in (tb or []) if "/torch/" not in l]
                fwd = (node.name(), ls[-1].split("line ")[-1] if ls else None, al[-1].split("site-packages/")[-1] if al else None)
            key = (n, tuple(lines[:1]), fwd)
            if key not in seen:
                seen[key] = 1
                print(f"  EVENT{rank} step={step} {n} lines={lines[:4]} inner={inner} fwd={fwd}", file=sys.stderr)
        return out
with torch.autograd.set_detect_anomaly(True, check_nan=False), M():
    sys.path.insert(0, os.path.dirname(script))
    runpy.run_path(script, run_name="__main__")
