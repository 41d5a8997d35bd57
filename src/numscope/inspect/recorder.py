"""A process's recorder: the plan, and where its observations, its words and its alerts go. One for all watched models."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from typing import Any

from numscope.config.loading import load, plan_of
from numscope.config.options import WatchOptions
from numscope.config.plan import Plan
from numscope.distributed.agree import rank as current_rank
from numscope.inspect.following import Follower
from numscope.inspect.rules import Rules
from numscope.plugins.discovery import Plugins
from numscope.records.alert import Alert
from numscope.records.layer import Layer
from numscope.records.observation import Names, Observation
from numscope.report.stderr import say
from numscope.sinks.logs import DEBUG_FILE, STATISTICS_FILE, DebugLog
from numscope.sinks.opening import Sinks
from numscope.storage.spool import spooled

log = logging.getLogger("numscope")

_open: weakref.WeakSet[Recorder] = weakref.WeakSet()  # of this process

DEFAULT_LOG_DIR = "numscope_logs"  # where nothing else was said and nobody else takes the statistics


class Recorder(Sinks):
    """Takes observations: rules read them, sinks write them.

    Args:
        log_dir: folder for logs and the run's files; None: no files.
        loggers: as ``Sinks`` takes them.
        text: the statistics' text log too.
        debug_file, text_file: the logs' places in ``log_dir``.
        names: of statistics in dashboards, if the plan does not say.
    """

    def __init__(
        self,
        plan: Plan,
        plugins: Plugins,
        *,
        log_dir: str | os.PathLike[str] | None,
        loggers: Sequence[object] = (),
        text: bool = True,
        first_step: int = 0,
        debug_file: str = DEBUG_FILE,
        text_file: str = STATISTICS_FILE,
        names: Names = "grouped",
    ) -> None:
        self.plan = plan
        self.plugins = plugins
        self.rank = current_rank()
        address, log_dir = log_dir, None if log_dir is None else spooled(os.fspath(log_dir), self.rank)
        # A storage can't append, and the text says nothing that Parquet files don't.
        text = text and (log_dir == address or find_spec("pyarrow") is None)
        self.log_dir = log_dir
        self.first_step = first_step
        self.groups: dict[str | None, Any] = {}  # process groups to merge over instead of those found, by layer; None: all
        self.closed = False
        self.rules = Rules(plugins.rules, self.rank)
        self._said: set[object] = set()
        self._names: dict[str, str] = {}  # layer name → the model that has it
        self._layers: list[dict[str, Any]] = []
        self._log = DebugLog(log_dir, self.rank, debug_file)
        run = {"config": plan.text, "config_source": plan.source, "world_size": int(os.environ.get("WORLD_SIZE", "1"))}
        super().__init__(
            log_dir=log_dir,
            rank=self.rank,
            loggers=(*loggers, *plugins.loggers.values()),
            text=text,
            text_file=text_file,
            run=run,
            log=self._log,
            names=plan.names or names,
        )
        self.say(f"configuration {plan.source}:\n{plan.text}")
        path = os.path.abspath(plan.source)  # the script may change its folder
        parse = partial(load, plan.source, plugins)
        self.follower = Follower(path, plan, parse, self.say) if plan.reload else None
        _open.add(self)
        plugins.say = self.say
        for message, level in plugins.messages:
            self.say(message, level)
        for note in plan.notes:
            self.say(note)

    @classmethod
    def of(cls, options: WatchOptions, **more: Any) -> Recorder:
        """From a watch's options; ``more``: arguments that it has no option for. Raises: UsageError that lists all that is wrong."""
        assert options.config is not None
        plan, plugins = plan_of(options.config, options.features)
        log_dir = options.log_dir
        if log_dir is None and not options.loggers and plan.parts:
            log_dir = DEFAULT_LOG_DIR
            say(f"numscope: statistics are written to {DEFAULT_LOG_DIR}")
        return cls(
            plan,
            plugins,
            log_dir=log_dir,
            loggers=options.loggers,
            text=options.default_logging,
            **{"first_step": options.first_step, **more},
        )

    def plan_at(self, step: int) -> Plan:
        """The plan that a step goes by: of a configuration that is edited during the run, not always the first."""
        return self.plan if self.follower is None else self.follower.plan_at(step)

    def introduce(self, model: str, layers: Sequence[Layer], selected: Mapping[Layer, Sequence[str]], known_by: str | None = None) -> str:
        """A model is watched from now on, or has got other modules.

        Args:
            selected: for each selected layer what is wanted of it, a line each.
            known_by: what was returned for it before; None: it is new.

        Returns: what stands before its layers' names, "" unless another model has layers of the same names.
        """
        prefix, count = known_by or "", 1
        named = {layer for layer in layers if layer.owns_parameters or layer in selected}  # all roots are called alike: no clash
        taken = {name for recorder in _open if recorder.shares_files_with(self) for name in recorder._names}
        while known_by is None and any(prefix + layer.name in taken for layer in named):
            prefix = f"{model}." if count == 1 else f"{model}_{count}."
            count += 1
        self._names.update({prefix + layer.name: model for layer in named})
        told = {prefix + layer.name: layer for layer in layers if layer in named or prefix + layer.name not in self._names}
        self._layers = [known for known in self._layers if known["name"] not in told]
        self._layers += [{**asdict(layer), "name": name, "model": model} for name, layer in told.items()]
        self.describe(self._layers)
        said = f", their names with {prefix!r} before them" if prefix else ""
        self.say(f"{model}: {len(layers)} layers, {len(selected)} selected{said}")
        for layer, wanted in selected.items():
            self.say(f"{prefix}{layer.name} ({layer.cls}):\n" + "\n".join(wanted))
        return prefix

    def shares_files_with(self, other: Recorder) -> bool:
        """Whether what both write goes to the same folder: layers' names must differ then."""
        if self is other or self.log_dir is None or other.log_dir is None:
            return self is other
        return os.path.realpath(self.log_dir) == os.path.realpath(other.log_dir)

    def write(self, observations: Sequence[Observation]) -> None:
        """Give a step's observations to the sinks."""
        if observations:
            super().write(observations)
            self.flush()

    def alert(self, alert: Alert) -> None:
        """Give an alert to the sinks, and to the debug log."""
        self._log.alert(alert)
        super().alert(alert)

    def say(self, text: str, level: int = logging.INFO) -> None:
        """A line for the debug log; warnings also reach the terminal."""
        self._log.say(text, level)

    def say_once(self, key: object, text: str, level: int = logging.INFO) -> None:
        """``say``, the first time that a key comes up."""
        if key not in self._said:
            self._said.add(key)
            self.say(text, level)

    def close(self) -> None:
        """Flush and close the sinks. Safe to call twice."""
        if self.closed:
            return
        self.closed = True
        _open.discard(self)
        self.flush()
        super().close()
        self._log.close()
