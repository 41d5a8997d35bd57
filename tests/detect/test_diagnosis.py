"""Which of a step's calls a bad gradient began in, where a script calls a model's parts one by one."""

import pytest
import torch
from torch import nn

import numscope


class Root(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).mul(0.0).sum(-1, keepdim=True).sqrt()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.root, self.head = nn.Linear(4, 4), nn.Linear(4, 4), Root(), nn.Linear(1, 1)


def found(compiles: bool) -> numscope.Finding:
    model = Net()
    root = torch.compile(lambda x: model.root(x), backend="aot_eager") if compiles else model.root
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(numscope.NonFiniteError) as caught, numscope.watch(model):
        model.head(root(model.second(model.first(torch.ones(2, 4))))).sum().backward()
        optimizer.step()
    return caught.value.finding


def test_of_several_calls_the_one_that_made_the_gradient_bad_is_named_and_not_one_that_was_handed_it() -> None:
    finding = found(compiles=False)
    assert finding.culprit is not None and finding.culprit.module == "root" and "sqrt()" in finding.culprit.code


def test_no_call_is_named_where_the_one_at_fault_is_in_compiled_code() -> None:
    finding = found(compiles=True)
    assert finding.culprit is None and finding.site.module == "root.inner"
    assert finding.replay.startswith("not reproduced: root.inner was called where no call is seen, as inside a compiled function. Compile")
