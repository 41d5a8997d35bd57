"""Does one forward in two models, and says whose module's output is the first that differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from numscope.parity.fingerprint import fingerprint
from numscope.probe.naming import qualified_names
from numscope.probe.walk import visit
from numscope.records.errors import UsageError
from numscope.records.fingerprint import Fingerprint
from numscope.replay.capture import RandomState
from numscope.runs.divergence import coarser, default_tolerances
from numscope.runs.fingerprints import FingerprintComparison, TensorPair, compare


def compare_models(a: nn.Module, b: nn.Module, *args: Any, **kwargs: Any) -> FingerprintComparison:
    """The first layer at which two models part: both do one forward on the same inputs, and their modules' outputs are compared.

        print(numscope.compare_models(trained, served, input_ids=batch["input_ids"]))

    Outputs are compared by their fingerprints, under their modules' names, whatever wrappers and dimensions of size 1 there are. They
    stand in the order in which a's modules end, so a module comes behind those within it; of several calls the first counts. What rounding
    explains is within tolerance: 1e-5 of the norm in float32, 3e-2 in bfloat16. The coarsest dtype up to there counts, of outputs and of
    weights that differ by a cast alone, since what it rounded away is missing in all that follows. Outputs that one model has alone are
    listed, and are no difference. Both models run in evaluation mode, without gradients, from the same random state; modes and random
    states are as before afterwards.

    Args:
        args, kwargs: what both are called with.

    Returns: the outputs' comparison; ``differing[0]`` is the first that differs, and says whether a weight of its module does.

    Raises: UsageError where one of them is no module. What a forward raises passes through.

    *Cost:* a forward of each, four passes over outputs and weights, and for each output on a device a sync.
    """
    for which, model in (("a", a), ("b", b)):
        if not isinstance(model, nn.Module):
            raise UsageError(f"{which}: got {type(model).__name__}, expected a torch.nn.Module.", "compare_models")
    random = RandomState.capture()
    seen = [_outputs(model, random, args, kwargs) for model in (a, b)]
    prints = fingerprint(a), fingerprint(b)
    found, weights = compare(*seen), compare(*prints)
    known = {_module(pair) for pair in weights.pairs}
    differing = {_module(pair): pair for pair in sorted(reversed(weights.differing), key=lambda pair: pair.cause != "rounded")}
    pairs, coarsest = [], "float64"
    for pair in found.pairs:
        name, why, dtypes = pair.a.partition("[")[0], pair.why, _dtypes(pair, seen)
        if (weight := differing.get(name)) is None:
            why = "its weights are equal" if name in known else why
        elif weight.cause == "rounded":
            why, dtypes = f"{weight.a} is {weight.why}", (*dtypes, *_dtypes(weight, prints))
        else:
            why = f"{weight.a} differs"
        coarsest = reduce(coarser, dtypes, coarsest)
        pairs.append(replace(pair, why=why, tolerance=default_tolerances(coarsest)["mean"]))
    return replace(found, pairs=tuple(pairs), what="output")


def _module(pair: TensorPair) -> str:
    return pair.a.rpartition(".")[0]


def _dtypes(pair: TensorPair, prints: Sequence[Fingerprint]) -> tuple[str, ...]:
    return prints[0].tensors[pair.a].dtype, prints[1].tensors[pair.b].dtype


def _outputs(model: nn.Module, random: RandomState, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Fingerprint:
    """The fingerprints of what its modules give, in their order."""
    found: dict[str, Fingerprint] = {}

    def hook(name: str) -> Any:
        def keep(slot: str, leaf: Any) -> None:
            if isinstance(leaf, Tensor) and leaf.is_floating_point() and name + slot not in found:
                found[name + slot] = fingerprint({name + slot: leaf.squeeze()})

        return lambda module, inputs, output: visit(output, "", keep)

    training = [module for module in model.modules() if module.training]
    handles = [module.register_forward_hook(hook(name)) for module, name in qualified_names(model).items() if name]
    try:
        for module in training:
            module.training = False
        with torch.no_grad():
            model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
        for module in training:
            module.training = True
        random.restore()
    return Fingerprint().merge(*found.values())
