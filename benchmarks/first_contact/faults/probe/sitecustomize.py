"""The set's own witness: a TorchDispatchMode in every process, which writes each operation that makes a non-finite number out of finite ones.
Used with PROBE_OUT=FILE PYTHONPATH=probe python case.py. Independent of any tool."""
import os, sys
OUT = os.environ.get("PROBE_OUT")
if OUT and not any(a.endswith(("torchrun", "torch.distributed.run")) for a in sys.orig_argv):
    import json, traceback
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves
    torch.autograd.set_detect_anomaly(True, check_nan=False)
    SEEN = {}
    def local(t):
        return getattr(t, "_local_tensor", t)
    def bad(x):
        out, nan = 0, 0
        for t in tree_leaves(x):
            if isinstance(t, float) and (t != t or t in (float("inf"), float("-inf"))):
                out += 1; nan += t != t
            if isinstance(t, torch.Tensor):
                t = local(t)
                if type(t) in (torch.Tensor, torch.nn.Parameter) and t.device.type == "cpu" and (t.is_floating_point() or t.is_complex()) and t.layout == torch.strided and t.numel():
                    out += int(t.numel() - torch.isfinite(t).sum()); nan += int(torch.isnan(t).sum())
        return out, nan
    SKIP = ("empty", "_to_copy.out", "set_", "resize", "detach", "view", "lift", "as_strided", "new_empty", "isfinite", "isnan", "isinf")
    class Witness(TorchDispatchMode):
        busy = False
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            name = str(func)
            if self.busy or any(s in name for s in SKIP):
                return func(*args, **kwargs)
            before = bad((args, kwargs))
            out = func(*args, **kwargs)
            try:
                self.busy = True
                after = bad((out, args if func._schema.is_mutable else ()))
                if (after[0] and not before[0]) or (after[1] and not before[1]):
                    self.write(name, "%d/%d" % before, "%d/%d" % after, out)
            finally:
                self.busy = False
            return out
        def write(self, name, before, after, out):
            main = os.path.abspath(getattr(sys.modules.get("__main__"), "__file__", "") or "")
            case = [a for a in sys.argv + sys.orig_argv if "/cases/" in a] or [main]
            node = torch._C._current_autograd_node()
            stack = [(f.filename, f.lineno, f.name, f.line) for f in traceback.extract_stack()[:-2] if "sitecustomize" not in f.filename and "_python_dispatch" not in f.filename]
            phase = "forward"
            if node is not None:
                phase = "backward:" + node.name()
                tb = node.metadata.get("traceback_")
                fw = "".join(tb) if tb else ""
            else:
                fw = ""
                if any("/torch/optim/" in f[0] for f in stack): phase = "optimizer"
            lines = [f for f in stack if "/cases/" in f[0]]
            key = (name, phase, lines[-1][1] if lines else 0)
            SEEN[key] = SEEN.get(key, 0) + 1
            if SEEN[key] > 2 or len(SEEN) > 60: return
            dts = sorted({str(t.dtype) for t in tree_leaves(out) if isinstance(t, torch.Tensor)})
            rec = dict(pid=os.getpid(), rank=os.environ.get("RANK", "") or (str(torch.distributed.get_rank()) if torch.distributed.is_available() and torch.distributed.is_initialized() else ""),
                       op=name, phase=phase, before=before, after=after, dtype=dts, case=[f"{os.path.basename(f[0])}:{f[1]}: {f[3]}" for f in lines][-3:],
                       inner=["/".join(stack[-1][0].split("/")[-3:]) + f":{stack[-1][1]}: {stack[-1][3]}"],
                       lib=[("/".join(f[0].split("/")[-4:]) + f":{f[1]}: {f[3]}") for f in stack if "site-packages" in f[0] and "/torch/" not in f[0]][-2:],
                       fw=[l.strip() for l in fw.splitlines() if "/cases/" in l or "site-packages" in l and "/torch/" not in l][-3:])
            with open(OUT, "a") as h: h.write(json.dumps(rec) + "\n")
    MODE = Witness(); MODE.__enter__()
    import atexit
    atexit.register(lambda: MODE.__exit__(None, None, None))
