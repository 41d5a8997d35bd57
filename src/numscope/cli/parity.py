"""``numscope parity``: one training in two layouts, and where they part."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from numscope.cli.child_processes import Children
from numscope.cli.import_hook import when_imported
from numscope.cli.printing import note, say
from numscope.cli.script import Target, Watch, launch
from numscope.cli.trial import seed_python, seed_torch
from numscope.cli.values import writable
from numscope.precision.search.trials import run_to_end, tail_of
from numscope.records.errors import UsageError
from numscope.records.files import read_json, write_atomically
from numscope.records.finding import plain

if TYPE_CHECKING:
    from numscope.parity.judging import ParityVerdict

STEPS, SEED, DIFFERENT = 2, 0, 1
LOST = "state not loaded"
USAGE = (
    "numscope parity [STEPS] [DIR] -- COMMAND_A -- COMMAND_B  or  numscope parity DIR_A DIR_B  or  "
    "numscope parity --resume STEPS [DIR] -- COMMAND"
)
RESUME = "--resume"
_LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")  # modules that start scripts


@dataclass(frozen=True)
class Recording:
    """Settings for the processes of one run, in a JSON file."""

    folder: str
    num_steps: int = STEPS
    disturb: bool = False
    reference: str = ""  # the folder of the first run
    resume: str = ""  # the run's folder, of one that is to save, or that is resumed; else layouts are compared
    saves: bool = False  # it is the one that is to save

    @classmethod
    def read(cls, place: str) -> Recording:
        """From such a file; or a folder to record into."""
        if not place.endswith(".json"):
            return cls(writable(place, "parity record", folder=True))
        try:
            return cls(**read_json(place))
        except (OSError, ValueError, TypeError) as error:
            raise UsageError(f"got {place!r}, expected a folder to record into ({error}).", "parity record") from None


class RecordingOver(SystemExit):
    """The steps are recorded. ``except Exception`` does not stop it."""


class RecordingWatch(Watch):
    """Records the script's first steps in this process, and in those that it starts by ``multiprocessing``, and ends them."""

    def __init__(self, recording: Recording, folder: str = "") -> None:
        self._recording = recording
        self._owner = os.getpid()
        self._open = ExitStack()
        self._children = Children(partial(RecordingWatch, recording), folder)

    def arm(self) -> None:
        seed_python(SEED)
        self._children.arm()
        when_imported("torch", self._enter)

    def finish(self, error: BaseException | None) -> int | None:
        self._children.close()
        self._open.close()
        return None

    def _enter(self) -> None:
        if os.getpid() != self._owner:
            return
        seed_torch(SEED)
        if self._recording.resume:
            self._record_trail(self._recording)
            return
        from numscope.config.options import WatchOptions
        from numscope.parity.recording import StepRecorder
        from numscope.scope.autowatch import AutoWatch

        told = self._recording
        recorder = StepRecorder(told.folder, told.num_steps, disturb=told.disturb, reference=told.reference, over=self._over)
        self._open.enter_context(AutoWatch(WatchOptions(on_nonfinite=None, default_logging=False), prepare=recorder.add))
        recorder.open()
        self._open.callback(recorder.close)

    def _record_trail(self, told: Recording) -> None:
        from numscope.config.options import WatchOptions
        from numscope.config.rule_table import RULES
        from numscope.parity.trail import Trail
        from numscope.probe import optimizer as optimizer_probe
        from numscope.scope.autowatch import AutoWatch

        trail = Trail(told.folder, told.num_steps, self._over, saves=told.saves)
        rules = {name: name == LOST for name in RULES}
        options = WatchOptions(
            on_nonfinite="warn", level="sentinel", replay=False, alerts=rules, log_dir=told.resume, default_logging=False
        )  # fmt: skip
        self._open.callback(trail.close)
        auto = self._open.enter_context(AutoWatch(options, prepare=trail.add))
        self._open.callback(lambda: trail.add_lost(alert for scope in auto.scopes for alert in scope.alerts))
        optimizer_probe.listen(trail)

    @staticmethod
    def _over() -> None:
        raise RecordingOver(0)


class _Words(click.Command):
    """Hands on every word as it is, ``--`` too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if args[:1] in (["-h"], ["--help"]) else ["--", *args])


@click.command(cls=_Words, options_metavar="[STEPS] [DIR]")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND_A -- COMMAND_B | DIR_A DIR_B | record DIR train.py ARGS…")
def parity(words: tuple[str, ...]) -> Any:
    """Run one training in two layouts, and find where they part: the first gradient that differs, and why.

    numscope parity -- python train.py -- torchrun --nproc-per-node 4 train.py --tp 2

    Both commands must give the same global batch and start from the same weights; torch is seeded before the script's first line. Both run
    for STEPS steps of the optimizer (2), the first one once more with disturbed weights if anything differs, and are ended then. DIR keeps
    their output and what was recorded.

    DIR_A DIR_B compares two runs that were recorded before. record DIR records one, under any launcher:

    srun … python -m numscope parity record DIR train.py ARGS…

    numscope parity --resume 20 -- python train.py

    runs a script that saves, and by itself goes on from its newest checkpoint, until 20 steps after a save; then once more; and compares
    the steps after the save.

    Exit status: 0 the layouts agree; 1 they differ, or can't be compared; 2 wrong usage, or a run without a step.
    """
    if words[:1] == ("record",):
        if len(words) < 3:
            raise click.UsageError("got no script, expected numscope parity record DIR train.py ARGS…")
        is_module = words[2] == "-m"
        name, *args = words[2 + is_module :] or ("",)
        return partial(launch, Target(name, tuple(args), is_module), RecordingWatch(Recording.read(words[1])))
    before, *commands = _split(words)
    if before[:1] == [RESUME]:
        return _resume(before[1:], commands)
    if not commands and len(before) == 2:
        return _say(_compared(*before))
    if len(commands) != 2 or not all(commands):
        raise click.UsageError(f"got {len(commands)} commands, expected {USAGE}.")
    steps, folders = _steps_and_folder(before)
    scripts = [_script(command) for command in commands]
    with _folder(folders) as folder:
        return _say(_run(scripts, folder, *steps), folder if folders else None)


def _resume(before: Sequence[str], commands: Sequence[Sequence[str]]) -> int:
    """A run that goes on after a save, and the same command once more."""
    steps, folders = _steps_and_folder(before)
    if len(commands) != 1 or not commands[0] or not steps:
        raise click.UsageError(f"got {' '.join((RESUME, *before))!r} and {len(commands)} commands, expected {USAGE}.")
    from numscope.parity.trail import judge_resume, read_trails, steps_after

    with _folder(folders) as folder:
        words, run = _script(commands[0]), str(folder.absolute() / "run")
        place, status, log = _recorded(words, folder, "a", num_steps=steps[0], resume=run, saves=True)
        try:
            first = read_trails(place)
            num_steps = steps_after(first, steps[0])
        except UsageError as error:
            raise _with_output(error, status, log) from None
        place, status, log = _recorded(words, folder, "b", num_steps=num_steps, resume=run)
        try:
            second = read_trails(place)
        except UsageError as error:
            raise _with_output(error, status, log) from None
        return _say(judge_resume(first, second), folder if folders else None)


def _steps_and_folder(words: Sequence[str]) -> tuple[list[int], list[str]]:
    steps = [int(word) for word in words if word.isdecimal()]
    folders = [word for word in words if not word.isdecimal()]
    if len(steps) > 1 or len(folders) > 1 or steps == [0]:
        raise click.UsageError(f"got {' '.join(words)!r} before the first --, expected {USAGE}.")
    return steps, folders


def _split(words: Sequence[str]) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for word in words:
        if word == "--":
            found.append([])
        else:
            found[-1].append(word)
    return found


@contextlib.contextmanager
def _folder(given: Sequence[str]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="numscope-parity-") as made:
        folder = Path(writable(given[0], "DIR", folder=True) if given else made)
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


Words = Callable[[Path], list[str]]


def _script(command: Sequence[str]) -> Words:
    """A command that records its script by a file of settings.

    Raises: UsageError where no word of it is a script or a module.
    """
    for i, word in enumerate(command):
        is_module = word == "-m" and i + 1 < len(command) and command[i + 1] not in _LAUNCHERS
        if is_module or word.endswith(".py"):
            return lambda spec: [*command[:i], "-m", "numscope", "parity", "record", str(spec), *command[i:]]
    raise UsageError(f"got {' '.join(command)!r}, expected a command with a script's name in it, such as torchrun … train.py.", "parity")


def _recorded(words: Words, folder: Path, name: str, **told: Any) -> tuple[Path, int, Path]:
    """Run a command under the recorder. Returns: where it has recorded, its status, and the file with its output."""
    place = folder / name
    place.mkdir(exist_ok=True)
    for old in place.iterdir():
        old.unlink()
    spec = folder / f"{name}.json"
    write_atomically(os.fspath(spec), json.dumps(asdict(Recording(str(place), **told))))
    log = folder / f"{name}.log"
    command = words(spec)
    note(f"{name}: {' '.join(word for word in command if word != str(spec)).replace(' -m numscope parity record', '')}")
    try:
        return place, run_to_end(command, log, SEED), log
    except OSError as error:
        raise UsageError(f"got {command[0]!r}, expected a command that can be run: {error.strerror}.", "parity") from None


def _with_output(error: UsageError, status: int, log: Path) -> UsageError:
    return UsageError("\n".join((f"{error} It ended with status {status}. Its output:", *tail_of(log))))


def _run(scripts: Sequence[Words], folder: Path, num_steps: int = STEPS) -> ParityVerdict:
    from numscope.parity.judging import judge
    from numscope.parity.layout import RecordedLayout

    def recorded(words: Words, name: str, **told: Any) -> RecordedLayout:
        place, status, log = _recorded(words, folder, name, num_steps=num_steps, **told)
        try:
            found = RecordedLayout.read(place)
        except UsageError as error:
            raise _with_output(error, status, log) from None
        if not found.is_whole:
            note("\n".join((f"{name} ended with status {status} before its {num_steps} steps were over. Its output:", *tail_of(log))))
        return found

    a = recorded(scripts[0], "a")
    b = recorded(scripts[1], "b", reference=str(folder / "a"))
    found = judge(a, b)
    if found.kind is None or found.step < 0:
        return found
    return judge(a, b, recorded(scripts[0], "noise", disturb=True))


def _compared(a: str, b: str) -> ParityVerdict:
    from numscope.parity.judging import judge
    from numscope.parity.layout import RecordedLayout

    return judge(RecordedLayout.read(a), RecordedLayout.read(b))


def _say(found: ParityVerdict, folder: Path | None = None) -> int:
    if folder is not None:
        write_atomically(os.fspath(folder / "verdict.json"), json.dumps(plain(found.document()), indent=1))
    say(found.text if found.kind is None else f"{found.kind}: {found.text}")
    for line in found.notes:
        note(line)
    return 0 if found.kind is None else DIFFERENT
