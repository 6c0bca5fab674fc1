"""One night: what a person does to it, and what kills it, again and again; two agents work in it.

Each issue has amounts of tokens of its own, so a charge of the stub tells its issue.
"""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from beads_workers.runtime import sessions
from tests.night.compressed import VERIFY as NOTHING_HALF_DONE
from tests.night.ground import Ground, say, wait_until
from tests.night.page import snapshot
from tests.support.fleet import Fleet
from tests.support.real_agents import git

FIRST_TOKENS = 4000
PATIENCE = 240.0
PAUSE, WINDOW = 6.0, 8.0
"""Seconds of a person's pause, and of a limit of "five hours"."""
CODEX = '\n[agents.codex]\nprices = { "*" = [1.25, 10.0, 0.125] }\n'
"""As the stub counts."""
OPTIONS = (
    *("--agent", "claude,codex", "--retry-delay", "0.5s", "--poll", "0.3s"),
    *("--probe", "2s", "--reset-grace", "1s"),
)
VERIFY = 'test -n "$BW_GATE" || test -e "src/${BW_ISSUE_ID#bw-}.py" || exit 1; ' + NOTHING_HALF_DONE
"""In an attempt both files of its issue must be there."""
ASKS, AWAITS, IS_REJECTED = range(3, 49, 4), range(6, 49, 8), range(6, 49, 16)


@dataclass(slots=True)
class Night:
    """``answered``, ``rejected`` and ``approved``: issues and when, as the person did it; ``seen``:
    commits that were approved. ``pauses``: what stopped the fleet, from when, for how long.
    ``kills``: when; ``struck``: issues of killed agents. ``midway``: what `status`, the page and
    `report` said in the first pause."""

    place: Ground
    size: int
    random: Random
    answered: dict[str, float] = field(default_factory=dict)
    rejected: dict[str, float] = field(default_factory=dict)
    approved: dict[str, float] = field(default_factory=dict)
    seen: set[tuple[str, str]] = field(default_factory=set)
    kills: list[float] = field(default_factory=list)
    struck: set[str] = field(default_factory=set)
    midway: list[dict[str, Any]] = field(default_factory=list)
    pauses: list[tuple[str, float, float]] = field(default_factory=list)
    deaths: Counter[str] = field(default_factory=Counter)
    looked: float = 0.0
    ended: int = 0

    @property
    def fleet(self) -> Fleet:
        """The last one."""
        return self.place.fleets[-1]

    @property
    def workers(self) -> int:
        """Of each fleet."""
        return min(8, max(3, self.size // 3))

    @property
    def branch(self) -> str:
        """Where branches land."""
        return f"bw-landing/{self._checked_out}"

    @property
    def landed_since(self) -> str:
        """The commits that landed, as a range."""
        return f"{self._checked_out}..{self.branch}"

    @property
    def _checked_out(self) -> str:
        return git(self.place.project.folder, "branch", "--show-current").strip()

    def begin(self, *more: str) -> None:
        """Start a fleet as before."""
        self.place.start("-n", str(self.workers), *OPTIONS, "--verify", VERIFY, "--web", *more)

    def done(self) -> int:
        """Issues that are closed."""
        found = self.place.project.read_all()
        return sum(status == "closed" for status, _ in found.values())

    # --- what a person does -----------------------------------------------------------------------

    def look(self) -> None:
        """Answer every question and decide on every branch, each once."""
        if time.monotonic() < self.looked + 1.5:
            return
        for row in told(self.fleet, "answer")["questions"]:
            issue_id = row["issue_id"]
            if issue_id not in self.answered:
                said = self.fleet.call("answer", issue_id, f"call it FOO-{number_of(issue_id)}")
                if said.returncode == 0:
                    self.answered[issue_id] = time.time()
                else:
                    say(f"answer to {issue_id}: {said.returncode}, {said.stderr.strip()}")
        for row in told(self.fleet, "status").get("approvals", ()):
            self._decide(row["issue_id"], row["commit"])
        self.ended = self.done()
        self.looked = time.monotonic()

    def _decide(self, issue_id: str, commit: str) -> None:
        """Approve a commit once; one without what the person asks for is rejected each time."""
        shown = self.fleet.call("diff", issue_id, "--stat")
        number, before = number_of(issue_id), time.time()
        if shown.returncode != 0:
            return
        if number in IS_REJECTED and f"euros-{number}.py" not in shown.stdout:
            if self.fleet.call("reject", issue_id, "use euros").returncode == 0:
                self.rejected.setdefault(issue_id, before)
            return
        if (issue_id, commit) in self.seen:
            return
        if self.fleet.call("approve", issue_id).returncode == 0:
            self.approved[issue_id] = before
            self.seen.add((issue_id, commit))

    # --- what happens to it -----------------------------------------------------------------------

    def goes_on(self, wanted: int) -> bool:
        """Whether so many are done; the person looks meanwhile."""
        self.look()
        return self.ended >= wanted

    def kill(self, number: int) -> None:
        """One death, and now and then more with it; the next start follows at once."""
        time.sleep(self.random.uniform(0.0, 2.5))
        # Each counts as an attempt: an issue loses no more than one to it.
        agents = {pid: self.place.issue_of(pid) for pid in self.place.agents()}
        mortal = [pid for pid, issue_id in agents.items() if issue_id not in {*self.struck, ""}]
        if number % 3 == 1 and mortal:
            victim = self.random.choice(mortal)
            self.struck.add(agents[victim])
            self.deaths["agents"] += self.place.kill_agent(victim)
            time.sleep(self.random.uniform(0.0, 1.0))
        whole = number % 5 == 4
        self.kills.append(time.time())
        pids = [self.fleet.pid, *(self.fleet.token_holders() if whole else ())]
        for pid, started in [(pid, sessions.start_time(pid)) for pid in pids]:
            if started is not None:
                sessions.kill(pid, started, signal.SIGKILL)
        self.fleet.process.wait()
        self.deaths["everything" if whole else "orchestrator"] += 1
        say(f"killed {'everything' if whole else 'the orchestrator'}, {self.done()} are done")
        if number % 4 == 2:
            self.looked = 0.0
            self.look()
        self.begin()

    def pause(self) -> None:
        """A person pauses the fleet, and resumes it."""
        assert wait_until(lambda: self.fleet.call("pause").returncode == 0, 30, "it is paused")
        began = time.time()
        time.sleep(PAUSE)
        if wait_until(lambda: not self.place.agents(), 30, "no agent works"):
            time.sleep(1.0)
            self.midway = [told(self.fleet, "status"), snapshot(self.fleet)]
            self.midway.append(told(self.fleet, "report"))
        assert self.fleet.call("resume").returncode == 0
        self.pauses.append(("paused", began, time.time() - began))

    def limit(self) -> None:
        """The account of claude is used up for a while."""
        account, seen = self.place.account, len(self.place.journal("account_closed"))
        with self.place.api.accounts.lock:
            account.close("five_hour", WINDOW)
        if wait_until(lambda: len(self.place.journal("account_closed")) > seen, 30, "a limit"):
            began = self.place.journal("account_closed")[-1]["t"]
            opened = len(self.place.journal("account_opened"))
            # Meanwhile all else may wait for the person, and only an agent finds it open again.
            wait_until(
                lambda: (
                    self.goes_on(self.size) or len(self.place.journal("account_opened")) > opened
                ),
                60,
                "open",
            )
            # A look by the person takes its time, so the end is not when it is over.
            opened_at = [r["t"] for r in self.place.journal("account_opened")[opened:]]
            self.pauses.append(("claude", began, min([*opened_at, time.time()]) - began))


def issue(number: int) -> dict[str, Any]:
    """Every fourth asks, every eighth waits for approval, of which half is rejected once. Who asks
    and may be claude asks by its tool.

    A kill may come between a call of the model and its tool, which the stub takes for done: its
    check tells the agent so."""
    amounts = f"tokens {FIRST_TOKENS + number} {200 + 7 * number}"

    def work(text: str) -> str:
        return (
            f'{amounts}; write src/{number}.py "{text}"; stall 1s; run "sleep 0.5"; '
            f'write done-bw-{number}.py "y = 1"'
        )

    text = f"FOO-{number}" if number in ASKS else "work"
    script = f"[[stub: {work(text)}]]"
    if number in ASKS:
        by_tool, by_words = 'question "Which?" FOO BAR', 'say "Outcome: question: FOO or BAR?"'
        script = (
            f"[[stub: {amounts}; {by_words if number % 3 else by_tool}]]"
            f' [[stub when "call it {text}": {work(text)}]]'
            f' [[stub when "Nobody answered": {work("none")}]]'
        )
    if number in IS_REJECTED:
        script += f' [[stub when "use euros": {amounts}; write euros-{number}.py "1"]]'
    script += f' [[stub when "verify failed": {work(text)}]]'
    agent = "codex" if (number // 4 + number // 8) % 2 else "claude"
    labels = [f"agent:{agent}" if number % 3 else ""]
    labels += ["land:ask" if number in AWAITS else ""]
    return {"description": script, "labels": [label for label in labels if label]}


def told(fleet: Fleet, *words: str) -> dict[str, Any]:
    """Run a command with ``--json``."""
    found: dict[str, Any] = json.loads(fleet.call(*words, "--json").stdout)
    return found


def number_of(issue_id: str) -> int:
    """Return the number in the id of an issue."""
    return int(issue_id.rpartition("-")[2])
