"""The terminal while a dashboard has it: ``Terminal`` (see ``screen``) and ``can_draw``."""

from __future__ import annotations

from beads_workers.edge.terminal.device import can_draw
from beads_workers.edge.terminal.screen import Events, Terminal

__all__ = ["Events", "Terminal", "can_draw"]
