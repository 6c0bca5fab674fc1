"""Resets of usage limits, as agents word them, and when the fleet asks again.

    scripts/prove resets
    python -m tests.proof.resets [--cases N] [--seed N] [--json] [--progress]

A case is a provider that closes an account, in one wording, one zone, at one hour, and opens it
late, early, or as it said. The streams of the real agents are parsed, judged and told to the core,
which is started again and killed in between and keeps its file of accounts. Time is simulated.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from itertools import product
from pathlib import Path
from zoneinfo import ZoneInfo

from beads_workers.agents.adapter import load
from beads_workers.agents.events import Tally
from beads_workers.agents.texts import PASSED_SECONDS
from beads_workers.agents.verdict import RunEnding
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.settings import ProbePace
from beads_workers.core.records.journal import AccountClosed, AccountOpened
from beads_workers.core.records.receipts import AccountId, Candidate, Receipt, read_receipt, to_json
from beads_workers.core.schedule.accounts import Accounts
from beads_workers.core.schedule.commands import Write
from beads_workers.core.schedule.effects import Effects
from beads_workers.core.schedule.events import AccountTold, Event
from beads_workers.runtime.account_file import AccountFile, SharedAccounts

PROMISE = "no account is closed for longer than its provider and one probe, nor asked more often"
CANDIDATE = Candidate("agent", AccountId("a1"))
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
RUNS_SECONDS = 3.0
"""An agent that is refused ends after that."""
DAY, HOUR, MINUTE = 86_400.0, 3600.0, 60.0
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe")
HOURS = ("noon", "before midnight", "after midnight", "new year", "clocks forward", "clocks back")
WAITS = (90.0, 25 * MINUTE, 3 * HOUR, 5 * HOUR - MINUTE)
LATE = (0.0, 15.0, 70.0, 5 * MINUTE, 20 * MINUTE, 3 * HOUR, -10 * MINUTE, -2 * HOUR)
"""How long after the announced reset the provider opens."""
STARTS = ("one run", "starts", "kills")
PROBES = (15 * MINUTE, 2 * MINUTE)


def _codex(text: str) -> list[str]:
    message = f"You’ve hit your usage limit. Upgrade to Plus, or {text}"
    said = [{"type": "error", "message": message}]
    return _lines(*said, {"type": "turn.failed", "error": {"message": message}})


def _claude(text: str) -> list[str]:
    """A version that says it in words only."""
    result = {"type": "result", "subtype": "success", "is_error": True, "api_error_status": 429}
    return _lines({**result, "result": f"You've hit your limit {text}"})


def _window(window: str, until: float) -> list[str]:
    info = {"status": "rejected", "resetsAt": math.floor(until), "rateLimitType": window}
    event = {"type": "rate_limit_event", "rate_limit_info": info}
    refused = {"type": "assistant", "error": "rate_limit", "api_error": "usage_limit_reached"}
    return [*_lines(event, refused), *_claude("· resets soon")]


def _lines(*objects: object) -> list[str]:
    return [json.dumps(each) for each in objects]


def _clock(moment: datetime) -> str:
    return f"{moment:%I:%M}".lstrip("0")


def _duration(seconds: float) -> str:
    minutes = math.ceil(max(seconds, 0.0) / MINUTE)
    return f"try again in {minutes // 60} hours {minutes % 60} minutes"


@dataclass(frozen=True)
class Form:
    """One way in which an agent says it: the moment in its zone, and how long that is from now.

    ``told``: it is a moment of the provider's own, as long as the limit may last; any other is
    worked out from words, or doubted. ``ahead``: how much too late the reset is that it names, in
    seconds.
    """

    agent: str
    says: Callable[[datetime, float], list[str]]
    told: bool = False
    ahead: float = 0.0


FORMS = {
    "time of day": Form("codex", lambda at, _: _codex(f"try again at {_clock(at)} {at:%p}.")),
    "24 hours": Form("codex", lambda at, _: _codex(f"try again at {at:%H:%M}.")),
    "time and zone": Form("claude", lambda at, _: _claude(_with_zone(at, f"{_clock(at)}{at:%p}"))),
    "date": Form(
        "codex",
        lambda at, _: _codex(f"try again at {at:%b} {at.day}th, {at:%Y} {_clock(at)} {at:%p}."),
    ),
    "date and zone": Form(
        "claude",
        lambda at, _: _claude(_with_zone(at, f"{at:%b} {at.day}, {_clock(at)}{at:%p}")),
    ),
    "duration": Form("codex", lambda _, left: _codex(_duration(left))),
    "no reset": Form("codex", lambda *_: _codex("try again later.")),
    "epoch": Form("claude", lambda at, _: _claude(f"usage limit reached|{at.timestamp():.0f}")),
    "window": Form("claude", lambda at, _: _window("five_hour", at.timestamp()), True),
    "window of days": Form(
        "claude", lambda at, _: _window("five_hour", at.timestamp()), False, 3 * DAY
    ),
    "window of weeks": Form(
        "claude", lambda at, _: _window("seven_day", at.timestamp()), False, 20 * DAY
    ),
}


def _with_zone(at: datetime, text: str) -> str:
    return f"· resets {text.lower()} ({at.tzinfo})"


@dataclass(frozen=True)
class Case:
    """``late``: as in ``LATE``. ``repeats``: who asks after the reset hears the same one."""

    form: str
    zone: str
    hour: str
    wait: float
    late: float
    repeats: bool
    starts: str
    probe: float

    def __str__(self) -> str:
        how = "the same again" if self.repeats else "a later one"
        words = (self.form, self.zone, self.hour, f"in {self.wait:g} s", f"late {self.late:g} s")
        return ", ".join((*words, how, self.starts, f"probe {self.probe:g} s"))


def cases(count: int, seed: int) -> list[Case]:
    """Return so many of all combinations, each form alike."""
    chance = random.Random(seed)
    axes = (ZONES, HOURS, WAITS, LATE, (True, False), STARTS, PROBES)
    others = list(product(*axes))
    each = -(-count // len(FORMS))
    found = [Case(form, *rest) for form in FORMS for rest in chance.sample(others, each)]
    return chance.sample(found, count)


def announced(case: Case) -> float:
    """Return when the provider says that it opens: at that hour of its zone, in epoch seconds.

    The year is far off, because entries of the file of accounts expire by the real clock."""
    zone = ZoneInfo(case.zone)
    day = datetime(2091, 6, 14, tzinfo=zone)
    if case.hour.startswith("clocks"):
        day = _change(zone, 1 if case.hour.endswith("forward") else -1) or day
    at = {"noon": (12, 7), "before midnight": (23, 58), "after midnight": (0, 1)}
    if case.hour == "new year":
        day = datetime(2092, 1, 1, tzinfo=zone)
    hour, minute = at.get(case.hour, (3 if case.hour.startswith("clocks") else 0, 30))
    return day.replace(hour=hour, minute=minute).timestamp() + 40.0


@cache
def _change(zone: ZoneInfo, sign: int) -> datetime | None:
    """Return the day of 2091 on which the clocks go forward (1) or back (-1)."""
    for n in range(364):
        day = datetime(2091, 1, 1, tzinfo=zone) + timedelta(days=n)
        before, after = day.utcoffset(), (day + timedelta(days=1)).utcoffset()
        if before is not None and after is not None and (after - before) * sign > timedelta():
            return day
    return None


class Provider:
    """The account as the vendor sees it: ``said`` is the reset that it announces first."""

    def __init__(self, case: Case) -> None:
        self._case, self._form = case, FORMS[case.form]
        self.said = announced(case)
        self.opens = self.said + case.late
        self.began = min(self.said, self.opens) - case.wait
        if self._form.told:
            self.began = max(self.began, self.said - 5 * HOUR)
        self.asked: list[float] = []

    def refusal(self, now: float) -> Receipt | None:
        """Answer at that moment: None if the account is open."""
        self.asked.append(now)
        if now >= self.opens:
            return None
        until = self.said
        if until <= now and not self._case.repeats:
            until = self.opens
        zone, ended = ZoneInfo(self._case.zone), now + RUNS_SECONDS
        moment = datetime.fromtimestamp(until + self._form.ahead, zone)
        adapter, tally = load(self._form.agent), Tally()
        assert adapter is not None
        parser = adapter.parser()
        said = "\n".join(self._form.says(moment, until - now)) + "\n"
        tally.apply(parser.feed(said.encode()) + parser.end())
        verdict = adapter.verdict(tally, RunEnding(1, at=ended, zone=zone))
        assert verdict.kind.value == "limited", verdict
        # As ``attempts.run`` makes it, and as it travels.
        receipt = Receipt(
            verdict.kind.value, verdict.why, until=verdict.until, doubted=verdict.doubted
        )
        return read_receipt(to_json(receipt))


class Fleet:
    """One run of the core's accounts, with the file that the next run reads."""

    kind = Accounts

    def __init__(self, folder: Path, number: int, now: float, probe: float) -> None:
        self.effects = Effects(0.0, epoch=now)
        self.pace = ProbePace(probe_seconds=probe)
        self.accounts = self.kind(self.effects, self.pace, lambda: 4)
        file = AccountFile(folder, f"run-{number}")
        self._shared = SharedAccounts(file, f"run-{number}", [CANDIDATE.account], self._told)
        self._shared.look()

    def _told(self, event: Event) -> None:
        assert isinstance(event, AccountTold)
        self.accounts.learn(CANDIDATE, event.closed)

    def at(self, epoch: float) -> None:
        """Set the time."""
        self.effects.at(self.effects.now + max(0.0, epoch - self.effects.epoch))

    def begin(self, number: int) -> IssueId | None:
        """Begin an attempt, if the account may be asked."""
        if self.accounts.choose([CANDIDATE]) is None:
            return None
        self.accounts.begun(IssueId(f"i-{number}"), CANDIDATE)
        return IssueId(f"i-{number}")

    def next_at(self) -> float:
        """Return when a canary may go."""
        (account,) = self.accounts.each()
        return max((each.probe_at for each in account.closed.values()), default=0.0)

    def flush(self) -> None:
        """Write what is new to the file, as the loop does."""
        for command in self.effects.flush():
            if isinstance(command, Write) and isinstance(
                command.record, AccountClosed | AccountOpened
            ):
                self._shared.record(command.record)
        self._shared.flush()


def wrong(case: Case, folder: Path, kind: type[Fleet] = Fleet) -> Iterator[str]:
    """Yield what is wrong with a case: asked too early or too often, or closed for too long."""
    provider, killed = Provider(case), 0
    now, runs, attempts = provider.began, 0, 0
    fleet = kind(folder, runs, now, case.probe)
    for asked in range(2000):
        begun: list[IssueId] = []
        fleet.at(now)
        while (issue := fleet.begin(attempts)) is not None:
            attempts += 1
            begun.append(issue)
        if asked and len(begun) != 1:
            yield f"{len(begun)} at once ask a closed account"
            return
        refusals = [provider.refusal(now) for _ in begun]
        fleet.at(now + RUNS_SECONDS)
        is_killed = case.starts == "kills" and asked % 3 == 2
        if refusals[0] is None and not is_killed:
            break
        if is_killed:  # Before the end of its canary: nobody hears of that.
            killed += 1
        else:
            for issue, refusal in zip(begun, refusals, strict=True):
                fleet.accounts.ended(issue, refusal.refusal if refusal else None)
            fleet.flush()
        if case.starts != "one run":
            runs += 1
            fleet = kind(folder, runs, now + RUNS_SECONDS, case.probe)
            fleet.accounts.room(CANDIDATE)
        now = max(now + RUNS_SECONDS, fleet.next_at())
    else:
        yield "it has never been found open"
    yield from _judged(case, provider, killed)


def _judged(case: Case, provider: Provider, killed: int) -> Iterator[str]:
    form, grace = FORMS[case.form], ProbePace().reset_grace_seconds
    # The provider's own word counts: it is not asked before it.
    opening = max(provider.opens, provider.said) if form.told else provider.opens
    first = next((at for at in provider.asked if at >= provider.opens), math.inf)
    most = opening + max(case.probe, 1.5 * grace) + (killed and RUNS_SECONDS) + 2 * RUNS_SECONDS
    if first > most:
        yield f"asked {first - opening:.0f} s after it had opened"
    asked = sorted(set(provider.asked))
    if form.told and any(provider.began < at < provider.said for at in asked):
        yield "asked before the reset that the provider named"
    # Before the reset: once a probe. After it: with a delay that doubles, up to a probe.
    ahead = max(0.0, min(provider.said, provider.opens) - provider.began)
    after = max(0.0, provider.opens - provider.said)
    often = 3 + killed + ahead / case.probe + after / case.probe
    if case.form != "no reset":
        often += math.log2(max(2.0, min(after, case.probe, PASSED_SECONDS) / grace))
    if len(asked) > often + 1:
        yield f"asked {len(asked)} times, in {ahead + after:.0f} s"


def main(arguments: list[str]) -> int:
    """0 if nothing is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--progress", action="store_true")
    said = parser.parse_args(arguments)
    began, broken = time.monotonic(), []
    for n, case in enumerate(cases(said.cases, said.seed), 1):
        with tempfile.TemporaryDirectory(prefix="bw-resets-", dir=IN_MEMORY) as folder:
            broken += [f"{case}: {each}" for each in wrong(case, Path(folder))]
        if said.progress and n % 100 == 0:
            print(f"{n} of {said.cases}", file=sys.stderr)
    promise = {"text": PROMISE, "broken": broken[:20], "seconds": None}
    told = {"cases": said.cases, "seconds": time.monotonic() - began, "promises": [promise]}
    print(json.dumps(told) if said.json else "\n".join([*broken, f"{said.cases} resets"]))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
