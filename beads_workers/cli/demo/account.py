"""What a demo's run came to: figures from its journal, and what was promised, checked for real."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from beads_workers.cli.demo.backlog import BACKLOG, Fate, Item, of_fate
from beads_workers.cli.demo.hand import Killed
from beads_workers.cli.throwaway import Promise
from beads_workers.core import records as rec
from beads_workers.core.journal_lines import Entry

CLOSED, SET_ASIDE = "closed", "blocked"
"""How the tracker says it."""

OUTCOMES: dict[Fate, tuple[str, ...]] = {
    Fate.FINE: ("success",),
    Fate.FLAKY: ("error", "success"),
    Fate.BUSY: ("retry", "success"),
    Fate.KILLED: ("lost", "success"),
    Fate.STUCK: ("timeout", "success"),
    Fate.HOPELESS: ("error", "error", "error"),
}
"""The outcomes of an issue's attempts, by its fate: they are the same in every demo."""


@dataclass(slots=True)
class Account:
    """One run by its journal. ``ends``: every attempt's end, by issue, in order."""

    ends: dict[str, list[rec.Finished]] = field(default_factory=lambda: defaultdict(list))
    closes: Counter[str] = field(default_factory=Counter)
    pids: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """The processes of every worker, in order."""
    stopped: bool = False
    """Somebody asked it to stop before its end."""
    steered: bool = False
    """Somebody took an issue away, or had one tried again: the show is not the script's."""
    at_once: list[str] = field(default_factory=list)
    """Issues that began anew while they were running: there must be none."""
    _running: set[str] = field(default_factory=set)

    def add(self, entry: Entry) -> None:
        """Take in the next entry."""
        match entry.record:
            case rec.Started(issue_id):
                if issue_id in self._running:
                    self.at_once.append(issue_id)
                self._running.add(issue_id)
            case rec.Finished() as finished:
                self._running.discard(finished.issue_id)
                self.ends[finished.issue_id].append(finished)
            case rec.SettledRecord(issue_id, "close", "applied"):
                self.closes[issue_id] += 1
            case rec.WorkerStarted(worker_id, pid):
                self.pids[worker_id].append(pid)
            case rec.RunChanged(_, "user_requested"):
                self.stopped = True
            case rec.Withheld() | rec.RetryAsked():
                self.steered = True
            case _:
                pass

    def outcomes(self, item: Item) -> tuple[str, ...]:
        """How the attempts at this issue ended."""
        return tuple(finished.outcome for finished in self.ends[item.issue_id])

    def charged(self) -> int:
        """Attempts that failed and count, over all issues."""
        counted = ("error", "timeout", "lost", "not_found")
        return sum(f.outcome in counted for ends in self.ends.values() for f in ends)

    def ended(self, outcome: str) -> list[rec.Finished]:
        """The attempts with this outcome, in the order of their issues."""
        return [f for item in BACKLOG for f in self.ends[item.issue_id] if f.outcome == outcome]

    def verdicts(self, verdict: str) -> list[rec.Finished]:
        """The attempts with this verdict, in the order of their issues."""
        return [f for item in BACKLOG for f in self.ends[item.issue_id] if f.verdict == verdict]


def promises(
    account: Account,
    ended: dict[str, Any],
    tracker: dict[str, str],
    living: Sequence[int],
    killed: Killed | None,
) -> Iterator[Promise]:
    """Each promise of the engine and of the show.

    ``ended``: the fleet's last word. ``tracker``: the status of every issue. ``living``: processes
    of the run that are still there.
    """
    if account.steered:
        twice = tuple(issue_id for issue_id, count in account.closes.items() if count > 1)
        yield Promise("no issue was closed twice", twice)
    else:
        wrong = tuple(_wrong_ends(account, tracker))
        yield Promise("every issue was closed, or set aside, exactly once", wrong)
    yield Promise("none was in two hands at once", tuple(account.at_once))
    yield Promise(
        "none is left in progress", tuple(i for i, s in tracker.items() if s == "in_progress")
    )
    yield Promise("no process of the run is left", tuple(f"pid {pid}" for pid in living))
    yield Promise(
        "the journal and the fleet's last word agree", tuple(_disagreements(account, ended))
    )
    if not account.steered:
        yield Promise(
            "all that was to go wrong did, and nothing else", tuple(_surprises(account, killed))
        )


def _wrong_ends(account: Account, tracker: dict[str, str]) -> Iterator[str]:
    for item in BACKLOG:
        hopeless = item.fate is Fate.HOPELESS
        wanted = (SET_ASIDE, 0, 1) if hopeless else (CLOSED, 1, 1)
        status = tracker.get(item.issue_id, "missing")
        last = [f for f in account.ends[item.issue_id] if f.verdict != "requeue"]
        if (status, account.closes[item.issue_id], len(last)) != wanted:
            yield f"{item.issue_id} is {status}, closed {account.closes[item.issue_id]} times"


def _disagreements(account: Account, ended: dict[str, Any]) -> Iterator[str]:
    counted = {
        "done": len(account.verdicts("finish")),
        "failed": account.charged(),
        "set_aside": len(account.verdicts("set_aside")),
    }
    for name, count in counted.items():
        if ended["totals"][name] != count:
            yield f"{name}: {count} in the journal, {ended['totals'][name]} at its end"


def _surprises(account: Account, killed: Killed | None) -> Iterator[str]:
    for item in BACKLOG:
        if (outcomes := account.outcomes(item)) != OUTCOMES[item.fate]:
            yield f"{item.issue_id}: {', '.join(outcomes) or 'never tried'}"
    victim = of_fate(Fate.KILLED)[0]
    if killed is None:
        yield f"no worker was killed at work on {victim.issue_id}"
