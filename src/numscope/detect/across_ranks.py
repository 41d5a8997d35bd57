"""Has all ranks that hold the same weights do one and the same call, and compares their bits.

The first of them leaves the arguments of one of its calls at the job's store. Some steps later, and at each step that is checked from then
on, every rank does that call, with the weights that it has then and generators that begin alike, and leaves sums of what its modules gave.
Nobody waits: the first rank reads the others' sums at later steps.
"""

from __future__ import annotations

import array
import io
import json
import random
import socket
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from numscope.config.options import how_to_set
from numscope.detect.again import Once, seen_in
from numscope.detect.asked import AskedCalls
from numscope.detect.journal import Journal
from numscope.distributed.agree import among, find_ddp, rank, spread, watch_name
from numscope.distributed.bulletin import Bulletin, short_digest
from numscope.distributed.channel import members
from numscope.probe.module import ModuleProbe
from numscope.probe.naming import named_state
from numscope.records.alert import Alert
from numscope.records.faults import ours
from numscope.records.finding import Culprit
from numscope.records.site import Phase, tensor_of
from numscope.records.words import few
from numscope.replay.call import do_again
from numscope.replay.capture import FORWARD, Call, RandomState
from numscope.replay.stages import FINITE, FORWARD_FINITE
from numscope.summary.checksum import checksum, merged
from numscope.summary.state import Groups
from numscope.summary.unwrap import Unsummarizable

RANKS_DIFFER = "ranks compute differently"
LATER = 8  # steps after which all have the arguments
MOST_BYTES = 8 << 20  # of the arguments; they go over the job's store
_MOST_NAMED = 8
_MOST_ATTRIBUTES = 4096

Given = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class RankSums:
    """Sums over the results of one rank's modules.

    Args:
        weights: a sum of weights and buffers: ranks are compared where it is the same.
        sites: phase, module and slot of each tensor; ``sums``: 32 bits of each.
        attributes: of modules, by name, 32 bits of each plain value and generator.
    """

    weights: int = 0
    sites: Sequence[tuple[str, str, str]] = ()
    sums: Sequence[int] = ()
    attributes: Mapping[str, int] = field(default_factory=dict)
    undone: str = ""


class AcrossRanks:
    """That experiment, of one model.

    *Cost:* the arguments once to each rank, and at a step that is checked a call, a note of 4 bytes a tensor, and some looks.
    """

    def __init__(self, probe: ModuleProbe, wrapper: nn.Module) -> None:
        self._probe, self._wrapper = probe, wrapper
        self._bulletin: Bulletin | None = None
        self._first = -1  # the step whose arguments all use
        self._given: Given | None = None
        self._sites: Sequence[tuple[str, str, str]] = ()
        self._attributes: Sequence[str] = ()
        self._looked = -1

    def is_due(self, step: int) -> bool:
        """Whether it has something to do at a step that is not checked otherwise."""
        return self._first >= 0 and step == self._first + LATER

    def begin(self, step: int, call: Call) -> str:
        """Leave a call's arguments, or get the first rank's. Returns: why there is no experiment, "" if there is or can be one."""
        if self._bulletin is None:
            if not spread():
                return "there is one rank"
            ddp = find_ddp(self._probe.root, self._wrapper)
            ranks = members(among() if ddp is None else ddp.process_group)
            self._bulletin, self._first = Bulletin(watch_name(self._probe.root, "across "), ranks), step
            if rank() == self._bulletin.ranks[0]:
                packed = _packed(call)
                self._bulletin.put(step, "arguments", packed)
                if not packed:
                    return f"the arguments are more than tensors and plain values, or more than {MOST_BYTES >> 20} MiB"
        if self._given is None:
            left = self._bulletin.only(self._first, self._bulletin.ranks[0])
            self._given = _unpacked(left, self._probe.root) if left else None
        return ""

    def can_ask(self, step: int) -> bool:
        """Whether all ranks have the arguments by then, as far as can be known."""
        return self._given is not None and step >= self._first + LATER

    def ask(self, subject: AskedCalls) -> RankSums:
        """Do the call. Of what the subject's first call ran with, arguments and generators are others."""
        assert self._given is not None
        own = subject.calls[0]
        call = replace(
            own, module=own.module, args=self._given[0], kwargs=self._given[1], given=[], copies={}, versions=[], random=_seeded(),
            outputs=[], graph=[], gradients=[], rewritten=None, replayed=None,
        )  # fmt: skip
        journal = Journal()
        journal.ledger.want(Groups.ALL)
        journal.call = call.index
        once = _OnceAlike(call, self._probe, journal)
        status = do_again(once, subject.buffers, True).status
        if status not in (FINITE, FORWARD_FINITE):
            return RankSums(undone=status)
        journal.read()
        seen = seen_in(journal, [call])
        sites = [(s.phase.value, s.module, s.slot) for s in seen]
        return RankSums(once.weights, sites, [crc32(s.bits[0]) for s in seen], once.attributes)

    def leave(self, step: int, sums: RankSums) -> None:
        """Leave a rank's own sums for the first rank."""
        assert self._bulletin is not None
        self._sites, self._attributes = sums.sites, [*sums.attributes]
        device = next((str(p.device) for p in self._probe.root.parameters()), "cpu")
        name = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
        told = {"host": socket.gethostname(), "device": device, "name": name, "sites": short_digest(str(sums.sites))}
        about = json.dumps({**told, "attributes": [*sums.attributes.values()]}).encode()
        packed = array.array("I", sums.sums).tobytes()
        self._bulletin.put(step, f"{sums.weights:016x}{short_digest(packed.hex())}", about + b"\n" + packed)

    def look(self, step: int) -> list[Alert]:
        """Alerts about the sums that ranks have left by a step; each step is asked once."""
        found: list[Alert] = []
        if step == self._looked:
            return found
        self._looked = step
        for at, num_kinds in () if self._bulletin is None else self._bulletin.look():
            if self._bulletin is not None and num_kinds > 1:
                found += self._compared(at, self._bulletin.notes(at), self._bulletin.details(at))
        return found

    def _compared(self, step: int, notes: dict[int, str], details: dict[int, bytes]) -> list[Alert]:
        by_weights: dict[str, list[int]] = {}
        for one in sorted(notes.keys() & details.keys()):
            by_weights.setdefault(notes[one][:16], []).append(one)
        alike = max(by_weights.values(), key=len, default=[])
        about = {one: json.loads(details[one].partition(b"\n")[0]) for one in alike}
        if len(alike) < 2 or len({one["sites"] for one in about.values()}) > 1:
            return []  # other weights, which is another alert's matter, or modules that only some have run
        sums = {one: array.array("I", details[one].partition(b"\n")[2]) for one in alike}
        kinds = Counter(notes[one] for one in alike)
        most, num = kinds.most_common(1)[0]
        by_device = {(notes[one], about[one]["name"]) for one in alike}
        if len(kinds) < 2 or (len({name for _, name in by_device}) == len(by_device) > 1):
            return []  # each kind of device has bits of its own
        others = [one for one in alike if notes[one] != most]
        right = next(one for one in alike if notes[one] == most)
        at = next(i for i, (a, b) in enumerate(zip(sums[right], sums[others[0]], strict=True)) if a != b)
        phase, module, slot = self._sites[at]
        where = [f"{about[one]['device']} of {about[one]['host']} (rank {one})" for one in (others if num > len(others) else alike)]
        odd = f"rank {others[0]} has" if len(others) == 1 else f"ranks {few([*map(str, others)], _MOST_NAMED)} have"
        who = f"{odd} other bits" if num > len(others) else f"ranks {few([*map(str, alike)], _MOST_NAMED)} have different bits"
        text = f"of {len(alike)} ranks that did the same call with the same weights, {who} from here on ({phase})"
        unlike = self._unlike(about[right]["attributes"], [about[one]["attributes"] for one in others])
        text += f"; their modules differ in {few(unlike, _MOST_NAMED)}." if unlike else "."
        cause = "Look for what is theirs alone: a branch by rank, autocast, flags of backends, numbers of threads, versions of libraries. "
        cause = "If ranks are meant to differ in that, this is why. " if unlike else cause
        advice = (
            f"{cause}Else test {few(where, _MOST_NAMED)} (a GPU: dcgmi diag -r 3; memory: memtest). If they differ on purpose: "
            f"{how_to_set(RANKS_DIFFER, False)}."
        )
        evidence = {
            "attributes": unlike,
            "ranks": others,
            "hosts": [about[one]["host"] for one in others],
            "devices": [about[one]["device"] for one in others],
        }
        return [Alert(step, RANKS_DIFFER, module, tensor_of(Phase(phase), slot), None, None, text, advice, evidence, asks=True)]

    def _unlike(self, right: Sequence[int], others: Sequence[Sequence[int]]) -> list[str]:
        """Names of attributes that differ between ranks."""
        if any(len(one) != len(self._attributes) for one in (right, *others)):
            return []
        return [name for name, value, *more in zip(self._attributes, right, *others, strict=True) if any(one != value for one in more)]


class _OnceAlike(Once):
    """A call whose outputs all receive gradients that depend on their shapes alone."""

    def __init__(self, call: Call, probe: ModuleProbe, journal: Journal) -> None:
        super().__init__(call, probe, journal, {})
        self.weights, self.attributes = 0, _attributes(probe.names)

    def forward(self) -> Culprit | None:
        with_sums = []
        for _, _, tensor in named_state(self.names):
            try:
                with_sums.append(checksum(tensor))
            except Unsummarizable:
                continue
        self.weights = merged([(2 * at + 1) * one for at, one in enumerate(with_sums)])
        culprit = super().forward()
        received = {}
        for (_, slot), t in self.outputs:
            if t.requires_grad and t.is_floating_point():
                received[FORWARD, slot] = torch.linspace(-1, 1, t.numel(), dtype=torch.float32, device=t.device).to(t.dtype).view(t.shape)
        self.call.gradients = [received] if received else []
        return culprit


def _attributes(names: Mapping[nn.Module, str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for module, name in names.items():
        for key, value in vars(module).items():
            if isinstance(value, bool | int | float | str | torch.Generator) and not key.startswith("_") and len(found) < _MOST_ATTRIBUTES:
                bits = value.get_state().numpy().tobytes() if isinstance(value, torch.Generator) else repr(value).encode()
                found[f"{name}.{key}" if name else key] = crc32(bits)
    return found


def _packed(call: Call) -> bytes:
    """A call's arguments, for ``_unpacked``; empty if they can't be had so."""
    if sum(t.numel() * t.element_size() for _, t in call.known) > MOST_BYTES:
        return b""
    given = tuple(call.args), dict(call.kwargs)
    on_device = [not t.is_cpu for t in tree_leaves(given) if isinstance(t, Tensor)]
    # Copies: of a view, torch.save would write all of its memory.
    plain = tree_map(lambda v: v.detach().cpu().clone() if isinstance(v, Tensor) else v, given)
    buffer = io.BytesIO()
    try:
        torch.save((plain, on_device), buffer)
        _unpacked(buffer.getvalue(), call.module)
    except ours():
        return b""
    return buffer.getvalue()


def _unpacked(data: bytes, model: nn.Module) -> Given:
    """The arguments, on this rank's device where they were on one."""
    found, on_device = torch.load(io.BytesIO(data), weights_only=True)
    device, moves = next((p.device for p in model.parameters()), torch.device("cpu")), iter(on_device)
    given: Given = tree_map(lambda v: (v.to(device) if next(moves) else v) if isinstance(v, Tensor) else v, found)
    return given


def _seeded() -> RandomState:
    """Generators as all ranks have them."""
    now = RandomState.capture()
    numpy = None if now.numpy is None else sys.modules["numpy"].random.RandomState(0).get_state(legacy=False)
    devices = {at: torch.Generator(f"cuda:{at}").manual_seed(0).get_state() for at in now.devices}
    return RandomState(torch.Generator().manual_seed(0).get_state(), random.Random(0).getstate(), numpy, devices)
