"""Kinds of sources and integrations, for the command line: a missing one is a ``CommandError``."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from beads_workers import registry
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_USAGE

if TYPE_CHECKING:
    from beads_workers.kinds import SourceKind


def kind_said(text: str | None) -> SourceKind | None:
    """Return the kind that a text means; None without a text, or for an unknown one.

    Raise ``CommandError`` for a kind that is not installed.
    """
    from beads_workers.kinds import KindMissing

    try:
        return registry.recognise(text) if text else None
    except KindMissing as error:
        raise CommandError(str(error), error.hint, EXIT_USAGE) from None


def need(name: str) -> ModuleType:
    """Return the module of this service (``registry.SERVICES``); raise ``CommandError``."""
    try:
        return registry.need(name)
    except registry.Missing as missing:
        hint = "leave the option out, or install beads-workers whole"
        raise CommandError(str(missing), hint, EXIT_USAGE) from None
