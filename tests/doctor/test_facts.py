"""Facts of this host: all there, none that is secret, none that blocks."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numscope.doctor.budget import Deadline
from numscope.doctor.meet.sockets import is_loopback
from numscope.doctor.phases import facts
from numscope.doctor.phases.facts import gpus, parse


def test_this_hosts_facts_are_json_and_complete() -> None:
    data = facts.gather({"NCCL_DEBUG": "INFO", "PATH": os.environ["PATH"]}, Deadline(10))
    assert json.loads(json.dumps(data)) == data
    assert data["errors"] == {}
    assert data["hostname"] == socket.gethostname()
    assert data["environment"] == {"NCCL_DEBUG": "INFO"}
    assert data["versions"]["torch"]
    assert "127.0.0.1" in [address for each in data["interfaces"].values() for address in each["addresses"]]
    assert data["gpus"]["status"] in ("ok", "none", "failed")


def test_gathering_facts_imports_no_torch() -> None:
    code = (
        "import os, sys; from numscope.doctor.phases import facts; from numscope.doctor.budget import Deadline; "
        "facts.gather(os.environ, Deadline(10)); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_fact_that_fails_is_told_and_the_others_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise OSError("no such thing")

    monkeypatch.setattr(facts, "_shm", broken)
    data = facts.gather({}, Deadline(10))
    assert data["errors"] == {"shm": "OSError: no such thing"}
    assert "limits" in data


@pytest.mark.parametrize(
    "name", ["NCCL_TOKEN", "TORCH_API_KEY", "TORCHELASTIC_SECRET", "GLOO_PASSWORD", "UCX_CREDENTIALS", "FI_AUTH", "NCCL_DB_PW"]
)
def test_secret_values_are_not_told(name: str) -> None:
    assert facts.environment({name: "hush", "NCCL_DEBUG": "INFO", "AWS_SECRET": "x"}) == {"NCCL_DEBUG": "INFO"}


def test_login_in_a_value_is_not_told_and_long_values_are_cut() -> None:
    told = facts.environment({"TORCH_HOME": "s3://ann:hush@store/x", "NCCL_TOPO": "x" * 1234})
    assert told["TORCH_HOME"] == "s3://***@store/x"
    assert told["NCCL_TOPO"] == "x" * 200 + "… (1,234 characters)"


@given(st.dictionaries(st.text(max_size=12).map(lambda word: f"NCCL_{word}"), st.text(max_size=300)))
def test_any_environment_is_told_as_json_and_in_limits(environ: dict[str, str]) -> None:
    told = facts.environment(environ)
    assert set(told) == {name for name in environ if not facts._SECRET.search(name)}
    assert len(json.dumps(told)) < 4000 + 3000 * len(environ)
    json.dumps(told).encode()


def test_name_that_resolves_to_loopback_is_recognized() -> None:
    told = facts.resolve("localhost", Deadline(5))
    assert told["loopback"]
    assert told["error"] == ""


def test_name_that_does_not_resolve_says_so() -> None:
    told = facts.resolve("no-such-host.invalid", Deadline(20))
    assert told["addresses"] == []
    assert told["error"]


def test_resolver_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(1) or [])
    assert facts.resolve("slow", Deadline(0.05))["error"] == "no answer from the resolver within 0.1 s"


@pytest.mark.parametrize(
    ("address", "loopback"), [("127.0.1.1", True), ("::1", True), ("::ffff:127.0.0.1", True), ("10.0.0.1", False), ("odd", False)]
)
def test_loopback_addresses(address: str, loopback: bool) -> None:
    assert is_loopback(address) is loopback


def test_infiniband_devices_are_read_port_by_port(tmp_path: Path) -> None:
    port = tmp_path / "mlx5_0" / "ports" / "1"
    port.mkdir(parents=True)
    for name, value in (("state", "4: ACTIVE"), ("rate", "400 Gb/sec (4X NDR)"), ("link_layer", "InfiniBand")):
        (port / name).write_text(f"{value}\n")
    assert facts.infiniband(tmp_path) == {
        "mlx5_0:1": {"port": "1", "state": "4: ACTIVE", "rate": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand"}
    }


# ---- GPUs -----------------------------------------------------------------------------------------------------------------------


def test_gpus_are_read_from_nvidia_smi_lines() -> None:
    text = "0, NVIDIA H200, GPU-1f0c, 143771, 570.86.15\nWARNING: infoROM is corrupted\n1, NVIDIA H200, GPU-2a, [N/A], 570.86.15\n"
    devices, driver = parse(text)
    assert driver == "570.86.15"
    assert devices == [
        {"index": 0, "name": "NVIDIA H200", "uuid": "GPU-1f0c", "memory_bytes": 143771 << 20},
        {"index": 1, "name": "NVIDIA H200", "uuid": "GPU-2a", "memory_bytes": 0},
    ]


def test_no_nvidia_smi_means_no_gpus() -> None:
    assert gpus({"PATH": ""}, Deadline(1)) == {"status": "none", "error": "", "devices": []}


def answer_of(folder: Path, script: str, seconds: float = 5.0) -> dict[str, object]:
    """The GPUs by an nvidia-smi that runs a shell script."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return gpus({**os.environ, "PATH": os.pathsep.join((str(folder), os.environ["PATH"]))}, Deadline(seconds))


def test_query_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    assert answer_of(tmp_path, f"sleep 60 & echo $! > {pid}; wait", 1.0)["status"] == "timeout"
    limit = Deadline(5)
    while not limit.over:
        try:
            if Path(f"/proc/{int(pid.read_text())}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                break
        except FileNotFoundError:
            break
        time.sleep(0.02)
    assert not limit.over


def test_query_that_fails_says_why(tmp_path: Path) -> None:
    answer = answer_of(tmp_path, "echo Failed to initialize NVML: Driver/library version mismatch; exit 18")
    assert answer["status"] == "failed"
    assert answer["error"] == "nvidia-smi ended with 18: Failed to initialize NVML: Driver/library version mismatch"
