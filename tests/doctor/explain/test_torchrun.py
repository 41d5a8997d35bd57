"""torchrun's output: samples that torch 2.13 wrote under gloo, and messages of other versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from numscope.doctor.explain import examine
from numscope.doctor.records import DoctorFinding

SAMPLES = Path(__file__).parent / "samples" / "torchrun"


def found(path: Path) -> dict[str, DoctorFinding]:
    return {one.id: one for one in examine([path]).findings}


def told(tmp_path: Path, *lines: str) -> dict[str, DoctorFinding]:
    (tmp_path / "out.log").write_text("\n".join(lines))
    return found(tmp_path / "out.log")


@pytest.mark.parametrize(
    ("sample", "id", "ranks", "words"),
    [
        ("sigkill", "rank-killed", (1,), "killed (SIGKILL), usually by the kernel"),
        ("sigsegv", "rank-crashed", (1,), "SIGSEGV"),
        ("raise", "rank-failed", (2,), "at /job/ex/raise.py:8 (<module>): ValueError: batch 17 has no labels"),
        ("gloo_timeout", "rank-behind", (1,), "Rank 0 waited 3 s in a gloo collective at /job/ex/gtimeout.py:7"),
        ("detail", "collective-mismatch", (0, 1), "rank 0 called ALLREDUCE of 4 Float at /job/ex/detail.py:5"),
        ("port", "port-in-use", (), "port 29512"),
        ("rdzv_conn", "rendezvous-unreachable", (), "localhost:29577"),
        ("rdzv_timeout", "rendezvous-timeout", (), "Which ones are missing is unknown"),
        ("never4", "rendezvous-timeout", (2,), "Rank 2 did not reach init_process_group"),
        ("gloo_if", "interface-missing", (), "nope0"),
    ],
)
def test_what_torch_wrote_is_explained_by_one_fault(sample: str, id: str, ranks: tuple[int, ...], words: str) -> None:
    findings = found(SAMPLES / f"{sample}.log")
    assert [one.id for one in findings.values() if one.severity == "fault"] == [id]
    assert findings[id].ranks == ranks
    assert words in findings[id].summary
    assert all(f"{sample}.log:" in line for line in findings[id].evidence)
    assert findings[id].remedy


def table(*rows: tuple[int, str, int, str], host: str = "node1") -> list[str]:
    """A table of failures: (rank, time, exit code, traceback), the root first."""

    def block(number: int, row: tuple[int, str, int, str]) -> list[str]:
        rank, time, code, text = row
        return [
            f"[{number}]:",
            f"  time      : 2026-06-06_{time}",
            f"  host      : {host}",
            f"  rank      : {rank} (local_rank: {rank})",
            f"  exitcode  : {code} (pid: {500 + rank})",
            "  error_file: <N/A>",
            f"  traceback : {text}",
        ]

    others = [line for number, row in enumerate(rows[1:], 1) for line in block(number, row)] or ["  <NO_OTHER_FAILURES>"]
    error = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"
    return [
        error,
        "=" * 60,
        "train.py FAILED",
        "-" * 60,
        "Failures:",
        *others,
        "-" * 60,
        "Root Cause (first observed failure):",
        *block(0, rows[0]),
        "=" * 60,
    ]


def test_of_two_nodes_the_earliest_failure_is_the_first(tmp_path: Path) -> None:
    (tmp_path / "node1.log").write_text("\n".join(table((0, "10:00:09", 1, "x"))))
    (tmp_path / "node2.log").write_text("\n".join(table((9, "10:00:05", -9, "Signal 9 (SIGKILL) received by PID 509"), host="node2")))
    one = next(one for one in examine([tmp_path]).findings)
    assert (one.id, one.ranks, one.hosts) == ("rank-killed", (9,), ("node2",))


def test_the_kernel_line_of_that_process_makes_it_certain(tmp_path: Path) -> None:
    killed = table((3, "10:00:05", -9, "Signal 9 (SIGKILL) received by PID 503"))
    findings = told(tmp_path, *killed, "[12345.6] Out of memory: Killed process 503 (python3) total-vm:1kB, anon-rss:2kB")
    assert findings["rank-killed"].confidence == "certain"
    assert findings["host-out-of-memory"].ranks == (3,)


def test_all_ended_by_sigterm_is_the_scheduler(tmp_path: Path) -> None:
    assert list(told(tmp_path, *table(*((rank, "10:00:05", -15, "Signal 15") for rank in range(4))))) == ["job-terminated"]


def test_an_exception_whose_process_then_aborts_is_the_fault(tmp_path: Path) -> None:
    """gloo's threads end a process by SIGABRT when an exception has ended its main thread."""
    own = [
        "[rank1]: Traceback (most recent call last):",
        '[rank1]:   File "/job/train.py", line 12, in <module>',
        "[rank1]: RuntimeError: no more batches",
    ]
    abort = table(
        (1, "10:00:05", -6, "Signal 6 (SIGABRT) received by PID 501"), (0, "10:00:05", -15, "Signal 15 (SIGTERM) received by PID 500")
    )
    findings = told(tmp_path, *own, "terminate called without an active exception", *abort)
    assert [one.id for one in findings.values() if one.severity == "fault"] == ["rank-failed"]
    assert (
        "Rank 1 on node1 was the first to fail at /job/train.py:12 (<module>): RuntimeError: no more batches"
        in findings["rank-failed"].summary
    )


def test_an_abort_by_the_watchdog_names_what_the_watchdog_saw(tmp_path: Path) -> None:
    from tests.doctor.explain.nccl_samples import watchdog

    lines = [line for rank in range(2) for line in watchdog(rank, 8, "BROADCAST" if rank else "ALLREDUCE", 64)]
    findings = told(
        tmp_path, *lines, *table((0, "10:00:05", -6, "Signal 6 (SIGABRT) received by PID 500"), (1, "10:00:05", -6, "Signal 6"))
    )
    assert findings["collective-mismatch"].severity == "fault"
    assert findings["rank-aborted"].severity == "note"


def test_exception_within_the_table_is_its_ranks(tmp_path: Path) -> None:
    error = "numscope.records.errors.NonFiniteError: nan in (model) loss at step 3, rank 0: aten.log at /job/ex/nan.py:10"
    text = ["Traceback (most recent call last):", '    File "/job/ex/nan.py", line 11, in <module>', "      loss.backward()", f"  {error}"]
    site = "/job/ex/nan.py:11 (<module>)"
    rows = ((0, "10:00:05", 3, "\n".join(text)), (1, "10:00:06", 3, "\n".join(text)))
    findings = told(tmp_path, *table(*rows), "OtherError: what follows is of no rank")
    assert findings.keys() == {"rank-failed"} and findings["rank-failed"].ranks == (0,)
    assert findings["rank-failed"].summary == f"Rank 0 on node1 was the first to fail at {site}: {error}; rank 1 followed"


def test_a_failure_without_a_traceback_could_not_be_told_and_says_how_to_get_one(tmp_path: Path) -> None:
    one = told(tmp_path, *table((1, "10:00:05", 1, "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html")))[
        "cause-unknown"
    ]
    assert one.confidence == "possible"
    assert any("--log-dir" in line for line in one.remedy)


def test_older_torchrun_without_a_table_is_read(tmp_path: Path) -> None:
    line = (
        "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 4 (pid: 899509) of binary: /usr/bin/python"
    )
    assert "local rank 4" in told(tmp_path, line)["rank-killed"].summary.lower()


@pytest.mark.parametrize(
    ("line", "id", "words"),
    [
        ("[W socket.cpp:426] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in "
         "use).", "port-in-use", "29500"),
        ("torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 1/3 clients "
         "joined.", "rendezvous-timeout", "Only 1 of 3"),
        ("[E socket.cpp:860] [c10d] The client socket has timed out after 60s while trying to connect to (node7, "
         "1234).", "rendezvous-unreachable", "node7:1234"),
        ("RuntimeError: Gloo connectFullMesh failed with [gloo/transport/tcp/pair.cc:144] no "
         "error", "gloo-connect-failed", "could not be reached"),
        ("RuntimeError: Gloo connectFullMesh failed with [pair.cc:152] timed out connecting: SO_ERROR: Connection refused, "
         "remote=[127.0.0.1]:4", "gloo-connect-failed", "loopback"),
        ("[2] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but "
         "store->get('0') got error: wait timeout after 600000ms, keys: "
         "/default_pg/0//cuda//0", "rendezvous-timeout", "Rank 0 did not reach"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "gpu-out-of-memory", "ran out of GPU memory"),
        ("NVRM: Xid (PCI:0000:44:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "gpu-xid", "79 on 0000:44:00"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=5.0. Some of the step tasks have been OOM "
         "Killed.", "host-out-of-memory", "ran out of memory"),
    ],
)  # fmt: skip
def test_a_message_is_explained(tmp_path: Path, line: str, id: str, words: str) -> None:
    assert words in told(tmp_path, line)[id].summary


def test_missing_ipv6_alone_is_harmless(tmp_path: Path) -> None:
    line = "[c10d] The {} network addresses of (node1, 5) cannot be retrieved (gai error: -2 - Name or service not known)."
    assert told(tmp_path, line.format("IPv6")) == {}
    assert told(tmp_path, line.format("IPv6"), line.format("IPv4"))["name-unresolved"].hosts == ("node1",)


def test_gloo_on_loopback_within_one_host_is_a_note(tmp_path: Path) -> None:
    line = "[rank1]:[W416 06:16:41.9 ProcessGroupGloo.cpp:715] Warning: Unable to resolve hostname to a (local) address."
    assert told(tmp_path, line)["name-resolves-to-loopback"].severity == "note"


def test_an_exception_of_its_own_comes_before_the_echoes_of_the_same_second(tmp_path: Path) -> None:
    lines = [
        "[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.3]:20874.",
        '[rank2]:   File "train.py", line 8, in <module>',
        "[rank2]: KeyError: 'labels'",
        *table((0, "10:00:05", 1, "x"), (2, "10:00:05", 1, "x")),
    ]
    one = told(tmp_path, *lines)["rank-failed"]
    assert one.ranks == (2,)
    assert "train.py:8" in one.summary
