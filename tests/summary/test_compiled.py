import math

import pytest
import torch

from numscope.summary import compiled, reference
from numscope.summary.state import EMPTY_ROW, Groups, Summary
from tests.summary.oracle import assert_same, summary_of


@pytest.fixture(autouse=True)
def _registered() -> None:
    compiled.register()
    compiled.register()  # twice does no harm


def test_the_operator_merges_into_its_row() -> None:
    block, x = reference.empty_block(3), torch.tensor([1.0, math.nan, -3.0])
    torch.ops.numscope.observe(x, block, 1, Groups.ALL)
    torch.ops.numscope.observe(x, block, 1, Groups.ALL)
    assert_same(Summary.from_row(block[1].tolist()), summary_of(torch.cat([x, x])))
    assert block[0].tolist() == block[2].tolist() == list(EMPTY_ROW)


def test_the_operator_passes_torchs_own_checks() -> None:
    block = reference.empty_block(2)
    torch.library.opcheck(
        torch.ops.numscope.observe.default, (torch.randn(3, 4), block, 1, 3), test_utils=("test_schema", "test_faketensor")
    )


def test_a_tensor_that_requires_grad_goes_on_as_it_was() -> None:
    block, x = reference.empty_block(1), torch.ones(3, requires_grad=True)
    y = x * 2
    torch.ops.numscope.observe(y, block, 0, Groups.ALL)
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 2.0, 2.0]
    assert not block.requires_grad and block[0, 0] == 3


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_whole_graph_observes_from_within(backend: str) -> None:
    block, block_of_eager = reference.empty_block(2), reference.empty_block(2)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))

    def step(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        torch.ops.numscope.observe(x.detach(), rows, 0, int(Groups.ALL))
        y = model(x)
        torch.ops.numscope.observe(y.detach(), rows, 1, int(Groups.ALL))
        return y.sum()

    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0), requires_grad=True)
    whole = torch.compile(step, fullgraph=True, backend=backend)
    for _ in range(2):  # the second call runs the graph that the first one made
        whole(x, block).backward()
        step(x, block_of_eager).backward()
    torch.testing.assert_close(block, block_of_eager, rtol=1e-5, atol=1e-5)
    assert block[:, 0].tolist() == [64.0, 64.0]
