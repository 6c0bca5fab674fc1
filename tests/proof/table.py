"""The figures of ``scripts/prove``, as docs/internals/RELIABILITY.md shows them."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.proof.parts import Part

if TYPE_CHECKING:
    from tests.proof.runner import Running


TELLING_SHARE = 0.03
"""Before so much is done, nobody knows how long the rest takes."""


@dataclass(frozen=True)
class Figure:
    """One proof, or several of one name: how much of what, and what it broke."""

    name: str
    what: str
    amount: int
    seconds: float
    broken: tuple[str, ...] = ()
    starts: int = 0
    issues: int = 0
    closed: int = 0
    quarantined: int = 0


def figure_of(part: Part, size: int, told: dict[str, Any], status: int, seconds: float) -> Figure:
    """From what the proof printed, and how it exited; less than ``size`` proves nothing."""
    said = told.get("chaos", told)
    parsers = said.get("parsers", ())
    found = [
        f"{promise['text']}: {promise['broken'][0]}"
        for promise in said.get("promises", ())
        if promise["broken"]
    ]
    found += [f"{each['parser']}: {each['failure']}" for each in parsers if each["failure"]]
    found += [str(violation)[:200] for violation in said.get("violations", ())]
    names = ("starts", "issues", "closed", "quarantined") if "starts" in said else ()
    counts = {name: said[name] for name in names if name in said}  # ``faults`` quarantines none.
    counted = (said[name] for name in ("kills", "faults", "cases", "issues") if name in said)
    amount = next(counted, 0)
    what = part.what
    if parsers:
        amount = min(each["inputs"] for each in parsers)
        what += f", each of {len(parsers)}"
    if amount < size:
        found.append(f"only {amount:,} of {size:,} {part.what}")
    if status and not found:
        found = [f"exit {status}"]
    return Figure(part.name, what, amount, seconds, tuple(found), **counts)


def table(figures: Sequence[Figure]) -> str:
    """Markdown; what ran in several pieces is one row, whichever of them ended first."""
    lines = [
        "| proof | size | orchestrators started | issues | closed once | quarantined | broken |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in sorted({figure.name for figure in figures}):
        lines.append(row([figure for figure in figures if figure.name == name]))
    return "\n".join(lines)


def row(pieces: Sequence[Figure]) -> str:
    """One line of the table."""
    each_of = [(p.starts, p.issues, p.closed, p.quarantined) for p in pieces]
    sums = [sum(column) for column in zip(*each_of, strict=True)]
    counts = [f"{each:,}" if sums[0] else "" for each in sums]
    found = Counter(text for piece in pieces for text in piece.broken)
    times = (f"{text}{f' ({n} times)' if n > 1 else ''}" for text, n in found.items())
    broken = "; ".join(times) or "nothing"
    size = f"{sum(piece.amount for piece in pieces):,} {pieces[0].what}"
    return f"| {pieces[0].name} | {size} | {' | '.join(counts)} | {broken} |"


def progress(
    parts: Sequence[Part],
    waiting: Sequence[Part],
    running: Sequence[Running],
    seconds: float,
    limit_seconds: float,
) -> str:
    """How far each is and all are, and how long the rest takes if it goes on like this."""
    left = sum(part.seconds for part in waiting)
    told = []
    for each in running:
        done, whole = each.done()
        left += each.part.seconds * (1 - min(1.0, done / whole))
        broken = " BROKEN" if "BROKEN" in each.said() else ""
        told.append(f"{each.part.name} {done:,}/{whole:,}{broken}")
    share = 1 - left / sum(part.seconds for part in parts)
    rest = f"about {seconds * (1 / share - 1) / 60:.0f} min left" if share > TELLING_SHARE else ""
    ended = f"{len(parts) - len(waiting) - len(running)} of {len(parts)} ended"
    time_left = f"{max(0.0, limit_seconds - seconds) / 60:.0f} min to the limit"
    return " | ".join(filter(None, (f"{share:.0%}", ", ".join(told), ended, rest, time_left)))


def machine() -> str:
    """What it is measured on, and what else goes on there at the moment."""
    return (
        f"{os.cpu_count()} cores, Python {platform.python_version()}, Linux {platform.release()},"
        f" load {os.getloadavg()[0]:.1f} before"
    )
