"""The versions of a page's content: when each part of it changed, so that an open page gets only what is new to it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from numscope.page.payload import Payload, packed_arrays

BESIDE = ("columns", "sites", "made")  # keys that are not compared as a whole


@dataclass(eq=False)
class Shown:
    """The content of a page in its versions, of which the latest is held."""

    version: int = 0  # the latest, from 1; 0: none yet
    _series: str = field(default_factory=lambda: os.urandom(6).hex())  # versions of a server that was started again are others
    _content: Payload = field(default_factory=dict)
    _rows_since: int = 0  # version from which the rows and matrices are the same ones
    _keys: dict[str, int] = field(default_factory=dict)  # version in which each changed
    _sites: list[int] = field(default_factory=list)
    _columns: Any = None
    _texts: dict[int, bytes] = field(default_factory=dict)  # answers by the version that a page has

    @property
    def name(self) -> str:
        """The version's, for pages."""
        return f"{self._series}-{self.version}"

    def renew(self, content: Payload) -> None:
        """Take a run's content (``payload.content_of``). Nothing happens if it is as before."""
        old, version = self._content, self.version + 1
        keys = {name for name, value in content.items() if name not in BESIDE and not _same(value, old.get(name))}
        rows = [(site["layer"], site["tensor"]) for site in content["sites"]]
        same_rows = bool(old) and rows == [(site["layer"], site["tensor"]) for site in old["sites"]]
        same_rows = same_rows and content["columns"].keys() == old["columns"].keys()
        columns = np.full(len(content["first"]), version)
        if same_rows:
            _keep(columns, self._columns, old, content)
            sites = [i for i, site in enumerate(content["sites"]) if site != old["sites"][i]]
            if not keys and not sites and not (columns == version).any():
                return
            for i in sites:
                self._sites[i] = version
        else:
            self._rows_since, self._sites = version, [version] * len(rows)
        self._keys.update(dict.fromkeys(keys, version))
        self._columns, self._content, self.version, self._texts = columns, content, version, {}

    def since(self, name: str) -> bytes:
        """The changes since a page's version, as JSON: ``whole``, or ``changed`` keys, ``sites`` by row, and of each matrix of
        ``columns`` those numbered in ``fresh``; its other columns are those with the same first step that it has.

        Args:
            name: the version's; another text: it has none.
        """
        series, _, number = name.rpartition("-")
        known = int(number) if series == self._series and number.isdecimal() and len(number) < 16 else 0
        known = known if self._rows_since <= known <= self.version else 0
        if known not in self._texts:
            self._texts[known] = json.dumps(self._told(known), separators=(",", ":"), allow_nan=False).encode()
        return self._texts[known]

    def _told(self, known: int) -> Payload:
        content = self._content
        if known == self.version:
            return {}
        if not known:
            return {"whole": packed_arrays(content)}
        fresh = np.flatnonzero(self._columns > known)
        return {
            "changed": packed_arrays({name: content[name] for name, when in self._keys.items() if when > known and name in content}),
            "made": content["made"],
            "sites": {i: content["sites"][i] for i, when in enumerate(self._sites) if when > known},
            "fresh": fresh.tolist(),
            "columns": packed_arrays({name: matrix[:, fresh] for name, matrix in content["columns"].items()}),
        }


def _keep(columns: Any, known: Any, old: Payload, new: Payload) -> None:
    """Write into ``columns`` the version of those that are as they were."""
    places = {bounds: i for i, bounds in enumerate(zip(old["first"], old["last"], strict=True))}
    pairs = [(i, places[b]) for i, b in enumerate(zip(new["first"], new["last"], strict=True)) if b in places]
    if not pairs:
        return
    here, there = (np.asarray(side) for side in zip(*pairs, strict=True))
    same = np.ones(len(pairs), dtype=bool)
    for name, matrix in new["columns"].items():
        same &= (matrix.view(np.uint32)[:, here] == old["columns"][name].view(np.uint32)[:, there]).all(axis=0)
    columns[here[same]] = known[there[same]]


def _same(a: Any, b: Any) -> bool:
    """Whether two values are equal, arrays bit for bit."""
    if hasattr(a, "dtype"):
        return hasattr(b, "dtype") and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(value, b[name]) for name, value in a.items())
    return bool(a == b)
