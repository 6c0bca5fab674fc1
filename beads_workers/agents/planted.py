"""Files of a repository that an agent obeys by itself, and the arguments that leave them out.

Measured with the versions of ``Adapter.measured``: claude runs committed hooks, ``apiKeyHelper``
and MCP servers of ``.mcp.json`` unasked with ``-p``. codex ran nothing of the kind.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from beads_workers.core.model import value


@value
class Planted:
    """``files``: below the folder it works in, or above it. ``without``: arguments for an agent
    that is to leave them out."""

    files: tuple[str, ...]
    without: tuple[str, ...]


PLANTED: Mapping[str, Planted] = {
    "claude": Planted(
        (".claude/settings.json", ".claude/settings.local.json", ".mcp.json"),
        ("--setting-sources", "user"),
    ),
}
"""By the name of the adapter."""

WATCHED = tuple(
    f":(top,glob)**/{name}"
    for name in (
        "beads-workers.toml",
        ".beads/hooks/**",
        ".beads/redirect",
        *(file for each in PLANTED.values() for file in each.files),
    )
)
"""What a person should look at before it is merged, for git: whoever pulls it is asked about it."""

OBEYED = "changes what is run by whoever merges it"

_HARMLESS = frozenset(
    {
        *("$schema", "model", "language", "outputStyle", "cleanupPeriodDays", "attribution"),
        *("includeCoAuthoredBy", "spinnerTipsEnabled", "alwaysThinkingEnabled", "plansDirectory"),
        *("disableAllHooks", "disabledMcpjsonServers", "companyAnnouncements", "respectGitignore"),
    }
)
"""Keys of claude's settings that run nothing and allow nothing; any other is asked about."""
_REFUSING = frozenset({"deny", "ask"})
_OF_BD = frozenset(
    f"bd prime{stealth}{hook}" for stealth in ("", " --stealth") for hook in ("", " --hook-json")
)
"""Hooks that 'bd init' writes and commits: they print what bd knows."""


def risky_part(file: str, content: bytes) -> dict[str, Any]:
    """What in such a file runs something, or allows it; empty if nothing does."""
    try:
        said = json.loads(content)
    except (ValueError, RecursionError):
        return {"what cannot be read": content.decode("latin-1")}
    if not isinstance(said, dict):
        return {}
    if file == ".mcp.json":
        return said if said.get("mcpServers") else {}
    return {key: each for key, each in said.items() if _is_risky(key, each)}


def _is_risky(key: str, said: Any) -> bool:
    if key in _HARMLESS or not said:
        return False
    if key == "permissions" and isinstance(said, dict):
        return not _REFUSING.issuperset(said)
    return not (key == "hooks" and _is_of_bd(said))


def _is_of_bd(hooks: Any) -> bool:
    try:
        calls = [call for each in hooks.values() for of in each for call in of["hooks"]]
        return all(call["type"] == "command" and call["command"] in _OF_BD for call in calls)
    except (AttributeError, TypeError, KeyError):
        return False
