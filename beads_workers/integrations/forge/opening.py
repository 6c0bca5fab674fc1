"""The adapter for a repository."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from beads_workers.core.base.plain import from_plain
from beads_workers.core.base.source import Calls, SourceError
from beads_workers.integrations.forge.api import Forge, ForgeRepository
from beads_workers.integrations.forge.place import GITHUB
from beads_workers.kinds import CallLog


def open_forge(options: Mapping[str, Any], call_log: CallLog | None = None) -> Forge:
    """Return the adapter. If something for it is missing, each call raises ``SourceError``."""
    repository = from_plain(ForgeRepository, options)
    try:
        if repository.kind == GITHUB:
            from beads_workers.integrations.forge.github import GitHub

            return GitHub(repository, call_log=call_log)
        from beads_workers.integrations.forge.gitea import Gitea

        return Gitea(repository)
    except ModuleNotFoundError as error:
        missing = without_client(error)
    except SourceError as error:
        missing = error
    return cast(Forge, _Missing(repository, missing))


def without_client(error: ModuleNotFoundError) -> SourceError:
    """Return what to say if Gitea cannot be asked; raises the error for any other module."""
    if error.name != "urllib3":
        raise error
    hint = "install it with the extra 'forge', or: pip install urllib3"
    return SourceError("Gitea is asked through urllib3, which is missing", hint)


class _Missing:
    """A forge that cannot be asked."""

    def __init__(self, repository: ForgeRepository, error: SourceError) -> None:
        self.repository, self.calls, self._error = repository, Calls(), error

    def __getattr__(self, name: str) -> Any:
        raise self._error
