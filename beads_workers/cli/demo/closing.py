"""The last lines of ``demo``: what was seen, in the run's own figures, and what to type next."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import beads_workers
from beads_workers.cli.demo.account import Account
from beads_workers.cli.demo.backlog import BACKLOG, Fate, of_fate
from beads_workers.cli.demo.hand import Killed
from beads_workers.cli.throwaway import Promise, what_was_checked
from beads_workers.core.records import Finished
from beads_workers.core.text import printable

PROGRAM = "beads-workers"


def everything(
    folder: Path,
    account: Account,
    ended: dict[str, Any],
    killed: Killed | None,
    promises: Sequence[Promise],
) -> Iterator[str]:
    """All lines, one after the other."""
    yield ""
    yield from what_was_seen(account, ended, killed)
    yield from what_was_checked(promises, "the tracker, the journal and /proc")
    yield from what_to_type_next(folder)


def what_was_seen(account: Account, ended: dict[str, Any], killed: Killed | None) -> Iterator[str]:
    """What the run came to, by its journal; what did not happen has no line."""
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
    for row in ended["set_aside"]:
        why = f"{row['issue_id']}, {row['attempts']} attempts; {printable(row['error'], 40)}"
        yield _row("set aside with its reason", why)
    yield _row("tracker", f"asked {calls['count']} times, {calls['seconds']:.2f} s in all")


def _row(name: str, what: str, account: Account | None = None, f: Finished | None = None) -> str:
    by = _closer(account, f) if account and f else ""
    return f"  {name:<26}{what}{f'; {by} did it' if by else ''}"


def _closer(account: Account, finished: Finished) -> str:
    """The worker that did in the end what this attempt did not; empty where nobody did."""
    last = account.ends[finished.issue_id][-1]
    return last.worker_id if last.verdict == "finish" else ""


def as_object(
    folder: Path, ended: dict[str, Any], killed: Killed | None, promises: Sequence[Promise]
) -> dict[str, Any]:
    """The same for a program: the last line of ``demo --json``."""
    return {
        "demo": {
            "folder": str(folder),
            "run_id": ended["run_id"],
            "seconds": ended["uptime_seconds"],
            "totals": ended["totals"],
            "set_aside": ended["set_aside"],
            "killed": asdict(killed) if killed else None,
            "promises": [{"text": p.text, "broken": list(p.broken)} for p in promises],
        }
    }


def what_to_type_next(folder: Path) -> Iterator[str]:
    """Looking closer at this run, and a first one of one's own."""
    hopeless = of_fate(Fate.HOPELESS)[0].issue_id
    yield "Look closer (this folder stays until the next demo):"
    if shutil.which(PROGRAM) is None:
        yield f"  PATH={_binaries()}:$PATH"
    yield f"  cd {folder}"
    yield f"  {PROGRAM} why {hopeless}    # why it was set aside, and where its log is"
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
