"""The phases that a rank runs, one file each, except those in ``child/``; the input of a phase, and its failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numscope.doctor.budget import Deadline
from numscope.doctor.records import Identity, Settings


class PhaseFailed(Exception):
    """A phase found that something does not work: a sentence, and what was measured until then."""

    def __init__(self, sentence: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.data: Mapping[str, Any] = data or {}


@dataclass(frozen=True, slots=True)
class Context:
    """A phase's surroundings."""

    identity: Identity  # this rank's
    settings: Settings  # ``settings.token`` is always the job's token
    # by rank, of those that this rank asks: ``identity`` (JSON values), ``address`` (at which others reach it), ``listen`` (``address`` and
    # ``port`` of its listener for phase 3, ``store_port`` for torch's store). Empty in phase 0.
    roster: Mapping[int, Mapping[str, Any]]
    deadline: Deadline  # for this phase, which is given up then
    # announces the step that this rank is about to take, so that silence has a name: ``announce("connect to node3:4711")``
    announce: Callable[[str], None]
    alive: tuple[int, ...] = ()  # the ranks that take part in this phase, in torch's phases those of this one's group, ascending
    meetings: Sequence[tuple[int, int]] = ()  # for phase 3, as ``rounds.meetings`` returns them
    # objects that outlive a phase (phase 3's listener, the child of phases 4 to 7); everything with ``close()`` is closed at the end
    kept: dict[str, Any] = field(default_factory=dict)
