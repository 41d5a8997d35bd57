"""Who is named for what, and who is left in peace."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numscope.doctor.diagnose import diagnose
from numscope.doctor.diagnose.speed import _steady_loss
from numscope.doctor.findings import CATALOG
from numscope.doctor.records import Cell, DoctorFinding, Examined, ExamPhase, PhaseResult, Settings, Verdict
from tests.doctor.examples import examination, failed, without_rank
from tests.doctor.expected import FAULTS

DROPPED = {"status": "dropped", "error": "no answer within 3.5 s", "known": "dropped"}


def only(verdict: Verdict) -> DoctorFinding:
    """The single finding."""
    assert [each.id for each in verdict.findings] == [verdict.findings[0].id], verdict.findings
    return verdict.findings[0]


def node_down(node: int, num_nodes: int, cell: dict[str, Any] = DROPPED) -> dict[tuple[int, int], dict[str, Any]]:
    return {pair: cell for other in range(num_nodes) if other != node for pair in ((node, other), (other, node))}


def test_healthy_job_has_no_finding_and_all_ranks_are_ok() -> None:
    assert diagnose(examination(4, 2)) == Verdict(0, (), tuple(range(8)), 2.5)


@given(st.integers(3, 8), st.data())
def test_planted_node_link_or_direction_is_named(num_nodes: int, data: st.DataObject) -> None:
    one, other = data.draw(st.lists(st.integers(0, num_nodes - 1), min_size=2, max_size=2, unique=True))
    kind = data.draw(st.sampled_from(["node", "link", "direction", "packets"]))
    silent = {(one, other), (other, one)} if kind == "link" else {(one, other)} if kind == "packets" else set()
    if kind == "node":
        cells = node_down(one, num_nodes)
        silent = set(cells)
    elif kind == "direction":
        cells = {(one, other): DROPPED}
    else:  # TCP needs both directions: whichever is cut, both cells fail
        cells = {(one, other): DROPPED, (other, one): DROPPED}
    verdict = diagnose(examination(num_nodes, phases=(0, 1, 2, 3), links=cells, heard=lambda a, b: (a, b) not in silent))
    found = only(verdict)
    names = (f"node{one}", f"node{other}")
    assert verdict.exit_code == 1
    if kind == "node":
        assert (found.id, found.ranks, found.hosts) == ("node-unreachable", (one,), names[:1])
        assert verdict.ok == tuple(rank for rank in range(num_nodes) if rank != one)
        assert f"srun --exclude=node{one} …" in found.remedy
    elif kind == "link":
        assert (found.id, set(found.links)) == ("link-broken", {names, names[::-1]})
        assert found.confidence == "certain"
    else:
        assert (found.id, found.links) == ("one-way-link", (names,))
        assert found.summary.startswith("Connections from" if kind == "direction" else "Packets from")
    if kind != "node":
        assert verdict.ok == tuple(rank for rank in range(num_nodes) if rank not in (one, other))


def test_node_whose_packets_arrive_though_nothing_comes_in_is_blocked_inwards() -> None:
    verdict = diagnose(examination(4, links=node_down(2, 4), heard=lambda one, other: other != 2, phases=(0, 1, 2, 3)))
    assert (only(verdict).id, only(verdict).hosts) == ("node-inbound-blocked", ("node2",))


def test_only_some_ports_blocked_is_a_firewall_and_no_dead_node() -> None:
    into = {(other, 2): {"status": "dropped", "error": "no answer", "known": "refused"} for other in (0, 1, 3)}
    verdict = diagnose(examination(4, links=into, phases=(0, 1, 2, 3)))
    assert (only(verdict).id, only(verdict).hosts) == ("ephemeral-ports-blocked", ("node2",))
    fresh = {(other, 1): {"ephemeral": "dropped", "error": "port 40001 works, port 41234 is dropped"} for other in (0, 2, 3)}
    verdict = diagnose(examination(4, links=fresh, phases=(0, 1, 2, 3)))
    assert (only(verdict).id, only(verdict).hosts) == ("ephemeral-ports-blocked", ("node1",))


def test_large_packets_that_stall_are_an_mtu() -> None:
    stalled = {"status": "stalled", "error": "8 bytes pass, 65,536 do not"}
    verdict = diagnose(examination(3, links={(0, 1): stalled, (2, 1): stalled}, phases=(0, 1, 2, 3)))
    assert (only(verdict).id, only(verdict).hosts) == ("mtu-mismatch", ("node1",))


def test_network_in_two_parts_is_a_split() -> None:
    cells = {(a, b): DROPPED for a in range(4) for b in range(4) if (a < 2) != (b < 2)}
    found = only(diagnose(examination(4, links=cells, heard=lambda a, b: (a < 2) == (b < 2), phases=(0, 1, 2, 3))))
    assert found.id == "network-split"
    assert "{node0 and node1} and {node2 and node3}" in found.summary


def test_same_address_on_all_hosts_is_a_wrong_one() -> None:
    strange = {"status": "stranger", "error": "rank 0 answers at node1, not rank 1", "address": "172.17.0.1"}
    cells = {(a, b): strange for a in range(3) for b in range(3) if a != b}
    examined = examination(3, links=cells, phases=(0, 1, 2, 3))
    for entry in examined.roster.values():
        entry["listen"]["address"] = "172.17.0.1"  # type: ignore[index]
    verdict = diagnose(examined)
    assert (verdict.exit_code, only(verdict).id, only(verdict).confidence) == (1, "wrong-address", "certain")
    assert any(line.startswith("numscope doctor --ifname eth0") for line in only(verdict).remedy)


def test_two_faults_are_both_named() -> None:
    cells = {**node_down(4, 6), (0, 1): DROPPED, (1, 0): DROPPED}
    heard = lambda a, b: (a, b) not in cells  # noqa: E731
    verdict = diagnose(examination(6, links=cells, heard=heard, phases=(0, 1, 2, 3)))
    assert {each.id for each in verdict.findings} == {"node-unreachable", "link-broken"}


def test_everything_failing_in_a_small_job_is_not_attributed() -> None:
    cells = {
        (a, b): DROPPED if a else {"status": "refused", "error": "refused", "known": "dropped"}
        for a in range(3)
        for b in range(3)
        if a != b
    }
    verdict = diagnose(examination(3, links=cells, heard=lambda a, b: False, phases=(0, 1, 2, 3)))
    assert verdict.exit_code == 3
    assert verdict.ok == ()


# ---- who is lost, and who only suffers from it ----------------------------------------------------------------------------------


def test_lost_rank_is_the_cause_and_all_others_its_victims() -> None:
    silent = {"status": "silent", "error": "it said nothing within 5.0 s"}
    examined = examination(4, links={(other, 2): silent for other in (0, 1, 3)})
    examined = without_rank(examined, 2, 3, doing="ping node3")
    for rank in (0, 1, 3):
        examined = failed(examined, 4, rank, "gloo: Connection closed by peer", missing=[[2, 2]])
    verdict = diagnose(examined)
    found = only(verdict)
    assert (found.id, found.ranks, found.hosts, found.confidence) == ("rank-silent", (2,), ("node2",), "certain")
    assert any("ping node3" in line for line in found.evidence)
    assert any(line.startswith("node0 to node2") for line in found.evidence)
    assert (verdict.exit_code, verdict.ok) == (1, (0, 1, 3))


@pytest.mark.parametrize("seen", [("silent", "silent"), ("dropped", "silent"), ("silent", "dropped")])
def test_who_waited_for_a_lost_rank_is_not_unresponsive_for_being_late(seen: tuple[str, str]) -> None:
    """Node 0 waits for the lost node until node 1 has given it up, and then it has no time left to ask node 1 itself."""
    skipped = {"status": "skipped", "error": "no time was left"}
    late = {"status": "silent", "error": "it sent nothing within 1.8 s"}
    cells = {(0, 2): {**late, "status": seen[0]}, (1, 2): {**late, "status": seen[1]}, (1, 0): late, (0, 1): skipped}
    found = only(diagnose(without_rank(examination(3, links=cells, phases=(0, 1, 2, 3)), 2, 3)))
    assert (found.id, found.ranks) == ("rank-silent", (2,))


def test_node_that_was_cut_off_after_some_had_reached_it_is_no_broken_link() -> None:
    """The hub reached it before, and has lost it since; node 1 came too late."""
    found = only(diagnose(without_rank(examination(3, links={(1, 2): DROPPED}, phases=(0, 1, 2, 3)), 2, 3)))
    assert (found.id, found.ranks) == ("rank-silent", (2,))
    assert any(line.startswith("node1 to node2") for line in found.evidence)


def test_process_that_answers_nobody_is_unresponsive() -> None:
    silent = {"status": "silent", "error": "it sent nothing within 6.8 s"}
    examined = examination(4, links={(other, 2): silent for other in (0, 1, 3)}, phases=(0, 1, 2, 3))
    assert only(diagnose(examined)).id == "process-unresponsive"


def test_rank_that_only_the_hub_lost_is_the_links_victim() -> None:
    cells = {(0, 2): DROPPED, (2, 0): DROPPED}
    examined = without_rank(examination(4, links=cells, heard=lambda a, b: (a, b) not in cells, phases=(0, 1, 2, 3)), 2, 3)
    found = only(diagnose(examined))
    assert (found.id, found.hosts) == ("link-broken", ("node0", "node2"))
    assert any("the hub lost rank 2" in line for line in found.evidence)


@pytest.mark.parametrize("other", [0, 1])
def test_connection_that_a_dying_rank_resets_is_no_broken_link(other: int) -> None:
    """The others had reached it before; whoever was measuring as it died saw its connection reset."""
    reset = {"status": "reset", "error": "the connection was reset"}
    examined = without_rank(examination(3, links={(other, 2): reset}, phases=(0, 1, 2, 3)), 2, 3, how="died")
    found = only(diagnose(examined))
    assert (found.id, found.ranks) == ("rank-died", (2,))
    assert any("the connection was reset" in line for line in found.evidence)


def test_link_that_drops_packets_of_a_rank_that_died_is_still_broken() -> None:
    examined = without_rank(examination(3, links={(1, 2): DROPPED}, phases=(0, 1, 2, 3)), 2, 3, how="died")
    assert {each.id for each in diagnose(examined).findings} == {"rank-died", "link-broken"}


def test_rank_that_never_came_is_named_and_healthy_ranks_are_ok() -> None:
    examined = examination(3, phases=(0, 1, 2, 3))
    roster = {rank: entry for rank, entry in examined.roster.items() if rank != 1}
    results = [result for result in examined.results if result.rank != 1]
    missing = replace(examined.results[0], phase=1, rank=1, status="silent", error="it did not come within 45 s", data={"how": "missing"})
    verdict = diagnose(replace(examined, roster=roster, results=[*results, missing]))
    assert (only(verdict).id, only(verdict).ranks) == ("rank-missing", (1,))
    assert verdict.ok == (0, 2)


# ---- torch's phases -------------------------------------------------------------------------------------------------------------


def child(hung: bool, how: str = "killed after 8.0 s", stderr: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"hung": hung, "how": how, "doing": "recv from 3, 64 MiB", "doing_s": 6.0, "stderr": list(stderr)}


def test_child_that_died_is_named_with_its_last_words() -> None:
    examined = failed(examination(3), 4, 1, "its torch process died", child=child(False, "exit status 1", ("No module named 'torch'",)))
    examined = failed(failed(examined, 4, 0, "gloo timed out", missing=[[1, 1]]), 4, 2, "gloo timed out", missing=[[1, 1]])
    verdict = diagnose(examined)
    found = only(verdict)
    assert (found.id, found.ranks, verdict.ok) == ("child-died", (1,), (0, 2))
    assert "torch is not installed" in found.summary
    assert found.remedy[0].startswith("pip install torch")


def test_child_that_others_waited_for_hung_and_those_that_waited_did_not() -> None:
    examined = examination(4)
    for rank in range(4):
        examined = failed(examined, 5, rank, "its torch process hung", child=child(True), missing=[] if rank == 2 else [[2, 2]])
    verdict = diagnose(examined)
    assert (only(verdict).id, only(verdict).ranks) == ("child-hung", (2,))
    assert verdict.exit_code == 1


def test_backend_that_starts_nowhere_is_not_attributed() -> None:
    examined = examination(3)
    for rank in range(3):
        examined = failed(examined, 4, rank, "gloo: no", groups={"gloo": {"seconds": 1.0, "error": "RuntimeError: no"}})
    verdict = diagnose(examined)
    assert verdict.exit_code == 3
    assert only(verdict).confidence == "possible"


def test_nccl_that_cannot_be_had_is_named_with_the_ranks_that_lack_what_it_needs() -> None:
    """From what the children report, whatever the words of their error."""
    examined = examination(4)
    for rank, lacks in enumerate(("", "gpu", "nccl", "nccl")):
        groups = {"gloo": {"error": ""}, "nccl": {"seconds": 0.0, "error": "", "skipped": "x", "not_ready": []}}
        examined = failed(examined, 4, rank, "x", groups=groups, num_gpus=rank, lacks=lacks)
    verdict = diagnose(examined)
    found = only(verdict)
    assert (verdict.exit_code, found.id, found.ranks, found.confidence) == (1, "backend-unavailable", (1, 2, 3), "certain")
    assert found.summary == (
        "NCCL was requested but can't start: rank 1 has no GPU of its own, and torch on ranks 2, 3 was built without NCCL."
    )
    assert "numscope doctor  # without backend: nccl in its --settings" in found.remedy


def test_nccl_that_nobody_asked_for_may_be_impossible() -> None:
    examined = examination(2)
    for result in examined.results:
        if result.phase == 4:
            result.data["groups"]["nccl"] = {"error": "", "skipped": "x"}  # type: ignore[index]
            result.data["lacks"] = "gpu"  # type: ignore[index]
    assert diagnose(examined).findings == ()


def test_name_that_means_loopback_is_degraded_until_torch_fails_by_it() -> None:
    name = {"name": "node1", "addresses": ["127.0.1.1"], "loopback": True, "error": "", "seconds": 0.0}
    examined = examination(3, own_facts={1: {"name": name}})
    verdict = diagnose(examined)
    assert (verdict.exit_code, only(verdict).id, only(verdict).severity) == (0, "name-resolves-to-loopback", "degraded")
    assert "export NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0" in only(verdict).remedy
    assert any("'10.0.0.2 node1'" in line for line in only(verdict).remedy)
    for rank in range(3):
        examined = failed(examined, 4, rank, "gloo: Connection refused", groups={"gloo": {"seconds": 1.0, "error": "Connection refused"}})
    verdict = diagnose(examined)
    assert (verdict.exit_code, only(verdict).id, only(verdict).severity) == (1, "name-resolves-to-loopback", "fault")


def test_node_that_never_came_is_told_from_a_host_of_that_name() -> None:
    examined = examination(3, 2)
    missing = [PhaseResult(ExamPhase(1), rank, "silent", error="it did not come within 9.0 s", data={"how": "missing"}) for rank in (2, 3)]
    came = {rank: entry for rank, entry in examined.roster.items() if rank not in (2, 3)}
    slurm = {rank: {**entry, "identity": {**entry["identity"], "launcher": "slurm"}} for rank, entry in came.items()}
    for roster, lines in (
        (came, []),
        (slurm, ["scontrol show hostnames $SLURM_JOB_NODELIST | sed -n '2p'  # its name, for srun --exclude="]),
    ):
        results = [*(result for result in examined.results if result.rank not in (2, 3)), *missing]
        found = only(diagnose(replace(examined, roster=roster, results=results)))
        assert found.summary == "Ranks 2, 3 never joined: all of node number 1, counted from 0."
        assert list(found.remedy[1:]) == lines


def test_name_that_means_loopback_is_no_matter_between_nodes_on_one_machine() -> None:
    name = {"name": "node1", "addresses": ["127.0.0.1"], "loopback": True, "error": "", "seconds": 0.0}
    examined = examination(2, own_facts={0: {"name": name}, 1: {"name": name}})
    assert [each.id for each in diagnose(examined).findings] == ["name-resolves-to-loopback"]
    here = {rank: {**entry, "address": "127.0.0.1"} for rank, entry in examined.roster.items()}
    assert diagnose(replace(examined, roster=here)).findings == ()


@pytest.mark.parametrize(
    ("launcher", "num_nodes", "lines"),
    [
        ("slurm", 2, ["srun --exclude=node1 …"]),
        ("torchrun", 2, ["srun --exclude=node1 …"]),
        ("mpi", 2, ["mpirun --host …  # without node1"]),
        ("local", 1, []),
        ("mpi", 1, []),
        ("slurm", 1, ["srun --exclude=node0 …"]),
    ],
)
def test_remedy_that_leaves_a_host_out_is_in_the_launchers_words(launcher: str, num_nodes: int, lines: list[str]) -> None:
    rank = num_nodes * 2 - 1
    examined = failed(examination(num_nodes, 2), 4, rank, "its torch process died", child=child(False, "exit status 1"))
    roster = {r: {**entry, "identity": {**entry["identity"], "launcher": launcher}} for r, entry in examined.roster.items()}
    assert [line for line in only(diagnose(replace(examined, roster=roster))).remedy if "exclude" in line or "mpirun" in line] == lines


@pytest.mark.parametrize("num_ranks", [3, 4, 8])
def test_sender_of_corrupt_data_is_named(num_ranks: int) -> None:
    cells = {(1, peer): {"status": "corrupt"} for peer in range(num_ranks) if peer != 1}
    verdict = diagnose(examination(1, num_ranks, pairs=cells))
    found = only(verdict)
    assert (found.id, found.ranks, verdict.exit_code) == ("payload-corrupted", (1,), 1)
    assert "Data from rank 1" in found.summary
    assert 1 not in verdict.ok


def test_receiver_of_corrupt_data_is_named() -> None:
    cells = {(peer, 1): {"status": "corrupt"} for peer in (0, 2, 3)}
    assert "Data to rank 1" in only(diagnose(examination(1, 4, pairs=cells))).summary


def test_pairs_between_two_hosts_that_hang_are_one_link() -> None:
    hang = {"status": "timeout", "doing": "recv, 64 MiB", "error": "timed out"}
    cells = {(a, b): hang for a in range(6) for b in range(6) if {a // 2, b // 2} == {0, 1}}
    found = only(diagnose(examination(3, 2, pairs=cells)))
    assert (found.id, found.hosts) == ("pair-failed", ("node0", "node1"))


def test_wrong_result_on_one_rank_is_that_ranks() -> None:
    wrong = {
        "name": "all_reduce", "backend": "gloo", "group": "all", "bytes": 1024, "status": "wrong", "digests": [],
        "wrong": {"index": 7, "got": 3.0, "expected": 4.0, "num_wrong": 1, "num_elements": 256},
    }  # fmt: skip
    verdict = diagnose(failed(examination(4), 6, 2, "all_reduce is wrong", collectives=[wrong]))
    assert (only(verdict).id, only(verdict).ranks) == ("collective-wrong", (2,))
    assert any("element 7 is 3.0, expected 4.0" in line for line in only(verdict).evidence)


# ---- speed ----------------------------------------------------------------------------------------------------------------------


def test_straggler_is_named_and_costs_the_exit_code_only_with_strict() -> None:
    verdict = diagnose(examination(4, compute={2: 4.0}))
    assert (verdict.exit_code, only(verdict).id, only(verdict).ranks) == (0, "rank-slow", (2,))
    assert diagnose(examination(4, compute={2: 4.0}, settings=Settings(strict=True))).exit_code == 4


def test_losses_of_bursts_that_are_no_pairs_are_left_out() -> None:
    measured = Cell(0, 1, 0, 1, "", "", "", 0, loss=0.5, burst_losses=((), (1,)) * 40)  # type: ignore[arg-type]
    assert _steady_loss(measured) == 0.5


def test_ordinary_differences_in_speed_are_no_straggler() -> None:
    assert diagnose(examination(8, compute={rank: 1 + 0.05 * rank for rank in range(8)})).findings == ()


@pytest.mark.parametrize("num_nodes", [3, 4, 8])
def test_slow_sender_is_one_slow_node(num_nodes: int) -> None:
    cells = {(1, other): {"bytes": 4 << 20, "bytes_per_s": 6e6} for other in range(num_nodes) if other != 1}
    found = only(diagnose(examination(num_nodes, links=cells)))
    assert (found.id, found.hosts, found.severity) == ("link-slow", ("node1",), "degraded")


def test_what_was_measured_in_a_blink_is_not_slow() -> None:
    cells = {(1, 0): {"bytes": 4 << 20, "bytes_per_s": 2e7 * 2}, (0, 1): {"bytes": 4 << 20, "bytes_per_s": 4e7}}
    assert diagnose(examination(3, links=cells)).findings == ()  # 0.1 s


def test_lossy_link_is_told_and_a_slow_one_not_twice() -> None:
    lossy = {"loss": 0.011, "retransmitted": 220}
    found = only(diagnose(examination(4, links={(0, 1): lossy, (2, 1): lossy, (3, 1): lossy})))
    assert (found.id, found.hosts) == ("link-lossy", ("node1",))
    found = only(diagnose(examination(4, links={(0, 1): {**lossy, "bytes": 4 << 20, "bytes_per_s": 6e6}})))
    assert found.id == "link-slow"
    assert any("1.10% of the segments are lost" in line for line in found.evidence)


def lost_by_burst(*lost: int, segments: int = 730) -> dict[str, Any]:
    """A cell whose bursts lost so many segments each."""
    count, again = segments * len(lost), sum(lost)
    return {
        "segments": count,
        "retransmitted": again,
        "loss": again / count,
        "burst_losses": [[segments, each] for each in lost],
    }


@pytest.mark.parametrize("lost", [(0, 0, 0, 26, 0, 0, 0, 0), (0, 13, 0, 0, 0, 0, 68, 0), (68, -40, 0, 0, 0, 0, 0, 0)], ids=str)
def test_window_that_a_starved_host_sent_again_is_no_lossy_link(lost: tuple[int, ...]) -> None:
    cell = lost_by_burst(*lost)
    assert cell["loss"] > 0.003
    assert diagnose(examination(3, links={(0, 2): cell})).findings == ()


def test_link_that_loses_one_percent_is_lossy_on_a_starved_host_too() -> None:
    cells = {(0, 1): lost_by_burst(10, 68, 11, 15, 14, 15, 10, 14), (2, 1): lost_by_burst(7, 8, 8, 10, 10, 5, 7, 9)}
    starved = lost_by_burst(0, 0, 0, 13, 0, 0, 0, 0)
    found = only(diagnose(examination(3, links={**cells, (0, 2): starved})))
    assert (found.id, found.hosts) == ("link-lossy", ("node1",))


@pytest.mark.parametrize("num_bursts", [2, 8, 16, 64])
def test_one_percent_of_loss_is_found_however_it_falls(num_bursts: int) -> None:
    chance = random.Random(num_bursts)
    for _ in range(50):
        lost = [sum(chance.random() < 0.01 for _ in range(724)) for _ in range(num_bursts)]
        assert only(diagnose(examination(3, links={(0, 1): lost_by_burst(*lost, segments=724)}))).id == "link-lossy"


# ---- what differs, and what is small ------------------------------------------------------------------------------------------------


def test_other_torch_version_on_one_rank_is_a_fault_with_the_line_to_cure_it() -> None:
    verdict = diagnose(examination(3, own_facts={2: {"versions": {"python": "3.11.7", "numscope": "0.1.0", "torch": "2.12.0"}}}))
    found = only(verdict)
    assert (verdict.exit_code, found.id, found.ranks, found.confidence) == (1, "version-mismatch", (2,), "certain")
    assert found.remedy == ("pip install torch==2.13.0",)


def test_environment_of_one_rank_is_told() -> None:
    found = only(diagnose(examination(3, own_facts={2: {"environment": {"NCCL_ALGO": "Ring"}}})))
    assert (found.id, found.ranks, found.severity, found.remedy) == ("environment-differs", (2,), "degraded", ("unset NCCL_ALGO",))


def test_small_shm_is_told_once_for_all_its_ranks() -> None:
    small = {"shm": {"size_bytes": 1 << 20, "free_bytes": 1 << 20}}
    found = only(diagnose(examination(2, 2, own_facts={2: small, 3: small})))
    assert (found.id, found.ranks, found.hosts) == ("shm-too-small", (2, 3), ("node1",))
    assert any("--shm-size" in line for line in found.remedy)


def test_gpu_driver_that_hangs_is_a_fault() -> None:
    gpus = {"status": "timeout", "error": "nvidia-smi did not end within 8.0 s", "devices": []}
    assert only(diagnose(examination(3, own_facts={1: {"gpus": gpus}}))).id == "gpu-query-hung"


def test_clock_that_is_off_is_told_with_its_offset() -> None:
    examined = examination(3)
    examined.roster[1]["offset_s"] = -7.5  # type: ignore[index]
    found = only(diagnose(examined))
    assert (found.id, found.ranks) == ("clock-skew", (1,))
    assert "7.5 s behind" in found.evidence[0]


# ---- the verdict ----------------------------------------------------------------------------------------------------------------


def test_incomplete_is_never_healthy() -> None:
    examined = examination(2, phases=(0, 1))
    skipped = [
        replace(result, phase=ExamPhase.LINKS, status="skipped", error="the examination was ended early by SIGTERM")
        for result in examined.results[:2]
    ]
    verdict = diagnose(replace(examined, results=[*examined.results, *skipped], hub={"reached": True, "interrupted": "SIGTERM"}))
    assert (verdict.exit_code, only(verdict).id, verdict.ok) == (5, "incomplete", ())


def test_failure_that_nothing_explains_could_not_be_told() -> None:
    verdict = diagnose(failed(examination(3), 6, 1, "something odd"))
    assert (verdict.exit_code, only(verdict).id) == (3, "cause-unknown")
    assert only(verdict).evidence == ("rank 1, collectives, failed: something odd",)


def test_rank_alone_without_a_hub_says_how_it_was_not_reached() -> None:
    hub = {"reached": False, "kind": "refused", "sentence": "node0:1 refuses", "endpoint": "node0:1", "here": "node1"}
    verdict = diagnose(Examined(Settings(), 2, hub=hub))
    assert (verdict.exit_code, only(verdict).id, only(verdict).links) == (1, "hub-refused", (("node1", "node0"),))


def test_diagnosis_of_the_same_is_the_same() -> None:
    examined = examination(5, links=node_down(3, 5), pairs={(1, 2): {"status": "corrupt"}})
    assert diagnose(examined) == diagnose(examined)


def test_every_expected_finding_is_in_the_catalog() -> None:
    assert {fault.finding for fault in FAULTS} - {""} <= set(CATALOG)


@given(st.data())
def test_odd_data_from_a_rank_do_not_end_the_diagnosis(data: st.DataObject) -> None:
    # Of any rank any part of any phase's data may be absent: an older version, a fact that could not be had.
    examined = examination(3)
    at = data.draw(st.integers(0, len(examined.results) - 1))
    result = examined.results[at]
    kept = data.draw(st.sets(st.sampled_from(sorted(result.data)))) if result.data else set()
    results = list(examined.results)
    results[at] = replace(result, data={key: value for key, value in result.data.items() if key in kept})
    assert diagnose(replace(examined, results=results)).exit_code in (0, 3)
