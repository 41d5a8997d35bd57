"""GEMMs to keep in high precision, as sections of a configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from numscope.records.layer import GEMMS

WHOLE = ""  # instead of a GEMM's name: the whole layer, where its GEMMs can't be switched one by one
SECTION = "high_precision"


def sections(kept: Iterable[tuple[str, str]], taken: Iterable[str] = ()) -> dict[str, Any]:
    """Sections of a configuration that keep GEMMs, (layer's name, GEMM), in high precision; layers with the same GEMMs share one.

    They are in Transformer Engine's namespace, with a regular expression for the layers, so that other tools read them too.

    Args:
        taken: names of existing sections.
    """
    from numscope.probe.naming import free_name  # loads torch, which the command line must not do before a script's first line

    by_layer: dict[str, set[str]] = {}
    for layer, gemm in kept:
        by_layer.setdefault(layer, set()).update(GEMMS if gemm == WHOLE else (gemm,))
    by_gemms: dict[tuple[str, ...], list[str]] = {}
    for layer, gemms in by_layer.items():
        by_gemms.setdefault(tuple(gemm for gemm in GEMMS if gemm in gemms), []).append(layer)
    names, made = set(taken), dict[str, Any]()
    for high, layers in by_gemms.items():
        whole = high == GEMMS
        name = free_name(SECTION if whole else "_".join((SECTION, *high)), names | made.keys())
        feature = {"disable_fp8_layer": {"enabled": True}} if whole else {"disable_fp8_gemm": {"enabled": True, "gemms": list(high)}}
        made[name] = section(pattern_of(layers), feature)
    return made


def section(pattern: str, feature: Mapping[str, Any]) -> dict[str, Any]:
    """A section with one feature in Transformer Engine's namespace, for the layers whose names match."""
    return {"enabled": True, "layers": {"layer_name_regex_pattern": pattern}, "transformer_engine": feature}


def pattern_of(layers: Sequence[str]) -> str:
    """A regular expression that matches the names of these layers and no others."""
    names = [re.sub(r"\\(?=[-_ ])", "", re.escape(layer)) for layer in layers]
    return f"^{names[0]}$" if len(names) == 1 else f"^({'|'.join(names)})$"


def text_of(tree: Mapping[str, Any], head: Sequence[str] = ()) -> str:
    """A configuration as YAML, below the lines of ``head`` as comments."""
    import yaml

    body = str(yaml.safe_dump(dict(tree), sort_keys=False, allow_unicode=True, width=10_000)) if tree else "{}\n"
    lines = (part for line in head for part in (line.splitlines() or [""]))  # a file's name may hold line ends
    return "".join(f"# {line}".rstrip() + "\n" for line in lines) + body
