"""Which steps are done again to be checked, and how: ``again:every=1000``."""

from __future__ import annotations

from dataclasses import dataclass

from numscope.records.errors import UsageError
from numscope.records.words import nearest

CHECK = "check"  # a key of a configuration, next to its sections; the name of the option and argument
CAPSULE = "capsule"  # of a finding, at no step of its own
KINDS = {
    "again": "does the same step give the same bits?",
    "rank": "do other ranks get the same bits from the same call?",
    "gradients": "is the gradient of each autograd.Function what its forward says?",
    "float64": "is each result, and each gradient, what float64 makes of it?",
    "eager": "does compiled code give what eager code gives, forward and backward?",
    "precision": "what does low precision do to the step's gradient?",
    CAPSULE: "what is the operation at fault, alone?",
}
EVERY = 1000
_FORM = f"{','.join(KINDS)}, with :every=N or :at=N,N behind it"


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """The checks that ``watch(check=…)`` asks for.

    Args:
        kinds: names in ``KINDS``.
        every: steps; with ``at`` 0.
        at: these steps.
    """

    kinds: tuple[str, ...] = ()
    every: int = EVERY
    at: tuple[int, ...] = ()

    @property
    def does_again(self) -> bool:
        """Whether steps are done again."""
        return self.kinds != (CAPSULE,)

    def is_due(self, step: int) -> bool:
        """Whether a step is to be checked: each ``every``-th, and the second one, so that what is always wrong shows at once."""
        return step in self.at if self.at else step == 1 or (step > 0 and step % self.every == 0)

    def when(self) -> str:
        """Which steps are checked, a sentence's part."""
        if self.at:
            return f"steps {', '.join(map(str, self.at))} were asked for"
        return "each from the second on is due" if self.every == 1 else f"the second and each {self.every:,}th are due"

    @classmethod
    def of(cls, text: object) -> CheckPlan:
        """Read what a user wrote. Raises: UsageError."""
        if not isinstance(text, str):
            raise UsageError(f"got {text!r}, expected text: {_FORM}.", CHECK)
        names, colon, when = text.partition(":")
        kinds = tuple(name.strip() for name in names.split(","))
        for kind in kinds:
            if kind not in KINDS:
                raise UsageError(f"got {kind!r}, expected one of {', '.join(KINDS)}.{nearest(kind, list(KINDS))}", CHECK)
        word, _, numbers = when.partition("=")
        whole = [part.strip() for part in numbers.split(",")]
        if not colon:
            return cls(kinds)
        if word.strip() not in ("every", "at") or not all(part.isascii() and part.isdigit() for part in whole):
            raise UsageError(f"got {text!r}, expected {_FORM}.", CHECK)
        steps = tuple(map(int, whole))
        if word.strip() == "at":
            return cls(kinds, 0, steps)
        if len(steps) != 1 or steps[0] < 1:
            raise UsageError(f"got {numbers!r} for every, expected one whole number of at least 1.", CHECK)
        return cls(kinds, steps[0])
