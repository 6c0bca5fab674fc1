"""Files of removed worktrees, which a process deletes that nobody waits for.

Of a worktree with 20,000 files, this is most of its removal. So a removal only moves the folder, in
one step that cannot be half done:

    .removed/<token>         beside the worktrees: it still belongs to its record
    .removed/<token>.gone    git has forgotten it, and a note of this name beside the records names
                             it: its record may be forgotten, too

A worker kills what is left of its attempts, also a sweep that began before. The notes say what is
left: the next sweep deletes it, at the end of the run or at the next start at the latest.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from beads_workers.worktrees.records import Records, WorktreeRecord

REMOVED = ".removed"
GONE = ".gone"

# Package caches hold read-only folders. Modes of files stay: they may have other names elsewhere.
_DELETE = """\
(while [ $# -gt 0 ]; do
  rm -rf "$2" || { find "$2" -type d -exec chmod u+rwx {} \\;; rm -rf "$2"; }
  [ -e "$2" ] || rm -f "$1"
  rmdir "${2%/*}"
  shift 2
done) &
"""


def aside(record: WorktreeRecord) -> Path:
    """Return where this worktree is while it is removed."""
    return Path(record.path).parent / REMOVED / record.token


def give_up(records: Records, record: WorktreeRecord) -> None:
    """Leave a worktree that is set aside, if there is one, to the next ``sweep``. The caller then
    forgets its record. Raises ``OSError``."""
    note, place = _note_and_place(records, record)
    with suppress(FileNotFoundError, NotADirectoryError):
        aside(record).rename(place)
    if os.path.lexists(place):
        note.write_bytes(os.fsencode(place))
    else:
        _drop_folder(place)


def delete(records: Records, record: WorktreeRecord) -> None:
    """Delete the worktree of this record, which was given up, now. Raises ``OSError``."""
    _delete(*_note_and_place(records, record))


def sweep(records: Records) -> None:
    """Have everything deleted that was given up, at the lowest priority; wait for nothing."""
    pairs = [str(path) for both in _given_up(records) for path in both]
    if not pairs:
        return
    with suppress(OSError):  # Then the next sweep does it.
        # The shell itself ends at once: what deletes is nobody's child, and in no worktree. Without
        # variables of the run, nobody takes it for a process of an attempt.
        subprocess.run(
            ["nice", "-n", "19", "sh", "-c", _DELETE, "sh", *pairs],
            cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            check=False,
        )


def given_up(records: Records) -> list[Path]:
    """Return the worktrees that nobody has deleted yet."""
    return [place for _, place in _given_up(records)]


def delete_all(records: Records) -> dict[Path, str]:
    """Delete every worktree that was given up, now; return those that cannot be, and why."""
    found = dict[Path, str]()
    for note, place in _given_up(records):
        try:
            _delete(note, place)
        except OSError as error:
            found[place] = f"{error.filename}: {error.strerror}"
    return found


def make_writable(act: Callable[[str], object], name: str, error: object) -> None:
    """Error handler of ``rmtree``: make a read-only folder writable, as of some package caches."""
    parent = Path(name).parent
    for folder in (parent, Path(name)):
        if folder.is_dir() and not folder.is_symlink():
            folder.chmod(0o700)
    act(name)


def _note_and_place(records: Records, record: WorktreeRecord) -> tuple[Path, Path]:
    place = aside(record).with_suffix(GONE)
    return records.folder / place.name, place


def _delete(note: Path, place: Path) -> None:
    if place.exists():
        shutil.rmtree(place, onerror=make_writable)
    note.unlink(missing_ok=True)
    _drop_folder(place)


def _given_up(records: Records) -> Iterator[tuple[Path, Path]]:
    """Yield the notes, and the folders that they name; a note of another kind is none of ours."""
    for note in sorted(records.folder.glob(f"*{GONE}")):
        with suppress(OSError):
            place = Path(os.fsdecode(note.read_bytes()))
            if place.is_absolute() and place.parts[-2:] == (REMOVED, note.name):
                yield note, place


def _drop_folder(place: Path) -> None:
    with suppress(OSError):
        place.parent.rmdir()  # Unless there is something in it.
