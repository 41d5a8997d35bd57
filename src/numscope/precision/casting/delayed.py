"""Delayed scaling: a tensor's scale follows from the amaxes of previous steps, so that a cast needs one pass over the tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from numscope.precision.casting.reference import largest_of_group
from numscope.precision.casting.scaling import scale_of
from numscope.records.checks import check_one_of, check_whole
from numscope.records.errors import UsageError
from numscope.records.formats import Format, format_of

Algo = Literal["max", "most_recent"]
_ALGOS = ("max", "most_recent")


class _Settings(NamedTuple):
    """What the histories in one bank have in common."""

    length: int
    algo: Algo
    margin: int
    interval: int
    device: torch.device


class _Bank:
    """Histories side by side in memory. They advance by a handful of operations, however many there are."""

    __slots__ = ("amax", "amaxes", "format_max", "num_histories", "num_steps", "scale", "settings")

    def __init__(self, settings: _Settings, formats: Sequence[Format], num_steps: int) -> None:
        n, device = len(formats), settings.device
        self.settings, self.num_histories, self.num_steps = settings, n, num_steps
        self.format_max = torch.tensor([form.max for form in formats], dtype=torch.float32, device=device)
        self.scale = torch.ones(n, dtype=torch.float32, device=device)
        self.amax = torch.zeros(n, dtype=torch.float32, device=device)
        self.amaxes = torch.zeros(settings.length, n, dtype=torch.float32, device=device)  # a ring: step s is at s % length

    def advance(self) -> None:
        settings = self.settings
        self.amaxes[self.num_steps % settings.length] = self.amax
        self.num_steps += 1
        if self.num_steps % settings.interval == 0:
            counts = self.amaxes.amax(0) if settings.algo == "max" else self.amax
            self.scale.copy_(scale_of(counts, self.format_max, settings.margin, previous=self.scale))
        self.amax.zero_()


class History:
    """The amaxes of one operand in previous steps, and the scale that follows from them.

    ``scale`` and ``amax`` are float32[] tensors that change in place. ``advance_all`` may replace them, so read the attributes again in
    each step.

    Args:
        format: what the operand is rounded to.
        length: number of steps that count, including the one that has just ended.
        algo: ``max``, the largest of their amaxes, or ``most_recent``.
        margin: powers of two left free below the format's maximum.
        interval: steps from one new scale to the next.
        device: of the tensors.

    Raises: UsageError: a setting is out of range.

    *Source:* Transformer Engine's ``DelayedScaling``: the scale is 1 until the first step ends. It stays the same while the amax that
    counts is zero, infinite or NaN, and is at most float32's maximum.
    """

    __slots__ = ("_bank", "_index", "amax", "format", "scale")

    amax: Tensor  # of the current step; cast() merges into it
    scale: Tensor  # 1 at first

    def __init__(
        self,
        format: str | Format,
        length: int = 1024,
        algo: Algo = "max",
        margin: int = 0,
        interval: int = 1,
        device: torch.device | str = "cpu",
    ) -> None:
        check_one_of("amax_compute_algo", algo, _ALGOS)
        check_whole("amax_history_len", length, 1)
        check_whole("interval", interval, 1)
        if isinstance(margin, bool) or not isinstance(margin, int):
            raise UsageError(f"margin: got {margin!r}, expected a whole number.")
        self.format = format_of(format)
        self._put(_Bank(_Settings(length, algo, margin, interval, torch.device(device)), [self.format], 0), 0)

    def _put(self, bank: _Bank, index: int) -> None:
        self._bank, self._index = bank, index
        self.amax, self.scale = bank.amax[index], bank.scale[index]

    @property
    def num_steps(self) -> int:
        """Number of steps that have ended."""
        return self._bank.num_steps

    @property
    def amaxes(self) -> Tensor:
        """The amaxes of the steps that have ended, the latest first, padded with zeros: float32[length], a copy."""
        latest = (self.num_steps - 1) % self._bank.settings.length
        return self._bank.amaxes[:, self._index].flip(0).roll(latest + 1)

    def advance(self, group: object = None) -> None:
        """End a step: its amax joins the history, and the scale is updated.

        Args:
            group: process group whose largest amax counts.
        """
        advance_all([self], group)

    def to(self, device: torch.device | str) -> History:
        """Move to a device, in place."""
        if torch.device(device) != self._bank.settings.device:
            self._replace(self.state_dict(), self._bank.settings._replace(device=torch.device(device)))
        return self

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps: the scale, the current amax, and the amaxes, the latest first."""
        return {"scale": self.scale.clone(), "amax": self.amax.clone(), "amaxes": self.amaxes, "num_steps": self.num_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned. A history of another length keeps the latest amaxes.

        Args:
            state: what ``state_dict`` returned.
        """
        self._replace(state, self._bank.settings)

    def _replace(self, state: dict[str, Any], settings: _Settings) -> None:
        num_steps = int(state["num_steps"])
        bank = _Bank(settings, [self.format], num_steps)
        bank.scale.copy_(state["scale"])
        bank.amax.copy_(state["amax"])
        latest = state["amaxes"][: settings.length]
        bank.amaxes[: len(latest), 0] = latest.to(settings.device)
        bank.amaxes.copy_(bank.amaxes.roll(-num_steps, 0).flip(0))  # the latest first → step s at s % length
        self._put(bank, 0)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy has its own memory, whichever histories share this one's bank.
        settings = self._bank.settings
        return (_restored, (self.format, *settings[:4], settings.device, self.state_dict()))


def _restored(format: Format, length: int, algo: Algo, margin: int, interval: int, device: torch.device, state: dict[str, Any]) -> History:
    history = History(format, length, algo, margin, interval, device)
    history.load_state_dict(state)
    return history


def advance_all(histories: Sequence[History], group: object = None) -> None:
    """End a step of many histories together.

    Args:
        histories: on one device, each once; on all ranks of the group the same ones in the same order.
        group: process group whose largest amaxes count.

    Raises: UsageError: a history comes twice.

    *Cost:* one all-reduce of one float32 per history, and about eight operations on the device for all that have the same settings. The
    first call with these histories moves them next to each other. No host sync.
    """
    if not histories:
        return
    if len(set(map(id, histories))) != len(histories):
        raise UsageError("advance_all: got a history twice, expected each once.")
    banks = list(dict.fromkeys(history._bank for history in histories))
    if sum(bank.num_histories for bank in banks) != len(histories) or len(banks) > 1:
        banks = _packed(histories)
    if group is not None:
        # In the order of the histories, which all ranks share. That of the banks may differ after one rank has loaded a checkpoint.
        amaxes = largest_of_group(torch.stack([history.amax for history in histories]), group)
        torch._foreach_copy_([history.amax for history in histories], list(amaxes.unbind()))
    for bank in banks:
        bank.advance()


def _packed(histories: Sequence[History]) -> list[_Bank]:
    """Move histories into as few banks as their settings and steps allow."""
    alike: dict[tuple[_Settings, int], list[History]] = {}
    for history in histories:
        alike.setdefault((history._bank.settings, history.num_steps), []).append(history)
    banks = []
    for (settings, num_steps), members in alike.items():
        bank = members[0]._bank
        if bank.num_histories != len(members) or any(member._bank is not bank for member in members):
            bank = _Bank(settings, [member.format for member in members], num_steps)
            bank.scale.copy_(torch.stack([member.scale for member in members]))
            bank.amax.copy_(torch.stack([member.amax for member in members]))
            bank.amaxes.copy_(torch.stack([member._bank.amaxes[:, member._index] for member in members], 1))
            for index, member in enumerate(members):
                member._put(bank, index)
        banks.append(bank)
    return banks
