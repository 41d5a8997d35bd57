"""``numscope precision``: its refusals, its search over planted runs, and what it prints."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import numscope
from numscope.cli import bisection
from numscope.cli.bisection import Bisection, BisectionTask, BisectionVerdict
from numscope.cli.command import main
from numscope.cli.precision import _base
from numscope.cli.precision_text import advice_lines, advice_table, verdict_lines
from numscope.config import load
from numscope.precision.search.advise import Limits, advice_of
from numscope.precision.search.trials import Book, Script, Spec, TrialFailed, TrialOutcome
from numscope.records.errors import NumscopeError
from numscope.records.layer import GEMMS
from tests.effort import examples


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ------------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["advise"], "numscope: got no train.py | -m module, expected "),
        (["advise", "no.py"], "numscope: got 'no.py', expected a script's path, or -m and a module's name. "),
        (
            ["advise", "--recipe", "delaid", "s.py"],
            "numscope: --recipe: got 'delaid', expected one of 'delayed', 'current', 'rowwise', 'block', 'mxfp8', 'mxfp4', "
            "'nvfp4'. Did you mean 'delayed'?",
        ),
        (
            ["advise", "--recipe", "autocast", "s.py"],
            "numscope: --recipe: got 'autocast', expected one of 'delayed', 'current', 'rowwise', 'block', 'mxfp8', 'mxfp4', 'nvfp4'.",
        ),
        (["advise", "--settings", "no.yaml", "s.py"], "numscope: no.yaml: no such file, expected a YAML file."),
        (["advise", "--steps", "0", "s.py"], "numscope: --steps: got '0', expected a whole number of at least 1."),
        (["bisect", "--steps", "0", "s.py"], "numscope: --steps: got '0', expected a whole number of at least 1."),
        (["bisect", "--config", "no.yaml", "s.py"], "numscope: no.yaml: no such file, expected a YAML file."),
        (["bisect", "--launch", "torchrn", "s.py"], "numscope: --launch: got 'torchrn', expected a command that can be run. There is no"),
        (["advise", "s2.py"], "numscope: got 's2.py', expected a script's path, or -m and a module's name. There is no such file. Did you"),
        (["bissect", "s.py"], "numscope: got 'bissect', expected one of advise, bisect. Did you mean 'bisect'?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_refused_before_anything_runs(
    here: Path, words: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "s.py").write_text("raise SystemExit('ran')")
    monkeypatch.setattr(sys, "argv", ["numscope", "precision", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr()
    assert (ended.value.code, told.out) == (2, "")
    assert told.err.startswith(message)
    assert os.listdir(here) == ["s.py"]  # nothing is left


@pytest.mark.parametrize(
    ("command", "content", "wrong"),
    [
        ("advise", "max_flushed_pct: 101", ["max_flushed_pct: got '101', expected a percentage."]),
        (
            "bisect",
            "tolerance: -1\nrepeat: 2",
            [
                "tolerance: got '-1', expected a number from 0, such as 0.01.",
                "repeat: unknown, expected one of runs, tolerance, repeats, seed, features. Did you mean 'repeats'?",
            ],
        ),
        ("bisect", "tolerance: .inf", ["tolerance: got 'inf', expected a number from 0, such as 0.01."]),
    ],
)
def test_wrong_settings_are_refused_all_at_once(
    here: Path, command: str, content: str, wrong: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "s.py").write_text("raise SystemExit('ran')")
    (here / "my.yaml").write_text(content)
    monkeypatch.setattr(sys, "argv", ["numscope", "precision", command, "--settings", "my.yaml", "s.py"])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr().err
    assert ended.value.code == 2 and all(f"my.yaml: {line}" in told for line in wrong)


# ------------------------------------------------------------------------------------------------------- what is printed


def _measured(layers: dict[str, int]) -> dict[str, object]:
    """Layers whose activations have so many of their thousand elements clipped along their columns."""
    form = "e4m3fn 1x128 power-of-two"
    plan = {"fprop": {"activation": form, "weight": form}, "wgrad": {"activation": f"{form} along columns", "gradient": form}}

    def one(clipped: int = 0) -> dict[str, object]:
        cast = {"numel": 1000, "num_underflow": 0, "num_overflow": clipped, "noise": 1e-3, "num_casts": 1}
        casts = {"e4m3": {**cast, "num_overflow": 0}, form: {**cast, "num_overflow": 0}, f"{form} along columns": cast}
        return {"numel": 1000, "num_nan": 0, "num_inf": 0, "amax": 1.0, "casts": casts}

    told = {name: {"class": "Linear", "operands": {"activation": one(n), "weight": one(), "gradient": one()}} for name, n in layers.items()}
    return {"plan": plan, "layers": told, "num_steps": 3}


def test_advice_fits_80_columns_whatever_the_layers_are_called() -> None:
    name = "model.language_model.layers.31.self_attn.q_proj"
    advice = advice_of(_measured({name: 150, "head": 0}), Limits())
    assert [line.rstrip() for line in map(click.unstyle, advice_table(advice, "block"))] == [
        "layer         could take                     under block",
        "  operand     format   SQNR  sat. %  zero %  format        SQNR  sat. %  zero %",
        f"{name}: keep wgrad high",
        "  activation  e4m3     30.0       0       0  e4m3fn cols   30.0      15       0",
        "    too much under block: saturated",
        "  weight      e4m3     30.0       0       0  e4m3fn        30.0       0       0",
        "  gradient    e4m3     30.0       0       0  e4m3fn        30.0       0       0",
        "head",
        "  activation  e4m3     30.0       0       0  e4m3fn        30.0       0       0",
        "  weight      e4m3     30.0       0       0  e4m3fn        30.0       0       0",
        "  gradient    e4m3     30.0       0       0  e4m3fn        30.0       0       0",
    ]


def test_command_that_is_told_is_the_one_that_was_given() -> None:
    script = Script("pack.train", ("--lr", "1 2"), True, ("torchrun", "--nproc-per-node", "2"))
    command = "torchrun --nproc-per-node 2 -m numscope run --recipe block --config 'o n.yaml' {}-m pack.train --lr '1 2'"
    told = advice_lines(advice_of(_measured({"fc": 150}), Limits()), script, "block", "o n.yaml")
    assert told[-1] == f"o n.yaml: written. To train with it: {command.format('')}"
    verdict = BisectionVerdict("found", (("a", "fprop"),), drift=math.inf)
    told = verdict_lines(verdict, task(script=script, recipe="block", features=("own.py",)), "o n.yaml")
    assert told[-1] == f"o n.yaml: written. To train with it: {command.format('--features own.py ')}"


# ------------------------------------------------------------------------- the search over runs that are planted, not run


LAYERS = {f"h.{i}.{name}": GEMMS for i in range(3) for name in ("qkv", "fc")}


class Planted:
    """In place of ``run_trial``: the loss is right when the culprits are kept high."""

    def __init__(self, culprits: set[tuple[str, str]] | None, *, noise: float = 0.0, reference: float = 2.0, harm: float = 1.0) -> None:
        self.culprits, self.noise, self.reference, self.harm = culprits, noise, reference, harm
        self.layers = LAYERS
        self.num_runs = 0
        self.specs: list[Spec] = []
        self.stop_after = 10**9

    def __call__(self, script: Script, spec: Spec, place: Path) -> TrialOutcome:
        if self.num_runs >= self.stop_after:
            raise KeyboardInterrupt
        self.num_runs += 1
        self.specs.append(spec)
        if spec.recipe is None:
            return TrialOutcome((9.0, self.reference + self.noise * (self.num_runs - 1)), 0.1)
        kept = set()
        for switch in load(spec.config).switches if spec.config else ():
            gemms = (switch.settings.get("gemms") or GEMMS) if switch.feature.startswith("disable") else ()
            kept |= {(layer, gemm) for layer in LAYERS if re.search(switch.selection.pattern or "", layer) for gemm in gemms}
        is_good = self.culprits is not None and self.culprits <= kept
        loss = self.reference * (1 if is_good else 1 + self.harm)
        return TrialOutcome((9.0, loss), 0.1, {} if kept else self.layers, {"h.1.fc": 0.3, "h.0.qkv": 0.0})


def task(**changes: object) -> BisectionTask:
    given: dict[str, object] = {
        "script": Script("train.py", ("--lr", "1")), "recipe": "delayed", "base": {}, "features": (), "steps": 20, "runs": 40,
        "tolerance": 0.01, "repeats": 2, "seed": 0,
    }  # fmt: skip
    return BisectionTask(**{**given, **changes})  # type: ignore[arg-type]


def bisected(planted: Planted, monkeypatch: pytest.MonkeyPatch, said: list[str] | None = None, **changes: object) -> BisectionVerdict:
    monkeypatch.setattr(bisection, "run_trial", planted)
    one = task(**changes)
    said = [] if said is None else said
    return Bisection(one, Book(Path("b.trials"), one.about()), said.append).run()


def test_trial_is_given_a_place_that_a_script_which_changes_its_folder_still_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    places: list[Path] = []

    def run(place: Path) -> TrialOutcome:
        places.append(place)
        return TrialOutcome((1.0,))

    Book(Path("b.trials"), {}).get("one", run)
    assert places == [tmp_path / "b.trials" / "trial000"]


def test_planted_culprits_are_found_and_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = Planted({("h.1.fc", "fprop"), ("h.1.fc", "wgrad")})
    said: list[str] = []
    verdict = bisected(planted, monkeypatch, said)
    assert (verdict.outcome, verdict.minimal) == ("found", True)
    assert not any("known from an earlier search" in line for line in said)
    assert verdict.units == (("h.1.fc", "fprop"), ("h.1.fc", "wgrad"))
    assert (verdict.num_gemms, verdict.num_layers) == (18, 6)
    assert (verdict.drift, verdict.drift_with_high_precision, verdict.reference_loss) == (1.0, 0.0, 2.0)
    assert verdict.num_runs == planted.num_runs == len(verdict.trials) + 2


def test_layer_that_clips_most_is_tried_first(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = Planted({("h.1.fc", "fprop")})
    bisected(planted, monkeypatch)
    after_all = planted.specs[4]  # two references, the low run, all high
    assert "^h\\.1\\.fc$" in Path(after_all.config or "").read_text()


def test_search_killed_at_any_point_goes_on_to_the_same_answer_without_a_run_made_twice(
    monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    culprits = {("h.2.qkv", "dgrad"), ("h.0.fc", "fprop")}
    whole = Planted(culprits)
    expected = bisected(whole, monkeypatch)
    for after in range(whole.num_runs):
        folder = here / str(after)
        folder.mkdir()
        monkeypatch.chdir(folder)
        killed = Planted(culprits)
        killed.stop_after = after
        with pytest.raises(KeyboardInterrupt):
            bisected(killed, monkeypatch)
        again = Planted(culprits)
        said: list[str] = []
        assert bisected(again, monkeypatch, said) == expected
        assert any("known from an earlier search" in line for line in said) == (after > 3)
        assert killed.num_runs + again.num_runs == whole.num_runs


_JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.just("") | st.sampled_from(["fprop", "h.0.fc", "nan"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_state_of_a_search_is_gone_on_with_or_refused(monkeypatch: pytest.MonkeyPatch, data: st.DataObject) -> None:
    path = Path("b.trials/state.json")
    path.unlink(missing_ok=True)
    bisected(Planted({("h.1.fc", "fprop")}), monkeypatch)
    state = inner = json.loads(path.read_text())
    for _ in range(data.draw(st.integers(0, 4))):  # how deep the odd value is
        deeper = inner[key] if (key := data.draw(st.sampled_from(list(inner)))) and isinstance(inner[key], dict) else None
        if not deeper:
            break
        inner = deeper
    inner[data.draw(st.sampled_from([*inner, "odd"]))] = data.draw(_JUNK)
    path.write_text(json.dumps(state))
    try:
        verdict = bisected(Planted({("h.1.fc", "fprop")}), monkeypatch)
        json.dumps(verdict.document(), allow_nan=False)
    except NumscopeError as error:
        assert "state.json" in str(error) or "holds the trials of a search" in str(error)


def test_state_whose_description_is_a_list_of_pairs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bisected(Planted(set()), monkeypatch)
    path = Path("b.trials/state.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "about": [[None, False]]}))
    with pytest.raises(NumscopeError, match=r"state\.json"):
        bisected(Planted(set()), monkeypatch)


def test_another_searchs_trials_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bisected(Planted(set()), monkeypatch)
    with pytest.raises(numscope.UsageError) as caught:
        bisected(Planted(set()), monkeypatch, steps=21)
    assert str(caught.value) == (
        "b.trials: holds the trials of a search with different steps, expected those of this one. "
        "Remove the folder to start again, or keep both with --output FILE."
    )


def test_larger_budget_and_other_tolerance_go_on_with_the_same_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    first = bisected(Planted({("h.2.qkv", "dgrad")}), monkeypatch, runs=6)
    assert (first.outcome, first.num_runs) == ("budget", 6)
    planted = Planted({("h.2.qkv", "dgrad")})
    second = bisected(planted, monkeypatch, runs=40, tolerance=0.02)
    assert second.units == (("h.2.qkv", "dgrad"),)
    assert planted.num_runs == second.num_runs - 6


def test_budget_that_runs_out_says_what_is_known_and_what_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = bisected(Planted({("h.2.qkv", "dgrad")}), monkeypatch, runs=5)
    assert (verdict.outcome, verdict.minimal, verdict.num_runs) == ("budget", False, 5)
    assert 0 < len(verdict.units) <= 18
    assert verdict_lines(verdict, task(runs=5), "b.yaml")[0] == (
        f"The 5 runs did not suffice. The smallest set that has cured so far has {len(verdict.units)} of 18; a smaller one may do."
    )


def test_run_that_is_good_as_it_is_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = bisected(Planted(set()), monkeypatch)
    assert (verdict.outcome, verdict.units, verdict.num_runs) == ("within", (), 3)
    assert verdict_lines(verdict, task(), "b.yaml") == [
        "Nothing to find: under delayed the loss is +0 % from the run in high precision, within the tolerance of 1 %.",
        "If the run is bad nevertheless, precision is not the cause, or 20 steps are too few to show it: see --steps.",
    ]


def test_run_that_high_precision_does_not_cure_is_said_not_to_be_its_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = bisected(Planted(None), monkeypatch)
    assert (verdict.outcome, verdict.units, verdict.num_runs) == ("incurable", (), 4)
    assert verdict_lines(verdict, task(), "b.yaml") == [
        "Keeping all 18 GEMMs of 6 layers in high precision does not cure it: +100 % with, +100 % without (tolerance 1 %).",
        "The precision of these GEMMs is not the cause.",
    ]


def test_reference_that_is_not_finite_ends_the_search_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = bisected(Planted(set(), reference=math.inf), monkeypatch)
    assert (verdict.outcome, verdict.num_runs) == ("reference", 1)
    assert verdict_lines(verdict, task(), "b.yaml") == [
        "Even the run in high precision has a loss that is not finite: low precision is not the cause.",
        "To find the first bad number: numscope run train.py --lr 1",
    ]


def test_noise_of_the_reference_widens_the_tolerance(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = bisected(Planted({("h.0.fc", "fprop")}, noise=0.1, harm=0.14), monkeypatch)
    assert verdict.outcome == "within"
    assert verdict.reference_noise == pytest.approx(0.05)
    assert verdict.tolerance == pytest.approx(0.15)
    assert verdict_lines(verdict, task(), "b.yaml")[-1] == ("Repeated runs in high precision differ by 5 %: tolerance 15 %.")


def test_models_without_low_precision_have_nothing_to_search(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = Planted(set())
    planted.layers = {}
    assert bisected(planted, monkeypatch).outcome == "nothing"


class Failing(Planted):
    """Raises in place of a bad loss, once so many runs have been good or bad."""

    fine = 0

    def __call__(self, script: Script, spec: Spec, place: Path) -> TrialOutcome:
        outcome = super().__call__(script, spec, place)
        if outcome.losses[-1] > self.reference and self.num_runs > self.fine:
            raise TrialFailed("train.py: ended with status 1 before a step was complete")
        return outcome


def test_trial_that_ends_before_its_first_step_does_not_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = Failing({("h.2.qkv", "dgrad")})
    planted.fine = 3  # the references, and the run as it is
    assert bisected(planted, monkeypatch).units == (("h.2.qkv", "dgrad"),)


def test_script_that_has_no_step_as_it_is_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TrialFailed):
        bisected(Failing({("h.2.qkv", "dgrad")}), monkeypatch)


def test_configuration_of_the_run_stays_beside_what_is_kept_high(monkeypatch: pytest.MonkeyPatch) -> None:
    base = {"high_precision": {"enabled": True, "layers": {"layer_types": ["qkv"]}, "transformer_engine": {
        "per_tensor_scaling": {"enabled": True, "gemms": ["dgrad"]}}}}  # fmt: skip
    planted = Planted({("h.2.qkv", "dgrad")})
    bisected(planted, monkeypatch, base=base)
    last = yaml.safe_load(Path(planted.specs[-1].config or "").read_text())
    assert last["high_precision"] == base["high_precision"]
    assert [name.startswith("high_precision_") for name in list(last)[1:]] == [True]


def test_configuration_without_a_sections_name_gets_its_files_and_means_the_same(here: Path) -> None:
    feature = {"transformer_engine": {"per_tensor_scaling": {"enabled": True, "gemms": ["dgrad"]}}}
    (here / "fp8.yaml").write_text(yaml.safe_dump(feature))
    base = _base("fp8.yaml", ())
    assert base == {"fp8": {"enabled": True, "layers": {"layer_name_regex_pattern": ".*"}, **feature}}
    (here / "whole.yaml").write_text(yaml.safe_dump(base))
    assert _base("whole.yaml", ()) == base
    assert [one.feature for one in load(base).switches] == [one.feature for one in load("fp8.yaml").switches] == ["per_tensor_scaling"]


def test_verdict_as_json_has_no_number_that_json_lacks() -> None:
    verdict = BisectionVerdict("found", (("a", "fprop"), ("b", "")), drift=math.inf)
    told = json.loads(json.dumps(verdict.document(), allow_nan=False))
    assert told["drift"] == "inf" and told["drift_with_high_precision"] is None
    assert told["high_precision"] == [{"layer": "a", "gemm": "fprop"}, {"layer": "b", "gemm": None}]


def test_a_search_that_is_terminated_leaves_no_process(tmp_path: Path) -> None:
    """A launcher's ranks are in a session of their own, which no signal to us reaches."""
    inner = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(300)"
    outer = (
        "import sys; from pathlib import Path; from numscope.precision.search.trials import run_to_end;"
        f"run_to_end([sys.executable, '-c', {inner!r}], Path({str(tmp_path / 'log')!r}), 0)"
    )
    process = subprocess.Popen([sys.executable, "-c", outer])
    told = tmp_path / "pid"
    while not told.exists() or not told.read_text():
        assert process.poll() is None
        time.sleep(0.05)
    process.terminate()
    assert process.wait(60) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(int(told.read_text()), 0)
