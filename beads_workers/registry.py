"""Every kind of source: the one table that a new one is entered in.

A kind is imported when it is asked for. One whose module is not there is passed over, and using it
is one clear error."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from beads_workers.kinds import SourceKind


KINDS: dict[str, str] = {
    "bd": "beads_workers.trackers.bd:KIND",
    "sqlite": "beads_workers.trackers.sqlite:KIND",
    "rrq": "beads_workers.integrations.rrq:KIND",
    "hero": "beads_workers.integrations.hero:KIND",
    "dispatcherd": "beads_workers.integrations.dispatcherd:KIND",
}
"""The name of a kind: ``module:ATTRIBUTE`` of its ``SourceKind``."""


TABLES: dict[str, str] = {
    "hero": "beads_workers.integrations.hero.options:read_hero",
}
"""Tables of ``beads-workers.toml`` that a kind reads by itself: ``module:function``."""


def kind_of(name: str) -> SourceKind:
    """The kind of this name; raises ``KindMissing``."""
    kind = _load(name)
    if kind is None:
        from beads_workers.kinds import KindMissing

        raise KindMissing(name, [each.name for each in kinds()])
    return kind


def recognise(text: str) -> SourceKind | None:
    """The kind that a text of ``--source`` means; None for one that nobody knows.

    Raises ``KindMissing`` for the name of one that is not there.
    """
    if text in KINDS:
        kind = kind_of(text)
        return kind if kind.named else None
    return next((kind for kind in kinds() if kind.recognises(text)), None)


def kinds() -> Iterator[SourceKind]:
    """Every kind that is there, in the order of the table; each is imported."""
    for name in KINDS:
        if (kind := _load(name)) is not None:
            yield kind


def _load(name: str) -> SourceKind | None:
    module, _, attribute = KINDS.get(name, "").partition(":")
    if not module:
        return None
    try:
        found: SourceKind = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # It is there, and misses something else.
        return None
    return found
