"""Figures as a table: aligned lines for a terminal, or Markdown for ``PERFORMANCE.md``."""

from __future__ import annotations

from statistics import median

from benchmarks.tools.figures import Figure

HEAD = ("figure", "ours", "peer", "ratio", "rounds", "goal", "")
VERDICTS = {True: "reached", False: "MISSED", None: ""}


def table(figures: list[Figure]) -> str:
    """The figures as aligned lines."""
    rows = [HEAD, *(_row(figure) for figure in figures)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def markdown(figures: list[Figure]) -> str:
    """The same, ready to paste; what is missed stands out."""
    lines = [_piped(HEAD), "|---" * len(HEAD) + "|"]
    lines += [_piped(_row(figure)).replace("MISSED", "**missed**") for figure in figures]
    return "\n".join(lines)


def _piped(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


def _row(figure: Figure) -> tuple[str, ...]:
    low, high = figure.spread
    times = "" if figure.ratio is None else "x"
    return (
        figure.name,
        _amount(median(figure.ours), figure.unit),
        _amount(median(figure.peer), figure.unit) if figure.peer else "",
        f"{_short(figure.ratio)}x" if figure.ratio is not None else "",
        f"{_short(low)}-{_short(high)}" if len(figure.ours) > 1 else "",
        _goal(figure, times),
        VERDICTS[figure.reached],
    )


def _goal(figure: Figure, times: str) -> str:
    if figure.goal is None:
        return ""
    return f"{figure.sense.value} {figure.goal:g}{times or ' ' + figure.unit}".rstrip()


def _amount(value: float, unit: str) -> str:
    return f"{_short(value)} {unit}".rstrip()


def _short(value: float) -> str:
    """Three digits that count, and thousands with commas."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
