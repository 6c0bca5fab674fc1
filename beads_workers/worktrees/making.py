"""Making a worktree: a checkout of a commit, copied files, and the result of the set-up hook.

For attempts (``preparation``), for worktrees made ahead (``pool``), and for gates.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from beads_workers.core.base.settings import Worktrees
from beads_workers.core.base.text import size
from beads_workers.runtime import locks
from beads_workers.runtime.processes import inherited
from beads_workers.worktrees import programs, removal, slots
from beads_workers.worktrees.git import (
    GitError,
    answers,
    git,
    git_or_none,
    is_object,
    lines,
    names,
    questions,
    unlock,
)
from beads_workers.worktrees.places import make_folder
from beads_workers.worktrees.records import WorktreeRecord
from beads_workers.worktrees.ref_files import loose_ref
from beads_workers.worktrees.remote import RemoteTrouble, remote_heads
from beads_workers.worktrees.sparse import take_cone

TRIES_MAX = 5
TRY_AGAIN_SECONDS = 0.2
"""Tries, and the pause between them in seconds: another git may hold a short-lived lock."""
SHOWN_MAX = 3


class CannotPrepare(Exception):
    """No worktree can be made; ``str()`` is one line."""


def add_worktree(settings: Worktrees, record: WorktreeRecord) -> Path:
    """Have git make the worktree, without files yet, on its branch or on none; return its git
    directory.

    The caller is ``alone``. Raises ``GitError``.
    """
    head = ("-b", record.branch) if record.branch else ("--detach",)
    add = ("worktree", "add", "--quiet", "--no-checkout", *head)
    if record.branch:
        unlock(settings.common, f"refs/heads/{record.branch}")
    for last in (*[False] * (TRIES_MAX - 1), True):
        try:
            git(settings.checkout, *add, record.path, record.base)
            break
        except GitError:
            if last:
                raise
            time.sleep(TRY_AGAIN_SECONDS)
    take_cone(record.path, settings.cone)
    return Path(answers(git(record.path, *questions("--absolute-git-dir")))[0])


@contextmanager
def alone(common: str) -> Iterator[None]:
    """Hold the lock of this repository: parallel ``git worktree add`` fail now and then."""
    with locks.alone(Path(common, "beads-workers.lock")):
        yield


def find_base(folder: str, base: str) -> str | None:
    """Return the commit that ``base`` names now; a branch is preferred to a tag of the same name.
    None if there is no such commit. Raises ``GitError``."""
    name, branch = base, f"refs/heads/{base}"
    may_be_branch = base != "HEAD" and not base.startswith("refs/") and not is_object(base)
    if may_be_branch and git_or_none(folder, "show-ref", "--verify", "--quiet", branch) is not None:
        name = branch
    asked = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    output = git_or_none(folder, *asked)
    # git repeats the option; the commit is in the last line.
    return lines(output)[-1] if output is not None else None


def base_of(settings: Worktrees) -> str:
    """Return the commit that an attempt begins with now; raises ``GitError``.

    If several clones land together, it is the remote's: work on an issue closed by another clone
    has landed there. While the remote cannot be reached, the last fetched commit is used.
    """
    if settings.remote:
        try:
            name = settings.base_there or settings.base
            heads = remote_heads(settings.checkout, settings.remote, (name,))
        except RemoteTrouble as trouble:
            say(f"warning: {trouble}; what has landed elsewhere since may be missing here")
        else:
            if name in heads:
                return heads[name]
    is_branch = settings.base.startswith("refs/heads/")
    found = loose_ref(Path(settings.common), settings.base) if is_branch else ""
    found = found or find_base(settings.checkout, settings.base) or settings.base_else
    if not found:
        raise GitError(f"no such base: {settings.base}")
    return found


@contextmanager
def _with_slots() -> Iterator[None]:
    try:
        yield
    except slots.NoSlot as error:
        raise CannotPrepare(str(error)) from None
    except OSError as error:
        raise CannotPrepare(f"{error.filename}: {error.strerror}") from None


def end_world(record: WorktreeRecord) -> None:
    """Tear down what the worktree has outside of its folder; raises ``CannotPrepare``."""
    with _with_slots():
        if wrong := slots.end(record.path):
            say(f"warning: {wrong}")


def take_slot(settings: Worktrees, record: WorktreeRecord) -> slots.Claim:
    """Give the worktree a number, or what it has with this issue's variables, once its last world
    has ended; raises ``CannotPrepare``."""
    end_world(record)
    with _with_slots():
        return slots.take(settings, record.path, record.issue_id)


def make_world(settings: Worktrees, record: WorktreeRecord, claim: slots.Claim) -> None:
    """Make what the worktree has outside of its folder; raises ``CannotPrepare``."""
    line = settings.rules.worlds.world
    with _with_slots(), slots.held(claim):
        slots.begin(settings, claim)
        if line is None:
            return
        added = environment(settings, record, claim)
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=added["PWD"],
            env=inherited() | added,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    if done.returncode != 0:
        end_world(record)
        raise CannotPrepare(f"world failed: exit status {done.returncode}")


def set_up(script: str, folder: str, environment: dict[str, str]) -> None:
    """Run the set-up hook; raises ``CannotPrepare``."""
    with programs.of_set_up(environment["BW_WORKTREE"]):
        done = subprocess.run(
            ["sh", "-c", script],
            cwd=folder,
            env=inherited() | environment,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    if done.returncode != 0:
        raise CannotPrepare(f"setup failed: exit status {done.returncode}")


def left_by_set_up(worktree: str) -> str:
    """Return the first changes that git shows after the set-up, as one text; "" for none. Raises
    ``CannotPrepare``."""
    try:
        left = removal.changes(worktree)
    except GitError as error:
        raise CannotPrepare(str(error)) from None
    return ", ".join(left[:SHOWN_MAX])


def check_disk(settings: Worktrees) -> None:
    """Check that there is disk space for a worktree; raises ``CannotPrepare``."""
    folder = Path(settings.folder)
    try:
        make_folder(folder)
        free = free_bytes(folder)
    except OSError as error:
        raise CannotPrepare(f"{folder}: {error.strerror}") from None
    if free < settings.rules.disk_floor_bytes:
        raise CannotPrepare(
            f"{size(free)} of disk are free at {folder}, and the floor is"
            f" {size(settings.rules.disk_floor_bytes)}; 'beads-workers clean' may make room"
        )


def free_bytes(folder: Path) -> int:
    """Return the free space on the folder's disk, in bytes; raises ``OSError``."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def environment(settings: Worktrees, record: WorktreeRecord, claim: slots.Claim) -> dict[str, str]:
    """Return the variables for every command in the worktree. A worktree made ahead has no branch
    yet. Raises ``GitError`` and ``OSError``."""
    added = programs.pinned(settings, record.run_id, os.environ) | {
        "BW_WORKTREE": record.path,
        "BW_BRANCH": record.branch,
        "BW_BASE": record.base,
        "BW_CHECKOUT": settings.checkout,
        "PWD": os.path.normpath(f"{record.path}/{settings.prefix}"),
    }
    if not record.branch:
        del added["BW_BRANCH"]
    if settings.checkout == settings.common:  # On another machine: nobody's checkout.
        del added["BW_CHECKOUT"]
    added |= claim.variables
    if settings.beads is not None:
        # The worktree may hold a copy of ``.beads``, but there is only one tracker.
        added["BEADS_DIR"] = settings.beads
    return added


# --- copies --------------------------------------------------------------------------------------
# Files that git ignores and an attempt still needs (``.env``): copied into its worktree.


def copy_files(settings: Worktrees, worktree: str) -> Iterator[str]:
    """Copy the files that ``settings.copy`` names; yield a warning for each part that is left out.

    Only files that git ignores, here and there, are copied, so that no attempt commits them. They
    come from inside the project, and replace nothing. Raises ``GitError`` and ``OSError``.
    """
    target = Path(worktree, settings.prefix)
    copied: set[str] = set()
    for pattern in settings.rules.copy:
        found = matching(settings, pattern)
        if not found:
            yield f"copy: nothing that git ignores matches {pattern}"
        for name in found:
            if name in copied:
                continue
            if trouble := _copy(Path(settings.checkout), target, name):
                yield f"copy: {name} left out, {trouble}"
            else:
                copied.add(name)
    if not copied:
        return
    shown = names(git(str(target), "ls-files", "-z", "--others", "--exclude-standard"))
    for name in sorted(copied & set(shown)):
        (target / name).unlink()
        yield f"copy: {name} left out, the .gitignore of the base does not name it"


def matching(settings: Worktrees, pattern: str) -> list[str]:
    """Return the ignored files of the project that a pattern names, seen from the project's
    folder."""
    listed = git(
        settings.checkout,
        *("ls-files", "-z", "--others", "--ignored", "--exclude-standard"),
        *("--", f":(glob){pattern}"),
    )
    ours = [Path(place).resolve() for place in (settings.state_directory, settings.folder)]
    found = [name for name in names(listed) if not name.endswith("/")]
    root = Path(settings.checkout).resolve()
    return [name for name in found if not any((root / name).is_relative_to(o) for o in ours)]


def _copy(project: Path, target: Path, name: str) -> str | None:
    """Copy one file; return why it was not copied, or None."""
    source, goal = project / name, target / name
    if not source.resolve().is_relative_to(project.resolve()):
        return "it leads out of the project"
    if os.path.lexists(goal):
        return "it is in the repository"
    goal.parent.mkdir(parents=True, exist_ok=True)
    if not goal.parent.resolve().is_relative_to(target.resolve()):
        return "its place leads out of the worktree"
    shutil.copy2(source, goal, follow_symlinks=False)
    return None


def refresh_copies(
    settings: Worktrees, worktree: str, earlier: Iterable[str] = ()
) -> Iterator[str]:
    """Repeat ``copy_files``, which had copied ``earlier``: the user's files may have changed
    since."""
    below = Path(worktree, settings.prefix)
    below.mkdir(parents=True, exist_ok=True)
    now = (name for pattern in settings.rules.copy for name in matching(settings, pattern))
    for name in filter(lambda name: os.path.lexists(below / name), {*earlier, *now}):
        if not git(str(below), "ls-files", "-z", "--", f":(literal){name}"):
            (below / name).unlink()
    yield from copy_files(settings, worktree)


def copied_state(settings: Worktrees) -> list[tuple[str, int, str]]:
    """Return what would be copied now: names, modes and hashes. Raises ``GitError``."""
    found = (name for pattern in settings.rules.copy for name in matching(settings, pattern))
    return [(name, *_content(Path(settings.checkout, name))) for name in found]


def _content(file: Path) -> tuple[int, str]:
    from hashlib import sha256  # It loads OpenSSL, and most projects copy nothing.

    try:
        found = os.fsencode(file.readlink()) if file.is_symlink() else file.read_bytes()
        return file.lstat().st_mode, sha256(found).hexdigest()
    except OSError:
        return 0, ""


def say(text: str) -> None:
    """Print a line to the log."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
