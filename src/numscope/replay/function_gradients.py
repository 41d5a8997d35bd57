"""Holds the backward of each autograd.Function that a call runs against differences of its forward, in several directions.

(f(x + hu) - f(x - hu)) / 2h · v must be u · backward(v), for any u and v. Each is asked in float64 where the Function runs in it. Nothing
is said where differences don't settle (a jump), where the forward has no slope (rounding: a straight-through estimator) or gives its
operand back (a gradient that is reversed, scaled or clipped on purpose).
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from numscope.distributed.agree import has_group
from numscope.probe.calls import heard
from numscope.records.faults import ours, suppress
from numscope.records.places import is_installed
from numscope.records.site import Phase
from numscope.replay import stack as stacks
from numscope.replay.call import do_again
from numscope.replay.capture import BufferCopies, Call, RandomState
from numscope.replay.compiled_graphs import running
from numscope.replay.stages import ModuleStack, Stages
from numscope.summary.unseen import unseen

DIRECTIONS = 3
TOLERANCE = 5e-3  # of the larger of the two, over all directions
_MOST_TIMES = 16  # a whole number that another one is not near by chance
MOST_SECONDS = 20.0  # no further Function is begun after so long
MOST_BYTES = 64 << 20  # of one Function's operands; larger ones are left out
_MOST_CALLS = 3  # of one class in a call
_STEPS = (3e-2, 1e-2, 3e-3, 1e-3, 1e-4, 1e-5)  # in units of the operand's own size
_SETTLED = 5e-4
_FAR = 0.3  # a size over which rounding averages out
_ROUGH = 0.25  # by which a gradient in a low precision may be off
_SHRINKS = 0.6  # what the slopes on both sides differ by shrinks with h by a third at least, but at a kink
_GENERATED = "GeneratedBackwardFor_"  # torch.library.register_autograd's classes


@dataclass(frozen=True, slots=True)
class WrongGradient:
    """One operand whose gradient is not what the forward says.

    Args:
        function: the class's name; ``operand``: the argument's in its forward.
        kind: what is wrong, a sentence's part.
        backward: file and line of its backward; ``file`` and ``line``: where the script applies it.
        dtype: in which it was asked.
    """

    function: str
    operand: str
    kind: str
    module: str
    backward: tuple[str, int]
    file: str
    line: int
    code: str
    dtype: str


@dataclass(slots=True)
class Application:
    """One application of a Function: its class and copies of its arguments, and which of them want a gradient."""

    cls: Any
    args: list[Any]
    wanted: list[int]
    module: str
    place: tuple[str, int, str]


def examine(call: Call, names: Mapping[nn.Module, str], buffers: BufferCopies) -> tuple[list[WrongGradient], str]:
    """Do a call's forward again, and examine each autograd.Function that it runs, but torch's own.

    Returns: what is wrong, and why some were not asked, "" if all were.

    *Cost:* a forward; for each Function and operand some forty of its forwards, none begun after 20 s.
    """
    stages = _Collecting(call, names)
    do_again(stages, buffers, backward=False)
    return examined(stages.cases)


def examined(cases: Sequence[Application]) -> tuple[list[WrongGradient], str]:
    """The same of Functions that were applied elsewhere."""
    found, end, before, undone = list[WrongGradient](), time.monotonic() + MOST_SECONDS, RandomState.capture(), ""
    for case in cases:
        if time.monotonic() > end:
            undone = f"the gradients of {case.cls.__name__} and those after it were not asked for: {MOST_SECONDS:g} s were over"
            break
        try:
            found += _examined(case)
        except ours() as error:
            undone = f"the gradients of {case.cls.__name__} were not asked for: {type(error).__name__}: {error}"
    before.restore()  # it may be the run's own process
    return list({(one.function, one.operand): one for one in reversed(found)}.values())[::-1], undone


class AppliedOutside:
    """Keeps what Functions are applied to outside the model's calls, in the loss, from ``begin`` to ``end``.

    *Cost:* a copy of each operand. Nothing is kept where code is compiled, which would be compiled anew for it.
    """

    def __init__(self, names: Mapping[nn.Module, str]) -> None:
        self._names = names
        self._cases: list[Application] = []
        self._until = contextlib.ExitStack()
        self._is_on = False

    def begin(self) -> None:
        dynamo: Any = sys.modules.get("torch._dynamo.utils")
        if not self._is_on and not (dynamo is not None and dynamo.counters.get("frames")):
            self._is_on, self._cases = True, []
            self._until.enter_context(_each_applied(self._note))

    def end(self) -> list[Application]:
        """Stop. Safe to call twice. Returns: the applications that were kept."""
        self._until.close()
        self._is_on = False
        cases, self._cases = self._cases, []
        return cases

    def _note(self, cls: Any, given: tuple[Any, ...]) -> None:
        if not running(self._names):
            with unseen():
                _note(self._cases, cls, given, "", stacks.capture(sys._getframe(3)).resolve())


class _Collecting(Stages):
    """A forward that keeps what each Function is applied to."""

    seeks = False

    def __init__(self, call: Call, names: Mapping[nn.Module, str]) -> None:
        super().__init__(call, names, has_group(), None)
        self.cases: list[Application] = []

    @contextlib.contextmanager
    def _probed(self, phase: Phase) -> Iterator[None]:
        def note(cls: Any, given: tuple[Any, ...]) -> None:
            _note(self.cases, cls, given, stack.current(), (*self.call.caller.resolve(), *stacks.capture(sys._getframe(3)).resolve()))

        with heard(), ModuleStack(self.names) as stack, _each_applied(note):
            yield


_Heard = Callable[[Any, tuple[Any, ...]], None]
_heard: list[_Heard] = []
_patched: list[tuple[Any, Any, Any]] = []  # classes, their forward, and ours in its place


@contextlib.contextmanager
def _each_applied(note: _Heard) -> Iterator[None]:
    """Tells of each application of a Function that is not torch's or ours: its class, and what its forward is given.

    Several may hear at a time, and end in any order: the last to end puts back what each class had before the first began.
    """
    if not _heard:
        for cls in _functions(Function):
            original = cls.__dict__["forward"]
            cls.forward = put = staticmethod(partial(_forward, cls, original.__func__))
            _patched.append((cls, original, put))
    _heard.append(note)
    try:
        yield
    finally:
        _heard.remove(note)
        while not _heard and _patched:
            cls, original, put = _patched.pop()
            if cls.__dict__.get("forward") is put:  # somebody may have put theirs
                cls.forward = original


def _forward(cls: Any, original: Callable[..., Any], *given: Any, **more: Any) -> Any:
    for note in [*_heard]:
        with suppress(Exception):
            note(cls, given)
    return original(*given, **more)


def _note(cases: list[Application], cls: Any, given: tuple[Any, ...], module: str, stack: Sequence[tuple[str, int, str, str]]) -> None:
    is_plain = cls.setup_context is not Function.setup_context  # its forward gets no ctx
    args = [*(given if is_plain else given[1:])]
    needs = [isinstance(a, Tensor) and a.requires_grad for a in args] if is_plain else given[0].needs_input_grad
    wanted = [i for i, (a, needed) in enumerate(zip(args, needs, strict=False)) if needed and a.is_floating_point()]
    size = sum(a.numel() * a.element_size() for a in args if isinstance(a, Tensor))
    num = sum(case.cls is cls for case in cases)
    if wanted and size <= MOST_BYTES and num < _MOST_CALLS and not any(map(callable, args)):
        copies = [a.detach().clone() if isinstance(a, Tensor) else a for a in args]
        lines = [found for found in stack if not is_installed(found[0])]
        file, line, _, code = lines[-1] if lines else ("", 0, "", "")
        cases.append(Application(cls, copies, wanted, module, (file, line, code)))


def _functions(base: Any) -> Iterator[Any]:
    for cls in base.__subclasses__():
        own = not cls.__module__.startswith(("torch.", "numscope.")) or cls.__name__.startswith(_GENERATED)
        if own and isinstance(cls.__dict__.get("forward"), staticmethod):
            yield cls
        yield from _functions(cls)


def _examined(case: Application) -> Iterator[WrongGradient]:
    run = _Run(case, torch.float64)
    try:
        run.analytic(1.0)
    except ours():
        run = _Run(case, torch.float32)
        run.analytic(1.0)
    unlike = run.unlike()
    for at in case.wanted:
        kind = run.wrong(at) or unlike.get(at, "")
        if kind:
            code = inspect.unwrap(case.cls.backward).__code__ if hasattr(inspect.unwrap(case.cls.backward), "__code__") else None
            backward = (code.co_filename, code.co_firstlineno) if code is not None and not is_installed(code.co_filename) else ("", 0)
            name = case.cls.__name__.removeprefix(_GENERATED)
            yield WrongGradient(name, _operand(case, at), kind, case.module, backward, *case.place, str(run.dtype).removeprefix("torch."))


def _operand(case: Application, at: int) -> str:
    """The name of an argument in the signature of the class's forward."""
    with suppress(Exception):
        names = [*inspect.signature(case.cls.__dict__["forward"].__func__).parameters]
        names = names if case.cls.setup_context is not Function.setup_context else names[1:]
        return names[at]
    return f"operand {at}"


def _distance(tensor: Tensor, right: Tensor) -> float:
    """Of the right one's norm."""
    return float((tensor.double() - right.double()).norm() / right.double().norm().clamp_min(1e-300))


class _Run:
    """A Function in one dtype, None: as it was applied, with the gradient that its results are to have."""

    def __init__(self, case: Application, dtype: torch.dtype | None) -> None:
        self.case, self.dtype = case, dtype
        self.args = [a.to(dtype or a.dtype) if isinstance(a, Tensor) and a.is_floating_point() else a for a in case.args]
        self.random, self.made = RandomState.capture(), torch.Generator().manual_seed(0)
        self.seeds, self.results = list[Tensor](), list[Tensor]()
        self.gradients: dict[int, Tensor | None] = {}

    def apply(self, moved: Mapping[int, Tensor]) -> list[Tensor]:
        """The results that have a gradient, of arguments of which some are others."""
        self.random.restore()
        args = [moved.get(i, a) for i, a in enumerate(self.args)]
        with torch.enable_grad():
            result = self.case.cls.apply(*(a.clone() if isinstance(a, Tensor) else a for a in args))
        results = result if isinstance(result, tuple | list) else (result,)
        return [r for r in results if isinstance(r, Tensor) and r.is_floating_point()]

    def analytic(self, factor: float) -> dict[int, Tensor | None]:
        """The operands' gradients by the backward, for ``factor`` times the seeds."""
        leaves = {at: self.args[at].detach().requires_grad_() for at in self.case.wanted}
        results = self.apply(leaves)
        if not self.seeds:
            self.seeds = [torch.randn(r.shape, generator=self.made, dtype=r.dtype).to(r.device) for r in results]
            self.given_back = {
                at for at, x in leaves.items() if any(r.shape == x.shape and torch.equal(r, x.detach().to(r.dtype)) for r in results)
            }
        pairs = [(r, s.to(r.dtype) if factor == 1 else s * factor) for r, s in zip(results, self.seeds, strict=True) if r.requires_grad]
        found = torch.autograd.grad([r for r, _ in pairs], [*leaves.values()], [s for _, s in pairs], allow_unused=True)
        gradients: dict[int, Tensor | None] = dict(zip(leaves, found, strict=True))
        self.gradients, self.results = self.gradients or gradients, [r.detach() for r in results]
        return gradients

    def value(self, at: int, x: Tensor) -> float:
        with torch.no_grad():
            return sum(float((r.double() * s.double()).sum()) for r, s in zip(self.apply({at: x}), self.seeds, strict=True))

    def slope(self, at: int, direction: Tensor) -> tuple[float, float]:
        """The numeric derivative, and what differences of two sizes, or the two sides of a kink, differ by at the sizes that agree best."""
        x, here = self.args[at], self.value(at, self.args[at])
        both = [(self.value(at, x + h * direction), self.value(at, x - h * direction)) for h in _STEPS]
        found = [(after - before) / (2 * h) for h, (after, before) in zip(_STEPS, both, strict=True)]
        gaps = [abs(after + before - 2 * here) / h for h, (after, before) in zip(_STEPS, both, strict=True)]
        apart, n = min((abs(a - b), n) for n, (a, b) in enumerate(itertools.pairwise(found), 1) if a or b or not any(found))
        return found[n], apart if gaps[n] <= _SHRINKS * gaps[n - 1] else max(apart, gaps[n])

    def wrong(self, at: int) -> str:
        """The kind of error of one operand's gradient; "" if nothing is, or nothing can be said."""
        x, gradient = self.args[at], self.gradients[at]
        if at in self.given_back or not x.numel() or not bool(torch.isfinite(x).all()):
            return ""
        size = float(x.square().mean().sqrt()) or 1.0
        told, true, apart, far = list[float](), list[float](), list[float](), list[float]()
        for _ in range(DIRECTIONS):
            direction = torch.randn(x.shape, generator=self.made, dtype=x.dtype).to(x.device) * size
            told.append(0.0 if gradient is None else float((gradient.double() * direction.double()).sum()))
            slope, error = self.slope(at, direction)
            true.append(slope)
            apart.append(error)
            far.append((self.value(at, x + _FAR * direction) - self.value(at, x - _FAR * direction)) / (2 * _FAR))
        if not all(map(math.isfinite, (*told, *true))) or math.hypot(*apart) > _SETTLED * math.hypot(*true) or not any(true):
            return ""  # not settled, or no slope
        if math.dist(told, far) < _FAR * math.dist(told, true):
            return ""  # rounding with a scale of its own: the slope is that of the scale
        return self._kind(told, true, is_number=x.numel() == 1)

    def unlike(self) -> dict[int, str]:
        """Errors of operands' gradients for a grad_output with other strides, or in the dtype of the run alone."""
        rough, found = _Run(self.case, None), dict[int, str]()
        rough.seeds, right = self.seeds, self.results
        with suppress(Exception):  # it may not take other strides, which it then says itself
            self.seeds = [torch.stack((s, s), -1)[..., 0] for s in self.seeds]
            for at, off in self._off(self.analytic(1.0)):
                if off > TOLERANCE:
                    found[at] = "another one where the gradient of the result (grad_output) is not contiguous"
        with suppress(Exception):
            gradients = self._off(rough.analytic(1.0))
            if all(_distance(r, other) < _ROUGH / 2 for r, other in zip(rough.results, right, strict=True)):  # the same random numbers
                lowest = min((a.dtype for a in self.case.args if isinstance(a, Tensor) and a.is_floating_point()), key=lambda d: d.itemsize)
                for at, off in gradients:
                    if off > _ROUGH:
                        found.setdefault(at, f"off by {off:.0%} in {str(lowest).removeprefix('torch.')} alone")
        self.seeds = rough.seeds
        return found

    def _off(self, gradients: Mapping[int, Tensor | None]) -> Iterator[tuple[int, float]]:
        """How far gradients are from those of this run, of their norm."""
        for at, gradient in gradients.items():
            own = self.gradients[at]
            if gradient is not None and own is not None and own.numel():
                yield at, _distance(gradient, own)

    def _kind(self, told: Sequence[float], true: Sequence[float], *, is_number: bool) -> str:
        """The kind of error. Of a single number any two gradients are a multiple of each other: only a small whole factor, or its
        inverse, is told as one."""
        size = math.hypot(*told), math.hypot(*true)
        if math.dist(told, true) <= TOLERANCE * max(size) or max(size) == 0:
            return ""
        if size[0] <= 1e-9 * size[1]:
            return "none, or zeros, though the result depends on it"
        doubled = self.analytic(2.0)
        both = zip(self.gradients.values(), doubled.values(), strict=True)
        if all(torch.equal(g, other) for g, other in both if g is not None and other is not None):
            return "not multiplied by the gradient of the result (grad_output)"
        factor = sum(a * b for a, b in zip(told, true, strict=True)) / size[1] ** 2
        times = max(abs(factor), 1 / abs(factor)) if factor else 0.0
        is_factor = not is_number or (times < _MOST_TIMES and abs(times - round(times)) <= 1e-3)
        if is_factor and math.dist(told, [factor * b for b in true]) <= TOLERANCE * size[0]:
            if abs(factor + 1) <= TOLERANCE:
                return "of the opposite sign"
            return f"{factor:.4g} times {'too large' if factor > 1 else 'what it should be'}"
        slopes = ", ".join(f"{a:.3g} where the forward gives {b:.3g}" for a, b in zip(told, true, strict=True))
        return f"another one (slopes in {DIRECTIONS} directions: {slopes})"
