"""A project that was renamed or moved: its worktrees still point to the old place.

git finds a worktree and its repository by paths in two files, and so do our records. Our worktrees
are known by their tokens. The user's own worktrees are left alone: ``git worktree repair`` fixes
those.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

from beads_workers.runtime.project import WORKTREE_MARK
from beads_workers.worktrees.records import Records, WorktreeRecord, git_directories, token_in


def moved(records: Records, common: str) -> list[WorktreeRecord]:
    """Return the records that name another place of the repository than ``common``, though their
    worktrees are this one's. A record without a worktree is included if its place is gone. Nothing
    is changed."""
    others = [record for record in records.all() if record.common != common]
    tokens = _tokens(common) if others else {}
    return [record for record in others if _is_of(record, tokens)]


def lead_back(records: Records, project: Path, common: str) -> None:
    """Point the moved worktrees and records to the project as it is now, with ``common`` as its git
    directory. If a file cannot be written, its worktree stays as it is."""
    if not (away := moved(records, common)):
        return
    tokens = _tokens(common)
    for record in away:
        lock = records.lock(record)
        if lock is None:
            continue  # It is being made or removed.
        try:
            now = replace(record, common=common)
            if (directory := tokens.get(record.token)) is not None:
                now = replace(now, path=_lead(directory, record, project, records))
            records.rewrite(now)
        except OSError:
            continue
        finally:
            os.close(lock)


def lead_to(directory: Path, folder: Path) -> None:
    """Make a worktree and its git directory name each other; raises ``OSError``."""
    (folder / ".git").write_bytes(b"gitdir: " + os.fsencode(directory) + b"\n")
    (directory / "gitdir").write_bytes(os.fsencode(folder / ".git") + b"\n")


def _tokens(common: str) -> dict[str, Path]:
    found = ((token_in(directory), directory) for directory, _ in git_directories(common))
    return {token: directory for token, directory in found if token is not None}


def _is_of(record: WorktreeRecord, tokens: dict[str, Path]) -> bool:
    # A copy of a project has the same tokens as the original, which they belong to.
    if record.token in tokens:
        return record.token not in _tokens(record.common)
    return not Path(record.common).exists()


def _lead(directory: Path, record: WorktreeRecord, project: Path, records: Records) -> str:
    """Repair the links of the worktree, and return its path, which may have moved along."""
    mark = json.loads((directory / WORKTREE_MARK).read_bytes())
    folder, state = Path(record.path), records.state_directory.resolve()
    for was, now in ((mark.get("state", ""), state), (mark.get("project", ""), project)):
        if not folder.exists() and folder.is_relative_to(was):
            folder = now / folder.relative_to(was)
    if folder.exists():
        lead_to(directory, folder)
    mark |= {"project": str(project), "state": str(state)}
    (directory / WORKTREE_MARK).write_text(json.dumps(mark) + "\n")
    return str(folder)
