"""``numscope stats``, run as a command."""

from __future__ import annotations

import csv
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from numscope.records.words import escape
from numscope.summary.dispatch import summarize
from numscope.summary.extras import EXPONENTS
from tests.page.test_recorded import FINDING, document
from tests.runs.tensors import Place, joined, two_layers, write

CULPRIT = {
    "op": "", "phase": "forward", "module": "", "file": "", "line": 0, "code": "", "reason": "unknown", "detail": "", "advice": "",
    "inputs": [], "outputs": [], "stack": [],
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("run")
    write(made, two_layers())
    return made


def stats(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "numscope", "stats", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rows(*words: object) -> list[dict[str, object]]:
    done = stats(*words, "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found


def test_sql_as_a_table(folder: Path) -> None:
    done = stats(folder, "SELECT step, layer, round(l2_norm, 1) AS norm FROM stats WHERE tensor = 'weight' ORDER BY step, ord LIMIT 2")
    assert (done.returncode, done.stderr) == (0, "")
    head, first, second = done.stdout.splitlines()
    assert head.split() == ["step", "layer", "norm"]
    assert first.split()[:2] == ["0", "decoder.layers.0.self_attention.linear_qkv"]
    assert second.split()[:2] == ["0", "decoder.layers.0.mlp.fc1"]


def test_sql_as_json_says_nan_as_other_json_of_ours(folder: Path) -> None:
    found = rows(folder, "SELECT 1 AS one, 'nan'::DOUBLE AS bad, NULL AS none, [1.5] AS list, TIMESTAMP '2026-01-02' AS day")
    assert found == [{"one": 1, "bad": "nan", "none": None, "list": [1.5], "day": "2026-01-02 00:00:00"}]
    assert rows(folder, "SELECT step FROM stats WHERE step < 0") == []


def test_sql_as_csv_has_all_digits(folder: Path) -> None:
    done = stats(folder, "SELECT layer, std FROM stats ORDER BY step, ord LIMIT 1", "--csv")
    (row,) = csv.DictReader(done.stdout.splitlines())
    place, value = next(iter(two_layers().items()))
    assert row["layer"] == place.layer
    assert float(row["std"]) == pytest.approx(summarize(value).std, rel=1e-12)


def test_merged_by_a_regex_over_steps(folder: Path) -> None:
    found = rows(folder, "--by", ".*(fc1|fc2)", "--stats", "mean,num_nan,max", "--steps", "1-2")
    assert [(row["group"], row["tensor"]) for row in found] == [
        (n, t) for n in ("fc1", "fc2") for t in ("activation", "weight", "gradient")
    ]
    for row in found:
        parts = [
            v for p, v in two_layers().items() if p.layer.endswith(str(row["group"])) and p.tensor == row["tensor"] and p.step in (1, 2)
        ]
        whole = summarize(joined(parts))
        assert row["mean"] == pytest.approx(whole.mean, rel=1e-12)
        assert (row["num_nan"], row["max"], row["numel"], row["rows"]) == (whole.num_nan, whole.max, whole.numel, len(parts))
        assert (row["first_step"], row["last_step"]) == (1, 2)


@pytest.mark.parametrize(("steps", "found"), [("2", [2, 2]), ("2-", [2, 3]), ("-1", [0, 1]), ("1-2", [1, 2])])
def test_steps_as_people_write_them(folder: Path, steps: str, found: list[int]) -> None:
    (row,) = rows(folder, "--by", "all", "--steps", steps)
    assert [row["first_step"], row["last_step"]] == found


def test_every_step_by_itself(folder: Path) -> None:
    assert [row["first_step"] for row in rows(folder, "--by", "all", "--steps", "/1")] == [0, 1, 2, 3]


def test_all_statistics(folder: Path) -> None:
    (row,) = rows(folder, "--by", "all", "--stats", "all")
    assert {"max", "sample_std", "dynamic_range", "subnormal_pct"} <= set(row)
    assert "e4m3_mse" not in row


def test_statistic_that_some_rows_lack_is_empty_and_said(tmp_path: Path) -> None:
    write(tmp_path, {Place(0, "a", "Linear", "weight"): torch.ones(3)}, (EXPONENTS,))
    write(tmp_path, {Place(0, "b", "Linear", "weight", rank=1): torch.ones(3)})
    done = stats(tmp_path, "--by", "layer", "--stats", "exponent_histogram")
    assert [line.split()[-1] for line in done.stdout.splitlines()[1:]] == ["0:3", "-"]
    assert done.stderr == ("numscope: exponent_histogram: left empty for groups in which some layer or step lacks the columns it needs.\n")


def test_without_a_question_what_the_run_holds(folder: Path) -> None:
    found = rows(folder)
    assert {(row["cls"], row["tensor"], row["layers"], row["steps"]) for row in found} == {
        (cls, tensor, layers, 4) for cls, layers in (("Linear", 4), ("Special", 2)) for tensor in ("activation", "weight", "gradient")
    }


def test_name_from_the_model_cannot_color_the_terminal(tmp_path: Path) -> None:
    write(tmp_path, {Place(0, "evil\x1b[31m[red]x", "Linear", "weight"): torch.ones(3)})
    assert r"evil\x1b[31m[red]x" in stats(tmp_path, "SELECT layer FROM stats").stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{run}", "SELEC 1"], 'numscope: SQL: syntax error at or near "SELEC"\nLINE 1: SELEC 1\n'),
        (["{run}", "SELECT l2norm FROM stats"], "numscope: SQL: got the column 'l2norm', expected one of step, "),
        (["{run}", "COPY stats TO 'x'"], "numscope: SQL: got \"COPY stats TO 'x'\", expected one SELECT over the view stats: a run"),
        (["{run}", "--by", "layr"], "numscope: --by: got 'layr', expected one of layer, name, type, tensor, all, or a regex found"),
        (["{run}", "--by", "all", "--stats", "l2norm"], "numscope: --stats: got 'l2norm', expected one of max, min, "),
        (
            ["{run}", "--by", "all", "--steps", "a"],
            "numscope: --steps: got 'a', expected A-B, A-, -B or A, steps from 0, and /N behind it or alone.\n",
        ),
        (
            ["{run}", "--by", "all", "--steps", "5-2"],
            "numscope: --steps: got '5-2', expected the first step first. Did you mean 2-5?\n",
        ),
        (
            ["{run}", "--steps", "5"],
            "numscope: --steps: given without --by, which it needs. In SQL, use SELECT and WHERE.\n",
        ),
        (["{run}", "--by", "all", "SELECT 1"], "numscope: --by: given with SQL, expected one of them.\n"),
        (
            ["{run}", "--csv", "out.csv"],
            "numscope: SQL: got 'out.csv', expected SQL, columns or compact. --csv prints: numscope stats {run} --csv > out.csv\n",
        ),
        (["{run}", "--json", "--csv"], "numscope: --csv: given with --json, expected one of them.\n"),
        (
            ["{run}-not"],
            "numscope: RUN: got '{run}-not', expected a run's folder, such as numscope run --log-dir DIR train.py makes. "
            "Did you mean '{run}'?\n",
        ),
        ([], "numscope: got no RUN, expected numscope stats [options] RUN [SQL | columns | compact].\n"),
        (["{run}", "--steps", "3/0", "--by", "all"], "numscope: --steps: got '3/0', expected "),
    ],
)
def test_refusals(folder: Path, words: list[str], message: str) -> None:
    done = stats(*(word.format(run=folder) for word in words))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(message.format(run=folder))


def test_command_does_not_load_torch(folder: Path) -> None:
    code = (
        "import sys; from numscope.cli.command import numscope\n"
        "numscope.main(['stats', sys.argv[1], '--by', 'all'], standalone_mode=False)\n"
        "print('torch' in sys.modules, 'pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False False"


def test_overview_tells_of_how_many_ranks_the_numbers_are(tmp_path: Path) -> None:
    from numscope.sinks.parquet import ParquetSink
    from tests.runs.tensors import observe

    sink = ParquetSink(tmp_path, 0, {})
    sink.write([observe(Place(0, "fc1", "Linear", "activation"), 0, torch.ones(4))._replace(ranks=2)])
    sink.close()
    (row,) = csv.DictReader(stats(tmp_path, "--csv").stdout.splitlines())
    assert row["ranks"] == "2"


def growing(name: str) -> dict[Place, torch.Tensor]:
    seen: dict[Place, torch.Tensor] = {}
    for step in range(12):
        last = float("inf") if step == 11 else 2.0 ** (step + 4)
        seen[Place(step, name, "Linear", "output")] = torch.tensor([last, 1.0], dtype=torch.float16)
        seen[Place(step, "norm", "LayerNorm", "activation")] = torch.tensor([1.5])
        seen[Place(step, "loss", "loss", "loss")] = torch.tensor(10.0 - step / 2)
    return seen


@pytest.mark.parametrize("name", ["decoder.x!rm", 'it\'s "$HOME" `ls` \\ \x1b[2J'])
def test_without_a_question_it_says_where_to_look_and_what_to_ask(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "my runs"
    write(folder, growing(name))
    site = {**FINDING["site"], "module": name}
    culprit = {**CULPRIT, "op": "aten.mul", "file": "train.py", "line": 13}
    (folder / "findings-rank0.json").write_text(
        document({**FINDING, "step": 11, "kind": "inf", "site": site, "culprit": culprit}, steps=12)
    )
    done = stats(folder)
    shown = escape(name)
    rest = done.stdout.splitlines()
    assert rest[0].startswith("my runs  Decoder, 12 steps") and rest[1].startswith("loss (magnitude) 10 ") and "1 finding" in rest
    assert f"✖ step 11, rank 0: inf in {shown} (Linear) output" in rest and any("aten.mul at train.py:13" in line for line in rest)
    assert any(line.startswith(f"✖ {shown} output ") for line in rest)
    asked = [line.strip() for line in rest[rest.index("Ask:") + 1 :]]
    assert len(asked) == 4
    for question in asked:
        words = ["numscope", "stats", str(folder), *shlex.split(question)[3:]]
        assert shlex.split(question)[:3] == words[:3]
        if "\x1b" not in name or "SELECT" not in question:  # such a name is shown, not written
            answer = stats(*words[2:])
            assert answer.returncode == 0 and len(answer.stdout.splitlines()) > 3, answer.stderr


def test_statistics_that_can_not_be_shown_are_said(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    write(tmp_path, {Place(0, "fc1", "Linear", "activation"): torch.ones(4)})
    (tmp_path / "findings-rank0.json").write_text(document(FINDING))
    for part in (tmp_path / "statistics").iterdir():
        pq.write_table(pq.read_table(part).drop_columns(["abs_max"]), part)
    done = stats(tmp_path)
    assert "Traceback" not in done.stderr and (done.stdout or done.stderr)


def test_what_an_earlier_attempt_found_is_told_as_such(tmp_path: Path) -> None:
    write(tmp_path, {Place(0, "fc1", "Linear", "activation"): torch.ones(4)})
    (tmp_path / "findings-rank0.json").write_text(document(FINDING))
    (tmp_path / "findings-rank0-2.json").write_text(document(attempt=2))
    assert "\n1 finding, all of earlier attempts\n✖ step 2" in stats(tmp_path).stdout


def test_one_word_that_is_no_question_has_its_near_one(tmp_path: Path) -> None:
    write(tmp_path, {Place(0, "fc1", "Linear", "activation"): torch.ones(4)})
    done = stats(tmp_path, "colums")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "numscope: SQL: got 'colums', expected SQL, columns or compact. Did you mean 'columns'?\n"


def test_a_healthy_run_has_nothing_that_went_bad(tmp_path: Path) -> None:
    write(tmp_path, {Place(0, "fc1", "Linear", "activation"): torch.ones(4)})
    said = stats(tmp_path).stdout
    assert "0 bad or close to it" in said and said.count("✖") == 1 and said.count("  numscope stats ") == 4  # the legend


def test_narrow_terminal_gets_a_wide_table_in_parts_that_break_no_number(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from numscope.cli.stats import _fold_table

    monkeypatch.setenv("COLUMNS", "40")
    head = ["group", "tensor", *(f"statistic{i}" for i in range(6))]
    cells = [["Linear", "activation", *(f"-{i}.23456e-05" for i in range(6))]]
    _fold_table(head, cells, [False, False, *[True] * 6])
    lines = [line for line in capsys.readouterr().out.splitlines() if line]
    assert max(map(len, lines)) <= 40
    assert [line.split()[:2] for line in lines] == [["group", "tensor"], ["Linear", "activation"]] * (len(lines) // 2)
    assert [word for line in lines[1::2] for word in line.split()[2:]] == cells[0][2:]


def test_a_run_that_was_started_twice_says_so(tmp_path: Path) -> None:
    for _ in range(2):
        write(tmp_path, {Place(0, "a", "Linear", "weight"): torch.ones(3)})
    for words in ((), ("--by", "name")):
        done = stats(tmp_path, *words)
        assert "(attempts 1, 2). Of a step that was run again, the last attempt's numbers are shown." in done.stderr, done.stderr
    assert not stats(tmp_path, "SELECT 1").stderr


def test_word_with_dashes_is_told_to_stand_without() -> None:
    done = subprocess.run([sys.executable, "-m", "numscope", "stats", "run", "--columns"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "numscope: got '--columns', expected the word without dashes: numscope stats RUN columns\n"
