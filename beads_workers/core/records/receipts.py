"""The receipt of an agent's attempt: its own report, in one JSON object.

It travels in DONE and FAILED (1.1), is in the journal with the end of the attempt, and is what
``why``, ``show`` and ``report`` show. Any worker may send one, so no field is trusted to be of the
right type: fields of another type are left out. A refusal in it closes an account, so the values
that describe accounts are here, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NewType

from beads_workers.core.base import limits
from beads_workers.core.base.model import value
from beads_workers.core.base.plain import to_plain
from beads_workers.core.base.text import counted


class AccountTrouble(Enum):
    """The reasons why an account is closed; the values are those of the verdicts that close it."""

    LIMITED = "limited"
    NEEDS_PERSON = "needs_person"
    TRANSIENT = "transient"


@value
class AccountRefusal:
    """A vendor's refusal of an attempt."""

    trouble: AccountTrouble
    why: str
    # The reset, if it was said.
    until: float | None = None
    # Only this model's window is used up; "" for the whole account.
    model: str = ""
    # We worked the reset out from words, or it is later than such a limit can last.
    doubted: bool = False


AccountId = NewType("AccountId", str)
"""Hash of adapter, base URL, configuration folder and credential; never one of these."""


@dataclass(slots=True)
class Closed:
    """The closure of an account, or of one model's window in it."""

    refusal: AccountRefusal
    since: float
    # When a canary may try.
    probe_at: float
    # Refusals of canaries in a row, after the reset that was announced.
    refusals: int = 0
    # The run that found out; "" for this one.
    told_by: str = ""


@value
class Candidate:
    """One way to run an issue: an agent of the fleet, its account, and the model.

    ``instead_of``: the agent and the model of all attempts but this last one (``escalate``).
    """

    agent: str
    account: AccountId
    model: str = ""
    instead_of: str = ""


NOBODY = Candidate("", AccountId(""))
"""Candidate of an issue that no agent works on: it brings a command, or names a function."""


@value
class Tokens:
    """Tokens of one model. ``input`` leaves out those read from a cache or written to one."""

    input: int = 0
    output: int = 0
    cached_read: int = 0
    cached_write: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            self.input + other.input,
            self.output + other.output,
            self.cached_read + other.cached_read,
            self.cached_write + other.cached_write,
        )

    @property
    def total(self) -> int:
        """Number of all tokens, however they are priced."""
        return self.input + self.output + self.cached_read + self.cached_write


@value
class Receipt:
    """What an agent's attempt says for itself."""

    # What the adapter made of the end (``agents.events.Kind``).
    verdict: str = ""
    # One line.
    why: str = ""
    # ``agent`` and ``model``: who worked.
    agent: str = ""
    model: str = ""
    # The id by which its session can be continued, on this ``host`` (PLACE/HOST; "" for home).
    session: str = ""
    host: str = ""
    # The session's usage by then, as its adapter wrote it.
    totals: Mapping[str, Any] = field(default_factory=dict, hash=False)
    usage: Mapping[str, Tokens] = field(default_factory=dict, hash=False)
    # US dollars; None if the agent does not say and no prices are set.
    money: float | None = None
    # Tokens of runs that are not in ``money``, because their agent was killed before it said any.
    unpriced: int = 0
    # Epoch seconds of a reset.
    until: float | None = None
    # As in ``AccountRefusal``.
    doubted: bool = False
    # Which limit was met, for people.
    window: str = ""
    # The only model that the limit closes.
    limited_model: str = ""
    # ``branch``, ``commits`` and ``diffstat``: the work.
    branch: str = ""
    # The commit that the work began with.
    base: str = ""
    # The last commit of the work.
    head: str = ""
    # The newest last.
    commits: tuple[str, ...] = ()
    diffstat: str = ""
    # The tree of ``head``.
    tree: str = ""
    # The command that checks the work.
    verify: str = ""
    # Whether ``verify`` passed on ``tree``.
    verified: bool = False
    # ``verify`` passes whatever is in the sources.
    independent: bool = False
    # How often the agent was asked to mend the work.
    rounds: int = 0
    # The other agent whose account was closed, its reviewer's; "" for ``agent``.
    refused: str = ""
    # Tools that were refused.
    denied: tuple[str, ...] = ()
    # The agent's last words.
    message: str = ""
    # What the next attempt should know: the tail of verify's output, a reviewer's remarks.
    lesson: str = ""
    # What the agent asks a person, with the choices.
    question: str = ""
    # The call of a tool by which it asks, and at which its session waits.
    call: str = ""
    # What a person should look at in the morning.
    flags: tuple[str, ...] = ()
    # Whose last attempt it is (``Candidate``).
    instead_of: str = ""
    # An agent's process was ended before its result, so the usage may lack the answer that it was
    # writing.
    was_cut: bool = False

    @property
    def escalated(self) -> str | None:
        """Agent and model, if an escalation gave the attempt another one: so it is named where it
        costs."""
        return f"{self.agent} {self.model}".rstrip() if self.agent and self.instead_of else None

    @property
    def place(self) -> str:
        """The place of its ``host``; "" for home."""
        return self.host.partition("/")[0]

    @property
    def tokens(self) -> Tokens:
        """Tokens of all models."""
        return sum(self.usage.values(), Tokens())

    @property
    def refusal(self) -> AccountRefusal | None:
        """The refusal that closes the account, if the verdict is one."""
        if self.verdict not in _TROUBLES:
            return None
        trouble = _TROUBLES[self.verdict]
        # The name of the window is short; the agent's words repeat the reset. The sentence goes on
        # with ours: "until 03:20".
        why = ((trouble is AccountTrouble.LIMITED and self.window) or self.why).rstrip(". ")
        return AccountRefusal(trouble, why, self.until, self.limited_model, self.doubted)


WORK = ("branch", "base", "head", "commits", "diffstat", "tree", "flags")
"""What is believed of any worker: its work, and the flags for a person."""


def work_of(receipt: Receipt) -> Receipt:
    """Return the receipt with nothing but its work."""
    return Receipt(**{name: getattr(receipt, name) for name in WORK})


INDEPENDENT = "by a check that does not depend on the sources"
"""Phrase for work that was verified by a check that passes whatever is in the sources."""
_TROUBLES = {each.value: each for each in AccountTrouble}


def read_receipt(fields: Any) -> Receipt | None:
    """Read a receipt from a JSON object; None for anything else.
    Texts are cut to what the journal keeps."""
    if not isinstance(fields, Mapping):
        return None
    known: dict[str, Any] = {}
    for name, read in _READERS.items():
        if (found := read(fields.get(name))) is not None:
            known[name] = found
    return Receipt(**known)


def to_json(receipt: Receipt) -> dict[str, Any]:
    """Return a receipt as a JSON object, without fields that hold their default."""
    fields: dict[str, Any] = to_plain(receipt, sparse=True)
    return fields


def close_reason(receipt: Receipt, attempt: int) -> str:
    """Return why the issue is closed, for the tracker: one line without a word of the agent's own.

    Trackers are committed and pushed. ``attempt``: the number of the attempt that did it.
    """
    what = _CLOSED_AS.get(receipt.verdict, receipt.verdict) or "done"
    parts = [f"{what}, by {receipt.agent or 'an agent'}"]
    if receipt.branch:
        parts.append(f"branch {receipt.branch}")
    if receipt.commits:
        shas = [sha[:SHA_CHARS] for sha in receipt.commits]
        last = f", the last {SHAS_NAMED}" if len(shas) > SHAS_NAMED else ""
        parts.append(f"{counted(len(shas), 'commit')}{last}: {' '.join(shas[-SHAS_NAMED:])}")
    if receipt.diffstat:
        parts.append(receipt.diffstat)
    if receipt.verify:
        how = "passed" if receipt.verified else "was not run"
        tree = f" on tree {receipt.tree[:SHA_CHARS]}" if receipt.verified and receipt.tree else ""
        what = f", {INDEPENDENT}" if receipt.verified and receipt.independent else ""
        parts.append(f"verify {how}{tree}{what}: {receipt.verify}")
    parts.append(f"attempt {attempt}")
    return "; ".join(parts)[: limits.CLOSE_REASON_CHARS_MAX]


SHA_CHARS = 12
SHAS_NAMED = 5
_CLOSED_AS = {"no_change": "no change needed"}


def _text(most: int) -> Any:
    def read(found: Any) -> str | None:
        return found[:most] if isinstance(found, str) else None

    return read


def _texts(found: Any) -> tuple[str, ...] | None:
    if not isinstance(found, list | tuple):
        return None
    kept = [each[: limits.ERROR_CHARS_MAX] for each in found if isinstance(each, str)]
    return tuple(kept[: limits.RECEIPT_ITEMS_MAX])


def _number(found: Any) -> float | None:
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    # The bound comes first: a value above it may be no float at all.
    return float(found) if abs(found) <= limits.INTEGER_MAX else None


def _positive(found: Any) -> float | None:
    number = _number(found)
    return number if number is not None and number >= 0 else None


def _count(found: Any) -> int | None:
    number = _positive(found)
    return None if number is None else int(number)


def _usage(found: Any) -> dict[str, Tokens] | None:
    if not isinstance(found, Mapping):
        return None
    used: dict[str, Tokens] = {}
    for model, tokens in list(found.items())[: limits.RECEIPT_ITEMS_MAX]:
        if isinstance(model, str) and isinstance(tokens, Mapping):
            counts = {n: _count(tokens.get(n)) or 0 for n in _COUNTS}
            used[model[: limits.ERROR_CHARS_MAX]] = Tokens(**counts)
    return used


def _small(found: Any) -> Mapping[str, Any] | None:
    if not isinstance(found, Mapping) or not _is_shallow(found, LEVELS_MAX):
        return None
    try:
        text = _ENCODER.encode(found)
    except (ValueError, TypeError, RecursionError):
        return None
    return dict(found) if len(text) <= limits.ARGUMENTS_CHARS_MAX else None


def _is_shallow(found: Any, levels: int) -> bool:
    inner = found.values() if isinstance(found, Mapping) else found
    if not isinstance(found, Mapping | list | tuple):
        return True
    return levels > 0 and all(_is_shallow(each, levels - 1) for each in inner)


LEVELS_MAX = 16
"""Maximum levels of a session's totals; deeper ones cannot be written everywhere."""


def _flag(found: Any) -> bool | None:
    return found if isinstance(found, bool) else None


_COUNTS = ("input", "output", "cached_read", "cached_write")
_SHORT, _LONG = _text(limits.ERROR_CHARS_MAX), _text(limits.LESSON_CHARS_MAX)
_READERS: dict[str, Any] = {
    **dict.fromkeys(
        ("verdict", "agent", "model", "session", "host", "window", "refused", "limited_model"),
        _SHORT,
    ),
    **dict.fromkeys(("call", "branch", "base", "head", "diffstat", "tree"), _SHORT),
    **dict.fromkeys(("verify", "why"), _SHORT),
    **dict.fromkeys(("message", "lesson", "question"), _LONG),
    **dict.fromkeys(("commits", "denied", "flags"), _texts),
    "totals": _small,
    "usage": _usage,
    "money": _positive,
    "until": _positive,
    "verified": _flag,
    "independent": _flag,
    "was_cut": _flag,
    "doubted": _flag,
    "rounds": _count,
    "unpriced": _count,
}
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
