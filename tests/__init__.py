"""Tests. What they set up is trusted; those of trust itself take the variable away."""

import os

os.environ["BEADS_WORKERS_TRUST"] = "1"
