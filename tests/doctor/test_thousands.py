"""Many hosts, simulated: the plan, the diagnosis and the end hold for them."""

from __future__ import annotations

import io
import time

import pytest

from numscope.doctor.diagnose import diagnose
from numscope.doctor.records import DoctorFinding, Examined, ExamPhase, Settings, Verdict
from numscope.doctor.rendering import print_verdict
from tests.doctor.examples import examination
from tests.doctor.simulated import Planted, examine, started

BRISK = Settings(timeout_scale=0.2)  # silence after 1 s, 9 s to come
DROPPED = {"status": "dropped", "error": "no answer within 3.5 s", "known": "dropped"}


def found(verdict: Verdict) -> dict[str, DoctorFinding]:
    assert len({each.id for each in verdict.findings}) == len(verdict.findings), verdict.findings
    return {each.id: each for each in verdict.findings}


def test_planted_faults_of_a_network_are_each_named() -> None:
    planted = Planted(
        dies={13: ExamPhase.LINKS},
        cut=((31, 32),),
        rack=frozenset(range(64, 80)),
        slow_links=frozenset({50}),
        old_torch=frozenset({91}),
    )
    told = examine(120, planted=planted, settings=BRISK)
    about = found(told.verdict)
    assert told.verdict.exit_code == 1
    assert set(about) == {"rank-died", "network-split", "link-broken", "link-slow", "version-mismatch"}
    assert (about["rank-died"].ranks, about["version-mismatch"].ranks) == ((13,), (91,))
    assert (about["link-broken"].hosts, about["link-broken"].confidence) == (("node0031", "node0032"), "certain")
    assert "{node0064, node0065, node0066, node0067, node0068 and 11 more}" in about["network-split"].summary
    assert about["link-slow"].hosts == ("node0050",)
    assert "phase 3 (links) examined" in told.report and "stays unseen" in told.report


def test_hosts_that_never_come_vanish_or_send_wrong_bits_are_named_and_all_others_end() -> None:
    absent = frozenset(range(100, 150))
    vanished = dict.fromkeys(range(20, 30), ExamPhase.PAIRS)
    planted = Planted(absent=absent, vanishes=vanished, corrupts=frozenset({7}), slow=frozenset({77}))
    began = time.monotonic()
    told = examine(160, planted=planted, settings=BRISK)
    assert time.monotonic() - began < BRISK.deadline_s * BRISK.timeout_scale + 30.0
    assert told.traffic.ended == 110
    silent = [each for each in told.verdict.findings if each.id == "rank-silent"]
    assert len(silent) == 8  # the last one stands for three
    assert {rank for each in silent for rank in each.ranks} == set(vanished)
    assert silent[-1].summary.startswith("3 more findings like these, about node0027, node0028 and node0029")
    about = {each.id: each for each in told.verdict.findings}
    assert set(about["rank-missing"].ranks) == absent
    assert about["payload-corrupted"].ranks == (7,)
    assert about["rank-slow"].ranks == (77,)
    assert set(told.verdict.ok) == set(range(160)) - absent - set(vanished) - {7}


def test_ranks_that_are_too_many_for_one_group_are_examined_in_groups() -> None:
    told = examine(75, 8, Planted(old_torch=frozenset({3})), Settings())
    assert [each.id for each in told.verdict.findings] == ["version-mismatch"]
    assert told.verdict.findings[0].ranks == tuple(range(24, 32))
    assert "Phases 4 to 6 ran in 2 groups of ranks" in told.report
    assert told.traffic.received < 600 * 5_000  # bytes


def test_all_hosts_end_when_the_hubs_process_dies() -> None:
    with started(60, 1, Planted(vanishes={1: ExamPhase.LINKS}), Settings(), 1) as (hub, _, ((_, pipe),)):
        time.sleep(2.0)
        hub.kill()
        assert pipe.poll(30.0)
        assert pipe.recv().ended == 60


def with_links(num_nodes: int, bad: dict[tuple[int, int], dict[str, str]]) -> Examined:
    return examination(num_nodes, phases=(0, 1, 2, 3), links=bad, heard=lambda one, other: (one, other) not in bad)


def test_broken_links_between_two_racks_are_one_finding() -> None:
    racks = range(96, 128), range(224, 256)
    bad = {(one, other): DROPPED for a, b in (racks, racks[::-1]) for one in a for other in b}
    (each,) = diagnose(with_links(300, bad)).findings
    assert (each.id, each.confidence) == ("links-failing", "likely")
    assert each.summary.startswith("All 44 examined links between {node96, node97, node98, node99, node100 and 27 more} and {node224,")


@pytest.mark.parametrize("num_dead", [3, 40])
def test_many_dead_nodes_are_a_short_report(num_dead: int) -> None:
    dead = set(range(5, 5 + 7 * num_dead, 7))
    bad = {(one, other): DROPPED for one in range(300) for other in range(300) if {one, other} & dead}
    examined = with_links(300, bad)
    verdict = diagnose(examined)
    assert {rank for each in verdict.findings for rank in each.ranks} == dead
    assert {each.id for each in verdict.findings} == {"node-unreachable"}
    text = io.StringIO()
    print_verdict(verdict, examined, text)
    assert len(text.getvalue().splitlines()) < 200
    rows = [line for line in text.getvalue().splitlines() if "FAILED" in line]
    assert len(rows) == min(num_dead, 32)


def test_links_that_were_skipped_are_said() -> None:
    examined = with_links(
        4, {(1, 2): {"status": "skipped", "error": "no time was left for it"}, (2, 1): {"status": "skipped", "error": "x"}}
    )
    text = io.StringIO()
    print_verdict(diagnose(examined), examined, text, 300)
    assert "phase 3 (links) examined 5 of 6 pairs of nodes, each of the 4 with 2 to 3 others; skipped: 1 and 2 (x)." in text.getvalue()
