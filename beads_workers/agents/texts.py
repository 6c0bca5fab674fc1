"""Texts that agents print when they fail: the fallback if there is no event, in one table.

Such texts change: claude's text for a usage limit changed six times in 14 months. An event that
says the same is always preferred. The clock and the zone are arguments: ``reset`` only computes. If
a text names a zone, it reads the system's table of time zones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta, tzinfo

from beads_workers.agents.events import Kind
from beads_workers.core.base.model import value

RESET_SECONDS_MAX = 40 * 86_400.0
"""Longest time to a reset, in seconds. No limit is longer than a month: a later reset was misread,
and counts as unknown."""

PASSED_SECONDS = 3600.0
"""How long ago a reset may be, in seconds: providers open late, and texts have no seconds. A time
that has just passed is meant, not the same time tomorrow."""

_SEARCHED_CHARS = 4000


@value
class Pattern:
    """A known text."""

    kind: Kind
    # A regular expression, in lower case.
    words: str
    # Program and version, or a report.
    seen: str
    # Nothing was tried; without that session it may succeed.
    session_lost: bool = False


OF_A_MODEL = (
    r"issue with the selected model|model_not_found|\bmodel\b.{1,80} does not exist|"
    r"not_found_error\W+message\W+model\b"
)
"""Text for a model that does not exist: nothing else is wrong with the account."""

PATTERNS = (
    # Usage limits of an account.
    Pattern(Kind.LIMITED, r"hit your (?:[\w-]+ ){0,3}limit", "claude 2.1.328, codex 0.169"),
    Pattern(Kind.LIMITED, r"usage limit reached", "claude 1.0 to 2.0"),
    Pattern(Kind.LIMITED, r"-hour limit reached|weekly limit reached", "claude 2.0"),
    Pattern(Kind.LIMITED, r"out of extra usage", "claude 2.1"),
    Pattern(Kind.LIMITED, r"usage_limit_reached", "claude 2.1.328, codex 0.169"),
    Pattern(Kind.LIMITED, r"exhausted your (?:daily quota|capacity)", "gemini 0.61"),
    Pattern(Kind.LIMITED, r"usage limit has been reached", "copilot 1.0.102"),
    # Failures that only a person can fix.
    Pattern(Kind.NEEDS_PERSON, r"not logged in|please run /login", "claude 2.1.328"),
    Pattern(Kind.NEEDS_PERSON, r"invalid api key|invalid_api_key", "claude 2.1.328, codex 0.169"),
    Pattern(Kind.NEEDS_PERSON, r"credit balance is too low", "claude 2.1.328"),
    Pattern(Kind.NEEDS_PERSON, r"check your plan and billing", "codex 0.169"),
    Pattern(Kind.NEEDS_PERSON, r"\b40[13] (?:unauthorized|forbidden)", "codex 0.169"),
    Pattern(Kind.NEEDS_PERSON, r"api key not valid|set an auth method", "gemini 0.61"),
    Pattern(Kind.NEEDS_PERSON, r"failed to authenticate", "claude 2.1.328"),
    Pattern(Kind.NEEDS_PERSON, r"missing environment variable", "codex 0.169"),
    Pattern(Kind.NEEDS_PERSON, r"no api key found", "pi 0.73.1"),
    Pattern(Kind.NEEDS_PERSON, r"authentication failed|no auth provided", "several"),
    Pattern(Kind.NEEDS_PERSON, r"provider\.auth_error", "kimi 2.1.0"),
    Pattern(Kind.NEEDS_PERSON, r"\bauthentication_error\b", "pi 0.73.1"),
    Pattern(Kind.NEEDS_PERSON, r"not able to authenticate you", "aider 0.86.2"),
    Pattern(Kind.NEEDS_PERSON, OF_A_MODEL, "claude 2.1.328, several"),
    # Failures that pass by themselves.
    Pattern(Kind.TRANSIENT, r"overloaded|temporarily limiting requests", "claude 2.1.328"),
    Pattern(Kind.TRANSIENT, r"connection to the api was lost", "claude 2.1.328"),
    Pattern(Kind.TRANSIENT, r"model is at capacity", "codex 0.169"),
    Pattern(Kind.TRANSIENT, r"failed native model http request", "copilot 1.0.102"),
    Pattern(Kind.TRANSIENT, r"api error: terminated", "gemini 0.61"),
    Pattern(Kind.TRANSIENT, r"experiencing high demand", "codex 0.169"),
    Pattern(Kind.TRANSIENT, r"last status: (?:429|5\d\d)", "codex 0.169"),
    Pattern(Kind.TRANSIENT, r"api error: (?:request rejected \(429\)|5\d\d)", "claude 2.1.328"),
    Pattern(Kind.TRANSIENT, r"unexpected status 5\d\d", "codex 0.169"),
    Pattern(Kind.TRANSIENT, r"stream disconnected before completion", "codex 0.169"),
    Pattern(Kind.TRANSIENT, r"\bconnection error\b|fetch failed|error sending request", "several"),
    Pattern(Kind.TRANSIENT, r"\brate_limit_error\b", "pi 0.73.1"),
    Pattern(Kind.TRANSIENT, r"has rate limited you", "aider 0.86.2"),
    # Runs that could not begin as requested.
    Pattern(Kind.UNFINISHED, r"no saved session found with id", "qwen 0.24.4", True),
    Pattern(Kind.UNFINISHED, r"no session found matching", "pi 0.73.1", True),
    Pattern(Kind.UNFINISHED, r'session "[^"]{1,100}" not found', "kimi 2.1.0", True),
    Pattern(Kind.UNFINISHED, r"so its deferred call didn.t run", "claude 2.1.332", True),
    Pattern(Kind.UNFINISHED, r"no conversation found with session id", "claude 2.1.328", True),
    Pattern(Kind.UNFINISHED, r"session id \S+ is already in use", "claude 2.1.328", True),
    Pattern(Kind.UNFINISHED, r"thread/resume failed", "codex 0.169", True),
)
"""All patterns, in the order in which they apply. An entry has an example in
``tests/agents/test_texts.py``."""


def recognise(text: str) -> Pattern | None:
    """Return the first pattern in ``text``, which may have any colours and case; None if there is
    none."""
    lowered = _COLOURS.sub("", text[-_SEARCHED_CHARS:]).lower()
    return next((p for p in PATTERNS if re.search(p.words, lowered)), None)


_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")


def is_of_model(text: str) -> bool:
    """Return whether the text says that a model does not exist."""
    return re.search(OF_A_MODEL, text.lower()) is not None


def sentence(text: str, chars_max: int = 160) -> str:
    """Return the beginning of a message as one short line for people."""
    line = next((" ".join(each.split()) for each in text.splitlines() if each.strip()), "")
    first = re.split(r"(?<=[.!?]) (?=[A-Z])", line, maxsplit=1)[0]
    return first if len(first) <= chars_max else first[: chars_max - 1].rstrip() + "…"


# --- resets ---------------------------------------------------------------------------------------


def reset(text: str, now: float, zone: tzinfo | None) -> float | None:
    """Return when the limit in ``text`` ends, in epoch seconds; None if the text does not say.

    ``now``: when it was said. ``zone``: of the process that said it, for times without a zone;
    None: the zone of this machine. A time without a date is the nearest such moment that is at most
    ``PASSED_SECONDS`` ago; so is every result.
    """
    text = text[-_SEARCHED_CHARS:]
    for moment in _moments(text, now, zone):
        if now - PASSED_SECONDS < moment <= now + RESET_SECONDS_MAX:
            return moment
    return None


def _moments(text: str, now: float, zone: tzinfo | None) -> Iterator[float]:
    """Yield the moments that the text may mean, the surest first."""
    for match in _EPOCH.finditer(text):
        yield float(match[1])
    for match in _AFTER.finditer(text):
        yield now + sum(int(n) * _UNITS[unit.lower()] for n, unit in _PARTS.findall(match[1]))
    for match in _AT.finditer(text):
        hour, minute = _time_of_day(match)
        if hour is not None:
            moments = _around(match, (hour, minute), now, _zone(match["zone"]) or zone)
            yield from sorted(moments, key=lambda moment: abs(moment - now))


def _time_of_day(match: re.Match[str]) -> tuple[int | None, int]:
    if match["hour"] is None:
        return (0 if match["month"] else None), 0
    hour, minute = int(match["hour"]), int(match["minute"] or 0)
    if match["half"]:
        hour = hour % 12 + (12 if match["half"] in "pP" else 0) if 1 <= hour <= 12 else 24
    elif match["minute"] is None:
        return None, 0  # A bare number is no time.
    return (hour, minute) if hour < 24 and minute < 60 else (None, 0)


def _around(
    match: re.Match[str], time: tuple[int, int], now: float, zone: tzinfo | None
) -> Iterator[float]:
    """Yield the moments around now with that time of day, and that date if there is one."""
    today = datetime.fromtimestamp(now, zone)
    if match["month"] is None:
        days = [(today + timedelta(days=n)).date() for n in (-1, 0, 1, 2)]
        dates = [(day.year, day.month, day.day) for day in days]
    else:
        month, day = _MONTHS.index(match["month"].lower()) + 1, int(match["day"])
        years = [int(match["year"])] if match["year"] else range(today.year - 1, today.year + 2)
        dates = [(year, month, day) for year in years]
    for date in dates:
        try:
            first = datetime(*date, *time, tzinfo=zone)
            yield first.timestamp()
            yield first.replace(fold=1).timestamp()  # An hour may come twice.
        except (ValueError, OverflowError):
            continue


def _zone(name: str | None) -> tzinfo | None:
    if not name:
        return None
    from zoneinfo import ZoneInfo  # Only needed for a text that names a zone.

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_UNITS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
_EPOCH = re.compile(r"\|(\d{10})(?:\d{3})?(?!\d)")
_PARTS = re.compile(r"(\d{1,9})\s*([dhms])", re.IGNORECASE)
_AFTER = re.compile(
    r"\b(?:again|resets?|retry|wait)\s+(?:in|after)\s+"
    r"((?:\d{1,9}\s*(?:days?|hours?|hrs?|minutes?|mins?|seconds?|secs?|[dhms])(?![a-z])[\s,]*(?:and\s+)?)+)",
    re.IGNORECASE,
)
_AT = re.compile(
    r"(?:\bresets?|\bagain)\s+(?:at\s+|on\s+)?"
    rf"(?:(?P<month>{'|'.join(_MONTHS)})[a-z]*\.?\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b"
    r"(?:,?\s+(?P<year>\d{4}))?(?:,?\s+at\s+|,?\s+)?)?"
    r"(?:(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?(?::\d\d)?(?:\s*(?P<half>[ap])\.?m\b)?)?"
    r"\.?\s*(?:\((?P<zone>[A-Za-z0-9_+/-]{1,60})\))?",
    re.IGNORECASE,
)
