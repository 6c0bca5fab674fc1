"""Issues of a forge as a kind of source: GitHub, Gitea and Forgejo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beads_workers.core.base.settings import NO_LOGIN_AT
from beads_workers.core.base.source import Source
from beads_workers.integrations.forge.api import FORMS, GH_TOKENS, NO_GH_LOGIN, TOKENS
from beads_workers.kinds import Capabilities, Late, Opening, SourceKind


def _open(opening: Opening) -> Source:
    from beads_workers.integrations.forge.opening import open_forge
    from beads_workers.integrations.forge.place import remember
    from beads_workers.integrations.forge.source import ForgeSource

    settings, options = opening.settings, opening.settings.source_options
    forge = open_forge(options, opening.call_log)
    return ForgeSource(
        forge,
        texts_from=options.get("from", "writers"),
        trusted=options.get("trusted", ()),
        actor=opening.actor,
        filters=settings.filters,
        listed_max=opening.listed_max,
        remember=lambda: remember(settings.project, forge.repository),
    )


def secrets(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the variables with tokens, and what is set instead of others (``processes.hide``)."""
    tokens = (*GH_TOKENS, NO_GH_LOGIN) if options.get("kind") == "github" else TOKENS
    hidden = (each for each in tokens if each not in options.get("pass", ()))
    return *hidden, f"{NO_LOGIN_AT}={options.get('url', '')}"


KIND = SourceKind(
    name="forge",
    called="the forge",
    open=_open,
    capabilities=Capabilities(
        dependencies=True, owned=False, agents_close=False, obeys_commits=True
    ),
    prefixes=("github:", "gitea:", "forge:"),
    secrets=secrets,
    forms=FORMS,
    named=False,
    locate=Late("beads_workers.integrations.forge.place:locate"),
    checks=Late("beads_workers.checks.tracker:tracker"),
)
