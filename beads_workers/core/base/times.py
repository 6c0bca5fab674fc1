"""Times as texts: RFC 3339 to seconds since 1970 and back, and durations as people type them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:(\d\d)(?:\.\d+)?([Zz]|[+-]\d\d:\d\d)?", re.ASCII
)
_SECOND = len("2025-01-01T12:00:")
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?", re.ASCII)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def parse_duration(text: str) -> float:
    """Read seconds from ``90``, ``90s``, ``1.5m``, ``2h``; raise ``ValueError`` with the forms."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration; write 90, 90s, 5m or 2h")
    return float(match[1]) * _UNITS[match[2] or "s"]


def read_time(text: str) -> float:
    """Read seconds since 1970, to the microsecond; any number of digits after the point is read.

    Without an offset it is UTC, as real peers take it; a leap second is the second after it. Raise
    ``ValueError`` for anything else.
    """
    match = _RFC_3339.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:40]!r} is no RFC 3339 time")
    second, offset = match.groups()
    local = text[: match.start(2)] if offset else text
    if second == "60":
        return read_time(local[:_SECOND] + "59" + text[_SECOND + 2 :]) + 1.0
    moment = datetime.fromisoformat(local)
    if offset and offset not in "Zz":
        try:
            moment = _in_utc(moment, offset)
        except OverflowError:
            raise ValueError(f"{text[:40]!r} is out of range") from None
    return (moment - _EPOCH).total_seconds()


def _in_utc(moment: datetime, offset: str) -> datetime:
    # A tenth of the time of a request was spent here: ``strptime`` is slow, and most are in UTC.
    zone = datetime.strptime(offset, "%z").tzinfo
    return moment.replace(tzinfo=zone).astimezone(UTC).replace(tzinfo=None)


def write_time(seconds: float) -> str:
    """Write RFC 3339 in UTC, with as many digits after the point as needed, at most six.

    Raise ``ValueError`` outside of the years 1 to 9999.
    """
    try:
        moment = _EPOCH + round(seconds * 1_000_000) * _MICROSECOND
    except OverflowError:
        raise ValueError(f"{seconds} seconds are out of range") from None
    return moment.isoformat() + "Z"
