"""Runs whose log dir is in another storage, written by real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import numscope
from numscope.records.errors import UsageError
from tests.storage.served import BUCKET, Store, environment, started, until
from tests.storage.served import numscope as command

TRAIN = """
    import os, sys, time, torch
    from torch import nn
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(int(os.environ.get("STEPS", "6"))):
        x = torch.randn(4, 8)
        if step == int(os.environ.get("BAD", "-1")):
            x[0, 0] = float("nan")
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if "WAIT" in os.environ:
            print(step, flush=True)
            sys.stdin.readline()
"""
CONFIG = (
    "all: {enabled: true, layers: {layer_types: [Linear]}, statistics: {enabled: true, stats: [max, mean], tensors: [activation, weight]}}"
)


@pytest.fixture
def script(tmp_path: Path) -> list[str]:
    (tmp_path / "train.py").write_text(textwrap.dedent(TRAIN))
    (tmp_path / "stats.yaml").write_text(CONFIG)
    return ["--config", str(tmp_path / "stats.yaml"), str(tmp_path / "train.py")]


def test_a_run_in_s3_holds_what_a_folder_holds(store: Store, script: list[str], tmp_path: Path) -> None:
    remote = command(store, "run", "--log-dir", store.address("a"), *script, env={"BAD": "4"})
    local = command(store, "run", "--log-dir", str(tmp_path / "a"), *script, env={"BAD": "4"})
    assert remote.returncode == local.returncode == 3, remote.stderr
    assert f"numscope report {store.address('a')}" in remote.stderr
    here = {path.relative_to(tmp_path / "a").as_posix() for path in (tmp_path / "a").rglob("*") if path.is_file()}
    left_out = {"report.html", ".report-1", "debug_statistics_logs/globalrank-0.log", "ranks/rank0-1.ended"}
    assert store.names("a") == here - left_out
    assert here >= {"findings-rank0.json", "run.json", "ranks/rank0-1.json", "statistics/rank0-1-000000.parquet"}
    sql = "SELECT * EXCLUDE (time) FROM stats ORDER BY step, ord"
    assert numscope.load(store.address("a"), sql).equals(numscope.load(tmp_path / "a", sql))
    findings = json.loads(store.fs.cat(f"{BUCKET}/a/findings-rank0.json"))
    assert findings["meta"]["ended"] and len(findings["findings"]) == 1
    puts = [request.path for request in store.requests if request.method in ("PUT", "POST") and ".parquet" in request.path]
    assert puts == ["/runs/a/statistics/rank0-1-000000.parquet"]  # one PUT, and no upload in pieces


def test_a_restart_is_the_next_attempt(store: Store, script: list[str]) -> None:
    for _ in range(2):
        assert command(store, "run", "--log-dir", store.address("a"), *script).returncode == 0
    assert {"statistics/rank0-1-000000.parquet", "statistics/rank0-2-000000.parquet", "ranks/rank0-2.json"} <= store.names("a")
    run = json.loads(store.fs.cat(f"{BUCKET}/a/run.json"))
    assert [attempt["attempt"] for attempt in run["attempts"]] == [1, 2]
    assert set(numscope.load(store.address("a")).attempt) == {2}  # which ran all steps again


def test_ranks_write_to_one_run(store: Store, script: list[str]) -> None:
    ranks = [
        started(store, "run", "--log-dir", store.address("a"), *script, env={"RANK": str(rank), "WORLD_SIZE": "3"}) for rank in range(3)
    ]
    for process in ranks:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
    assert {f"statistics/rank{rank}-1-000000.parquet" for rank in range(3)} <= store.names("a")
    assert json.loads(store.fs.cat(f"{BUCKET}/a/run.json"))["attempts"][0]["world_size"] == 3


def test_two_processes_of_one_rank_take_two_attempts(store: Store, script: list[str]) -> None:
    both = [started(store, "run", "--log-dir", store.address("a"), *script) for _ in range(2)]
    for process in both:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
    assert {"statistics/rank0-1-000000.parquet", "statistics/rank0-2-000000.parquet"} <= store.names("a")


def test_a_killed_rank_loses_nothing_that_it_has_flushed(store: Store, script: list[str]) -> None:
    code = (
        "import sys; import numscope.sinks.parquet as p; from numscope.cli.command import main\n"
        "p.ParquetSink.__init__.__defaults__ = (0.0, 1 << 20)\n"  # a part a step
        "sys.argv[0] = 'numscope'; main()"
    )
    words = ["run", "--log-dir", store.address("a"), *script]
    env = environment({**store.environment, "WAIT": "1"})
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    for _ in range(3):
        process.stdout.readline()
        process.stdin.write("\n")
        process.stdin.flush()
    process.stdout.readline()  # the fourth step's optimizer has stepped
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    until(lambda: {f"statistics/rank0-1-{part:06d}.parquet" for part in range(3)} <= store.names("a"))
    assert set(numscope.load(store.address("a")).step) >= {0, 1, 2}


def test_a_storage_that_is_away_holds_nothing_up(store: Store, script: list[str]) -> None:
    process = started(store, "run", "--log-dir", store.address("a"), *script, env={"WAIT": "1"}, stdin=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    process.stdout.readline()
    until(lambda: "ranks/rank0-1.json" in store.names("a"))
    store.stop()
    for _ in range(6):  # trains on
        process.stdin.write("\n")
    process.stdin.flush()
    assert [process.stdout.readline() for _ in range(5)] == [f"{step}\n" for step in range(1, 6)]
    store.start()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0
    assert err.count("can't be written for now") <= 1
    assert set(numscope.load(store.address("a")).step) == set(range(6))


def test_a_storage_that_stays_away_is_said_with_what_it_lacks(store: Store, script: list[str]) -> None:
    from numscope.storage.shipping import Shipper

    store.stop()
    code = "import sys; from numscope.storage import shipping\nshipping.LAST_S = 1.0\nshipping.main(*sys.argv[1:])"
    folder = Path(script[1]).parent / "spool"
    (folder / "statistics").mkdir(parents=True)
    (folder / "statistics" / "rank0-1-000000.parquet").write_bytes(b"PAR1")
    shipped = subprocess.run(
        [sys.executable, "-c", code, str(folder), "0", str(os.getpid())],
        env=environment(store.environment), input=f"{store.address('a')}\n", capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "down" in json.loads(shipped.stdout)
    assert "can't be written for now" not in shipped.stderr  # whoever reads the answer says it
    assert f"{store.address('a')} lacks 1 file of rank 0" in shipped.stderr
    assert (folder / "statistics" / "rank0-1-000000.parquet").exists()
    store.start()
    shipper = Shipper(store.address("a"), str(folder), 0)
    shipper.send()
    assert "statistics/rank0-1-000000.parquet" in store.names("a")


def test_who_reads_stderr_is_not_held_up_by_a_storage_that_stays_away(store: Store, tmp_path: Path) -> None:
    store.stop()
    code = "import sys; from numscope.storage import shipping\nshipping.END_S, shipping.LAST_S = 0.5, 5.0\nshipping.main(*sys.argv[1:])"
    (tmp_path / "statistics").mkdir()
    (tmp_path / "statistics" / "rank0-1-000000.parquet").write_bytes(b"PAR1")
    command = [sys.executable, "-c", code, str(tmp_path), "0", str(os.getpid())]
    with subprocess.Popen(
        command, env=environment(store.environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as sender:
        _, said = sender.communicate(f"{store.address('a')}\n", timeout=120)  # until its stderr is closed
        log = tmp_path / ".sending.log"
        assert f"{store.address('a')} is still tried; what comes of it is told in {log}" in said and "lacks" not in said
        sender.wait(timeout=60)
    assert "lacks 1 file of rank 0" in log.read_text() and "lacks 1 file" not in said


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # a process that has ended
        return ""


@pytest.mark.skipif(sys.platform != "linux", reason="finds the sender by /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_sender_outlives_what_schedulers_send_to_all_processes(store: Store, script: list[str], tmp_path: Path, number: int) -> None:
    more = {"WAIT": "1", "TMPDIR": str(tmp_path)}
    process = started(store, "run", "--log-dir", store.address("a"), *script, env=more, stdin=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    process.stdout.readline()
    (sender,) = (int(path.parent.name) for path in Path("/proc").glob("[1-9]*/cmdline") if f"{tmp_path}/numscope-rank0-" in _text(path))
    until(lambda: "ranks/rank0-1.json" in store.names("a"))
    os.kill(sender, number)
    process.stdin.write("\n" * 6)
    process.stdin.flush()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    if number == signal.SIGKILL:
        assert "the process that sends files has failed: it ended with -9. What it has not sent is in " in err
    else:
        assert "failed" not in err and set(numscope.load(store.address("a")).step) == set(range(6))


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("s3://no-such-bucket/a", "expected a folder that can be written to: FileNotFoundError: The specified bucket does not exist"),
        ("nothing://x/a", "expected a kind of storage that fsspec knows, such as s3:// or gs://."),
        ("hdfs3x://x/a", "expected a kind of storage that fsspec knows"),
        ("memory://a", "expected a storage that stays"),
        ("ftp://me:s3cr3t@127.0.0.1:1/a", "got 'ftp://me:[hidden]@127.0.0.1:1/a', which could not be reached"),
    ],
)
def test_an_address_that_cannot_be_right_is_refused(store: Store, script: list[str], address: str, told: str) -> None:
    ended = command(store, "run", "--log-dir", address, *script)
    assert ended.returncode == 2
    assert told in ended.stderr and "s3cr3t" not in ended.stderr


def test_parts_that_were_merged_leave_the_storage(store: Store, tmp_path: Path) -> None:
    from numscope.storage.shipping import Shipper

    (tmp_path / "statistics").mkdir()
    shipper = Shipper(store.address("a"), str(tmp_path), 0)
    shipper.begin()
    for part in range(3):
        (tmp_path / "statistics" / f"rank0-1-{part:06d}.parquet").write_bytes(b"PAR1" * 3)
    shipper.send()
    for part in range(3):
        (tmp_path / "statistics" / f"rank0-1-{part:06d}.parquet").unlink()
    (tmp_path / "statistics" / "rank0-1-000000-000002.parquet").write_bytes(b"PAR1" * 9)
    (tmp_path / "statistics" / ".rank0-1-000003.parquet.tmp").write_bytes(b"half")
    store.requests.clear()
    shipper.send()
    shipper.send()
    assert {name for name in store.names("a") if name.startswith("statistics")} == {"statistics/rank0-1-000000-000002.parquet"}
    changed = [request.method for request in store.requests if request.method in ("PUT", "DELETE")]
    assert changed == ["PUT", *["DELETE"] * 3]  # at no time is a row missing


def test_parts_merged_while_they_are_listed_stay_until_the_merged_one_is_there(store: Store, tmp_path: Path) -> None:
    from numscope.storage.shipping import Shipper

    statistics = tmp_path / "statistics"
    statistics.mkdir()
    shipper = Shipper(store.address("a"), str(tmp_path), 0)
    (statistics / "rank0-1-000000.parquet").write_bytes(b"PAR1" * 3)
    shipper.send()
    (statistics / "rank0-1-000000.parquet").unlink()
    shipper.send()  # as if the merged part had come after the folder was listed
    (statistics / "rank0-1-000000-000001.parquet").write_bytes(b"PAR1" * 6)
    assert store.names("a") == {"statistics/rank0-1-000000.parquet"}
    shipper.send()
    assert store.names("a") == {"statistics/rank0-1-000000-000001.parquet"}


def test_other_storages_are_written_aside_and_renamed(tmp_path: Path) -> None:
    from numscope.storage.shipping import Shipper

    (tmp_path / "here" / "statistics").mkdir(parents=True)
    shipper = Shipper(f"file://{tmp_path}/there", str(tmp_path / "here"), 0)
    shipper.begin()
    (tmp_path / "here" / "statistics" / "rank0-1-000000.parquet").write_bytes(b"PAR1")
    renamed = []
    move = shipper.files.mv
    shipper.files.mv = lambda one, other: renamed.append((Path(one).name[0], Path(other).name)) or move(one, other)
    shipper.send()
    del shipper.files.mv
    assert renamed == [(".", "rank0-1-000000.parquet")]
    assert sorted(path.name for path in (tmp_path / "there" / "statistics").iterdir()) == ["rank0-1-000000.parquet"]


def test_a_path_of_an_address_is_refused() -> None:
    from numscope.storage.spool import spooled

    with pytest.raises(UsageError, match="got 's3:/runs/a', which a Path has made of an address"):
        spooled(str(Path("s3://runs/a")), 0)


def test_passwords_stay_out_of_a_run(store: Store, script: list[str], tmp_path: Path) -> None:
    ended = command(store, "run", "--log-dir", f"file://{tmp_path}/a", *script, f"ftp://me:s3cr3t@here{tmp_path}")
    assert ended.returncode == 0, ended.stderr
    written = (tmp_path / "a" / "run.json").read_text()
    assert "ftp://me:[hidden]@here" in written and "s3cr3t" not in written
