"""The figures of ``scripts/prove``, as docs/RELIABILITY.md shows them."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.proof.parts import Part


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
    set_aside: int = 0


def figure_of(part: Part, told: dict[str, Any], status: int, seconds: float) -> Figure:
    """From what the proof printed, and how it exited."""
    said = told.get("chaos", told)
    parsers = said.get("parsers", ())
    found = [
        f"{promise['text']}: {promise['broken'][0]}"
        for promise in said.get("promises", ())
        if promise["broken"]
    ]
    found += [f"{each['parser']}: {each['failure']}" for each in parsers if each["failure"]]
    found += [str(violation)[:200] for violation in said.get("violations", ())]
    if status and not found:
        found = [f"exit {status}"]
    counts = {name: said.get(name, 0) for name in ("starts", "issues", "closed", "set_aside")}
    amount = said.get("kills", said.get("faults", 0))
    if parsers:
        amount = min(each["inputs"] for each in parsers)
    return Figure(part.name, part.what, amount, seconds, tuple(found), **counts)


def table(figures: Sequence[Figure]) -> str:
    """Markdown; what ran in several pieces is one row."""
    lines = [
        "| proof | size | orchestrators started | issues | closed once | set aside | broken |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(figure.name for figure in figures):
        lines.append(row([figure for figure in figures if figure.name == name]))
    return "\n".join(lines)


def row(pieces: Sequence[Figure]) -> str:
    """One line of the table."""
    counts = (
        total(p.starts for p in pieces),
        total(p.issues for p in pieces),
        total(p.closed for p in pieces),
        total(p.set_aside for p in pieces),
    )
    broken = "; ".join(text for piece in pieces for text in piece.broken) or "nothing"
    size = f"{sum(piece.amount for piece in pieces):,} {pieces[0].what}"
    return f"| {pieces[0].name} | {size} | {' | '.join(counts)} | {broken} |"


def total(values: Iterable[int]) -> str:
    """Empty where it means nothing."""
    return f"{found:,}" if (found := sum(values)) else ""


def machine() -> str:
    """What it was measured on."""
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, Linux {platform.release()}"
