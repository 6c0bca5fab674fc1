"""The adapter for a repository."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beads_workers.core.base.source import SourceError
from beads_workers.integrations.forge.api import Forge, ForgeRepository


def open_forge(options: Mapping[str, Any]) -> Forge:
    """Return the adapter; raise ``SourceError`` if something for it is missing."""
    names = ("kind", "url", "owner", "name")
    repository = ForgeRepository(*(str(options[name]) for name in names))
    try:
        from beads_workers.integrations.forge.gitea import Gitea

        return Gitea(repository)
    except ModuleNotFoundError as error:
        if error.name != "urllib3":
            raise
        hint = "pip install 'beads-workers[forge]'"
        raise SourceError("Gitea is asked through urllib3, which is missing", hint) from None
