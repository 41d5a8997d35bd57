"""The rules that numscope has of its own: names and settings, as configurations know them.

A rule or a check that is added stands here too; this table loads no torch, so that a configuration is checked before a script's first line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class RuleSpec:
    """A rule as configurations see it.

    Args:
        name: in words; users' own rules have names without spaces.
        meaning: what it says, a few words.
        settings: defaults by name; a configuration's value has the default's type.
    """

    name: str
    meaning: str
    settings: Mapping[str, Any] = field(default_factory=dict)


_SPECS = (
    # over the rows of each step
    RuleSpec(
        "overflow ahead", "a tensor's largest magnitude grows towards the end of its dtype's range", {"bits": 5.0, "steps": 50, "most": 1}
    ),
    RuleSpec("divergence ahead", "weights and outputs grow faster than steps of one size make them grow", {"limit": 1.0}),
    RuleSpec("loss spike", "the loss stands above its band", {"band": 8.0}),
    RuleSpec("gradients vanish", "gradients sink through depth", {"bits": 20.0}),
    RuleSpec("gradients explode", "gradients grow by many bits within some steps", {"bits": 10.0}),
    RuleSpec("scale falls", "GradScaler leaves out steps again and again", {"skips": 4}),
    RuleSpec(
        "fp8 out of range",
        "too many elements of an operand underflow or saturate",
        {"underflow_pct": 20.0, "overflow_pct": 1.0},
    ),
    # of the loop and the model's structure
    RuleSpec("parameter without optimizer", "a trainable parameter is in no optimizer"),
    RuleSpec("parameter without gradient", "a trainable parameter gets no gradient"),
    RuleSpec("weight does not move", "a weight is the same after the optimizer's step"),
    RuleSpec("untied weights", "weights that were tied no longer are"),
    RuleSpec("same data on ranks", "ranks see the same batch"),
    RuleSpec("same batch again", "a batch or an epoch's order comes again"),
    RuleSpec("replicas differ", "weights or buffers differ between replicas"),
    RuleSpec("eval mode", "a model trains in evaluation mode"),
    RuleSpec("no grad", "a forward runs without gradients"),
    RuleSpec("gradients not cleared", "gradients add up over steps"),
    RuleSpec("clipped before unscaled", "gradients are clipped while they are scaled"),
    RuleSpec("scheduler order", "the scheduler steps before the optimizer, or not once a step"),
    RuleSpec("constant loss", "the loss does not move, or has no gradient"),
    RuleSpec("updates lost", "updates are below half an ulp of the weights"),
    RuleSpec("dead units", "units never fire"),
)

RULES: Mapping[str, RuleSpec] = {spec.name: spec for spec in _SPECS}
