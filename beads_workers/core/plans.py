"""Plans of tasks for a worker: programs to run, and what their ends mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum

from beads_workers.core import limits
from beads_workers.core.model import Call, OutcomeKind, value
from beads_workers.core.scripts import LogRoot


class StepKind(Enum):
    """Purpose of a step; its name appears in logs and error texts."""

    CLAIM = "claim"
    """``bd update ID --status=in_progress``: only a worker that calls the tracker itself."""
    PREPARE = "prepare"
    """Makes the worktree that the next steps run in; its failure is no fault of the task."""
    VALIDATE = "validate"
    """Checks a script before it is run, and may refuse it for good."""
    RUN = "run"
    VERIFY = "verify"
    REPORT = "report"
    """Says in a line what came of a task that has succeeded; its own end changes nothing."""
    CLOSE = "close"
    RELEASE = "release"
    DELIVER = "deliver"
    """Commits what a task left in its worktree, and names the branch that is to land."""


@value
class Step:
    """One program, or one ``call``. ``environment`` is added to the worker's own.

    ``stdin``: what the program reads before it meets the end; None is ``/dev/null``.
    ``place_file``: the file in which an earlier PREPARE step left the folder to run in, and further
    environment; None: the project's folder. ``speaks``: its stdout is the result of the task.
    ``is_attempt``: it is an attempt of an agent, which prints its progress and one answer
    (``core.assignment``).
    """

    kind: StepKind
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    stdin: str | None = None
    place_file: str | None = None
    call: Call | None = None
    speaks: bool = False
    is_attempt: bool = False

    @property
    def name(self) -> str:
        """Name of what is run, in a word."""
        return self.call.path if self.call else self.argv[0]


def plain(text: str) -> str:
    """Return ``text`` as an argument or a variable can hold it: no NUL byte, no lone surrogate."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


@value
class LogCopy:
    """A second place for a task's output besides its log: ``path`` is its sender's word, ``root``
    ours."""

    root: LogRoot
    path: str


@value
class Plan:
    """The steps of one task, each run only after the one before it has succeeded.

    ``close`` and ``release`` are set only if the worker itself holds the claim: exactly one of them
    ends a task that was claimed and not handed back with FAILED. ``issue_file`` (a path) is to hold
    ``issue_text`` before the first step starts. ``log_file`` collects the output, which goes to
    ``output_file`` first while there is no log yet; a log longer than ``log_bytes_max`` loses its
    middle. ``result_file``: the file for a result that is too long to be sent. ``progress_file``:
    the file in which its programs may report progress. ``log_copy``: a second place for the output.
    ``secrets``: texts that are masked in all output, the longest first.
    """

    steps: tuple[Step, ...]
    issue_file: str
    issue_text: str
    log_file: str
    output_file: str
    log_bytes_max: int = limits.LOG_BYTES_MAX
    close: Step | None = None
    release: Step | None = None
    result_file: str = ""
    progress_file: str = ""
    log_copy: LogCopy | None = None
    secrets: tuple[str, ...] = ()


@value
class NotRunnable:
    """Nothing can be run for this task; ``error`` is one line for people."""

    error: str
    outcome: OutcomeKind = OutcomeKind.NOT_FOUND
