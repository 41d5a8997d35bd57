"""The examination as the hub's process conducts it: who joined, then phase after phase, then the verdict.

A phase that failed on a rank skips, for that rank, the phases that need it; the other ranks go on.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import groupby
from typing import Any

from numscope.doctor.budget import VERDICT_S, Deadline, chosen, share
from numscope.doctor.meet.hub import Hub
from numscope.doctor.meet.meeting_point import MeetingPoint
from numscope.doctor.meet.members import Member, NodeNumbers
from numscope.doctor.output import INCOMPLETE, Output, for_ranks, judge, show, write_lines
from numscope.doctor.phases.rounds import ALL_NODES, group_of, meetings
from numscope.doctor.records import Examined, ExamPhase, PhaseResult, Settings, Status, Verdict
from numscope.records.words import spans

INTERNAL = 70
_GRACE_S = 1.0  # after a phase's time limit, for the ranks' own reports that they were not done
_BYES_S = 2.0
_JUDGED_PER_S = 2000  # ranks


class Course:
    """Hosts the hub, and conducts the examination in its thread until the verdict is delivered. Raises: HubTaken."""

    def __init__(
        self,
        meeting: MeetingPoint,
        settings: Settings,
        world_size: int,
        deadline: Deadline,
        output: Output,
        numbers: NodeNumbers | None = None,
    ) -> None:
        self.hub = Hub(meeting, settings, world_size, numbers)
        self.departed: dict[int, str] = {}  # set by the launcher: how ranks ended that never joined
        self._settings, self._deadline, self._output = settings, deadline, output
        self._roster: dict[int, dict[str, Any]] = {}  # who joined in time
        self._known: dict[int, set[int]] = {}  # by rank, those that it was told of
        self._verdict_s = min(VERDICT_S + world_size / _JUDGED_PER_S, deadline.seconds / 4)
        self._reached: tuple[Verdict, Examined] | None = None
        self._error: BaseException | None = None
        self._conducted = asyncio.run_coroutine_threadsafe(self._conduct(), self.hub.loop)

    @property
    def running(self) -> bool:
        return not self._conducted.done()

    def wait(self, seconds: float) -> None:
        """Waits until it has ended, for some seconds."""
        concurrent.futures.wait([self._conducted], seconds)

    def report(self) -> int:
        """Prints the report; returns the exit code."""
        if self._error is not None:
            write_lines("".join(traceback.format_exception(self._error)).splitlines(), 2)
            return INTERNAL
        if self._reached is None:
            write_lines(["numscope: the examination did not end in time"], 2)
            return INCOMPLETE
        return show(*self._reached, self._output)

    async def _conduct(self) -> None:
        try:
            for phase in chosen(self._settings):
                if phase is ExamPhase.FACTS:
                    continue  # the ranks gather facts while they join
                if self.hub.hurry:
                    for rank in range(self.hub.world_size):
                        self._add(PhaseResult(phase, rank, "skipped", error=f"the examination was ended early by {self.hub.hurry}"))
                elif phase is ExamPhase.RENDEZVOUS:
                    await self._meet()
                    await self._collect(ExamPhase.FACTS, tuple(self.hub.members), Deadline(self._time_for(ExamPhase.FACTS) + _GRACE_S), 0.0)
                else:
                    await self._run(phase)
            examined = self._examined()
            self.hub.send({"kind": "judged", "for_s": self._verdict_s}, self.hub.everybody())
            verdict = await asyncio.to_thread(judge, examined, self._output.baseline)
            verdict = replace(verdict, seconds=round(time.monotonic() - self.hub.started, 3))
            self._reached = verdict, examined
            self._deliver(for_ranks(verdict, examined))
            self.hub.hurry = ""
            await self.hub.wait(_all(self.hub.everybody(), lambda member: member.said_bye or not member.here), Deadline(_BYES_S))
        except Exception as error:  # the hub's process prints it and exits with 70
            self._error = error
            self._deliver(Verdict(INTERNAL))

    async def _meet(self) -> None:
        hub, deadline = self.hub, Deadline(min(share(self._settings, ExamPhase.RENDEZVOUS), self._left()))

        def all_here() -> bool:
            gone = sum(rank not in hub.members for rank in tuple(self.departed))
            return len(hub.members) + len(hub.onlookers) + hub.num_turned_away + gone >= hub.world_size

        await hub.wait(all_here, deadline)
        waited = round(time.monotonic() - hub.started, 3)
        for rank in range(hub.world_size):
            if rank not in hub.members:
                why = self.departed.get(rank) or f"it did not join within {waited:.1f} s"
                self._add(PhaseResult(ExamPhase.RENDEZVOUS, rank, "silent", seconds=waited, error=why, data={"how": "missing"}))
        self._roster = hub.roster()
        await self._collect(ExamPhase.RENDEZVOUS, tuple(self._roster), Deadline(min(2.0, self._left())), 0.0)

    async def _run(self, phase: ExamPhase) -> None:
        hub = self.hub
        obstacles = {rank: self._obstacle(phase, rank) or hub.members[rank].detail for rank in tuple(hub.members)}
        alive = tuple(sorted(rank for rank, obstacle in obstacles.items() if not obstacle and hub.members[rank].here))
        for rank in obstacles.keys() - set(alive):
            self._add(PhaseResult(phase, rank, "skipped", error=obstacles[rank]))
        if not alive:
            return
        budget, started = self._time_for(phase), time.monotonic() - hub.started
        await self._announce(phase, alive, budget)
        await self._collect(phase, alive, Deadline(min(budget + _GRACE_S, self._left())), started)

    async def _announce(self, phase: ExamPhase, alive: tuple[int, ...], budget: float) -> None:
        """Has the ranks begin a phase; tells each of the ranks that it asks, if it does not know them."""
        begin = {"kind": "phase", "phase": phase, "budget_s": round(budget, 3)}
        node_of = {rank: int(self._roster[rank]["identity"]["node"]) for rank in alive}
        plan = meetings(node_of, ALL_NODES[self._settings.quick]) if phase is ExamPhase.LINKS else {}
        for _, group in groupby(alive, lambda rank: phase.together and group_of(rank, self.hub.world_size)):
            ranks = tuple(group)
            begin["alive"] = spans(ranks)
            for rank in ranks:
                known, met = self._known.setdefault(rank, set()), plan.get(rank, [])
                new = {rank, ranks[0], *(other for _, other in met)} - known
                known |= new
                roster = {str(other): self._roster[other] for other in sorted(new)}
                self.hub.send({**begin, "roster": roster, "meetings": met}, [self.hub.members[rank]])
                await asyncio.sleep(0)  # heartbeats are answered in between

    def _deliver(self, verdict: Verdict) -> None:
        """Sends the verdict, and to each rank whether it is healthy instead of a list of those that are."""
        well = set(verdict.ok)
        for ok in (True, False):
            members = [member for member in self.hub.everybody() if (member.admitted and member.identity.rank in well) == ok]
            self.hub.send({"kind": "verdict", "verdict": replace(verdict, ok=()), "ok": ok}, members)

    async def _collect(self, phase: ExamPhase, ranks: tuple[int, ...], deadline: Deadline, started: float) -> None:
        """Collects the ranks' results, or the reasons why there are none."""
        hub = self.hub
        await hub.wait(_all(ranks, lambda rank: (phase, rank) in hub.results or not hub.members[rank].here), deadline)
        for rank in ranks:
            seconds = time.monotonic() - hub.started - started
            result = hub.results.get((phase, rank)) or _without_word(phase, rank, hub.members[rank], seconds, hub.hurry)
            self._add(replace(result, started=round(started, 3)))

    def _add(self, result: PhaseResult) -> None:
        self.hub.results[result.phase, result.rank] = result

    def _obstacle(self, phase: ExamPhase, rank: int) -> str:
        """Returns the reason why a rank can't run a phase; "" if it can."""
        for needed in phase.needs:
            result = self.hub.results.get((needed, rank))
            if result is not None and result.status != "ok":
                return f"{needed.title} was {result.status}: {result.error}"
        return ""

    def _examined(self) -> Examined:
        hub = self.hub
        for rank, member in hub.members.items():  # those lost while no phase waited for them
            own = [result for phase in ExamPhase if (result := self.hub.results.get((phase, rank))) is not None]
            if member.how in ("silent", "died") and not any(result.status == "silent" for result in own):
                done = {result.phase for result in own}
                phase = member.phase if member.phase not in done else max(done)
                self._add(_without_word(phase, rank, member, 0.0, ""))
        about = {"reached": True, "interrupted": hub.hurry, "seconds": round(time.monotonic() - hub.started, 3)}
        results = [hub.results[key] for key in sorted(hub.results)]
        return Examined(self._settings, hub.world_size, hub.roster(), results, list(hub.refused), about)

    def _time_for(self, phase: ExamPhase) -> float:
        return min(share(self._settings, phase), self._left())

    def _left(self) -> float:
        """Seconds until the verdict must be made."""
        return max(0.0, self._deadline.left - self._verdict_s)


def _all(items: Iterable[Any], done: Callable[[Any], bool]) -> Callable[[], bool]:
    """Asks whether all are done, each again only until it is, so that a change costs the same however many there are."""
    left = list(items)

    def all_done() -> bool:
        while left and done(left[-1]):
            left.pop()
        return not left

    return all_done


def _without_word(phase: ExamPhase, rank: int, member: Member, seconds: float, hurry: str) -> PhaseResult:
    """The result of a rank that sent none."""
    doing = member.last_words()
    status: Status
    if not member.here:
        status, error = "skipped" if member.how == "left" else "silent", member.detail
    elif hurry:
        status, error = "skipped", f"the examination was ended early by {hurry}"
    else:
        status, error = "timeout", "the rank is alive, but not done" + (f": {doing}" if doing else "")
    return PhaseResult(phase, rank, status, seconds=round(seconds, 3), doing=doing, error=error, data={"how": member.how})
