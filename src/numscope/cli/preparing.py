"""Prepares a script's models before their first forward: converts linear layers, or keeps chosen layers out of autocast."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from numscope.cli.script import Target
from numscope.cli.values import one_of
from numscope.precision.search.trials import AUTOCAST
from numscope.records.errors import UsageError

if TYPE_CHECKING:
    from torch import nn

    from numscope.config.plan import Plan
    from numscope.plugins.discovery import Paths

RECIPES = ("delayed", "current", "rowwise", "block", "mxfp8", "mxfp4", "nvfp4")  # also here: torch must not be loaded before the script

SCRIPT_WORDS = {"allow_interspersed_args": False}  # from the script's name on, every word is the script's


def takes_script(command: Callable[..., object]) -> Callable[..., object]:
    """Parses a script's or module's name and its arguments into the command's argument ``target``."""

    @click.option("-m", "is_module", is_flag=True, help="What follows is a module's name, as after python -m.")
    @click.argument("target", metavar="train.py | -m module")
    @click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="ARGS…")
    @functools.wraps(command)
    def taking(target: str, args: tuple[str, ...], is_module: bool, **options: Any) -> object:
        return command(target=Target(target, args, is_module), **options)

    return taking


def recipe_option(
    text: str, default: str | None = None, names: Sequence[str] = (*RECIPES, AUTOCAST)
) -> Callable[[Callable[..., object]], Callable[..., object]]:
    return click.option("--recipe", type=one_of(*names), default=default, metavar="NAME", help=text)


def preparation(
    recipe: str | None, config: str | os.PathLike[str] | Mapping[str, Any] | None, features: Paths = ()
) -> Callable[[nn.Module], None] | None:
    """A function to call with each model of a script, once, before its first forward; None if there is nothing to do.

    Args:
        recipe: of the linear layers; ``autocast``: they are not converted, and layers whose fp8 the plan disables compute outside of the
            script's autocast. Layers that the script converts by itself keep their recipe.
        config, features: the run's configuration, and the files with features that it names.
    """
    if recipe is None:
        return None
    if recipe == AUTOCAST:
        from numscope.config.loading import plan_of

        return _keeper(None if config is None else plan_of(config, features)[0])
    from numscope.precision.gemm.conversion import convert
    from numscope.precision.gemm.layer_state import state_of

    def is_ours(name: str, module: nn.Module) -> bool:
        state = state_of(module)
        return state is None or state.recipe.is_high  # as our own modules are at first

    def prepare(model: nn.Module) -> None:
        try:
            convert(model, recipe, layers=is_ours)
        except UsageError:
            raise
        except Exception as error:  # a run that should use fp8 must not continue without it
            raise UsageError(f"--recipe {recipe}: {type(model).__name__} can't be converted: {type(error).__name__}: {error}") from error

    return prepare


def _keeper(plan: Plan | None) -> Callable[[nn.Module], None]:
    from numscope.config import resolve
    from numscope.precision.high_precision import HighPrecisionForward, high_precision
    from numscope.probe.layer_names import layers_of

    def prepare(model: nn.Module) -> None:
        if plan is None:
            return
        modules = {layer: module for module, layer in layers_of(model).items()}
        for switch, layers in resolve(plan, list(modules), strict=False).switches:
            if switch.feature == "disable_fp8_layer":
                for layer in layers:
                    if not isinstance(modules[layer].__dict__.get("forward"), HighPrecisionForward):
                        high_precision(modules[layer])

    return prepare
