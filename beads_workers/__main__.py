"""``python -m beads_workers``."""

from beads_workers.cli.app import main

main()
