"""Names in lines to paste into a shell: quoted, and those by which hosts are really called."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace

import pytest

from numscope.doctor.diagnose import diagnose
from numscope.doctor.output import alone
from numscope.doctor.records import Examined, ExamPhase, Identity, PhaseResult, Settings
from tests.doctor.examples import examination

NAMES = ["node1; rm -rf ~", "$(reboot)", "a'b", "two words"]


def lines_of(examined: Examined) -> list[str]:
    return [line for each in diagnose(examined).findings for line in each.remedy]


def called(examined: Examined, name_of: Callable[[int], str]) -> Examined:
    roster = {rank: {**entry, "identity": {**entry["identity"], "hostname": name_of(rank)}} for rank, entry in examined.roster.items()}
    return replace(examined, roster=roster)


@pytest.mark.parametrize("name", NAMES)
def test_names_of_ranks_hosts_are_quoted(name: str) -> None:
    lost = PhaseResult(ExamPhase.COMPARE, 1, "silent", error="no heartbeat", data={"how": "silent"})
    examined = examination(4)
    lines = lines_of(called(replace(examined, results=[*examined.results, lost]), lambda rank: name if rank == 1 else "x"))
    assert f"ssh {shlex.quote(name)} 'dmesg -T | tail -50; ps aux | grep numscope'" in lines
    assert f"srun --exclude={shlex.quote(name)} …" in lines
    assert shlex.split(lines[0])[:2] == ["ssh", name]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["unresolved", "loopback", "refused", "unreachable"])
def test_name_of_the_hubs_host_is_quoted(name: str, kind: str) -> None:
    hub = {"reached": False, "kind": kind, "sentence": "it fails", "endpoint": f"{name}:29400"}
    ((line,),) = (each.remedy for each in alone(Identity(1, 2), Settings(), hub)[0].findings)
    words = shlex.split(line.partition("rank 0's node first, and ")[2] or line)
    assert any(word.rstrip(":").endswith((name, f"{name}:29400")) for word in words), line


def test_hosts_of_one_name_are_told_apart_but_pasted_by_their_name() -> None:
    broken = {"status": "dropped", "error": "no answer", "known": "dropped"}
    examined = called(examination(2, links={(0, 1): broken, (1, 0): broken}), lambda rank: "twin")
    assert "twin#1" in diagnose(examined).findings[0].summary
    lines = lines_of(examined)
    assert any("twin" in line for line in lines) and not any("twin#" in line for line in lines), lines


def test_host_that_nobody_knows_is_in_no_line() -> None:
    lost = PhaseResult(ExamPhase.RENDEZVOUS, 1, "silent", error="no heartbeat", data={"how": "died"})
    examined = examination(2)
    roster = {0: examined.roster[0]}
    lines = lines_of(replace(examined, roster=roster, results=[*examined.results, lost]))
    assert not any("unknown" in line for line in lines), lines
