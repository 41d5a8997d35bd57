"""A tiny trainer and a second model in the place of an inference engine, healthy and with planted errors."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

import numscope
from numscope.parity.logprobs import LogprobsComparison
from numscope.records.fingerprint import Fingerprint
from numscope.runs.fingerprints import FingerprintComparison

PROMPT, LENGTH, VOCABULARY, STEPS = 4, 16, 64, 4


def llama(seed: int = 0, **more: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None, "initializer_range": 0.25}
    made = LlamaForCausalLM(LlamaConfig(**{**sizes, **special, "num_key_value_heads": 4, "max_position_embeddings": 64, **more}))
    return made.eval()


@dataclass
class Trainer:
    """A model, and what it was after each step."""

    model: Any
    history: dict[int | str, Fingerprint] = field(default_factory=dict)
    models: dict[int, Any] = field(default_factory=dict)


@cache
def trainer(adapted: bool = False) -> Trainer:
    """Some steps of a model, or of an adapter in it."""
    model = llama()
    if adapted:
        import peft

        model = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj", "up_proj"], r=2, init_lora_weights=False))
    found = Trainer(model)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for step in range(STEPS):
        found.history[step], found.models[step] = numscope.fingerprint(model), copy.deepcopy(model)
        tokens = torch.randint(2, VOCABULARY, (4, 12), generator=torch.Generator().manual_seed(step))
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return found


@dataclass
class Rollout:
    """What the engine has generated, and both sides' numbers."""

    tokens: Tensor
    engine: Tensor
    trainer: Tensor
    logits: Tensor
    mask: Tensor
    ids: Tensor


def rollout(model: Any, engine: Any, *, temperature: float = 1.0, top_p: float = 1.0, top_k: int = 0, batch: int = 12) -> Rollout:
    """By ``generate()``; its log-probabilities are those of what it has drawn from."""
    torch.manual_seed(1)
    prompts = torch.randint(2, VOCABULARY, (batch, PROMPT))
    told = {"do_sample": True, "temperature": temperature, "top_p": top_p, "top_k": top_k, "max_new_tokens": LENGTH}
    made = engine.generate(prompts, attention_mask=torch.ones_like(prompts), output_scores=True, return_dict_in_generate=True, **told)
    tokens = made.sequences[:, PROMPT:]
    engines = torch.stack(made.scores, 1).float().log_softmax(-1).gather(2, tokens[..., None])[..., 0]
    logits = logits_of(model, made.sequences)
    return Rollout(tokens, engines, chosen(logits, tokens), logits, torch.ones_like(tokens), made.sequences)


@torch.no_grad()
def logits_of(model: Any, sequences: Tensor) -> Tensor:
    found: Tensor = model(input_ids=sequences).logits[:, PROMPT - 1 : -1].float()
    return found


def chosen(logits: Tensor, tokens: Tensor) -> Tensor:
    return logits.log_softmax(-1).gather(2, tokens[..., None])[..., 0]


@dataclass
class Case:
    """An error, or none, and what is to be said of it.

    Args:
        engine: from the trainer to the engine's model.
        weights: words of the comparison of fingerprints; "" where these are to be equal.
        logprobs: kind of the comparison of log-probabilities.
        first: the first module whose output differs; None: none, or it is not asked.
        sampling: of ``generate``.
        spoil: what is done to the engine's log-probabilities.
    """

    engine: Callable[[Trainer], Any]
    weights: str = ""
    logprobs: str = "equal"
    first: str | None = None
    adapted: bool = False
    sampling: dict[str, Any] = field(default_factory=dict)
    spoil: Callable[[Rollout], Rollout] = lambda made: made
    others: dict[int | str, Any] = field(default_factory=dict)
    words: str = ""

    @property
    def is_healthy(self) -> bool:
        return not self.weights and self.logprobs in ("equal", "rounding")


def copied(told: Trainer) -> Any:
    return copy.deepcopy(told.model)


def of_step(step: int) -> Callable[[Trainer], Any]:
    return lambda told: told.models[step]


def changed(change: Callable[[Any, Trainer], None]) -> Callable[[Trainer], Any]:
    def engine(told: Trainer) -> Any:
        made = copied(told)
        with torch.no_grad():
            change(made, told)
        return made

    return engine


def layer_left_out(made: Any, told: Trainer) -> None:
    made.model.layers[1].load_state_dict(told.models[STEPS - 1].model.layers[1].state_dict())


def layer_in_bfloat16(made: Any, told: Trainer) -> None:
    for parameter in made.model.layers[1].mlp.parameters():
        parameter.copy_(parameter.bfloat16())


def head_is_embedding(made: Any, told: Trainer) -> None:
    made.lm_head.weight = made.model.embed_tokens.weight


def heads_interleaved(made: Any, told: Trainer) -> None:
    weight = made.model.layers[0].self_attn.q_proj.weight
    weight.copy_(weight.view(4, 2, 4, 32).transpose(1, 2).reshape(32, 32).clone())  # the other convention of rotary embeddings


def parts_swapped(made: Any, told: Trainer) -> None:
    attention = made.model.layers[2].self_attn
    attention.k_proj, attention.v_proj = attention.v_proj, attention.k_proj


def transposed(made: Any, told: Trainer) -> None:
    weight = made.model.layers[1].self_attn.o_proj.weight
    weight.copy_(weight.t().clone())


def norm_plus_one(made: Any, told: Trainer) -> None:
    made.model.layers[1].input_layernorm.weight += 1


def never_loaded(made: Any, told: Trainer) -> None:
    made.load_state_dict(llama(seed=7).state_dict())


def another_rank(told: Trainer) -> Any:
    made = copied(told)
    with torch.no_grad():
        for parameter in made.model.layers[2].parameters():
            parameter += 0.1
    return made


def other_theta(told: Trainer) -> Any:
    made = llama(rope_parameters={"rope_type": "default", "rope_theta": 100.0})
    made.load_state_dict(told.model.state_dict())
    return made


def merged(told: Trainer) -> Any:
    return copied(told).merge_and_unload()


def base(told: Trainer) -> Any:
    return llama()


def adapter_of(step: int) -> Callable[[Trainer], Any]:
    return lambda told: copy.deepcopy(told.models[step]).merge_and_unload()


def attention(kind: str) -> Callable[[Trainer], Any]:
    def engine(told: Trainer) -> Any:
        made = copied(told)
        made.set_attn_implementation(kind)
        return made

    return engine


def shifted(made: Rollout) -> Rollout:
    return replace(made, engine=made.engine.roll(-1, 1), mask=made.mask * (torch.arange(LENGTH) < LENGTH - 1))


def divided_by_both(made: Rollout) -> Rollout:
    return replace(made, trainer=chosen(made.logits / 0.7, made.tokens))


def last_is_padding(made: Rollout) -> Rollout:
    made.engine[:, -1] = 0
    return made


def one_more(made: Rollout) -> Rollout:
    return replace(made, engine=torch.cat([made.engine, made.engine[:, :1]], 1))


ASKED = ("copied", "eager attention", "all in bfloat16")  # whose modules are to agree
CASES = {
    "copied": Case(copied, logprobs="rounding"),
    "eager attention": Case(attention("eager"), logprobs="rounding"),
    "merged adapter": Case(merged, logprobs="rounding", adapted=True),
    "temperature 0.7 of both": Case(copied, logprobs="rounding", sampling={"temperature": 0.7}, spoil=divided_by_both),
    "adapter never merged": Case(base, "the adapter of a is not in b", "other weights", adapted=True),
    "adapter of an earlier step": Case(adapter_of(1), "b has that of step 1", "other weights", adapted=True),
    "one step behind": Case(of_step(STEPS - 1), f"b has that of step {STEPS - 1}", "other weights", "model.embed_tokens"),
    "three steps behind": Case(of_step(1), "b has that of step 1", "other weights", "model.embed_tokens"),
    "one layer left out": Case(
        changed(layer_left_out), f"b has that of step {STEPS - 1}", "other weights", "model.layers.1.input_layernorm"
    ),
    "one layer in bfloat16": Case(changed(layer_in_bfloat16), "equal once rounded to bfloat16", "rounding", "model.layers.1.mlp.gate_proj"),
    "all in bfloat16": Case(lambda told: copied(told).bfloat16(), "equal once rounded to bfloat16, float32 and bfloat16", "rounding"),
    "head is the embedding": Case(changed(head_is_embedding), "b has a's model.embed_tokens.weight there", "unrelated", "lm_head"),
    "rotary halves interleaved": Case(
        changed(heads_interleaved), "b has a's numbers in another order", "other weights", "model.layers.0.self_attn.q_proj"
    ),
    "keys and values swapped": Case(changed(parts_swapped), "b has a's", "other weights", "model.layers.2.self_attn.k_proj"),
    "transposed": Case(changed(transposed), "b has a's numbers in another order", "other weights", "model.layers.1.self_attn.o_proj"),
    "norm of another convention": Case(changed(norm_plus_one), "differ by", "other weights", "model.layers.1.input_layernorm"),
    "never loaded": Case(changed(never_loaded), "differ by", "unrelated", "model.embed_tokens"),
    "of another rank": Case(another_rank, "b has that of rank 1", "other weights", "model.layers.2.input_layernorm"),
    "another rotary base": Case(other_theta, "", "other weights", "model.rotary_emb[0]"),
    "temperature 0.7": Case(copied, "", "temperature", sampling={"temperature": 0.7}, words="logits / 0.7"),
    "temperature 1.3": Case(copied, "", "temperature", sampling={"temperature": 1.3}, words="logits / 1.3"),
    "top-p 0.9": Case(copied, "", "truncated", sampling={"top_p": 0.9}, words="top-p 0.9"),
    "top-k 5": Case(copied, "", "truncated", sampling={"top_k": 5}, words="top-k 5"),
    "top-p 0.95 of temperature 0.6": Case(
        copied, "", "truncated", sampling={"temperature": 0.6, "top_p": 0.95}, words="top-p 0.95 of logits / 0.6"
    ),
    "shifted by one": Case(copied, "", "shifted", spoil=shifted, words="t +1"),
    "last is padding": Case(copied, "", "few tokens", spoil=last_is_padding, words="the last of its row"),
    "one token more": Case(copied, "", "length", spoil=one_more, words="what both have agrees"),
}


def played(name: str) -> tuple[FingerprintComparison, LogprobsComparison, LogprobsComparison, FingerprintComparison | None]:
    """What is said of the weights; of log-probabilities alone, and beside the trainer's logits; of the models' outputs."""
    case, told = CASES[name], trainer(CASES[name].adapted)
    engine = case.engine(told)
    history = {**told.history, "rank 1": numscope.fingerprint(engine)} if name == "of another rank" else told.history
    named = ((f"model.{key}", value) for key, value in engine.state_dict().items())  # as engines load weights
    weights = numscope.compare(numscope.fingerprint(told.model), numscope.fingerprint(named), history=history)
    made = case.spoil(rollout(told.model, engine, **case.sampling))
    alone = numscope.compare_logprobs(made.trainer, made.engine, mask=made.mask)
    beside = numscope.compare_logprobs(made.trainer, made.engine, mask=made.mask, tokens=made.tokens, logits=made.logits)
    models = numscope.compare_models(told.model, engine, made.ids) if case.first is not None or name in ASKED else None
    return weights, alone, beside, models


def wrong(
    name: str,
    weights: FingerprintComparison,
    alone: LogprobsComparison,
    beside: LogprobsComparison,
    models: FingerprintComparison | None,
) -> str:
    """What is not said as it should be; nothing where all is."""
    case = CASES[name]
    first = models.differing[0].a if models is not None and models.differing else None
    found = {
        "weights": bool(weights) if not case.weights else case.weights in str(weights) and not weights,
        "log-probabilities": alone.kind == case.logprobs or (not alone.is_certain and beside.is_certain),
        "beside logits": beside.kind == case.logprobs and case.words in beside.text,
        "first module": first == case.first,
    }
    return ", ".join(what for what, is_right in found.items() if not is_right)
