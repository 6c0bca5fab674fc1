"""What the worker's half is told (past tense), and what it asks its edge to do (imperative)."""

from __future__ import annotations

from dataclasses import dataclass

from beads_workers.core.message_types import FromWorker, ToWorker
from beads_workers.core.outcomes import Outcome
from beads_workers.core.plans import Plan, Step

# --- events -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connected:
    """The connection that ``Connect`` asked for stands."""


@dataclass(frozen=True, slots=True)
class ConnectFailed:
    """It does not; ``error`` is one line."""

    error: str


@dataclass(frozen=True, slots=True)
class Received:
    """A message from the orchestrator."""

    message: ToWorker


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The orchestrator is gone, or does not read any more. Told once."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A signal asks the worker itself to end, as SHUTDOWN would."""


@dataclass(frozen=True, slots=True)
class StepEnded:
    """A step's program ended, and nothing of its process group is left.

    ``status``: its exit status, or minus the number of the signal that killed it, whose name is
    then in ``signal`` (``KILL``). ``tail``: the end of what this step wrote. ``result``: the JSON
    text of what a step that ``speaks`` has said, or ``result_file``, where that lies.
    """

    status: int
    tail: str = ""
    signal: str = ""
    result: str = ""
    result_file: str = ""


@dataclass(frozen=True, slots=True)
class StepAnswered:
    """A step that is no program of its own came to its end: a function returned, say."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class StepNotStarted:
    """A step's program could not be started; ``error`` is one line.

    ``missing``: there is no such program, or it may not be executed. ``hindered``: the machine had
    no room, no descriptor or no process left, or the project's folder is gone.
    """

    error: str
    missing: bool = False
    hindered: bool = False


StepOver = StepEnded | StepAnswered | StepNotStarted
Event = Connected | ConnectFailed | Received | ConnectionLost | Interrupted | StepOver


def name_of(event: Event | None) -> str:
    """What a log calls it: a message by its type, anything else by its own name."""
    if isinstance(event, Received):
        return type(event.message).__name__.upper()
    return type(event).__name__


# --- commands ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connect:
    """Try once to connect; answer with ``Connected`` or ``ConnectFailed``."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message; drop it silently where the connection is gone."""

    message: FromWorker


@dataclass(frozen=True, slots=True)
class RunStep:
    """Start a step of ``plan``; answer with what is ``StepOver``."""

    plan: Plan
    step: Step


@dataclass(frozen=True, slots=True)
class EndStep:
    """End the running step (TERM to its process group), KILL when ``hard``; its end follows."""

    hard: bool


@dataclass(frozen=True, slots=True)
class Exit:
    """Flush what is unsent, and end the process with this status."""

    status: int


@dataclass(frozen=True, slots=True)
class Log:
    """One line for whoever looks after workers."""

    text: str


Command = Connect | Send | RunStep | EndStep | Exit | Log
