"""How the checks of ``doctor`` look: aligned and coloured on a terminal, plain in a pipe."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, TextIO

from beads_workers.core.checks import Check, Grade, any_failed
from beads_workers.core.text import counted, printable

WORDS = {Grade.OK: "ok", Grade.WARN: "warn", Grade.FAIL: "FAIL"}
COLOURS = {Grade.OK: "32", Grade.WARN: "33", Grade.FAIL: "1;31"}
INDENT = " " * 17
WIDTH_MIN = 40
CLEAR_LINE = "\r\x1b[K"


class Printer:
    """Prints each check as it comes. ``fancy``: the stream is a terminal that can do more."""

    def __init__(self, stream: TextIO, *, silent: bool) -> None:
        self._stream = stream
        self._silent = silent
        terminal = stream.isatty()
        self._fancy = terminal and os.environ.get("TERM", "dumb") != "dumb"
        self._colour = self._fancy and not os.environ.get("NO_COLOR")
        self._width = max(shutil.get_terminal_size().columns, WIDTH_MIN) if terminal else 0

    def waiting(self, name: str) -> None:
        """Says what is waited for, where that can be taken away again."""
        if self._fancy and not self._silent:
            self._write(f"{CLEAR_LINE}...   {name}", end="")

    def check(self, check: Check) -> None:
        """One line, wrapped on a terminal, and the remedy below it, never wrapped: it is copied."""
        if self._silent:
            return
        clear = CLEAR_LINE if self._fancy else ""
        self._write(clear + self._first(check))
        if check.remedy:
            self._write(f"{INDENT}{self._paint('fix:', '36')} {check.remedy}")

    def end(self, checks: Sequence[Check]) -> None:
        """The sum of it."""
        count = {grade: sum(c.status is grade for c in checks) for grade in Grade}
        problems = [
            counted(count[grade], word)
            for grade, word in ((Grade.FAIL, "failure"), (Grade.WARN, "warning"))
            if count[grade]
        ]
        verdict = "not ready" if any_failed(checks) else "ready"
        self._write(f"{verdict}: {', '.join(problems) or 'all fine'}")

    def _first(self, check: Check) -> str:
        text = printable(check.text)
        lead = f"{WORDS[check.status]:<6}{check.name:<11}"
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
    """For this stream; silent where one JSON object is to come at the end."""
    return Printer(stream, silent=as_json)


def as_object(checks: Sequence[Check]) -> dict[str, Any]:
    """``{"ok": bool, "checks": [{"name", "status", "text", "remedy"}...]}``."""
    listed = [{**asdict(check), "status": check.status.value} for check in checks]
    return {"ok": not any_failed(checks), "checks": listed}
