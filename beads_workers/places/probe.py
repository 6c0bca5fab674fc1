"""What hosts say when nobody works on them: whether they are reached, and what is left there."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from beads_workers import registry
from beads_workers.core.base.model import value
from beads_workers.core.base.settings import FleetSettings, PlaceSettings
from beads_workers.core.base.text import size, some
from beads_workers.places.away import host_of
from beads_workers.places.line import NO_SENSE, NONSENSE, REMOTE, HostLine, Unreached
from beads_workers.runtime.places import LineSettings, line_settings
from beads_workers.runtime.run_directory import AlreadyRunning, RunDirectory

SECONDS = 8.0


@value
class HostAnswer:
    """What a host of a place has said to a word, or why it has not."""

    told: LineSettings
    host: str
    said: Mapping[str, Any]
    why: str = ""

    @property
    def shown(self) -> str:
        """The host, for people."""
        place = self.told.place.name
        return place if place == self.host else f"{self.host} of {place}"


def ask(lines: Iterable[LineSettings], word: Mapping[str, Any]) -> list[HostAnswer]:
    """Ask each host to which these places keep a line, with one connection each."""
    # In a thread, another one may have waited for its programs before; it says so at length.
    logging.getLogger("asyncio").disabled = True

    async def all_of_them() -> list[HostAnswer]:
        engines = [(t, registry.place_engine(t.place.engine)(t.place, REMOTE)) for t in lines]
        hosts = [(told, engine, host) for told, engine in engines for host in engine.known_hosts()]
        return await asyncio.gather(
            *(_ask(told, e.argv(host), host, word) for told, e, host in hosts)
        )

    return asyncio.run(all_of_them())


async def _ask(
    told: LineSettings, argv: list[str], host: str, word: Mapping[str, Any]
) -> HostAnswer:
    line = HostLine(argv, told.base, told.needs, lambda: None)
    try:
        await asyncio.wait_for(line.tried.wait(), SECONDS)
        said = await line.ask(word, SECONDS)
        return HostAnswer(told, host, said, str(said.get("why", "")))
    except TimeoutError:
        return HostAnswer(told, host, {}, f"it has not answered for {SECONDS:g} s")
    except Unreached as error:
        return HostAnswer(told, host, {}, str(error))
    finally:
        await line.close()


# --- before a start ------------------------------------------------------------------------------


def look(
    settings: FleetSettings, places: Iterable[PlaceSettings]
) -> list[tuple[PlaceSettings, str, str]]:
    """Return for each place what it has, or why no attempt can run there."""
    folder = Path(settings.state_directory, "runs", "-")
    lines = [line_settings(settings, place, folder, "") for place in places]
    answers = ask(lines, {"hello": {}})
    return [_summary(told.place, [a for a in answers if a.told is told]) for told in lines]


def _summary(place: PlaceSettings, answers: list[HostAnswer]) -> tuple[PlaceSettings, str, str]:
    found = []
    for each in answers:
        name = "" if each.host == place.name else f"{each.host}: "
        if each.why:
            return place, "", f"{name}{each.why}"
        try:
            hello = each.said["hello"]
            found.append(f"{name}{hello['cpus']:d} cores, {size(hello['free'])} free")
        except NONSENSE:
            return place, "", f"{name}{NO_SENSE}"
    return place, "; ".join(found) or "asked when work is placed", ""


# --- after it ------------------------------------------------------------------------------------


def attempts(lines: Iterable[LineSettings]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the attempts that are on hosts, as JSON; and why hosts do not answer, by name."""
    rows, silent = [], {}
    for each in ask(lines, {"found": True}):
        try:
            found = [] if each.why else each.said["found"]
            rows += [
                {"issue_id": str(issue_id), "host": each.shown, "ended": ended is not None}
                for issue_id, _, _, begun, ended in found
                if begun
            ]
        except NONSENSE:
            silent[each.shown] = NO_SENSE
        if each.why:
            silent[each.shown] = each.why
    return rows, silent


def clean(
    directory: RunDirectory, lines: Sequence[LineSettings], *, dry_run: bool
) -> list[dict[str, Any]]:
    """Remove what hosts keep for later attempts; return it as JSON, what stays with ``reasons``: an
    attempt is there, or it may have work of an issue that is not done."""
    try:
        lock = directory.lock()  # No attempt begins meanwhile.
    except AlreadyRunning as error:
        return [_kept(told, told.place.name, 0, str(error)) for told in lines]
    try:
        entries = directory.left_over()[1].retry_entries.values()
        receipts = {each.issue_id: each.receipt for each in entries}
        rows = []
        for each in ask(lines, {"clean": False}):
            count, why = each.said.get("clean"), each.why
            host = host_of(each.told.place.name, each.host)
            # A receipt names the host of a session; without one, the work may lie anywhere.
            waits = [i for i, known in receipts.items() if known is None or known.host == host]
            if not why and waits:
                why = f"it may have work of {some(waits)}"
            elif not why and not isinstance(count, int):
                why = NO_SENSE
            elif not why and not dry_run:
                why = ask([each.told], {"clean": True})[0].why
            rows.append(_kept(each.told, each.shown, count if isinstance(count, int) else 0, why))
        return rows
    finally:
        os.close(lock)


def _kept(told: LineSettings, host: str, count: int, why: str) -> dict[str, Any]:
    return {"host": host, "path": told.base, "bytes": count, "reasons": [why] if why else []}
