"""The largest singular value against NumPy's singular values in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from numscope.summary import spectral
from numscope.summary.spectral import spectral_norm


def oracle(tensor: Tensor) -> float:
    array = tensor.detach().double().numpy()
    return float(np.linalg.svd(array.reshape(array.shape[0], -1) if array.ndim > 1 else array.reshape(1, -1), compute_uv=False)[0])


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


CASES: dict[str, Tensor] = {
    "square": normal(20, 20),
    "wide": normal(7, 90),
    "tall": normal(90, 7),
    "row": normal(1, 5),
    "vector": normal(9),
    "convolution": normal(8, 3, 5, 5),
    "bfloat16": normal(30, 20).bfloat16(),
    "transposed": normal(30, 20).float().t(),
    "huge": normal(5, 6) * 1e300,
    "tiny": normal(5, 6) * 1e-300,
    "rank one": normal(40, 1) @ normal(1, 30),
    "zero row": torch.cat([torch.zeros(1, 6), normal(4, 6).float()]),
}


@pytest.mark.parametrize("steps", [0, 64], ids=["by eigenvalues", "by iteration"])
@pytest.mark.parametrize("name", CASES)
def test_largest_singular_value_is_numpys(name: str, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if steps:
        monkeypatch.setattr(spectral, "EXACT", 0)
    monkeypatch.setattr(spectral, "_PIECE_NUMEL", 50)
    exact = not steps or CASES[name].dtype == torch.float64
    assert spectral_norm(CASES[name]).item() == pytest.approx(oracle(CASES[name]), rel=1e-12 if exact else 1e-6)


@pytest.mark.parametrize("decay", [0.0, 0.01, 0.5, 2.0])
def test_iteration_keeps_the_stated_bound_and_never_overestimates(decay: float) -> None:
    n = 600
    left, right = torch.linalg.qr(normal(n, n, seed=1))[0], torch.linalg.qr(normal(n, n, seed=2))[0]
    matrix = left @ torch.diag(torch.arange(1, n + 1, dtype=torch.float64) ** -decay) @ right
    found, k = spectral_norm(matrix).item(), spectral.NUM_STEPS
    bound = 0.103 * (np.log(n * (k - 1) ** 4) / (k - 1)) ** 2
    assert bound < 0.02
    assert -1e-12 <= 1 - found**2 <= bound


@pytest.mark.parametrize("seed", [0, 1])
def test_iteration_on_float32_is_right_to_its_rounding(seed: int) -> None:
    matrix = normal(1100, 530, seed=seed).float()
    matrix[:, :3] *= 3
    assert spectral_norm(matrix).item() == pytest.approx(oracle(matrix), rel=1e-5)
    low = (normal(600, 2) @ normal(2, 530)).float()  # the space is exhausted after two steps
    assert spectral_norm(low).item() == pytest.approx(oracle(low), rel=1e-5)


def test_autocast_around_it_changes_nothing() -> None:
    matrix = normal(600, 530).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = spectral_norm(matrix)
    assert inside.item() == spectral_norm(matrix).item()


def test_no_generator_moves_and_calls_agree_bitwise() -> None:
    matrix = normal(700, 650).float()
    torch.manual_seed(5)
    state, numpys = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[union-attr]
    assert spectral_norm(matrix).item() == spectral_norm(matrix.clone()).item()
    assert torch.equal(torch.get_rng_state(), state) and (np.random.get_state()[1] == numpys).all()  # type: ignore[index]


def test_what_is_no_matrix_of_numbers_gives_zero() -> None:
    for tensor in (torch.empty(0, 3), torch.zeros(4, 4), torch.ones(3, 3, dtype=torch.int64)):
        assert spectral_norm(tensor).item() == 0.0
    spectral_norm(torch.tensor([[3.0, float("nan")], [float("inf"), 0.0]]))  # of no use, but no error


def test_a_scalar_is_its_own_norm() -> None:
    assert spectral_norm(torch.tensor(-2.0)).item() == 2.0
