"""The report: what was read, what was not, and the exit code."""

from __future__ import annotations

import io
import json
import os
import re
from pathlib import Path

import pytest

from numscope import doctor
from numscope.doctor.explain import Explanation, examine, exit_code, headline, print_explanation, to_json_values
from numscope.doctor.explain.log_files import FileRead
from numscope.doctor.findings import CATALOG, TABLE, named
from numscope.doctor.records import DoctorFinding, from_json
from tests.doctor.explain.nccl_samples import rank_lines

SAMPLES = Path(__file__).parent / "samples"


def text(explanation: Explanation) -> str:
    out = io.StringIO()
    print_explanation(explanation, out)
    return out.getvalue()


def test_healthy_files_are_counted_with_what_was_recognized(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("\n".join(rank_lines(0, 1)))
    explanation = examine([tmp_path, SAMPLES / "flight_recorder" / "ok"])
    assert text(explanation) == "Nothing wrong found in 3 files: NCCL log (1), flight recorder (2).\n"
    assert exit_code(explanation) == 0


def test_a_report_has_id_confidence_ranks_evidence_and_a_line_to_paste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(SAMPLES / "flight_recorder")
    assert text(examine([Path("behind")])) == (
        "fault rank-behind (likely, rank 1)\n"
        "  Rank 1 stopped after #1 all_reduce of 8 Float at /job/ex/fr.py:9 (<module>) and never reached the next collective in "
        "group default_pg:"
        " rank 0 waits in #2 all_reduce of 16 Float at /job/ex/fr.py:12 (<module>).\n"
        "    behind/nccl_trace_rank_1[0]: rank 1: #1 all_reduce of 8 Float, called at /job/ex/fr.py:9 (<module>) (its last)\n"
        "    behind/nccl_trace_rank_0[1]: rank 0: #2 all_reduce of 16 Float, called at /job/ex/fr.py:12 (<module>)\n"
        "  > # check what rank 1 did at that time, in its log or on its host\n"
        "  > py-spy dump --pid PID\n"
        "\n"
        "1 fault in 2 files. First: Rank 1 stopped after #1 all_reduce of 8 Float at /job/ex/fr.py:9 (<module>) and never reached "
        "the next collective"
        " in group default_pg: rank 0 waits in #2 all_reduce of 16 Float at /job/ex/fr.py:12 (<module>).\n"
        "Read: flight recorder (2).\n"
    )


def test_unknown_empty_missing_and_unreadable_files_are_said(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "notes.txt").write_text("nothing of the kind\n")
    (tmp_path / "bin").write_bytes(b"\x7fELF\0\0\0\0")
    (tmp_path / "cut.gz").write_bytes(b"\x1f\x8b\x08\0\0")
    (tmp_path / "json").write_text('{"entries": 3}')
    os.mkfifo(tmp_path / "pipe")
    explanation = examine([tmp_path, tmp_path / "nowhere"])
    out = text(explanation)
    for words in (
        "empty: empty",
        "notes.txt: nothing was recognized in it",
        "bin: neither text nor a flight-recorder dump",
        "cut.gz: cannot be read",
        "json: not a flight-recorder dump",
        "pipe: not a regular file",
        "nowhere: cannot be read: No such file or directory",
        "numscope: Nothing was recognized in 7 files",
        "Give what the job printed (torchrun --redirects 3 --log-dir logs keeps it)",
    ):
        assert words in out
    assert exit_code(explanation) == 5


def test_json_holds_findings_that_come_back_as_records() -> None:
    values = json.loads(json.dumps(to_json_values(examine([SAMPLES / "torchrun" / "sigkill.log"]))))
    assert values["exit_code"] == 1
    (one,) = [from_json(DoctorFinding, each) for each in values["findings"]]
    assert (one.id, one.ranks) == ("rank-killed", (1,))
    assert values["files"][0]["kinds"] == ["torchrun"]


@pytest.mark.parametrize(
    ("ids", "code"),
    [
        ([], 0),
        (["rank-killed"], 1),
        (["collective-stuck"], 3),
        (["gpu-p2p-disabled"], 0),
    ],
)
def test_the_exit_code_says_whether_a_fault_has_a_name(ids: list[str], code: int) -> None:
    explanation = Explanation(tuple(DoctorFinding(id, CATALOG[id], "x") for id in ids), (FileRead("a", {"NCCL log"}),))
    assert exit_code(explanation) == code
    assert headline(explanation)


def test_one_huge_line_and_a_file_twice_are_read_once_and_in_bounds(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("x" * 3_000_000 + "\n" + "\n".join(rank_lines(0, 1)))
    (tmp_path / "link.log").symlink_to(tmp_path / "a.log")
    explanation = examine([tmp_path, tmp_path / "a.log"])
    assert len(explanation.files) == 1
    assert explanation.files[0].kinds == {"NCCL log"}


def made_in(folder: str) -> set[str]:
    """The ids of the catalog that the doctor's code in a folder names."""
    sources = [path.read_text() for path in (Path(doctor.__file__).parent / folder).glob("*.py")]
    sources += [f'"{id}"' for id, row in TABLE.items() if "when" in row and folder == "explain"]
    return {id for id in CATALOG for source in sources if re.search(f'"{id}["/]', source)}


def listed_in(document: str) -> dict[str, str]:
    """By id the severity that a document's table of findings states; every row has a sentence."""
    text = (Path(__file__).parents[3] / "docs" / document).read_text()
    row = r"^\| `([a-z0-9-]+)` \| (fault|degraded|note) \| [^|]+\.(?: \(not verified on hardware\))? \|$"
    return dict(re.findall(row, text, re.MULTILINE))


def test_the_documents_list_every_finding_with_its_severity_and_a_sentence() -> None:
    of_logs, of_examinations = listed_in("doctor-explain.md"), listed_in("doctor-json.md")
    once_it_did_harm = {"name-unresolved", "shm-too-small", "memlock-too-small"}
    assert {**of_logs, **of_examinations} == CATALOG
    assert {id for id, severity in of_logs.items() if severity != CATALOG[id]} == once_it_did_harm
    assert of_logs.keys() == made_in("explain")
    assert made_in("diagnose") <= of_examinations.keys()


def test_findings_in_logs_of_what_has_done_harm_are_faults(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("node1:1:1 [0] NCCL WARN Error: failed to extend /dev/shm/nccl-x to 33030532 bytes")
    (found,) = examine([tmp_path]).findings
    assert (found.id, found.severity) == ("shm-too-small", "fault")


def test_many_ranks_are_said_in_few_words() -> None:
    assert named([3]) == "rank 3"
    assert named([0, 1]) == "ranks 0, 1"
    assert named([*range(7), 9]) == "ranks 0–6, 9"
    assert named(range(0, 100, 2)) == "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 42 more"
