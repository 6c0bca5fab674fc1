"""The table of options as parameters of a command: what typer asks a function's signature for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_type_hints

import typer

from beads_workers.cli.completion import agents, among, issues
from beads_workers.options import KEYS, Option, Options

Command = Callable[..., None]

COMPLETERS = {"agent": agents, "review": agents, "parent": issues}
"""Of options whose values are names that something here knows."""


def takes(
    command: str,
    *,
    first: tuple[str, ...] = (),
    last: tuple[str, ...] = (),
    words: Mapping[str, str] | None = None,
) -> Callable[[Command], Command]:
    """Give a command the options of the table that apply there: they come as ``said``.

    ``first`` and ``last``: what ``--help`` shows before and after the others, which stand in the
    order of the table; parameters of the function's own, or options, which it then has in any case.
    ``words``: help of this command that says it otherwise.
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
            said = {name: values.pop(name) for name in order if name not in own}
            function(**values, said=Options(**{name: _plain(said[name]) for name in said}))

        return _with_parameters(call, function, made)

    return decorate


def takes_fields(kind: type, *, before: str) -> Callable[[Command], Command]:
    """Give a command an option for each field of the dataclass ``kind``: it comes as ``said``.

    A field is annotated as a parameter would be. The function's own parameters, which all have a
    default, stand before the field ``before``.
    """

    def decorate(function: Command) -> Command:
        own, shared = _own_parameters(function), _own_parameters(kind)
        at = list(shared).index(before)
        names = [*list(shared)[:at], *own, *list(shared)[at:]]

        def call(**values: Any) -> None:
            said = kind(**{name: values.pop(name) for name in shared})
            function(**values, said=said)

        return _with_parameters(call, function, [(own | shared)[name] for name in names])

    return decorate


def _with_parameters(
    call: Command, function: Command, parameters: Sequence[inspect.Parameter]
) -> Command:
    """``call`` as typer is to see it: named as ``function``, with these parameters."""
    call.__name__, call.__doc__ = function.__name__, function.__doc__
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    vars(call)["__signature__"] = inspect.Signature(parameters)
    return call


def _own_parameters(function: Command | type) -> dict[str, inspect.Parameter]:
    hints = get_type_hints(function, include_extras=True)
    return {
        name: each.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, each in inspect.signature(function).parameters.items()
        if name != "said"
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
        autocompletion=COMPLETERS.get(name) or (among(*kind.names) if kind.names else None),
    )
    several: Any = list
    typed: Any = several[kind.word] if kind.many else kind.word
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=shown, annotation=typed | None)


def _parser(parse: Callable[[str], Any]) -> Callable[[Any], Any]:
    def read(text: Any) -> Any:
        # Typer hands the default and what has been read through here, too.
        if not isinstance(text, str):
            return text
        try:
            return parse(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return read


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
