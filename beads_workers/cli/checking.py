"""The conditions of a start: a failure ends the start, a warning is a line on stderr."""

from __future__ import annotations

import sys

from beads_workers.checks.condition import CheckedBy, Condition, Stage
from beads_workers.checks.plan import FleetPlan
from beads_workers.checks.rules import Check, Grade
from beads_workers.checks.runner import start_checks
from beads_workers.cli.preparation import refuse_failed
from beads_workers.cli.trust import tell_refused
from beads_workers.core.base.text import printable

CLEAR_LINE = "\r\x1b[K"
TEXT_CHARS = 400


class Drawn:
    """Progress on a terminal: one line that is overwritten. In a pipe, each new line once."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._draws = not quiet and sys.stderr.isatty()
        self._shown = ""

    def __call__(self, name: str, text: str) -> None:
        """See ``checks.plan.Progress``."""
        if self._draws:
            self._write(f"{CLEAR_LINE}{_line('..', name, text)}" if text else CLEAR_LINE)
        elif text and not self._quiet and not (self._shown and text.startswith(self._shown)):
            self._write(_line("..", name, text) + "\n")
            self._shown = text

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def check_start(plan: FleetPlan, *, quiet: bool, last: bool = True) -> list[Check]:
    """Check all conditions; raise ``CommandError`` for the first failure.

    Return the warnings. ``quiet``: do not print them. ``last``: include the checks that take
    minutes.
    """
    warnings = []
    for condition, check in start_checks(plan, last=last):
        if condition.stage is Stage.TRUST and last:
            tell_refused(check, plan.options.upkeep.notify)
        refuse_failed(condition, check)
        if check.status is Grade.WARN:
            warnings.append(check)
        if not quiet:
            _say(condition, check)
    return warnings


def sentence(check: Check) -> str:
    """Return the text of a check and its hint as one sentence."""
    mark = " " if check.text.endswith("?") else "; "
    return f"{check.text}{mark}{check.hint}" if check.hint else check.text


def to_json(check: Check) -> dict[str, str]:
    """Return ``{"name", "status", "text", "remedy"}``."""
    text, status = sentence(check), check.status.value
    return {"name": check.name, "status": status, "text": text, "remedy": check.remedy}


def _say(condition: Condition, check: Check) -> None:
    if check.status is Grade.OK and condition.asked is not CheckedBy.AT_THE_END:
        return  # A passed check is printed only if the user had to wait for it.
    print(_line(check.status.value, check.name, check.text), file=sys.stderr)
    if check.status is Grade.WARN and (check.hint or check.remedy):
        print(f"hint: {check.hint or check.remedy}", file=sys.stderr)


def _line(how: str, name: str, text: str) -> str:
    return f"{how:<2} {name:<8} {printable(text, TEXT_CHARS)}"
