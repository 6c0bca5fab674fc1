"""What an attempt has used, on disk as it is heard: exact after a ``kill -9`` of everything.

One line for each run of an agent, with its prices, and one for each increment of its usage. A
worker that dies says nothing any more; whoever finds its attempt reads this (``read_usage``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from beads_workers.agents.events import Price, Prices, Tally
from beads_workers.agents.events import Usage as Increment
from beads_workers.attempts.assignment import AgentSpec
from beads_workers.core.receipts import Receipt, Tokens

FILE_BYTES_MAX = 64 << 20


class UsageFile:
    """Appended to by one attempt. A disk that is full costs the account, and not the work."""

    def __init__(self, path: str) -> None:
        self._runs: list[tuple[Tally, Prices]] = []
        try:
            Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(path, flags, 0o600)
        except OSError:
            self._fd = -1

    def begin(self, spec: AgentSpec) -> None:
        """A run of this agent begins."""
        self._runs.append((Tally(), prices_of(spec.prices)))
        self._write({"agent": spec.name, "model": spec.model, "prices": dict(spec.prices)})

    def session(self, session: str) -> None:
        """Its session has this id."""
        self._write({"session": session})

    def add(self, increments: Iterable[Increment]) -> None:
        """It has used more."""
        for each in increments:
            self._runs[-1][0].hear([each])
            used = [each.input, each.output, each.cached_read, each.cached_write, each.money]
            self._write({"of": each.model, "used": used})

    def spent(self) -> tuple[dict[str, Tokens], float | None]:
        """Tokens by model, and dollars (None where a part has no price), of all runs so far."""
        return _sum(self._runs)

    def _write(self, row: Mapping[str, Any]) -> None:
        if self._fd >= 0:
            try:
                os.write(self._fd, json.dumps(row).encode() + b"\n")
            except OSError:
                pass


def read_usage(path: Path) -> Receipt | None:
    """What an attempt had used whose worker said nothing; None where no agent ran."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        with open(descriptor, "rb") as file:
            lines = file.read(FILE_BYTES_MAX).split(b"\n")
    except OSError:
        return None
    runs: list[tuple[Tally, Prices]] = []
    receipt = Receipt()
    for line in lines:
        row = _row(line)
        if isinstance(agent := row.get("agent"), str):
            runs.append((Tally(), _read_prices(row.get("prices"))))
            # The first one works; a reviewer comes behind it.
            model = row.get("model")
            first = Receipt(agent=agent, model=model if isinstance(model, str) else "")
            receipt = receipt if receipt.agent else first
        elif isinstance(session := row.get("session"), str) and len(runs) == 1:
            receipt = replace(receipt, session=session)
        elif runs and (increment := _increment(row)) is not None:
            runs[-1][0].hear([increment])
    if not runs:
        return None
    usage, money = _sum(runs)
    return replace(receipt, usage=usage, money=money)


def prices_of(table: Mapping[str, tuple[float, ...]]) -> dict[str, Price]:
    """The table of the settings as the adapters know it."""
    return {model: Price(*each[:3]) for model, each in table.items() if len(each) >= 2}


def _sum(runs: Iterable[tuple[Tally, Prices]]) -> tuple[dict[str, Tokens], float | None]:
    usage: dict[str, Tokens] = {}
    money: float | None = None
    unknown = False
    for tally, prices in runs:
        for model, each in tally.usage.items():
            used = Tokens(each.input, each.output, each.cached_read, each.cached_write)
            usage[model] = usage.get(model, Tokens()) + used
        dollars = tally.money(prices)
        unknown = unknown or (dollars is None and bool(tally.usage))
        money = money if dollars is None else (money or 0.0) + dollars
    return usage, None if unknown else money


def _row(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def _increment(row: Mapping[str, Any]) -> Increment | None:
    model, used = row.get("of"), row.get("used")
    if not isinstance(model, str) or not isinstance(used, list) or len(used) != 5:
        return None
    *counts, money = used
    if not all(isinstance(each, int) and each >= 0 for each in counts):
        return None
    dollars = float(money) if isinstance(money, int | float) else None
    return Increment(model, counts[0], counts[1], counts[2], counts[3], dollars)


def _read_prices(table: object) -> Prices:
    if not isinstance(table, dict):
        return {}
    numbers = {m: tuple(p) for m, p in table.items() if isinstance(p, list)}
    fine = {m: p for m, p in numbers.items() if all(isinstance(n, int | float) for n in p)}
    return prices_of(fine)
