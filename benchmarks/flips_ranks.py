"""Flipped bits among ranks: which of them is named when one bit of one rank's step flips, under DDP on 2 to 4 processes (gloo).

    ./dev bench flips_ranks [--flips N]

One bit of one element flips in one rank's second step, for every bit position of float32, in turn in the result of an operation of the
forward, of the backward (as in ``again.py``), of the optimizer, and in what a collective gave that rank: an averaged gradient, in which all
other ranks have the right bits. Ranks are watched with ``check="again:at=1"``; that replicas differ is told by checksums. A flip counts as
named if an alert of either names its rank.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from _machine import describe, write
from again import MODELS, OURS, Flip
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import numscope

PARTS = ("forward", "backward", "optimizer", "collective")
WHICH = ("encoder", "llama")
STEPS = 8


def flip_of(case: dict[str, Any]) -> Flip:
    return Flip(case["number"], case["bit"], case["part"])


def flip_gradient(model: nn.Module, case: dict[str, Any]) -> None:
    """As a collective's result would be: the largest element of one averaged gradient."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    flat = gradients[case["number"] % len(gradients)].view(-1)
    where = int(flat.abs().argmax())
    flat[where : where + 1].view(torch.int32).bitwise_xor_(1 << case["bit"] if case["bit"] < 31 else -(1 << 31))


def run(case: dict[str, Any], rank: int, is_flipped: bool, is_watched: bool) -> tuple[list[torch.Tensor], Any, Flip]:
    """The weights and states after the second step, the scope where it is watched, and the flip."""
    torch.manual_seed(case["seed"])
    model, _ = MODELS[case["model"]]()
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    flip, after = flip_of(case), []
    torch.manual_seed(case["seed"] + rank)
    scope = numscope.watch(replica, check="again:at=1", on_nonfinite="warn", alerts={"mode": "note"}) if is_watched else None
    for step in range(STEPS if is_watched else 2):
        acts = is_flipped and step == 1
        with flip if acts and case["part"] in ("forward", "backward") else contextlib.nullcontext():
            if case["model"] == "llama":
                tokens = torch.randint(3, 64, (4, 12))
                loss = replica(input_ids=tokens, labels=tokens).loss
            else:
                loss = replica(torch.randn(4, 10, 16)).square().mean()
            loss.backward()
        if acts and case["part"] == "collective":
            flip_gradient(model, case)
            flip.op = "all_reduce"
        with flip if acts and case["part"] == "optimizer" else contextlib.nullcontext():
            optimizer.step()
        if step == 1:
            states = [t for state in optimizer.state.values() for t in state.values() if isinstance(t, torch.Tensor)]
            after = [t.detach().clone() for t in (*model.parameters(), *states)]
        optimizer.zero_grad()
    if scope is not None:
        scope.close()
    return after, scope, flip


def work(rank: int, world: int, port: int, cases: list[dict[str, Any]], folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    with (Path(folder) / f"{world}-{rank}.jsonl").open("w") as file:
        for case in cases:
            acts = rank == case["rank"]
            healthy, _, _ = run(case, rank, False, False)
            bad, _, flip = run(case, rank, acts, False)
            changed = [not torch.equal(a, b) for a, b in zip(healthy, bad, strict=True)]  # weights, then states
            num_weights = sum(1 for _ in MODELS[case["model"]]()[0].parameters())
            _, scope, _ = run(case, rank, acts, True)
            said = [{"rule": a.rule, "text": a.text, "ranks": a.evidence.get("ranks"), "op": a.evidence.get("op")} for a in scope.alerts]
            found = {
                "acts": acts,
                "op": flip.op,
                "effect": any(changed),
                "weights": any(changed[:num_weights]),
                "nonfinite": bool(scope.findings or scope.contained),
                "said": said,
            }
            file.write(json.dumps(case | found | {"by": rank}) + "\n")
            file.flush()
    dist.destroy_process_group()


def judged(cases: list[dict[str, Any]], world: int, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each case with what all ranks said of it."""
    found = []
    for case in cases:
        of_case = [one for one in lines if one["seed"] == case["seed"]]
        acted = next(one for one in of_case if one["acts"])
        said = [(one["by"], alert) for one in of_case for alert in one["said"]]
        again = [(by, alert) for by, alert in said if alert["rule"] in OURS]
        replicas = [alert for _, alert in said if alert["rule"] == "replicas differ"]
        found.append(
            case
            | {
                "world": world,
                "op": acted["op"],
                "effect": any(one["effect"] for one in of_case),
                "weights": any(one["weights"] for one in of_case),
            }
            | {"nonfinite": any(one["nonfinite"] for one in of_case)}
            | {"again": sorted({alert["rule"] for _, alert in again}), "again_by": sorted({by for by, _ in again})}
            | {"replicas": [alert["text"] for alert in replicas], "others": sorted({alert["rule"] for _, alert in said} - {*OURS})}
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flips", type=int, default=32, help="of each part and number of ranks")
    given = parser.parse_args()
    choose, found, seed = random.Random(0), [], 0
    for world in (2, 3, 4):
        cases = []
        for part in PARTS:
            for count in range(given.flips):
                seed += 10
                bit, rank = (count * 32 // given.flips + world) % 32, choose.randrange(world)
                model, number = WHICH[count % len(WHICH)], choose.randrange(12)
                cases.append({"part": part, "bit": bit, "rank": rank, "model": model, "number": number, "seed": seed})
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(work, (world, 29650 + world, cases, folder), nprocs=world)
            lines = [json.loads(line) for file in Path(folder).glob("*.jsonl") for line in file.read_text().splitlines()]
        found += judged(cases, world, lines)
        print(f"{world} ranks: done", file=sys.stderr)
    lines = [
        "| ranks | part | flips that changed weights or states | stopped as nan or inf | said by `again`, by that rank alone "
        "| replicas differ | that rank named by it (3 ranks and more) | silent | … whose weights are the same, states alone differ |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    groups = collections.defaultdict(list)
    for one in found:
        if one["effect"] and one["op"]:
            groups[one["world"], one["part"]].append(one)
    for (world, part), several in groups.items():
        left = [one for one in several if not one["nonfinite"]]
        again = sum(one["again_by"] == [one["rank"]] for one in left)
        differ = [one for one in left if one["replicas"]]
        named = sum(f"differs on rank {one['rank']} " in one["replicas"][0] for one in differ)
        unseen = [one for one in left if not one["again_by"] and not one["replicas"]]
        silent = f"{len(unseen)} | {sum(not one['weights'] for one in unseen)}"
        right = f"{named} of {len(differ)}" if world > 2 else "–"
        lines.append(f"| {world} | {part} | {len(several)} | {len(several) - len(left)} | {again} | {len(differ)} | {right} | {silent} |")
    wrong = [one for one in found if one["again_by"] and one["again_by"] != [one["rank"]]]
    lines += ["", f"Flips of which `again` spoke on another rank: {len(wrong)}."]
    write("flips_ranks", {"machine": describe(), "flips": found}, "Flipped bits among ranks", lines)


if __name__ == "__main__":
    main()
