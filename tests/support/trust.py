"""The environment that has all trusted which a test wrote into a settings file."""

from __future__ import annotations

from beads_workers.options import KEYS

VARIABLE = KEYS["trust"].variable
TRUSTED = {VARIABLE: "1"}
