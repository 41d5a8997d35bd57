"""``numscope layers``: a model's or a run's layers, and what a configuration selects."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from click.testing import Result
from transformers import GPT2Config, T5Config

from numscope.cli.subject import EXPECTED, subject_of
from numscope.records.errors import UsageError
from numscope.records.layer import Layer
from numscope.sinks.parquet import ParquetSink
from tests.cli.calling import called
from tests.runs.tensors import Place, observe, write

CONFIG = """
stats:
  enabled: true
  layers: {layer_numbers: [1], layer_types: [mlp]}
  statistics: {enabled: true, stats: [max], tensors: [weight]}
blocks:
  enabled: true
  layers: {layer_types: [GPT2MLP], containers: true}
  statistics: {enabled: true, stats: [max], tensors: [output]}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("stats.yaml").write_text(CONFIG)
    GPT2Config(n_layer=2, n_embd=16, n_head=2, vocab_size=50, architectures=["GPT2LMHeadModel"]).save_pretrained("gpt")
    return tmp_path


def numscope_layers(*words: str) -> Result:
    return called("layers", *words)


def rows(done: Result) -> list[list[str]]:
    lines = done.stdout.split("\n")
    rule = next(index for index, line in enumerate(lines) if line.startswith("───"))
    return [line.split() for line in lines[rule + 1 :] if line]


def test_layers_of_a_checkpoints_folder_with_what_each_section_selects() -> None:
    done = numscope_layers("gpt", "--config", "stats.yaml")
    assert done.exit_code == 0
    found = rows(done)
    assert ["1", "transformer.h.1.mlp.c_fc", "Conv1D", "stats"] in found
    assert ["0", "transformer.h.0.mlp.c_fc", "Conv1D"] in found
    assert ["0", "transformer.h.0.mlp", "GPT2MLP", "blocks"] in found
    assert ["lm_head", "Linear"] in found
    assert found[-1] == ["18", "layers,", "4", "selected"]


def test_containers_are_listed_only_where_a_section_selects_them() -> None:
    assert ["0", "transformer.h.0", "GPT2Block"] not in rows(numscope_layers("gpt"))


def test_section_that_selects_nothing_is_an_error_after_the_list() -> None:
    Path("stats.yaml").write_text(CONFIG.replace("layer_numbers: [1]", "layer_numbers: [5]"))
    done = numscope_layers("gpt", "--config", "stats.yaml")
    assert done.exit_code == 2
    assert "transformer.h.1.mlp.c_fc" in done.stdout
    assert done.stderr == (
        'numscope: stats.yaml: stats.layers: layer_numbers: 5 with layer_types: "mlp" matches none of the model\'s '
        f"{len(subject_of('gpt').layers)} layers. Layer numbers: 0-1.\n"
    )


def test_layers_of_an_architectures_name_and_of_its_folder() -> None:
    T5Config(num_layers=1, d_model=8, d_kv=4, d_ff=8, num_heads=2, vocab_size=9).save_pretrained("t5-tiny")
    names = {layer.name for layer in subject_of("t5-tiny").layers}
    assert "encoder.block.0.layer.0.SelfAttention.q" in names
    assert {layer.name for layer in subject_of("gpt2").layers} >= {"h.11.mlp.c_fc", "wte"}


def test_layers_of_a_run_are_those_of_all_its_ranks_last_attempts() -> None:
    def told(rank: int, attempt: int, *names: str) -> None:
        layers = [{**asdict(Layer(name, "Linear", name, ("weight",), 8, 32)), "model": "Net"} for name in names]
        Path("run", "ranks", f"rank{rank}-{attempt}.json").write_text(json.dumps({"rank": rank, "layers": layers}))

    Path("run", "ranks").mkdir(parents=True)
    Path("run", "run.json").write_text("{}")
    told(0, 1, "old")
    told(0, 2, "h.0.fc1", "h.1.fc1")
    told(1, 1, "h.2.fc1", "h.0.fc1")
    assert subject_of("run").layers == [Layer(n, "Linear", n, ("weight",), 8, 32) for n in ("h.0.fc1", "h.1.fc1", "h.2.fc1")]
    assert rows(numscope_layers("run"))[0] == ["0", "h.0.fc1", "Linear"]


def test_bytes_that_a_run_read_come_from_its_records() -> None:
    pytest.importorskip("duckdb")
    sink = ParquetSink("run", 0, {})
    sink.describe([asdict(Layer("fc", "Linear", "fc", ("weight",), 8, 32))])
    for step, numel in enumerate((600, 400)):
        seen = observe(Place(step, "fc", "Linear", "activation"), 0, torch.ones(numel, dtype=torch.bfloat16))
        sink.write([seen._replace(ranks=2)])
    sink.close()
    assert subject_of("run").read == {("fc", "activation"): 600 // 2 * 2}


def test_a_checkpoint_whose_config_is_not_understood_is_refused_with_transformers_words() -> None:
    Path("other").mkdir()
    Path("other", "config.json").write_text('{"a": 1}')
    with pytest.raises(UsageError, match=r"Its config\.json: Unrecognized model in other\. Should have a `model_type` key"):
        subject_of("other")


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ("no_such_module:make", "no_such_module:make: no module 'no_such_module', expected "),
        ("os:getcwdd", "os:getcwdd: os has no 'getcwdd', expected a function or class that makes a model."),
        ("os:getcwd", "os:getcwd: made str, expected a torch.nn.Module."),
        ("gpt22", f"MODEL_OR_RUN: got 'gpt22', expected {EXPECTED}. There is nothing of that name. Did you mean the architecture 'gpt2'?"),
        ("nothere", f"MODEL_OR_RUN: got 'nothere', expected {EXPECTED}. There is nothing of that name."),
        (".", f"MODEL_OR_RUN: got '.', expected {EXPECTED}. It holds other things."),
        ("./nowhere", f"MODEL_OR_RUN: got './nowhere', expected {EXPECTED}. There is nothing of that name."),
    ],
)
def test_what_is_neither_model_nor_run_is_refused(given: str, error: str) -> None:
    with pytest.raises(UsageError) as caught:
        subject_of(given)
    assert str(caught.value).startswith(error)
    assert numscope_layers(given).exit_code == 2


def test_layers_of_a_run_without_a_configuration_are_those_of_its_history() -> None:
    seen = {Place(0, "Actor", "Net", "output"): 4, Place(0, "fc", "Linear", "weight"): 6, Place(0, "fc", "Linear", "weight[bias]"): 2}
    write(Path("run"), {place: torch.ones(numel) for place, numel in seen.items()} | {Place(0, "loss", "loss", "loss"): torch.ones(1)})
    found = subject_of("run")
    assert found.layers == [Layer("Actor", "Net", "Actor", (), 0, 0, False), Layer("fc", "Linear", "fc", ("weight",), 6, 24)]
    assert found.gemms == found.layers[1:]


def test_run_without_layers_is_refused() -> None:
    Path("run", "ranks").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"^run: contains no layers"):
        subject_of("run")
