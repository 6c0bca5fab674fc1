"""Accounts of the stub: what they may do, and what they were charged.

An account is a credential. It can be closed by a usage limit until a moment of the wall clock, lose
its login, run out of credit. ``opens`` may be later than the reset that it announces, as resets of
real services are. Whoever asks while it is closed is counted.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.agents_api.script import Tokens

PRICES: dict[str, tuple[float, float, float, float]] = {
    "claude-sonnet-5-5": (2.0, 10.0, 0.1, 2.5),
    "claude-opus-5-5": (4.0, 20.0, 0.2, 5.0),
    "claude-sonnet-5": (3.0, 15.0, 0.3, 3.75),
    "claude-opus-4-8": (5.0, 25.0, 0.5, 6.25),
    "gpt": (1.25, 10.0, 0.125, 0.0),
    "gemini": (1.25, 10.0, 0.125, 0.0),
}
"""Dollars for a million tokens: input, output, read from the cache, written to it. The longest
beginning of a model's name counts; what is in no line costs nothing. Those of claude are what
2.1.328 and 2.1.197 count with; the others are invented, as their programs know no money."""


FOREVER = 1e9
"""Seconds."""


@dataclass(frozen=True, slots=True)
class Charge:
    """What one answer cost. ``complete``: it was not cut by the script."""

    account: str
    session: str
    model: str
    tokens: Tokens
    dollars: float
    complete: bool
    at: float


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an account may not ask now: ``limit``, ``login`` or ``credit``.

    ``until``: of a limit, the reset that it announces in epoch seconds; ``None``: unknown."""

    why: str
    window: str = ""
    until: int | None = None


@dataclass(slots=True)
class Account:
    """One credential. Change it under ``Accounts.lock``, by the methods."""

    name: str
    plan: str = "plus"
    window: str = ""
    until: int | None = None
    opens: float = 0.0
    login_lost_until: float = 0.0
    credit: bool = True
    utilization: float = 0.0
    answered: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    models: dict[str, tuple[Refusal, float]] = field(default_factory=dict)
    """By a part of a model's name: its own limit, and when that opens."""

    @property
    def subscription(self) -> bool:
        """Whether it is a login of a person, not a key of the API."""
        return "oat" in self.name or "chatgpt" in self.name

    def close(
        self, window: str, seconds: float, *, late: float = 0.0, unknown: bool = False
    ) -> None:
        """A usage limit from now on. It opens ``late`` seconds after the announced reset."""
        until = time.time() + seconds
        # The announced reset is a whole minute, as texts have no seconds; short ones are for tests
        # that wait for them.
        whole = math.ceil(until / 60) * 60 if seconds > 600 else math.ceil(until)
        self.window, self.until = window, None if unknown else whole
        self.opens = whole + late

    def close_model(self, model: str, window: str, seconds: float) -> None:
        """A usage limit of the models with this in their name; all others may go on."""
        until = math.ceil(time.time() + seconds)
        self.models[model] = (Refusal("limit", window, until), until)

    def open(self) -> None:
        """Everything is well again, and nothing is used."""
        self.models.clear()
        self.window, self.until, self.opens = "", None, 0.0
        self.login_lost_until, self.credit, self.utilization = 0.0, True, 0.0

    def lose_login(self, seconds: float = FOREVER) -> None:
        """Every request is a 401 from now on."""
        self.login_lost_until = time.time() + seconds

    def refusal(self, model: str = "") -> Refusal | None:
        """Why it may not ask (that model) now. Counts whoever asks in vain."""
        now, found = time.time(), None
        if now < self.login_lost_until:
            found = Refusal("login")
        elif not self.credit:
            found = Refusal("credit")
        elif now < self.opens:
            found = Refusal("limit", self.window, self.until)
        else:
            limits = (
                (limit, opens) for name, (limit, opens) in self.models.items() if name in model
            )
            found = next((limit for limit, opens in limits if now < opens), None)
        if found is not None:
            self.refused[found.why] = self.refused.get(found.why, 0) + 1
        return found


class Accounts:
    """All accounts by their credential, and the meter. Methods may be called by any thread."""

    def __init__(self, prices: dict[str, tuple[float, float, float, float]] | None = None) -> None:
        self.lock = threading.RLock()
        self.prices = PRICES if prices is None else prices
        self.by_name: dict[str, Account] = {}
        self.charges: list[Charge] = []

    def get(self, name: str) -> Account:
        """The account of that credential; it is made when it is new."""
        with self.lock:
            return self.by_name.setdefault(name, Account(name))

    def dollars(self, model: str, tokens: Tokens) -> float:
        """What these tokens cost with that model."""
        names = [name for name in self.prices if model.startswith(name)]
        if not names:
            return 0.0
        prices = self.prices[max(names, key=len)]
        amounts = (tokens.input, tokens.output, tokens.cache_read, tokens.cache_write)
        return sum(n * price for n, price in zip(amounts, prices, strict=True)) / 1e6

    def charge(
        self, account: Account, session: str, model: str, tokens: Tokens, complete: bool
    ) -> None:
        """Write one answer to the meter."""
        dollars = self.dollars(model, tokens)
        with self.lock:
            account.answered += complete
            self.charges.append(
                Charge(account.name, session, model, tokens, dollars, complete, time.time())
            )

    def total(self, account: str = "", session: str = "") -> Charge:
        """Everything of that account and session (empty: of all), added up."""
        with self.lock:
            chosen = [
                charge
                for charge in self.charges
                if account in ("", charge.account) and session in ("", charge.session)
            ]
        tokens = Tokens(
            sum(charge.tokens.input for charge in chosen),
            sum(charge.tokens.output for charge in chosen),
            sum(charge.tokens.cache_read for charge in chosen),
            sum(charge.tokens.cache_write for charge in chosen),
        )
        dollars = sum(charge.dollars for charge in chosen)
        return Charge(account, session, "", tokens, dollars, True, time.time())

    def state(self) -> dict[str, Any]:
        """All of it as JSON, for other processes."""
        with self.lock:
            return {
                "accounts": {name: asdict(a) for name, a in self.by_name.items()},
                "charges": [asdict(charge) for charge in self.charges],
                "total": asdict(self.total()),
            }
