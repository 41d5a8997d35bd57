"""Memory over 1,000 steps under the watch: live tensors, resident bytes, and what the ledgers take.

    ./dev bench memory [--steps N]

A growth would show as a slope: resident bytes are noted every tenth of the run, bare and watched, after the first tenth has warmed the
allocator.
"""

from __future__ import annotations

import argparse
import gc
from pathlib import Path
from typing import Any

import torch
from _machine import describe, write
from transformers import LlamaConfig, LlamaForCausalLM

import numscope


def resident_bytes() -> int:
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return int(fields["VmRSS"].split()[0]) * 1024


def live_tensors() -> int:
    gc.collect()
    return sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())  # isinstance would ask lazy objects who they are


def run(steps: int, watched: bool) -> dict[str, Any]:
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4)
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.randint(0, 256, (2, 32))
    scope = numscope.watch(model) if watched else None
    resident, tensors = [], []
    for number in range(steps):
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        if (number + 1) % (steps // 10) == 0:
            tensors.append(live_tensors())
            resident.append(resident_bytes())
    ledger = scope._watch.nbytes if scope is not None else 0
    if scope is not None:
        scope.close()
    return {"resident_bytes": resident, "live_tensors": tensors, "ledger_bytes": ledger}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)  # so small a model gains nothing from more
    results = {"bare": run(steps, False), "watched": run(steps, True)}
    lines = ["| run | live tensors, first and last tenth | resident growth after the first tenth | ledgers |", "|---|---|---|---|"]
    for name, r in results.items():
        growth = (r["resident_bytes"][-1] - r["resident_bytes"][0]) / 2**20
        lines.append(
            f"| {name} | {r['live_tensors'][0]}, {r['live_tensors'][-1]} | {growth:+.2f} MiB | {r['ledger_bytes'] / 1024:.0f} KiB |"
        )
    write("memory", {"machine": describe(), "steps": steps, "results": results}, f"Memory over {steps} steps", lines)


if __name__ == "__main__":
    main()
