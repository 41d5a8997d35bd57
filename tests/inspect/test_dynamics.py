"""What a step does to weights, against NumPy in float64 over whole arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import Parameter

from numscope.inspect import dynamics
from numscope.inspect.dynamics import Dynamics
from numscope.summary.extras import DYNAMICS


def named(cells: Tensor) -> dict[str, float]:
    assert cells.dtype == torch.float64 and cells.shape == (8,)
    return dict(zip(DYNAMICS.columns, cells.tolist(), strict=True))


def parameter(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Parameter:
    return Parameter(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype))


def step(optimizer: torch.optim.Optimizer, *parameters: Parameter) -> list[dict[str, float]]:
    watch = Dynamics(list(enumerate(parameters)))
    watch.before(optimizer)
    optimizer.step()
    return [named(cells) for _, cells in watch.after(optimizer)]


def exact(tensor: Tensor) -> np.ndarray:
    return tensor.detach().double().numpy().copy()


def bf16(values: np.ndarray) -> np.ndarray:
    """Round float64 to float32, then to bfloat16, to nearest even, by its bits."""
    with np.errstate(over="ignore", invalid="ignore"):
        bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) & np.uint64(0xFFFF0000)
    found = rounded.astype(np.uint32).view(np.float32).astype(np.float64)
    return np.where(np.isnan(values), np.nan, found)


def moves(values: np.ndarray | None, like: np.ndarray) -> np.ndarray:
    return np.zeros(like.shape, bool) if values is None else np.isfinite(values) & (values != 0)


def oracle(before: np.ndarray, after: np.ndarray, gradient: np.ndarray, state: dict[str, Any], is_bf16: bool) -> dict[str, float]:
    def of(name: str) -> np.ndarray | None:
        found = state.get(name)
        return exact(found) if isinstance(found, Tensor) and found.shape == before.shape else None

    with np.errstate(invalid="ignore"):
        update = after - before
    finite = update[np.isfinite(update)]
    meant = moves(gradient, before) | moves(of("exp_avg"), before) | moves(of("momentum_buffer"), before)
    second = of("exp_avg_sq")
    low = bf16(before)
    changed = np.isfinite(update) & (update != 0)
    updates, lost = meant.sum(), (meant & (after == before)).sum()
    return {
        "grad_square": math.fsum(gradient[np.isfinite(gradient)] ** 2),
        "update_square": math.fsum(finite**2),
        "num_updates": updates,
        "num_lost_updates": lost,
        "bf16_num_updates": updates if is_bf16 else changed.sum(),
        "bf16_num_lost_updates": lost if is_bf16 else (changed & (bf16(low + update) == low)).sum(),
        "v_numel": 0 if second is None else meant.sum(),
        "v_num_underflow": 0 if second is None else (meant & (second == 0)).sum(),
    }


OPTIMIZERS: dict[str, Callable[[list[Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda ps: torch.optim.SGD(ps, lr=1e-4),
    "momentum": lambda ps: torch.optim.SGD(ps, lr=1e-3, momentum=0.9, weight_decay=0.1),
    "adam": lambda ps: torch.optim.Adam(ps, lr=1e-5),
    "adamw foreach": lambda ps: torch.optim.AdamW(ps, lr=1e-4, foreach=True, amsgrad=True),
    "adamw fused": lambda ps: torch.optim.AdamW(ps, lr=1e-4, fused=True),
    "adafactor": lambda ps: torch.optim.Adafactor(ps, lr=1e-3),
    "rmsprop": lambda ps: torch.optim.RMSprop(ps, lr=1e-4, momentum=0.5),
}


@pytest.fixture(params=[1 << 16, 7], ids=["whole", "in pieces"])
def _piece(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(dynamics, "PIECE_NUMEL", request.param)
    yield


@pytest.mark.usefixtures("_piece")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_cells_are_those_of_the_whole_arrays(name: str, dtype: torch.dtype) -> None:
    weights = [
        parameter(5, 6, dtype=dtype),
        parameter(13, dtype=dtype, seed=1),
        Parameter(parameter(4, 3, dtype=dtype, seed=2).detach().t()),
    ]
    optimizer = OPTIMIZERS[name](weights)
    for i in range(3):
        for j, weight in enumerate(weights):
            gradient = torch.randn(weight.shape, generator=torch.Generator().manual_seed(10 * i + j)) * 10.0 ** -(3 * j)
            gradient.view(-1)[:: 2 + i] = 0
            weight.grad = gradient.to(dtype)
        before = [exact(w) for w in weights]
        gradients = [exact(w.grad) for w in weights if w.grad is not None]
        found = step(optimizer, *weights)
        for b, w, g, cells in zip(before, weights, gradients, found, strict=True):
            expected = oracle(b, exact(w), g, optimizer.state[w], dtype == torch.bfloat16)
            for key, value in expected.items():
                assert cells[key] == pytest.approx(value, rel=1e-14 if key.endswith("square") else 0), (key, i)


def test_bf16_weights_lose_updates_that_are_too_small_for_them() -> None:
    weight = Parameter(torch.linspace(1, 2, 1000).to(torch.bfloat16))
    weight.grad = torch.full_like(weight, 1e-4)
    (found,) = step(torch.optim.SGD([weight], lr=1.0), weight)
    assert found["num_updates"] == found["num_lost_updates"] == 1000
    assert found["bf16_num_updates"] == found["bf16_num_lost_updates"] == 1000
    assert found["update_square"] == 0


def test_the_same_update_of_float32_weights_would_be_lost_in_bf16() -> None:
    weight = Parameter(torch.linspace(1, 2, 1000))
    weight.grad = torch.full_like(weight, 1e-4)
    (found,) = step(torch.optim.SGD([weight], lr=1.0), weight)
    assert (found["num_updates"], found["num_lost_updates"]) == (1000, 0)
    assert (found["bf16_num_updates"], found["bf16_num_lost_updates"]) == (1000, 1000)
    weight.grad = torch.full_like(weight, 0.1)
    (found,) = step(torch.optim.SGD([weight], lr=1.0), weight)
    assert found["bf16_num_lost_updates"] == 0


def test_tie_in_bf16_goes_to_the_even_neighbor() -> None:
    """1 + 2^-8 lies midway and returns to 1; 1 + 2^-7 + 2^-8 lies midway and goes on to 1 + 2^-6."""
    weight = Parameter(torch.tensor([1.0, 1.0 + 2.0**-7]))
    weight.grad = torch.full_like(weight, -(2.0**-8))
    (found,) = step(torch.optim.SGD([weight], lr=1.0), weight)
    assert (found["bf16_num_updates"], found["bf16_num_lost_updates"]) == (2, 1)


def test_adams_second_moment_underflows_from_tiny_gradients() -> None:
    weight = parameter(100)
    weight.grad = torch.full_like(weight, 1e-25)
    weight.grad[:40] = 0
    weight.grad[40:50] = 1.0
    (found,) = step(torch.optim.Adam([weight]), weight)
    assert (found["v_numel"], found["v_num_underflow"]) == (60, 50)


def test_momentum_is_an_update_where_the_gradient_is_zero() -> None:
    weight = parameter(10)
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    weight.grad = torch.ones_like(weight)
    step(optimizer, weight)
    weight.grad = torch.zeros_like(weight)
    (found,) = step(optimizer, weight)
    assert found["num_updates"] == 10 and found["grad_square"] == 0 and found["update_square"] > 0


def test_parameter_without_gradient_is_not_meant_to_move() -> None:
    weight = parameter(10)
    optimizer = torch.optim.Adam([weight])
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    weight.grad = None
    (found,) = step(optimizer, weight)
    assert set(found.values()) == {0}


def test_nonfinite_elements_count_neither_as_updates_nor_in_squares() -> None:
    weight = parameter(4)
    weight.grad = torch.tensor([1.0, math.nan, math.inf, 2.0])
    (found,) = step(torch.optim.SGD([weight], lr=0.5), weight)
    assert found["grad_square"] == 5
    assert found["update_square"] == pytest.approx(1.25, rel=1e-6)
    assert found["num_updates"] == found["bf16_num_updates"] == 2


def test_gradient_that_a_closure_makes_within_the_step_counts() -> None:
    weight = parameter(6)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    watch = Dynamics([(3, weight)])
    watch.before(optimizer)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (2 * weight).sum()
        loss.backward()
        return loss

    optimizer.step(closure)  # type: ignore[arg-type]
    ((site, cells),) = watch.after(optimizer)
    assert site == 3 and named(cells)["grad_square"] == 24 and named(cells)["num_updates"] == 6


def test_gradient_that_is_gone_after_the_step_counts() -> None:
    weight = parameter(6)
    weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    watch = Dynamics([(0, weight)])
    watch.before(optimizer)
    optimizer.step()
    weight.grad = None
    assert named(watch.after(optimizer)[0][1])["num_updates"] == 6


def test_fused_optimizer_that_unscales_itself_has_unscaled_gradients() -> None:
    weight = parameter(6)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = torch.optim.AdamW([weight], fused=True)
    found: list[dict[str, float]] = []
    watch = Dynamics([(0, weight)])
    optimizer.register_step_pre_hook(lambda *_: watch.before(optimizer))
    optimizer.register_step_post_hook(lambda *_: found.extend(named(c) for _, c in watch.after(optimizer)))
    scaler.scale((3 * weight).sum()).backward()
    scaler.step(optimizer)
    assert found[0]["grad_square"] == 54 and found[0]["num_updates"] == 6


def test_step_that_was_skipped_has_no_after_and_leaves_nothing() -> None:
    weight = parameter(6)
    weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    watch = Dynamics([(0, weight)])
    assert watch.after(optimizer) == []
    watch.before(optimizer)
    watch.before(optimizer)  # the first one was skipped
    optimizer.step()
    assert named(watch.after(optimizer)[0][1])["num_updates"] == 6
    assert watch.after(optimizer) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda p: setattr(p, "data", torch.zeros(3)),
        lambda p: setattr(p, "data", torch.zeros(6, dtype=torch.float64)),
        lambda p: torch.utils.swap_tensors(p, Parameter(torch.zeros(6, device="meta"))),
    ],
    ids=["shape", "dtype", "device"],
)
def test_parameter_that_became_another_is_left_out(change: Callable[[Parameter], None]) -> None:
    stays, changes = parameter(6), parameter(6)
    optimizer = torch.optim.SGD([stays, changes], lr=0.1)
    watch = Dynamics([(0, changes), (1, stays), (2, Parameter(torch.zeros(2, device="meta")))])
    watch.before(optimizer)
    change(changes)
    assert [site for site, _ in watch.after(optimizer)] == [1]


def test_tied_parameter_is_copied_once_and_given_to_each_site() -> None:
    weight = parameter(6)
    weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    first, second = step(optimizer, weight, weight)
    assert first == second and first["num_updates"] == 6


def test_sparse_gradient_moves_its_own_rows() -> None:
    layer = nn.Embedding(10, 4, sparse=True)
    layer(torch.tensor([1, 1, 7])).sum().backward()
    (found,) = step(torch.optim.SparseAdam([layer.weight]), layer.weight)
    assert found["num_updates"] == 8 and found["grad_square"] == 4 * (4 + 1)


def test_watched_step_is_bitwise_the_same() -> None:
    runs = []
    for watched in (False, True):
        weight = parameter(50)
        optimizer = torch.optim.AdamW([weight], lr=0.1)
        torch.manual_seed(0)
        for _ in range(3):
            weight.grad = torch.randn(50)
            version = weight.grad._version
            if watched:
                step(optimizer, weight)
            else:
                optimizer.step()
            assert weight.grad._version == version
        runs.append((weight.detach().clone(), torch.get_rng_state()))
    assert torch.equal(runs[0][0], runs[1][0]) and torch.equal(runs[0][1], runs[1][1])


def test_sharded_parameter_counts_its_local_part(one_rank: None) -> None:
    from torch.distributed.fsdp import fully_shard

    model = nn.Linear(4, 3)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model(torch.ones(2, 4)).sum().backward()
    gradient: Any = model.weight.grad
    assert hasattr(model.weight, "_local_tensor")
    found = step(optimizer, model.weight, model.bias)
    assert [f["num_updates"] for f in found] == [12, 3]
    assert [f["v_numel"] for f in found] == [12, 3]
    assert found[0]["grad_square"] == exact(gradient._local_tensor).__pow__(2).sum()
