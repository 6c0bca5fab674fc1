"""Looking at the worktrees that we made: what each of them holds that is nowhere else."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from beads_workers.core.values import value
from beads_workers.core.worktrees import Found
from beads_workers.edge.git import BRANCHES, GitError, git, lines
from beads_workers.edge.worktrees.records import Record, Records, git_directories, token_in

OPERATIONS = {
    "MERGE_HEAD": "a merge",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "sequencer": "a cherry-pick",
    "BISECT_LOG": "a bisection",
}
"""What git leaves in a worktree's own directory while something is under way."""

MAKING_LOCK = "initializing"
"""What ``git worktree add`` writes into the lock that it holds itself."""


@value
class Worktree:
    """One that we made, as it is now. ``path`` and ``git_directory`` are None where it is gone.

    ``tip``: the commit of its branch; None where that is gone.
    """

    record: Record
    found: Found
    path: Path | None = None
    git_directory: Path | None = None
    tip: str | None = None


class Repository:
    """What holds for all worktrees of a repository, asked once: branches, and what they share."""

    def __init__(self, common: str) -> None:
        self.common = common
        self.by_token: dict[str, tuple[Path, Path]] = {}
        self.by_path: dict[str, Path] = {}
        for directory, folder in git_directories(common):
            token = token_in(directory)
            if token is None:
                self.by_path[str(folder)] = directory
            else:
                self.by_token[token] = directory, folder

    @cached_property
    def branches(self) -> dict[str, tuple[str, str]]:
        """Our branches: the commit of each, and where it is checked out (or nowhere)."""
        rows = lines(
            self.common,
            "for-each-ref",
            "--format=%(objectname) %(refname:lstrip=2)%00%(worktreepath)",
            f"refs/heads/{BRANCHES}/",
        )
        found = {}
        for row in rows:
            names, _, path = row.partition("\0")
            commit, _, branch = names.partition(" ")
            found[branch] = commit, path
        return found

    @cached_property
    def elsewhere(self) -> list[str]:
        """Commits that keep others alive: every branch but ours, remote branches, and tags."""
        rows = lines(
            self.common,
            "for-each-ref",
            "--format=%(refname) %(objecttype) %(objectname) %(*objecttype) %(*objectname)",
            *("refs/heads", "refs/remotes", "refs/tags"),
        )
        found: set[str] = set()
        for row in rows:
            name, *kinds = row.split(" ")
            if not name.startswith(f"refs/heads/{BRANCHES}/"):
                pairs = zip(kinds[0::2], kinds[1::2], strict=False)
                found.update(commit for kind, commit in pairs if kind == "commit")
        return sorted(found)

    @cached_property
    def unmerged(self) -> set[str]:
        """Every commit of our branches that is nowhere else."""
        tips = [commit for commit, _ in self.branches.values()]
        return set(self.only_in(tips)) if tips else set()

    @cached_property
    def stashes(self) -> list[str]:
        """The branches on which something was stashed away, once for each time."""
        if not git(self.common, "for-each-ref", "refs/stash"):
            return []
        subjects = lines(self.common, "log", "-g", "--format=%gs", "refs/stash", "--")
        heads = [subject.partition(":")[0] for subject in subjects]
        return [head.removeprefix("WIP on ").removeprefix("On ") for head in heads]

    def only_in(self, tips: list[str]) -> list[str]:
        """The commits behind these that are on no branch, remote branch or tag but ours."""
        others = [f"^{commit}" for commit in self.elsewhere]
        return lines(self.common, "rev-list", "--stdin", given=[*tips, *others])


@dataclass(slots=True)
class Survey:
    """A look at many; ``thorough`` looks for every reason to keep one, else for the first.

    ``ended``: a run whose workers are all known to have left.
    """

    records: Records
    thorough: bool = True
    ended: str = ""
    _repositories: dict[str, Repository] = field(default_factory=dict)

    def look(self, record: Record) -> Worktree:
        """What this one holds now."""
        used = record.run_id != self.ended and self.records.in_use(record)
        if used or self.records.is_locked(record):
            return Worktree(record, Found(in_use=True), Path(record.path))
        try:
            return self._look(record)
        except (GitError, OSError) as error:
            trouble = Found(trouble=f"cannot look at it: {error}")
            return Worktree(record, trouble, Path(record.path))

    def has_commits(self, record: Record) -> bool:
        """Whether its branch holds commits that are nowhere else; raises ``GitError``."""
        repository = self._repository(record.common)
        tip, _ = repository.branches.get(record.branch, (None, ""))
        return self._commits(repository, record, tip) > 0

    def _look(self, record: Record) -> Worktree:
        repository = self._repository(record.common)
        tip, used_at = repository.branches.get(record.branch, (None, ""))
        prepared = self.records.is_ready(record)
        directory, folder = repository.by_token.get(record.token, (None, None))
        if directory is None and not prepared:
            # Its maker was killed before it could mark it.
            folder = Path(record.path)
            directory = repository.by_path.get(record.path)
        if used_at and folder is not None and _same(used_at, folder):
            used_at = ""
        found = Found(
            prepared=prepared,
            commits=self._commits(repository, record, tip),
            branch_used_at=used_at or None,
            stashes=repository.stashes.count(record.branch),
        )
        if directory is None or folder is None:
            return _unknown_to_git(record, found, tip)
        if self.thorough or not found.commits:
            base = record.base
            found = _look_inside(repository, (base, tip), found, directory, folder)
        return Worktree(record, found, folder, directory, tip)

    def _commits(self, repository: Repository, record: Record, tip: str | None) -> int:
        # A base that was rewritten since is not this attempt's work.
        if tip is None or tip == record.base or tip not in repository.unmerged:
            return 0
        return len(repository.only_in([tip])) if self.thorough else 1

    def _repository(self, common: str) -> Repository:
        if common not in self._repositories:
            self._repositories[common] = Repository(common)
        return self._repositories[common]


def _unknown_to_git(record: Record, found: Found, tip: str | None) -> Worktree:
    path = Path(record.path)
    if not os.path.lexists(path):
        return Worktree(record, found, None, None, tip)
    if found.prepared or any(inner.name != ".git" for inner in path.iterdir()):
        found = replace(found, trouble="git does not know this folder as ours any more")
    return Worktree(record, found, path, None, tip)


def _look_inside(
    repository: Repository,
    base_and_tip: tuple[str, str | None],
    found: Found,
    directory: Path,
    folder: Path,
) -> Found:
    base, tip = base_and_tip
    found = replace(
        found,
        locked=_lock(directory, found.prepared),
        operation=next((o for n, o in OPERATIONS.items() if (directory / n).exists()), None),
        submodules=(directory / "modules").exists(),
    )
    if not folder.exists():
        missing = None if folder.parent.exists() else f"{folder.parent} is not there"
        return replace(found, trouble=missing)
    if not _leads_to(folder / ".git", directory):
        # Somebody made another repository of it, or none: what that holds is not ours to judge.
        found = replace(found, trouble="its .git file is gone, or leads elsewhere")
    # Told where it is: without its ``.git`` file git would look at the checkout around it.
    place = (f"--git-dir={directory}", f"--work-tree={folder}")
    head, branch, changes = status(str(folder), *place)
    commits = found.commits
    if branch is None and head not in (None, base):
        tips = [commit for commit in (head, tip if commits else None) if commit is not None]
        commits = len(repository.only_in(tips))
    return replace(found, changes=changes, commits=commits)


def _leads_to(dot_git: Path, directory: Path) -> bool:
    try:
        said = os.fsdecode(dot_git.read_bytes()).removeprefix("gitdir:").strip()
    except OSError:
        return False
    return _same(str(dot_git.parent / said), directory)


def _lock(directory: Path, prepared: bool) -> str | None:
    try:
        reason = (directory / "locked").read_text(errors="replace").strip()
    except FileNotFoundError:
        return None
    return None if reason == MAKING_LOCK and not prepared else reason


def _same(one: str, other: Path) -> bool:
    return Path(one).resolve() == other.resolve()


def status(folder: str, *place: str) -> tuple[str | None, str | None, tuple[str, ...]]:
    """A worktree's commit (None: none yet), its branch (None: detached), and what has changed."""
    return parse_status(
        git(
            folder,
            *place,
            *("-c", "status.showUntrackedFiles=normal", "-c", "core.fsmonitor=false"),
            *("status", "--porcelain=v2", "--branch", "-z", "--ignore-submodules=none"),
        )
    )


def parse_status(told: str) -> tuple[str | None, str | None, tuple[str, ...]]:
    """``status`` for what git printed (``--porcelain=v2 --branch -z``)."""
    rows = told.split("\0")
    head = branch = None
    changes: list[str] = []
    renamed = False
    for row in rows:
        if renamed or not row:
            renamed = False
        elif row.startswith("# branch.oid "):
            head = None if row.endswith("(initial)") else row.removeprefix("# branch.oid ")
        elif row.startswith("# branch.head "):
            branch = None if row.endswith(" (detached)") else row.removeprefix("# branch.head ")
        elif not row.startswith("#"):
            renamed = row.startswith("2 ")
            changes.append(row.split(" ", _FIELDS.get(row[:1], 1))[-1])
    return head, branch, tuple(changes)


_FIELDS = {"1": 8, "2": 9, "u": 10}
"""How many fields stand before the name in each kind of line of ``git status``."""
