"""Files of a repository that an agent obeys by itself, and the arguments that leave them out.

Measured with the versions of ``Adapter.measured`` and the arguments that we give:

- claude runs committed hooks, ``apiKeyHelper`` and MCP servers of ``.mcp.json``. Agents, skills and
  commands that it finds there ran nothing unasked.
- gemini (``--skip-trust``) runs its hooks, MCP servers and ``discoveryCommand``.
- opencode runs MCP servers, plugins and tools.
- codex runs MCP servers, in its worktrees too, if the user has told it to trust the repository.
- copilot runs hooks and MCP servers, also those of claude, if it is told to trust the folder.
- qwen runs hooks and MCP servers, also those of ``.mcp.json``. It asks the server that
  ``modelProviders`` names, also with ``--safe-mode``.
- pi runs extensions, and the prefix of each command of its shell, also with ``--no-extensions``.
- aider runs the commands of its settings, which ``.env`` may hold, too. It asks the server that its
  settings of models name, whatever ``--config`` and ``--env-file`` say.
- kimi runs MCP servers, if the user has told it to trust the folder.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from typing import Any

from beads_workers.core.base.model import value


@value
class Planted:
    """Files that an agent obeys. ``files``: below the agent's folder, or above it; folders with
    everything in them, too. ``without``: arguments that make the agent leave them out; none if no
    argument does."""

    files: tuple[str, ...]
    without: tuple[str, ...] = ()


PLANTED: Mapping[str, Planted] = {
    "claude": Planted(
        (".claude/settings.json", ".claude/settings.local.json", ".mcp.json"),
        ("--setting-sources", "user"),
    ),
    "codex": Planted((".codex/config.toml", ".codex/hooks.json")),
    "copilot": Planted(
        (
            *(".github/hooks", ".github/copilot/settings.json"),
            *(".github/copilot/settings.local.json",),
            *(".claude/settings.json", ".mcp.json"),
        )
    ),
    "aider": Planted((".aider.conf.yml", ".aider.model.settings.yml", ".env")),
    "gemini": Planted((".gemini/settings.json",)),
    "kimi": Planted((".kimi-code/mcp.json", ".mcp.json")),
    "pi": Planted((".pi/extensions", ".pi/settings.json")),
    "qwen": Planted((".mcp.json", ".qwen/settings.json")),
    "opencode": Planted(
        (
            *("opencode.json", "opencode.jsonc"),
            *(".opencode/opencode.json", ".opencode/opencode.jsonc", ".opencode/package.json"),
            *(".opencode/plugin", ".opencode/plugins", ".opencode/tool", ".opencode/tools"),
        )
    ),
}
"""Files by the name of the adapter."""

_NAMES = tuple(
    dict.fromkeys(
        (
            *("beads-workers.toml", ".beads/hooks", ".beads/redirect"),
            *(file for each in PLANTED.values() for file in each.files),
        )
    )
)

WATCHED = tuple(f":(top,glob)**/{name}{below}" for name in _NAMES for below in ("", "/**"))
"""Patterns, for git, of files that a person should look at before a merge: the person who pulls
them is asked about them."""


def is_watched(path: str) -> bool:
    """Return whether one of ``WATCHED`` matches this path, seen from the top."""
    return any(f"/{name}/" in f"/{path}/" for name in _NAMES)


OBEYED = "changes what is run by whoever merges it"

_OF_CLAUDE = frozenset(
    {
        *("$schema", "model", "language", "outputStyle", "cleanupPeriodDays", "attribution"),
        *("includeCoAuthoredBy", "spinnerTipsEnabled", "alwaysThinkingEnabled", "plansDirectory"),
        *("disableAllHooks", "disabledMcpjsonServers", "companyAnnouncements", "respectGitignore"),
    }
)
_OF_OPENCODE = frozenset({"$schema", "theme", "model", "small_model", "keybinds", "tui"})
_HARMLESS: Mapping[str, frozenset[str]] = {
    ".claude/settings.json": _OF_CLAUDE,
    ".claude/settings.local.json": _OF_CLAUDE,
    ".codex/config.toml": frozenset(
        {
            *("model", "model_reasoning_effort", "model_reasoning_summary", "model_verbosity"),
            *("hide_agent_reasoning", "personality", "project_doc_max_bytes", "tui"),
        }
    ),
    ".gemini/settings.json": frozenset({"$schema", "ui", "model", "privacy", "output"}),
    "opencode.json": _OF_OPENCODE,
    ".opencode/opencode.json": _OF_OPENCODE,
}
"""Keys of settings that run nothing and allow nothing; the user is asked about any other key."""
_REFUSING = frozenset({"deny", "ask"})
_OF_BD = frozenset(
    f"bd prime{stealth}{hook}" for stealth in ("", " --stealth") for hook in ("", " --hook-json")
)
"""Hooks that 'bd init' writes and commits: they print what bd knows."""


def risky_part(file: str, content: bytes) -> dict[str, Any]:
    """Return the part of such a file that runs something, or allows it; empty if nothing does."""
    if not file.endswith((".json", ".jsonc", ".toml")):
        from hashlib import sha256  # It loads OpenSSL, and an attempt needs the names only.

        return {"all that is in it": sha256(content).hexdigest()}
    try:
        settings = (
            tomllib.loads(content.decode()) if file.endswith(".toml") else json.loads(content)
        )
    except (ValueError, RecursionError):
        return {"what cannot be read": content.decode("latin-1")}
    if not isinstance(settings, dict):
        return {}
    if file == ".mcp.json":
        return settings if settings.get("mcpServers") else {}
    harmless = _HARMLESS.get(file, frozenset())
    return {key: each for key, each in settings.items() if _is_risky(key, each, harmless)}


def _is_risky(key: str, value: Any, harmless: frozenset[str]) -> bool:
    if key in harmless or not value:
        return False
    if key == "permissions" and isinstance(value, dict):
        return not _REFUSING.issuperset(value)
    return not (key == "hooks" and _is_of_bd(value))


def _is_of_bd(hooks: Any) -> bool:
    try:
        calls = [call for each in hooks.values() for of in each for call in of["hooks"]]
        return all(call["type"] == "command" and call["command"] in _OF_BD for call in calls)
    except (AttributeError, TypeError, KeyError):
        return False
