"""A YAML file or a dict, read as plain data: nothing in it is executed, nothing in it can grow without bound."""

from __future__ import annotations

import os
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import yaml

from numscope.config.wording import Errors, shown
from numscope.records.faults import ours
from numscope.records.words import closest

_MAX_BYTES = 2**20
_MAX_DEPTH = 32
_MAX_VALUES = 100_000  # with every alias written out: ten aliases of ten aliases of … end here
_MAX_NUMBER = 100  # characters of a number or date: making a number of many digits takes quadratic time
_GROWS = f"got more than {_MAX_VALUES} values with all aliases and merge keys written out, or one that contains itself, expected fewer"
_LONG = f"got a number of more than {_MAX_NUMBER} characters, expected a shorter one, or text in quotes"


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """PyYAML's safe loader, which also notes keys given twice and refuses tags with a plain message."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.repeated: list[tuple[str, int, int]] = []  # key, line, line of the first
        self._sizes: dict[Any, int] = {}  # values in a node, with every alias and merge written out

    def compose_node(self, parent: Any, index: Any) -> Any:
        is_alias = self.check_event(yaml.AliasEvent)
        node = super().compose_node(parent, index)
        if not is_alias:
            parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
            is_scalar = isinstance(node, yaml.ScalarNode)
            self._sizes[node] = 1 if is_scalar else 1 + sum(self._sizes[part] for part in parts)
            if is_scalar and len(node.value) > _MAX_NUMBER and not node.tag.endswith(":str"):
                raise yaml.composer.ComposerError(None, None, _LONG, node.start_mark)
        if max(self._sizes.get(node, _MAX_VALUES + 1), len(self._sizes)) > _MAX_VALUES:  # without a size: an alias within its own value
            raise yaml.composer.ComposerError(None, None, _GROWS, node.start_mark)
        return node

    def compose_mapping_node(self, anchor: str | None) -> Any:
        # Here, before merge keys (`<<`) are resolved: they may repeat a key on purpose.
        node = super().compose_mapping_node(anchor)
        first: dict[str, int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                line = key.start_mark.line + 1
                if key.value in first:
                    self.repeated.append((key.value, line, first[key.value]))
                first.setdefault(key.value, line)
        return node

    def refuse(self, node: Any) -> Any:
        problem = f"the tag {node.tag} is refused: a configuration is plain data, nothing in it is executed"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


_Loader.add_constructor(None, _Loader.refuse)


def read(source: str | os.PathLike[str] | Mapping[str, Any], errors: Errors) -> tuple[dict[str, Any] | None, str]:
    """The plain tree and its text; the tree is None if ``errors`` has the reason."""
    if isinstance(source, Mapping):
        tree = _plain(source, errors)
        return tree, "" if tree is None else str(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True))
    text = text_of(source, errors)
    return (None, "") if text is None else (parsed(text, errors), text)


def text_of(source: str | os.PathLike[str], errors: Errors) -> str | None:
    """A file's text; None if ``errors`` has the reason."""
    path = Path(source)
    try:
        if not path.is_file():
            if path.is_dir():
                errors.add("", "got a folder, expected a YAML file.")
            elif "\n" in str(path) or ": " in str(path):
                errors.add("", "got YAML text, expected a YAML file's path or a dict. Read it first: yaml.safe_load(text).")
            else:
                # By stems, as all names end in .yaml.
                files = path.parent.iterdir() if path.parent.is_dir() else ()
                siblings = {p.stem: p.name for p in files if p.suffix in (".yaml", ".yml")}
                near = closest(path.stem, siblings)
                errors.add("", "no such file, expected a YAML file." + "".join(f' Did you mean "{siblings[stem]}"?' for stem in near))
            return None
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            errors.add("", "got more than 1 MiB, expected a configuration of at most 1 MiB.")
            return None
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        errors.add("", f"got bytes that are not UTF-8 (at byte {error.start}), expected a YAML file in UTF-8.")
    except ours(OSError, ValueError) as error:  # ValueError: a null byte in the path
        errors.add("", f"can't be read: {getattr(error, 'strerror', None) or error}.")
    return None


def parsed(text: str, errors: Errors) -> dict[str, Any] | None:
    """A text's plain tree.

    PyYAML's pure Python loader reads it: its recursion is Python's, so that nesting ends in an error and not in a crash.
    """
    try:
        loader = _Loader(text)
        tree = loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = ", ".join(part for part in (error.context, error.problem) if part) or "no YAML"
        errors.add(f"line {mark.line + 1}, column {mark.column + 1}" if mark else "", f"{problem}.")
        return None
    except yaml.YAMLError as error:
        errors.add("", f"{' '.join(str(error).split())}.")
        return None
    except RecursionError:
        errors.add("", f"got values nested too deeply, expected at most {_MAX_DEPTH} levels.")
        return None
    except ours(ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:  # PyYAML's own readers of numbers and dates
        errors.add("", f"contains a value that YAML can't read: {error}.")
        return None
    for key, line, first in loader.repeated:
        errors.add(f"line {line}", f'"{key}" is given twice, first in line {first}. YAML would silently keep the last one: remove one.')
    if tree is None:
        errors.add("", "got an empty file, expected at least one section.")
        return None
    return _plain(tree, errors)


def _plain(tree: object, errors: Errors) -> dict[str, Any] | None:
    """The tree as new dicts, lists, strings, numbers, booleans and None, shared parts written out."""
    if not isinstance(tree, Mapping):
        errors.add("", f"got {shown(tree)}, expected sections: names with a mapping each.")
        return None
    budget = _MAX_VALUES
    before = len(errors)

    def copy(value: object, place: str, depth: int) -> Any:
        nonlocal budget
        budget -= 1
        if budget < 0:
            return None
        if depth > _MAX_DEPTH:
            errors.add("", f"got values nested too deeply, expected at most {_MAX_DEPTH} levels.")
            return None
        if isinstance(value, Mapping):
            copied = {}
            for key, inner in value.items():
                if isinstance(key, str):
                    copied[key] = copy(inner, f"{place}.{key}" if place else key, depth + 1)
                else:
                    errors.add(place, f"got the key {shown(key)}, expected a name. Write it in quotes.")
            return copied
        if isinstance(value, list | tuple):
            return [copy(inner, f"{place}[{index}]", depth + 1) for index, inner in enumerate(value)]
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return str.__str__(value)  # an enum's value
        if isinstance(value, Integral):  # NumPy's too
            return int(value)
        if isinstance(value, float | Real):
            return float(value)
        errors.add(place, f"got {shown(value)}, expected plain data: text, a number, true or false, a list, a mapping.")
        return None

    copied: dict[str, Any] = copy(tree, "", 0)
    if budget < 0:
        errors.add("", f"{_GROWS}.")
    elif not copied and len(errors) == before:
        errors.add("", "got no section, expected at least one.")
    return copied if len(errors) == before else None
