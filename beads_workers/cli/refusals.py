"""Checks as the end of a command: what fails is a ``CommandError``."""

from __future__ import annotations

from typing import TypeVar

from beads_workers.checks.rules import Check, Grade
from beads_workers.cli.errors import CommandError

T = TypeVar("T")


def refusal(check: Check, lifted_by: str = "") -> CommandError:
    """Why a command ends here, and what to do; ``lifted_by``: the option that goes on."""
    hint = check.hint or (f"type: {check.remedy}" if check.remedy else "")
    if lifted_by and lifted_by not in hint:
        hint = f"{hint}; or go on without: {lifted_by}" if hint else f"{lifted_by} goes on without"
    return CommandError(check.text, hint, check.exit_code)


def refuse(check: Check | None) -> None:
    """Raises ``CommandError`` if it failed."""
    if check is not None and check.status is Grade.FAIL:
        raise refusal(check)


def need_met(found: T | Check) -> T:
    """What was found; raises ``CommandError`` if it was not."""
    if isinstance(found, Check):
        raise refusal(found)
    return found


def sentence(error: CommandError) -> str:
    """An error and its hint, as a check says it."""
    return f"{error.message}; {error.hint}" if error.hint else error.message
