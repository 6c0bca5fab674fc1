"""The hours of a run: from when it begins attempts (``--start-at``), until when (``--until``).

A person writes a time of day, a duration or a date with a time (``read_moment``). It becomes epoch
seconds once, at the start (``moment``); a restart keeps these. ``Hours`` watches the wall clock.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Any

from beads_workers.core.base import limits
from beads_workers.core.base.times import parse_duration
from beads_workers.core.schedule.effects import Effects

HOURS = "hours"
"""Timer key: look at the wall clock, because the beginning or the end may have come."""

ENDED = "the time of --until has come"
"""The reason of a run's end after ``--until``."""

MOMENT_FORMS = "a time of day (07:00), a duration (8h), or a date and time (2027-01-31 07:00)"

_OF_DAY = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?", re.ASCII)
_DATED = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:[Zz]|[+-]\d\d:\d\d)?", re.ASCII
)
_DAYS_LOOKED = 3
"""Number of days in which each time of day comes at least once: on one day it may be past, and on
another one a change of the clocks may skip it."""

YEAR_MIN, YEAR_MAX = 2000, 9000
"""Years of dates that every system can represent."""

SECONDS_MAX = 366 * 86_400.0
"""The furthest moment: a year and a day from now."""


NUMBER_CHARS_SHOWN = 20


def read_moment(value: Any) -> str:
    """Return the text of a moment, from text or a time of TOML; raise ``ValueError``.

    A bare number is refused: to one person 7 is a duration, to another a time of day.
    """
    text = value.isoformat() if isinstance(value, time | datetime) else str(value).strip()
    if re.fullmatch(r"[\d.]+", text, re.ASCII):
        forms = f"{text}h or {text:0>2}:00?" if len(text) < 3 else f"{text}s, {text}m or {text}h?"
        forms = forms if len(text) < NUMBER_CHARS_SHOWN else "7h, 07:00?"
        raise ValueError(f"a time of day, or have a unit: {forms}")
    try:
        moment(text, 0.0, UTC)
    except (ValueError, OverflowError):
        raise ValueError(MOMENT_FORMS) from None
    return text


def moment(text: str, after: float, zone: tzinfo | None = None) -> float:
    """Return the epoch seconds of a moment as a person writes it; raise ``ValueError``.

    A time of day is the next one past ``after`` (epoch seconds) on the clocks of ``zone``, None for
    the machine's; a duration counts from ``after``. If a change of the clocks skips a time of day,
    it comes later by the skipped time. If a change repeats it, it comes at the first of both times
    that is past ``after``.
    """
    if (of_day := _OF_DAY.fullmatch(text)) is not None:
        hour, minute, second = (int(part or 0) for part in of_day.groups())
        day = datetime.fromtimestamp(after, zone)
        there = day.replace(hour=hour, minute=minute, second=second, microsecond=0, fold=0)
        days = (there + timedelta(days=number) for number in range(_DAYS_LOOKED))
        # If the first time of an hour that comes twice is past, the second one is the next.
        coming = (each.replace(fold=fold).timestamp() for each in days for fold in (0, 1))
        return next(at for at in coming if at > after)
    if _DATED.fullmatch(text):
        dated = datetime.fromisoformat(text.upper())
        if not YEAR_MIN <= dated.year < YEAR_MAX:
            raise ValueError(MOMENT_FORMS)
        return (dated if dated.tzinfo else dated.replace(tzinfo=zone)).timestamp()
    if (seconds := parse_duration(text)) > SECONDS_MAX:
        raise ValueError(MOMENT_FORMS)
    return after + seconds


def is_of_day(text: str) -> bool:
    """Return whether a moment is a time of day, which comes again each day."""
    return _OF_DAY.fullmatch(text) is not None


def written(at: float) -> str:
    """Return a moment as text that means the same moment whenever it is read."""
    return datetime.fromtimestamp(at, UTC).isoformat()


class Hours:
    """Watches the wall clock for the beginning and the end of the attempts of one run."""

    def __init__(self, effects: Effects, start_at: float | None, until: float | None) -> None:
        """``start_at`` and ``until``: epoch seconds; None for at once, and for no end."""
        self._effects = effects
        self.start_at, self.until = start_at, until

    @property
    def is_early(self) -> bool:
        """Whether no attempt is to begin yet."""
        return self.start_at is not None and self._effects.epoch < self.start_at

    @property
    def is_over(self) -> bool:
        """Whether no attempt is to begin any more."""
        return self.until is not None and self.until <= self._effects.epoch

    def look_later(self) -> None:
        """Set the timer for the next of both, if one is to come."""
        now = self._effects.epoch
        to_come = [at for at in (self.start_at, self.until) if at is not None and at > now]
        if to_come:
            # The wall clock may be set, and a machine that sleeps wakes up late.
            wait = min(min(to_come) - now, limits.WALL_CLOCK_LOOK_SECONDS)
            self._effects.timers.set(HOURS, self._effects.now + wait)
