"""What ``scripts/prove`` runs: each a command that prints one JSON object."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.bd import NEW, OLD, bd_environment

ROOT = Path(__file__).resolve().parents[2]
QUICK_SHARE = 50


@dataclass(frozen=True, slots=True)
class Part:
    """``argv`` with ``{size}`` in it; ``bd``: the version that is to be on PATH."""

    name: str
    what: str
    full: int
    argv: tuple[str, ...]
    bd: str = ""

    def size(self, quick: bool) -> int:
        """How much of it."""
        return max(5, self.full // QUICK_SHARE) if quick else self.full

    def command(self, quick: bool) -> list[str]:
        """Ready to be run in the checkout."""
        return [word.replace("{size}", str(self.size(quick))) for word in self.argv]

    def environment(self) -> dict[str, str]:
        """With that ``bd``, and nothing of the user's."""
        return bd_environment(self.bd) if self.bd else dict(os.environ)


def chaos(name: str, kills: int, seed: int, *more: str, bd: str = "") -> Part:
    """Kills with real processes."""
    argv = (sys.executable, "-P", "-m", "beads_workers", "chaos", "--json", "--kills", "{size}")
    source = ("--source", "bd") if bd else ()
    return Part(name, "kills", kills, (*argv, "--seed", str(seed), *source, *more), bd)


def script(name: str, what: str, option: str) -> Part:
    """A script of this checkout."""
    return Part(name, what, 1_000_000, (str(ROOT / "scripts" / name), option, "{size}", "--json"))


# The longest first: what is short fills the gaps at the end.
PARTS: tuple[Part, ...] = (
    *(chaos("bd 1.3.0", 50, seed, bd=NEW) for seed in (101, 102, 103)),
    *(chaos("embedded", 250, seed) for seed in range(1, 7)),
    script("simulate", "simulated faults", "--faults"),
    script("fuzz", "fuzzed inputs per parser", "--inputs"),
    *(chaos("bd 0.44.0", 50, seed, bd=OLD) for seed in (201, 202)),
    chaos("40 running tasks", 50, 301, "--only", "orchestrator", "-n", "40"),
)
