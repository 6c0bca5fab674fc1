"""The orchestrator's process: its start, its end, and the last lines of a run."""

from __future__ import annotations

import json
import select
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

from beads_workers.cli.client import ControlClient, wait_for_exit
from beads_workers.core.base.budget import read_budget
from beads_workers.core.base.model import FLEETS
from beads_workers.core.base.plain import to_plain
from beads_workers.core.base.settings import FleetSettings, Worktrees
from beads_workers.core.base.text import counted, printable
from beads_workers.core.records.journal import from_json, heads
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_UNKNOWN
from beads_workers.runtime.endings import how_it_ended
from beads_workers.runtime.processes import received_signals, wake_on
from beads_workers.ui import landing
from beads_workers.ui.agents import account, spent
from beads_workers.ui.lines import (
    FLAGS_WIDTH,
    SILENT,
    by_cause,
    held_elsewhere,
    line,
    once_gone,
    start_again,
    to_decide,
    who_stays,
    with_budget,
)
from beads_workers.ui.time_text import duration

# --- summary -------------------------------------------------------------------------------------
# The lines at the end of a run: the issues, the cost, and the next step.


SHOWN_MAX = 5


def summary(ended: dict[str, Any]) -> list[str]:
    """Return the summary: three lines, landed work, and the first quarantined issues."""
    totals, queue = ended["totals"], ended["queue"]
    calls, requeued = ended["source_calls"], ended.get("requeued", [])
    lines = [
        f"closed {totals['done']}, failed attempts {totals['failed']},"
        f" quarantined {totals['quarantined']}, requeued {len(requeued)}",
        f"took {duration(ended['uptime_seconds'])}, tracker asked {calls['count']} times in"
        f" {calls['seconds']:.1f} s ('beads-workers report' tells it all)",
    ]
    if ended.get("money"):
        lines.append(f"agents used {spent(ended['money'])}")
    over = ended["ended"] or {}
    if over.get("exit_code") and " " in over["reason"]:
        # A sentence, not a word of the protocol: it says what to do first.
        lines.append(f"ended because: {printable(over['reason'])}")
    for each in ended.get("stayed", [])[:SHOWN_MAX]:
        lines.append(f"  {printable(each['issue_id'])}: {who_stays(each)}")
    quarantined = ended["quarantined"]
    landed = ended.get("landing")
    if landed is not None:
        lines += landing.at_the_end(landed)
    refused = {row["issue_id"] for row in landed["refused"]} if landed is not None else set()
    if others := [row for row in quarantined if row["issue_id"] not in refused]:
        lines += [f"  {text}" for text in islice(by_cause(others), SHOWN_MAX)]
    if found := ended.get("discovered"):
        take = "take it" if len(found) == 1 else "take them"
        lines.append(
            f"{counted(len(found), 'issue')} filed by agents; to {take}:"
            f" {start_again(ended.get('argv', []), *found[:SHOWN_MAX])}"
        )
    lines += to_decide(ended)
    lines += held_elsewhere(ended)
    lines += _for_a_person(ended)
    lines += _left_work(ended)
    following = _next(ended, queue, quarantined)
    command = landing.to_type(landed)
    if command and command not in following:
        target = landed["branch"].partition("/")[2] if landed is not None else ""
        lines.append(f"to bring what landed to {printable(target)}: {printable(command)}")
    return [*lines, f"next: {following}"]


def _left_work(ended: dict[str, Any]) -> Iterator[str]:
    """Yield a line for branches with unmerged work and for worktrees with uncommitted work."""
    failed = ended.get("failed_branches", 0)
    awaiting = len(ended.get("approvals", ()))
    finished = max(0, ended.get("unmerged_branches", 0) - failed - awaiting)
    to_do = "work to merge" if ended.get("landing") is None else "work that has not landed"
    for count, what in ((finished, to_do), (failed, "work of attempts that did not succeed")):
        if count:
            hold = "branch holds" if count == 1 else "branches hold"
            yield f"{count} {hold} {what}: beads-workers branches"
    if count := ended.get("uncommitted_worktrees", 0):
        hold = "worktree holds" if count == 1 else "worktrees hold"
        yield f"{count} {hold} work that is not committed: beads-workers clean --dry-run"
    for row in ended.get("kept_worktrees", [])[:SHOWN_MAX]:
        yield f"worktree {printable(row['path'])} stays: {printable('; '.join(row['reasons']))}"


def _for_a_person(ended: dict[str, Any]) -> Iterator[str]:
    """Yield what agents leave to a person, and accounts that are still closed."""
    if flagged := ended.get("to_review", []):
        yield f"for you to look at: {counted(len(flagged), 'issue')}"
    for row in flagged[:SHOWN_MAX]:
        yield f"  {printable(row['issue_id'])}: {printable(', '.join(row['flags']), FLAGS_WIDTH)}"
    for row in ended.get("accounts", []):
        if row["state"] != "available":
            yield f"agent {account(row)}"


def _next(ended: dict[str, Any], queue: dict[str, Any], quarantined: list[dict[str, Any]]) -> str:
    if stayed := ended.get("stayed"):
        return once_gone(stayed[:SHOWN_MAX])
    if ended.get("pending"):
        ids = " ".join(printable(issue_id) for issue_id in ended["pending"])
        if ended.get("broken"):
            return f"start again when that is mended: this run still holds {ids}"
        return f"start again when the tracker works: writes are still pending for {ids}"
    if not ended.get("settled", True):
        return "start again when the tracker works: it is asked then what this run still holds"
    if unsynced := ended.get("unsynced"):
        return printable(unsynced)
    if queue["unclosed"]:
        return "start again when the tracker works: what is done is closed then, never run again"
    if quarantined:
        named = [printable(shlex.quote(row["issue_id"])) for row in quarantined]
        again = " ".join(named) if len(named) <= SHOWN_MAX else "--all"
        return (
            f"'beads-workers logs {named[-1]}' says why; 'beads-workers retry {again}' tries again"
        )
    if ended.get("questions"):
        return "'beads-workers answer' asks you one question after the other; then start again"
    if ended.get("requeued") or queue["ready"]:
        what = "was requeued" if ended.get("requeued") else "is ready"
        return f"to go on with what {what}{_going_on(ended)}"
    if held := ended.get("held_elsewhere"):
        first = printable(shlex.quote(held[0]["issue_id"]))
        if not any(each["actor"].startswith(FLEETS) for each in held):
            return f"'beads-workers release {first}' opens again what nobody works on"
        return (
            f"'beads-workers why {first}' says who has it; 'beads-workers release --abandoned'"
            " gives back what no run is at work on"
        )
    if queue["blocked"]:
        wait = "issue waits" if queue["blocked"] == 1 else "issues wait"
        return f"{queue['blocked']} {wait} for others that are not closed"
    landed = ended.get("landing")
    if landed is not None and landed["waiting_to_land"]:
        return "'beads-workers land' lands what is done; the next start does it first"
    if landed is not None and landed["in_review"]:
        return "'beads-workers pr' closes what is merged; so does the next start"
    if awaiting := ended.get("approvals"):
        first = printable(shlex.quote(awaiting[0]["issue_id"]))
        return f"'beads-workers diff {first}' shows what awaits approval; 'land {first}' lands it"
    if landed is not None and (landed["into"] or {}).get("url"):
        return f"merge it once you like it: {printable(landed['into']['url'])}"
    if command := landing.to_type(landed):
        return f"{printable(command)} brings what landed to your branch"
    if landed is None and ended.get("unmerged_branches", 0) > ended.get("failed_branches", 0):
        return "merge what is good; 'beads-workers clean' removes the worktrees of what is merged"
    return "nothing is left to do"


def _going_on(ended: dict[str, Any]) -> str:
    """Return the line that starts again behind a colon, with what is left of the budget."""
    argv, money = ended.get("argv", []), ended.get("money")
    if not money or not money["budget"]:
        return f": {start_again(argv)}"
    budget, night = read_budget(money["budget"]), money["night"]
    if budget.per_run:
        return f": {start_again(argv)}"
    used = night["spent_usd"], night["tokens"]
    if budget.is_spent(*used):
        return f", with more for this night: {with_budget(argv, budget.doubled())}"
    return f" ({budget.left(*used)} of {budget} is left for the night): {start_again(argv)}"


# --- launch --------------------------------------------------------------------------------------
# The orchestrator's process: its start and its end.


class Launch:
    """An orchestrator's process that waits for its settings.

    It is started before the settings are known, because both take a while. If it never gets
    settings, it ends together with this process.
    """

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.pid = start_orchestrator(theirs)
            """Process id of the orchestrator."""
        self.client = ControlClient(ours)

    def send(self, settings: FleetSettings) -> None:
        """Send the settings of a fleet; the answer and all later messages are still to be read."""
        try:
            self.client.socket.sendall(json.dumps(to_plain(settings)).encode("ascii") + b"\n")
        except OSError:
            with suppress(OSError):  # A lost process shows when its answer is read.
                self.client.socket.shutdown(socket.SHUT_RDWR)

    def tell(self, settings: FleetSettings) -> dict[str, Any]:
        """Send the settings of a fleet; return its ``started``. Raise ``CommandError``."""
        self.send(settings)
        while (answer := self.client.read()) is not None and "waiting" in answer:
            waits = answer["waiting"]
            text = f"{printable(waits['error'])}; asked again in {waits['seconds']:g} s"
            print(f"beads-workers: {text}", file=sys.stderr, flush=True)
        if answer is None or "failed" in answer:
            wait_for_exit(self.pid)
            failed = (answer or {}).get("failed", {})
            raise CommandError(
                failed.get("error", "the orchestrator did not start"),
                failed.get("hint", "its last words stand above"),
                failed.get("exit_code", 1),
            )
        started: dict[str, Any] = answer["started"]
        return started


def start_orchestrator(client: socket.socket) -> int:
    """Start an orchestrator in its own session, with this connection; return its pid."""
    # -P: files in the project's folder are never imported.
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "beads_workers.runtime.main", str(client.fileno())],
        pass_fds=(client.fileno(),),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    # Not waited for: it outlives this process. Without a return code, its destructor would warn.
    process.returncode = 0
    return process.pid


class Interrupts:
    """Signal handlers that stop the fleet.

    The first INT, TERM or HUP asks for a stop, every later one for an immediate stop.
    """

    def __init__(self, client: ControlClient) -> None:
        self._client = client
        self.first: int | None = None
        # A signal just before a wait would be handled only after the wait. The byte that the
        # interpreter writes to this descriptor ends the wait.
        self._wake = wake_on(())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._asked)

    def wait(self) -> None:
        """Wait until the fleet has sent something; handle signals meanwhile."""
        while True:
            ready = select.select([self._client.socket, self._wake], [], [])[0]
            received_signals(self._wake)
            if self._client.socket in ready:
                return

    def _asked(self, number: int, frame: FrameType | None) -> None:
        if self.first is None:
            self.first = number
            self._client.send("bw.stop")
            print("stopping: running tasks are requeued; again to stop now", file=sys.stderr)
        else:
            self._client.send("bw.stop", {"seconds": 0})


@dataclass(frozen=True, slots=True)
class WatchResult:
    """Result of watching a run: its last message, the first signal, and whether it goes on."""

    ended: dict[str, Any] | None
    signal: int | None = None
    detached: bool = False


def watch_run(
    client: ControlClient,
    started: dict[str, Any],
    *,
    runs: Path,
    named: Collection[str],
    as_json: bool,
    show: Callable[[ControlClient], WatchResult] | None = None,
    interrupts: Interrupts | None = None,
    worktrees: Worktrees | None = None,
) -> int:
    """Show events as they come, then the summary; return the exit code.

    ``show``: draws a dashboard. Without it, every event is a line, and ``interrupts`` handles
    signals. ``runs``: the folder of all runs. ``named``: the only issues that were to be taken.
    Raise ``CommandError``, with exit 4 if the run ended without any of the named issues.
    """
    watched = show(client) if show else _tell_events(client, interrupts, as_json=as_json)
    if watched.detached:
        return 0
    ended = watched.ended
    if ended is None and watched.signal is not None:
        # The terminal is gone: the fleet sees the connection close, and stops.
        return 128 + watched.signal
    wait_for_exit(started["pid"])
    if ended is None:
        ending = how_it_ended(runs / started["run_id"])
        if ending is not None and ending["exit_code"] is not None:
            raise CommandError(
                f"the connection to the fleet broke; it {ending['ending']}",
                "'beads-workers report' tells it all, and how to go on",
            )
        raise CommandError(
            "the orchestrator ended without a word",
            f"its log is runs/{started['run_id']}/orchestrator.log in the run directory;"
            " the next start settles what it left",
        )
    if worktrees is not None:
        ended |= _tidy_worktrees(worktrees, started["run_id"])
        if ended.get("landing"):
            ended["landing"]["merge"] = _merge_command(worktrees.checkout, ended["landing"])
    if as_json:
        print(json.dumps({"ended": ended}), flush=True)
    else:
        for text in summary(ended):
            print(text, flush=True)
    if named and not ended["claimed"] and not watched.signal and not ended["exit_code"]:
        raise CommandError(
            f"nothing was taken of {', '.join(named)}",
            "not ready, closed, in somebody's hands, or not there at all",
            EXIT_UNKNOWN,
        )
    return 128 + watched.signal if watched.signal else int(ended["exit_code"])


def _tell_events(
    client: ControlClient, interrupts: Interrupts | None, *, as_json: bool
) -> WatchResult:
    ended: dict[str, Any] | None = None
    client.skipped = () if as_json else heads(SILENT)
    for message in client.follow(interrupts.wait if interrupts else None):
        if "ended" in message:
            ended = message["ended"]
        elif "e" in message:
            _show(message, as_json=as_json)
            if client.drained:
                sys.stdout.flush()
    return WatchResult(ended, interrupts.first if interrupts else None)


def _tidy_worktrees(worktrees: Worktrees, run_id: str) -> dict[str, Any]:
    """Remove the run's worktrees without work; count the worktrees and branches with work."""
    from beads_workers.landing.left_branches import succeeded
    from beads_workers.worktrees.removal import left_work, tidy_run
    from beads_workers.worktrees.reuse import keep

    state_directory = Path(worktrees.state_directory)
    stayed = tidy_run(state_directory, run_id, keep(worktrees))
    left = left_work(state_directory, run_id)
    return {
        "unmerged_branches": len(left.branches),
        "failed_branches": len(left.branches) - len(succeeded(state_directory, left.branches)),
        "uncommitted_worktrees": len(left.worktrees),
        "kept_worktrees": [
            {"issue_id": each.issue_id, "path": each.path, "reasons": list(reasons)}
            for each, reasons in stayed.items()
        ],
    }


def _merge_command(folder: str, landed: dict[str, Any]) -> str:
    from beads_workers.worktrees.git import GitError
    from beads_workers.worktrees.landed import merge_command

    try:
        return merge_command(folder, landed["branch"]) if landed["branch"] else ""
    except GitError:
        return ""  # It is only a line of the summary.


def _show(message: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(message))
        return
    entry = from_json(message)
    text = line(entry) if entry is not None else None
    if text is not None:
        print(text)
