"""A configuration that is edited during the run."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

import numscope
from numscope.config import load
from numscope.inspect import following
from numscope.records.errors import UsageError
from tests.inspect.test_inspector import Kept, Net, config, num_hooks, train


@pytest.fixture(autouse=True)
def _looks_at_each_step(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(following, "LOOK_S", 0.0)
    yield


_times = itertools.count(1_000_000_000)


def write(path: Path, tree: dict[str, Any] | str, reload: bool = True) -> None:
    text = tree if isinstance(tree, str) else yaml.safe_dump({**({"reload": True} if reload else {}), **tree})
    path.write_text(text, encoding="utf-8")
    stamp = next(_times)
    os.utime(path, (stamp, stamp))  # two edits within a file system's resolution are told apart here


def off(**more: Any) -> dict[str, Any]:
    tree = config("fc1", ["weight"], ["max"], **more)
    tree["section"]["enabled"] = False
    return tree


def test_statistics_start_and_stop_by_an_edit(tmp_path: Path) -> None:
    path, net, kept = tmp_path / "stats.yaml", Net(), Kept()
    write(path, off())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    hooked = []
    with numscope.watch(net, config=path, on_nonfinite=None, loggers=[kept]):
        for step in range(12):
            if step == 2:
                write(path, config("fc1", ["weight", "activation"], ["max"]))
            if step == 6:
                write(path, off())
            if step == 9:
                write(path, config("fc2", ["output"], ["mean"]))
            hooked.append(num_hooks(net) > 0)
            train(net, optimizer, 1)
    # An edit is seen as a step begins, and taken up at the next look that finds the file as it was.
    assert kept.steps("fc1_weight_max") == kept.steps("fc1_activation_max") == [4, 5, 6, 7]
    assert kept.steps("fc2_output_mean") == [11]
    assert hooked == [step in (4, 5, 6, 7, 11) for step in range(12)]


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ("reload: true\nsection: {enabled: true", "stats.yaml: line 2, column"),
        (config("fc9", ["weight"], ["max"]), 'section.layers: layer_name_regex_pattern: "fc9" matches none'),
        (config("fc1", ["weight"], ["maximum"]), 'got "maximum", expected one of'),
    ],
    ids=["no YAML", "no layer", "no statistic"],
)
def test_a_faulty_edit_is_said_in_one_sentence_and_changes_nothing(tmp_path: Path, caplog: Any, edit: Any, said: str) -> None:
    path, net, kept = tmp_path / "stats.yaml", Net(), Kept()
    write(path, config("fc1", ["weight"], ["max"]))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with numscope.watch(net, config=path, on_nonfinite=None, loggers=[kept]) as scope:
        train(net, optimizer, 2)
        write(path, edit)
        train(net, optimizer, 4)
        [line] = [r.getMessage() for r in caplog.records if "before this edit" in r.getMessage()]
        assert said in line and line.endswith("The run goes on with the configuration from before this edit.") and "\n" not in line
        write(path, config("fc1", ["weight"], ["min"]))
        train(net, optimizer, 3)
        assert not scope._watch.inspector.fault
    assert kept.steps("fc1_weight_max") == list(range(8)) and kept.steps("fc1_weight_min") == [8]


def test_without_the_key_the_file_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, net, kept = tmp_path / "stats.yaml", Net(), Kept()
    write(path, config("fc1", ["weight"], ["max"]), reload=False)
    with numscope.watch(net, config=path, on_nonfinite=None, loggers=[kept]) as scope:
        assert scope._watch.inspector.recorder.follower is None
        write(path, config("fc1", ["weight"], ["min"]))
        train(net, torch.optim.SGD(net.parameters(), lr=0.1), 4)
    assert {name for name, _, _ in kept.lines} == {"fc1_weight_max"}


def test_between_looks_nothing_is_asked_of_the_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "LOOK_S", 1000.0)
    path, net = tmp_path / "stats.yaml", Net()
    write(path, config("fc1", ["weight"], ["max"]))
    looks: list[Any] = []
    with numscope.watch(net, config=path, on_nonfinite=None, loggers=[Kept()]) as scope:
        monkeypatch.setattr(scope._watch.inspector.recorder.follower, "_edited", lambda: looks.append(1))
        train(net, torch.optim.SGD(net.parameters(), lr=0.1), 5)
    assert looks == []


def test_an_edit_that_drops_the_key_is_the_last_one(tmp_path: Path) -> None:
    path, net, kept = tmp_path / "stats.yaml", Net(), Kept()
    write(path, config("fc1", ["weight"], ["max"]))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with numscope.watch(net, config=path, on_nonfinite=None, loggers=[kept]):
        train(net, optimizer, 1)
        write(path, config("fc1", ["weight"], ["min"]), reload=False)
        train(net, optimizer, 4)
        write(path, config("fc1", ["weight"], ["mean"]))
        train(net, optimizer, 4)
    assert kept.steps("fc1_weight_min") == list(range(3, 9)) and not kept.steps("fc1_weight_mean")


def test_edits_leave_the_training_bitwise_as_it_is(tmp_path: Path) -> None:
    def run(watched: bool) -> tuple[list[float], list[Tensor]]:
        torch.manual_seed(0)
        path, net = tmp_path / "stats.yaml", Net()
        write(path, off())
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        scope = numscope.watch(net, config=path, loggers=[Kept()]) if watched else None
        losses = []
        for step in range(10):
            if step in (2, 5):
                write(path, config("fc", ["activation", "dgrad", "weight"], ["kurtosis", "stable_rank"]) if step == 2 else off())
            losses += train(net, optimizer, 1, micro_batches=2)
        if scope is not None:
            assert not scope.fault and not scope._watch.inspector.fault
            scope.close()
        return losses, [*map(Tensor.detach, net.parameters())]

    (off_losses, bare), (on_losses, watched) = run(False), run(True)
    assert off_losses == on_losses and all(map(torch.equal, bare, watched))


def test_the_key_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "stats.yaml"
    for text, said in (
        ("reload: yes please\n", 'reload: got "yes please", expected true or false'),
        ("reload: true\n", "got no section, expected at least one"),
        ("relod: true\ns: {enabled: false, layers: {layer_types: all}, statistics: {enabled: false}}\n", 'Did you mean "reload"'),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(UsageError, match=said):
            load(path)
    with pytest.raises(UsageError, match="expected it in a YAML file"):
        load({"reload": True, **config()})
    assert load({"reload": config()["section"]}).collects[0].section == "reload"  # a section may have any name
