"""Inventory of torch's global switches before and after training.

Source: https://github.com/rballester/tntorch/issues/4
"""
import hashlib, os, random, sys
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

random.seed(11)
np.random.seed(12)
torch.manual_seed(13)
torch.set_num_threads(1)


def H(*things):
    """A short hash of the bits of tensors, arrays, containers and plain values."""
    h = hashlib.sha256()

    def eat(t):
        if isinstance(t, torch.Tensor):
            t = t.detach()
            if t.layout != torch.strided:
                t = t.to_dense()
            h.update(f"{t.dtype}{tuple(t.shape)}".encode())
            t = t.resolve_conj().resolve_neg().contiguous().cpu().reshape(-1)
            h.update(t.view(torch.uint8).numpy().tobytes() if t.numel() else b"")
        elif isinstance(t, np.ndarray):
            h.update(f"{t.dtype}{t.shape}".encode() + np.ascontiguousarray(t).tobytes())
        elif isinstance(t, dict):
            for k, v in t.items():
                h.update(repr(k).encode())
                eat(v)
        elif isinstance(t, (list, tuple)):
            h.update(f"{len(t)}(".encode())
            for v in t:
                eat(v)
        else:
            h.update(repr(t).encode())

    for t in things:
        eat(t)
    return h.hexdigest()[:16]


def M(model):
    """Weights, buffers and gradients."""
    return H(dict(model.state_dict()), [p.grad for p in model.parameters()])


def R():
    """All random states."""
    return H(torch.get_rng_state(), random.getstate(), np.random.get_state())


def W(model, **options):
    """With FC_WATCH=1 the model is watched from inside the script."""
    if os.environ.get("FC_WATCH") == "1":
        import numscope

        return numscope.watch(model, **options)


def net(seed=0, i=8, h=16, o=4):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(i, h), nn.Tanh(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, o))


def batch(step, n=6, i=8, o=4):
    g = torch.Generator().manual_seed(1000 + step)
    return torch.randn(n, i, generator=g), torch.randn(n, o, generator=g)


def train(model, opt, steps=5, first=0):
    for s in range(first, first + steps):
        x, y = batch(s)
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        opt.step()
    return float(loss.detach()).hex()


def inv():
    return [("dtype", torch.get_default_dtype(), torch.get_default_device()), ("threads", torch.get_num_threads(), torch.get_num_interop_threads()),
        ("det", torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory, torch.is_deterministic_algorithms_warn_only_enabled()),
        ("prec", torch.get_float32_matmul_precision(), torch.backends.mkldnn.enabled, torch.backends.cudnn.benchmark), ("grad", torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()),
        ("autocast", torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()), ("warn", torch.is_warn_always_enabled()), ("print", vars(torch._tensor_str.PRINT_OPTS)),
        ("hooks", len(torch.nn.modules.module._global_forward_hooks), len(torch.nn.modules.module._global_forward_pre_hooks), len(torch.nn.modules.module._global_backward_hooks)),
        ("share", torch.multiprocessing.get_sharing_strategy()), ("seed", torch.initial_seed()), ("mha", torch.backends.mha.get_fastpath_enabled()), ("jit", torch.jit.is_scripting(), torch._C._jit_get_profiling_executor() if hasattr(torch._C, "_jit_get_profiling_executor") else None),
        ("meta", torch.__future__.get_overwrite_module_params_on_conversion(), torch.__future__.get_swap_module_params_on_conversion()), ("cuda", torch.cuda.is_available(), torch.cuda.is_initialized()), ("dist", torch.distributed.is_initialized()),
        ("sdp", torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled()), ("flush", float(torch.tensor([1e-42]) * 1) != 0.0), ("saved", torch._C._autograd._top_saved_tensors_default_hooks(True) if hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks") else None)]
a = inv(); m = net(); W(m); print(train(m, torch.optim.Adam(m.parameters(), 1e-2), 5), M(m)); b = inv()
for x, y in zip(a, b): print(x, "" if x == y else y)
