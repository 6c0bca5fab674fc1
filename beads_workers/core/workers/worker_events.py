"""Events of the worker's half (past tense), and its commands to its edge (imperative)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beads_workers.core.base import wire
from beads_workers.core.base.model import Outcome, value
from beads_workers.core.base.plans import Plan, Step

# --- events -----------------------------------------------------------------------------------


@value
class OrchestratorConnected:
    """The connection that ``Connect`` asked for stands."""


@value
class ConnectFailed:
    """Connecting failed; ``error`` is one line."""

    error: str


@value
class MessageReceived:
    """A message from the orchestrator."""

    message: wire.ToWorker | wire.ControlReply


@value
class ConnectionLost:
    """The orchestrator is gone, or does not read any more. Reported once."""


@value
class Interrupted:
    """A signal asks the worker itself to end, as SHUTDOWN would."""


@value
class StepEnded:
    """A step's program ended, and nothing of its process group is left."""

    # Its exit status, or minus the number of the signal that killed it.
    status: int
    # The end of what this step wrote.
    tail: str = ""
    # The name of the signal that killed it (``KILL``).
    signal: str = ""
    # The JSON text that a step that ``speaks`` has said, or ``result_file``, the file with it.
    result: str = ""
    result_file: str = ""
    # What all that it wrote says has failed (``core.base.failures``); "" if nothing is known.
    said: str = ""


@value
class StepAnswered:
    """A step that reports its own outcome came to its end: a function, or an agent's attempt.

    ``is_stopping``: it wants its worker to end. ``receipt``: an agent's (JSON object).
    """

    outcome: Outcome
    is_stopping: bool = False
    receipt: Mapping[str, Any] | None = None


@value
class StepSaid:
    """A running step has a message for the orchestrator, whatever state its worker is in.

    A step that asks (``ControlAsked``) waits for ``TellStep``.
    """

    message: wire.ControlAsked | wire.Aside


@value
class StepNotStarted:
    """A step's program could not be started."""

    # One line.
    error: str
    # There is no such program, or it may not be executed.
    missing: bool = False
    # The machine had no room, no descriptor or no process left, or the project's folder or the
    # task's is gone.
    degraded: bool = False


@value
class StepBegun:
    """A task of dispatcherd is called now: what it needs was set up, and its time begins."""


StepOver = StepEnded | StepAnswered | StepNotStarted
Moving = (
    OrchestratorConnected
    | ConnectFailed
    | MessageReceived
    | ConnectionLost
    | Interrupted
    | StepOver
)
"""Events that move a worker from state to state."""
Event = Moving | StepSaid | StepBegun


def name_of(event: Event | None) -> str:
    """Return an event's name in a log: a message by its type, anything else by its own name."""
    if isinstance(event, MessageReceived):
        return type(event.message).__name__.upper()
    return type(event).__name__


# --- commands ---------------------------------------------------------------------------------


@value
class Connect:
    """Try once to connect; answer with ``OrchestratorConnected`` or ``ConnectFailed``."""


@value
class SendMessage:
    """Send a message; drop it silently if the connection is gone. ``v1``: no additions."""

    message: wire.FromWorker | wire.ControlAsked
    v1: bool = False


@value
class SpoolResult:
    """Put a message that nobody hears where the next start finds it, if that can be done.

    Its ``request_id`` says which TASK it answers.
    """

    message: wire.Done | wire.Failed


@value
class RunStep:
    """Start a step of ``plan``; answer with a ``StepOver``.

    A task of dispatcherd has its ``StepBegun`` before that, if it came so far.
    """

    plan: Plan
    step: Step


@value
class EndStep:
    """End the running step (TERM to its process group), KILL if ``hard``; its end follows.

    ``ask``: only SIGUSR1 to its process, which is how dispatcherd's tasks are cancelled.
    """

    hard: bool
    ask: bool = False


@value
class SuspendStep:
    """Stop the running step's process group (SIGSTOP), or have it go on (SIGCONT)."""

    on: bool


@value
class TellStep:
    """Hand the running step the answer that it waits for, if it still does."""

    reply: Mapping[str, Any]


@value
class Exit:
    """Flush what is unsent, and end the process with this status."""

    status: int


@value
class Log:
    """One line for whoever looks after workers."""

    text: str


Command = (
    Connect | SendMessage | SpoolResult | RunStep | EndStep | SuspendStep | TellStep | Exit | Log
)
