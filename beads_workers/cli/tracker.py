"""Commands of trackers: add, list and show of any; init, import and export of the built-in one."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from beads_workers.cli.arguments import IssueCommand, StateDir
from beads_workers.cli.client import find_state_directory
from beads_workers.cli.completion import among, issues
from beads_workers.cli.kinds import need
from beads_workers.cli.layout import LaidOut
from beads_workers.cli.person import author, valid
from beads_workers.cli.source_listing import editable, located, refuse_elsewhere, unknown
from beads_workers.cli.tracker_folder import Json, init, opened, warn
from beads_workers.core.base.model import (
    PRIORITY_DEFAULT,
    PRIORITY_LEAST_URGENT,
    PRIORITY_MOST_URGENT,
)
from beads_workers.core.base.ready import BLOCKS, FINISHED
from beads_workers.core.base.text import json_line, printable
from beads_workers.core.base.times import parse_duration
from beads_workers.errors import CommandError, unreadable
from beads_workers.exits import EXIT_USAGE
from beads_workers.ui.words import ORDER_NAMES, State

if TYPE_CHECKING:
    from beads_workers.cli.source_listing import Listed
    from beads_workers.trackers.issue import TrackerIssue
    from beads_workers.trackers.sqlite.exchange import Imported


# --- tracker text --------------------------------------------------------------------------------
# Texts about the built-in tracker's issues. Nothing from an issue is printed unescaped.


_TITLE_COLUMNS = 100
_COMMENT_COLUMNS = 200
_WAITS_SHOWN = 5
_DROPPED = "dropped: it came with the file, and would run; --allow-commands keeps it"


def issue_row(issue: TrackerIssue, width: int, waits_for: list[str]) -> str:
    """Return one line of a list; ``width``: that of the longest id."""
    parts = [
        printable(issue.id).ljust(width),
        f"P{issue.priority}",
        f"{printable(issue.status):<11}",
        printable(issue.title, _TITLE_COLUMNS),
    ]
    if issue.issue_type != "task":
        parts.append(f"({printable(issue.issue_type)})")
    if issue.labels:
        parts.append(f"[{', '.join(map(printable, issue.labels))}]")
    if issue.assignee:
        parts.append(f"@{printable(issue.assignee)}")
    if waits_for:
        parts.append(f"waits for {', '.join(map(printable, waits_for[:_WAITS_SHOWN]))}")
        if len(waits_for) > _WAITS_SHOWN:
            parts[-1] += f" and {len(waits_for) - _WAITS_SHOWN} more"
    return "  ".join(parts)


def shown(name: str, value: Any) -> str:
    """Return the value of one key of an issue, for people; further lines are indented."""
    if name == "command":
        return printable(shlex.join(value))
    if isinstance(value, str):
        lines = [printable(line) for line in value.split("\n")]
        return "\n".join(lines) if len(lines) == 1 else "\n  " + "\n  ".join(lines)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(map(printable, value))
    if name == "comments":
        return "".join(f"\n  {line}" for each in value for line in _comment_lines(each))
    return json_line(value)


def _comment_lines(comment: Mapping[str, Any]) -> Iterator[str]:
    author, created_at = comment.get("author") or "somebody", comment.get("created_at") or ""
    said = f"{author}, {created_at} ({comment.get('id')}):"
    yield printable(said, _COMMENT_COLUMNS)
    for line in str(comment.get("text") or "").split("\n"):
        yield f"  {printable(line)}"


def print_array(lines: Iterable[str]) -> None:
    """Print an array with one object per line: large ones stay readable, and stream."""
    before = "["
    for line in lines:
        print(before + line, end="")
        before = ",\n"
    print("[]" if before == "[" else "]")


LEFT_OUT_MAX = 20
"""Number of parts left out by an import that are named on stderr; ``--json`` names all."""


def report(found: Imported) -> None:
    """Warn on stderr of what the three counts do not show."""
    for each in found.left_out[:LEFT_OUT_MAX]:
        warn(f"left out: {printable(each, 200)}")
    counts = (
        (found.commands_dropped, "command was", "commands were", _DROPPED),
        (found.older, "issue was", "issues were", "left alone: the tracker's is newer"),
        (found.held, "issue is", "issues are", "being worked on: who holds it stayed"),
        (found.skipped, "line is", "lines are", "no issue, and skipped"),
        (found.dangling, "issue is", "issues are", "named as a dependency, but not here"),
        (
            len(found.left_out),
            "part was",
            "parts were",
            "left out: a dependency left out holds nothing back",
        ),
    )
    for count, one, many, what in counts:
        if count:
            warn(f"{count} {one if count == 1 else many} {what}")


# --- tracker -------------------------------------------------------------------------------------
# Commands of the built-in tracker: add, list, show, import, export, and init. SQLite is imported in
# the commands that need it, so that the others start without it.


AFTER_DASHES = "beads_workers.after_dashes"
"""Key in the context of a call: how many arguments followed ``--``."""


PRIORITY = typer.Option(
    "-p",
    "--priority",
    min=PRIORITY_MOST_URGENT,
    max=PRIORITY_LEAST_URGENT,
    help="0 is the most urgent.",
)


class DashedArguments(LaidOut):
    """A command that remembers how many arguments followed ``--``, which the parser forgets."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click; ``_split`` reads the number."""
        if "--" in args:
            ctx.meta[AFTER_DASHES] = len(args) - args.index("--") - 1
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    app.command("init", epilog="Example: beads-workers init")(init)
    app.command(
        "add",
        cls=DashedArguments,
        epilog="Example: beads-workers add 'Say hello' -p 1 -- echo hello",
    )(add)
    app.command("list", epilog="Example: beads-workers list --all")(list_issues)
    app.command("show", epilog="Example: beads-workers show proj-a1b")(show)
    app.command("import", epilog="Example: beads-workers import .beads/issues.jsonl")(import_issues)
    app.command("export", epilog="Example: beads-workers export > issues.jsonl")(export)


def add(
    ctx: typer.Context,
    title: Annotated[
        str, typer.Argument(metavar="TITLE", help="The title of the issue.", show_default=False)
    ],
    command: IssueCommand = None,
    priority: Annotated[int, PRIORITY] = PRIORITY_DEFAULT,
    description: Annotated[str, typer.Option("-d", "--description", help="The long text.")] = "",
    label: Annotated[
        list[str] | None, typer.Option("-l", "--label", help="May be given several times.")
    ] = None,
    dep: Annotated[
        list[str] | None,
        typer.Option("--dep", metavar="ISSUE", help="An issue that must be closed first."),
    ] = None,
    issue_type: Annotated[str, typer.Option("--type", help="task, bug, feature, ...")] = "task",
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="DURATION", help="For one attempt: 90s, 5m.")
    ] = None,
    json: Json = False,
) -> None:
    """Add an issue, and print its id.

    It may bring a command of its own.
    """
    from beads_workers.core.base.model import IssueId
    from beads_workers.core.base.source import IssueEdit

    title, own_command = _split(title, command or [], ctx.meta.get(AFTER_DASHES, 0))
    if not title.strip():
        hint = "for example: beads-workers add 'Say hello' -- echo hello"
        raise CommandError("this is no issue: it has no title", hint, EXIT_USAGE)
    change = IssueEdit(
        title=valid(title),
        description=valid(description),
        priority=priority,
        issue_type=valid(issue_type),
        added_labels=tuple(map(valid, label or ())),
        depends_on=tuple((IssueId(valid(each)), BLOCKS) for each in dict.fromkeys(dep or [])),
        command=tuple(map(valid, own_command)) or None,
        timeout_seconds=None if timeout is None else seconds(timeout),
    )
    with editable() as tracker:
        issue_id = tracker.add(change, author())
    if json:
        print(json_line(dict(_known(issue_id)[1])))
    else:
        print(printable(issue_id))


def list_issues(
    closed_too: Annotated[bool, typer.Option("--all", help="Closed ones too.")] = False,
    status: Annotated[
        list[str] | None,
        typer.Option(
            "-s",
            "--status",
            help="Only these: open, in_progress, closed, ...; or by what the fleet makes of them:"
            " ready, blocked, running, retrying, landing, quarantined, needs-you, ..., all.",
            autocompletion=among(*BY_STATE),
        ),
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option("-l", "--label", help="Only those with all these labels.")
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(
            "--sort",
            metavar="ORDER",
            help="With states of the fleet: priority, time, id or title.",
            autocompletion=among(*ORDER_NAMES),
        ),
    ] = None,
    json: Json = False,
    envelopes: Annotated[
        bool, typer.Option("--envelopes", help="Jobs of the last run too, by state; any tracker.")
    ] = False,
    state_dir: StateDir = None,
) -> None:
    """List issues, the most urgent first.

    Without --all only what is not closed.
    """
    if envelopes:
        directory = find_state_directory(state_dir)
        need("envelopes").print_list(directory, closed_too=closed_too, as_json=json)
        return
    statuses = {each for typed in status or () for each in valid(typed).split(",")}
    labels = {valid(each) for each in label or ()}
    if states := _states(statuses, sort, closed_too=closed_too):
        from beads_workers.cli.backlog import print_backlog

        directory = find_state_directory(state_dir)
        if not print_backlog(directory, states, labels, sort or "", json=json) and not json:
            warn("no issue is in that state")
        return

    def is_wanted(issue: TrackerIssue) -> bool:
        return (not statuses or issue.status in statuses) and labels <= {*issue.labels}

    closed_too = closed_too or not statuses.isdisjoint(FINISHED)
    with located() as tracker:
        if tracker is not None:
            count = _list_located(tracker.issues(closed_too=closed_too), is_wanted, as_json=json)
        else:
            count = _list_built_in(is_wanted, closed_too=closed_too, as_json=json)
    if not count and not json:
        only = " with that status or label" if statuses or labels else ""
        warn(f"nothing to list{only}: 'beads-workers add TITLE' adds an issue")


BY_STATE = (*(state.value.replace("_", "-") for state in State if state is not State.CLOSED), "all")
"""Words of ``list --status`` for what the fleet makes of an issue; the others are the tracker's."""


def _states(statuses: set[str], sort: str | None, *, closed_too: bool) -> set[State]:
    """Return the states that are asked for; none if the tracker's own statuses are.

    ``blocked`` is both: alone or with states, it is what waits for something. Raise
    ``CommandError`` for states beside statuses.
    """
    words = {each.replace("_", "-") for each in statuses}
    named = words & {*BY_STATE}
    if named == {"blocked"} and words != named:
        named = set()
    problem = ""
    if sort is not None and sort not in ORDER_NAMES:
        problem = f"--sort cannot be {printable(sort, 40)!r}: {', '.join(ORDER_NAMES)}"
    elif sort is not None and not named:
        problem = "--sort is for states of the fleet"
    elif named and (named != words or closed_too):
        others = ", ".join(sorted(words - named))
        problem = f"{printable(others, 60)}: no state of the fleet, as {', '.join(sorted(named))}"
        problem = problem if others else "--all is for statuses of the tracker"
    if problem:
        hint = f"states of the fleet: {', '.join(BY_STATE)}; closed issues: 'list --status closed'"
        raise CommandError(problem, hint, EXIT_USAGE)
    if "all" in named:
        return {*State} - {State.CLOSED}
    return {state for state in State if state.value.replace("_", "-") in named}


def _list_built_in(
    is_wanted: Callable[[TrackerIssue], bool], *, closed_too: bool, as_json: bool
) -> int:
    from beads_workers.trackers.issue import to_object
    from beads_workers.trackers.sqlite.store import SqliteStore

    with opened() as connection:
        store = SqliteStore(connection)
        ids = store.ids(finished=closed_too)
        found = filter(is_wanted, store.in_batches(ids))
        if as_json:
            print_array(json_line(to_object(issue)) for issue in found)
            return len(ids)
        count, width, waits_for = 0, max(map(len, ids), default=0), store.waits_for(ids)
        for issue in found:
            print(issue_row(issue, width, waits_for.get(issue.id, [])))
            count += 1
        return count


def show(
    issue_id: Annotated[
        str,
        typer.Argument(
            metavar="ISSUE", help="Which issue.", show_default=False, autocompletion=issues
        ),
    ],
    json: Json = False,
    state_dir: StateDir = None,
) -> None:
    """Show one issue with everything that is known about it.

    Of issues that agents worked on, the receipts of their attempts too.
    """
    from beads_workers.cli import receipts

    issue, fields = _known(valid(issue_id))
    attempts = receipts.find_receipts(find_state_directory(state_dir), issue.id)
    if json:
        more = {"attempts": [receipts.as_json(each) for each in attempts]} if attempts else {}
        print(json_line({**fields, **more}))
        return
    for name, value in fields.items():
        print(f"{printable(name)}: {shown(name, value)}")
    for line in receipts.shown(attempts):
        print(line)


def _known(issue_id: str) -> Listed:
    found = _find(issue_id)
    if found is None:
        raise unknown(issue_id)
    return found


def _find(issue_id: str) -> Listed | None:
    with located() as tracker:
        if tracker is not None:
            return tracker.issue(issue_id)
    from beads_workers.trackers.issue import to_object
    from beads_workers.trackers.sqlite.store import SqliteStore

    with opened() as connection:
        found = SqliteStore(connection).issues([issue_id])
        return next(((issue, to_object(issue)) for issue in found), None)


def _list_located(
    issues: list[Listed], is_wanted: Callable[[TrackerIssue], bool], *, as_json: bool
) -> int:
    from beads_workers.core.base.ready import BLOCKS

    found = [(issue, fields) for issue, fields in issues if is_wanted(issue)]
    if as_json:
        print_array(json_line(dict(fields)) for _, fields in found)
        return len(found)
    # Issues that are not listed are closed, and block nothing.
    unfinished = {issue.id for issue, _ in issues}
    width = max((len(issue.id) for issue, _ in found), default=0)
    for issue, _ in found:
        waits_for = [d.depends_on_id for d in issue.dependencies if d.type == BLOCKS]
        print(issue_row(issue, width, [each for each in waits_for if each in unfinished]))
    return len(found)


def import_issues(
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON Lines; - reads stdin.")],
    allow_commands: Annotated[
        bool,
        typer.Option("--allow-commands", help="Keep commands that come with issues: they run!"),
    ] = False,
    json: Json = False,
) -> None:
    """Read issues from beads' JSON Lines: all of them, or none.

    None are read where a line is wrong.
    """
    from beads_workers.trackers.issue import time_text
    from beads_workers.trackers.sqlite.exchange import DependencyCycle, ImportRefused, import_lines

    refuse_elsewhere("import")
    with _input(file) as lines, opened() as connection:
        now = time_text(time.time())
        try:
            found = import_lines(connection, lines, now=now, allow_commands=allow_commands)
        except ImportRefused as refused:
            for problem in refused.problems:
                warn(printable(problem, 200))
            raise CommandError(
                f"nothing was imported: {refused}", "correct them, or leave them out"
            ) from None
        except DependencyCycle as cycle:
            raise CommandError(
                f"nothing was imported: these wait for each other: {printable(str(cycle), 400)}",
                "take one of these dependencies away",
            ) from None
    report(found)
    if json:
        print(json_line(asdict(found)))
        return
    print(f"created {found.created}, updated {found.updated}, unchanged {found.unchanged}")


def export(json: Json = False) -> None:
    """Write every issue as beads' JSON Lines.

    Closed ones too; --json makes one array of them.
    """
    from beads_workers.trackers.sqlite.exchange import export_lines

    refuse_elsewhere("export")
    with opened() as connection, contextlib.closing(export_lines(connection)) as lines:
        if json:
            print_array(lines)
            return
        for line in lines:
            print(line)


# --- what they share --------------------------------------------------------------------------


def _split(title: str, command: list[str], after_dashes: int) -> tuple[str, list[str]]:
    """Return the title, and the command, which must follow ``--``.

    A title that looks like an option must follow ``--`` itself; then a second ``--`` begins the
    command: ``add -- --help -- echo hello``.
    """
    before = 1 + len(command) - after_dashes
    if before > 1:
        words, own = [title, *command[: before - 1]], command[before - 1 :]
        typed = shlex.join(["beads-workers", "add", " ".join(words)])
        typed += f" -- {shlex.join(own)}" if own else ""
        raise CommandError(
            f"more than one title: {printable(title, 40)!r}, {printable(command[0], 40)!r}",
            f"a title stands in quotes, a command after --: {printable(typed, 160)}",
            EXIT_USAGE,
        )
    if before == 1:
        return title, command
    if command and command[0] != "--":
        raise CommandError(
            "the title is missing", "beads-workers add TITLE -- COMMAND ARG...", EXIT_USAGE
        )
    return title, command[1:]


def seconds(text: str) -> float:
    """Return the seconds of ``--timeout``."""
    try:
        return parse_duration(text)
    except ValueError:
        message = f"--timeout cannot be {printable(text, 40)!r}"
        allowed = "it must be a duration: 90, 90s, 5m or 2h"
        raise CommandError(message, allowed, EXIT_USAGE) from None


@contextlib.contextmanager
def _input(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
        return
    with contextlib.ExitStack() as stack:
        try:
            lines = stack.enter_context(Path(file).open("rb"))
        except OSError as error:
            raise unreadable(file, error, "import") from error
        yield lines
