"""Changes of refs that are not the attempt's, while it ran: all worktrees share their refs.

None of these changes is undone by us. Each is reported with the command that undoes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from beads_workers.attempts.git_calls import Git
from beads_workers.worktrees import programs
from beads_workers.worktrees.branch_movers import moves
from beads_workers.worktrees.git import BRANCHES, OWN_REFS, row_format, rows
from beads_workers.worktrees.landed import LANDING, WHY
from beads_workers.worktrees.records import REFS_FILE
from beads_workers.worktrees.ref_files import all_refs

STASH = "refs/stash"
OWN = (f"refs/heads/{BRANCHES}/", f"{OWN_REFS}/", "refs/remotes/")
"""Refs of ours, of other attempts, and those that every fetch moves."""
SHA_CHARS = 12


def refs_now(git: Git, own: Path) -> dict[str, str]:
    """Return every ref with its object; raises ``GitError``. ``own``: the worktree's git
    directory."""
    if (found := all_refs(own)) is not None:
        return found
    output = git("for-each-ref", row_format("%(refname)", "%(objectname)"))
    return {row[0]: row[1] for row in rows(output, 2)}


def refs_at_first(git: Git, directory: Path) -> tuple[dict[str, str], bool]:
    """Return the refs as they were before the first attempt in this worktree, and whether that is
    now; raises ``GitError``.

    A killed attempt may have moved some refs: the next attempt must not take that as given.
    """
    file = directory / REFS_FILE
    try:
        kept = file.read_text("utf-8", "surrogateescape").split("\n")
    except OSError:
        refs = refs_now(git, directory)
        text = "".join(f"{found} {name}\n" for name, found in refs.items())
        # Whole or not at all: a ref that is missing in it counts as the attempt's own.
        programs.keep(directory)
        fresh = directory / f"{REFS_FILE}.new"
        fresh.write_text(text, "utf-8", "surrogateescape")
        fresh.replace(file)
        return refs, True
    pairs = (row.partition(" ") for row in kept)
    return {name: found for found, _, name in pairs if name}, False


def moved(git: Git, own: Path, common: Path, before: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each ref that moved since ``before``; raises ``GitError``."""
    now = refs_now(git, own)
    for name in sorted({*before, *now}):
        old, new = before.get(name, ""), now.get(name, "")
        if old == new or name.startswith(OWN):
            continue
        if name.startswith(f"{LANDING}/") and _is_landers(common, name, old, new):
            continue
        yield _line(name, old[:SHA_CHARS], new[:SHA_CHARS], only=_is_only_copy(git, name, new))


def moved_by_lander(common: Path, name: str) -> frozenset[str]:
    """Return the commits to which the lander has moved its branch, as the reflog says; raises
    ``GitError``."""
    return frozenset(move.commit for move in moves(common, name) if move.why.startswith(WHY))


def _is_landers(common: Path, name: str, old: str, new: str) -> bool:
    # The lander creates the branch, and creates it again if somebody has deleted it.
    return bool(new) and (not old or new in moved_by_lander(common, name))


def _is_only_copy(git: Git, name: str, new: str) -> bool:
    """Return whether no other ref holds what this one does now."""
    asked = ("rev-list", "--max-count=1", new, "--not", f"--exclude={name}", "--glob=refs/*")
    # 128: it is no commit, so it has no copy, either.
    done = git.ask(*asked, good=(0, 128)) if new else None
    return done is not None and bool(done.status or done.output)


def _line(name: str, old: str, new: str, *, only: bool) -> str:
    shown = name.removeprefix("refs/heads/")
    if name == STASH:
        if not new:
            return f"the stash {old} went while this attempt ran: git stash store {old}"
        back = "git stash list" if old else "git stash show -p"
        return f"the stash is {new} (was {old or 'empty'}) since this attempt ran: {back}"
    if only and not old:
        return f"{shown} was made while this attempt ran, and only it has {new}: git log -p {new}"
    if not old:
        return f"{shown} was made while this attempt ran: git update-ref -d {name} {new}"
    if not new:
        return f"{shown} was deleted while this attempt ran: git update-ref {name} {old}"
    kept = f" ('git branch NAME {new}' keeps what only it has)" if only else ""
    return f"{shown} moved while this attempt ran{kept}: git update-ref {name} {old} {new}"
