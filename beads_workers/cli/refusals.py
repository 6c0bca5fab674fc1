"""Checks that end a command: a failure becomes a ``CommandError``."""

from __future__ import annotations

from typing import TypeVar

from beads_workers.checks.rules import Check, Grade
from beads_workers.errors import CommandError

T = TypeVar("T")


def refusal(check: Check, lifted_by: str = "") -> CommandError:
    """Return the error for a failed check; ``lifted_by``: the option that skips the check."""
    hint = check.hint or (f"type: {check.remedy}" if check.remedy else "")
    if lifted_by and lifted_by not in hint:
        hint = f"{hint}; or go on without: {lifted_by}" if hint else f"{lifted_by} goes on without"
    return CommandError(check.text, hint, check.exit_code)


def refuse(check: Check | None) -> None:
    """Raise ``CommandError`` if the check failed."""
    if check is not None and check.status is Grade.FAIL:
        raise refusal(check)


def need_met(found: T | Check) -> T:
    """Return what was found; raise ``CommandError`` for a check."""
    if isinstance(found, Check):
        raise refusal(found)
    return found


def sentence(error: CommandError) -> str:
    """Return an error and its hint as one sentence, like a check's."""
    return f"{error.message}; {error.hint}" if error.hint else error.message
