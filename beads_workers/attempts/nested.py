"""Content of a worktree that no commit would hold: other repositories, changes inside of
submodules, and files that only the user's own ignore rules hide.

git commits a repository inside of another one as a gitlink, which names a commit that exists
nowhere else: without an entry in ``.gitmodules`` its files are lost. With one they are lost as
well, unless the commit is on the submodule's remote.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from beads_workers.attempts.git_calls import Git
from beads_workers.attempts.litter import no_litter
from beads_workers.worktrees.git import GITLINK, NONE_THERE, config, git, identity, names, pairs
from beads_workers.worktrees.submodules import clean, is_public, look, publish

HIDDEN_BYTES_MAX = 16 << 20
HIDDEN_FILES_MAX = 1000
"""Limits for files that the user's own rules hide: more of them is a cache or a package folder."""


def nested(git: Git, common: Path) -> tuple[list[str], list[str]]:
    """Return the folders that are worktrees of this repository (of sub-agents), and those that are
    repositories of their own; raises ``GitError``.

    ``git``: at the top of the worktree; ``common``: the repository's common git directory.
    """
    worktrees, others = list[str](), list[str]()
    for name in others_in(git):
        if name.endswith("/"):
            of_ours = _leads_to(Path(git.folder, name, ".git"), common)
            (worktrees if of_ours else others).append(name)
    return worktrees, others


def others_in(git: Git) -> list[str]:
    """Return all paths that are neither tracked nor ignored; another repository ends with ``/``."""
    return names(git("ls-files", "-z", "--others", "--exclude-standard"))


def in_index(git: Git, base: str) -> list[tuple[str, str]]:
    """Return what differs in the index from ``base``: ``:<mode before> <mode> ...``, and the name;
    raises ``GitError``."""
    return pairs(git("diff-index", "--cached", "--no-renames", "--raw", "-z", base))


def bare_gitlinks(git: Git, base: str, found: Sequence[tuple[str, str]]) -> list[str]:
    """Return the gitlinks found in the index that ``base`` does not have, and that have no entry in
    ``.gitmodules``; raises ``GitError``."""
    links = [name for about, name in found if about.split(" ")[1] == GITLINK]
    new = [name for name in links if not _is_link(git, base, name)]
    return sorted({*new} - _submodules(git)) if new else []


def settle_submodules(top: str, subject: str, *, commits: bool) -> bool:
    """Clean submodules in which only caches are new; if it ``commits``, commit all other changes
    inside of them. Return whether there were any. Raises ``GitError``."""
    moved, found = list[str](), False
    for each in look(top):
        folder, files = f"{top}/{each.path}", no_litter(each.files)
        holds_moved = any(path.startswith(f"{each.path}/") for path in moved)
        found = found or each.differs != ""
        if each.head and each.files and not files:
            clean(folder)
        if each.head and commits and (files or holds_moved):
            git(folder, "add", "--all", "--sparse")
            made = ("commit", "--no-gpg-sign", "--quiet", "--message", subject)
            git(folder, *identity(folder), *made)
            moved.append(each.path)
        elif each.is_elsewhere:
            moved.append(each.path)
    return found


def wrong_in_submodules(top: str, moved: Collection[str], branch: str) -> str:
    """Return why the commit of this index would not hold what lies in a submodule, or would name
    what nobody can fetch; "" if neither is so. ``moved``: gitlinks that differ from the base;
    ``branch``: on which such commits are pushed to the submodule's remote, "" if they are not.
    Raises ``GitError``."""
    for each in look(top):
        why, folder = each.differs, f"{top}/{each.path}"
        is_new = any(f"{each.path}/".startswith(f"{path}/") for path in moved)
        if not why and not each.head and each.path in moved:
            why = f"its folder is empty: fill it with 'git submodule update --init {each.path}'"
        if not why and each.head and is_new and not is_public(folder, each.head):
            if branch:
                publish(folder, each.head, branch)
            else:
                why = f"its remote does not have {each.head[:12]}"
        if why:
            rule = _PUSHED if branch else _REFUSED
            return f"{each.path} is a submodule: {rule.format(why=why)}"
    return ""


_REFUSED = (
    "a commit there does not land; {why}. Name a commit that its remote has, and change nothing"
    ' there; if the issue needs a change there, end with "Outcome: blocked:"'
)
_PUSHED = "only what its own repository has lands; {why}"


def hidden(git: Git, since: float) -> tuple[list[str], list[str]]:
    """Return the files newer than ``since`` that only the user's own rules hide
    (``core.excludesFile``, ``info/exclude``), and those of them that are too many or too large to
    be kept; raises ``GitError``."""
    listed = git("ls-files", "-z", "--others", "--exclude-per-directory=.gitignore")
    files = {name for name in names(listed) if not name.endswith("/")}
    kept, left, size = list[str](), list[str](), 0
    for name in sorted(files - {*others_in(git)}) if files else ():
        try:
            found = Path(git.folder, name).lstat()
        except OSError:
            continue
        if found.st_ctime < since:
            continue
        if size + found.st_size <= HIDDEN_BYTES_MAX and len(kept) < HIDDEN_FILES_MAX:
            kept.append(name)
            size += found.st_size
        else:
            left.append(name)
    return kept, left


def newly_hidden(git: Git, exclude: Path, before: Path | None) -> list[str]:
    """Return the files that only lines of ``exclude`` (the shared ``info/exclude``) hide that are
    not in ``before``, a copy of it; none without a copy. Raises ``GitError``."""
    try:
        if before is None or exclude.read_bytes() == before.read_bytes():
            return []
    except OSError:
        return []
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    asked = ("config", "--type=path", f"--default={home}/git/ignore", "core.excludesFile")
    users = Path(git(*asked).removesuffix("\n"))
    hides = [f"--exclude-from={file}" for file in (before, users) if file.is_file()]
    listed = git("ls-files", "-z", "--others", "--exclude-per-directory=.gitignore", *hides)
    return sorted({name for name in names(listed) if not name.endswith("/")} - {*others_in(git)})


def add_hidden(git: Git, names: Sequence[str], index: str | None = None) -> None:
    """Add ignored files to the index, or to another; raises ``GitError``."""
    if names:
        from_stdin = ("--pathspec-from-file=-", "--pathspec-file-nul")
        stdin = "".join(f"{name}\0" for name in names)
        places = {"GIT_LITERAL_PATHSPECS": "1"}
        git("add", "--force", "--sparse", *from_stdin, stdin=stdin, index=index, places=places)


def without(folders: Sequence[str]) -> tuple[str, ...]:
    """Return the pathspecs of all but these folders."""
    if not folders:
        return ()
    return ("--", ":/", *(f":(exclude,top,literal){name.rstrip('/')}" for name in folders))


def _is_link(git: Git, commit: str, name: str) -> bool:
    output = git("ls-tree", "-z", commit, "--", name)
    return output.startswith(GITLINK)


def _submodules(git: Git) -> set[str]:
    file = Path(git.folder, ".gitmodules")
    if not file.is_file():
        return set()
    asked = ("config", "-z", "--file", str(file), "--get-regexp", r"^submodule\..*\.path$")
    done = git.answered(*asked, good=(0, NONE_THERE))
    return {path for _, path in config(done.output)}


def _leads_to(dot_git: Path, common: Path) -> bool:
    """Return whether a ``.git`` file is that of a linked worktree of this repository."""
    try:
        git_directory = os.fsdecode(dot_git.read_bytes()).removeprefix("gitdir:").strip()
        place = (dot_git.parent / git_directory).resolve()
    except OSError:
        return False
    # A submodule that is none any more leads below it.
    return place.parent == common.resolve() / "worktrees"
