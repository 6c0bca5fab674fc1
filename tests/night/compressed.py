"""A compressed night: limits, a late reset, a lost login, overload, and kills; nothing of it costs
an attempt, an issue or a line of work, and in the morning all of it has landed.

Five hours are some seconds here. ``GRACE`` stands for the 30 s that a fleet waits after a reset
(``--reset-grace``), which is the scale of all promises about time.
"""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

from beads_workers.runtime import sessions
from tests.night.figures import Row, Rows
from tests.night.ground import Ground, files_of, ground, say, short, wait_until
from tests.support.bd import NEW
from tests.support.real_agents import git

GRACE = 1.0
SCALE = 30.0 / GRACE
PROBE = 4.0
DISPATCH_MOST = 60.0 / SCALE
"""A minute, as this night counts; beside it STARTS of an agent, which are as long here as they are
by day, and as the machine is busy."""
STARTS = 3
WINDOW = 10.0
"""Seconds of a limit of "five hours"."""
LATE = 5.0
WEEK = 40.0
PATIENCE = 240.0
VERIFY = (
    "for f in src/*.py; do n=${f##*/}; "
    'test ! -e "$f" || test -e "done-bw-${n%.py}.py" || exit 1; done; '
    'test -n "$BW_GATE" || test -e "done-$BW_ISSUE_ID.py"'
)
"""Nothing is half done; in an attempt also that its own issue is, which a gate knows nothing of."""
REFUSED_MOST = {"limit": 1, "login": 2}
"""Requests of one attempt: claude tries a login that was refused once more by itself."""
MODEL_EACH = 10
"""Of so many issues one asks for a model of its own, which a weekly limit closes."""


@dataclass(frozen=True, slots=True)
class Closing:
    """The account was closed by the stub from ``at`` to ``opens`` (epoch seconds)."""

    why: str
    at: float
    opens: float
    late: bool = False


@dataclass(slots=True)
class Night:
    """One fleet after another on one ground; what was done to them."""

    place: Ground
    size: int
    workers: int
    closings: list[Closing] = field(default_factory=list)
    killed: list[int] = field(default_factory=list)
    orchestrators_killed: int = 0

    # --- what is done -------------------------------------------------------------------------

    def begin(self) -> None:
        """As a person does, also after the machine took the last one."""
        options = ("-n", str(self.workers), "--agent", "claude", "--until-empty")
        clocks = ("--reset-grace", f"{GRACE:g}s", "--probe", f"{PROBE:g}s", "--retry-delay", "1s")
        self.place.start(*options, *clocks, "--verify", VERIFY)

    def done(self) -> int:
        """Attempts that were a success."""
        return sum(row["outcome"] == "success" for row in self.place.ends())

    def after(self, share: float) -> bool:
        """Wait until so much of it is done; False where the fleet has ended, or time is over."""
        wanted, fleet = max(1, int(share * self.size)), self.place.fleets[-1]
        wait_until(
            lambda: self.done() >= wanted or fleet.process.poll() is not None,
            PATIENCE,
            f"{wanted} issues are done",
        )
        return fleet.process.poll() is None

    def limit(self, *, late: bool = False) -> None:
        """The account is used up; it opens later than it said where ``late``."""
        self._closed("limit", late=late)

    def login(self) -> None:
        """Nobody is logged in, until a person mends it."""
        self._closed("login", late=False)

    def _closed(self, why: str, *, late: bool) -> None:
        """Close the account, again where nobody has asked before it opened, and wait until the
        fleet has found it open."""
        fleet, closing = self.place.fleets[-1], None
        seen = len(self.place.journal("account_opened"))
        while fleet.process.poll() is None and closing is None:
            tried = self._close(why, late=late)
            say(f"{why}{', whose reset is late' if late else ''}")
            wait_until(partial(self._is_over, tried), PATIENCE, f"an agent meets the {why}")
            closing = tried if self._met(tried) else None
        if closing is not None:
            self.closings.append(closing)
        wait_until(
            lambda: (
                len(self.place.journal("account_opened")) > seen or fleet.process.poll() is not None
            ),
            PATIENCE,
            f"open after {why}",
        )

    def _close(self, why: str, *, late: bool) -> Closing:
        account = self.place.account
        with self.place.api.accounts.lock:
            at = time.time()
            if why == "limit":
                account.close("five_hour", WINDOW, late=LATE if late else 0.0)
                return Closing(why, at, account.opens, late)
            account.lose_login(WINDOW)
            return Closing(why, at, account.login_lost_until)

    def _is_over(self, tried: Closing) -> bool:
        return self._met(tried) or time.time() > tried.opens

    def _met(self, closing: Closing) -> bool:
        requests = self.place.api.requests
        return any(r.outcome == closing.why and r.at >= closing.at for r in requests)

    def kill_agents(self, count: int) -> None:
        """The processes of agents that work now, as the kernel does it without memory."""
        deadline, left = time.monotonic() + 30, count
        while left and time.monotonic() < deadline:
            time.sleep(1.0)
            if (living := self.place.agents()) and self.place.kill_agent(living[0]):
                self.killed.append(living[0])
                left -= 1
        say(f"killed {len(self.killed)} agents by now")

    def kill_orchestrator(self) -> None:
        """And start another one at once."""
        fleet = self.place.fleets[-1]
        wait_until(lambda: len(self.place.agents()) >= 2, 30, "agents work")
        started = sessions.start_time(fleet.pid)
        assert started is not None
        sessions.kill(fleet.pid, started, signal.SIGKILL)
        self.orchestrators_killed += 1
        say("killed the orchestrator")
        fleet.wait()
        self.begin()


STORY: tuple[tuple[float, str], ...] = (
    (0.1, "limit"),
    (0.22, "agents"),
    (0.3, "orchestrator"),
    (0.4, "late"),
    (0.55, "login"),
    (0.65, "agents"),
    (0.75, "limit"),
)


def prove(size: int, folder: Path, *, bd: bool = False) -> list[Row]:
    """The whole story with so many issues; a shorter one where they are few, or on ``bd``."""
    name = f"night{', bd 1.3.0' if bd else ''}"
    with ground(folder, "night-bd" if bd else "night", bd=NEW if bd else "") as place:
        night = Night(place, size, min(8, max(2, size // 3)))
        place.project.create_many(_issues(size))
        place.api.account(place.home.key).close_model("opus", "seven_day_opus", WEEK)
        began = time.time()
        night.begin()
        _tell(night, STORY if size >= 20 else STORY[:1] + STORY[2:3])
        status = place.finish()
        rows = Rows(name)
        rows.count(
            "issues, workers, seconds", f"{size}, {night.workers}, {time.time() - began:.0f}"
        )
        rows.equal("exit status", status, 0)
        for check in _CHECKS:
            check(night, rows)
    return rows.rows


def _tell(night: Night, story: tuple[tuple[float, str], ...]) -> None:
    deeds: dict[str, Callable[[], None]] = {
        "limit": night.limit,
        "late": lambda: night.limit(late=True),
        "login": night.login,
        "agents": lambda: night.kill_agents(2),
        "orchestrator": night.kill_orchestrator,
    }
    for share, what in story:
        if night.after(share):
            deeds[what]()


def _issues(size: int) -> list[dict[str, Any]]:
    """Every third waits for the one before; some meet an overload, some ask for one model."""
    issues = []
    for number in range(1, size + 1):
        issue_id = f"bw-{number}"
        overload = "overload; " if size >= 20 and number % 13 == 5 else ""
        commit = f'commit "Do {number}"; ' if number % 2 else ""
        steps = (
            f'{overload}run leave-mark; stall 1s; write "src/{number}.py" "x = {number}"; '
            f'run leave-mark; stall 1s; write "done-{issue_id}.py" "y = 1"; {commit}'
            'say "It is there."'
        )
        issue: dict[str, Any] = {"description": f"[[stub: {steps}]]"}
        if number % 3 == 0:
            issue["dependencies"] = [
                {
                    "issue_id": issue_id,
                    "depends_on_id": f"bw-{number - 1}",
                    "type": "blocks",
                    "created_at": "2026-01-02T03:04:05Z",
                    "created_by": "tester",
                }
            ]
        if number % MODEL_EACH == 0:
            issue["labels"] = ["model:opus"]
        issues.append(issue)
    return issues


# --- what must hold -------------------------------------------------------------------------------


def _closed_once(night: Night, rows: Rows) -> None:
    statuses = Counter(status for status, _ in night.place.project.read_all().values())
    rows.equal("issues by status", dict(statuses), {"closed": night.size})
    closes = Counter(
        row["issue_id"] for row in night.place.journal("settled") if row["action"] == "close"
    )
    rows.none("issues closed twice", [issue_id for issue_id, n in closes.items() if n > 1])
    before = {f"bw-{n}": f"bw-{n - 1}" for n in range(3, night.size + 1, 3)}
    begun: dict[str, float] = {}
    for row in night.place.journal("started"):
        begun.setdefault(row["issue_id"], row["t"])
    landed = {r["issue_id"]: r["t"] for r in night.place.journal("branch_landed")}
    early = [i for i, b in before.items() if i in begun and begun[i] < landed.get(b, inf)]
    rows.none("issues begun before what they wait for has landed", early, len(before))


def _landed(night: Night, rows: Rows) -> None:
    """By what git says; the journal only tells what it took."""
    place, top = night.place, night.place.project.folder
    main = git(top, "symbolic-ref", "--short", "HEAD")
    tip = f"bw-landing/{main}"
    log = git(top, "log", "--format=%(trailers:key=Issue,valueonly,separator=)", f"{main}..{tip}")
    carried = Counter(line for line in log.splitlines() if line)
    rows.none("issues landed twice", [issue_id for issue_id, n in carried.items() if n > 1])
    there = set(git(top, "ls-tree", "-r", "--name-only", tip).splitlines())
    missing = [
        f"bw-{n}"
        for n in range(1, night.size + 1)
        if not {f"done-bw-{n}.py", f"src/{n}.py"} <= there or f"bw-{n}" not in carried
    ]
    rows.none("closed issues whose work is not on the integration branch", missing, night.size)
    green = {row["tree"] for row in place.journal("gate_ran") if row["state"] == "green"}
    trees = [(r["issue_id"], r["verified"]) for r in place.journal("branch_landed")]
    rows.none(
        "branches landed without a green gate of their tree",
        [issue_id for issue_id, tree in trees if tree and tree not in green],
        len(trees),
    )
    alone = []
    for issue_id, before in ((f"bw-{n}", f"src/{n - 1}.py") for n in range(3, night.size + 1, 3)):
        found = [r for row, r in place.receipts() if row["issue_id"] == issue_id]
        alone += [issue_id for r in found if r.commits and before not in files_of(place, r)]
    rows.none("attempts without the work that their issue waited for", alone)
    gates = Counter(row["state"] for row in place.journal("gate_ran"))
    back = Counter(row["why"] for row in place.journal("landing_ended"))
    rows.count("gates; branches that did not land at once", f"{dict(gates)}; {dict(back)}")


def _receipts(night: Night, rows: Rows) -> None:
    done = {
        row["issue_id"]: receipt
        for row, receipt in night.place.receipts()
        if row["outcome"] == "success"
    }
    wrong = [f"bw-{n}" for n in range(1, night.size + 1) if f"bw-{n}" not in done]
    for issue_id, receipt in done.items():
        files = files_of(night.place, receipt)
        number = issue_id.removeprefix("bw-")
        if not {f"done-{issue_id}.py", f"src/{number}.py"} <= files or not receipt.verified:
            wrong.append(issue_id)
    rows.none("closed issues without a receipt whose commit has the work", wrong, night.size)
    marks = len(night.place.marks.read_text().splitlines())
    rows.none("files that an attempt wrote and that are gone", night.place.lost_work(), marks)
    in_folders = len(night.place.only_in_folders())
    rows.count("files that lie in a kept worktree, and in no ref yet", f"{in_folders} of {marks}")


def _charges(night: Night, rows: Rows) -> None:
    last: dict[str, int] = {}
    killed, others = [], []
    for row in night.place.ends():
        charged = row.get("charged", 0)
        if charged > last.get(row["issue_id"], 0):
            (killed if "signal 9" in row.get("error", "") else others).append(short(row))
        last[row["issue_id"]] = charged
    quarantined = [short(r) for r in night.place.ends() if r["verdict"] == "quarantined"]
    troubles = Counter(row["trouble"] for row in night.place.journal("account_closed"))
    rows.count("accounts closed, by trouble", dict(troubles))
    rows.none("attempts charged to limits, logins, overload, our own death", others)
    rows.count("attempts charged to killed agents", f"{len(killed)} of {len(night.killed)} killed")
    rows.none("issues quarantined", quarantined)


def _requests(night: Night, rows: Rows) -> None:
    """Each attempt asks a closed account once at most, and only canaries go, one at a time."""
    place = night.place
    sessions_of = _sessions(place)
    attempts = _attempts(place)
    for why, most in REFUSED_MOST.items():
        refused = [r for r in place.api.requests if r.outcome == why]
        each = Counter(
            next(
                (
                    row["request_id"]
                    for row, until in attempts
                    if sessions_of.get(row["request_id"]) == request.session
                    and row["t"] <= request.at <= until
                ),
                f"session {request.session}",
            )
            for request in refused
        )
        what = f"attempts with more than {most} requests refused for a {why}"
        rows.none(what, [k for k, n in each.items() if n > most], len(each))
    early, at_restart = [], 0
    closed: dict[str, dict[str, Any]] = {}
    canary = ""
    kinds = ("run_started", "account_closed", "account_opened", "started", "finished")
    for row in place.journal(*kinds):
        model = row.get("model", "")
        match row["e"]:
            case "run_started":
                at_restart += len(closed)
                closed.clear()
                canary = ""
            case "account_closed":
                closed[model], canary = row, ""
            case "account_opened":
                closed.pop(model, None)
                canary = ""
            case "finished":
                canary = "" if row["request_id"] == canary else canary
            case "started" if standing := [closed[m] for m in {"", model} & closed.keys()]:
                early += _too_early(row, max(each["probe_at"] for each in standing), canary)
                canary = row["request_id"]
    rows.none("attempts begun on a closed account before its probe, or beside a canary", early)
    rows.count("accounts that were closed when their orchestrator was killed", at_restart)


def _too_early(row: dict[str, Any], probe_at: float, canary: str) -> list[str]:
    if row["t"] >= probe_at - 0.1 and not canary:
        return []
    return [f"{row['issue_id']} {probe_at - row['t']:.1f} s early, beside {canary or 'none'}"]


def _dispatches(night: Night, rows: Rows) -> None:
    """How long a reset was waited for, where the fleet knew of the limit before it."""
    place = night.place
    attempts = _attempts(place)
    begun = sorted(row["t"] for row, _ in attempts)
    limits = [r for r in place.journal("account_closed") if r["trouble"] == "limited"]
    known = [r["until"] for r in limits if r["until"] > r["t"] and not r.get("model")]
    late = [each.opens for each in night.closings if each.late]
    waits = [next((t - at for t in begun if t >= at), PATIENCE) for at in known]
    start = median(_starts(place))
    rows.count("the start of an agent, to its first request, median", f"{start:.1f} s")
    most = DISPATCH_MOST + STARTS * start
    if waits:
        rows.at_most("first dispatch after a reset", max(waits), most, " s")
    for opens in late:
        under_way = any(row["t"] < opens < until for row, until in attempts)
        wait = 0.0 if under_way else next((t - opens for t in begun if t >= opens), PATIENCE)
        rows.at_most("first dispatch after a late reset", wait, 1.5 * PROBE + most, " s")


def _starts(place: Ground) -> list[float]:
    """From the journal's word that an attempt begins to what its agent asks first; seconds."""
    sessions_of = _sessions(place)
    asked: dict[str, list[float]] = {}
    for request in place.api.requests:
        asked.setdefault(request.session, []).append(request.at)
    return [
        min(at for at in times if at >= row["t"]) - row["t"]
        for row, until in _attempts(place)
        if (times := asked.get(sessions_of.get(row["request_id"], ""), []))
        and any(row["t"] <= at <= until for at in times)
    ]


def _resumed(night: Night, rows: Rows) -> None:
    """The next attempt at an issue goes on with the session of the one before, if claude has it.

    It may begin a new one after that: where a kill undid what the session remembers."""
    sessions_of = _sessions(night.place)
    receipted = {row["request_id"] for row, _ in night.place.receipts()}
    receipted |= {row["request_id"] for row in night.place.journal("usage_found")}
    answered = {r.session for r in night.place.api.requests if r.outcome == "answered"}
    by_issue: dict[str, list[dict[str, Any]]] = {}
    for row in night.place.journal("started"):
        by_issue.setdefault(row["issue_id"], []).append(row)
    lost: dict[bool, list[str]] = {True: [], False: []}
    pairs = {True: 0, False: 0}
    for rows_of in by_issue.values():
        for first, second in pairwise(rows_of):
            session = sessions_of.get(first["request_id"], "")
            if session not in answered or not night.place.has_transcript(session):
                continue
            after = sessions_of.get(second["request_id"], "")
            if not after:
                continue  # It was killed before it could say which one it goes on with.
            told = first["request_id"] in receipted
            pairs[told] += 1
            asked = (r.at for r in night.place.api.requests if r.session == session)
            if after != session and max(asked) < second["t"]:
                name = f"{first['issue_id']}/{first['attempt']}"
                lost[told].append(f"{name}: {session[:8]}, then {after[:8]}")
    rows.none("sessions not gone on with", lost[True], pairs[True])
    new = f"{len(lost[False])} of {pairs[False]}"
    rows.count("new sessions after attempts that nobody has a receipt of", new)


def _leaves_nothing(night: Night, rows: Rows) -> None:
    rows.none("processes left", night.place.processes_left())


_CHECKS = (
    _closed_once,
    _landed,
    _receipts,
    _charges,
    _requests,
    _dispatches,
    _resumed,
    _leaves_nothing,
)


def _attempts(place: Ground) -> list[tuple[dict[str, Any], float]]:
    """Starts of attempts, and until when each went on."""
    ends = {row["request_id"]: row["t"] for row in place.ends()}
    return [
        (row, ends.get(row["request_id"], row["t"] + PATIENCE)) for row in place.journal("started")
    ]


def _sessions(place: Ground) -> dict[str, str]:
    """The session of each attempt, by its request: from its receipt, or the file of its usage."""
    found = {row["request_id"]: receipt.session for row, receipt in place.receipts()}
    for fleet in place.fleets:
        for file in sorted((fleet.run_folder / "usage").glob("*.jsonl")):
            for line in file.read_text().splitlines():
                if isinstance(session := json.loads(line).get("session"), str):
                    found.setdefault(file.stem, session)
    return found
