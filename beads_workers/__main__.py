"""``python -m beads_workers``."""

from __future__ import annotations

from beads_workers.cli.app import main

main()
