"""The layout of ``--help``: grouped commands and options, as wide as the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand, TyperGroup

WIDTH_MAX = 200
"""Maximum width: longer lines are hard to read."""

GROUPS: dict[str, tuple[str, ...]] = {
    "Run": (*("start", "stop", "restart", "wait", "scale", "pause", "resume", "demo", "chaos"),),
    "Look": ("status", "watch", "logs", "why", "runs", "report", "replay", "branches", "version"),
    "Fix": ("doctor", "config", "trust", "retry", "release", "land", "undo", "clean"),
    "Tracker": (
        *("init", "add", "list", "show", "edit", "comment", "close", "reopen", "delete", "dep"),
        *("import", "export"),
    ),
    "Integrations": ("worker", "conformance"),
}
"""Title of a group in ``--help`` -> its commands. The last group has all other commands."""

Row = tuple[str, str]


class GroupedCommands(TyperGroup):
    """The program, with its commands in groups."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """See click."""
        named = {name for names in GROUPS.values() for name in names}
        rest = [name for name in self.list_commands(ctx) if name not in named]
        width = max(map(len, self.commands))
        for title, names in GROUPS.items():
            wanted = [*names, *rest] if title == [*GROUPS][-1] else names
            there = [(name, self.commands[name]) for name in wanted if name in self.commands]
            rows = [(name, command.get_short_help_str(WIDTH_MAX)) for name, command in there]
            _write(formatter, title, rows, width)


class LaidOut(TyperCommand):
    """A command.

    Placeholders look the same with each version of typer: 0.29 marks repeatable ones twice.
    """

    panelled = False
    """Whether options are shown in their panels, below the others; for long lists."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """See click."""
        arguments = [each for each in self.get_params(ctx) if each.param_type_name == "argument"]
        return [self.options_metavar or "", *map(_called, arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """See click."""
        from beads_workers.core.option import PANELS

        panels: dict[str, list[Row]] = {name: [] for name in ("Arguments", "Options", *PANELS)}
        for each in self.get_params(ctx):
            if (row := each.get_help_record(ctx)) is None:
                continue
            names, text = row
            if each.param_type_name == "argument":
                panels["Arguments"].append(
                    (_called(each), text.removesuffix("[required]").rstrip())
                )
            else:
                names = _LIST.sub(r"<\1>", names)
                panel = getattr(each, "rich_help_panel", None) if self.panelled else None
                panels[panel or "Options"].append((names, text))
        width = max(len(name) for name, _ in _rows(panels.values()) if len(name) <= COLUMN_MAX)
        for title, rows in panels.items():
            _write(formatter, title, rows, width)


_LIST = re.compile(r"<list\[(.+)\]>")


def _called(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


COLUMN_MAX = 28
"""Maximum width of the first column; a longer name has its sentence on the next line."""


def _rows(panels: Iterable[list[Row]]) -> list[Row]:
    return [row for rows in panels for row in rows]


def _write(formatter: Any, title: str, rows: list[Row], width: int) -> None:
    """Write rows below a title, with the second column aligned in all groups."""
    if rows:
        with formatter.section(title):
            formatter.write_dl(
                [(name.ljust(width), text) for name, text in rows], col_max=width + 2
            )
