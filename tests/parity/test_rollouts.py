"""A rollout engine's weights and log-probabilities: planted errors are named, healthy engines left alone; also within TRL's GRPO."""

from __future__ import annotations

import copy
import json
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import numscope

pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

from tests.integrations.page import run_lines  # noqa: E402
from tests.parity.rollouts import CASES, VOCABULARY, llama, played, trainer, wrong  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "rollout-differs.md"
Sync = Callable[[nn.Module, Any], None]  # the engine's model, the trainer


@pytest.mark.parametrize("name", CASES)
def test_an_engine_is_told_apart_from_its_trainer(name: str) -> None:
    found = played(name)
    assert wrong(name, *found) == "", "\n".join(map(str, found))
    json.dumps(found[1].document())


def test_planted_errors_would_be_missed_by_a_comparison_that_says_nothing() -> None:
    healthy = played("copied")
    assert all(wrong(name, *healthy) for name, case in CASES.items() if not case.is_healthy)


def test_comparing_models_leaves_them_as_they_were() -> None:
    told = trainer()
    one, other = copy.deepcopy(told.model), copy.deepcopy(told.model)
    one.train()
    one.model.layers[0].eval()
    one.model.layers[1].mlp.register_forward_hook(lambda module, given, made: made + torch.rand(()))
    modes, state = [module.training for module in one.modules()], torch.get_rng_state()
    found = numscope.compare_models(one, other, torch.arange(2, 10)[None])
    assert found.differing[0].a == "model.layers.1.mlp" and "weights are equal" not in str(found)
    assert torch.equal(torch.get_rng_state(), state) and [module.training for module in one.modules()] == modes
    assert sum(len(module._forward_hooks) for module in (*one.modules(), *other.modules())) == 1
    assert all(parameter.grad is None for parameter in one.parameters())


def test_the_first_layer_that_computes_otherwise_has_equal_weights() -> None:
    one, other = (nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4, eps=eps), nn.Linear(4, 2)) for eps in (1e-5, 1e-1))
    other.load_state_dict(one.state_dict())
    found = numscope.compare_models(one, nn.Sequential(OrderedDict(module=other)), torch.ones(3, 4))
    assert [pair.a for pair in found.differing] == ["1", "2"] and found.differing[0].why == "its weights are equal"
    assert str(found).startswith("1 of 3 outputs agree within rounding\n  the first that differs: 1: differ by ")


def test_outputs_of_one_model_alone_are_said_and_no_difference() -> None:
    one, other = (nn.Sequential(OrderedDict(up=nn.Linear(4, 4), more=nn.Identity(), down=nn.Linear(4, 2))) for _ in range(2))
    other.load_state_dict(one.state_dict())
    other.more = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    for negates in other.more.parameters():
        negates.data = -torch.eye(4)
    found = numscope.compare_models(one, other, torch.ones(3, 4))
    assert found and str(found) == "3 of 3 outputs agree within rounding\n  only in b, not compared: 1 output: more.0"
    with torch.no_grad():
        other.down.bias += 1
    assert not numscope.compare_models(one, other, torch.ones(3, 4))
    assert not numscope.compare_models(nn.Sequential(OrderedDict(x=nn.Linear(4, 4))), other, torch.ones(3, 4))


class Upcast(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x.float(), self.weight.float())


def test_a_cast_bounds_what_follows_and_is_said() -> None:
    torch.manual_seed(0)
    one = nn.Sequential(nn.Linear(8, 8), Upcast(8, 8, bias=False), nn.Tanh(), Upcast(8, 4, bias=False))
    other = copy.deepcopy(one)
    other[1].bfloat16()
    assert numscope.compare_models(one, other, torch.randn(5, 8))
    with torch.no_grad():
        other[1].weight.data = one[1].weight.data.bfloat16().float()
    found = numscope.compare_models(one, other, torch.randn(5, 8))
    assert found.differing[0].a == "1" and found.differing[0].why == "1.weight is equal once rounded to bfloat16"


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(numscope.UsageError, match=r"compare_models: b: got dict, expected a torch\.nn\.Module"):
        numscope.compare_models(nn.Linear(1, 1), {}, torch.ones(1))  # type: ignore[arg-type]


# ---- GRPO


@pytest.fixture
def trl() -> Iterator[Any]:
    made = pytest.importorskip("trl")
    from accelerate.state import AcceleratorState

    yield made
    AcceleratorState._reset_state(True)


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<s>", *(f"w{number}" for number in range(VOCABULARY - 2))]
    raw = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<pad>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<s>", bos_token="<s>", unk_token="<pad>")


def trained(trl: Any, folder: Path, sync: Sync, model: Any, engine: Any) -> tuple[list[str], list[Any]]:
    """The warnings of the page's lines, and the comparisons of fingerprints at each rollout after the first."""
    import datasets

    compared: list[Any] = []
    history: dict[int | str, Any] = {}

    def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
        sync(engine, trainer)
        own = numscope.fingerprint(trainer.model)
        compared.append(numscope.compare(own, numscope.fingerprint(engine), history=history))
        history[trainer.state.global_step] = own
        ids = torch.tensor(trainer.processing_class(prompts)["input_ids"])
        told = {"do_sample": True, "top_k": 0, "top_p": 1.0, "temperature": trainer.temperature, "max_new_tokens": 8, "eos_token_id": None}
        made = engine.generate(ids, attention_mask=torch.ones_like(ids), output_scores=True, return_dict_in_generate=True, **told)
        tokens = made.sequences[:, ids.shape[1] :]
        logprobs = torch.stack(made.scores, 1).log_softmax(-1).gather(2, tokens[..., None])[..., 0]
        return {"prompt_ids": ids.tolist(), "completion_ids": tokens.tolist(), "logprobs": logprobs.tolist()}

    settings = trl.GRPOConfig(
        output_dir=str(folder), use_cpu=True, bf16=False, report_to=[], disable_tqdm=True, save_strategy="no", max_steps=4,
        per_device_train_batch_size=8, learning_rate=1e-2, gradient_checkpointing=False, num_generations=4, max_completion_length=8,
        num_iterations=2,
    )  # fmt: skip
    checked: Any = run_lines("TRL", PAGE, trl=trl, numscope=numscope, warnings=warnings)["CheckedGRPO"]
    data = datasets.Dataset.from_list([{"prompt": f"w{n} w{n + 1} w{n + 2}"} for n in range(12)])
    torch.manual_seed(0)
    trainer = checked(
        model, lambda completions, **_: [float(len(set(text.split()))) for text in completions], args=settings, train_dataset=data,
        processing_class=tokenizer(), rollout_func=rollout,
    )  # fmt: skip
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trainer.train()
    return [str(one.message) for one in said if str(one.message).startswith("step ")], compared


def all_of_it(engine: nn.Module, trainer: Any) -> None:
    engine.load_state_dict(trainer.model.state_dict())


def first_alone(engine: nn.Module, trainer: Any) -> None:
    if trainer.state.global_step == 0:
        all_of_it(engine, trainer)


def adapter_merged(engine: nn.Module, trainer: Any) -> None:
    engine.load_state_dict(copy.deepcopy(trainer.model).merge_and_unload().state_dict())


def adapter_lost(engine: nn.Module, trainer: Any) -> None:
    engine.load_state_dict(copy.deepcopy(trainer.model).unload().state_dict())


def adapted() -> Any:
    return peft.get_peft_model(llama(), peft.LoraConfig(target_modules=["q_proj", "up_proj"], r=2, init_lora_weights=False))


def test_an_engine_that_is_synchronized_is_left_alone(trl: Any, tmp_path: Path) -> None:
    said, compared = trained(trl, tmp_path, all_of_it, llama(), llama())
    assert said == [] and len(compared) == 2 and all(compared)


def test_stale_weights_are_said(trl: Any, tmp_path: Path) -> None:
    said, compared = trained(trl, tmp_path, first_alone, llama(), llama())
    assert compared[0] and "30 tensors: b has that of step 0: " in str(compared[1])
    assert len(said) == 1 and said[0].startswith("step 2: other weights: ")


def test_an_adapter_that_is_merged_is_left_alone_and_one_that_is_lost_is_said(trl: Any, tmp_path: Path) -> None:
    said, compared = trained(trl, tmp_path, adapter_merged, adapted(), llama())
    assert said == [] and all(compared)
    said, compared = trained(trl, tmp_path, adapter_lost, adapted(), llama())
    assert all("6 tensors: the adapter of a is not in b: " in str(one) for one in compared)
    assert [line[:7] for line in said] == ["step 0:", "step 2:"]
