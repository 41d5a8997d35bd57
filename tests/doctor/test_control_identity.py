"""Who a rank is and where it meets the others, by each launcher's environment; contradictions are refused with the reason."""

from __future__ import annotations

import pytest

from numscope.doctor.meet.identity import first_node, identify, in_batch_script
from numscope.doctor.meet.meeting_point import is_here, meet, split_endpoint
from numscope.doctor.records import Identity, Settings
from numscope.records.errors import UsageError

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "17",
}
TOKEN = {"NUMSCOPE_DOCTOR_TOKEN": "secret"}
SLURM = {
    "SLURM_JOB_ID": "99",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "4",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_JOB_NODELIST": "gpu[07-08]",
    "SLURM_TASKS_PER_NODE": "2(x2)",
}
# As Slurm 22.05 sets them: a task of srun --nodes=2 --ntasks-per-node=2 in a batch job, and the script of sbatch --nodes=2.
SRUN_STEP = {
    "SLURM_JOB_ID": "4",
    "SLURM_JOB_NODELIST": "gpu[1-2]",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.1",
    "SLURM_LOCALID": "0",
    "SLURM_NNODES": "2",
    "SLURM_NODEID": "1",
    "SLURM_NTASKS": "4",
    "SLURM_NTASKS_PER_NODE": "2",
    "SLURM_PROCID": "2",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "gpu[1-2]",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_TASKS_PER_NODE": "2(x2)",
    "SLURM_TOPOLOGY_ADDR": "gpu2",
}
BATCH_OF_NODES = {
    "SLURM_JOB_ID": "5",
    "SLURM_JOB_NODELIST": "gpu[1-2]",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_LOCALID": "0",
    "SLURM_NNODES": "2",
    "SLURM_NODEID": "0",
    "SLURM_PROCID": "0",
    "SLURM_TASKS_PER_NODE": "1(x2)",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}


def test_no_launcher_is_no_identity() -> None:
    assert identify({"PATH": "x"}, "h") is None


def test_torchruns_numbers() -> None:
    assert identify(TORCHRUN, "h") == Identity(5, 8, 1, 4, 1, 2, "h", "torchrun")


def test_sruns_numbers() -> None:
    assert identify(SLURM, "gpu08") == Identity(3, 4, 1, 2, 1, 2, "gpu08", "slurm")


def test_step_of_a_real_slurm() -> None:
    assert identify(SRUN_STEP, "gpu2") == Identity(2, 4, 0, 2, 1, 2, "gpu2", "slurm")
    second_node_alone = {  # srun --nodes=1 --ntasks=2 --relative=1 in that job
        **SRUN_STEP,
        "SLURM_NODEID": "0",
        "SLURM_PROCID": "0",
        "SLURM_STEP_NODELIST": "gpu2",
        "SLURM_STEP_NUM_NODES": "1",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_TASKS_PER_NODE": "2",
    }
    identity = identify(second_node_alone, "gpu2")
    assert identity == Identity(0, 2, 0, 2, 0, 1, "gpu2", "slurm")
    assert meet(identity, Settings(token="secret"), second_node_alone).host == "gpu2"


def test_step_of_heterogeneous_components_is_one_job() -> None:
    parts = {"SLURM_NODEID": "1", "SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_TASKS_PER_NODE": "2,1"}
    assert identify({**SRUN_STEP, **parts, "SLURM_HET_SIZE": "2"}, "gpu2") == Identity(2, 3, 0, 1, 1, 2, "gpu2", "slurm")


def test_task_that_was_started_alone_starts_its_own_ranks() -> None:
    alone = {**SRUN_STEP, "SLURM_NODEID": "0", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_TASKS_PER_NODE": "1"}
    assert identify(alone, "gpu1") is None and in_batch_script(alone) == ""
    assert identify({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, "h") is None
    torchrun = identify({**TORCHRUN, "RANK": "0", "WORLD_SIZE": "1"}, "h")
    assert torchrun is not None and torchrun.world_size == 1


def test_mpiruns_numbers() -> None:
    assert identify(OPEN_MPI, "h") == Identity(2, 4, 0, 2, 1, 2, "h", "mpi")
    assert identify({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}, "h") == Identity(
        1, 2, 1, 2, 0, 1, "h", "mpi"
    )


def test_torchrun_in_a_slurm_step_of_one_task_a_node_is_torchruns() -> None:
    identity = identify({**SLURM, "SLURM_PROCID": "1", "SLURM_NTASKS": "2", **TORCHRUN}, "h")
    assert identity is not None
    assert (identity.rank, identity.world_size, identity.launcher) == (5, 8, "torchrun")


def test_torchrun_started_once_a_rank_is_refused() -> None:
    with pytest.raises(UsageError, match=r"torchrun: got 2 node\(s\) of 4 rank\(s\), but srun started torchrun 8 times.*--nnodes 2"):
        identify({**SLURM, "SLURM_NTASKS": "8", **TORCHRUN}, "h")
    with pytest.raises(UsageError, match=r"4 times on 2 node\(s\), .*\. Use srun --ntasks=2 --ntasks-per-node=1 torchrun --nnodes 2"):
        identify({**SRUN_STEP, **TORCHRUN, "RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "1"}, "h")


def test_ranks_set_by_hand_agree_with_sruns_or_are_refused() -> None:
    by_hand = {"RANK": "3", "WORLD_SIZE": "4"}
    identity = identify({**SLURM, **by_hand}, "h")
    assert identity is not None and (identity.rank, identity.world_size) == (3, 4)
    with pytest.raises(UsageError, match="RANK: got rank 2 of 4, but srun sets rank 3 of 4, expected the same"):
        identify({**SLURM, "RANK": "2", "WORLD_SIZE": "4"}, "h")


def test_mpirun_in_a_slurm_job_is_mpiruns() -> None:
    identity = identify({**SLURM, **OPEN_MPI}, "h")
    assert identity is not None and (identity.rank, identity.launcher) == (2, "mpi")


def test_srun_with_its_pmi_plugin_is_sruns() -> None:
    identity = identify({**SLURM, "PMI_RANK": "3", "PMI_SIZE": "4"}, "h")
    assert identity is not None and identity.launcher == "slurm"


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"RANK": "1"}, "WORLD_SIZE: got nothing, but RANK=1, expected both or neither"),
        ({"WORLD_SIZE": "1"}, "RANK: got nothing, but WORLD_SIZE=1"),
        ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK: got 'x', expected a whole number"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK: got 2, expected 0 to 1, since WORLD_SIZE=2"),
    ],
)
def test_wrong_numbers_are_refused_with_the_variables_name(environ: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        identify(environ, "h")
    assert message in str(raised.value)


def test_batch_script_without_srun_is_no_rank_and_says_so() -> None:
    batch = {**SLURM, "SLURM_STEP_ID": "4294967291", "SLURM_PROCID": "0"}
    assert identify(batch, "h") is None
    assert "srun numscope doctor" in in_batch_script(batch)
    assert in_batch_script({**batch, "SLURM_NTASKS": "1"}) == ""
    assert in_batch_script({}) == ""


def test_batch_script_of_several_nodes_without_a_number_of_tasks_says_so_too() -> None:
    assert identify(BATCH_OF_NODES, "gpu1") is None
    assert in_batch_script(BATCH_OF_NODES).startswith("SLURM_JOB_NUM_NODES: got 2, but srun did not start this process")
    assert in_batch_script({**BATCH_OF_NODES, "SLURM_JOB_NUM_NODES": "1", "SLURM_NNODES": "1"}) == ""


@pytest.mark.parametrize(
    ("short", "first"),
    [
        ("a", "a"),
        ("a,b", "a"),
        ("node[01-03,7]", "node01"),
        ("c[009-011]x,b", "c009x"),
        ("r[1-2]n[3,5]", "r1n3"),
        ("a[7,9],b", "a7"),
        ("", ""),
    ],
)
def test_first_host_of_a_nodelist(short: str, first: str) -> None:
    assert first_node(short) == first


# ---- where they meet ----------------------------------------------------------------------------------------------------------


def identity_of(environ: dict[str, str]) -> Identity:
    identity = identify(environ, "h")
    assert identity is not None
    return identity


def test_all_ranks_of_torchrun_work_out_the_same_meeting_and_rank_0_hosts() -> None:
    meetings = []
    for rank in range(8):
        environ = {**TORCHRUN, **TOKEN, "RANK": str(rank)}
        meetings.append(meet(identity_of(environ), Settings(), environ))
    assert {(m.host, m.ports, m.token) for m in meetings} == {("node0", (29501, 29502, 29503), "secret")}
    assert [m.hosted for m in meetings] == [True] + [False] * 7


def test_master_port_at_the_end_of_the_range_stays_a_port() -> None:
    environ = {**TORCHRUN, **TOKEN, "MASTER_PORT": "65534"}
    assert meet(identity_of(environ), Settings(), environ).ports == (65535, 1024, 1025)


def test_slurm_meets_on_its_first_host_at_a_port_by_the_jobs_number() -> None:
    task = {**SLURM, **TOKEN}
    first = {**task, "SLURM_PROCID": "0", "SLURM_NODEID": "0", "SLURM_LOCALID": "0"}
    one, same = (meet(identity_of(environ), Settings(), environ) for environ in (first, task))
    other = meet(identity_of(task), Settings(), {**task, "SLURM_JOB_ID": "100"})
    assert one.host == "gpu07" and one.hosted and not same.hosted
    assert one.ports == same.ports != other.ports
    assert all(20000 <= port < 32768 for port in one.ports)


def test_hub_is_on_the_first_host_even_where_rank_0_is_not() -> None:
    # srun --distribution=arbitrary with node2, node2, node1 in the host file: ranks 0 and 1 on the second host
    spread = {**SRUN_STEP, **TOKEN, "SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_TASKS_PER_NODE": "1,2"}
    hosted = []
    for rank, node, local in (("0", "1", "0"), ("1", "1", "1"), ("2", "0", "0")):
        environ = {**spread, "SLURM_PROCID": rank, "SLURM_NODEID": node, "SLURM_LOCALID": local}
        meeting = meet(identity_of(environ), Settings(), environ)
        assert meeting.host == "gpu1"
        hosted.append(meeting.hosted)
    assert hosted == [False, False, True]


def test_mpi_over_several_hosts_needs_an_endpoint() -> None:
    with pytest.raises(UsageError, match=r"MASTER_ADDR: got nothing, expected the host of rank 0.*--endpoint HOST:PORT"):
        meet(identity_of(OPEN_MPI), Settings(), OPEN_MPI)
    meeting = meet(identity_of(OPEN_MPI), Settings(endpoint="a:5000", token="secret"), OPEN_MPI)
    assert (meeting.host, meeting.ports) == ("a", (5000,))
    here = {**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}
    assert meet(identity_of(here), Settings(), here).host == "127.0.0.1"


@pytest.mark.parametrize("endpoint", ["host", "host:", ":5", "host:0", "host:70000", "fd00::1:5x", "a:b:c", "host:port"])
def test_endpoint_that_is_none_is_refused(endpoint: str) -> None:
    with pytest.raises(UsageError, match=r"--endpoint: got .*, expected HOST:PORT, such as node1:29400 or \[fd00::1\]:29400"):
        split_endpoint(endpoint)


def test_endpoint_is_host_and_port() -> None:
    assert split_endpoint("node1:29400") == ("node1", 29400)
    assert split_endpoint("[fd00::1]:29400") == ("fd00::1", 29400)


def test_only_a_name_of_this_host_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    assert is_here("localhost") and is_here("127.0.0.1") and is_here(socket.gethostname())
    assert not is_here("no-such-host.invalid")
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(2, 1, 6, "", ("127.0.1.1", 0))])
    assert not is_here("another-node")  # as /etc/hosts has it on many a host, for a name that is not its own
