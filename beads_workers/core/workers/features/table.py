"""The features of this orchestrator, in the order in which they are told what happens."""

from __future__ import annotations

from beads_workers.core.workers.features import Feature
from beads_workers.core.workers.features.choosing import Choosing
from beads_workers.core.workers.features.heartbeats import Heartbeats
from beads_workers.core.workers.features.pausing import PausingWorkers
from beads_workers.core.workers.features.queueing import Queueing
from beads_workers.core.workers.features.telling import Telling

FEATURES: tuple[type[Feature], ...] = (
    Heartbeats,
    Choosing,
    PausingWorkers,
    Telling,
    Queueing,
)
