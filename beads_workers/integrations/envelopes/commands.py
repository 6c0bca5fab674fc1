"""``submit``: hand in jobs as envelopes to the built-in tracker."""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from beads_workers.cli.client import find_state_directory, project_here, tracker_here
from beads_workers.cli.tracker_folder import Json, opened, warn
from beads_workers.core.base.text import counted, json_line, printable
from beads_workers.errors import CommandError, unreadable
from beads_workers.exits import EXIT_TRACKER, EXIT_USAGE
from beads_workers.integrations.envelopes.fold import call_path, to_issue
from beads_workers.integrations.envelopes.wire import PROBLEMS_MAX, Submitted
from beads_workers.runtime.locks import is_locked
from beads_workers.trackers.issue import BadIssue, TrackerIssue
from beads_workers.trackers.sqlite.exchange import write_issues
from beads_workers.trackers.sqlite.store import SqliteStore, transaction

# --- submission ----------------------------------------------------------------------------------
# Jobs handed in to the built-in tracker: all jobs of a submission, or none.


IN_TRACKER = "is in the tracker already"


class SubmissionRefused(Exception):
    """A submission was refused as a whole. ``problems``: one line each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def submit_all(connection: sqlite3.Connection, jobs: Sequence[Submitted]) -> list[str]:
    """Make an issue of each job; return warnings about ignored fields.

    Raises ``SubmissionRefused``.
    """
    issues: list[TrackerIssue] = []
    problems: list[str] = []
    warnings: list[str] = []
    first: dict[str, str] = {}
    for position, job in enumerate(jobs):
        job_id = job.envelope.job_id
        try:
            issue, useless = to_issue(job.envelope, position)
        except BadIssue as error:
            problems.append(f"{job.where}: {error}")
            continue
        if (before := first.setdefault(job_id, job.where)) != job.where:
            problems.append(f"{job.where}: job_id: {job_id!r} was on {before} already")
        issues.append(issue)
        warnings += [f"{job.where}: {text}" for text in useless]
    with transaction(connection):
        store = SqliteStore(connection)
        known = store.known(first)
        for job in jobs:
            if job.envelope.job_id in known:
                job_id = job.envelope.job_id
                problems.append(f"{job.where}: job_id: {job_id!r} {IN_TRACKER}")
        if problems:
            raise SubmissionRefused(problems[:PROBLEMS_MAX])
        write_issues(store, issues)
    return warnings


# --- submit --------------------------------------------------------------------------------------


STDIN = "-"
PACKAGES_SHOWN = 3
EXECUTOR = re.compile(r"[A-Za-z0-9_-]{1,32}")
"""Valid name of an executor."""


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command("submit", epilog="Example: beads-workers submit < envelope.json")(submit)


def submit(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE...]", help="Job envelopes, JSON Lines; default stdin."),
    ] = None,
    json: Json = False,
    schema: Annotated[
        bool,
        typer.Option("--schema", help="Print the JSON Schema of an envelope, and that is all."),
    ] = False,
) -> None:
    """Hand in jobs as envelopes: all of them, or none.

    They become issues of the built-in tracker, whose functions 'start --allow-module' calls.
    """
    if schema:
        _print_schema()
        return

    _look_for_bd()
    jobs = _read(files or [STDIN])
    with opened() as connection:
        try:
            warnings = submit_all(connection, jobs)
        except SubmissionRefused as refused:
            raise _refusal(refused.problems) from None
    for warning in warnings[:PROBLEMS_MAX]:
        warn(printable(warning, 200))
    ids = [job.envelope.job_id for job in jobs]
    if json:
        print(json_line({"submitted": len(ids), "job_ids": ids}))
        return
    print(f"submitted {counted(len(ids), 'job')}")
    if not is_locked(find_state_directory() / "lock"):
        print(f"next: beads-workers start {_what_calls(jobs)}")


def _what_calls(jobs: Sequence[Submitted]) -> str:
    """Return the option of ``start`` that these jobs need, as far as one can tell.

    It names the modules' first names or, if the jobs call functions of executors, the executors.
    """
    calls = [call_path(job.envelope.job_path).partition("#") for job in jobs]
    executors = dict.fromkeys(name for name, mark, _ in calls if mark)
    if executors:
        # The names come from the file, and people paste this line into a shell: only safe ones are
        # shown.
        shown = [name for name in executors if EXECUTOR.fullmatch(name)][:PACKAGES_SHOWN]
        return " ".join(f"--executor {name}=rrq:CMD" for name in shown or ["NAME"])
    names = dict.fromkeys(path.partition(".")[0] for path, _, _ in calls if "." in path)
    shown = [printable(name, 40) for name in names if name.isidentifier()][:PACKAGES_SHOWN]
    return " ".join(f"--allow-module {name}" for name in shown or ["NAME"])


def _print_schema() -> None:
    from json import dumps

    from beads_workers.integrations.envelopes.wire import schema

    print(dumps(schema(), indent=2))


def _look_for_bd() -> None:
    project = project_here()
    if project is None or project.beads is None:
        return
    if tracker_here() is None:
        raise CommandError(
            "jobs are handed in to the built-in tracker, and this project has only bd",
            "there an issue names its function: beads-workers add TITLE -l call:pkg.mod.fn",
            EXIT_TRACKER,
        )
    warn("there is a .beads folder here too: 'start' takes it, unless --source sqlite is given")


def _read(files: list[str]) -> list[Submitted]:
    """Return every job of every file; raise ``CommandError`` for any fault in any of them."""
    from beads_workers.integrations.envelopes.wire import read_submission

    jobs: list[Submitted] = []
    problems: list[str] = []
    for file in files:
        found = read_submission(_bytes(file), "" if file == STDIN else file)
        problems += found.problems
        jobs += found.jobs
    if problems:
        raise _refusal(problems)
    if not jobs:
        raise CommandError("no envelope was handed in", "see docs/ENVELOPE.md", EXIT_USAGE)
    return jobs


def _bytes(file: str) -> bytes:
    if file == STDIN and sys.stdin.isatty():
        print("reading envelopes from the terminal; Ctrl-D ends", file=sys.stderr)
    try:
        return sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
    except OSError as error:
        raise unreadable(file, error, "submit") from error


def _refusal(problems: Sequence[str]) -> CommandError:
    """Return the error for these problems; with several, print each, and say that no job was
    taken."""

    hint = "an envelope has job_id, job_path, args, kwargs, state 'enqueued' and ts_enqueued"
    if all(problem.endswith(IN_TRACKER) for problem in problems):
        hint = "'beads-workers list --envelopes --all' shows what became of it"
    if len(problems) == 1:
        return CommandError(f"nothing was taken: {printable(problems[0], 200)}", hint)
    for problem in problems[:PROBLEMS_MAX]:
        warn(printable(problem, 200))
    return CommandError("nothing was taken: see what is wrong above", hint)
