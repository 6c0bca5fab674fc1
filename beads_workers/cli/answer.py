"""``answer``: open questions of agents, and a person's answers, as comments in the tracker."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from itertools import takewhile
from math import floor
from pathlib import Path
from typing import Annotated, Any

import typer

from beads_workers.cli.arguments import Json, StateDir
from beads_workers.cli.client import ControlClient, find_state_directory
from beads_workers.cli.completion import asked
from beads_workers.cli.fleet import report
from beads_workers.cli.layout import issue_id
from beads_workers.cli.person import text_given, valid
from beads_workers.cli.waiting import Waiting, waiting
from beads_workers.core.base.text import json_line, printable
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_NOT_RUNNING, EXIT_UNKNOWN, EXIT_USAGE
from beads_workers.runtime.locks import is_locked


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command("answer", epilog="Example: beads-workers answer proj-a1b 'call it FOO'")(answer)


def answer(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ISSUE...] [TEXT]",
            help="TEXT: words, or a choice by number. Without it: from stdin, or $EDITOR.",
            show_default=False,
            autocompletion=asked,
        ),
    ] = None,
    same: Annotated[
        bool, typer.Option("--same", help="Also all issues that ask the very same.")
    ] = False,
    as_json: Json = False,
    state_dir: StateDir = None,
) -> None:
    """Answer questions of agents; without an issue, list them.

    On a terminal it asks you one after the other. The answer becomes a comment in your name, and
    the agent goes on where it asked.
    """
    directory = find_state_directory(state_dir)
    found = waiting(directory)
    if words:
        _answer(found, directory, words, same=same, as_json=as_json)
    elif as_json:
        print(json_line({"questions": found.questions}))
    elif not found.questions:
        print("no question is open")
    else:
        _ask_each(found, directory)


def _answer(
    found: Waiting, directory: Path, words: Sequence[str], *, same: bool, as_json: bool
) -> None:
    rows = {row["issue_id"]: row for row in found.questions}
    named = [*takewhile(rows.__contains__, map(_id_at_begin, words))]
    if not named:
        found.refuse_over(words[:1])
        open_ = ", ".join(rows) or "no question is open"
        why = f"{printable(words[0], 60)} asks nothing"
        raise CommandError(why, f"open questions: {open_}" if rows else open_, EXIT_UNKNOWN)
    given = len(named)
    if same:
        texts = {rows[each]["question"] for each in named}
        named += [key for key, row in rows.items() if row["question"] in texts and key not in named]
    typed = " ".join(words[given:]) or None
    if typed is None and sys.stdin.isatty():
        for each in named:
            print(_shown(rows[each]))
    text = text_given(typed, f"beads-workers answer {' '.join(named)}")
    answers = give(found, directory, [rows[each] for each in named], text)
    if as_json:
        print(json_line({"answered": named}))
    else:
        report(answers, as_json=False)


def _id_at_begin(word: str) -> str:
    """Return the id that a word is; an address may be what the text begins with."""
    return issue_id(word) if word[:1] == "#" else word


def _ask_each(found: Waiting, directory: Path) -> None:
    if not sys.stdin.isatty():
        for row in found.questions:
            print(f"{_shown(row)}\n  beads-workers answer {row['issue_id']} TEXT\n")
        return
    print("An empty line leaves a question open; Ctrl-C ends.\n")
    for row in found.questions:
        print(_shown(row))
        try:
            text = input("> ").strip()
        except (EOFError, KeyboardInterrupt):
            print()
            return
        if text:
            report(give(found, directory, [row], valid(text)), as_json=False)
        print()


def _shown(row: dict[str, Any]) -> str:
    title = f"{printable(row['issue_id'])}  {printable(row['title'], 100)}"
    by = f" ({printable(row['agent'])})" if row["agent"] else ""
    lines = [printable(line, 400) for line in row["question"].splitlines() if line.strip()]
    return "\n".join([f"{title}{by} asks:", *(f"  {line}" for line in lines)])


def give(
    found: Waiting, directory: Path, rows: Sequence[dict[str, Any]], text: str
) -> dict[str, Any]:
    """Write the answer into the tracker, and only then have the issues go on.

    Once it is there, a fleet that starts, ends or reads it meanwhile goes on with it by itself.
    """
    from beads_workers.cli.source_listing import editable
    from beads_workers.core.base.model import IssueId
    from beads_workers.core.base.source import Action, Settlement
    from beads_workers.core.requests.answer import no_such_choice

    for row in rows:
        if wrong := no_such_choice(row["question"], text):
            raise CommandError(f"{row['issue_id']}: {wrong}", "nothing was written", EXIT_USAGE)
    ids = [IssueId(row["issue_id"]) for row in rows]
    _wait_out_the_second(rows)
    with editable() as tracker:
        for issue_id in ids:
            tracker.comment(issue_id, text, tracker.actor)
        if found.client is not None:
            return _tell(found.client, ids)
        # Refused if a fleet has just started, or was killed before it had parked the issue.
        tracker.settle([Settlement(Action.REOPEN, each, read_first=True) for each in ids])
    who = "the fleet that just started" if is_locked(directory / "lock") else "the next start"
    return {"text": f"answered: {' '.join(ids)}; {who} goes on with it"}


def _tell(client: ControlClient, ids: Sequence[str]) -> dict[str, Any]:
    try:
        answer = client.ask("bw.answer", {"issue_ids": ids})
    except CommandError as error:
        if error.exit_code != EXIT_NOT_RUNNING:
            raise
        return {"text": f"answered: {' '.join(ids)}; the next start goes on with it"}
    if answer.get("not_found"):
        return {"text": f"answered: {' '.join(ids)}; the fleet has read it"}
    return answer


def _wait_out_the_second(rows: Sequence[dict[str, Any]]) -> None:
    """Wait until an answer is newer than its question: trackers cut times to seconds."""
    last = max((row["asked_at"] or 0.0 for row in rows), default=0.0)
    left = floor(last) + 1.0 - time.time()
    if 0 < left <= 1.0:
        time.sleep(left)
