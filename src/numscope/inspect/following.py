"""A configuration that is edited while the run goes on: the file is looked at, and a new plan is taken up at a step's beginning.

Ranks agree by the job's store, and none waits for another. Rank 0 looks at the file and publishes its text. A rank that has seen the text
notes its step there at each step from then on. Once all have, rank 0 names a step that lies ``AHEAD`` of the farthest of them.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from numscope.config.plan import Plan
from numscope.config.wording import Errors
from numscope.config.yaml_reading import text_of
from numscope.distributed.agree import rank, spread
from numscope.distributed.channel import store
from numscope.records.errors import UsageError
from numscope.records.faults import ours
from numscope.records.words import few

LOOK_S = 1.0  # between two looks at the file or the store
AHEAD = 16  # steps that a rank may go on between its last note and what rank 0 makes of it
SILENT_S = 60.0  # after which ranks that do not answer are named

_followers: Counter[str] = Counter()  # of this process, by the text they began with

Say = Callable[[str, int], None]


class Follower:
    """One configuration's file, and the plans that came of it.

    Args:
        plan: what was read of it when the run began.
        parse: gives the plan of a text, or raises UsageError.
        say: takes a sentence and its level of Python's logging.

    *Cost:* between two looks a comparison of times for each step. A look is one ``os.stat``; with several ranks, it is that on rank 0 and
    one question to the store on the others. While ranks agree on a new text: three questions for each step.
    """

    def __init__(self, path: str, plan: Plan, parse: Callable[[str], Plan], say: Say) -> None:
        self._path, self._parse, self._say = path, parse, say
        self._plans = [(-1, plan)]  # each with its first step
        self._text = plan.text  # that was tried last
        self._stamp: tuple[int, ...] = ()
        self._is_read = False  # what has this stamp
        self._next = 0.0
        self._step = 0  # the farthest of the process's models
        self._pending: Plan | str | None = None  # the new plan, or why this rank refuses it, until ranks have agreed
        self._since = 0.0
        begun = sha256(plan.text.encode()).hexdigest()[:16]
        self._name, self._number = f"numscope/follower/{begun}/{_followers[begun]}", 0
        _followers[begun] += 1

    def plan_at(self, step: int) -> Plan:
        return next(plan for first, plan in reversed(self._plans) if first <= step)

    def look(self, step: int, check: Callable[[Plan], object]) -> None:
        """To be called at each step's beginning; ``check`` raises UsageError for a plan that can't be carried out."""
        self._step = max(self._step, step)
        now = time.monotonic()
        if (self._pending is None and now < self._next) or not self.plan_at(step).reload:
            return
        self._next = now + LOOK_S
        try:
            if spread():
                self._agree(store(), now, check)
            elif (text := self._edited()) is not None:
                self._take(self._tried(text, check), -1, step)
        except ours(RuntimeError) as error:  # of the store: it goes with the rank that hosts it
            self._say(f"{self._path} is no longer looked at: {str(error).splitlines()[0]}", logging.WARNING)
            self._next = float("inf")
            self._pending = None

    def _edited(self) -> str | None:
        """The file's text, once it has changed and lies still since the look before."""
        try:
            found = os.stat(self._path)
        except ours(OSError):  # an editor is about to put another one in its place
            return None
        stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        if stamp != self._stamp:
            self._stamp, self._is_read = stamp, False
            return None
        if self._is_read:
            return None
        self._is_read = True
        text = text_of(self._path, Errors(self._path))
        if text is None or text == self._text:
            return None
        self._text = text
        return text

    def _tried(self, text: str, check: Callable[[Plan], object]) -> Plan | str:
        """The plan, or what is wrong with it."""
        try:
            plan = self._parse(text)
            check(plan)
        except UsageError as error:
            first, *more = str(error).splitlines()
            return first + (f" ({len(more)} more: numscope config check says all.)" if more else "")
        return plan

    def _take(self, found: Plan | str, first: int, step: int) -> None:
        if isinstance(found, str):
            self._say(f"{found} The run goes on with the configuration from before this edit.", logging.WARNING)
            return
        self._plans.append((first, found))
        self._say(f"{self._path} was edited. From step {step} on:\n{found.text}", logging.INFO)

    def _agree(self, shared: Any, now: float, check: Callable[[Plan], object]) -> None:
        place, me = f"{self._name}/{self._number}", rank()
        if self._pending is None:
            if me == 0:
                text = self._edited()
            else:
                text = shared.get(f"{place}/text").decode() if shared.check([f"{place}/text"]) else None
            if text is None:
                return
            self._pending, self._since = self._tried(text, check), now
            if me == 0 and isinstance(self._pending, str):
                self._take(self._pending, -1, self._step)
                self._pending = None
                return
            if me == 0:
                shared.set(f"{place}/text", text)
        shared.set(f"{place}/{me}", self._pending if isinstance(self._pending, str) else str(self._step))
        if me == 0:
            self._decide(shared, place, now)
        if shared.check([f"{place}/verdict"]):
            verdict = shared.get(f"{place}/verdict").decode()
            first = int(verdict) if verdict.isdecimal() else -1
            self._take(verdict if first < 0 else self._pending, first, first)
            self._pending, self._number = None, self._number + 1

    def _decide(self, shared: Any, place: str, now: float) -> None:
        import torch.distributed as dist

        keys = [f"{place}/{one}" for one in range(dist.get_world_size())]
        if shared.check(keys):
            told = [answer.decode() for answer in shared.multi_get(keys)]
            refused = [answer for answer in told if not answer.isdecimal()]
            shared.set(f"{place}/verdict", refused[0] if refused else str(max(map(int, told)) + AHEAD))
        elif now > self._since + SILENT_S:
            self._since = float("inf")
            silent = [str(one) for one, key in enumerate(keys) if not shared.check([key])]
            text = f"{self._path} was edited, but ranks {few(silent, 8)} have not seen it yet. No rank takes it up before they do."
            self._say(text, logging.WARNING)
