"""What a worktree has outside of its folder: a number of its own, and what is derived from it.

Source: docs/WORLDS.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from beads_workers.core.base.model import value
from beads_workers.core.base.option import TEXT, in_file, whole

SLOT = "BW_SLOT"
"""Variable with the number."""
SLOTS = (0, 999)
PORT_MOST = 65535
FIELDS = ("slot", "port", "worktree", "issue")
REFUSED = (
    *("PATH", "HOME", "PWD", "SHELL", "TMPDIR", "PYTHONPATH", "XDG_", "NODE_OPTIONS"),
    *("GIT_", "BW_", "BEADS_", "BD_", "LD_", "DYLD_", "SSH_", "SSL_CERT_"),
    *("GH_", "GITHUB_", "GITEA_", "FORGEJO_", "ANTHROPIC_", "CLAUDE_", "OPENAI_", "CODEX_"),
    *("GEMINI_", "GOOGLE_", "AIDER_", "DEEPSEEK_", "OPENROUTER_", "COPILOT_", "KIMI_", "MOONSHOT_"),
    *("OPENCODE_", "PI_", "QWEN_", "DASHSCOPE_", "BAILIAN_"),
)
"""Names of variables that a project may not set; those that end with ``_`` are beginnings."""

Pairs = tuple[tuple[str, str], ...]


def _worktree(key: str) -> dict[str, Any]:
    return {"name": f"worktree_{key}", "table": ("worktree", key)}


@value
class WorldRules:
    """What is made for each attempt and gate, and ended after it."""

    # ``sh -c`` lines.
    world: str | None = in_file(None, TEXT, **_worktree("world"))
    teardown: str | None = in_file(None, TEXT, **_worktree("teardown"))
    # The first and the last number.
    slots: tuple[int, int] = in_file(SLOTS, ("slots",), **_worktree("slots"))
    # How many ports belong to a number, and the first one of number 0.
    ports: int = in_file(10, whole(0, 1000), **_worktree("ports"))
    port_base: int = in_file(20000, whole(1024, PORT_MOST), **_worktree("port_base"))
    # Variables, with the templates of their texts.
    env: Pairs = in_file((), ("variables",), **_worktree("env"))

    @property
    def has_worlds(self) -> bool:
        """Whether anything is made, or ended."""
        return self.world is not None or self.teardown is not None

    def is_in(self, setup: str | None) -> bool:
        """Return whether what the set-up makes may depend on the number."""
        return setup is not None and bool(self.env or SLOT in setup)

    def block(self, slot: int) -> range:
        """Return the ports of a number."""
        named = (int(found[2] or 0) for _, text in self.env for found in _FIELD.finditer(text))
        size = max(self.ports, 1, *(more + 1 for more in named))
        first = self.port_base + slot * size
        return range(first, first + size)

    def variables(self, slot: int, worktree: str, issue_id: str) -> dict[str, str]:
        """Return the number's variable, and those of ``env``."""
        issue = re.sub(r"\W", "_", issue_id, flags=re.ASCII)
        first = self.block(slot).start
        found = dict(zip(FIELDS, (str(slot), str(first), worktree, issue), strict=True))

        def filled(field: re.Match[str]) -> str:
            return str(first + int(field[2])) if field[2] else found[field[1]]

        return {SLOT: str(slot), **{n: _FIELD.sub(filled, text) for n, text in self.env}}


def read_slots(text: Any) -> tuple[int, int]:
    """Read ``20-39``; raise ``ValueError`` with what is allowed."""
    pair = text.split("-") if isinstance(text, str) else text
    try:
        first, last = (int(each) for each in pair)
    except (TypeError, ValueError):
        first, last = 1, 0
    if not 0 <= first <= last <= SLOTS[1]:
        raise ValueError('two numbers from 0 to 999, as in "20-39"')
    return first, last


def read_variables(table: Any) -> Pairs:
    """Read ``[worktree.env]``; raise ``ValueError`` with what is allowed."""
    pairs = table.items() if isinstance(table, Mapping) else table
    try:
        found = [(name, text) for name, text in pairs]
    except (TypeError, ValueError):
        raise ValueError(_ALLOWED) from None
    for name, text in found:
        if not (isinstance(name, str) and isinstance(text, str) and text.isprintable()):
            raise ValueError(_ALLOWED)
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"names of variables, which {name[:60]!r} is not")
        if any(name == each or (each[-1] == "_" and name.startswith(each)) for each in REFUSED):
            raise ValueError(f"variables of the project; {name} is not the project's to set")
        odd = re.findall(r"\{([^{}]*)\}", _FIELD.sub("", text))
        if odd:
            named = ", ".join(f"{{{each}}}" for each in FIELDS)
            raise ValueError(f"templates with {named}; {name} has {{{odd[0][:40]}}}")
    return tuple(found)


_FIELD = re.compile(r"\{(" + "|".join(FIELDS) + r")(?:(?<=port)\+([1-9]))?\}")
_ALLOWED = 'texts by names of variables: PORT = "{port}"'
