"""Two trainings of one small model, one of them with something planted, compared."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from numscope.records.errors import UsageError
from numscope.records.observation import Observation
from numscope.runs.comparison import compare
from numscope.runs.diff_text import text
from numscope.runs.divergence import STATS
from numscope.runs.verdicts import Diff, SiteDifference
from numscope.sinks.parquet import ParquetSink
from tests.runs.traced import observation, train

PLANTED = "layers.2.up_proj"


class InBfloat16(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return nn.functional.linear(input.bfloat16(), self.weight.bfloat16(), self.bias.bfloat16()).float()


def perturb(model: nn.Module) -> None:
    with torch.no_grad():
        model.get_submodule(PLANTED).weight[3, 5] += 0.5


def poison(step: int, model: nn.Module) -> None:
    if step == 2:
        with torch.no_grad():
            model.get_submodule(PLANTED).weight[0, 0] = math.nan


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def plain(runs: Path) -> str:
    return train(runs / "plain")


@pytest.fixture(scope="module")
def dropouts(runs: Path) -> list[str]:
    """The same training but for its dropout's random numbers."""
    return [train(runs / f"dropout{seed}", dropout=0.1, seed=seed) for seed in range(5)]


def where(difference: SiteDifference | None) -> tuple[int, str, str] | None:
    return None if difference is None else (difference.step_a, difference.layer_a, difference.tensor)


def write(folder: Path, *tensors: tuple[str, str, Tensor], step: int = 0, rank: int = 0, cls: str = "Linear") -> str:
    """A run folder of one step: (layer, tensor, value) in order."""
    sink = ParquetSink(folder, rank, {})
    sink.write([observation(layer, cls, tensor, value, step, i, rank) for i, (layer, tensor, value) in enumerate(tensors)])
    sink.close()
    return str(folder)


def measure(diff: Diff, statistic: str) -> float:
    assert diff.first_unequal is not None
    return next(m.divergence or 0.0 for m in diff.first_unequal.measures if m.statistic == statistic)


# ---- what is planted is found


def test_the_same_training_twice_is_equal_bit_for_bit(plain: str, tmp_path: Path) -> None:
    diff = compare(plain, train(tmp_path / "again"))
    assert (diff.diverged, diff.first_unequal, diff.modules) == (False, None, ())
    assert [(s.step_a, s.num_sites, s.num_diverging) for s in diff.steps] == [(step, 50, 0) for step in range(4)]


def test_a_perturbed_weight_shows_first_in_its_own_layers_output(plain: str, tmp_path: Path) -> None:
    diff = compare(plain, train(tmp_path / "b", prepare=perturb))
    assert where(diff.first) == (0, PLANTED, "output")
    assert diff.origin is not None
    assert (diff.origin.verdict, diff.origin.weights) == ("weight", (PLANTED,))
    assert diff.origin.inputs["activation"] == 0.0
    assert diff.modules[0].layer_a == PLANTED
    assert diff.modules[0].direction == "forward"


def test_one_layer_cast_to_bfloat16_is_its_own_origin(plain: str, tmp_path: Path) -> None:
    def cast(model: nn.Module) -> None:
        model.get_submodule(PLANTED).__class__ = InBfloat16

    diff = compare(plain, train(tmp_path / "b", prepare=cast))
    assert where(diff.first) == (0, PLANTED, "output")
    assert diff.origin is not None
    assert (diff.origin.verdict, diff.origin.inputs, diff.origin.after) == (
        "module", {"activation": 0.0, "weight": 0.0}, f"{PLANTED} activation"
    )  # fmt: skip
    assert diff.modules[0].layer_a == PLANTED


def test_a_change_at_a_later_step_is_found_at_that_step(plain: str, tmp_path: Path) -> None:
    def at_two(step: int, model: nn.Module) -> None:
        if step == 2:
            perturb(model)

    diff = compare(plain, train(tmp_path / "b", before=at_two))
    assert where(diff.first) == where(diff.first_unequal) == (2, PLANTED, "output")
    assert [s.num_diverging > 0 for s in diff.steps] == [False, False, True, True]


def test_a_nan_in_one_run_alone_is_told_apart(plain: str, tmp_path: Path) -> None:
    diff = compare(plain, train(tmp_path / "b", before=poison), top=3)
    assert [(where(d), d.nonfinite_in, d.worst) for d in diff.nonfinite] == [
        ((2, PLANTED, "output"), "b", "num_nan"),
        ((2, "layers.2.down_proj", "activation"), "b", "num_nan"),
        ((2, "layers.2.down_proj", "output"), "b", "num_nan"),
    ]
    assert diff.num_nonfinite > 3
    assert where(diff.first) == (2, PLANTED, "output")
    assert "Not finite in one run alone" in text(diff, 200).split("First divergence")[0]


def test_a_nan_in_both_runs_is_none_of_one_alone(tmp_path: Path) -> None:
    bad = torch.tensor([1.0, math.nan, 2.0, 3.0])
    a, b = write(tmp_path / "a", ("fc", "output", bad)), write(tmp_path / "b", ("fc", "output", bad.clone()))
    assert compare(a, b).nonfinite == ()
    assert not compare(a, b).diverged


def test_autocast_differs_by_what_bfloat16_rounds(plain: str, tmp_path: Path) -> None:
    diff = compare(plain, train(tmp_path / "b", autocast=True))
    assert diff.dtypes == ("float32", "bfloat16")
    assert not diff.diverged
    assert diff.first_unequal is not None
    assert compare(plain, str(tmp_path / "b"), tolerance=1e-4).diverged


def test_a_loss_scale_is_taken_out_and_told(plain: str, tmp_path: Path) -> None:
    diff = compare(plain, train(tmp_path / "b", loss_scale=1024.0))
    assert diff.factors == tuple((step, 1024.0) for step in range(4))
    assert not diff.diverged
    assert "B's gradients are 1024 times A's throughout" in text(diff, 200)


# ---- noise


def test_dropouts_seed_is_noise_and_a_planted_weight_is_not(dropouts: list[str], tmp_path: Path) -> None:
    a, b, *noise = dropouts
    assert compare(a, b).diverged
    calibrated = compare(a, b, noise=noise)
    assert (calibrated.diverged, calibrated.calibration, calibrated.noise) == (False, "noise", tuple(noise))
    planted = compare(a, train(tmp_path / "planted", dropout=0.1, seed=9, prepare=perturb), noise=noise)
    assert planted.first is not None
    assert (planted.first.step_a, planted.first.layer_a) == (0, PLANTED)


def test_noise_leaves_what_is_exact_between_its_runs_exact(dropouts: list[str], plain: str) -> None:
    diff = compare(dropouts[0], plain, noise=dropouts[1:3])
    assert diff.first is not None
    judged = {s.step_a: s for s in diff.steps}
    assert judged[0].num_sites == 50
    # The first layers stand before all dropout: there the runs of the pair agree bit for bit, and plain does too.
    assert diff.first.layer_a not in ("embed", "layers.0.up_proj", "layers.0.down_proj") or diff.first.tensor in ("gradient", "wgrad")


def test_later_noise_does_not_excuse_an_early_difference(tmp_path: Path) -> None:
    def run(name: str, *values: float) -> str:
        sink = ParquetSink(tmp_path / name, 0, {})
        sink.write([observation("fc", "Linear", "output", torch.full((8,), v), step, 0) for step, v in enumerate(values)])
        sink.close()
        return str(tmp_path / name)

    a, noise = run("a", 1.0, 1.0, 1.0), run("noise", 1.0001, 1.01, 1.5)
    early, late = run("early", 1.05, 1.0, 1.0), run("late", 1.0, 1.0, 1.05)
    assert where(compare(a, early, noise=[noise]).first) == (0, "fc", "output")
    assert not compare(a, late, noise=[noise]).diverged


# ---- two steps of one run


def test_two_steps_are_judged_by_the_steps_before(tmp_path: Path) -> None:
    def spike(step: int, model: nn.Module) -> None:
        if step == 5:
            model.get_submodule(PLANTED).weight.data *= 6

    run = train(tmp_path / "a", steps=6, before=spike)
    calm = compare(f"{run}:3", f"{run}:4")
    assert (calm.calibration, calm.diverged) == ("earlier steps", False)
    diff = compare(f"{run}:4", f"{run}:5")
    assert diff.first is not None
    assert (diff.first.step_a, diff.first.step_b, diff.first.layer_a, diff.first.tensor) == (4, 5, PLANTED, "output")
    assert diff.origin is not None
    assert diff.origin.weights == (PLANTED,)


def test_two_steps_without_any_before_are_judged_by_a_factor_of_two(plain: str) -> None:
    diff = compare(f"{plain}:0", f"{plain}:1")
    assert (diff.calibration, set(diff.tolerances.values()), diff.diverged) == ("steps", {0.5}, False)


# ---- alignment


def test_renamed_layers_compare_and_what_stands_alone_is_said(plain: str, tmp_path: Path) -> None:
    diff = compare(plain, train(tmp_path / "b", rename=lambda name: f"module.model.{name.replace('layers', 'h')}"))
    assert {p.how for p in diff.pairs} == {"prefix"}
    assert {p.a: p.b for p in diff.pairs}[PLANTED] == "module.model.h.2.up_proj"
    assert not diff.diverged
    assert (diff.only_a, diff.only_b) == ((), ())


def test_sites_and_steps_of_one_run_alone_are_said(tmp_path: Path) -> None:
    x = torch.ones(4)
    a = write(tmp_path / "a", ("fc", "output", x), ("fc", "activation", x), ("gone", "output", x), cls="Linear")
    write(tmp_path / "a", ("fc", "output", x), step=1)
    b = write(tmp_path / "b", ("fc", "output", x), ("fc", "wgrad", x))
    write(tmp_path / "b", ("fc", "output", x), step=5)
    diff = compare(a, b)
    assert diff.only_a == ("fc activation", "gone output")
    assert diff.only_b == ("fc wgrad",)
    assert (diff.steps_only_a, diff.steps_only_b) == ((1,), (5,))
    assert "In A alone, 2 sites: fc activation, gone output" in text(diff, 100)


def test_ranks_parts_are_merged_before_they_are_compared(tmp_path: Path) -> None:
    whole = torch.randn(64, generator=torch.Generator().manual_seed(0))
    a = write(tmp_path / "a", ("fc", "output", whole))
    b = write(tmp_path / "b", ("fc", "output", whole[:10]))
    write(tmp_path / "b", ("fc", "output", whole[10:]), rank=1)
    diff = compare(a, b)
    assert not diff.diverged
    assert diff.steps[0].severity < 1e-6


def test_two_copies_of_a_replicated_weight_compare_with_one(tmp_path: Path) -> None:
    weight = torch.randn(64, generator=torch.Generator().manual_seed(0))
    a = write(tmp_path / "a", ("fc", "weight", weight))
    b = write(tmp_path / "b", ("fc", "weight", weight))
    write(tmp_path / "b", ("fc", "weight", weight), rank=1)
    assert compare(a, b).steps[0].severity < 1e-6


def test_a_step_that_a_restarted_job_ran_twice_counts_once_and_as_it_ran_last(tmp_path: Path) -> None:
    right, wrong = torch.ones(4), torch.zeros(4)
    a = write(tmp_path / "a", ("fc", "output", right))
    write(tmp_path / "b", ("fc", "output", wrong))
    assert not compare(a, write(tmp_path / "b", ("fc", "output", right))).diverged


def test_pipeline_stages_are_in_order_forward_and_backward(tmp_path: Path) -> None:
    def run(name: str, *bad: tuple[str, str]) -> str:
        for rank, layer in enumerate(("first", "second")):
            values = [(layer, t, torch.ones(4) * (2 + rank if (layer, t) in bad else 1)) for t in ("output", "wgrad", "gradient")]
            write(tmp_path / name, *values, rank=rank)
        return str(tmp_path / name)

    a = run("a")
    assert where(compare(a, run("b", ("first", "output"), ("second", "output"))).first) == (0, "first", "output")
    assert where(compare(a, run("c", ("first", "gradient"), ("second", "gradient"), ("first", "wgrad"))).first) == (0, "second", "gradient")


# ---- divergences


def test_a_divergence_is_bounded_and_free_of_scale(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(256, generator=generator, dtype=torch.float64), torch.randn(256, generator=generator, dtype=torch.float64) * 3 + 1
    found = []
    for i, scale in enumerate((1.0, 2.0**-40, 2.0**60)):
        a = write(tmp_path / f"a{i}", ("fc", "output", x * scale))
        b = write(tmp_path / f"b{i}", ("fc", "output", y * scale))
        diff = compare(a, b)
        found.append([measure(diff, s) for s in STATS])
    for other in found[1:]:
        assert other == pytest.approx(found[0], rel=1e-9)
    assert all(0 <= d <= 1 for d in found[0])
    rms = [(x**2).mean().sqrt().item(), (y**2).mean().sqrt().item()]
    assert found[0][STATS.index("rms")] == pytest.approx(abs(rms[0] - rms[1]) / max(rms), rel=1e-12)
    assert found[0][STATS.index("mean")] == pytest.approx(abs(x.mean() - y.mean()).item() / max(rms), rel=1e-12)
    assert found[0][STATS.index("std")] == pytest.approx(abs(x.std(correction=0) - y.std(correction=0)).item() / max(rms), rel=1e-9)
    amax = [x.abs().max().item(), y.abs().max().item()]
    assert found[0][STATS.index("amax")] == pytest.approx(abs(amax[0] - amax[1]) / max(amax), rel=1e-12)
    logs = [math.log2(t.abs().min().item()) for t in (x, y)]
    assert found[0][STATS.index("abs_min")] == pytest.approx(abs(logs[0] - logs[1]) / 64, rel=1e-9)


@pytest.mark.parametrize("other", [torch.zeros(4), torch.full((4,), 1e-30), torch.full((4,), -1.0), torch.tensor([1.0, -1.0, 1.0, -1.0])])
def test_opposite_extremes_stay_within_one(other: Tensor, tmp_path: Path) -> None:
    a, b = write(tmp_path / "a", ("fc", "output", torch.ones(4))), write(tmp_path / "b", ("fc", "output", other))
    diff = compare(a, b)
    assert diff.diverged
    assert all(0 <= measure(diff, s) <= 1 for s in STATS)


def test_all_zero_and_empty_tensors_compare(tmp_path: Path) -> None:
    sites = (("fc", "output", torch.zeros(4)), ("fc", "activation", torch.empty(0)), ("fc", "weight", torch.full((3,), math.inf)))
    assert not compare(write(tmp_path / "a", *sites), write(tmp_path / "b", *sites)).diverged


def test_only_the_statistics_asked_for_are_judged(tmp_path: Path) -> None:
    x = torch.tensor([1.0, 2.0, 3.0, -4.0])
    a, b = write(tmp_path / "a", ("fc", "output", x)), write(tmp_path / "b", ("fc", "output", -x))
    assert not compare(a, b, stats=["rms", "amax"]).diverged
    assert compare(a, b, stats=["rms", "mean"]).first.worst == "mean"  # type: ignore[union-attr]


# ---- refusals, text, JSON


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stats": ["rms", "amx"]}, f"stats[1]: got 'amx', expected one of {', '.join(STATS)}. Did you mean 'amax'?"),
        ({"stats": []}, "stats: got none, expected some of " + ", ".join(STATS) + "."),
        ({"tolerance": 2.0}, "tolerance: got 2.0, expected a number between 0 and 1: divergences are relative."),
        ({"top": 0}, "top: got 0, expected a whole number of at least 1."),
    ],
)
def test_wrong_argument_is_refused(change: dict[str, object], message: str, plain: str) -> None:
    with pytest.raises(UsageError) as caught:
        compare(plain, plain, **change)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_wrong_sides_are_refused(plain: str, tmp_path: Path) -> None:
    late = write(tmp_path / "late", ("embed", "output", torch.ones(2)), step=7)
    other = write(tmp_path / "other", ("conv", "output", torch.ones(2)), cls="Conv2d")
    refusals = {
        (f"{plain}:1", plain): f"A: got '{plain}:1', a step of one side alone, expected RUN:STEP for both or for none.",
        (f"{plain}:9", f"{plain}:1"): f"A: got step 9, expected one that '{plain}' holds; the nearest are 0, 1, 2, 3.",
        (plain, late): f"B: got steps 7 to 7, expected some of those of '{plain}', 0 to 3. To compare two steps write RUN:STEP for both.",
        (plain, other): "B: got a run whose layers are conv, …, expected some of A's: embed, layers.0.up_proj, layers.0.down_proj, ….",
    }
    for (a, b), message in refusals.items():
        with pytest.raises(UsageError) as caught:
            compare(a, b)
        assert str(caught.value) == message
    with pytest.raises(UsageError, match=r"^B: got '.*nowhere', expected a run's folder"):
        compare(plain, str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match=r"^noise: got '.*' to compare with '.*', expected a step for both or for none\.$"):
        compare(plain, plain, noise=[f"{plain}:1"])


def test_a_folder_whose_name_ends_like_a_step_is_a_folder(tmp_path: Path) -> None:
    run = write(tmp_path / "run:3", ("fc", "output", torch.ones(2)))
    assert compare(run, run).steps[0].step_a == 0


def numbers(layer: str, tensor: str, order: int, step: int, scale: float, **changed: float | None) -> Observation:
    """A site whose numbers are round, so that a report of it is the same on every machine."""
    fields: dict[str, float | None] = {
        "numel": 4096, "num_nan": 0, "num_pos_inf": 0, "num_neg_inf": 0, "num_zero": 0, "num_subnormal": 0,
        "min": -4.0 * scale, "max": 4.0 * scale, "abs_min": scale / 1024, "abs_max": 4.0 * scale,
        "dev_sum": 0.0, "abs_sum": 3072.0 * scale, "dev_square_sum": 4096.0 * scale**2, "dev_cube_sum": 0.0,
        "dev_fourth_sum": 12288.0 * scale**4, "center": 0.0,
    }  # fmt: skip
    return Observation(step, layer, "Linear", tensor, "float32", order, 0, 1, 1, {**fields, **changed})  # type: ignore[arg-type]


def rounded_runs(folder: Path) -> tuple[str, str]:
    """From step 1 on one layer's output is a sixteenth larger in B; at step 2 its loss is scaled and one output overflows."""
    for name in ("a", "b"):
        sink = ParquetSink(folder / name, 0, {})
        planted = name == "b"
        for step in range(3):
            grown = 1.0625 if planted and step >= 1 else 1.0
            back = 1024.0 if planted and step == 2 else 1.0
            over = {"num_pos_inf": 12} if planted and step == 2 else {}
            prefix = "module." if planted else ""
            sink.write(
                [
                    numbers(f"{prefix}layers.0.fc1", "activation", 0, step, 1.0),
                    numbers(f"{prefix}layers.0.fc1", "output", 1, step, 2.0),
                    numbers(f"{prefix}layers.0.fc2", "activation", 2, step, 1.5),
                    numbers(f"{prefix}layers.0.fc2", "output", 3, step, 0.5 * grown),
                    numbers(f"{prefix}layers.1.fc1", "activation", 4, step, 1.25 * math.sqrt(grown)),
                    numbers(f"{prefix}layers.1.fc1", "output", 5, step, 3.0 * grown**2, **over),
                    numbers(f"{prefix}layers.1.fc1", "gradient", 6, step, 0.25 * back),
                    numbers(f"{prefix}layers.0.fc2", "gradient", 7, step, 0.125 * back),
                    numbers(f"{prefix}layers.0.fc1", "gradient", 8, step, 0.0625 * back),
                    numbers(f"{prefix}layers.0.fc2", "weight", 9, step, 0.0625),
                ]
            )
        sink.write([numbers("only", "output", 10, 3, 1.0)] if planted else [])
        sink.close()
    return str(folder / "a"), str(folder / "b")


def test_report_is_the_golden_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rounded_runs(tmp_path)
    monkeypatch.chdir(tmp_path)
    golden = Path(__file__).parent / "golden" / "diff.txt"
    assert text(compare("a", "b"), 110) == golden.read_text(encoding="utf-8")


def test_hostile_names_steer_no_terminal(tmp_path: Path) -> None:
    name = "evil\x1b[31m[red]\nlayer"
    a, b = write(tmp_path / "a", (name, "output", torch.ones(2))), write(tmp_path / "b", (name, "output", torch.ones(2) * 2))
    shown = text(compare(a, b), 100)
    assert "\x1b" not in shown
    assert "evil\\x1b[31m[red]\\nlayer" in shown


def test_document_is_json_and_has_the_keys_that_its_page_describes(tmp_path: Path) -> None:
    document = compare(*rounded_runs(tmp_path)).document()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    page = (Path(__file__).parents[2] / "docs" / "diff.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.split("## JSON")[1].splitlines() if line.startswith("| `")]
    described = {key for row in rows for key in row.split("`")[1::2]}

    def keys(value: object, name: str = "") -> set[str]:
        if isinstance(value, dict):
            own = set() if name in ("tolerances", "inputs") else set(value)
            return own.union(*(keys(v, k) for k, v in value.items()))
        return set().union(*(keys(v) for v in value)) if isinstance(value, list) else set()

    assert keys(document) == described


def test_one_element_of_a_small_tensor_that_rounds_to_zero_is_no_divergence(tmp_path: Path) -> None:
    value = torch.linspace(1, 2, 32)
    for name, zeros, dtype in (("a", 0, torch.float32), ("b", 1, torch.bfloat16), ("c", 20, torch.bfloat16)):
        gradient = value.clone()
        gradient[:zeros] = 0
        sink = ParquetSink(tmp_path / name, 0, {})
        seen = [("activation", value), ("output", value), ("wgrad", gradient)]
        sink.write([observation("ln", "LayerNorm", tensor, one.to(dtype), 0, i) for i, (tensor, one) in enumerate(seen)])
        sink.close()
    a, b, c = (str(tmp_path / name) for name in "abc")
    assert compare(a, b, stats=("num_zero",)).first is None
    assert where(compare(a, c, stats=("num_zero",)).first) == (0, "ln", "wgrad")
    assert where(compare(a, b, stats=("num_zero",), tolerance=0.02).first) == (0, "ln", "wgrad")
