"""What a phase is handed, and how it says that it failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numscope.doctor.budget import Deadline
from numscope.doctor.records import Identity, Settings


class PhaseFailed(Exception):
    """A phase found that something does not work.

    Args:
        sentence: what does not work, with its subject.
        data: what was measured until then, as the phase's module says.
    """

    def __init__(self, sentence: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.data: Mapping[str, Any] = data or {}


@dataclass(frozen=True, slots=True)
class Context:
    """All that a phase knows of its surroundings.

    Args:
        identity: who this rank is.
        settings: what was asked for; ``settings.token`` is the job's, whoever gave it.
        roster: of each rank that came: ``identity`` (JSON values), ``address`` (as others reach it), ``seen`` (as the hub saw it),
            ``listen`` (``address`` and ``port`` of its listener for phase 3), ``offset_s`` (its clock before the hub's), ``round_trip_s``.
            Empty in phase 0.
        deadline: of this phase; the phase is given up when it is over.
        say: announces what this rank is about to do, so that silence has a name: ``say("connect to node3:4711")``.
        alive: the ranks that take part in this phase, this one among them, ascending.
        kept: what outlives a phase (phase 3's listener, the child of phases 4 to 7); whatever has ``close()`` is closed at the end.
    """

    identity: Identity
    settings: Settings
    roster: Mapping[int, Mapping[str, Any]]
    deadline: Deadline
    say: Callable[[str], None]
    alive: tuple[int, ...] = ()
    kept: dict[str, Any] = field(default_factory=dict)
