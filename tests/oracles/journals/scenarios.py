"""The table of histories: what happens in each, with real fleets on real trackers."""

from __future__ import annotations

import os
import signal

from tests.end_to_end.test_foreign import Foreign
from tests.end_to_end.test_trouble import SwitchableBd
from tests.oracles.journals.stage import (
    BD_NEW,
    BD_OLD,
    BUILT_IN,
    HERO,
    QUICK,
    Scenario,
    Stage,
    after,
    stub,
)
from tests.support.fleet import Fleet, until
from tests.support.hero_client import TextbookClient
from tests.support.worktrees import in_worktrees

TWO = ("-n", "2", "--until-empty", *QUICK)
ONE = ("-n", "1", "--until-empty", *QUICK)
HELD = 'touch "$STAGE/began-$BW_ISSUE_ID"; until [ -e "$STAGE/gate" ]; do sleep 0.1; done'
"""A task that waits until the stage lets go."""
WRITE = 'echo "$BW_ISSUE_ID" >"$BW_ISSUE_ID.txt"'
LAND = (*TWO, "--worktree")
SHOP = """\
import os, signal, time
from pathlib import Path

def count(number):
    return {"number": number, "double": 2 * number}

def breaks():
    raise ValueError("no such shop")

def kills_its_worker():
    if not Path("killed").exists():
        Path("killed").touch()
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1000)
"""
PRICES = '[agents.codex.prices]\n"gpt*" = [1.25, 10.0, 0.125]\n'


def shell(script: str) -> tuple[str, ...]:
    """Return the command of a fleet whose tasks run this script."""
    return ("--", "sh", "-c", script)


def worked(fleet: Fleet, verdict: str, count: int) -> None:
    """Wait until so many attempts have ended with this verdict."""
    until(lambda: len([r for r in fleet.journal("finished") if r["verdict"] == verdict]) >= count)


# --- commands ------------------------------------------------------------------------------------


def plain(stage: Stage) -> None:
    """Two workers, six issues, two of which wait for another one."""
    titles = ("Read the header", "Read the table", "Read both", "Write docs", "Fix ünïcode – ☂")
    chain = {3: after(3, 1, 2), 4: after(4, 3)}
    stage.issues(*titles, "Tidy up", each=lambda n: chain.get(n, {}) | {"priority": n % 4})
    stage.run(*TWO, *shell('echo "did $BW_ISSUE_TITLE"; [ $BW_ISSUE_ID != bw-6 ] || sleep 0.5'))


def old_bd(stage: Stage) -> None:
    """Workers claim by themselves; a second attempt mends a failure; verify looks at each."""
    stage.issues(
        "Add a cart", "Add a till", "Add a shop", each=lambda n: after(3, 1) if n == 3 else {}
    )
    script = 'touch "$STAGE/did-$BW_ISSUE_ID"; [ "$BW_ISSUE_ID$BW_ATTEMPT" != bw-21 ] || exit 4'
    verify = 'test -e "$STAGE/did-$BW_ISSUE_ID"'
    stage.run(*TWO, "--bd-calls", "worker", "--verify", verify, *shell(script))


def new_bd(stage: Stage) -> None:
    """An issue is quarantined and holds back another one; a person has it tried again."""
    chain = {2: after(2, 1), 3: {"labels": ["ui"], "priority": 0}}
    stage.issues("Mend the lock", "Use the lock", "Paint it", each=lambda n: chain.get(n, {}))
    script = '[ "$BW_ISSUE_ID" != bw-1 ] || [ -e "$STAGE/gate" ] || { echo no lock; exit 3; }'
    options = (*TWO, "--max-attempts", "2")
    stage.run(*options, *shell(script), status=7)
    stage.run(*options, *shell(script))
    stage.call("retry", "bw-1")
    stage.open()
    stage.run(*options, *shell(script))


def retried(stage: Stage) -> None:
    """A success at the third attempt, a quarantine after three, one that is not found."""
    stage.issues("Flaky", "Broken for good", "Fine", "Waits for the broken one",
                 each=lambda n: after(4, 2) if n == 4 else {})  # fmt: skip
    script = (
        'case "$BW_ISSUE_ID$BW_ATTEMPT" in bw-1[12]) echo "try $BW_ATTEMPT failed" >&2; exit 1;;'
        ' bw-2?) printf "line 1\\nassert 1 == 2\\n"; exit 9;; bw-31) kill -SEGV $$;; esac'
    )
    stage.run(*TWO, *shell(script), status=7)


def timeouts(stage: Stage) -> None:
    """A timeout of the fleet's and one of the issue's own; 75 asks for another try at no cost."""
    stage.issues("Sleeps too long", "Has its own limit", "Comes too early",
                 each=lambda n: {"labels": ["timeout:0.4s"]} if n == 2 else {})  # fmt: skip
    script = (
        'case $BW_ISSUE_ID in bw-3) echo x >>"$STAGE/tries";'
        ' [ $(grep -c x "$STAGE/tries") -ge 3 ] || { echo not yet; exit 75; };; *) sleep 30;; esac'
    )
    limits = ("--timeout", "0.8s", "--term-grace", "0.3s", "--max-attempts", "2")
    stage.run(*TWO, *limits, *shell(script), status=7)


def killed(stage: Stage) -> None:
    """The orchestrator is killed twice; the second time nobody starts a fleet again."""
    stage.issues("Works", "Fails", *(f"Step {n}" for n in range(3, 7)),
                 each=lambda n: {"priority": min(n, 4)})  # fmt: skip
    script = (
        "case $BW_ISSUE_ID$BW_ATTEMPT in bw-1?) exit;; bw-21) echo bad step; exit 1;; esac;"
        f' [ -e "$STAGE/all" ] && exit; {HELD}'
    )
    options = ("-n", "2", "--retry-delay", "3s", "--poll", "0.2s")
    first = stage.start(*options, *shell(script))
    first.wait_for("settled", issue_id="bw-1", action="close")
    until(lambda: len(first.journal("started")) == 4)
    stage.kill(first)
    stage.open("all")
    stage.run(*options, "--limit", "2", *shell(script))
    (stage.folder / "all").unlink()
    third = stage.start(*options, *shell(script))
    until(lambda: len(third.journal("started")) >= 2)
    stage.kill(third)


def killed_worker(stage: Stage) -> None:
    """Workers are killed in their tasks, which others do; an outside one outlives its run."""
    stage.issues("Long", "Kills its worker", "Short")
    first = stage.start("-n", "0", *QUICK, "--", "true")
    foreign = Foreign(stage.folder / "foreign", first)
    try:
        (held,) = foreign.has(1)
        stage.kill(first)
        script = (
            f'case $BW_ISSUE_ID in bw-1) {HELD};; bw-2) [ -e "$STAGE/once" ] ||'
            ' { touch "$STAGE/once"; kill -9 $PPID; sleep 60; };; esac'
        )
        fleet = stage.start(*TWO, "--orphan-grace", "1s", *shell(script))
        fleet.wait_for("inherited", issue_id=held)
        row = fleet.wait_for("started", issue_id="bw-1")
        until(lambda: stage.there("began-bw-1"))
        os.kill(fleet.worker_pid(row["worker_id"]), signal.SIGKILL)
        fleet.wait_for("finished", issue_id="bw-1", outcome="lost")
        stage.open()
        stage.ended(fleet)
    finally:
        foreign.end()


def stopped(stage: Stage) -> None:
    """``stop`` requeues what runs; an issue waits for its next attempt for some seconds."""
    stage.issues("Done at once", "Fails", "Runs", "Runs too", "Not begun")
    script = f"case $BW_ISSUE_ID in bw-1) ;; bw-2) echo bad; exit 1;; *) {HELD};; esac"
    fleet = stage.start("-n", "2", "--retry-delay", "20s", *shell(script))
    until(lambda: stage.there("began-bw-3") and stage.there("began-bw-4"))
    stage.call("stop", "--timeout", "2")
    stage.ended(fleet, 7)


def trouble(stage: Stage) -> None:
    """bd fails under a fleet, and is mended; it fails once more, and the fleet is killed."""
    stage.issues("One", "Two", "Three", "Four")
    switch = SwitchableBd(stage.project, stage.folder / "wrapped")
    stage.project.environment |= switch.environment
    later = HELD.replace("gate", "gate-$BW_ISSUE_ID")
    script = f"case $BW_ISSUE_ID in bw-1|bw-2) {HELD};; *) {later};; esac"
    options = ("-n", "2", *QUICK, *shell(script))
    first = stage.start(*options)
    until(lambda: stage.there("began-bw-1") and stage.there("began-bw-2"))
    switch.say("exit")
    stage.open()
    first.wait_for("source_trouble", failures=3)
    switch.heal()
    first.wait_for("source_recovered")
    until(lambda: stage.there("began-bw-3") and stage.there("began-bw-4"))
    switch.say("exit", "close")
    stage.open("gate-bw-3")
    first.wait_for("settlement_failed", issue_id="bw-3")
    switch.say("exit")
    stage.open("gate-bw-4")
    until(lambda: len(first.journal("finished")) == 4)
    until(lambda: len(first.journal("source_trouble")) > 3)
    stage.kill(first)
    switch.heal()


def person(stage: Stage) -> None:
    """A person pauses, resumes, releases, has it tried again, scales, and ends with --drain."""
    ids = stage.issues("First", "Second", "Third", "Fourth")
    script = HELD.replace("gate", "$BW_ISSUE_ID")
    fleet = stage.start("-n", "2", *QUICK, *shell(script))
    until(lambda: stage.there("began-bw-1") and stage.there("began-bw-2"))
    stage.call("pause")
    stage.call("release", ids[0])
    fleet.wait_for("settled", issue_id=ids[0], action="release")
    stage.call("resume")
    until(lambda: stage.there("began-bw-3"))
    (busy,) = [r["worker_id"] for r in fleet.journal("started") if r["issue_id"] == ids[1]]
    stage.call("pause", busy)
    stage.call("scale", "3")
    until(lambda: stage.there("began-bw-4"))
    stage.call("resume", busy)
    stage.call("retry", ids[0])
    stage.open(ids[2])
    until(lambda: len([r for r in fleet.journal("started") if r["issue_id"] == ids[0]]) == 2)
    stage.project.bd("create", "--id=bw-5", "--title=Not begun")
    stage.call("scale", "-1")
    drain = Fleet(stage.project, "--drain", verb="stop")
    fleet.wait_for("run_changed", state="draining")
    for issue_id in ids:
        stage.open(issue_id)
    assert drain.process.wait(60) == 0
    stage.ended(fleet)


def short(stage: Stage) -> None:
    """Functions that take no time are prefetched; one raises, one kills its worker."""
    (stage.project.folder / "shop.py").write_text(SHOP)
    paths = {20: "shop.breaks", 40: "shop.kills_its_worker"}
    stage.issues(
        *(f"Count {n}" for n in range(1, 61)),
        each=lambda n: (
            {"job_path": paths[n]} if n in paths else {"job_path": "shop.count", "args": [n]}
        ),
    )
    stage.run(*TWO, "--allow-module", "shop", "--max-attempts", "2", status=7)


def hero(stage: Stage) -> None:
    """A client's jobs on a queue of Hero: done, failed, timed out, stopped, with a prerequisite."""
    client = TextbookClient(stage.redis)
    fleet = stage.start(*stage.project.arguments("-n", "2"))
    client.submit("done", "echo hello")
    client.submit("bad", "echo no such shop >&2; exit 3")
    client.submit("slow", "sleep 60", timeout="1")
    client.submit("stopped", "touch there; sleep 60")
    until((stage.project.folder / "there").exists)
    client.stop("stopped")
    client.ended(["done", "bad", "slow", "stopped"])
    client.submit("wrong", "echo", retries="often")
    client.submit("orphan", "echo", prerequisites='["bad"]')
    client.submit("next", "echo next", prerequisites='["done"]')
    client.ended(["wrong", "orphan", "next"])
    stage.call("stop")
    stage.ended(fleet)


# --- landing -------------------------------------------------------------------------------------


def landed(stage: Stage) -> None:
    """Each branch starts from the one before it, passes the gate and lands."""
    stage.repository()
    stage.issues(
        "A", "B after A", "C after B", "D", each=lambda n: after(n, n - 1) if n in (2, 3) else {}
    )
    stage.run(*LAND, "--verify", "ls", *shell(f'ls >"$BW_ISSUE_ID.found"; {WRITE}'))


def landed_red(stage: Stage) -> None:
    """A branch breaks the gate: it does not land and is quarantined, the other two land."""
    stage.repository()
    stage.issues("Good", "Breaks the build", "Good as well")
    verify = "test ! -e bw-2.txt || { echo bw-2 broke the build; exit 1; }"
    stage.run(*LAND, "--max-attempts", "1", "--verify", verify, *shell(WRITE), status=7)


def landed_undone(stage: Stage) -> None:
    """A stopped run's branches are landed by ``land``, one is undone, and done again."""
    stage.repository()
    stage.issues("One", "Two")
    gate = ("--verify", 'until test -e "$STAGE/gate"; do sleep 0.1; done')
    fleet = stage.start(*LAND, *gate, *shell(WRITE))
    worked(fleet, "land", 2)
    stage.call("stop")
    stage.ended(fleet, 7)
    stage.open()
    stage.call("land", "--verify", "ls")
    stage.call("undo", "bw-1", "--verify", "ls")
    stage.run(*LAND, *gate, *shell(WRITE))
    stage.call("undo", "bw-2", "--verify", "ls")


def killed_landing(stage: Stage) -> None:
    """The orchestrator is killed while branches wait to land; the next start lands them."""
    stage.repository()
    stage.issues("One", "Two", "Three", "Four")
    options = (*LAND, "--verify", "sleep 0.3", *shell(WRITE))
    fleet = stage.start(*options)
    worked(fleet, "land", 2)
    stage.kill(fleet)
    stage.run(*options)


# --- agents --------------------------------------------------------------------------------------


def usage_limit(stage: Stage) -> None:
    """The account is closed by a limit for some seconds, then for want of a login."""
    rows = (
        'limit five_hour 8s; write a.py "a"',
        'write b.py "b"',
        'warn 0.93; write c.py "c"',
        'login 1h; write d.py "d"',
    )
    titles = ("Write a", "Write b", "Write c", "Needs a login")
    stage.issues(*titles, each=lambda n: stub(rows[n - 1], priority=n))
    fleet = stage.start("-n", "2", "--agent", "claude", "--until-empty", "--reset-grace", "1s")
    fleet.wait_for("account_closed", trouble="needs_person")
    stage.api.account(stage.home.key).open()
    stage.call("resume")
    stage.ended(fleet)


def money(stage: Stage) -> None:
    """Tokens, money and a budget: a failed check, a question, a refusal."""
    scripts = (
        'tokens 5000 500 2000 300; write a.py "1"]] [[stub when "broken wheel": write wheel.py "2"',
        'tokens 9000 900; write b.py "b"; write wheel.py "3"; say "I made b.py."',
        'ask "Which shop do you mean?"',
        "refuse",
        'tokens 90000 9000; write d.py "d"; write wheel.py "3"',
        'write e.py "e"; write wheel.py "3"',
    )
    titles = ("Mend the wheel", "Write b", "Unclear", "Refused", "Dear", "Too late")
    stage.issues(*titles, each=lambda n: stub(scripts[n - 1], priority=min(n, 4)))
    check = "test -e wheel.py || { echo broken whee''l; false; }"
    options = ("--agent", "claude", "--fix-rounds", "0", "--retry-delay", "0")
    options += ("--budget", "0.3", "--max-attempts", "2", "--skip-base-check", "--no-land")
    stage.run("-n", "1", "--until-empty", *options, "--verify", check, status=7)


def next_agent(stage: Stage) -> None:
    """claude is at its limit and codex takes over; a worker is killed with its agent at work."""
    stage.api.account(stage.home.key).close("seven_day", 86_400)
    scripts = ('write a.py "a"', 'write b.py "b"; run "touch began"; stall 20s; write c.py "c"')
    stage.issues("Write a", "Stalls", each=lambda n: stub(scripts[n - 1]))
    fleet = stage.start("-n", "1", "--agent", "claude,codex", "--until-empty", *QUICK)
    until(lambda: in_worktrees(stage.project, "began"))
    row = [r for r in fleet.journal("started") if r["issue_id"] == "bw-2"][-1]
    os.kill(fleet.worker_pid(row["worker_id"]), signal.SIGKILL)
    fleet.wait_for("finished", issue_id="bw-2", outcome="lost")
    stage.ended(fleet)


def landed_repaired(stage: Stage) -> None:
    """Two branches conflict: the second goes back to its agent, with prices, and lands later."""
    (stage.project.folder / "beads-workers.toml").write_text(PRICES)
    mend = '[[stub when "conflicts stand in": write shop.py "both"; commit "mend"]]'
    scripts = [{"description": f'[[stub: write shop.py "{n}"]] {mend}'} for n in ("one", "two")]
    stage.issues("Shop one", "Shop two", each=lambda n: scripts[n - 1])
    stage.run("-n", "2", "--agent", "codex", "--until-empty")


SCENARIOS: dict[str, Scenario] = {
    "plain": Scenario(BUILT_IN, plain),
    "old_bd": Scenario(BD_OLD, old_bd),
    "new_bd": Scenario(BD_NEW, new_bd),
    "retried": Scenario(BUILT_IN, retried),
    "timeouts": Scenario(BUILT_IN, timeouts),
    "killed": Scenario(BUILT_IN, killed),
    "killed_worker": Scenario(BUILT_IN, killed_worker),
    "stopped": Scenario(BUILT_IN, stopped),
    "trouble": Scenario(BD_OLD, trouble),
    "person": Scenario(BD_NEW, person),
    "short": Scenario(BUILT_IN, short),
    "hero": Scenario(HERO, hero),
    "landed": Scenario(BUILT_IN, landed),
    "landed_red": Scenario(BUILT_IN, landed_red),
    "landed_repaired": Scenario(BUILT_IN, landed_repaired, agents=True),
    "landed_undone": Scenario(BD_OLD, landed_undone),
    "killed_landing": Scenario(BD_NEW, killed_landing),
    "usage_limit": Scenario(BUILT_IN, usage_limit, agents=True),
    "money": Scenario(BUILT_IN, money, agents=True),
    "next_agent": Scenario(BD_NEW, next_agent, agents=True),
}
