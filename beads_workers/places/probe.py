"""Whether the hosts of places are reached, and have what attempts need: one connection each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path

from beads_workers import registry
from beads_workers.core.base.settings import FleetSettings, Place
from beads_workers.core.base.text import size
from beads_workers.places.line import REMOTE, Cut, HostLine, needs_of
from beads_workers.runtime.places import line_settings

SECONDS = 8.0
FREE_BYTES_MIN = 200 << 20


async def _look(settings: FleetSettings, place: Place) -> tuple[str, str]:
    """Return what a place has, and why no attempt can run there; one of them is empty."""
    told = line_settings(settings, place, Path(settings.state_directory, "runs", "-"), "")
    engine = registry.place_engine(place.engine)(place, REMOTE)
    said = []
    for host in engine.known_hosts():
        line = HostLine(engine.argv(host), told.base, lambda: None)
        try:
            await asyncio.wait_for(line.tried.wait(), SECONDS)
            hello, lacks = await needs_of(line, told.needs, 0.0)
        except (Cut, TimeoutError) as error:
            return "", f"{host}: {line.why or error}"
        finally:
            await line.close()
        if hello["free"] < FREE_BYTES_MIN:
            lacks.append(f"room: {size(hello['free'])} are free")
        if lacks:
            return "", f"{host} has no {', no '.join(lacks)}"
        said.append(f"{host}: {hello['cpus']} cores, {size(hello['free'])} free")
    return "; ".join(said) or "asked when work is placed", ""


def look(settings: FleetSettings, places: Iterable[Place]) -> list[tuple[Place, str, str]]:
    """Return for each place what it has, or why no attempt can run there."""

    # In a thread, another one may have waited for its programs before; it says so at length.
    logging.getLogger("asyncio").disabled = True

    async def all_of_them() -> list[tuple[Place, str, str]]:
        chosen = list(places)
        found = await asyncio.gather(*(_look(settings, each) for each in chosen))
        return [(place, *said) for place, said in zip(chosen, found, strict=True)]

    return asyncio.run(all_of_them())
