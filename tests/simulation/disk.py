"""A disk that forgets: what was written and not synced is lost when the power is cut."""

from __future__ import annotations

import errno
import functools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from beads_workers.core.base.wire import Done, Failed, encode
from beads_workers.core.records.journal import CheckpointEnded, Entry, decode, is_repeated
from beads_workers.core.views.recovery import (
    RecoveryState,
    SpooledResults,
    left_over,
    read_spool,
    recovery_state,
)

LINES_MAX = 20_000
"""Of a world's journals: they are read again and again, and what a line says never changes."""

_entry = functools.lru_cache(LINES_MAX)(decode)


@dataclass(slots=True)
class File:
    """``synced``: how many bytes survive a power cut for certain."""

    content: bytearray = field(default_factory=bytearray)
    synced: int = 0
    base: int = 0
    """How much was written to the segments before it."""
    removed: bool = False


@dataclass(slots=True)
class Folder:
    """One run's folder: its journal's segments, and the mark that nothing is pending for the
    tracker."""

    run_id: str
    segments: list[File] = field(default_factory=lambda: [File()])
    settled: bool = False
    words: File = field(default_factory=File)
    """``runtime/result_spool``."""

    @property
    def journal(self) -> File:
        """The segment that is written."""
        return self.segments[-1]

    def add_segment(self) -> None:
        """Go on in a new file."""
        before = self.journal
        self.segments.append(File(base=before.base + len(before.content)))

    def remove_old(self) -> None:
        """All segments but the last."""
        for file in self.segments[:-1]:
            file.removed = True

    def kept(self) -> list[File]:
        """The segments that are there, oldest first."""
        return [file for file in self.segments if not file.removed]

    def end(self) -> list[File]:
        """``runtime.journal_file.read_end``: from the last checkpoint that is whole."""
        kept = self.kept()
        while len(kept) > 1 and any(_is_whole(file) for file in kept[1:]):
            kept.pop(0)
        return kept

    def holds(self, offset: int) -> bool:
        """Whether what was written up to there (of all segments) is in a file."""
        return any(f.base < offset <= f.base + len(f.content) for f in self.kept())


class Disk:
    """The run directory. ``room``: bytes left; None is plenty."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.folders: dict[str, Folder] = {}
        self.room: int | None = None

    def write(self, file: File, data: bytes) -> int:
        """Like ``os.write``: what there is room for, or ENOSPC."""
        if self.room is not None:
            if self.room <= 0:
                raise OSError(errno.ENOSPC, "no space left on device")
            data = data[: self.room]
            self.room -= len(data)
        file.content += data
        return len(data)

    def cut_power(self) -> int:
        """Keep what was synced and a part of the rest; returns how many files were torn."""
        torn = 0
        folders = self.folders.values()
        for file in (file for folder in folders for file in (*folder.segments, folder.words)):
            lost = len(file.content) - file.synced
            if lost:
                kept = file.synced + self._random.randint(0, lost)
                torn += file.content[kept - 1 : kept] != b"\n"
                del file.content[kept:]
                file.synced = kept
        return torn

    # --- runtime/result_spool.py -----------------------------------------------------------------

    def spool_result(self, run_id: str, message: Done | Failed) -> None:
        """A full disk takes no word, or the beginning of it."""
        line = b"\n" + encode(message, message.worker_id, 0.0, v1=False)
        try:
            self.write(self.folders[run_id].words, line)
        except OSError:
            pass

    def words_of(self, run_id: str, wanted: Collection[str]) -> SpooledResults:
        """What was left of these attempts."""
        return read_spool([bytes(self.folders[run_id].words.content)], wanted)

    def sync_words(self, run_id: str) -> None:
        """What was read there survives from now on."""
        words = self.folders[run_id].words
        words.synced = len(words.content)

    # --- runtime/run_directory.py ----------------------------------------------------------------

    def create_run(self) -> Folder:
        """A new run, whose id is later than all others."""
        run_id = f"r{len(self.folders) + 1:04d}"
        self.folders[run_id] = Folder(run_id)
        return self.folders[run_id]

    def left_over(self) -> tuple[list[RecoveryState], RecoveryState]:
        """``RunDirectory.left_over``."""
        return left_over(
            list(self.folders), lambda i: self.folders[i].settled, self._recovery_state
        )

    def _recovery_state(self, run_id: str) -> RecoveryState | None:
        left = recovery_state(read_journal(self.folders[run_id].end()))
        if not left.run_id:
            return None
        for file in self.folders[run_id].kept():
            file.synced = len(file.content)
        return left


def read_journal(files: Sequence[File]) -> Iterator[Entry]:
    """``runtime.journal_file.read_journal``: a torn, foreign or repeated line is passed over."""
    for number, file in enumerate(files):
        for line in bytes(file.content).splitlines(keepends=True):
            if not line.endswith(b"\n") or (number and is_repeated(line)):
                continue
            if (entry := _entry(line)) is not None:
                yield entry


def _is_whole(file: File) -> bool:
    return any(isinstance(entry.record, CheckpointEnded) for entry in read_journal([file]))
