"""A disk that forgets: what was written and not synced is lost when the power is cut."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from beads_workers.core.journal_lines import Entry, decode
from beads_workers.core.recovery import Remains, remains


@dataclass(slots=True)
class File:
    """``synced``: how many bytes survive a power cut for certain."""

    content: bytearray = field(default_factory=bytearray)
    synced: int = 0


@dataclass(slots=True)
class Folder:
    """One run's folder: its journal, and the mark that the tracker is owed nothing."""

    run_id: str
    journal: File = field(default_factory=File)
    settled: bool = False


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
        for folder in self.folders.values():
            file = folder.journal
            lost = len(file.content) - file.synced
            if lost:
                kept = file.synced + self._random.randint(0, lost)
                torn += file.content[kept - 1 : kept] != b"\n"
                del file.content[kept:]
                file.synced = kept
        return torn

    # --- edge/run_directory.py ----------------------------------------------------------------

    def create_run(self) -> Folder:
        """A new run, whose id is later than all others."""
        run_id = f"r{len(self.folders) + 1:04d}"
        self.folders[run_id] = Folder(run_id)
        return self.folders[run_id]

    def left_over(self) -> tuple[list[Remains], Remains]:
        """``RunDirectory.left_over``, line by line."""
        known: list[Remains] = []
        whole = False
        for run_id in reversed(self.folders):
            if whole and self.folders[run_id].settled:
                continue
            left = remains(read_journal(self.folders[run_id].journal))
            if left.run_id:
                known.append(left)
                whole = whole or left.whole
        last = Remains()
        for left in reversed(known):
            left.take_over(last)
            last = left
        return [r for r in reversed(known) if not self.folders[r.run_id].settled], last


def read_journal(file: File) -> Iterator[Entry]:
    """``edge.journal.read_journal``: a torn or foreign line is passed over."""
    for line in bytes(file.content).splitlines(keepends=True):
        if line.endswith(b"\n") and (entry := decode(line)) is not None:
            yield entry
