"""What the report looks like, and what is in its JSON."""

from __future__ import annotations

import io
import json
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from numscope.doctor import redact, rendering
from numscope.doctor.diagnose import diagnose
from numscope.doctor.findings import CATALOG
from numscope.doctor.records import DoctorFinding, Examined, Settings, Verdict
from tests.doctor.examples import examination, failed, without_rank

GOLDEN = Path(__file__).parent / "golden"
WRITE = "NUMSCOPE_WRITE_GOLDEN"  # set to write the files anew
DOCUMENT = Path(__file__).parents[2] / "docs" / "doctor-json.md"
DROPPED = {"status": "dropped", "error": "no answer within 3.5 s", "known": "dropped"}


def node_down() -> Examined:
    cells = {pair: DROPPED for other in (0, 1, 2) for pair in ((3, other), (other, 3))}
    examined = examination(4, 2, links=cells, heard=lambda one, other: 3 not in (one, other))
    for rank in range(8):
        examined = failed(examined, 4, rank, "gloo: Connection timed out", missing=[[6, 7]])
    return examined


def rank_lost() -> Examined:
    silent = {"status": "silent", "error": "it said nothing within 5.0 s"}
    return without_rank(examination(3, links={(0, 1): silent, (2, 1): silent}, phases=(0, 1, 2, 3)), 1, 3, "ping node2 (10.0.0.3:40002)")


def degraded() -> Examined:
    name = {"name": "node1", "addresses": ["127.0.1.1"], "loopback": True, "error": "", "seconds": 0.0}
    return examination(3, own_facts={1: {"name": name}, 2: {"environment": {"NCCL_ALGO": "Ring"}}}, compute={0: 4.0})


def corrupt() -> Examined:
    return examination(2, 2, pairs={(1, other): {"status": "corrupt"} for other in (0, 2, 3)})


def many_ranks() -> Examined:
    cells = {pair: DROPPED for other in range(40) if other != 17 for pair in ((17, other), (other, 17))}
    return examination(40, 8, links=cells, heard=lambda one, other: 17 not in (one, other), phases=(0, 1, 3))


def renamed(examined: Examined) -> Examined:
    """The same on hosts whose names do not say their numbers."""
    data = pickle.dumps(examined)
    for number, letter in enumerate("abcd"):
        data = data.replace(f"node{number}".encode(), f"gpu-{letter}".encode())  # of the same length
    found: Examined = pickle.loads(data)
    return found


CASES: dict[str, Callable[[], Examined]] = {
    "healthy": lambda: examination(2, 2),
    "node-down": node_down,
    "rank-lost": rank_lost,
    "degraded": degraded,
    "corrupt": corrupt,
    "many-ranks": many_ranks,
    "redacted": lambda: replace(renamed(node_down()), settings=Settings(redact=True)),
}


def printed(examined: Examined, width: int = 100, verdict: Verdict | None = None) -> str:
    file = io.StringIO()
    rendering.print_verdict(verdict or diagnose(examined), examined, file, width)
    return file.getvalue()


@pytest.mark.parametrize("name", CASES)
def test_report_is_as_kept(name: str) -> None:
    text = printed(CASES[name]())
    path = GOLDEN / f"{name}.txt"
    if os.environ.get(WRITE):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) <= 100


def test_report_without_terminal_has_no_escape_sequences_and_survives_ascii() -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    rendering.print_verdict(diagnose(node_down()), node_down(), file)
    file.flush()
    assert b"\x1b" not in raw.getvalue()
    assert b"node-unreachable" in raw.getvalue()


def test_names_and_texts_are_neither_markup_nor_control_characters() -> None:
    examined = examination(2)
    for entry in examined.roster.values():
        entry["identity"]["hostname"] = "[red]evil\x1b[2J\u202e"  # type: ignore[index]
    finding = DoctorFinding("cause-unknown", "fault", "[bold]x[/]\x07", evidence=("a\nb\x1b]0;t\x07",), remedy=("[link=x]y",))
    text = printed(examined, 160, Verdict(1, (finding,)))
    assert "[red]evil\\x1b[2J\\u202e" in text
    assert "[bold]x[/]\\x07" in text
    assert "a\\nb\\x1b]0;t\\x07" in text
    assert not {"\x1b", "\x07", "\u202e"} & set(text)


# ---- JSON -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_json_is_json_and_has_what_the_document_says(name: str) -> None:
    examined = CASES[name]()
    verdict = diagnose(examined)
    values = rendering.to_json(verdict, examined)
    assert json.loads(json.dumps(values))["exit_code"] == verdict.exit_code
    assert {each["id"] for each in values["findings"]} <= set(CATALOG)
    text = DOCUMENT.read_text(encoding="utf-8")
    for key in values:
        assert f"| `{key}` |" in text, key
    for key in (*values["findings"][0], *values["results"][0]) if values["findings"] else ():
        assert f"`{key}`" in text, key


def test_token_is_in_no_report() -> None:
    examined = examination(2, settings=Settings(token="hush-hush"))
    assert "hush-hush" not in json.dumps(rendering.to_json(diagnose(examined), examined))
    assert "hush-hush" not in printed(examined)


# ---- redaction ------------------------------------------------------------------------------------------------------------------


def test_redacted_report_has_no_name_and_no_address_and_keeps_who_is_who(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "annabel")
    examined = CASES["redacted"]()
    examined = failed(
        examined, 0, 1, "in /" + "home/annabel/x on gpu-d.cluster.org (10.0.0.4), GPU-1f0c22aa-0001, aa:bb:cc:dd:ee:0f, fe80::1%eth0"
    )
    values: dict[str, Any] = rendering.to_json(diagnose(examined), examined)
    text = json.dumps(values) + printed(examined)
    for word in ("gpu-", "10.0.0.", "annabel", "GPU-1f0c", "aa:bb:cc", "fe80"):
        assert word not in text, word
    assert values["findings"][0]["hosts"] == ("node3",)
    assert values["roster"]["6"]["identity"]["hostname"] == "node3"
    assert "127.0.0.1" in text  # says nothing of anybody


def test_times_and_versions_are_not_taken_for_addresses() -> None:
    text = "12:30:45 torch 2.13.0 4711:x 1.2.3"
    assert redact.of_hosts(["node0"]).text(text) == text


def test_host_is_whole_and_nothing_is_cut_at_80_columns() -> None:
    text = printed(examination(2, 2), 80)
    assert "…" not in text and max(map(len, text.splitlines())) <= 80
    rows = [line.split()[:2] for line in text.splitlines() if " ok 0.1s" in line]
    assert rows == [[str(rank), f"node{rank // 2}"] for rank in range(4)]


def test_redacted_hosts_of_one_name_stay_apart_and_other_names_get_words_of_their_own() -> None:
    examined = examination(2, settings=Settings(redact=True, endpoint="login.cluster.org:29500"))
    for rank in (0, 1):
        examined.roster[rank]["identity"]["hostname"] = "gpu"  # type: ignore[index]
    rows = [line.split()[:2] for line in printed(examined).splitlines() if " ok 0.1s" in line]
    assert rows == [["0", "node0"], ["1", "node1"]]
    finding = DoctorFinding("cause-unknown", "fault", "gpu#1 sends nothing to gpu#0, login.cluster.org or login")
    verdict, _ = redact.redacted(Verdict(1, (finding,)), examined)
    assert verdict.findings[0].summary == "node1 sends nothing to node0, host-3 or host-3"  # 1 and 2: their facts
