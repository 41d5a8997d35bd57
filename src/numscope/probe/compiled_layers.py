"""Selected layers inside compiled graphs: hooks that dynamo traces put an operator into the graph, which hands a tensor to an observer.

``numscope::tally`` is declared to have an effect, so that no pass drops, reorders or recomputes it; it reads its tensor, changes nothing.
It finds the observer by a number that is written into the graph: a graph keeps no observer alive, and one whose observer is gone
observes nothing.
"""

from __future__ import annotations

import importlib.util
import itertools
import logging
import weakref
from typing import Any, Protocol

import torch
from torch import Tensor

log = logging.getLogger("numscope")

_task = torch._C._current_graph_task_id


class Observer(Protocol):
    """What tensors inside compiled graphs are handed to."""

    def observe(self, site: int, tensor: Tensor) -> None:
        """Read a tensor now: the graph may write over its memory afterwards. Must not raise."""


_library: Any = None
_observers: weakref.WeakValueDictionary[int, Observer] = weakref.WeakValueDictionary()
_numbers = itertools.count()


def enroll(observer: Observer) -> int:
    """Give an observer its number for ``tap_forward`` and its like; not held on to. Numbers are not given twice.

    To be called before anything is traced. *Cost:* 0.2 ms the first time.
    """
    _register()
    number = next(_numbers)
    _observers[number] = observer
    return number


# ---- in hooks, while dynamo traces them


def tap_forward(tally_id: int, site: int, tensor: Tensor) -> None:
    """Observe a tensor of a forward. Runs of the forward that recompute it for a backward are not told again."""
    torch.ops.numscope.tally(tensor.detach(), tally_id, site, False)


def tap_gradient(tally_id: int, site: int, tensor: Tensor) -> None:
    """Observe the gradient of a tensor that the graph computes, in each backward. Nothing where gradients can't be tapped."""
    if GRADIENTS and tensor.requires_grad and torch.is_grad_enabled():

        def seen(gradient: Tensor) -> None:
            torch.ops.numscope.tally(gradient, tally_id, site, True)

        tensor.register_hook(seen)  # type: ignore[no-untyped-call]


def tap_dgrad(tally_id: int, site: int, tensor: Tensor) -> Tensor:
    """Observe one module's own part in its input's gradient; to be called in a forward pre-hook.

    Only for modules that use their input once, as a Linear or a convolution does. Others would have their parts added up before they
    join the other consumers' parts, and a sum in another order rounds otherwise.

    Returns: what the module must get in place of its input.
    """
    if not (GRADIENTS and tensor.requires_grad and torch.is_grad_enabled()):
        return tensor
    own = tensor.view_as(tensor)
    tap_gradient(tally_id, site, own)
    return own


# Hooks on tensors inside a graph: torch 2.10 breaks the graph there.
GRADIENTS = importlib.util.find_spec("torch._higher_order_ops.register_hook") is not None


# ---- the operator


def _register() -> None:
    """Make ``torch.ops.numscope.tally(Tensor x, int tally_id, int site, bool is_gradient) -> ()`` callable; calling twice does no harm."""
    global _library
    if _library is not None:
        return
    from torch._higher_order_ops.effects import _EffectType, _register_effectful_op

    untyped: Any = torch.library
    library = untyped.Library("numscope", "FRAGMENT")
    tags = [torch.Tag.pt2_compliant_tag]
    if hasattr(torch.Tag, "cudagraph_unsafe"):  # a replayed CUDA graph would run no Python
        tags.append(torch.Tag.cudagraph_unsafe)
    library.define("tally(Tensor x, int tally_id, int site, bool is_gradient) -> ()", tags=tuple(tags))
    library.impl("tally", _tally, "CompositeExplicitAutograd")
    library.impl("tally", torch.library.fallthrough_kernel, "Autograd")
    torch.library.register_fake("numscope::tally", _tally_nothing, lib=library)
    _register_effectful_op(torch.ops.numscope.tally.default, _EffectType.ORDERED)
    _library = library  # the registration lives as long as this object


def _tally(x: Tensor, tally_id: int, site: int, is_gradient: bool) -> None:
    observer = _observers.get(tally_id)
    if observer is None or (not is_gradient and _task() != -1):
        return
    try:
        # A tensor object of its own: compiled code writes into one object's memory again, untold by its version, and a ledger would take
        # it for one that it has read.
        observer.observe(site, x.detach())
    except Exception as error:
        _observers.pop(tally_id, None)
        log.error("inside a compiled graph nothing is observed any more: %s: %s", type(error).__name__, error)


def _tally_nothing(x: Tensor, tally_id: int, site: int, is_gradient: bool) -> None:
    return None
