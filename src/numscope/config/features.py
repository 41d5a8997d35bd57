"""The features that a configuration can enable, in one table: their names, their settings, and what they act on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_SAMPLE = {"std": "sample_std"}  # other tools divide by n - 1
_CASTS = {"underflows": "underflows_pct", "overflows": "overflows_pct", "underflows%": "underflows_pct", "overflows%": "overflows_pct"}


@dataclass(frozen=True, slots=True)
class FeatureSpec:
    name: str  # canonical
    part: str  # the class in ``schema`` that checks its settings
    others: tuple[str, ...]  # its names in other tools
    stats: Mapping[str, str] = field(default_factory=dict)  # their words for statistics → canonical ones
    family: str = ""  # the casts that its statistics describe, as ``How.family`` names them; "" for other features
    changes_plans: bool = False  # it changes how layers' GEMMs are computed
    disables: bool = False  # it keeps GEMMs in high precision; several such add up whatever their schedules
    anywhere: bool = False  # it also acts on layers in high precision


_TABLE = (
    FeatureSpec("statistics", "Statistics", ("collect_tensor_stats", "LogTensorStats"), _SAMPLE, anywhere=True),
    FeatureSpec("collect_fp8_tensor_stats", "Fp8Statistics", ("LogFp8TensorStats",), _CASTS, family="fp8"),
    FeatureSpec("collect_nvfp4_tensor_stats", "Fp8Statistics", ("LogNvfp4TensorStats",), _CASTS, family="nvfp4"),
    FeatureSpec("disable_fp8_gemm", "DisableGemm", ("DisableFP8GEMM", "DisableQuantizationGEMM"), changes_plans=True, disables=True),
    FeatureSpec("disable_fp8_layer", "DisableLayer", ("DisableFP8Layer", "DisableQuantizationLayer"), changes_plans=True, disables=True),
    FeatureSpec("per_tensor_scaling", "PerTensorScaling", ("PerTensorScaling",), changes_plans=True),
    FeatureSpec("fake_quant", "FakeQuant", ("FakeQuant",), changes_plans=True, anywhere=True),
    FeatureSpec("dump_tensors", "DumpTensors", ("DumpTensors",), anywhere=True),
)
FEATURES: Mapping[str, FeatureSpec] = {spec.name: spec for spec in _TABLE}
PLAN_SWITCHES = tuple(spec.name for spec in _TABLE if spec.changes_plans)
FAMILIES = {spec.name: spec.family for spec in _TABLE if spec.family}


@dataclass(frozen=True)
class Alias:
    """The meaning of a feature's name as written."""

    feature: str  # canonical name; a plug-in's own
    # canonical key → this dialect's word for it, which messages use; either is read
    words: Mapping[str, str] = field(default_factory=dict)
    stats: Mapping[str, str] = field(default_factory=dict)  # this dialect's words for statistics → canonical ones


def _alias(spec: FeatureSpec, name: str) -> Alias:
    words = {"stats": "type"} if name.startswith("collect_") else {}  # as in the debug tool
    return Alias(spec.name, words, {} if name == "statistics" else spec.stats)


# First each feature under our own name, then other names for it.
ALIASES = {spec.name: _alias(spec, spec.name) for spec in _TABLE}
ALIASES |= {name: _alias(spec, name) for spec in _TABLE for name in spec.others}
