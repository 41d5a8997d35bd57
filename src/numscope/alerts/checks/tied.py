"""Weights that share one tensor go on sharing it; layers of a list are layers of their own; hooks are registered once."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from types import CodeType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from numscope.alerts.checks.check import Check, Subject
from numscope.records.faults import suppress
from numscope.summary.unseen import unseen
from numscope.summary.unwrap import Unsummarizable, plain

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
MOST_HOOKS = 2  # with the same code, that stand on one module from one look to the next without a question


class PiledHooks(Check):
    """A module, or a parameter, has more hooks with the same code than at an earlier look. *Cost:* at a thorough step 1 µs a module."""

    name = "hooks pile up"

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._known: Counter[tuple[str, CodeType]] = Counter()

    def end(self, closing: bool) -> None:
        found = Counter[tuple[str, CodeType]]()
        for module, name in self.subject.probe.names.items():
            owners = [vars(module).get(kind) for kind in HOOKS] + [p._backward_hooks for p in module._parameters.values() if p is not None]
            for hook in [hook for hooks in owners if hooks for hook in hooks.values()]:
                if isinstance(code := getattr(hook, "__code__", None), CodeType):
                    found[name, code] += 1
        for (name, code), num in found.items():
            if num > MOST_HOOKS and 0 < (before := self._known[name, code]) < num:
                where = f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"
                text = f"{name or 'The model'} has {num} hooks by {code.co_name} ({where}), and had {before} at an earlier look: each runs."
                advice = "Register a hook once, before the loop, or keep its handle and call handle.remove()."
                self.say(text, advice, layer=name, value=float(num), limit=float(before), asks=True)
                return
        self._known = found


class Tied(Check):
    """Compares which names share a parameter with which did when the watch began, and asks a transformers model's configuration.

    *Cost:* at a thorough step 0.5 µs a parameter.
    """

    name = "untied weights"

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._groups = [names for names in _names_by_parameter(subject.model).values() if len(names) > 1]
        self._told: set[str] = set()

    def before_step(self, optimizer: Optimizer) -> None:
        """Ask about an output layer that begins as a copy of an embedding."""
        names = {} if self.subject.num or self._groups or _untied_embeddings(self.subject.model) else self.subject.probe.names
        rows = {name: module.weight for module, name in names.items() if isinstance(module, nn.Embedding)}
        for module, name in names.items() if rows else ():
            weight = module.weight if isinstance(module, nn.Linear) else None
            same = [
                n for n, w in rows.items() if weight is not None and w is not weight and w.shape == weight.shape and _are_copies(w, weight)
            ]
            if same:
                pair = [f"{same[0]}.weight", f"{name}.weight"]
                text = f"{pair[0]} and {pair[1]} have the same values, and are two parameters: each is trained by itself."
                self.say(text, "To tie them, share one parameter: head.weight = embedding.weight.", parameters=pair, asks=True)

    def end(self, closing: bool) -> None:
        now: dict[str, int] = {}
        for number, names in _names_by_parameter(self.subject.model).items():
            now.update(dict.fromkeys(names, number))
        for group in self._groups:
            there = [name for name in group if name in now]
            apart = [name for name in there if now[name] != now[there[0]]]
            if apart and group[0] not in self._told:
                self._told.add(group[0])
                was = f"{apart[0]} was the same tensor as {there[0]} when the watch began"
                text = f"{was}, and is another one now: each is trained by itself."
                advice = "Tie them again after loading, wrapping or replacing modules, before the optimizer is made."
                self.say(text, advice, again=True, parameters=[apart[0]], evidence={"tied": group, "apart": apart})
        if not self._groups and (pair := _untied_embeddings(self.subject.model)):
            text = f"{pair[1]} and {pair[0]} are two tensors, though config.tie_word_embeddings is True: each is trained by itself."
            advice = "Call model.tie_weights() after loading or replacing modules, before the optimizer is made."
            self.say(text, advice, parameters=[pair[1]], evidence={"tied": list(pair)})


class Repeated(Check):
    """Asks about one module that stands in a list several times, as ``[layer] * 6`` makes it. *Cost:* a walk over the modules, once."""

    name = "one layer many times"

    def before_step(self, optimizer: Optimizer) -> None:
        for module, name in self.subject.probe.names.items():
            parts = list(module._modules.values()) if isinstance(module, nn.ModuleList | nn.Sequential) else []
            times = Counter(map(id, parts))
            again = next((p for p in parts if p is not None and times[id(p)] > 1 and next(p.parameters(), None) is not None), None)
            if again is not None:
                text = f"{name or type(module).__name__} holds one {type(again).__name__} {times[id(again)]} times: one set of"
                advice = "Make each layer anew: nn.ModuleList([Layer() for _ in range(n)]), not [layer] * n."
                self.say(f"{text} weights, not several.", advice, layer=name, asks=True)
        self.spoken.add(self.name)


def _are_copies(one: Tensor, other: Tensor) -> bool:
    """Whether two weights have the same values, which are more than one. *Cost:* a sync where the first rows are the same."""
    with unseen(), suppress(Unsummarizable):
        return (
            torch.equal(plain(one)[0], plain(other)[0])
            and torch.equal(plain(one), plain(other))
            and bool((plain(one) != plain(one)[0, 0]).any())
        )
    return False


def _names_by_parameter(model: nn.Module) -> dict[int, list[str]]:
    found: dict[int, list[str]] = defaultdict(list)
    todo: list[tuple[str, nn.Module, tuple[nn.Module, ...]]] = [("", model, ())]
    while todo:
        prefix, module, above = todo.pop(0)
        for name, parameter in module._parameters.items():
            if parameter is not None:
                found[id(parameter)].append(prefix + name)
        inner = (*above, module)  # a module that holds one of those above it as its own part would be walked for ever
        todo += [(f"{prefix}{name}.", m, inner) for name, m in module._modules.items() if m is not None and all(m is not x for x in inner)]
    return found


def _untied_embeddings(model: Any) -> tuple[str, str] | None:
    """Names of a transformers model's input and output embeddings, if its configuration ties them and they are not."""
    config: Any = vars(model).get("config")  # a script's own ``__getattr__`` hears of nothing
    keys = vars(model).get("_tied_weights_keys") or getattr(type(model), "_tied_weights_keys", None)
    if not keys or not callable(getattr(config, "get_text_config", None)):
        return None
    if any(getattr(one, "tie_word_embeddings", None) is not True for one in (config.get_text_config(), config)):
        return None
    inputs, outputs = (getattr(found, "weight", None) for found in (model.get_input_embeddings(), model.get_output_embeddings()))
    if inputs is None or outputs is None or inputs is outputs or inputs.shape != outputs.shape:
        return None
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    pair = names.get(id(inputs)), names.get(id(outputs))
    return pair if pair[0] is not None and pair[1] is not None else None  # type: ignore[return-value]
