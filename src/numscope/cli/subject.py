"""MODEL_OR_RUN: the layers that a word on the command line stands for, and the sizes of their tensors as far as known."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numscope.cli.uncaught import failed
from numscope.records.attempt import attempts
from numscope.records.errors import UsageError
from numscope.records.files import read_json
from numscope.records.layer import Layer
from numscope.records.words import closest
from numscope.runs.folder import find_run
from numscope.runs.query import ask
from numscope.runs.sources import RUN, instead, is_run, no_run

if TYPE_CHECKING:
    from torch import nn

    from numscope.precision.gemm.plan import LayerPlan

EXPECTED = f"a factory as package.module:function, a transformers checkpoint's folder or name, or {RUN}"
_GEMM_CLASSES = ("Linear", "Conv1D", "LayerNormLinear", "LayerNormMLP")  # a run stores only the name of a layer's class
_FIELDS: dict[str, type] = {
    **{"name": str, "cls": str, "qualified": str, "weights": list},
    **{"numel_weights": int, "weight_bytes": int, "owns_parameters": bool},
}  # a layer in a run's files; values of other types are not taken
_NORM = ".layer_norm"  # the part of a fused module that is not a GEMM
_ITEMSIZE = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "complex64": 8, "complex128": 16}


@dataclass(frozen=True)
class ModelOrRun:
    """Layers to select from."""

    layers: list[Layer]  # in the model's order
    # by layer's name, the last dimensions of its input and output; None if it has none
    widths: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)
    # by (layer's name, tensor), the bytes that a run read of it on one rank in a step
    read: Mapping[tuple[str, str], int] = field(default_factory=dict)
    gemms: list[Layer] = field(default_factory=list)  # the layers that compute GEMMs, on which fp8 recipes and switches act
    plans: Mapping[Layer, LayerPlan] = field(default_factory=dict)  # by layer that is already converted


def subject_of(given: str) -> ModelOrRun:
    """
    Raises:
        UsageError: there is no such model or run.
    """
    folder = Path(given)
    if folder.is_dir() and ((folder / "run.json").is_file() or (folder / "ranks").is_dir()):
        return _of_run(folder)
    if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", given):
        return _of_model(_from_factory(given))
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise _nothing(given, "It holds other things." if os.listdir(folder) else "It is empty.")
    return _of_model(_from_transformers(given, folder))


def _nothing(given: str, why: str) -> UsageError:
    return no_run("MODEL_OR_RUN", given, why, EXPECTED)


def _instead(given: str) -> str:
    return instead(os.path.abspath(given), lambda path: is_run(path) or os.path.isfile(os.path.join(path, "config.json")))


def _of_model(model: nn.Module) -> ModelOrRun:
    from numscope.precision.gemm.conversion import convertible
    from numscope.precision.gemm.layer_state import state_of
    from numscope.probe.layer_names import layers_of

    found = layers_of(model)
    gemms = [layer for module, layer in found.items() if convertible(module)]
    plans = {layer: state.default for module, layer in found.items() if (state := state_of(module)) is not None and not state.default.high}
    return ModelOrRun(list(found.values()), {layer.name: _widths(module) for module, layer in found.items()}, gemms=gemms, plans=plans)


def _widths(module: nn.Module) -> tuple[int | None, int | None]:
    """Input and output width of a module that acts on the last dimension: linear, norm, embedding (whose input is whole numbers)."""
    for source, target in (("in_features", "out_features"), ("nx", "nf")):
        if isinstance(width := getattr(module, source, None), int) and isinstance(out := getattr(module, target, None), int):
            return width, out
    if isinstance(width := getattr(module, "embedding_dim", None), int):
        return 0, width
    weight = module._parameters.get("weight")
    if "Norm" in type(module).__name__ and weight is not None and weight.dim() == 1 and "Batch" not in type(module).__name__:
        return weight.numel(), weight.numel()
    return None, None


# ------------------------------------------------------------------------------------------------------------ models


def _from_factory(given: str) -> nn.Module:
    """The model that ``package.module:function`` makes, on the meta device (which takes no memory or time) if the function can do that."""
    import torch
    from torch import nn

    module_name, _, path = given.partition(":")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does
    try:
        with contextlib.redirect_stdout(sys.stderr):  # which may print, where results are printed
            made: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise UsageError(f"{given}: could not be imported: {failed(error)}") from None
        raise UsageError(f"{given}: no module {error.name!r}, expected {EXPECTED}.") from None
    except (Exception, SystemExit) as error:
        raise UsageError(f"{given}: could not be imported: {failed(error)}") from None
    for name in path.split("."):
        if not hasattr(made, name):
            raise UsageError(f"{given}: {module_name} has no {name!r}, expected a function or class that makes a model.")
        made = getattr(made, name)
    if not isinstance(made, nn.Module) and callable(made):
        factory = made
        with contextlib.redirect_stdout(sys.stderr):
            try:
                with torch.device("meta"):
                    made = factory()
            except (Exception, SystemExit):  # it reads weights, or computes with them
                try:
                    made = factory()
                except (Exception, SystemExit) as error:
                    raise UsageError(f"{given}: made no model: {failed(error)}") from None
    if not isinstance(made, nn.Module):
        raise UsageError(f"{given}: made {type(made).__name__}, expected a torch.nn.Module.")
    return made


def _from_transformers(given: str, folder: Path) -> nn.Module:
    """The architecture on the meta device. No weights are read, and no code of the checkpoint is run."""
    if not folder.is_dir() and (os.sep in given[:1] or given.startswith(".")):
        raise _nothing(given, _instead(given))
    try:
        import transformers
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    except ImportError:
        raise UsageError(f"{given}: transformers is not installed, expected {EXPECTED}. Install it: pip install transformers.") from None
    import torch

    try:
        if given in CONFIG_MAPPING:
            config = transformers.AutoConfig.for_model(given)
        else:
            config = transformers.AutoConfig.from_pretrained(given, local_files_only=True)  # a question needs no network
    except (OSError, ValueError) as error:
        if folder.is_dir():
            raise _nothing(given, f"Its config.json: {str(error).strip().splitlines()[0]}") from None
        near = "" if folder.exists() else "".join(closest(given, CONFIG_MAPPING, least=0.8))
        architecture = f"There is nothing of that name. Did you mean the architecture {near!r}?"
        raise _nothing(given, architecture if near else _instead(given)) from None
    named = next(iter(getattr(config, "architectures", None) or ()), "")
    cls = getattr(transformers, named, None)
    with torch.device("meta"):
        model: nn.Module = cls(config) if cls is not None else transformers.AutoModel.from_config(config)
    return model


# -------------------------------------------------------------------------------------------------------------- runs


def _of_run(folder: Path) -> ModelOrRun:
    """The layers of each rank's last attempt that had some, else those in its history; ranks of a pipeline have different layers."""
    layers: dict[str, Layer] = {}
    for files in attempts(folder).values():
        for layer in next((told for file in reversed(files.values()) if (told := list(_told(Path(file))))), ()):
            layers.setdefault(layer.name, layer)
    layers = layers or {layer.name: layer for layer in _of_history(folder)}
    if not layers:
        raise UsageError(f"{folder}: contains no layers, expected the folder of a run that ended a step.")
    gemms = [layer for layer in layers.values() if layer.cls in _GEMM_CLASSES and layer.weights and not layer.name.endswith(_NORM)]
    return ModelOrRun(list(layers.values()), read=_read_bytes(folder), gemms=gemms)


def _told(path: Path) -> Iterator[Layer]:
    try:
        told = read_json(path)["layers"]
        for one in told:
            layer: dict[str, Any] = {key: value for key, kind in _FIELDS.items() if isinstance(value := one.get(key), kind)}
            yield Layer(**{**layer, "weights": tuple(map(str, layer.get("weights", ())))})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: can't be read ({error}), expected a file written by a run.") from None


def _of_history(folder: Path) -> Iterator[Layer]:
    """Those that detection recorded, in the order of their calls: a run without a configuration writes no list of layers."""
    sql = """SELECT layer, any_value(cls), list_sort(list(DISTINCT tensor) FILTER (tensor LIKE 'weight%')),
        max(numel) FILTER (tensor = 'weight'), any_value(dtype) FILTER (tensor = 'weight')
        FROM raw WHERE cls <> 'loss' GROUP BY layer ORDER BY min(ord), layer"""
    with contextlib.suppress(UsageError):
        for name, cls, tensors, numel, dtype in ask(find_run(folder), sql).rows:
            own = [re.sub(r"weight\[(.+)\]", r"\1", tensor) for tensor in tensors or ()]
            weights = tuple(weight for weight in own if "bias" not in weight)
            yield Layer(name, cls, name, weights, numel or 0, (numel or 0) * _ITEMSIZE.get(dtype, 1), bool(own))


def _read_bytes(folder: Path) -> dict[tuple[str, str], int]:
    """From the recorded numbers of elements; nothing without them or without DuckDB."""
    try:
        found = ask(find_run(folder), "SELECT layer, tensor, dtype, max(numel / ranks) FROM raw GROUP BY ALL")
    except UsageError:
        return {}
    return {(layer, tensor): int(numel) * _ITEMSIZE.get(dtype, 1) for layer, tensor, dtype, numel in found.rows if numel is not None}
