"""Everything on one GPU in under 8 minutes, in one table; with ``--device cpu --tiny`` the script itself is tried where there is none.

    ./dev bench gpu [--device cuda] [--tiny] [--minutes N] [--parts kernel,eager,compiled] [--no-write]

First the kernel: bytes of a tensor over the time of its summary, against the bandwidth that torch reaches where it reads the same tensor
(the best of ``sum``, ``amax`` and a copy, which moves twice the bytes). Then a Llama of 1 B parameters in bfloat16 with AdamW, eager; and
one of 6 such layers, compiled, since each variant compiles anew: each variant is attached once, warmed up, and timed in blocks of steps in
turn with blocks of the bare model. Reported: the median over the blocks of what a variant adds. Times are of the wall clock between two
synchronizations. A variant that fails is a line of the table with its error.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from _machine import describe, write
from step import bare, peer, watched
from transformers import LlamaConfig, LlamaForCausalLM

import numscope
from numscope.summary import dispatch, reference
from numscope.summary.state import Groups

SIX = ["min", "max", "mean", "std", "l1_norm", "l2_norm"]
MLP, LINEAR = r".*\.(gate_proj|up_proj|down_proj)", r".*(_proj|lm_head)"
GOALS = {"detection, sentinel": 0.3, "detection, modules": 2.0, "two layers' kinds, every 100 steps": 0.3}


def synchronize(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def seconds(call: Callable[[], object], device: torch.device, budget_s: float) -> float:
    """Median of a call's time, in groups that take long enough for the clock."""
    call()
    synchronize(device)
    start = time.perf_counter()
    call()
    synchronize(device)
    repeats = max(1, min(200, int(2e-3 / max(time.perf_counter() - start, 1e-7))))
    times = []
    end = time.perf_counter() + budget_s
    while len(times) < 5 or (time.perf_counter() < end and len(times) < 200):
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        synchronize(device)
        times.append((time.perf_counter() - start) / repeats)
    return statistics.median(times)


def kernel(device: torch.device, tiny: bool) -> list[dict[str, Any]]:
    """GB/s of summaries and of torch's own reads."""
    rows = []
    sizes = (1 << 16, 1 << 20) if tiny else (1 << 20, 1 << 24, 1 << 26, 1 << 28, 1 << 30)
    for dtype in (torch.bfloat16, torch.float32, torch.float16, torch.float8_e4m3fn):
        for nbytes in sizes:
            x = torch.randn(nbytes // dtype.itemsize, device=device, dtype=torch.float32 if dtype.itemsize == 1 else dtype).to(dtype)
            block = reference.empty_block(1, device)
            bits = x.view(torch.int8)
            other = torch.empty_like(bits)
            reads = {"copy": lambda bits=bits, other=other: other.copy_(bits)}
            if dtype.itemsize > 1:
                reads |= {"sum": lambda x=x: x.sum(), "amax": lambda x=x: x.amax()}
            budget = 0.02 if tiny else 0.2
            best = max((2 if name == "copy" else 1) * nbytes / seconds(read, device, budget) for name, read in reads.items())
            row: dict[str, Any] = {
                "dtype": str(dtype).removeprefix("torch."),
                "MiB": nbytes / (1 << 20),
                "torch_GB_per_s": round(best / 1e9, 1),
            }
            for name, groups in (("health", Groups.HEALTH), ("all", Groups.ALL)):
                address = block.data_ptr()
                taken = seconds(lambda x=x, b=block, a=address, g=groups: dispatch.observe(x, b, a, 0, g), device, budget)
                row |= {f"{name}_GB_per_s": round(nbytes / taken / 1e9, 1), f"{name}_pct": round(100 * nbytes / taken / best, 1)}
            rows.append(row)
    return rows


def collect(stats: list[str], pattern: str, tensors: list[str], freq: int) -> dict[str, Any]:
    feature = {"enabled": True, "stats": stats, "tensors": tensors, "freq": freq}
    return {"bench": {"enabled": True, "layers": {"layer_name_regex_pattern": pattern}, "statistics": feature}}


class _Nowhere:
    def log_scalar(self, name: str, value: float, iteration: int, **kwargs: Any) -> None:
        """Writing is not measured."""


def statistics_of(config: dict[str, Any]) -> Callable[[torch.nn.Module], contextlib.AbstractContextManager[Any]]:
    @contextlib.contextmanager
    def attach(model: torch.nn.Module) -> Iterator[None]:
        with numscope.watch(model, on_nonfinite=None, config=config, loggers=(_Nowhere(),)):
            yield

    return attach


VARIANTS: dict[str, Callable[[torch.nn.Module], contextlib.AbstractContextManager[Any]]] = {
    "bare again (noise)": bare,
    "detection, sentinel": watched(level="sentinel"),
    "detection, modules": watched(level="modules"),
    "two layers' kinds, every 100 steps": statistics_of(
        collect(["l1_norm", "l2_norm", "cur_amax", "dynamic_range"], MLP, ["activation", "gradient"], 100)
    ),
    "six statistics of every linear, every step": statistics_of(collect(SIX, LINEAR, ["activation", "gradient", "weight"], 1)),
    "transformers DebugUnderflowOverflow": peer,
}


def model_of(device: torch.device, tiny: bool, layers: int) -> tuple[torch.nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    sizes = (
        dict(vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2)
        if tiny
        else dict(
            vocab_size=32000,
            hidden_size=2048,
            intermediate_size=5632,
            num_hidden_layers=layers,
            num_attention_heads=16,
            num_key_value_heads=8,
        )
    )
    with torch.device(device):
        model = LlamaForCausalLM(LlamaConfig(max_position_embeddings=2048, **sizes)).to(torch.bfloat16)
        ids = torch.randint(0, sizes["vocab_size"], (2, 16) if tiny else (4, 1024))
    return model, ids


def steps(device: torch.device, tiny: bool, compiled: bool, minutes: float) -> dict[str, Any]:
    """Percent that each variant adds to a step; what failed, in words."""
    model, ids = model_of(device, tiny, 6 if compiled else 22)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=device.type == "cuda")
    call = torch.compile(model) if compiled else model

    def block(count: int) -> float:
        synchronize(device)
        start = time.perf_counter()
        for _ in range(count):
            optimizer.zero_grad(set_to_none=True)
            call(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
        synchronize(device)
        return (time.perf_counter() - start) / count

    warm = 8 if compiled and not tiny else 3  # a watch makes torch compile anew
    block(warm)
    each = 2 if tiny else 10
    end = time.perf_counter() + minutes * 60
    added: dict[str, list[float]] = {name: [] for name in VARIANTS}
    failed: dict[str, str] = {}
    bare_s = []
    for rounds in range(1 if tiny else 5):
        for name, attach in VARIANTS.items():
            if name in failed or (rounds and time.perf_counter() > end):
                continue
            gc.collect()
            before = block(each)
            bare_s.append(before)
            count = 100 if "every 100" in name and not tiny else each
            try:
                with attach(model):
                    block(warm)
                    added[name].append(block(count) / before - 1)
            except Exception as error:  # a variant that fails is a line of the table
                failed[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}" if str(error) else type(error).__name__
            if compiled:
                torch._dynamo.reset()
                call = torch.compile(model)
                block(warm)
    found: dict[str, Any] = {"bare_ms": statistics.median(bare_s) * 1e3, "parameters": sum(p.numel() for p in model.parameters())}
    return found | {name: failed.get(name) or round(100 * statistics.median(values), 2) for name, values in added.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="sizes that prove nothing but that the script works; nothing is written")
    parser.add_argument("--minutes", type=float, default=7.0, help="for all steps together")
    parser.add_argument("--parts", default="kernel,eager,compiled", help="which to run; with fewer than all nothing is written")
    parser.add_argument("--no-write", action="store_true")
    given = parser.parse_args()
    device = torch.device(given.device)
    if device.type == "cuda":
        if not torch.cuda.is_available():
            parser.exit(2, "gpu.py: this machine has no CUDA or ROCm device that torch can use. Try the script with --device cpu --tiny.\n")
        device = torch.device("cuda", torch.cuda.current_device())
    parts = given.parts.split(",")
    about = torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU, which says nothing of a GPU"
    lines = [f"On {about}. The goal for the kernel is 85 % of torch's best read from 64 MiB on.", ""]
    rows = kernel(device, given.tiny) if "kernel" in parts else []
    if rows:
        lines += ["| " + " | ".join(rows[0]) + " |", "|---" * len(rows[0]) + "|"]
        lines += ["| " + " | ".join(map(str, row.values())) + " |" for row in rows]
        print("\n".join(lines), flush=True)
    both = {}
    for name in ("eager", "compiled"):
        if name in parts:
            both[name] = steps(device, given.tiny, name == "compiled", given.minutes / 2)
            print(name, both[name], flush=True)
    for name, found in both.items():
        lines += [
            "",
            f"{name}: a Llama of {found['parameters'] / 1e9:.2f} B parameters in bfloat16; a bare step takes {found['bare_ms']:.1f} ms.",
        ]
    lines += ["", "| variant | goal |" + "".join(f" {name}, added % |" for name in both), "|---|---|" + "---|" * len(both)]
    for name in VARIANTS:
        goal = f"≤ +{GOALS[name]}" if name in GOALS else ""
        lines.append(f"| {name} | {goal} |" + "".join(f" {found[name]} |" for found in both.values()))
    if given.tiny or given.no_write or len(parts) < 3:
        print("\n".join(lines))
    else:
        write("gpu", {"machine": describe() | {"device": about}, "kernel": rows, "steps": both}, "On a GPU", lines)


if __name__ == "__main__":
    main()
