"""Whether the hosts of places are reached, and have what attempts need: one connection each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path

from beads_workers import registry
from beads_workers.core.base.settings import FleetSettings, PlaceSettings
from beads_workers.core.base.text import size
from beads_workers.places.line import REMOTE, HostLine
from beads_workers.runtime.places import line_settings

SECONDS = 8.0


async def _look(settings: FleetSettings, place: PlaceSettings) -> tuple[str, str]:
    """Return what a place has, and why no attempt can run there; one of them is empty."""
    told = line_settings(settings, place, Path(settings.state_directory, "runs", "-"), "")
    engine = registry.place_engine(place.engine)(place, REMOTE)
    said = []
    for host in engine.known_hosts():
        line = HostLine(engine.argv(host), told.base, told.needs, lambda: None)
        try:
            await asyncio.wait_for(line.tried.wait(), SECONDS)
        except TimeoutError:
            line.why = f"it has not answered for {SECONDS:g} s"
        finally:
            await line.close()
        name = "" if host == place.name else f"{host}: "
        if line.why and not line.hello:
            return "", f"{name}{line.why}"
        said.append(f"{name}{line.hello['cpus']} cores, {size(line.hello['free'])} free")
    return "; ".join(said) or "asked when work is placed", ""


def look(
    settings: FleetSettings, places: Iterable[PlaceSettings]
) -> list[tuple[PlaceSettings, str, str]]:
    """Return for each place what it has, or why no attempt can run there."""

    # In a thread, another one may have waited for its programs before; it says so at length.
    logging.getLogger("asyncio").disabled = True

    async def all_of_them() -> list[tuple[PlaceSettings, str, str]]:
        chosen = list(places)
        found = await asyncio.gather(*(_look(settings, each) for each in chosen))
        return [(place, *said) for place, said in zip(chosen, found, strict=True)]

    return asyncio.run(all_of_them())
