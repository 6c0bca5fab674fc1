"""Every parser that is fuzzed. Adding one: an ``entries_`` module names it in its ``PARSERS``."""

from __future__ import annotations

from tests.fuzz import (
    entries_agents,
    entries_attempts,
    entries_conformance,
    entries_dispatcherd,
    entries_forge,
    entries_functions,
    entries_hero,
    entries_peers,
    entries_people,
    entries_places,
    entries_scrapes,
    entries_serving,
    entries_stored,
    entries_tracker,
    entries_wire,
)
from tests.fuzz.parser import Parser

ENTRIES = (
    entries_wire,
    entries_conformance,
    entries_peers,
    entries_dispatcherd,
    entries_hero,
    entries_serving,
    entries_functions,
    entries_tracker,
    entries_stored,
    entries_people,
    entries_places,
    entries_forge,
    entries_scrapes,
    entries_agents,
    entries_attempts,
)

PARSERS: dict[str, Parser] = {p.name: p for entries in ENTRIES for p in entries.PARSERS}
