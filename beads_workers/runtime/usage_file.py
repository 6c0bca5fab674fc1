"""Usage of an attempt, written to disk as it is reported: exact even after a ``kill -9`` of
everything.

One line for each run of an agent, with its prices, and one for each increment of its usage. A dead
worker reports nothing more; ``usage_read`` reads this file instead, and what the agent wrote by
itself since then (``SessionFile``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beads_workers.agents.events import Price, Prices, Tally
from beads_workers.agents.events import Usage as Increment
from beads_workers.agents.totals import Totals, from_object
from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId
from beads_workers.core.records.receipts import Receipt, Tokens, read_receipt
from beads_workers.executors.files import usage_file

if TYPE_CHECKING:
    from beads_workers.agents.adapter import Adapter
    from beads_workers.agents.events import Event
    from beads_workers.agents.lines import Parser
    from beads_workers.core.records.journal import Finished, Started
    from beads_workers.core.schedule.commands import ReadUsage
    from beads_workers.core.schedule.events import UsageRead

FILE_BYTES_MAX = 8 << 20
"""Bytes read of a usage file: thirty thousand answers of a model, in a tenth of a second of the
loop."""
LINE_BYTES_MAX = 1 << 20
"""Bytes of the longest line, such as a tool's output; a longer line is read in pieces that mean
nothing."""


class UsageFile:
    """Usage file of one attempt, appended to. A full disk loses the usage, not the work.

    ``was_cut``: a run was ended before its result, so its last answer may be missing.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.was_cut = False
        self._runs: list[tuple[Tally, Prices]] = []
        try:
            Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(path, flags, 0o600)
        except OSError:
            self._fd = -1

    def begin(
        self,
        agent: str,
        model: str,
        prices: Mapping[str, tuple[float, ...]],
        *,
        works: bool = True,
        adapter: str = "",
    ) -> None:
        """Begin a run of this agent. ``works``: it works on the issue, and does not review it."""
        self._runs.append((Tally(), prices_of(prices)))
        row = {"agent": agent, "model": model, "prices": dict(prices), "adapter": adapter}
        self._write(row if works else row | {"works": False})

    def session(self, session: str, totals: Totals) -> None:
        """Record the id of the run's session, and the totals that the session had when it began."""
        self._write({"session": session, "totals": totals.to_object()})

    def session_file(self, path: str, at: int) -> None:
        """Record the file to which the agent writes its usage as well; this run's part begins at
        byte ``at``."""
        self._write({"beside": path, "at": at})

    def add(self, increments: Sequence[Increment], totals: Totals, at: int | None = None) -> None:
        """Add usage. ``totals``: those of the session by now, for the process that resumes it.
        ``at``: up to this byte of the file beside."""
        for number, each in enumerate(increments, 1):
            self._runs[-1][0].apply([each])
            used = [each.input, each.output, each.cached_read, each.cached_write, each.money]
            row: dict[str, Any] = {"of": each.model, "used": used}
            if number == len(increments):
                row["totals"] = totals.to_object()
                row |= {} if at is None else {"at": at}
            self._write(row)

    def spent(self) -> tuple[dict[str, Tokens], float | None, int]:
        """Return tokens by model, dollars (None: not known for any run), and the tokens of runs
        whose dollars are not known, of all runs so far."""
        return _sum(self._runs)

    def _write(self, row: Mapping[str, Any]) -> None:
        if self._fd >= 0:
            try:
                os.write(self._fd, json.dumps(row).encode() + b"\n")
            except OSError:
                pass


class SessionFile:
    """Usage of a session that an agent CLI writes by itself, read as the file grows."""

    def __init__(self, adapter: Adapter, environment: Mapping[str, str]) -> None:
        self._adapter, self._environment = adapter, environment
        self._session = ""
        self.path = ""
        self.at = 0
        """Number of bytes that were read."""

    def begin(self, session: str, at: int | None = 0, path: str = "") -> bool:
        """Begin a run of this session; return whether its file was found just now. ``at``: where
        this run's part begins; None: at the file's present end."""
        if session != self._session:
            self._session, self.path, self.at = session, path, at or 0
        written = self._adapter.usage_grows or self._adapter.usage_kept
        if self.path or not session or not written:
            return False
        for folder, pattern in self._adapter.usage_files(session, self._environment):
            self.path = next(map(str, Path(folder).glob(pattern)), self.path)
        if self.path and at is None:
            with suppress(OSError):
                self.at = Path(self.path).stat().st_size
        return bool(self.path)

    def read(self) -> Iterator[tuple[str, int]]:
        """Yield new lines, each with the offset of its end. An unfinished line waits."""
        if not self.path:
            return
        try:
            file = open(self.path, "rb")  # noqa: SIM115
        except OSError:
            return
        with file:
            file.seek(self.at)
            end = self.at + FILE_BYTES_MAX
            while self.at < end and (line := file.readline(LINE_BYTES_MAX)):
                if not line.endswith(b"\n") and len(line) < LINE_BYTES_MAX:
                    return
                self.at += len(line)
                yield line.decode("utf-8", "replace"), self.at


def read_usage(path: Path) -> Receipt | None:
    """Return the usage of an attempt whose worker reported nothing; None if no agent ran."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        with open(descriptor, "rb") as file:
            lines = file.read(FILE_BYTES_MAX).split(b"\n")
    except OSError:
        return None
    runs: list[tuple[Tally, Prices]] = []
    session: dict[str, Any] = {}
    session_file: dict[str, Any] = {}
    works = False
    for line in lines:
        row = _row(line)
        if isinstance(row.get("agent"), str):
            runs.append((Tally(), _read_prices(row.get("prices"))))
            # Besides the agent that works there may be a reviewer, whose session is never resumed.
            works = row.get("works") is not False
            session_file = {}
        if works:
            session |= _known(row, _OF_SESSION)
            session_file |= _known(row, _OF_SESSION_FILE)
        if runs and (increment := _increment(row)) is not None:
            runs[-1][0].apply([increment])
    if runs and works:
        prices = runs[-1][1]
        for increment in _unreported(session, session_file, prices, runs[-1][0]):
            runs[-1][0].apply([increment])
    receipt = read_receipt(session) if runs else None
    if receipt is None:
        return None
    usage, money, unpriced = _sum(runs)
    return replace(
        receipt, verdict="unfinished", why=WHY, usage=usage, money=money, unpriced=unpriced
    )


def usage_read(run_directory: Path, ended: ReadUsage | Started | Finished) -> UsageRead | None:
    """Return the usage of an attempt of this run; None if no agent ran."""
    found = read_usage(Path(usage_file(str(run_directory), ended.request_id)))
    if found is None:
        return None
    from beads_workers.core.schedule.events import UsageRead  # An attempt only writes, without it.

    ids = IssueId(ended.issue_id), ended.attempt, ended.request_id
    return UsageRead(*ids, found)


def _unreported(
    fields: dict[str, Any], session_file: dict[str, Any], prices: Prices, heard: Tally
) -> list[Increment]:
    """Return what the agent wrote by itself since the last line; update the totals there."""
    from beads_workers.agents.adapter import load  # Imported only if an attempt is read.

    adapter = load(session_file.get("adapter", ""))
    session = fields.get("session", "")
    if adapter is None or not session:
        return []
    totals = from_object(fields.get("totals"))
    if "beside" not in session_file and totals.tokens:
        return []  # Nobody knows at which byte this run's part begins.
    if adapter.usage_kept:
        return _kept(adapter, fields, session_file, totals, heard, prices)
    if not adapter.usage_grows:
        return []
    parser = adapter.parser(fields.get("model", ""), totals)
    parser.usage.begin(session)
    events = _told(adapter, parser, session, session_file)
    if events:
        fields["totals"] = parser.totals(prices).to_object()
    return [event for event in events if isinstance(event, Increment)]


def _kept(
    adapter: Adapter,
    fields: dict[str, Any],
    session_file: dict[str, Any],
    totals: Totals,
    heard: Tally,
    prices: Prices,
) -> list[Increment]:
    """Return what the session's file has of the process's answers beyond what was ``heard`` of
    them."""
    if heard.usage and not totals.unreported:
        return []  # Its own total has them.
    parser = adapter.parser(fields.get("model", ""))
    parser.usage.begin(fields["session"])
    whole = Tally()
    whole.apply(_told(adapter, parser, fields["session"], session_file))
    known = heard.usage
    more = [each.minus(known.get(model, Increment())) for model, each in whole.usage.items()]
    more = [each for each in more if each.tokens]
    if more:
        fields["totals"] = totals.plus(more, prices, begun=bool(known)).to_object()
    return more


def _told(adapter: Adapter, parser: Parser, session: str, place: Mapping[str, Any]) -> list[Event]:
    """Return what an agent wrote by itself of a process; ``place``: as ``session_file`` records
    it."""
    file = SessionFile(adapter, os.environ)
    file.begin(session, max(0, place.get("at", 0)), place.get("beside", ""))
    return [event for line, _ in file.read() for event in parser.usage_told(line)]


def _known(row: Mapping[str, Any], fields: Mapping[str, type]) -> dict[str, Any]:
    return {name: row[name] for name, kind in fields.items() if type(row.get(name)) is kind}


_OF_SESSION = {"agent": str, "model": str, "session": str, "totals": dict}
_OF_SESSION_FILE = {"adapter": str, "beside": str, "at": int}
WHY = "it was ended before it could say what it had done"


def prices_of(table: Mapping[str, tuple[float, ...]]) -> dict[str, Price]:
    """Return the prices in the settings' table as the adapters know them."""
    return {model: Price(*each[:3]) for model, each in table.items() if len(each) >= 2}


def _sum(runs: Iterable[tuple[Tally, Prices]]) -> tuple[dict[str, Tokens], float | None, int]:
    usage: dict[str, Tokens] = {}
    money: float | None = None
    unpriced = 0
    for tally, prices in runs:
        for model, each in tally.usage.items():
            used = Tokens(each.input, each.output, each.cached_read, each.cached_write)
            usage[model] = usage.get(model, Tokens()) + used
        dollars = tally.money(prices)
        if dollars is None:
            unpriced += sum(each.tokens for each in tally.usage.values())
        else:
            money = (money or 0.0) + dollars
    return usage, money, unpriced


def _row(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) and row.get("agent") != "" else {}


def _increment(row: Mapping[str, Any]) -> Increment | None:
    model, used = row.get("of"), row.get("used")
    if not isinstance(model, str) or not isinstance(used, list) or len(used) != 5:
        return None
    *counts, money = used
    if not all(isinstance(each, int) and _is_amount(each) for each in counts):
        return None
    dollars = float(money) if _is_amount(money) else None
    return Increment(model, counts[0], counts[1], counts[2], counts[3], dollars)


def _read_prices(table: object) -> Prices:
    if not isinstance(table, dict):
        return {}
    numbers = {m: tuple(p) for m, p in table.items() if isinstance(p, list)}
    return prices_of({m: p for m, p in numbers.items() if all(map(_is_amount, p))})


def _is_amount(found: object) -> bool:
    """Return whether this is a number that can be added up."""
    if isinstance(found, bool) or not isinstance(found, int | float):
        return False
    return 0 <= found <= limits.INTEGER_MAX
