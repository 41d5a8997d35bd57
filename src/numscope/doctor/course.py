"""The course of an examination, as the hub's process conducts it: who came, then phase after phase, then the verdict.

A phase that failed on a rank skips, for that rank, the phases that depend on it; the other ranks go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from numscope.doctor.budget import VERDICT_S, Deadline, share
from numscope.doctor.meet.hub import Hub
from numscope.doctor.meet.member import Member
from numscope.doctor.records import DEPENDS, PHASES, Examined, PhaseResult, Settings, Verdict, to_json

GRACE_S = 1.0  # after a phase's budget, for the ranks' own word that they were not done
INTERNAL = 70
_BYES_S = 2.0
_ALL_ABOUT_ALL = 1024  # ranks


def chosen(settings: Settings) -> tuple[int, ...]:
    """The phases to run: those asked for, and those that they depend on."""
    wanted = {0, 1, *settings.phases} - ({7} if settings.quick else set())
    while True:
        more = wanted.union(*(DEPENDS.get(phase, ()) for phase in wanted))
        if more == wanted:
            return tuple(sorted(wanted))
        wanted = more


def shares(roster: Mapping[int, Mapping[str, Any]]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Which ranks are told about which: all about all; in a large job, the first rank of each node about the first ranks of all nodes,
    and everybody about its own node and the very first rank, which is all that phases ask for.

    *Cost:* a roster of 32,768 ranks is 400 kB packed, which all of them would be told: 13 GB.
    """
    if len(roster) <= _ALL_ABOUT_ALL:
        yield tuple(roster), tuple(roster)
        return
    nodes: dict[int, list[int]] = {}
    for rank in sorted(roster):
        nodes.setdefault(int(roster[rank]["identity"]["node"]), []).append(rank)
    firsts = {ranks[0] for ranks in nodes.values()}
    for ranks in nodes.values():
        yield (ranks[0],), tuple(sorted({*ranks, *firsts}))
        if ranks[1:]:
            yield tuple(ranks[1:]), tuple(sorted({*ranks, min(firsts)}))


class Course:
    """Conducts in a thread of its own, from ``start`` to the verdict's delivery.

    Args:
        judge: from all that was seen to the verdict.
        for_ranks: from the verdict to the one that ranks are told.

    Attributes:
        departed: the launcher's word of ranks that ended before they came, with what it saw.
    """

    def __init__(
        self,
        hub: Hub,
        settings: Settings,
        deadline: Deadline,
        judge: Callable[[Examined], Verdict],
        for_ranks: Callable[[Verdict, Examined], Verdict],
    ) -> None:
        self._hub = hub
        self._settings = settings
        self._deadline = deadline
        self._judge = judge
        self._for_ranks = for_ranks
        self._results: list[PhaseResult] = []
        self._told: tuple[int, ...] = ()  # the ranks in the roster that was sent last
        self.departed: dict[int, str] = {}
        self.examined: Examined | None = None
        self.verdict: Verdict | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._conduct, name="doctor-course", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def wait(self, seconds: float) -> bool:
        """Whether it has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def release(self) -> None:
        """Lets the ranks end, and closes the hub."""
        self._hub.send({"kind": "end"}, onlookers=True)
        self._hub.close()

    def _conduct(self) -> None:
        try:
            for phase in chosen(self._settings):
                if phase == 0:
                    continue  # the ranks do it while they come
                if self._hub.hurry:
                    self._skip(phase, f"the examination was ended early by {self._hub.hurry}")
                elif phase == 1:
                    self._meet()
                    self._collect(0, tuple(self._hub.members), Deadline(self._time_for(0) + GRACE_S), 0.0)
                else:
                    self._run(phase)
            self.examined = self._examined()
            verdict = self._judge(self.examined)
            self.verdict = replace(verdict, seconds=round(time.monotonic() - self._hub.started, 3))
            self._hub.send({"kind": "verdict", "verdict": to_json(self._for_ranks(self.verdict, self.examined))}, onlookers=True)
            self._hub.hurry = ""
            self._hub.wait(self._all_said_bye, Deadline(_BYES_S))
        except BaseException as error:  # the hub's process says it and ends with 70
            self.error = error
            self._hub.send({"kind": "verdict", "verdict": to_json(Verdict(INTERNAL))}, onlookers=True)

    def _meet(self) -> None:
        hub, deadline = self._hub, Deadline(min(share(self._settings, 1), self._left()))

        def all_here() -> bool:
            gone = set(self.departed) - set(hub.members)
            return len(hub.members) + len(hub.onlookers) + hub.num_turned_away + len(gone) >= hub.world_size

        hub.wait(all_here, deadline)
        waited = time.monotonic() - hub.started
        for rank in range(hub.world_size):
            if rank not in hub.members:
                why = self.departed.get(rank) or f"it did not come within {waited:.1f} s"
                self._results.append(PhaseResult(1, rank, "silent", seconds=round(waited, 3), error=why, data={"how": "missing"}))
        self._collect(1, tuple(hub.members), Deadline(min(2.0, self._left())), 0.0)

    def _run(self, phase: int) -> None:
        hub = self._hub
        held_up = {rank: self._obstacle(phase, rank) for rank in hub.members}
        alive = tuple(sorted(rank for rank, obstacle in held_up.items() if not obstacle and hub.members[rank].here))
        for rank, obstacle in held_up.items():
            if rank not in alive:
                why = obstacle or hub.members[rank].detail
                self._results.append(PhaseResult(phase, rank, "skipped", error=why))
        if not alive:
            return
        self._tell_roster()
        budget, started = self._time_for(phase), time.monotonic() - hub.started
        hub.send({"kind": "phase", "phase": phase, "alive": alive, "budget_s": round(budget, 3)}, alive)
        self._collect(phase, alive, Deadline(min(budget + GRACE_S, self._left())), started)

    def _tell_roster(self) -> None:
        """Tells the ranks who is there, when that has changed since they were told."""
        hub = self._hub
        here = tuple(rank for rank, member in sorted(hub.members.items()) if member.here)
        if here == self._told:
            return
        self._told = here
        roster = hub.roster()
        for ranks, known in shares({rank: roster[rank] for rank in here}):
            hub.send({"kind": "roster", "roster": {str(rank): roster[rank] for rank in known}}, ranks)

    def _collect(self, phase: int, ranks: tuple[int, ...], deadline: Deadline, started: float) -> None:
        """The ranks' results, or why there are none."""
        hub = self._hub
        hub.wait(lambda: all((phase, rank) in hub.results or not hub.members[rank].here for rank in ranks), deadline)
        with hub.changed:
            for rank in ranks:
                member, result = hub.members[rank], hub.results.get((phase, rank))
                if result is None:
                    result = _without_word(phase, rank, member, time.monotonic() - hub.started - started, hub.hurry)
                self._results.append(replace(result, started=round(started, 3)))

    def _obstacle(self, phase: int, rank: int) -> str:
        """Why a rank can't do a phase; "" if it can."""
        for needed in DEPENDS[phase]:
            result = next((result for result in self._results if (result.phase, result.rank) == (needed, rank)), None)
            if needed and result is not None and result.status != "ok":
                return f"phase {needed} ({PHASES[needed]}) was {result.status}: {result.error}"
        return ""

    def _skip(self, phase: int, why: str) -> None:
        self._results += [PhaseResult(phase, rank, "skipped", error=why) for rank in range(self._hub.world_size)]

    def _examined(self) -> Examined:
        hub = self._hub
        with hub.changed:
            told = {(result.phase, result.rank) for result in self._results}
            for rank, member in hub.members.items():  # those lost when no phase waited for them
                if member.how in ("silent", "died") and not any(
                    result.status == "silent" for result in self._results if result.rank == rank
                ):
                    phase = member.phase if (member.phase, rank) not in told else max((p for p, r in told if r == rank), default=1)
                    self._results = [result for result in self._results if (result.phase, result.rank) != (phase, rank)]
                    self._results.append(_without_word(phase, rank, member, 0.0, ""))
            about = {
                "reached": True,
                "interrupted": hub.hurry,
                "num_refused": hub.num_refused,
                "left": sorted(rank for rank, member in hub.members.items() if member.how == "left"),
                "seconds": round(time.monotonic() - hub.started, 3),
            }
            refused = list(hub.refused)
        results = sorted(self._results, key=lambda result: (result.phase, result.rank))
        return Examined(self._settings, hub.world_size, hub.roster(), results, refused, about)

    def _all_said_bye(self) -> bool:
        everybody = (*self._hub.members.values(), *self._hub.onlookers)
        return all(member.said_bye or not member.here for member in everybody)

    def _time_for(self, phase: int) -> float:
        return min(share(self._settings, phase), self._left())

    def _left(self) -> float:
        """Seconds until the verdict must be made."""
        return max(0.0, self._deadline.left - min(VERDICT_S, self._deadline.seconds / 4))


def _without_word(phase: int, rank: int, member: Member, seconds: float, hurry: str) -> PhaseResult:
    """The result of a rank that sent none."""
    doing = member.last_words()
    if not member.here:
        status, error = "silent", member.detail
    elif hurry:
        status, error = "skipped", f"the examination was ended early by {hurry}"
    else:
        status, error = "timeout", "its heart beats, but it is not done" + (f": {doing}" if doing else "")
    data = {"how": member.how}
    if status == "silent" and member.how == "left":
        status = "skipped"
    return PhaseResult(phase, rank, status, seconds=round(seconds, 3), doing=doing, error=error, data=data)  # type: ignore[arg-type]
