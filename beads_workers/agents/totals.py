"""Usage of an agent, in whatever form its CLI reports it, as increments that can be summed.

Some agents report it for each answer, some as a total at the end, and some of those totals include
the resumed session. This differs between versions (claude 2.1.328 includes it, 2.1.197 does not)
and after a kill. So it is not assumed: the total is explained by the answers that were reported.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from itertools import combinations
from types import MappingProxyType
from typing import Any

from beads_workers.agents.events import MODELS_MAX, Prices, Usage, price_of
from beads_workers.core.base.framing import as_integer, as_number
from beads_workers.core.base.model import value

MESSAGES_MAX = 1000
"""Number of answers that are remembered by id: a repetition comes within a few lines."""

PARTS_MAX = 8
"""Number of parts of killed processes that are told apart: each doubles what a total may be."""

ByModel = Mapping[str, Usage]


@value
class Totals:
    """Usage of a session at the end of its last process; to be kept and given to the next one.

    ``reported``: the last total that a process of the session reported, by model. ``unreported``:
    usage beyond it, of processes that ended without a total: the last answer of each, which may be
    cut, and those before it. The session may have saved some of these parts and others not.
    """

    session: str = ""
    reported: ByModel = field(default_factory=dict)
    unreported: tuple[ByModel, ...] = ()

    @property
    def tokens(self) -> int:
        """Number of tokens of all processes of the session."""
        return _tokens(self.reported) + sum(map(_tokens, self.unreported))

    def plus(self, more: Iterable[Usage], prices: Prices, *, begun: bool) -> Totals:
        """Return these with more usage of a killed process; ``prices``: those by which it is
        counted; ``begun``: what was heard of its last answer is the last of ``unreported``."""
        priced = (_priced(usage, prices) for usage in more)
        before = self.unreported[-1] if begun and self.unreported else {}
        earlier = self.unreported[:-1] if before else self.unreported
        return replace(self, unreported=_at_most((*earlier, _sum([*before.values(), *priced]))))

    def to_object(self) -> dict[str, Any]:
        """Return a JSON object; each usage is ``[input, output, cached_read, cached_write,
        money]``."""
        return {
            "session": self.session,
            "reported": _to_lists(self.reported),
            "unreported": [_to_lists(each) for each in self.unreported],
        }


def from_object(fields: object) -> Totals:
    """Parse what ``to_object`` made; anything else counts as nothing."""
    if not isinstance(fields, dict) or not isinstance(session := fields.get("session"), str):
        return Totals()
    killed = fields.get("unreported")
    # Earlier versions had one sum for all of them.
    each = killed if isinstance(killed, list) else [killed]
    unreported = filter(None, map(_from_lists, each[:PARTS_MAX]))
    return Totals(session, _from_lists(fields.get("reported")), tuple(unreported))


class Increments:
    """The usage of one process, each token counted once. ``last``: totals of the resumed
    session."""

    def __init__(self, last: Totals | None = None) -> None:
        self._last = last or Totals()
        self._session = self._last.session
        self._messages: OrderedDict[str, Usage] = OrderedDict()
        self._answered: dict[str, Usage] = {}
        self._emitted: dict[str, Usage] = {}
        self._reported: ByModel | None = None

    def begin(self, session: str) -> None:
        """Note the session that the process reports: another one has no earlier totals."""
        if session != self._session:
            self._session, self._last = session, Totals(session)

    def answer(self, message_id: str, usage: Usage) -> list[Usage]:
        """Add one answer of the model; return the increments. If the same id comes again, only the
        excess counts, and only if no total has included it."""
        before = self._messages.get(message_id, Usage(usage.model))
        model, more = usage.model, usage.minus(before)
        if message_id:
            self._messages[message_id] = before.plus(more)  # Never less than it was.
            self._messages.move_to_end(message_id)
            if len(self._messages) > MESSAGES_MAX:
                self._messages.popitem(last=False)
        answered = self._answered.get(model, Usage(model)).plus(more)
        if model in self._answered or len(self._answered) < MODELS_MAX:
            self._answered[model] = answered
        if self._reported is None:
            return self._tell([more])
        return self._tell([answered.minus(self._emitted.get(model, _NOTHING))])

    def total(self, usages: Iterable[Usage]) -> list[Usage]:
        """Add a total by model: of this process, or of the whole session. May be called several
        times."""
        self._reported = total = _sum(usages)
        base = self._base(total)
        own = (usage.minus(base.get(model, _NOTHING)) for model, usage in total.items())
        return self._tell([usage.minus(self._emitted.get(usage.model, _NOTHING)) for usage in own])

    @property
    def has_total(self) -> bool:
        """Whether the process has reported a total."""
        return self._reported is not None

    def totals(self, prices: Prices = MappingProxyType({})) -> Totals:
        """Return the totals for the next process of this session.

        ``prices``: those by which tokens without a total were counted; a later total may pay for
        them.
        """
        if self._reported is not None:
            return Totals(self._session, self._reported)
        own = (_sum(_priced(each, prices) for each in part) for part in self._parts())
        unreported = (*self._last.unreported, *filter(None, own))
        return Totals(self._session, self._last.reported, _at_most(unreported))

    def _parts(self) -> Iterable[list[Usage]]:
        """Return the usage before the last answer, and that answer."""
        last = next(reversed(self._messages.values()), _NOTHING)
        before = [
            usage.minus(last) if model == last.model else usage
            for model, usage in self._emitted.items()
        ]
        return [usage for usage in before if usage.tokens], [last] if last.tokens else []

    def _base(self, total: ByModel) -> ByModel:
        """Return the base of the total: the one that leaves the tokens nearest to those reported.

        Candidates: nothing; the last total; and that with any of the parts of processes that
        were killed since. With equal distance, the base that covers more wins.
        """
        last = self._last
        killed = range(len(last.unreported), -1, -1)
        chosen = (c for count in killed for c in combinations(last.unreported, count))
        bases = (_sum(u for each in (last.reported, *c) for u in each.values()) for c in chosen)
        possible: list[ByModel] = [
            base
            for base in bases
            if all(total.get(m, _NOTHING).covers(usage) for m, usage in base.items())
        ]
        emitted = _tokens(self._emitted)
        return min([*possible, {}], key=lambda base: abs(_tokens(total) - _tokens(base) - emitted))

    def _tell(self, increments: Iterable[Usage]) -> list[Usage]:
        emitted = [usage for usage in increments if usage.tokens or usage.money]
        for usage in emitted:
            before = self._emitted.get(usage.model, Usage(usage.model))
            if usage.model in self._emitted or len(self._emitted) < MODELS_MAX:
                self._emitted[usage.model] = before.plus(usage)
        return emitted


_NOTHING = Usage()


def _at_most(parts: tuple[ByModel, ...]) -> tuple[ByModel, ...]:
    """Return these, the oldest as one if there are too many."""
    if len(parts) <= PARTS_MAX:
        return parts
    oldest = parts[: len(parts) - PARTS_MAX + 1]
    return (_sum(u for each in oldest for u in each.values()), *parts[len(oldest) :])


def _sum(usages: Iterable[Usage]) -> dict[str, Usage]:
    by_model: dict[str, Usage] = {}
    for usage in usages:
        by_model[usage.model] = by_model.get(usage.model, Usage(usage.model)).plus(usage)
    return by_model


def _priced(usage: Usage, prices: Prices) -> Usage:
    price = price_of(usage.model, prices) if usage.money is None else None
    return usage if price is None else replace(usage, money=price.of(usage))


def _tokens(usages: ByModel) -> int:
    return sum(usage.tokens for usage in usages.values())


def _to_lists(usages: ByModel) -> dict[str, list[Any]]:
    return {
        model: [u.input, u.output, u.cached_read, u.cached_write, u.money]
        for model, u in usages.items()
    }


def _from_lists(lists: object) -> dict[str, Usage]:
    found: dict[str, Usage] = {}
    for model, numbers in lists.items() if isinstance(lists, dict) else ():
        if not isinstance(model, str) or not isinstance(numbers, list) or len(numbers) != 5:
            continue
        counts = [as_integer(number) for number in numbers[:4]]
        if all(count is not None and count >= 0 for count in counts):
            usage = Usage(model, *(count or 0 for count in counts))
            found[model] = replace(usage, money=as_number(numbers[4]))
    return found
