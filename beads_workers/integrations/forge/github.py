"""GitHub, by the user's own ``gh``. (Being written.)"""

from __future__ import annotations

from beads_workers.core.base.source import SourceError
from beads_workers.integrations.forge.api import Repository


class GitHub:
    """``Forge``."""

    def __init__(self, repository: Repository) -> None:
        raise SourceError("GitHub is not there yet")
