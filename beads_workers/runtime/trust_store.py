"""What the user trusts: for each project folder, hashes of what runs something there.

It is kept with the user, not in the repository: ``~/.local/state/beads-workers/trust``, below
``$XDG_STATE_HOME`` if that is set. A file that is damaged, or of somebody else, trusts nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from beads_workers.runtime.account_file import state_home

FILE_BYTES_MAX = 1 << 20


class TrustStore:
    """What is trusted in one folder. ``is_known``: all that was here has once been trusted or run,
    so whatever came later is the user's, unless git brings it."""

    def __init__(self, folder: Path, environment: Mapping[str, str] = os.environ) -> None:
        self._folder = os.fsencode(folder.resolve())
        name = hashlib.sha256(self._folder).hexdigest()[:32]
        try:
            self._path: Path | None = state_home(environment) / "trust" / f"{name}.json"
        except RuntimeError:
            self._path = None  # Nobody knows where this user lives.
        self._known = self._read()

    @property
    def is_known(self) -> bool:
        """See the class."""
        return self._known.get("known") is True

    def trusts(self, digest: str) -> bool:
        """Whether this very text is trusted here."""
        return digest in self._known.get("lines", {})

    def add(self, lines: Iterable[tuple[str, str]], *, known: bool = False) -> None:
        """Trust these digests, each with its text, from now on; ``known``: nothing else is here.

        Raises ``OSError``.
        """
        if self._path is None:
            raise FileNotFoundError("this user has no home: HOME is not set")
        trusted = self._known.get("lines", {}) | dict(lines)
        known = known or self.is_known
        if self._known and (trusted, known) == (self._known["lines"], self.is_known):
            return
        since = self._known.get("since", time.time())
        folder = os.fsdecode(self._folder)
        kept = {"folder": folder, "since": since, "known": known, "lines": trusted}
        import tempfile  # Here: nearly every start only reads.

        _make_folder(self._path.parent)
        descriptor, fresh = tempfile.mkstemp(dir=self._path.parent)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(kept, file)
        Path(fresh).replace(self._path)
        self._known = kept

    def forget(self) -> None:
        """Trust nothing here; raises ``OSError``."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        self._known = {}

    def _read(self) -> dict[str, Any]:
        if self._path is None:
            return {}
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with open(os.open(self._path, flags), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                    return {}
                known = json.loads(file.read(FILE_BYTES_MAX))
        except (OSError, ValueError, RecursionError):
            return {}
        sound = isinstance(known, dict) and isinstance(known.get("lines"), dict)
        return known if sound and known.get("folder") == os.fsdecode(self._folder) else {}


def _make_folder(folder: Path) -> None:
    """For the user's own eyes, as all above it that is not there yet, whatever the umask."""
    for each in (*reversed(folder.parents), folder):
        if not each.exists():
            each.mkdir(mode=0o700, exist_ok=True)
