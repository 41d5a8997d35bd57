"""The training of tests/parity/layouts.py by DeepSpeed's engine: healthy stages of ZeRO, and faults with the verdict they should get."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import numscope
from numscope.alerts.checks import resuming
from numscope.parity.judging import ParityVerdict, judge
from numscope.parity.layout import RecordedLayout
from numscope.parity.recording import StepRecorder
from tests.parity.layouts import BATCH, CLIP, STEPS, Net, batch, cross_of, sgd


@dataclass
class Zero:
    """An engine.

    Args:
        kind, first, says, reference: as of a ``Case``.
        num: micro-batches of a rank.
        accumulates: how many of them the engine is told of; 0: all. With fewer, a loop steps once for all.
        clips: whether the engine clips.
        num_groups: of parameters.
        scale: by which a loss is multiplied on a rank.
        spoil: changes the engine.
        more: of ``zero_optimization``.
        low: whether the engine computes in bfloat16.
        disturb: as of a ``Case``.
    """

    stage: int
    kind: str | None = None
    first: tuple[str, ...] = ()
    says: str = ""
    reference: str = "whole batch"
    num: int = 1
    accumulates: int = 0
    clips: bool = False
    num_groups: int = 1
    scale: Callable[[int], float] = lambda rank: 1.0
    spoil: Callable[[Any], None] = lambda engine: None
    more: tuple[tuple[str, Any], ...] = ()
    low: bool = False
    disturb: bool = False


def clip_own(engine: Any) -> None:
    """By the norm of what this rank has, which ZeRO 1 and 2 reduce over ranks in there."""
    owner = engine.optimizer

    def norm(*_: Any) -> torch.Tensor:
        return torch.stack([g.norm() for given in owner.averaged_gradients.values() for g in given]).norm()

    owner.scaled_global_norm = norm


def unreduced(engine: Any) -> None:
    """Each rank keeps the stretch of its own data's gradient."""
    engine.optimizer.average_tensor = lambda *_, **__: None


LAST = ("head.weight", "head.bias")
HEALTHY = {
    f"ZeRO {stage}{words}": made(stage)
    for stage in (1, 2, 3)
    for words, made in {
        "": Zero,
        ", two micro-batches": functools.partial(Zero, num=2),
        ", offloaded": functools.partial(Zero, more=(("offload_optimizer", {"device": "cpu"}),)),
        ", two groups, clipped": functools.partial(Zero, num_groups=2, clips=True, reference="clipped"),
    }.items()
} | {"ZeRO 3, accumulated by the loop": Zero(3, num=2, accumulates=1, scale=lambda rank: 0.5)}
MUTATIONS = {
    **{
        f"ZeRO {stage}, loss is multiplied by ranks": Zero(stage, "factor", LAST, "2 times that of the first run", scale=lambda rank: 2.0)
        for stage in (1, 2, 3)
    },
    "ZeRO 2, loss is divided twice": Zero(2, "factor", LAST, "1 / the number of micro-batches of a rank", num=2, scale=lambda rank: 0.5),
    "ZeRO 3, a rank counts half": Zero(3, "micro-batches weighted", LAST, "rank 1 0.5 times", scale=lambda rank: 0.5 if rank else 1.0),
    "ZeRO 1, a rank counts for nothing": Zero(1, "micro-batch dropped", LAST, "the batch on rank 1", scale=lambda rank: float(rank == 0)),
    "ZeRO 2, nobody clips": Zero(2, "clip norm", (), "1 times as large by clipping", "clipped"),
    # deepspeedai/DeepSpeed#7718: the engine accumulates nothing, and the loop does not tell it where a step ends
    "ZeRO 2, accumulated by the loop": Zero(
        2, "micro-batch dropped", LAST, "lacks micro-batch 1 of 2", num=2, accumulates=1, scale=lambda rank: 0.5
    ),
    "ZeRO 1, nobody reduces": Zero(1, "other", LAST, "differs by", spoil=unreduced),
    "ZeRO 2, clipped by the norm of shards": Zero(2, "clip norm", (), "what this rank holds", "clipped", clips=True, spoil=clip_own),
}
LOW = {  # each beside the first
    "ZeRO 1 in bfloat16": Zero(1, low=True, num=2, reference="ZeRO 1 in bfloat16"),
    "ZeRO 1 in bfloat16, disturbed": Zero(1, low=True, num=2, reference="ZeRO 1 in bfloat16", disturb=True, kind="not comparable"),
    **{f"ZeRO {stage} in bfloat16": Zero(stage, low=True, num=2, reference="ZeRO 1 in bfloat16") for stage in (2, 3)},
}
CASES = HEALTHY | MUTATIONS | LOW


LOADS = ("all", "weights alone", "moments are reset")


def judged(name: str, folder: Path) -> ParityVerdict:
    """What comes of a case that was played, as were its reference and that, disturbed."""
    reference = CASES[name].reference
    return judge(*(RecordedLayout.read(folder / one) for one in (reference, name, f"{reference}, disturbed")))


def is_right(name: str, found: ParityVerdict) -> bool:
    """Whether all parameters are compared, and a verdict names the parameter and the kind."""
    case = CASES[name]
    is_named = found.kind == case.kind and (not case.first or found.parameter in case.first) and case.says in found.text
    return is_named and not found.notes and found.num_compared == (0 if case.kind == "clip norm" else len([*Net().parameters()]))


def engine_of(net: Net, case: Zero, kind: Any = sgd) -> Any:
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # of CPUs alone, and minutes to compile: gloo serves
    parameters = [*net.parameters()]
    groups = [{"params": parameters[i :: case.num_groups]} for i in range(case.num_groups)]
    sizes = {"reduce_bucket_size": 1 << 16, "allgather_bucket_size": 1 << 16, "stage3_param_persistence_threshold": 40}
    config = {
        "train_micro_batch_size_per_gpu": BATCH // dist.get_world_size() // case.num,
        "gradient_accumulation_steps": case.accumulates or case.num,
        "gradient_clipping": CLIP if case.clips else 0.0,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": case.low},
        "zero_optimization": {"stage": case.stage, **sizes, **dict(case.more)},
    }
    return deepspeed.initialize(model=net, optimizer=kind(groups), config=config)[0]


def play(rank: int, names: list[str], folder: Path) -> tuple[dict[str, list[float]], dict[str, list[str]]]:
    """These cases, and runs that are resumed, on a rank. DeepSpeed's groups outlive a process group, so all is one scenario.

    Returns: the losses of each case; of each resumed run what its alerts say.
    """
    sys.modules["mlflow"] = None  # type: ignore[assignment]  # half of the time to load DeepSpeed
    os.environ |= {"DS_ACCELERATOR": "cpu", "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(dist.get_world_size())}
    losses = {name: train(CASES[name.removesuffix(", bare")], rank, None if name.endswith(", bare") else folder / name) for name in names}
    runs = [(stage, loads) for stage in (1, 2, 3) for loads in ("", *LOADS)]
    return losses, {f"ZeRO {stage} {loads}".strip(): resume(rank, stage, folder / f"of stage {stage}", loads) for stage, loads in runs}


def train(case: Zero, rank: int, folder: Path | None) -> list[float]:
    torch.manual_seed(5)
    net = Net()
    engine = engine_of(net, case)
    case.spoil(engine)
    recorder = None if folder is None else StepRecorder(str(folder), STEPS, disturb=case.disturb)
    losses = []
    if recorder is not None:
        recorder.open()
        recorder.add(net)
    try:
        for step in range(STEPS + 1):  # a step of ZeRO is over at the next forward
            words, labels = (rows.chunk(dist.get_world_size())[rank] for rows in batch(step))
            for number, (some, theirs) in enumerate(zip(words.chunk(case.num), labels.chunk(case.num), strict=True), 1):
                loss = cross_of(engine(some).float(), theirs)
                engine.backward(loss * case.scale(rank))
                if not case.accumulates or number == case.num:
                    engine.step()
                losses.append(loss.item())
    finally:
        if recorder is not None:
            recorder.close()
        engine.destroy()
    return losses


def resume(rank: int, stage: int, folder: Path, loads: str) -> list[str]:
    """Five steps of AdamW with a checkpoint after the third, or those after it."""
    resuming._processes[os.getpid()] = loads or "first"
    torch.manual_seed(9 if loads else 5)
    net = Net()
    engine = engine_of(net, Zero(stage, num_groups=2), functools.partial(torch.optim.AdamW, lr=1e-3))
    log_dir, alerts = (None, {"state not loaded": {"run": str(folder / "run")}}) if loads else (folder / "run", None)
    with numscope.watch(net, on_nonfinite="warn", log_dir=log_dir, alerts=alerts) as scope:
        if loads:
            engine.load_checkpoint(str(folder), load_optimizer_states=loads != "weights alone")
        for state in engine.optimizer.optimizer.state.values() if loads == "moments are reset" else ():
            state["exp_avg"].zero_()
        for step in range(3 if loads else 0, 5):
            words, labels = (rows.chunk(dist.get_world_size())[rank] for rows in batch(step))
            engine.backward(cross_of(engine(words), labels))
            engine.step()
            if step == 2 and not loads:
                engine.save_checkpoint(str(folder))
    assert not scope.fault
    engine.destroy()
    return [alert.text for alert in scope.alerts]
