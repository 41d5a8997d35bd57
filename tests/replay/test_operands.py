"""Operands: what an operation saw, under the names that its schema gives them, in a culprit's table and in its sentence alike."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from numscope.records.finding import Culprit, Reason
from numscope.replay import call
from tests.replay.scripts import culprit_of, finding_of

# What a module computes of h, whose elements are between 0.1 and 1, and of b, which is 1e30 in the step at fault; the sentence's operands.
OVERFLOWS = {
    "torch.addcmul(h, h * b, h * b)": "Largest |tensor1| # × |tensor2| #",
    "torch.addcmul(h * b * 2e8, h * b, torch.ones(3) * 2e8)": "Largest |self| # + |tensor1| # × |tensor2| #",
    "h.clone().addcmul_(h * b, h * b, value=2.0)": "Largest |tensor1| # × |tensor2| # × |value| 2",
    "torch.addcdiv(h, h * b, h / b)": "Largest |tensor1| # / smallest |tensor2| #",
    "(h * b).div_(h / b)": "Largest |self| # / smallest |other| #",
    "(h * b).mul_(b)": "Largest |self| # × |other| #",
    "(h * b * 3e8).add_(h * b, alpha=b)": "Largest |self| # + |other| # × |alpha| #",
    "torch.lerp(h * b * 3e8, -h * b * 3e8, 1e3)": "Largest |self| # + |weight| # × (|end| # + |self| #)",
    "(h * b).pow(3)": "Largest |self| # to the power 3",
    "torch.baddbmm(h[None], h[None] * b, torch.ones(1, 3, 3) * b)[0]": "Largest |batch1| # × |batch2| #",
    "torch.addbmm(h, h[None] * b, torch.ones(1, 3, 3) * b)": "Largest |batch1| # × |batch2| #",
    "torch.addmm(h, h * b, torch.ones(3, 3) * b)": "Largest |mat1| # × |mat2| #",
    "torch.addmv(h[:, 0], h * b, torch.ones(3) * b)": "Largest |mat| # × |vec| #",
    "torch.addr(torch.zeros(2, 3), h[:, 0] * b, h[0] * b)": "Largest |vec1| # × |vec2| #",
    "torch.mv(h * b, torch.ones(3) * b)": "Largest |self| # × |vec| #",
    "torch.dot((h * b)[0], (h * b)[1])": "Largest |self| # × |tensor| #",
    "torch.bmm(h[None] * b, torch.ones(1, 3, 3) * b)": "Largest |self| # × |mat2| #",
    "torch.einsum('ij,jk->ik', h * b, torch.ones(3, 3) * b)": "Largest |self| # × |mat2| #",
    "F.conv1d(h[None] * b, torch.ones(1, 2, 1) * b)": "Largest |input| # × |weight| #",
    "F.scaled_dot_product_attention(h[None] * b, h[None] * b, h[None])": "Largest |self| # × |mat2| #",
    "F.layer_norm(h * b, (3,))": "Largest |input| # squared",
    "(h * b).var(1)": "Largest |self| # squared",
    "(h * b).half().float()": "Cast from float32: largest |self| #",
    "(h * b * 2e8).index_put((torch.tensor([0, 0]),), h * b * 3e8, accumulate=True)": "Largest |values| #, result",
    "torch.ones(2, 3).scatter_reduce(1, torch.zeros(2, 3, dtype=torch.long), h * b, 'prod')": "Largest |src| #, result",
    "torch._foreach_mul([h * b], [h * b])[0]": "Largest |self| # × |other| #",
    "(lambda t: (torch._foreach_mul_([t], b), t)[1])(h * b)": "Largest |self| # × |scalar| #",
    "(lambda t: (torch._foreach_addcmul_([t], [h * b], [h * b], 2.0), t)[1])(h * b)": "Largest |tensor1| # × |tensor2| # × |value| 2",
    "(lambda t: (torch._foreach_addcmul_([t], [h * b], [h * b], [2.0]), t)[1])(h * b)": "Largest |tensor1| # × |tensor2| # × |scalars| 2",
    "(lambda t: (torch._foreach_addcdiv_([t], [h * b], [h / b], 2.0), t)[1])(h * b)": "Largest |tensor1| # / smallest |tensor2| #",
}
HOST = """
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.b = nn.Parameter(torch.tensor([0.1, 0.5, 1.0])), 1.0

    def forward(self, x):
        h, b = x * self.scale, self.b
        return {}  # FAULT

model = M()
def step(i):
    model.b = 1e30 if i == 1 else 1.0
    return model(torch.ones(2, 3)).mean()
LOOP
"""


def named(culprit: Culprit) -> set[str]:
    """Names of the culprit's arguments, without places in lists and what is stored there."""
    return {re.sub(r"[ \[].*", "", operand.name) for operand in culprit.inputs}


def assert_in_range(culprit: Culprit) -> None:
    """Each number of the sentence is of the operand that it names, to three digits."""
    for name, said in re.findall(r"\|(\w+)\| ([\d.e+-]+)", culprit.detail):
        operands = [o for o in culprit.inputs if re.sub(r"[ \[].*", "", o.name) == name]
        numbers = [v for o in operands if o.numbers is not None for v in (o.numbers.abs_max, o.numbers.abs_min)]
        numbers += [float(o.value.strip("[]")) for o in operands if o.numbers is None]
        assert any(v is not None and float(f"{v:.3g}") == float(f"{float(said):.3g}") for v in numbers), (name, said, numbers)


@pytest.mark.parametrize("code", OVERFLOWS)
def test_sentence_and_table_have_the_schemas_names(code: str, tmp_path: Path) -> None:
    culprit = culprit_of(tmp_path, HOST.format(code))
    said = re.sub(r"(\| )[\d.e+-]+(?=\W)", r"\1#", culprit.detail.partition(" exceeds")[0] + " ")
    wanted = re.sub(r"(\|(value|scalars)\| )\d+", r"\1#", OVERFLOWS[code])
    assert culprit.reason == Reason.OVERFLOW and said.startswith(wanted), culprit.detail
    assert set(re.findall(r"\|(\w+)\|", culprit.detail)) <= named(culprit)
    assert_in_range(culprit)
    packet = getattr(torch.ops.aten, culprit.op.removeprefix("aten."))
    schemas = [{a.name for a in getattr(packet, overload)._schema.arguments} for overload in packet.overloads()]
    assert any(named(culprit) <= schema for schema in schemas), culprit.inputs


UPDATE = """
model = nn.Linear(3, 2)
optimizer = {}
for i in range(4):
    x = torch.ones(2, 3)
    x[:, 0] = 0
    before = [{{k: v.clone() for k, v in s.items()}} for s in optimizer.state.values()]
    loss = model(x).sum() * (1e31 if i == 2 else 1.0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
LARGE = {
    "torch.optim.Adam(model.parameters(), foreach=False)": ("exp_avg_sq", "addcmul_"),
    "torch.optim.Adam(model.parameters(), foreach=True)": ("exp_avg_sq", "_foreach_addcmul_"),
    "torch.optim.AdamW(model.parameters(), fused=True)": ("exp_avg_sq", "_fused_adamw_"),
    "torch.optim.RMSprop(model.parameters(), foreach=False)": ("square_avg", "addcmul_"),
    "torch.optim.RMSprop(model.parameters(), foreach=True)": ("square_avg", "_foreach_addcmul_"),
    "torch.optim.Adagrad(model.parameters(), foreach=False)": ("sum", "addcmul_"),
    "torch.optim.Adadelta(model.parameters(), foreach=True)": ("square_avg", "_foreach_addcmul_"),
    "torch.optim.NAdam(model.parameters(), foreach=True)": ("exp_avg_sq", "_foreach_addcmul_"),
}


@pytest.mark.parametrize("optimizer", LARGE)
def test_optimizers_state_is_the_one_that_the_step_saw(optimizer: str, tmp_path: Path) -> None:
    state, op = LARGE[optimizer]
    culprit = culprit_of(tmp_path, UPDATE.format(optimizer))
    assert culprit.op == f"aten.{op}" and culprit.reason == Reason.OPTIMIZER_UPDATE
    seen = next(o for o in culprit.inputs if f"({state} of weight)" in o.name)
    assert seen.numbers is not None and not seen.numbers.num_nonfinite
    assert 0 < (seen.numbers.abs_max or 0.0) < 100, "of gradients of 2, not of 2e31, and not made up"
    assert "left" not in culprit.detail
    if "fused" not in op:
        assert "Largest |tensor1| 2e+31 × |tensor2| 2e+31" in culprit.detail


@pytest.mark.parametrize("optimizer", ["Adam(model.parameters(), eps=0)", "RMSprop(model.parameters(), eps=0)"])
def test_update_by_zero_is_seen_before_it_is_written(optimizer: str, tmp_path: Path) -> None:
    culprit = culprit_of(tmp_path, UPDATE.format(f"torch.optim.{optimizer}"))
    assert "2 of 6 divisors are 0" in culprit.detail and "left" not in culprit.detail
    divisor = next(o for o in culprit.inputs if o.name.startswith("tensor2"))
    assert divisor.numbers is not None and divisor.numbers.num_zero == 2


OWN_OPTIMIZER = """
class Trusting(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})
    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            p.sub_(p.grad * (p.norm() / p.grad.norm()), alpha=0.1)  # FAULT
model = nn.Linear(3, 2)
optimizer = Trusting(model.parameters())
for i in range(4):
    loss = model(torch.ones(2, 3)).square().sum() * (i != 2)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_numbers_from_after_an_update_are_left_out_and_it_is_said(tmp_path: Path) -> None:
    """Nothing showed that this step would fail, so that it is done again on what it left."""
    culprit = culprit_of(tmp_path, OWN_OPTIMIZER)
    numbers = {re.sub(r" .*", "", o.name): o.numbers for o in culprit.inputs}
    assert culprit.op == "aten.div" and numbers["self"] is None and numbers["other"] is not None
    assert culprit.detail.endswith("it was done again on those that it left, which have no numbers below.")


BY_HAND = """
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3, 3)
        nn.init.constant_(self.l.weight, 2e20)
    def forward(self, x):
        return self.l(x) * self.l.weight.sum()  # FAULT
model = M()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for i in range(3):
    optimizer.zero_grad()
    model(torch.ones(2, 3)).mean().backward()
    with torch.no_grad():
        for p in model.parameters():
            p.div_(p.norm())
    {}
"""


@pytest.mark.parametrize("ends", ["optimizer.step()", "pass"])
def test_weights_written_by_hand_after_the_call_are_those_of_the_call(ends: str, tmp_path: Path) -> None:
    culprit = culprit_of(tmp_path, BY_HAND.format(ends))
    assert culprit.reason == Reason.OVERFLOW
    assert culprit.detail.startswith("Largest |self| 6e+20 × |other| 1.8e+21 exceeds"), culprit.detail
    assert_in_range(culprit)


def test_weights_written_by_hand_have_no_numbers_where_no_process_can_look_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "in_child", lambda *_, **__: None)
    script = BY_HAND.replace("2e20", "1.0").replace("self.l(x) * self.l.weight.sum()", "(self.l(x) * 0 - 1).log()")
    culprit = culprit_of(tmp_path, script.format("optimizer.step()"))
    assert culprit.op == "aten.log" and culprit.inputs[0].numbers is None and culprit.inputs[0].value == "float32[2, 3]"
    assert culprit.detail.endswith("The script has written l.weight, l.bias since: this is the call done again as they are now, and what "
                                   "depends on them has no numbers below.")  # fmt: skip
    finding = finding_of(tmp_path, BY_HAND.format("optimizer.step()"))
    assert finding is not None and finding.replay == "not reproduced: the weights were changed before the step was judged"
