"""Runs a script inside this process as ``python`` itself would run it, and ends the process as ``python`` would.

What differs from ``python train.py`` is listed nowhere because nothing should: ``__main__``, ``sys.argv``, ``sys.path[0]``,
tracebacks, exit status, signals, child processes. The interpreter's own start (Modules/main.c, Lib/runpy.py) is the model.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import gc
import io
import os
import pkgutil
import runpy
import sys
import threading
import types
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from typing import NoReturn

from numscope.cli.stops import Stop
from numscope.cli.uncaught import exit_status, hide_our_frames, keep_own_frames, print_stop, print_uncaught
from numscope.records.errors import NonFiniteError
from numscope.records.files import nearest_path
from numscope.records.finding import Finding
from numscope.records.words import escape
from numscope.report.stderr import say

_INSTEAD = {  # what to do where one of these words is taken for the script
    **dict.fromkeys(("python", "python3"), "Leave it out: numscope run stands for python"),
    **{
        words.split()[0]: f"Put it in front: {words} numscope run train.py ARGS…"
        for words in ("torchrun … -m", "accelerate launch … -m", "mpirun …", "srun …")
    },
}


@dataclass(frozen=True, slots=True)
class Target:
    """A script's path (also a folder or zip holding ``__main__.py``), or with ``is_module`` a module's name."""

    name: str
    args: tuple[str, ...] = ()
    is_module: bool = False


class Watch:
    """Hooks around a script's run; these do nothing."""

    def arm(self) -> None:
        """Called when all is ready for the script's first line."""

    def status_of(self, error: BaseException) -> int | None:
        """The status that the watch's own error ends the process with; None for an error of the script's."""
        return exit_status(error)

    def stop_behind(self, error: BaseException | None) -> Stop | None:
        """The watch's own error that the script, or a wrapper around it, has turned into this end; None if the end is the script's."""
        return None

    def finish(self, error: BaseException | None) -> int | None:
        """Called once the script has ended, in the process that armed, with what ended it if it did not fall off its end.

        Returns: the status to end with where the script has ended well and the watch has not; None for the script's.

        Raises: the watch's own error for what it finds so late.
        """
        return None

    @property
    def finding(self) -> Finding | None:
        """The first bad value that was found in this process."""
        return None

    def report_end(self, status: int, *, raised: bool) -> None:
        """Reports how a child process ended: with the status of numscope's own error; ``raised``: the parent gets that as an exception."""

    def last_words(self) -> str:
        """A line to print after everything else; "" for none."""
        return ""


def launch(target: Target, watch: Watch) -> NoReturn:
    """Runs the target under a watch, which is armed before the script's first line and finished after its last, not in forked processes.

    Raises:
        SystemExit: with the status that the script would have ended with; a non-finite value's own status else.
        KeyboardInterrupt: instead, if that ended the script; the interpreter then dies of SIGINT, as a shell expects.
    """
    owner = os.getpid()
    ending: SystemExit | KeyboardInterrupt = SystemExit()
    error: BaseException | None = None
    last = _LastHandler()
    try:
        _run(target, watch)
    except BaseException as ended:
        error = ended
        try:
            ending, last.status = _ending(ended, watch)
        except SystemExit as asked:  # the script's own sys.excepthook may raise it
            ending = asked
    if os.getpid() == owner:
        completed = isinstance(ending, SystemExit) and not ending.code
        if completed:
            with contextlib.suppress(KeyboardInterrupt):
                threading._shutdown()  # type: ignore[attr-defined]  # as the interpreter would: they may still train
            if (stop := watch.stop_behind(error)) is not None:  # a thread was stopped
                completed, last.status, ending = False, stop.status, SystemExit(stop.status)
        late: int | None = None
        try:
            late = watch.finish(None if completed else error)
        except Exception as fault:  # our own fault is printed and changes no status
            late = exit_status(fault)
            if late is None:
                print_uncaught(fault)
            elif completed:  # the last step's finding
                error = fault
                print_stop(fault)
        if completed and late is not None:
            ending, last.status = SystemExit(late), late
        if error is not None and isinstance(ending, SystemExit) and ending.code:
            _tell_torchrun(error, watch.finding)
        words = watch.last_words()
        if words:
            say(words)
    del error
    if isinstance(ending, KeyboardInterrupt):
        sys.excepthook = lambda *_: None  # it has been printed
    raise ending


def _ending(error: BaseException, watch: Watch) -> tuple[SystemExit | KeyboardInterrupt, int | None]:
    """Prints what ended the script. Returns what to raise, and the status where the watch has ended it."""
    stopped = None if isinstance(error, SystemExit) else watch.status_of(error)
    if stopped is not None:
        print_stop(error)
        return SystemExit(stopped), stopped
    behind = None if isinstance(error, KeyboardInterrupt) else watch.stop_behind(error)
    if not isinstance(error, SystemExit):
        print_uncaught(error)
    elif not error.code or (behind is None and isinstance(error.code, int)):
        return error, None
    elif not isinstance(error.code, int):  # as the interpreter would print it, before our last words
        with contextlib.suppress(Exception):
            print("\n".join(map(escape, str(error.code).split("\n"))), file=sys.stderr)
    if behind is not None:
        say(behind.words)
        return SystemExit(behind.status), behind.status
    return error if isinstance(error, KeyboardInterrupt) else SystemExit(1), None


def _tell_torchrun(error: BaseException, finding: Finding | None) -> None:
    """Writes the error to ``TORCHELASTIC_ERROR_FILE``, as ``torch.distributed.elastic``'s ``@record`` does; nothing without torchrun.

    So torchrun's own last words name the operation and the line.

    Args:
        error: what ends the process. One of the script's own is only written where there is a finding.
        finding: what an error of the script's own comes from.
    """
    ours = exit_status(error) is not None
    if "TORCHELASTIC_ERROR_FILE" not in os.environ or not (ours or finding):
        return
    from torch.distributed.elastic.multiprocessing.errors import get_error_handler

    root = error
    while (before := root.__cause__ or root.__context__) is not None:
        root = before
    if finding is not None and not ours:
        root.__cause__ = NonFiniteError(finding)
    try:
        raise error
    except BaseException:  # it is the error in flight that is written
        (keep_own_frames if ours else hide_our_frames)(error)
        try:
            get_error_handler().record_exception(error)
        except OSError as fault:
            say(f"numscope: torchrun is not told the finding: {fault}")
    finally:
        root.__cause__ = None


class _LastHandler:
    """Ends a process that trains with others with our status, before the interpreter tears itself down.

    Threads of a torch.distributed process group (gloo's loop, the store's, a watchdog) outlive the interpreter and ask for its lock. An
    interpreter that is being torn down then unwinds the thread's stack, and C++ that may not throw aborts the process: "terminate called
    without an active exception", status -6. Bare torch does so in up to one run of ten on a busy machine, destroyed groups included.

    Exit handlers run in reverse order, so this one, registered before the script's first line, runs after all of the script's and after
    its threads have ended. Skipped are ``__del__`` of living objects and exit handlers of C libraries.

    *Cost:* where a group existed, a walk over all objects, some 50 ms.
    """

    def __init__(self) -> None:
        self.status: int | None = None  # the exit status; None: as the interpreter would end
        atexit.register(self._leave)

    def _leave(self) -> None:
        distributed = sys.modules.get("torch.distributed")
        if self.status is None or distributed is None or not distributed.is_available():
            return
        if getattr(distributed.distributed_c10d, "_backend", None) is None:  # the first group's; it stays when the group is destroyed
            return
        for file in gc.get_objects():  # files that the script left open: the interpreter would flush them
            if type(file) in (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom):
                with contextlib.suppress(Exception):
                    file.flush()
        os._exit(self.status & 0xFF)


def _run(target: Target, watch: Watch) -> None:
    main = types.ModuleType("__main__")  # ours keeps its own: pickle, multiprocessing and inspect must find the script's
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    main.__dict__["__builtins__"] = builtins  # in Python's own order
    if target.is_module:
        _set_path0(os.getcwd())
        sys.argv = ["-m", *target.args]
        sys.modules["__main__"] = main
        watch.arm()
        runpy._run_module_as_main(target.name)  # type: ignore[attr-defined]  # what ``python -m`` calls; in each version
        return

    path = os.path.join(os.getcwd(), target.name)  # absolute but not normalized: so __file__ and tracebacks show it
    sys.argv = [target.name, *target.args]
    if not os.path.exists(path):  # a pipe is good too: /dev/stdin, /dev/fd/63 of a shell's <(…)
        if target.name in _INSTEAD:
            _refuse(f"{target.name}: no file of that name, expected a script. {_INSTEAD[target.name]}.", 2)
        near = nearest_path(target.name, lambda near: near.endswith(".py") or os.path.isdir(near))
        _refuse(f"can't open file {path!r}: [Errno 2] No such file or directory{near and f'.{near}'}", 2)
    if (importer := pkgutil.get_importer(path)) is not None:  # a folder or a zip file: the importer finds __main__ in it
        if importer.find_spec("__main__") is None:
            _refuse(f"{target.name}: a folder or zip file without __main__.py, expected a script.", 2)
        _set_path0(path, even_if_safe=True)
        sys.modules["__main__"] = main
        watch.arm()
        runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]
        return

    try:
        with io.open_code(path) as file:  # the one that audit hooks see
            source = file.read()
    except OSError as error:
        _refuse(f"can't open file {path!r}: [Errno {error.errno}] {error.strerror}", 2)
    _set_path0(os.path.dirname(os.path.realpath(path)))
    main.__file__ = path
    main.__loader__ = loader = (SourcelessFileLoader if path.endswith(".pyc") else SourceFileLoader)("__main__", path)
    if sys.version_info < (3, 15):
        main.__dict__["__cached__"] = None
    sys.modules["__main__"] = main
    code = _compiled(source, path) if isinstance(loader, SourceFileLoader) else loader.get_code("__main__")
    del source
    assert code is not None
    watch.arm()
    exec(code, main.__dict__)


def _refuse(problem: str, status: int) -> NoReturn:
    say(f"numscope: {problem}")
    raise SystemExit(status)


def _set_path0(folder: str, *, even_if_safe: bool = False) -> None:
    """Puts the script's folder where the interpreter had put that of ``numscope`` itself."""
    safe = getattr(sys.flags, "safe_path", bool(sys.flags.isolated))  # Python 3.10 knows only -I
    if not safe:
        sys.path[0] = folder
    elif even_if_safe:
        sys.path.insert(0, folder)


def _compiled(source: bytes, path: str) -> types.CodeType:
    """A script's code. Errors about its encoding have the text of Python's own start, which differs from that of ``compile``."""
    try:
        source.decode()
    except UnicodeDecodeError as wrong:
        if b"coding" not in b"".join(source.splitlines()[:2]):
            where = f"starting with '\\x{source[wrong.start]:02x}' in file {path} on line {source.count(10, 0, wrong.start) + 1}"
            more = "but no encoding declared; see https://peps.python.org/pep-0263/ for details"
            raise SyntaxError(f"Non-UTF-8 code {where}, {more}") from None
    try:
        return compile(source, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        if str(error.msg).startswith("unknown encoding: "):
            raise SyntaxError(error.msg.replace("unknown encoding", "encoding problem", 1)) from None
        raise
