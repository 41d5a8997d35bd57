"""Does again what has gone bad, or is about to, while all that it read is still there: calls, and an optimizer's step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch.optim import Optimizer

from numscope.detect.diagnosis import foresee
from numscope.detect.evidence import BadLeaf, Evidence
from numscope.probe import optimizer as optimizer_probe
from numscope.probe.entry import Entry
from numscope.probe.living import Beside
from numscope.records.finding import Finding
from numscope.records.site import Phase
from numscope.replay.call import NOT_WANTED
from numscope.replay.stages import Replay
from numscope.replay.update import foresee_update, replay_optimizer
from numscope.summary.ledger import Ledger

_MOST = 8  # times in a watch: a scaler that searches its scale has several bad steps, and large gradients may do no harm


class Foresight:
    """Replays before the judgment, in processes of their own or not at all. A diagnosis uses what they have shown, if it comes.

    Args:
        evidence: the step at work.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._num = 0
        self._updates: Beside[Optimizer, Replay] = Beside()

    @property
    def may(self) -> bool:
        """Whether it may still be asked, and whether what is bad is known at once."""
        return self._num < _MOST and self._evidence.replays and self._evidence.journal.on_host

    def calls(self, bad: Sequence[BadLeaf]) -> None:
        """A backward has ended: the script may write weights before the step is judged, by hand or in place of an optimizer."""
        self._num += 1
        self._evidence.outside.ledger.read()
        with optimizer_probe.paused():
            foresee(self._evidence, bad)

    def update(self, optimizer: Optimizer, names: Mapping[int, str]) -> None:
        """An optimizer is about to take a step that may overflow or divide by 0: weights and states from before are soon gone."""
        self._num += 1
        with optimizer_probe.paused():
            found = foresee_update(optimizer, names)
        if found is not None and found.culprit is not None:
            self._updates[optimizer] = found

    def taken(self, optimizer: Optimizer) -> Replay | None:
        """The foreseen effects of an optimizer's last step."""
        return self._updates.pop(optimizer, None)

    def found_bad(
        self, optimizer: Optimizer, foreseen: Replay | None, names: Mapping[int, str], news: Sequence[tuple[str, int]], ledger: Ledger
    ) -> Finding:
        """The finding of an optimizer's bad step, which is done again if it was not foreseen.

        Args:
            names: of parameters by id.
            news: names and handles of what it has spoiled.
            ledger: of their rows.
        """
        journal = self._evidence.journal
        replay = foreseen or Replay(None, NOT_WANTED)
        if foreseen is None and self._evidence.replays:
            with optimizer_probe.paused():
                replay = replay_optimizer(optimizer, names)
        journal.add_handles(Entry("", type(optimizer).__name__), Phase.OPTIMIZER, ledger, news)
        return self._evidence.finding(len(journal) - 1, news[0][0], replay.status, culprit=replay.culprit)
