"""The account of a demo: figures from its journal, its promises, and the last lines."""

from __future__ import annotations

import shutil
import signal
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import beads_workers
from beads_workers.cli.client import connect
from beads_workers.cli.throwaway import Promise, what_was_checked
from beads_workers.core.base.text import printable
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry, Finished
from beads_workers.demo.backlog import BACKLOG, Item, ItemFate, of_fate
from beads_workers.errors import CommandError
from beads_workers.runtime import sessions
from beads_workers.runtime.run_directory import RunDirectory

# --- hand ----------------------------------------------------------------------------------------
# A thread that kills a worker in the middle of a demo, as anybody could in another terminal.


AT_WORK_SECONDS = 4.0
"""Time that the victim works before it is killed: everybody has seen it work by then."""


@dataclass(frozen=True, slots=True)
class Killed:
    """The killed worker, and the issue it worked on."""

    worker_id: str
    pid: int
    issue_id: str


class Hand(threading.Thread):
    """Watches the fleet, and KILLs the first worker that works on ``victim``.

    ``killed``: that worker.
    """

    def __init__(self, state: RunDirectory, victim: Item) -> None:
        super().__init__(name="the hand that kills", daemon=True)
        self._state = state
        self._victim = victim
        self.killed: Killed | None = None

    def run(self) -> None:
        """Watch until the fleet ends."""
        try:
            client = connect(self._state.root)
        except CommandError:
            return  # The fleet has ended already; the demo reports what was not seen.
        client.send("bw.watch")
        for message in client.follow():
            if self.killed is None and "snapshot" in message:
                self._look(message["snapshot"])

    def _look(self, snapshot: dict[str, Any]) -> None:
        for worker in snapshot["workers"]:
            at_work = worker["elapsed_seconds"] or 0.0
            if worker["issue_id"] == self._victim.issue_id and at_work >= AT_WORK_SECONDS:
                self._kill(worker)

    def _kill(self, worker: dict[str, Any]) -> None:
        info, started = self._state.read_info(), sessions.start_time(worker["pid"])
        if info is None or started is None:
            return
        # Exactly the processes of this fleet hold their run's lock open: the worker is ours to
        # kill.
        alive = self._state.run(info.run_id) / "alive"
        if sessions.holds(worker["pid"], alive) and sessions.kill(
            worker["pid"], started, signal.SIGKILL
        ):
            self.killed = Killed(worker["worker_id"], worker["pid"], self._victim.issue_id)


# --- account -------------------------------------------------------------------------------------
# The account of a demo: figures from its journal, and its promises, which are really checked.


CLOSED, QUARANTINED = "closed", "blocked"
"""Statuses of the tracker."""

OUTCOMES: dict[ItemFate, tuple[str, ...]] = {
    ItemFate.FINE: ("success",),
    ItemFate.FLAKY: ("error", "success"),
    ItemFate.BUSY: ("retry", "success"),
    ItemFate.KILLED: ("lost", "success"),
    ItemFate.STUCK: ("timeout", "success"),
    ItemFate.HOPELESS: ("error", "error", "error"),
}
"""Outcomes of an issue's attempts by its fate: the same in every demo."""


@dataclass(slots=True)
class DemoAccount:
    """One run by its journal. ``ends``: the ends of all attempts, by issue, in order."""

    ends: dict[str, list[rec.Finished]] = field(default_factory=lambda: defaultdict(list))
    closes: Counter[str] = field(default_factory=Counter)
    pids: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Process ids of every worker, in order."""
    stopped: bool = False
    """Whether somebody stopped the run before its end."""
    steered: bool = False
    """Whether somebody released or retried an issue: the run no longer follows the script."""
    at_once: list[str] = field(default_factory=list)
    """Issues that began again while they were running: there must be none."""
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
            case rec.PutOnHold() | rec.RetryAsked():
                self.steered = True
            case _:
                pass

    def outcomes(self, item: Item) -> tuple[str, ...]:
        """Return the outcomes of the attempts at this issue."""
        return tuple(finished.outcome for finished in self.ends[item.issue_id])

    def charged(self) -> int:
        """Return the number of failed attempts that count, over all issues."""
        counted = ("error", "timeout", "lost", "not_found")
        return sum(f.outcome in counted for ends in self.ends.values() for f in ends)

    def ended(self, outcome: str) -> list[rec.Finished]:
        """Return the attempts with this outcome, in the order of their issues."""
        return [f for item in BACKLOG for f in self.ends[item.issue_id] if f.outcome == outcome]

    def verdicts(self, verdict: str) -> list[rec.Finished]:
        """Return the attempts with this verdict, in the order of their issues."""
        return [f for item in BACKLOG for f in self.ends[item.issue_id] if f.verdict == verdict]


def promises(
    account: DemoAccount,
    ended: dict[str, Any],
    tracker: dict[str, str],
    living: Sequence[int],
    killed: Killed | None,
) -> Iterator[Promise]:
    """Yield each promise of the engine and of the demo.

    ``ended``: the fleet's last message. ``tracker``: the status of every issue. ``living``:
    processes of the run that still exist.
    """
    if account.steered:
        twice = tuple(issue_id for issue_id, count in account.closes.items() if count > 1)
        yield Promise("no issue was closed twice", twice)
    else:
        wrong = tuple(_wrong_ends(account, tracker))
        yield Promise("every issue was closed, or quarantined, exactly once", wrong)
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


def _wrong_ends(account: DemoAccount, tracker: dict[str, str]) -> Iterator[str]:
    for item in BACKLOG:
        hopeless = item.fate is ItemFate.HOPELESS
        wanted = (QUARANTINED, 0, 1) if hopeless else (CLOSED, 1, 1)
        status = tracker.get(item.issue_id, "missing")
        last = [f for f in account.ends[item.issue_id] if f.verdict != "requeue"]
        if (status, account.closes[item.issue_id], len(last)) != wanted:
            yield f"{item.issue_id} is {status}, closed {account.closes[item.issue_id]} times"


def _disagreements(account: DemoAccount, ended: dict[str, Any]) -> Iterator[str]:
    counted = {
        "done": len(account.verdicts("finish")),
        "failed": account.charged(),
        "quarantined": len(account.verdicts("quarantined")),
    }
    for name, count in counted.items():
        if ended["totals"][name] != count:
            yield f"{name}: {count} in the journal, {ended['totals'][name]} at its end"


def _surprises(account: DemoAccount, killed: Killed | None) -> Iterator[str]:
    for item in BACKLOG:
        if (outcomes := account.outcomes(item)) != OUTCOMES[item.fate]:
            yield f"{item.issue_id}: {', '.join(outcomes) or 'never tried'}"
    victim = of_fate(ItemFate.KILLED)[0]
    if killed is None:
        yield f"no worker was killed at work on {victim.issue_id}"


# --- last lines ----------------------------------------------------------------------------------
# The last lines of ``demo``: what was seen, in the run's own figures, and what to type next.


PROGRAM = "beads-workers"


def everything(
    folder: Path,
    account: DemoAccount,
    ended: dict[str, Any],
    killed: Killed | None,
    promises: Sequence[Promise],
) -> Iterator[str]:
    """Yield all lines, one after the other."""
    yield ""
    yield from what_was_seen(account, ended, killed)
    yield from what_was_checked(promises, "the tracker, the journal and /proc")
    yield from what_to_type_next(folder)


def what_was_seen(
    account: DemoAccount, ended: dict[str, Any], killed: Killed | None
) -> Iterator[str]:
    """Yield the results of the run, by its journal; events that did not happen have no line."""
    totals, calls = ended["totals"], ended["source_calls"]
    yield (
        f"That was a real run: {totals['done']} of {len(BACKLOG)} issues closed in"
        f" {ended['uptime_seconds']:.1f} s, {totals['failed']} failed attempts."
    )
    if recovered := [f.issue_id for f in account.ended("error") if _closer(account, f)]:
        yield _row("failed once, then done", ", ".join(recovered))
    for busy in account.ended("retry"):
        charged = f"{busy.charged or 'no'} attempt{'s' * (busy.charged > 1)} charged"
        yield _row("said 'not now' (exit 75)", f"{busy.issue_id}, {charged}", account, busy)
    for lost in account.ended("lost"):
        worker, fresh = lost.worker_id, account.pids[lost.worker_id][-1]
        who = f"pid {killed.pid}, " if killed and killed.worker_id == worker else ""
        what = f"{worker} ({who}now {fresh}) at {lost.issue_id}"
        yield _row("worker killed (kill -9)", what, account, lost)
    for late in account.ended("timeout"):
        what = f"{late.issue_id} {late.error}, gone at {late.duration_ms / 1000:.0f} s"
        yield _row("ignored TERM", what, account, late)
    for row in ended["quarantined"]:
        why = f"{row['issue_id']}, {row['attempts']} attempts; {printable(row['error'], 40)}"
        yield _row("quarantined, and why", why)
    yield _row("tracker", f"asked {calls['count']} times, {calls['seconds']:.2f} s in all")


def _row(
    name: str, what: str, account: DemoAccount | None = None, f: Finished | None = None
) -> str:
    by = _closer(account, f) if account and f else ""
    return f"  {name:<26}{what}{f'; {by} did it' if by else ''}"


def _closer(account: DemoAccount, finished: Finished) -> str:
    """Return the worker that finished the issue of this attempt in the end; empty if none did."""
    last = account.ends[finished.issue_id][-1]
    return last.worker_id if last.verdict == "finish" else ""


def as_object(
    folder: Path, ended: dict[str, Any], killed: Killed | None, promises: Sequence[Promise]
) -> dict[str, Any]:
    """Return the same for programs: the last line of ``demo --json``."""
    return {
        "demo": {
            "folder": str(folder),
            "run_id": ended["run_id"],
            "seconds": ended["uptime_seconds"],
            "totals": ended["totals"],
            "quarantined": ended["quarantined"],
            "killed": asdict(killed) if killed else None,
            "promises": [{"text": p.text, "broken": list(p.broken)} for p in promises],
        }
    }


def what_to_type_next(folder: Path) -> Iterator[str]:
    """Yield commands for a closer look at this run, and for a first run of one's own."""
    hopeless = of_fate(ItemFate.HOPELESS)[0].issue_id
    yield "Look closer (this folder stays until the next demo):"
    if shutil.which(PROGRAM) is None:
        yield f"  PATH={_binaries()}:$PATH"
    yield f"  cd {folder}"
    yield f"  {PROGRAM} why {hopeless}    # why it was quarantined, and where its log is"
    yield f"  {PROGRAM} report         # figures and a timeline; --html FILE: a page"
    yield f"  {PROGRAM} replay         # the whole run again, 20 times as fast"
    yield "Your own work, in a folder of yours:"
    yield f"  {PROGRAM} init && {PROGRAM} add 'my first issue' -- echo hello"
    yield f"  {PROGRAM} start          # with bd: start -- ./do-issue.sh {{id}}"


def _binaries() -> Path:
    checkout = Path(beads_workers.__file__).parents[1] / "bin"
    if (checkout / PROGRAM).exists():
        return checkout
    import sys

    return Path(sys.executable).parent
