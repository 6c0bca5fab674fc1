"""What ``doctor --json`` says in some fixed situations, whatever machine it runs on.

What it says of the machine alone (Python, kernel, limits, disk, clock) is left out, and so are
sockets of other fleets and durations.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.oracles.calls import SCRATCH, call
from tests.oracles.journals import HOST, KEPT
from tests.support.bd import VERSIONS, BdProject
from tests.support.repository import git

PROGRAMS = ("git", "sh", "true")
"""All that is on PATH."""
OF_THE_MACHINE = frozenset(
    {"python", "kernel", "disk", "files", "processes", "memory", "clock", "ntp", "sockets"}
)
DEAD_SOCKETS = "in /tmp of orchestrators"
SLOW = "&& bd doctor"
"""The remedy for a bd that is slow: it may be the machine."""
NOTHING_LEFT = {"name": "leftovers", "status": "ok", "text": "crashed runs left nothing"}
VARIES = (
    (r"\([0-9a-f]{12}\)", "(COMMIT)"),
    (r"one read took [^;]+", "one read took SECONDS"),
    (r"\bsqlite [0-9.]+", "sqlite VERSION"),
    (r"\bbd [0-9][0-9.]*", "bd VERSION"),
    (r"\bgit [0-9][\w.+~-]*( \([^)]*\))?", "git VERSION"),
    (r"/worktrees/project-[0-9a-f]{8}", "/worktrees/project-HASH"),
    (r"bd is not on PATH, .*", "bd is not on PATH, ..."),
    (r"the shell does not understand it: .*", "the shell does not understand it: ..."),
    (r"installed for \S+", "installed for PYTHON"),
    (r"(line \d+: [^;]*) \([^;]*\);", r"\1 (WRONG);"),
)
"""Texts that differ from one machine to the next, and what stands in their place."""

ISSUES = (
    {"id": "bw-1", "title": "Ready"},
    {"id": "bw-2", "title": "Ready too", "priority": 0},
    {"id": "bw-3", "title": "Waits", "dependencies": [{"depends_on_id": "bw-1"}]},
    {"id": "bw-4", "title": "Done", "status": "closed"},
    {"id": "bw-5", "title": "Somebody's", "status": "in_progress", "assignee": "ann"},
)


def builtin(folder: Path) -> None:
    """Make a built-in tracker with some issues."""
    call(folder, "init")
    lines = folder / "issues.jsonl"
    lines.write_text("".join(json.dumps(issue) + "\n" for issue in ISSUES))
    done = call(folder, "import", str(lines))
    assert done.code == 0, done
    lines.unlink()


def settings(text: str) -> Callable[[Path], None]:
    """Return what makes a tracker and settings with this text."""

    def make(folder: Path) -> None:
        builtin(folder)
        (folder / "beads-workers.toml").write_text(text)

    return make


def lands(text: str) -> Callable[[Path], None]:
    """Return what makes a clean repository and settings with this text."""

    def make(folder: Path) -> None:
        clean(folder)
        (folder / "beads-workers.toml").write_text(text)

    return make


def unborn(folder: Path) -> None:
    """Make a git repository without a commit, and a tracker."""
    git(folder, "init", "--quiet", "--initial-branch=main")
    builtin(folder)


def clean(folder: Path) -> None:
    """Make a git repository in which everything is committed."""
    unborn(folder)
    (folder / "check").write_text("#!/bin/sh\ntrue\n")
    (folder / "check").chmod(0o755)
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")


def dirty(folder: Path) -> None:
    """Make a git repository with a change that is not committed."""
    clean(folder)
    (folder / "check").write_text("#!/bin/sh\nfalse\n")


def crashed(folder: Path) -> None:
    """Make the state directory of a fleet that was killed."""
    builtin(folder)
    shutil.copytree(KEPT / "killed" / "runs", folder / ".beads-workers" / "runs")


Situation = tuple[str, Callable[[Path], None], str]
SITUATIONS: tuple[Situation, ...] = (
    ("an empty folder", lambda folder: None, ""),
    ("an empty folder, and a command", lambda folder: None, "-- true"),
    ("a .beads folder without bd", lambda folder: (folder / ".beads").mkdir(), "-- true"),
    ("the built-in tracker, nothing said", builtin, ""),
    ("the built-in tracker, a command", builtin, "-- true {id}"),
    ("the built-in tracker, no such command", builtin, "-n 2 -- tru {idd}"),
    ("the built-in tracker, an agent that is missing", builtin, "--agent claude"),
    ("a module that is missing", builtin, "--allow-module no.such"),
    ("a clean repository", clean, "-- ./check"),
    ("a clean repository, worktrees", clean, "--worktree --verify ./check -- ./check"),
    ("a clean repository, two agents", clean, "--agent claude,codex --verify 'if true'"),
    ("an agent that reviews, one worker", clean, "-n 1 --agent claude --review codex"),
    ("agents in one checkout", clean, "-n 2 --agent claude --shared-checkout"),
    ("landing on a branch that is not there", lands('land_on = "x"\n'), "--worktree -- true"),
    ("landing into main", lands('land_into = "main"\n'), "--worktree -- true"),
    ("landing at no such remote", lands('[landing]\nremote = "x"\n'), "--worktree -- true"),
    ("a dirty repository", dirty, "--worktree -- ./check"),
    ("a repository without a commit", unborn, "--worktree -- true"),
    ("no queue is named", builtin, "--source hero -- sh"),
    ("bd is asked for, and is not there", builtin, "--source bd -- true"),
    ("a state directory of its own", builtin, "--state-dir state -- true"),
    ("settings with verify", settings('workers = 3\nverify = "true"\n'), "-- true"),
    ("settings with a command", settings('command = ["true", "{id}"]\n'), ""),
    ("settings with an unknown key", settings("wokers = 3\n"), "-- true"),
    ("settings that are no TOML", settings("workers = = 3\n"), "-- true"),
    ("settings with a wrong value", settings('workers = "many"\n'), "-- true"),
    ("after a fleet that was killed", crashed, "-- true"),
)


def doctors() -> str:
    """Return what is said in each situation."""
    return "\n".join(_situation(*each) for each in SITUATIONS)


def doctors_of_bd() -> str:
    """Return what is said of projects of both generations of bd."""
    return "\n".join(_of_bd(version) for version in VERSIONS)


def _situation(name: str, make: Callable[[Path], None], words: str) -> str:
    with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
        place = Path(scratch)
        (place / "project").mkdir()
        make(place / "project")
        return f"# {name}\n{_said(place, words)}"


def _of_bd(version: str) -> str:
    with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
        place = Path(scratch)
        project = BdProject(place, version)
        project.create_many([dict(issue) for issue in ISSUES[:2]])
        names = ("XDG_CACHE_HOME", "BEADS_AUTO_START_DAEMON", "GIT_CONFIG_GLOBAL")
        told = {name: project.environment[name] for name in names}
        which = "old" if version == VERSIONS[0] else "new"
        said = _said(place, "-- true", project.directory / "bd", **told)
        return f"# the {which} bd\n{said}"


def _said(place: Path, words: str, *programs: Path, **more: str) -> str:
    """Return the call in ``place/project``, with only these programs and ours on PATH."""
    (place / "bin").mkdir()
    for program in (*programs, *(Path(shutil.which(name) or name) for name in PROGRAMS)):
        (place / "bin" / program.name).symlink_to(program)
    own = {"HOME": str(place), "PATH": str(place / "bin"), "BEADS_WORKERS_HOST": HOST}
    own |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CEILING_DIRECTORIES": str(place)}
    done = call(place / "project", "doctor", "--json", *shlex.split(words), **own | more)
    out = done.out
    if out:
        shown = json.loads(out)
        lines = [json.dumps(each, ensure_ascii=False) for each in _neutral(shown.pop("checks"))]
        out = "\n".join([json.dumps(shown), *lines, ""])
    out = (out + done.err).replace(str(place), "SCRATCH")
    return f"$ beads-workers doctor --json {words}\n{out}[exit code {done.code}]\n"


def _neutral(checks: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the checks without those of the machine, and without what varies."""
    kept = [check for check in checks if check["name"] not in OF_THE_MACHINE]
    if not any(DEAD_SOCKETS in check["text"] for check in kept):
        return [_masked(check) for check in kept]
    left = [check for check in kept if DEAD_SOCKETS not in check["text"]]
    if not any(check["name"] == "leftovers" for check in left):
        at = next(n for n, check in enumerate(kept) if DEAD_SOCKETS in check["text"])
        left.insert(at, NOTHING_LEFT | {"remedy": ""})
    return [_masked(check) for check in left]


def _masked(check: dict[str, str]) -> dict[str, str]:
    if check["remedy"].endswith(SLOW):
        check |= {"status": "ok", "remedy": ""}
    for pattern, neutral in VARIES:
        check = {key: re.sub(pattern, neutral, text) for key, text in check.items()}
    return check
