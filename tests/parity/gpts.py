"""A small GPT of Megatron Core in tensor-parallel layouts, healthy and with faults of its parallel layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from numscope.parity.judging import ParityVerdict, judge
from numscope.parity.layout import RecordedLayout
from numscope.parity.recording import StepRecorder
from tests.integrations.gpt import LENGTH, VOCABULARY, batch, config, megatron

STEPS = 2


@dataclass
class Gpt:
    """A layout.

    Args:
        kind, first, says: as of a ``Case``.
        tensor: ranks that share each layer.
        sequence: whether these have parts of the sequence around the layers, too.
        spoil: changes the model.
        disturb: as of a recorder.
    """

    kind: str | None = None
    first: tuple[str, ...] = ()
    says: str = ""
    tensor: int = 2
    sequence: bool = False
    spoil: Callable[[nn.Module], None] = lambda model: None
    disturb: bool = False


class Norm(nn.LayerNorm):
    """As Apex's and Transformer Engine's: its gradient is one of a part of the sequence, to be summed over the ranks."""

    def __init__(self, config: Any, hidden_size: int, eps: float = 1e-5) -> None:
        super().__init__(hidden_size, eps)
        for parameter in self.parameters():
            parameter.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]


def forgotten(name: str) -> Callable[[nn.Module], None]:
    """A norm that is not marked for Megatron's reduction."""

    def spoil(model: nn.Module) -> None:
        for parameter in model.get_submodule(name).parameters():
            parameter.sequence_parallel = False  # type: ignore[attr-defined]

    return spoil


def forgotten_heads(model: nn.Module) -> None:
    """Norms within heads, of which each rank has some: their gradients are sums over heads, without parts of sequences too."""
    model.config.qk_layernorm = False  # type: ignore[union-attr]


def doubled(model: nn.Module) -> None:
    """As if it was reduced, though each rank has the whole gradient."""
    for parameter in model.get_submodule("decoder.final_layernorm").parameters():
        parameter.register_hook(lambda gradient: gradient * 2)


FINAL = ("decoder.final_layernorm.weight", "decoder.final_layernorm.bias")
HEALTHY = {
    "one rank": Gpt(tensor=1),
    "data parallel": Gpt(tensor=1),
    "tensor parallel": Gpt(),
    "tensor and sequence parallel": Gpt(sequence=True),
}
MUTATIONS = {
    # NVIDIA/Megatron-LM#1446, and the 11th of #7452
    "the last norm is not reduced": Gpt(
        "missing reduction", FINAL, "ranks 0, 1", sequence=True, spoil=forgotten("decoder.final_layernorm")
    ),
    "an inner norm is not reduced": Gpt(
        "missing reduction",
        ("decoder.layers.1.pre_mlp_layernorm.weight", "decoder.layers.1.pre_mlp_layernorm.bias"),
        "ranks 0, 1",
        sequence=True,
        spoil=forgotten("decoder.layers.1.pre_mlp_layernorm"),
    ),
    "norms within heads are not reduced": Gpt(
        "missing reduction",
        tuple(f"decoder.layers.1.self_attention.{x}_layernorm.{y}" for x in "qk" for y in ("weight", "bias")),
        "ranks 0, 1",
        spoil=forgotten_heads,
    ),
    "the last norm is counted twice": Gpt("counted twice", FINAL, "twice", spoil=doubled),
}
CASES = HEALTHY | MUTATIONS


def play(rank: int, names: list[str], folder: Path) -> None:
    """These cases, one after the other, on a rank."""
    for name in names:
        train(CASES[name], folder / name, folder / "one rank")


def train(case: Gpt, folder: Path, reference: Path) -> None:
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads

    with megatron(case.tensor) as state:
        settings = config(case.tensor, sequence_parallel=case.sequence, qk_layernorm=True)
        net = gpt(settings)
        case.spoil(net)
        model = DistributedDataParallel(settings, DistributedDataParallelConfig(), net)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        recorder = StepRecorder(str(folder), STEPS, disturb=case.disturb, reference=str(reference) if reference.exists() else "")
        recorder.open()
        try:
            recorder.add(net)
            for _ in range(STEPS):
                ids = batch().chunk(state.get_data_parallel_world_size())[state.get_data_parallel_rank()]
                position, mask = torch.arange(LENGTH).expand_as(ids), torch.ones(1, 1, LENGTH, LENGTH).tril() < 0.5
                model.zero_grad_buffer()
                model(ids, position, mask, labels=ids).mean().backward()
                finalize_model_grads([model])
                for parameter in net.parameters():  # as Megatron's optimizer does
                    parameter.grad = parameter.main_grad  # type: ignore[attr-defined]
                optimizer.step()
                optimizer.zero_grad()
        finally:
            recorder.close()


def gpt(settings: Any) -> nn.Module:
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_block import TransformerBlockSubmodules

    layer = get_gpt_layer_local_spec(qk_layernorm=True)
    heads = layer.submodules.self_attention.submodules
    layer.submodules.input_layernorm = layer.submodules.pre_mlp_layernorm = heads.q_layernorm = heads.k_layernorm = Norm
    block = TransformerBlockSubmodules(layer_specs=[layer] * settings.num_layers, layer_norm=Norm)
    torch.manual_seed(0)
    return GPTModel(settings, block, vocab_size=VOCABULARY, max_sequence_length=16)


def judged(name: str, folder: Path) -> ParityVerdict:
    """What comes of a case that was played, as was the reference."""
    return judge(*(RecordedLayout.read(folder / one) for one in ("one rank", name, "one rank, disturbed")))


def is_right(name: str, found: ParityVerdict) -> bool:
    """Whether a verdict names the parameter and the kind."""
    case = CASES[name]
    return found.kind == case.kind and (not case.first or found.parameter in case.first) and case.says in found.text
