"""What C observes of modules' calls is what Python would: the same observations of the same steps, for models and loops of many forms."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import numscope
from numscope.inspect.sites import PlannedSite
from numscope.inspect.tally import Tally
from numscope.probe.witness import Witness
from numscope.records.observation import Observation
from numscope.summary import native
from numscope.summary.extras import Layout

pytestmark = pytest.mark.skipif(native.module is None, reason="the native kernel was not built")

TENSORS = ["activation", "output", "gradient", "wgrad"]


def collect(*tensors: str, **schedule: int) -> dict[str, Any]:
    asked = {"enabled": True, "tensors": [*tensors], "stats": ["max", "std", "l2_norm", "num_nan"], **schedule}
    return {"s": {"enabled": True, "layers": {"layer_name_regex_pattern": ".*"}, "collect_tensor_stats": asked}}


ALL, NO_DGRAD, EVERY_OTHER = collect(*TENSORS, "dgrad", "weight"), collect(*TENSORS), collect(*TENSORS, freq=2)


class Kept:
    """A logger that keeps all it is given."""

    def __init__(self) -> None:
        self.all: dict[tuple[str, int], float] = {}

    def log_scalar(self, name: str, value: float, iteration: int, **kwargs: Any) -> None:
        assert (name, iteration) not in self.all
        self.all[name, iteration] = value


class ByName(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Named()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(flag=True, hidden=x) + self.inner(hidden=x, flag=False)


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, hidden: Tensor, flag: bool) -> Tensor:
        return self.fc(hidden) if flag else self.fc(hidden) * 2


class Several(nn.Module):
    """Tuples, integers first, unused outputs, and an output that is the parameter itself."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.pair, self.own = nn.Embedding(5, 4), Pair(), Own()

    def forward(self, x: Tensor) -> Tensor:
        left, _ = self.pair(x)
        return left + self.embed(torch.tensor([0, 1, 2])) + self.own(x)


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.fc(x), x * 2


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight


class InPlace(nn.Module):
    """Linear of three dimensions returns a view, which the next module overwrites."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.relu = nn.Linear(4, 4), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.fc(x.expand(2, *x.shape)))


class Recomputed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = checkpoint(self.block, x, use_reentrant=False)
        return found


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.LayerNorm(8), nn.Linear(8, 2))


def plain(model: nn.Module, x: Tensor, step: Callable[[], None]) -> None:
    model(x).square().mean().backward()
    step()


def accumulated(model: nn.Module, x: Tensor, step: Callable[[], None]) -> None:
    for part in (x, x * 3):
        model(part).square().mean().backward()
    with torch.no_grad():
        model(x)
    step()


def evaluated(model: nn.Module, x: Tensor, step: Callable[[], None]) -> None:
    model.eval()
    with torch.no_grad():
        model(x)
    model.train()
    with torch.inference_mode():
        model(x)
    plain(model, x, step)


def twice(model: nn.Module, x: Tensor, step: Callable[[], None]) -> None:
    loss = model(x.requires_grad_()).square().mean()
    loss.backward(retain_graph=True)
    loss.backward()
    step()


def mixed(model: nn.Module, x: Tensor, step: Callable[[], None]) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(x).float().square().mean()
    loss.backward()
    step()


def through_grad(model: nn.Module, x: Tensor, step: Callable[[], None]) -> None:
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(model(x).square().mean(), parameters, allow_unused=True, create_graph=True)
    torch.stack([g.square().sum() for g in gradients if g is not None]).sum().backward()
    step()


MODELS = [mlp, ByName, Several, InPlace, Recomputed]
LOOPS = [plain, accumulated, evaluated, twice, mixed, through_grad]


def run(make: Callable[[], nn.Module], loop: Callable[..., None], config: Any, in_c: bool, detect: bool) -> tuple[Any, ...]:
    assert native.module is not None
    torch.manual_seed(0)
    model, kept = make(), Kept()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    native.module.leave_to_python(not in_c)
    try:
        with numscope.watch(model, config=config, loggers=(kept,), on_nonfinite="warn" if detect else None):
            for _ in range(4):
                x = torch.randn(3, 4)
                optimizer.zero_grad()
                loop(model, x, optimizer.step)
    finally:
        native.module.leave_to_python(False)
    return kept.all, [p.detach().clone() for p in model.parameters()]


CONFIGS = {"all": ALL, "no dgrad": NO_DGRAD, "every other step": EVERY_OTHER}
# Each model in each loop with two configurations, one of them beside detection: in turn, so that each two of the four meet.
CASES = [
    pytest.param(make, loop, CONFIGS[name], (i + j + turn) % 2 == 1, id=f"{make.__name__}, {loop.__name__}, {name}, {(i + j + turn) % 2}")
    for i, make in enumerate(MODELS)
    for j, loop in enumerate(LOOPS)
    for turn, name in enumerate(("all", ("no dgrad", "every other step")[(i + j // 2) % 2]))
]


@pytest.mark.parametrize(("make", "loop", "config", "detect"), CASES)
def test_c_shows_what_python_shows(make: Callable[[], nn.Module], loop: Callable[..., None], config: Any, detect: bool) -> None:
    (shown, weights), (expected, expected_weights) = (run(make, loop, config, in_c, detect) for in_c in (True, False))
    assert expected and {step for _, step in expected} == ({0, 2} if config is EVERY_OTHER else {0, 1, 2, 3})
    assert shown == expected
    assert all(map(torch.equal, weights, expected_weights))


def test_most_calls_reach_python_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """That the tests above compare something."""
    seen: list[Any] = []
    monkeypatch.setattr(Tally, "observe", lambda self, *args: seen.append(args))
    shown, _ = run(mlp, plain, NO_DGRAD, True, False)
    assert not any(isinstance(tensor, Tensor) and site >= 0 for site, tensor, _ in seen)
    assert len({name for name, step in shown if step == 0}) >= 4 * 4


def test_what_fails_as_something_is_shown_ends_the_statistics_and_not_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("planted")

    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monkeypatch.setattr(PlannedSite, "is_plain", False)  # so that Python is shown each tensor
    monkeypatch.setattr(Tally, "observe", fail)
    with numscope.watch(model, config=NO_DGRAD, loggers=(Kept(),), on_nonfinite=None) as scope:
        assert scope._watch.inspector is not None
        plain(model, torch.randn(3, 4), optimizer.step)
        assert scope._watch.inspector.fault == "ValueError: planted"


def test_threads_that_share_a_tally_lose_nothing() -> None:
    tally = Tally([Layout(), Layout()])
    witness = Witness(pytest.fail, pytest.fail)
    witness.read(tally.ledger, tally.parts, bytes([1, 1]), tally.observe, lambda: None)
    total = [0]

    def observe(site: int) -> None:
        for _ in range(3000):
            assert witness.saw(None, (None, site, None), False, (), {}, torch.ones(3)) == 0

    def merge() -> None:
        while any(thread.is_alive() for thread in threads):
            tally.merge()
            total[0] += 1

    threads = [threading.Thread(target=observe, args=(site,)) for site in (0, 1, 0, 1)]
    for thread in threads:
        thread.start()
    merge()
    found = tally.read()
    assert total[0] > 1
    assert [found[site].calls for site in (0, 1)] == [6000, 6000]
    assert [found[site].row[0] for site in (0, 1)] == [18000.0, 18000.0]


def test_observations_are_tuples_by_name() -> None:
    one = Observation(1, "a", "Linear", "output", "float32", 0, 0, 1, 1, {})
    assert one.name == "a_output" and one._replace(ranks=2).ranks == 2
    with pytest.raises(AttributeError):
        one.step = 2  # type: ignore[misc]


class Doubles(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(4, 4), nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        x.mul_(2)
        y: Tensor = self.layer(x) * self.scale
        return y


@pytest.mark.parametrize("in_c", [True, False], ids=["C", "Python"])
def test_input_that_a_module_writes_is_left_out(in_c: bool) -> None:
    """When the module returns, it holds what the module left there; of its parts it is what they took."""
    assert native.module is not None
    model, kept = nn.Sequential(nn.Linear(4, 4), Doubles(), nn.LayerNorm(4)), Kept()
    native.module.leave_to_python(not in_c)
    try:
        with numscope.watch(model, config=collect("activation", "output"), loggers=(kept,), on_nonfinite=None):
            for _ in range(2):
                model(torch.ones(3, 4)).sum().backward()
    finally:
        native.module.leave_to_python(False)
    names = {name for name, _ in kept.all}
    assert not any(name.startswith("1_activation") for name in names), names
    assert all(any(name.startswith(f"{layer}_activation") for name in names) for layer in ("0", "1.layer", "2")), names
    assert any(name.startswith("1_output") for name in names)
