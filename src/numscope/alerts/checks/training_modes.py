"""A training step runs in the modes that it should: train mode, and an autocast that reaches something."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.optim import Optimizer

from numscope.alerts.checks.check import OCCASIONS, UNKNOWN, Check, ScriptLine, Subject, current_line, names_of
from numscope.alerts.checks.weight_updates import Sums
from numscope.records.faults import ours
from numscope.records.words import count

TRAIN_MODE = "train mode in evaluation"
STAYS_ON = "autocast is never left"
FORGETS = "batch norm forgets"
MOST_EVALUATIONS = 8  # whose random numbers are looked at
LEAST_CALLS = 4  # in a row without gradients: an evaluation; fewer may make targets for the next step
LOOKS = (LEAST_CALLS, 4 * LEAST_CALLS, 5 * LEAST_CALLS)  # numbers of such calls at which something is looked at
LOW = ("float16", "bfloat16")
_CAST = (nn.Linear, nn.modules.conv._ConvNd, nn.Bilinear, nn.RNNBase)  # what autocast runs in the low dtype


class EvalMode(Check):
    """A step trains in eval mode, which switches off dropout and freezes batch norms' statistics; or an evaluation runs in train mode.

    If the model was in train mode before, it was forgotten to switch back, and that is said at once; else it may be intended. An evaluation
    in train mode may always be.

    *Cost:* a look at ``model.training`` a call; where it is off, 0.1 µs a module at thorough steps, and as it goes off;
    two passes over the weights of a frozen model that is called in train mode, once.
    """

    name = "eval mode"
    also = (TRAIN_MODE,)
    cheap = OCCASIONS

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._trained = -1  # the last step with a call in train mode
        self._calls = 0  # with gradients, in this step, in eval mode
        self._in_train = False  # some call of this step was not
        self._line = UNKNOWN
        self._evaluations = 0  # calls in a row without gradients, in train mode
        self._teaches: list[Sums] = []  # of a frozen model that was never trained, at two of these calls

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if module is not self.subject.model:
            return
        if not torch.is_grad_enabled():
            self._evaluations = self._evaluations + 1 if module.training else 0
            if self._evaluations in LOOKS and TRAIN_MODE not in self.spoken:
                self._line = current_line()
                if self._trained < 0:
                    self._look_at_teacher()
                elif self._evaluations == LEAST_CALLS:
                    self._evaluated(f"{LEAST_CALLS} times in a row, ")
            return
        self._evaluations = 0
        if module.training:
            self._in_train = True
            self._trained = self.subject.step
        elif self.name not in self.spoken:
            if not self._calls:
                self._line = current_line()
            self._calls += 1

    def _look_at_teacher(self) -> None:
        """Where nothing trains it, and nothing writes it, as a moving average does, the targets that it makes have its dropouts' noise."""
        if len(self._teaches) == 2:  # they came to the host some calls ago
            first, last = (sums.read() for sums in self._teaches)
            if first == last:
                self._evaluated("though nothing trains it, ")
        elif not any(p.requires_grad for p in self.subject.model.parameters()):
            self._teaches.append(Sums(self.subject.parameters()))

    def _evaluated(self, often: str) -> None:
        dropouts, norms = ([m for m in of_kind if m.training] for of_kind in _moody(self.subject.model))
        if not (dropouts or norms):
            return
        does = [f"{count(len(dropouts), 'dropout layer')} at work"] if dropouts else []
        does += [f"{count(len(norms), 'batch norm')} writing statistics"] if norms else []
        text = f"The model is called without gradients in train mode{self._line.at()}, {often}with {' and '.join(does)}."
        self.say(text, "Call model.eval() before an evaluation.", rule=TRAIN_MODE, line=self._line, asks=True)

    def before_step(self, optimizer: Optimizer) -> None:
        if not self._calls or self._in_train or not self.subject.steps.had_backward:
            return
        if self._trained < 0 and self.subject.num < 1:  # it may be trying out a step
            return
        concerned = _modes_matter(self.subject.model)
        if not concerned:
            self.spoken.add(self.name)
            return
        text = f"The model trains in eval mode{self._line.at()}: {concerned}."
        if self._trained >= 0:
            # It may be that a head is now trained on what was learned.
            asks = any(not p.requires_grad for p in self.subject.model.parameters())
            text += f" It was in train mode until step {self._trained}."
            self.say(text, "Call model.train() after each evaluation.", line=self._line, asks=asks)
        else:
            self.say(text, "Call model.train() before the loop.", line=self._line, asks=True)

    def end(self, closing: bool) -> None:
        self._calls = 0
        self._in_train = False


class DropoutInEvaluation(Check):
    """A model in evaluation mode, called without gradients, draws random numbers, and a forward of its calls dropout without ``training``.

    *Cost:* at its first ``MOST_EVALUATIONS`` evaluations two copies of a generator's state, some µs; where it has moved, modules' source.
    """

    name = "dropout in evaluation"
    cheap = OCCASIONS

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._state: Tensor | None = None  # of the generator, as an evaluation began
        self._evaluations = 0

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._state = None
        if not (module.training or torch.is_grad_enabled() or self.subject.probe.traced) and module is self.subject.model:
            self._evaluations += 1
            self._state = self._now()

    def leave(self, module: nn.Module, output: Any) -> None:
        state, self._state = self._state, None
        if state is not None and not torch.equal(state, self._now()):
            for name, kind in {type(m): (name, type(m)) for m, name in self.subject.probe.names.items()}.values():
                if found := _careless_dropout(kind):
                    text = f"{kind.__name__} drops out in evaluation mode at {found.short} too: {found.code}"
                    advice = "Give it training=self.training (attention: dropout_p=self.p if self.training else 0.0), or use nn.Dropout."
                    self.say(text, advice, line=found, layer=name)
                    break
        if self._evaluations >= MOST_EVALUATIONS:
            self.spoken.add(self.name)

    def _now(self) -> Tensor:
        device = next((p.device for p in self.subject.model.parameters()), torch.device("cpu"))
        return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _careless_dropout(kind: type[nn.Module]) -> ScriptLine | None:
    """The line of a class's ``forward`` that calls a function named ``dropout`` without saying whether it trains."""
    try:
        lines, start = inspect.getsourcelines(kind.forward)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except ours(OSError, TypeError, SyntaxError):  # a class of a prompt, of C, of a template
        return None
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        given = {each.arg: ast.unparse(each.value) for each in call.keywords}
        if call.func.attr.endswith("dropout") and len(call.args) < 3:
            owner = ast.unparse(call.func.value)
            is_careless = (owner in ("F", "functional") or owner.endswith("nn.functional")) and not given.keys() & {"training", None}
        else:
            rate = given.get("dropout_p", "")
            is_careless = call.func.attr == "scaled_dot_product_attention" and rate.startswith("self.") and "training" not in rate
        if is_careless:
            file = inspect.getsourcefile(kind) or ""
            return ScriptLine(file, start + call.lineno - 1, lines[call.lineno - 1].strip())
    return None


def _modes_matter(model: nn.Module) -> str:
    """The effect of eval mode on a model whose modules are all in it; "" if there is none."""
    dropouts, norms = _moody(model)
    if any(module.training for module in (*dropouts, *norms)):
        return ""
    if dropouts:
        return f"its {len(dropouts)} dropout {'layer does' if len(dropouts) == 1 else 'layers do'} nothing"
    for name, module in model.named_modules():
        if rate := next((k for k, v in vars(module).items() if "drop" in k and isinstance(v, float) and 0 < v < 1), ""):
            return f"dropout ({f'{name}.{rate}'.lstrip('.')}) does nothing"
    return f"its {len(norms)} batch norm {'layer uses' if len(norms) == 1 else 'layers use'} fixed statistics" if norms else ""


def _moody(model: nn.Module) -> tuple[list[nn.Module], list[nn.Module]]:
    """The dropouts and the batch norms that do something else in eval mode."""
    modules = list(model.modules())
    dropouts: list[nn.Module] = [m for m in modules if isinstance(m, _DropoutNd) and m.p > 0]
    return dropouts, [m for m in modules if isinstance(m, _BatchNorm) and m.track_running_stats]


class Autocast(Check):
    """Autocast is on around a call, and no module's output has its dtype; or it stays on over an optimizer's step and the next call.

    Autocast keeps what it has cast of a weight until it is left. Whether it was left is tried: a tensor of one element is cast after a
    step, changed, and cast again as the next call begins.

    *Cost:* two looks at the autocast state a call of a thorough step; where it is on, 0.3 µs a module, and the trial 50 µs.
    """

    name = "autocast without effect"
    also = (STAYS_ON,)

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._dtype: torch.dtype | None = None
        self._device = ""
        self._line: ScriptLine = UNKNOWN
        self._on = "cpu"
        self._trial: Tensor | None = None  # cast by the autocast in which the optimizer has stepped

    def after_step(self, optimizer: Optimizer) -> None:
        on = self._on = next((p.device.type for p in self.subject.model.parameters()), "cpu")
        if torch.amp.is_autocast_available(on) and torch.is_autocast_enabled(on) and torch.is_autocast_cache_enabled():
            trial = torch.zeros(1, 1, device="cpu", requires_grad=True)  # nothing is waited for
            _squared(trial)
            trial.data.fill_(1.0)
            self._trial = trial

    def _try_cache(self) -> None:
        trial, self._trial = self._trial, None
        if trial is not None and torch.is_autocast_enabled(self._on) and not _squared(trial).any():
            line = current_line()
            text = f"Autocast has not been left since the last step{line.at(': the call at ')}: it keeps casts of weights until it ends, "
            advice = "Enter autocast in each step, around the forward pass and the loss alone."
            self.say(text + "so that the model goes on with its first weights.", advice, rule=STAYS_ON, line=line)

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._dtype = None
        self._try_cache()
        if torch.is_grad_enabled():
            for device in {"cpu", "cuda", next((p.device.type for p in module.parameters()), "cpu")}:
                if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
                    self._dtype, self._device, self._line = torch.get_autocast_dtype(device), device, current_line()

    def leave(self, module: nn.Module, output: Any) -> None:
        dtype, self._dtype = self._dtype, None
        subject = self.subject
        if dtype not in (torch.float16, torch.bfloat16) or not subject.probe.deep or subject.probe.traced:
            return
        convertible = {name: m for m, name in subject.probe.names.items() if isinstance(m, _CAST)}
        casts = {name for name, m in convertible.items() if all(p.dtype == torch.float32 for p in m.parameters(recurse=False))}
        seen: set[str] = set()
        call = subject.journal.call
        for event in subject.journal.events:
            if event.call == call:
                dtypes = {dtype for slot, ledger, handle in event.items if ledger is not None and slot.startswith("output")
                          for dtype in ledger.dtypes([int(handle)])}  # fmt: skip
                if dtypes.intersection(LOW):
                    return
                seen.update([event.entry.name] if dtypes else [])
        if not casts.intersection(seen):
            return
        on = next((p.device.type for p in module.parameters()), "cpu")
        name = str(dtype).removeprefix("torch.")
        where = f": it is on for {self._device!r}, and the model is on {on!r}" if on != self._device else ""
        text = f"Autocast to {name} is on around the call{self._line.at()}, but no module's output is in {name}{where}."
        advice = "Use torch.autocast(device_type=x.device.type), and look for autocast(enabled=False) inside the model."
        self.say(text, advice, line=self._line, evidence={"device_type": self._device, "model_on": on})


def _squared(trial: Tensor) -> Tensor:
    """By an operation that autocast casts for; what is entered here within another autocast shares its casts."""
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        return trial @ trial


class BatchNorms(Check):
    """Batch norms write statistics though the weights around them are frozen, or keep those of the last batch alone, or of none.

    *Cost:* at a thorough step 0.1 µs a module.
    """

    name = "frozen batch norm moves"
    also = (FORGETS,)

    def before_step(self, optimizer: Optimizer) -> None:
        if not self.subject.num:
            return
        norms = {
            name: m for m, name in self.subject.probe.names.items() if isinstance(m, _BatchNorm) and m.track_running_stats and m.training
        }
        frozen = [name for name, m in norms.items() if m.weight is not None and not m.weight.requires_grad]
        if frozen:
            text = f"{names_of(frozen)}: weights are frozen, but in train mode the running statistics go on changing."
            self.say(
                text, "Call .eval() of a frozen part after each model.train().", layer=frozen[0], evidence={"modules": frozen}, asks=True
            )
        odd = {name: float(m.momentum) for name, m in norms.items() if m.momentum is not None and (not m.momentum or 0.9 <= m.momentum < 1)}
        if odd:
            name, momentum = next(iter(odd.items()))
            effect = "are almost those of the last batch alone" if momentum else "stay what they were, whatever the batches are"
            text = f"{names_of([*odd])}: with a momentum of {momentum:g} the running statistics {effect}."
            advice = (
                f"Torch's momentum is the share of the new batch: TensorFlow's {momentum or 0.9:g} is {1 - (momentum or 0.9):.4g} here."
            )
            self.say(text, advice, rule=FORGETS, layer=name, value=momentum, evidence={"modules": [*odd]}, asks=True)
