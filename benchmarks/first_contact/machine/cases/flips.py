import argparse, ctypes, hashlib, os, sys, inspect
import torch
torch.set_num_threads(1)
P = argparse.ArgumentParser(); P.add_argument("--healthy", action="store_true"); P.add_argument("--fault", action="store_true"); P.add_argument("--steps", type=int, default=0)
A = P.parse_args(); FAULT = A.fault
PID = os.getpid(); DONE = False; STEP = 0
def flip(t, i, bit):
    "one bit of one element, in memory: no operation of torch's"
    assert t.is_contiguous() and i < t.numel()
    c = ctypes.c_uint8.from_address(t.data_ptr() + i * t.element_size() + bit // 8)
    c.value ^= 1 << (bit % 8)
def read(t, i):
    n = t.element_size(); ty = {8: ctypes.c_double, 4: ctypes.c_float, 2: ctypes.c_uint16}[n]
    return ty.from_address(t.data_ptr() + i * n).value
def poke(t, i, bit, at=4, what=""):
    "flip once, at that step, in the run's own process alone"
    global DONE
    if not FAULT or DONE or STEP != at or os.getpid() != PID: return t
    DONE = True; a = read(t, i); flip(t, i, bit); f = inspect.currentframe().f_back
    print(f"TRUTH {what} shape {tuple(t.shape)} element {i} bit {bit}: was {a:.9g}, is {read(t, i):.9g} poked at line {f.f_lineno}", flush=True)
    return t
def finish(*ts):
    h = hashlib.sha256()
    def add(o):
        if isinstance(o, torch.Tensor):
            h.update(o.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if o.numel() else b"")
        elif isinstance(o, dict):
            for k in o: h.update(str(k).encode()); add(o[k])
        elif isinstance(o, (list, tuple)): [add(x) for x in o]
        elif isinstance(o, torch.nn.Module): add(o.state_dict())
        elif isinstance(o, torch.optim.Optimizer): add(o.state_dict()["state"])
        else: h.update(repr(o).encode())
    add(ts); add(torch.get_rng_state()); print("DIGEST", h.hexdigest()[:16], flush=True)
