"""What a proof measured, and whether it held: rows of one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """``found`` is what was measured, ``promise`` what it must be, in words; ``broken``: how it is
    not, "" where it holds."""

    proof: str
    what: str
    found: str
    promise: str
    broken: str = ""


class Rows:
    """The rows of one proof."""

    def __init__(self, proof: str) -> None:
        self.proof = proof
        self.rows: list[Row] = []

    def count(self, what: str, found: object, promise: str = "") -> None:
        """Something to know, which promises nothing."""
        self.rows.append(Row(self.proof, what, str(found), promise))

    def none(self, what: str, bad: Sequence[object], of: object = "") -> None:
        """There must be none of these."""
        broken = "; ".join(str(each) for each in bad[:3])
        found = f"{len(bad)}{f' of {of}' if of != '' else ''}"
        self.rows.append(Row(self.proof, what, found, "0", broken[:500]))

    def at_most(self, what: str, found: float, most: float, unit: str = "") -> None:
        """A number with a limit."""
        broken = "" if found <= most else f"{found:.4g}{unit} is more than {most:g}{unit}"
        row = Row(self.proof, what, f"{found:.4g}{unit}", f"at most {most:g}{unit}", broken)
        self.rows.append(row)

    def equal(self, what: str, found: object, wanted: object) -> None:
        """It must be this."""
        broken = "" if found == wanted else f"{found} instead of {wanted}"
        self.rows.append(Row(self.proof, what, str(found), str(wanted), broken))


def table(rows: Sequence[Row]) -> str:
    """As Markdown."""
    lines = ["| proof | what | found | promised |", "|---|---|---|---|"]
    for row in rows:
        found = f"{row.found} **broken: {row.broken}**" if row.broken else row.found
        lines.append(f"| {row.proof} | {row.what} | {found} | {row.promise} |")
    return "\n".join(lines)


def as_object(rows: Sequence[Row], size: int, seconds: float) -> dict[str, Any]:
    """As JSON; ``violations`` is what ``scripts/prove`` reads."""
    return {
        "issues": size,
        "seconds": round(seconds, 1),
        "violations": [f"{r.proof}: {r.what}: {r.broken}" for r in rows if r.broken],
        "rows": [asdict(row) for row in rows],
    }
