"""The vocabulary of the package: jobs, outcomes of attempts, and immutable values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, NewType, TypeVar, dataclass_transform

from beads_workers.core.base import limits
from beads_workers.core.base.option import ISSUES, TEXT, TEXTS, option

# --- values --------------------------------------------------------------------------------------
# Values: immutable dataclasses, made by the dozen for every task.
#
# ``@value`` is ``@dataclass(frozen=True, slots=True)`` to the type checker, which refuses every
# assignment to a field. At run time nothing prevents an assignment, because that guard is three
# quarters of the time to make an instance. ``dataclass`` compiles source for each method of each
# class, which was half of the time of every start. Here it does so when a method is called for the
# first time.


T = TypeVar("T")
COMPILED = {"__init__": "init", "__repr__": "repr", "__eq__": "eq", "__hash__": "unsafe_hash"}
"""Each method with the argument of ``dataclass`` that asks for it."""
_LATER: list[Callable[[str], object]] = []
"""For each value, the function that compiles one of its methods."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(kind: type[T]) -> type[T]:
    """Make ``kind`` a value: compared and hashed by its fields, which are never set again."""
    body = {k: v for k, v in kind.__dict__.items() if k not in ("__dict__", "__weakref__")}
    made: type[T] = dataclass(slots=True, **dict.fromkeys(COMPILED.values(), False))(kind)

    def compiled(method: str) -> Callable[..., Any]:
        # A copy of the class as it was written is used, so that two threads do not meet.
        again: Any = type(made)
        copy = again(made.__name__, made.__bases__, dict(body))
        asked = {argument: name == method for name, argument in COMPILED.items()}
        real: Callable[..., Any] = getattr(dataclass(**asked)(copy), method)
        setattr(made, method, real)
        return real

    for method in COMPILED.keys() - body.keys():
        setattr(made, method, _first(method, compiled))
    _LATER.append(compiled)
    return made


def _first(method: str, compiled: Callable[[str], Callable[..., Any]]) -> Callable[..., Any]:
    return lambda *args, **kwargs: compiled(method)(*args, **kwargs)


def compile_values() -> None:
    """Compile ``__init__`` of each value now: before forks, once for them all."""
    for compiled in _LATER:
        compiled("__init__")
    _LATER.clear()


# --- jobs ----------------------------------------------------------------------------------------
# A job: one piece of work, whatever source it came from.


IssueId = NewType("IssueId", str)
"""A job's id in its source; unique within the one source of a run."""

PRIORITY_MOST_URGENT = 0
PRIORITY_LEAST_URGENT = 4
PRIORITY_DEFAULT = 2


@value
class Call:
    """A function with its arguments, which are JSON values.

    ``path``: ``package.module.name`` for a Python function; for an RRQ executor ``handler``, or
    ``executor#handler``. ``message``: the rest of a message of dispatcherd, whose own worker is to
    run it if there is one; None for all other calls.
    """

    path: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    message: Mapping[str, Any] | None = None


@value
class Arguments:
    """The arguments of a call that are kept: None stands for those that were too long."""

    args: tuple[Any, ...] | None = field(default=(), hash=False)
    kwargs: Mapping[str, Any] | None = field(default_factory=dict, hash=False)

    @property
    def omitted(self) -> tuple[str, ...]:
        """Names of the arguments that are not kept."""
        return tuple(name for name in ("args", "kwargs") if getattr(self, name) is None)


@value
class Script:
    """A script that a job wants to have run. All of it comes from its sender, and is untrusted.

    ``environment``: variables for the script alone. ``log_path``: where its output is to be found,
    below the root that the fleet allows; "" for nowhere.
    """

    text: str
    context: str = ""
    caller: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    log_path: str = ""


def is_module_name(text: str) -> bool:
    """Return whether a text could be the name of a module: ``package`` or ``package.module``."""
    return all(part.isidentifier() for part in text.split("."))


FUNCTION = "function"
COMMAND = "command"
"""Kinds of work that an issue may bring with it."""

CALL_LABEL = "call:"
"""Label ``call:package.module.name``: have that function called, with the issue as ``issue``."""


def call_of(original: Mapping[str, Any], labels: Sequence[str]) -> Call | None:
    """Return the function that an issue names; None if it names none.
    It is named in ``job_path``, ``args`` and ``kwargs`` as in a job envelope, or in a label.
    Arguments of a wrong type are ignored."""
    path, args, kwargs = (original.get(name) for name in ("job_path", "args", "kwargs"))
    if isinstance(path, str) and path:
        return Call(
            path,
            tuple(args) if isinstance(args, list | tuple) else (),
            kwargs if isinstance(kwargs, Mapping) else {},
        )
    for label in labels:
        if named := label.removeprefix(CALL_LABEL) if label.startswith(CALL_LABEL) else "":
            return Call(named, kwargs={"issue": original})
    return None


def path_of(original: Mapping[str, Any], labels: Sequence[str]) -> str:
    """Return the path of the function that an issue names; "" if it names none."""
    call = call_of(original, labels)
    return call.path if call else ""


@value
class Job:
    """A piece of work for a worker. A source builds it from a claimed issue."""

    source: str
    issue_id: IssueId
    title: str
    priority: int = PRIORITY_DEFAULT
    issue_type: str = "task"
    labels: tuple[str, ...] = ()
    description: str = ""
    # Set only if a person attached one to the issue.
    command: tuple[str, ...] | None = None
    # Set if the issue names a function.
    call: Call | None = None
    timeout_seconds: float | None = None
    # Its number, if the source counts attempts.
    attempt: int | None = None
    # The issue as the tracker showed it (JSON object), handed to commands in ``BW_ISSUE_FILE``.
    original: Mapping[str, Any] = field(default_factory=dict)
    # Epoch seconds at which the source got it; 0 if that is not known.
    enqueued_at: float = 0.0
    # Its sender's name for it, if no worker is to call that.
    named: Call | None = None
    # One that a context of the fleet runs (``core.base.scripts``).
    script: Script | None = None
    # The sender's W3C headers, by name, and untrusted (``core.base.traces.read_headers``).
    trace_context: Mapping[str, str] | None = None


class ListedIssue(NamedTuple):
    """One row of a listing: an issue that the tracker says could be taken. A cache, never a claim.

    Made by the hundred in every round trip: a tuple costs a third of a dataclass.
    """

    issue_id: IssueId
    title: str
    priority: int = PRIORITY_DEFAULT


FLEETS = "beads-workers/"
"""Beginning of the actor of every run: ``beads-workers/<host>/<run>``."""


def actor_of_task(actor: str, issue_id: str) -> str:
    """Return the actor of an agent in the tracker while it works on an issue of this run."""
    return f"{actor}/{issue_id}"


def is_agent(created_by: object) -> bool:
    """Return whether an author in the tracker is an agent of a fleet, of whatever run."""
    return (
        isinstance(created_by, str) and created_by.startswith(FLEETS) and created_by.count("/") >= 3
    )


@value
class Filters:
    """A fleet's choice of ready issues; every part that is set must hold."""

    labels: tuple[str, ...] = option(
        (), TEXTS, "Only issues with all of these labels.", name="label", panel=ISSUES
    )
    labels_any: tuple[str, ...] = option(
        (),
        TEXTS,
        "Only issues with any of these labels.",
        name="label_any",
        panel=ISSUES,
        rare=True,
    )
    exclude_labels: tuple[str, ...] = option(
        (),
        TEXTS,
        "No issues with any of these labels.",
        name="exclude_label",
        panel=ISSUES,
        rare=True,
    )
    types: tuple[str, ...] = option(
        (), TEXTS, "Only issues of these types.", name="type", panel=ISSUES
    )
    priorities: tuple[int, ...] = option(
        (),
        ("integers", 0, PRIORITY_LEAST_URGENT),
        "Only these, 0 to 4.",
        name="priority",
        panel=ISSUES,
    )
    # The id of an epic.
    parent: str | None = option(None, TEXT, "Only below this epic.", panel=ISSUES)
    # These ids and no others.
    only: tuple[str, ...] = ()
    # Any of ``FUNCTION`` and ``COMMAND``: what the issue says is to be run.
    bring: tuple[str, ...] = ()
    # Issues that agents filed are left to a person, who takes them by naming them.
    hold_discovered: bool = False

    def holds(self, created_by: object) -> bool:
        """Return whether an issue by this author is held back.
        It is if an agent of a fleet has filed it, and nobody has named it."""
        return self.hold_discovered and not self.only and is_agent(created_by)


# --- outcomes ------------------------------------------------------------------------------------
# Outcomes of attempts. A closed set: whatever a worker, a signal or a peer does becomes one.


NOTE_CHARS_MAX = 300
"""Maximum length of a note: it is for a line on a screen, and the reason of a close."""


class OutcomeKind(Enum):
    """The values are the wire names (``outcome`` in DONE and FAILED of version 1.1)."""

    SUCCESS = "success"
    ERROR = "error"
    RETRY = "retry"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    LOST = "lost"
    NOT_FOUND = "not_found"
    QUESTION = "question"
    """The work waits for a person's answer."""


@value
class Outcome:
    """What came of an attempt."""

    kind: OutcomeKind
    # One line for people.
    error: str = ""
    # Only with ``RETRY``.
    retry_after_seconds: float | None = None
    # With ``SUCCESS`` only: one line on what came of the work.
    note: str = ""
    # With ``SUCCESS`` only: the JSON text of what a function returned; "" if there is none.
    result: str = ""
    # With ``SUCCESS`` only: the file of the result if it is too long.
    result_file: str = ""
    # Of an agent (a ``receipts.Receipt``), with any outcome.
    receipt: Any = None
    # With ``RETRY``: no worktree could be made, so that nothing was run, or git or the machine
    # could not commit what was done there.
    unprepared: bool = False
    # With ``CANCELLED``: the issue's worktree, because a person stands in it; nothing was run.
    occupied: str = ""


OCCUPIED = "occupied:"
"""Before the folder of the worktree in which a person stands: in what a preparation prints, and in
the ``error_detail`` of a FAILED."""


def note_of(result: Any) -> str:
    """Return the ``note`` in the result of a DONE; "" if there is none."""
    note = result.get("note") if isinstance(result, dict) else None
    if not isinstance(note, str):
        return ""
    return " ".join("".join(c if c.isprintable() else " " for c in note[:NOTE_CHARS_MAX]).split())


def kept(result: Any, *, of_function: bool = False) -> str:
    """Return the JSON text of a DONE's result that is remembered; "" if there is none.

    A note alone is no result, unless a function has returned it. A result that is too long leaves
    ``{"cut": true, "characters": N, "begins": TEXT}``.
    """
    if result is None:
        return ""
    if not of_function and isinstance(result, dict) and result.keys() == {"note"}:
        return ""
    whole = _ENCODER.encode(result)
    if len(whole) <= limits.RESULT_CHARS_MAX:
        return whole
    begins = whole[: limits.RESULT_CHARS_SHOWN]
    return _ENCODER.encode({"cut": True, "characters": len(whole), "begins": begins})


_ENCODER = json.JSONEncoder(separators=(",", ":"))
