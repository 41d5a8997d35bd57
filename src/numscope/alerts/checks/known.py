"""The checks that a watch makes unless they are switched off."""

from __future__ import annotations

from numscope.alerts.checks.batches import EpochsInSameOrder, SameBatchAgain
from numscope.alerts.checks.bypass import Bypass
from numscope.alerts.checks.clearing import Clearing, Reaching
from numscope.alerts.checks.dead_units import DeadUnits
from numscope.alerts.checks.losses import ConstantLoss
from numscope.alerts.checks.lost_updates import UpdatesLost
from numscope.alerts.checks.modes import Autocast, EvalMode, WeightDtype
from numscope.alerts.checks.protocol import Check
from numscope.alerts.checks.rank_data import SameDataOnRanks
from numscope.alerts.checks.replicas import ReplicasDiffer
from numscope.alerts.checks.scaling import Scaling
from numscope.alerts.checks.schedules import Schedules
from numscope.alerts.checks.states import LostState
from numscope.alerts.checks.tied import Tied
from numscope.alerts.checks.weights import Weights

# A check that stands behind another one is asked after it.
CHECKS: tuple[type[Check], ...] = (
    Weights,
    Tied,
    EvalMode,
    Autocast,
    WeightDtype,
    Clearing,
    Reaching,
    Scaling,
    Schedules,
    ConstantLoss,
    LostState,
    Bypass,
    ReplicasDiffer,
    SameDataOnRanks,
    SameBatchAgain,
    EpochsInSameOrder,
    UpdatesLost,
    DeadUnits,
)
