"""The file of ``numscope doctor --settings FILE``: what is seldom asked for, as YAML."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field, ValidationError, with_config
from typing_extensions import TypedDict

from numscope.doctor.meet.secret import read_secret
from numscope.doctor.records import ExamPhase, adapter
from numscope.records.words import nearest

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def _phase(word: object) -> ExamPhase:
    labels = [phase.label for phase in ExamPhase]
    if word not in labels and word not in [*ExamPhase]:
        raise ValueError(f"expected one of {', '.join(labels)}, or a number.{nearest(str(word), labels)}")
    return ExamPhase(word) if isinstance(word, int) else ExamPhase(labels.index(str(word)))


def _size(word: object) -> int:
    """Bytes, with units of 1024."""
    match = re.fullmatch(r"(\d+)\s*([kmg]?)(?:i?b)?", str(word).lower())
    if match is None or not 8 <= (size := int(match[1]) * _UNITS[match[2]]) <= 4 << 30:
        raise ValueError("expected a size from 8 bytes to 4G, such as 8, 1M or 64M")
    return size


def _token(path: object) -> str:
    try:
        return read_secret(str(path))
    except OSError as error:
        raise ValueError(f"expected a file that can be read: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"expected {error}") from None


def _each(read: Callable[[object], Any]) -> BeforeValidator:
    return BeforeValidator(lambda values: tuple(map(read, values)) if isinstance(values, list) else values)


@with_config(extra="forbid", strict=True)
class FileSettings(TypedDict, total=False):
    """The keys that the file may have, named as in ``Settings``."""

    phases: Annotated[tuple[ExamPhase, ...], _each(_phase)]
    deadline_s: Annotated[float, Field(ge=10)]
    timeout_scale: Annotated[float, Field(ge=0.01)]
    backend: Literal["gloo", "nccl", "gloo,nccl"]
    sizes: Annotated[tuple[int, ...], _each(_size)]
    strict: bool
    node_rank: Annotated[int, Field(ge=0)]
    token_file: Annotated[str, BeforeValidator(_token)]


NAMES = tuple(FileSettings.__annotations__)


def read_settings(path: str) -> dict[str, Any]:
    """Reads a file's settings, by fields of ``Settings``. Raises: OSError; ValueError with the place and what is expected."""
    try:
        asked = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        values: dict[str, Any] = adapter(FileSettings).validate_python({} if asked is None else asked)
    except yaml.YAMLError as error:
        raise ValueError(f"it is not YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            raise ValueError(f"{name}: expected one of {', '.join(NAMES)}.{nearest(name, NAMES)}") from None
        raise ValueError(f"{name}: got {first['input']!r}, {first['msg'].removeprefix('Value error, ')}") from None
    if "token_file" in values:
        values["token"] = values.pop("token_file")
    return values
