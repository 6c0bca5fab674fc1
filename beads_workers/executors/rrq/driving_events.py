"""What the driver of an executor is told (past tense), and what it asks for (imperative)."""

from __future__ import annotations

from dataclasses import dataclass

from beads_workers.core.outcomes import Outcome
from beads_workers.protocols.rrq import envelopes as wire

# --- events -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asked:
    """A slot has a request; ``Answer`` comes of it, once. The slot had none."""

    slot: int
    request: wire.Request


@dataclass(frozen=True, slots=True)
class EndAsked:
    """The slot's request is to end: by a cancel, or, ``hard``, with the whole process."""

    slot: int
    hard: bool


@dataclass(frozen=True, slots=True)
class ProcessStarted:
    """It runs now; it may not accept connections yet."""


@dataclass(frozen=True, slots=True)
class ProcessNotStarted:
    """There is none. ``missing``: no such program; else the machine is full."""

    error: str
    missing: bool


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """It is gone, and all it had started with it. ``why``: one line."""

    why: str


@dataclass(frozen=True, slots=True)
class Probed:
    """What came of ``Probe``."""

    accepts: bool


@dataclass(frozen=True, slots=True)
class Heard:
    """An outcome arrived on a slot's connection."""

    slot: int
    answer: wire.Outcome


@dataclass(frozen=True, slots=True)
class HungUp:
    """A slot's connection is over; the process may be ending, too."""

    slot: int


@dataclass(frozen=True, slots=True)
class Broken:
    """A slot's connection could not be made, or said what makes no sense; ``why``: one line."""

    slot: int
    why: str


Event = (
    Asked
    | EndAsked
    | ProcessStarted
    | ProcessNotStarted
    | ProcessEnded
    | Probed
    | Heard
    | HungUp
    | Broken
)

# --- commands ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartProcess:
    """Answer with ``ProcessStarted`` or ``ProcessNotStarted``."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Try to connect, and close again; answer with ``Probed``."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request on the slot's connection, which is made when there is none."""

    slot: int
    request: wire.Request


@dataclass(frozen=True, slots=True)
class SendCancel:
    """Send a cancel on a connection of its own."""

    cancel: wire.Cancel


@dataclass(frozen=True, slots=True)
class Kill:
    """KILL the process and all it has started; ``ProcessEnded`` follows."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How the slot's request ended. ``unusable``: no request of this fleet can ever be run."""

    slot: int
    outcome: Outcome
    unusable: bool = False


@dataclass(frozen=True, slots=True)
class Log:
    """One line for whoever looks after executors."""

    text: str


Command = StartProcess | Probe | Send | SendCancel | Kill | Answer | Log
