"""Inside a child process: its work runs under watch and ends as it would without one, and it reports to the parent what was watched.

It reports in a file, because children end in any order and by any means.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from numscope.cli.launch import Watch
from numscope.cli.uncaught import exit_status, hide_our_frames, print_stop, print_uncaught
from numscope.records.files import write_atomically
from numscope.report.page import Due
from numscope.report.stderr import say
from numscope.scope.coverage import Watched

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

_SPAWN = "torch.multiprocessing.spawn"


@dataclass
class Told:
    """What a child process tells."""

    watched: Watched  # what it has watched
    status: int = 0  # that of numscope's own error, if one ended the child
    raised: bool = False  # whether the parent gets it as an exception
    ended: bool = True  # False while the child is at work
    pid: int = 0  # the child's process number, set when it is written
    page: Due | None = None  # that the child owes, and leaves to its parent: it may be ended as soon as another child has

    def write(self, folder: str) -> None:
        """
        Raises:
            OSError: the folder is gone, and with it the process that would have read it.
        """
        write_atomically(os.path.join(folder, f"{os.getpid()}.json"), json.dumps(asdict(self) | {"pid": os.getpid()}))


class ChildRun:
    """Stands for the ``run`` of a process object, in the child: the same under watch. Goes through pickle with the process object."""

    def __init__(self, process: BaseProcess, make_watch: Callable[[str], Watch], folder: str) -> None:
        self._process = process
        self._make_watch = make_watch
        self._folder = folder

    def __call__(self) -> None:
        watch = self._make_watch(self._folder)
        watch.arm()
        error: BaseException | None = None
        try:
            type(self._process).run(self._process)
        except BaseException as ended:
            error = ended
        stop = error if error is None or exit_status(error) is not None else _told_by_torch(error)
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
            watch.tell(behind.status, raised=False)
            say(behind.words)
        else:
            watch.tell(status or 0, raised=stop is not error)
        if stop is not None and stop is error:
            print_stop(stop)
        if status == 0 or (stop is not None and stop is error):
            raise SystemExit(min(status or 0, 1)) from None  # that of a process whose target has raised
        if error is not None:
            try:
                raise error
            except BaseException:
                hide_our_frames(error)
                raise


def _told_by_torch(error: BaseException) -> BaseException | None:
    """numscope's own error, where ``torch.multiprocessing.spawn`` has put it into a file for the parent and ended the child."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    cause = error.__context__
    if not isinstance(error, SystemExit) or last is None or last.tb_frame.f_globals.get("__name__") != _SPAWN:
        return None
    return cause if cause is not None and exit_status(cause) is not None else None
