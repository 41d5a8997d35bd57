"""Short training runs that note everything that may differ between one with a watch and one without."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import numscope
from numscope.scope import open_scopes

Watch = Callable[[nn.Module], contextlib.AbstractContextManager[Any]]
Run = Callable[[Watch, "Notes"], None]

WATCHES: dict[str, Watch] = {
    "modules": lambda model: numscope.watch(model),
    "sentinel": lambda model: numscope.watch(model, level="sentinel"),
    "trace": lambda model: numscope.watch(model, trace=(1,)),
    "gradients off": lambda model: numscope.watch(model, gradients=False),
}


class Notes:
    """What a run computed, in order."""

    def __init__(self) -> None:
        self.values: list[tuple[str, Any]] = []
        self.scope: Any = None

    def add(self, name: str, value: Any) -> None:
        self.values.append((name, frozen(value)))

    def state(self, model: nn.Module, *optimizers: torch.optim.Optimizer) -> None:
        """Weights, gradients, buffers, flags, optimizers' state and every random state."""
        for name, p in model.named_parameters():
            self.add(name, p)
            self.add(f"grad {name}", p.grad)
        for name, b in model.named_buffers():
            self.add(name, b)
        self.add("training", [m.training for m in model.modules()])
        for optimizer in optimizers:
            self.add("optimizer", optimizer.state_dict())
        self.add("torch random", torch.get_rng_state())
        self.add("python random", str(random.getstate()))
        self.add("numpy random", list(numpy.random.get_state()))
        self.add("autograd", (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()))
        self.add("autocast", (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()))


def frozen(value: Any) -> Any:
    """A copy to compare by: tensors as dtype, shape and bytes, so that nan equals nan and -0 is not 0."""
    if isinstance(value, Tensor):
        tensor = value.detach()
        if tensor.layout is not torch.strided:
            tensor = tensor.to_dense()
        tensor = tensor.resolve_conj().resolve_neg().contiguous()
        return str(value.dtype), tuple(value.shape), tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
    if isinstance(value, numpy.ndarray):
        return value.tobytes()
    if isinstance(value, dict):
        return {key: frozen(v) for key, v in value.items()}
    if isinstance(value, tuple | list):
        return [frozen(v) for v in value]
    return value


def seed() -> None:
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)


def noted(run: Run, watch: Watch) -> Notes:
    """One run from the same beginning; leaves nothing behind."""
    seed()
    notes = Notes()
    run(watch, notes)
    assert_nothing_left()
    return notes


def bare(model: nn.Module) -> contextlib.AbstractContextManager[Any]:
    return contextlib.nullcontext()


def assert_equal(got: Notes, expected: Notes) -> None:
    assert [name for name, _ in got.values] == [name for name, _ in expected.values]
    differing = [f"{i}: {name}" for i, ((name, a), (_, b)) in enumerate(zip(got.values, expected.values, strict=True)) if a != b]
    assert not differing


def assert_same_under_every_watch(run: Run, capsys: Any = None) -> None:
    expected = noted(run, bare)
    for name, watch in WATCHES.items():
        got = noted(run, _checked(watch))
        try:
            assert_equal(got, expected)
        except AssertionError as error:
            raise AssertionError(f"watch {name!r} changes the run: {error}") from error


def _checked(watch: Watch) -> Watch:
    """A watch that must still be at work when the run is over, and have found nothing."""

    @contextlib.contextmanager
    def checked(model: nn.Module) -> Any:
        with watch(model) as scope:
            yield scope
            assert not scope.closed, "the watch gave up"
            assert scope.batch or scope.step_number or scope._watch.options.trace, "the watch saw nothing"
            assert not scope.findings

    return checked


_original = {"backward": torch.autograd.backward, "grad": torch.autograd.grad, "step": torch.amp.GradScaler.step}


def assert_nothing_left() -> None:
    """No scope, patch, mode or global hook."""
    assert open_scopes.live() == ()
    assert torch.autograd.backward is _original["backward"]
    assert torch.autograd.grad is _original["grad"]
    assert torch.amp.GradScaler.step is _original["step"]
    assert _get_current_dispatch_mode_stack() == []
    assert not torch._C._is_torch_function_mode_enabled()
    # Converted layers share one hook as long as one of them lives; an earlier test's may.
    stepping = sys.modules.get("numscope.precision.gemm.layer_state")
    of_layers = [stepping._after_step] if stepping is not None and stepping._num_followed else []
    assert not _global_optimizer_pre_hooks
    assert [hook for hook in _global_optimizer_post_hooks.values() if hook not in of_layers] == []
    hooks = torch.nn.modules.module
    assert not hooks._global_forward_pre_hooks and not hooks._global_forward_hooks and not hooks._global_backward_hooks


def assert_no_hooks(model: nn.Module) -> None:
    for module in model.modules():
        for name, value in vars(module).items():
            if name.endswith(("_hooks", "_hooks_with_kwargs", "_hooks_always_called")) and isinstance(value, dict):
                ours = [key for key, hook in value.items() if key < 0 or "numscope" in f"{hook!r} {getattr(hook, 'func', hook)!r}"]
                assert not ours, (type(module), name)
