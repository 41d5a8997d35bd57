"""Secrets never come out; on request neither do hosts and addresses; nothing harms a terminal."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from numscope.doctor.explain import examine, print_explanation, to_json_values
from numscope.doctor.explain.masking import shown, visible, without_secrets
from numscope.doctor.redact import of_hosts
from tests.doctor.explain.nccl_samples import rank_lines, warn


@pytest.mark.parametrize(
    "text",
    [
        "HF_TOKEN=hunter2",
        "export AWS_SECRET_ACCESS_KEY='hunter2'",
        "{'WANDB_API_KEY': 'hunter2', 'x': 1}",
        "NCCL_SECRET set by environment to hunter2",
        "password: hunter2",
        "api_key=hunter2",
        "Authorization: Bearer hunter2",
        "https://me:hunter2@registry.example/x",
        "MY_CREDENTIALS=hunter2,NEXT=1",
        "using token=hunter2 now",
    ],
)
def test_values_of_secrets_are_hidden(text: str) -> None:
    assert "hunter2" not in without_secrets(text)
    assert "***" in without_secrets(text)


@pytest.mark.parametrize("text", ["hf_abcdefghijklmnopqrstuvwx", "ghp_abcdefghijklmnopqrstuvwxyz0123", "AKIAABCDEFGHIJKLMNOP"])
def test_what_has_the_shape_of_a_secret_is_hidden_without_a_name(text: str) -> None:
    assert text not in without_secrets(f"see {text} there")


@pytest.mark.parametrize(
    "text",
    [
        "wait timeout after 4000ms, keys: /default_pg/0//cpu//0/1",
        "KeyError: 'labels'",
        "tokens: 1024",
        "monkey: 3",
        "NCCL_IB_HCA set to mlx5_0",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_secrets(text) == text


def test_control_characters_and_escape_sequences_do_not_reach_the_terminal() -> None:
    assert visible("a\x1b[31mred\x1b[0m\x1b]0;title\x07\x07\x9bb\u202e") == "ared\\x07\\x9bb\\u202e"
    assert len(shown("x" * 10_000)) == 400


def job(folder: Path) -> Path:
    lines = rank_lines(0, 2, host="alpha-7") + rank_lines(1, 2, host="beta", address="10.1.2.3", complete=False)
    lines += [
        warn("socketStartConnect: Connect to 10.1.2.3<45763> failed : Connection refused HF_TOKEN=hunter2", host="alpha-7"),
        "node \x1b]0;x\x07",
    ]
    (folder / "alpha-7.log").write_text("\n".join(lines))
    return folder / "alpha-7.log"


def everything(path: Path, redact: bool) -> str:
    explanation = examine([path], redact=redact)
    out = io.StringIO()
    print_explanation(explanation, out)
    return out.getvalue() + json.dumps(to_json_values(explanation))


def test_secrets_are_in_neither_report(tmp_path: Path) -> None:
    assert "hunter2" not in everything(job(tmp_path), False)


def test_redacted_reports_hold_neither_hosts_nor_addresses_but_tell_them_apart(tmp_path: Path) -> None:
    plain, redacted = everything(job(tmp_path), False), everything(job(tmp_path), True)
    assert "alpha-7" in plain and "10.1.2.3" in plain
    for name in ("alpha-7", "beta", "10.1.2.3", "10.0.0.1", "hunter2"):
        assert name not in redacted
    assert "host-1" in redacted and "host-2" in redacted and "address-1" in redacted


def test_a_name_is_replaced_by_the_same_word_everywhere_and_loopback_stays() -> None:
    redaction = of_hosts(["gpu1", "gpu12"])
    assert redaction.text("gpu12 gpu1.corp.example gpu1:1:1 127.0.0.1 10.0.0.1 10.0.0.2 10.0.0.1 12:34:56") == (
        "host-2 host-1 host-1:1:1 127.0.0.1 address-1 address-2 address-1 12:34:56"
    )
    assert redaction.text("fd00:1148:9000:5000:4:200:3:ff22") == "address-3"


def test_markup_in_a_log_is_text_in_the_report(tmp_path: Path) -> None:
    (tmp_path / "[red]x.log").write_text("\n".join([*rank_lines(0, 1), warn("[bold]odd[/bold] \x1b[2J thing")]))
    out = everything(tmp_path / "[red]x.log", False)
    assert "[bold]odd[/bold]" in out and "[red]x.log" in out
    assert "\x1b[2J" not in out
