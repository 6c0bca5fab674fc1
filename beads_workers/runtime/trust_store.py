"""Trust store: for each project folder, hashes of the lines that the user trusts to run there.

The hashes are kept with the user, not in the repository: in ``~/.local/state/beads-workers/trust``,
or below ``$XDG_STATE_HOME`` if that is set. A damaged file, or one of another user, trusts nothing.
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
    """What is trusted in one folder. ``is_known``: everything here has once been trusted or run, so
    whatever came later is the user's, unless git brings it."""

    def __init__(self, folder: Path, environment: Mapping[str, str] = os.environ) -> None:
        self._folder = os.fsencode(folder.resolve())
        name = hashlib.sha256(self._folder).hexdigest()[:32]
        try:
            self._path: Path | None = state_home(environment) / "trust" / f"{name}.json"
        except RuntimeError:
            self._path = None  # The home of this user is not known.
        self._known = self._read()

    @property
    def is_known(self) -> bool:
        """Whether everything here has once been trusted or run: see the class."""
        return self._known.get("known") is True

    def trusts(self, digest: str) -> bool:
        """Return whether exactly the text with this digest is trusted here."""
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
        """Trust nothing here any more; raises ``OSError``."""
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
    """Create the folder and its missing parents for this user alone, whatever the umask."""
    for each in (*reversed(folder.parents), folder):
        if not each.exists():
            each.mkdir(mode=0o700, exist_ok=True)
