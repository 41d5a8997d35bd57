"""The words of ``numscope doctor``: what is refused, and how."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from numscope.cli import command
from numscope.cli import doctor as cli
from tests.doctor.fleet import asked, environment


def refusal(*words: str, **environ: str) -> str:
    command = [sys.executable, "-m", "numscope", "doctor", *words]
    ended = subprocess.run(command, env=environment(**environ), capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2, ended
    assert not ended.stdout
    return ended.stderr.strip()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--settings", "absent.yaml"], "numscope: --settings: got 'absent.yaml', expected a file that can be read. No such file"),
        (["--nproc", "0"], "numscope: --nproc: got '0', expected a whole number of at least 1."),
        (
            ["--baseline", "absent.json"],
            "numscope: --baseline: got 'absent.json', expected a file written by numscope doctor --json.",
        ),
        (["--json", "."], "numscope: --json: got '.', expected a file to write JSON to. It is a folder. To print JSON, "),
        (
            ["--nope"],
            "numscope: got '--nope', expected one of --baseline, --endpoint, --ifname, --json, --nnodes, --nproc, --quick, --redact, "
            "--settings.\n",
        ),
        (["--quik"], "numscope: got '--quik', expected one of --baseline, "),
        (["explian", "x"], "numscope: got 'explian', expected one of explain."),
    ],
)
def test_wrong_words_are_refused_with_what_is_expected(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["numscope", "doctor", *words])
    with pytest.raises(SystemExit) as raised:
        command.main()
    assert raised.value.code == 2
    assert capsys.readouterr().err.startswith(said)


def test_endpoint_that_no_node_would_use_is_refused_or_said_to_be_unused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal("--endpoint", "foo").startswith("numscope: --endpoint: got 'foo', expected HOST:PORT, such as ")
    monkeypatch.setattr(cli, "run_local", lambda *_: 7)
    monkeypatch.setattr(cli, "_end", sys.exit)
    with pytest.raises(SystemExit, match="7"):
        cli._examine({"endpoint": "node1:29500"}, "", {}, None, None)
    assert capsys.readouterr().err == (
        "numscope: --endpoint: not used, since only ranks of this node meet. Add --nnodes N to check several nodes.\n"
    )


def test_nodes_need_an_endpoint() -> None:
    assert refusal("--nnodes", "2").startswith("numscope: --endpoint: got nothing, expected HOST:PORT of one of the nodes")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"phases": ["linsk"]}, "phases: got ['linsk'], expected one of facts, rendezvous, compare, links, backend, pairs, collectives, "),
        ({"deadline_s": 3}, "deadline_s: got 3, "),
        ({"timeout_scale": "x"}, "timeout_scale: got 'x', "),
        ({"sizes": ["1M", "z"]}, "sizes: got ['1M', 'z'], expected a size from 8 bytes to 4G, such as 8, 1M or 64M"),
        ({"backend": "ncl"}, "backend: got 'ncl', "),
        ({"phase": [3]}, "phase: expected one of phases, deadline_s, timeout_scale, backend, sizes, strict, node_rank, token_file"),
    ],
)
def test_file_of_settings_is_refused_with_the_place(settings: dict[str, object], said: str) -> None:
    words = asked(**settings)
    assert refusal(*words).startswith(f"numscope: --settings: got {words[1]!r}, expected a file of settings. {said}")


def test_mistyped_setting_or_phase_suggests_the_nearest() -> None:
    assert refusal(*asked(phases=["linsk"])).endswith("Did you mean 'links'?")
    assert "Did you mean 'phases'?" in refusal(*asked(phase=[3]))


def test_settings_are_read_in_the_words_of_people() -> None:
    from numscope.doctor.records import ExamPhase
    from numscope.doctor.settings import read_settings

    _, path = asked(phases=["links", 5], sizes=[8, "1M"], deadline_s=30)
    assert read_settings(path) == {"phases": (ExamPhase.LINKS, ExamPhase.PAIRS), "sizes": (8, 1 << 20), "deadline_s": 30.0}


@pytest.mark.parametrize(("words", "rule"), [((), "--nnodes N beside it"), (("--nnodes", "2"), "0 to 1, since --nnodes is 2")])
def test_number_of_a_node_is_one_of_its_job(words: tuple[str, ...], rule: str) -> None:
    assert refusal(*words, *asked(node_rank=2)) == f"numscope: --settings: node_rank: got 2, expected {rule}."


def test_nproc_under_a_launcher_is_refused() -> None:
    said = refusal("--nproc", "2", RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
    assert "--nproc: got 2, but torchrun has started rank 0 of 1 already" in said


def test_contradicting_launchers_are_refused() -> None:
    assert "WORLD_SIZE: got nothing, but RANK=0" in refusal(RANK="0")


def test_batch_script_without_srun_is_refused() -> None:
    said = refusal(SLURM_JOB_ID="1", SLURM_PROCID="0", SLURM_NTASKS="4")
    assert "Use srun numscope doctor" in said


def test_baseline_that_is_no_report_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text(json.dumps([1]))
    assert "It does not contain a JSON object" in refusal("--baseline", str(tmp_path / "list.json"))
    (tmp_path / "text.json").write_text("nothing")
    assert "It is not JSON" in refusal("--baseline", str(tmp_path / "text.json"))
    for values in ({}, {"measured": 1}):
        (tmp_path / "other.json").write_text(json.dumps(values))
        assert 'It does not contain "measured"' in refusal("--baseline", str(tmp_path / "other.json"))
