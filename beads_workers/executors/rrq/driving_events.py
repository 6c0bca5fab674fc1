"""What the driver of an executor is told (past tense), and what it asks for (imperative)."""

from __future__ import annotations

from beads_workers.core.outcomes import Outcome
from beads_workers.core.values import value
from beads_workers.protocols.rrq import envelopes as wire

# --- events -----------------------------------------------------------------------------------


@value
class Asked:
    """A slot has a request; ``Answer`` comes of it, once. The slot had none."""

    slot: int
    request: wire.Request


@value
class EndAsked:
    """The slot's request is to end: by a cancel, or, ``hard``, with the whole process."""

    slot: int
    hard: bool


@value
class ProcessStarted:
    """It runs now; it may not accept connections yet."""


@value
class ProcessNotStarted:
    """There is none. ``missing``: no such program; else the machine is full."""

    error: str
    missing: bool


@value
class ProcessEnded:
    """It is gone, and all it had started with it. ``why``: one line."""

    why: str


@value
class Probed:
    """What came of ``Probe``."""

    accepts: bool


@value
class Heard:
    """An outcome arrived on a slot's connection."""

    slot: int
    answer: wire.Outcome


@value
class HungUp:
    """A slot's connection is over; the process may be ending, too."""

    slot: int


@value
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


@value
class StartProcess:
    """Answer with ``ProcessStarted`` or ``ProcessNotStarted``."""


@value
class Probe:
    """Try to connect, and close again; answer with ``Probed``."""


@value
class Send:
    """Send a request on the slot's connection, which is made when there is none."""

    slot: int
    request: wire.Request


@value
class SendCancel:
    """Send a cancel on a connection of its own."""

    cancel: wire.Cancel


@value
class Kill:
    """KILL the process and all it has started; ``ProcessEnded`` follows."""


@value
class Answer:
    """How the slot's request ended. ``unusable``: no request of this fleet can ever be run."""

    slot: int
    outcome: Outcome
    unusable: bool = False


@value
class Log:
    """One line for whoever looks after executors."""

    text: str


Command = StartProcess | Probe | Send | SendCancel | Kill | Answer | Log
