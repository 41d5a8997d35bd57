"""Gradients of one backward, and attention probabilities, against NumPy in float64."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import numscope
from numscope.probe.walk import attention_in
from numscope.summary.attention import attention_cells
from tests.inspect.test_inspector import Kept, Net, by_tensor, config, num_hooks, train


@pytest.fixture(autouse=True)
def _seed() -> Iterator[None]:
    torch.manual_seed(0)
    yield


def exact(tensor: Tensor) -> np.ndarray:
    return tensor.detach().double().numpy().copy()


def watched(model: nn.Module, what: dict[str, Any], **options: Any) -> Any:
    return numscope.watch(model, config=what, **{"on_nonfinite": None, "loggers": [Kept()], **options})


# ---- gradients of one backward


def test_local_wgrad_is_that_of_each_backward_before_it_is_added() -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    alone = []
    with watched(net, config("fc", ["local_wgrad", "wgrad"], ["max", "l2_norm", "mean"])) as scope:
        for _ in range(2):
            optimizer.zero_grad()
            total, alone = 0.0, []
            for _ in range(3):
                net(torch.randn(4, 6)).square().mean().backward()
                now = exact(net.fc1.weight.grad)  # type: ignore[arg-type]
                alone.append(now - total)
                total = now
            optimizer.step()
            seen = by_tensor(scope._watch.inspector.last)
            found, parts = seen["fc1", "local_wgrad"], np.stack(alone)
            assert (found.calls, found.fields["numel"], set(seen)) == (
                3,
                144,
                {(a, b) for a in ("fc1", "fc2") for b in ("local_wgrad", "wgrad")},
            )
            expected = {"max": parts.max(), "l2_norm": np.linalg.norm(parts.ravel()), "mean": parts.mean()}
            assert found.values == pytest.approx(expected, rel=1e-5, abs=1e-8)
    assert num_hooks(net) == 0 and not net.fc1.weight._backward_hooks


def test_local_wgrad_of_a_tied_weight_is_the_whole_gradient() -> None:
    net = Net(8)
    net.fc2.weight = net.fc1.weight
    with watched(net, config("fc", ["local_wgrad", "wgrad"], ["kurtosis"])) as scope:
        train(net, torch.optim.SGD(net.parameters(), lr=0.1), 2, width=8)
    seen = by_tensor(scope._watch.inspector.last)
    assert seen["fc1", "local_wgrad"].fields == seen["fc1", "wgrad"].fields == seen["fc2", "local_wgrad"].fields


def test_what_no_backward_reaches_is_said_once(caplog: Any) -> None:
    net = Net()
    net.fc1.weight.requires_grad_(False)
    with watched(net, config("fc", ["local_wgrad", "attention"], ["max"])) as scope:
        train(net, torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1), 3)
    assert {(o.layer, o.tensor) for o in scope._watch.inspector.last} == {("fc2", "local_wgrad")}
    assert caplog.text.count("no local_wgrad of fc1: autograd gave these weights none") == 1
    assert caplog.text.count("no attention of fc1, fc2: these modules return no probabilities") == 1


def test_a_placeholder_of_a_fused_kernel_is_not_taken_for_a_gradient(caplog: Any) -> None:
    net = Net()
    net.fc1.weight.grad_added_to_main_grad = True  # type: ignore[attr-defined]
    with watched(net, config("fc1", ["local_wgrad"], ["max"])) as scope:
        train(net, torch.optim.SGD(net.parameters(), lr=0.1), 2)
    assert scope._watch.inspector.last == [] and caplog.text.count("no local_wgrad of fc1") == 1


def test_off_schedule_nothing_is_hooked_and_a_dropped_model_is_collected() -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    watched(net, config("fc", ["local_wgrad", "attention"], ["max"], freq=2))
    for step in range(4):
        assert (num_hooks(net) > 0) == bool(net.fc1.weight._backward_hooks) == (step % 2 == 0)
        train(net, optimizer, 1)
    reference = weakref.ref(net)
    del net, optimizer
    gc.collect()
    assert reference() is None


# ---- attention


def entropy(rows: np.ndarray) -> tuple[float, float]:
    """The mean over rows, and the largest probability."""
    rows = rows.reshape(-1, rows.shape[-1])
    rows = rows / rows.sum(-1, keepdims=True)
    logs = np.log(rows, where=rows > 0, out=np.zeros_like(rows))
    return float(-(rows * logs).sum(-1).mean()), float(rows.max())


def value(tensor: Tensor) -> tuple[float, float]:
    rows, total, largest = attention_cells(tensor).tolist()
    return total / rows, largest


def test_entropy_is_numpys() -> None:
    for scale in (0.01, 1.0, 30.0):
        probabilities = (torch.randn(2, 3, 5, 7, dtype=torch.float64) * scale).softmax(-1)
        assert value(probabilities) == pytest.approx(entropy(exact(probabilities)), rel=1e-12)
        for dtype in (torch.float32, torch.bfloat16):
            low = probabilities.to(dtype)
            assert value(low) == pytest.approx(entropy(exact(low)), rel=1e-12)
    assert value(torch.full((3, 8), 1 / 8)) == pytest.approx((np.log(8), 1 / 8), rel=1e-12)
    assert value(torch.eye(4)) == (0.0, 1.0)


def test_rows_that_dropout_has_thinned_count_by_what_is_left_and_others_do_not() -> None:
    thinned = nn.functional.dropout(torch.randn(6, 9, dtype=torch.float64).softmax(-1), 0.4)
    assert value(thinned) == pytest.approx(entropy(exact(thinned)), rel=1e-12)
    nan, inf = float("nan"), float("inf")
    bad = torch.tensor([[0.5, 0.5], [0.0, 0.0], [-0.1, 1.1], [nan, 1.0], [inf, 0.0], [0.0, 2.0]])
    assert attention_cells(bad).tolist() == pytest.approx([2.0, np.log(2), 1.0])
    assert attention_cells(torch.empty(0, 4)).tolist() == [0.0, 0.0, 0.0]


class Attending(nn.Module):
    def __init__(self, **more: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.softmax = nn.Softmax(-1)
        self.more = more
        self.kept: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        out, weights = self.attention(x, x, x, **self.more)
        if weights is not None:
            self.kept.append(weights.detach())
        return self.softmax(out)


@pytest.mark.parametrize("heads", [True, False])
def test_multihead_attention_that_gives_its_weights(heads: bool) -> None:
    net = Attending(average_attn_weights=heads)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    what = config("attention$|softmax", ["attention"], ["attention_entropy", "attention_max", "max"], containers=True)
    what["section"]["layers"] = {"layer_names": ["attention", "softmax"], "containers": True}
    del what["section"]["statistics"]["containers"]
    with watched(net, what) as scope:
        for _ in range(2):
            net(torch.randn(3, 5, 8)).square().mean().backward()
        optimizer.step()
    found = by_tensor(scope._watch.inspector.last)
    mean, largest = entropy(np.stack([exact(weights) for weights in net.kept]))
    expected = {"attention_entropy": mean, "attention_max": largest, "max": max(float(w.max()) for w in net.kept)}
    assert found["attention", "attention"].values == pytest.approx(expected, rel=1e-6)
    assert 0 < found["softmax", "attention"].values["attention_entropy"] < np.log(8)


def test_attention_without_weights_is_said_once(caplog: Any) -> None:
    net = Attending(need_weights=False)
    with watched(net, config("attention$", ["attention"], ["attention_entropy"])):
        for _ in range(3):
            net(torch.randn(3, 5, 8)).square().mean().backward()
            torch.optim.SGD(net.parameters(), lr=0.1).step()
    assert caplog.text.count("no attention of attention: these modules return no probabilities") == 1


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_transformers_attention(implementation: str, caplog: Any) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=20, attn_implementation=implementation, **sizes))
    what = config("self_attn$", ["attention"], ["attention_entropy", "attention_max"])
    what["section"]["layers"]["containers"] = True
    tokens = torch.arange(12).reshape(2, 6)
    with watched(model, what) as scope:
        out = model(tokens, labels=tokens, output_attentions=implementation == "eager")
        out.loss.backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
    found = {o.layer: o.values for o in scope._watch.inspector.last}
    if implementation == "sdpa":
        assert found == {} and "no attention of model.layers.0.self_attn, model.layers.1.self_attn" in caplog.text
        return
    for number, weights in enumerate(out.attentions):
        mean, largest = entropy(exact(weights))
        expected = {"attention_entropy": mean, "attention_max": largest}
        assert found[f"model.layers.{number}.self_attn"] == pytest.approx(expected, rel=1e-6)


def test_a_cache_or_a_hidden_state_is_no_attention() -> None:
    module, out, weights = nn.Identity(), torch.rand(2, 5, 8), torch.rand(2, 4, 5, 5)
    cache = (torch.rand(2, 4, 5, 3),) * 2
    assert attention_in(module, (out, weights)) is attention_in(module, (out, weights, cache)) is weights
    assert attention_in(module, {"hidden": out, "attention": weights}) is weights
    for other in (out, (out,), (out, None, cache), (out, None), (out, torch.rand(2, 7, 8)), (out, torch.ones(5, 5).long()), None):
        assert attention_in(module, other) is None


@pytest.mark.parametrize("detect", [True, False])
def test_the_training_is_bitwise_as_it_is_without(detect: bool) -> None:
    def run(is_watched: bool) -> list[Tensor]:
        torch.manual_seed(0)
        net = Attending()
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        scope = (
            watched(net, config(".", ["local_wgrad", "attention"], ["mean"]), **({} if not detect else {"on_nonfinite": "raise"}))
            if is_watched
            else None
        )
        for _ in range(3):
            for _ in range(2):
                net(torch.randn(3, 5, 8)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        if scope is not None:
            assert {o.tensor for o in scope._watch.inspector.last} >= {"local_wgrad", "attention"} and not scope._watch.inspector.fault
            scope.close()
        return [*map(Tensor.detach, net.parameters()), torch.rand(())]

    assert all(map(torch.equal, run(False), run(True)))
