"""Plug-ins: which files are run, what a run gets of them, and that no error of theirs reaches the training."""

from __future__ import annotations

import importlib.metadata
import logging
import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import numscope
from numscope.plugins import discovery as plugins
from numscope.plugins.registry import Registry, filling
from numscope.records.errors import UsageError
from numscope.records.observation import Observation
from numscope.summary.extras import Layout

SPREAD = '''
import numscope

@numscope.statistic("spread")
def spread(summary):
    """Largest minus smallest."""
    return summary.max - summary.min
'''


@pytest.fixture(autouse=True)
def _nothing_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests decorated or loaded is not there."""
    monkeypatch.setattr(plugins, "PROCESS", Registry())
    monkeypatch.setattr(plugins, "_loaded", {})


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def texts(found: plugins.Plugins, level: int) -> list[str]:
    return [text for text, its_level in found.messages if its_level == level]


# ---- which files


def test_file_adds_what_it_decorates(tmp_path: Path) -> None:
    file = write(tmp_path, "mine.py", SPREAD)
    found = plugins.load(file)
    assert list(found.statistics) == ["spread"]
    assert found.statistics["spread"].value(numscope.summarize(torch.tensor([1.0, -2.0, 5.0])), {}) == 7.0
    assert texts(found, logging.INFO) == [f"{file} adds statistic 'spread'"]


def test_folder_is_searched_in_the_order_of_names_inner_folders_too(tmp_path: Path) -> None:
    for name in ("b.py", "a/z.py", "a/y.py", "c.txt"):
        write(tmp_path, name, f"import numscope\nnumscope.rule('{name}')(lambda o: None)\n")
    assert list(plugins.load([tmp_path]).rules) == ["a/y.py", "a/z.py", "b.py"]


def test_file_is_run_once_in_a_process_and_serves_every_run(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "counted.py",
        f"import sys\nsys.modules['torch'].numscope_runs = 1 + getattr(sys.modules['torch'], 'numscope_runs', 0)\n{SPREAD}",
    )
    try:
        for _ in range(3):
            assert list(plugins.load([file, tmp_path]).statistics) == ["spread"]
        assert torch.numscope_runs == 1  # type: ignore[attr-defined]
    finally:
        del torch.numscope_runs  # type: ignore[attr-defined]


def test_run_gets_only_the_files_it_asks_for_and_what_the_script_decorates(tmp_path: Path) -> None:
    first, second = (write(tmp_path, f"{n}.py", f"import numscope\nnumscope.rule('{n}')(lambda o: None)\n") for n in ("one", "two"))
    with filling(plugins.PROCESS):
        numscope.rule("of_script")(lambda observation: None)
    assert list(plugins.load(first).rules) == ["one", "of_script"]
    assert list(plugins.load([second]).rules) == ["two", "of_script"]
    assert list(plugins.load().rules) == ["of_script"]


def test_files_of_one_folder_import_each_other_and_hide_no_module(tmp_path: Path) -> None:
    write(tmp_path, "random.py", "raise RuntimeError('this is not the random you know')")
    file = write(tmp_path, "uses.py", f"import random, beside\nassert random.random() < 1\n{SPREAD}")
    write(tmp_path, "beside.py", "X = 1")
    before = list(sys.path)
    try:
        assert list(plugins.load(file).statistics) == ["spread"]
    finally:
        sys.modules.pop("beside", None)
    assert sys.path == before


def test_folder_that_the_interpreter_searches_first_stays_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with ``python -m numscope run --features mine.py``: the folder that it is called in."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    before = list(sys.path)
    plugins.load(write(tmp_path, "here.py", SPREAD))
    assert sys.path == before


def test_module_that_a_feature_file_defines_can_be_found_under_its_name(tmp_path: Path) -> None:
    file = write(tmp_path, "mine.py", f"from dataclasses import dataclass\n@dataclass\nclass Box:\n    x: 'int' = 1\n{SPREAD}")
    plugins.load(file)
    (name,) = [name for name, module in sys.modules.items() if getattr(module, "__file__", None) == str(file)]
    assert sys.modules[name].Box.__module__ == name
    assert name.startswith("numscope_features_mine_")


def test_entry_point_is_loaded_without_being_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "installed_features.py", SPREAD)
    write(tmp_path, "some_plugin-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: some-plugin\nVersion: 1.0\n")
    write(tmp_path, "some_plugin-1.0.dist-info/entry_points.txt", "[numscope.features]\nmine = installed_features\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert importlib.metadata.entry_points(group=plugins.GROUP).names == {"mine"}
    try:
        assert list(plugins.load().statistics) == ["spread"]
        found = plugins.load()
    finally:
        sys.modules.pop("installed_features", None)
    assert list(found.statistics) == ["spread"]
    assert texts(found, logging.INFO) == ["entry point mine = installed_features adds statistic 'spread'"]


def test_import_of_the_loader_brings_no_torch() -> None:
    import subprocess

    code = "import numscope.plugins.discovery, sys; numscope.plugins.discovery.load(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


# ---- what is refused


def test_path_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^features: got '.*none\.py', expected a Python file or a folder of such\. It is not there\.$"):
        plugins.load(tmp_path / "none.py")
    with pytest.raises(UsageError, match=r"expected a folder with Python files in it\. It has none\.$"):
        plugins.load(tmp_path)


def test_name_that_two_files_want_is_refused_with_both_places(tmp_path: Path) -> None:
    one, two = write(tmp_path, "one.py", SPREAD), write(tmp_path, "two.py", "#\n" + SPREAD)
    text = f"statistic 'spread': got a second one at {two}:5, expected each name once: it is taken at {one}:4. Rename one."
    with pytest.raises(UsageError, match=f"^{re.escape(text)}$"):
        plugins.load([one, two])


def test_name_of_a_statistic_that_numscope_has_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, "mine.py", SPREAD.replace('"spread"', '"mean"'))
    with pytest.raises(
        UsageError, match=r"^statistic 'mean': got a second one at .*mine\.py:4, expected a name that is free\. Rename it\.$"
    ):
        plugins.load(file, taken=["mean"])


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = 1\ny = x / 0\n", "ZeroDivisionError at {}:2: division by zero"),
        ("import nowhere_at_all\n", "ModuleNotFoundError at {}:1: No module named 'nowhere_at_all'"),
        ("def f(:\n", "SyntaxError at {}:1: "),
        ("import sys\nsys.exit(1)\n", "SystemExit at {}:2: 1"),
        ("import numscope\n\nnumscope.rule('two words')\n", "UsageError at {}:3: rule: got the name 'two words'"),
        ("import json\njson.loads('{{')\n", "JSONDecodeError at {}:2: "),
    ],
)
def test_file_that_fails_is_left_out_and_the_others_go_on(source: str, said: str, tmp_path: Path) -> None:
    bad, good = write(tmp_path, "bad.py", SPREAD.replace("spread", "half_done") + source), write(tmp_path, "good.py", SPREAD)
    lines = SPREAD.count("\n")
    found = plugins.load([bad, good])
    assert list(found.statistics) == ["spread"]
    (text,) = texts(found, logging.ERROR)
    expected = re.sub(r"\{\}:(\d)", lambda m: f"{bad}:{lines + int(m[1])}", said.replace("{{", "{"))
    assert text.startswith(f"{bad} is left out: {expected}")
    assert not [name for name in sys.modules if name.startswith("numscope_features_bad_")]


# ---- errors at run time


def guarded(**kinds: Any) -> tuple[plugins.Plugins, list[tuple[str, int]]]:
    """Plug-ins of these functions, and what is said."""
    registry = Registry()
    with filling(registry):
        for kind, decorated in kinds.items():
            getattr(numscope, kind)("mine", **decorated[1])(decorated[0])
    found, said = plugins.Plugins(), []
    found.say = lambda text, level: said.append((text, level))
    for entry in registry:
        found.add(entry)
    return found, said


OBSERVATION = Observation(3, "fc1", "Linear", "weight", "float32", 0, 0, 1, 1, {})


def test_statistic_that_raises_is_off_and_says_so_once() -> None:
    calls = []

    def broken(summary: Any) -> float:
        calls.append(1)
        return math.sqrt(-1.0)

    found, said = guarded(statistic=(broken, {}))
    summary = numscope.summarize(torch.ones(3))
    assert [found.statistics["mine"].value(summary, {}) for _ in range(3)] == [None] * 3
    line = broken.__code__.co_firstlineno + 2
    assert len(calls) == 1
    assert len(said) == 1
    assert said[0][0].startswith(f"statistic 'mine' is off from here on: ValueError at {__file__}:{line}: ")
    assert said[0][1] == logging.ERROR
    assert found.statistics["mine"].disabled


@pytest.mark.parametrize(("given_back", "said"), [("big", "ValueError"), ([1, 2], "TypeError")])
def test_statistic_that_gives_no_number_is_off(given_back: object, said: str) -> None:
    found, told = guarded(statistic=(lambda summary: given_back, {}))
    assert found.statistics["mine"].value(numscope.summarize(torch.ones(3)), {}) is None
    assert said in told[0][0]


def test_error_in_a_library_is_placed_at_the_plugins_own_line() -> None:
    def broken(layer: str, tensor_name: str, tensor: torch.Tensor, step: int, settings: dict[str, Any]) -> None:
        torch.nn.functional.linear(tensor, torch.ones(5, 5))

    found, said = guarded(feature=(broken, {}))
    assert found.features["mine"]("fc1", "weight", torch.ones(2, 3), 0, {}) == {}
    assert f"at {__file__}:{broken.__code__.co_firstlineno + 1}: " in said[0][0]


def test_feature_gets_names_tensor_step_and_settings_and_gives_numbers_by_name() -> None:
    seen = []

    def feature(layer: str, tensor_name: str, tensor: torch.Tensor, step: int, settings: dict[str, Any]) -> Any:
        seen.append((layer, tensor_name, tensor.requires_grad, step, settings, torch.is_grad_enabled()))
        return settings["give"]

    found, said = guarded(feature=(feature, {"settings": {"give": list}}))
    call = found.features["mine"]
    weight = torch.ones(2, requires_grad=True)
    assert call("fc1", "weight", weight, 7, {"give": 1}) == {"mine": 1.0}
    assert call("fc1", "weight", weight, 7, {"give": {"a": 1, "b": torch.tensor(2)}}) == {"a": 1.0, "b": 2.0}
    assert call("fc1", "weight", weight, 7, {"give": None}) == {}
    assert seen[0] == ("fc1", "weight", False, 7, {"give": 1}, False)
    assert not said


def test_rule_gives_a_sentence_or_nothing_and_anything_else_turns_it_off() -> None:
    answers: list[object] = ["too large", None, "", 3, "never asked"]
    found, said = guarded(rule=(lambda observation: answers.pop(0), {}))
    assert [found.rules["mine"](OBSERVATION) for _ in range(5)] == ["too large", None, None, None, None]
    assert "TypeError" in said[0][0]
    assert "gave 3, expected a sentence, an Alert or None" in said[0][0]
    assert answers == ["never asked"]


def test_logger_is_made_at_the_first_number_and_its_error_turns_it_off() -> None:
    made, taken = [], []

    class Mine:
        def __init__(self) -> None:
            made.append(self)

        def log_scalar(self, name: str, value: float, iteration: int, **kwargs: Any) -> None:
            taken.append((name, value, iteration))
            if value > 1:
                raise OSError("disk full")

        def close(self) -> None:
            taken.append("closed")

    found, said = guarded(logger=(Mine, {}))
    logger = found.loggers["mine"]
    logger.flush()
    assert not made
    for value in (1.0, 2.0, 3.0):
        logger.log_scalar("fc1_weight_max", value, 4)
    logger.close()
    assert len(made) == 1
    assert taken == [("fc1_weight_max", 1.0, 4), ("fc1_weight_max", 2.0, 4)]
    assert "logger 'mine' is off from here on: OSError at" in said[0][0]


def test_errors_are_told_to_pythons_logging_until_somebody_else_listens(caplog: pytest.LogCaptureFixture) -> None:
    found = plugins.Plugins()
    with filling(Registry()) as registry:
        numscope.rule("mine")(lambda observation: 1 / 0)
    for entry in registry:
        found.add(entry)
    found.rules["mine"](OBSERVATION)
    assert "rule 'mine' is off from here on: ZeroDivisionError" in caplog.text


# ---- statistics that take a pass of their own

numbers = st.floats(allow_nan=False) | st.sampled_from(
    [0.0, -0.0, 5e-324, -5e-324, math.inf, -math.inf, sys.float_info.max, -sys.float_info.max]
)


def merged(merge: str, values: list[tuple[float, int]]) -> float | None:
    """Numbers of tensors of so many elements, through the cells that ranks and micro-batches merge."""
    queue = [value for value, _ in values]
    found, said = guarded(statistic=(lambda tensor: queue.pop(0), {"of": "tensor", "merge": merge}))
    statistic = found.statistics["mine"]
    assert statistic.extra is not None
    layout = Layout([statistic.extra])
    total = layout.empty()
    for _, numel in values:
        cells = statistic.cells(torch.zeros(numel))
        assert cells is not None
        total = layout.merge(total, cells.tolist())
    assert not said
    return statistic.value(numscope.Summary.empty(), layout.named(total))


@given(st.lists(numbers, max_size=5))
def test_largest_and_smallest_merge_exactly_over_any_numbers(values: list[float]) -> None:
    parts = [(value, 1) for value in values]
    assert merged("max", parts) == (max(values) if values else None)
    assert merged("min", parts) == (min(values) if values else None)


@given(st.lists(st.integers(-1000, 1000).map(lambda n: n / 8), max_size=5))
def test_sum_merges_by_adding(values: list[float]) -> None:
    assert merged("sum", [(value, 1) for value in values]) == (sum(values) if values else None)


def test_mean_is_weighted_by_elements() -> None:
    assert merged("mean", [(1.0, 3), (5.0, 1)]) == 2.0


@pytest.mark.parametrize("merge", ["max", "min", "sum", "mean"])
def test_nan_is_lost_in_no_merge(merge: str) -> None:
    for parts in ([(math.nan, 1), (1.0, 1)], [(1.0, 1), (math.nan, 1)], [(-1.0, 1), (math.nan, 1), (2.0, 1)]):
        assert math.isnan(merged(merge, parts) or 0.0)


def test_statistic_of_a_tensor_takes_numbers_and_tensors_of_one_element_only() -> None:
    given_back: list[Any] = [torch.tensor([[2.0]]), torch.ones(2)]
    found, said = guarded(statistic=(lambda tensor: given_back.pop(0), {"of": "tensor", "merge": "max"}))
    statistic = found.statistics["mine"]
    cells = statistic.cells(torch.ones(3))
    assert cells is not None
    assert cells.dtype == torch.float64
    assert statistic.cells(torch.ones(3)) is None
    assert "gave 2 numbers, expected one" in said[0][0]
    assert statistic.value(numscope.Summary.empty(), {}) is None


def test_pass_of_its_own_is_told(tmp_path: Path) -> None:
    file = write(
        tmp_path, "own.py", "import numscope\n@numscope.statistic('median', of='tensor', merge='mean')\ndef f(t):\n    return t.median()\n"
    )
    found = plugins.load(file)
    assert f"statistic 'median' takes its own pass over each tensor ({file}:2)" in texts(found, logging.INFO)


# ---- a run with them


def test_example_of_the_docs_runs_as_it_stands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text(encoding="utf-8")
    code, config = (re.search(rf"```{language}[^\n]*\n(.*?)```", page, re.DOTALL)[1] for language in ("python", "yaml"))  # type: ignore[index]
    file = write(tmp_path, "docs_example.py", code)
    net = torch.nn.Sequential()
    net.add_module("fc1", torch.nn.Linear(4, 2))
    x = torch.tensor([[200.0, -200.0, 0.5, 3.0], [1.0, 2.0, 3.0, 4.0]])
    with numscope.watch(
        net, config=write(tmp_path, "stats.yaml", config), features=file, log_dir=str(tmp_path), on_nonfinite=None
    ) as scope:
        assert scope._watch.inspector is not None
        net(x).sum().backward()
        scope.step()
        values = scope._watch.inspector.last[0].values
        assert values["spread"] == 400.0
        assert values["median"] == x.median().item()
        assert values["num_large"] == (x > 6.0).sum().item()
        assert [alert.line() for alert in scope.alerts] == ["step 0: growing: fc1 activation: rms is 100"]
    assert "rms is 100" in (tmp_path / "debug_logs" / "globalrank-0.log").read_text(encoding="utf-8")


def test_custom_statistics_merge_over_micro_batches_as_over_one(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "merging.py",
        "import numscope\n"
        + "".join(f"numscope.statistic('{m}_of', of='tensor', merge='{m}')(lambda t: t.max())\n" for m in ("sum", "max", "min", "mean")),
    )
    config = {"s": {"enabled": True, "layers": {"layer_types": "all"}, "statistics": {
        "enabled": True, "tensors": ["activation"], "stats": ["sum_of", "max_of", "min_of", "mean_of"]}}}  # fmt: skip
    net = torch.nn.Sequential(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with numscope.watch(net, config=config, features=[str(file)], log_dir=str(tmp_path), on_nonfinite=None) as scope:
        assert scope._watch.inspector is not None
        for values in ([-3.0, -5.0], [-1.0], [-7.0, -8.0, -9.0]):
            net(torch.tensor(values).reshape(-1, 1)).sum().backward()
        optimizer.step()
        assert scope._watch.inspector.last[0].values == {
            "sum_of": -11.0,
            "max_of": -1.0,
            "min_of": -7.0,
            "mean_of": (-3.0 * 2 - 1 - 7 * 3) / 6,
        }
