"""Who has moved an integration branch: an attempt, or a person.

All worktrees share their branches. git notes each move of a branch, and of the ``HEAD`` of each
worktree. An attempt has moved a branch if the ``HEAD`` of its worktree made the same move, or
if its ``HEAD`` made the commit to which the branch moved. That a ``HEAD`` has merely been there
proves nothing: attempts begin there, and check branches out. A worktree's notes go when it is used
again or removed, so an attempt looks for its own moves as it ends (``moved_by``).

A person has moved it if the ``HEAD`` of one of the user's own worktrees tells so, or if no attempt
was under way at that time. Otherwise nobody knows. Source: docs/LANDING.md, "What lands".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from beads_workers.core.base.settings import Worktrees
from beads_workers.executors.files import branch_part
from beads_workers.worktrees.git import OWN_REFS, git, log_format, row_format, rows
from beads_workers.worktrees.landed import WHY
from beads_workers.worktrees.records import Records, git_directories, token_in
from beads_workers.worktrees.ref_files import LoggedMove, reflog

if TYPE_CHECKING:
    from beads_workers.runtime.run_directory import RunDirectory

TRESPASSED = f"{OWN_REFS}/trespassed"
"""``refs/bw/trespassed/<run>/<issue>/<attempt>``: commit that this attempt put on an integration
branch by itself, as it was seen at its end or before: its own branch lands only by name."""

SECOND = 1.0
"""git cuts times to whole seconds."""
KILLED_SECONDS = 10.0
"""Seconds that attempts may outlive their killed orchestrator."""

_MADE = re.compile(
    r"(commit|cherry-pick|revert|am)\b|rebase.*\((pick|reword|edit|squash|fixup|continue)\)"
    r"|(merge|pull)\b.*: Merge made"
)
"""git's reasons for a move of ``HEAD`` to a commit that was not there before."""


def _made(heads: Sequence[LoggedMove]) -> set[str]:
    """Return the commits that were made at this ``HEAD``."""
    return {each.commit for each in heads if _MADE.match(each.why)}


def moves(directory: Path, ref: str) -> list[LoggedMove]:
    """Return the noted moves of a ref, the newest first; raises ``GitError``. ``directory``: the
    common git directory, or a worktree's own for its ``HEAD``."""
    if (found := reflog(directory, ref)) is not None:
        return found
    if ref == "HEAD" and not (directory / "reftable").exists():
        return []  # Its log is gone.
    asked = ("log", "-g", "--date=raw", log_format("%H", "%gs", "%gn", "%ge", "%gd"), ref, "--")
    read = rows(git(str(directory), f"--git-dir={directory}", *asked), 5)
    before = [row[0] for row in read[1:]] + [""]
    return [
        LoggedMove(commit, was, why, (name, mail, int(at.rpartition("@{")[2].split(" ")[0])))
        for (commit, why, name, mail, at), was in zip(read, before, strict=True)
    ]


def last_moved_at(directory: Path, ref: str, move: LoggedMove) -> float | None:
    """Return when the newest move of a ref was made, from the time of its log; None if that file
    does not say it."""
    with suppress(OSError):
        at = (directory / "logs" / ref).stat().st_mtime
        return at if int(at) == move.who[2] else None
    return None


def name_of(run_id: str, issue_id: str, attempt: int) -> str:
    """Return the end of the refs of an attempt."""
    return f"{branch_part(run_id or 'none')}/{branch_part(issue_id)}/{attempt}"


def trespass_text(branch: str, commit: str) -> str:
    """Return for people what an attempt did, with the command that keeps its commit."""
    return (
        f"its attempt moved {branch} to {commit[:12]} by itself, which was taken back;"
        f" 'git branch NAME {commit[:12]}' keeps it"
    )


def _users(common: Path, ours: Path) -> list[list[LoggedMove]]:
    """Return the moves of ``HEAD`` in the user's worktrees; inside of ``ours`` are sub-agents'."""
    found = [
        moves(directory, "HEAD")
        for directory, folder in git_directories(str(common))
        if token_in(directory) is None and not folder.resolve().is_relative_to(ours.resolve())
    ]
    return [moves(common, "HEAD"), *found]


def moved_by(
    common: Path, place: tuple[Path, Path], refs: Sequence[str], since: float
) -> tuple[str, LoggedMove] | None:
    """Return the last move of one of these integration branches by the attempt that ends in this
    worktree, and began at ``since`` (epoch seconds), with the branch's ref; None if it made none.
    ``place``: the worktree's git directory, and its folder. Raises ``GitError``."""
    heads: list[LoggedMove] | None = None
    for ref in refs:
        for move in moves(common, ref):
            if move.why.startswith(WHY) or move.who[2] < since - SECOND:
                continue
            heads = moves(place[0], "HEAD") if heads is None else heads
            may_be = move.commit in _made(heads)
            if move in heads or (may_be and move not in chain(*_users(common, place[1].parent))):
                return ref, move
    return None


class Movers:
    """What is known now of attempts and of the user's worktrees. ``since``: epoch seconds of the
    oldest move that is asked about. Raises ``GitError``."""

    def __init__(self, settings: Worktrees, since: float) -> None:
        # Imported here and below: attempts load this module, and never look at others.
        from beads_workers.runtime.run_directory import RunDirectory

        common, state = settings.common, Path(settings.state_directory)
        runs, of = RunDirectory(state), {each.token: each for each in Records(state).all()}
        self._spans: dict[str, list[tuple[float, float]]] = {}
        for run_id in runs.run_ids():
            for issue_id, *span in _spans(runs, run_id, since):
                key = name_of(run_id, issue_id, 0).rpartition("/")[0]
                self._spans.setdefault(key, []).append((span[0], span[1]))
        self._attempts = list[tuple[str, list[LoggedMove], set[str]]]()
        self._users = _users(Path(common), Path(settings.folder))
        for directory, _ in git_directories(common):
            if (record := of.get(token_in(directory) or "")) is not None:
                name, heads = (
                    name_of(record.run_id, record.issue_id, record.attempt),
                    moves(directory, "HEAD"),
                )
                self._attempts.append((name, heads, _made(heads)))
        wanted = row_format("%(refname)", "%(objectname)")
        for ref, commit in rows(git(common, "for-each-ref", wanted, f"{TRESPASSED}/"), 2):
            self._attempts.append((ref.removeprefix(f"{TRESPASSED}/"), [], {commit}))

    def of(self, move: LoggedMove, moved_at: float | None = None) -> str | None:
        """Return the attempt (``name_of``) that made this move, "" for a person; None if nobody
        knows. ``moved_at``: its time, if that is known better than to the second."""
        at, made = moved_at or move.who[2], move.commit
        early = 0.0 if moved_at else SECOND
        not_over = [
            (name, heads, theirs)
            for name, heads, theirs in self._attempts
            if any(at <= end for _, end in self._spans.get(name.rpartition("/")[0], ()))
        ]
        by = [name for name, heads, _ in not_over if move in heads]
        spans = (span for found in self._spans.values() for span in found)
        under_way = any(begin - early < at <= end for begin, end in spans)
        if not by and (not under_way or any(move in heads for heads in self._users)):
            return ""
        by += [name for name, _, theirs in not_over if made in theirs]
        return by[0] if by else "" if any(made in _made(heads) for heads in self._users) else None


def _spans(runs: RunDirectory, run_id: str, since: float) -> Iterator[tuple[str, float, float]]:
    """Yield the issue of each attempt in this run, its begin and its end in epoch seconds; nothing
    if the run was over before ``since``."""
    from beads_workers.core.records import journal as rec
    from beads_workers.runtime.journal_file import read_journal, segments

    journal = runs.run(run_id) / "journal.jsonl"
    end = max((path.stat().st_mtime for path in segments(journal)), default=0.0) + KILLED_SECONDS
    end = inf if runs.is_alive(run_id) else end
    begun = dict[str, float]()
    for entry in read_journal(journal) if end >= since else ():
        match entry.record:
            case rec.Started(issue_id):
                begun[issue_id] = entry.at
            case rec.Finished(issue_id) if issue_id in begun:
                yield issue_id, begun.pop(issue_id), entry.at
    yield from ((issue_id, at, end) for issue_id, at in begun.items())
