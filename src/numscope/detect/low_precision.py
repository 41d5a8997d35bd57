"""Computes a step's gradient once more with its low precision off, and says what that precision does to the gradient."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from numscope.config.options import how_to_set
from numscope.detect.cures import computed_in, remedy_of
from numscope.distributed.agree import has_group
from numscope.precision.casting.cast import cast
from numscope.precision.casting.reference_cast import decode
from numscope.precision.casting.scaling import MX, How
from numscope.precision.gemm.layer_state import state_of
from numscope.precision.gemm.raising import raised
from numscope.precision.without_autocast import without_autocast
from numscope.probe.calls import heard
from numscope.probe.naming import class_name, named_state
from numscope.records.alert import Alert
from numscope.records.faults import ours, suppress, told
from numscope.records.finding import Culprit
from numscope.records.formats import format_of
from numscope.records.layer import GEMMS
from numscope.records.observation import FIELDS, PRECISION, Observation
from numscope.records.site import Phase, tensor_of
from numscope.replay.call import do_again
from numscope.replay.capture import BufferCopies, Call, RandomState
from numscope.replay.stages import FINITE, ModuleStack, Stages
from numscope.summary.dispatch import summarize
from numscope.summary.state import fields_of

ROUNDING = "gradient is mostly rounding"
LIMIT = 0.5  # of the gradient's energy: above it, most of the gradient is error
_NARROW = frozenset({torch.bfloat16, torch.float16})
_NUM_NAMED = 8  # parameters in an alert's evidence
_OF_OTHERS = ("transformer_engine", "torchao")  # what their layers do in low precision is not known here
NOTHING_LOW = "the step has no low precision that numscope can switch off: no autocast, no 16-bit weight, no recipe"


@dataclass(frozen=True, slots=True)
class Gap:
    """How far a gradient is from the one in high precision: sums over elements, which add up over parameters."""

    low: float = 0.0  # of squares
    high: float = 0.0
    product: float = 0.0
    error: float = 0.0  # of the differences' squares

    @classmethod
    def of(cls, low: Tensor, high: Tensor) -> Gap:
        a, b = low.detach().double().flatten(), high.detach().double().flatten()
        return cls(*torch.stack([a @ a, b @ b, a @ b, (a - b).square().sum()]).tolist())

    def __add__(self, other: Gap) -> Gap:
        return Gap(self.low + other.low, self.high + other.high, self.product + other.product, self.error + other.error)

    @property
    def relative_error(self) -> float:
        """‖low - high‖ / ‖high‖."""
        return math.sqrt(self.error / self.high) if self.high else math.inf if self.error else 0.0

    @property
    def cosine(self) -> float:
        both = math.sqrt(self.low) * math.sqrt(self.high)
        return self.product / both if both else 0.0

    @property
    def factor(self) -> float:
        """<low, high> / ‖high‖²: 1 without a multiplicative bias."""
        return self.product / self.high if self.high else math.nan

    @property
    def noise(self) -> float:
        """The share of the low gradient's energy that is not along the high one; 1 for one that low precision has made zero."""
        return 1.0 - max(self.cosine, 0.0) ** 2 if self.error else 0.0

    def text(self) -> str:
        return f"{self.relative_error:.2%} (cosine {self.cosine:.4f}, factor {self.factor:.3f})"

    def numbers(self) -> dict[str, float]:
        return {"relative_error": self.relative_error, "cosine": self.cosine, "factor": self.factor}


@dataclass(slots=True)
class Weighed:
    """A step's gradient in low precision beside the one in high precision.

    Args:
        what: that was switched off.
        gaps: by parameter's name.
        with_high: the same when one GEMM of all converted layers is in high precision, by GEMM.
        last_bin: by parameter's name, of a norm's weights the share that is in the last bin of their MX block.
        logits: the largest of each module's fused attention.
        rows: for the run's folder.
        undone: why it, or some of it, was not done; "" if all was.
    """

    what: tuple[str, ...] = ()
    gaps: dict[str, Gap] = field(default_factory=dict)
    with_high: dict[str, dict[str, Gap]] = field(default_factory=dict)
    last_bin: dict[str, float] = field(default_factory=dict)
    logits: dict[str, float] = field(default_factory=dict)
    rows: list[Observation] = field(default_factory=list)
    undone: str = ""

    def text(self) -> str:
        whole, (worst, gap) = total(self.gaps), max(self.gaps.items(), key=lambda item: item[1].error)
        said = [f"low precision ({', '.join(self.what)}) changes the gradient by {whole.text()}, {worst} most: {gap.relative_error:.2%}"]
        if self.with_high:
            each = (f"{gemm} {total(gaps).relative_error:.2%}" for gemm, gaps in self.with_high.items())
            said.append(f"with one GEMM in high precision: {', '.join(each)}")
        if self.last_bin and max(self.last_bin.values()) > 0:
            name = max(self.last_bin, key=self.last_bin.__getitem__)
            said.append(f"{self.last_bin[name]:.0%} of {name} in the last bin of their MX block")
        if self.logits:
            name = max(self.logits, key=self.logits.__getitem__)
            said.append(f"the largest attention logit is {self.logits[name]:.3g} (of {name or 'the model'})")
        return "; ".join(said)

    def numbers_of(self, name: str) -> dict[str, float]:
        """All of one parameter."""
        errors = {f"relative_error_{gemm}_high": gaps[name].relative_error for gemm, gaps in self.with_high.items()}
        return self.gaps[name].numbers() | errors | ({"last_bin": self.last_bin[name]} if name in self.last_bin else {})

    def alert(self, step: int) -> Alert | None:
        """If most of the gradient is rounding."""
        whole = total(self.gaps)
        if whole.noise <= LIMIT:
            return None
        worst = sorted(self.gaps, key=lambda name: -self.gaps[name].error)[:_NUM_NAMED]
        evidence = {
            **whole.numbers(),
            "parameters": {name: self.numbers_of(name) for name in worst},
            "with_high": {gemm: total(gaps).numbers() for gemm, gaps in self.with_high.items()},
            "last_bin": self.last_bin,
            "attention_logits": self.logits,
        }
        advice = f"{self._advice(worst[0], whole)} If this is intended: {how_to_set(ROUNDING, False)}."
        return Alert(step, ROUNDING, "", "", whole.noise, LIMIT, f"{whole.noise:.0%} of it: {self.text()}.", advice, evidence, asks=True)

    def _advice(self, worst: str, whole: Gap) -> str:
        if not whole.low:
            return "Low precision makes the gradient zero: scale the loss (torch.amp.GradScaler), or use bfloat16."
        gemm = min(self.with_high, key=lambda one: total(self.with_high[one]).error, default="")
        if gemm and total(self.with_high[gemm]).noise <= LIMIT:
            return f'Keep {gemm} in high precision: disable_fp8_gemm in a configuration, or recipe_of(…).plan().with_high(["{gemm}"]).'
        return f"Begin where the error is largest: {remedy_of(worst.rpartition('.')[0], None)}."


def total(gaps: Mapping[str, Gap]) -> Gap:
    """Of all parameters as one vector."""
    return sum(gaps.values(), Gap())


def weigh(names: Mapping[nn.Module, str], buffers: BufferCopies, calls: Sequence[Call], step: int, rank: int) -> Weighed:
    """Do calls again as they were and with low precision off, each with its backward from the gradients that its results had received.

    *Cost:* each call twice more, and three times more where layers are converted; float32 copies of 16-bit weights.
    """
    states = [state for module in names if (state := state_of(module)) is not None]
    weights = [t.dtype for _, _, t in named_state(names, buffers=False)]
    what = dict.fromkeys(f"{str(dtype).removeprefix('torch.')} weights" for dtype in weights if dtype in _NARROW)
    converted = [state for state in states if not state.plan.high or state.results]
    what |= dict.fromkeys("fake_quant" if state.in_force.is_high else state.in_force.name for state in converted)
    met: set[torch.dtype] = set()

    @contextlib.contextmanager
    def high(call: Call) -> Iterator[None]:
        with without_autocast() as dtypes, raised(states), computed_in(torch.float32, names, call.module, _NARROW):
            yield
        met.update(dtypes)

    def gradients(under: Callable[[Call], AbstractContextManager[object]]) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for call in calls:
            stages = _Again(call, names, found, under(call), logits)
            done = do_again(stages, buffers, True)
            if done.status != FINITE:
                raise _Undone(done.status)
            drawn[id(call)].add(stages.drawn)
        return found

    logits: dict[str, float] = {}
    drawn: dict[int, set[bytes]] = {id(call): set() for call in calls}
    calls = [call for call in calls if any(call.gradients) and not call.gradients_dropped]
    if not calls:
        return Weighed(undone="no gradient of the step was kept")
    try:
        exact = gradients(high)
        what |= dict.fromkeys(f"autocast {str(dtype).removeprefix('torch.')}" for dtype in met)
        if not what:
            return Weighed(undone=NOTHING_LOW)
        low = gradients(lambda call: contextlib.nullcontext())
        if any(len(several) > 1 for several in drawn.values()):
            raise _Undone("the call draws other random numbers in high precision")
        found = Weighed(tuple(what), _gaps(low, exact), logits=logits)
        for gemm in GEMMS:
            some = [state for state in states if not state.plan.is_high(gemm)]
            if some:
                found.with_high[gemm] = _gaps(gradients(lambda call, some=some, gemm=gemm: raised(some, (gemm,))), exact)  # type: ignore[misc]
    except _Undone as error:
        return Weighed(undone=str(error))
    except ours() as error:
        return Weighed(undone=f"it raised {told(error)}")
    if found.gaps and not total(found.gaps).high and not total(found.gaps).low:
        return Weighed(undone="the gradient is 0, since all that the model's results received of it is: scale a float16 loss (GradScaler)")
    if not found.gaps:
        return Weighed(undone="no parameter's gradient is finite in both precisions")
    if any(how is not None and how.scaling.scale_format == "e8m0" for state in states for how in state.plan.values()):
        found.last_bin = dict(_last_bins(names))
    classes = {name: class_name(module) for module, name in names.items()}
    for name in found.gaps:
        layer, _, slot = name.rpartition(".")
        where = (
            layer or classes.get("", ""),
            classes.get(layer, ""),
            tensor_of(Phase.BACKWARD, f"grad {slot}").replace("grad", "grad_error", 1),
        )
        row = summarize(low[name].double() - exact[name].double()).to_row()
        columns = {f"{PRECISION}{key}": value for key, value in found.numbers_of(name).items()}
        fields = dict(zip(FIELDS, fields_of(row), strict=True))
        found.rows.append(Observation(step, *where, "", -1, rank, 1, len(calls), fields, columns, {}))
    others = sorted({root for module in names for root in _OF_OTHERS if type(module).__module__.startswith(root)})
    found.undone = f"{' and '.join(others)}: what their layers do in low precision is the same in both" if others else ""
    return found


class _Undone(Exception):
    """It can't be done."""


class _Again(Stages):
    """A call's forward and backward once more under a variation; the gradients that its results had received come in their dtypes."""

    seeks = False
    drawn = b""  # where the forward has left the generator

    def __init__(
        self,
        call: Call,
        names: Mapping[nn.Module, str],
        gradients: dict[str, Tensor],
        under: AbstractContextManager[object],
        logits: dict[str, float],
    ) -> None:
        super().__init__(call, names, has_group(), None)
        self.under, self._gradients, self._logits = under, gradients, logits

    def forward(self) -> Culprit | None:
        culprit = super().forward()
        state = RandomState.capture(exact=False)
        self.drawn = b"".join(one.numpy().tobytes() for one in (state.torch_cpu, *state.devices.values()))
        dtypes = {at: t.dtype for at, t in self.outputs}
        received = [{at: g.to(dtypes.get(at, g.dtype)) for at, g in several.items()} for several in self.call.gradients]
        self.call = replace(self.call, gradients=received)
        return culprit

    @contextlib.contextmanager
    def _probed(self, phase: Phase) -> Iterator[None]:
        with heard(), ModuleStack(self.names) as modules, AttentionLogits(modules.current, self._logits):
            yield

    def _gave(self, gradients: Sequence[Tensor | None]) -> None:
        for (name, _), gradient in zip(self.parameters, gradients, strict=True):
            if gradient is not None:
                self._gradients[name] = self._gradients.get(name, 0) + gradient.to_dense()


def _gaps(low: Mapping[str, Tensor], high: Mapping[str, Tensor]) -> dict[str, Gap]:
    gaps = {name: Gap.of(low[name], g) for name, g in high.items() if name in low}
    return {name: gap for name, gap in gaps.items() if math.isfinite(gap.error)}


def _last_bins(names: Mapping[nn.Module, str]) -> Iterator[tuple[str, float]]:
    """Of norms' weights, the share that e4m3 in MX blocks rounds to its largest number: a block whose weights are close to each other, just
    below a power of two, becomes one number."""
    form = format_of("e4m3")
    for module, name in names.items():
        weight = module._parameters.get("weight")
        if "norm" in type(module).__name__.lower() and weight is not None and weight.dim() == 1 and weight.is_floating_point():
            codes = cast(weight, How(form, MX), values=False, codes=True).codes
            assert codes is not None
            yield f"{name}.weight".lstrip("."), float((decode(codes, form).abs() == form.max).double().mean())


_FUSED_ATTENTION = "_scaled_dot_product_"
_MOST_LOGITS = 1 << 24  # logits at a time


class AttentionLogits(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Computes the logits of ``scaled_dot_product_attention`` once more, where a fused kernel runs it.

    Args:
        module: returns the qualified name of the innermost module being called.
        largest: gets the largest logit by module, in units of nats, as softmax gets it: scaled, and with the mask.

    *Cost:* of each attention the product of queries and keys, in float32, 64 MiB at a time.
    """

    def __init__(self, module: Callable[[], str], largest: dict[str, float]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._module, self._largest = module, largest

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.__name__
        if name.startswith(_FUSED_ATTENTION) and "backward" not in name:
            with suppress(Exception), torch.no_grad():
                given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
                mask = given.get("attn_mask", given.get("attn_bias"))
                found = largest_logit(given["query"], given["key"], mask, given.get("is_causal", False), given.get("scale"))
                self._largest[self._module()] = max(self._largest.get(self._module(), -math.inf), found)
        return func(*args, **kwargs)


def largest_logit(query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None) -> float:
    """The largest of softmax's arguments.

    Args:
        query: [batch, heads, L, d]; ``key``: [batch, heads, S, d], or of heads that several of the query's share.
        mask: as ``scaled_dot_product_attention`` takes it, broadcast to [batch, heads, L, S].
        scale: None: 1/√d.
    """
    key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3) if key.shape[-3] != query.shape[-3] else key
    length, width = query.shape[-2], key.shape[-2]
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    rows = max(1, _MOST_LOGITS // max(1, query.shape[-3] * width))
    masks = None if mask is None else mask.broadcast_to(*query.shape[:-1], width).flatten(0, -4)
    largest = -math.inf
    for number, (q, k) in enumerate(zip(query.flatten(0, -4), key.flatten(0, -4), strict=True)):
        for begin in range(0, length, rows):
            part = slice(begin, min(begin + rows, length))
            logits = q[:, part].float() @ k.float().mT * scale
            if masks is not None:
                here = masks[number, :, part]
                logits = logits.masked_fill(~here, -math.inf) if here.dtype is torch.bool else logits + here
            if is_causal:
                seen = torch.ones(part.stop - begin, width, dtype=torch.bool, device=logits.device).tril(begin)
                logits = logits.masked_fill(~seen, -math.inf)
            largest = max(largest, float(logits.max()))
    return largest
