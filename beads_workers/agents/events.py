"""Events of agents, the same for every agent CLI, and their sum.

A parser of ``agents.adapters`` makes events from the bytes of one run, ``Tally`` sums them, and
``agents.verdict`` judges the sum. Nothing here depends on a certain agent CLI.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from fnmatch import fnmatchcase

from beads_workers.core.base.model import value

TEXT_CHARS_MAX = 64 << 10
"""Limit of one text of an agent: people read an answer, and it is sent as a result."""

PRINTED_LINES_MAX = 20
PRINTED_CHARS_MAX = 2000
"""How many of the last lines that are no events are kept, and their length: the texts of failures
come at the end."""

DENIED_MAX = 100
"""Number of refused tools that are kept by name, for the receipt."""

MODELS_MAX = 50
"""Models of one run; usage of further ones counts under the empty name."""


class Kind(Enum):
    """Kind of the end of a run, the first that holds in this order; see ``agents.verdict``."""

    LIMITED = "limited"
    """A usage limit of the account: wait for its reset. Nothing is charged."""
    NEEDS_PERSON = "needs_person"
    """Login, billing, account: only a person can fix it. Nothing is charged."""
    TRANSIENT = "transient"
    """Overload, an error of the server, a 429 of a per-minute limit: back off. Nothing is
    charged."""
    CAPPED = "capped"
    """Our own limit of turns or money."""
    UNFINISHED = "unfinished"
    """The run ended before its task did."""
    QUESTION = "question"
    """The run ended at something that only a person can decide, or do."""
    NO_CHANGE = "no_change"
    """The run ended well and changed nothing."""
    DONE = "done"


# --- events ---------------------------------------------------------------------------------------


@value
class Session:
    """Id of the conversation, by which it can be resumed."""

    id: str


@value
class Doing:
    """Current activity: ``Doing("editing", "shop/cart.py")``, ``Doing("running", "ls")``."""

    verb: str
    what: str = ""

    @property
    def text(self) -> str:
        """The activity as people read it: ``editing shop/cart.py``."""
        return f"{self.verb} {self.what}".rstrip()


@value
class Words:
    """Words of the agent; the last ones are its answer if its result has none."""

    text: str


@value
class Usage:
    """Tokens since the last such event, to be summed; ``money`` in dollars.

    ``input`` leaves out tokens that were read from a cache or written to one. If ``money`` is not
    None, it also pays for all earlier tokens of that model in this run that had no money.
    """

    model: str = ""
    input: int = 0
    output: int = 0
    cached_read: int = 0
    cached_write: int = 0
    money: float | None = None

    @property
    def tokens(self) -> int:
        """Number of all tokens."""
        return self.input + self.output + self.cached_read + self.cached_write

    def plus(self, other: Usage) -> Usage:
        """Return the sum, under the model of this one; ``money`` is None if neither knows any."""
        known = [m for m in (self.money, other.money) if m is not None]
        return Usage(
            self.model,
            self.input + other.input,
            self.output + other.output,
            self.cached_read + other.cached_read,
            self.cached_write + other.cached_write,
            sum(known) if known else None,
        )

    def minus(self, other: Usage) -> Usage:
        """Return this total minus an earlier one; no number is below 0."""
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
        """Return whether no number of tokens is below the other's: this may be a later total."""
        return (
            self.input >= other.input
            and self.output >= other.output
            and self.cached_read >= other.cached_read
            and self.cached_write >= other.cached_write
        )


@value
class Limit:
    """State of a window of the account; also reported by runs that succeed."""

    window: str
    # How full the window is, 0 to 1.
    utilization: float | None = None
    # When the window resets, in epoch seconds.
    until: float | None = None
    rejected: bool = False
    # Usage beyond the limit is allowed, and paid.
    overage: bool = False
    # The only model that the window is for.
    model: str = ""


@value
class Denied:
    """A tool was refused; the run goes on without it."""

    tool: str


@value
class Retrying:
    """The agent tries again by itself; ``kind`` is what the run would be if it ended here."""

    why: str
    kind: Kind = Kind.TRANSIENT


@value
class RunFailure:
    """Failure that ends the run unless it goes on after all."""

    kind: Kind
    # In the agent's words.
    text: str
    # The reset of a limit in epoch seconds; None: unknown, or only in the text.
    until: float | None = None
    # The run could not begin, because the session is unknown or taken.
    session_lost: bool = False


@value
class OpenQuestion:
    """The agent asked a person something, and went on without an answer."""

    question: str


@value
class Background:
    """Number of the agent's own tasks in the background. A result is not the end while they run:
    the agent goes on when one ends."""

    tasks: int


@value
class FinalResult:
    """The run is over, as the agent sees it."""

    # The agent's answer.
    text: str
    ok: bool
    # What the run ended at, with the choices, if the agent asked a person by a tool.
    question: str = ""
    # The id of that call, at which its session waits for the answer.
    call: str = ""


@value
class ToolOutput:
    """What a tool printed; only for a parser that reads a log (``whole``)."""

    text: str
    failed: bool = False


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
    | ToolOutput
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
        """Return the cost of these tokens in dollars; writing to a cache costs as much as input."""
        cached = self.input if self.cached is None else self.cached
        dollars = self.input * (usage.input + usage.cached_write)
        return (dollars + self.output * usage.output + cached * usage.cached_read) / 1e6


Prices = Mapping[str, Price]
"""Prices by model, or by a pattern of models (``gpt-5*``); of several patterns the longest
holds."""


def price_of(model: str, prices: Prices) -> Price | None:
    """Return the price of a model; None if the table has none."""
    fitting = [pattern for pattern in prices if fnmatchcase(model, pattern)]
    return prices[max(fitting, key=len)] if fitting else None


@dataclass(slots=True)
class Tally:
    """The sum of a run's events, for PROGRESS and for the verdict. Its size is bounded."""

    session: str = ""
    activity: str = ""
    # The agent's last words.
    text: str = ""
    # By model.
    usage: dict[str, Usage] = field(default_factory=dict)
    # By window.
    limits: dict[str, Limit] = field(default_factory=dict)
    denied: dict[str, int] = field(default_factory=dict)
    # ``retrying`` and ``failure`` are the last of their kind, until the run goes on.
    retrying: Retrying | None = None
    failure: RunFailure | None = None
    # Kept until the agent does something again.
    result: FinalResult | None = None
    # Number of the agent's background tasks.
    background: int = 0
    # The agent has reported something other than failures.
    began: bool = False
    # Questions that nobody answered.
    asked: tuple[str, ...] = ()
    printed: deque[str] = field(default_factory=lambda: deque(maxlen=PRINTED_LINES_MAX))
    _unpaid: dict[str, Usage] = field(default_factory=dict)

    def apply(self, events: Iterable[Event]) -> None:
        """Add the events of a parser."""
        for event in events:
            self._apply(event)

    @property
    def is_over(self) -> bool:
        """Whether the run has reported its result, and nothing will make it go on."""
        return self.result is not None and not self.background

    @property
    def tokens(self) -> int:
        """Number of all tokens of all models."""
        return sum(usage.tokens for usage in self.usage.values())

    def money(self, prices: Prices | None = None) -> float | None:
        """Return the dollars, as the agent said, the rest by ``prices``; None if a part is
        unknown."""
        total = sum(usage.money or 0.0 for usage in self.usage.values())
        for model, unpaid in self._unpaid.items():
            if unpaid.tokens:
                price = price_of(model, prices or {})
                if price is None:
                    return None
                total += price.of(unpaid)
        return total if self.usage else None

    def _apply(self, event: Event) -> None:
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
