"""NCCL's log lines (NCCL_DEBUG=WARN and INFO), collected into facts per process and device; ``nccl_rules`` interprets them.

    node1:4242:4242 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>
    [2026-06-06 09:52:01] node1:4242:4301 [0] misc/shmutils.cc:87 NCCL WARN Error: …

Prefixes of launchers (``[1,3]<stdout>:``, ``0: ``, ``(Worker pid=7)``) are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from numscope.doctor.explain.log_files import LogLine
from numscope.doctor.explain.patterns import PATTERNS

MAX_WARNINGS = 20_000
MAX_PER_SPEAKER = 200
MAX_SPEAKERS = 1 << 17  # processes and devices, or communicators; further ones are ignored
HEAD_CHARS = 400  # host, process, file and line precede "NCCL"

_NCCL = {name.removeprefix("nccl "): pattern for name, pattern in PATTERNS.items() if name.startswith("nccl ")}


@dataclass(frozen=True, slots=True)
class Warned:
    """A line that may report a fault."""

    line: LogLine
    speaker: Speaker
    text: str  # after NCCL's prefix
    warning: bool


@dataclass(slots=True, eq=False)
class Speaker:
    """One process and device."""

    host: str
    file: str
    ranks: dict[int, int] = field(default_factory=dict)  # by size of communicator; in the largest one that is the rank in the job
    facts: dict[str, str] = field(default_factory=dict)  # by the pattern's group or the variable; ``no_ib``: no InfiniBand device was found
    disabled: set[tuple[str, str]] = field(default_factory=set)  # pairs of GPUs without P2P
    lines: dict[str, LogLine] = field(default_factory=dict)  # where each fact was read

    def keep(self, name: str, value: str, line: LogLine) -> None:
        """Keeps a fact, of which the last one counts."""
        if len(self.facts) < MAX_PER_SPEAKER:
            self.facts[name], self.lines[name] = value, line

    @property
    def rank(self) -> int:
        return self.ranks[max(self.ranks)] if self.ranks else -1


@dataclass(slots=True)
class Communicator:
    """One communicator: which ranks began and completed its initialization."""

    nranks: int
    started: dict[int, LogLine] = field(default_factory=dict)
    complete: dict[int, LogLine] = field(default_factory=dict)
    speakers: set[Speaker] = field(default_factory=set)

    @property
    def waiting(self) -> set[int]:
        """Ranks that began its initialization and did not complete it."""
        return self.started.keys() - self.complete.keys()


@dataclass(slots=True)
class NcclLog:
    """All NCCL log lines, of all files."""

    speakers: dict[tuple[str, str, str], Speaker] = field(default_factory=dict)
    communicators: dict[tuple[str, int], Communicator] = field(default_factory=dict)
    warned: list[Warned] = field(default_factory=list)

    def line(self, line: LogLine) -> bool:
        """Adds a line; returns whether it is NCCL's."""
        text = line.text
        if "NCCL" not in text and "nccl" not in text and " WARN " not in text and " INFO " not in text:
            return False
        at = text.find("NCCL ")
        at = max(
            0, (at if at >= 0 else max(text.find(" WARN "), text.find(" INFO "))) - HEAD_CHARS
        )  # a line may be long, and the pattern is slow
        m = _NCCL["line"].search(text, at, at + 2 * HEAD_CHARS)
        if m is None or (m["host"] is None and "NCCL " not in text):
            return self._bare(line)
        key = (m["host"] or "", m["pid"] or "", m["dev"] if m["host"] else f"{line.file}:{m['dev']}")
        speaker = self.speakers.get(key)
        if speaker is None:
            if len(self.speakers) >= MAX_SPEAKERS:
                return True
            speaker = self.speakers[key] = Speaker(m["host"] or "", line.file)
            if line.rank >= 0:
                speaker.ranks[0] = line.rank
        rest = text[m.end() :]
        if m["level"] != "INFO" or self._fact(line, speaker, rest):
            self._warn(Warned(line, speaker, rest, m["level"] != "INFO"))
        return True

    def _bare(self, line: LogLine) -> bool:
        """Adds a line without NCCL's prefix: a version, which rank 0 prints, or an error that torch passes on."""
        version = _NCCL["version alone"].search(line.text)
        if version is None and _NCCL["failure"].search(line.text) is None:
            return False
        key = ("", version["version"] if version else f"rank {line.rank}" if line.rank >= 0 else "", line.file)
        if key in self.speakers or len(self.speakers) < MAX_SPEAKERS:
            speaker = self.speakers.setdefault(key, Speaker("", line.file))
            if version:
                speaker.keep("version", version["version"], line)
            else:
                speaker.ranks |= {0: line.rank} if line.rank >= 0 else {}
                self._warn(Warned(line, speaker, line.text, False))
        return True

    def _warn(self, warned: Warned) -> None:
        if len(self.warned) < MAX_WARNINGS:
            self.warned.append(warned)

    def _fact(self, line: LogLine, speaker: Speaker, rest: str) -> bool:
        """Keeps the fact in an INFO line; returns whether the line reports a fault."""
        if (m := _NCCL["communicator"].search(rest)) is not None:
            rank, nranks = int(m["rank"]), int(m["nranks"])
            speaker.ranks.setdefault(nranks, rank)
            if (init := _NCCL["init"].search(rest, m.end(), m.end() + HEAD_CHARS)) is not None and len(self.communicators) < MAX_SPEAKERS:
                id = _NCCL["id"].search(rest, m.end(), init.start())
                communicator = self.communicators.setdefault((id["id"] if id else "", nranks), Communicator(nranks))
                (communicator.started if init["what"] == "START" else communicator.complete).setdefault(rank, line)
                communicator.speakers.add(speaker)
        elif (m := _NCCL["fact"].search(rest)) is not None:
            found = {name: value for name, value in m.groupdict().items() if value is not None}
            if "variable" in found:
                found = {found["variable"]: found["value"]}
            for name, value in found.items():
                speaker.keep(name, value, line)
        elif (m := _NCCL["p2p disabled"].search(rest)) is not None:
            if len(speaker.disabled) < MAX_PER_SPEAKER:
                speaker.disabled.add((min(m["a"], m["b"]), max(m["a"], m["b"])))
            speaker.lines.setdefault("disabled", line)
        else:
            return "onnect" in rest and ("returned" in rest or "failed" in rest) and "retry" in rest
        return False

    def ranks(self) -> set[int]:
        """Ranks with log lines, and all ranks of the largest communicator."""
        world = max((communicator.nranks for communicator in self.communicators.values()), default=0)
        return {speaker.rank for speaker in self.speakers.values() if speaker.rank >= 0} | set(range(min(world, 1 << 16)))

    def hosts(self) -> set[str]:
        return {speaker.host for speaker in self.speakers.values() if speaker.host}

    def host_of(self) -> Callable[[str], str]:
        """A function from an address to the host that uses it; to the address itself if that is unknown."""
        hosts = {s.facts["address"].strip("[]"): s.host for s in reversed(self.speakers.values()) if "address" in s.facts and s.host}

        def host(address: str) -> str:
            bare = address.split("<")[0].strip("[]")
            return hosts.get(bare, bare)

        return host
