"""The workers of ``workers/``, built by ``scripts/setup-workers``: each by its language."""

from __future__ import annotations

import functools
import subprocess
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
