"""The tracker: found, answering, how fast, its issues, and obstacles. Only reads.

``bd`` gets the same calls as from ``start``, with a shorter time limit (docs/SEMANTICS.md, "The
tracker in trouble").
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from beads_workers.checks.project import cannot_open
from beads_workers.checks.rules import Check, fail, ok, warn
from beads_workers.core.base.model import Filters
from beads_workers.core.base.settings import FleetSettings
from beads_workers.core.base.source import Calls, ClaimingSource, HeldElsewhere, SourceError
from beads_workers.core.base.text import counted, printable, some
from beads_workers.kinds import DoctorInput
from beads_workers.runtime import sessions
from beads_workers.runtime.abandoned import claims_of_runs
from beads_workers.runtime.kernel import system
from beads_workers.runtime.run_directory import RunDirectory, tracker_folder
from beads_workers.runtime.sources import open_source
from beads_workers.trackers.bd.calls import BdCalls
from beads_workers.trackers.bd.source import Listings, held_elsewhere
from beads_workers.trackers.bd.tracker import BdFeatures, BdTracker, object_of
from beads_workers.ui.time_text import duration

ACTOR = "beads-workers/doctor"
CALL_SECONDS = 5.0
"""Time limit: a call of ``bd`` takes 0.02 to 0.3 s; one this long is stuck for people, too."""
SLOW_SECONDS = 2.0
"""Duration of a read that makes every round trip slow."""
LISTED_MAX = 200
ELSEWHERE = ("BEADS_DIR", "BEADS_DB", "BD_DB")
"""Variables that send ``bd`` to another tracker than the one in this folder."""
PLACES = (
    "~/.local/bin",
    "~/go/bin",
    "~/bin",
    "/usr/local/bin",
    "/opt/homebrew/bin",
    "~/.npm-global/bin",
)
"""Folders into which installers put ``bd``, for a ``bd`` that is not on PATH."""
INSTALL = "npm install -g @beads/bd"
WITHDRAWN = ("1.0.5", "1.2.0", "1.2.1")
"""Releases of beads that their authors withdrew."""


def tracker(doctor_input: DoctorInput) -> list[Check]:
    """Report on any tracker: whether it answers, how fast, and its issues."""
    fleet = doctor_input.fleet
    if fleet is None:
        return []
    return _listed(fleet, "", lambda error: fail("tracker", printable(str(error)), error.hint))


def embedded(doctor_input: DoctorInput) -> list[Check]:
    """Report on the built-in tracker of this fleet."""
    fleet = doctor_input.fleet
    assert fleet is not None, "its tracker was found"
    return _listed(fleet, "built-in, ", lambda error: cannot_open(Path(fleet.tracker), error))


def _listed(fleet: FleetSettings, lead: str, wrong: Callable[[SourceError], Check]) -> list[Check]:
    try:
        source = open_source(replace(fleet, filters=_without_bring(fleet)), ACTOR)
    except SourceError as error:
        return [wrong(error)]
    try:
        description = source.describe()
        began = time.monotonic()
        taken = source.take(0, ())
        seconds = time.monotonic() - began
        held = source.held() if isinstance(source, ClaimingSource) else ()
        others = () if taken.listed or taken.blocked else source.unfinished(1)
    except SourceError as error:
        return [wrong(error)]
    finally:
        source.close()
    more = "+" if taken.more else ""
    counts = f"{len(taken.listed)}{more} ready, {taken.blocked or 0} blocked"
    why = (f"; {each.issue_id}: {each.refused}" for each in others if each.refused)
    counts += _filed(taken.discovered) or "".join(why)
    return [
        ok("tracker", f"{lead}{printable(description)}; one read took {duration(seconds)}"),
        ok("issues", counts + _filtered(fleet)),
        *_abandoned(fleet, held),
    ]


def _abandoned(fleet: FleetSettings, held: Sequence[HeldElsewhere]) -> Iterator[Check]:
    """Warn of issues that no living run works on.

    They are held by runs that are over or unknown here, or are in progress without an assignee: no
    fleet takes those.
    """
    directory, folder = RunDirectory(Path(fleet.state_directory)), tracker_folder(fleet.tracker)
    for each in claims_of_runs(held, directory, folder):
        if each.living:
            continue
        ids = printable(some(each.issue_ids))
        where = "a run of another machine" if each.elsewhere else "a run that is over"
        text = f"{counted(len(each.issue_ids), 'issue')} held by {where} ({each.actor}): {ids}"
        if not each.elsewhere and directory.is_settled(each.actor.rsplit("/", 1)[1]):
            text += "; that run had opened or closed them: the tracker did not keep what it wrote"
        only = " " + shlex.join(each.issue_ids) if each.elsewhere else ""
        yield warn("issues", text, f"beads-workers release --abandoned{only}")
    if stale := [each.issue_id for each in held if not each.actor]:
        are = counted(len(stale), "issue is", "issues are")
        text = f"{are} in progress, in nobody's name: {printable(some(stale))}"
        hint = "if nobody works on it; no fleet takes it while it is in progress"
        yield warn("issues", text, f"beads-workers release {shlex.quote(stale[0])}", hint)


# --- bd ---------------------------------------------------------------------------------------


def bd(doctor_input: DoctorInput) -> list[Check]:
    """Report on beads: its program, its database, and obstacles."""
    fleet = doctor_input.fleet
    assert fleet is not None, "its tracker was found"
    place = Path(fleet.tracker)
    return _bd(fleet, place)


def _bd(fleet: FleetSettings, place: Path) -> list[Check]:
    program = shutil.which("bd")
    if program is None:
        return [_not_found()]
    bd = BdTracker(BdCalls("bd", place.parent, ACTOR, Calls(), call_seconds=CALL_SECONDS))
    try:
        abilities = bd.abilities
        described = bd.place()
        began = time.monotonic()
        listing = Listings(bd, _without_bring(fleet), ACTOR, LISTED_MAX).ready(0, ())
        seconds = time.monotonic() - began
        held = held_elsewhere(bd, ACTOR, shared=False)
    except SourceError as error:
        return [_failed(error, place)]
    text = (
        f"bd {abilities.version} ({program}), {described}{_no_db(place)}; {_abilities(abilities)}"
    )
    text += f"; one read took {duration(seconds)}"
    shown = ok("tracker", text)
    if seconds > SLOW_SECONDS:
        shown = warn("tracker", text, f"cd {shlex.quote(str(place.parent))} && bd doctor")
    ready = f"{len(listing.rows)}{'+' if listing.more else ''} ready{_counts(bd)}"
    ready += _filed(listing.held)
    return [
        shown,
        *_known_faults(abilities.version, place),
        *_in_the_way(bd, place),
        ok("issues", ready + _filtered(fleet)),
        *_abandoned(fleet, held),
    ]


def _not_found() -> Check:
    for folder in map(Path, map(os.path.expanduser, PLACES)):
        if os.access(folder / "bd", os.X_OK):
            text = f"bd is not on PATH, but in {folder}"
            return fail("tracker", text, f'export PATH="{folder}:$PATH"')
    return fail("tracker", "bd is not on PATH, and this is a project of beads", INSTALL)


def _failed(error: SourceError, place: Path) -> Check:
    text = printable(str(error))
    folder = shlex.quote(str(place.parent))
    if "too old" in text:
        return fail("tracker", text, INSTALL)
    if re.search(r"lock|gate busy|did not answer", text):
        for process in _holders(place):
            held = f"{text}; pid {process} ({_name_of(process)}) has it open"
            wait = f"tail --pid={process} -f /dev/null"
            server = "sql-server" in _name_of(process)
            return fail("tracker", held, f"kill {process}" if server else wait)
    if "no beads database" in text:
        return fail("tracker", text, f"cd {folder} && bd init")
    return fail("tracker", text, f"cd {folder} && bd ready --json")


def _in_the_way(bd: BdTracker, place: Path) -> Iterator[Check]:
    """Warn of settings that make calls slow, or send them to another tracker."""
    for name in ELSEWHERE:
        value = os.environ.get(name)
        if value and place.resolve() not in (Path(value).resolve(), *Path(value).resolve().parents):
            text = f"{name}={printable(value, 80)} sends bd to another tracker than {place}"
            yield warn("tracker", text, f"unset {name}")
    if "--allow-stale" in bd.calls.fixed:
        text = "bd finds its database behind its JSON Lines, and is called with --allow-stale"
        yield warn("tracker", text, f"cd {shlex.quote(str(place.parent))} && bd sync --import-only")
    if "--no-daemon" in bd.calls.fixed:
        text = "bd's daemon does not start: other calls of bd wait 5 s for it, ours do not"
        yield warn("tracker", text, "export BEADS_NO_DAEMON=1")


def _known_faults(version: str, place: Path) -> Iterator[Check]:
    """Warn of known causes of lost issues: withdrawn releases, and an outdated server."""
    if version in WITHDRAWN:
        yield warn("tracker", f"bd {version} was withdrawn by its authors", INSTALL)
    try:
        pid = int((place / "dolt-server.pid").read_text())
        program = system.program_of(pid)
    except (OSError, ValueError):
        return
    running = program.removesuffix(" (deleted)")
    installed = os.path.realpath(shutil.which("dolt") or running)
    if Path(running).name == "dolt" and program != installed:
        text = f"the Dolt server (pid {pid}) is older than the installed dolt: an upgrade does not"
        text += " end it, and both together have damaged databases"
        mend = f"cd {shlex.quote(str(place.parent))} && bd dolt stop && bd dolt start"
        yield warn("tracker", text, mend)


def _counts(bd: BdTracker) -> str:
    try:
        summary = object_of(bd.ask(["stats", "--json"])).get("summary")
    except SourceError:
        return ""  # The counts are for show, and not every version has the command.
    if not isinstance(summary, dict):
        return ""
    named = (("blocked", "blocked_issues"), ("in progress", "in_progress_issues"))
    return "".join(f", {summary[key]} {word}" for word, key in named if key in summary)


def _abilities(abilities: BdFeatures) -> str:
    named = (
        ("atomic claims", abilities.compare_and_swap),
        ("leases", abilities.leases),
        ("batch", abilities.batch),
    )
    able = [name for name, has in named if has]
    return "has " + ", ".join(able) if able else "claims are read back, as it has no atomic ones"


def _no_db(place: Path) -> str:
    try:
        text = (place / "config.yaml").read_text()
    except (OSError, UnicodeDecodeError):
        return ""
    return ", no-db" if re.search(r"(?m)^no-db: *true", text) else ""


# --- common -----------------------------------------------------------------------------------


def _holders(place: Path) -> list[int]:
    """Return processes that have a file below the tracker's folder open, without our own calls."""
    return sorted(pid for pid in sessions.users_of(place) if _parent(pid) != os.getpid())


def _parent(pid: int) -> int | None:
    stat = system.stat_of(pid)
    return stat.parent if stat is not None else None


def _name_of(pid: int) -> str:
    try:
        words = system.command_of(pid)
    except OSError:
        return "gone by now"
    return printable(b" ".join(words[:2]).decode("utf-8", "replace").strip(), 60)


def _filed(discovered: Sequence[str]) -> str:
    """Return how many issues would be ready, if agents had not filed them."""
    return f", {len(discovered)} filed by agents, which wait for you" if discovered else ""


def _filtered(fleet: FleetSettings) -> str:
    return "" if _without_bring(fleet) == Filters() else ", with the filters of this fleet"


def _without_bring(fleet: FleetSettings) -> Filters:
    """Return the filters without what an issue must bring.

    That part follows from the fleet, and a fleet without a command has ready issues all the same.
    """
    return replace(fleet.filters, bring=())
