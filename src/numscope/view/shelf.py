"""The runs that a server shows: those it was given, and those in folders that it was given."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from numscope.page.recorded import distinct_findings, merged_alerts, read_findings
from numscope.runs.sources import Local, Remote, Signature, Source, is_of_run, no_run, source_of
from numscope.sinks.part_files import PartName, split_merged
from numscope.sinks.runfolder import STATISTICS
from numscope.view.live import LiveRun, latest_have_told

LIST_S, LIST_REMOTE_S = 3.0, 30.0  # between two looks for new runs


class Shelf:
    """Runs by key. One that was there once stays, also when its folder goes.

    Args:
        given: run folders, folders of run folders, or addresses of such.

    Raises: UsageError for one that is neither, and not empty.
    """

    def __init__(self, given: Sequence[str]) -> None:
        self._roots = [source_of(one) for one in given]
        self._runs: dict[str, LiveRun] = {}  # by path
        self._glances: dict[str, tuple[Signature, dict[str, Any]]] = {}
        self._next = 0.0
        self._lock = threading.Lock()
        for root in self._roots:
            root.check()
            names = root.names()
            if names and not any(map(is_of_run, names)) and not any(True for _ in _children(root, names, ())):
                raise no_run("RUN", root.given, "It holds other things.")

    def runs(self) -> list[LiveRun]:
        """All of them, in the order of what was given."""
        with self._lock:
            if time.monotonic() >= self._next:
                self._list()
                is_remote = any(isinstance(root, Remote) for root in self._roots)
                self._next = time.monotonic() + (LIST_REMOTE_S if is_remote else LIST_S)
            return list(self._runs.values())

    def close(self) -> None:
        """Remove the copies of remote runs."""
        for run in self._runs.values():
            run.source.close()

    def find(self, key: str) -> LiveRun | None:
        """The run of that key; of none the one that wrote last, on this machine."""
        runs = self.runs()
        return next((run for run in runs if run.key == key), None) if key else max(runs, key=_written, default=None)

    def _list(self) -> None:
        found: dict[str, LiveRun] = {}
        for root in self._roots:
            for source in self._within(root):
                found[source.path] = self._runs.get(source.path) or self._new(source)
        for path, run in self._runs.items():
            if path not in found and run.recorded is not None:
                found[path] = run
        self._runs = found

    def _within(self, root: Source) -> list[Source]:
        try:
            names = root.names()
        except Exception:  # the run reports it
            return [root]
        if any(map(is_of_run, names)):
            return [root]
        return list(_children(root, names, self._runs)) or [root]

    def _new(self, source: Source) -> LiveRun:
        """A run under a name and a key that no other one has, made longer until that is so."""
        parts = [part for part in re.split(r"[/\\]", source.path) if part]
        names = {run.name for run in self._runs.values()}
        name = next((name for n in range(1, len(parts) + 1) if (name := "/".join(parts[-n:])) not in names), source.path)
        keys = {run.key for run in self._runs.values()}
        plain = re.sub(r"[^\w.-]+", "_", name, flags=re.ASCII)[:80] or "run"
        key = next(key for n in range(1, len(keys) + 2) if (key := plain if n == 1 else f"{plain}~{n}") not in keys)
        run = self._runs[source.path] = LiveRun(key, name, source)
        return run

    def glances(self) -> list[dict[str, Any]]:
        """The facts about each run that a chooser shows; of its statistics only the newest parts' last steps are read."""
        return [self._glance(run) for run in self.runs()]

    def _glance(self, run: LiveRun) -> dict[str, Any]:
        told: dict[str, Any] = {"key": run.key, "name": run.name, "state": run.seen.state}
        told |= dict.fromkeys(("findings", "alerts", "step", "ago"))
        recorded = run.recorded
        if isinstance(run.source, Local):
            try:
                signature = run.source.signature()
            except OSError:
                return {**told, "state": "gone"}
            known, facts = self._glances.get(run.source.path, ({}, {}))
            if known != signature:
                facts = _facts(run.source.path, signature)
                self._glances[run.source.path] = signature, facts
            told |= facts
        elif recorded is not None:
            told |= {"findings": recorded.num_findings, "alerts": recorded.num_alerts, "heard": run.seen.heard, "ended": run.has_ended}
        if heard := told.pop("heard", 0.0):
            told["ago"] = max(0.0, time.time() - heard)
        return told


def _written(run: LiveRun) -> float:
    """When a run on this machine wrote last; 0: not known."""
    with contextlib.suppress(OSError):
        return max((told[-1] for told in run.source.signature().values()), default=0.0) if isinstance(run.source, Local) else 0.0
    return 0.0


def _children(root: Source, names: dict[str, bool], known: Sequence[str] | dict[str, LiveRun]) -> Iterator[Source]:
    """The folders in a folder that are runs."""
    for name in sorted(name for name, is_folder in names.items() if is_folder and not name.startswith(".")):
        child = root.child(name)
        with contextlib.suppress(Exception):  # no permission, or gone
            if child.path in known or any(map(is_of_run, child.names())):
                yield child


def _facts(folder: str, signature: Signature) -> dict[str, Any]:
    """Findings, alerts, last step and whether the run has ended, from its files."""
    files = read_findings(folder, [name for name in signature if name.startswith("findings-")], [])
    kept, _ = split_merged(os.path.basename(name) for name in signature if name.startswith(STATISTICS))
    newest = {part.rank: part for part in kept}
    told = [max([file.num_steps - 1, *(finding.step for finding in file.findings)]) for file in files]
    last = max([-1, *told, *(_last_step(folder, part) for part in newest.values())])
    heard = max((one[-1] for one in signature.values()), default=0.0)
    return {
        "findings": len(distinct_findings(files)) if files else None,
        "alerts": len(merged_alerts(files)) if files else None,
        "step": last if last >= 0 else None,
        "heard": heard,
        "ended": bool(files) and all(file.ended for file in files) and latest_have_told(signature),
    }


def _last_step(folder: str, part: PartName) -> int:
    """Where a part ends, from its footer; -1: not known."""
    try:
        import pyarrow.parquet as pq

        with pq.ParquetFile(os.path.join(folder, STATISTICS, part.name)) as file:
            told, column = file.metadata, file.schema_arrow.get_field_index("step")
            return max(int(told.row_group(i).column(column).statistics.max) for i in range(told.num_row_groups))
    except Exception:  # a file of somebody else's, or gone
        return -1
