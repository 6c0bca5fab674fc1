"""Whether what came with a project is believed: docs/TRUST.md, "What a project brings".

Whoever can write to a repository would otherwise decide what runs on the machines of all who clone
it. ``runtime.trust_store`` has what the user has said yes to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from beads_workers.options import TRUST_ALL, Line
from beads_workers.runtime.project import worktree_mark
from beads_workers.runtime.trust import in_repository, is_in_index
from beads_workers.runtime.trust_store import TrustStore

if TYPE_CHECKING:
    from beads_workers.checks.plan import FleetPlan

NAME = "trust"


def trusted_lines(lines: Collection[Line], path: Path) -> frozenset[Line]:
    """Those that hold, of what stands in the file at ``path``; all are of one folder."""
    folder = next((line.folder for line in lines), None)
    if folder is None:
        return frozenset()
    store = store_of(folder)
    # What git does not track, the user wrote: unless ``.git`` itself came with a stranger's folder.
    if store.is_known and is_own(path):
        return frozenset(lines)
    return frozenset(line for line in lines if store.trusts(line.digest))


def is_own(path: Path) -> bool:
    """Whether this is a file in a repository that git does not track."""
    return in_repository(path.parent) and not is_tracked(path)


def is_tracked(path: Path) -> bool:
    """Whether git tracks this file, or what a link leads to; True if git cannot say."""
    return any(is_in_index(each) and _is_listed(each) for each in {path.absolute(), path.resolve()})


def _is_listed(path: Path) -> bool:
    from beads_workers.worktrees.git import GitError, git, names

    try:
        return bool(names(git(str(path.parent), "ls-files", "-z", "--", f":(literal){path.name}")))
    except GitError:
        return True


def store_of(folder: Path) -> TrustStore:
    """What is trusted in that folder; in a worktree of ours, in the project that it is of."""
    folder = folder.resolve()
    mark = worktree_mark(folder)
    if mark is not None and folder.is_relative_to(mark.copy):
        folder = mark.project / folder.relative_to(mark.copy)
    return TrustStore(folder)


def untrusted(plan: FleetPlan) -> list[Line]:
    """What this start would run, and the user has not said yes to."""
    if plan.options.trust == TRUST_ALL:
        return []
    from beads_workers.checks.planted import planted

    return _each_once([*plan.resolved.untrusted, *planted(plan)])


def everything(plan: FleetPlan) -> list[Line]:
    """All that any start would run here, whether it is trusted or not."""
    from beads_workers.checks.plan import FleetPlan
    from beads_workers.checks.planted import planted

    resolved = plan.resolved
    if in_repository(plan.folder):
        resolved = replace(resolved, options=replace(resolved.options, worktree=True))
    others = planted(FleetPlan(resolved, plan.said_kind), new=False, any_agent=True)
    return _each_once([*resolved.trusted, *resolved.untrusted, *others])


def trust(lines: Iterable[Line], *folders: Path) -> None:
    """Trust these from now on; ``folders`` are known then, too. Raises ``OSError``."""
    by_folder: dict[Path, list[Line]] = {folder: [] for folder in folders}
    for line in lines:
        by_folder.setdefault(line.folder, []).append(line)
    for folder, some in by_folder.items():
        store_of(folder).add((line.digest, line.text) for line in some)


def record(plan: FleetPlan) -> None:
    """What a start runs is trusted: it stays so when it is committed. Not if it was let through."""
    if plan.options.trust is not None:
        return
    from beads_workers.checks.planted import planted

    file = plan.resolved.file
    with suppress(OSError):  # Then it is asked about again.
        trust(
            [*plan.resolved.trusted, *planted(plan, new=False)],
            *(plan.folder, *([file.parent] if file else [])),
        )


def _each_once(lines: Iterable[Line]) -> list[Line]:
    return list({(line.folder, line.digest): line for line in lines}.values())
