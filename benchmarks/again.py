"""Steps done again (``--check``): what a check costs, which flipped bits ``again`` sees, and whether a check ever speaks at healthy steps.

    ./dev bench again [--parts cost,flips,healthy] [--healthy STEPS] [--flips N]

Healthy steps: ``STEPS`` steps over 28 models, each an own kind, in float32 and under bfloat16 autocast, checked by ``again``; a tenth as
many by ``gradients`` and ``float64``. Flips: one bit of one element of one operation's result, in a step that is checked, for every bit
position of float32 and bfloat16, in the forward, the backward and the optimizer's step: the element of largest magnitude, so that what
follows depends on it. Cost: a checked step against a bare one, interleaved, median of pairs. Parts that are left out stay as they are in
the result file.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import gc
import itertools
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from _machine import describe, write
from step import build
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import numscope

OURS = ("step is not reproducible", "suspected hardware")
ALL = (*OURS, "wrong gradient", "wrong result", "precision is lost")
SMALL: dict[str, Any] = {"vocab_size": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
NARROW: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
Step = Callable[[], Tensor]


def text(name: str, **sizes: Any) -> Callable[[], tuple[nn.Module, Step]]:
    """A language model of transformers and its loss on random tokens."""

    def make() -> tuple[nn.Module, Step]:
        config = transformers.AutoConfig.for_model(name, **SMALL, **(sizes or NARROW))
        kind = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
        if name in ("bert", "roberta", "electra", "distilbert", "albert"):
            kind = transformers.AutoModelForMaskedLM
        model = kind.from_config(config).train()

        def loss() -> Tensor:
            tokens = torch.randint(3, 64, (4, 12))
            return model(input_ids=tokens, labels=tokens).loss

        return model, loss

    return make


def image(name: str, size: int = 32, **sizes: Any) -> Callable[[], tuple[nn.Module, Step]]:
    def make() -> tuple[nn.Module, Step]:
        config = transformers.AutoConfig.for_model(name, num_labels=4, **sizes)
        model = transformers.AutoModelForImageClassification.from_config(config).train()
        return model, lambda: model(pixel_values=torch.randn(4, 3, size, size), labels=torch.randint(0, 4, (4,))).loss

    return make


def sequence(make_model: Callable[[], nn.Module]) -> Callable[[], tuple[nn.Module, Step]]:
    def make() -> tuple[nn.Module, Step]:
        model, head = make_model(), nn.Linear(16, 1)
        both = nn.ModuleList([model, head])

        class Whole(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.parts = both

            def forward(self, x: Tensor) -> Tensor:
                out = self.parts[0](x)
                return self.parts[1](out[0] if isinstance(out, tuple) else out)

        whole = Whole()
        return whole, lambda: whole(torch.randn(4, 10, 16)).square().mean()

    return make


class Experts(nn.Module):
    """Two of four experts for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.router, self.experts = nn.Linear(16, 4), nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(2, -1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mask = (chosen == number).float() * weights
            out = out + mask.sum(-1, keepdim=True) * expert(x)
        return out


def block() -> nn.Module:
    return nn.TransformerEncoderLayer(16, 2, 32, dropout=0.2, batch_first=True)


MODELS: dict[str, Callable[[], tuple[nn.Module, Step]]] = {
    **{name: text(name, **NARROW, num_key_value_heads=2) for name in ("llama", "mistral", "qwen2", "granite")},
    **{name: text(name) for name in ("bert", "roberta", "electra", "phi", "gpt_neox")},
    "opt": text("opt", hidden_size=16, word_embed_proj_dim=16, ffn_dim=32, num_hidden_layers=2, num_attention_heads=2),
    "gemma2": text("gemma2", **NARROW, num_key_value_heads=2, head_dim=8),
    "olmo": text("olmo", **NARROW),
    "bloom": text("bloom", hidden_size=16, n_layer=2, n_head=2),
    "gpt2": text("gpt2", n_embd=16, n_layer=2, n_head=2),
    "t5": text("t5", d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0),
    "mixtral": text("mixtral", **NARROW, num_local_experts=4, num_key_value_heads=2),
    "mamba": text("mamba", hidden_size=16, num_hidden_layers=2, state_size=4),
    "resnet": image("resnet", embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"),
    "mobilenet_v2": image("mobilenet_v2", depth_multiplier=0.35, image_size=32),
    "convnext": image("convnext", hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, image_size=32),
    "vit": image("vit", image_size=32, patch_size=8, **NARROW),
    "swin": image("swin", image_size=32, patch_size=2, embed_dim=8, depths=[1, 1], num_heads=[2, 2], window_size=4),
    "segformer": image(
        "segformer",
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[2, 1],
        hidden_sizes=[8, 16],
        patch_sizes=[3, 3],
        strides=[2, 2],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
        decoder_hidden_size=16,
    ),
    "lstm": sequence(lambda: nn.LSTM(16, 16, 2, dropout=0.3, batch_first=True)),
    "gru": sequence(lambda: nn.GRU(16, 16, batch_first=True, bidirectional=False)),
    "experts": sequence(Experts),
    "encoder": sequence(block),
    "norms": sequence(lambda: nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(10), nn.GELU(), nn.RMSNorm(16), nn.Dropout(0.3))),
}


def healthy(steps: int, before: dict[str, Any], keep: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Checked steps and what was said, by check and model; ``before``: what an earlier run of as many steps has kept. It takes hours."""
    found = dict(before)
    each = -(-steps // (2 * len(MODELS)))
    for name, make in MODELS.items():
        for low, (check, num) in itertools.product((False, True), (("again", each + 1), ("gradients,float64", each // 10 + 1))):
            kind = f"{check}: {name}, bfloat16 autocast" if low else f"{check}: {name}"
            if found.get(kind, {}).get("steps") == num - 1:
                continue
            torch.manual_seed(0)
            model, loss = make()
            optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
            with numscope.watch(model, check=f"{check}:every=1", on_nonfinite="warn") as scope:
                for _ in range(num):
                    with torch.autocast("cpu", torch.bfloat16, enabled=low):
                        value = loss()
                    value.backward()
                    optimizer.step()
                    optimizer.zero_grad()
            said = [alert.line().replace(f"{os.getcwd()}/", "") for alert in scope.alerts if alert.rule in ALL]
            found[kind] = {"steps": num - 1, "alerts": said}
            keep(found)
            gc.collect()
    return found


class Flip(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Flips one bit in the result of the n-th floating-point operation that computes in a part of the step; knows which it was.

    It acts in the process that it was made in: an optimizer's step is taken in others first.
    """

    MADE = (
        "empty",
        "zeros",
        "ones",
        "full",
        "rand",
        "view",
        "reshape",
        "t",
        "transpose",
        "as_strided",
        "permute",
        "expand",
        "detach",
        "alias",
        "slice",
    )

    def __init__(self, number: int, bit: int, part: str) -> None:
        super().__init__()
        self.number, self.left, self.bit, self.part, self.op, self.process = number, number, bit, part, "", os.getpid()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.__name__.partition(".")[0]
        given = {id(a) for a in args if isinstance(a, Tensor)} if self.part != "optimizer" else set()
        counts = isinstance(result, Tensor) and result.is_floating_point() and result.numel() > 1 and id(result) not in given
        is_part = (torch._C._current_graph_task_id() != -1) == (self.part == "backward") and os.getpid() == self.process
        if (
            counts
            and not self.op
            and is_part
            and (self.part == "backward" or not of_numscope())
            and not name.startswith(self.MADE)
            and result.is_contiguous()
        ):
            self.left -= 1
            if self.left < 0 and float(result.abs().max()) > 0:
                self.op = f"aten.{name}"
                kind, width = (torch.int32, 32) if result.dtype is torch.float32 else (torch.int16, 16)
                mask = 1 << self.bit if self.bit < width - 1 else -(1 << (width - 1))
                where = int(result.flatten().abs().argmax())
                result.view(-1)[where : where + 1].view(kind).bitwise_xor_(mask)
        return result


def of_numscope() -> bool:
    """Whether it is the tool's own operation."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("torch"):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "")).startswith("numscope")


def trained(name: str, seed: int, dtype: torch.dtype, flip: Flip, steps: int) -> Iterator[tuple[nn.Module, Any]]:
    """Steps of a model, with the flip in the second: after each backward and each optimizer's step."""
    torch.manual_seed(seed)
    model, loss = MODELS[name]()
    model.to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    yield model, optimizer
    for step in range(steps):
        with flip if step == 1 and flip.part != "optimizer" else contextlib.nullcontext():
            loss().backward()
        yield model, optimizer
        with flip if step == 1 and flip.part == "optimizer" else contextlib.nullcontext():
            optimizer.step()
        yield model, optimizer
        optimizer.zero_grad()


def has_effect(name: str, seed: int, dtype: torch.dtype, flip: Flip) -> bool:
    """Whether the same flip changes a gradient, a weight or a state of the optimizer's, without numscope."""
    left = []
    for number in (1 << 30, flip.number):
        found: list[Tensor] = []
        for model, optimizer in trained(name, seed, dtype, Flip(number, flip.bit, flip.part), 2):
            states = (t for state in optimizer.state.values() for t in state.values() if isinstance(t, Tensor))
            found += [t.detach().clone() for p in model.parameters() for t in (p.grad, p) if t is not None]
            found += [t.clone() for t in states]
        left.append(found)
    return any(not torch.equal(a, b) for a, b in zip(*left, strict=True))


FLIPPED = ("llama", "gpt2", "t5", "resnet", "lstm", "encoder")


def flips(number: int) -> list[dict[str, Any]]:
    """``number`` of them for each dtype and part of a step, bits in turn."""
    found = []
    choose = random.Random(0)
    for dtype, width in ((torch.float32, 32), (torch.bfloat16, 16)):
        for part in ("forward", "backward", "optimizer"):
            for count in range(number):
                name, bit = FLIPPED[count % len(FLIPPED)], count % width
                if dtype is torch.bfloat16 and name in ("resnet", "lstm", "encoder"):
                    name = "llama"
                flip = Flip(choose.randrange(12), bit, part)
                steps = trained(name, count, dtype, flip, 4)
                with numscope.watch(next(steps)[0], check="again:at=1", on_nonfinite="warn", alerts={"mode": "note"}) as scope:
                    collections.deque(steps, 0)
                said = [alert for alert in scope.alerts if alert.rule in OURS]
                named = [said[0].evidence["op"].rpartition(" ")[2], *said[0].evidence.get("before", ())] if said else []
                bad = bool(scope.findings or scope.contained)
                found.append({
                    "model": name, "dtype": str(dtype), "part": part, "bit": bit, "op": flip.op, "nonfinite": bad,
                    "said": said[0].rule if said else "", "named": named, "effect": has_effect(name, count, dtype, flip),
                    "text": said[0].text.replace(f"{os.getcwd()}/", "") if said else "",
                })  # fmt: skip
    return found


def llama() -> tuple[nn.Module, Step]:
    model, ids = build(torch.float32), torch.randint(0, 8192, (4, 256))
    return model, lambda: model(input_ids=ids, labels=ids).loss


def compiled() -> tuple[nn.Module, Step]:
    model, loss = llama()
    model.compile()
    return model, loss


def costs(rounds: int) -> dict[str, dict[str, float]]:
    """A checked step over a bare one, by model and check."""
    found: dict[str, dict[str, float]] = {}
    makers: dict[str, Callable[[], tuple[nn.Module, Step]]] = {
        "Llama of 8 layers, 4 x 256 tokens": llama,
        "ResNet-50, 4 images of 128": image("resnet", 128),
        "the Llama, compiled": compiled,
    }
    for name, make in makers.items():
        model, loss = make()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

        def step(loss: Step = loss, optimizer: Any = optimizer) -> float:
            start = time.perf_counter()
            loss().backward()
            optimizer.step()
            optimizer.zero_grad()
            return time.perf_counter() - start

        step()
        ratios: dict[str, list[float]] = collections.defaultdict(list)
        for _ in range(rounds):
            for check in ("eager",) if "compiled" in name else ("again", "gradients", "float64"):
                with numscope.watch(model, check=f"{check}:at=1"):
                    step()
                    checked = step()
                step()
                ratios[check].append(checked / step())
        found[name] = {check: statistics.median(several) for check, several in ratios.items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default="cost,flips,healthy")
    parser.add_argument("--healthy", type=int, default=10_000)
    parser.add_argument("--flips", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    parts, file = given.parts.split(","), Path(__file__).parent / "results" / "again.json"
    before = json.loads(file.read_text()) if file.exists() else {}
    cost = costs(given.rounds) if "cost" in parts else before.get("cost", {})
    flipped = flips(given.flips) if "flips" in parts else before.get("flips", [])
    clean: dict[str, Any] = before.get("healthy", {})
    if "healthy" in parts:
        clean = healthy(given.healthy, clean, lambda found: file.write_text(json.dumps(before | {"healthy": found}, indent=1)))
    lines = ["## Cost", "", "| model | check | a checked step over a bare one |", "|---|---|---|"]
    lines += [f"| {name} | `{check}` | {ratio:.1f} × |" for name, several in cost.items() for check, ratio in several.items()]
    lines += [
        "",
        "## Flipped bits",
        "",
        "| dtype | part | flips | stopped as nan or inf | suspected hardware | asked about | silent | its operation among those named | "
        "named (median) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    groups = collections.defaultdict(list)
    for one in flipped:
        if one["effect"] and one["op"]:  # else no operation was met
            groups[one["dtype"].removeprefix("torch."), one["part"]].append(one)
    missed = collections.Counter[str]()
    for (dtype, part), several in groups.items():
        bad = [one for one in several if one["nonfinite"]]
        left = [one for one in several if not one["nonfinite"]]
        seen = [one for one in left if one["said"]]
        sure = sum(one["said"] == "suspected hardware" for one in seen)
        right, named = sum(one["op"] in one["named"] for one in seen), statistics.median([len(one["named"]) for one in seen] or [0])
        missed.update(f"{dtype} {part} {one['model']} {one['op']} bit {one['bit']}" for one in left if one not in seen)
        row = len(several), len(bad), sure, len(seen) - sure, len(left) - len(seen), f"{right} of {len(seen)}", f"{named:g}"
        lines.append(f"| {dtype} | {part} | {' | '.join(map(str, row))} |")
    without = [one for one in flipped if one["op"] and not one["effect"]]
    lines += ["", f"Silent: {', '.join(sorted(missed)) or 'none'}."]
    lines += [
        f"Further {len(without)} flips changed no gradient, weight or state; of {sum(bool(one['said']) for one in without)} was said."
    ]
    lines += ["", "## Healthy steps", ""]
    for check in ("again", "gradients,float64"):
        of_check = {name.partition(": ")[2]: one for name, one in clean.items() if name.startswith(f"{check}:")}
        num_models = len({name.partition(",")[0] for name in of_check})
        steps, said = sum(one["steps"] for one in of_check.values()), sum(len(one["alerts"]) for one in of_check.values())
        lines.append(f"- `{check}`: {steps:,} checked steps of {num_models} models, in two precisions: {said} alerts.")
    lines += [f"- {name}: {line}" for name, one in clean.items() for line in one["alerts"]]
    write("again", {"machine": describe(), "cost": cost, "flips": flipped, "healthy": clean}, "Steps done again", lines)


if __name__ == "__main__":
    main()
