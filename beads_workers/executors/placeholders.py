"""Placeholders in commands and prompts, and the one place where they would be dangerous.

Source: docs/PROTOCOL.md, "Security". A replaced value is never looked at again, and
never meets a shell: a script handed to ``sh -c`` may not contain an issue's text at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from beads_workers.core.message_types import Task

TITLE_CHARS_MAX = 32_000
"""One argument or variable holds 128 KiB (MAX_ARG_STRLEN); a character is at most four bytes."""

SAFE_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:/@-]*")
"""Ids that can stand in a script or behind a ``bd`` subcommand: no option, nothing to expand."""


def values(task: Task, worker_id: str) -> dict[str, str]:
    """What the placeholders of a command stand for."""
    return {
        "id": plain(task.issue_id),
        "title": plain(task.title)[:TITLE_CHARS_MAX],
        "priority": str(task.priority),
        "worker": plain(worker_id),
        "attempt": str(task.attempt),
    }


def replace(text: str, known: Mapping[str, str]) -> str:
    """Replace ``{name}`` for the known names in one pass; any other stays as it is."""
    return _PLACEHOLDER.sub(lambda match: known.get(match[1], match[0]), text)


def plain(text: str) -> str:
    """``text`` as the kernel can take it: no NUL byte, no lone surrogate."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def check_command(argv: Sequence[str]) -> str | None:
    """Why this command is refused, or None: an issue's text may not become part of a script."""
    for script in scripts(argv):
        if match := _TEXT_PLACEHOLDER.search(script):
            return (
                f"{match[0]} inside a script would be executed as code;"
                f' use "${_VARIABLE[match[1]]}" there instead'
            )
    return None


def spelt_for_scripts(argv: Sequence[str]) -> tuple[str, ...]:
    """The command as ``check_command`` wants it: variables in scripts instead of placeholders."""
    refused = {script for script in scripts(argv) if _TEXT_PLACEHOLDER.search(script)}

    def spelt(match: re.Match[str]) -> str:
        return f"${{{_VARIABLE[match[1]]}}}"

    return tuple(_TEXT_PLACEHOLDER.sub(spelt, a) if a in refused else a for a in argv)


def scripts(argv: Sequence[str]) -> Iterator[str]:
    """The arguments that a shell or interpreter would run as code: behind ``sh -c`` and its kin.

    Found wherever the program stands, so that ``env``, ``timeout`` and the like hide nothing.
    """
    for position, argument in enumerate(argv):
        letters = _SCRIPT_OPTIONS.get(argument.rpartition("/")[2].rstrip("0123456789."))
        if letters:
            yield from _script_after(argv[position + 1 :], letters)


def _script_after(arguments: Sequence[str], letters: str) -> Iterator[str]:
    code_follows = takes_value = False
    for argument in arguments:
        if takes_value:
            takes_value = False
        elif argument.startswith("--") and argument != "--":
            if "=" in argument and argument.split("=")[0] in _LONG_SCRIPT_OPTIONS:
                yield argument
            code_follows = code_follows or argument in _LONG_SCRIPT_OPTIONS
        elif _OPTIONS.fullmatch(argument):
            code_follows = code_follows or any(letter in argument for letter in letters)
            # ``-o pipefail`` may come before the script, also as the end of ``-ceuo``.
            takes_value = argument[-1] in "oO"
        else:
            if code_follows:
                yield argument
            return


_PLACEHOLDER = re.compile(r"\{([a-z]+)\}")
_TEXT_PLACEHOLDER = re.compile(r"\{(title|description)\}")
_VARIABLE = {"title": "BW_ISSUE_TITLE", "description": "BW_ISSUE_FILE"}
_SCRIPT_OPTIONS = {
    **dict.fromkeys(("sh", "bash", "zsh", "dash", "ash", "ksh", "mksh", "fish", "su"), "c"),
    "python": "c",
    "pypy": "c",
    "perl": "eE",
    "ruby": "e",
    "node": "ep",
    "php": "r",
}
_LONG_SCRIPT_OPTIONS = ("--command", "--eval", "--print")
_OPTIONS = re.compile(r"--|[-+][A-Za-z]*")
