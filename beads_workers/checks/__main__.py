"""``python -m beads_workers.checks``: prints docs/CONDITIONS.md."""

from __future__ import annotations

from beads_workers.checks.condition import table

if __name__ == "__main__":
    print(table(), end="")
