"""Which GEMMs to keep in high precision, as a configuration's sections and back to a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

WHOLE = ""  # in place of a GEMM: the layer as one, where its GEMMs can't be told apart
SECTION = "high_precision"


def sections(kept: Iterable[tuple[str, str]], taken: Iterable[str] = ()) -> dict[str, Any]:
    """Sections that keep GEMMs in high precision; layers with the same GEMMs share one.

    Args:
        kept: (layer's name, GEMM), in the order in which the layers are to stand.
        taken: names of sections that are there already.

    Returns: sections of our grammar, in Transformer Engine's namespace, with a regex for the layers: other tools read both.
    """
    from numscope.probe.layer_names import free_name
    from numscope.records.layer import GEMMS  # both load torch, which the command line must not do before a script's first line

    by_layer: dict[str, set[str]] = {}
    for layer, gemm in kept:
        by_layer.setdefault(layer, set()).update(GEMMS if gemm == WHOLE else (gemm,))
    by_gemms: dict[tuple[str, ...], list[str]] = {}
    for layer, gemms in by_layer.items():
        by_gemms.setdefault(tuple(gemm for gemm in GEMMS if gemm in gemms), []).append(layer)
    made: dict[str, Any] = {}
    names = set(taken)
    for high, layers in by_gemms.items():
        whole = high == GEMMS
        name = free_name(SECTION if whole else "_".join((SECTION, *high)), names)
        feature = {"disable_fp8_layer": {"enabled": True}} if whole else {"disable_fp8_gemm": {"enabled": True, "gemms": list(high)}}
        made[name] = {"enabled": True, "layers": {"layer_name_regex_pattern": pattern_of(layers)}, "transformer_engine": feature}
    return made


def pattern_of(layers: Sequence[str]) -> str:
    """A regex that is found in these layers' names and in no other layer's."""
    names = [re.sub(r"\\(?=[-_ ])", "", re.escape(layer)) for layer in layers]
    return f"^{names[0]}$" if len(names) == 1 else f"^({'|'.join(names)})$"


def text_of(tree: Mapping[str, Any], head: Sequence[str] = ()) -> str:
    """A configuration as YAML, with a comment at its head, a line each."""
    import yaml

    body = str(yaml.safe_dump(dict(tree), sort_keys=False, allow_unicode=True, width=10_000)) if tree else "{}\n"
    lines = (part for line in head for part in (line.splitlines() or [""]))  # a file's name may hold line ends
    return "".join(f"# {line}".rstrip() + "\n" for line in lines) + body
