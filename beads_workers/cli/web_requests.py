"""What a live page asks for beside its stream: logs, attempts, diffs, reports. Reads only.

Each request is answered in a thread of its own, from files of the run directory. A page names an
attempt as the dashboard does (``ui.attempt_view.Pin``), and gets the same model to draw.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beads_workers.errors import CommandError
from beads_workers.ui.attempt_view import AttemptView, Pin, actions, now, running, sections
from beads_workers.ui.web import Body
from beads_workers.ui.web_state import Message, PageState
from beads_workers.views import logs

if TYPE_CHECKING:
    from beads_workers.cli.backlog import BacklogWatch
    from beads_workers.core.views.history import History
    from beads_workers.runtime.run_directory import RunDirectory
    from beads_workers.ui.backlog import IssueBacklog

DIFF_LINES_MAX = 4000
"""Number of lines of a diff that a page draws; 'diff' on a terminal shows all of it."""

NIGHTS_MAX = 60
"""Number of last nights whose reports are offered."""

Query = Mapping[str, str]


class PageAnswers:
    """Answers to what a page asks; None if there is no such thing."""

    def __init__(self, directory: Path, shown: PageState) -> None:
        from beads_workers.runtime.run_directory import RunDirectory

        self._directory, self._shown = directory, shown
        self._runs: RunDirectory = RunDirectory(directory)
        self._backlog: BacklogWatch | None = None

    def answer(self, what: str, query: Query) -> Message | Body | None:
        """Return the answer to a request; what cannot be read is said as ``{"error"}``."""
        from beads_workers.worktrees.git import GitError

        try:
            return WHAT[what](self, query)
        except ValueError:
            return None  # Of a number in the query.
        except (CommandError, GitError, OSError) as error:
            return {"error": str(getattr(error, "message", "") or error)}

    def brief(self, query: Query) -> Message:
        """Return what the title of a page in the background needs, which has no stream."""
        from beads_workers.cli.client import connect
        from beads_workers.cli.last_run import last_run

        try:
            found = connect(self._directory).ask("bw.status")
            return {key: found[key] for key in BRIEF} | {"fleet": "live"}
        except CommandError:
            last = last_run(self._directory)
        if last is None:
            return {"fleet": "none"}
        return {
            "fleet": "lost" if last["exit_code"] is None else "ended",
            "run_id": last["run_id"],
            "project": last["project"],
            "state": "stopping",
            "queue": last["queue"],
            "ended": {"exit_code": last["exit_code"]},
        }

    # --- attempts -----------------------------------------------------------------------------

    def _pin(self, query: Query) -> Pin:
        """Return the attempt that a page names; raise ``CommandError`` if no run of it is here."""
        run_id = query.get("run", "")
        if run_id not in self._runs.run_ids():
            raise CommandError("that run is not here any more", "")
        began, ended = (query.get(name, "") for name in ("began", "ended"))
        return Pin(
            query.get("issue", ""),
            run_id,
            int(query.get("number", "0")),
            query.get("worker", ""),
            float(began) if began else None,
            float(ended) if ended else None,
            query.get("request", ""),
        )

    def _row(self, pin: Pin) -> Mapping[str, Any] | None:
        """Return the row of the worker that runs it now, as the page was told."""
        snapshot = self._shown.snapshot
        return None if snapshot is None else running(pin, snapshot)

    def _view(self, query: Query) -> AttemptView:
        from beads_workers.views.attempt_files import read_view

        return read_view(self._directory, self._pin(query))

    def attempt(self, query: Query) -> Message:
        """Return an attempt with everything around it but its log, its diff and ``why``."""
        view, snapshot = self._view(query), self._shown.snapshot
        return attempt_json(view, snapshot)

    def why(self, query: Query) -> Message:
        """Return what ``why ISSUE`` says; it may ask the tracker."""
        from beads_workers.cli.why import why_lines

        return {"lines": why_lines(self._pin(query).issue_id, self._directory)}

    def diff(self, query: Query) -> Message:
        """Return the diff of an attempt, as ``diff ISSUE`` makes it: no program is run by it."""
        from beads_workers.ui.line_comments import places
        from beads_workers.views.attempt_files import diff_lines

        view = self._view(query)
        lines = diff_lines(self._directory, view, runs=self._row(view.pin) is not None)
        more = len(lines) - DIFF_LINES_MAX
        rest = [f"({more} lines more: beads-workers diff {view.pin.issue_id})"] if more > 0 else []
        shown = lines[:DIFF_LINES_MAX]
        return {"lines": [*shown, *rest], "places": places(shown)}

    def issues(self, query: Query) -> Message:
        """Return all issues by state, as the dashboard lists them.

        ``{"asked": false}`` while the tracker has not answered yet; ``{"same": true}`` if the page
        has this answer: ``known`` is its ``mark``.
        """
        from beads_workers.cli.backlog import BacklogWatch

        if (snapshot := self._shown.snapshot) is None:
            return {"asked": False}
        if self._backlog is None:
            self._backlog = BacklogWatch(self._directory)
        found = self._backlog.of(snapshot)
        if found is None:
            return {"asked": False}
        told = issues_json(found, snapshot, time.time())
        told["mark"] = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]
        return {"same": True} if told["mark"] == query.get("known") else told

    # --- logs ---------------------------------------------------------------------------------

    def _log(self, query: Query) -> tuple[Path, Pin]:
        from beads_workers.views.attempt_files import log_path

        pin = self._pin(query)
        if not pin.number:
            pin = self._view(query).pin
        seconds = float(query.get("seconds", "0"))
        runs = self._row(pin) is not None
        return log_path(self._runs.run(pin.run_id), pin, runs=runs, seconds=seconds), pin

    def log(self, query: Query) -> Message:
        """Return a part of an attempt's log: see ``log_part``."""
        path, pin = self._log(query)
        runs = self._row(pin) is not None
        places = {name: int(query[name]) for name in ("before", "after") if query.get(name)}
        try:
            with logs.opened(path) as file:
                found = logs.log_part(file, path, **places)
        except FileNotFoundError:
            found = {"begin": 0, "end": 0, "size": 0, "lines": [], "times": [], "begun": ""}
        return found | {"name": path.name, "runs": runs}

    def download(self, query: Query) -> Body | None:
        """Return the whole log as it is, for a file of the person."""
        path, _ = self._log(query)
        try:
            with logs.opened(path) as file:
                data = file.read()
        except FileNotFoundError:
            return None
        name = re.sub(r"[^\w.-]", "_", path.name.lstrip("."), flags=re.ASCII)
        how = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Body("text/plain; charset=utf-8", data, how)

    # --- reports ------------------------------------------------------------------------------

    def nights(self, query: Query) -> Message:
        """Return the last nights, newest first: the last run of each, times, and counts."""
        from beads_workers.cli.runs import listed

        rows: dict[str, Message] = {}
        for row in listed(self._runs):
            night = row["night"] or row["run_id"]
            if night not in rows and len(rows) == NIGHTS_MAX:
                break
            kept = rows.setdefault(night, {**row, "runs": 0, "closed": 0, "failed": 0})
            kept["began_at"] = row["began_at"]
            for name, more in (("runs", 1), ("closed", row["closed"]), ("failed", row["failed"])):
                kept[name] += more
        keys = ("run_id", "runs", "began_at", "ended_at", "ending", "closed", "failed")
        return {"nights": [{key: row[key] for key in keys} for row in rows.values()]}

    def report(self, query: Query) -> Body | Message:
        """Return the report of a night, or of one run, as ``report --html`` writes it."""
        from beads_workers.ui.report_html import page
        from beads_workers.views.attempt_files import landed_diffs
        from beads_workers.views.histories import read_history, read_night

        run_id = query.get("run") or self._runs.last_run()
        if run_id not in self._runs.run_ids():
            return {"error": "that run is not here any more"}
        read: Callable[[RunDirectory, str], History]
        read = read_history if query.get("only") else read_night
        history = read(self._runs, run_id)
        text = page(history, [*landed_diffs(self._directory, history)]).encode()
        # By its own policy it loads nothing; here it is no page of this origin either.
        return Body("text/html; charset=utf-8", text, {"Content-Security-Policy": SANDBOX})


SANDBOX = "sandbox allow-scripts allow-popups; frame-ancestors 'none'"

BRIEF = ("run_id", "project", "state", "queue", "ended")

WHAT: Mapping[str, Callable[[PageAnswers, Query], Message | Body | None]] = {
    "attempt": PageAnswers.attempt,
    "brief": PageAnswers.brief,
    "diff": PageAnswers.diff,
    "issues": PageAnswers.issues,
    "download": PageAnswers.download,
    "log": PageAnswers.log,
    "nights": PageAnswers.nights,
    "report": PageAnswers.report,
    "why": PageAnswers.why,
}
"""Path within the page -> its answer."""


def attempt_json(view: AttemptView, snapshot: Mapping[str, Any] | None) -> Message:
    """Return an attempt as the page draws it; ``sections``: headings, and lines safe to show."""
    found = [(heading, lines) for heading, lines in sections(view, ()) if lines]
    return {
        "pin": pin_json(view.pin),
        "title": view.title,
        "place": view.place,
        "branch": view.branch,
        "seconds": view.tried.attempt.seconds if view.tried else 0.0,
        "now": now(view.pin, snapshot) if snapshot else "",
        "runs": bool(snapshot and running(view.pin, snapshot)),
        "sections": found,
        "attempts": [pin_json(each.pin) for each in view.attempts],
        "actions": [
            {"button": each.button, "label": each.label, "control": each.control}
            for each in (actions(view.pin.issue_id, snapshot) if snapshot else ())
        ],
    }


def issues_json(found: IssueBacklog, snapshot: Mapping[str, Any], now: float) -> Message:
    """Return a backlog as the page draws it: groups of rows, in order, each with a short note.

    As in the dashboard, quarantined issues follow a row with their ``cause`` if several have it.
    """
    from beads_workers.ui.backlog import entries, issue_rows, note_of
    from beads_workers.ui.words import NO_ERROR, STATE_TITLES, State

    rows = issue_rows(found, snapshot, "")
    causes = [row["key"] for row in entries(rows, ()) if "key" in row]
    groups: dict[str, list[Message]] = {state.value: [] for state in State}
    for row in entries(rows, causes):
        if "key" in row:
            shown = {"cause": row["error"] or NO_ERROR, "count": len(row["issue_ids"])}
        else:
            note = note_of(row, now, beside_cause="below" in row)
            shown = {"issue": row["issue_id"], "title": row["title"], "note": note}
        groups[row["state"]].append(shown)
    return {
        "groups": [
            {
                "title": STATE_TITLES[State(state)],
                "count": sum("issue" in row for row in shown_rows),
                "rows": shown_rows,
            }
            for state, shown_rows in groups.items()
            if shown_rows
        ],
        "cut": found.cut,
        "unseen": found.unseen,
    }


def pin_json(pin: Pin) -> Message:
    """Return a pin as the page names it in requests."""
    return {
        "issue": pin.issue_id,
        "run": pin.run_id,
        "number": pin.number,
        "worker": pin.worker_id,
        "began": pin.began,
        "ended": pin.ended_at,
        "request": pin.request_id,
    }
