"""Training without a module: a loss that no watched model made, an optimizer of bare tensors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from torch import Tensor, nn
from torch.optim import Optimizer

from numscope.probe import optimizer as optimizer_probe
from numscope.probe.calls import in_backward
from numscope.probe.living import Beside
from numscope.records.site import Phase
from numscope.replay import outside
from numscope.scope.model_watch import ModelWatch

MOST_OWN = 4  # optimizers of what no model holds, beside watched models: more are made for an image or a task each, and dropped


class Tensors(nn.Module):
    """The tensors of one optimizer, named as the optimizer holds them; never called.

    Args:
        optimizer: None for a loss without one.
    """

    def __init__(self, optimizer: Optimizer | None) -> None:
        super().__init__()
        for number, group in enumerate(() if optimizer is None else optimizer.param_groups):
            for place, tensor in enumerate(group["params"]):
                self._parameters[f"param_groups[{number}]['params'][{place}]"] = tensor


def stands_for(model: nn.Module, parameters: Collection[int]) -> bool:
    """Whether a watched model is an optimizer's tensors, which turn out to be some module's parameters, given by their ids."""
    return type(model) is Tensors and bool(model._parameters) and all(id(tensor) in parameters for tensor in model._parameters.values())


class TensorWatch(optimizer_probe.StepListener):
    """Opens a watch for each optimizer whose tensors belong to no watched model, and one for losses where there is no optimizer.

    Code outside modules is recorded from here on, and anew from the creation of an optimizer on, so that lines are known of the first step,
    and of the data, weights and buffers that it gets.

    Args:
        watch: begins on a model, or returns None if that fails.
        live: returns the open watches.
    """

    def __init__(self, watch: Callable[[nn.Module], ModelWatch | None], live: Callable[[], Sequence[ModelWatch]]) -> None:
        self._watch = watch
        self._live = live
        self._optimizers: Beside[Optimizer, Tensors | None] = Beside()  # and what stands for it
        self._without_optimizer: Tensors | None = None
        self._num_own = 0  # optimizers of layers that no model holds
        outside.current().begin_anew(Phase.SCRIPT)

    def close(self) -> None:
        """Stop listening."""
        optimizer_probe.unlisten(self)
        if not self._live():
            outside.current().take_off()
            outside.current().reset()

    def made(self, optimizer: Optimizer) -> None:
        self._optimizers[optimizer] = None
        outside.current().begin_anew(Phase.LOSS)

    def before_backward(self, roots: Sequence[Tensor]) -> None:
        if in_backward() or any(scope.expects_backward for scope in self._live()):
            return
        for optimizer in [o for o in self._optimizers if self._is_unknown(o)]:
            scope = self._open(optimizer)
            if scope is not None:
                scope.steps.before_backward(roots)
        if not self._optimizers and self._without_optimizer is None:
            self._without_optimizer = Tensors(None)
            scope = self._watch(self._without_optimizer)
            if scope is not None:
                scope.steps.before_backward(roots)

    def before_step(self, optimizer: Optimizer) -> None:
        """An optimizer steps without a backward, with gradients of torch.func.grad for example, or for layers that no model holds, such as
        adapters that take the place of a layer's ``forward``; a closure may still call a model.
        """
        if not optimizer_probe.has_closure():
            self.after_closure(optimizer)

    def after_closure(self, optimizer: Optimizer) -> None:
        if optimizer not in self._optimizers or not self._is_unknown(optimizer):
            return
        given = [p for group in optimizer.param_groups for p in group["params"]]
        is_own = all(type(p) is nn.Parameter and p.grad is not None for p in given)  # no framework's copies of a watched model's
        is_own = bool(given) and is_own and self._num_own < MOST_OWN
        if is_own or not any(scope.steps.had_backward for scope in self._live()):
            self._num_own += is_own
            scope = self._open(optimizer)
            if scope is not None:
                scope.steps.before_step(optimizer)

    def _is_unknown(self, optimizer: Optimizer) -> bool:
        return self._optimizers[optimizer] is None and not any(scope.steps.optimizers.owns(optimizer) for scope in self._live())

    def _open(self, optimizer: Optimizer) -> ModelWatch | None:
        self._optimizers[optimizer] = tensors = Tensors(optimizer)
        return self._watch(tensors)
