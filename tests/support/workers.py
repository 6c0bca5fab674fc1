"""The workers of ``workers/``, built by ``scripts/setup-workers``: each by its language."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LANGUAGES = ("go", "node", "rust", "bash")


@functools.cache
def worker_programs() -> dict[str, Path]:
    """The program of each language; what is not built is built (Rust: in a minute)."""
    done = subprocess.run(
        [ROOT / "scripts" / "setup-workers"], stdout=subprocess.PIPE, text=True, check=True
    )
    pairs = (line.split("\t") for line in done.stdout.splitlines())
    return {language: Path(program) for language, program in pairs}


def words_of(language: str) -> list[str]:
    """What starts a worker by hand, up to the command of its tasks; ``python`` is our own."""
    if language == "python":
        return [sys.executable, "-m", "beads_workers", "worker", "--"]
    return [str(worker_programs()[language])]
