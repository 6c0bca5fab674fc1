"""What holds only because git's configuration is overridden, and fails by a planted table without.

``tests/end_to_end/test_hostile_git.py`` runs all commands under all of them; here stand those whose
loss no such run shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from beads_workers.worktrees import git as calls
from beads_workers.worktrees.git import GitError
from beads_workers.worktrees.landed import landed_commits
from beads_workers.worktrees.making import add_worktree
from beads_workers.worktrees.overrides import ALL
from tests.support.hostile_git import SIGNER
from tests.support.repository import git
from tests.support.worktrees import World

TRAILERS = "Issue: a\nAttempt: 1\nRun: r\nVerified: none\n"


def signatures_are_not_printed(world: World, folder: Path) -> bool:
    """``log`` of a signed commit says what was asked for, and nothing of its signature."""
    signer = folder / "signer"
    signer.write_text(SIGNER)
    signer.chmod(0o755)
    git(world.top, "config", "gpg.program", str(signer))
    git(world.top, "config", "log.showSignature", "true")
    git(world.top, "commit", "-S", "--quiet", "--allow-empty", "-m", f"work\n\n{TRAILERS}")
    try:
        (found,) = landed_commits(str(world.top), "", ["main"])
    except (GitError, ValueError):
        return False
    return found.commit == git(world.top, "rev-parse", "main")


def branches_follow_nothing(world: World, folder: Path) -> bool:
    """No branch of ours gets an upstream, to which a ``git push`` or ``pull`` would go."""
    git(world.top, "config", "branch.autoSetupMerge", "always")
    record = replace(world.make("a").record, path=str(folder / "w"), branch="bw/b/1", base="main")
    add_worktree(world.settings, record)
    return not git(world.top, "for-each-ref", "--format=%(upstream)", "refs/heads/bw/b/1")


@pytest.mark.parametrize(
    ("key", "holds"),
    [
        ("log.showSignature", signatures_are_not_printed),
        ("branch.autoSetupMerge", branches_follow_nothing),
    ],
)
@pytest.mark.parametrize("planted", [False, True])
def test_it_holds_and_not_without_its_key(
    key: str,
    holds: Callable[[World, Path], bool],
    planted: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(tmp_path)
    if planted:
        kept = [(name, setting) for name, setting in ALL.items() if name != key]
        words = tuple(word for name, setting in kept for word in ("-c", f"{name}={setting}"))
        monkeypatch.setattr(calls, "OPTIONS", words)
    assert holds(world, tmp_path) is not planted
