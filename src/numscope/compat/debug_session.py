"""One session a process, from ``initialize`` to ``end_debug``: what the interfaces of both debug tools translate to.

Tensors that a script hands in by itself (``log_tensor_stats``) go by the same configuration and into the same logs as those of layers.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from numscope.config import resolve
from numscope.config.options import WatchOptions
from numscope.distributed.agree import among, rank
from numscope.inspect.inspector import Inspector
from numscope.inspect.ranks import joined
from numscope.inspect.recorder import Recorder
from numscope.inspect.sites import Inspection, PlannedSite
from numscope.inspect.tally import Seen, Tally, casting
from numscope.probe.naming import peel
from numscope.records.checks import check_one_of, check_whole
from numscope.records.errors import UsageError
from numscope.records.layer import Layer
from numscope.records.observation import TENSORS, Observation
from numscope.report.delivery import Delivery
from numscope.report.ending import at_end, not_at_end
from numscope.scope.alerting import Alerting
from numscope.scope.autowatch import AutoWatch
from numscope.scope.model_watch import ModelWatch
from numscope.sinks.logs import DEBUG_FILE, STATISTICS_FILE, DebugLog
from numscope.sinks.tensorboard import TensorBoardSink
from numscope.storage.spool import spooled


class Scalar(float):
    """A float that scripts written for tensors can also use: ``.item()``, ``.cpu()``, ``torch.allclose(it, tensor)``."""

    def item(self) -> float:
        """The plain float."""
        return float(self)

    def float(self) -> Scalar:
        """Itself, as of a tensor; likewise ``double``, ``cpu`` and ``detach``."""
        return self

    double = cpu = detach = float

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        others = [one for one in (*args, *(kwargs or {}).values()) if isinstance(one, Tensor)]
        dtype = next((one.dtype for one in others if one.is_floating_point()), torch.float64)
        device = others[0].device if others else torch.device("cpu")

        def as_tensor(one: Any) -> Any:
            return torch.tensor(one.item(), dtype=dtype, device=device) if isinstance(one, Scalar) else one

        return function(*map(as_tensor, args), **{key: as_tensor(one) for key, one in (kwargs or {}).items()})


class GivenTensors:
    """Statistics of tensors that were handed in under a layer's and a tensor's name."""

    def __init__(self, recorder: Recorder, options: WatchOptions) -> None:
        self._recorder = recorder
        self._alerting = Alerting(options, Delivery(None, None, "", recorder.rank), None, recorder)
        self._layers: dict[str, tuple[Inspection, Tally]] = {}
        self.unmatched: list[tuple[str, ...]] = []  # for each name: sections that do not select it

    def log(self, layer: str, tensor_name: str, tensor: Tensor, *, step: int, group: Any = None, write: bool = True) -> dict[str, Scalar]:
        """The statistics that the configuration asks for, as ``debug_tool.log_tensor_stats`` returns them.

        ``group``: over which the numbers merge; its lowest rank writes them. None: this rank's alone. ``write``: also into the logs.
        """
        check_one_of("tensor_name", tensor_name, TENSORS)
        if not isinstance(tensor, Tensor):
            raise UsageError(f"tensor: got {type(tensor).__name__}, expected a torch.Tensor.")
        inspection, tally = self._layers.get(layer) or self._find(layer)
        site = next((site for site in inspection.sites if site.kind == tensor_name), None)
        if site is None or not any(inspection.collects_at(site, step, reduced=reduced) for reduced in (True, False)):
            return {}
        tally.reset()
        tally.want(inspection.active(step).groups)
        tally.observe(site.index, tensor.detach())
        for name, first in site.statistics:
            cells = self._recorder.plugins.statistics[name].cells(tensor)
            if cells is not None:
                tally.merge_cells(site.index, first, cells)
        seen = tally.read().get(site.index)
        if seen is None:
            self._recorder.say_once((layer, tensor_name), f"{layer}: its {tensor_name} has no numbers to read", logging.WARNING)
            return {}
        observations = self._observations(inspection, site, seen, step, group)
        if write:
            self._recorder.write(observations)
            if self._alerting.post is not None:
                self._alerting.post(self._recorder.rules.read(observations))
        return {
            label: Scalar(float("nan") if value is None else value)
            for observation in observations
            for label, value in observation.values.items()
            if value is None or isinstance(value, int | float)
        }

    def _find(self, name: str) -> tuple[Inspection, Tally]:
        layer = Layer(name, "", name, weights=("weight",))
        resolved = resolve(self._recorder.plan, [layer], strict=False)
        self.unmatched.append(resolved.unmatched)
        inspection = Inspection(resolved.collects, [], self._recorder.plugins)
        found = self._layers[name] = (
            inspection,
            Tally([site.layout for site in inspection.sites], casting([site.kind for site in inspection.sites])),
        )
        return found

    def _observations(self, inspection: Inspection, site: PlannedSite, seen: Seen, step: int, group: Any) -> list[Observation]:
        found: dict[bool, Seen] = {}
        if inspection.collects_at(site, step, reduced=False):
            found[False] = seen
        if inspection.collects_at(site, step, reduced=True):
            key = (site.layer.name, site.tensor)
            found[True] = seen if group is None else joined({key: (seen, site.layout)}, group, step)[key]
        return [inspection.observation(site, step, part, self._recorder.rank, reduced) for reduced, part in found.items()]


Config = str | os.PathLike[str] | Mapping[str, Any] | None


class Session:
    """Watches each model from its first call on, for statistics alone; without a configuration it watches nothing.

    Steps are counted by the optimizers, from the first ``step`` on by ``step`` alone. Arguments are as for ``debug_tool.initialize_debug``.

    Raises: UsageError that lists everything wrong with the configuration.
    """

    def __init__(
        self,
        config: Config,
        *,
        log_dir: str | os.PathLike[str],
        tb_writer: Any = None,
        first_step: int = 0,
        debug_file: str = DEBUG_FILE,
        text_file: str = STATISTICS_FILE,
        **options: Any,
    ) -> None:
        self.recorder: Recorder | None = None
        self._log_dir, self._debug_file = log_dir, debug_file
        self._log: DebugLog | None = None
        self._said: set[tuple[str, str]] = set()
        self._step_number = first_step
        self._explicit = False
        self._groups: dict[str | None, Any] = {}
        self._collected: dict[tuple[str, str, int], bool] = {}
        self._watch: AutoWatch | None = None
        self._given: GivenTensors | None = None
        if config is not None and config != "":
            watching = WatchOptions.of(config=config, log_dir=os.fspath(log_dir), on_nonfinite=None, **options)
            if tb_writer is not None:
                watching = replace(watching, loggers=(TensorBoardSink(tb_writer), *watching.loggers))
            self.recorder = Recorder.of(watching, first_step=first_step, debug_file=debug_file, text_file=text_file, names="te")
            self._groups = self.recorder.groups
            self._given = GivenTensors(self.recorder, watching)
            self._watch = AutoWatch(watching, recorder=self.recorder)
            self._watch.elsewhere = self._given.unmatched
            self._watch.__enter__()
        at_end(self.close)  # scripts forget end_debug; the current step is written nevertheless

    # ---- steps

    @property
    def step_number(self) -> int:
        """Number of the current step; where optimizers count, the first one lasts until the next forward, in case ``step`` is called."""
        numbers = [scope.step_number for scope in self._scopes()]
        if self._explicit or self._watch is None or not numbers:
            return self._step_number
        return max(numbers) - self._watch.has_just_stepped

    def step(self) -> None:
        """A training step is over."""
        first, self._explicit = not self._explicit, True
        self._step_number += 1
        if self._watch is None or self.recorder is None:
            return
        self._watch.explicit = True
        if first:
            self._watch.check_selection()
        for scope in self._watch.scopes:
            scope.step()
        self._number()

    def begin_at(self, step: int) -> None:
        """Set the number of the current step, for a run that resumes from a checkpoint."""
        check_whole("training step", step, 0)
        self._step_number = step
        self._number()

    def _number(self) -> None:
        if self.recorder is not None:
            self.recorder.first_step = self._step_number  # for models that are called for the first time later on
        for scope in self._scopes():
            if scope.step_number != self._step_number:
                scope.steps.begin_at(self._step_number)

    def _scopes(self) -> Iterable[ModelWatch]:
        return self._watch.scopes if self._watch is not None else ()

    def _inspectors(self) -> list[Inspector]:
        return [scope.inspector for scope in self._scopes() if scope.inspector is not None]

    # ---- the log

    def say(self, text: str, layer: str | None = None, level: int = logging.INFO) -> None:
        """A line for the debug log, each text once a layer."""
        key = (layer or "", text)
        if key in self._said:
            return
        self._said.add(key)
        line = f"LAYER={layer}: {text}" if layer else text
        if self.recorder is not None:
            self.recorder.say(line, level)
        else:
            self._log = self._log or DebugLog(spooled(os.fspath(self._log_dir), rank()), rank(), self._debug_file)
            self._log.say(line, level)

    # ---- tensors that the script hands in, and the ranks they merge over

    def log_tensor(
        self, layer: str, tensor_name: str, tensor: Tensor, *, skip_reduction: bool, group: Any, iteration: int | None
    ) -> dict[str, Scalar]:
        """Statistics of a tensor under a layer's and a tensor's name, as the configuration asks; also into the logs."""
        if self._given is None or self.recorder is None:
            return {}
        step = self.step_number if iteration is None else iteration
        return self._given.log(
            layer, tensor_name, tensor, step=step, group=None if skip_reduction else group or self.group(layer) or among(),
            write=not self._is_collected(layer, tensor_name),
        )  # fmt: skip

    def set_group(self, group: Any, layer: str | None = None) -> None:
        """Merge over this process group: all layers, or one by name."""
        self._groups[layer] = group
        for inspector in self._inspectors():
            inspector.joint.set_group(group, layer)

    def group(self, layer: str | None = None) -> Any:
        """The process group that was set for a layer, else for all; None where none was."""
        return self._groups.get(layer, self._groups.get(None))

    def _is_collected(self, layer: str, tensor_name: str) -> bool:
        """Whether a watched model has this site: written twice, its numbers would count twice wherever they are merged."""
        inspectors = self._inspectors()
        key = (layer, tensor_name, len(inspectors))
        if key not in self._collected:
            self._collected[key] = any(inspector.collects(layer, tensor_name) for inspector in inspectors)
        if not self._collected[key]:
            return False
        text = f"log_tensor_stats writes nothing for its {tensor_name}: this layer's is collected by itself. The call can go."
        self.say(text, layer, logging.WARNING)
        return True

    # ---- names and features

    def assign_names(self, models: nn.Module | Sequence[Any]) -> None:
        """Give each module its qualified name, ``model`` before it; a name that a module has stays."""
        for model in models if isinstance(models, Sequence) else (models,):
            while not isinstance(model, nn.Module):  # wrappers other than modules
                if (inner := getattr(model, "module", None)) is None:
                    raise UsageError(f"infer_and_assign_layer_names: got {type(model).__name__}, expected a model or a list of models.")
                model = inner
            self._assign(peel(model), "model", set())

    def _assign(self, module: nn.Module, name: str, seen: set[nn.Module]) -> None:
        if module in seen:
            return
        seen.add(module)
        if not isinstance(getattr(module, "name", ""), str):
            self.say(f"{name}: its attribute name is taken by something else: it goes by its qualified name", level=logging.WARNING)
        elif not vars(module).get("name"):
            with contextlib.suppress(AttributeError):  # a property
                module.name = name  # type: ignore[assignment]
                self.say(f"assigned layer name: {name}")
        for key, child in module.named_children():
            number = getattr(child, "layer_number", key) if isinstance(module, nn.ModuleList) else key
            self._assign(child, f"{name}.{number}", seen)

    # ---- the end

    def close(self) -> None:
        """Write the current step, remove all hooks, close the logs. Safe to call twice."""
        not_at_end(self.close)
        watch, self._watch = self._watch, None
        with contextlib.ExitStack() as stack:
            if self._log is not None:
                stack.callback(self._log.close)
            if self.recorder is not None:
                stack.callback(self.recorder.close)
            if watch is not None and self.recorder is not None:
                if not watch.scopes and not (self._given and self._given.unmatched):
                    self.recorder.say("no model was called: there are no statistics", logging.WARNING)
                stack.callback(watch.finish)


_session: Session | None = None


def begin(called: str, *args: Any, **kwargs: Any) -> Session:
    """Begin this process's session; ``called`` is its interface's name in messages. Raises: UsageError if there is one already."""
    global _session
    if _session is not None:
        raise UsageError(f"{called}: called a second time, expected once on each rank. Call end_debug() first, or leave this call out.")
    _session = Session(*args, **kwargs)
    return _session


def at_work() -> Session | None:
    """This process's session, if one was begun."""
    return _session


def needed(called: str) -> Session:
    """This process's session, which ``called`` needs. Raises: UsageError where none was begun."""
    if _session is None:
        raise UsageError(f"{called}: nothing is initialized, expected initialize_debug(…) or initialize(…) first, once on each rank.")
    return _session


def end() -> None:
    global _session
    session, _session = _session, None
    if session is not None:
        session.close()
