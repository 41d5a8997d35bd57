from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import numscope
from numscope.config.rule_table import RULES
from numscope.inspect.rules import OutOfRange
from numscope.records.alert import Alert
from numscope.records.observation import Observation

SETTINGS = RULES["fp8 out of range"].settings


def read(rule: OutOfRange, step: int, **extras: float) -> list[Alert]:
    seen = Observation(step, "fc", "Linear", "activation", "float32", 0, 0, 1, 1, {"numel": 1000}, extras)
    return [*rule.read(seen, SETTINGS)]


def test_two_scheduled_steps_in_a_row_beyond_a_bound() -> None:
    rule = OutOfRange()
    assert read(rule, 0, e4m3_num_underflow=300) == []
    (alert,) = read(rule, 10, e4m3_num_underflow=300)
    assert (alert.step, alert.layer, alert.tensor, alert.value, alert.limit) == (10, "fc", "activation", 30.0, 20.0)
    assert read(rule, 20, e4m3_num_underflow=3) == []
    assert read(rule, 30, e4m3_num_underflow=300) == []


def test_a_gemms_cast_has_a_number_of_elements_of_its_own() -> None:
    rule = OutOfRange()
    columns = {"operand_numel": 100.0, "operand_num_overflow": 5.0, "operand_num_underflow": 0.0}
    read(rule, 0, **columns)
    (alert,) = read(rule, 1, **columns)
    assert alert.value == 5.0
    assert "stale" in alert.text


@pytest.mark.parametrize("columns", [{"fp16_num_underflow": 900.0}, {"e4m3_num_underflow": 0.0}, {"v_num_underflow_not": 900.0}])
def test_what_is_no_fp8_or_within_bounds_is_silent(columns: dict[str, float]) -> None:
    rule = OutOfRange()
    assert read(rule, 0, **columns) == read(rule, 1, **columns) == []


CONFIG: dict[str, Any] = {
    "casts": {
        "enabled": True,
        "layers": {"layer_name_regex_pattern": ".*"},
        "statistics": {"enabled": True, "stats": ["e4m3_underflows_pct"], "tensors": ["activation"], "freq": 1},
    }
}


def test_an_activation_with_an_outlier_beside_small_elements(tmp_path: Any) -> None:
    model = nn.Sequential(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with numscope.watch(model, config=CONFIG, log_dir=tmp_path) as scope:
        for _ in range(4):
            optimizer.zero_grad()
            x = 1e-9 * torch.rand(4, 8)
            x[0, 0] = 1.0  # its scale leaves nothing of the others
            (model(x).sum() - 1).square().backward()
            optimizer.step()
    told = [alert for alert in scope.alerts if alert.rule == "fp8 out of range"]
    assert [(alert.step, alert.layer, alert.tensor) for alert in told] == [(1, "0", "activation")]
