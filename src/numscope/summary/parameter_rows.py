"""Rows of parameters, kept across steps."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import Parameter

from numscope.records.faults import ours
from numscope.summary import native
from numscope.summary.ledger import UNOBSERVED, Ledger
from numscope.summary.state import Groups
from numscope.summary.unwrap import is_fake

NO_UPDATE = -1.0  # in place of a largest magnitude: the parameter was written, but not by an optimizer


class _ParameterRow:
    """A parameter's row, and the parameter's state when it was read."""

    __slots__ = ("address", "groups", "handle", "parameter", "version")

    def __init__(self, handle: int, parameter: weakref.ref[Tensor]) -> None:
        self.handle = handle
        self.parameter = parameter
        self.version, self.address, self.groups = -1, 0, 0

    def is_of(self, parameter: Tensor) -> bool:
        return self.handle != UNOBSERVED and self.parameter() is parameter

    def is_as(self, parameter: Tensor, groups: int = 0) -> bool:
        """Whether the parameter seems not to have been written since, and these fields were computed."""
        is_same = self.parameter() is parameter and self.version >= 0 and (self.version, self.address) == _stamp(parameter)
        return is_same and self.groups & groups == groups


def _stamp(parameter: Tensor) -> tuple[int, int]:
    """Version and address, which show changes of a parameter; (-1, 0) if it has none, as functorch's wrappers and lazy parameters."""
    if type(parameter) is not Parameter and is_fake(parameter):  # torch warns who asks it for an address
        return -1, 0
    try:
        return parameter._version, parameter.data_ptr()
    except ours(RuntimeError, ValueError):
        return -1, 0


@native.in_c
class Weights:
    """The rows of parameters: kept across steps, and written again only when a parameter has changed.

    A change is seen by the version counter or the address. ``recheck`` discards both, for updates that change neither (``p.data``).
    """

    def __init__(self) -> None:
        self.ledger = Ledger(capacity=256)
        # By handle, once rewritten: the largest magnitude before the optimizer's last step, or NO_UPDATE.
        self.amax_before: dict[int, float] = {}
        self.rows: dict[int, _ParameterRow] = {}  # by id(parameter)
        self._gone: list[weakref.ref[Tensor]] = []  # deleted parameters, such as functional_call's replacements
        self._free: list[int] = []  # their rows
        self._share(self.ledger, self.rows, self.amax_before)

    def _share(self, *parts: object) -> None:
        """Pass the ledger and the known rows to C."""

    def observe(self, parameter: Tensor) -> int:
        """The handle of a parameter's row, which is written first if the parameter is new or has changed."""
        return self._observe_any(parameter)

    def _observe_any(self, parameter: Tensor) -> int:
        known = self.rows.get(id(parameter))
        if known is not None and known.is_as(parameter):
            return known.handle
        if known is not None and known.is_of(parameter):
            self.amax_before[known.handle] = NO_UPDATE
        self._read([parameter])
        return self.rows[id(parameter)].handle

    def handle(self, parameter: Tensor) -> int:
        """The row of a parameter, ``UNOBSERVED`` if it has none."""
        row = self.rows.get(id(parameter))
        return UNOBSERVED if row is None else row.handle

    def is_stale(self, parameter: Tensor) -> bool:
        """Whether a parameter is known to have been written since its row was."""
        row = self.rows.get(id(parameter))
        return row is not None and row.version >= 0 and row.is_of(parameter) and row.version < _stamp(parameter)[0]

    def observe_many(self, parameters: Sequence[Tensor]) -> list[int]:
        """Read all of them again in one native call, as after an optimizer's step."""
        return self._read(parameters, stepped=True)

    def current(self, parameters: Sequence[Tensor], groups: Groups) -> list[int]:
        """Up-to-date rows of parameters with at least these fields; parameters are read again if necessary."""
        stale = [p for p in parameters if (row := self.rows.get(id(p))) is None or not row.is_as(p, groups)]
        if stale:
            was = self.ledger.groups
            self.ledger.groups = was | groups
            self._read(stale)
            self.ledger.groups = was
        return [self.rows[id(p)].handle for p in parameters]

    def _read(self, parameters: Sequence[Tensor], stepped: bool = False) -> list[int]:
        """Read parameters into their rows, else into free ones, else into new ones. Returns: the rows' handles.

        Args:
            stepped: an optimizer has written them; their largest magnitudes before are kept.
        """
        with self.ledger:
            done = self._reread([*parameters], stepped, torch.get_num_threads())
        left = {id(p): p for p, handle in zip(parameters, done, strict=True) if handle is None} if None in done else {}
        self.ledger.num_reread += len(done) - len(left)
        if not left:
            return done  # type: ignore[return-value]
        self._read_any(left, stepped)
        return [self.rows[id(p)].handle if handle is None else handle for p, handle in zip(parameters, done, strict=True)]

    def _reread(self, parameters: list[Tensor], stepped: bool, num_threads: int) -> list[int | None]:
        """The handles of those that C reads into their rows; None for the others."""
        return [None] * len(parameters)

    def _read_any(self, by_id: dict[int, Tensor], stepped: bool) -> None:
        """``_read`` for parameters that C leaves to Python."""
        rows = {key: row for key, p in by_id.items() if (row := self.rows.get(key)) is not None and row.is_of(p)}
        handles = {key: row.handle for key, row in rows.items()}
        if stepped:
            self.amax_before.update(zip(handles.values(), self.ledger.amax([*handles.values()]), strict=True))
        if self._free and len(rows) < len(by_id):
            handles |= {key: self._free.pop() for key, p in by_id.items() if key not in rows and self._free and _stamp(p)[0] >= 0}
        done = self.ledger.rewrite_many([*handles.values()], [by_id[key] for key in handles])
        self.ledger.look_again()
        fresh = [key for key in by_id if key not in handles] + [key for key, ok in zip(handles, done, strict=True) if not ok]
        handles.update(zip(fresh, self.ledger.observe_many([by_id[key] for key in fresh]), strict=True))
        for key, handle in handles.items():
            p = by_id[key]
            reference = rows[key].parameter if key in rows else weakref.ref(p, self._gone.append)
            row = self.rows[key] = _ParameterRow(handle, reference)
            (row.version, row.address), row.groups = _stamp(p), self.ledger.groups

    def recheck(self) -> None:
        """Read each parameter again when it is next observed."""
        for row in tuple(self.rows.values()):
            row.version = -1

    def forget_gone(self) -> None:
        """Empty the rows of deleted parameters for reuse; no event may refer to them any more."""
        if self._gone:
            self._gone.clear()
            for key, row in list(self.rows.items()):
                if row.parameter() is None:
                    del self.rows[key]
                    if row.handle != UNOBSERVED:
                        self.ledger.empty(row.handle)
                        self.amax_before.pop(row.handle, None)
                        self._free.append(row.handle)
