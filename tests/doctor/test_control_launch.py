"""The doctor's own launcher, torchrun, signals: each as a user would start it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.doctor.fleet import OVERHEAD_S, asked, environment, free_port
from tests.warm import COLD

DOCTOR = [sys.executable, "-m", "numscope", "doctor"]
OWN_PROCESSES = [COLD, *DOCTOR[1:]]  # for tests that look for the ranks among the launcher's children
BRISK = {"phases": [3], "deadline_s": 60, "timeout_scale": 0.5}
BRISKLY = ["--quick", *asked(**BRISK)]


@contextlib.contextmanager
def started(command: list[str], after: int = 0) -> Iterator[subprocess.Popen[str]]:
    """A command whose whole session is gone afterwards.

    Args:
        after: a port; the command starts when something listens there.
    """
    for _ in range(500 if after else 0):
        with socket.socket() as asking:
            if asking.connect_ex(("127.0.0.1", after)) == 0:
                break
        time.sleep(0.02)
    process = subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def ranks_of(launcher: int, count: int) -> dict[int, int]:
    """Process numbers by rank, of the ranks that a launcher has started."""
    for _ in range(3000):
        found = {}
        for child in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
            with contextlib.suppress(OSError, KeyError):
                environ = dict(word.partition("=")[::2] for word in Path(f"/proc/{child}/environ").read_text().split("\0"))
                found[int(environ["RANK"])] = int(child)
        if len(found) == count:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{launcher} has not started {count} ranks")


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_alone_it_starts_ranks_of_its_own_and_writes_json_beside_the_report(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    unhurried = ["--quick", *asked(**{**BRISK, "timeout_scale": 2})]  # these are the first processes of all
    with started([*DOCTOR, *unhurried, "--nproc", "3", "--json", str(path)]) as process:
        out, err = process.communicate(timeout=90)
    assert process.returncode == 0, (out, err)
    assert sorted(line.rpartition(":")[2] for line in out.splitlines() if line.endswith("is OK")) == ["0] is OK", "1] is OK", "2] is OK"]
    report = json.loads(path.read_text())
    assert (report["exit_code"], report["ok"], report["came"]) == (0, [0, 1, 2], 3)


linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@linux
@pytest.mark.parametrize(
    ("number", "finding"), [(signal.SIGKILL, ("rank-died", "rank-missing")), (signal.SIGSTOP, ("rank-silent", "rank-missing"))]
)
def test_launcher_names_a_rank_that_is_gone_and_ends_what_is_left(number: signal.Signals, finding: tuple[str, ...]) -> None:
    with started([*OWN_PROCESSES, *BRISKLY, "--nproc", "3"]) as process:
        pids = ranks_of(process.pid, 3)
        os.kill(pids[1], number)
        started_at = time.monotonic()
        out, err = process.communicate(timeout=90)
        assert time.monotonic() - started_at < 8.0 + OVERHEAD_S
    assert process.returncode == 1, (out, err)
    assert "Rank 1 " in out
    assert any(each in out for each in finding)
    assert not any(runs(pid) for pid in pids.values())


@linux
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_launcher_and_ranks_as_incomplete(number: signal.Signals) -> None:
    with started([*OWN_PROCESSES, *BRISKLY, "--nproc", "2"]) as process:
        pids = ranks_of(process.pid, 2)
        process.send_signal(number)
        started_at = time.monotonic()
        out, err = process.communicate(timeout=90)
        assert time.monotonic() - started_at < OVERHEAD_S
    assert process.returncode == 5, (out, err)
    assert not any(runs(pid) for pid in pids.values())


@linux
def test_ranks_end_when_their_launcher_is_killed() -> None:
    with started([*OWN_PROCESSES, *BRISKLY, "--nproc", "2"]) as process:
        pids = ranks_of(process.pid, 2)
        process.kill()
        process.wait()
        for _ in range(300):
            left = [pid for pid in pids.values() if runs(pid)]
            if not left:
                break
            time.sleep(0.02)
        assert not left


def node(number: int | None, port: int) -> list[str]:
    settings = BRISK if number is None else {**BRISK, "node_rank": number}
    return [*DOCTOR, "--quick", *asked(**settings), "--nnodes", "2", "--nproc", "2", "--endpoint", f"localhost:{port}"]


@pytest.mark.parametrize("numbers", [(None, None), (0, 1)])
def test_nodes_meet_at_an_endpoint_without_torchrun(numbers: tuple[int | None, int | None]) -> None:
    port = free_port()
    first, second = (node(number, port) for number in numbers)
    with started(first) as one, started(second, after=port) as other:
        outs = [process.communicate(timeout=90) for process in (one, other)]
        assert [one.returncode, other.returncode] == [0, 0], outs
    lines = [line for out, _ in outs for line in out.splitlines() if line.endswith("is OK")]
    assert sorted(line.rpartition(":")[2][0] for line in lines) == ["0", "1", "2", "3"]


def test_second_node_with_one_number_is_turned_away_and_all_are_told() -> None:
    port = free_port()
    commands = [node(number, port) for number in (0, 1, 1)]
    for command in commands:
        command[command.index("--nnodes") + 1] = "3"  # so that the others wait for the third, and for it alone
    with started(commands[0]) as zero, started(commands[1], port) as one, started(commands[2], port) as again:
        outs = [process.communicate(timeout=90)[0] for process in (zero, one, again)]
    assert (zero.returncode, one.returncode, again.returncode) == (1, 1, 1), outs
    assert "rank-duplicate" in outs[0]
    assert sum("both claim node number 1" in out for out in outs) >= 2, outs


def test_nodes_told_different_numbers_of_nodes_say_so() -> None:
    port = free_port()
    with started(node(0, port)) as zero:
        command = node(1, port)
        command[command.index("--nnodes") + 1] = "3"
        with started(command) as one:
            outs = [process.communicate(timeout=90) for process in (zero, one)]
    assert (zero.returncode, one.returncode) == (1, 1), outs
    assert all("world-size-differs" in out for out, _ in outs), outs
    assert "--nnodes 3" in outs[0][0]


def test_node_that_never_comes_is_named() -> None:
    with started(node(0, free_port())) as zero:
        out, _ = zero.communicate(timeout=90)
    assert zero.returncode == 1
    assert "Ranks 2, 3 never joined: all of node number 1, counted from 0." in out


def test_under_torchrun_rank_numbers_are_torchruns() -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", f"--master-port={free_port()}"]
    with started([*torchrun, "-m", "numscope", "doctor", *BRISKLY]) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, (out, err)
    assert out.count("is OK") == 2


@linux
def test_torchruns_own_sigterm_comes_too_late_to_hide_who_died() -> None:
    """torchrun ends all ranks when one has died; the verdict is out before."""
    # Rank 1 dies when it has joined; torchrun finds that after a tenth of a second.
    script = (
        "import os, signal, sys\n"
        "from numscope.doctor.agent import Agent\n"
        "arrived = Agent._finish_arrival\n"
        "Agent._finish_arrival = lambda self: os.kill(os.getpid(), 9) if os.environ['RANK'] == '1' else arrived(self)\n"
        "from numscope.cli.command import main\n"
        "sys.argv = ['numscope', 'doctor', *sys.argv[1:]]\n"
        "main()\n"
    )
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3", f"--master-port={free_port()}", "--no-python"]
    with started([*torchrun, sys.executable, "-c", script, *BRISKLY]) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 1, (out, err)
    assert "Rank 1 " in out and "rank-died" in out


def test_json_is_alone_on_standard_output_and_names_no_host_if_redacted() -> None:
    with started([*DOCTOR, *BRISKLY, "--nproc", "2", "--redact", "--json", "-"]) as process:
        out, err = process.communicate(timeout=90)
    report = json.loads(out)
    assert (report["exit_code"], report["ok"], report["came"]) == (0, [0, 1], 2)
    assert "[node0:0] is OK" in err and "[node0:1] is OK" in err
    assert f'"{socket.gethostname()}"' not in out + err


@pytest.mark.skipif(torch.cuda.is_available(), reason="NCCL can be had here")
def test_nccl_where_it_cannot_be_had_is_a_fault_with_a_name() -> None:
    with started([*DOCTOR, "--quick", "--nproc", "2", *asked(phases=["backend"], timeout_scale=5, backend="nccl")]) as process:
        out, err = process.communicate(timeout=90)
    assert process.returncode == 1, (out, err)
    assert "backend-unavailable, certain" in out and "without backend: nccl in its --settings" in out


def test_report_serves_as_the_baseline_of_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "good.json"
    settings = {"phases": ["compute"], "timeout_scale": 10}
    compute = [*DOCTOR, "--nproc", "1"]
    with started([*compute, *asked(**settings), "--json", str(path)]) as process:
        out, err = process.communicate(timeout=90)
    report = json.loads(path.read_text())
    assert process.returncode == 0, (out, err)
    assert {name.partition(".")[0] for name in report["measured"]} == {"gemm", "copy"}
    fast = {name: 100 * value for name, value in report["measured"].items()}  # so that no load of this machine decides
    path.write_text(json.dumps(report | {"measured": fast}))
    with started([*compute, *asked(**settings, strict=True), "--baseline", str(path)]) as process:
        out, err = process.communicate(timeout=90)
    assert process.returncode == 4, (out, err)
    assert "slower-than-baseline" in out
