"""Worktrees that are used again: the next attempt gets the worktree of one that is over.

One question decides: **is what differs from a fresh worktree known, file for file?** So ``note``
writes down what fresh means, before an attempt begins in a worktree:

    <git directory>/bw-fresh   a row for each file, link and folder, and the worktree's settings
    <git directory>/bw-index   the index (a hard link: git replaces an index, and never writes to
                               it)

Whoever works in the worktree can write these files, too. So the records have a digest of both.
``take`` compares the worktree with these rows. What git tracks and differs is removed, and git
checks it out again, with the index as it was: no bit, stage or extension of another one counts.
What was added since is removed. If something that set-up made differs or is missing, all of it is
removed, and set-up runs as in a new worktree. Everything else that differs has no rule here, and
the attempt gets a new worktree: state of git beside the index, settings, folders with other modes,
another repository inside.

Only worktrees that nobody needs are looked at: a record has ``.over`` then, with the commit of its
branch. The lander writes it when the branch has landed (``landed``), and ``preparation`` after a
task without a commit, if no further attempt goes on in its worktree. Nothing that waits for an
answer, an approval, a retry, a person or a landing has one. Uncommitted changes, and a process that
stands in the worktree, keep it all the same.

After a kill at any moment the records tell whose the worktree is:

    <issue A>.json, ready              A's: nothing was touched
    <issue A>.json, not ready          nobody's: it holds no work, and its branch has landed, if it
                                       is there
    again-<token>.json                 nobody's, and A's branch is gone
    <issue B>.json, not ready          an unfinished worktree of B, as any other

Source: docs/SEMANTICS.md, "Worktrees".
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from beads_workers.core.base.model import value
from beads_workers.core.base.plain import BAD_VALUE, from_plain, to_plain
from beads_workers.core.base.settings import Worktrees
from beads_workers.core.base.text import some
from beads_workers.executors.files import branch_part, file_name
from beads_workers.runtime.occupants import standing
from beads_workers.runtime.side_programs import POOL
from beads_workers.worktrees import making, programs, removal, slots
from beads_workers.worktrees.freshness import clear_gone, must_set_up, recipe
from beads_workers.worktrees.git import GitError, git, names, pairs, unlock, unlock_all
from beads_workers.worktrees.landed import ATTEMPTS, LANDING
from beads_workers.worktrees.records import (
    REFS_FILE,
    Records,
    WorktreeRecord,
    led_to,
    token_in,
)
from beads_workers.worktrees.ref_files import loose_ref
from beads_workers.worktrees.sparse import take_cone

if TYPE_CHECKING:
    from beads_workers.core.records.landing import Add

FRESH, INDEX = "bw-fresh", "bw-index"

PASSING = {
    *("HEAD", "index", "logs", "ORIG_HEAD", "FETCH_HEAD", "COMMIT_EDITMSG", "MERGE_RR"),
    *("AUTO_MERGE", FRESH, INDEX, REFS_FILE, programs.FILE),
}
"""Entries of a worktree's git directory that any work leaves: they are made anew."""

SETTINGS = ("config", "info/attributes", "info/exclude", "info/grafts", "shallow")
"""Files of the repository that decide what a checkout looks like."""

NAMES_SHOWN = 3
SETTINGS_BYTES_MAX = 1 << 18
SETTINGS_FILES_MAX = 100

_OF_ATTEMPT = re.compile(r"BW_(?!WORKTREE|CHECKOUT|AHEAD|SLOT)[A-Z]")
"""A variable in the set-up line that has another value in each attempt."""


class Odd(Exception):
    """The worktree differs from a fresh one in a way that nothing here puts right; ``str()`` says
    how."""


class Kept(Exception):
    """The worktree is somebody's, after all; ``str()`` says why."""


@value
class Fresh:
    """A worktree before its attempt begins. Rows are by path; that of a folder ends with ``/``."""

    # The commit that is checked out.
    at: str
    # The settings that the worktree was made with.
    recipe: str
    # Files and links of git.
    tracked: dict[str, str]
    # Files and links of set-up and copies.
    made: dict[str, str]
    # Folders of git, set-up and copies.
    folders: dict[str, str]
    # Those of ``made`` that are files with several names: time of change, and hash.
    linked: dict[str, tuple[int, str]]
    # The copied files of the project.
    copied: list[tuple[str, int, str]]
    # The files of the worktree's git directory, and ``SETTINGS``, with their text.
    own: dict[str, str]


@dataclass(slots=True)
class FreedWorktree:
    """A worktree that is nobody's; ``lock``: on its record. ``kept``: what set-up made in it is as
    it was; None if copies and set-up are missing."""

    record: WorktreeRecord
    lock: int
    directory: Path
    kept: Fresh | None
    # What the checkout of the new base changes.
    changed: list[tuple[str, str]]


# --- what fresh means ----------------------------------------------------------------------------


@dataclass(slots=True)
class Contents:
    """What is in a folder: a row for each file or link, and for each folder; ``linked``: the files
    with several names, and the times at which they changed."""

    files: dict[str, str] = field(default_factory=dict)
    folders: dict[str, str] = field(default_factory=dict)
    linked: dict[str, int] = field(default_factory=dict)


def look(top: str, skipped: Collection[str] = ()) -> Contents:
    """Return what is in a worktree, except its ``.git``; raises ``Odd`` and ``OSError``."""
    seen, pending = Contents(), [""]
    device = os.lstat(top).st_dev
    while pending:
        below = pending.pop()
        with os.scandir(f"{top}/{below}") as entries:
            for entry in entries:
                name = f"{below}{entry.name}"
                if entry.name == ".git":
                    if below:
                        raise Odd(f"{below} is another repository")
                    continue
                found = entry.stat(follow_symlinks=False)
                if not stat.S_ISDIR(found.st_mode):
                    seen.files[name] = _row(found)
                    if found.st_nlink > 1:
                        seen.linked[name] = found.st_ctime_ns
                elif found.st_dev != device:
                    raise Odd(f"{name} is another disk")
                elif f"{name}/" not in skipped:
                    seen.folders[f"{name}/"] = f"{found.st_mode:o}"
                    pending.append(f"{name}/")
    return seen


def _row(found: os.stat_result) -> str:
    # The time of change of a file with several names changes with each further name.
    changed = found.st_ctime_ns if found.st_nlink == 1 else "linked"
    return f"{found.st_mode:o} {found.st_size} {found.st_mtime_ns} {found.st_ino} {changed}"


def note(
    settings: Worktrees, records: Records, record: WorktreeRecord, kept: Fresh | None = None
) -> None:
    """Write down what the worktree is like, before its attempt begins. ``kept``: what is known to
    be as it was, of a worktree used again. If that cannot be said, nothing is written, and the
    worktree will not be used again."""
    with suppress(Odd, GitError, OSError):
        directory = _directory(record)
        (directory / FRESH).unlink(missing_ok=True)
        fresh = _noted(settings, record, directory, kept)
        (directory / INDEX).unlink(missing_ok=True)
        os.link(directory / "index", directory / INDEX)
        written = directory / f"{FRESH}.new"
        text = json.dumps(to_plain(fresh))
        written.write_text(text, "utf-8", "surrogateescape")
        written.rename(directory / FRESH)
        records.seal(record, _digest(directory))


def _noted(
    settings: Worktrees, record: WorktreeRecord, directory: Path, kept: Fresh | None
) -> Fresh:
    own = _own(record, directory)
    if (directory / "reftable").exists():
        raise Odd("refs are in tables")
    roots = _folders_of_set_up(kept) if kept is not None else set[str]()
    seen = look(record.path, roots)
    copied = making.copied_state(settings) if settings.rules.copy else []
    of = record.base, _recipe(settings, record)
    if kept is not None:
        tracked = {name: row for name, row in seen.files.items() if name not in kept.made}
        rows = kept.folders.items()
        below = {name: row for name, row in rows if not roots.isdisjoint(_parents((name,)))}
        return Fresh(*of, tracked, kept.made, seen.folders | below, kept.linked, copied, own)
    in_index = set(seen.files)
    if settings.rules.setup is not None or settings.rules.copy:
        in_index = set(names(git(record.path, "ls-files", "-z")))
    tracked = {name: row for name, row in seen.files.items() if name in in_index}
    made = {name: row for name, row in seen.files.items() if name not in in_index}
    linked = {
        name: (at, _hash(Path(record.path, name)))
        for name, at in seen.linked.items()
        if name in made
    }
    return Fresh(*of, tracked, made, seen.folders, linked, copied, own)


def _recipe(settings: Worktrees, record: WorktreeRecord) -> str:
    """Return what a worktree was made with; with its number, if set-up may have written that."""
    of_slot = ""
    if settings.rules.worlds.is_in(settings.rules.setup):
        claim = slots.claim_of(record.path)
        of_slot = f"slot {claim.slot}" if claim is not None else "no slot"
    return recipe(settings) + of_slot


def _folders_of_set_up(fresh: Fresh) -> set[str]:
    """Return the folders without a tracked file, which only set-up has filled."""
    return {*fresh.folders} - _parents(fresh.tracked)


def _parents(files: Iterable[str]) -> set[str]:
    found = set[str]()
    for name in files:
        while (name := name.rpartition("/")[0]) and f"{name}/" not in found:
            found.add(f"{name}/")
    return found


def _own(record: WorktreeRecord, directory: Path) -> dict[str, str]:
    """Return the files of a worktree's git directory that are no ``PASSING`` ones, and the settings
    of the repository, each with its mode and text; and the modes of folders. Raises ``Odd`` and
    ``OSError``."""
    found = {"./": f"{os.lstat(record.path).st_mode:o}"}
    pending = [""]
    while pending:
        below = pending.pop()
        for entry in os.scandir(directory / below):
            name = f"{below}{entry.name}"
            if name in PASSING:
                continue
            if entry.is_dir(follow_symlinks=False):
                found[f"{name}/"] = f"{entry.stat(follow_symlinks=False).st_mode:o}"
                pending.append(f"{name}/")
            else:
                found[name] = _text(Path(entry.path))
            if len(found) > SETTINGS_FILES_MAX:
                raise Odd("its git directory has many files")
    for name in SETTINGS:
        with suppress(FileNotFoundError):
            found[f"../{name}"] = _text(Path(record.common, name))
    return found


def _text(file: Path) -> str:
    at = file.lstat()
    if not stat.S_ISREG(at.st_mode) or at.st_size > SETTINGS_BYTES_MAX:
        raise Odd(f"{file} is no settings file")
    return f"{at.st_mode:o} {file.read_text('utf-8', 'surrogateescape')}"


def _hash(file: Path) -> str:
    from hashlib import blake2b

    content = blake2b()
    with file.open("rb") as opened:
        while block := opened.read(1 << 20):
            content.update(block)
    return content.hexdigest()


def _directory(record: WorktreeRecord) -> Path:
    """Return the worktree's git directory; raises ``Odd`` if it is not what we made."""
    directory = led_to(Path(record.path))
    worktrees = Path(record.common, "worktrees").resolve()
    if directory is None or directory.parent.resolve() != worktrees:
        raise Odd("its .git file is gone, or leads elsewhere")
    if token_in(directory) != record.token:
        raise Odd("it is not what we made")
    return directory


def _digest(directory: Path) -> str:
    """Return the digest of what was noted; raises ``OSError``."""
    from hashlib import blake2b  # It takes 2 ms to load, which not every step needs.

    content = blake2b(digest_size=16)
    for name in (FRESH, INDEX):
        content.update(blake2b((directory / name).read_bytes()).digest())
    return content.hexdigest()


def _fresh(directory: Path, digest: str) -> Fresh:
    """Return what was noted of a worktree; raises ``Odd``. ``digest``: that of the records."""
    try:
        if _digest(directory) != digest:
            raise Odd("what was noted of it was changed")
        text = (directory / FRESH).read_text("utf-8", "surrogateescape")
        return from_plain(Fresh, json.loads(text))
    except (*BAD_VALUE, OSError, RecursionError):
        raise Odd("nobody has written down what it was like") from None


# --- whether nobody needs it ---------------------------------------------------------------------


def landed(settings: Worktrees, add: Add) -> None:
    """Record that nobody needs the worktree of this attempt: its branch has landed, and another ref
    keeps the commits. Raises ``GitError`` and ``OSError``."""
    if not settings.reuse:
        return
    records = Records(Path(settings.state_directory))
    for file in records.folder.glob(f"{file_name(add.issue_id)}.{add.attempt}*.json"):
        record = records.find(file.stem)
        if record is None or (record.issue_id, record.branch) != (add.issue_id, add.branch):
            continue
        kept = f"{ATTEMPTS}/{branch_part(add.issue_id)}/{add.attempt}"
        asked = ("for-each-ref", "--count=1", "--format=%(refname)", f"--contains={add.commit}")
        is_kept = loose_ref(Path(settings.common), kept) == add.commit
        if is_kept or git(settings.common, *asked, kept, f"{LANDING}/"):
            records.set_over(record, add.commit)


def tip_of(record: WorktreeRecord) -> str:
    """Return the commit of the worktree's branch; "" if it is gone. Raises ``GitError``."""
    ref = f"refs/heads/{record.branch}"
    if tip := loose_ref(Path(record.common), ref):
        return tip
    return git(record.common, "for-each-ref", "--format=%(objectname)", ref).strip()


def wanted_again(state_directory: Path, issue_ids: Collection[str]) -> None:
    """Forget that nobody needs the worktrees of these issues: they are open again."""
    records = Records(state_directory)
    for name in records.over():
        record = records.find(name)
        if record is not None and record.issue_id in issue_ids:
            records.set_over(record, None)


# --- between runs --------------------------------------------------------------------------------


def kept(settings: Worktrees) -> list[WorktreeRecord]:
    """Return the worktrees that stay for the next run: the newest of those that may be used again,
    none below the disk floor."""
    records = Records(Path(settings.state_directory))
    try:
        if making.free_bytes(Path(settings.folder)) < settings.rules.disk_floor_bytes:
            return []
    except OSError:
        return []
    found = [each for each in candidates(settings, records) if is_noted(each)]
    return found[: settings.reuse]


def keep(settings: Worktrees) -> list[WorktreeRecord]:
    """Take the worktrees that stay for the next run from their issues, and delete their branches;
    return their records."""
    records = Records(Path(settings.state_directory))
    found = [record for record in kept(settings) if not standing(record.path)]
    return [_of_nobody(records, record) for record in found]


def is_noted(record: WorktreeRecord) -> bool:
    """Return whether it is written down what this worktree was like."""
    try:
        return (_directory(record) / FRESH).exists()
    except Odd:
        return False


def _of_nobody(records: Records, record: WorktreeRecord) -> WorktreeRecord:
    """Return the record of the worktree without its issue, if it can be taken from it."""
    lock = records.lock(record) if record.issue_id else None
    if lock is None:
        return record
    try:
        tip = records.over_at(record)
        _check_head(record, _directory(record), tip)
        freed = replace(_free(record, record.run_id), base=tip)
        os.close(records.begin(freed))
        records.seal(freed, records.sealed(record))
        records.ready(freed)
        records.set_over(freed, tip)
        git(record.path, "update-ref", "--no-deref", "HEAD", tip)
        git(record.common, "update-ref", "-d", f"refs/heads/{record.branch}", tip)
        records.forget(record)
    except (Kept, Odd, GitError, OSError):
        return record
    else:
        return freed
    finally:
        os.close(lock)


def _free(record: WorktreeRecord, run_id: str) -> WorktreeRecord:
    name = f"again-{record.token[:8]}"
    return replace(
        record, name=name, issue_id="", attempt=0, branch="", run_id=run_id, worker_id=POOL
    )


# --- taking --------------------------------------------------------------------------------------


def take(settings: Worktrees, records: Records, base: str, run_id: str) -> FreedWorktree | None:
    """Take a worktree that nobody needs, and make it as a fresh one without its tracked files that
    differ; None if there is none. ``hand_over`` checks out ``base``."""
    for record in candidates(settings, records):
        lock = records.lock(record)
        if lock is None:
            continue
        try:
            if record.issue_id and records.in_use(record):
                continue
            freed = _Taking(settings, records, record, base).freed(run_id)
        except Kept as why:
            making.say(f"worktree {record.path} is not used again: {why}")
        except (Odd, GitError, OSError) as why:
            making.say(f"worktree {record.path} cannot be used again: {why}")
            records.set_over(record, None)  # The end of the run removes it, as any other.
        else:
            return freed
        finally:
            os.close(lock)
    return None


def settle(records: Records) -> None:
    """Remove what killed processes have left: worktrees in which no attempt has begun."""
    for record in records.unfinished():
        _remove(records, record)


def _remove(records: Records, record: WorktreeRecord) -> None:
    if record.issue_id:
        removal.tidy(records, [record])
    else:
        removal.discard(records, record)


def candidates(settings: Worktrees, records: Records) -> list[WorktreeRecord]:
    """Return the worktrees that nobody needs, the newest first."""
    found = (records.find(name) for name in records.over())
    ours = [each for each in found if each is not None and each.common == settings.common]
    # That of another machine's attempt is only a branch here.
    here = [each for each in ours if Path(each.path).is_dir()]
    return sorted(here, key=records.written_at, reverse=True)


def serves(settings: Worktrees, records: Records, record: WorktreeRecord, base: str) -> bool:
    """Return whether an attempt that begins at ``base`` could take it as it is, set-up and all."""
    try:
        fresh = _fresh(_directory(record), records.sealed(record))
        if fresh.recipe != _recipe(settings, record):
            return False
        return not must_set_up(settings, _changed(record, fresh, base))
    except (Odd, GitError, OSError):
        return False


def _changed(record: WorktreeRecord, fresh: Fresh, base: str) -> list[tuple[str, str]]:
    """Return what differs between what is checked out and ``base``; raises ``Odd``."""
    if fresh.at == base:
        return []
    asked = ("diff-tree", "-r", "-z", "--no-renames", "--name-status", fresh.at, base)
    changed = pairs(git(record.path, *asked))
    for _, name in changed:
        if name.rpartition("/")[2] in (".gitattributes", ".gitmodules"):
            raise Odd(f"{name} has changed")
    return changed


@dataclass(slots=True)
class _Taking:
    """One worktree that nobody needs. The caller holds the lock on its record."""

    settings: Worktrees
    records: Records
    record: WorktreeRecord
    base: str

    def freed(self, run_id: str) -> FreedWorktree:
        """Look at it, then free it; raises ``Kept``, ``Odd``, ``GitError``, ``OSError``."""
        path, directory = self.record.path, _directory(self.record)
        tip = self.records.over_at(self.record)
        try:
            _check_head(self.record, directory, tip)
        except Kept:
            self.records.set_over(self.record, None)
            raise
        if standing(path):
            raise Kept("a process is in it")
        fresh = self._as_noted(directory)
        seen = look(path)
        changed = _changed(self.record, fresh, self.base)
        sets_up = self._must_set_up(fresh, seen, changed)
        if changes := removal.changes(path):
            self.records.set_over(self.record, None)
            raise Kept(f"{len(changes)} changes are not committed, {changes[0]}")
        record = self._made_free(run_id, tip)
        with ExitStack() as held:
            lock = self.records.begin(record)
            held.callback(os.close, lock)
            if record.name != self.record.name:
                self.records.forget(self.record)
            stays = self._strip(fresh, seen, sets_up=sets_up)
            _restore(directory)
            held.pop_all()
        return FreedWorktree(record, lock, directory, stays, changed)

    # --- looking ----------------------------------------------------------------------------------

    def _as_noted(self, directory: Path) -> Fresh:
        """Check everything but the files; return what was noted."""
        fresh = _fresh(directory, self.records.sealed(self.record))
        if fresh.recipe != _recipe(self.settings, self.record):
            raise Odd("it was made with other settings")
        own = _own(self.record, directory)
        if own != fresh.own:
            changed = {name for name, _ in own.items() ^ fresh.own.items()}
            raise Odd(f"git's own files differ: {some(sorted(changed), NAMES_SHOWN)}")
        return fresh

    def _must_set_up(
        self, fresh: Fresh, seen: Contents, changed: Sequence[tuple[str, str]]
    ) -> bool:
        """Return whether copies and set-up are to be made anew; raises ``Odd``."""
        for name, row in fresh.folders.items():
            if seen.folders.get(name, row) != row:
                raise Odd(f"{name} has another mode")
        why = must_set_up(self.settings, changed) or self._changed_of_set_up(fresh, seen)
        if why:
            making.say(f"{why} has changed since set-up: it runs anew")
        return why != ""

    def _changed_of_set_up(self, fresh: Fresh, seen: Contents) -> str:
        for name, row in fresh.made.items():
            if seen.files.get(name) != row:
                return name
        for name, (at, content) in fresh.linked.items():
            if seen.linked.get(name) != at and _hash(Path(self.record.path, name)) != content:
                return name
        of_set_up = _folders_of_set_up(fresh)
        if missing := next((name for name in of_set_up if name not in seen.folders), ""):
            return missing
        if self.settings.rules.copy and making.copied_state(self.settings) != fresh.copied:
            return "a copied file"
        line = self.settings.rules.setup or ""
        return found[0] if (found := _OF_ATTEMPT.search(line)) else ""

    # --- freeing ----------------------------------------------------------------------------------

    def _made_free(self, run_id: str, tip: str) -> WorktreeRecord:
        """Make the worktree nobody's, and delete its branch; return its new record, without an
        issue."""
        record = self.record
        self.records.unready(record)
        if record.branch and tip_of(record):
            unlock(record.common, f"refs/heads/{record.branch}")
            try:
                git(record.common, "update-ref", "-d", f"refs/heads/{record.branch}", tip)
            except GitError as error:  # A killed git may have left a lock: it is old next time.
                self.records.ready(record)
                unlock_all(record.common)
                raise Kept(str(error)) from None
        self.records.set_over(record, None)
        return replace(_free(record, run_id), base=self.base)

    def _strip(self, fresh: Fresh, seen: Contents, *, sets_up: bool) -> Fresh | None:
        """Remove every file that is not as it was, and the folders that are empty without it.
        Return what set-up made; None if that is gone, too."""
        path, stays = self.record.path, fresh.tracked if sets_up else fresh.tracked | fresh.made
        gone = [name for name, row in seen.files.items() if stays.get(name) != row]
        for name in gone:
            os.unlink(f"{path}/{name}")  # noqa: PTH108 - thousands of them
        added = seen.folders.keys() - fresh.folders.keys()
        of_set_up = _folders_of_set_up(fresh)
        emptied = added | (of_set_up if sets_up else set()) | (_parents(gone) - of_set_up)
        for name in sorted(emptied & seen.folders.keys(), key=lambda n: n.count("/"), reverse=True):
            with suppress(OSError):
                os.rmdir(f"{path}/{name}")  # noqa: PTH106
        if sets_up:
            return None
        linked = {name: (seen.linked[name], content) for name, (_, content) in fresh.linked.items()}
        return replace(fresh, linked=linked)


def _check_head(record: WorktreeRecord, directory: Path, tip: str) -> None:
    """Check that the worktree is at the commit that nobody needs any more, on its branch if there
    is one. Raises ``Kept``, ``Odd``, ``GitError``, ``OSError``."""
    head = (directory / "HEAD").read_text("utf-8", "surrogateescape")
    at = tip_of(record) if record.branch else ""
    if at not in ("", tip):
        raise Kept(f"{record.branch} has moved")
    if head not in (f"{tip}\n", *([f"ref: refs/heads/{record.branch}\n"] if at else [])):
        raise Odd("another branch, or none, is checked out")
    with suppress(FileNotFoundError):
        stashes = Path(record.common, "logs/refs/stash").read_bytes()
        if record.branch and f"n {record.branch}: ".encode() in stashes:
            raise Kept("a stash was made on its branch")


def _restore(directory: Path) -> None:
    """Make the index what it was, and remove what work has left in the git directory."""
    for name in PASSING - {"HEAD", INDEX}:
        file = directory / name
        if file.is_dir():
            shutil.rmtree(file)
        else:
            file.unlink(missing_ok=True)
    os.link(directory / INDEX, directory / "index")


def hand_over(
    settings: Worktrees, freed: FreedWorktree, records: Records, record: WorktreeRecord
) -> None:
    """Give the worktree to this record: check out its base, on its branch. Raises ``GitError`` and
    ``OSError``."""
    records.forget(freed.record)
    os.close(freed.lock)
    unlock(record.common, f"refs/heads/{record.branch}")
    asked = ("checkout", "--quiet", "--force", "--no-track", "-b", record.branch)
    git(record.path, *asked, record.base)
    if settings.cone is not None:
        take_cone(record.path, settings.cone)
    clear_gone(record.path, freed.changed)
    # ``git checkout -`` would lead to the branch of another issue.
    shutil.rmtree(freed.directory / "logs", ignore_errors=True)
