"""NCCL's log: what each message means, and that a healthy log means nothing."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from numscope.doctor.explain import examine
from numscope.doctor.records import DoctorFinding
from tests.doctor.explain.nccl_samples import rank_lines, warn


@pytest.fixture
def said(tmp_path: Path):
    """Findings of one file of lines."""

    def findings(*lines: str) -> dict[str, DoctorFinding]:
        file = tmp_path / "job.log"
        file.write_text("\n".join(lines) + "\n")
        return {one.id: one for one in examine([file]).findings}

    return findings


def both(**second) -> list[str]:
    """Two ranks on two hosts, the second as told."""
    return rank_lines(0, 2) + rank_lines(1, 2, **{"host": "node2", "address": "10.0.0.2", **second})


def test_a_healthy_log_gives_no_finding(said) -> None:
    assert said(*both()) == {}


def test_a_network_without_infiniband_is_no_fault(said) -> None:
    lines = rank_lines(0, 2, network="Socket", ib="") + rank_lines(1, 2, host="node2", address="10.0.0.2", network="Socket", ib="")
    assert said(*lines) == {}


def test_one_rank_log_of_many_that_is_complete_gives_no_finding(said) -> None:
    assert said(*rank_lines(3, 64, interface="eth0")) == {}


def test_versions_that_nccl_itself_found_to_differ_name_the_odd_rank(said) -> None:
    found = said(
        *both(complete=False), warn("Mismatched NCCL version detected : rank 1 version 22705 rank 0 version 22703", where="init.cc:900")
    )
    one = found["version-mismatch"]
    assert one.confidence == "certain"
    assert "2.27.5" in one.summary and "2.27.3" in one.summary


def test_a_version_that_one_host_alone_has_is_named_with_its_host(said) -> None:
    found = said(
        *rank_lines(0, 3),
        *rank_lines(1, 3, host="node2", address="10.0.0.2"),
        *rank_lines(2, 3, host="node3", address="10.0.0.3", version="2.26.2"),
    )
    assert found["version-mismatch"].hosts == ("node3",)
    assert found["version-mismatch"].ranks == (2,)


def test_bare_version_lines_of_two_jobs_are_not_called_certain(said) -> None:
    found = said("NCCL version 2.21.5+cuda12.4", "NCCL version 2.27.3+cuda12.9")
    assert found["version-mismatch"].confidence == "possible"
    assert "may come from different jobs" in found["version-mismatch"].summary


@pytest.mark.parametrize(
    "message",
    [
        "Bootstrap : no socket interface found",
        "ncclSocketInit: connecting to address  with family 59936 is neither AF_INET(2) nor AF_INET6(10)",
    ],
)
def test_an_interface_that_is_not_there_is_named_with_what_asked_for_it(said, message: str) -> None:
    lines = [
        *rank_lines(0, 2, interface="ens5"),
        "node2:4001:4001 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth9",
        warn(message, rank=1, host="node2"),
    ]
    lines[-1] = lines[-1].replace("4001:4101", "4001:4001")
    one = said(*lines)["interface-missing"]
    assert "eth9" in one.summary and "node2" in one.summary
    assert "export NCCL_SOCKET_IFNAME=ens5  # as the other ranks do" in one.remedy


@pytest.mark.parametrize(
    ("name", "address"), [("lo", "127.0.0.1"), ("docker0", "172.17.0.1"), ("virbr0", "192.168.122.1"), ("eno2", "169.254.3.1")]
)
def test_an_interface_that_other_hosts_cannot_reach_is_named(said, name: str, address: str) -> None:
    one = said(*both(interface=name, address=address))["nccl-wrong-interface"]
    assert one.hosts == ("node2",)
    assert name in one.summary
    assert one.remedy[0].startswith("export NCCL_SOCKET_IFNAME=eth0")


def test_loopback_within_one_host_is_no_fault(said) -> None:
    assert said(*rank_lines(0, 2, interface="lo", address="127.0.0.1"), *rank_lines(1, 2, dev=1, interface="lo", address="127.0.0.1")) == {}


def test_sockets_beside_infiniband_of_other_hosts_are_a_fault(said) -> None:
    one = said(*both(network="Socket", ib=""))["nccl-socket-fallback"]
    assert (one.severity, one.hosts, one.ranks) == ("fault", ("node2",), (1,))


def test_infiniband_switched_off_though_it_is_there_is_degraded(said) -> None:
    off = {"network": "Socket", "ib": "[0]mlx5_0:1/IB", "environment": [("IB_DISABLE", "1")]}
    one = said(*rank_lines(0, 2, **off), *rank_lines(1, 2, host="node2", address="10.0.0.2", **off))["nccl-socket-fallback"]
    assert one.severity == "degraded"
    assert "unset NCCL_IB_DISABLE" in one.remedy


def test_devices_asked_for_and_not_found_are_degraded(said) -> None:
    off = {"network": "Socket", "ib": "", "environment": [("IB_HCA", "mlx5_0,mlx5_1")]}
    one = said(*rank_lines(0, 2, **off), *rank_lines(1, 2, host="node2", address="10.0.0.2", **off))["nccl-socket-fallback"]
    assert "mlx5_0,mlx5_1" in one.summary


def test_ranks_that_never_came_are_named(said) -> None:
    lines = [line for rank in (0, 1, 2, 4, 5) for line in rank_lines(rank, 6, complete=False, dev=rank)]
    one = said(*lines)["nccl-missing-ranks"]
    assert (one.ranks, one.confidence) == ((3,), "likely")


def test_one_rank_waiting_alone_proves_little_of_the_others(said) -> None:
    assert said(*rank_lines(0, 64, complete=False))["nccl-missing-ranks"].confidence == "possible"


def test_a_rank_that_did_not_become_complete_while_others_did_is_named(said) -> None:
    assert said(*both(complete=False))["nccl-missing-ranks"].ranks == (1,)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("Call to connect failed : Connection timed out", "connection timed out"),
        ("socketStartConnect: Connect to 10.0.0.1<45763> failed : Connection refused", "connection refused"),
        (
            "socketPollConnect: Connect to 10.0.0.1<56849> returned 113(No route to host) errno 115(Operation now in progress)",
            "no route to host",
        ),
    ],
)
def test_a_connection_that_failed_is_named_with_its_reason(said, message: str, reason: str) -> None:
    one = said(*both(complete=False), warn(message, rank=1, host="node2"))["nccl-connect-failed"]
    assert reason in one.summary
    assert one.links == ((("node2", "node1"),) if "10.0.0.1" in message else ())


def test_a_connection_that_got_through_at_last_is_no_fault(said) -> None:
    assert said(*both(), "node1:4000:4100 [0] NCCL INFO Call to connect returned Connection refused, retrying") == {}


@pytest.mark.parametrize(
    ("message", "id"),
    [
        ("Error: failed to extend /dev/shm/nccl-WU88OE to 9637892 bytes, error: No space left on device (28)", "shm-too-small"),
        ("Call to posix_fallocate failed : No space left on device", "shm-too-small"),
        ("Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory", "memlock-too-small"),
        ("Call to ibv_create_cq failed with error Cannot allocate memory", "memlock-too-small"),
        ("NET/OFI Unable to register memory (type = 1) for device 0. RC: 12, Error: Cannot allocate memory", "memlock-too-small"),
        ("NET/IB : Got completion from peer 10.0.0.2<38560> with error 12, opcode 0, len 0, vendor err 129", "ib-timeout"),
        ("NET/IB: Got completion from peer 10.0.0.2<55921> with status=12 opcode=1 len=0 vendor err 129 (Send)", "ib-timeout"),
        ("NET/IB : Got completion from peer 10.0.0.2<38536> with error 5, opcode 48, len 32710, vendor err 249", "ib-transfer-failed"),
        (
            "NET/IB : req 0/1 tag 0 peer 10.0.0.2<58683> collective mismatch error, local size 496640 remote size 65536",
            "collective-mismatch",
        ),
        ("Mismatched collective detected, please check your collective calls at and around rank 39.", "collective-mismatch"),
        ("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 6000", "nccl-duplicate-gpu"),
        ("Cuda failure 'out of memory'", "gpu-out-of-memory"),
        ("Cuda failure 802 'system not yet initialized'", "gpu-fabric-manager"),
        ("Call to ibv_modify_qp failed with error Invalid argument", "ib-gid"),
        ("Cuda failure 999 'unknown error'", "nccl-cuda-error"),
        ("Net : Connection closed by remote peer node2<47861>", "nccl-peer-closed"),
        ("socketProgressOpt: Call to recv from 10.0.0.2<33759> failed : Connection reset by peer", "nccl-peer-closed"),
        ("Something that no rule knows", "nccl-warning"),
    ],
)
@pytest.mark.parametrize("stamped", [False, True])
def test_a_warning_is_explained_and_its_line_is_the_evidence(said, message: str, id: str, stamped: bool) -> None:
    found = said(*both(), warn(message, stamped=stamped))
    assert list(found) == [id]
    assert found[id].evidence[0].split(": ")[0].endswith("job.log:19")
    assert id == "nccl-duplicate-gpu" or found[id].ranks == (0,)


def test_echoes_of_a_warning_are_not_findings_of_their_own(said) -> None:
    found = said(
        *both(),
        warn("Error: failed to extend /dev/shm/nccl-fjwOOB to 5967876 bytes", where="misc/shmutils.cc:71"),
        warn("Error while creating shared memory segment /dev/shm/nccl-fjwOOB (size 5967872)", where="misc/shmutils.cc:112"),
        warn("[Service thread] Error encountered progressing operation=Connect, res=3, closing connection", where="proxy.cc:1533"),
    )
    assert list(found) == ["shm-too-small"]


def test_a_closed_connection_beside_its_cause_is_a_note(said) -> None:
    found = said(
        *both(),
        warn("Error: failed to extend /dev/shm/nccl-a to 5 bytes", rank=1, host="node2"),
        warn("Net : Connection closed by remote peer node2<4>"),
    )
    assert (found["shm-too-small"].severity, found["nccl-peer-closed"].severity) == ("fault", "note")


@pytest.mark.parametrize(
    ("line", "id"),
    [
        (
            "[rank3]: torch.distributed.DistBackendError: NCCL error in: /pytorch/NCCLUtils.hpp:268, unhandled cuda error (run "
            "with NCCL_DEBUG=INFO for details)",
            "nccl-cuda-error",
        ),
        (
            "[rank3]: ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
            "nccl-system-error",
        ),
        (
            "[rank3]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
            "nccl-peer-closed",
        ),
    ],
)
def test_an_error_that_torch_passes_on_is_explained_with_its_rank(said, line: str, id: str) -> None:
    assert said(line)[id].ranks == (3,)


def test_p2p_that_is_disabled_is_degraded_and_said_once(said) -> None:
    line = "node1:4000:4000 [0] NCCL INFO P2P is disabled between connected GPUs {} and {}. You can repress this message."
    one = said(*both(), line.format(6, 7), line.format(7, 6), line.format(5, 4))["gpu-p2p-disabled"]
    assert one.severity == "degraded"
    assert "GPUs 4-5 and 6-7 on node1" in one.summary


@pytest.mark.parametrize("prefix", ["[1,3]<stdout>:", "0: ", "(Worker pid=7, ip=10.0.0.1) ", "[trainer3]:", "2026/10/26 09:19:04 "])
def test_prefixes_of_launchers_are_passed_over(said, prefix: str) -> None:
    one = said(*(prefix + line for line in both(interface="lo", address="127.0.0.1")))["nccl-wrong-interface"]
    assert one.hosts == ("node2",)


def test_files_of_many_ranks_are_joined_whatever_they_are_called(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.txt").write_text("\n".join(rank_lines(0, 2)))
    (tmp_path / "b.bin").write_bytes(gzip.compress("\n".join(rank_lines(1, 2, host="node2", version="2.26.2")).encode()))
    explanation = examine([tmp_path])
    assert [one.id for one in explanation.findings] == ["version-mismatch"]
    assert [file.kinds for file in explanation.files] == [{"NCCL log"}, {"NCCL log"}]
