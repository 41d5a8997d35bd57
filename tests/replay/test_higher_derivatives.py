"""Faults in gradients of gradients: penalties, physics in a loss, steps within steps. The operation whose backward made them is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import numscope
from numscope.detect import derived_outputs
from numscope.records.finding import Reason
from numscope.records.site import Phase
from tests.harm.training import Notes, Watch, assert_equal, assert_no_hooks, bare, noted
from tests.replay.scripts import culprit_of, finding_of

ROOT, POLE = Reason.GRADIENT_AT_ZERO, Reason.DOMAIN
NET = "model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))\n"
SITES = "torch.linspace(-1, 1, 5)[:, None].requires_grad_()"


def physics(order: int, term: str) -> str:
    """A loss on the derivative of that order of ``model(x)`` plus a term, which step 1 alone has."""
    return f"""{NET}
def step(i):
    x = {SITES}
    u = model(x)
    if i == 1:
        u = u + {term}  # FAULT
    for _ in range({order}):
        (u,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    return u.square().mean()
LOOP
"""


# The term, the order of the derivative in the loss, the reason, what is said of it.
OUTSIDE = [
    ("x.abs().sqrt()", 1, ROOT, "results of sqrt is 0, where its gradient 1/(2 sqrt(x)) is inf"),
    ("x.acos()", 2, POLE, "where its gradient is infinite"),
    ("x.asin()", 1, POLE, "where its gradient is infinite"),
    ("torch.hypot(x * 0, x * 0)", 1, ROOT, "where its gradient x / norm(x) is 0/0"),
    ("(x * 0).norm()", 2, ROOT, "where its second derivative divides by it"),
    ("torch.linalg.vector_norm(x * 0, dim=-1, keepdim=True)", 2, ROOT, "where its second derivative divides by it"),
    ("torch.atan2(x * 0, x * 0)", 2, ROOT, "where its second derivative divides by the sum of their squares"),
    ("x.abs() ** 1.5", 2, ROOT, "1 of 5 bases is 0, where the second derivative of x ** 1.5 is inf"),
    ("x.abs() ** 2.5", 3, ROOT, "1 of 5 bases is 0, where the third derivative of x ** 2.5 is inf"),
]


@pytest.mark.parametrize(("term", "order", "reason", "detail"), OUTSIDE, ids=lambda v: str(v)[:24])
def test_a_derivative_outside_modules_is_named_at_any_order(term: str, order: int, reason: Reason, detail: str, tmp_path: Path) -> None:
    culprit = culprit_of(tmp_path, physics(order, term))
    assert (culprit.phase, culprit.reason) == (Phase.BACKWARD, reason), culprit
    assert detail in culprit.detail, culprit.detail


# A module whose forward has the fault in its line, and whose power a script sets.
MODULE = """
class U(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.power = nn.Linear(1, 8), nn.Linear(8, 1), 4.0

    def forward(self, x):
        h = self.a(x)
        return self.b((h - h).abs() ** self.power + h.tanh())  # FAULT

model = U()
"""
IN_MODULE = {
    "in the loss": (1.5, "u = model(x)", 2),
    "in the loss's gradient": (1.5, "u = model(x)", 1),
    "third": (2.5, "u = model(x)", 3),
    "wrapped": (2.5, "u = model(x).sin() * t", 2),
    "wrapped, the loss's gradient": (1.5, "u = model(x).exp() * t", 1),
    "first": (0.5, "u = model(x)", 1),
}


@pytest.mark.parametrize("case", IN_MODULE)
def test_a_derivative_within_a_module_is_named_at_any_order(case: str, tmp_path: Path) -> None:
    power, call, order = IN_MODULE[case]
    text = f"""{MODULE}
def step(i):
    model.power = {power} if i == 1 else 4.0
    t = {SITES}
    x = t * 2 + 1
    {call}
    for _ in range({order}):
        (u,) = torch.autograd.grad(u.sum(), t, create_graph=True)
    return u.square().mean()
LOOP
"""
    culprit = culprit_of(tmp_path, text)
    assert (culprit.phase, culprit.reason) == (Phase.BACKWARD, ROOT), culprit
    word = {1: "gradient", 2: "second derivative", 3: "third derivative"}[int(power + 1)]
    assert f"where the {word} of x ** {power} is inf" in culprit.detail, culprit.detail


PENALTY = """
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
def step(i):
    x = torch.randn(3, 4, requires_grad=True)
    out = model(x) * (i != 1)
    (g,) = torch.autograd.grad(out, x, torch.ones_like(out), create_graph=True, retain_graph=True)
    {}
    return out.mean() + penalty.mean()
LOOP
"""


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        ("penalty = (g.square().sum(1).sqrt() - 1) ** 2  # FAULT", Phase.BACKWARD),
        ("penalty = (g / g.norm(dim=1, keepdim=True)).sum(1)  # FAULT", Phase.LOSS),
        ("penalty = g.abs().sum(1).log()  # FAULT", Phase.LOSS),
    ],
)
def test_penalty_on_a_gradient_of_zero(line: str, phase: Phase, tmp_path: Path) -> None:
    assert culprit_of(tmp_path, PENALTY.format(line)).phase is phase


# A step within a step: its loss, its call, and how its gradients are made.
FAST = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x, z=1.0):
        h = self.a(x).tanh()
        return self.b(h) + {module}

model = Net()
def step(i):
    total = 0
    for task in range(2):
        fast = dict(model.named_parameters())
        for inner in range({inner}):
            x, y, z = torch.randn(5, 4), torch.randn(5, 1), float(not (i == 1 and task == 1 and inner == {inner} - 1))
            e = torch.func.functional_call(model, fast, (x, z)) - y
            loss = {loss}
            gradients = torch.autograd.grad(loss, list(fast.values()), create_graph={graph})
            fast = {{k: p - 0.1 * g for (k, p), g in zip(fast.items(), gradients)}}
        total = total + torch.func.functional_call(model, fast, (torch.randn(5, 4),)).square().mean()
    return total
LOOP
"""
PLAIN = {"module": "0", "loss": "e.square().mean()"}
WITHIN = {
    "in the inner loss": {**PLAIN, "loss": "((e * z).square() + 1e-2 * z).mean().sqrt()  # FAULT"},
    "in the module": {**PLAIN, "module": "((h * z).square().sum(-1, keepdim=True)).sqrt()  # FAULT"},
    "in the module, of a gradient": {**PLAIN, "module": "(h * z).norm(dim=-1, keepdim=True)  # FAULT"},
}


# Whether the steps have a graph, and how many they are: two with one for each case, and each two of the three meet.
STEPS = [("in the inner loss", True, 1), *((case, True, 2) for case in WITHIN)]
STEPS += [(case, False, 1 + i % 2) for i, case in enumerate(WITHIN)]


@pytest.mark.parametrize(("case", "graph", "inner"), STEPS)
def test_steps_within_a_step(case: str, graph: bool, inner: int, tmp_path: Path) -> None:
    text = FAST.format(inner=inner, graph=graph, **WITHIN[case])
    if case.endswith("gradient") and not graph:  # nobody asks for the second derivative
        assert finding_of(tmp_path, text) is None
        return
    culprit = culprit_of(tmp_path, text)
    assert (culprit.phase, culprit.reason) == (Phase.BACKWARD, ROOT), culprit


OTHERS = {
    "score matching": """
model = nn.Sequential(nn.Linear(2, 8), nn.Softplus(), nn.Linear(8, 1))
def step(i):
    x = torch.randn(6, 2, requires_grad=True)
    if i == 1:
        with torch.no_grad():
            x[0] = 0
    density = -model(x).squeeze(-1) - x.norm(dim=1)  # FAULT
    (score,) = torch.autograd.grad(density.sum(), x, create_graph=True)
    trace = sum(torch.autograd.grad(score[:, d].sum(), x, create_graph=True)[0][:, d] for d in range(2))
    return (trace + 0.5 * score.square().sum(1)).mean()
LOOP
""",
    "Hessian times a vector": """
model = nn.Linear(3, 3)
def step(i):
    loss = ((model(torch.randn(4, 3)) * (i != 1)).abs() ** 1.5).mean()  # FAULT
    weights = list(model.parameters())
    gradients = torch.autograd.grad(loss, weights, create_graph=True)
    products = torch.autograd.grad(gradients, weights, [torch.ones_like(g) for g in gradients], retain_graph=True)
    return loss + sum((g * p).sum() for g, p in zip(gradients, products))
LOOP
""",
    "forces": """
model = nn.Sequential(nn.Linear(3, 8), nn.SiLU(), nn.Linear(8, 1))
def step(i):
    places = torch.randn(5, 3, requires_grad=True)
    apart = ((places[:, None] - places[None]).square().sum(-1) + (i != 1) * 1e-3).sqrt()  # FAULT
    energy = model(places).sum() + torch.exp(-apart).sum()
    return torch.autograd.grad(energy, places, create_graph=True)[0].square().mean()
LOOP
""",
    "gradients without a graph, then a model": """
model = nn.Linear(3, 1)
def step(i):
    x = torch.randn(4, 3, requires_grad=True)
    energy = (x * (i != 1)).square().sum(1).sqrt().sum()  # FAULT
    (g,) = torch.autograd.grad(energy, x)
    return model(g).square().mean()
LOOP
""",
    "the gradient that autograd is given": """
model = nn.Linear(3, 2)
def step(i):
    x = torch.randn(5, 3, requires_grad=True)
    y = model(x).tanh()
    given = torch.ones_like(y) / (y.detach() * 0 + (i != 1))  # FAULT
    (g,) = torch.autograd.grad(y, x, given, create_graph=True)
    return g.square().mean()
LOOP
""",
    "two parts of a model": """
class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.b, self.power = nn.Linear(4, 1), 4.0
    def forward(self, z):
        return self.b(z).sum(1) + (z * 0).abs().pow(self.power).sum(1)  # FAULT
model = nn.ModuleList([nn.Linear(2, 4), Decoder()])
def step(i):
    model[1].power = 1.5 if i == 1 else 4.0
    x = torch.randn(5, 2, requires_grad=True)
    energy = model[1](torch.tanh(model[0](x)))
    (force,) = torch.autograd.grad(energy.sum(), x, create_graph=True)
    return force.square().mean() + energy.mean()
LOOP
""",
    "a custom function": """
class Root(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.sqrt()
        ctx.save_for_backward(y)
        return y
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g / (2 * y)  # FAULT
model = nn.Linear(3, 1)
def step(i):
    x = torch.rand(4, 3, requires_grad=True)
    (g,) = torch.autograd.grad(Root.apply(x * (i != 1)).sum(), x, create_graph=True)
    return model(g).square().mean()
LOOP
""",
    "backward with a graph": """
model = nn.Linear(3, 1)
def step(i):
    loss = ((model(torch.randn(4, 3)) * (i != 1)).abs() ** 1.5).mean()  # FAULT
    model.zero_grad()
    loss.backward(create_graph=True)
    return 0.1 * sum(p.grad.square().sum() for p in model.parameters())
LOOP
""",
    "torch.autograd.functional": """
model = nn.Linear(3, 1)
def step(i):
    x = torch.randn(3) * (i != 1)
    g = torch.autograd.functional.hessian(lambda x: (x.abs() ** 1.5).sum(), x)  # FAULT
    return model(g).square().mean()
LOOP
""",
    "torch.func.hessian": """
model = nn.Linear(3, 1)
def energy(x):
    return (x.abs() ** 1.5).sum()  # FAULT
def step(i):
    return model(torch.func.hessian(energy)(torch.randn(3) * (i != 1))).square().mean()
LOOP
""",
    "torch.func.grad under vmap": """
model = nn.Linear(3, 1)
def energy(x):
    return x.square().sum().sqrt()  # FAULT
def step(i):
    return model(torch.vmap(torch.func.grad(energy))(torch.randn(4, 3) * (i != 1))).square().mean()
LOOP
""",
    "torch.func.jacrev": """
model = nn.Linear(3, 1)
def energy(x):
    return x.square().sqrt()  # FAULT
def step(i):
    return model(torch.func.jacrev(energy)(torch.randn(3) * (i != 1))).square().mean()
LOOP
""",
    "many stretches": """
model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
def step(i):
    total = 0
    for k in range(6):
        x = torch.linspace(-1, 1, 5)[:, None].requires_grad_()
        u = model(x)
        if i == 2 and k == 4:
            u = u + x.abs() ** 1.5  # FAULT
        (du,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (ddu,) = torch.autograd.grad(du.sum(), x, create_graph=True)
        total = total + (ddu + u).square().mean()
    return total
LOOP
""",
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_derivatives(case: str, tmp_path: Path) -> None:
    culprit = culprit_of(tmp_path, OTHERS[case])
    assert culprit.reason in (ROOT, Reason.DIVISION_BY_ZERO), culprit


OWN_UPDATE = """
model = nn.Linear(3, 3)
for i in range(4):
    loss = ((model(torch.randn(4, 3)) * (i != 2)).abs() ** {power}).mean()  # FAULT
    weights = list(model.parameters())
    gradients = torch.autograd.grad(loss, weights, create_graph={second})
    if {second}:
        gradients = torch.autograd.grad(sum(g.sum() for g in gradients), weights)
    with torch.no_grad():
        for p, g in zip(weights, gradients):
            p -= 0.1 * g
"""


@pytest.mark.parametrize(("power", "second"), [(0.5, False), (1.5, True)])
def test_own_updates_are_found_in_their_step(power: float, second: bool, tmp_path: Path) -> None:
    text = OWN_UPDATE.format(power=power, second=second)
    assert culprit_of(tmp_path, text).phase is Phase.BACKWARD
    finding = finding_of(tmp_path, text)
    assert finding is not None and finding.step == 2


# ---- benign twins

BENIGN = {
    "roots away from 0": physics(3, "(x.square() + 1).sqrt() + (x + 3).log() + (x + 3).norm()"),
    "a power that has the derivatives": physics(2, "x.abs() ** 3.5"),
    "at 0, where torch leaves the gradient out": physics(1, "x.relu().sqrt()"),
    "a penalty on a slope of 0": PENALTY.format("penalty = (g.norm(2, dim=1) - 1) ** 2"),
    "a gradient that is left out": """
model = nn.Linear(3, 1)
def step(i):
    x = torch.zeros(4, 3, requires_grad=True)
    (g,) = torch.autograd.grad(x.square().sum(1).sqrt().sum(), x, create_graph=True)
    return model(torch.where(g.isfinite(), g, 0).detach()).square().mean()
LOOP
""",
    "steps within a step": FAST.format(inner=2, graph=True, **PLAIN),
    "torch.func": """
model = nn.Linear(3, 1)
def step(i):
    return model(torch.func.hessian(lambda x: (x.square().sum() + 1).sqrt())(torch.randn(3))).square().mean()
LOOP
""",
}


@pytest.mark.parametrize("case", BENIGN)
def test_sound_derivatives_say_nothing(case: str, tmp_path: Path) -> None:
    assert finding_of(tmp_path, BENIGN[case]) is None


# ---- do no harm


def derived(watch: Watch, notes: Notes) -> None:
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters())
    kept = torch.randn(6, 2, requires_grad=True)  # the same tensor in all steps
    with watch(model):
        for _ in range(3):
            u = model(kept) + (kept.square().sum(1, keepdim=True) + 1).sqrt()
            (first,) = torch.autograd.grad(u.sum(), kept, create_graph=True)
            (second,) = torch.autograd.grad(first.square().sum(), kept, create_graph=True)
            fast = {
                name: p - 0.1 * g
                for (name, p), g in zip(
                    model.named_parameters(),
                    torch.autograd.grad(u.mean(), list(model.parameters()), create_graph=True),
                    strict=True,
                )
            }
            inner = torch.func.functional_call(model, fast, (kept,)).square().mean()
            notes.add("derivatives", [first, second, inner])
            optimizer.zero_grad()
            (second.square().mean() + inner).backward()
            optimizer.step()
            notes.state(model, optimizer)
            notes.add("gradient", kept.grad)
            kept.grad = None
    assert_no_hooks(model)
    for tensor in (kept, *model.parameters()):
        assert not tensor._backward_hooks


def test_trainings_with_derivatives_are_bitwise_the_same() -> None:
    def watched(model: nn.Module) -> Any:
        return numscope.watch(model)

    assert_equal(noted(derived, watched), noted(derived, bare))


def test_derivatives_keep_no_graph_alive() -> None:
    """What a hook notes of a gradient is its numbers, not the graph that it hangs on."""
    freed: list[int] = []

    class Marked(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.mark = Mark()
            return x * 1

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient * 1

    class Mark:
        def __del__(self) -> None:
            freed.append(1)

    model = nn.Linear(2, 1)
    with numscope.watch(model):
        x = torch.randn(3, 2, requires_grad=True)
        u = Marked.apply(model(x)).sin()
        (g,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        del u, g
        assert freed == [1]


def test_a_line_search_of_many_calls_hooks_the_last_of_them_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its closure takes derivatives of the model, in a step of hundreds of calls."""
    num = [0]
    original = derived_outputs.hook_gradient
    monkeypatch.setattr(derived_outputs, "hook_gradient", lambda *given: (num.__setitem__(0, num[0] + 1), original(*given))[1])
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=60, tolerance_grad=0, tolerance_change=0)

    def closure() -> Tensor:
        optimizer.zero_grad()
        x = torch.linspace(-1, 1, 8).unsqueeze(1).requires_grad_()
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        loss = (slope - x.cos()).square().mean()
        loss.backward()
        return loss

    with numscope.watch(model) as scope:
        optimizer.step(closure)
    assert scope.findings == [] and 0 < num[0] < 60 * 2 * (derived_outputs.MOST_CALLS * 6 + 1)
