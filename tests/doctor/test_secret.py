"""The job's secret: given, made by the launcher, shown to be pasted, or missing, where only ranks of one host meet."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import torch.distributed as dist

from numscope.doctor.budget import Deadline
from numscope.doctor.launcher import _to_paste
from numscope.doctor.meet.hub import Hub
from numscope.doctor.meet.identity import identify
from numscope.doctor.meet.listener import PeerListener
from numscope.doctor.meet.meeting_point import MeetingPoint, meet, meet_at_endpoint
from numscope.doctor.meet.secret import NoSecret, read_secret, shared
from numscope.doctor.records import Settings
from numscope.records.errors import UsageError
from tests.doctor import netns
from tests.doctor.fleet import BRISK, asked, environment, free_port
from tests.doctor.test_control_identity import OPEN_MPI, SLURM, TORCHRUN
from tests.doctor.test_control_launch import BRISKLY, DOCTOR, OWN_PROCESSES, started

ON_ONE_HOST = {"LOCAL_WORLD_SIZE": "8", "GROUP_WORLD_SIZE": "1"}


def meeting_of(environ: Mapping[str, str], **settings: str) -> MeetingPoint:
    identity = identify(environ, "h")
    assert identity is not None
    return meet(identity, Settings(**settings), environ)  # type: ignore[arg-type]


@pytest.mark.parametrize("environ", [TORCHRUN, SLURM, {**OPEN_MPI, "MASTER_ADDR": "node0"}])
def test_secret_is_given_by_the_environment_or_a_file_and_the_file_counts_more(environ: dict[str, str]) -> None:
    given = {**environ, "NUMSCOPE_DOCTOR_TOKEN": " of the environment\n"}
    assert meeting_of(given).token == "of the environment"
    assert meeting_of(given, token="of a file").token == "of a file"
    assert not meeting_of(given).local


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        (TORCHRUN, "Set it to the same random words on all hosts"),
        (SLURM, "Use NUMSCOPE_DOCTOR_TOKEN=$(openssl rand -hex 32) srun numscope doctor."),
        ({**OPEN_MPI, "MASTER_ADDR": "node0"}, "mpirun -x NUMSCOPE_DOCTOR_TOKEN numscope doctor."),
    ],
)
def test_ranks_of_several_hosts_need_a_secret(environ: dict[str, str], line: str) -> None:
    with pytest.raises(NoSecret, match=r"^NUMSCOPE_DOCTOR_TOKEN: got nothing, expected a secret that all ranks hold; ") as raised:
        meeting_of(environ)
    assert line in str(raised.value) and raised.value.exit_status == 2


@pytest.mark.parametrize(
    "environ",
    [
        {**TORCHRUN, **ON_ONE_HOST},
        {**TORCHRUN, "MASTER_ADDR": "localhost"},
        {**SLURM, "SLURM_JOB_NODELIST": "gpu07", "SLURM_TASKS_PER_NODE": "4"},
    ],
)
def test_without_a_secret_only_loopback_is_bound(environ: dict[str, str]) -> None:
    meeting = meeting_of(environ)
    assert meeting.local and meeting.host in ("127.0.0.1", "localhost")
    hub = Hub(MeetingPoint(meeting.host, (0,), meeting.token, True, "a test", meeting.local), BRISK, 2)
    try:
        assert accepts("127.0.0.1", hub.port) and not accepts("127.0.0.2", hub.port)
    finally:
        hub.close()


def accepts(address: str, port: int) -> bool:
    """Whether something listens there. All of 127.0.0.0/8 is this host, so 127.0.0.2 stands for an address that others reach."""
    with socket.socket() as asking:
        asking.settimeout(5)
        return asking.connect_ex((address, port)) == 0


def test_a_rank_opens_no_other_address_than_its_meeting_does() -> None:
    for host, elsewhere in (("127.0.0.1", False), ("", True)):
        listener = PeerListener(Settings(token="mine"), 0, host)
        try:
            assert accepts("127.0.0.1", listener.port)
            assert accepts("127.0.0.2", listener.port) is elsewhere
        finally:
            listener.close()


def test_mpirun_makes_a_secret_for_each_job() -> None:
    key = "5fbd0d3c8e4195f1-80f964226d1575ea"
    environ = {**OPEN_MPI, "MASTER_ADDR": "node0", "OMPI_MCA_orte_precondition_transports": key}
    assert meeting_of(environ).token == key
    with pytest.raises(NoSecret):  # SLURM sets that variable too, to the job's number
        meeting_of({**SLURM, "OMPI_MCA_orte_precondition_transports": key})


# ---- torchrun's store --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("libuv", [False, True])
def test_ranks_of_torchrun_share_a_secret_in_its_store_until_the_last_has_it(libuv: bool) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=5), use_libuv=libuv)
    secrets = [shared("127.0.0.1", store.port, "job/0", 3, Deadline(5)) for _ in range(3)]
    assert len(set(secrets)) == 1 and re.fullmatch("[0-9a-f]{64}", secrets[0])
    assert shared("127.0.0.1", store.port, "job/1", 3, Deadline(5)) not in secrets
    assert not store.check(["job/0"])


def test_secret_of_torchruns_store_is_the_same_on_all_ranks_of_one_attempt() -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=5))
    under = {**TORCHRUN, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    first, again = ([meeting_of({**under, "TORCHELASTIC_RESTART_COUNT": count, "RANK": r}).token for r in "01"] for count in "01")
    assert first[0] == first[1] != again[0] == again[1]


@pytest.mark.parametrize("words", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff" * 8])
def test_what_is_not_torchruns_store_is_an_error_and_no_secret(words: bytes) -> None:
    from tests.doctor.test_control_reach import talker

    with talker(words) as port, pytest.raises(OSError):
        shared("127.0.0.1", port, "job", 2, Deadline(2))


def test_store_that_is_out_of_reach_ends_rank_0_and_has_the_others_look_for_the_hub() -> None:
    under = {**TORCHRUN, "MASTER_ADDR": "node0.invalid", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    with pytest.raises(NoSecret, match=r"got nothing, and torchrun's store at MASTER_ADDR=node0.invalid can't be used: "):
        meeting_of({**under, "RANK": "0", "LOCAL_RANK": "0"})
    one, other = meeting_of(under), meeting_of(under)
    assert one.host == "node0.invalid" and one.token != other.token  # which no hub has: the way there is what can be learned


# ---- a file ------------------------------------------------------------------------------------------------------------------


def test_secret_file_is_one_that_only_its_owner_reads(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("correct horse battery staple\n")
    for mode in (0o644, 0o640, 0o604, 0o622):
        path.chmod(mode)
        with pytest.raises(ValueError, match=f"its mode is {mode:o}. Use chmod 600 on it"):
            read_secret(str(path))
    path.chmod(0o600)
    assert read_secret(str(path)) == "correct horse battery staple"
    for bad in ("", " \n", "two\nlines", "\x1b[2J", "x" * 5000):
        path.write_text(bad)
        with pytest.raises(ValueError, match="one line of printable text"):
            read_secret(str(path))


def test_secret_file_that_others_may_read_is_refused_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("secret")
    path.chmod(0o644)
    done = subprocess.run([*DOCTOR, *asked(token_file=str(path))], env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert "--settings: got" in done.stderr and "expected a file that only you can read, but its mode is 644." in done.stderr


# ---- a line to paste ---------------------------------------------------------------------------------------------------------


def test_line_to_paste_has_the_secret_the_real_hosts_name_and_the_same_options() -> None:
    settings = Settings(endpoint="0.0.0.0:29400", quick=True, file="a b.yaml", node_rank=0, ifname="eth 0")
    meeting = meet_at_endpoint(settings, {})
    explanation, line = _to_paste(meeting, settings, 3, 8)
    assert explanation == "numscope: on each of the 2 other nodes, paste"
    variable, *command = shlex.split(line)
    assert variable == f"NUMSCOPE_DOCTOR_TOKEN={meeting.token}" and len(meeting.token) == 64
    assert command[command.index("doctor") :] == [
        *("doctor", "--nnodes", "3", "--nproc", "8", "--endpoint", f"{socket.gethostname()}:29400"),
        *("--quick", "--ifname", "eth 0", "--settings", "a b.yaml"),
    ]


def test_each_job_has_another_secret() -> None:
    settings = Settings(endpoint=f"{socket.gethostname()}:29400", node_rank=0)
    assert meet_at_endpoint(settings, {}).token != meet_at_endpoint(settings, {}).token
    with pytest.raises(UsageError, match="Paste the line that numscope doctor printed on the endpoint's host"):
        meet_at_endpoint(replace(settings, node_rank=1), {})


@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is this host on Linux")
def test_pasted_line_joins_and_a_node_without_the_secret_does_not() -> None:
    command = [*DOCTOR, *BRISKLY, "--nnodes", "2", "--nproc", "1", "--endpoint", f"0.0.0.0:{(port := free_port())}"]
    with started(command) as one:
        assert one.stderr is not None
        assert one.stderr.readline() == "numscope: on the other node, paste\n"
        line = one.stderr.readline()
        refused = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60)
        assert refused.returncode == 2 and "Paste the line" in refused.stderr, refused
        words = line.replace(f"{socket.gethostname()}:{port}", f"127.0.0.2:{port}").split()
        python = words.index("doctor")
        pasted = {**environment(), **dict([words[0].split("=", 1)])}
        other = subprocess.run([*DOCTOR, *words[python + 1 :]], env=pasted, capture_output=True, text=True, timeout=90)
        out, err = one.communicate(timeout=90)
    assert (one.returncode, other.returncode) == (0, 0), (out, err, other)
    assert "[" in other.stdout and "is OK" in other.stdout and "is OK" in out
    token = words[0].split("=", 1)[1]
    assert token not in out + err + other.stdout + other.stderr


@pytest.mark.parametrize(("endpoint", "local"), [("node0:29400", False), ("localhost:29400", True), ("", True)])
def test_ranks_on_the_hubs_host_are_open_to_other_hosts_where_the_hub_is(endpoint: str, local: bool) -> None:
    """They reach the hub on loopback in any case."""
    launched = {"NUMSCOPE_DOCTOR_ENDPOINT": "127.0.0.1:29400", "NUMSCOPE_DOCTOR_TOKEN": "secret", "NUMSCOPE_DOCTOR_LAUNCHER": "nnodes"}
    assert meeting_of({**TORCHRUN, **launched}, endpoint=endpoint).local is local


@pytest.mark.skipif(bool(netns.missing()), reason=netns.missing() or "hosts can be made")
def test_pasted_line_works_on_another_host() -> None:
    with netns.Network(2) as network:
        words = [*BRISKLY, "--nnodes", "2", "--nproc", "1", "--endpoint", f"{network.hosts[0].name}:29400"]
        one = network.start(network.hosts[0], *OWN_PROCESSES, *words, environment=environment())
        assert one.stderr is not None and "on the other node, paste" in one.stderr.readline()
        variable, _, rest = one.stderr.readline().strip().partition(" ")
        pasted = {**environment(), **dict([variable.split("=", 1)])}
        other = network.start(network.hosts[1], *OWN_PROCESSES, *shlex.split(rest.partition(" doctor ")[2]), environment=pasted)
        ends = [process.communicate(timeout=90) for process in (one, other)]
    assert (one.returncode, other.returncode) == (0, 0), ends


def test_under_torchrun_the_ranks_prove_to_hold_the_stores_secret(tmp_path: Path) -> None:
    script = tmp_path / "spy.py"
    script.write_text(
        "import os, sys\n"
        "from numscope.doctor.meet import wire\n"
        "begin = wire.authenticate\n"
        "def spy(connection, token, deadline):\n"
        "    print('proves', token, flush=True)\n"
        "    begin(connection, token, deadline)\n"
        "wire.authenticate = spy\n"
        "from numscope.cli.command import main\n"
        "sys.argv = ['numscope', 'doctor', *sys.argv[1:]]\n"
        "main()\n"
    )
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", f"--master-port={free_port()}"]
    seen = []
    for _ in range(2):
        with started([*torchrun, str(script), *BRISKLY]) as process:
            out, err = process.communicate(timeout=90)
        assert process.returncode == 0, (out, err)
        tokens = set(re.findall(r"proves ([0-9a-f]{64})", out))
        assert len(tokens) == 1, out
        seen.append(tokens.pop())
    assert seen[0] != seen[1]
