"""One session a process, from ``initialize`` to ``end_debug``: what the interfaces of both debug tools translate to."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from numscope.compat.given import GivenTensors, Scalar
from numscope.config.options import WatchOptions
from numscope.distributed.agree import among, rank
from numscope.inspect.inspector import Inspector
from numscope.inspect.recorder import Recorder
from numscope.probe import optimizer as optimizer_probe
from numscope.probe.naming import peel
from numscope.records.checks import check_whole
from numscope.records.errors import UsageError
from numscope.report.ending import at_end, not_at_end
from numscope.scope.autowatch import AutoWatch
from numscope.scope.model_watch import ModelWatch
from numscope.sinks import debuglog, textlog
from numscope.sinks.debuglog import DebugLog
from numscope.storage.spool import spooled

Config = str | os.PathLike[str] | Mapping[str, Any] | None


class Session(optimizer_probe.StepListener):
    """Watches each model from its first call on, for statistics alone; without a configuration it watches nothing.

    Steps are counted by the optimizers, from the first ``step`` on by ``step`` alone.

    Args:
        config: a YAML file's path, or the same as a dict; None or "": none.
        log_dir: folder for logs and the run's files.
        first_step: number of the first step.
        debug_file, text_file: the logs' places in ``log_dir``.
        options: further options of ``WatchOptions``.

    Raises: UsageError that lists everything wrong with the configuration.
    """

    def __init__(
        self,
        config: Config,
        *,
        log_dir: str | os.PathLike[str],
        first_step: int = 0,
        debug_file: str = debuglog.FILE,
        text_file: str = textlog.FILE,
        **options: Any,
    ) -> None:
        self.recorder: Recorder | None = None
        self._log_dir, self._debug_file = log_dir, debug_file
        self._log: DebugLog | None = None
        self._said: set[tuple[str, str]] = set()
        self._step_number = first_step
        self._explicit = False
        self._groups: dict[str | None, Any] = {}
        self._calls_when_stepped = -1
        self._collected: dict[tuple[str, str, int], bool] = {}
        self._watch: AutoWatch | None = None
        self._given: GivenTensors | None = None
        if config is not None and config != "":
            watching = WatchOptions.of(config=config, log_dir=os.fspath(log_dir), on_nonfinite=None, **options)
            self.recorder = Recorder.of(watching, first_step=first_step, debug_file=debug_file, text_file=text_file)
            self._groups = self.recorder.groups
            self._given = GivenTensors(self.recorder, watching)
            self._watch = AutoWatch(watching, recorder=self.recorder)
            self._watch.elsewhere = self._given.unmatched
            self._watch.__enter__()
            optimizer_probe.listen(self)
        at_end(self.close)  # scripts forget end_debug; the step at work is written all the same

    # ---- steps

    @property
    def step_number(self) -> int:
        """Number of the step at work; where optimizers count, the first one lasts until the next forward, in case ``step`` is called."""
        numbers = [scope.step_number for scope in self._scopes()]
        if self._explicit or self._watch is None or not numbers:
            return self._step_number
        just_done = self._watch.looking and self._watch.num_calls == self._calls_when_stepped  # no call since the optimizer stepped
        return max(numbers) - int(just_done)

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
        """Number the step at work: a run goes on from a checkpoint."""
        check_whole("training step", step, 0)
        self._step_number = step
        self._number()

    def _number(self) -> None:
        if self.recorder is not None:
            self.recorder.first_step = self._step_number  # of models that are called for the first time later on
        for scope in self._scopes():
            if scope.step_number != self._step_number:
                scope.begin_at(self._step_number)

    def _scopes(self) -> Iterable[ModelWatch]:
        return self._watch.scopes if self._watch is not None else ()

    def _inspectors(self) -> list[Inspector]:
        return [scope.inspector for scope in self._scopes() if scope.inspector is not None]

    # ---- what the optimizer probe tells

    def after_step(self, optimizer: Optimizer) -> None:
        if self._watch is not None:
            self._calls_when_stepped = self._watch.num_calls

    def skipped_step(self, optimizer: Optimizer) -> None:
        self.after_step(optimizer)

    # ---- words

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
            while not isinstance(model, nn.Module):  # wrappers that are no modules
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
        """Write the step at work, take every hook away, close the logs. Safe to call twice."""
        not_at_end(self.close)
        optimizer_probe.unlisten(self)
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
    """Begin this process's session, which messages call by its interface's name. Raises: UsageError where one is at work already."""
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
    """End this process's session, if one is at work."""
    global _session
    session, _session = _session, None
    if session is not None:
        session.close()
