"""A run's folder: the command and configuration (``run.json``), and facts on each rank's attempts (``ranks/``)."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from numscope.records.attempt import ENDED, Attempt
from numscope.records.faults import ours, suppress
from numscope.records.files import read_json, write_atomically
from numscope.records.words import without_passwords
from numscope.sinks.environment import environment
from numscope.version import __version__

RUN_FILE = "run.json"
STATISTICS = "statistics"
FORMAT = 2

_SECRET = re.compile(r"(?i)(^|[-_.\s])(api[-_]?key|key|token|secret|password|passwd|credentials?|auth)($|[-_.\s])")
HIDDEN = "[hidden]"
_VERSION = "version of "  # before a package's name in the environment
MAX_PARAMETER = 6000  # characters, as MLflow takes them


class RunFolder:
    """The folder of one run, created if missing, as one rank of it sees it.

    ``run``: facts for ``run.json`` besides versions, the environment (``environment.py``), the command line and the start: JSON values. The
    command line is stored without the values of options that sound like secrets.

    Raises: OSError.
    """

    def __init__(self, log_dir: str | os.PathLike[str], rank: int, run: Mapping[str, Any]) -> None:
        self.path = os.fspath(log_dir)
        self.rank = rank
        self._layers: dict[int, list[dict[str, Any]]] = {}  # by caller
        self._attempt = Attempt.take(log_dir, rank, STATISTICS)
        self.attempt = self._attempt.number
        os.makedirs(self.statistics, exist_ok=True)
        self._note_run(run)

    @property
    def statistics(self) -> str:
        """The folder of the Parquet parts."""
        return os.path.join(self.path, STATISTICS)

    def describe(self, layers: Sequence[Mapping[str, Any]], whose: int = 0) -> None:
        """Store the layers of this rank: ranks of a pipeline have different ones. ``whose``: the caller, if several write to the folder."""
        self._layers[whose] = [dict(layer) for layer in layers]
        self._attempt.tell({"layers": [layer for told in self._layers.values() for layer in told]})

    def end(self) -> None:
        """Note that this rank's attempt writes no more parts: by a name, since of ten thousand ranks names are quickly listed."""
        with suppress(OSError):
            open(self._attempt.path.removesuffix(".json") + ENDED, "x").close()

    def _note_run(self, run: Mapping[str, Any]) -> None:
        """Rank 0 writes ``run.json``, another rank only if there is none (a watch on that rank alone)."""
        path = os.path.join(self.path, RUN_FILE)
        if self.rank != 0 and os.path.exists(path):
            return
        attempts = [a for a in read_attempts(self.path) if a.get("attempt") != self.attempt]
        attempts.append({"attempt": self.attempt, "started": self._attempt.started, **facts(run)})
        content = {"format": FORMAT, "numscope": __version__, "attempts": sorted(attempts, key=lambda a: a["attempt"])}
        if self.rank == 0:
            write_atomically(path, _text(content))
            return
        with contextlib.suppress(FileExistsError), open(path, "x", encoding="utf-8") as file:
            file.write(_text(content))


def _text(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=1, default=str) + "\n"


def read_attempts(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The attempts in ``run.json``; none if it is missing or not ours."""
    try:
        attempts = read_json(os.path.join(folder, RUN_FILE))["attempts"]
        return [a for a in attempts if isinstance(a, dict) and isinstance(a.get("attempt"), int)]
    except ours(OSError, ValueError, KeyError, TypeError):
        return []


def facts(run: Mapping[str, Any]) -> dict[str, Any]:
    """Versions, the environment, the command line without secrets, and what else is known of the run: JSON values by name."""
    told = {"versions": versions(), "environment": environment(), "command": sys.orig_argv, **run}
    return {**told, "command": without_secrets(told["command"])}


def parameters(run: Mapping[str, Any]) -> dict[str, str]:
    """The same facts as dashboards take them: texts of at most 6,000 characters by name, some fifty; packages' versions are one text."""
    told = facts(run)
    command, found, known = told.pop("command"), told.pop("environment"), told.pop("versions")
    packages = {name.removeprefix(_VERSION): value for name, value in found.items() if name.startswith(_VERSION)}
    texts = {
        "command": command if isinstance(command, str) else shlex.join(command),
        **told,
        **known,
        **{name: value for name, value in found.items() if not name.startswith(_VERSION)},
        "packages": ", ".join(f"{name} {version}" for name, version in packages.items()),
    }
    return {name: _shortened(str(value)) for name, value in texts.items() if value not in (None, "")}


def _shortened(text: str) -> str:
    text = without_passwords(text).encode(errors="backslashreplace").decode()
    kept = text if len(text) <= MAX_PARAMETER else text[: MAX_PARAMETER - 40]
    return text if kept == text else f"{kept}… ({len(text) - len(kept):,} more characters)"


def versions() -> dict[str, str]:
    """Versions of numscope, Python, the platform and, if loaded, torch; which kernel reads tensors, and the GPU that is in use."""
    known = {"numscope": __version__, "python": platform.python_version(), "platform": platform.platform()}
    torch, native = sys.modules.get("torch"), sys.modules.get("numscope.summary.native")  # not imported for this
    if torch is not None:
        known["torch"] = str(torch.__version__)
        if torch.cuda.is_initialized():
            known["gpu"] = str(torch.cuda.get_device_name())
    if native is not None:
        known["kernel"] = "torch" if native.module is None else native.module.isa()
    return known


def without_secrets(command: str | Sequence[str]) -> str | list[str]:
    """A command line without the values of options that sound like secrets (``--api-key``, ``--hf_token=…``)."""
    if isinstance(command, str):
        return " ".join(_hide(command.split(" ")))
    return _hide(list(command))


def _hide(words: list[str]) -> list[str]:
    kept, hide_next = [], False
    for word in words:
        name, equals, _ = word.partition("=")
        secret = bool(_SECRET.search(name.lstrip("-")))
        if hide_next and not word.startswith("-"):
            kept.append(HIDDEN)
            hide_next = False
        elif secret and equals:
            kept.append(f"{name}={HIDDEN}")
        else:
            kept.append(without_passwords(word))
            hide_next = secret and word.startswith("-")
    return kept
