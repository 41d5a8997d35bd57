"""Keras's real fit, evaluate and predict with torch as its backend, on CPU."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy
import pytest
from torch.optim import optimizer as torch_optimizer

os.environ["KERAS_BACKEND"] = "torch"  # read while Keras is imported; no other test imports it
keras = pytest.importorskip("keras")

from numscope.config.options import WatchOptions  # noqa: E402
from numscope.integrations.keras import NumscopeCallback  # noqa: E402
from numscope.records.errors import NonFiniteError, UsageError  # noqa: E402
from numscope.scope.autowatch import AutoWatch  # noqa: E402
from tests.integrations.page import run_lines  # noqa: E402


class Shifted(keras.layers.Layer):
    """The logarithm of its input less a shift."""

    shift = 0.0

    def call(self, x: Any) -> Any:
        return keras.ops.log(x - self.shift)  # HERE


class Block(keras.layers.Layer):
    """Layers in an attribute and in a list."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.first = keras.layers.Dense(8, name="up", activation="sigmoid")
        self.others = [Shifted(name="log"), keras.layers.Dropout(0.1)]

    def call(self, x: Any) -> Any:
        x = self.first(x)
        for layer in self.others:
            x = layer(x)
        return x


APPLY = keras.optimizers.Optimizer.apply
LINE = next(number for number, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.endswith("# HERE"))
X = numpy.random.default_rng(0).random((32, 4)).astype("float32")
Y = X.sum(1, keepdims=True)
CALM: dict[str, Any] = {"verbose": 0, "batch_size": 8, "shuffle": False}


def made(shape: str = "functional", optimizer: Any = None) -> Any:
    keras.utils.set_random_seed(0)
    if shape == "functional":
        inputs = keras.Input((4,))
        model = keras.Model(inputs, keras.layers.Dense(1, name="head")(Block(name="block")(inputs)))
    else:
        model = keras.Sequential([Block(name="block"), keras.layers.Dense(1, name="head")])
    model.compile(optimizer=optimizer or keras.optimizers.Adam(0.01), loss="mse")
    return model


def hooks(model: Any) -> int:
    modules = {*model.modules(), *model._flatten_layers()}
    return sum(len(v) for m in modules for k, v in vars(m).items() if k.endswith("_hooks") and isinstance(v, dict))


@pytest.mark.parametrize("shape", ["functional", "sequential"])
def test_healthy_fit_is_bitwise_the_same_and_saves_the_same(tmp_path, shape):
    weights, histories = [], []
    for callbacks in ([], [NumscopeCallback(alerts="raise")]):
        model = made(shape)
        histories.append(model.fit(X, Y, epochs=2, validation_data=(X, Y), callbacks=callbacks, **CALM).history)
        model.save(tmp_path / "model.keras")
        weights.append(keras.models.load_model(tmp_path / "model.keras", {"Block": Block, "Shifted": Shifted}).get_weights())
        assert hooks(model) == 0
    (callback,) = callbacks
    assert histories[0] == histories[1]
    assert all(numpy.array_equal(a, b) for a, b in zip(*weights, strict=True))
    assert (callback.scope.closed, callback.scope.num_steps, callback.findings, callback.alerts) == (True, 8, [], [])
    assert not torch_optimizer._global_optimizer_pre_hooks and keras.optimizers.Optimizer.apply is APPLY


@pytest.mark.parametrize("shape", ["functional", "sequential"])
def test_nan_stops_fit_at_its_line_with_kerass_names(shape, monkeypatch):
    model, callback = made(shape), NumscopeCallback()
    monkeypatch.setattr(Shifted, "shift", 1.0)
    with callback, pytest.raises(NonFiniteError) as error:
        model.fit(X, Y, callbacks=[callback], **CALM)
    finding = error.value.finding
    assert (finding.site.module, finding.culprit.op, finding.culprit.module) == ("block.log", "aten.log", "block.log")
    assert (finding.culprit.file, finding.culprit.line) == (__file__, LINE)
    assert hooks(model) == 0 and all(numpy.isfinite(weight).all() for weight in model.get_weights())


def test_gradient_that_overflows_is_found_before_the_optimizer_steps():
    class Steep(keras.losses.Loss):
        def call(self, y_true: Any, y_pred: Any) -> Any:
            return keras.ops.sqrt(keras.ops.abs(y_pred - y_pred))  # its value is 0, its slope infinite

    model = made()
    model.compile(optimizer="sgd", loss=Steep())
    before = [w.copy() for w in model.get_weights()]
    with NumscopeCallback() as callback, pytest.raises(NonFiniteError) as error:
        model.fit(X, Y, callbacks=[callback], **CALM)
    assert "sqrt" in error.value.finding.culprit.op and error.value.finding.phase == "backward"
    assert all(numpy.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True))


def test_loss_scaling_that_leaves_steps_out_is_no_finding_until_it_does_so_forever():
    model, callback = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]), NumscopeCallback()
    model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1e-6), initial_scale=2.0**124), "mse")
    steep = X * 100
    model.fit(steep, model.predict(steep, verbose=0) + 1, epochs=3, callbacks=[callback], **CALM)  # gradients: some 200 times the loss
    assert [step for step, _ in callback.scope.events] == [0, 1, 2, 3] and (callback.scope.num_steps, callback.findings) == (12, [])


def test_steps_that_only_accumulate_are_none_that_loss_scaling_left_out():
    model, callback = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]), NumscopeCallback()
    model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1e-3, gradient_accumulation_steps=2)), "mse")
    model.fit(X, Y, epochs=3, callbacks=[callback], **CALM)
    assert (callback.scope.events, callback.scope.num_steps, callback.alerts) == ([], 12, [])


def test_model_that_keras_compiles_is_left_alone_and_that_is_said(caplog):
    model, callback = made(), NumscopeCallback()
    model.compile(optimizer="sgd", loss="mse", jit_compile=True)
    callback.set_model(model)
    for begin, end in ((callback.on_train_begin, callback.on_train_end), (callback.on_test_begin, callback.on_test_end)):
        begin()
        assert callback.scope is None and hooks(model) == 0
        end()
    assert caplog.text.count("is not watched: Keras compiles its whole step") == 2


def test_optimizer_that_makes_a_bad_weight_is_named():
    model, callback = made(optimizer=keras.optimizers.SGD(1e38, momentum=0.9)), NumscopeCallback()
    with callback, pytest.raises(NonFiniteError) as error:
        model.fit(X, Y * 1e3, epochs=3, callbacks=[callback], **CALM)
    assert error.value.finding.culprit is not None


def test_evaluate_and_predict_alone_are_watched(monkeypatch):
    model, callback = made(), NumscopeCallback(on_nonfinite="warn")
    monkeypatch.setattr(Shifted, "shift", 1.0)
    for call in (lambda: model.evaluate(X, Y, verbose=0, callbacks=[callback]), lambda: model.predict(X, verbose=0, callbacks=[callback])):
        call()
        assert callback.scope.closed and not callback.findings and hooks(model) == 0  # nothing trains
        assert callback.scope._watch.without_gradients[0].culprit.line == LINE


def test_callback_of_a_fit_that_failed_watches_the_next_evaluation(monkeypatch):
    model, callback = made(), NumscopeCallback()
    monkeypatch.setattr(Shifted, "shift", 1.0)
    for closes in (False, True):
        with pytest.raises(NonFiniteError):
            model.fit(X, Y, callbacks=[callback], **CALM)
        if closes:
            callback.close()
        failed = callback.scope
        monkeypatch.setattr(Shifted, "shift", -1.0)
        model.evaluate(X, Y, verbose=0, callbacks=[callback])
        assert failed.closed and callback.scope is not failed and callback.scope.closed and not callback.findings
        monkeypatch.setattr(Shifted, "shift", 1.0)


def test_script_without_a_callback_is_watched_as_one_model(monkeypatch):
    monkeypatch.setattr(Shifted, "shift", 1.0)
    with AutoWatch(WatchOptions(on_nonfinite="warn")) as watch:
        made("sequential").fit(X, Y, **CALM)
    seen = watch.coverage.watched()
    assert (seen.models, seen.steps) == (["Sequential"], 4) and f"{Path(__file__).name}:{LINE}" in seen.findings[0]


def test_statistics_know_kerass_layers(tmp_path):
    feature = {"enabled": True, "stats": ["max"], "tensors": ["weight", "wgrad", "output"]}
    config = {"section": {"enabled": True, "layers": {"layer_names": ["block.up"]}, "statistics": feature}}
    callback = NumscopeCallback(config=config, log_dir=tmp_path)
    made("sequential").fit(X, Y, callbacks=[callback], **CALM)
    (log,) = tmp_path.glob("*statistics_logs/*.log")
    assert all(name in log.read_text() for name in ("block.up_weight[kernel]_max", "block.up_wgrad[kernel]_max", "block.up_output_max"))


def test_lines_of_the_page_are_all_it_takes(monkeypatch):
    monkeypatch.setattr(Shifted, "shift", 1.0)
    with pytest.raises(NonFiniteError):
        run_lines("Keras on torch", model=made(), x=X, y=Y)


def test_wrong_option_is_refused_at_once():
    with pytest.raises(UsageError, match=r"Did you mean 'frames'"):
        NumscopeCallback(frame=3)
