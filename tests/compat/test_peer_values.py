"""nvdlfw-inspect's six statistics and ours, of the same tensors, held against float64: docs/peers.md rests on these figures."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import numscope
from numscope.summary.dispatch import summarize
from tests.distributed.ranks import RankPool

pytest.importorskip("nvdlfw_inspect")

SIX = {"min": "min", "max": "max", "mean": "mean", "std": "sample_std", "l1_norm": "l1_norm", "l2_norm": "l2_norm"}
CONFIG = f"""\
peer:
  enabled: True
  layers:
    layer_name_regex_pattern: '.*'
  LogTensorStats:
    enabled: True
    tensors: [activation, weight]
    stats: [{", ".join(SIX)}]
    freq: 1
    start_step: 0
    end_step: -1
"""


def start_peer(folder: Path) -> Any:
    import nvdlfw_inspect.api as debug_api

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "peer.yaml").write_text(CONFIG)
    debug_api.initialize(config_file=str(folder / "peer.yaml"), log_dir=str(folder), default_logging_enabled=True)
    return debug_api


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("peer")


@pytest.fixture(scope="module")
def peer(folder: Path) -> Iterator[Any]:
    api = start_peer(folder)
    yield api
    api.end_debug()


def theirs(peer: Any, tensor: Tensor) -> dict[str, float]:
    found = peer.log_tensor_stats(layer_name="fc", tensor_name="activation", tensor=tensor, skip_reduction=True)
    return {name: value.item() for name, value in found.items()}


def ours(tensor: Tensor) -> dict[str, float | None]:
    summary = summarize(tensor)
    return {name: getattr(summary, field) for name, field in SIX.items()}


def exact(tensor: Tensor) -> dict[str, float]:
    x = tensor.double().numpy().ravel()
    return {
        "min": x.min(), "max": x.max(), "mean": math.fsum(x) / x.size, "std": x.std(ddof=1),
        "l1_norm": math.fsum(np.abs(x)), "l2_norm": math.sqrt(math.fsum(x * x)),
    }  # fmt: skip


def error(found: dict[str, Any], right: dict[str, float], name: str) -> float:
    return abs(found[name] - right[name]) / abs(right[name])


def normal(numel: int, dtype: torch.dtype = torch.float32, std: float = 1.0, mean: float = 0.0) -> Tensor:
    return (torch.randn(numel, generator=torch.Generator().manual_seed(0)) * std + mean).to(dtype)


def test_on_a_small_float32_tensor_both_are_right(peer: Any) -> None:
    x = normal(4096)
    right = exact(x)
    for name in SIX:
        assert theirs(peer, x)[name] == pytest.approx(right[name], rel=1e-5)
        assert ours(x)[name] == pytest.approx(right[name], rel=1e-12)


@pytest.mark.parametrize("mean", [0.0, 1000.0])
def test_float32_norms_of_many_elements_lose_their_digits_and_ours_do_not(peer: Any, mean: float) -> None:
    x = normal(20_000_000, mean=mean)
    x64 = x.double()
    right = {"l1_norm": x64.abs().sum().item(), "l2_norm": x64.square().sum().sqrt().item()}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # each thread has a running sum of its own: many threads lose less
    try:
        found = theirs(peer, x)
    finally:
        torch.set_num_threads(threads)
    # Per mille and per cent, by how wide the processor's vectors are; float32 itself would allow 6e-8.
    assert error(found, right, "l1_norm") > 1e-5
    assert error(found, right, "l2_norm") > 1e-5
    for name in right:
        assert error(ours(x), right, name) < 1e-12


@pytest.mark.parametrize(
    ("dtype", "std", "mean", "off"),
    [
        (torch.bfloat16, 1.0, 0.0, {"mean": 1e-4, "std": 1e-4, "l1_norm": 1e-4, "l2_norm": 1e-4}),
        (torch.bfloat16, 0.01, 3.0, {"std": 1e-3, "l2_norm": 1e-3}),
        (torch.float16, 1e-6, 0.0, {"mean": 0.99, "std": 1e-3, "l2_norm": 1e-4}),
    ],
    ids=["bfloat16", "bfloat16 beside its mean", "float16 gradients"],
)
def test_low_precision_tensors_statistics_are_rounded_to_the_tensors_own_dtype(
    peer: Any, dtype: torch.dtype, std: float, mean: float, off: dict[str, float]
) -> None:
    x = normal(1_000_000, dtype, std, mean)
    right, found = exact(x), theirs(peer, x)
    for name, least in off.items():
        assert torch.tensor(found[name], dtype=dtype).item() == found[name]  # a number of the tensor's own dtype
        assert error(found, right, name) > least
    for name in SIX:
        assert error(ours(x), right, name) < 1e-9


def test_a_norm_beyond_float16_is_inf_although_nothing_is(peer: Any) -> None:
    x = normal(1_000_000, torch.float16, 300.0)
    found, right = theirs(peer, x), exact(x)
    assert torch.isfinite(x).all()
    assert found["l1_norm"] == found["l2_norm"] == math.inf
    assert error(ours(x), right, "l1_norm") < 1e-12
    assert error(ours(x), right, "l2_norm") < 1e-12


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_one_bad_element_takes_their_statistics_and_is_counted_beside_ours(peer: Any, bad: float) -> None:
    x = normal(1000)
    x[3] = bad
    found, rest = theirs(peer, x), exact(x[torch.isfinite(x)])
    lost = set(SIX) if math.isnan(bad) else set(SIX) - {"max"}
    assert {name for name, value in found.items() if not math.isfinite(value)} == lost
    for name in SIX:
        assert ours(x)[name] == pytest.approx(rest[name], rel=1e-9)
    summary = summarize(x)
    assert (summary.num_nan, summary.num_neg_inf) == ((1, 0) if math.isnan(bad) else (0, 1))


def test_both_stds_are_the_samples_and_of_one_element_theirs_is_nan(peer: Any) -> None:
    x = normal(10)
    assert theirs(peer, x)["std"] == pytest.approx(x.double().std(correction=1).item(), rel=1e-5)
    assert ours(x)["std"] == pytest.approx(x.double().std(correction=1).item(), rel=1e-12)
    with pytest.warns(UserWarning, match="degrees of freedom"):
        assert math.isnan(theirs(peer, torch.ones(1))["std"])
    assert ours(torch.ones(1))["std"] is None


def test_an_empty_tensor_ends_their_training_and_has_no_extremum_here(peer: Any) -> None:
    with pytest.raises(RuntimeError, match="numel"):
        theirs(peer, torch.empty(0))
    assert ours(torch.empty(0)) == {"min": None, "max": None, "mean": None, "std": None, "l1_norm": 0.0, "l2_norm": 0.0}


def test_their_log_shows_four_decimals_and_ours_nine_digits(peer: Any, folder: Path) -> None:
    x = normal(1000, std=3e-7)
    found = theirs(peer, x)
    (log,) = (folder / "nvdlfw_inspect_statistics_logs").iterdir()
    assert re.findall(r"fc_activation_std\s+iteration=000000\s+value=(\S+)", log.read_text())[-1] == "0.0000"
    assert found["std"] > 1e-7

    model = nn.Sequential(nn.Linear(1, 1))
    config = {"s": {"enabled": True, "layers": {"layer_name_regex_pattern": "0"}}}
    config["s"]["LogTensorStats"] = {"enabled": True, "tensors": ["activation"], "stats": ["std"]}
    with numscope.watch(model, config=config, on_nonfinite=None, log_dir=str(folder / "ours")) as scope:
        model(x[:, None])
        scope.step()
    text = (folder / "ours" / "debug_statistics_logs" / "globalrank-0.log").read_text()
    (value,) = re.findall(r"0_activation_std\s+iteration=000000\s+value=(\S+)", text)
    assert float(value) == pytest.approx(exact(x)["std"], rel=1e-8)


def on_two_ranks(rank: int, folder: str) -> tuple[dict[str, float], dict[str, float]]:
    """Both tools' statistics of a weight that each rank has a copy of."""
    from torch.nn.parallel import DistributedDataParallel as DDP

    peer = start_peer(Path(folder) / f"rank{rank}")
    torch.manual_seed(0)
    model = nn.Linear(8, 8, bias=False)
    weight = model.weight.detach()
    # Without a group it asks the last rank for all, and the others for nothing.
    found = peer.log_tensor_stats(layer_name="fc", tensor_name="weight", tensor=weight)
    peer.end_debug()
    feature = {"enabled": True, "tensors": ["weight"], "stats": list(SIX)}
    config = {"s": {"enabled": True, "layers": {"layer_name_regex_pattern": ".*"}, "LogTensorStats": feature}}
    ddp = DDP(model)
    with numscope.watch(ddp, config=config, on_nonfinite=None, log_dir=f"{folder}/ours") as scope:
        assert scope._watch.inspector is not None
        ddp(torch.randn(3, 8)).sum().backward()
        torch.optim.SGD(model.parameters(), lr=0.0).step()
        scope._watch.inspector.settle()
        (seen,) = scope._watch.inspector.last
    return {name: value.item() for name, value in found.items()}, dict(seen.values)


def test_a_replicated_weight_counts_as_often_as_there_are_ranks_in_theirs(ranks: RankPool, tmp_path: Path) -> None:
    told = ranks.run(on_two_ranks, str(tmp_path))
    torch.manual_seed(0)
    right = exact(nn.Linear(8, 8, bias=False).weight.detach())
    first, last = (t.value[0] for t in told)
    assert first == {}
    assert last["l1_norm"] == pytest.approx(2 * right["l1_norm"], rel=1e-5)
    assert last["l2_norm"] == pytest.approx(math.sqrt(2) * right["l2_norm"], rel=1e-5)
    assert last["std"] < right["std"] * (1 - 1e-3)  # 64 values as if they were 128
    for name in SIX:
        assert told[0].value[1][name] == pytest.approx(right[name], rel=1e-9)
