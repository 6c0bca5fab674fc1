"""Plans of tasks for a worker: programs to run, and what their ends mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum

from beads_workers.core.base import limits
from beads_workers.core.base.model import Call, OutcomeKind, value
from beads_workers.core.base.scripts import LogRoot


class StepKind(Enum):
    """Purpose of a step; its name appears in logs and error texts."""

    CLAIM = "claim"
    """``bd update ID --status=in_progress``: only a worker that calls the tracker itself."""
    PREPARE = "prepare"
    """Makes the worktree that the next steps run in; its failure is no fault of the task."""
    VALIDATE = "validate"
    """Checks a script before it is run, and may refuse it for good."""
    RUN = "run"
    AWAY = "away"
    """Waits for the steps on another machine; its own failure is no fault of the task."""
    VERIFY = "verify"
    REPORT = "report"
    """Says in a line what came of a task that has succeeded; its own end changes nothing."""
    CLOSE = "close"
    RELEASE = "release"
    DELIVER = "deliver"
    """Commits what a task left in its worktree, and names the branch that is to land."""


@value
class Step:
    """One program, or one ``call``."""

    kind: StepKind
    argv: tuple[str, ...]
    # Added to the worker's own.
    environment: Mapping[str, str] = field(default_factory=dict)
    # What the program reads before it meets the end; None is ``/dev/null``.
    stdin: str | None = None
    # The file in which an earlier PREPARE step left the folder to run in, and further environment;
    # None: the project's folder.
    place_file: str | None = None
    call: Call | None = None
    # Its stdout is the result of the task.
    speaks: bool = False
    # It is an attempt of an agent, which prints its progress and one answer
    # (``core.records.assignment``).
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
    """The steps of one task, each run only after the one before it has succeeded."""

    steps: tuple[Step, ...]
    # A path; the file is to hold ``issue_text`` before the first step starts.
    issue_file: str
    issue_text: str
    # It collects the output, which goes to ``output_file`` first while there is no log yet.
    log_file: str
    output_file: str
    # A log that is longer loses its middle.
    log_bytes_max: int = limits.LOG_BYTES_MAX
    # ``close`` and ``release`` are set only if the worker itself holds the claim: exactly one of
    # them ends a task that was claimed and not handed back with FAILED.
    close: Step | None = None
    release: Step | None = None
    # The file for a result that is too long to be sent.
    result_file: str = ""
    # The file in which its programs may report progress.
    progress_file: str = ""
    # A second place for the output.
    log_copy: LogCopy | None = None
    # Texts that are masked in all output, the longest first.
    secrets: tuple[str, ...] = ()
    # Its time limit is kept where it runs: it may have to wait for a machine first.
    keeps_time: bool = False


@value
class NotRunnable:
    """Nothing can be run for this task; ``error`` is one line for people."""

    error: str
    outcome: OutcomeKind = OutcomeKind.NOT_FOUND
