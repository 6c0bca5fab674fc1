"""Commands that change issues of any tracker: edit, comment, close, reopen, delete, dep.

They write in the person's name (``cli/person``). An issue that a fleet holds may be written about,
and is neither ended nor taken away: ``core.base.source.EditableSource``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from beads_workers.cli.arguments import IssueCommand
from beads_workers.cli.completion import closed_issues, issues
from beads_workers.cli.person import in_editor, text_given, valid
from beads_workers.cli.source_listing import editable, unknown
from beads_workers.cli.tracker import AFTER_DASHES, PRIORITY, DashedArguments, seconds, show
from beads_workers.cli.tracker_folder import Json, warn
from beads_workers.core.base.ready import BLOCKS
from beads_workers.core.base.source import IssueEdit
from beads_workers.core.base.text import json_line, printable
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_USAGE

if TYPE_CHECKING:
    from beads_workers.core.base.model import IssueId
    from beads_workers.core.base.source import EditableSource, TrackedIssue

Issue = Annotated[
    str,
    typer.Argument(metavar="ISSUE", help="Which issue.", show_default=False, autocompletion=issues),
]
Issues = Annotated[
    list[str],
    typer.Argument(
        metavar="ISSUE...", help="Which issues.", show_default=False, autocompletion=issues
    ),
]
ClosedIssues = Annotated[
    list[str],
    typer.Argument(
        metavar="ISSUE...", help="Which issues.", show_default=False, autocompletion=closed_issues
    ),
]
Reason = Annotated[str, typer.Option("-r", "--reason", metavar="TEXT", help="Why.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    app.command(
        "edit", cls=DashedArguments, epilog="Example: beads-workers edit proj-a1b --priority 1"
    )(edit)
    app.command("comment", epilog="Example: beads-workers comment proj-a1b 'call it FOO'")(comment)
    app.command("close", epilog="Example: beads-workers close proj-a1b -r 'not needed'")(close)
    app.command("reopen", epilog="Example: beads-workers reopen proj-a1b")(reopen)
    app.command("delete", epilog="Example: beads-workers delete proj-a1b --force")(delete)
    dep = typer.Typer(no_args_is_help=True, help="Say which issue waits for which.")
    app.add_typer(dep, name="dep")
    dep.command("add", epilog="Example: beads-workers dep add proj-a1b proj-c2d")(_depend)
    dep.command("remove", epilog="Example: beads-workers dep remove proj-a1b proj-c2d")(_undepend)


def edit(
    ctx: typer.Context,
    issue_id: Issue,
    command: IssueCommand = None,
    title: Annotated[str | None, typer.Option("--title", help="Another title.")] = None,
    description: Annotated[
        str | None, typer.Option("-d", "--description", help="Another long text; - reads stdin.")
    ] = None,
    notes: Annotated[str | None, typer.Option("--notes", help="Other notes.")] = None,
    priority: Annotated[int | None, PRIORITY] = None,
    issue_type: Annotated[
        str | None, typer.Option("-t", "--type", help="task, bug, feature, ...")
    ] = None,
    status: Annotated[
        str | None, typer.Option("-s", "--status", help="open, blocked, deferred, closed, ...")
    ] = None,
    assignee: Annotated[
        str | None, typer.Option("-a", "--assignee", help="The one who has it; '' for nobody.")
    ] = None,
    add_label: Annotated[
        list[str] | None, typer.Option("--add-label", help="May be given several times.")
    ] = None,
    remove_label: Annotated[
        list[str] | None, typer.Option("--remove-label", help="May be given several times.")
    ] = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="DURATION", help="For one attempt: 90s, 5m.")
    ] = None,
    json: Json = False,
) -> None:
    """Change an issue: title, text, priority, labels, status.

    Without options the title and the text open in $EDITOR.
    """
    if len(command or []) != ctx.meta.get(AFTER_DASHES, 0):
        wrong = printable((command or [""])[0], 40)
        hint = "what changes is an option (--title, -p, ...), a command comes after --"
        raise CommandError(f"too many arguments: {wrong}", hint, EXIT_USAGE)
    change = IssueEdit(
        title=_valid(title),
        description=text_given("-", "edit") if description == "-" else _valid(description),
        notes=_valid(notes),
        priority=priority,
        issue_type=_valid(issue_type),
        status=_valid(status),
        assignee=_valid(assignee),
        added_labels=tuple(map(valid, add_label or ())),
        removed_labels=tuple(map(valid, remove_label or ())),
        command=tuple(map(valid, command)) if command else None,
        timeout_seconds=None if timeout is None else seconds(timeout),
    )
    with editable() as tracker:
        (seen,) = _seen(tracker, [issue_id])
        if change == IssueEdit():
            change = _typed(tracker, seen)
        if change != IssueEdit():
            tracker.edit(seen.issue_id, change, tracker.actor)
            _warn_at_work(tracker, seen, "was given the issue as it was; the next one gets this")
    if json:
        show(issue_id, json=True)
    else:
        print("nothing changed" if change == IssueEdit() else f"changed: {printable(issue_id)}")


def comment(
    issue_id: Issue,
    text: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TEXT]", help="Otherwise from stdin, or $EDITOR.", show_default=False
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write a comment on an issue, in your name.

    Agents whose fleet runs with --comments are given it.
    """
    with editable() as tracker:
        (seen,) = _seen(tracker, [issue_id])
        typed = " ".join(text) if text else None
        told = text_given(typed, f"beads-workers comment {issue_id}")
        kept = tracker.comment(seen.issue_id, told, tracker.actor)
        _warn_at_work(tracker, seen, "does not see it; the next one does")
    if json:
        fields = {"id": kept.comment_id, "issue_id": issue_id, "author": kept.author}
        print(json_line(fields | {"text": kept.text, "created_at": kept.created_at}))
    else:
        print(f"commented on {printable(issue_id)} as {printable(kept.author)}")


def close(issues: Issues, reason: Reason = "", json: Json = False) -> None:
    """Close issues: they are done, or not needed.

    A fleet closes what it has done by itself. An issue that it holds must be released first.
    """
    with editable() as tracker:
        closed, there = close_in(tracker, issues, reason)
    _tell("closed", closed, there, "closed already", as_json=json)
    _warn_of_branches(closed)


def close_in(
    tracker: EditableSource, issues: Sequence[str], reason: str
) -> tuple[list[TrackedIssue], list[TrackedIssue]]:
    """Close these issues; return those that this has closed, and those that were closed."""
    seen = _free(_seen(tracker, issues))
    there = [each for each in seen if each.status == "closed"]
    closed = [each for each in seen if each not in there]
    for each in closed:
        edit = IssueEdit(status="closed", reason=valid(reason))
        tracker.edit(each.issue_id, edit, tracker.actor)
    return closed, there


def reopen(issues: ClosedIssues, reason: Reason = "", json: Json = False) -> None:
    """Open closed issues again.

    The reason becomes a comment. 'retry' opens issues that were quarantined.
    """
    with editable() as tracker:
        seen = _seen(tracker, issues)
        for each in seen:
            if each.status not in ("closed", "open"):
                shown = printable(each.issue_id)
                tries = f"'beads-workers retry {shown}' tries it again"
                hint = (
                    tries if each.status == "blocked" else f"'beads-workers why {shown}' says more"
                )
                raise CommandError(f"{shown} is not closed: it is {each.status}", hint)
        opened = [each for each in seen if each.status == "closed"]
        for each in opened:
            if reason:  # First: a fleet may take the issue at once.
                tracker.comment(each.issue_id, valid(reason), tracker.actor)
            tracker.edit(each.issue_id, IssueEdit(status="open"), tracker.actor)
    there = [each for each in seen if each not in opened]
    _tell("reopened", opened, there, "open already", as_json=json)


def delete(
    issues: Issues,
    force: Annotated[
        bool, typer.Option("-f", "--force", help="Do it; without, only say what would go.")
    ] = False,
    json: Json = False,
) -> None:
    """Delete issues for good, with --force.

    Issues that waited for them no longer do.
    """
    with editable() as tracker:
        seen = _free(_seen(tracker, issues))
        if not force:
            what = "; ".join(f"{each.issue_id} {each.title!r}" for each in seen)
            ids = " ".join(each.issue_id for each in seen)
            hint = f"if you mean it: beads-workers delete {ids} --force"
            raise CommandError(f"nothing was deleted yet: {printable(what, 300)}", hint, EXIT_USAGE)
        for each in seen:
            tracker.delete(each.issue_id, tracker.actor)
    _tell("deleted", seen, [], "", as_json=json)
    _warn_of_branches(seen)


Needed = Annotated[
    str | None,
    typer.Argument(
        metavar="NEEDED", help="The one it waits for.", show_default=False, autocompletion=issues
    ),
]


def _depend(
    issue_id: Issue,
    needed: Needed = None,
    blocked_by: Annotated[
        str | None,
        typer.Option("--blocked-by", "--depends-on", metavar="ISSUE", help="The same as NEEDED."),
    ] = None,
    kind: Annotated[
        str, typer.Option("-t", "--type", help="blocks, parent-child, related, ...")
    ] = BLOCKS,
    json: Json = False,
) -> None:
    """Let an issue wait until another one is closed."""
    other = _other(needed, blocked_by)
    change = IssueEdit(depends_on=((other, valid(kind)),))
    _wire(issue_id, other, change, as_json=json)
    if not json:
        waits = "waits for" if kind == BLOCKS else f"depends ({printable(kind)}) on"
        print(f"{printable(issue_id)} {waits} {printable(other)}")


def _undepend(issue_id: Issue, needed: Needed = None, json: Json = False) -> None:
    """Let an issue wait for another one no longer."""
    other = _other(needed, None)
    _wire(issue_id, other, IssueEdit(depends_no_more_on=(other,)), as_json=json)
    if not json:
        print(f"{printable(issue_id)} no longer depends on {printable(other)}")


def _other(needed: str | None, blocked_by: str | None) -> IssueId:
    from beads_workers.core.base.model import IssueId

    if (needed is None) == (blocked_by is None):
        hint = "beads-workers dep add ISSUE NEEDED: ISSUE waits for NEEDED"
        raise CommandError("which issue does it wait for?", hint, EXIT_USAGE)
    return IssueId(valid(needed or blocked_by or ""))


def _wire(issue_id: str, other: IssueId, change: IssueEdit, *, as_json: bool) -> None:
    with editable() as tracker:
        (seen,) = _seen(tracker, [issue_id])
        tracker.edit(seen.issue_id, change, tracker.actor)
        _warn_at_work(tracker, seen, "goes on all the same")
    if as_json:
        fields = {"issue_id": issue_id, "depends_on_id": other}
        if change.depends_on:
            print(json_line(fields | {"type": change.depends_on[0][1], "status": "added"}))
        else:
            print(json_line(fields | {"status": "removed"}))


# --- what they share --------------------------------------------------------------------------


def _seen(tracker: EditableSource, wanted: Sequence[str]) -> list[TrackedIssue]:
    """Return the issues as they are; raise ``CommandError`` if one is missing."""
    from beads_workers.core.base.model import IssueId

    ids = [IssueId(valid(each)) for each in dict.fromkeys(wanted)]
    found = tracker.look(ids)
    for each in ids:
        if each not in found:
            raise unknown(each)
    return [found[each] for each in ids]


def _free(seen: list[TrackedIssue]) -> list[TrackedIssue]:
    """Return issues that are to end; raise ``NotDone`` if a fleet holds one, before any is
    written."""
    from beads_workers.trackers.settlement_rules import Ownership, refuse_held

    for each in seen:
        refuse_held(each.issue_id, Ownership(each.status, each.assignee))
    return seen


def _typed(tracker: EditableSource, seen: TrackedIssue) -> IssueEdit:
    """Return what the person changes in the editor: the first line is the title."""
    known = tracker.read([seen.issue_id])[seen.issue_id]
    before = f"{known.title}\n\n{known.description}".rstrip() + "\n"
    after = valid(in_editor(before))
    if after.rstrip() == before.rstrip():
        return IssueEdit()
    title, _, description = after.strip().partition("\n")
    if not title:
        hint = "the first line is the title"
        raise CommandError("an empty text: nothing was written", hint, EXIT_USAGE)
    return IssueEdit(title=title.strip(), description=description.strip())


def _warn_at_work(tracker: EditableSource, seen: TrackedIssue, what: str) -> None:
    """Say what the attempt under way makes of it, unless its own agent asks."""
    from beads_workers.trackers.settlement_rules import IN_PROGRESS, is_held_by, other_run

    run = other_run(seen.assignee)
    if run and seen.status == IN_PROGRESS and not is_held_by(tracker.actor, run):
        warn(f"{printable(seen.issue_id)} is being worked on ({run}): that attempt {what}")


def _warn_of_branches(gone: Sequence[TrackedIssue]) -> None:
    """Name branches with work that now lands only if somebody merges it."""
    from beads_workers.cli.client import find_state_directory
    from beads_workers.worktrees.records import Records

    branches = {each.issue_id: each.branch for each in Records(find_state_directory()).all()}
    for each in gone:
        if branch := branches.get(each.issue_id):
            warn(f"what was done for it stays in {branch}: 'beads-workers branches' shows it")


def _tell(
    what: str,
    done: Sequence[TrackedIssue],
    others: Sequence[TrackedIssue],
    why: str,
    *,
    as_json: bool,
) -> None:
    if as_json:
        print(json_line({what: [each.issue_id for each in done]}))
        return
    for each in others:
        warn(f"{printable(each.issue_id)} is {why}")
    for each in done:
        print(f"{what}: {printable(each.issue_id)}  {printable(each.title, 100)}")


def _valid(text: str | None) -> str | None:
    return None if text is None else valid(text)
