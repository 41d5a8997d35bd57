"""``numscope config check`` and ``explain``."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from click.testing import Result

from numscope.cli.config import average_cost, cost_at_step, window
from numscope.cli.subject import ModelOrRun
from numscope.config import load, resolve
from numscope.config.plan import Schedule
from numscope.precision import modules
from numscope.records.layer import Layer
from numscope.records.words import in_bytes
from numscope.scope.watching import watch
from tests.cli.calling import called

GOOD = """
fc:
  enabled: true
  layers: {layer_name_regex_pattern: c_fc}
  statistics: {enabled: true, stats: [min, kurtosis], tensors: [activation, gradient, weight], freq: 10, merge: type}
late:
  enabled: true
  layers: {layer_numbers: [1]}
  disable_fp8_gemm: {enabled: true, gemms: [dgrad]}
  statistics: {enabled: false, stats: [max], tensors: [weight]}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("stats.yaml").write_text(GOOD)
    Path("bad.yaml").write_text(GOOD.replace("kurtosis", "kurtosys").replace("freq: 10", "freq: 0"))
    Path("tiny_gpt.py").write_text(
        "from transformers import GPT2Config, GPT2LMHeadModel\n"
        "def make():\n"
        "    return GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=16, n_head=2, vocab_size=50, n_positions=8))\n"
    )
    return tmp_path


def numscope_config(*words: str) -> Result:
    return called("config", *words)


def test_check_says_that_a_file_is_in_order_with_its_notes() -> None:
    done = numscope_config("check", "stats.yaml")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.split("\n")[:-1] == [
        "stats.yaml: note: late.disable_fp8_gemm: has no effect on layers that run in high precision",
        "stats.yaml: note: late.statistics: off (enabled: false)",
        "stats.yaml: valid. It asks for 1 statistics feature, 1 precision switch.",
        "Layers' names were not checked, which takes a model or a run: numscope config explain stats.yaml --model MODEL_OR_RUN",
    ]


def test_check_of_a_file_without_layers_names_none() -> None:
    Path("checks.yaml").write_text("check: again,float64:every=500\n")
    assert numscope_config("check", "checks.yaml").stdout == "checks.yaml: valid. It asks for checks (again,float64:every=500).\n"


def test_check_says_all_that_is_wrong_and_ends_with_2() -> None:
    done = numscope_config("check", "bad.yaml")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.split("\n")[:-1] == [
        "numscope: 2 errors:",
        "  bad.yaml: fc.statistics.freq: got 0, expected a whole number of steps, 1 or more.",
        '  bad.yaml: fc.statistics.stats[1]: got "kurtosys", expected one of max, min, mean, std, sample_std, l1_norm, l2_norm, '
        'cur_amax, …. Did you mean "kurtosis"?',
    ]


def test_explain_without_a_model_says_what_is_collected_and_that_its_cost_is_unknown() -> None:
    done = numscope_config("explain", "stats.yaml")
    assert done.exit_code == 0
    lines = [line.split("  ") for line in done.stdout.split("\n")]
    row = [cell.strip() for cell in next(line for line in lines if line[0] == "fc") if cell.strip()]
    assert row == [
        "fc",
        "statistics",
        "names matching c_fc",
        "activation, gradient, weight",
        "min, kurtosis (also merged by type)",
        "every 10",
        "unknown without --model",
    ]
    assert "reads: unknown without --model MODEL_OR_RUN." in done.stdout


def test_explain_counts_the_bytes_of_a_models_tensors() -> None:
    done = numscope_config("explain", "stats.yaml", "--model", "tiny_gpt:make", "--tokens", "100")
    # two layers c_fc from 16 to 64 features in float32: weights, activations, gradients of outputs
    num_bytes = 2 * 4 * (16 * 64 + 100 * 16 + 100 * 64)
    assert f"reads: {in_bytes(num_bytes)} at a step that collects everything, {in_bytes(num_bytes / 10)} per step on average" in done.stdout
    assert "over steps 0 to 9, on one rank." in done.stdout


def test_explain_without_tokens_tells_what_it_does_not_know() -> None:
    done = numscope_config("explain", "stats.yaml", "--model", "tiny_gpt:make")
    assert f"reads: {in_bytes(2 * 4 * 16 * 64)} + 4 unknown at a step" in done.stdout
    assert "need --tokens N." in done.stdout


def test_explain_refuses_a_configuration_that_matches_no_layer() -> None:
    Path("stats.yaml").write_text(GOOD.replace("c_fc", "c_fcc"))
    done = numscope_config("explain", "stats.yaml", "--model", "tiny_gpt:make")
    assert done.exit_code == 2
    assert done.stderr.startswith('numscope: stats.yaml: fc.layers: layer_name_regex_pattern: "c_fcc" matches none of the model\'s')


def one_layer() -> ModelOrRun:
    return ModelOrRun([Layer("a", "Linear", "a", ("weight",), 10, 40)], {"a": (5, 2)})


def test_tensor_that_two_sections_read_at_one_step_counts_once() -> None:
    subject = one_layer()
    settings = {"enabled": True, "stats": ["max"], "tensors": ["weight"]}
    layers = {"layer_types": "all"}
    tree = {
        "a": {"enabled": True, "layers": layers, "statistics": {**settings, "freq": 2}},
        "b": {"enabled": True, "layers": layers, "collect_tensor_stats": {**settings, "stats": ["min"], "freq": 3}},
    }
    parts = resolve(load(tree), subject.layers).collects
    assert cost_at_step(parts, subject, None).known == 40
    average, steps = average_cost(parts, subject, None)
    assert (average.known, steps) == (40 * 4 / 6, range(6))  # of steps 0 to 5: 0, 2, 3, 4


@pytest.mark.parametrize(
    ("schedules", "steps"),
    [
        ([Schedule(5)], range(5)),
        ([Schedule(4), Schedule(6)], range(12)),
        ([Schedule(4, ((100, None),)), Schedule(6, ((0, 200),))], range(201, 213)),
        ([Schedule(5, ((10, 19),))], range(10, 20)),
        ([Schedule(5, ((0, 3), (7, 9)))], range(10)),
        ([], range(0)),
    ],
)
def test_average_is_over_the_steps_that_repeat(schedules: list[Schedule], steps: range) -> None:
    assert window(schedules) == steps


def test_features_of_ones_own_are_known_to_check_explain_and_layers(tmp_path: Path) -> None:
    own, file = tmp_path / "own.py", tmp_path / "own.yaml"
    own.write_text("import numscope\n@numscope.statistic('span_of_config')\ndef f(s): return s.max - s.min\n")
    file.write_text(
        "s: {enabled: true, layers: {layer_types: all}, statistics: {enabled: true, stats: [span_of_config], tensors: [weight]}}"
    )
    for words in (["config", "check", str(file)], ["config", "explain", str(file)], ["layers", "gpt2", "--config", str(file)]):
        assert called(*words).exit_code == 2
        done = called(*words, "--features", str(own))
        assert done.exit_code == 0, done.output


def test_explain_tells_which_statistics_read_their_tensors_again(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    text = "s: {enabled: true, layers: {layer_types: [c_fc]}, statistics: {enabled: true, stats: [max, kurtosisSTATS], tensors: [weight]}}"
    for stats, said in (("", False), (", exponent_histogram, e4m3_mse", True)):
        file.write_text(text.replace("STATS", stats))
        done = called("config", "explain", str(file), "--model", "gpt2")
        assert ("In addition, exponent_histogram, e4m3_mse read their tensors once more." in done.output) == said


def test_explain_names_the_layers_of_features_of_ones_own_too(tmp_path: Path) -> None:
    own, file = tmp_path / "own.py", tmp_path / "own.yaml"
    code = "import numscope\n@numscope.feature('LargeOfExplain', tensors=['activation'])\ndef f(layer, name, x, step, settings): ...\n"
    own.write_text(code)
    file.write_text("s: {enabled: true, layers: {layer_types: [c_fc]}, LargeOfExplain: {enabled: true, tensors: [activation]}}")
    done = called("config", "explain", str(file), "--features", str(own), "--model", "gpt2")
    (row,) = [line for line in done.output.splitlines() if "LargeOfExplain" in line]
    assert " h.0.mlp.c_fc, " in row and "(12)" in row


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["config", "chek"], """numscope: got 'chek', expected one of check, explain. Did you mean 'check'?"""),
        (["config", "check"], "numscope: got no FILE, expected numscope config check [options] FILE."),
        (["config", "check", "--all", "f"], "numscope: got '--all', expected one of --features, --json."),
        (["config", "explain", "f", "--tokns", "1"], """numscope: got '--tokns', expected one of --features, --json, --model, \
--recipe, --tokens. Did you mean '--tokens'?"""),
        (["config", "explain", "f", "--tokens", "x"], "numscope: --tokens: got 'x', expected a whole number."),
        (["layers"], "numscope: got no MODEL_OR_RUN, expected numscope layers [options] MODEL_OR_RUN."),
    ],
)  # fmt: skip
def test_wrong_words_are_refused(
    words: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from numscope.cli.command import main

    monkeypatch.setattr("sys.argv", ["numscope", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().err) == (2, f"{message}\n")


# ---- what each layer's GEMMs run in

SWITCHES = """
mlp:
  enabled: true
  layers: {layer_name_regex_pattern: c_fc}
  transformer_engine:
    disable_fp8_gemm: {enabled: true, gemms: [dgrad], start_step: 10, end_step: 19}
attention:
  enabled: true
  layers: {layer_name_regex_pattern: c_attn}
  transformer_engine:
    per_tensor_scaling: {enabled: true, gemms: [fprop], margin: 1}
"""


def plan_rows(done: Result) -> list[list[str]]:
    """The rows of the second table."""
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.split("\n")
    start = next(index for index, line in enumerate(lines) if line.startswith("layer "))
    rows = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines[start + 2 :]]
    return rows[: rows.index([]) if [] in rows else next(i for i, row in enumerate(rows) if row[0].startswith("reads"))]


def test_explain_shows_what_each_layers_gemms_run_in() -> None:
    Path("fp8.yaml").write_text(SWITCHES)
    done = numscope_config("explain", "fp8.yaml", "--model", "tiny_gpt:make")
    rows = plan_rows(done)
    e4m3, mixed = "e4m3fn delayed", "e5m2 delayed × e4m3fn delayed"
    assert [row for row in rows if row[0] == "transformer.h.0.mlp.c_fc"] == [
        ["transformer.h.0.mlp.c_fc", "Conv1D", "0-9, from 20", e4m3, mixed, mixed],
        ["transformer.h.0.mlp.c_fc", "Conv1D", "10-19", e4m3, "high precision", mixed],
    ]
    assert ["transformer.h.1.attn.c_attn", "Conv1D", "all", "e4m3fn current margin 1", mixed, mixed] in rows
    assert ["lm_head", "Linear", "all", e4m3, mixed, mixed] in rows
    assert not any("ln_1" in row[0] for row in rows)


def test_explain_takes_another_recipe() -> None:
    Path("fp8.yaml").write_text(SWITCHES)
    rows = plan_rows(numscope_config("explain", "fp8.yaml", "--model", "tiny_gpt:make", "--recipe", "mxfp8"))
    assert ["lm_head", "Linear", "all", *["e4m3fn 1x32 e8m0 power-of-two"] * 3] in rows
    assert plan_rows(numscope_config("explain", "stats.yaml", "--model", "tiny_gpt:make", "--recipe", "current"))
    refused = numscope_config("explain", "fp8.yaml", "--model", "tiny_gpt:make", "--recipe", "mxfp9")
    assert refused.exit_code == 2
    assert refused.stderr.startswith("numscope: --recipe: got 'mxfp9', expected a recipe, or one of delayed, ")


def test_explain_without_a_model_has_no_layers_to_show_plans_of() -> None:
    Path("fp8.yaml").write_text(SWITCHES)
    said = numscope_config("explain", "fp8.yaml").stdout
    assert "wgrad" not in said and "high precision  " not in said  # a switch of fprop is told as it is written
    assert "gemms fprop; margin 1" in said
    assert numscope_config("explain", "fp8.yaml", "--recipe", "mxfp8").exit_code == 2


def test_explain_of_a_periodic_switch_goes_on_with_dots() -> None:
    Path("fp8.yaml").write_text(SWITCHES.replace("start_step: 10, end_step: 19", "freq: 4"))
    rows = plan_rows(numscope_config("explain", "fp8.yaml", "--model", "tiny_gpt:make"))
    assert [row[2] for row in rows if row[0] == "transformer.h.0.mlp.c_fc"] == ["0, 4, …", "1-3, 5-7, …"]


def test_explain_tells_steps_that_do_not_come_again_from_those_that_do() -> None:
    late = "start_step: 3, freq: 2"
    Path("fp8.yaml").write_text(SWITCHES.replace("start_step: 10, end_step: 19", late))
    rows = plan_rows(numscope_config("explain", "fp8.yaml", "--model", "tiny_gpt:make"))
    assert [row[2] for row in rows if row[0] == "transformer.h.0.mlp.c_fc"] == ["0-3, 5, …", "4, 6, …"]
    first = "enabled: true, gemms: [wgrad], end_step: 0}\n    DisableFP8Layer: {enabled: true, freq: 2, start_step: 1}"
    Path("fp8.yaml").write_text(SWITCHES.replace("enabled: true, gemms: [dgrad], start_step: 10, end_step: 19}", first))
    rows = plan_rows(numscope_config("explain", "fp8.yaml", "--model", "tiny_gpt:make"))
    assert [row[2] for row in rows if row[0] == "transformer.h.0.mlp.c_fc"] == ["0", "1, 3, …", "2, 4, …"]


def test_explain_tells_what_switches_are_told_and_what_statistics_of_casts_read() -> None:
    Path("fp8.yaml").write_text(
        "s:\n  enabled: true\n  layers: {layer_names: [transformer.h.0.mlp.c_fc]}\n"
        "  disable_fp8_gemm: {enabled: true, gemms_struct: [{gemm: wgrad}, {gemm: dgrad, freq: 2}]}\n"
        "  FakeQuant: {enabled: true, gemms: [fprop], tensors: [output], quant_format: FP8E5M2}\n"
        "  collect_fp8_tensor_stats: {enabled: true, type: [underflows, mxfp8_mse], tensors: [weight]}\n"
    )
    done = numscope_config("explain", "fp8.yaml", "--model", "tiny_gpt:make")
    for words in ("gemms wgrad  ", "gemms dgrad  ", "quant_format FP8E5M2; gemms fprop  ", "underflows, mxfp8_mse  "):
        assert words in done.stdout
    assert f"reads: {in_bytes(4 * 16 * 64)} at a step that collects everything" in done.stdout
    assert "In addition, mxfp8_mse read their tensors once more." in done.stdout
    assert done.stdout.count("note: s.disable_fp8_gemm: ") == 1
    (row, *_) = [row for row in plan_rows(done) if row[0] == "transformer.h.0.mlp.c_fc"]
    assert row[3] == "high precision → e5m2 current"


def test_explain_takes_a_model_as_it_was_converted() -> None:
    Path("tiny_fp8.py").write_text(
        "import tiny_gpt\nfrom numscope.precision import convert\ndef make(): return convert(tiny_gpt.make(), 'mxfp8')\n"
    )
    Path("fp8.yaml").write_text(SWITCHES)
    rows = plan_rows(numscope_config("explain", "fp8.yaml", "--model", "tiny_fp8:make"))
    assert ["lm_head", "Linear", "all", *["e4m3fn 1x32 e8m0 power-of-two"] * 3] in rows
    rows = plan_rows(numscope_config("explain", "fp8.yaml", "--model", "tiny_fp8:make", "--recipe", "current"))
    assert ["lm_head", "Linear", "all", "e4m3fn current", *["e5m2 current × e4m3fn current"] * 2] in rows


def test_explain_finds_the_gemms_of_fused_modules_in_a_run(tmp_path: Path) -> None:
    model = modules.LayerNormMLP(8, 16, name="mlp")
    Path("fp8.yaml").write_text("s: {enabled: true, layers: {layer_types: [fc1]}, disable_fp8_layer: {enabled: true}}")
    with watch(model, config="fp8.yaml", on_nonfinite=None, log_dir="run"):
        model(torch.randn(2, 8)).sum().backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
    rows = plan_rows(numscope_config("explain", "fp8.yaml", "--model", "run"))
    assert ["mlp.fc1", "LayerNormMLP", "all", *["high precision"] * 3] in rows
    assert [row[0] for row in rows if row[0].startswith("mlp")] == ["mlp.fc1", "mlp.fc2"]
