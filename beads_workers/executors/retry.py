"""API for functions: ``Retry``, ``concurrent``, ``progress``, and facts about the attempt that the
running call belongs to."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from beads_workers.core.base.traces import VARIABLES

# --- retry ---------------------------------------------------------------------------------------
# Exception that asks for another try: ``from beads_workers import Retry``.


class Retry(Exception):
    """Raise this in a function to have the call tried again, without blame.

    ``after_seconds``: no sooner than that, and a day at most; None leaves it to the back-off of the
    fleet. Such an attempt is not charged, but the twentieth in a row is. A value that is not a
    number from 0 on counts as None.
    """

    def __init__(self, reason: str = "", *, after_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.after_seconds = after_seconds


# --- concurrent ----------------------------------------------------------------------------------
# Functions of which many calls may share a process: ``from beads_workers import concurrent``.


Function = TypeVar("Function", bound=Callable[..., object])


def concurrent(function: Function) -> Function:
    """Declare that calls of ``function`` may run together in one process, in one event loop.

    Meant for a coroutine function that waits and never blocks, or a plain function that does
    little. The same without this package: ``function.concurrent = True``. Without ``--in-flight``
    this changes nothing.
    """
    function.concurrent = True  # type: ignore[attr-defined]
    return function


# --- variables -----------------------------------------------------------------------------------
# Variables of a command's environment: ``from beads_workers import variables``.


def variables() -> Mapping[str, str]:
    """Return ``BW_ISSUE_ID`` and the like, of the running attempt: from the environment or, in a
    function that shares its process, from the call's own variables."""
    return find_variables()


def _environment() -> Mapping[str, str]:
    return os.environ


find_variables: Callable[[], Mapping[str, str]] = _environment
"""Replaced in a process in which calls run together."""


# --- progress ------------------------------------------------------------------------------------
# Progress of the running call: ``from beads_workers import progress``.


def progress(activity: str = "", percent: float | None = None) -> None:
    """Report what the running task does now, and how much of it is done (0 to 100).

    People see it in the dashboard and in ``status`` within a second; only the newest report counts.
    Outside of a task this does nothing. A shell writes the same line to ``$BW_PROGRESS``.
    """
    path = variables().get("BW_PROGRESS")
    if not path:
        return
    share = "" if percent is None else f"{min(max(percent, 0), 100):.0f}% "
    line = share + " ".join(activity.split()) + "\n"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return  # A full disk must not stop work for the sake of a line.
    with open(fd, "w", encoding="utf-8", errors="replace") as file, suppress(OSError):
        file.write(line)


# --- traces --------------------------------------------------------------------------------------
# Trace of the running call: ``from beads_workers import trace_context``.


def trace_context() -> dict[str, str]:
    """Return the W3C headers of the running attempt, by name, as a tracer's ``extract`` reads them.

    ``traceparent``, and ``tracestate`` if there is one; empty if the work came without a context
    and the fleet creates no spans. They are ``TRACEPARENT`` and ``TRACESTATE`` of ``variables``.
    """
    known = variables()
    found = ((name, known.get(variable, "")) for name, variable in VARIABLES.items())
    return {name: text for name, text in found if text}
