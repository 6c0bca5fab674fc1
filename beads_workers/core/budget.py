"""What a run, or an issue, may cost: an amount of dollars, or of tokens."""

from __future__ import annotations

from beads_workers.core.model import value

MTOK = 1_000_000


@value
class Budget:
    """At most one of both is set: US dollars, or tokens."""

    dollars: float | None = None
    tokens: int | None = None

    def is_spent(self, money: float, tokens: int) -> bool:
        """Whether so many dollars and tokens leave nothing of it."""
        if self.dollars is not None:
            return money >= self.dollars
        return self.tokens is not None and tokens >= self.tokens

    def dollars_left(self, money: float) -> float | None:
        """For an agent that can stop by itself; None where dollars do not count."""
        return None if self.dollars is None else max(0.0, self.dollars - money)

    def __str__(self) -> str:
        if self.dollars is not None:
            return f"${self.dollars:.10g}"
        return f"{(self.tokens or 0) / MTOK:.10g}Mtok"


def read_budget(text: str) -> Budget:
    """``20``, ``$20`` or ``2.50``: dollars; ``5Mtok`` and ``800ktok``: tokens.

    Raises ``ValueError`` with a line for people.
    """
    said = text.strip().removeprefix("$")
    lower = said.lower()
    for ending, factor in (("mtok", MTOK), ("ktok", 1000), ("tok", 1)):
        if lower.endswith(ending):
            return Budget(tokens=round(_positive(said[: -len(ending)], text) * factor))
    return Budget(dollars=_positive(said, text))


def _positive(number: str, whole: str) -> float:
    try:
        found = float(number)
    except ValueError:
        found = -1.0
    if not 0 <= found < 1e12:
        raise ValueError(f"{whole[:40]!r} is no budget: dollars (20), or tokens (5Mtok)") from None
    return found
