"""A whole night: one person, two agents, and some twenty deaths of the orchestrator. In the morning
all is done once, nobody's answer is lost, and every account of the night says the same as the stub.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from beads_workers.core.views.history import FAILURES
from beads_workers.runtime.run_directory import RunDirectory
from beads_workers.worktrees.records import Records
from tests.night.answering import RESUMES
from tests.night.figures import Row, Rows
from tests.night.ground import ground, wait_until
from tests.night.money import SETTINGS
from tests.night.page import end_page, snapshot
from tests.night.person import (
    ASKS,
    AWAITS,
    CODEX,
    FIRST_TOKENS,
    IS_REJECTED,
    PATIENCE,
    Night,
    issue,
    told,
)
from tests.support.agent_projects import AgentProject
from tests.support.real_agents import git

SEED = 46
KILLS_EACH = 20 / 48
SLACK = 3.0
"""Seconds that a record may be late on a busy machine."""
MONEY_OFF, ISSUE_OFF = 0.01, 0.02


def prove(size: int, folder: Path, bd: str = "", kills: int | None = None) -> list[Row]:
    """``size`` issues, and so many deaths: 20 for 48 of them. ``bd``: as of ``Ground``."""
    kills = kills or max(4, round(KILLS_EACH * size))
    with ground(folder, "whole", bd=bd) as place:
        night, rows, began = Night(place, size, Random(SEED)), Rows("whole"), time.time()
        place.settings(SETTINGS + CODEX)
        place.project.create_many([issue(n) for n in range(1, size + 1)])
        try:
            _go_through(night, kills)
            status = _finish(night)
            rows.count("issues, seed, seconds", f"{size}, {SEED}, {time.time() - began:.0f}")
            rows.count("tracker", f"bd {bd}" if bd else "built-in")
            rows.count("killed", dict(night.deaths))
            rows.equal("exit status of the last start", status, 0)
            checks = _done_once, _answered, _approved, _money, _same_counts, _midway, _pauses
            for check in (*checks, _leaves_nothing):
                check(night, rows)
        finally:
            end_page(night.fleet)
    return rows.rows


def _go_through(night: Night, kills: int) -> None:
    night.begin()
    for number in range(kills):
        wanted = int(night.size * number / kills * 0.9)
        wait_until(lambda wanted=wanted: night.goes_on(wanted), PATIENCE, f"{wanted} are done")
        if number == kills // 3:
            night.pause()
        if number == kills // 2:
            night.limit()
        wait_until(lambda: night.goes_on(night.size) or night.place.agents(), 30, "an agent works")
        night.kill(number)


def _finish(night: Night) -> int:
    """Drain with a person at hand, who stops the fleet; its exit status."""
    wait_until(lambda: night.goes_on(night.size), PATIENCE, "all is done")
    night.fleet.call("stop")
    return night.place.finish()


# --- what must hold -------------------------------------------------------------------------------


def _done_once(night: Night, rows: Rows) -> None:
    place, top = night.place, night.place.project.folder
    statuses = Counter(status for status, _ in place.project.read_all().values())
    rows.equal("issues by status", dict(statuses), {"closed": night.size})
    settled = [r for r in place.journal("settled") if r["action"] == "close"]
    closes = Counter(r["issue_id"] for r in settled if r["result"] == "applied")
    rows.none("issues closed twice", [i for i, n in closes.items() if n > 1], night.size)
    form = "--format=%(trailers:key=Issue,valueonly,separator=)"
    log = git(top, "log", form, night.landed_since)
    carried = Counter(line for line in log.splitlines() if line)
    rows.none("issues landed twice", [i for i, n in carried.items() if n > 1], night.size)
    there = set(git(top, "ls-tree", "-r", "--name-only", night.branch).splitlines())
    ids = [(n, f"bw-{n}") for n in range(1, night.size + 1)]
    lost = [i for n, i in ids if not {f"src/{n}.py", f"done-{i}.py"} <= there or i not in carried]
    rows.none("issues whose work has not landed", lost, night.size)


def _answered(night: Night, rows: Rows) -> None:
    asked, place = [n for n in ASKS if n <= night.size], night.place
    ends = {r["request_id"]: r for r in place.ends()}.values()
    questions = [r for r in ends if r["outcome"] == "question"]
    rows.equal("attempts that ended with a question", len(questions), len(asked))
    charged = [r for r in questions if r.get("charged", 0) >= r["attempt"]]
    rows.none("of them charged", charged, len(questions))
    rows.equal("questions answered, each once", len(night.answered), len(asked))
    lost = [f"bw-{n}: {said}" for n in asked if (said := _landed(night, n)) != f"FOO-{n}"]
    rows.none("answers that the work does not follow", lost, len(asked))
    opened = Counter(r["issue_id"] for r in place.journal("answered"))
    rows.none("issues opened twice for one answer", [i for i, n in opened.items() if n > 1])
    sessions = {r["issue_id"]: _session(r) for r in questions}
    ended = {r["issue_id"]: _session(r) for r in ends if r["outcome"] == "success"}
    others = {i: s for i, s in sessions.items() if ended.get(i) != s}
    anew = [f"{i}: {s}, not {ended.get(i)}" for i, s in others.items() if not _was_shut(night, i)]
    rows.none("answers that another session was given", anew, len(asked))
    rows.count(
        "by the other agent, as the account of the one that asked was closed",
        len(others) - len(anew),
    )
    waits = sorted(_waits(night))
    shown = f"{waits[len(waits) // 2]:.1f}; {waits[-1]:.1f}" if waits else "none"
    rows.count(f"seconds to the next attempt, {len(waits)} without a kill: median; most", shown)
    if len(waits) >= SAMPLES and isinstance(place.project, AgentProject):
        rows.at_most("the median of them", waits[len(waits) // 2], RESUMES, " s")


def _was_shut(night: Night, issue_id: str) -> bool:
    """Whether the account of the agent that asked was closed before the last attempt began."""
    of_issue = [r for r in night.place.journal("finished", "started") if r["issue_id"] == issue_id]
    asked = next(r for r in of_issue if r.get("outcome") == "question")
    began = max(r["t"] for r in of_issue if r["e"] == "started")
    closed = [r["t"] for r in night.place.journal("account_closed") if r["agent"] == asked["agent"]]
    return any(asked["t"] < at < began for at in closed)


SAMPLES = 5
"""Answers without a kill behind them, fewer of which show nothing."""


def _waits(night: Night) -> Iterator[float]:
    """Yield the seconds from each answer, or the first worker that was free afterwards, to the
    attempt that is given it, where neither a kill nor a pause came between."""
    stops = [*night.kills, *(began for _, began, _ in night.pauses)]
    rows = night.place.journal("started", "finished")
    for issue_id, at in night.answered.items():
        of_issue = [r for r in rows if r["issue_id"] == issue_id and r["e"] == "started"]
        later = [r for r in of_issue if r["t"] > at - SLACK]
        in_pause = any(began < at < began + seconds for _, began, seconds in night.pauses)
        if not later or in_pause or any(at - SLACK < stop < later[0]["t"] for stop in stops):
            continue
        of_run = [r for r in rows if r["run"] == later[0]["run"]]
        yield max(0.0, later[0]["t"] - _free(of_run, at, night.workers))


def _free(rows: Sequence[dict[str, Any]], at: float, workers: int) -> float:
    """When a worker was free, not before this time. ``rows``: of one run, in order."""
    running, since = 0, at
    for row in rows:
        if row["t"] > at and running < workers:
            break
        running += 1 if row["e"] == "started" else -1
        since = max(at, row["t"])
    return since


def _session(end: dict[str, Any]) -> str:
    return str((end.get("receipt") or {}).get("session", ""))


def _landed(night: Night, number: int) -> str:
    """The text of an issue's file, as it has landed."""
    with suppress(Exception):
        return git(night.place.project.folder, "show", f"{night.branch}:src/{number}.py")
    return "nothing"


def _approved(night: Night, rows: Rows) -> None:
    landings = {r["issue_id"]: r for r in night.place.journal("branch_landed")}
    awaited = [f"bw-{n}" for n in AWAITS if n <= night.size]
    when = {i: row["t"] for i, row in landings.items()}
    early = [i for i in awaited if when.get(i, 0.0) < night.approved.get(i, float("inf"))]
    rows.none("branches landed before they were approved", early, len(awaited))
    wrong = [i for i in awaited if not _is_as_shown(night, i, landings[i]["commit"])]
    rows.none("branches landed otherwise than they were shown", wrong, len(awaited))
    gated = Counter(r["verdict"] for r in night.place.journal("branch_gated"))
    rows.count("gates ahead of approval", dict(gated))
    rejected = [n for n in IS_REJECTED if n <= night.size]
    rows.equal("branches rejected", len(night.rejected), len(rejected))
    there = git(night.place.project.folder, "ls-tree", "--name-only", night.branch)
    wrong = [f"bw-{n}" for n in rejected if f"euros-{n}.py" not in there.splitlines()]
    rows.none("rejected branches that landed as they were", wrong, len(rejected))


def _is_as_shown(night: Night, issue_id: str, landed: str) -> bool:
    """Whether a landed commit changes what a commit changes that the person has approved."""
    top = night.place.project.folder
    made = git(top, "diff", "--no-renames", f"{landed}^", landed)
    for key, commit in night.seen:
        base = git(top, "merge-base", commit, f"{landed}^").strip() if key == issue_id else ""
        if base and git(top, "diff", "--no-renames", base, commit) == made:
            return True
    return False


NOBODYS = "nobody's"


def _money(night: Night, rows: Rows) -> None:
    report = told(night.fleet, "report")
    of_issues = {f"bw-{n}" for n in range(1, night.size + 1)}
    metered: Counter[str] = Counter()
    dearest: Counter[str] = Counter()
    for charge in night.place.api.accounts.charges:
        issue_id = f"bw-{charge.tokens.input - FIRST_TOKENS}"
        if issue_id not in of_issues:
            # The stub answers a prompt that it does not know by amounts of its own.
            issue_id = NOBODYS
        metered[issue_id] += charge.dollars
        dearest[issue_id] = max(dearest[issue_id], charge.dollars)
    said = {i: row["usd"] for i, row in report["money"]["by_issue"].items()}
    nobodys = metered.pop(NOBODYS, 0.0)
    cut = {row["issue_id"]: sum(a["was_cut"] for a in row["attempts"]) for row in report["issues"]}
    unsaid = sum(cut[i] * dearest[i] for i in cut)
    rows.count("of the meter, by no amounts of an issue, dollars", f"{nobodys:.4f}")
    total, ours = sum(metered.values()) + nobodys, report["money"]["spent_usd"]
    rows.count("attempts; of them cut by a kill", f"{len(report['attempts'])}; {sum(cut.values())}")
    rows.equal("the report's count of them", report["money"]["cut_attempts"], sum(cut.values()))
    shown = f"${ours:.4f}, ${total:.4f}: {100 * (ours / total - 1):+.2f} %"
    rows.count("dollars of the report, of the meter", shown)
    rows.count("one call for each cut agent, dollars", f"{unsaid:.4f}")
    off = 100 * max(total - ours - unsaid, ours - total, 0.0) / total
    rows.at_most("the difference beyond one call a cut agent", off, 100 * MONEY_OFF, " %")
    wrong, worst = [], 0.0
    for i, meter in metered.items():
        mine, lacks = said.get(i, 0.0), meter - said.get(i, 0.0)
        beyond = max(lacks - cut.get(i, 0) * dearest[i], -lacks - nobodys) / meter
        worst = max(worst, beyond)
        if beyond > ISSUE_OFF:
            wrong.append(f"{i}: ${mine:.4f}, not ${meter:.4f}, {cut.get(i, 0)} cut")
    rows.count("the worst issue, beyond them", f"{100 * worst:.2f} %")
    rows.none("issues off by more than 2 % and one call a cut agent", wrong, len(metered))
    shown = "at least $" in night.fleet.call("report").stdout
    rows.equal("the report says 'at least'", shown, any(cut.values()))


def _same_counts(night: Night, rows: Rows) -> None:
    """Of each run, of the night, and of the last run, which the page shows."""
    report, runs = told(night.fleet, "report"), told(night.fleet, "runs", "-n", "100")["runs"]
    last, page = told(night.fleet, "status")["last_run"], snapshot(night.fleet)
    pairs = zip(map(_figures, report["runs"]), map(_figures, reversed(runs)), strict=True)
    rows.none(
        "runs of which 'report' and 'runs' differ", [p for p in pairs if p[0] != p[1]], len(runs)
    )
    fates, dollars = report["issues_by_fate"], round(report["money"]["spent_usd"], 3)
    failed = sum(n for o, n in report["attempts_by_outcome"].items() if o in FAILURES)
    of_night = (fates["closed"], failed, fates["quarantined"], dollars)
    rows.count(f"{FIGURES}: 'report'", (*of_night, f"{fates['asked']} questions"))
    waiting = (len(told(night.fleet, "answer")["questions"]), len(last["questions"]))
    rows.equal("questions: 'answer', 'status'", waiting, (fates["asked"],) * 2)
    keys = ("closed", "failed", "quarantined", "spent_usd")
    summed = _rounded(*(sum(run[key] for run in runs) for key in keys))
    rows.equal(f"{FIGURES}: the sum of 'runs'", summed, _rounded(*of_night))
    rows.equal(f"{FIGURES}: 'status'", _figures(last["night"]), _rounded(*of_night))
    totals, queue, money = page["totals"], page["queue"], page["money"]
    shown = (totals["done"], totals["failed"], queue["quarantined"], money["spent_usd"])
    rows.equal(f"{FIGURES}: the page, of the last run", _rounded(*shown), _figures(runs[0]))
    of_page = (queue["questions"], round(money["night"]["spent_usd"], 3))
    rows.equal("questions, dollars of the night: the page", of_page, (fates["asked"], dollars))
    cut = (last["night"]["cut_attempts"], money["night"]["cut_attempts"])
    rows.equal("cut agents: 'status', the page", cut, (report["money"]["cut_attempts"],) * 2)


FIGURES = "closed, failed, quarantined, dollars"


def _figures(run: dict[str, Any]) -> tuple[float, ...]:
    return _rounded(run["closed"], run["failed"], run["quarantined"], run["spent_usd"])


def _rounded(*numbers: float) -> tuple[float, ...]:
    return tuple(round(number, 3) for number in numbers)


def _midway(night: Night, rows: Rows) -> None:
    """The fleet lives, and no agent works: all say the same at once."""
    if not night.midway:
        rows.count("in the middle of the night", "an agent always worked")
        return
    status, page, report = night.midway
    fates, dollars = report["issues_by_fate"], round(report["money"]["spent_usd"], 3)

    def told_live(shown: dict[str, Any]) -> tuple[Any, ...]:
        queue, money = shown["queue"], shown["money"]
        counts = shown["totals"]["done"], shown["totals"]["failed"], queue["quarantined"]
        waiting = queue["questions"], queue["awaiting_approval"]
        ids = [[row["issue_id"] for row in shown[key]] for key in ("questions", "approvals")]
        spent = money["spent_usd"], money["night"]["spent_usd"]
        return (*counts, *waiting, ids, *(round(each, 3) for each in spent))

    rows.equal("in the middle of the night: the page, 'status'", told_live(page), told_live(status))
    of_night = fates["asked"], fates["awaits_approval"], dollars
    shown = page["queue"]["questions"], page["queue"]["awaiting_approval"]
    spent = round(page["money"]["night"]["spent_usd"], 3)
    rows.equal("questions, approvals, dollars: the page, 'report'", (*shown, spent), of_night)


def _pauses(night: Night, rows: Rows) -> None:
    report = told(night.fleet, "report")
    spans = [*(s | {"name": "paused"} for s in report["pauses"]), *report["limits"]]
    lost = []
    for name, began, seconds in night.pauses:
        fits = [
            s
            for s in spans
            if s["name"] == name
            and s["text"]
            and abs(report["began_at"] + s["began"] - began) < SLACK
            and s["ended"] is not None
            and abs(s["ended"] - s["began"] - seconds) < SLACK
        ]
        if not fits:
            lost.append(f"{name} for {seconds:.1f} s")
    rows.none("pauses of the night without name and length", lost, len(night.pauses))
    text = night.fleet.call("report").stdout
    shown = re.findall(r"(paused|claude closed) for ([^:\n]+)", text)
    rows.count("as the report says them", "; ".join(f"{n} for {s}" for n, s in shown))
    missing = [n for n, _, _ in night.pauses if not any(who.startswith(n) for who, _ in shown)]
    rows.none("of them, not in the text", missing)


def _leaves_nothing(night: Night, rows: Rows) -> None:
    place, directory = night.place, RunDirectory(night.fleet.state_directory)
    end_page(night.fleet)
    rows.none("processes left", place.processes_left())
    files = [f.socket for f in place.fleets if f.socket.exists()]
    files += [directory.control_socket] if directory.control_socket.exists() else []
    rows.none("sockets left", files, len(place.fleets))
    alive = [f.run_id for f in place.fleets if directory.is_alive(f.run_id)]
    locked = ["the run directory"] if directory.is_locked() else []
    rows.none("locks held", alive + locked, len(place.fleets))
    shown = git(place.project.folder, "worktree", "list", "--porcelain")
    left = [line for line in shown.splitlines() if line.startswith("worktree ")][1:]
    # Those of the gates stay for the next one, and so do those that are used again.
    again = {f"worktree {r.path}" for r in Records(directory.root).all() if not r.issue_id}
    rows.none(
        "worktrees left beside the gates' and those for the next run",
        [line for line in left if "/bw-gate-" not in line and line not in again],
    )
