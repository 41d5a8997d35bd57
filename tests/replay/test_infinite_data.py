"""An infinity that came in as data is told from one that was written as a mask, and the advice fits."""

from __future__ import annotations

from pathlib import Path

import pytest

from numscope.records.finding import Reason
from tests.replay.scripts import culprit_of

LOADED = """
def loaded(data):  # by something that torch does not know
    return torch.from_dlpack(data.numpy().copy())
"""
POLICY = (
    LOADED
    + """
model = nn.Linear(4, 2)
def log_probability():
    return F.log_softmax(model(torch.randn(8, 4)), -1)[:, 0]
"""
)
CRITIC = (
    LOADED
    + """
model = nn.Linear(4, 1)
def values():
    return model(torch.randn(8, 4)).squeeze(1)
"""
)
# name: a step, the bad operand, what it held
LOSS_INPUTS = {
    "returns that overflowed": (
        POLICY
        + """
returns = [loaded(torch.full((8,), 1e38 if i == 1 else 1.0).flip(0).cumsum(0).flip(0)) for i in range(3)]
def step(i):
    return -(log_probability() * returns[i]).mean()  # FAULT
LOOP
""",
        "other",
        "5 inf of 8 elements",
    ),
    "squared error of infinite returns": (
        CRITIC
        + """
returns = [loaded(torch.tensor([1.0] * 7 + [math.inf if i == 1 else 1.0])) for i in range(3)]
def step(i):
    return ((values() - returns[i]) ** 2).mean()  # FAULT
LOOP
""",
        "other",
        "1 inf of 8 elements",
    ),
    "rewards of log(0), centered": (
        POLICY
        + """
rewards = torch.rand(3, 8)
rewards[1, 3] = 0
advantages = loaded(rewards.log())
def step(i):
    log_p = log_probability()
    advantage = advantages[i] - advantages[i].mean()  # FAULT
    return -(log_p * advantage).mean()
LOOP
""",
        "self",
        "1 -inf of 8 elements",
    ),
    "advantage times an output of 0": (
        POLICY
        + """
advantages = torch.ones(3, 8)
advantages[1, 3] = math.inf
advantages = loaded(advantages)
def step(i):
    return (log_probability() * 0 * advantages[i]).mean()  # FAULT
LOOP
""",
        "other",
        "1 inf of 8 elements",
    ),
    "regression target": (
        CRITIC
        + """
targets = torch.ones(3, 8)
targets[1, 2] = -math.inf
targets = loaded(targets)
def step(i):
    return F.mse_loss(values(), targets[i])  # FAULT
LOOP
""",
        "target",
        "1 -inf of 8 elements",
    ),
    "targets made elsewhere": (
        CRITIC
        + """
import numpy as np
targets = [loaded(torch.as_tensor(np.exp(np.full(8, 1000.0 * (i == 1))), dtype=torch.float32)) for i in range(3)]
def step(i):
    return F.smooth_l1_loss(values(), targets[i])  # FAULT
LOOP
""",
        "target",
        "8 inf of 8 elements",
    ),
}


@pytest.mark.parametrize("name", LOSS_INPUTS)
def test_infinite_input_of_the_loss_is_named_as_such(tmp_path: Path, name: str) -> None:
    script, operand, held = LOSS_INPUTS[name]
    culprit = culprit_of(tmp_path, script)
    assert culprit.reason == Reason.BAD_INPUT
    assert culprit.detail == f"{operand}, an input of the loss that the model did not make, held {held}."
    assert culprit.advice == (
        "It may be a target, a return, an advantage or a weight: check where it was computed. "
        "An infinity comes from an overflow, log(0) or a division by zero there: normalize or clip."
    )


@pytest.mark.parametrize(
    "made",
    [
        "torch.from_numpy(np.divide(1, counts))  # FAULT",
        "torch.tensor(np.divide(1, counts).tolist())  # FAULT",
        "pickle.loads(stored)  # FAULT",
        "torch.load(io.BytesIO(stored_by_torch))  # FAULT",
    ],
)
def test_data_is_named_where_it_became_a_tensor(made: str, tmp_path: Path) -> None:
    culprit = culprit_of(
        tmp_path,
        f"""
model = nn.Linear(4, 3)
import io
import pickle
import numpy as np
counts = np.array([5.0, 3.0, 0.0], np.float32)
bad = torch.from_numpy(np.divide(1, counts))
stored, file = pickle.dumps(bad), io.BytesIO()
torch.save(bad, file)
stored_by_torch = file.getvalue()
weight = {made}
def step(i):
    return F.cross_entropy(model(torch.randn(8, 4)), torch.arange(8) % 3, weight=weight)
LOOP
""",
    )
    assert culprit.reason == Reason.BAD_INPUT
    assert culprit.detail == (
        "The numbers that this tensor is made of, from Python, NumPy, a file or another process, held 1 inf of 3 elements."
    )


# name: a step whose data is made between two steps, the operation and the reason
MADE_BETWEEN_STEPS = {
    "returns that overflowed": (
        POLICY
        + """
def step(i):
    rewards = torch.full((8,), 1e38 if i == 1 else 1.0)
    returns = rewards.flip(0).cumsum(0).flip(0)  # FAULT
    return -(log_probability() * returns).mean()
LOOP
""",
        "aten.cumsum",
        Reason.OVERFLOW,
    ),
    "rewards of log(0), centered": (
        POLICY
        + """
def step(i):
    rewards = torch.rand(8)
    rewards[3] *= i != 1
    advantage = rewards.log()  # FAULT
    log_p = log_probability()
    advantage = advantage - advantage.mean()
    return -(log_p * advantage).mean()
LOOP
""",
        "aten.log",
        Reason.DOMAIN,
    ),
    "infinite returns": (
        CRITIC
        + """
def step(i):
    returns = torch.tensor([1.0] * 7 + [math.inf if i == 1 else 1.0])  # FAULT
    return ((values() - returns) ** 2).mean()
LOOP
""",
        "aten.lift_fresh",
        Reason.BAD_INPUT,
    ),
    "targets made elsewhere": (
        CRITIC
        + """
import numpy as np
def step(i):
    target = torch.as_tensor(np.exp(np.full(8, 1000.0 * (i == 1))), dtype=torch.float32)  # FAULT
    return F.smooth_l1_loss(values(), target)
LOOP
""",
        "aten.lift_fresh",
        Reason.BAD_INPUT,
    ),
}


@pytest.mark.parametrize("name", MADE_BETWEEN_STEPS)
def test_line_that_made_the_data_is_named_where_it_runs_between_two_steps(tmp_path: Path, name: str) -> None:
    script, op, reason = MADE_BETWEEN_STEPS[name]
    culprit = culprit_of(tmp_path, script)
    assert (culprit.op, culprit.reason) == (op, reason)


def test_nan_in_a_target_is_advised_without_overflow(tmp_path: Path) -> None:
    culprit = culprit_of(
        tmp_path, CRITIC + "def step(i):\n    return (values() - nan).abs().mean()\nnan = torch.ones(8) * math.nan  # FAULT\nLOOP\n"
    )
    assert (culprit.reason, culprit.detail) == (Reason.BAD_INPUT, "mul was given other = nan.")


def test_gradient_of_minus_infinity_is_no_mask(tmp_path: Path) -> None:
    script = """
    model = nn.Linear(4, 1)
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1
        @staticmethod
        def backward(ctx, gradient):
            return gradient * -1e30 * 1e30  # FAULT
    def step(i):
        return Scaled.apply(model(torch.randn(8, 4))).mean()
    LOOP
    """
    assert culprit_of(tmp_path, script).reason == Reason.OVERFLOW


@pytest.mark.parametrize("value", ["math.inf", "-math.inf"])
def test_infinite_advantages_as_the_models_own_argument(tmp_path: Path, value: str) -> None:
    script = f"""
    class Agent(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 2)
        def forward(self, states, advantage):
            log_p = F.log_softmax(self.body(states), -1)[:, 0]
            advantage = advantage - advantage.mean()  # FAULT
            return -(log_p * advantage).mean()
    model = Agent()
    def step(i):
        advantage = torch.randn(8)
        advantage[1] = {value} if i == 1 else 1.0
        return model(torch.randn(8, 4), advantage)
    LOOP
    """
    culprit = culprit_of(tmp_path, script)
    assert culprit.reason == Reason.BAD_INPUT
    assert culprit.detail == f"input[1] held 1 {value.replace('math.', '')} of 8 elements before any operation."
    assert culprit.advice.startswith("Check the batch")


def test_python_numbers_that_overflowed_are_named_where_they_become_a_tensor(tmp_path: Path) -> None:
    script = (
        CRITIC
        + """
def step(i):
    predicted = values()
    returns = torch.tensor([1e300 * (1e10 if i == 1 else 0) for _ in range(8)])  # FAULT
    returns = returns - returns.mean()
    return (predicted - returns).square().mean()
LOOP
"""
    )
    culprit = culprit_of(tmp_path, script)
    assert culprit.reason == Reason.BAD_INPUT
    assert (
        culprit.detail
        == "The numbers that this tensor is made of, from Python, NumPy, a file or another process, held 8 inf of 8 elements."
    )
    assert culprit.advice == "Check where these numbers were computed."


@pytest.mark.parametrize("value", ["inf", "nan"])
def test_infinite_coefficient_is_named(tmp_path: Path, value: str) -> None:
    script = (
        CRITIC
        + f"""
def step(i):
    beta = math.{value} if i == 1 else 0.1
    return values().square().mean() + beta * values().relu().mean()  # FAULT
LOOP
"""
    )
    culprit = culprit_of(tmp_path, script)
    assert (culprit.reason, culprit.detail) == (Reason.BAD_INPUT, f"mul was given other = {value}.")
    assert culprit.advice == "Check where this number was computed."


def test_tensor_that_the_model_holds_without_owning_it(tmp_path: Path) -> None:
    script = """
    scale = torch.ones(4)
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 4)
        def forward(self, x):
            return self.body(x) * scale  # FAULT
    model = Model()
    def step(i):
        scale[0] = math.inf if i == 1 else 1.0
        return model(torch.randn(8, 4)).square().mean()
    LOOP
    """
    culprit = culprit_of(tmp_path, script)
    assert culprit.reason == Reason.BAD_INPUT
    assert culprit.detail.startswith("other, which is no argument, parameter or buffer of the model, held 1 inf of 4 elements")


# ---- masks

SCORES = "model = nn.Linear(4, 6)\nhidden = torch.tensor([False, False, True]).repeat(2)\n"
MASKS = {
    "times a mask of 0 and -inf": (
        "mask = torch.zeros(6).masked_fill(hidden, -math.inf)\n"
        "def step(i):\n    return (model(torch.randn(8, 4)).abs() * 0 * mask).mean()  # FAULT\nLOOP\n",
        Reason.ZERO_TIMES_INF,
    ),
    "mask by arithmetic": (
        "def step(i):\n    return (model(torch.randn(8, 4)) + (1 - (~hidden).float()) * -math.inf).exp().mean()  # FAULT\nLOOP\n",
        Reason.ZERO_TIMES_INF,
    ),
    "entropy of masked log-probabilities": (
        "def step(i):\n    log_p = model(torch.randn(8, 4)).masked_fill(hidden, -math.inf).log_softmax(-1)\n"
        "    return (log_p.exp() * log_p).sum()  # FAULT\nLOOP\n",
        Reason.ZERO_TIMES_INF,
    ),
    "a constant subtracted from itself": (
        "def step(i):\n    bound = torch.where(hidden, -math.inf, model(torch.randn(8, 4)))\n"
        "    return (bound - bound.amin(-1, keepdim=True)).mean()  # FAULT\nLOOP\n",
        Reason.INF_MINUS_INF,
    ),
}


@pytest.mark.parametrize("name", MASKS)
def test_mask_keeps_the_advice_for_masks(tmp_path: Path, name: str) -> None:
    script, reason = MASKS[name]
    culprit = culprit_of(tmp_path, SCORES + script)
    assert culprit.reason == reason
    assert culprit.advice == "Mask with a large finite number (torch.finfo(dtype).min) instead of an infinity, which becomes nan here."


def test_biased_mask_with_a_whole_row_hidden_is_the_softmaxs(tmp_path: Path) -> None:
    script = (
        SCORES
        + """
mask = torch.arange(48.0).view(8, 6)
mask[3] = -math.inf
def step(i):
    return ((model(torch.randn(8, 4)) + mask).softmax(-1) * torch.randn(6)).sum()  # FAULT
LOOP
"""
    )
    culprit = culprit_of(tmp_path, script)
    assert culprit.reason == Reason.INF_MINUS_INF and culprit.detail.startswith("A whole row is -inf (6 of 48 entries are)")
    assert culprit.advice.startswith("Leave an entry of each row unmasked")


RETURNED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj, self.head = nn.Linear(4, 4), nn.Linear(4, 3)
        self.head.weight.data.abs_()

    def forward(self, x):
        return {}

model = Net()
def step(i):
    return F.cross_entropy(model(torch.rand(8, 4)), torch.zeros(8, dtype=torch.long)){}
LOOP
"""


@pytest.mark.tried
def test_infinities_that_a_model_returns_are_its_operations(tmp_path: Path) -> None:
    culprit = culprit_of(tmp_path, RETURNED.format("self.head(torch.log(self.proj(x) * 0))  # FAULT", ""))
    assert culprit.reason == Reason.DOMAIN and culprit.op == "aten.log"
    assert culprit.tried[0].worked and culprit.tried[0].remedy == "torch.log((self.proj(x) * 0).clamp_min(1e-6))"


def test_infinities_that_a_model_masks_with_are_the_softmaxs(tmp_path: Path) -> None:
    masked = "self.head(self.proj(x)).masked_fill((torch.arange(8) > 5)[:, None], -math.inf)"
    culprit = culprit_of(tmp_path, RETURNED.format(masked, "  # FAULT"))
    assert culprit.reason == Reason.INF_MINUS_INF and culprit.op == "aten._log_softmax"
