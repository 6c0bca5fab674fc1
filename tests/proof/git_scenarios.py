"""What calls git: attempts, worktrees, landing, undo, land, clean, and a fleet of all that.

Each scenario is a small repository that is made once, at one place, and copied back before each
case; ``run`` is what happens while one call of git breaks, and ``look`` finds what came of it.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import shutil
import signal
import subprocess
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from beads_workers.attempts.deliver import deliver
from beads_workers.attempts.run import AgentAttempt, not_begun
from beads_workers.core.base.model import OutcomeKind
from beads_workers.core.base.settings import Landing, LandingRules, Worktrees
from beads_workers.core.records.assignment import AgentSpec, Assignment, AttemptAnswer, Mend
from beads_workers.core.records.landing import Add, Landed, LanderSettings, Refused
from beads_workers.core.records.receipts import Receipt
from beads_workers.runtime import sessions
from beads_workers.worktrees.git import GitError
from beads_workers.worktrees.orders import Preparation
from tests.landing.program import Program
from tests.landing.world import BRANCH, LandingWorld, configure_user
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Called, Fleet, call
from tests.support.mortal_git import MortalProgram
from tests.support.repository import git, make_repository
from tests.support.worktrees import World, ruled, start_preparation

PATIENCE = 40.0
LEAVES_SECONDS = 4.0
ONCE = ("fails", "is killed", "is killed late", "hangs")
MARK = "MORTAL_GIT_TRIAL"


class Scenario:
    """``hows``: the ways in which a call breaks here."""

    hows: ClassVar[tuple[str, ...]] = ONCE

    def __init__(self, folder: Path, mortal: MortalProgram) -> None:
        self.mortal, self.folder = mortal, folder
        self.live, self._copy = folder / "live", folder / "kept"
        folder.mkdir()
        self.live.mkdir()

    def make(self) -> None:
        """The repository as it is found; kept, to be copied back."""
        os.environ["XDG_CACHE_HOME"] = str(self.live / "cache")
        self.build()
        subprocess.run(["cp", "-a", str(self.live), str(self._copy)], check=True)

    def restore(self) -> None:
        """As it was made, at the same place."""
        shutil.rmtree(self.live)
        subprocess.run(["cp", "-a", str(self._copy), str(self.live)], check=True)

    def run(self) -> Any:
        """What happens; no process of it is left. Raises ``AssertionError``."""
        os.environ |= {MARK: str(self.folder), "XDG_CACHE_HOME": str(self.live / "cache")}
        try:
            seen = self.happen()
        finally:
            del os.environ[MARK]
            left = self._end_all()
        assert not left, f"processes were left: {left}"
        return seen

    def _end_all(self) -> list[str]:
        until, mark = time.monotonic() + LEAVES_SECONDS, f"{MARK}={self.folder}"
        while found := sessions.with_variable(mark):
            if time.monotonic() > until:
                break
            time.sleep(0.02)
        names = [Path(f"/proc/{each.pid}/cmdline") for each in found]
        said = [name.read_bytes().replace(b"\0", b" ").decode()[:200] for name in names]
        for each in found:
            sessions.kill(each.pid, each.started, signal.SIGKILL)
        return said

    def build(self) -> None:
        """Make it, in ``live``."""
        raise NotImplementedError

    def happen(self) -> Any:
        """See ``run``."""
        raise NotImplementedError

    def look(self, seen: Any, how: str | None) -> None:
        """``how``: the call broke; None for unbroken. Raises ``AssertionError``."""
        raise NotImplementedError


def forked(act: Callable[[], object], folder: Path, variables: dict[str, str]) -> Any:
    """What it gives, in a process of its own; it must end."""
    read, written = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.chdir(folder)
            os.environ.update(variables)
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)
            os.dup2(1, 2)
            done: object = act()
        except BaseException:
            # Whatever it is, whoever waits for this process hears it.
            done = AssertionError(traceback.format_exc())
        os.write(written, pickle.dumps(done))
        os._exit(0)
    os.close(written)
    told = b""
    try:
        with open(read, "rb", buffering=0) as pipe:
            deadline = time.monotonic() + PATIENCE
            while select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
                if not (data := os.read(pipe.fileno(), 1 << 16)):
                    break
                told += data
            else:
                os.kill(pid, signal.SIGKILL)
                raise AssertionError("it never ended")
    finally:
        os.waitpid(pid, 0)
    found = pickle.loads(told)
    if isinstance(found, AssertionError):
        raise found
    return found


# --- attempts ------------------------------------------------------------------------------------

RESULT = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "ok"}


class Attempt(Scenario):
    """An agent leaves its work uncommitted; whatever breaks once, its work is on its branch."""

    hows = (*ONCE, "says no", "is killed from there on")
    work = "echo 1 >cart.py"
    mends = False
    lands = True

    def build(self) -> None:
        self.checkout = make_repository(self.live / "checkout")
        configure_user(self.checkout, "tester")
        self.base = git(self.checkout, "rev-parse", "HEAD")
        self.worktree = self.live / "worktree"
        git(self.checkout, "worktree", "add", "-q", "-b", "bw/i-1/1", str(self.worktree))
        git(self.checkout, "branch", "other")
        self.tip = self.base
        if self.mends:
            self._land_something()
        agent = self.folder / "agent"
        agent.mkdir()
        text = f'#!/bin/sh\ngit() {{ {self.mortal.real} "$@"; }}\n{self.work}\n'
        (agent / "claude").write_text(f"{text}echo '{json.dumps(RESULT)}'\n")
        (agent / "claude").chmod(0o755)
        path = f"{self.mortal.path}{os.pathsep}{agent}{os.pathsep}{os.environ['PATH']}"
        place = {"BW_WORKTREE": str(self.worktree), "BW_BRANCH": "bw/i-1/1", "BW_BASE": self.base}
        self.variables = {"PATH": path, **place}

    def _land_something(self) -> None:
        other = self.live / "other"
        git(self.checkout, "worktree", "add", "-q", "-b", BRANCH, str(other))
        (other / "landed").write_text("1\n")
        git(other, "add", ".")
        git(other, "commit", "-qm", "landed\n\nVerified: none")
        self.tip = git(other, "rev-parse", "HEAD")
        git(self.checkout, "worktree", "remove", str(other))

    def happen(self) -> AttemptAnswer:
        answer = forked(self._attempt, self.worktree, self.variables)
        assert isinstance(answer, AttemptAnswer)
        return answer

    def _attempt(self) -> AttemptAnswer:
        mend = Mend("conflict", self.tip) if self.mends else None
        asked = Assignment(
            "i-1",
            "A cart",
            {"id": "i-1", "title": "A cart"},
            attempt=1,
            request_id="r.1",
            run_id="r",
            worker_id="W1",
            agent=AgentSpec("claude", "claude"),
            guards=str(self.live / "guards"),
            usage_file=str(self.live / "usage"),
            repair=mend,
        )
        try:
            return AgentAttempt(asked).run()
        except GitError as error:
            return not_begun(asked, error)

    def look(self, seen: AttemptAnswer, how: str | None) -> None:
        head = git(self.checkout, "rev-parse", "bw/i-1/1")
        refs = git(self.checkout, "rev-parse", "main", "other").split()
        assert refs == [self.base] * 2, "a ref moved that is not its own"
        if seen.outcome is OutcomeKind.SUCCESS:
            assert self.lands, seen
            assert seen.receipt.head == head != self.base, seen
            assert seen.receipt.branch == "bw/i-1/1"
            assert "cart.py" in git(self.checkout, "ls-tree", "--name-only", head).split(), seen
            contained = git(self.checkout, "merge-base", "--all", head, self.tip)
            assert contained == self.tip, "what has landed is not in it"
            made = git(self.checkout, "log", "--format=%cn", f"{self.base}..{head}")
            assert {*made.split("\n")} == {"tester"}, made
        elif self.lands:
            # "says no" is an answer, which may be believed; but it says of nothing that it is done.
            told = (how == "says no" and seen.outcome) or seen.outcome is OutcomeKind.RETRY
            assert told and (how or "").endswith(("no", "from there on")), seen
        else:
            kinds = (OutcomeKind.ERROR, OutcomeKind.RETRY)
            assert seen.outcome in kinds, seen
        if self.lands and seen.receipt.session != "" and seen.outcome is not OutcomeKind.SUCCESS:
            self._not_lost()

    def _not_lost(self) -> None:
        there = (self.worktree / "cart.py").exists()
        names = git(self.checkout, "log", "--all", "--name-only", "--format=", "--", "cart.py")
        assert there or names, "its work is lost"


class AttemptThatCommits(Attempt):
    """The agent commits by itself."""

    work = "echo 1 >cart.py; git add cart.py; git commit -qm 'a cart'"


class AttemptElsewhere(Attempt):
    """The agent detaches HEAD, commits there, and leaves something behind."""

    work = f"git checkout -q --detach; {AttemptThatCommits.work}; echo 2 >more.py"


class AttemptOnAnotherBranch(Attempt):
    """The agent checks out another branch, and leaves its work there, uncommitted."""

    work = "git checkout -q other 2>/dev/null; echo 1 >cart.py"


class AttemptThatMends(Attempt):
    """What has landed is merged into its branch first."""

    mends = True


class AttemptWithoutWork(Attempt):
    """The agent changes nothing: that is never a success."""

    work = ":"
    lands = False


class Delivery(Attempt):
    """A command without an agent: what it left is committed."""

    hows = (*ONCE, "is killed from there on")

    def happen(self) -> Any:
        (self.worktree / "cart.py").write_text("1\n")
        answer = forked(self._deliver, self.worktree, self.variables)
        assert isinstance(answer, AttemptAnswer)
        return answer

    def _deliver(self) -> AttemptAnswer:
        asked = Preparation(Worktrees("", "", "", "", "", "", ""), "i-1", 1, "W1", "r", "")
        try:
            return deliver(asked, "A cart")
        except GitError as error:
            return AttemptAnswer(OutcomeKind.RETRY, str(error), Receipt())


class MakesWorktree(Scenario):
    """The PREPARE step: a worktree, or one line; the next one finds nothing in its way."""

    def build(self) -> None:
        self.world = World(self.live)
        configure_user(self.world.top, "tester")
        (self.world.top / ".env").write_text("secret\n")
        self.worktrees = asdict(ruled(self.world.settings, copy=(".env",)))

    def _asked(self) -> str:
        asked = self.world.asked("i-1")
        fields = {name: getattr(asked, name) for name in asked.__slots__}
        return json.dumps({**fields, "worktrees": self.worktrees})

    def _prepare(self) -> tuple[int, str]:
        with (self.folder / "said").open("w+") as said:
            code = start_preparation(self._asked(), said.fileno(), **dict(os.environ)).wait(
                PATIENCE
            )
            said.seek(0)
            return code, said.read()

    def happen(self) -> tuple[int, str]:
        return self._prepare()

    def look(self, seen: tuple[int, str], how: str | None) -> None:
        code, said = seen
        assert code == 0 or (how and said.strip() and "Traceback" not in said), seen
        place = Path(self.world.asked("i-1").place_file)
        assert place.exists() == (code == 0), seen
        if code == 0:
            folder = Path(json.loads(place.read_text())["folder"])
            assert (folder / ".env").exists() and (folder / ".gitignore").exists(), said
            assert git(folder, "status", "--porcelain") == "", said
            assert git(folder, "symbolic-ref", "HEAD") == "refs/heads/bw/i-1/1", said
        else:
            again, said = self._prepare()
            assert again == 0, said
        self.world.end_run()
        kept = self.world.kept()
        assert not kept and not self.world.branches(), (kept, self.world.branches())


# --- landing -------------------------------------------------------------------------------------

CHECK = '#!/bin/sh\n"$REAL_GIT" rev-parse HEAD^{tree} >>"$GATED"\ntest ! -e broken\n'


class Lands(Scenario):
    """Branches wait, and land, as in a lander without any trouble; nobody dies, or is blamed."""

    settings: ClassVar[dict[str, object]] = {"jobs": 1}
    refuses: ClassVar[dict[str, str]] = {}

    def build(self) -> None:
        self.world = LandingWorld(self.live)
        configure_user(self.world.top, "tester")
        self.gated = self.live / "gated"
        (self.world.top / "check").write_text(CHECK)
        (self.world.top / "check").chmod(0o755)
        self.world.main({"check": CHECK, "file": "0\n"})
        self.adds = self.branches()
        os.environ.update({"REAL_GIT": self.mortal.real, "GATED": str(self.gated)})
        self.prepare()
        self.before = self.world.checkout_digest()
        self.main = git(self.world.top, "rev-parse", "main")

    def branches(self) -> list[Add]:
        """What is to land."""
        return [self.world.work(name, {name: "1\n"}) for name in "abc"]

    def prepare(self) -> None:
        """What happened before."""

    def lander(self) -> LanderSettings:
        """Its settings."""
        return self.world.settings("./check", **self.settings)

    def happen(self) -> Program:
        os.environ.update({"REAL_GIT": self.mortal.real, "GATED": str(self.gated)})
        program = Program(self.lander(), *self.adds)
        try:
            names = {add.issue_id for add in self.adds}
            program.until(lambda _: names <= program.landed | program.refused, PATIENCE)
            program.idle()
            self.status = program.end()
        finally:
            if program.process.poll() is None:
                program.kill()
        return program

    def look(self, seen: Program, how: str | None) -> None:
        errors = seen.errors()
        assert self.status == 0 and "Traceback" not in errors, (self.status, errors)
        refusals = seen.of(Refused)
        refused = {each.issue_id: each.why for each in refusals}
        assert refused == self.refuses, (refused, [each.text for each in refusals])
        names = {add.issue_id for add in self.adds} - refused.keys()
        assert seen.landed == names, seen.news[-6:]
        there = self.world.files()
        assert all(self.files(name) <= {*there} for name in names), there
        gated = self.gated.read_text().split()
        top, start = self.world.top, self.world.start
        commits = git(top, "rev-list", "--first-parent", f"{start}..{BRANCH}").split()
        assert git(top, "rev-parse", f"{BRANCH}^{{tree}}") in gated, "its tip was not gated"
        made = git(top, "log", "--format=%cn", f"{start}..{BRANCH}")
        assert {*made.split("\n")} == {"tester"}, made
        told = [news.commit for news in seen.of(Landed)]
        assert all(commit in commits for commit in told), "told, and not on the branch"
        self.untouched()

    def files(self, name: str) -> set[str]:
        """What has landed with it."""
        return {name}

    def untouched(self) -> None:
        """What is the user's."""
        assert self.world.checkout_digest() == self.before, "the user's checkout was touched"
        assert git(self.world.top, "rev-parse", "main") == self.main


class LandsInConflict(Lands):
    """The second one conflicts with the first; both orders of merging are tried."""

    refuses: ClassVar = {"b": "conflict"}

    def branches(self) -> list[Add]:
        work = self.world.work
        one, two = work("a", {"file": "a\n", "a": ""}), work("b", {"file": "b\n", "b": ""})
        return [one, two, work("c", {"c": ""})]


class LandsWithCulprit(Lands):
    """One of them breaks the check."""

    refuses: ClassVar = {"b": "verify"}
    settings: ClassVar = {"jobs": 2}

    def branches(self) -> list[Add]:
        work = self.world.work
        return [work("a", {"a": ""}), work("b", {"b": "", "broken": ""}), work("c", {"c": ""})]


class LandsAgain(LandsWithCulprit):
    """After a restart: one has landed already, a train lies about."""

    def prepare(self) -> None:
        program = Program(self.lander(), self.adds[0])
        program.idle("a")
        assert program.end() == 0
        git(self.world.top, "update-ref", f"refs/bw/train/{self.adds[2].commit}", "main")


class LandsWithMain(Lands):
    """The user has committed to ``main``, which is moved after each landing."""

    settings: ClassVar = {"jobs": 1, "into": "main"}

    def prepare(self) -> None:
        git(self.world.top, "checkout", "-q", "-b", "elsewhere")
        git(self.world.desk, "checkout", "-q", "--detach", "main")
        commit = self.world.commit(self.world.desk, {"by-hand": ""}, "by hand")
        git(self.world.top, "update-ref", "refs/heads/main", commit)

    def untouched(self) -> None:
        assert self.world.checkout_digest() == self.before, "the user's checkout was touched"
        assert "by-hand" in self.world.files()
        moved = git(self.world.top, "merge-base", "main", BRANCH)
        assert moved == git(self.world.top, "rev-parse", "main"), "main is not behind"


class LandsReplayed(Lands):
    """Each commit by itself, and the tracker's own files stay out; one renames a folder."""

    settings: ClassVar = {"jobs": 1, "style": "rebase"}

    def branches(self) -> list[Add]:
        work = self.world.work
        (self.world.top / ".gitattributes").write_text("*.union merge=union\n")
        self.world.main({".gitattributes": "*.union merge=union\n", "list.union": "0\n"})
        found = []
        for name in "ab":
            first = work(name, {name: "1\n", "list.union": f"0\n{name}\n"})
            git(self.world.desk, "checkout", "-q", "--detach", first.commit)
            self.world.commit(self.world.desk, {f"{name}2": "", ".beads/issues.jsonl": name})
            git(self.world.desk, "branch", "-f", first.branch)
            found.append(self.world.added(name, first.base, 1, first.branch))
        return found

    def files(self, name: str) -> set[str]:
        return {name, f"{name}2"}


class LandsAtRemote(Lands):
    """Through a remote, which counts."""

    settings: ClassVar = {"jobs": 1, "remote": "origin"}

    def prepare(self) -> None:
        origin = self.live / "origin.git"
        git(self.live, "clone", "-q", "--bare", str(self.world.top), str(origin))
        git(self.world.top, "remote", "add", "origin", str(origin))

    def untouched(self) -> None:
        super().untouched()
        there = git(self.live / "origin.git", "rev-parse", BRANCH)
        assert there == self.world.tip(), "the remote is elsewhere"


# --- commands ------------------------------------------------------------------------------------

VERIFY = "test -e base.txt"
WORK = 'echo 1 >"$BW_ISSUE_ID"'


class Commands(Scenario):
    """A project with issues, a tracker, and what a fleet has left there."""

    issues = 3
    work = WORK

    def build(self) -> None:
        self.project = EmbeddedProject(self.live)
        self.top = top = self.project.folder
        git(top, "init", "--quiet", "--initial-branch=main")
        configure_user(top, "tester")
        (top / ".gitignore").write_text(".beads-workers/\n.beads/\n.beads.gate.lock\n*.toml\n")
        (top / "base.txt").write_text("one\n")
        git(top, "add", ".")
        git(top, "commit", "--quiet", "-m", "first")
        self.start = git(top, "rev-parse", "HEAD")
        self.project.create_many([{} for _ in range(self.issues)])
        self.names = [f"bw-{number}" for number in range(1, self.issues + 1)]
        self.project.environment |= {k: v for k, v in os.environ.items() if k.startswith("GIT_")}
        self.project.environment |= self.mortal.variables()
        self.prepare()

    def prepare(self) -> None:
        """What happened before."""
        code, said = self.fleet()
        assert code == 0, said

    def fleet(self, *more: str) -> tuple[int, str]:
        """A fleet's exit code, and what it said."""
        pace = ("-n", "1", "--until-empty", "--worktree", "--retry-delay", "0.1s")
        fleet = Fleet(self.project, *pace, "--verify", VERIFY, *more, "--", "sh", "-c", self.work)
        try:
            return fleet.wait(PATIENCE), fleet.said()
        finally:
            fleet.end()

    def call(self, *arguments: str) -> Called:
        """A command, as a person calls it."""
        self.project.environment[MARK] = str(self.folder)
        return call(self.project, *arguments)

    def statuses(self) -> dict[str, str]:
        """What the tracker says."""
        return {str(key): status for key, (status, _) in self.project.read_all().items()}

    def landed(self) -> set[str]:
        """The issues whose work is on the landing branch."""
        done = git(self.top, "ls-tree", "--name-only", f"refs/heads/{BRANCH}", check=False)
        return {*done.split()} & {*self.names}

    def consistent(self) -> None:
        """Nothing is closed without its work on the branch, and no work is lost."""
        closed = {name for name, status in self.statuses().items() if status == "closed"}
        assert closed <= self.landed(), (closed, self.landed())
        there = git(self.top, "log", "--all", "--name-only", "--format=").split()
        assert {*self.worked()} <= {*there}, there
        assert git(self.top, "rev-parse", "main") == self.start
        assert git(self.top, "status", "--porcelain") == ""

    def worked(self) -> list[str]:
        """The issues that have work."""
        return self.names

    def said_well(self, seen: Called, how: str | None) -> None:
        """It went well, or ended with one line."""
        assert "Traceback" not in seen.stderr, seen.stderr
        assert seen.returncode == 0 or (how and seen.stderr.strip()), (seen.stdout, seen.stderr)


class Undoes(Commands):
    """The middle one is taken back, by a commit; what broke, the same once more puts right."""

    undone = "bw-2"

    def happen(self) -> Called:
        return self.call("undo", self.undone)

    def look(self, seen: Called, how: str | None) -> None:
        self.said_well(seen, how)
        on_it = self.undone in self.landed()
        assert seen.returncode or not on_it, seen.stdout
        again = self.call("undo", self.undone)
        if again.returncode:
            assert "nothing of" in again.stderr, again.stderr
        assert self.landed() == {*self.names} - {self.undone}, (seen.stderr, again.stderr)
        wanted = dict.fromkeys(self.names, "closed") | {self.undone: "open"}
        assert self.statuses() == wanted, (seen.stderr, again.stderr)
        self.consistent()


class UndoesLast(Undoes):
    """The last one is taken back: the branch moves back."""

    undone = "bw-3"


class LandsLeft(Commands):
    """``land`` of what a run without landing has left."""

    issues = 2
    work = f'{WORK}; "$REAL_GIT" add .; "$REAL_GIT" commit -qm "$BW_ISSUE_ID"'

    def prepare(self) -> None:
        self.project.environment["REAL_GIT"] = self.mortal.real
        code, said = self.fleet("--no-land")
        assert code == 0, said
        for name in self.names:
            call(self.project, "reopen", name)

    def happen(self) -> Called:
        return self.call("land")

    def look(self, seen: Called, how: str | None) -> None:
        self.said_well(seen, how)
        assert seen.returncode or self.landed() == {*self.names}, (seen.stdout, seen.stderr)
        again = self.call("land")
        assert again.returncode == 0, (seen.stderr, again.stdout, again.stderr)
        assert self.landed() == {*self.names}, (seen.stderr, again.stdout, again.stderr)
        assert {*self.statuses().values()} == {"closed"}, self.statuses()
        self.consistent()


class Cleans(Scenario):
    """``clean`` among worktrees without work, with a commit, with a change, and a gate's."""

    def build(self) -> None:
        self.world = world = World(self.live)
        configure_user(world.top, "tester")
        world.make("empty", worker="W1")
        changed = world.make("changed", worker="W2")
        (changed.folder / "change").write_text("1\n")
        worked = world.make("worked", worker="W3")
        (worked.folder / "work").write_text("1\n")
        git(worked.folder, "add", ".")
        git(worked.folder, "commit", "-qm", "work")
        self.head = git(worked.folder, "rev-parse", "HEAD")
        self.changed = changed.folder
        landing = Landing(
            branch=BRANCH, start=git(world.top, "rev-parse", "main"), rules=LandingRules(jobs=1)
        )
        settings = LanderSettings(landing, world.settings, world.run_id, "true", 1.0)
        add = Add("worked", 1, world.run_id, self.head, landing.start, worked.record.branch)
        program = Program(settings, add)
        program.idle("worked")
        assert program.end() == 0
        git(world.top, "update-ref", f"refs/heads/{BRANCH}", landing.start)
        world.end_run()
        self.refs = self._refs()

    def _refs(self) -> list[str]:
        told = git(self.world.top, "for-each-ref", "--format=%(refname) %(objectname)")
        gone = ("refs/heads/bw/empty/", "refs/bw/train/")
        return [row for row in told.splitlines() if not row.startswith(gone)]

    def happen(self) -> Called:
        return self._clean()

    def _clean(self) -> Called:
        class Here:
            folder = self.world.project
            environment: ClassVar = dict(os.environ)

        here: Any = Here()
        return call(here, "clean", "--state-dir", str(self.world.state))

    def look(self, seen: Called, how: str | None) -> None:
        assert "Traceback" not in seen.stderr, seen.stderr
        assert seen.returncode == 0 or (how and seen.stderr.strip()), (seen.stdout, seen.stderr)
        self._kept()
        again = self._clean()
        assert again.returncode == 0, again.stderr
        self._kept()
        assert self.world.branches() == ["bw/changed/1", "bw/worked/1"], self.world.branches()
        places = git(self.world.top, "worktree", "list", "--porcelain").count("worktree ")
        assert places == 3, (places, seen.stdout, again.stdout)

    def _kept(self) -> None:
        assert (self.changed / "change").exists(), "a change is lost"
        assert self._refs() == self.refs, (self._refs(), self.refs)


class WholeFleet(Commands):
    """A fleet from its start to its end: what it closes has landed, or the next start says so."""

    issues = 2

    def prepare(self) -> None:
        pass

    def happen(self) -> tuple[int, str]:
        self.project.environment[MARK] = str(self.folder)
        return self.fleet()

    def look(self, seen: tuple[int, str], how: str | None) -> None:
        code, said = seen
        assert "Traceback" not in said, said
        assert code == 0 or how, said
        self._closed_has_landed(said)
        if code:
            assert "error: " in said or "next: " in said, said
            again, said = self.fleet()
            assert again == 0, said
        assert {*self.statuses().values()} == {"closed"}, (self.statuses(), said)
        assert self.landed() == {*self.names}, said
        self.consistent()

    def _closed_has_landed(self, said: str) -> None:
        closed = {name for name, status in self.statuses().items() if status == "closed"}
        assert closed <= self.landed(), (closed, said)


SCENARIOS: dict[str, type[Scenario]] = {
    "attempt": Attempt,
    "attempt that commits": AttemptThatCommits,
    "attempt elsewhere": AttemptElsewhere,
    "attempt on another branch": AttemptOnAnotherBranch,
    "attempt that mends": AttemptThatMends,
    "attempt without work": AttemptWithoutWork,
    "delivery": Delivery,
    "worktree": MakesWorktree,
    "landing": Lands,
    "landing in conflict": LandsInConflict,
    "landing with a culprit": LandsWithCulprit,
    "landing after a restart": LandsAgain,
    "landing with main": LandsWithMain,
    "landing replayed": LandsReplayed,
    "landing at a remote": LandsAtRemote,
    "undo": Undoes,
    "undo of the last": UndoesLast,
    "land": LandsLeft,
    "clean": Cleans,
    "fleet": WholeFleet,
}
