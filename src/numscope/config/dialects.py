"""The names that other tools' configurations use, and their translation into one form; all else is done on that form alone."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from numscope.config.features import ALIASES, FEATURES, Alias
from numscope.config.wording import Errors, listed, meant, one_of, shown

NAMESPACE = "transformer_engine"  # features may be in it or directly in the section, with the same meaning


LAYER_KEYS = {"exact_layer_names": "layer_names"}
KEYS = {"type": "stats"}
# A struct's key → its entries' key, and the canonical plural, which an entry may have instead.
_STRUCTS = {"gemms_struct": ("gemm", "gemms"), "tensors_struct": ("tensor", "tensors")}
_MAX_PARTS = 1000  # entries that structs may hold together


@dataclass(frozen=True)
class Written:
    """A feature in canonical keys, with where each stood."""

    feature: str  # canonical name; a plug-in's own
    name: str  # as written in its section, with its namespace
    path: str  # as written in the file
    alias: Alias
    settings: Mapping[str, Any]  # canonical keys
    places: Mapping[str, str] = field(default_factory=dict)  # canonical key → its path in the file
    single: frozenset[str] = frozenset()  # keys whose one-element list was a single word in the file

    def place(self, loc: tuple[Any, ...], under: str = "") -> str:
        """The path in the file of a canonical key, or of a part of its value, such as ``[0]``."""
        if not loc:
            return self.path + under
        key, *rest = loc
        home = self.places.get(key) or below(self.path, self.alias.words.get(key, str(key)))
        under = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in rest) + under
        return home + (under.removeprefix("[0]") if key in self.single else under)


@dataclass(frozen=True)
class Section:
    """A section with its features translated and nothing else checked."""

    name: str
    path: str  # "" for a file that is one section without a name
    enabled: Any
    layers: Any  # None where there is none
    layer_places: Mapping[str, str]  # canonical key of ``layers`` → its path in the file
    features: tuple[Written, ...]
    bare: bool  # whether a missing ``enabled`` or ``layers`` is right, because the file has no section's name
    empty: bool  # whether it has neither features nor anything that might have been meant as one


RELOAD = "reload"  # keys next to the sections
NAMES_KEY = "names"
MISSING = object()


def below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def translate(tree: Mapping[str, Any], stem: str, plugged: Collection[str], errors: Errors) -> list[Section]:
    """The sections of a file, in order; one where the file has none around its features."""
    known = {*ALIASES, *plugged}
    top = {NAMESPACE, "layers", "enabled", RELOAD, NAMES_KEY, *known}
    wrapped = {key for key, value in tree.items() if isinstance(value, Mapping) and _is_section(key, value, known)}
    bare = [key for key in tree if key in top and key not in wrapped]
    if bare and not wrapped:
        return [_section(stem, "", tree, known, errors)]
    for key in bare:
        errors.add(key, "is outside of every section. Move it into one, or remove the sections' names from the file.")
    found = []
    for name, value in tree.items():
        if name in bare:
            continue
        if isinstance(value, Mapping) and name not in wrapped and (hint := meant(name, top)):
            errors.add(name, f"is neither a feature nor a section: it has no layers and no features.{hint}")
        elif isinstance(value, Mapping):
            found.append(_section(name, name, value, known, errors))
        else:
            errors.add(name, f"got {shown(value)}, expected a section: enabled, layers and features.{meant(name, top)}")
    return found


def _is_section(key: str, value: Mapping[str, Any], known: Collection[str]) -> bool:
    if key == NAMESPACE:  # which itself holds features
        return "layers" in value or "enabled" in value
    return "layers" in value or NAMESPACE in value or any(word in known and isinstance(inner, Mapping) for word, inner in value.items())


def _section(name: str, path: str, tree: Mapping[str, Any], known: Collection[str], errors: Errors) -> Section:
    features: list[Written] = []
    for key, value in tree.items():
        if key in ("enabled", "layers"):
            continue
        if key != NAMESPACE:
            features.extend(_feature(key, below(path, key), value, known, errors))
        elif isinstance(value, Mapping) and value:
            for inner, settings in value.items():
                features.extend(_feature(f"{key}.{inner}", below(below(path, key), inner), settings, known, errors))
        else:
            errors.add(below(path, key), f"got {shown(value)}, expected features.")
    layers: Any = tree.get("layers", MISSING)
    places: dict[str, str] = {}
    if isinstance(layers, Mapping):
        layers, places = _renamed(layers, LAYER_KEYS, below(path, "layers"), errors)
    enabled, empty = tree.get("enabled", MISSING), tree.keys() <= {"enabled", "layers"}
    return Section(name, path, enabled, layers, places, tuple(features), bare=not path, empty=empty)


def _renamed(settings: Mapping[str, Any], keys: Mapping[str, str], path: str, errors: Errors) -> tuple[dict[str, Any], dict[str, str]]:
    renamed: dict[str, Any] = {}
    places: dict[str, str] = {}
    for key, value in settings.items():
        canonical = keys.get(key, key)
        if canonical in renamed:
            other = places[canonical].rpartition(".")[2]
            errors.add(below(path, key), f"got {other} as well, which means the same. Remove one.")
        else:
            renamed[canonical], places[canonical] = value, below(path, key)
    return renamed, places


def _feature(name: str, path: str, settings: Any, known: Collection[str], errors: Errors) -> Iterator[Written]:
    word = name.rpartition(".")[2] if name.startswith(f"{NAMESPACE}.") else name
    if word not in known:
        plugged = [key for key in known if key not in ALIASES]
        structure = ("enabled", "layers", NAMESPACE) if word == name else ()
        expected = listed(word, [*FEATURES, *sorted(plugged)], [*ALIASES, *structure])
        errors.add(path, f"is not a feature, expected {expected}")
        return
    alias = ALIASES.get(word) or Alias(word)
    if not isinstance(settings, Mapping):
        errors.add(path, f"got {shown(settings)}, expected a feature's settings, such as enabled: true.")
        return
    renamed, places = _renamed(settings, KEYS if word in ALIASES else {}, path, errors)
    whole = Written(alias.feature, name, path, alias, renamed, places)
    yield from _parts(whole, errors) if word in ALIASES else (whole,)


def _parts(whole: Written, errors: Errors) -> list[Written]:
    """The feature once for each entry of its structs, each with the settings around the struct, which the entry's own override."""
    parts = [whole]
    for struct, (one, many) in _STRUCTS.items():
        parts = [part for outer in parts for part in _entries(outer, struct, one, many, errors)]
        if len(parts) > _MAX_PARTS:
            errors.add(whole.path, f"got {len(parts)} entries in its structs, expected at most {_MAX_PARTS}.")
            return []
    return parts


def _entries(outer: Written, struct: str, one: str, many: str, errors: Errors) -> Iterator[Written]:
    if struct not in outer.settings:
        yield outer
        return
    place, entries = outer.places[struct], outer.settings[struct]
    shared = {key: value for key, value in outer.settings.items() if key != struct}
    if many in shared:
        errors.add(place, f"got {many} as well, expected one of them.")
    if not isinstance(entries, list) or not entries:
        errors.add(place, f"got {shown(entries)}, expected a list of entries, each with {one} and settings.")
        return
    seen: dict[str, int] = {}
    for index, entry in enumerate(entries):
        at = f"{place}[{index}]"
        if not isinstance(entry, Mapping):
            errors.add(at, f"got {shown(entry)}, expected {one} and settings.")
            continue
        settings, places = _renamed(entry, {**KEYS, one: many}, at, errors)
        single = outer.single
        if one in entry:
            settings[many], single = [entry[one]], single | {many}
        places.setdefault(many, below(at, one))
        words = settings.get(many)
        for word in words if isinstance(words, list) else ():
            text = json.dumps(word, sort_keys=True)
            if text in seen and struct == "tensors_struct":
                errors.add(places[many], f"got {text} again, as in {place}[{seen[text]}]. Give each tensor one entry.")
            seen.setdefault(text, index)
        yield replace(
            outer,
            settings={**shared, **settings},
            places={**outer.places, **places},
            single=single,
        )


def unknown(word: str, keys: Collection[str], alias: Alias) -> str:
    """The text for a key that a feature does not have."""
    names = [alias.words.get(key, key) for key in keys]
    structs = [struct for struct, (_, many) in _STRUCTS.items() if many in keys]
    return one_of(word, names, [*keys, *structs]).replace("got", "got the unknown key", 1)
