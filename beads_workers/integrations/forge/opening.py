"""The adapter for a repository."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beads_workers.core.base.plain import from_plain
from beads_workers.core.base.source import SourceError
from beads_workers.integrations.forge.api import Forge, ForgeRepository
from beads_workers.integrations.forge.place import GITHUB
from beads_workers.kinds import CallLog


def open_forge(options: Mapping[str, Any], call_log: CallLog | None = None) -> Forge:
    """Return the adapter; raise ``SourceError`` if something for it is missing."""
    repository = from_plain(ForgeRepository, options)
    if repository.kind == GITHUB:
        from beads_workers.integrations.forge.github import GitHub

        return GitHub(repository, call_log=call_log)
    try:
        from beads_workers.integrations.forge.gitea import Gitea

        return Gitea(repository)
    except ModuleNotFoundError as error:
        if error.name != "urllib3":
            raise
        hint = "pip install 'beads-workers[forge]'"
        raise SourceError("Gitea is asked through urllib3, which is missing", hint) from None
