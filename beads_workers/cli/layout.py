"""The layout of ``--help``: grouped commands and options, as wide as the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast, get_args

from typer import BadParameter
from typer.core import TyperCommand, TyperGroup

from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_USAGE

WIDTH_MAX = 200
"""Maximum width: longer lines are hard to read."""

GROUPS: dict[str, tuple[str, ...]] = {
    "Run": (
        *("setup", "start", "stop", "restart", "wait", "scale", "pause", "resume", "demo", "chaos"),
    ),
    "Decide": ("morning", "answer", "diff", "approve", "reject", "session"),
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


class CommandGroup(TyperGroup):
    """Commands. Where the first word is one, the group has no options to convert."""

    _names_command = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click."""
        self._names_command = bool(args) and not args[0].startswith("-")
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        """See click."""
        return [] if self._names_command else super().get_params(ctx)


class GroupedCommands(CommandGroup):
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
    """A command. typer 0.29 loads pydantic to convert the first value. What converts without it
    does so here; all else, also each mistake, is left to typer.

    Placeholders look the same with each version of typer: 0.29 marks repeatable ones twice.
    """

    panelled = False
    """Whether options are shown in their panels, below the others; for long lists."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click."""
        found, rest = _converted(self, ctx, [*args]), list[str]()
        if found is None:
            rest = super().parse_args(ctx, args)
        ctx.params.update(found or {})
        for each in self.get_params(ctx):
            if _ISSUES.search(each.metavar or "") and (value := ctx.params.get(each.name)):
                many = isinstance(value, list | tuple)
                ctx.params[each.name] = [*map(issue_id, value)] if many else issue_id(value)
        return rest

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """See click."""
        arguments = [each for each in self.get_params(ctx) if each.param_type_name == "argument"]
        return [self.options_metavar or "", *map(_called, arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """See click."""
        from beads_workers.core.base.option import PANELS

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


def _converted(command: TyperCommand, ctx: Any, args: list[str]) -> dict[str, Any] | None:
    """Return the value of each parameter; None if typer is to convert them."""
    typed, rest, _ = command.make_parser(ctx).parse_args(args=args)
    found, parameters = dict[str, Any](), cast("list[Any]", command.get_params(ctx))
    for each in parameters:
        value, described = typed.get(each.name), getattr(each, "type_descriptor", None)
        many = each.multiple or each.nargs == -1
        if described is None or each.envvar or (each.required and not value):
            return None
        if value is None:
            value = () if many else each.get_default(ctx)
        elif not isinstance(value, bool):
            info = described.parameter_info
            kind = info.parser or (
                get_args(described.annotation)[0] if many else described.annotation
            )
            if not (info.parser or kind in (str, int, float)):
                return None
            word = value
            try:
                value = [kind(one) for one in value] if many else kind(value)
            except (ValueError, BadParameter) as error:
                why = getattr(error, "message", f"{word!r} is not a valid number.")
                raise BadParameter(why, ctx, each) from None
            if (info.min is not None and value < info.min) or (
                info.max is not None and value > info.max
            ):
                raise BadParameter(f"{word} is not in the range.", ctx, each)
        if value and each.callback:
            return None
        if each.expose_value:
            found[each.name] = value
    return None if rest else found


_ISSUES = re.compile(r"ISSUE(?!.*TEXT)|NEEDED")
"""In the placeholder of a parameter that names issues."""


def issue_id(text: str) -> str:
    """Return the id of the issue that somebody means: ``12`` for ``#12`` and for its address."""
    if "#" not in text and "://" not in text:
        return text
    from beads_workers.core.base.source import SourceError
    from beads_workers.registry import service

    if (found := service("issue_texts")) is None:
        return text
    try:
        return str(found.id_of(text, Path.cwd()))
    except SourceError as error:
        raise CommandError(str(error), error.hint, EXIT_USAGE) from None


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
