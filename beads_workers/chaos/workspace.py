"""The workspace of a chaos: a temporary folder with a tracker, without anything of the user's.

Nothing here is called while a fleet lives: the tracker is only read at its end.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from beads_workers.chaos.plan import PREFIX
from beads_workers.cli.throwaway import Throwaway, add_issues, make_tracker, statuses
from beads_workers.core.records.journal import RunStarted
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_TRACKER
from beads_workers.runtime.journal_file import read_journal
from beads_workers.runtime.project import STATE_FOLDER, TRACKER_FILE
from beads_workers.runtime.run_directory import RunDirectory
from beads_workers.runtime.sockets import clear_dead

FOLDER = "beads-workers-chaos-"
FOREIGN = ("BEADS_", "BD_", "BW_", "GIT_", "ORCHESTRATOR_")
"""Prefixes of variables that could lead to a tracker, a fleet or a repository of the user."""
BD_SECONDS = 120.0
CLOSES_SECONDS = 2.0
LOOK_SECONDS = 0.02


class ChaosTracker(Protocol):
    """Tracker of a chaos; every method raises ``CommandError`` if it fails."""

    name: str

    def make(self) -> None:
        """Make an empty tracker."""

    def add(self, lines: bytes) -> None:
        """Add issues, given as beads' JSON Lines."""

    def statuses(self) -> dict[str, str]:
        """Return the status of every issue, including closed ones."""

    def closings(self) -> dict[str, int] | None:
        """Return how often each issue became closed; None if the tracker does not know."""


class ChaosWorkspace(Throwaway):
    """The folder and its tracker.

    They are removed at the end, unless kept; the fleet must have ended before.
    """

    def __init__(self, source: str, *, landing: bool = False) -> None:
        program = _find_bd() if source == "bd" else ""
        super().__init__(Path(tempfile.mkdtemp(prefix=FOLDER)).resolve())
        self.project = self.folder / "project"
        self.landing = landing
        self.state = RunDirectory(self.project / STATE_FOLDER)
        self.tracker: ChaosTracker = (
            Bd(program, self.project) if program else Embedded(self.state.root)
        )

    def fill(self) -> None:
        """Make everything that a fleet needs, except issues."""
        self.project.mkdir()
        (self.folder / "locks").mkdir()
        self.tracker.make()
        if self.landing:
            make_repository(self.project)
            # Worktrees of gates are made there: they are removed with the folder.
            os.environ["XDG_CACHE_HOME"] = str(self.folder / "cache")

    def clear_sockets(self) -> None:
        """Remove sockets that killed orchestrators have left, as the next start would."""
        limit = time.monotonic() + CLOSES_SECONDS
        for path in self._sockets():
            while True:
                try:
                    clear_dead(path)
                    break
                except OSError:
                    # The memory of a dying process, by which it is identified, is gone before its
                    # sockets. Or its pid was reused by another process that listens there.
                    if time.monotonic() > limit:
                        break
                    time.sleep(LOOK_SECONDS)

    def _sockets(self) -> set[Path]:
        info = self.state.read_info()
        found = {Path(info.socket)} if info else set()
        for run_id in self.state.run_ids():
            for entry in read_journal(self.state.run(run_id) / "journal.jsonl"):
                if isinstance(entry.record, RunStarted):
                    found.add(Path(entry.record.socket))
                    break
        return found


def forget_the_user() -> None:
    """Remove all variables from the environment that could lead to anything of the user's."""
    for name in [n for n in os.environ if n.startswith(FOREIGN)]:
        del os.environ[name]


def make_repository(project: Path) -> None:
    """Make a repository with a first commit on ``main``, without the user's configuration."""
    os.environ |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    (project / ".gitignore").write_text(".*\n!.gitignore\n")
    for command in (
        ("init", "--quiet", "."),
        ("symbolic-ref", "HEAD", "refs/heads/main"),
        ("config", "user.name", "chaos"),
        ("config", "user.email", "chaos@localhost"),
        ("add", "--force", ".gitignore"),
        ("-c", "core.hooksPath=/dev/null", "commit", "--quiet", "-m", "It begins"),
    ):
        _run(["git", *command], project)


class Embedded:
    """The built-in tracker in the run directory; a trigger of its own records what becomes
    closed."""

    name = "the built-in tracker"

    def __init__(self, state: Path) -> None:
        self._file = state / TRACKER_FILE

    def make(self) -> None:
        """See ``ChaosTracker``."""
        from contextlib import closing

        from beads_workers.trackers.sqlite.store import connect

        RunDirectory(self._file.parent).create()
        make_tracker(self._file, PREFIX, ())
        with closing(connect(self._file)) as connection:
            connection.execute("CREATE TABLE chaos_closings (issue_id TEXT NOT NULL)")
            connection.execute(
                "CREATE TRIGGER chaos_closing AFTER UPDATE OF status ON issues"
                " WHEN new.status = 'closed' AND old.status <> 'closed'"
                " BEGIN INSERT INTO chaos_closings VALUES (new.id); END"
            )

    def add(self, lines: bytes) -> None:
        """See ``ChaosTracker``."""
        add_issues(self._file, lines.splitlines())

    def statuses(self) -> dict[str, str]:
        """See ``ChaosTracker``."""
        return statuses(self._file)

    def closings(self) -> dict[str, int] | None:
        """See ``ChaosTracker``."""
        from contextlib import closing

        from beads_workers.trackers.sqlite.store import connect

        with closing(connect(self._file)) as connection:
            return dict(
                connection.execute("SELECT issue_id, count(*) FROM chaos_closings GROUP BY 1")
            )


class Bd:
    """Real ``bd``, the one on PATH, of either generation."""

    def __init__(self, program: str, project: Path) -> None:
        self._project = project
        self._program = program
        self.name = "bd"

    def make(self) -> None:
        """See ``ChaosTracker``."""
        _run(["git", "init", "--quiet", "."], self._project)
        self.name = self._bd("--version").strip()
        known = self._bd("init", "--help")
        quiet = ("--skip-hooks", "--skip-agents", "--non-interactive")
        self._bd("init", f"--prefix={PREFIX}", "--quiet", *(o for o in quiet if o in known))

    def add(self, lines: bytes) -> None:
        """See ``ChaosTracker``."""
        file = self._project.parent / "issues.jsonl"
        file.write_bytes(lines)
        flag = ["-i"] if "--input" in self._bd("import", "--help") else []
        self._bd("import", *flag, str(file))

    def statuses(self) -> dict[str, str]:
        """See ``ChaosTracker``."""
        listed = json.loads(self._bd("list", "--all", "--json", "--limit=0"))
        return {issue["id"]: issue["status"] for issue in listed}

    def closings(self) -> dict[str, int] | None:
        """Return None: bd does not count closings."""
        return None

    def _bd(self, *arguments: str) -> str:
        return _run([self._program, *arguments], self._project)


def _find_bd() -> str:
    program = shutil.which("bd")
    if program is None:
        hint = "install beads, or leave out '--source bd': the built-in tracker needs nothing"
        raise CommandError("bd is not on PATH", hint, EXIT_TRACKER)
    return program


def _run(argv: Sequence[str], folder: Path) -> str:
    # A daemon would outlive us; a fleet does not start one, either.
    environment = {**os.environ, "BEADS_AUTO_START_DAEMON": "false", "NO_COLOR": "1"}
    try:
        done = subprocess.run(
            argv,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BD_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError(f"{argv[0]}: {error}", "", EXIT_TRACKER) from None
    if done.returncode != 0:
        output = " ".join((done.stderr or done.stdout).split())[:300]
        message = f"{' '.join(map(str, argv[:2]))} failed: {output}"
        raise CommandError(message, "is this bd the one that you use? see 'bd --version'", 6)
    return done.stdout
