"""What a page shows of a run, with when each thing of it changed, so that a page that is open gets what is new to it."""

from __future__ import annotations

import json
import os
from typing import Any

from numscope.page.payload import Payload, packed_arrays

BESIDE = ("columns", "sites", "made")  # keys that are not compared as a whole


class Shown:
    """The content of a page in its versions, of which the latest is held.

    Attributes:
        version: of the latest, from 1; 0: there is none yet.
    """

    def __init__(self) -> None:
        self.version = 0
        self._series = os.urandom(6).hex()  # versions of a server that was started again are others
        self._content: Payload = {}
        self._rows_since = 0  # version from which the rows and matrices are the same ones
        self._keys: dict[str, int] = {}  # version in which each changed
        self._sites: list[int] = []
        self._columns: Any = None
        self._texts: dict[int, bytes] = {}  # by the version that a page has, for the latest

    @property
    def name(self) -> str:
        """The version's, for pages."""
        return f"{self._series}-{self.version}"

    def renew(self, content: Payload) -> None:
        """Take a run's content (``payload.content_of``). Nothing happens if it is as before."""
        import numpy as np

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
        """What a page that has a version lacks, as JSON: ``whole``, or ``changed`` keys, ``sites`` by row, and of each matrix of
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
        import numpy as np

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
    import numpy as np

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
