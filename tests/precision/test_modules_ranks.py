"""The modules under FSDP2 and DDP: sharded parameters are gathered for the parts that borrow them."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from numscope.precision.gemm.autocasting import autocast
from numscope.probe.layer_names import layers_of, own_parameters
from tests.precision.block import Block

pytestmark = pytest.mark.usefixtures("one_rank")


def trained(model: nn.Module, recipe: str | None) -> list[torch.Tensor]:
    x = torch.randn(5, 2, 16, generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        with autocast(enabled=recipe is not None, recipe=recipe):
            loss = model(x * 1.5**step).square().mean()
        loss.backward()
        optimizer.step()
    return [p.full_tensor() if hasattr(p, "full_tensor") else p.detach() for p in model.parameters()]


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
@pytest.mark.parametrize("apart", [False, True], ids=["layer", "blocks"])
@pytest.mark.parametrize("recipe", [None, "delayed", "mxfp8"])
def test_sharded_layer_trains_bitwise_as_the_bare_one(recipe: str | None, apart: bool) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    bare = Block(16, 32, 4)
    sharded = copy.deepcopy(bare)
    mesh = init_device_mesh("cpu", (1,))
    for block in (sharded.layernorm_qkv, sharded.proj, sharded.layernorm_mlp) if apart else ():
        fully_shard(block, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    assert all(map(torch.equal, trained(sharded, recipe), trained(bare, recipe)))
    named = [(layer.name, layer.cls, layer.weights) for layer in layers_of(sharded).values() if layer.owns_parameters]
    assert named == [(layer.name, layer.cls, layer.weights) for layer in layers_of(bare).values() if layer.owns_parameters]
    assert own_parameters(sharded.layernorm_mlp.fc1)["weight"] is sharded.layernorm_mlp.fc1_weight


@pytest.mark.parametrize("recipe", [None, "current"])
def test_ddp_trains_bitwise_as_the_bare_layer(recipe: str | None) -> None:
    torch.manual_seed(0)
    bare = Block(16, 32, 4)
    wrapped = nn.parallel.DistributedDataParallel(copy.deepcopy(bare))
    assert all(map(torch.equal, trained(wrapped, recipe), trained(bare, recipe)))
