"""Settings that the script has written where nothing reads them."""

from __future__ import annotations

from torch.optim import Optimizer

from numscope.alerts.checks.check import Check
from numscope.probe.optimizers import living_optimizers

_MISSPELT = ("requires_grads", "require_grad", "require_grads", "required_grad", "requirs_grad")


class Unread(Check):
    """``module.requires_grad = False`` freezes nothing, and ``optimizer.lr = …`` changes no rate: each is an attribute that nothing reads.

    *Cost:* at a thorough step 0.5 µs a module and parameter.
    """

    name = "setting without effect"

    def before_step(self, optimizer: Optimizer) -> None:
        if not self.subject.num:
            return
        for module, name in self.subject.probe.names.items():
            wrong = next((key for key in ("requires_grad", *_MISSPELT) if vars(module).get(key) is False), "")
            if wrong and any(p.requires_grad for p in module.parameters()):
                self._say(
                    f"{name or type(module).__name__}.{wrong} = False", "a module, whose parameters are trained", layer=name, asks=True
                )
        for name, parameter in self.subject.parameters().items():
            wrong = next((key for key in _MISSPELT if key in getattr(parameter, "__dict__", ())), "")
            if wrong and parameter.requires_grad != getattr(parameter, wrong):
                self._say(f"{name}.{wrong}", "a parameter, which has requires_grad", layer=name.rpartition(".")[0])
        for each in living_optimizers():
            if type(each).__module__.startswith("torch.optim."):  # others may keep settings of their own
                for key in vars(each).keys() & each.defaults.keys():
                    if vars(each)[key] not in [group.get(key) for group in each.param_groups]:
                        self._say(f"optimizer.{key} = {_short(vars(each)[key])}", f"{type(each).__name__}, which reads its param_groups")

    def _say(self, what: str, owner: str, layer: str = "", asks: bool = False) -> None:
        text = f"{what} has no effect: nothing reads this attribute of {owner}."
        advice = "Freeze with module.requires_grad_(False); set a rate by group['lr'] = … for each of optimizer.param_groups."
        self.say(text, advice, layer=layer, evidence={"setting": what}, asks=asks)


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)[:40]
