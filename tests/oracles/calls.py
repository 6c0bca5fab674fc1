"""One call of the command line, out of the warm process, in an environment of its own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tests.support import warm

ROOT = Path(__file__).parent.parent.parent
SECONDS_MAX = 60
SCRATCH = "/tmp"
"""Where folders for calls are made: what is said of a path depends on its length."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a command printed, with the folder that it was called in named ``FOLDER``."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """All of it."""
        return f"{self.out}{self.err}[exit code {self.code}]"


def call(folder: Path, *arguments: str, **more: str) -> Said:
    """Run ``beads-workers`` in this folder, which is its home too; ``more``: of its environment."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "XDG_STATE_HOME": str(folder.parent / "state"),
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "TZ": "UTC",
    }
    ours = (n for n in os.environ if n in warm.LOCALE or n.startswith("PYTHON"))
    environment |= {name: os.environ[name] for name in ours} | more
    environment["PYTHONPATH"] = str(ROOT)
    done = warm.run(arguments, folder, environment, timeout=SECONDS_MAX)
    out, err = (text.replace(str(folder), "FOLDER") for text in (done.stdout, done.stderr))
    return Said(done.returncode, out, err)
