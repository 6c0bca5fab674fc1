"""Where a proof takes place: a stub, a home, a project, and the fleets that were started in it."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from beads_workers.core.records.receipts import Receipt, read_receipt
from beads_workers.runtime import sessions
from tests.agents_api import ModelApi
from tests.support.agent_projects import AgentBdProject, AgentProject
from tests.support.fleet import Fleet
from tests.support.real_agents import AgentHome, git
from tests.support.worktrees import in_worktrees

STEPS = ("claimed", "started", "finished", "branch_landed", "settled")
STUCK_SECONDS = 120.0
"""Far longer than anything that a proof makes its fleet wait for, on whatever machine."""
MARK = """\
#!/bin/sh
# Leaves a file of its own in the worktree, and writes down elsewhere that it did.
name=mark-$BW_ATTEMPT-$$-$(date +%N)
echo "$name" >"$name" && echo "$BW_ISSUE_ID $name" >>"$MARKS"
"""


def say(text: str) -> None:
    """Progress, on stderr."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Ground:
    """``project`` is filled by the proof; ``close`` ends whatever is left. ``bd``: the version of
    its tracker; "" for the built-in one."""

    def __init__(self, folder: Path, *, bd: str = "", retries: int = 0) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.api = ModelApi()
        self.home = AgentHome(self.api, retries=retries)
        self.project: AgentProject | AgentBdProject = (
            AgentBdProject(folder, self.home, bd) if bd else AgentProject(folder, self.home)
        )
        self.account = self.api.account(self.home.key)
        self.marks = folder / "marks"
        self.marks.touch()
        tools = folder / "tools"
        tools.mkdir()
        (tools / "leave-mark").write_text(MARK)
        (tools / "leave-mark").chmod(0o755)
        path = f"{tools}:{self.project.environment['PATH']}"
        self.project.environment |= {"PATH": path, "MARKS": str(self.marks)}
        self.fleets: list[Fleet] = []

    def settings(self, text: str) -> None:
        """The project's ``beads-workers.toml``."""
        (self.project.folder / "beads-workers.toml").write_text(text)

    def start(self, *options: str) -> Fleet:
        """A fleet, as a person starts it."""
        self.fleets.append(Fleet(self.project, *options))
        return self.fleets[-1].started()

    def finish(self) -> int:
        """The exit status of the last fleet, which may take its time as long as it gets on."""
        fleet, seen, since = self.fleets[-1], 0, time.monotonic()
        while (status := fleet.process.poll()) is None:
            count = len(self.journal(*STEPS))
            if count != seen:
                seen, since = count, time.monotonic()
            stuck = time.monotonic() - since
            assert stuck < STUCK_SECONDS, f"no step for {stuck:.0f} s\n{fleet.said()}"
            time.sleep(0.5)
        return int(status)

    def close(self) -> None:
        """End what is left."""
        for fleet in self.fleets:
            fleet.end()
        self.api.close()
        self.home.close()

    # --- what there was -----------------------------------------------------------------------

    def journal(self, *kinds: str) -> list[dict[str, Any]]:
        """The records of all runs, in their order, with ``run``."""
        found = []
        for fleet in self.fleets:
            rows = fleet.journal()
            found += [row | {"run": fleet.run_id} for row in rows if row["e"] in kinds]
        return found

    def receipts(self) -> list[tuple[dict[str, Any], Receipt]]:
        """Each attempt that ended with one, in order."""
        rows = [(row, read_receipt(row.get("receipt"))) for row in self.ends()]
        return [(row, receipt) for row, receipt in rows if receipt is not None]

    def ends(self) -> list[dict[str, Any]]:
        """The ends of all attempts."""
        return self.journal("finished")

    def processes_left(self) -> list[str]:
        """Living processes of any run, and agents of this home."""
        left = [f"{fleet.run_id}: {pid}" for fleet in self.fleets for pid in fleet.token_holders()]
        return left + [f"agent {pid}" for pid in self.agents()]

    def agents(self) -> list[int]:
        """Living processes of claude and codex below our home."""
        return [pid for pid in _pids() if self._is_agent(pid)]

    def _is_agent(self, pid: int) -> bool:
        try:
            argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        name = argv[0].rpartition(b"/")[2]
        return name in (b"claude", b"codex") and str(self.home.folder).encode() in environment

    def issue_of(self, pid: int) -> str:
        """The issue of an agent's process; "" if it has ended."""
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return ""
        name = b"BW_ISSUE_ID="
        found = (entry.removeprefix(name) for entry in environment if entry.startswith(name))
        return next(found, b"").decode()

    def kill_agent(self, pid: int) -> bool:
        """As if memory had run out: whether it was there to be killed."""
        started = sessions.start_time(pid)
        return started is not None and sessions.kill(pid, started, signal.SIGKILL)

    def has_transcript(self, session: str) -> bool:
        """Whether claude has kept that session: one that is killed early has written nothing."""
        return any(self.home.folder.glob(f".claude/projects/*/{session}.jsonl"))

    def lost_work(self) -> list[str]:
        """What agents wrote that is in no branch, no ref of an attempt and no worktree."""
        there = {file.name for file in in_worktrees(self.project, "mark-*")}
        return [line for line in self.only_in_folders() if line.split()[1] not in there]

    def only_in_folders(self) -> list[str]:
        """What agents wrote that git has not got: issue and file."""
        kept: dict[str, set[str]] = {}
        missing = []
        for line in self.marks.read_text().splitlines():
            issue_id, name = line.split()
            if issue_id not in kept:
                kept[issue_id] = set(self._kept(issue_id))
            if name not in kept[issue_id]:
                missing.append(line)
        return missing

    def _kept(self, issue_id: str) -> Iterator[str]:
        patterns = (f"refs/heads/bw/{issue_id}/", f"refs/bw/attempts/{issue_id}/")
        for ref in git(
            self.project.folder, "for-each-ref", "--format=%(refname)", *patterns
        ).splitlines():
            yield from git(self.project.folder, "ls-tree", "-r", "--name-only", ref).splitlines()


def _pids() -> list[int]:
    return [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]


@contextlib.contextmanager
def ground(folder: Path, name: str, **options: Any) -> Iterator[Ground]:
    """One, closed with the block."""
    made = Ground(folder / name, **options)
    try:
        yield made
    finally:
        made.close()


def files_of(place: Ground, receipt: Receipt) -> set[str]:
    """What is in the last commit of a receipt; empty where git has no such commit."""
    if not receipt.commits:
        return set()
    return set(
        git(place.project.folder, "ls-tree", "-r", "--name-only", receipt.commits[-1]).splitlines()
    )


def wait_until(holds: Callable[[], Any], seconds: float, what: str) -> bool:
    """Whether it came to hold in time; says so where it did not."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() >= deadline:
            say(f"not within {seconds:.0f} s: {what}")
            return False
        time.sleep(0.1)
    return True


def short(row: dict[str, Any]) -> str:
    """An end in a few words."""
    shown = {k: row.get(k) for k in ("issue_id", "attempt", "outcome", "verdict", "error")}
    return json.dumps(shown)
