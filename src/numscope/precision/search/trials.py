"""Short runs of a training script, each in its own process. Their results are kept on disk, so that a killed search can be resumed."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from numscope.records.errors import NumscopeError, UsageError
from numscope.records.files import read_json, write_atomically
from numscope.records.finding import plain
from numscope.records.words import count

STATE = "state.json"
VERSION = 2
_TAIL = 15  # lines of a failed trial's output in its error
AUTOCAST = "autocast"  # instead of a recipe: the low precision is the script's own autocast


class TrialFailed(NumscopeError):
    """A script ended before it had a loss, so its run has no result."""

    exit_status = 1


@dataclass(frozen=True)
class Script:
    target: str  # its path, or a module's name
    args: tuple[str, ...] = ()
    is_module: bool = False
    launcher: tuple[str, ...] = ()  # the command before ``-m numscope``, such as torchrun's; empty: this Python

    def words(self, spec: Path) -> list[str]:
        module = ["-m"] if self.is_module else []
        begin = list(self.launcher) or [sys.executable]
        return [*begin, "-m", "numscope", "precision", "trial", str(spec), *module, self.target, *self.args]


@dataclass(frozen=True)
class Spec:
    """A trial's settings, which its process reads from a JSON file."""

    result: str  # each rank writes its results to ``<result>.rank<N>.json``
    recipe: str | None = None  # linear layers are converted to it; None: the models stay as the script makes them
    autocast: bool = True  # False: the script's autocast is off
    config: str | None = None  # path of a configuration with switches
    features: tuple[str, ...] = ()  # files with custom features
    seed: int | None = 0  # for Python, NumPy and torch, set before the script's first line
    steps: int = 50  # optimizer steps after which the trial ends
    what_if: bool = False  # measure what the recipe's and other casts would do, instead of converting anything

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Spec:
        fields = json.loads(Path(path).read_text(encoding="utf-8"))
        return cls(**{**fields, "features": tuple(fields["features"])})


@dataclass(frozen=True)
class TrialOutcome:
    losses: tuple[float, ...]  # one per step, averaged over the ranks
    seconds: float = 0.0
    layers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # GEMMs in low precision; "" for a whole layer
    suspects: Mapping[str, float] = field(default_factory=dict)  # by layer, the share of elements clipped or flushed in the first steps
    numbers: tuple[Mapping[str, Any], ...] = ()  # each rank's what-if measurements
    status: int = 0  # the script's exit status, 0 if it was stopped after its steps

    def length(self, steps: int) -> str:
        """How many steps it ran, and the status if it ended early."""
        ran = count(len(self.losses), "step")
        return f"{ran} of {steps}, then it ended with status {self.status}" if self.status else ran


def run_trial(script: Script, spec: Spec, place: Path) -> TrialOutcome:
    """Run a trial to its end. ``place`` is a path without suffix, for its settings, its output and its results.

    Raises:
        TrialFailed: it ended before its first step was complete.
        KeyboardInterrupt: the user interrupted it; its processes have been killed.
    """
    begun = time.monotonic()
    for old in place.parent.glob(f"{place.name}.rank*.json"):
        old.unlink()
    settings = place.with_suffix(".spec.json")
    write_atomically(settings, json.dumps(asdict(spec), indent=1))
    log = place.with_suffix(".log")
    status = run_to_end(script.words(settings), log, spec.seed or 0)
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(place.parent.glob(f"{place.name}.rank*.json"))]
    runs = [
        [float(loss) for loss in result["losses"]] for result in results if result["losses"]
    ]  # in a pipeline, only the last stage has losses
    losses = [math.fsum(step) / len(runs) for step in zip(*runs, strict=False)]
    if not losses:
        what = f"ended with status {status}" if status else "ended"
        why = f"{script.target}: {what} before a step was complete: no backward of a loss, or no step of a torch optimizer. Its output:"
        raise TrialFailed("\n".join((why, *tail_of(log))))
    layers: dict[str, tuple[str, ...]] = {}
    suspects: dict[str, float] = {}
    for result in results:
        layers.update({name: tuple(gemms) for name, gemms in result["layers"].items() if name not in layers})
        for name, share in result["suspects"].items():
            suspects[name] = max(share, suspects.get(name, 0.0))
    numbers = tuple(result["what_if"] for result in results if result.get("what_if"))
    return TrialOutcome(tuple(losses), time.monotonic() - begun, layers, suspects, numbers, status)


def run_to_end(words: Sequence[str], log: Path, seed: int) -> int:
    """Run a command to its end, with its output in a file and with what makes runs repeat. Returns: its status.

    Raises:
        OSError: there is no such command.
        KeyboardInterrupt: the user interrupted it; its processes have been killed. SIGTERM ends this process with its usual status, by
            SystemExit, once they are.
    """
    env = {"PYTHONHASHSEED": str(seed), "CUBLAS_WORKSPACE_CONFIG": ":4096:8", **os.environ}
    with log.open("wb") as out, _as_interrupt(signal.SIGTERM):
        process = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env, start_new_session=True)
        try:
            return process.wait()
        finally:
            _end(process)


def tail_of(log: Path) -> list[str]:
    """The last lines of such a file."""
    return log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL:]


@contextlib.contextmanager
def _as_interrupt(number: int) -> Iterator[None]:
    """A signal that would end this process ends it by SystemExit meanwhile."""
    takes = threading.current_thread() is threading.main_thread() and signal.getsignal(number) is signal.SIG_DFL
    if takes:
        signal.signal(number, lambda *_: sys.exit(128 + number))
    try:
        yield
    finally:
        if takes:
            signal.signal(number, signal.SIG_DFL)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the remaining processes of a trial: a data loader's workers, other ranks."""
    if hasattr(os, "killpg"):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
    if process.poll() is None:
        process.kill()
        process.wait()


class Book:
    """The trials of one search. Each is run once; when the search is started again, it is read from disk.

    Args:
        folder: created with the first result.
        about: what makes trials comparable, as JSON. The trials of a search that differs in it are refused.

    Raises: UsageError: the folder holds the trials of another search, or can't be read.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        self.folder = folder
        self._about = json.loads(json.dumps(about))
        self._trials: dict[str, TrialOutcome] = {}
        self.num_resumed = 0
        if not (folder / STATE).is_file():
            return
        from pydantic import TypeAdapter, ValidationError

        try:
            known = read_json(folder / STATE)
            version, theirs, trials = known["version"], {**known["about"]}, known["trials"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _unreadable(folder, str(error)) from None
        differ = [key for key in {**theirs, **self._about} if theirs.get(key) != self._about.get(key)]
        if version != VERSION or differ:
            what = f"different {', '.join(differ)}" if differ else "another version of numscope"
            raise UsageError(
                f"{folder}: holds the trials of a search with {what}, expected those of this one. "
                "Remove the folder to start again, or keep both with --output FILE."
            )
        try:
            self._trials = TypeAdapter(dict[str, TrialOutcome]).validate_python(trials)  # in JSON, losses that are not finite are text
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise _unreadable(folder, f"{'.'.join(map(str, ('trials', *first['loc'])))}: {first['msg']}") from None
        self.num_resumed = len(self._trials)

    def __len__(self) -> int:
        return len(self._trials)

    def known(self, key: str) -> TrialOutcome | None:
        """A trial's result, None if it has not been run."""
        return self._trials.get(key)

    def get(self, key: str, run: Callable[[Path], TrialOutcome]) -> TrialOutcome:
        """A trial's result. It is run now, with a path for its files, if it has not been run before."""
        known = self.known(key)
        if known is not None:
            return known
        self.folder.mkdir(parents=True, exist_ok=True)
        outcome = run(self.folder.absolute() / f"trial{len(self._trials):03d}")  # a script may change its folder
        self._trials[key] = outcome
        state = {"version": VERSION, "about": self._about, "trials": {key: plain(outcome) for key, outcome in self._trials.items()}}
        write_atomically(self.folder / STATE, json.dumps(state, indent=1))
        return outcome


def _unreadable(folder: Path, why: str) -> UsageError:
    return UsageError(f"{folder / STATE}: can't be read ({why}), expected a search's state. Remove the folder to start again.")


def drift(losses: Sequence[float], reference: Sequence[float]) -> float:
    """The relative difference of the mean losses of two runs over the second half of the steps.

    It is 0.01 for one percent above the reference, whose losses are finite; infinity if the run ended before the reference did, or has a
    loss that is not finite.
    """
    if len(losses) < len(reference) or not all(map(math.isfinite, losses)):
        return math.inf
    half = len(reference) // 2
    mine, theirs = losses[half : len(reference)], reference[half:]
    scale = math.fsum(map(abs, theirs)) / len(theirs)
    difference = (math.fsum(mine) - math.fsum(theirs)) / len(theirs)
    if difference == 0:
        return 0.0
    return difference / scale if scale else math.copysign(math.inf, difference)


def noise(runs: Sequence[Sequence[float]]) -> float:
    """The largest drift among repeated runs, from the first of them; 0 if the runs repeat bitwise."""
    return max((abs(drift(run, runs[0])) for run in runs[1:]), default=0.0)
