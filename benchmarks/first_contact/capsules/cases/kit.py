"""What the cases print: bits of a loss, a hash of weights, buffers and optimizer states."""
import hashlib, os, sys


def bits(t):
    return t.detach().contiguous().cpu().reshape(-1).view(__import__("torch").uint8).numpy().tobytes()[:8].hex()


def digest(*things):
    import torch
    h = hashlib.sha256()
    for thing in things:
        state = thing.state_dict()
        if "param_groups" in state:
            values = [v for s in state["state"].values() for v in (s.values() if isinstance(s, dict) else [s])]
        else:
            values = list(state.values())
        for v in values:
            if isinstance(v, torch.Tensor):
                if hasattr(v, "to_local"):
                    v = v.to_local()
                h.update(v.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return h.hexdigest()[:16]


def flip(op, step, bit, nth=0, element=1, out=0):
    """Enters a dispatch mode that flips one bit, once, in what the nth call of op gives at that step, in this process alone."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    pid, me = os.getpid(), sys.modules[__name__]
    left = [nth]

    class Flip(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            r = func(*args, **(kwargs or {}))
            if str(func) == op and getattr(me, "now", -1) == step and os.getpid() == pid and left[0] >= 0:
                if left[0] == 0:
                    t = r
                    if t is None:
                        t = args[0]
                    if isinstance(t, (tuple, list)):
                        t = t[out]
                    flat = t.view(-1) if t.is_contiguous() else t.as_strided((t.numel(),), (1,), t.storage_offset())
                    ints = flat.view({4: torch.int32, 2: torch.int16}[t.element_size()])
                    before = flat[element].item()
                    ints[element] ^= (1 << bit) if bit < 31 and t.element_size() == 4 else (-(1 << 31) if t.element_size() == 4 else (1 << bit))
                    print("flipped", op, "bit", bit, "element", element, before, "->", flat[element].item(), file=sys.stderr)
                left[0] -= 1
            return r

    mode = Flip()
    mode.__enter__()
    return mode
