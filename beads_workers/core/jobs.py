"""A job: one piece of work, whatever source it came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple, NewType

from beads_workers.core.values import value

IssueId = NewType("IssueId", str)
"""A job's id in its source; unique within the one source of a run."""

PRIORITY_MOST_URGENT = 0
PRIORITY_LEAST_URGENT = 4
PRIORITY_DEFAULT = 2


@value
class Call:
    """A function with its arguments, which are JSON values.

    ``path``: ``package.module.name`` for one in Python; an RRQ executor's is ``handler``, or
    ``executor#handler``. ``message``: what else a message of dispatcherd said, whose own worker is
    to run it where there is one; None for all other calls.
    """

    path: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    message: Mapping[str, Any] | None = None


@value
class Script:
    """What a job wants to have run. All of it comes from its sender, and is untrusted.

    ``environment``: variables for the script alone. ``log_path``: where its output shall be found,
    below the root that the fleet allows; "" for nowhere.
    """

    text: str
    context: str = ""
    caller: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    log_path: str = ""


def is_module_name(text: str) -> bool:
    """Whether it could be the name of a module: ``package`` or ``package.module``."""
    return all(part.isidentifier() for part in text.split("."))


FUNCTION = "function"
COMMAND = "command"
"""What an issue may bring to be run."""

CALL_LABEL = "call:"
"""A label ``call:package.module.name`` has that function called, with the issue as ``issue``."""


def call_of(original: Mapping[str, Any], labels: Sequence[str]) -> Call | None:
    """The function that an issue names: in ``job_path``, ``args`` and ``kwargs`` as a job envelope
    does, or in a label. Arguments of another type than they should have are none."""
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
    """The path of the function that an issue names; "" where it names none."""
    call = call_of(original, labels)
    return call.path if call else ""


@value
class Job:
    """What a worker is given to do. A source builds it from a claimed issue.

    ``original`` is the issue as the tracker showed it (JSON object), handed to commands in
    ``BW_ISSUE_FILE``. ``command`` is set only where a person attached one to the issue, ``call``
    where the issue names a function. ``enqueued_at``: epoch seconds at which the source got it; 0
    where that is not known. ``attempt``: which one this is, where the source counts them.
    ``named``: what its sender calls it, where no worker is to call that. ``script``: one that
    a context of the fleet runs (``core.scripts``). ``trace_context``: the W3C headers of whoever
    sent it, by name, and untrusted (``core.traces.read_headers``).
    """

    source: str
    issue_id: IssueId
    title: str
    priority: int = PRIORITY_DEFAULT
    issue_type: str = "task"
    labels: tuple[str, ...] = ()
    description: str = ""
    command: tuple[str, ...] | None = None
    call: Call | None = None
    timeout_seconds: float | None = None
    attempt: int | None = None
    original: Mapping[str, Any] = field(default_factory=dict)
    enqueued_at: float = 0.0
    named: Call | None = None
    script: Script | None = None
    trace_context: Mapping[str, str] | None = None


class Listed(NamedTuple):
    """One row of a listing: what the tracker says could be taken. A cache, never a claim.

    Made by the hundred in every turn of the lane: a tuple costs a third of a dataclass.
    """

    issue_id: IssueId
    title: str
    priority: int = PRIORITY_DEFAULT


@value
class Filters:
    """Which ready issues a fleet takes; every part that is set must hold.

    ``labels`` all present, ``labels_any`` at least one, ``exclude_labels`` none; ``types`` and
    ``priorities`` any of; ``parent`` the id of an epic; ``only`` these ids and no others;
    ``bring`` any of ``FUNCTION`` and ``COMMAND``: what the issue says is to be run.
    """

    labels: tuple[str, ...] = ()
    labels_any: tuple[str, ...] = ()
    exclude_labels: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    priorities: tuple[int, ...] = ()
    parent: str | None = None
    only: tuple[str, ...] = ()
    bring: tuple[str, ...] = ()
