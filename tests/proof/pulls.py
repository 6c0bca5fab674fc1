"""Pull requests: an issue is merged and closed once, or says why not, whatever is killed.

    scripts/prove pulls
    python -m tests.proof.pulls [--kills N] [--calls N] [--only gitea|github] [--seed N] [--jobs N]
        [--json] [--progress]

A kill: a fleet works through backlogs like those of the landing bench, as pull requests on a real
Gitea. Some issues conflict, some are red, some are red together, some wait for others; most of
their agents mend that once they are told. A CI of ours judges each commit that is pushed. At random
moments the fleet, a worker, an agent, the lander or Gitea is killed, and started again. At the end
each issue that can be done was merged and closed once, the others say why they are not, and main is
green at each commit. The folder of a backlog that failed is kept.

A call: an issue lives its life, with a red check and a remark, on a real Gitea behind a proxy, or
by the real ``gh`` on a GitHub of ours. At one call to the forge, of git too, the whole fleet is
killed: before the call is carried out, or before it is answered. The next start, or
``beads-workers pr``, brings the issue to its end: opened, answered, merged and closed once.
"""

from __future__ import annotations

import argparse
import http.client
import http.server
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from urllib3.exceptions import HTTPError

from beads_workers.core.base.model import IssueId
from tests.integrations.forge.pull_projects import (
    APPROVED,
    CHANGES,
    GiteaPullProject,
    GitHubPullProject,
    PullProject,
    Seen,
)
from tests.integrations.forge.tracker import LOGIN, server
from tests.landing import truth
from tests.proof.forge import Killed, Told, _below, kills
from tests.support import github
from tests.support.fleet import Fleet, call, until
from tests.support.gitea import Gitea
from tests.support.processes import alive, command, send
from tests.support.repository import git

KILLS, CALLS = 100, 156
KINDS = {"github": GitHubPullProject, "gitea": GiteaPullProject}
JOBS = 6
"""Lives side by side: they mostly wait."""
ISSUES, WAITS_SHARE, STUBBORN_SHARE = 60, 0.1, 0.25
LOOK_SECONDS = 0.3
NEAR_SECONDS = 2.0
"""An attempt that ended so long before a kill, or began so long after it, may be hit by it."""
LIFE_SECONDS = 150.0
STARTS_MAX = 6
THERE_CALLS = 6
"""Calls by which a fleet ends a pull request whose work is on main already."""
REPAIRS = 6
"""One issue may conflict with several others, one after the other."""

AGENT = """\
#!/bin/sh
prompt=$(cat)
[ "$2" = continue ] && session=$3 || session="$BW_ISSUE_ID-$(date +%s%N)"
printf '{{"type":"system","subtype":"init","session_id":"%s"}}\\n' "$session"
said() {{ echo "$1 $BW_ISSUE_ID $session $(date +%s.%N)" >>"{hands}/log"; }}
exec 9>>"{hands}/$BW_ISSUE_ID.lock"
flock -n 9 || said twice
said begin
{work}
said end
printf '{{"type":"result","subtype":"success","result":"Outcome: done"}}\\n'
"""
"""An agent with sessions, in the form of amp's."""


def use(project: PullProject, work: str, hands: Path, **forge: Any) -> str:
    """Write the settings of a project whose agents do this work; return their script."""
    project.settings(merge="checks", **forge)
    agent, file = project.folder.parent / "agent", project.folder / "beads-workers.toml"
    agent.touch(0o755)
    own = f'[agents.own]\nadapter = "amp"\nargv = ["{agent}"]\n'
    rest = file.read_text().partition("[landing]\n")[2]
    file.write_text(f"{own}[landing]\nrepairs = {REPAIRS}\n{rest}")
    return AGENT.format(hands=hands, work=work)


@contextmanager
def attended(look: Callable[[], None]) -> Iterator[None]:
    """People and CI look again and again, while this lasts; not while Gitea is down."""
    over = threading.Event()

    def attend() -> None:
        while not over.wait(LOOK_SECONDS):
            with suppress(AssertionError, HTTPError, subprocess.CalledProcessError):
                look()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(attend)
        try:
            yield
        finally:
            over.set()
        done.result()


def journalled(fleet: Fleet, kind: str) -> list[dict[str, Any]]:
    """Return the records of a fleet that may have been killed before it wrote any."""
    is_there = "ok fleet" in fleet.errors and (fleet.run_folder / "journal.jsonl").exists()
    return fleet.journal(kind) if is_there else []


def closes(fleet: Fleet) -> list[str]:
    """Return the issues that a fleet has closed."""
    found = journalled(fleet, "settled")
    done = [e for e in found if (e["action"], e["result"]) == ("close", "applied")]
    return [str(each["issue_id"]) for each in done]


class Eyes:
    """A clone by which people and CI look at a repository."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder, self._url = folder / "eyes", url
        git(folder, "init", "-q", "--bare", "-b", "main", str(self._folder))

    def look(self) -> None:
        """Fetch what is new."""
        self.git("fetch", "-q", "--prune", self._url, "+refs/heads/*:refs/heads/*")

    def git(self, *words: str, check: bool = True) -> str:
        return git(self._folder, *words, check=check)

    def names(self, tree: str) -> list[str]:
        """Return the files of a commit or a tree."""
        return self.git("ls-tree", "-r", "--name-only", tree).split()

    def merged(self, commit: str) -> str:
        """Return the tree of a commit together with main, or its own if it does not merge."""
        found = self.git("merge-tree", "--write-tree", "main", commit, check=False).split("\n")
        return found[0] if len(found) == 1 else commit

    def mainline(self) -> list[str]:
        """Return the commits of main, the newest first."""
        return self.git("rev-list", "--first-parent", "main").split()

    def landings(self, name: str) -> int:
        """Return how many commits of main have changed a file."""
        return len(self.git("log", "--first-parent", "--format=%h", "main", "--", name).split())


# --- a backlog of which something is killed ------------------------------------------------------

WORK = """\
. "{hands}/$BW_ISSUE_ID.traits"
if [ "$needs" ] && [ ! -e "w$needs" ]; then said early; fi
told() {{ case $prompt in *"What has landed"*) : >"{hands}/$BW_ISSUE_ID.told" ;; esac; }}
told
sleep 0.$((${{BW_ISSUE_ID#bw-}} * 7 % 10))
if [ ! "$stubborn" ] || [ ! -e "{hands}/$BW_ISSUE_ID.told" ]; then
    for name in $(git diff --name-only --diff-filter=U); do
        grep -v '^[<=>]\\{{7\\}}' "$name" | sort -uo "$name.new" && mv "$name.new" "$name"
    done
    mkdir -p shared broken
    for pair in $shared; do
        echo "$BW_ISSUE_ID" >>"shared/$pair"
        sort -uo "shared/$pair" "shared/$pair"
    done
    rm -f "broken/$BW_ISSUE_ID"
    if [ "$broken" ] && [ ! -e "{hands}/$BW_ISSUE_ID.told" ]; then : >"broken/$BW_ISSUE_ID"; fi
    for pair in $half; do
        mkdir -p "half/$pair"
        : >"half/$pair/$BW_ISSUE_ID"
        [ "$stubborn" ] || [ "$(ls "half/$pair" | wc -l)" = 1 ] || : >"half/$pair/fits"
    done
    echo "$BW_ISSUE_ID" >"w$BW_ISSUE_ID"
fi
git add . 9>&-
git commit -qm "work on $BW_ISSUE_ID" 9>&-
sleep 0.3"""
"""What it leaves is told by names of files; the stubborn do nothing once they are told."""
VERIFY = """\
for pair in half/*/; do
    [ "$(ls "$pair" | wc -l)" != 2 ] || [ -e "$pair/fits" ] || exit 1
done"""
"""Our own gate sees less than CI: halves, and nothing that is broken."""


def red(names: Sequence[str]) -> str:
    """Return what CI finds wrong with the files of a tree; "" if nothing."""
    halves = Counter(name.rpartition("/")[0] for name in names if name.startswith("half/"))
    apart = [pair for pair, n in halves.items() if n == 2 and f"{pair}/fits" not in names]
    return ", ".join([*apart, *(name for name in names if name.startswith("broken/"))])


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an issue. ``hits``: kills that may have hit an attempt of it."""

    status: str
    # States of its pull requests, the oldest first; ``there``: closed, its work was on main.
    pulls: tuple[str, ...]
    # Commits of main that have its work.
    landings: int
    why: str = ""
    charged: int = 0
    sessions: int = 1
    hits: int = 0
    # It is not mended, or waits for one that is not.
    may_stay: bool = False
    # How often it was closed, the remark on it answered, and its agent told of the remark.
    closes: int = 1
    answers: int = 1
    rounds: int = 1


def unfit(seen: Outcome) -> Iterator[str]:
    """Yield what does not hold of an issue at the end."""
    merged = seen.pulls.count("merged")
    if seen.status == "closed":
        if merged + seen.pulls.count("there") != 1 or merged > 1:
            yield f"it is closed, and its pull requests are {seen.pulls}"
        if "open" in seen.pulls:
            yield "it is closed, and a pull request of it is open"
    else:
        if not seen.may_stay:
            yield f"it is {seen.status}, and could be done: {seen.why}"
        if not seen.why:
            yield f"it is {seen.status}, and nothing says why"
        if merged:
            yield f"it is {seen.status}, and was merged"
    if seen.landings != (seen.status == "closed"):
        yield f"it is {seen.status}, and {seen.landings} commits of main have its work"
    if seen.pulls.count("open") > 1:
        yield f"{seen.pulls.count('open')} pull requests of it are open"
    if seen.closes > 1:
        yield f"it was closed {seen.closes} times"
    if not (1 <= seen.answers <= 2 and 1 <= seen.rounds <= 2):
        yield f"its agent was told {seen.rounds} times, and {seen.answers} comments answer"
    if not seen.may_stay and seen.charged > seen.hits:
        yield f"{seen.charged} attempts are charged, and {seen.hits} kills hit it"
    if not seen.may_stay and seen.sessions > 1 + seen.hits:
        yield f"{seen.sessions} sessions worked on it, and {seen.hits} kills hit it"


class PullBacklog(Killed):
    """The backlog of the landing bench, as pull requests on the real Gitea."""

    targets: Mapping[str, int] = {"fleet": 3, "worker": 3, "agent": 3, "lander": 3, "gitea": 2}
    apart_seconds = (0.5, 5.0)
    last_seconds = 900.0
    ends_with = (0, 7)

    def __init__(self, folder: Path, seed: int, issues: int) -> None:
        super().__init__(folder, seed)
        self.project = project = GiteaPullProject(folder)
        self.keys = [f"bw-{number}" for number in range(1, issues + 1)]
        self._eyes, self._known = Eyes(folder, project.url), set[str]()
        self._needs, self._stubborn = dict[str, str](), set[str]()
        self._attempts, self._closes = Counter[str](), Counter[str]()
        self._struck = list[tuple[float, float]]()
        self._plan(Random(seed))
        (project.folder / "base").write_text("the user's own\n")
        git(project.folder, "add", "base")
        git(project.folder, "branch", "mine")
        self._script = use(project, WORK.format(hands=self._hands), self._hands, open_max=10)
        self._before = self._own()

    def _plan(self, chance: Random) -> None:
        """Write down what each agent does, and make the issues."""
        made = truth.fleet(chance, len(self.keys))
        names = dict(zip(made.keys, self.keys, strict=True))
        traits = {key: {"shared": list[str](), "half": list[str]()} for key in self.keys}
        for kind, pairs in (("shared", made.textual), ("half", made.semantic)):
            for pair in sorted(sorted(names[each] for each in pair) for pair in pairs):
                for key in pair:
                    traits[key][kind].append("-with-".join(pair))
        broken = {names[each] for each in made.broken}
        bad = sorted(broken | {key for key, of in traits.items() if of["shared"] or of["half"]})
        self._stubborn = {*chance.sample(bad, round(len(bad) * STUBBORN_SHARE))}
        late = chance.sample(self.keys[1:], round(len(self.keys) * WAITS_SHARE))
        for key in late:
            self._needs[key] = f"bw-{chance.randrange(1, int(key[3:]))}"
        rows = list[dict[str, Any]]()
        for key in self.keys:
            needs = self._needs.get(key, "")
            told = {name: " ".join(pairs) for name, pairs in traits[key].items()}
            told |= {"broken": "1" * (key in broken), "stubborn": "1" * (key in self._stubborn)}
            lines = [f"{name}='{text}'\n" for name, text in {**told, "needs": needs}.items()]
            (self._hands / f"{key}.traits").write_text("".join(lines))
            waits = {"issue_id": key, "depends_on_id": needs, "type": "blocks"}
            rows.append({"title": key, "dependencies": [waits] if needs else []})
        self.project.create_many(rows)

    def _own(self) -> dict[str, str]:
        """Return what is the user's, and stays as it is."""
        folder = self.project.folder
        branches = git(folder, "for-each-ref", "refs/heads").split("\n")
        kept = [each for each in branches if "refs/heads/bw" not in each]
        asked = (
            ("rev-parse", "HEAD"),
            ("status", "--porcelain"),
            ("ls-files", "-s"),
            ("stash", "list"),
        )
        return {"branches": "\n".join(kept), **{" ".join(a): git(folder, *a) for a in asked}}

    def unfold(self, kills: int, told: Told) -> None:
        """See ``Killed``; CI looks on."""
        with attended(self._check):
            super().unfold(kills, told)

    def _start_fleet(self) -> Fleet:
        words = ("-n", "3", "--max-attempts", "6", "--retry-delay", "0.2")
        return self.project.start(*words, work=self._script, verify=VERIFY)

    def _open(self) -> int:
        found = self.project.read_all().values()
        return sum(state != "closed" for state, _ in found) - len(self._stubborn)

    def _is_agent(self, said: Sequence[str]) -> bool:
        return said[0] == "/bin/sh" and said[1].endswith("/agent")

    def _kill(self) -> str:
        began = time.time()
        what = super()._kill()
        if what not in ("", "gitea", "lander"):
            self._struck.append((began - NEAR_SECONDS, time.time() + NEAR_SECONDS))
        return what

    def _over(self, how: str) -> None:
        super()._over(how)
        fleet = self._fleets[-1]
        self._closes.update(closes(fleet))
        for each in journalled(fleet, "started"):
            key = each["issue_id"]
            self._attempts[key] = max(self._attempts[key], each["attempt"])
        for each in journalled(fleet, "landing_ended"):
            if why := each.get("why"):
                self.figures[f"branches sent back or set aside for {why}"] += 1

    # --- CI -----------------------------------------------------------------------------------

    def _rows(self, state: str) -> list[dict[str, Any]]:
        page, rows = 1, list[dict[str, Any]]()
        while found := self.project.ask("GET", f"/pulls?state={state}&limit=50&page={page}"):
            rows, page = [*rows, *found], page + 1
        return sorted(rows, key=lambda row: int(row["number"]))

    def _check(self) -> None:
        """Judge each commit that is new, together with main as it is."""
        rows = self._rows("open")
        for head, count in Counter(row["head"]["label"] for row in rows).items():
            if count > 1:
                self.broken.append(f"{count} pull requests of {head} were open at once")
        self._eyes.look()
        for row in rows:
            if (commit := row["head"]["sha"]) not in self._known:
                found = red(self._eyes.names(self._eyes.merged(commit)))
                self.project.check(Seen(row["number"], "open", commit), green=not found)
                self._known.add(commit)
                self.figures["red checks" if found else "green checks"] += 1

    # --- what must hold -----------------------------------------------------------------------

    def judged(self) -> Iterator[str]:
        """Yield what does not hold once all is done."""
        yield from self.broken
        self._eyes.look()
        for commit in self._eyes.mainline():
            if found := red(self._eyes.names(commit)):
                yield f"main is red at {commit[:12]}: {found}"
        for what, now in self._own().items():
            if now != self._before[what]:
                yield f"the user's {what} was {self._before[what]!r}, and is {now!r}"
        log = [line.split() for line in (self._hands / "log").read_text().splitlines()]
        yield from (
            f"{words[1]} began {words[0]}" for words in log if words[0] in ("twice", "early")
        )
        rows, states = self._rows("all"), self.project.read_all()
        refs = git(self.project.folder, "for-each-ref", "--format=%(refname)", "refs/bw/pulls")
        for key in map(IssueId, self.keys):
            seen = self._outcome(key, states[key][0], rows, log)
            yield from (f"{key}: {each}" for each in unfit(seen))
            if seen.status == "closed" and f"/{key}/" in refs:
                yield f"{key}: it is closed, and refs of its pull request are left"
            reason = seen.why.partition("\n")[2].strip().partition(":")[0]
            self.figures[f"issues that are {seen.status}{reason and f', {reason}'}"] += 1
            self.figures["attempts charged"] += seen.charged
            self.figures["pull requests"] += len(seen.pulls)
            self.figures["pull requests merged unknowingly"] += seen.pulls.count("there")
        self.figures["calls to the API"] += len(self.project.requests())
        left = self._eyes.git("for-each-ref", "refs/heads/bw/*/pr").splitlines()
        self.figures["branches left on the forge"] += len(left)

    def _outcome(
        self, key: IssueId, status: str, rows: list[dict[str, Any]], log: list[list[str]]
    ) -> Outcome:
        states = list[str]()
        for row in rows:
            if row["head"]["label"] == f"bw/{key}/pr":
                said = "\n".join(each["body"] for each in self.project.at.comments(row["number"]))
                is_there = "Its work is on main already." in said
                closed = "there" if is_there else row["state"]
                states.append("merged" if row["merged"] else closed)
        of_it = [(words[0], float(words[3]), words[2]) for words in log if words[1] == key]
        tries = [
            (at, next((t for _, t, _ in of_it if t > at), at + LIFE_SECONDS))
            for what, at, _ in of_it
            if what == "begin"
        ]
        hits = sum(
            any(at < until and end > since for at, end in tries) for since, until in self._struck
        )
        why = "" if status == "closed" else call(self.project, "why", key).stdout.strip()
        stays, needed = key in self._stubborn, self._needs.get(key, "")
        while needed and not stays:
            stays, needed = needed in self._stubborn, self._needs.get(needed, "")
        return Outcome(
            status,
            tuple(states),
            self._eyes.landings(f"w{key}"),
            why.partition("\n\n")[2],
            max(0, self._attempts[key] - 1),
            len({session for _, _, session in of_it}),
            hits,
            stays,
            self._closes[key],
        )


# --- a kill at each call -------------------------------------------------------------------------

LIFE = """\
case $prompt in *German*) word=german ;; *"What has landed"*) word=mended ;; *) word=first ;; esac
echo "$word" >>"w$BW_ISSUE_ID"
git add . 9>&-
git commit -qm "$word" 9>&-"""


class Proxy(http.server.ThreadingHTTPServer):
    """What stands before a Gitea. ``heard`` is told of each request, before it is carried out and
    before it is answered, and returns whether to hang up instead."""

    daemon_threads = True

    def __init__(self, gitea: Gitea, heard: Callable[[str, bool], bool]) -> None:
        super().__init__(("127.0.0.1", 0), _Between)
        self.port, self.heard = gitea.port, heard
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The other side was killed."""


class _Between(http.server.BaseHTTPRequestHandler):
    server: Proxy

    def _serve(self) -> None:
        path = self.path.replace("/api/v1", "").partition("?")
        said = f"{self.command} {path[0]}"
        if "service=" in path[2]:
            said += f" {path[2]}"
        assert "Transfer-Encoding" not in self.headers
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.server.heard(said, False):
            return
        there = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        there.request(self.command, self.path, body, dict(self.headers))
        reply = there.getresponse()
        data = reply.read()
        there.close()
        if self.server.heard(said, True):
            return
        self.send_response_only(reply.status)
        for name, text in reply.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, text)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _serve

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


MENDED, THERE = ("red", "remark"), ("there",)
"""What people and CI do in a life: the second is found on main already, as after a merge of which
nobody was told."""


@dataclass(frozen=True, slots=True)
class Point:
    """Where a life is struck: at this call, counted from 1, from the first one with ``since`` on;
    ``late``: once it was carried out. At 0 nothing is struck. ``by_pr``: the next start is ``pr``,
    if nothing but a merge is left."""

    at: int = 0
    late: bool = False
    by_pr: bool = False
    plan: tuple[str, ...] = MENDED
    since: str = ""


class Life:
    """One issue from its beginning to its end. ``calls``: to the forge, by its fleets."""

    def __init__(self, kind: str, folder: Path, point: Point, look: str) -> None:
        self.project = project = KINDS[kind](folder)
        self._point, self._plan, self._hands = point, point.plan, folder / "hands"
        self._hands.mkdir()
        self._eyes, self._known = Eyes(folder, project.url), set[str]()
        self._lock = threading.Lock()
        if isinstance(project, GiteaPullProject):
            proxy = Proxy(project.at.server, self._heard)
            address = f"http://127.0.0.1:{proxy.server_port}/{project.at.owner}/{project.at.name}"
            git(project.folder, "remote", "set-url", "origin", address)
            self.close = proxy.shutdown
        elif isinstance(project, GitHubPullProject):
            project.server.asks = lambda said: self._hang_up(said, False)
            project.server.heard = lambda it: self._hang_up(f"{it.method} {it.path}", True)
            self.close = project.server.shutdown
        self._script = use(project, LIFE, self._hands, look=look)
        project.create_many([{"title": "one"}])
        self.calls, self.story, self.broken = list[str](), list[str](), list[str]()
        self._fleet: Fleet | None = None
        self._remarked = self._approved = False
        self._at = self.struck = self.by_pr = 0
        self._pids = list[int]()
        self.attempts, self.closes = 1, 0

    # --- what is struck -----------------------------------------------------------------------

    def _heard(self, said: str, is_done: bool) -> bool:
        with self._lock:
            if not is_done:
                self.calls.append(said)
                self._at += bool(self._at or self._point.since in said)
            here = self._at == self._point.at and is_done == self._point.late
            if self.struck or not here:
                return False
            self.struck = len(self.calls)
            self.story.append(f"KILL {'after' if is_done else 'before'} call {self.struck}: {said}")
            fleet = self._fleet
            assert fleet is not None
            pids = [fleet.process.pid]
            if "ok fleet" in fleet.errors:
                pids += [fleet.pid, *fleet.token_holders()]
            self._pids = _below(pids)
            send(self._pids, signal.SIGKILL)
            return True

    def _hang_up(self, said: str, is_done: bool) -> None:
        if self._heard(said, is_done):
            raise ConnectionAbortedError

    # --- what happens -------------------------------------------------------------------------

    def lived(self) -> Outcome:
        """Let it live; return what became of it."""
        project = self.project
        with attended(self._attend):
            self._run()
            for _ in range(STARTS_MAX):
                if project.is_closed("bw-1"):
                    break
                if self._point.by_pr and self._approved and not self.by_pr:
                    self._pass()
                else:
                    self._run()
        return self._seen()

    def _run(self) -> None:
        self._fleet = fleet = self.project.start(work=self._script)
        code = fleet.process.wait(LIFE_SECONDS)
        if self._pids:
            pids, self._pids = self._pids, []
            until(lambda: not any(map(alive, pids)), 10.0, f"left: {[*map(command, pids)]}")
        self.story.append(f"start: {code}")
        found = (int(each["attempt"]) for each in journalled(fleet, "started"))
        self.attempts = max(self.attempts, *found, 1)
        self.closes += len(closes(fleet))
        fleet.end()

    def _pass(self) -> None:
        """Have ``pr`` merge and close it."""
        for self.by_pr in range(1, STARTS_MAX):
            done = call(self.project, "pr", "--trust")
            self.story.append(f"pr: {done.returncode} {done.stdout.strip()} {done.stderr.strip()}")
            if self.project.is_closed("bw-1"):
                return

    def _attend(self) -> None:
        """CI and a writer judge what is new, as they planned to."""
        project = self.project
        self._eyes.look()
        for seen in project.pulls():
            if seen.state != "open" or seen.commit in self._known:
                continue
            words = self._eyes.git("show", f"{seen.commit}:wbw-1").split()
            is_green = "red" not in self._plan or "mended" in words
            if is_green and "remark" in self._plan and not self._remarked:
                project.review(seen, CHANGES, "say it in German")
                self._remarked = True
            elif "there" in self._plan:
                self._eyes.git("push", "-q", project.url, f"{seen.commit}:refs/heads/main")
            elif is_green and "german" in words and not self._approved:
                project.review(seen, APPROVED, "")
                self._approved = True
            project.check(seen, green=is_green)
            self._known.add(seen.commit)

    # --- what became of it --------------------------------------------------------------------

    def _seen(self) -> Outcome:
        project = self.project
        self._eyes.look()
        pulls = project.pulls()
        said = [text for each in pulls for text in project.comments(each)]
        is_there = any("Its work is on main already." in text for text in said)
        states = ["there" if e.state == "closed" and is_there else e.state for e in pulls]
        words = self._eyes.git("show", "main:wbw-1", check=False).split()
        log = (self._hands / "log").read_text().splitlines()
        begun = sum(line.startswith("begin") for line in log)
        unended = begun - sum(line.startswith("end") for line in log)
        is_closed = project.is_closed("bw-1")
        answers = sum("answers this" in text for text in said)
        outcome = Outcome(
            project.state_of("bw-1"),
            tuple(states),
            self._eyes.landings("wbw-1"),
            "" if is_closed else call(project, "why", "bw-1").stdout,
            self.attempts - 1,
            len({line.split()[2] for line in log}),
            unended,
            closes=self.closes,
        )
        if "remark" in self._plan:
            outcome = replace(outcome, answers=answers, rounds=words.count("german"))
        self.broken += unfit(outcome)
        if len(pulls) != 1:
            self.broken.append(f"{len(pulls)} pull requests were opened")
        return outcome


@contextmanager
def living(kind: str, point: Point, look: str = "1s") -> Iterator[Life]:
    """Prepare a life in a folder of its own, which is kept if it does not hold."""
    folder = Path(tempfile.mkdtemp(prefix="beads-workers-pulls-"))
    life = Life(kind, folder, point, look)
    try:
        yield life
    finally:
        life.close()
    if not life.broken:
        shutil.rmtree(folder, ignore_errors=True)


def strike(kind: str, point: Point) -> tuple[list[str], Counter[str]]:
    """Live one life; return what does not hold, and figures."""
    name = f"{kind}, {'after' if point.late else 'before'} call {point.at} {point.since}"
    with living(kind, point) as life:
        try:
            seen = life.lived()
        except Exception as error:  # It is told; the others go on.
            traceback.print_exc()
            life.broken.append(f"{type(error).__name__}: {error}")
            return [f"{name}: {each}" for each in life.broken], Counter()
        if life.broken:
            lines = [f"--- {name} in {life.project.folder.parent}: {life.broken}", *life.story]
            sys.stderr.write("\n".join([*lines, ""]))
        what = "before a call" if not point.late else "after a call"
        figures = Counter({f"kills {what} to {kind}": int(bool(life.struck))})
        figures["lives that ended before the call"] += not life.struck
        figures["lives ended by pr"] += bool(life.by_pr)
        figures["passes of pr"] += life.by_pr
        figures["remarks answered twice"] += seen.answers > 1
        figures["remarks told twice"] += seen.rounds > 1
        figures["attempts charged for a kill at a call"] += seen.charged
        figures["merged unknowingly at a call"] += "there" in seen.pulls
        return [f"{name}: {each}" for each in life.broken], figures


PLANS: Mapping[str, tuple[str, ...]] = {
    "a merged issue": (),
    "a red check": ("red",),
    "a remark": MENDED,
}
COMMENTS = "/issues/1/comments"


def measure(kind: str, told: Told) -> list[Point]:
    """Live undisturbed, with the usual looks; tell how many calls each part of a life takes, and
    return where lives may be struck, at calls of git too."""
    before = calls = 0
    for what, plan in PLANS.items():
        with living(kind, Point(plan=plan), "30s") as life:
            life.lived()
        told.note(f"lives on {kind}", [f"{kind}, {what}: {each}" for each in life.broken], 0)
        asked, calls = len(life.project.requests()), len(life.calls)
        told.figures[f"calls to the API of {kind} for {what}"] = asked - before
        before = asked
    sides = (False, True)
    found = [Point(at, late, bool(at % 2)) for at in range(1, calls + 1) for late in sides]
    if kind == "gitea":  # A GitHub knows what is on the branch.
        ends = range(1, THERE_CALLS + 1)
        found += [Point(at, late, plan=THERE, since=COMMENTS) for at in ends for late in sides]
    return found


def strikes(count: int, seed: int, kinds: Sequence[str], jobs: int, told: Told) -> None:
    """Kill at so many calls, of all kinds alike as far as there are."""
    if "gitea" in kinds:
        for name in (LOGIN, "alice"):
            server().user(name)
    github.certificate()
    with ThreadPoolExecutor(jobs) as pool:
        running = dict[Any, str]()
        for left, kind in zip(range(len(kinds), 0, -1), kinds, strict=True):
            points = measure(kind, told)
            chosen = Random(seed).sample(points, min(len(points), count // left))
            count -= len(chosen)
            running |= {pool.submit(strike, kind, point): kind for point in chosen}
        for future in as_completed(running):
            broken, figures = future.result()
            told.note(f"kills at calls to {running[future]}", broken)
            told.figures += figures


def main(arguments: list[str]) -> int:
    """Return 0 if all held."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.pulls", description=__doc__)
    parser.add_argument("--kills", type=int, default=KILLS, help="on a Gitea")
    parser.add_argument("--calls", type=int, default=CALLS, help="at which all is killed")
    parser.add_argument("--only", choices=[*KINDS], help="calls there")
    parser.add_argument("--seed", type=int, default=1, help="of the first backlog")
    parser.add_argument("--issues", type=int, default=ISSUES, help="of a backlog")
    parser.add_argument("--jobs", type=int, default=JOBS, help="lives side by side")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--progress", action="store_true")
    said = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    chosen = (said.only,) if said.only else (*KINDS,)
    count = 0 if said.only == "github" else said.kills
    told, began = Told(said.calls + count, said.progress), time.monotonic()
    if said.calls:
        strikes(said.calls, said.seed, chosen, said.jobs, told)
    kills(count, said.seed, told, said.issues, PullBacklog)
    return told.end("pulls", time.monotonic() - began, as_json=said.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
