"""Phase 5: every pair of up to 64 ranks (16 with ``quick``) exchanges random patterns, compared bit by bit; of more ranks some (rounds.py).

The pairs of a round are disjoint. Both sides of a pair generate the pattern from the same seed, so the receiver knows every bit. A size
that would take too long, as extrapolated from the previous one, is skipped and reported as such.

A pair that hangs is abandoned with its thread (a timeout of gloo itself would close the connections to all other ranks too). The ranks
agree on the end of a round in the store; a rank that hangs does not register there and is left out of the following rounds.

The phase fails if a pair is not ok or a rank is missing.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist

from numscope.doctor.budget import Overdue
from numscope.doctor.child.session import ChildSession, Failed, Present, StoreLost, Wire, sentence
from numscope.doctor.phases.rounds import ALL_RANKS, partners
from numscope.records.words import few, in_bytes, named, spans

_FOREVER = timedelta(hours=1)  # the time limit is ours: when gloo's own wait times out, it closes the connections to all ranks
_NUM_PINGS = 5
_TIMES = 3  # repetitions of payloads up to 1 MiB: a single transfer meets a busy host too often
_ROUND_SHARE = 0.25  # share of the time that is left, for a pair
_SIZE_SHARE = 0.2  # share of a pair's time, for one size in one direction
_STOP_SHARE = 0.12  # share of the phase: no round starts with less time left


def run(session: ChildSession, arguments: Mapping[str, Any]) -> None:
    """Plays the rounds between ``members`` with ``sizes``, fewer of them if ``quick``."""
    torch.set_num_threads(1)
    session.need_group()
    ranks = tuple(rank for rank in session.members if rank in arguments["members"])
    sizes = arguments["sizes"]
    rounds = partners(ranks.index(session.rank), len(ranks), ALL_RANKS[arguments["quick"]])
    session.report.set(sizes=sizes, members=spans(ranks), missing=[], num_rounds=len(rounds), rounds_done=0, stopped="", pairs=[])
    bad: list[str] = []
    stopped = ""
    present = Present((), ())
    try:
        present = _agree(session, "start", ranks, session.limit_s * 0.3, len(rounds) > 0)
        for round_, index in enumerate(rounds):
            if session.rank not in present.here:
                stopped = f"the others went on without rank {session.rank}, which was too late"
            elif not present.word["go_on"]:
                stopped = "the time of the phase was over"
            if stopped:
                break
            if index is not None:
                bad += _meet(session, ranks[index], round_, sizes, present.word["limit_s"], ranks[index] in present.missing)
            session.report.set(rounds_done=round_ + 1, missing=spans(present.missing))
            limit_s, more = present.word["limit_s"] * 1.3, round_ + 1 < len(rounds)
            present = _agree(session, f"round{round_}", present.here, limit_s, more, present.missing)
        missing = set(present.missing)
    except StoreLost as error:
        stopped = str(error)
        missing = {*present.missing, error.rank}
    session.report.set(stopped=stopped, missing=spans(missing))
    if bad:
        raise Failed(few(bad, 3, "; "))
    if missing:
        raise Failed(stopped or f"{named(missing)} did not take part to the end")
    if stopped and session.rank not in present.here:
        raise Failed(stopped)


def _agree(session: ChildSession, name: str, ranks: Sequence[int], seconds: float, more: bool, gone: tuple[int, ...] = ()) -> Present:
    """Agrees on the end of a round: which ranks are left, whether to go on, and for how long; the lowest rank decides."""
    seconds = min(seconds, 0.4 * session.left)  # the others wait twice as long as the collecting rank

    def word(missing: tuple[int, ...]) -> dict[str, Any]:
        return {"go_on": more and session.left > _STOP_SHARE * session.limit_s, "limit_s": max(0.5, _ROUND_SHARE * session.left)}

    with session.report.step(f"wait for the other ranks: {name}"):
        present = session.gather(f"pairs/{name}", ranks, seconds, seconds, word)
    return Present(present.here, (*gone, *present.missing), present.word)


def _meet(session: ChildSession, peer: int, round_: int, sizes: Sequence[int], limit_s: float, gone: bool) -> Iterator[str]:
    """Runs one pair over each backend; yields sentences about what is wrong."""
    for wire in session.wires:
        pair: dict[str, Any] = {"peer": peer, "backend": wire.backend, "round": round_, "status": "ok", "doing": "", "error": ""}
        pair |= {"round_trip_s": None, "received": []}
        if gone:
            pair |= {"status": "skipped", "error": f"rank {peer} did not respond in an earlier round"}
        else:
            match = _Match(session, wire, peer, round_, sizes, limit_s)
            try:
                session.report.limited(limit_s, match.play)
            except Overdue as error:
                pair |= {"status": "timeout", "doing": match.doing, "error": str(error)}
                yield f"{match.doing} was not done within {limit_s:.1f} s"
            except Exception as error:
                pair |= {"status": "error", "doing": match.doing, "error": f"{type(error).__name__}: {error}"}
                yield f"{match.doing}: {sentence(error)}"
            pair |= {"round_trip_s": match.round_trip_s, "received": list(match.received)}
            corrupt = [entry for entry in match.received if entry["corrupt"]]
            if corrupt:
                what = corrupt[0]["corrupt"]
                pair["status"] = "corrupt" if pair["status"] == "ok" else pair["status"]
                size, where = in_bytes(corrupt[0]["bytes"]), f"in {what['num_bytes']} bytes, the first at offset {what['first_offset']}"
                yield f"rank {session.rank} received {size} from rank {peer} with {what['num_bits']} wrong bits {where}"
        session.report.add("pairs", pair)


class _Match:
    """One rank's side of a pair. The lower rank sends first; before each transfer both wait for each other, which starts the clock."""

    def __init__(self, session: ChildSession, wire: Wire, peer: int, round_: int, sizes: Sequence[int], limit_s: float) -> None:
        self.doing = ""
        self.round_trip_s: float | None = None
        self.received: list[dict[str, Any]] = []
        self._session, self._wire, self._peer, self._sizes = session, wire, peer, sizes
        self._index = session.members.index(peer)
        self._tag = round_
        self._size_s = _SIZE_SHARE * limit_s
        self._leads = session.rank < peer

    def play(self) -> None:
        """Runs the exchange. Raises: whatever torch raises."""
        trips = []
        with self._step(f"ping rank {self._peer}"):
            for _ in range(_NUM_PINGS):
                began = time.perf_counter()
                self._agree_on_larger(0.0)
                trips.append(time.perf_counter() - began)
        self.round_trip_s = min(trips[1:])
        seconds = 0.0
        for number, size in enumerate(self._sizes):
            seconds = self._agree_on_larger(seconds)
            if number and self._sizes[number - 1] >= 1 << 16:
                expected_s = seconds * size / self._sizes[number - 1]
                if expected_s > self._size_s:
                    self._skip(number, expected_s)
                    return
            for sends in (self._leads, not self._leads):
                if sends:
                    self._send_payload(size)
                else:
                    seconds = self._receive_payload(size)

    def _skip(self, number: int, expected_s: float) -> None:
        for size in self._sizes[number:]:
            why = f"it would take {expected_s:.1f} s, as extrapolated from {in_bytes(self._sizes[number - 1])}"
            self.received.append({"bytes": size, "seconds": None, "bytes_per_s": None, "skipped": why, "corrupt": None})

    def _send_payload(self, size: int) -> None:
        payload = pattern(size, "pair", self._session.rank, self._peer, size)
        with self._step(f"send to {self._peer}, {in_bytes(size)}"):
            on_device = payload.to(self._wire.device)
            self._agree_on_larger(0.0)
            for _ in range(_times(size)):
                self._move("isend", on_device)

    def _receive_payload(self, size: int) -> float:
        expected = pattern(size, "pair", self._peer, self._session.rank, size)
        payloads = [torch.empty(size, dtype=torch.uint8, device=self._wire.device) for _ in range(_times(size))]
        timings = []
        with self._step(f"recv from {self._peer}, {in_bytes(size)}"):
            self._agree_on_larger(0.0)
            for payload in payloads:
                began = time.perf_counter()
                self._move("irecv", payload)
                timings.append(time.perf_counter() - began)
        seconds = min(timings)
        corrupt = next(filter(None, (difference(payload.cpu(), expected) for payload in payloads)), None)
        entry = {"bytes": size, "seconds": seconds, "bytes_per_s": size / max(seconds, 1e-9), "skipped": "", "corrupt": corrupt}
        self.received.append(entry)
        return seconds

    def _agree_on_larger(self, number: float) -> float:
        """The larger of both sides' numbers, after one round trip."""
        mine = torch.tensor([number], dtype=torch.float64, device=self._wire.device)
        theirs = torch.empty_like(mine)
        for sends in (self._leads, not self._leads):
            self._move("isend" if sends else "irecv", mine if sends else theirs)
        return max(number, float(theirs.item()))

    def _move(self, way: Literal["isend", "irecv"], tensor: torch.Tensor) -> None:
        getattr(dist, way)(tensor, self._index, group=self._wire.group, tag=self._tag).wait(_FOREVER)
        if self._wire.device.type == "cuda":
            torch.cuda.synchronize(self._wire.device)  # NCCL's wait only orders streams

    def _step(self, what: str) -> Any:
        self.doing = what
        return self._session.report.step(what)


def _times(size: int) -> int:
    return _TIMES if size <= 1 << 20 else 1


def pattern(num_bytes: int, *words: object) -> torch.Tensor:
    """Random bytes, uint8 [num_bytes], the same on all ranks for the same words."""
    seed = int.from_bytes(hashlib.sha256("/".join(map(str, words)).encode()).digest()[:8], "little") >> 1
    generator = torch.Generator().manual_seed(seed)
    words64 = torch.empty(-(-num_bytes // 8), dtype=torch.int64).random_(-(2**63), None, generator=generator)
    return words64.view(torch.uint8)[:num_bytes]


def difference(got: torch.Tensor, expected: torch.Tensor) -> dict[str, int] | None:
    """Compares two uint8 tensors: the first offset in bytes, the number of bytes and of bits; None if they are equal.

    *Cost:* one comparison; more only if they differ.
    """
    if torch.equal(got, expected):
        return None
    bits = got ^ expected
    where = bits.nonzero().view(-1)
    wrong = bits[where]
    num_bits = sum(int(((wrong >> shift) & 1).sum()) for shift in range(8))
    return {"first_offset": int(where[0]), "num_bytes": len(where), "num_bits": num_bits}
