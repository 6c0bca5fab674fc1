"""Where attempts run: ``--on`` and the tables ``[places.NAME]``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from beads_workers import registry
from beads_workers.core.base.settings import PlaceSettings
from beads_workers.core.base.times import parse_duration
from beads_workers.options import WORKERS_DEFAULT, WORKERS_MAX, read_nonempty

LOCAL = "local"
KEYS = ("engine", "address", "python", "resources", "lease", "insecure")
FORMS = f'"{LOCAL}:2", "ssh:HOST:8", or the name of a [places] table: "NAME:16"'
LEASE_SECONDS_MIN = 10.0


def read_places(value: Any) -> Mapping[str, Mapping[str, Any]]:
    """Return the tables ``[places.NAME]``; raise ``ValueError`` with what is allowed."""
    if not isinstance(value, Mapping) or not all(
        isinstance(each, Mapping) for each in value.values()
    ):
        raise ValueError("tables: [places.NAME]")
    return {name: _table(name, table) for name, table in value.items()}


def _table(name: str, table: Mapping[str, Any]) -> Mapping[str, Any]:
    if unknown := sorted(set(table) - set(KEYS)):
        raise ValueError(f"[places.{name}] has the keys {', '.join(KEYS)}, and not {unknown[0]}")
    engine = table.get("engine", "ssh")
    if engine not in registry.PLACES:
        raise ValueError(f"[places.{name}] engine: {', '.join(registry.PLACES)}")
    resources = table.get("resources", {})
    numbers = isinstance(resources, Mapping) and all(
        isinstance(each, int | float) and not isinstance(each, bool) for each in resources.values()
    )
    if not numbers:
        raise ValueError(f"[places.{name}] resources: a table of numbers")
    made = {"engine": engine, "resources": dict(resources)}
    for key in ("address", "python"):
        made[key] = read_nonempty(table[key]) if key in table else ""
    if made["address"].startswith("-"):
        raise ValueError(f"[places.{name}] address: no option")
    try:
        made["lease_seconds"] = parse_duration(str(table.get("lease", "10m")))
    except ValueError:
        made["lease_seconds"] = 0.0
    if made["lease_seconds"] < LEASE_SECONDS_MIN:
        raise ValueError(f"[places.{name}] lease: a duration of {LEASE_SECONDS_MIN:g} s or more")
    return {**made, "insecure": table.get("insecure") is True}


def read_on(value: object) -> str:
    """Return a word of ``--on``; raise ``ValueError`` with the allowed forms."""
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise ValueError(FORMS)
    return value


_WORD = re.compile(r"(?:ssh:)?[A-Za-z0-9_][A-Za-z0-9_.@-]*(?::[0-9]{1,4})?", re.ASCII)


def find_places(
    words: Iterable[str], tables: Mapping[str, Mapping[str, Any]] | None
) -> tuple[int | None, tuple[PlaceSettings, ...]]:
    """Return how many workers ``local`` has, None if that is not said, and the other places.

    Raise ``ValueError`` with a sentence for people.
    """
    local: int | None = None
    places: dict[str, PlaceSettings] = {}
    for word in words:
        is_ssh = word.startswith("ssh:")
        name, _, number = word.removeprefix("ssh:").partition(":")
        slots = int(number) if number else WORKERS_DEFAULT
        if slots > WORKERS_MAX:
            raise ValueError(f"--on {word}: {WORKERS_MAX} at most")
        if name == LOCAL and not is_ssh:
            if local is not None:
                raise ValueError(f"--on names {LOCAL} twice")
            local = slots
            continue
        if name in places:
            raise ValueError(f"--on names {name} twice")
        table = (tables or {}).get(name)
        if table is None and not is_ssh:
            raise ValueError(f"--on {word}: there is no [places.{name}]; a host is ssh:{name}")
        places[name] = PlaceSettings(name=name, slots=slots, **(table or {"engine": "ssh"}))
    return local, tuple(places.values())
