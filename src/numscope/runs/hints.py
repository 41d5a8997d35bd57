"""Hints for a query that found nothing: the run's names that were meant, and the columns that hold numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from numscope.records.site import Phase, tensor_of
from numscope.records.words import closest, few
from numscope.runs.folder import Run
from numscope.runs.query import NEVER_NULL, VIEW, QueryResult, column_of, columns_of, quoted, reading

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_FEW, _MOST = 4, 8  # names in a sentence: of each kind, of one
_KEYS = (*NEVER_NULL, "ord", "calls", "time")
_NUMBERS = ("nan", "inf", "-inf")  # text that SQL casts


def hints(run: Run, sql: str, result: QueryResult) -> list[str]:
    """Sentences about a result without rows, or with a column that is null in all rows; none where there is nothing to say."""
    if not result.rows:
        return reading(run, lambda connection: list(_of_names(connection, sql)))
    if any(all(value is None for value in column) for column in zip(*result.rows, strict=True)):
        return reading(run, lambda connection: list(_of_columns(connection, sql)))
    return []


def _of_names(connection: DuckDBPyConnection, sql: str) -> Iterator[str]:
    """Hints on each text in a query: which names of this run it resembles."""
    found = connection.execute(f"SELECT DISTINCT layer, cls, tensor, dtype FROM {VIEW}").fetchall()
    layers, classes, tensors, dtypes = ([*dict.fromkeys(sorted(names))] for names in zip(*found, strict=True)) if found else ([],) * 4
    texts = [text.replace("''", "'") for text in re.findall(r"'((?:[^']|'')*)'", sql)]
    texts = [text for text in dict.fromkeys(texts) if re.search("[A-Za-z]", text) and text not in _NUMBERS]
    unknown = [text for text in texts if text not in {*layers, *classes, *tensors, *dtypes} and not re.search(r"[%*^$|\\]", text)]
    for text in unknown:
        place = re.fullmatch(r"(?!grad )(\S+) (?:\(\S+\) )?(.+)", text)  # as a report prints it: net.0 (Linear) grad weight
        names = [near for word in (place.groups() if place else (text,)) for near in _meant(word, layers, tensors, classes)]
        there = f"Did you mean {' or '.join(map(repr, names))}?" if names else f"Its tensors are {few(tensors, _FEW)}; "
        yield f"no row: {text!r} is no layer, class or tensor of this run. {there}" + (
            "" if names else f"its layers are {few(layers, _FEW)}."
        )
    if not unknown and found:
        first, last = connection.execute(f"SELECT min(step), max(step) FROM {VIEW}").fetchall()[0]
        of = [(layer, sorted({tensor for name, _, tensor, _ in found if name == layer})) for layer in texts if layer in layers]
        yield f"no row. The run has steps {first} to {last}" + "".join(f"; {layer!r} has {few(names, _MOST)}" for layer, names in of) + "."


def _meant(word: str, layers: list[str], tensors: list[str], classes: list[str]) -> list[str]:
    """The run's names that are most like a word, which may be a report's (``grad weight``), or a layer's without its model's."""
    if word in layers or (tensor := tensor_of(Phase.FORWARD, word)) in tensors:
        return [word if word in layers else tensor]
    ends = {".".join(name.split(".")[-1 - word.count(".") :]): name for name in layers}  # a layer's name without its model's
    found = [name for name in layers if name.endswith(f".{word}")][:3] or closest(word, [*layers, *tensors, *classes], 3)
    return found or [ends[end] for end in closest(word, ends, 3)]


def _of_columns(connection: DuckDBPyConnection, sql: str) -> Iterator[str]:
    """Which tensors have values of the query's columns, where not all have; and which columns have values, where none has."""
    words, columns = set(re.findall(r"\w+", sql)), list(columns_of(connection, VIEW))
    counts = connection.execute(f"SELECT {', '.join(f'count({quoted(name)})' for name in columns)} FROM {VIEW}").fetchall()[0]
    held = dict(zip(columns, counts, strict=True))
    if empty := [name for name in columns if name in words and not held[name]]:
        numbers = [name for name in columns if held[name] and name not in _KEYS]
        yield (
            f"{', '.join(empty)}: this run recorded no such numbers. It has {', '.join(numbers)}. "
            "numscope run --config FILE collects what a configuration asks for."
        )
    for name in (name for name in columns if name in words and 0 < held[name] < held["step"]):
        tensors = column_of(connection, f"SELECT DISTINCT tensor FROM {VIEW} WHERE {quoted(name)} IS NOT NULL ORDER BY 1")
        yield f"{name}: recorded of {few(tensors, _MOST)}, at some layers and steps."
