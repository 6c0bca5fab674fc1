"""``doctor``: checks everything that a fleet needs before its start. Changes nothing."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from beads_workers.checks.condition import Condition
from beads_workers.checks.conditions.settings import edit
from beads_workers.checks.plan import FleetPlan
from beads_workers.checks.rules import Check, Grade, any_failed, fail
from beads_workers.cli.checking import sentence, to_json
from beads_workers.cli.parameters import with_options
from beads_workers.cli.refusals import refusal
from beads_workers.cli.start import CommandAfterDashes, command_of
from beads_workers.core.base.text import counted, printable
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_ERROR, EXIT_TRACKER, EXIT_USAGE
from beads_workers.options import FILE_NAME, Resolved, Typed, given

# --- doctor text ---------------------------------------------------------------------------------
# Output of the checks: aligned and coloured on a terminal, plain in a pipe.


WORDS = {Grade.OK: "ok", Grade.WARN: "warn", Grade.FAIL: "FAIL"}
COLOURS = {Grade.OK: "32", Grade.WARN: "33", Grade.FAIL: "1;31"}
INDENT = " " * 17
WIDTH_MIN = 40
CLEAR_LINE = "\r\x1b[K"


class Printer:
    """Printer of checks as they come, with colours if the stream is a capable terminal."""

    def __init__(self, stream: TextIO, *, silent: bool) -> None:
        self._stream = stream
        self._silent = silent
        terminal = stream.isatty()
        self._fancy = terminal and os.environ.get("TERM", "dumb") != "dumb"
        self._colour = self._fancy and not os.environ.get("NO_COLOR")
        self._width = max(shutil.get_terminal_size().columns, WIDTH_MIN) if terminal else 0

    def waiting(self, name: str) -> None:
        """Show which check is waited for, if the terminal can erase it again."""
        if self._fancy and not self._silent:
            self._write(f"{CLEAR_LINE}...   {name}", end="")

    def check(self, check: Check) -> None:
        """Print a line, wrapped on a terminal, and the remedy below, unwrapped for copying."""
        if self._silent:
            return
        clear = CLEAR_LINE if self._fancy else ""
        self._write(clear + self._first(check))
        if check.remedy:
            self._write(f"{INDENT}{self._paint('fix:', '36')} {check.remedy}")

    def end(self, checks: Sequence[Check]) -> None:
        """Print the verdict, with the numbers of failures and warnings."""
        count = {grade: sum(c.status is grade for c in checks) for grade in Grade}
        problems = [
            counted(count[grade], word)
            for grade, word in ((Grade.FAIL, "failure"), (Grade.WARN, "warning"))
            if count[grade]
        ]
        verdict = "not ready" if any_failed(checks) else "ready"
        pending = _pending(checks)
        if verdict == "ready" and pending:
            hold = "hold" if len(pending) > 1 else "holds"
            verdict = f"ready if {' and '.join(pending)} {hold}, which only a start knows"
        self._write(f"{verdict}: {', '.join(problems) or 'all fine'}")

    def _first(self, check: Check) -> str:
        text = printable(sentence(check))
        lead = f"{WORDS[check.status]:<6}{check.name:<10} "
        line = lead + text
        if self._width:
            line = textwrap.fill(
                text,
                self._width,
                initial_indent=lead,
                subsequent_indent=INDENT,
                break_long_words=False,
                break_on_hyphens=False,
            )
        mark = WORDS[check.status]
        return self._paint(mark, COLOURS[check.status]) + line[len(mark) :]

    def _paint(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colour else text

    def _write(self, text: str, end: str = "\n") -> None:
        self._stream.write(text + end)
        self._stream.flush()


def printer(stream: TextIO, *, as_json: bool) -> Printer:
    """Return a printer for this stream; it is silent if one JSON object follows at the end."""
    return Printer(stream, silent=as_json)


def as_object(checks: Sequence[Check]) -> dict[str, Any]:
    """Return ``{"ok": bool, "pending": [NAME...], "checks": [{"name", "status", ...}...]}``."""
    shown = [to_json(each) for each in checks]
    return {"ok": not any_failed(checks), "pending": _pending(checks), "checks": shown}


def _pending(checks: Sequence[Check]) -> list[str]:
    """Return the names of what only a start finds out."""
    return [*dict.fromkeys(each.name for each in checks if each.pending)]


# --- doctor --------------------------------------------------------------------------------------


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command(
        "doctor",
        cls=CommandAfterDashes,
        epilog="Example: beads-workers doctor --agent claude",
    )(doctor)


@with_options(
    "doctor",
    first=("workers", "source", "agent", "verify", "allow_module"),
    last=("state_dir", "as_json"),
    words={
        "source": "bd, sqlite, hero, dispatcherd:CONFIG or a URL.",
        "allow_module": "Modules whose functions may be called.",
        "state_dir": "Run directory.",
    },
)
def doctor(
    ctx: typer.Context,
    options: Typed,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Check what a fleet needs, and say how to mend it.

    It takes the options and the command of 'start'. Nothing is changed, claimed or paid for. With
    --worktree set-up and check run in two worktrees, to see what these share.
    """
    from beads_workers.checks.runner import all_checks
    from beads_workers.core.base.text import json_line

    plan = _plan(given({**options, "command": command_of(ctx)}))
    show = printer(sys.stdout, as_json=as_json)
    checks = []
    for condition, check in all_checks(plan, show.waiting):
        _refuse_typed(plan, condition, check)
        checks.append(check)
        show.check(check)
    if plan.resolved.origin["worktree"] == "command line" and plan.options.worktree:
        for check in _beside(plan, checks, show.waiting):
            checks.append(check)
            show.check(check)
    if as_json:
        print(json_line(as_object(checks)))
    else:
        show.end(checks)
    broken = any(
        c.name in ("tracker", plan.kind and plan.kind.checked) and c.status is Grade.FAIL
        for c in checks
    )
    raise typer.Exit(EXIT_TRACKER if broken else EXIT_ERROR if any_failed(checks) else 0)


def _beside(
    plan: FleetPlan, checks: Sequence[Check], waiting: Callable[[str], None]
) -> Iterator[Check]:
    """Yield what two worktrees share, of a project that is trusted."""
    settings = plan.settings
    if settings is None or any(c.name == "trust" and c.status is Grade.FAIL for c in checks):
        return
    if settings.work.worktrees is None or settings.work.verify is None:
        return  # Without a check nothing says whether one is disturbed.
    from beads_workers.checks.side_by_side import check_side_by_side

    yield from check_side_by_side(settings, waiting)


def _plan(options: Typed) -> FleetPlan:
    """Return the plan of ``start`` with these options.

    Raise ``CommandError`` only for mistakes on the command line; a mistake in file or environment
    is a check.
    """
    from beads_workers.cli.kinds import kind_said
    from beads_workers.cli.preparation import find_tracing

    resolved, wrong = _resolve(options)
    kind = kind_said(resolved.options.source)
    tracing = find_tracing(resolved.options.trace)
    return FleetPlan(resolved, kind, tracing=tracing, wrong=tuple(wrong))


def _resolve(options: Typed) -> tuple[Resolved, list[Check]]:
    from beads_workers.cli.config import combine, find_file

    folder, wrong = Path.cwd(), []
    plain = combine(options, folder, {}, None)  # Raises for mistakes on the command line.
    file: Path | None = None
    try:
        file = find_file(folder)
        plain = combine(options, folder, {}, file)
    except CommandError as error:
        # Without a path it is a stranger's file above us: a file of the user comes first.
        mend = edit(file) or f"touch {shlex.quote(str(folder / FILE_NAME))}"
        wrong.append(fail("settings", error.message, mend, error.hint))
    try:
        return combine(options, folder, os.environ, plain.file), wrong
    except CommandError as error:
        name = error.message.split()[0]
        return plain, [*wrong, fail("settings", error.message, f"unset {name}", error.hint)]


def _refuse_typed(plan: FleetPlan, condition: Condition, check: Check) -> None:
    """Raise a usage error for a mistake on this very command line, as ``start`` does."""
    typed = any(plan.resolved.origin[name] == "command line" for name in condition.typed)
    if typed and check.status is Grade.FAIL and check.exit_code == EXIT_USAGE:
        raise refusal(check)
