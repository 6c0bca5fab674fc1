"""A repository with finished branches, for tests of landing, and what a person does beside it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from beads_workers.core.base.settings import Landing, WorktreeRules, Worktrees
from beads_workers.core.records.landing import Add, LanderSettings
from beads_workers.executors.files import branch_part
from beads_workers.landing.repository import LandingRepository
from tests.support.repository import IDENTITY, git, make_repository
from tests.support.worktrees import ruled

BRANCH = "bw-landing/main"


class LandingWorld:
    """``top``: the user's checkout, on ``main``. ``desk``: a worktree to work in. ``options``: of
    ``git init``."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch | None = None, *options: str
    ) -> None:
        self.folder = folder
        self.top = make_repository(folder / "project", *options)
        self.start = git(self.top, "rev-parse", "main")
        self.desk = folder / "desk"
        git(self.top, "worktree", "add", "--quiet", "--detach", str(self.desk))
        self.ended = 0.0
        if monkeypatch is not None:
            use_our_configuration(monkeypatch)
            configure_user(self.top, "tester")

    def settings(self, verify: str | None = None, **landing: object) -> LanderSettings:
        """As a fleet gives them. The worktrees lie outside of the checkout."""
        lands = ruled(Landing(BRANCH, self.start, "main"), **landing)
        worktrees = Worktrees(
            checkout=str(self.top),
            prefix="",
            common=str(self.top / ".git"),
            folder=str(self.folder / "worktrees"),
            state_directory=str(self.top / ".beads-workers"),
            base=BRANCH,
            base_name=BRANCH,
            rules=WorktreeRules(disk_floor_bytes=0),
        )
        return LanderSettings(lands, worktrees, "run-1", verify, 1.0)

    def repository(self, **landing: object) -> LandingRepository:
        """Opened."""
        found = LandingRepository(self.settings(**landing))
        found.open()
        return found

    def work(
        self,
        issue_id: str,
        files: Mapping[str, str | bytes | None],
        base: str | None = None,
        attempt: int = 1,
        **fields: object,
    ) -> Add:
        """A finished branch: these files are written (None: removed) and committed."""
        base = base or self.start
        branch = f"bw/{branch_part(issue_id)}/{attempt}"
        git(self.desk, "checkout", "--quiet", "--force", "--detach", base)
        head = self.commit(self.desk, files, f"work on {issue_id}")
        git(self.desk, "branch", "--force", branch, head)
        return self._add(head, issue_id, base, attempt, branch, **fields)

    def added(
        self, issue_id: str, base: str, attempt: int = 1, branch: str = "", **fields: object
    ) -> Add:
        """What is said of the desk's branch as it stands."""
        head = git(self.desk, "rev-parse", "HEAD")
        git(self.desk, "checkout", "--quiet", "--force", "--detach", head)
        return self._add(head, issue_id, base, attempt, branch, **fields)

    def _add(
        self, head: str, issue_id: str, base: str, attempt: int, branch: str, **fields: object
    ) -> Add:
        self.ended += 1.0
        add = Add(issue_id, attempt, "run-1", head, base, branch, ended_at=self.ended)
        return replace(add, **fields)  # type: ignore[arg-type]

    def commit(
        self, folder: Path, files: Mapping[str, str | bytes | None], message: str = "work"
    ) -> str:
        """Write or remove files in a checkout, and commit all that has changed."""
        for name, text in files.items():
            path = folder / name
            if text is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        git(folder, "add", "--all", "--force", "--", *files)
        git(folder, "commit", "--quiet", "--allow-empty", "-m", message)
        return git(folder, "rev-parse", "HEAD")

    def main(self, files: Mapping[str, str | bytes | None]) -> str:
        """A commit of the user's own."""
        self.start = self.commit(self.top, files, "by hand")
        return self.start

    def tip(self) -> str:
        """Where the integration branch stands."""
        return git(self.top, "rev-parse", f"refs/heads/{BRANCH}")

    def read(self, name: str, at: str | None = None) -> str:
        """A file, as it has landed."""
        return git(self.top, "show", f"{at or self.tip()}:{name}")

    def files(self, at: str | None = None) -> list[str]:
        """The names of all files, as they have landed."""
        return git(self.top, "ls-tree", "-r", "--name-only", at or self.tip()).splitlines()

    def checkout_digest(self) -> str:
        """Of every file of the user's checkout, its index, HEAD, and what is configured."""
        found = sha256()
        for path in sorted(self.top.rglob("*")):
            below = path.relative_to(self.top)
            if below.parts[0] == ".git" and below.parts[1:] not in _OWN:
                continue
            found.update(os.fsencode(below))
            if path.is_symlink() or not path.is_file():
                continue
            found.update(path.read_bytes() + str(path.stat().st_mode).encode())
        return found.hexdigest()


def use_our_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's own takes part, and whoever commits is whom the repository names."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    for name, text in IDENTITY.items():
        if "CONFIG" in name:
            monkeypatch.setenv(name, text)


def configure_user(top: Path, name: str) -> None:
    """As ``git config user.name`` and ``user.email`` do."""
    with (top / ".git" / "config").open("a") as config:
        config.write(f"[user]\n\tname = {name}\n\temail = {name}@localhost\n")


_OWN = (("HEAD",), ("index",), ("config",), ("ORIG_HEAD",), ("MERGE_HEAD",))
