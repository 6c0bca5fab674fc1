"""The table of options as parameters of a command, in the signature that typer reads."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_type_hints

import typer

from beads_workers.cli.completion import agents, among, issues
from beads_workers.core.base.option import DOCTOR, START
from beads_workers.options import KEYS, Option, given

Command = Callable[..., None]

COMPLETERS = {"agent": agents, "review": agents, "parent": issues}
"""Completers of options whose values are known names."""


def with_options(
    command: str,
    *,
    first: tuple[str, ...] = (),
    last: tuple[str, ...] = (),
    words: Mapping[str, str] | None = None,
) -> Callable[[Command], Command]:
    """Give a command the options of the table that apply to it and were typed, as ``options``.

    ``first`` and ``last``: names that ``--help`` shows before and after the others, which keep the
    order of the table. They are parameters of the function's own, or options that the command has
    in any case. ``words``: other help texts for this command.
    """

    def decorate(function: Command) -> Command:
        own = _own_parameters(function, but=("options",))
        named = (*first, *last)
        # ``doctor`` takes what ``start`` takes, and shows what it looks at.
        at = {command, START} if command == DOCTOR else {command}
        between = [name for name, each in KEYS.items() if at & {*each.at} and name not in named]
        order = [name for name in own if name not in named] + [*first, *between, *last]
        made = [
            own[name] if name in own else _parameter(name, KEYS[name], command, words or {})
            for name in order
        ]

        def call(**values: Any) -> None:
            typed = {name: values.pop(name) for name in order if name not in own}
            function(**values, options=given(typed))

        return _with_parameters(call, function, made)

    return decorate


def with_fields(**kinds: type) -> Callable[[Command], Command]:
    """Give a command an option for each field of these dataclasses, after its own parameters.

    The function gets one value for each dataclass, by its name here. A field is annotated like a
    parameter.
    """

    def decorate(function: Command) -> Command:
        own = _own_parameters(function, but=tuple(kinds))
        groups = {name: _own_parameters(kind) for name, kind in kinds.items()}

        def call(**values: Any) -> None:
            made = {
                name: kinds[name](**{field: values.pop(field) for field in fields})
                for name, fields in groups.items()
            }
            function(**values, **made)

        fields = [each for group in groups.values() for each in group.values()]
        return _with_parameters(call, function, [*own.values(), *fields])

    return decorate


def _with_parameters(
    call: Command, function: Command, parameters: Sequence[inspect.Parameter]
) -> Command:
    """Return ``call`` for typer: with the name of ``function`` and these parameters."""
    call.__name__, call.__doc__ = function.__name__, function.__doc__
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    vars(call)["__signature__"] = inspect.Signature(parameters)
    return call


def _own_parameters(
    function: Command | type, but: Sequence[str] = ()
) -> dict[str, inspect.Parameter]:
    hints = get_type_hints(function, include_extras=True)
    return {
        name: each.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, each in inspect.signature(function).parameters.items()
        if name not in but
    }


def _parameter(
    name: str, option: Option, command: str, words: Mapping[str, str]
) -> inspect.Parameter:
    kind = option.kind
    shown = typer.Option(
        None,
        *option.flags,
        parser=_parser(kind.parse) if kind.parse else None,
        metavar=option.metavar or kind.metavar,
        help=words.get(name, option.help),
        rich_help_panel=option.panel,
        hidden=option.rare or (command == DOCTOR and command not in option.at),
        autocompletion=COMPLETERS.get(name) or (among(*kind.names) if kind.names else None),
    )
    several: Any = list
    typed: Any = several[kind.word] if kind.many else kind.word
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=shown, annotation=typed | None)


def _parser(parse: Callable[[str], Any]) -> Callable[[Any], Any]:
    def read(text: Any) -> Any:
        # Typer also passes the default and parsed values.
        if not isinstance(text, str):
            return text
        try:
            return parse(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return read
