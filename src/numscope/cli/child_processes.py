"""Processes that a script starts: those of ``multiprocessing`` are watched like the script, others are reported as not watched.

A child writes a report for its parent into a file, because children end in any order and by any means.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from numscope.cli.import_hook import when_imported
from numscope.cli.script import Watch
from numscope.cli.uncaught import exit_status, hide_our_frames, print_stop, print_uncaught
from numscope.records.files import write_atomically
from numscope.records.places import is_installed
from numscope.report.page import Due
from numscope.report.stderr import say
from numscope.scope.coverage import Watched

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from torch import nn

_RUNNERS = (
    "torch.multiprocessing",
    "torch.distributed.elastic",
    "torch.distributed.launcher",
)  # parts of torch that run a script's functions
_SPAWN = "torch.multiprocessing.spawn"
_PYTHON = re.compile(r"python[\d.]*|torchrun|accelerate|deepspeed")


@dataclass
class ChildReport:
    """A child process's report to its parent."""

    watched: Watched  # what it has watched
    status: int = 0  # the status of numscope's own error, if one ended the child
    raised: bool = False  # whether the parent gets it as an exception
    ended: bool = True  # False while the child is at work
    pid: int = 0  # the child's process number, set when it is written
    page: Due | None = None  # a page that the child leaves to its parent: a launcher may end the child as soon as another one has ended

    def write(self, folder: str) -> None:
        """
        Raises:
            OSError: the folder is gone, and with it the process that would have read it.
        """
        write_atomically(os.path.join(folder, f"{os.getpid()}.json"), json.dumps(asdict(self) | {"pid": os.getpid()}))


@dataclass
class ChildRun:
    """Stands for the ``run`` of a process object, in the child: the same under watch. Goes through pickle with the process object."""

    process: BaseProcess
    make_watch: Callable[[str], Watch]
    folder: str

    def __call__(self) -> None:
        watch = self.make_watch(self.folder)
        watch.arm()
        error: BaseException | None = None
        try:
            type(self.process).run(self.process)
        except BaseException as ended:
            error = ended
        stop = error if error is None or exit_status(error) is not None else _written_by_torch(error)
        behind = watch.stop_behind(error)
        try:
            watch.finish(error)
        except Exception as late:
            if exit_status(late) is None:
                print_uncaught(late)
            elif error is None:
                error = stop = late
        status = None if stop is None else exit_status(stop)
        if stop is None and behind is not None:
            watch.report_end(behind.status, raised=False)
            say(behind.words)
        else:
            watch.report_end(status or 0, raised=stop is not error)
        if stop is not None and stop is error:
            print_stop(stop)
        if status == 0 or (stop is not None and stop is error):
            raise SystemExit(min(status or 0, 1)) from None  # the status of a process whose target has raised
        if error is not None:
            try:
                raise error
            except BaseException:
                hide_our_frames(error)
                raise


def _written_by_torch(error: BaseException) -> BaseException | None:
    """numscope's own error, where ``torch.multiprocessing.spawn`` has put it into a file for the parent and ended the child."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    cause = error.__context__
    if not isinstance(error, SystemExit) or last is None or last.tb_frame.f_globals.get("__name__") != _SPAWN:
        return None
    return cause if cause is not None and exit_status(cause) is not None else None


class Children:
    """The child processes of this process, from ``arm`` to ``close``. ``make_watch`` is picklable."""

    def __init__(self, make_watch: Callable[[str], Watch], folder: str = "") -> None:
        self.gaps: list[str] = []
        self._started: weakref.WeakSet[BaseProcess] = weakref.WeakSet()
        self._make_watch = make_watch  # makes a child's watch, given the folder for its report
        self._folder = folder  # the parent's, if this process is itself a child; "": one is made when the first child starts
        self._is_root = not folder
        self._here = threading.local()  # starting: this thread is about to fork a process of multiprocessing
        self._closed = False
        self._undo = contextlib.ExitStack()

    def arm(self) -> None:
        """Begin to look at the processes that start."""
        when_imported("multiprocessing.process", self._wrap_start)
        when_imported("subprocess", self._wrap_popen)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._before_fork, after_in_child=self._in_fork)

    def close(self) -> None:
        """Ignore processes that start from now on, and delete the children's reports."""
        self._closed = True
        self._undo.close()
        if self._is_root and self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def reports(self) -> Iterator[ChildReport]:
        """The latest report of each child."""
        if not self._is_root or not self._folder:
            return
        for entry in sorted(os.scandir(self._folder), key=lambda entry: entry.name):
            with contextlib.suppress(OSError, ValueError, TypeError):
                if entry.name.endswith(".json"):
                    with open(entry.path, encoding="utf-8") as file:
                        data = json.load(file)
                    yield ChildReport(**{**data, "watched": Watched(**data["watched"]), "page": data["page"] and Due(*data["page"])})

    def running(self) -> set[int | None]:
        """Process numbers of the watched children that Python is going to wait for when the script has ended."""
        process = sys.modules.get("multiprocessing.process")
        alive = [] if process is None or not self._started else process.active_children()
        return {child.pid for child in alive if child in self._started and not child.daemon}

    # ---- multiprocessing

    def _wrap(self, owner: type, name: str, around: Callable[..., None]) -> None:
        """Have a method's calls run by ``around``, which gets the original and its arguments, until ``close``."""
        if self._closed:
            return
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapped(*args: Any, **options: Any) -> None:
            try:
                around(original, *args, **options)
            except BaseException as error:
                hide_our_frames(error)
                raise

        setattr(owner, name, wrapped)
        self._undo.callback(setattr, owner, name, original)

    def _wrap_start(self) -> None:
        from multiprocessing.process import BaseProcess

        def started(start: Callable[[BaseProcess], None], process: BaseProcess) -> None:
            try:
                self._watch(process)
            except Exception as fault:
                self.gaps.append(f"{process.name}: {type(fault).__name__}: {fault}")
            self._here.starting = True
            try:
                start(process)
            finally:
                self._here.starting = False
                if isinstance(vars(process).get("run"), ChildRun):
                    del vars(process)["run"]

        self._wrap(BaseProcess, "start", started)

    def _watch(self, process: BaseProcess) -> None:
        if not _is_the_scripts(process):
            return
        if not any(finder.find_spec("numscope", None) for finder in sys.meta_path):  # such as when numscope runs from a source folder
            raise ImportError("a child process would not find numscope")
        self._make_folder()
        self._started.add(process)
        vars(process)["run"] = ChildRun(process, self._make_watch, self._folder)

    def _make_folder(self) -> None:
        if not self._folder:
            self._folder = tempfile.mkdtemp(prefix="numscope-")

    # ---- others

    def _wrap_popen(self) -> None:
        from subprocess import Popen

        def opened(init: Callable[..., None], popen: Any, args: Any, *rest: Any, **options: Any) -> None:
            self._note_command(args)
            init(popen, args, *rest, **options)

        self._wrap(Popen, "__init__", opened)

    def _note_command(self, args: Any) -> None:
        with contextlib.suppress(Exception):  # it is the script's, and may be wrong
            words = shlex.split(args) if isinstance(args, str) else [os.fsdecode(word) for word in args]
            name, asker = os.path.basename(words[0]), _asker()
            if (
                asker is None
                or is_installed(asker.f_code.co_filename)
                or not _PYTHON.fullmatch(name)
                or any(os.path.basename(word) == "numscope" for word in words[1:])
            ):
                return
            shown = " ".join([name, *words[1 : 3 if words[1:2] == ["-m"] else 2]])  # no more: what follows may be secret
            self.gaps.append(f"`{shown}`: a process of its own, put numscope run into its command")

    def _before_fork(self) -> None:
        if not _is_a_replays() and not self._closed and not getattr(self._here, "starting", False) and "torch" in sys.modules:
            with contextlib.suppress(OSError):
                self._make_folder()

    def _in_fork(self) -> None:
        """A child that ``multiprocessing`` has started gets its own watch; another one is not watched, and reports if it calls a model."""
        if _is_a_replays():
            return
        by_hand = not self._closed and not getattr(self._here, "starting", False)
        self._closed, self._is_root = True, False
        self._undo.close()
        if by_hand and self._folder and "torch" in sys.modules:
            _note_model(self._folder)


def _is_a_replays() -> bool:
    """Whether the tool itself is forking, to do a call again."""
    fork = sys.modules.get("numscope.replay.fork")
    return fork is not None and fork.is_forking


def _note_model(folder: str) -> None:
    from torch.nn.modules.module import register_module_forward_pre_hook

    def note(module: nn.Module, _: object) -> None:
        if next(module.parameters(), None) is not None:
            handle.remove()
            with contextlib.suppress(OSError):
                ChildReport(Watched(gaps=[f"{type(module).__name__}: called in a process made by os.fork"])).write(folder)

    handle = register_module_forward_pre_hook(note)


def _is_the_scripts(process: BaseProcess) -> bool:
    """Not a data loader's worker, a manager, or another of the processes that torch and Python start for themselves."""
    if "run" in vars(process) or getattr(getattr(process, "_target", None), "__module__", "") == "multiprocessing.managers":
        return False
    asker = _asker()
    return asker is None or str(asker.f_globals.get("__name__")).partition(".")[0] != "torch"


def _asker() -> FrameType | None:
    """Who starts a process: the innermost frame outside of numscope, of Python's own library, and of what runs a script's functions."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        top = name.partition(".")[0]
        if top != "numscope" and top not in sys.stdlib_module_names and not name.startswith(_RUNNERS):
            return frame
        frame = frame.f_back
    return None
