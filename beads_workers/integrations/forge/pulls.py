"""The service ``pull_requests``: pull requests of the forge that a remote leads to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from beads_workers.core.base.plain import from_plain, to_plain
from beads_workers.core.base.pulls import PullRequests
from beads_workers.integrations.forge import secrets as secrets
from beads_workers.integrations.forge.api import GH_TOKENS, TOKENS, ForgeRepository
from beads_workers.integrations.forge.opening import without_client
from beads_workers.integrations.forge.place import GITHUB, of_remote

GH_PLACES = ("GH_CONFIG_DIR", "GH_HOST", "SSL_CERT_FILE")
"""Variables by which ``gh`` finds its logins, and its host."""


def find(project: Path, remote: str) -> dict[str, Any]:
    """Return the repository that a remote leads to; raises ``SourceError``."""
    found: dict[str, Any] = to_plain(of_remote(project, remote))
    return found


def logins(options: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which the forge is asked, among these."""
    names = (*GH_TOKENS, *GH_PLACES) if options.get("kind") == GITHUB else TOKENS
    return {name: environ[name] for name in names if name in environ}


def open_pulls(options: Mapping[str, Any], found: Mapping[str, str]) -> PullRequests:
    """Return the pull requests of a repository; ``found``: ``logins``. Raises ``SourceError``."""
    repository, environ = from_plain(ForgeRepository, options), {**os.environ, **found}
    if repository.kind == GITHUB:
        from beads_workers.integrations.forge.github_pulls import GitHubPulls

        return GitHubPulls(repository, environ)
    try:
        from beads_workers.integrations.forge.gitea_pulls import GiteaPulls

        return GiteaPulls(repository, environ)
    except ModuleNotFoundError as error:
        raise without_client(error) from None
