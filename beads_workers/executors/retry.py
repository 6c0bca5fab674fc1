"""What functions may import from us: ``Retry``, ``concurrent``, ``progress``, and what the running
call is an attempt of."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from beads_workers.core.traces import VARIABLES

# --- retry ---------------------------------------------------------------------------------------
# What a function raises to be tried again: ``from beads_workers import Retry``.


class Retry(Exception):
    """Raise this in a function that is to be tried again, without fault of its own.

    ``after_seconds``: no sooner than that, and a day at most; None leaves it to the back-off of
    the fleet. Such an attempt is not charged, but the twentieth in a row is. Anything that is no
    number from 0 on counts as None.
    """

    def __init__(self, reason: str = "", *, after_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.after_seconds = after_seconds


# --- concurrent ----------------------------------------------------------------------------------
# A function that many calls may share a process in: ``from beads_workers import concurrent``.


Function = TypeVar("Function", bound=Callable[..., object])


def concurrent(function: Function) -> Function:
    """Declare that calls of ``function`` may run together in one process, in one event loop.

    For a coroutine function that waits and never blocks, or a plain one that does little. The same
    without this package: ``function.concurrent = True``. Where the fleet has no ``--in-flight`` it
    changes nothing.
    """
    function.concurrent = True  # type: ignore[attr-defined]
    return function


# --- variables -----------------------------------------------------------------------------------
# What is in the environment of a command: ``from beads_workers import variables``.


def variables() -> Mapping[str, str]:
    """``BW_ISSUE_ID`` and the like, of the attempt that runs: those of the environment, or, in a
    function that shares its process, its own."""
    return find_variables()


def _environment() -> Mapping[str, str]:
    return os.environ


find_variables: Callable[[], Mapping[str, str]] = _environment
"""Replaced in a process where calls run together."""


# --- progress ------------------------------------------------------------------------------------
# How far the running call is: ``from beads_workers import progress``.


def progress(activity: str = "", percent: float | None = None) -> None:
    """Say what the running task does now, and how much of it is done (0 to 100).

    People see it in the dashboard and in ``status`` within a second; only the newest counts.
    Outside of a task it does nothing. A shell writes the same line to ``$BW_PROGRESS``.
    """
    path = variables().get("BW_PROGRESS")
    if not path:
        return
    share = "" if percent is None else f"{min(max(percent, 0), 100):.0f}% "
    line = share + " ".join(activity.split()) + "\n"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return  # A full disk stops nobody's work for the sake of a line.
    with open(fd, "w", encoding="utf-8", errors="replace") as file, suppress(OSError):
        file.write(line)


# --- traces --------------------------------------------------------------------------------------
# Which trace the running call belongs to: ``from beads_workers import trace_context``.


def trace_context() -> dict[str, str]:
    """The W3C headers of the attempt that runs, by name: what a tracer's ``extract`` reads.

    ``traceparent``, and ``tracestate`` where there is one; empty where the work came without a
    context and the fleet makes no spans. They are ``TRACEPARENT`` and ``TRACESTATE`` of
    ``variables``.
    """
    known = variables()
    found = ((name, known.get(variable, "")) for name, variable in VARIABLES.items())
    return {name: text for name, text in found if text}
