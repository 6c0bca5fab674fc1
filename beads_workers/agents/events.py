"""What agents are heard to say, whatever command line says it: the events, and their sum.

A parser of ``agents.adapters`` makes events from the bytes of one run, ``Tally`` sums them, and
``agents.verdict`` judges the sum. Nothing here knows a command line by name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from fnmatch import fnmatchcase

from beads_workers.core.model import value

TEXT_CHARS_MAX = 64 << 10
"""Of what an agent says at once: an answer is read by people, and sent as a result."""

PRINTED_LINES_MAX = 20
PRINTED_CHARS_MAX = 2000
"""Of what is no event, the last lines, each cut: the texts of failures stand at the end."""

DENIED_MAX = 100
"""Refused tools that are kept by name, for the receipt."""

MODELS_MAX = 50
"""Models of one run; usage of further ones counts under the empty name."""


class Kind(Enum):
    """What became of a run, the first that holds in this order; see ``agents.verdict``."""

    LIMITED = "limited"
    """A usage limit of the account: wait for its reset. Nothing is charged."""
    NEEDS_PERSON = "needs_person"
    """Login, billing, account: nothing mends it but a person. Nothing is charged."""
    TRANSIENT = "transient"
    """Overload, an error of the server, a 429 of a minute: back off. Nothing is charged."""
    CAPPED = "capped"
    """Our own limit of turns or money."""
    UNFINISHED = "unfinished"
    """It ended before its task did."""
    NO_CHANGE = "no_change"
    """It ended well and changed nothing."""
    DONE = "done"


# --- events ---------------------------------------------------------------------------------------


@value
class Session:
    """The conversation has this id, by which it can be resumed."""

    id: str


@value
class Doing:
    """What it does now: ``Activity("editing", "shop/cart.py")``, ``Activity("running", "ls")``."""

    verb: str
    what: str = ""

    @property
    def text(self) -> str:
        """As people read it: ``editing shop/cart.py``."""
        return f"{self.verb} {self.what}".rstrip()


@value
class Words:
    """Words of the agent; the last ones are its answer where its result has none."""

    text: str


@value
class Usage:
    """Tokens since the last such event, to be summed; ``money`` in dollars.

    ``input`` leaves out what was read from a cache or written to one. A ``money`` that is not None
    also pays for all tokens of that model that this run has told before without one.
    """

    model: str = ""
    input: int = 0
    output: int = 0
    cached_read: int = 0
    cached_write: int = 0
    money: float | None = None

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.input + self.output + self.cached_read + self.cached_write

    def plus(self, other: Usage) -> Usage:
        """Both together, as of this one's model; ``money`` is None where neither knows any."""
        known = [m for m in (self.money, other.money) if m is not None]
        return Usage(
            self.model,
            self.input + other.input,
            self.output + other.output,
            self.cached_read + other.cached_read,
            self.cached_write + other.cached_write,
            sum(known) if known else None,
        )

    def beyond(self, other: Usage) -> Usage:
        """What this total has more than an earlier one; no number is below 0."""
        money = None if self.money is None else max(0.0, self.money - (other.money or 0.0))
        return Usage(
            self.model,
            max(0, self.input - other.input),
            max(0, self.output - other.output),
            max(0, self.cached_read - other.cached_read),
            max(0, self.cached_write - other.cached_write),
            money,
        )

    def covers(self, other: Usage) -> bool:
        """Whether no number of tokens is below the other's: it may be a later total."""
        return (
            self.input >= other.input
            and self.output >= other.output
            and self.cached_read >= other.cached_read
            and self.cached_write >= other.cached_write
        )


@value
class Limit:
    """How full a window of the account is; said on runs that succeed, too.

    ``utilization``: 0 to 1. ``until``: when it resets, in epoch seconds. ``model``: the only model
    that it is for. ``overage``: what is beyond it is used, and paid.
    """

    window: str
    utilization: float | None = None
    until: float | None = None
    rejected: bool = False
    overage: bool = False
    model: str = ""


@value
class Denied:
    """A tool was refused; it goes on without."""

    tool: str


@value
class Retrying:
    """It tries again by itself; ``kind`` is what it would be if it ended here."""

    why: str
    kind: Kind = Kind.TRANSIENT


@value
class RunFailure:
    """What ends the run unless it goes on after all. ``text``: as the agent said it.

    ``until``: the reset of a limit in epoch seconds; None: unknown, or only in the text.
    ``session_lost``: it could not begin, because the session is unknown or taken.
    """

    kind: Kind
    text: str
    until: float | None = None
    session_lost: bool = False


@value
class OpenQuestion:
    """It asked a person something, and went on without an answer."""

    question: str


@value
class Background:
    """So many of its own tasks run in the background now: a result is not the end before they
    have ended, for it hears of that and goes on."""

    tasks: int


@value
class FinalResult:
    """The run is over, as the agent sees it; ``text`` is its answer."""

    text: str
    ok: bool


@value
class Printed:
    """A line that is no event: of stderr, of a wrapper, or of a newer version."""

    text: str


Event = (
    Session
    | Doing
    | Words
    | Usage
    | Limit
    | Denied
    | Retrying
    | RunFailure
    | OpenQuestion
    | Background
    | FinalResult
    | Printed
)


_NO_BEGINNING = (Retrying, RunFailure, Printed)


# --- the sum --------------------------------------------------------------------------------------


@value
class Price:
    """Dollars for a million tokens; ``cached``: of input that was read from a cache."""

    input: float
    output: float
    cached: float | None = None

    def of(self, usage: Usage) -> float:
        """What these tokens cost; writing to a cache costs as much as input."""
        cached = self.input if self.cached is None else self.cached
        dollars = self.input * (usage.input + usage.cached_write)
        return (dollars + self.output * usage.output + cached * usage.cached_read) / 1e6


Prices = Mapping[str, Price]
"""By model, or by a pattern of models (``gpt-5*``); of several patterns the longest holds."""


def price_of(model: str, prices: Prices) -> Price | None:
    """The price of a model; None where the table has none."""
    fitting = [pattern for pattern in prices if fnmatchcase(model, pattern)]
    return prices[max(fitting, key=len)] if fitting else None


@dataclass(slots=True)
class Tally:
    """The sum of a run's events: what PROGRESS tells and the verdict asks. Its size is bounded.

    ``usage``: by model. ``failure`` and ``retrying``: the last of their kind, until it goes on.
    ``limits``: by window. ``text``: the agent's last words. ``asked``: questions that nobody
    answered. ``background``: its tasks that go on beside it. ``result``: until it does something
    again. ``began``: whether it has said anything but why it cannot.
    """

    session: str = ""
    activity: str = ""
    text: str = ""
    usage: dict[str, Usage] = field(default_factory=dict)
    limits: dict[str, Limit] = field(default_factory=dict)
    denied: dict[str, int] = field(default_factory=dict)
    retrying: Retrying | None = None
    failure: RunFailure | None = None
    result: FinalResult | None = None
    background: int = 0
    began: bool = False
    asked: tuple[str, ...] = ()
    printed: deque[str] = field(default_factory=lambda: deque(maxlen=PRINTED_LINES_MAX))
    _unpaid: dict[str, Usage] = field(default_factory=dict)

    def hear(self, events: Iterable[Event]) -> None:
        """Add what a parser gave."""
        for event in events:
            self._hear(event)

    @property
    def is_over(self) -> bool:
        """Whether it has told its result, and nothing will make it go on."""
        return self.result is not None and not self.background

    @property
    def tokens(self) -> int:
        """All tokens of all models."""
        return sum(usage.tokens for usage in self.usage.values())

    def money(self, prices: Prices | None = None) -> float | None:
        """Dollars, as the agent said, the rest by ``prices``; None where a part is unknown."""
        total = sum(usage.money or 0.0 for usage in self.usage.values())
        for model, unpaid in self._unpaid.items():
            if unpaid.tokens:
                price = price_of(model, prices or {})
                if price is None:
                    return None
                total += price.of(unpaid)
        return total if self.usage else None

    def _hear(self, event: Event) -> None:
        self.began = self.began or not isinstance(event, _NO_BEGINNING)
        match event:
            case Session(id):
                self.session, self.result = id, None
            case Doing():
                self._goes_on()
                self.activity, self.result = event.text, None
            case Words(text):
                self._goes_on()
                self.text, self.result = text, None
            case Usage():
                self._add(event)
            case Limit():
                self._limit(event)
            case Denied(tool):
                if tool in self.denied or len(self.denied) < DENIED_MAX:
                    self.denied[tool] = self.denied.get(tool, 0) + 1
            case Retrying():
                self.retrying = event
            case RunFailure():
                self.failure = event
            case OpenQuestion(question) if len(self.asked) < DENIED_MAX:
                self.asked += (question,)
            case Background(tasks):
                self.background = tasks
            case FinalResult(text):
                self.result, self.text = event, text or self.text
                if event.ok:
                    self._goes_on()
            case Printed(text):
                self.printed.append(text)

    def _goes_on(self) -> None:
        self.retrying = self.failure = None

    def _add(self, usage: Usage) -> None:
        if usage.model not in self.usage and len(self.usage) >= MODELS_MAX:
            usage = replace(usage, model="")
        name = usage.model
        self.usage[name] = self.usage.get(name, Usage(name)).plus(usage)
        unpaid = self._unpaid.get(name, Usage(name)).plus(usage)
        self._unpaid[name] = unpaid if usage.money is None else Usage(name)

    def _limit(self, limit: Limit) -> None:
        if limit.window in self.limits or len(self.limits) < MODELS_MAX:
            self.limits[limit.window] = limit
        if limit.rejected and not limit.overage:
            self.failure = RunFailure(Kind.LIMITED, limit.window, limit.until)
