"""A real Trainer on a tiny Llama, on CPU."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers.trainer
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
from transformers.debug_utils import DebugUnderflowOverflow

import numscope
from numscope.alerts.checks import resuming
from numscope.integrations.transformers import NumscopeCallback, disable_debug_option, enable_debug_option
from numscope.records.errors import NonFiniteError, UsageError
from tests.integrations.page import run_lines


@pytest.fixture(autouse=True)
def restored():
    yield
    disable_debug_option()
    assert transformers.trainer.DebugUnderflowOverflow is DebugUnderflowOverflow


def tiny() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1
    )
    return LlamaForCausalLM(config)


def data(count: int = 16) -> list[dict[str, Any]]:
    ids = torch.randint(0, 32, (count, 6), generator=torch.Generator().manual_seed(1))
    return [{"input_ids": row, "labels": row} for row in ids]


def trainer(folder: Path, model: nn.Module | None = None, callbacks: list[TrainerCallback] | None = None, **arguments: Any) -> Trainer:
    given = {
        "max_steps": 4,
        "per_device_train_batch_size": 2,
        "learning_rate": 1e-2,
        "save_strategy": "no",
        "logging_steps": 1,
        **arguments,
    }
    settings = TrainingArguments(str(folder), use_cpu=True, report_to=[], disable_tqdm=True, **given)
    return Trainer(model or tiny(), settings, train_dataset=data(), eval_dataset=data(4), callbacks=callbacks)


class Poison(TrainerCallback):
    """Puts an inf into a weight at the begin of a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args, state, control, model=None, **_):
        if state.global_step == self.step:
            with torch.no_grad():
                model.model.layers[1].mlp.up_proj.weight[0, 0] = float("inf")


def hooks(model: nn.Module) -> int:
    return sum(len(v) for m in model.modules() for k, v in vars(m).items() if k.endswith("_hooks") and isinstance(v, dict))


def weights(model: nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def test_callback_watches_from_begin_to_end_and_changes_nothing(tmp_path):
    seen: list[Any] = []

    class Look(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            seen.append((callback.scope.closed, callback.scope.step_number))

    bare = trainer(tmp_path)
    bare.train()
    callback = NumscopeCallback()
    watched = trainer(tmp_path, callbacks=[callback, Look()], eval_strategy="steps", eval_steps=2)
    before = hooks(watched.model)
    watched.train()
    assert [closed for closed, _ in seen] == [False] * 4
    assert callback.scope.closed and hooks(watched.model) == before and not callback.findings
    assert callback.scope.step_number == 4
    for a, b in zip(weights(bare.model), weights(watched.model), strict=True):
        assert torch.equal(a, b)
    losses = [[entry["loss"] for entry in t.state.log_history if "loss" in entry] for t in (bare, watched)]
    assert losses[0] == losses[1]


def test_callback_raises_at_the_bad_step_before_the_weights_are_touched(tmp_path):
    callback = NumscopeCallback(frames=3)
    run = trainer(tmp_path, callbacks=[callback, Poison(2)])
    with callback, pytest.raises(NonFiniteError) as error:
        run.train()
    finding = error.value.finding
    assert callback.findings == [finding] and finding.step == 2 and "mlp" in str(error.value)
    assert callback.scope.closed and hooks(run.model) == 0
    assert run.state.global_step == 2 and not any(p.isnan().any() for p in run.model.parameters())


def test_callback_that_warns_lets_training_go_on(tmp_path):
    path = tmp_path / "findings.json"
    callback = NumscopeCallback(on_nonfinite="warn", json=str(path))
    run = trainer(tmp_path, callbacks=[callback, Poison(1)])
    run.train()
    assert run.state.global_step == 4 and callback.findings
    assert json.loads(path.read_text())["findings"][0]["step"] == 1


def test_callback_with_gradient_accumulation_counts_optimizer_steps(tmp_path):
    callback = NumscopeCallback()
    trainer(tmp_path, callbacks=[callback], gradient_accumulation_steps=2, max_steps=3).train()
    assert (callback.scope.step_number, callback.scope.batch) == (3, 6)


def test_callback_collects_statistics_by_trainers_own_steps_also_after_a_checkpoint(tmp_path):
    class Steps:
        def __init__(self) -> None:
            self.seen: list[int] = []

        def log_scalar(self, name: str, value: float, iteration: int, **_: Any) -> None:
            self.seen.append(iteration)

    feature = {"enabled": True, "stats": ["mean"], "tensors": ["activation"]}
    config = {"section": {"enabled": True, "layers": {"layer_names": ["lm_head"]}, "statistics": feature}}
    often = {"gradient_accumulation_steps": 2, "eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 2}
    seen, calls, states = [], [], []
    for resumed in (None, str(tmp_path / "checkpoint-2")):
        steps = Steps()
        callback = NumscopeCallback(config=config, on_nonfinite=None, loggers=[steps])
        watched = trainer(tmp_path, callbacks=[callback], **often)
        watched.train(resume_from_checkpoint=resumed)
        seen.append(steps.seen)
        calls.append(callback.scope._watch.inspector.last[0].calls)
        states.append(weights(watched.model))
    bare = trainer(tmp_path / "bare", **often)
    bare.train()
    assert (seen, calls) == ([[0, 1, 2, 3], [2, 3]], [2, 2])
    assert all(torch.equal(a, b) for a, b in zip(states[0], weights(bare.model), strict=True))


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.*deprecated:FutureWarning")
def test_callback_works_with_bf16_autocast_and_gradient_checkpointing(tmp_path):
    callback = NumscopeCallback()
    trainer(tmp_path, callbacks=[callback], bf16=True, gradient_checkpointing=True, max_steps=2).train()
    assert callback.scope.step_number == 2 and not callback.findings


def test_second_training_after_an_exception_closes_the_first_watch(tmp_path):
    callback = NumscopeCallback()
    run = trainer(tmp_path, callbacks=[callback, Poison(1)])
    with pytest.raises(NonFiniteError):
        run.train()
    first = callback.scope
    run.model.model.layers[1].mlp.up_proj.weight.data.fill_(0.01)
    run.remove_callback(Poison)
    run.train()
    assert first.closed and callback.scope is not first and callback.scope.closed and hooks(run.model) == 0


def test_lines_of_the_page_are_all_it_takes(tmp_path):
    run = trainer(tmp_path, callbacks=[Poison(1)])
    run_lines("Hugging Face Trainer", trainer=run)
    with pytest.raises(NonFiniteError):
        run.train()


def test_trainer_that_goes_on_from_a_checkpoint_says_what_it_has_lost(tmp_path, monkeypatch):
    def run(name: str, checkpoint: Path | None = None, **how: Any) -> list[str]:
        monkeypatch.setitem(resuming._processes, os.getpid(), name)
        model = tiny()
        for layer in model.model.layers:
            layer.self_attn.attention_dropout = 0.1  # draws random numbers
        given = {"max_steps": 5, "save_strategy": "steps", "save_steps": 3, **how}
        rules = {"state not loaded": {"run": str(tmp_path / "run")}} if checkpoint else {}
        with numscope.watch(model, on_nonfinite="warn", log_dir=None if checkpoint else tmp_path / "run", alerts=rules) as scope:
            trainer(tmp_path / "out", model, **given).train(resume_from_checkpoint=checkpoint and str(checkpoint))
        assert not scope.fault
        return [alert.text for alert in scope.alerts if alert.rule == "state not loaded"]

    checkpoint = tmp_path / "out" / "checkpoint-3"
    assert run("first") == []
    assert run("exact", checkpoint) == []
    state = torch.load(checkpoint / "optimizer.pt")
    for damaged, text in (("exp_avg", "exp_avg is zero in 21 parameters"), ("step", "step is 0 in 21 parameters, and was 3")):
        changed = copy.deepcopy(state)
        for one in changed["state"].values():
            one[damaged].zero_()
        torch.save(changed, checkpoint / "optimizer.pt")
        assert run(f"no {damaged}", checkpoint) == [f"Resumed at step 3: AdamW's {text}."]
    torch.save(state, checkpoint / "optimizer.pt")
    place = torch.load(checkpoint / "scheduler.pt")
    torch.save({**place, "last_epoch": 0}, checkpoint / "scheduler.pt")
    assert run("schedule again", checkpoint) == ["Resumed at step 3: LambdaLR is at 0, and was at 3."]
    torch.save(place, checkpoint / "scheduler.pt")
    (checkpoint / "rng_state.pth").unlink()
    assert run("other batches", checkpoint, ignore_data_skip=True) == [
        "Resumed at step 3: the random state of torch is not what was saved; the batch of step 0 comes again."
    ]
    (checkpoint / "scheduler.pt").unlink()  # Trainer loads both or none
    (text,) = run("no optimizer", checkpoint)
    assert "AdamW begins without state (exp_avg, exp_avg_sq, step); lr is 0.01, and was 0.004; LambdaLR is at 0, and was at 3" in text


def test_wrong_option_is_refused_at_once():
    with pytest.raises(UsageError, match=r"Did you mean 'frames'"):
        NumscopeCallback(frame=3)
    with pytest.raises(UsageError, match=r"Did you mean 'level'"):
        enable_debug_option(levl="modules")
    assert transformers.trainer.DebugUnderflowOverflow is DebugUnderflowOverflow


def test_debug_option_uses_numscope_and_is_undone(tmp_path, capsys):
    enable_debug_option(frames=5)
    run = trainer(tmp_path, callbacks=[Poison(1)], debug="underflow_overflow")
    with pytest.raises(NonFiniteError) as error:
        run.train()
    assert error.value.finding.step == 1 and isinstance(error.value, ValueError)
    assert "Detected inf/nan during batch_number" not in capsys.readouterr().out
    disable_debug_option()
    assert hooks(run.model) == 0
    run.model.model.layers[1].mlp.up_proj.weight.data.fill_(0.01)
    again = trainer(tmp_path, run.model, callbacks=[Poison(1)], debug="underflow_overflow")
    with pytest.raises(ValueError, match=r"^DebugUnderflowOverflow: inf/nan detected"):
        again.train()


def test_debug_option_ends_with_training_and_begins_again(tmp_path):
    enable_debug_option()
    run = trainer(tmp_path, debug="underflow_overflow", max_steps=1)
    for _ in range(2):
        run.train()
        assert hooks(run.model) == 0
    assert len([c for c in run.callback_handler.callbacks if isinstance(c, NumscopeCallback)]) == 1
    disable_debug_option()
    assert not [c for c in run.callback_handler.callbacks if isinstance(c, NumscopeCallback)]


def test_debug_option_not_given_watches_nothing(tmp_path):
    enable_debug_option()
    run = trainer(tmp_path, max_steps=1)
    run.train()
    assert not [c for c in run.callback_handler.callbacks if isinstance(c, NumscopeCallback)]


def test_enabling_twice_takes_the_last_options_and_disabling_once_restores(tmp_path):
    enable_debug_option()
    enable_debug_option(on_nonfinite="warn")
    run = trainer(tmp_path, callbacks=[Poison(1)], debug="underflow_overflow")
    run.train()
    (callback,) = (c for c in run.callback_handler.callbacks if isinstance(c, NumscopeCallback))
    assert callback.findings
    disable_debug_option()
    disable_debug_option()
    assert transformers.trainer.DebugUnderflowOverflow is DebugUnderflowOverflow


def test_name_called_outside_a_trainer_watches_the_model():
    enable_debug_option()
    model = nn.Linear(2, 2)
    scope = transformers.trainer.DebugUnderflowOverflow(model)
    assert isinstance(scope, numscope.Scope)
    disable_debug_option()
    assert scope.closed


def test_transformers_without_the_name_is_told(monkeypatch):
    with monkeypatch.context() as patch:
        patch.delattr(transformers.trainer, "DebugUnderflowOverflow")
        with pytest.raises(UsageError, match=r"transformers.trainer has no DebugUnderflowOverflow.*Pass NumscopeCallback\(\)"):
            enable_debug_option()


RANK_SCRIPT = """
import os, sys
sys.path.insert(0, sys.argv[2])
from tests.integrations import test_transformers as t
class PoisonRank(t.Poison):
    def on_step_begin(self, args, state, control, **kwargs):
        if os.environ["RANK"] == "1":
            super().on_step_begin(args, state, control, **kwargs)
callback = t.NumscopeCallback()
run = t.trainer(t.Path(sys.argv[1]), callbacks=[callback, PoisonRank(1)], ddp_backend="gloo")
try:
    run.train()
except t.NonFiniteError as error:
    print(f"rank {os.environ['RANK']}: bad on {error.finding.rank} at {error.finding.step}", flush=True)
"""


def test_under_ddp_every_rank_stops_and_knows_whose_fault_it_was(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(RANK_SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", str(script), str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(Path(__file__).parents[2])], capture_output=True, text=True, timeout=240, check=False, env=environment
    )
    assert sorted(line for line in done.stdout.splitlines() if line.startswith("rank ")) == [
        "rank 0: bad on 1 at 1",
        "rank 1: bad on 1 at 1",
    ], done.stderr[-2000:]
