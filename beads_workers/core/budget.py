"""Limits on the cost of a run or of an issue, in dollars or in tokens."""

from __future__ import annotations

from beads_workers.core.model import value

MTOK = 1_000_000


@value
class Budget:
    """US dollars or tokens; at most one of the two is set."""

    dollars: float | None = None
    tokens: int | None = None

    def is_spent(self, money: float, tokens: int) -> bool:
        """Return whether this cost, in dollars and in tokens, uses the budget up."""
        if self.dollars is not None:
            return money >= self.dollars
        return self.tokens is not None and tokens >= self.tokens

    def dollars_left(self, money: float) -> float | None:
        """Return the dollars left, for agents that can stop by themselves; None without a limit."""
        return None if self.dollars is None else max(0.0, self.dollars - money)

    def __str__(self) -> str:
        if self.dollars is not None:
            return f"${self.dollars:.10g}"
        return f"{(self.tokens or 0) / MTOK:.10g}Mtok"


def read_budget(text: str) -> Budget:
    """Read a budget: ``20``, ``$20`` and ``2.50`` are dollars, ``5Mtok`` and ``800ktok`` tokens.

    Raise ``ValueError`` with a line for people.
    """
    number = text.strip().removeprefix("$")
    lower = number.lower()
    for ending, factor in (("mtok", MTOK), ("ktok", 1000), ("tok", 1)):
        if lower.endswith(ending):
            return Budget(tokens=round(_positive(number[: -len(ending)], text) * factor))
    return Budget(dollars=_positive(number, text))


def _positive(number: str, text: str) -> float:
    try:
        found = float(number)
    except ValueError:
        found = -1.0
    if not 0 <= found < 1e12:
        raise ValueError(f"{text[:40]!r} is no budget: dollars (20), or tokens (5Mtok)") from None
    return found
