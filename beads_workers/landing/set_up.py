"""The set-up of a gate's worktree, kept from one gate to the next while none of its inputs changed.

The inputs are observed, not guessed. While the hook runs, the kernel reports (inotify) which files
of the tree, and of the user's checkout, are opened, and which folders are listed. The outputs are
known from a look before and after, and must still be as they were made. If anything cannot be
known, the hook runs before each gate. Source: docs/LANDING.md, "The gate".
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from beads_workers.core.base.model import value
from beads_workers.core.base.plain import BAD_VALUE, from_plain, to_plain
from beads_workers.core.base.settings import Worktrees
from beads_workers.runtime.kernel.folder_events import IN_ISDIR, IN_OPEN, FolderEvents
from beads_workers.worktrees.freshness import must_set_up
from beads_workers.worktrees.git import GitError, git, names

MADE_MAX = 200_000
OUTSIDE_MAX = 20_000
"""Number of files that are checked before each gate; with more, the hook costs no more than the
checks."""

KEPT_IN_SIGHT_MAX = 500
"""Number of files that the hook makes and that git does not ignore: each is named to ``git
clean``."""

Stats = dict[str, list[int]]
"""Time of change in nanoseconds, size and mode of each file."""


@value
class KeptSetUp:
    """A kept set-up."""

    # Hash of everything else that the set-up depends on.
    recipe: str
    # Files of the tree that it opened.
    read: tuple[str, ...]
    # Folders that it listed; "" for the top.
    listed: tuple[str, ...]
    # Files that it made, relative to the worktree.
    made: Stats
    # Those of ``made`` that git does not ignore.
    in_sight: tuple[str, ...]
    # Files that it may have read elsewhere.
    outside: Stats

    def holds(
        self,
        worktree: Path,
        settings: Worktrees,
        at: str,
        changed: Iterable[tuple[str, str]],
    ) -> bool:
        """Return whether the set-up still holds after these changes from ``at``. Raises
        ``GitError``."""
        changed = list(changed)
        if must_set_up(settings, changed) or not {name for _, name in changed}.isdisjoint(
            self.read
        ):
            return False
        come_or_gone = [PurePosixPath(name) for state, name in changed if state != "M"]
        return not any(
            self._shows(worktree, folder, name, at)
            for name in come_or_gone
            for folder in self.listed
            if folder == "" or PurePosixPath(folder) in name.parents
        )

    def _shows(self, worktree: Path, folder: str, name: PurePosixPath, at: str) -> bool:
        """Return whether a listing of the folder shows that this file, or the first folder above
        it, was added or removed."""
        entry = Path(folder, *name.relative_to(folder).parts[:1])
        before = git(str(worktree), "ls-tree", "-z", "--name-only", at, "--", f"{entry}")
        now = git(str(worktree), "ls-files", "-z", "--", f":(literal){entry}")
        return bool(before) != bool(now)

    def is_whole(self, worktree: Path) -> bool:
        """Return whether all files that the set-up made, or read elsewhere, are unchanged."""
        made = all(_stat(f"{worktree}/{name}") == was for name, was in self.made.items())
        return made and all(_stat(name) == was for name, was in self.outside.items())


def load(file: Path, recipe: str) -> KeptSetUp | None:
    """Return the kept set-up, if it is for this recipe; else None."""
    try:
        kept = from_plain(KeptSetUp, json.loads(file.read_bytes()))
    except (OSError, *BAD_VALUE):
        return None
    return kept if kept.recipe == recipe else None


def save(file: Path, kept: KeptSetUp | None) -> None:
    """Keep a set-up; None: nothing is known, and the hook runs again."""
    if kept is None:
        file.unlink(missing_ok=True)
    else:
        file.write_text(json.dumps(to_plain(kept)))


def excluded(names: Iterable[str]) -> list[str]:
    """Return these files as options of ``git clean``, which then leaves them."""
    escaped = (re.sub(r"([\\*?\[\s])", r"\\\1", name) for name in names)
    return [word for name in escaped for word in ("-e", f"/{name}")]


# --- watching it ---------------------------------------------------------------------------------


class Watch:
    """Watch on the files that a set-up hook reads and makes, until ``kept``. ``worktree``,
    ``checkout``: the watched places; ``earlier``: the set-up before."""

    def __init__(self, worktree: Path, checkout: Path, earlier: KeptSetUp | None) -> None:
        self._worktree, self._earlier = worktree, earlier
        self._opened, self._listed = set[Path](), set[Path]()
        self._events = FolderEvents()
        try:
            tracked = names(git(str(worktree), "ls-files", "-z"))
            folders = {str(each) for name in tracked for each in PurePosixPath(name).parents}
            self._before = _snapshot(worktree)  # First: the snapshot itself lists every folder.
            for place in (worktree, checkout):
                inner = (place / each for each in folders - {"."})
                self._events.watch([place, *inner], IN_OPEN)
        except (GitError, OSError):
            self.close()
            raise

    @property
    def fd(self) -> int:
        """Readable when ``drain`` is due; -1 if nothing can be watched."""
        return self._events.fd

    def drain(self) -> None:
        """Read the events of the kernel."""
        for mask, path in self._events.read():
            (self._listed if mask & IN_ISDIR else self._opened).add(path)

    def kept(self, recipe: str, script: str, environment: Mapping[str, str]) -> KeptSetUp | None:
        """Return the set-up to keep; None if not everything is known. Raises ``GitError``."""
        self.drain()
        after = _snapshot(self._worktree)
        earlier = self._earlier.made if self._earlier is not None else {}
        made = {n: s for n, s in after.items() if self._before.get(n) != s or n in earlier}
        listed = names(git(str(self._worktree), "ls-files", "--others", "--exclude-standard", "-z"))
        in_sight = tuple(name for name in listed if name in made)
        outside = self._outside(script, environment)
        nested = any(name.endswith("/") for name in listed)
        if self._events.lost or self.fd < 0 or nested or outside is None or "BW_BASE" in script:
            return None
        if len(made) > MADE_MAX or len(in_sight) > KEPT_IN_SIGHT_MAX:
            return None
        return KeptSetUp(
            *(recipe, tuple(self._inside(self._opened)), tuple(self._inside(self._listed))),
            *(made, in_sight, outside),
        )

    def _inside(self, paths: Iterable[Path]) -> Iterator[str]:
        for path in sorted(paths):
            if path.is_relative_to(self._worktree):
                below = str(path.relative_to(self._worktree))
                yield "" if below == "." else below

    def _outside(self, script: str, environment: Mapping[str, str]) -> Stats | None:
        """Return the files that the hook opened elsewhere, and those that its line names, with all
        files below; None if they cannot be known."""
        named = [_expanded(word, environment) for word in re.split(r"[\s;&|()<>'\"=`]+", script)]
        if None in named:
            return None
        roots = [Path(os.path.normpath(Path(environment["PWD"], word))) for word in named if word]
        found: Stats = {}
        opened = (path for path in self._opened if not path.is_relative_to(self._worktree))
        elsewhere = (root for root in roots if not root.is_relative_to(self._worktree))
        for path in (*opened, *(file for root in elsewhere for file in _files(root))):
            if (stat := _stat(str(path))) is not None:
                found[str(path)] = stat
            if len(found) > OUTSIDE_MAX:
                return None
        return found

    def close(self) -> None:
        """Stop watching."""
        self._events.close()


def watch(worktree: Path, checkout: Path, earlier: KeptSetUp | None) -> Watch | None:
    """Start a watch; return None if git, or the system, does not allow it."""
    try:
        return Watch(worktree, checkout, earlier)
    except (GitError, OSError):
        return None


def _expanded(word: str, environment: Mapping[str, str]) -> str | None:
    """Return the path that a word of a shell's line names, only the part before a pattern; "" for
    no path, None if only the shell knows."""
    if word.startswith("~/"):
        word = f"$HOME{word[1:]}"
    known = re.sub(r"\$\{?(\w+)\}?", lambda found: environment.get(found[1], "$"), word)
    if "/" not in known and not known.startswith("."):
        return ""
    if "$" in known:
        return None
    return re.sub(r"[^/]*[*?\[{].*", "", known) or "."


def _files(root: Path) -> Iterator[Path]:
    if not root.is_dir():
        yield root
        return
    for folder, _, files in os.walk(root):
        yield from (Path(folder, name) for name in files)


def _snapshot(worktree: Path) -> Stats:
    found: Stats = {}
    top = f"{worktree}/"
    for folder, folders, files in os.walk(worktree):
        if ".git" in folders and folder == str(worktree):
            folders.remove(".git")
        for name in files:
            path = os.path.join(folder, name)  # noqa: PTH118 - one of very many.
            if (stat := _stat(path)) is not None:
                found[path.removeprefix(top)] = stat
    found.pop(".git", None)
    return found


def _stat(path: str) -> list[int] | None:
    try:
        seen = os.lstat(path)
    except OSError:
        return None
    return [seen.st_mtime_ns, seen.st_size, seen.st_mode]
