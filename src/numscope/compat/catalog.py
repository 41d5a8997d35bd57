"""What a configuration may enable, in words: ``list_features`` and ``explain_features``."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING

from numscope.config.dialects import FEATURES
from numscope.config.loading import PARTS
from numscope.config.schema import Plugged
from numscope.plugins.registry import CustomFeature
from numscope.records.checks import check_one_of

if TYPE_CHECKING:
    from numscope.compat.debug_session import Session


def feature_names(session: Session | None) -> list[str]:
    """Names that a configuration may use, under all the names of a feature, plug-ins' last."""
    return [*FEATURES, *_customs(session)]


def explained(features: str | Sequence[str] | None, session: Session | None) -> str:
    """What features do and which keys they take, a paragraph each.

    Args:
        features: a name, several, or ``all``; None: a sentence that says so.

    Raises: UsageError of a name that no feature has.
    """
    known = feature_names(session)
    if features is None:
        return f'Name a feature, several, or "all": {", ".join(known)}.'
    names = known if features == "all" else [features] if isinstance(features, str) else list(features)
    for name in names:
        check_one_of("explain_features", name, known)
    customs = _customs(session)
    return "\n\n".join(_of_custom(customs[name]) if name in customs else _of_own(name) for name in names)


def _customs(session: Session | None) -> dict[str, CustomFeature]:
    return session.recorder.plugins.customs if session is not None and session.recorder is not None else {}


def _of_own(name: str) -> str:
    alias = FEATURES[name]
    part = PARTS[alias.feature]
    first = (inspect.getdoc(part) or "").partition("\n")[0]
    lines = [f"{name}: {first}"]
    for key, field in part.model_fields.items():
        default = "must be given" if field.is_required() else f"may be left out: {field.default}"
        lines.append(f"  {alias.words.get(key, key)}: {field.description} ({default})")
    return "\n".join(lines)


def _of_custom(custom: CustomFeature) -> str:
    lines = [f"{custom.name}: {custom.summary or 'a feature'} ({custom.place})", f"  tensors: some of {', '.join(custom.tensors)}"]
    for key, setting in custom.settings.items():
        default = "must be given" if setting.required else f"may be left out: {setting.default}"
        lines.append(f"  {key}: {setting.type.__name__} ({default})")
    schedule = (key for key in Plugged.model_fields if key != "tensors")
    lines.append(f"  {', '.join(schedule)}")
    return "\n".join(lines)
