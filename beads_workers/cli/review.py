"""``diff``, ``approve``, ``reject``, ``session``: finished branches before they land."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from beads_workers.cli.arguments import Json, StateDir
from beads_workers.cli.client import connect, find_state_directory
from beads_workers.cli.completion import to_approve, with_branches
from beads_workers.cli.decisions import decide, refuse_unless_rejectable
from beads_workers.cli.fleet import report
from beads_workers.cli.person import text_given
from beads_workers.cli.waiting import waiting
from beads_workers.core.base.text import json_line, printable
from beads_workers.core.records.receipts import SHA_CHARS
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_NOT_RUNNING, EXIT_UNKNOWN, EXIT_USAGE

if TYPE_CHECKING:
    from beads_workers.worktrees.records import WorktreeRecord

SHOWN = "shown.json"
"""File of the state directory: the commit of each issue that ``diff`` showed last."""

Issue = Annotated[
    str,
    typer.Argument(metavar="ISSUE", help="Which.", show_default=False, autocompletion=to_approve),
]


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    app.command("diff", epilog="Example: beads-workers diff proj-a1b")(diff)
    app.command("approve", epilog="Example: beads-workers approve proj-a1b")(approve)
    app.command("reject", epilog="Example: beads-workers reject proj-a1b 'use euros'")(reject)
    app.command("session", epilog="Example: beads-workers session proj-a1b --open")(session)


# --- diff ----------------------------------------------------------------------------------------


def diff(
    issue: Annotated[
        str | None,
        typer.Argument(
            metavar="[ISSUE]", help="Which.", show_default=False, autocompletion=with_branches
        ),
    ] = None,
    night: Annotated[
        bool, typer.Option("--night", help="All that has landed in the last night.")
    ] = False,
    stat: Annotated[bool, typer.Option("--stat", help="Only the files and their sizes.")] = False,
    as_json: Json = False,
    state_dir: StateDir = None,
) -> None:
    """Show what an agent changed for an issue: its branch, or what has landed.

    After that you can approve it: 'approve' takes the commit that was shown last.
    """
    directory = find_state_directory(state_dir)
    if issue is None or night:
        if issue is not None or not night:
            raise CommandError("which?", "'diff ISSUE', or 'diff --night'", EXIT_USAGE)
        _diff_of_night(directory, stat=stat, as_json=as_json)
        return
    try:
        record = _record(directory, issue)
        commit, text = _changes(record, stat=stat)
    except CommandError:
        from beads_workers.runtime.run_directory import RunDirectory
        from beads_workers.ui.attempt_view import Pin
        from beads_workers.views.attempt_files import landed_diff, read_view

        runs = RunDirectory(directory)
        view = read_view(directory, Pin(issue, runs.last_run())) if runs.run_ids() else None
        if view is None or (landed := landed_diff(directory, view)) is None:
            raise
        commit, text = landed[0], _text(landed[1], stat=stat)
        fields = {"issue_id": issue, "landed": commit, "diff": text}
        print(json_line(fields)) if as_json else _page(f"{printable(issue)}: {text}")
        return
    from beads_workers.runtime.run_directory import write_private

    write_private(directory / SHOWN, json.dumps(_shown(directory) | {issue: commit}))
    if as_json:
        fields = {"issue_id": issue, "commit": commit, "base": record.base, "branch": record.branch}
        print(json_line(fields | {"diff": text}))
        return
    from beads_workers.worktrees.diffs import diff_line

    head = f"{printable(issue)}: {printable(record.branch)} at {commit[:SHA_CHARS]}"
    _page("\n".join([head, "", *(diff_line(each) for each in text.split("\n"))]))


def _text(lines: Sequence[str], *, stat: bool) -> str:
    """Return a diff, or only its files and their sizes."""
    shown = takewhile(lambda line: not line.startswith("diff --git "), lines)
    return "\n".join(shown if stat else lines)


def _diff_of_night(directory: Path, *, stat: bool, as_json: bool) -> None:
    """Show what has landed in the last night, issue by issue."""
    from beads_workers.runtime.run_directory import RunDirectory
    from beads_workers.views.attempt_files import landed_diffs
    from beads_workers.views.histories import read_night

    runs = RunDirectory(directory)
    night = read_night(runs, runs.last_run()) if runs.run_ids() else None
    rows = [
        {"issue_id": each.issue_id, "title": each.title, "landed": commit}
        | {"diff": _text(lines, stat=stat)}
        for each, commit, lines in (landed_diffs(directory, night) if night is not None else ())
    ]
    if as_json:
        print(json_line({"night": rows}))
        return
    if not rows:
        raise CommandError(
            "nothing has landed in the last night", "'beads-workers report' says why"
        )
    heads = (f"== {printable(row['issue_id'])} {printable(row['title'], 100)}" for row in rows)
    _page("\n\n".join(f"{head}\n{row['diff']}" for head, row in zip(heads, rows, strict=True)))


def _record(directory: Path, issue: str) -> WorktreeRecord:
    """Return the record of the issue's newest worktree; raise ``CommandError`` without one."""
    from beads_workers.views.attempt_files import worktree_of
    from beads_workers.worktrees.records import Records

    found = worktree_of(Records(directory), issue)
    if found is None:
        hint = "'beads-workers branches' lists what earlier attempts left"
        raise CommandError(f"no branch of {printable(issue, 60)} is here", hint, EXIT_UNKNOWN)
    return found


def _changes(record: WorktreeRecord, *, stat: bool) -> tuple[str, str]:
    """Return the newest commit of the branch, and its diff to the commit that it began with."""
    from beads_workers.worktrees.diffs import SAFE
    from beads_workers.worktrees.git import GitError, git

    how = ["--stat"] if stat else ["--stat", "--patch"]
    try:
        commit = git(record.common, "rev-parse", "--verify", f"refs/heads/{record.branch}").strip()
        base = git(record.common, "merge-base", record.base, commit).strip()
        text = git(record.common, "diff", *SAFE, *how, base, commit)
    except GitError as error:
        raise CommandError(f"git cannot show {printable(record.branch)}: {error}") from None
    return commit, text


def _page(text: str) -> None:
    """Print a text, through the person's pager if it goes to a terminal."""
    if sys.stdout.isatty():
        from pydoc import pager

        pager(text + "\n")
    else:
        print(text)


def _shown(directory: Path) -> dict[str, str]:
    """Return the commit that was shown last of each issue."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with open(os.open(directory / SHOWN, flags), "rb") as file:
            found = json.loads(file.read())
    except (OSError, ValueError):
        return {}
    pairs = found.items() if isinstance(found, dict) else ()
    return {key: each for key, each in pairs if isinstance(each, str)}


# --- approve and reject --------------------------------------------------------------------------


def approve(
    issues: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ISSUE[@COMMIT]...]",
            help="As 'diff' showed it, or at this commit.",
            show_default=False,
            autocompletion=to_approve,
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All whose diff you have looked at.")
    ] = False,
    as_json: Json = False,
    state_dir: StateDir = None,
) -> None:
    """Let finished branches land, as you have seen them.

    A branch that has changed since 'diff' showed it is not approved: look again.
    """
    if bool(issues) == everything:
        raise CommandError("which issues?", "'approve ISSUE', or 'approve --all'", EXIT_USAGE)
    directory = find_state_directory(state_dir)
    found, shown = waiting(directory), _shown(directory)
    if everything:
        commits = {
            row["issue_id"]: row["commit"]
            for row in found.approvals
            if shown.get(row["issue_id"]) == row["commit"]
        }
        if not commits:
            hint = "look at each first: 'beads-workers diff ISSUE'"
            raise CommandError("nothing that you have looked at awaits approval", hint)
    else:
        named = (each.partition("@") for each in issues or ())
        commits = {key: said or shown.get(key, "") for key, _, said in named}
        found.refuse_over(commits)
        if unseen := [key for key, commit in commits.items() if not commit]:
            hint = f"look at it first: beads-workers diff {unseen[0]}"
            raise CommandError(f"{', '.join(map(printable, unseen))}: not looked at", hint)
    if found.client is not None:
        report(found.client.ask("bw.approve", {"commits": commits}), as_json=as_json)
        return
    report(decide(directory, "bw.approve", {"commits": commits}), as_json=as_json)


def reject(
    issue: Issue,
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT]", help="Otherwise from stdin, or $EDITOR."),
    ] = None,
    as_json: Json = False,
    state_dir: StateDir = None,
) -> None:
    """Send a finished branch back to its agent, with what is wrong."""
    directory = find_state_directory(state_dir)
    found = waiting(directory)
    found.refuse_over([issue]) if found.client else refuse_unless_rejectable(found, issue)
    typed = " ".join(text) if text else None
    remarks = text_given(typed, f"beads-workers reject {issue}")
    fields = {"issue_ids": [issue], "text": remarks}
    if (client := found.client) is not None:
        report(client.ask("bw.reject", fields), as_json=as_json)
        return
    report(decide(directory, "bw.reject", fields), as_json=as_json)


# --- session -------------------------------------------------------------------------------------


def session(
    issue: Issue,
    open_: Annotated[bool, typer.Option("--open", help="Run it here.")] = False,
    state_dir: StateDir = None,
) -> None:
    """Print the command that opens an agent's session in its worktree.

    While you stand in that folder, it is left alone, and no other agent gets the issue.
    """
    from beads_workers.worktrees.slots import claim_of

    directory = find_state_directory(state_dir)
    record = _record(directory, issue)
    argv = list(_resume(directory, issue))
    if not Path(record.path).is_dir():
        raise CommandError(f"its worktree is gone: {printable(record.path)}", "", EXIT_UNKNOWN)
    at_work = f"{printable(issue, 60)} runs now, in this very worktree and session"
    todo = f"wait for its end, or end it first: beads-workers release {shlex.quote(issue)}"
    if not open_:
        if _is_running(directory, issue):
            print(f"note: {at_work}; {todo}", file=sys.stderr)
        print(f"cd {shlex.quote(record.path)} && {shlex.join(argv)}")
        return
    # From here on we stand there, so that no attempt begins.
    os.chdir(record.path)
    claim = claim_of(record.path)
    os.environ.update(claim.variables if claim is not None else {})
    if _is_running(directory, issue):
        raise CommandError(at_work, printable(todo))
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        raise CommandError(f"{printable(argv[0])}: {error.strerror}") from None


def _is_running(directory: Path, issue: str) -> bool:
    try:
        shown = connect(directory).ask("bw.status")
    except CommandError as error:
        if error.exit_code != EXIT_NOT_RUNNING:
            raise
        return False
    return any(row["issue_id"] == issue for row in shown["workers"])


def _resume(directory: Path, issue: str) -> Iterator[str]:
    from beads_workers.agents.adapter import load
    from beads_workers.cli.receipts import find_receipts

    kept = [each for each in find_receipts(directory, issue) if each.receipt.session]
    receipt = kept[-1].receipt if kept else None
    adapter = load(receipt.agent) if receipt else None
    if receipt is None or adapter is None or not adapter.by_hand:
        hint = f"'beads-workers logs {issue}' shows what it did"
        raise CommandError(f"{printable(issue)} has no session that can be opened", hint)
    yield from (*adapter.by_hand, receipt.session)
