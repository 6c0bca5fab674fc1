"""The table of options as parameters of a command, in the signature that typer reads."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_type_hints

import typer

from beads_workers.cli.completion import agents, among, issues
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
        own = _own_parameters(function)
        named = (*first, *last)
        between = [name for name, each in KEYS.items() if command in each.at and name not in named]
        order = [name for name in own if name not in named] + [*first, *between, *last]
        made = [
            own[name] if name in own else _parameter(name, KEYS[name], words or {})
            for name in order
        ]

        def call(**values: Any) -> None:
            typed = {name: values.pop(name) for name in order if name not in own}
            function(**values, options=given(typed))

        return _with_parameters(call, function, made)

    return decorate


def with_fields(kind: type, *, before: str) -> Callable[[Command], Command]:
    """Give a command an option for each field of the dataclass ``kind``, as ``options``.

    A field is annotated like a parameter. The function's own parameters, which all have a default,
    come before the field ``before``.
    """

    def decorate(function: Command) -> Command:
        own, shared = _own_parameters(function), _own_parameters(kind)
        at = list(shared).index(before)
        names = [*list(shared)[:at], *own, *list(shared)[at:]]

        def call(**values: Any) -> None:
            options = kind(**{name: values.pop(name) for name in shared})
            function(**values, options=options)

        return _with_parameters(call, function, [(own | shared)[name] for name in names])

    return decorate


def _with_parameters(
    call: Command, function: Command, parameters: Sequence[inspect.Parameter]
) -> Command:
    """Return ``call`` for typer: with the name of ``function`` and these parameters."""
    call.__name__, call.__doc__ = function.__name__, function.__doc__
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    vars(call)["__signature__"] = inspect.Signature(parameters)
    return call


def _own_parameters(function: Command | type) -> dict[str, inspect.Parameter]:
    hints = get_type_hints(function, include_extras=True)
    return {
        name: each.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, each in inspect.signature(function).parameters.items()
        if name != "options"
    }


def _parameter(name: str, option: Option, words: Mapping[str, str]) -> inspect.Parameter:
    kind = option.kind
    shown = typer.Option(
        None,
        *option.flags,
        parser=_parser(kind.parse) if kind.parse else None,
        metavar=option.metavar or kind.metavar,
        help=words.get(name, option.help),
        rich_help_panel=option.panel,
        hidden=option.rare,
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
