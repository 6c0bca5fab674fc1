"""Issues in fresh projects of a real ``bd``: created once, and copied from then on.

Most tests begin with the same few issues, and one of them costs a ``bd`` 1.3.0 a quarter of a
second of computing. What it has made of them is kept beside the program, for each sequence of
creations and changes. If anybody else has used a project, ``bd`` itself writes from then on.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from beads_workers.core.base.model import IssueId
from beads_workers.trackers.bd.source import BdSource

BEADS, IDS = ".beads", "ids.json"


class Created:
    """What was created in one project so far, as long as nothing else was done to it."""

    def __init__(
        self,
        project: Path,
        kept: Path,
        moved_in: Callable[[Path], None],
        tidied: Callable[[], None],
    ) -> None:
        self._project = project
        self._kept = kept
        self._moved_in = moved_in
        self._tidied = tidied
        self._sources: list[BdSource] = []
        self._steps = ""
        self._left = self._files()

    def reads(self, source: BdSource) -> BdSource:
        """From this one's first call on, whoever writes does it by ``bd``."""
        self._sources.append(source)
        return source

    def once(self, step: object, create: Callable[[], list[IssueId]]) -> list[IssueId]:
        """Return the issues that ``create`` makes, if any; ``step`` is all that it depends on."""
        if not self._is_untouched():
            return create()
        self._steps = hashlib.sha256(f"{self._steps}{step}".encode()).hexdigest()
        kept = self._kept / self._steps[:32]
        if kept.is_dir():
            shutil.rmtree(self._project / BEADS)
            shutil.copytree(kept / BEADS, self._project / BEADS, symlinks=True)
            self._moved_in(self._project)
            ids = [IssueId(issue_id) for issue_id in json.loads((kept / IDS).read_text())]
        elif not self._keep(kept, ids := create()):
            return ids
        self._left = self._files()
        return ids

    def _keep(self, kept: Path, ids: list[IssueId]) -> bool:
        """False where another process was first: its issues have other ids."""
        self._kept.mkdir(exist_ok=True)
        self._tidied()
        unfinished = Path(tempfile.mkdtemp(dir=self._kept, prefix="new-"))
        shutil.copytree(self._project / BEADS, unfinished / BEADS, symlinks=True)
        (unfinished / IDS).write_text(json.dumps(ids))
        try:
            unfinished.rename(kept)
        except OSError:
            shutil.rmtree(unfinished)
            return False
        return True

    def _is_untouched(self) -> bool:
        """Whether nobody has written, and nobody may be reading right now."""
        fleets = (self._project / ".beads-workers").exists()
        asked = any(source.calls.count for source in self._sources)
        return not fleets and not asked and self._files() == self._left

    def _files(self) -> dict[str, tuple[int, int, int]]:
        """Every file of ``bd`` with its inode, size and time."""
        found = {}
        for folder, _, names in os.walk(self._project / BEADS):
            for name in names:
                status = os.lstat(path := os.path.join(folder, name))  # noqa: PTH118
                found[path] = (status.st_ino, status.st_size, status.st_mtime_ns)
        return found
