"""A new SQLite database for MLflow, whose tables a process of its own makes ahead: when MLflow first opens one, it migrates for seconds.

The tables are made in a temporary folder, and put in place only when there is something to send: a script that keeps its runs elsewhere
finds no file that it did not ask for, and no two processes migrate the same file.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from urllib.parse import unquote

from numscope.records.faults import ours, suppress
from numscope.sinks.destinations import is_installed

SCHEME = "sqlite:///"
DEFAULT = "mlflow.db"  # in the working folder; where there is a folder mlruns, MLflow may use that
PATIENCE_S = 120.0  # then MLflow makes its tables itself
_LOOK_S = 0.05
_MADE = "made.db"
_CODE = """
import os, sys
sys.path = [one for one in sys.path if one]  # a file in the script's folder must not stand in for a library's
if hasattr(os, "nice"):
    os.nice(10)
import sqlalchemy
from mlflow.store.db.utils import _initialize_tables
part, made = sys.argv[1:]
engine = sqlalchemy.create_engine("sqlite:///" + part)
_initialize_tables(engine)
engine.dispose()
os.replace(part, made)
"""


class NewDatabase:
    """The tables for a database that is not there yet. The process is ended, and its folder removed, as this process ends or by ``close``.

    *Cost:* a process at low priority for some ten seconds, once for each database.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._ending: weakref.finalize[..., NewDatabase] | None = None
        if "mlflow" in sys.modules or signal.getsignal(signal.SIGCHLD) is not signal.SIG_DFL:
            return  # the script opens it by itself, or would be told of a child's end that it has not begun
        with suppress(OSError):  # no room for temporary files, or for a process
            self._folder = tempfile.mkdtemp(prefix="numscope-mlflow-")
            command = [sys.executable, "-c", _CODE, os.path.join(self._folder, "part.db"), os.path.join(self._folder, _MADE)]
            env = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
            nothing = subprocess.DEVNULL
            self._process = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, env=env, start_new_session=True)
            self._ending = weakref.finalize(self, _end, self._process, self._folder, os.getpid())

    @classmethod
    def of(cls, uri: str) -> NewDatabase | None:
        """Begin to make the tables, if MLflow would have to when it opens this address. ``uri``: "" for MLflow's default."""
        path = _path_of(uri or os.environ.get("MLFLOW_TRACKING_URI") or f"{SCHEME}{DEFAULT}")
        is_elsewhere = path == DEFAULT and os.path.isdir("mlruns")
        is_whole = is_installed("sqlalchemy") and is_installed("alembic")  # of mlflow-skinny neither is part
        return cls() if path and is_whole and not is_elsewhere and not os.path.exists(path) else None

    def hold(self) -> None:
        """Something is to be sent: keep it, also while this process ends, until ``close``."""
        if self._ending is not None:
            self._ending.atexit = False

    def close(self) -> None:
        if self._ending is not None:
            self._ending()

    def put(self, uri: str) -> None:
        """Wait for the tables and put them where MLflow will look for them, unless something is there. Not on the training thread."""
        path, process = _path_of(uri), self._process
        if path is None or process is None or os.path.exists(path):
            return
        end = time.monotonic() + PATIENCE_S
        while process.poll() is None and time.monotonic() < end:
            threading.Event().wait(_LOOK_S)  # a thread that rests there is no hindrance to a fork
        beside = f"{path}.{os.getpid()}"
        try:
            shutil.copyfile(os.path.join(self._folder, _MADE), beside)
            os.link(beside, path)
        except ours(OSError):  # it failed, or another process was first: MLflow goes by what is there
            pass
        finally:
            with suppress(OSError):
                os.unlink(beside)


def _path_of(uri: str) -> str | None:
    """The file of a SQLite database's address; None for another one."""
    is_file = uri.startswith(SCHEME) and "?" not in uri and len(uri) > len(SCHEME)
    return unquote(uri[len(SCHEME) :]) if is_file else None


def _end(process: subprocess.Popen[bytes], folder: str, owner: int) -> None:
    if os.getpid() == owner:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
