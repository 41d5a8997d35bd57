"""Accelerate, PEFT and TRL on CPU: numscope needs nothing of its own there, which these tests show."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import numscope
from numscope.alerts.checks import resuming
from numscope.records.errors import NonFiniteError

pytestmark = pytest.mark.filterwarnings("ignore")
peft = pytest.importorskip("peft")
datasets = pytest.importorskip("datasets")
trl = pytest.importorskip("trl")

from accelerate import Accelerator  # noqa: E402
from accelerate.state import AcceleratorState  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast  # noqa: E402

from numscope.integrations.transformers import NumscopeCallback  # noqa: E402
from tests.integrations.page import run_lines  # noqa: E402

HERE = Path(__file__)


@pytest.fixture(autouse=True)
def accelerates_state_ends_with_its_test():
    yield
    AcceleratorState._reset_state(True)


def line_of(mark: str) -> int:
    return next(number for number, line in enumerate(HERE.read_text().splitlines(), 1) if line.endswith(mark))


def page(framework: str, model: nn.Module) -> Any:
    """The watch that the lines of the documentation open."""
    return run_lines(framework, numscope=numscope, model=model)["scope"]


def hooks(model: nn.Module) -> int:
    return sum(len(v) for m in model.modules() for k, v in vars(m).items() if k.endswith("_hooks") and isinstance(v, dict))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.sigmoid(self.body(x))
        return self.head(torch.log(x + 1 - (x.amin() < 1e-9) * 2))  # HERE


def accelerated(order: str, worst: float, precision: str = "no", watched: bool = True) -> tuple[Any, Net]:
    """Four steps over 32 rows, two micro-batches each. Returns: the watch, the model."""
    x = torch.rand(32, 4, generator=torch.Generator().manual_seed(1))
    x[20] = worst
    model = Net()
    model.body.weight.data.abs_().neg_()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4)
    accelerator = Accelerator(cpu=True, mixed_precision=precision, gradient_accumulation_steps=2)
    scope: Any = page("Accelerate", model) if watched and order == "before" else None
    prepared, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    if watched and order == "after":
        scope = page("Accelerate", prepared)
    for batch, target in loader:
        with accelerator.accumulate(prepared):
            loss = ((prepared(batch) - target) ** 2).mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    if scope is not None:
        scope.close()
    assert hooks(model) == 0
    return scope, model


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_accelerate_prepares_before_or_after_the_watch(order, precision):
    _, bare = accelerated(order, 0.5, precision, watched=False)
    scope, model = accelerated(order, 0.5, precision)
    assert (scope.num_steps, scope.findings, scope.alerts) == (4, [], [])
    assert all(torch.equal(a, b) for a, b in zip(bare.parameters(), model.parameters(), strict=True))
    with pytest.raises(NonFiniteError) as error:
        accelerated(order, 100.0, precision)
    finding = error.value.finding
    assert (finding.step, finding.culprit.op, finding.culprit.line) == (2, "aten.log", line_of("# HERE"))


def test_accelerates_state_that_is_not_loaded_is_named(tmp_path, monkeypatch):
    def run(name: str, damaged: str = "", skipped: int = 3) -> list[str]:
        monkeypatch.setitem(resuming._processes, os.getpid(), name)
        torch.manual_seed(len(name))
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        x = torch.rand(32, 4, generator=torch.Generator().manual_seed(1))
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4)
        accelerator = Accelerator(cpu=True)
        prepared, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, torch.optim.lr_scheduler.StepLR(optimizer, 2))
        rules = {} if name == "first" else {"state not loaded": {"run": str(tmp_path / "run")}}
        log_dir = tmp_path / "run" if name == "first" else None
        with numscope.watch(model, on_nonfinite="warn", log_dir=log_dir, alerts=rules) as scope:
            done = 0
            if name != "first":
                accelerator.load_state(str(tmp_path / "saved"))
                loader, done = accelerator.skip_first_batches(loader, skipped), 3
                for state in optimizer.state.values() if damaged in ("exp_avg", "step") else ():
                    state[damaged].zero_()
                if damaged == "weights":
                    model[2].bias.data.add_(1)
                if damaged == "schedule":
                    schedule.scheduler.last_epoch = 0
                if damaged == "rate":
                    optimizer.param_groups[0]["lr"] = 0.3
            for batch, target in loader:
                accelerator.backward(((prepared(batch) - target) ** 2).mean())
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                done += 1
                if done == 3:
                    accelerator.save_state(str(tmp_path / "saved"))
                if done == 5:
                    break
        assert not scope.fault
        return [alert.text for alert in scope.alerts if alert.rule == "state not loaded"]

    assert run("first") == [] == run("exact")
    assert run("damaged", "exp_avg") == ["Resumed at step 3: AdamW's exp_avg is zero in 4 parameters."]
    assert run("no counts", "step") == ["Resumed at step 3: AdamW's step is 0 in 4 parameters, and was 3."]
    assert run("other weights", "weights") == ["Resumed at step 3: 1 weight of 4 is not what was saved, the first is 2.bias."]
    assert run("schedule again", "schedule") == ["Resumed at step 3: StepLR is at 0, and was at 3."]
    assert run("another rate", "rate") == ["Resumed at step 3: lr is 0.3, and was 0.001."]
    assert run("batches again", skipped=1) == ["Resumed at step 3: the batch of step 1 comes again."]
    next((tmp_path / "saved").glob("random_states*")).unlink()
    assert run("other random numbers") == ["Resumed at step 3: the random state of torch is not what was saved."]


def tiny() -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    return LlamaForCausalLM(LlamaConfig(vocab_size=32, **sizes, pad_token_id=0, eos_token_id=1, bos_token_id=2))


def adapted(model: Any) -> Any:
    return peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["q_proj", "down_proj"], init_lora_weights="gaussian"))


def test_accelerates_wrapper_of_a_call_is_not_named_for_a_bad_batch():
    model = Accelerator(cpu=True, mixed_precision="bf16").prepare(nn.Sequential(nn.Linear(4, 1)))
    with pytest.raises(NonFiniteError) as error, numscope.watch(model):
        model(torch.full((2, 4), torch.nan)).sum().backward()  # CALLED
    culprit = error.value.finding.culprit
    assert (culprit.file, culprit.line) == (__file__, line_of("# CALLED"))


@pytest.mark.parametrize("order", ["before", "after"])
def test_lora_adapters_have_their_names_whether_put_in_before_or_after_the_watch(order):
    model = tiny()
    scope: Any = page("PEFT", model) if order == "before" else None
    lora = adapted(model)
    scope = scope or page("PEFT", lora)
    optimizer = torch.optim.AdamW([p for p in lora.parameters() if p.requires_grad], lr=1e-3)
    ids = torch.randint(3, 32, (2, 6), generator=torch.Generator().manual_seed(1))

    def step() -> None:
        lora(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(3):
        step()
    name = "model.layers.1.mlp.down_proj.lora_A.default"
    with torch.no_grad():
        lora.get_submodule(f"base_model.model.{name}").weight[0, 0] = float("inf")
    with pytest.raises(NonFiniteError) as error:
        step()
    scope.close()
    finding = error.value.finding
    assert finding.step == 3 and finding.culprit.module.endswith(name) and hooks(lora) == 0


def tokenizer() -> PreTrainedTokenizerFast:
    words = ["<pad>", "</s>", "<s>", "<unk>", *(f"w{number}" for number in range(28))]
    raw = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "<pad>", "eos_token": "</s>", "bos_token": "<s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=raw, **special)


def reward(completions: list[str], **_: Any) -> list[float]:
    return [float(len(text) % 3) for text in completions]


def trl_trainer(kind: str, folder: Path, callbacks: list[Any], model: Any) -> Any:
    common = {
        **{"output_dir": str(folder), "use_cpu": True, "bf16": False, "report_to": [], "disable_tqdm": True, "save_strategy": "no"},
        **{"max_steps": 3, "per_device_train_batch_size": 2, "learning_rate": 1e-3, "gradient_checkpointing": False, "logging_steps": 1},
    }
    rows = [{"w": f"w{n} w{n + 1} w{n + 2}"} for n in range(12)]
    if kind == "SFT":
        data = datasets.Dataset.from_list([{"text": row["w"]} for row in rows])
        return trl.SFTTrainer(
            model, trl.SFTConfig(**common, max_length=8), train_dataset=data, processing_class=tokenizer(), callbacks=callbacks
        )
    if kind == "DPO":
        data = datasets.Dataset.from_list([{"prompt": row["w"], "chosen": " w3 w4", "rejected": " w9 w8"} for row in rows])
        return trl.DPOTrainer(
            model,
            tiny(),
            trl.DPOConfig(**common, max_length=8),
            train_dataset=data,
            processing_class=tokenizer(),
            callbacks=callbacks,
        )
    data = datasets.Dataset.from_list([{"prompt": row["w"]} for row in rows])
    settings = trl.GRPOConfig(**common, num_generations=2, max_completion_length=4)
    return trl.GRPOTrainer(model, reward, args=settings, train_dataset=data, processing_class=tokenizer(), callbacks=callbacks)


@pytest.mark.parametrize("kind", ["SFT", "DPO", "GRPO"])
def test_trl_trains_the_same_and_a_bad_weight_is_named(kind, tmp_path):
    states = []
    for callbacks in ([], [NumscopeCallback()]):
        model = tiny()
        trl_trainer(kind, tmp_path, callbacks, model).train()
        states.append({name: value.clone() for name, value in model.state_dict().items()})
    (callback,) = callbacks
    assert (callback.scope.num_steps, callback.findings) == (3, []) and hooks(model) == 0
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    model = tiny()
    run = trl_trainer(kind, tmp_path, [], model)
    run_lines("TRL", trainer=run)
    callback = run.callback_handler.callbacks[-1]
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[0, 0] = float("nan")
    with pytest.raises((NonFiniteError, RuntimeError)), callback:
        run.train()
    assert "layers.1.mlp.up_proj" in str(callback.findings[0]) and hooks(model) == 0
