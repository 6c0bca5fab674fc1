"""Limits on the cost of a night, of a run or of an issue, in dollars or in tokens."""

from __future__ import annotations

from dataclasses import replace

from beads_workers.core.base.model import value

MTOK = 1_000_000
PER_RUN = "/run"
"""End of a budget that each run of a night has anew."""


@value
class Budget:
    """US dollars or tokens; at most one of the two is set. ``per_run``: each run has it anew, else
    all runs of a night have it together."""

    dollars: float | None = None
    tokens: int | None = None
    per_run: bool = False

    def is_spent(self, money: float, tokens: int) -> bool:
        """Return whether this cost, in dollars and in tokens, uses the budget up."""
        if self.dollars is not None:
            return money >= self.dollars
        return self.tokens is not None and tokens >= self.tokens

    def dollars_left(self, money: float) -> float | None:
        """Return the dollars left, for agents that can stop by themselves; None without a limit."""
        return None if self.dollars is None else max(0.0, self.dollars - money)

    def left(self, money: float, tokens: int) -> str:
        """Return what is left of it after this cost: ``$0.24``, ``1.2Mtok``."""
        if self.dollars is not None:
            return f"${max(0.0, self.dollars - money):.2f}"
        return f"{max(0, (self.tokens or 0) - tokens) / MTOK:.3g}Mtok"

    def used(self, money: float, tokens: int) -> str:
        """Return this cost in the budget's own unit: ``$0.36``, ``3.8Mtok``."""
        return f"${money:.2f}" if self.dollars is not None else f"{tokens / MTOK:.3g}Mtok"

    def doubled(self) -> str:
        """Return twice this budget as ``--budget`` takes it: a proposal for a person."""
        if self.dollars is not None:
            return f"{2 * self.dollars:.10g}"
        return f"{2 * (self.tokens or 0) / MTOK:.10g}Mtok"

    def __str__(self) -> str:
        each = PER_RUN if self.per_run else ""
        if self.dollars is not None:
            return f"${self.dollars:.10g}{each}"
        return f"{(self.tokens or 0) / MTOK:.10g}Mtok{each}"


def read_budget(text: str) -> Budget:
    """Read a budget: ``20``, ``$20`` and ``2.50`` are dollars, ``5Mtok`` and ``800ktok`` tokens;
    with ``/run`` behind it for each run.

    Raise ``ValueError`` with a line for people.
    """
    number = text.strip().removeprefix("$")
    if number.endswith(PER_RUN):
        return replace(read_budget(number.removesuffix(PER_RUN)), per_run=True)
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
