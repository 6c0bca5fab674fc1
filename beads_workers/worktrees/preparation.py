"""The PREPARE step: makes an attempt's git worktree. ``python -m`` with a preparation on stdin."""

from __future__ import annotations

import gc
import json
import os
import sys
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

from beads_workers.core.base.model import OCCUPIED
from beads_workers.core.base.settings import Worktrees
from beads_workers.executors.files import branch_part, file_name
from beads_workers.worktrees import making, programs, removal, reuse, slots, sparse, submodules
from beads_workers.worktrees.checkout_slots import turn
from beads_workers.worktrees.git import BRANCHES, GitError, git, unlock_worktree
from beads_workers.worktrees.orders import Preparation, read_preparation
from beads_workers.worktrees.records import REFS_FILE, Records, WorktreeRecord, named_in, new_token
from beads_workers.worktrees.ref_files import is_free

# Its output goes to the attempt's log, and the last line of a failure is the error that people see.
# It fails for reasons that are not the issue's: the worker asks for a free retry. Source:
# docs/SEMANTICS.md, "Worktrees".


FIFO = "pool.wake"
"""Beside the records: wakes the process that fills the pool."""
NAMES_MAX = 1000
"""Number of worktrees of one attempt after which something must be wrong."""


class Occupied(Exception):
    """A person stands in a worktree of the issue: nothing is touched; ``str()`` says who."""

    def __init__(self, folder: str, who: str) -> None:
        super().__init__(f"you stand in its worktree ({who})")
        self.folder = folder


def prepare(asked: Preparation) -> None:
    """Make the worktree and name it in the place file; raises ``CannotPrepare``, ``Occupied``."""
    settings = asked.worktrees
    records = Records(Path(settings.state_directory))
    place_file = Path(asked.place_file)
    last = named_in(place_file)
    ended = records.find(last) if last is not None else None
    if ended is not None:
        making.end_world(ended)
    # From here on the worktree of this worker's last task is not in use.
    place_file.unlink(missing_ok=True)
    # Before that worktree is removed: a session is found again only in its own folder.
    occupied = _occupied(asked.issue_id, records)
    goes_on = not occupied and asked.continues and _go_on(asked, records, place_file)
    if last is not None and (record := records.find(last)) is not None:
        _leave(asked, records, record)
    if occupied:
        raise occupied
    if goes_on:
        return
    try:
        making.check_disk(settings)
        _make(asked, records, place_file)
    finally:
        if settings.rules.pool:
            _wake(records)  # From now on others work.


def _wake(records: Records) -> None:
    """Wake the process that fills the pool, if there is one."""
    with suppress(OSError):
        fifo = os.open(records.folder / FIFO, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with suppress(OSError):
            os.write(fifo, b"\n")
        os.close(fifo)


def _leave(asked: Preparation, records: Records, last: WorktreeRecord) -> None:
    """Let go of the worktree of this worker's last task."""
    if asked.worktrees.reuse:
        try:
            tip = reuse.tip_of(last)
        except GitError:
            return  # The end of the run looks again.
        if records.over_at(last) or tip not in ("", last.base):
            return  # It is used again, or its work lands first, or waits for somebody.
        if not asked.may_continue:
            # No further attempt goes on in it.
            records.set_over(last, last.base)
            return
    removal.tidy(records, [last])


def _make(asked: Preparation, records: Records, place_file: Path) -> None:
    settings = asked.worktrees
    if settings.cone is not None:
        settings = replace(settings, cone=sparse.widened(settings.cone, asked.paths))
    try:
        base = asked.base or making.base_of(settings)
        freed = _freed(asked, records, base)
        with making.alone(settings.common):
            record, lock = _begin(asked, records, base, freed)
            if freed is None:
                records.mark(record, making.add_worktree(settings, record), settings)
    except GitError as error:
        raise making.CannotPrepare(str(error)) from None
    try:
        if freed is not None:
            reuse.hand_over(settings, freed, records, record)
        else:
            with turn(record.common):
                git(record.path, "reset", "--hard", "--quiet", *filter(None, (asked.head,)))
        claim = making.take_slot(settings, record)
        if freed is None or freed.kept is None:
            copy_files(settings, record)
            _run_set_up(settings, record, claim)
        if settings.reuse:
            reuse.note(settings, records, record, freed.kept if freed else None)
        if asked.lands:
            keep_refs(record.path)
        making.make_world(settings, record, claim)
        _write_place(settings, record, claim, place_file)
        making.say(f"worktree {record.path}, branch {record.branch} from {record.base[:12]}")
        records.ready(record)
    except GitError as error:
        raise making.CannotPrepare(str(error)) from None
    finally:
        os.close(lock)
        # An unfinished worktree holds nobody's work; the log says what went wrong.
        if not records.is_ready(record):
            removal.tidy(records, [record])


def keep_refs(folder: str) -> None:
    """Write down all refs, and the programs in git's settings, so that changes by the attempt can
    be named afterwards."""
    try:
        dot_git = os.fsdecode(Path(folder, ".git").read_bytes())
        directory = dot_git.removeprefix("gitdir:").strip()
        refs = git(folder, "for-each-ref", "--format=%(objectname) %(refname)")
        Path(directory, REFS_FILE).write_text(refs, "utf-8", "surrogateescape")
        programs.keep(Path(directory))
    except GitError as error:
        raise making.CannotPrepare(str(error)) from None
    except OSError as error:
        raise making.CannotPrepare(f"{error.filename}: {error.strerror}") from None


def _freed(asked: Preparation, records: Records, base: str) -> reuse.FreedWorktree | None:
    if asked.head or not (asked.worktrees.reuse or asked.worktrees.rules.pool):
        return None
    reuse.settle(records)
    return reuse.take(asked.worktrees, records, base, asked.run_id)


def copy_files(settings: Worktrees, record: WorktreeRecord) -> None:
    """Copy files into a new worktree; raises ``CannotPrepare``."""
    folder = os.path.normpath(f"{record.path}/{settings.prefix}")
    try:
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - no Path here
        for warning in making.copy_files(settings, record.path) if settings.rules.copy else ():
            making.say(f"warning: {warning}")
    except OSError as error:
        raise making.CannotPrepare(f"{error.filename}: {error.strerror}") from None


def _run_set_up(settings: Worktrees, record: WorktreeRecord, claim: slots.Claim) -> None:
    if settings.rules.setup is None:
        return
    added = making.environment(settings, record, claim)
    making.set_up(settings.rules.setup, added["PWD"], added)
    for each in submodules.look(record.path):
        if each.differs:  # An agent would be blamed for it, and no gate would have the same.
            raise making.CannotPrepare(f"setup: submodule {each.path}: {each.differs}")
    if left := making.left_by_set_up(record.path):
        making.say(
            f"warning: setup left what git does not ignore, so this worktree is kept: {left}"
        )


def _occupied(issue_id: str, records: Records) -> Occupied | None:
    """Return the first worktree of the issue in which a person stands."""
    for record in records.of_issue(issue_id):
        # Imported here: the first attempt of an issue has no worktree to look at.
        from beads_workers.runtime.occupants import described, staying

        if found := staying(record.path, records.state_directory):
            return Occupied(record.path, described(found))
    return None


def _go_on(asked: Preparation, records: Records, place_file: Path) -> bool:
    """Take over the newest worktree of the issue, if there is one.

    The worktree may still be named by its last user, which works in it no more: an issue is with
    one worker at a time. The record is locked until the place file names the worktree. Otherwise
    the last user would remove it.
    """
    of_issue = records.of_issue(asked.issue_id)
    for record in sorted(of_issue, key=records.written_at, reverse=True):
        lock = records.lock(record)
        if lock is None:
            continue
        try:
            if not records.is_ready(record) or not Path(record.path).exists():
                continue
            if asked.head and reuse.tip_of(record) != asked.head:
                continue  # Another machine has worked on it since.
            if why := removal.unusable(record):
                making.say(f"a new worktree is made, because {record.path} is broken: {why}")
                continue
            taken, held = records.take_over(record, asked.run_id, asked.worker_id)
            try:
                if asked.paths and (cone := sparse.cone_of(taken.path)) is not None:
                    sparse.take_cone(taken.path, sparse.widened(cone, asked.paths))
                claim = making.take_slot(asked.worktrees, taken)
                making.make_world(asked.worktrees, taken, claim)
                _write_place(asked.worktrees, taken, claim, place_file)
            finally:
                os.close(held)
        finally:
            os.close(lock)
        records.set_over(taken, None)
        unlock_worktree(taken.path)
        making.say(f"worktree {taken.path}, branch {taken.branch}: the work goes on")
        return True
    return False


def _write_place(
    settings: Worktrees, record: WorktreeRecord, claim: slots.Claim, place_file: Path
) -> None:
    added = making.environment(settings, record, claim)
    place = {"name": record.name, "folder": added["PWD"], "environment": added}
    place_file.write_text(json.dumps(place))


def _begin(
    asked: Preparation,
    records: Records,
    base: str,
    taken: reuse.FreedWorktree | None,
) -> tuple[WorktreeRecord, int]:
    settings = asked.worktrees
    for number in range(1, NAMES_MAX):
        # An attempt that was not charged has its number again: its earlier worktree is not touched.
        again = "" if number == 1 else f".{number}"
        record = WorktreeRecord(
            name=f"{file_name(asked.issue_id)}.{asked.attempt}{again}",
            issue_id=asked.issue_id,
            attempt=asked.attempt,
            branch=f"{BRANCHES}/{branch_part(asked.issue_id)}/{asked.attempt}{again}",
            base=base,
            path=taken.record.path if taken else "",
            common=settings.common,
            run_id=asked.run_id,
            worker_id=asked.worker_id,
            token=taken.record.token if taken else new_token(),
        )
        if taken is None:
            record = replace(record, path=new_path(settings, records, record.name))
        if (left := records.find(record.name)) is not None:
            if left.issue_id != record.issue_id or left.attempt != record.attempt:
                continue
            removal.tidy(records, [left])
        known = records.find(record.name) is not None
        if not known and (taken or not os.path.lexists(record.path)) and _is_free(settings, record):
            return record, records.begin(record)
    raise making.CannotPrepare(f"attempt {asked.attempt} has left {NAMES_MAX} worktrees")


def new_path(settings: Worktrees, records: Records, name: str) -> str:
    """Return the path of a new worktree. One that may be used again has no issue in its name."""
    if not settings.reuse:
        return f"{settings.folder}/{name}"
    known = {record.path for record in records.all()}
    paths = (f"{settings.folder}/w{number}" for number in count(1))
    return next(path for path in paths if path not in known and not os.path.lexists(path))


def _is_free(settings: Worktrees, record: WorktreeRecord) -> bool:
    ref = f"refs/heads/{record.branch}"
    if is_free(Path(settings.common), ref):
        return True
    return not git(settings.checkout, "for-each-ref", "--format=%(refname)", ref).strip()


def main() -> int:
    """Run the step: see the module text. Return 0, or another status after printing why:
    ``EX_TEMPFAIL``, and the folder before the reason, if a person stands there."""
    try:
        prepare(read_preparation(sys.stdin.read()))
    except Occupied as error:
        making.say(f"{OCCUPIED}{error.folder}\n{error}")
        return os.EX_TEMPFAIL
    except (making.CannotPrepare, GitError) as error:
        making.say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    gc.freeze()  # Nothing that is loaded is garbage; at the end, Python would search for some, too.
    sys.exit(main())
