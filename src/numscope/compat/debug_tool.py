"""``debug_tool.api`` by its own names: ``import numscope.compat.debug_tool as debug_api`` is all that a script changes."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Collection, Sequence
from typing import Any

from torch import Tensor, nn

from numscope.compat import debug_session as sessions
from numscope.compat.debug_session import Config, Scalar
from numscope.config.features import ALIASES, FEATURES
from numscope.config.schema import Plugged, part_of
from numscope.plugins.custom_parts import CustomFeature
from numscope.records.checks import check_one_of

EXTENSIONS = ("transformer_engine",)


def initialize_debug(
    config: Config = None,
    extensions: Collection[str] | None = None,
    log_dir: str | os.PathLike[str] = ".",
    tb_writer: Any = None,
    disable_default_logging: bool = False,
    *,
    loggers: Sequence[Any] = (),
    features: str | Sequence[str] = (),
    init_training_step: int = 0,
) -> None:
    """Begin: models are watched from their first call on, whether they are built before or after this.

    Args:
        config: a YAML file's path, or the same as a dict; None or "": nothing is watched, the run is the bare one.
        extensions: namespaces that a configuration may use; all are always there.
        log_dir: folder for ``debug_logs``, ``debug_statistics_logs`` and the run's files.
        tb_writer, loggers: TensorBoard's writer, on the ranks that have one; objects with ``log_scalar(name, value, iteration)``.
        disable_default_logging: no text log of statistics.
        features: files and folders with statistics, features, loggers and rules of the user's own.

    Raises: UsageError for anything wrong in the configuration, and a second call; at the first step, where a section selects no layer.

    *Cost:* on scheduled steps one pass over each selected tensor, else the bare model.
    """
    if isinstance(extensions, str):
        extensions = (extensions,)
    for place, extension in enumerate(extensions or ()):
        check_one_of(f"extensions[{place}]", extension, EXTENSIONS)
    sessions.begin(
        "initialize_debug",
        config,
        log_dir=log_dir,
        tb_writer=tb_writer,
        default_logging=not disable_default_logging,
        loggers=loggers,
        features=features,
        first_step=init_training_step,
    )


def step() -> None:
    """A training step is over. From its first call on it alone counts steps; without it the optimizers' own steps do.

    Nothing where nothing was begun, so that scripts need not ask.
    """
    session = sessions.at_work()
    if session is not None:
        session.step()


def end_debug() -> None:
    """Write the current step, remove all hooks, close the logs. Does nothing before ``initialize_debug``."""
    sessions.end()


def initialize_training_step(train_step: int) -> None:
    """Set the number of the current step, for a run that resumes from a checkpoint. Does nothing before ``initialize_debug``."""
    session = sessions.at_work()
    if session is not None:
        session.begin_at(train_step)


def log_message(msg: str, layer_name: str | None = None, level: int = logging.INFO, extra_cachable_args: object = None) -> None:
    """Write a line to the debug log, the same one only once a layer.

    Args:
        level: of Python's logging; from WARNING on it also reaches stderr.
        extra_cachable_args: ignored: each different text is written.

    Raises: UsageError before ``initialize_debug``.
    """
    sessions.needed("log_message").say(msg, layer_name, level)


def log_tensor_stats(
    layer_name: str,
    tensor_name: str,
    tensor: Tensor,
    skip_reduction: bool = False,
    reduction_group: Any = None,
    iteration: int | None = None,
) -> dict[str, Scalar]:
    """Statistics of a tensor that the script hands in, as the configuration asks for a layer and a tensor of these names.

    Args:
        layer_name: matched by ``layers``.
        tensor_name: one of those under ``tensors``.
        tensor: of any shape.
        skip_reduction: this rank's alone. Else all ranks of the group must call; the lowest one writes the lines.
        reduction_group: process group to merge over, instead of the one set by ``set_tensor_reduction_group``, instead of all ranks.
        iteration: the step that it belongs to, instead of the current one.

    Returns: the statistics by the names that the configuration uses; empty off the schedule, or if none are configured. Each is a
        float that also does what a tensor of one element does: ``.item()``, ``torch.allclose(it, tensor)``.

    Raises: UsageError.

    *Cost:* one pass over the tensor, one sync on a device, one collective over a group.
    """
    session = sessions.needed("log_tensor_stats")
    return session.log_tensor(layer_name, tensor_name, tensor, skip_reduction=skip_reduction, group=reduction_group, iteration=iteration)


def set_tensor_reduction_group(group: Any, layer_name: str | None = None) -> None:
    """Merge statistics, of one layer or of all, over this process group instead of those of the model's own wrappers.

    Raises: UsageError before ``initialize_debug``.
    """
    sessions.needed("set_tensor_reduction_group").set_group(group, layer_name)


def get_tensor_reduction_group(layer_name: str | None = None) -> Any:
    """The process group that was set, for a layer or for all; None where none was. Raises: UsageError before ``initialize_debug``."""
    return sessions.needed("get_tensor_reduction_group").group(layer_name)


def infer_and_assign_layer_names(model: nn.Module | Sequence[Any]) -> None:
    """Give each module of a model, or of a list of them, its qualified name, ``model`` before it; names that modules have stay.

    Raises: UsageError before ``initialize_debug``, or for something other than a model.
    """
    sessions.needed("infer_and_assign_layer_names").assign_names(model)


def list_features() -> list[str]:
    """Print and return the names of the features that a configuration may enable: under all names of a feature, plug-ins' last."""
    names = _feature_names()
    print(names)
    return names


def explain_features(features: str | Sequence[str] | None = None) -> str:
    """Print and return what features do and which keys they take, a paragraph each.

    Args:
        features: a name, several, or ``all``; None: a sentence that lists them.

    Raises: UsageError for an unknown feature.
    """
    known, customs = _feature_names(), _customs()
    names = known if features == "all" else [features] if isinstance(features, str) else list(features or ())
    for name in names:
        check_one_of("explain_features", name, known)
    text = "\n\n".join(_of_custom(customs[name]) if name in customs else _of_own(name) for name in names)
    if features is None:
        text = f'Name a feature, several, or "all": {", ".join(known)}.'
    print(text)
    return text


def _feature_names() -> list[str]:
    return [*ALIASES, *_customs()]


def _customs() -> dict[str, CustomFeature]:
    session = sessions.at_work()
    return session.recorder.plugins.features if session is not None and session.recorder is not None else {}


def _of_own(name: str) -> str:
    alias = ALIASES[name]
    part = part_of(FEATURES[alias.feature])
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
