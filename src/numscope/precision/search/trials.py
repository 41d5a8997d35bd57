"""Short runs of a training script in processes of their own, kept in a book on disk so that a killed search goes on where it was."""

from __future__ import annotations

import json
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from numscope.records.errors import NumscopeError, UsageError
from numscope.records.files import write_atomically

STATE = "state.json"
VERSION = 1
_TAIL = 15  # lines of a failed trial's output that are shown
AUTOCAST = "autocast"  # in place of a recipe: the low precision is the script's own autocast


class TrialFailed(NumscopeError):
    """A script ended before it had a loss: nothing can be learnt from its run."""

    exit_status = 1


@dataclass(frozen=True)
class Script:
    """What is run.

    Args:
        target: a script's path, or a module's name.
        launcher: words before ``-m numscope``, such as torchrun's; empty: this Python.
    """

    target: str
    args: tuple[str, ...] = ()
    is_module: bool = False
    launcher: tuple[str, ...] = ()

    def words(self, spec: Path) -> list[str]:
        """The command of one trial."""
        module = ["-m"] if self.is_module else []
        begin = list(self.launcher) or [sys.executable]
        return [*begin, "-m", "numscope", "precision", "trial", "--spec", str(spec), *module, self.target, *self.args]


@dataclass(frozen=True)
class Spec:
    """What a trial's process is told, by a JSON file.

    Args:
        result: where each rank writes what came of it: ``<result>.rank<N>.json``.
        recipe: linear layers are converted to it; None: the models stay as the script makes them.
        autocast: False: the script's autocast is off.
        config: a configuration's path that switches act by.
        features: files with features of the user's own.
        seed: of Python, NumPy and torch, set before the script's first line; None: the script's own alone.
        steps: optimizer steps after which it ends.
        what_if: measure what the recipe's and other casts would do, instead of converting anything.
    """

    result: str
    recipe: str | None = None
    autocast: bool = True
    config: str | None = None
    features: tuple[str, ...] = ()
    seed: int | None = 0
    steps: int = 50
    what_if: bool = False

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Spec:
        told = json.loads(Path(path).read_text(encoding="utf-8"))
        return cls(**{**told, "features": tuple(told["features"])})


@dataclass(frozen=True)
class Outcome:
    """What came of a trial.

    Args:
        losses: of each step, the mean over the ranks.
        layers: for each layer the GEMMs that were in low precision; ``""`` for a layer as a whole.
        suspects: for each layer the share of elements that its casts clipped or flushed in the first steps.
        numbers: each rank's what-if measurements.
        status: the script's; 0 too where it was ended after its steps.
    """

    losses: tuple[float, ...]
    seconds: float = 0.0
    layers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    suspects: Mapping[str, float] = field(default_factory=dict)
    numbers: tuple[Mapping[str, Any], ...] = ()
    status: int = 0

    def length(self, steps: int) -> str:
        """After how many steps it was over, and why so early where it failed."""
        count = f"{len(self.losses)} step{'' if len(self.losses) == 1 else 's'}"
        return f"{count} of {steps}, then it ended with status {self.status}" if self.status else count


def run_trial(script: Script, spec: Spec, place: Path) -> Outcome:
    """Runs a trial to its end.

    Args:
        place: path without ending, for its specification, its output and its results.

    Raises:
        TrialFailed: it ended before its first step was over.
        KeyboardInterrupt: as the user asked; the trial's processes are gone then.
    """
    begun = time.monotonic()
    for old in place.parent.glob(f"{place.name}.rank*.json"):
        old.unlink()
    told = place.with_suffix(".spec.json")
    write_atomically(told, json.dumps(asdict(spec), indent=1))
    log = place.with_suffix(".log")
    env = {"PYTHONHASHSEED": str(spec.seed or 0), "CUBLAS_WORKSPACE_CONFIG": ":4096:8", **os.environ}
    with log.open("wb") as out:
        process = subprocess.Popen(
            script.words(told), stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env, start_new_session=True
        )
        try:
            status = process.wait()
        finally:
            _end(process)
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(place.parent.glob(f"{place.name}.rank*.json"))]
    losses = _mean_losses([[float(loss) for loss in result["losses"]] for result in results])
    if not losses:
        what = f"ended with status {status}" if status else "ended"
        tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL:]
        why = f"{script.target}: {what} before a step was over: no backward of a loss, or no step of an optimizer of torch. Its output:"
        raise TrialFailed("\n".join((why, *tail)))
    layers: dict[str, tuple[str, ...]] = {}
    suspects: dict[str, float] = {}
    for result in results:
        layers.update({name: tuple(gemms) for name, gemms in result["layers"].items() if name not in layers})
        for name, share in result["suspects"].items():
            suspects[name] = max(share, suspects.get(name, 0.0))
    numbers = tuple(result["what_if"] for result in results if result.get("what_if"))
    return Outcome(tuple(losses), time.monotonic() - begun, layers, suspects, numbers, status)


def _mean_losses(runs: Sequence[Sequence[float]]) -> list[float]:
    """Step by step over the ranks that have a loss (a pipeline's last stage alone has)."""
    having = [run for run in runs if run]
    if not having:
        return []
    return [math.fsum(step) / len(having) for step in zip(*having, strict=False)]


def _end(process: subprocess.Popen[bytes]) -> None:
    """All processes of a trial, if any is left: a data loader's workers, other ranks."""
    if hasattr(os, "killpg"):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
    if process.poll() is None:
        process.kill()
        process.wait()


class Book:
    """The trials of one search: each is run once, and read back when the search is begun again.

    Args:
        folder: beside the output; made when the first trial is over.
        about: what makes trials comparable, plain JSON: another search's book is refused.
        fresh: forget what is there.

    Raises:
        UsageError: the folder holds the trials of another search.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any], *, fresh: bool = False) -> None:
        self.folder = folder
        self._about = json.loads(json.dumps(about))
        self._trials: dict[str, dict[str, Any]] = {}
        self.num_resumed = 0
        if fresh or not (folder / STATE).is_file():
            return
        try:
            known = json.loads((folder / STATE).read_text(encoding="utf-8"))
            version, theirs, trials = known["version"], known["about"], known["trials"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{folder / STATE}: can't be read ({error}), expected a search's state. Begin anew: --fresh.") from None
        differ = [key for key in {**theirs, **self._about} if theirs.get(key) != self._about.get(key)]
        if version != VERSION or differ:
            what = f"another {', '.join(differ)}" if differ else "another version of numscope"
            raise UsageError(
                f"{folder}: holds the trials of a search with {what}, expected those of this one. "
                "Begin anew: --fresh. Or keep both: --output FILE."
            )
        self._trials = trials
        self.num_resumed = len(trials)

    def __len__(self) -> int:
        return len(self._trials)

    def known(self, key: str) -> Outcome | None:
        """What came of a trial; None where it has not been run to its end."""
        told = self._trials.get(key)
        if told is None:
            return None
        losses = tuple(float(loss) for loss in told["losses"])
        layers = {name: tuple(gemms) for name, gemms in told.get("layers", {}).items()}
        return Outcome(losses, told["seconds"], layers, told.get("suspects", {}), status=told.get("status", 0))

    def get(self, key: str, run: Callable[[Path], Outcome]) -> Outcome:
        """A trial's outcome, run now where it is not known.

        Args:
            key: what tells it from the other trials.
            run: given a place for its files.
        """
        known = self.known(key)
        if known is not None:
            return known
        self.folder.mkdir(parents=True, exist_ok=True)
        outcome = run(self.folder.absolute() / f"trial{len(self._trials):03d}")  # a script may change its folder
        told: dict[str, Any] = {"losses": [str(x) if not math.isfinite(x) else x for x in outcome.losses], "seconds": outcome.seconds}
        if outcome.status:
            told["status"] = outcome.status
        if outcome.layers:
            told |= {"layers": outcome.layers, "suspects": outcome.suspects}
        self._trials[key] = told
        write_atomically(self.folder / STATE, json.dumps({"version": VERSION, "about": self._about, "trials": self._trials}, indent=1))
        return outcome


def split_launcher(text: str | None) -> tuple[str, ...]:
    """The words of ``--launch``."""
    return tuple(shlex.split(text)) if text else ()
