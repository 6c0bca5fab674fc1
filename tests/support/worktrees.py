"""Worktrees made as a worker makes them, in a repository of the test's own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from beads_workers.core.base.settings import Landing, WorktreeRules, Worktrees
from beads_workers.executors.files import place_file
from beads_workers.runtime.run_directory import RunDirectory
from beads_workers.worktrees.orders import Preparation
from beads_workers.worktrees.preparation import prepare
from beads_workers.worktrees.records import Records, WorktreeRecord
from beads_workers.worktrees.removal import CleanupResult, clean
from beads_workers.worktrees.sweep import REMOVED
from tests.support import warm
from tests.support.fleet import until
from tests.support.repository import IDENTITY, git, make_repository


def start_preparation(text: str, stdout: int, **environment: str) -> warm.Process:
    """The PREPARE step, as a worker starts it."""
    read, told = os.pipe()
    process = warm.Process(
        *((), Path("/"), os.environ | IDENTITY | environment, stdout, 2),
        stdin=read,
        module="beads_workers.worktrees.preparation",
        safe=True,
    )
    os.close(read)
    with open(told, "w") as stdin:
        stdin.write(text)
    return process


@dataclass(frozen=True)
class Place:
    """What a worker is told about the worktree that was made for it."""

    record: WorktreeRecord
    folder: Path
    environment: dict[str, str]


class World:
    """A project that is its repository's top (or ``prefix`` below it), and one run.

    ``options``: of ``git init``.
    """

    def __init__(self, folder: Path, prefix: str = "", *options: str) -> None:
        self.top = make_repository(folder / "repository", *options)
        self.project = self.top / prefix
        self.project.mkdir(exist_ok=True)
        self.state = self.project / ".beads-workers"
        self.runs = RunDirectory(self.state)
        self.runs.create()
        self.run_id, alive = self.runs.create_run()
        self._alive: int | None = alive
        self.records = Records(self.state)
        self.settings = Worktrees(
            checkout=str(self.project),
            prefix=prefix,
            common=str(self.top / ".git"),
            folder=str(self.state / "worktrees"),
            state_directory=str(self.state),
            base="main",
            base_name="main",
            rules=WorktreeRules(disk_floor_bytes=0),
        )

    def asked(self, issue_id: str, attempt: int = 1, worker: str = "W1") -> Preparation:
        """What a worker asks for."""
        place = place_file(str(self.runs.run(self.run_id)), worker)
        return Preparation(self.settings, issue_id, attempt, worker, self.run_id, place)

    def make(
        self,
        issue_id: str,
        attempt: int = 1,
        worker: str = "W1",
        *,
        continues: bool = False,
        **settings: Any,
    ) -> Place:
        """Make a worktree, or go on in the last one; raises ``CannotPrepare``."""
        asked = self.asked(issue_id, attempt, worker)
        worktrees = ruled(self.settings, **settings)
        asked = replace(asked, worktrees=worktrees, continues=continues)
        prepare(asked)
        said = json.loads(Path(asked.place_file).read_bytes())
        record = self.records.find(said["name"])
        assert record is not None
        return Place(record, Path(said["folder"]), said["environment"])

    def end_run(self) -> None:
        """No process of the run lives any more."""
        if self._alive is not None:
            os.close(self._alive)
            self._alive = None

    def clean(self, *, dry_run: bool = False) -> list[CleanupResult]:
        """``beads-workers clean``, its part on worktrees."""
        return list(clean(self.state, dry_run=dry_run))

    def kept(self) -> dict[str, str]:
        """What clean keeps, by branch, and why; it removes the rest, as its dry run said."""
        before = self.clean(dry_run=True)
        after = self.clean()
        assert [(x.path, x.branch, x.kept_because) for x in before] == [
            (x.path, x.branch, x.kept_because) for x in after
        ]
        return {x.record.branch: "; ".join(x.kept_because) for x in after if x.kept_because}

    def swept(self) -> None:
        """The files of all removed worktrees are deleted."""
        until(lambda: not (Path(self.settings.folder) / REMOVED).exists())

    def branches(self) -> list[str]:
        """Our branches."""
        shown = git(self.top, "branch", "--list", "bw/*", "--format=%(refname:short)")
        return shown.splitlines()


@contextmanager
def person(folder: Path) -> Iterator[str]:
    """Somebody stands in this folder, whom no process of the test has started; who that is."""
    # The test itself may hold open what only workers do, so that its children are no persons.
    stands = ("sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!")
    pid = int(subprocess.run(stands, cwd=folder, capture_output=True, check=True).stdout)
    try:
        yield f"pid {pid}, sleep"
    finally:
        os.kill(pid, signal.SIGKILL)
        while Path(f"/proc/{pid}/cwd").exists():
            time.sleep(0.01)


def in_worktrees(project: Any, pattern: str) -> list[Path]:
    """What there is of this name at the top of the project's worktrees, where they lie unasked."""
    cache = Path(project.environment["XDG_CACHE_HOME"], "beads-workers", "worktrees")
    return list(cache.glob(f"project-????????/*/{pattern}"))


Ruled = TypeVar("Ruled", Worktrees, Landing)


def ruled(settings: Ruled, **rules: Any) -> Ruled:
    """Return the settings with these values, of their own or of their rules (``WorktreeRules``,
    ``LandingRules``)."""
    of_rules = {each.name for each in fields(settings.rules)} & rules.keys()
    found = replace(settings.rules, **{name: rules.pop(name) for name in of_rules})
    return replace(settings, rules=found, **rules)
