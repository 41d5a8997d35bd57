"""The cases of tests/parity/layouts.py: healthy layouts, and faults with the verdict that they should get."""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer

from numscope.parity.judging import ParityVerdict, judge
from numscope.parity.layout import RecordedLayout
from numscope.parity.recording import StepRecorder
from tests.parity.layouts import (
    BATCH,
    Case,
    Net,
    Placed,
    Tied,
    a_third,
    autocast,
    average,
    batch,
    by_hand,
    changed,
    clip,
    clip_each,
    clip_early,
    clip_largest,
    clip_nothing,
    clip_shards,
    compiled,
    cross_of,
    ddp,
    everyone,
    frozen,
    fsdp,
    hooked,
    ignoring,
    in_dtype,
    in_pairs,
    in_turn,
    low,
    noisy,
    of_all_labels,
    of_axis,
    of_sequence,
    other_on_a_rank,
    recomputed,
    scaled,
    sums,
    synchronized,
    tensor_parallel,
    twice_used,
    two_axes,
    undivided,
    with_places,
    zeroed,
)

LAST = ("head.weight", "head.bias")
adam = functools.partial(torch.optim.AdamW, lr=1e-3)
HEALTHY: dict[str, Case] = {
    "whole batch": Case(),
    "four micro-batches": Case(num=4),
    "recomputed": Case(make=recomputed),
    "clipped": Case(clip=clip, reference="clipped"),
    "DDP": Case(2, make=ddp),
    "DDP, four micro-batches": Case(2, make=ddp, num=4),
    "DDP of small buckets": Case(2, make=functools.partial(ddp, bucket_cap_mb=0.001)),
    "DDP, clipped": Case(2, make=ddp, clip=clip, reference="clipped"),
    "averaged by hand": Case(2, reduce=average),
    "averaged by hand, two micro-batches": Case(2, reduce=average, num=2),
    "FSDP2": Case(2, make=fsdp),
    "FSDP2, two micro-batches": Case(2, make=fsdp, num=2),
    "FSDP2, clipped": Case(2, make=fsdp, clip=clip, reference="clipped"),
    "tensor parallel": Case(2, make=tensor_parallel, share=everyone),
    "tensor parallel by hand": Case(2, make=by_hand, share=everyone),
    "DDP of 4": Case(4, make=ddp),
    "FSDP2 of 4, two micro-batches": Case(4, make=fsdp, num=2),
    "FSDP2 and tensor parallel": Case(4, make=two_axes, share=of_axis),
    "compiled": Case(make=compiled),
    "AdamW": Case(optimizer=adam),
    "DDP with AdamW": Case(2, make=ddp, optimizer=adam, reference="AdamW"),
    "FSDP2 with AdamW": Case(4, make=fsdp, optimizer=adam, reference="AdamW"),
    "DDP, states over ranks": Case(
        2, make=ddp, optimizer=functools.partial(ZeroRedundancyOptimizer, optimizer_class=torch.optim.SGD, lr=0.1)
    ),
    "bfloat16": Case(net=low),
    "DDP in bfloat16": Case(2, make=ddp, net=low, reference="bfloat16"),
    "under autocast": Case(amp=True),
    "DDP under autocast": Case(2, make=ddp, num=2, amp=True, reference="under autocast"),
    "tied": Case(net=Tied),
    "DDP, tied": Case(2, make=ddp, net=Tied, reference="tied"),
    "FSDP2, tied": Case(2, make=fully_shard, net=Tied, reference="tied"),
    "samples in turn": Case(2, make=ddp, share=in_turn),
    "summed, of divided losses": Case(2, reduce=functools.partial(average, divide=1.0), scale=lambda r, i, n: 0.5),
    "sequences over ranks": Case(2, reduce=average, share=of_sequence),
    "with places": Case(net=Placed, make=with_places),
    "sequences and places over ranks": Case(2, net=Placed, make=with_places, reduce=average, share=of_sequence, reference="with places"),
    "unequal labels": Case(masked=True, loss=of_all_labels),
    "unequal labels, four micro-batches": Case(
        num=4, masked=True, loss=of_all_labels, scale=lambda r, i, n: 1.0, reference="unequal labels"
    ),
}

half = functools.partial
MUTATIONS: dict[str, Case] = {
    # factors
    "loss is not divided by micro-batches": Case(
        kind="factor", first=LAST, says="number of micro-batches of a rank", num=4, scale=lambda r, i, n: 1.0
    ),
    "loss is divided twice": Case(
        kind="factor", first=LAST, says="1 / the number of micro-batches of a rank", num=4, scale=lambda r, i, n: 1 / n**2
    ),
    "gradients are summed over ranks": Case(2, "factor", LAST, "the world size", reduce=half(average, divide=1.0)),
    "gradients are divided twice by ranks": Case(2, "factor", LAST, "1 / the world size", reduce=half(average, divide=4.0)),
    "DDP sums": Case(2, "factor", LAST, "the data-parallel size", make=half(hooked, hook=sums)),
    "DDP sums over 4": Case(4, "factor", LAST, "4 times that of the first run", make=half(hooked, hook=sums)),
    "FSDP2 does not divide": Case(2, "factor", LAST, "the data-parallel size", make=undivided),
    "DDP, loss is not divided by micro-batches": Case(
        2, "factor", LAST, "number of micro-batches of a rank", make=ddp, num=4, scale=lambda r, i, n: 1.0
    ),
    "loss is divided by ranks, and DDP averages": Case(4, "factor", LAST, "1 / the world size", make=ddp, scale=lambda r, i, n: 0.25),
    "sum over the batch": Case(kind="factor", first=LAST, says="the number of samples", scale=lambda r, i, n: float(BATCH)),
    # reductions
    "nobody reduces": Case(2, "missing reduction", LAST, "what their own backward gave"),
    "one parameter is not reduced": Case(
        2, "missing reduction", ("blocks.1.up.weight",), "own backward gave", reduce=half(average, but="blocks.1.up.weight")
    ),
    "the embedding is not reduced": Case(
        4, "missing reduction", ("embed.weight",), "own backward gave", reduce=half(average, but="embed.weight")
    ),
    "a norm is not reduced": Case(
        2, "missing reduction", ("blocks.0.norm.bias",), "own backward gave", reduce=half(average, but="blocks.0.norm.bias")
    ),
    "DDP's module is called": Case(2, "missing reduction", LAST, "own backward gave", make=lambda net: ddp(net).module),
    "DDP never synchronizes": Case(2, "missing reduction", LAST, "own backward gave", make=ddp, sync=lambda i, n: False),
    "DDP synchronizes the first micro-batch alone": Case(
        2, "missing reduction", LAST, "have other gradients", make=ddp, num=2, sync=lambda i, n: i == 0
    ),
    "FSDP2 synchronizes the first micro-batch alone": Case(
        2, "micro-batch dropped", LAST, "lacks micro-batch 2 of 2", make=fsdp, num=2, sync=lambda i, n: i == 0
    ),
    "reduced in pairs of 4": Case(4, "missing reduction", LAST, "over some of ranks 0, 1, 2, 3", reduce=in_pairs),
    "two parameters are divided by 3": Case(
        2, "factor", ("blocks.0.up.weight", "blocks.0.up.bias"), "0.3333 times", make=ddp, reduce=a_third
    ),
    "DDP ignores a parameter": Case(
        2, "missing reduction", ("blocks.0.down.weight",), "own backward gave", make=lambda net: ignoring(net, "blocks.0.down.weight")
    ),
    "tensor parallel without its backward's reduction": Case(
        2, "missing reduction", ("blocks.1.norm.weight", "blocks.1.norm.bias"), make=half(by_hand, reduces=False), share=everyone
    ),
    # counted twice
    "one parameter is reduced twice": Case(
        2, "counted twice", ("blocks.1.down.weight",), "twice", reduce=half(average, twice="blocks.1.down.weight")
    ),
    "a bias is counted twice": Case(kind="counted twice", first=("head.bias",), says="twice", make=twice_used),
    "norms are summed over tensor-parallel ranks": Case(
        2,
        "counted twice",
        ("norm.weight", "norm.bias"),
        "mesh axis tp",
        make=tensor_parallel,
        share=everyone,
        reduce=lambda net: scaled(net, 2.0, "norm.weight", "norm.bias", "blocks.0.norm.weight"),
    ),
    "one parameter is reduced twice by 4": Case(
        4, "counted twice", ("blocks.0.up.bias",), "4 times", reduce=half(average, twice="blocks.0.up.bias")
    ),
    "tensor parallel reduces twice in backward": Case(
        2, "counted twice", ("blocks.1.down.weight",), "twice", make=half(by_hand, twice=True), share=everyone
    ),
    # precision
    "reduced in bfloat16": Case(2, "low precision", LAST, "bfloat16, so it is reduced", reduce=half(average, dtype=torch.bfloat16)),
    "DDP compresses to bfloat16": Case(2, "low precision", LAST, "noise of bfloat16", make=half(hooked, hook=in_dtype(torch.bfloat16))),
    "DDP compresses to float16": Case(
        2, "low precision", LAST, "noise of float16", make=half(hooked, hook=default_hooks.fp16_compress_hook)
    ),
    "FSDP2 reduces in bfloat16": Case(
        2,
        "low precision",
        LAST,
        "noise of bfloat16",
        make=lambda net: fsdp(net, mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.bfloat16)),
    ),
    "gradients are kept in bfloat16": Case(kind="low precision", first=LAST, says="noise of bfloat16", reduce=noisy),
    # micro-batches
    "the last micro-batch is dropped": Case(
        kind="micro-batch dropped", first=LAST, says="micro-batch 4 of 4", num=4, scale=lambda r, i, n: 0.25 * (i < 3)
    ),
    "the first micro-batch is cleared": Case(
        2, "micro-batch dropped", LAST, "lacks micro-batch 1 of 4 on rank 0, micro-batch 1 of 4 on rank 1", make=ddp, num=4, clears=1
    ),
    "a rank counts for nothing": Case(4, "micro-batch dropped", LAST, "the batch on rank 2", make=ddp, scale=lambda r, i, n: float(r != 2)),
    "FSDP2 drops a micro-batch": Case(
        2, "micro-batch dropped", LAST, "micro-batch 2 of 2", make=fsdp, num=2, scale=lambda r, i, n: 0.5 * (i < 1)
    ),
    "a micro-batch counts twice": Case(
        kind="micro-batches weighted",
        first=LAST,
        says="micro-batch 3 of 4 counts 2 times",
        num=4,
        scale=lambda r, i, n: 0.25 * (1 + (i == 2)),
    ),
    "means of unequal micro-batches are added up": Case(
        kind="micro-batches weighted",
        first=LAST,
        says="all together 4 times (the number of micro-batches of a rank",
        num=4,
        masked=True,
        scale=lambda r, i, n: 1.0,
        reference="unequal labels",
    ),
    "a rank counts half": Case(2, "micro-batches weighted", LAST, "rank 1 0.5 times", make=ddp, scale=lambda r, i, n: 0.5 if r else 1.0),
    "ranks are weighted by something": Case(
        4, "micro-batches weighted", LAST, "rank 3 counts 1.6 times", make=ddp, scale=lambda r, i, n: 0.4 * (r + 1)
    ),
    "means over unequal labels": Case(
        kind="micro-batches weighted", first=LAST, says="weighs its parts otherwise", num=4, masked=True, reference="unequal labels"
    ),
    "means over unequal labels of ranks": Case(
        2, "micro-batches weighted", LAST, "the batch on rank", "unequal labels", make=ddp, masked=True
    ),
    "sequences over ranks are summed": Case(2, "factor", LAST, "the world size", reduce=half(average, divide=1.0), share=of_sequence),
    # clipping
    "clipped by the norm of shards": Case(2, "clip norm", (), "that of what this rank holds", "clipped", make=fsdp, clip=clip_shards),
    "clipped parameter by parameter": Case(kind="clip norm", says="all gradients together", reference="clipped", clip=clip_each),
    "clipped, and made larger": Case(2, "clip norm", (), "all gradients together", "clipped", make=ddp, clip=clip_nothing),
    "clipped before the reduction": Case(2, "clip norm", LAST, "before they reduce it", "clipped", clip=clip_early),
    "nobody clips": Case(2, "clip norm", (), "are made 1 times as large by clipping", "clipped", make=ddp),
    "clipped by the largest element": Case(kind="clip norm", says="times as large by clipping", reference="clipped", clip=clip_largest),
    # gradients that are on one side alone
    "a layer is frozen": Case(kind="no gradient", first=("blocks.1.up.weight",), says="in the first run alone", make=frozen),
    "a gradient is zeroed": Case(2, "no gradient", ("blocks.0.norm.weight",), "is 0 in the second run", make=ddp, reduce=zeroed),
    # another loss, another update
    "computed under autocast": Case(kind="low precision", first=LAST, says="computed or reduced", make=autocast),
    "labels are smoothed": Case(kind="other", first=LAST, says="; it is the first", loss=functools.partial(cross_of, label_smoothing=0.1)),
    "twice the rate": Case(kind="update", first=LAST, says="gradients agree", optimizer=functools.partial(torch.optim.SGD, lr=0.2)),
    "weight decay": Case(
        2, "update", LAST, "gradients agree", make=ddp, optimizer=functools.partial(torch.optim.SGD, lr=0.1, weight_decay=0.5)
    ),
    "under autocast, summed over ranks": Case(
        2, "factor", LAST, "world size", "under autocast", reduce=half(average, divide=1.0), amp=True
    ),
    # what makes them incomparable
    "a rank begins with other weights": Case(
        2, "not comparable", ("blocks.0.up.weight",), "ranks 0 and 1 of the second run begin", make=other_on_a_rank, reduce=average
    ),
    "other weights": Case(kind="not comparable", first=("blocks.0.up.weight",), says="other weights: 1 of 17", make=changed),
    "each rank has all data of another seed": Case(
        2, "not comparable", (), "other data in the first step: 8 of 8", make=ddp, extra={"seed": 99}
    ),
    "a rank has the data of another": Case(
        2, "not comparable", (), "4 of the first not in the second", make=ddp, share=lambda rows, rank, world: rows.chunk(world)[0]
    ),
    "dropout": Case(kind="not comparable", says="dropout draws other elements", net=half(Net, 0.2)),
}


CASES = HEALTHY | MUTATIONS
REFERENCES = sorted({case.reference for case in CASES.values()})
DISTURBED = {f"{name}, disturbed": replace(HEALTHY[name], disturb=True) for name in REFERENCES}
CASES |= DISTURBED


def train(name: str, folder: Path) -> None:
    """Train one case on this rank, under a recorder."""
    case = CASES[name]
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    torch.manual_seed(5)
    net = case.net()
    called = case.make(net)
    optimizer = case.optimizer(net.parameters())
    reference = str(folder / case.reference) if "by hand" in name or "tensor parallel" in name else ""
    recorder = StepRecorder(str(folder / name), case.steps, disturb=case.disturb, reference=reference if os.path.isdir(reference) else "")
    recorder.open()
    try:
        low = torch.autocast("cpu", torch.bfloat16, enabled=case.amp)
        with low:
            recorder.add(net)
        for step in range(case.steps):
            words, labels = (case.share(rows, rank, world) for rows in batch(step, masked=case.masked, **case.extra))
            optimizer.zero_grad()
            for number, (some, theirs) in enumerate(zip(words.chunk(case.num), labels.chunk(case.num), strict=True)):
                if number and number == case.clears:
                    optimizer.zero_grad()
                with synchronized(called, case.sync(number, case.num)):
                    with low:
                        out = called(some)
                    loss = case.loss(out.float(), theirs)
                    (loss * case.scale(rank, number, case.num)).backward()
            case.reduce(net)
            case.clip(net)
            optimizer.step()
    finally:
        recorder.close()


def play(rank: int, names: list[str], folder: Path) -> None:
    """These cases, one after the other, on a rank."""
    for name in names:
        train(name, folder)


def judged(name: str, folder: Path) -> ParityVerdict:
    """What comes of a case that was played, as were its reference and that, disturbed."""
    reference = name if name in REFERENCES else CASES[name].reference
    return judge(*(RecordedLayout.read(folder / one) for one in (reference, name, f"{reference}, disturbed")))


def is_right(name: str, found: ParityVerdict) -> bool:
    """Whether a verdict names the parameter and the kind."""
    case = CASES[name]
    return found.kind == case.kind and (not case.first or found.parameter in case.first) and case.says in found.text
