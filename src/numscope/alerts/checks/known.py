"""The checks that a watch makes unless they are switched off."""

from __future__ import annotations

from numscope.alerts.checks.batches import EpochsInSameOrder, SameBatchAgain
from numscope.alerts.checks.dead_units import DeadUnits
from numscope.alerts.checks.lost_updates import UpdatesLost
from numscope.alerts.checks.protocol import Check
from numscope.alerts.checks.rank_data import SameDataOnRanks
from numscope.alerts.checks.replicas import ReplicasDiffer

CHECKS: tuple[type[Check], ...] = (
    ReplicasDiffer,
    SameDataOnRanks,
    SameBatchAgain,
    EpochsInSameOrder,
    UpdatesLost,
    DeadUnits,
)
