"""Real ``bd`` for tests: both generations, each test in a fresh project of its own.

``scripts/setup-bd`` builds the programs; without them tests fail rather than skip.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import hashlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.base.model import Filters, IssueId
from beads_workers.kinds import CallLog
from beads_workers.trackers.bd.source import REUSE_SECONDS, BdSource
from beads_workers.trackers.bd.tracker import BdFeatures
from tests.support.bd_created import Created

OLD, NEW = "0.44.0", os.environ.get("BW_BD_NEW") or "1.3.0"
VERSIONS = (OLD, NEW)
PREFIX = "bw"
CALL_SECONDS = 60


def bd_program(version: str) -> Path:
    """The built ``bd`` of that version; raises ``RuntimeError`` when it is missing."""
    cache = os.environ.get("BW_CACHE") or str(Path(_home(), ".cache", "beads-workers"))
    program = Path(cache, f"bd-{version}", "bd")
    if not program.is_file():
        raise RuntimeError(f"{program} is missing: run scripts/setup-bd")
    return program


def is_enveloped(version: str) -> bool:
    """Whether the ``bd`` of this test prints its JSON as 2.0 will, whatever it is told.

    Half of the tests have such a one; ``BW_BD_ENVELOPE`` says 1 for all of them, or 0 for none.
    """
    said = os.environ.get("BW_BD_ENVELOPE")
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    return version == NEW and (said == "1" if said else zlib.crc32(test.encode()) % 2 == 1)


@functools.cache
def _enveloping() -> Path:
    """A folder with a ``bd`` that sets ``BD_JSON_ENVELOPE`` behind the back of its caller."""
    real = bd_program(NEW)
    folder = real.with_name("enveloping")
    folder.mkdir(exist_ok=True)
    new = folder / f"bd.{os.getpid()}"
    new.write_text(f'#!/bin/sh\nBD_JSON_ENVELOPE=1 exec {real} "$@"\n')
    new.chmod(0o755)
    new.rename(folder / "bd")
    return folder


def bd_environment(version: str, actor: str = "tester") -> dict[str, str]:
    """An environment in which ``bd`` is that version, is at nobody's home, and sends nothing."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("BEADS_", "BD_", "GIT_"))}
    return kept | {
        "HOME": str(_empty_home()),
        "PATH": f"{bd_program(version).parent}:{os.environ['PATH']}",
        "BEADS_ACTOR": actor,
        "BD_ACTOR": actor,
        "BEADS_AUTO_START_DAEMON": "false",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "NO_COLOR": "1",
    }


class BdProject:
    """A project with a ``.beads`` of its own, and what people do to it with ``bd``.

    It has the shape of ``tests.contracts.trackers.Tracker``.
    """

    def __init__(self, folder: Path, version: str) -> None:
        self.folder = folder / "project"
        self.version = version
        self.directory = _enveloping() if is_enveloped(version) else bd_program(version).parent
        """To be put in front of PATH: it holds a ``bd``."""
        # Worktrees of attempts lie there.
        cache = folder / "cache"
        _share_compiled(cache)
        self.environment = bd_environment(version) | {"XDG_CACHE_HOME": str(cache)}
        self.environment["PATH"] = f"{self.directory}:{os.environ['PATH']}"
        template = _template(version)
        shutil.copytree(template, self.folder)
        move_in = _move_in if version == OLD else lambda folder: None
        move_in(self.folder)
        self._created = Created(
            self.folder,
            template.with_name(f"{template.name}-{'flat' if version == NEW else 'created'}"),
            move_in,
            self._flatten if version == NEW else lambda: None,
        )
        self._answers: dict[tuple[str, ...], str] = {}
        self._answered_of: object = None

    def bd(self, *arguments: str, actor: str = "", check: bool = True) -> str:
        """Run ``bd`` as a person (or ``actor``) would, and return what it printed."""
        extra = {"BEADS_ACTOR": actor, "BD_ACTOR": actor} if actor else {}
        return _run(arguments, self.folder, self.version, extra, check)

    def _asked(self, *arguments: str) -> str:
        """Return what a call that only reads prints; it is made once for each state of the tracker.

        A call of ``bd`` 1.3.0 computes for a fifth of a second, and most tests look at the end of
        a run several times.
        """
        if self.version == OLD:
            return self.bd(*arguments)
        if (state := _state(self.folder / ".beads")) != self._answered_of:
            self._answers.clear()
            self._answered_of = state
        if arguments not in self._answers:
            self._answers[arguments] = self.bd(*arguments)
        return self._answers[arguments]

    def _flatten(self) -> None:
        """Drop the history, as in the template: every call would read it."""
        self.bd("flatten", "--force")

    def source(
        self,
        actor: str,
        filters: Filters | None = None,
        listed_max: int = 200,
        program: str | None = None,
        call_log: CallLog | None = None,
        call_seconds: float = CALL_SECONDS,
        environment: Mapping[str, str] | None = None,
        shared: bool = False,
        reuse_seconds: float = REUSE_SECONDS,
        with_details: bool = False,
    ) -> BdSource:
        """One more source on this project.

        What the real ``bd`` can do is asked by the first one alone; any other ``program`` is asked.
        """
        source = BdSource(
            self.folder,
            actor=actor,
            filters=filters or Filters(),
            listed_max=listed_max,
            program=program or str(self.directory / "bd"),
            call_log=call_log,
            environment={**self.environment, **(environment or {})},
            call_seconds=call_seconds,
            shared=shared,
            reuse_seconds=reuse_seconds,
            with_details=with_details,
            known=None if program else _abilities(self.version),
        )
        return self._created.reads(source)

    def create(
        self,
        title: str,
        *,
        priority: int = 2,
        issue_type: str = "task",
        labels: Sequence[str] = (),
        blocked_by: Sequence[IssueId] = (),
        parent: IssueId | None = None,
        description: str = "",
    ) -> IssueId:
        """Create an open, unassigned issue; ``create_many`` is far faster for several."""
        arguments = ["create", "--json", f"--title={title}", f"--priority={priority}"]
        arguments += [f"--type={issue_type}", *(f"--labels={label}" for label in labels)]
        if description:
            arguments.append(f"--description={description}")
        if parent is not None:
            arguments.append(f"--parent={parent}")

        def create() -> list[IssueId]:
            issue_id = IssueId(json.loads(self.bd(*arguments))["id"])
            for other in blocked_by:
                self.bd("dep", "add", issue_id, other)
            return [issue_id]

        return self._created.once((arguments, list(blocked_by)), create)[0]

    def create_many(self, issues: Sequence[Mapping[str, Any]]) -> list[IssueId]:
        """Import issues in the shape of ``issues.jsonl`` in one call; ``id`` is given here."""
        date = "2026-01-02T03:04:05Z"
        rows = []
        for number, issue in enumerate(issues, 1):
            row: dict[str, Any] = {"id": f"{PREFIX}-{number}", "title": f"number {number}"}
            row |= {"priority": 2, "status": "open", "issue_type": "task"}
            row |= {"created_at": date, "updated_at": date}
            rows.append(row | dict(issue))
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        file = self.folder / "import.jsonl"

        def create() -> list[IssueId]:
            file.write_text(lines)
            self.bd("import", *(["-i"] if self.version == OLD else []), str(file))
            file.unlink()
            return [IssueId(row["id"]) for row in rows]

        return self._created.once(lines, create)

    def allow_types(self, *types: str) -> None:
        """Let issues have types that this ``bd`` does not know (``bd`` 1.3.0)."""
        words = ("config", "set", "types.custom", ",".join(types))
        self._created.once(words, lambda: self._written(*words))

    def put(self, issue_id: IssueId, status: str, assignee: str) -> None:
        """Set both, whoever holds it."""
        force = ["--force"] if self.version == NEW else []
        words = ("update", *force, f"--status={status}", f"--assignee={assignee}", issue_id)
        self._created.once(words, lambda: self._written(*words))

    def close_as(self, issue_id: IssueId, actor: str) -> None:
        """``actor`` closes it, whoever holds it; the holder stays."""
        force = ["--force"] if self.version == NEW else []
        words = ("close", *force, "--reason=all done", issue_id)
        self._created.once((words, actor), lambda: self._written(*words, actor=actor))

    def _written(self, *arguments: str, actor: str = "") -> list[IssueId]:
        self.bd(*arguments, actor=actor)
        return []

    def let_lapse(self, *issue_ids: IssueId) -> None:
        """Their leases have been over for an hour; holder and status stay (``bd`` 1.3.0).

        All of one holder. ``bd`` has no shorter lease to ask for. They are requeued and read
        in again as ``bd`` itself exports them, with other times: an import may bring a lease,
        but replaces none that still goes on. In between they are open: a fleet that is at work
        here is frozen meanwhile (SIGSTOP), or it takes them.
        """
        issues = json.loads(self.bd("show", "--json", *issue_ids))
        (holder,) = {issue["assignee"] for issue in issues}
        self.bd("unclaim", *issue_ids, actor=holder)
        moments = {"heartbeat_at": -3900, "lease_expires_at": -3600, "updated_at": 3600}
        for issue in issues:
            for key, ahead in moments.items():
                at = time.gmtime(time.time() + ahead)
                issue[key] = time.strftime("%Y-%m-%dT%H:%M:%SZ", at)
        file = self.folder / "lapse.jsonl"
        file.write_text("".join(json.dumps({"_type": "issue", **i}) + "\n" for i in issues))
        self.bd("import", str(file))
        file.unlink()
        left = self.read_all()
        assert all(left[issue_id] == ("in_progress", holder) for issue_id in issue_ids)

    def show(self, issue_id: IssueId) -> dict[str, Any]:
        """The whole issue."""
        (issue,) = json.loads(self._asked("show", "--json", issue_id))
        assert isinstance(issue, dict)
        return issue

    def read(self, issue_id: IssueId) -> tuple[str, str]:
        """Its status and its assignee (empty without one)."""
        issue = self.show(issue_id)
        return issue["status"], issue.get("assignee", "")

    def read_all(self) -> dict[IssueId, tuple[str, str]]:
        """Status and assignee of every issue, closed ones too, in one call."""
        # Beside writers, bd 0.44.0 refuses every other read without this.
        beside = ["--allow-stale"] if self.version == OLD else []
        issues = json.loads(self._asked(*beside, "list", "--all", "--json", "--limit=0"))
        return {IssueId(i["id"]): (i["status"], i.get("assignee", "")) for i in issues}

    def notes(self, issue_id: IssueId) -> str:
        """Its notes and the reason of its close."""
        issue = self.show(issue_id)
        return f"{issue.get('notes', '')}\n{issue.get('close_reason', '')}"


@functools.cache
def _abilities(version: str) -> BdFeatures:
    """What that ``bd`` says of itself, in whatever project."""
    project = BdProject(Path(tempfile.mkdtemp(dir=_temporary())), version)
    source = BdSource(
        project.folder,
        actor="tester",
        filters=Filters(),
        listed_max=1,
        program=str(project.directory / "bd"),
        environment=project.environment,
    )
    return source.abilities


def old_project(folder: Path) -> BdProject:
    """A fresh project under ``bd`` 0.44.0."""
    return BdProject(folder, OLD)


def new_project(folder: Path) -> BdProject:
    """A fresh project under ``bd`` 1.3.0."""
    return BdProject(folder, NEW)


@pytest.fixture(params=VERSIONS)
def project(request: pytest.FixtureRequest, tmp_path: Path) -> BdProject:
    """A fresh project, under each generation in turn."""
    return BdProject(tmp_path, request.param)


@pytest.fixture
def project_old(tmp_path: Path) -> BdProject:
    """A fresh project under ``bd`` 0.44.0."""
    return old_project(tmp_path)


@pytest.fixture
def project_new(tmp_path: Path) -> BdProject:
    """A fresh project under ``bd`` 1.3.0."""
    return new_project(tmp_path)


@pytest.fixture
def daemon(project_old: BdProject) -> Iterator[int]:
    """The pid of a running ``bd`` 0.44.0 daemon on ``project_old``; ended afterwards."""
    project_old.bd("daemon", "--start", "--local")
    file = project_old.folder / ".beads" / "daemon.pid"
    _until(lambda: file.exists() and (project_old.folder / ".beads" / "bd.sock").exists())
    pid = int(file.read_text())
    yield pid
    if _is_bd(pid):
        os.kill(pid, signal.SIGTERM)
        _until(lambda: not _is_bd(pid))


def _is_bd(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    name, _, rest = stat.partition("(")[2].rpartition(")")
    return name == "bd" and not rest.startswith(" Z")


def _until(holds: Callable[[], bool]) -> None:
    limit = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.02)


def _run(
    arguments: Sequence[str],
    folder: Path,
    version: str,
    extra: Mapping[str, str],
    check: bool = True,
) -> str:
    done = subprocess.run(
        [bd_program(version), *arguments],
        cwd=folder,
        env=bd_environment(version) | dict(extra),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=CALL_SECONDS,
        check=False,
    )
    assert not check or done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


def _initialise(folder: Path, version: str) -> None:
    folder.mkdir(parents=True)
    subprocess.run(
        ["git", "init", "--quiet", "."], cwd=folder, env=bd_environment(version), check=True
    )
    _run(_INIT[version], folder, version, {})


_INIT = {
    OLD: ("init", f"--prefix={PREFIX}", "--quiet"),
    NEW: (
        *("init", f"--prefix={PREFIX}", "--quiet"),
        *("--skip-hooks", "--skip-agents", "--non-interactive"),
    ),
}


@functools.cache
def _template(version: str) -> Path:
    """An initialised project, made once, beside the program: it takes seconds.

    The history of the eighty migrations of ``bd`` 1.3.0 is flattened, as its own advice has it:
    every single call would read all of it, which is nearly half of what a call costs.
    """
    digest = hashlib.sha256(repr(_INIT[version]).encode()).hexdigest()
    place = bd_program(version).with_name(f"template-{digest[:8]}")
    with place.with_suffix(".lock").open("w") as lock:
        # Of several processes the first one makes it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.is_dir():
            shutil.rmtree(unfinished := place.with_suffix(".new"), ignore_errors=True)
            _initialise(unfinished, version)
            if version == NEW:
                _run(("flatten", "--force"), unfinished, version, {})
            unfinished.rename(place)
    return place


def _state(beads: Path) -> object:
    """Return what every write of ``bd`` 1.3.0 changes: it appends to a journal or makes new files.

    Reading changes only their times.
    """
    files = sorted(Path(folder, name) for folder, _, names in os.walk(beads) for name in names)
    try:
        manifests = [file.read_bytes() for file in files if file.name == "manifest"]
        return manifests, {file: file.lstat().st_size for file in files}
    except FileNotFoundError:  # It is being written at this moment.
        return object()


def _move_in(folder: Path) -> None:
    """A copied database of ``bd`` 0.44.0 belongs where it lies: it knows its folder by hashes."""
    place = folder.resolve()
    with contextlib.closing(sqlite3.connect(folder / ".beads" / "beads.db")) as database, database:
        for key, text, length in (
            ("repo_id", f"{place}", 32),
            ("clone_id", f"{socket.gethostname()}:{place}", 16),
        ):
            value = hashlib.sha256(text.encode()).hexdigest()[:length]
            moved = database.execute("UPDATE metadata SET value = ? WHERE key = ?", (value, key))
            assert moved.rowcount == 1, key


def _share_compiled(cache: Path) -> None:
    """``bd`` 0.44.0 compiles its database wherever it finds no cache: a second of computing."""
    shared = bd_program(OLD).with_name("compiled")
    shared.mkdir(exist_ok=True)
    cache.mkdir(parents=True)
    (cache / "beads").symlink_to(shared)


@functools.cache
def _empty_home() -> Path:
    home = _temporary() / "home"
    home.mkdir()
    _share_compiled(home / ".cache")
    environment = {**os.environ, "HOME": str(home)}
    subprocess.run(
        [bd_program(NEW), "metrics", "off"], env=environment, capture_output=True, check=True
    )
    return home


@functools.cache
def _temporary() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="beads-workers-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def _home() -> str:
    # Read once, at first use: end-to-end tests give their children a HOME of their own.
    return str(Path.home())
