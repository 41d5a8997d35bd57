"""The table that configurations are checked by says what there is."""

from __future__ import annotations

import inspect

from numscope.alerts.checks.checker import CHECKS
from numscope.alerts.engine import EACH_STEP, EACH_TICK, SCALE_FALLS
from numscope.config.rule_table import RULES
from numscope.detect.across_ranks import RANKS_DIFFER
from numscope.detect.eager import MISCOMPILED
from numscope.detect.experiments import HARDWARE, NOT_THE_SAME, WRONG_GRADIENT
from numscope.detect.float64 import LOST, WRONG_RESULT
from numscope.detect.low_precision import ROUNDING
from numscope.inspect.rules import FP8


def test_every_rule_and_no_other_is_in_the_table() -> None:
    checks = [name for check in CHECKS for name in (check.name, *check.also)]
    others = (
        FP8,
        SCALE_FALLS,
        "dead gradients",
        NOT_THE_SAME,
        HARDWARE,
        WRONG_GRADIENT,
        WRONG_RESULT,
        LOST,
        MISCOMPILED,
        RANKS_DIFFER,
        ROUNDING,
    )
    assert sorted([*EACH_STEP, *EACH_TICK, *others, *checks]) == sorted(RULES)


def test_settings_of_a_check_are_its_arguments_with_their_defaults() -> None:
    for check in CHECKS:
        arguments = list(inspect.signature(check.__init__).parameters.values())[2:]
        assert {one.name: one.default for one in arguments} == dict(RULES[check.name].settings), check.name
        for name in check.also:
            assert not RULES[name].settings, f"{name}: its settings are {check.name}'s"
