"""Hooks as the inspector's: what layers show, as items for the reducer, and beside them the whole tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from numscope.distributed.reduce import Item, Reduced, Reducer, Refused
from numscope.summary.dispatch import summarize
from numscope.summary.state import Groups, merge_rows


class Collector:
    """Merges what layers show into items; keeps the whole tensors for the test."""

    def __init__(self, model: nn.Module, wrapper: nn.Module | None = None) -> None:
        self.model = model
        self.reducer = Reducer(model, model if wrapper is None else wrapper, "test")
        self.items: dict[str, Item] = {}
        self.whole: dict[str, list[Tensor]] = {}
        self.refused: dict[str, str] = {}
        for name, module in model.named_modules():
            if any(True for _ in module.parameters(recurse=False)):
                module.register_forward_hook(partial(self._after, name), prepend=True)

    def _after(self, name: str, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        self.see(f"{name}|activation", args[0], "data")
        self.see(f"{name}|output", output, "data")
        output.register_hook(partial(self.see, f"{name}|gradient", kind="data"))

    def see_parameters(self) -> None:
        for name, parameter in self.model.named_parameters():
            self.see(f"{name}|weight", parameter, "parameter")
            if parameter.grad is not None:
                self.see(f"{name}|wgrad", parameter.grad, "gradient")

    def see(self, key: str, tensor: Any, kind: Any) -> None:
        try:
            local, groups = self.reducer.places.of(tensor, kind, key.partition("|")[0])
        except Refused as refused:
            self.refused[key] = str(refused)
            return
        row = summarize(local, Groups.ALL).to_row()
        if key in self.items:
            row = merge_rows(self.items[key].row, row)
        self.items[key] = Item(key, groups, row)
        full = tensor.detach().full_tensor() if hasattr(tensor, "full_tensor") else tensor.detach()
        self.whole.setdefault(key, []).append(full.clone())

    def reduce(self) -> tuple[dict[str, Reduced], dict[str, list[Tensor]]]:
        found = self.reducer.reduce(list(self.items.values()))
        result = {one.key: one for one in found}, self.whole
        self.items, self.whole = {}, {}
        return result


def train(collector: Collector, wrapper: nn.Module, inputs: Sequence[Tensor]) -> Any:
    """Two micro-batches of one step."""
    for x in inputs:
        out = wrapper(x)
        (out.full_tensor() if hasattr(out, "full_tensor") else out).square().mean().backward()
    collector.see_parameters()
    return collector.reduce()


DATA = [f"{layer}|{tensor}" for layer in ("up", "norm", "down") for tensor in ("activation", "output", "gradient")]
