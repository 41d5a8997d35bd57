"""Derives from observations what is wrong, whose fault it is, and how certain that is. A pure function: no clock, no file, no network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from numscope.doctor.diagnose.attendance import attendance, exit_code
from numscope.doctor.diagnose.baseline import slower
from numscope.doctor.diagnose.blame import MOST_TEXT, Blame, hosts_of, node_of
from numscope.doctor.diagnose.differing_facts import compared, local_facts
from numscope.doctor.diagnose.network import broken_links
from numscope.doctor.diagnose.speed import slow_links, slow_pairs, stragglers
from numscope.doctor.diagnose.start import backend, children_gone
from numscope.doctor.diagnose.transfers import collectives, pairs
from numscope.doctor.findings import capital, finding, gravity, listed, named
from numscope.doctor.records import Confidence, DoctorFinding, Examined, ExamPhase, PhaseResult, Verdict

# Conditions that keep torch's backends from starting; they become faults if a phase failed and nothing else explains it.
_CULPRITS = tuple(
    "name-resolves-to-loopback wrong-interface name-unresolved environment-differs shm-too-small mtu-differs address-translated".split()
)
_MOST_ALIKE = 8  # findings with the same id
_ALONE = (
    ExamPhase.FACTS,
    ExamPhase.COMPARE,
    ExamPhase.LINKS,
    ExamPhase.COMPUTE,
)  # a rank waits for no other for longer than its own timeouts

__all__ = ["diagnose"]


def diagnose(examined: Examined, baseline: Mapping[str, Any] | None = None) -> Verdict:
    """The verdict on all observations.

    Causes are looked for phase after phase. A rank that fails only because of a known cause is a victim and gets no finding.
    An earlier report as a baseline shows what has become slower.
    """
    seconds = float(examined.hub.get("seconds", 0.0))
    present = attendance(examined)
    if not examined.hub.get("reached", True) or examined.hub.get("lost") or not examined.roster:
        return Verdict(exit_code(examined, present), tuple(present), (), seconds)
    blame = Blame(hosts_of(examined))
    blame.take(present)
    found = _with_links(present, examined, blame)
    for look in (children_gone, pairs):
        found += blame.taken(look(examined, blame))
    local = [*local_facts(examined, blame), *compared(examined, blame)]
    blame.take(local)
    local, found = _promote(local, found, examined, blame)
    if not any(each.severity == "fault" and each.id in _CULPRITS for each in local):
        found += blame.taken(backend(examined, blame))
    found += blame.taken(collectives(examined, blame))
    found += local
    for look in (_stuck, slow_links, slow_pairs, stragglers):
        found += blame.taken(look(examined, blame))
    found += slower(examined, baseline, blame) if baseline else []
    victims, unexplained = _sort_failures(examined, blame, found)
    if unexplained and not any(each.severity == "fault" for each in found):
        found.append(_cause_unknown(unexplained, blame))
    found = sorted(_condensed(sorted(found, key=gravity)), key=gravity)  # stable: by phase within
    code = exit_code(examined, found)
    if code == 5:
        found.append(_incomplete(examined))
    return Verdict(code, _for_launcher(found, examined), _ok(examined, found, victims, blame), seconds)


def _condensed(found: list[DoctorFinding]) -> list[DoctorFinding]:
    """The findings; of many with one id the first ones, and one that stands for the others."""
    groups: dict[tuple[str, str], list[DoctorFinding]] = {}
    for each in found:
        groups.setdefault((each.id, each.severity), []).append(each)
    most = _MOST_ALIKE - 1
    few = (group if len(group) <= _MOST_ALIKE else [*group[:most], _merged(group[most:])] for group in groups.values())
    return [each for group in few for each in group]


def _merged(found: list[DoctorFinding]) -> DoctorFinding:
    ranks, hosts, links = ({one for each in found for one in getattr(each, about)} for about in ("ranks", "hosts", "links"))
    who = f"; {named(ranks)}" if ranks else ""
    return replace(
        found[0],
        summary=f"{len(found)} more findings like these, about {listed(sorted(hosts)) or 'no known host'}{who}.",
        ranks=tuple(sorted(ranks)),
        hosts=tuple(sorted(hosts)),
        links=tuple(sorted(links)),
        evidence=tuple(each.summary for each in found[:_MOST_ALIKE]),
        confidence=found[-1].confidence,
        remedy=(),
    )


def _for_launcher(found: list[DoctorFinding], examined: Examined) -> tuple[DoctorFinding, ...]:
    """Adapts remedies that leave a host out: none for a single host, mpirun's words under mpirun, else SLURM's."""
    identities = [entry.get("identity", {}) for entry in examined.roster.values()]
    launchers = {str(identity.get("launcher", "")) for identity in identities}
    alone = len({identity.get("node", 0) for identity in identities}) == 1 and len(identities) == examined.expected

    def adapted(line: str) -> tuple[str, ...]:
        if not line.startswith("srun --exclude=") or launchers == {"slurm"}:
            return (line,)
        if alone:
            return ()
        host = line.removeprefix("srun --exclude=").removesuffix(" …")
        return (f"mpirun --host …  # without {host}",) if launchers == {"mpi"} else (line,)

    return tuple(replace(each, remedy=tuple(new for line in each.remedy for new in adapted(line))) for each in found)


def _with_links(present: list[DoctorFinding], examined: Examined, blame: Blame) -> list[DoctorFinding]:
    """The findings about ranks, with what others observed of the nodes of lost ones, and those about links.

    A rank whose heartbeat stopped because the link to the hub's host broke is a victim of that link.
    """
    links, about_lost = broken_links(examined, blame)
    nodes, hub = node_of(examined), blame.host(0)
    kept = []
    for each in present:
        ends = {hub, *each.hosts}
        by = next((at for at, link in enumerate(links) if each.id == "rank-silent" and link.links and ends <= set(link.hosts)), None)
        if by is not None:
            line = f"therefore the hub lost {named(each.ranks)}: {listed(each.evidence, 2)}"
            links[by] = replace(links[by], evidence=(*links[by].evidence, line))
            blame.ranks -= set(each.ranks)
            del blame.faults[each]
        elif each.id in ("rank-died", "rank-silent"):
            lines = [line for node in {nodes.get(rank, -1) for rank in each.ranks} for line in about_lost.get(node, ())]
            kept.append(replace(each, evidence=(*each.evidence, *lines)))
        else:
            kept.append(each)
    return kept + blame.taken(links)


def _promote(
    local: list[DoctorFinding], found: list[DoctorFinding], examined: Examined, blame: Blame
) -> tuple[list[DoctorFinding], list[DoctorFinding]]:
    """Turns a condition of a host into a fault where torch's phases failed and no known fault explains it."""
    failed = [r for phase in (ExamPhase.BACKEND, ExamPhase.PAIRS) for r in examined.of(phase).values() if r.status in ("failed", "timeout")]
    sure = [each for each in found if each.severity == "fault" and each.confidence != "possible"]
    if not failed or blame.faults or sure:
        return local, found
    for id in _CULPRITS:
        at = next((at for at, each in enumerate(local) if each.id == id), None)
        if at is not None:
            errors = tuple(dict.fromkeys(f"and {result.phase.title} failed: {result.error[:MOST_TEXT]}" for result in failed))[:3]
            confidence: Confidence = "likely" if id in _CULPRITS[:3] else "possible"
            local[at] = replace(local[at], severity="fault", confidence=confidence, evidence=(*local[at].evidence, *errors))
            blame.take([local[at]])
            # Findings that only described the symptom are now part of its evidence.
            return local, [each for each in found if each.confidence != "possible"] if confidence == "likely" else found
    return local, found


def _stuck(examined: Examined, blame: Blame) -> Iterator[DoctorFinding]:
    """Ranks that are alive but not done with a phase in which they need no other rank."""
    for phase in _ALONE:
        results = examined.of(phase)
        late = {rank: result for rank, result in sorted(results.items()) if result.status == "timeout" and rank not in blame.ranks}
        if len(late) * 2 > len(results):
            continue  # where most are late, no single rank is to blame
        for rank, result in late.items():
            confidence: Confidence = "likely" if len(results) > 1 else "possible"
            words = {"phase": phase.title, "doing": f": {result.doing}" if result.doing else ""}
            yield blame.finding("rank-stuck", ranks=(rank,), evidence=(result.error,), confidence=confidence, **words)


def _sort_failures(examined: Examined, blame: Blame, found: list[DoctorFinding]) -> tuple[set[int], list[PhaseResult]]:
    """Ranks that failed only as victims, and the failures that nothing explains."""
    victims: set[int] = set()
    unexplained = []
    any_fault = any(each.severity == "fault" for each in found)
    for result in examined.results:
        if result.status not in ("failed", "timeout", "silent") or result.rank in blame.ranks:
            continue
        explained = bool(blame.faults) if result.phase.together else any_fault and result.phase is ExamPhase.LINKS
        if explained:
            victims.add(result.rank)
        else:
            unexplained.append(result)
    return victims, unexplained


def _cause_unknown(unexplained: list[PhaseResult], blame: Blame) -> DoctorFinding:
    phases = sorted({result.phase for result in unexplained})
    ranks = sorted({result.rank for result in unexplained})
    lines = [f"rank {result.rank}, {result.phase.label}, {result.status}: {result.error[:MOST_TEXT]}" for result in unexplained]
    return blame.finding("cause-unknown", ranks=ranks, evidence=lines, phases=capital(listed(phase.title for phase in phases)))


def _incomplete(examined: Examined) -> DoctorFinding:
    skipped = {result.phase: result.error for result in examined.results if result.status == "skipped"}
    why = examined.hub.get("interrupted")
    lines = [f"{phase.title} was skipped: {why}" for phase, why in sorted(skipped.items())] or ("no phase has a result",)
    return finding("incomplete", evidence=lines, why=f": the examination was ended by {why}" if why else "")


def _ok(examined: Examined, found: list[DoctorFinding], victims: set[int], blame: Blame) -> tuple[int, ...]:
    """Healthy ranks: those without failures, and those whose failures are caused by others."""
    faults = [each for each in found if each.severity == "fault"]
    sick = {rank for each in faults for rank in each.ranks}
    unsure = any(each.confidence == "possible" for each in faults)
    ends = {host for each in faults for link in each.links for host in link}
    done: dict[int, bool] = {}
    for result in examined.results:
        fine = result.status == "ok" or (bool(blame.faults) and not unsure and (result.rank in victims or result.status == "skipped"))
        done[result.rank] = done.get(result.rank, True) and fine
    return tuple(sorted(rank for rank in examined.roster if done.get(rank) and rank not in sick and blame.hosts.get(rank) not in ends))
