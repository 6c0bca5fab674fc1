"""The tracker that a fleet works on, and the commands that its issues bring."""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any

from beads_workers.checks.rules import Check, Grade, fail, misused, warn
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.settings import FleetSettings
from beads_workers.core.base.source import Damaged, SourceError
from beads_workers.core.base.text import printable
from beads_workers.exits import EXIT_TRACKER, EXIT_UNKNOWN, EXIT_USAGE
from beads_workers.kinds import SourceKind
from beads_workers.registry import kind_of, kinds
from beads_workers.runtime.project import Project, find_project
from beads_workers.runtime.sources import open_source
from beads_workers.runtime.trust import Untrusted
from beads_workers.worktrees.git import GitError, git_or_none, is_outside

if TYPE_CHECKING:
    import sqlite3

    from beads_workers.options import Options


@dataclass(frozen=True, slots=True)
class TrackerChoice:
    """The chosen tracker."""

    # The kind of the tracker.
    source: str
    # The folder ``.beads`` or the database.
    place: Path
    folder: Path
    # The built-in tracker that is here too, if nobody chose between them.
    passed_over: Path | None = None
    # Further options for opening (``FleetSettings.source_options``).
    options: Mapping[str, Any] = field(default_factory=dict)


def source_options(tracker: TrackerChoice, options: Options) -> Mapping[str, Any]:
    """Return what a source is opened with: where it is, and whose issues it gives."""
    trusted, passed = [*options.trusted], [*options.passed]
    rules = {"from": options.issues_from, "trusted": trusted, "pass": passed}
    return {**tracker.options, **rules} if tracker.options else tracker.options


def find_tracker(
    source: str | None, kind: SourceKind | None, folder: Path
) -> TrackerChoice | Check:
    """Return the given tracker, or the tracker of this folder or the nearest one above."""
    if kind is not None and kind.locate is not None:
        return _located(kind, str(source), folder)
    try:
        project = find_project(folder)
    except Untrusted as error:
        return fail("tracker", str(error), "", error.hint, EXIT_USAGE)
    if project is None:
        make = "bd init" if source == "bd" else "beads-workers init"
        return fail(
            "tracker",
            "no tracker here: neither a .beads folder nor a built-in tracker, up to /",
            make,
            "run 'bd init' for beads, or 'beads-workers init' for the built-in tracker",
            EXIT_TRACKER,
        )
    if source not in (None, "bd", "sqlite"):
        *known, last = [form for kind in kinds() for form in kind.forms]
        return misused(
            "tracker", f"no such source: {source}", f"{', '.join(known)} and {last} are known"
        )
    place = _place(project, source)
    if place is None:
        make = "bd init" if source == "bd" else "beads-workers init"
        text = f"no {source} tracker in {project.folder}"
        return fail("tracker", text, make, exit_code=EXIT_TRACKER)
    found = "bd" if place == project.beads else "sqlite"
    both = source is None and project.beads and project.tracker
    return TrackerChoice(found, place, project.folder, project.tracker if both else None)


def _located(kind: SourceKind, source: str, folder: Path) -> TrackerChoice | Check:
    assert kind.locate is not None
    try:
        found = kind.locate(source, folder)
    except SourceError as error:
        return fail("tracker", f"--source: {error}", "", error.hint, EXIT_TRACKER)
    return TrackerChoice(kind.name, found.place, found.folder, options=found.options)


def _place(project: Project, source: str | None) -> Path | None:
    if source == "bd":
        return project.beads
    if source == "sqlite":
        return project.tracker
    return project.beads or project.tracker


def both_here(tracker: TrackerChoice, file: Path | None) -> Check | None:
    """Warn of two trackers if nobody chose between them; ``file``: the settings."""
    if tracker.passed_over is None:
        return None
    text = "both trackers are here, a .beads and a built-in one: 'start' takes bd"
    hint = "--source sqlite takes the other"
    return warn("tracker", text, _settle_on_bd(file, tracker.folder), hint)


def _settle_on_bd(file: Path | None, folder: Path) -> str:
    if file is None or not file.stat().st_size:
        path = shlex.quote(str(file or folder / "beads-workers.toml"))
        return f"echo 'source = \"bd\"' >{path}"
    # At the top of the file: after a table, the line would belong to that table.
    return f"sed -i '1i source = \"bd\"' {shlex.quote(str(file))}"


def access(place: Path) -> Iterator[Check]:
    """Check that the tracker can be read and written, as far as that is visible."""
    folder = place if place.is_dir() else place.parent
    try:
        owner = place.stat().st_uid
        parts = [folder, *(each for each in folder.iterdir() if _belongs(each, place))]
    except OSError as error:
        yield fail("tracker", f"{place}: {error.strerror}", f"ls -ld {shlex.quote(str(place))}")
        return
    closed = next((part for part in parts if not part.is_symlink() and not _is_open(part)), None)
    if closed is not None:
        yield _closed(closed, folder)
    elif owner not in (os.geteuid(), 0) and os.geteuid() != 0:
        yield warn("tracker", f"{place} belongs to {_name_of(owner)}")


def _belongs(part: Path, place: Path) -> bool:
    return place.is_dir() or part.name.startswith(place.name)


def _is_open(part: Path) -> bool:
    needed = os.R_OK | os.W_OK | (os.X_OK if part.is_dir() else 0)
    return os.access(part, needed)


def _closed(part: Path, folder: Path) -> Check:
    text, quoted = f"{part} cannot be written", shlex.quote(str(folder))
    if os.statvfs(part).f_flag & os.ST_RDONLY:
        remedy = f'sudo mount -o remount,rw "$(findmnt -no TARGET -T {quoted})"'
        return fail("tracker", f"{text}: its file system is mounted read-only", remedy)
    owner = part.stat().st_uid
    if owner != os.geteuid():
        text += f": it belongs to {_name_of(owner)}, and this is {_name_of(os.geteuid())}"
        return fail("tracker", text, f'sudo chown -R "$(id -u)" {quoted}')
    return fail("tracker", text, f"chmod -R u+rwX {quoted}")


def _name_of(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


# --- what issues bring ---------------------------------------------------------------------------


def commands_of_issues(tracker: TrackerChoice) -> int | Check:
    """Return the number of issues that are not closed and bring their own command."""
    if tracker.source != "sqlite":
        return 0
    from beads_workers.trackers.sqlite.store import count_commands, translated

    try:
        with _built_in(tracker) as connection, translated(tracker.place):
            return count_commands(connection)
    except SourceError as error:
        return cannot_open(tracker.place, error)


def cannot_open(path: Path, error: SourceError) -> Check:
    """Report why a built-in tracker cannot be opened.

    Only a damaged tracker is moved aside, and kept: somebody may want to examine it.
    """
    closed = next((each for each in access(path) if each.status is Grade.FAIL), None)
    if closed is not None:
        return replace(closed, exit_code=EXIT_TRACKER)
    quoted, project = shlex.quote(str(path)), shlex.quote(str(path.parent.parent))
    aside = f"mv {quoted} {quoted}.broken && cd {project} && beads-workers init"
    mend = aside if isinstance(error, Damaged) else ""
    return fail("tracker", printable(str(error)), mend, error.hint, EXIT_TRACKER)


def committed_commands(tracker: TrackerChoice, brought: int) -> Check | None:
    """Refuse commands of issues if their tracker is committed to git.

    Everybody who can write to the repository can write such commands. A tracker that git does not
    track is the user's own.
    """
    if not brought:
        return None
    folder, name = str(tracker.place.parent), tracker.place.name
    try:
        if git_or_none(folder, "ls-files", "--error-unmatch", "--", name) is None:
            return None
    except GitError as error:
        if is_outside(error) or which("git") is None:
            return None
        text = f"git does not say whether {printable(str(tracker.place))} is committed"
        return misused("command", text, "try again; --issue-commands runs them in any case")
    bring = "issue brings a command" if brought == 1 else "issues bring commands"
    return misused(
        "command",
        f"{brought} {bring}, and {printable(str(tracker.place))} is committed to git: whoever"
        " writes to the repository would decide what runs here",
        "look at them ('beads-workers list --json'); then --issue-commands, or git rm --cached",
    )


def allow_functions(tracker: TrackerChoice) -> str:
    """Return a hint that lets issues call their functions; "" if no issue names one."""
    if tracker.source != "sqlite":
        return ""
    from beads_workers.trackers.sqlite.store import a_function

    try:
        with _built_in(tracker) as connection:
            path = printable(a_function(connection), 60)
    except SourceError:
        return ""  # The check of the tracker reports this.
    if not path or "#" in path:  # A function of an RRQ executor, which calls it itself.
        return ""
    return f"to call {path}: beads-workers start --allow-module {path.partition('.')[0]}"


@contextlib.contextmanager
def _built_in(tracker: TrackerChoice) -> Iterator[sqlite3.Connection]:
    from beads_workers.trackers.sqlite.store import connect

    with contextlib.closing(connect(tracker.place)) as connection:
        yield connection


# --- issues that are named -----------------------------------------------------------------------


NEAR_MAX = 1000
"""Number of issues that are searched for a similar id."""


def named_issues(settings: FleetSettings) -> list[Check]:
    """Report named issues that are unknown or closed.

    If the tracker does not answer, nothing is reported: the fleet waits for it, and says so.
    """
    named = [IssueId(each) for each in settings.filters.only]
    if not named or kind_of(settings.source).capabilities.push:
        return []
    try:
        with contextlib.closing(open_source(settings, "beads-workers/start")) as source:
            seen = source.look(named)
            unknown = [each for each in named if each not in seen]
            others = [each.issue_id for each in source.unfinished(NEAR_MAX)] if unknown else []
    except SourceError:
        unknown, others, seen = named, [], {}
        if _as_command(unknown, settings.argv) is None:
            return []
    if unknown:
        return [_as_command(unknown, settings.argv) or _unknown(unknown, others)]
    closed = [each for each in named if seen[each].status == "closed"]
    return [warn("issues", f"{printable(each, 60)} is closed already") for each in closed]


def _as_command(unknown: Sequence[str], argv: Sequence[str]) -> Check | None:
    """Return the corrected line if the word taken for an issue is a program or an agent."""
    from beads_workers.agents.presets import PRESETS

    word = unknown[0]
    if word not in argv:
        return None
    at, text = argv.index(word), f"{printable(word, 60)} is a program, and no issue"
    if word in PRESETS and len(unknown) == 1:
        line = [*argv[:at], "--agent", word, *argv[at + 1 :]]
        return misused("command", text, f"an agent is named: beads-workers {shlex.join(line)}")
    program = word if which(word) else f"./{word}"
    if which(program) is None:
        return None
    line = [*argv[:at], "--", program, *argv[at + 1 :]]
    return misused("command", text, f"a command goes after --: beads-workers {shlex.join(line)}")


def _unknown(unknown: Sequence[str], others: Sequence[str]) -> Check:
    from difflib import get_close_matches

    near = get_close_matches(unknown[0], others, n=1)
    text = f"no such issue: {printable(', '.join(unknown), 160)}"
    listed = "'beads-workers list' shows what there is; a command goes after --"
    hint = f"did you mean {printable(near[0], 60)}?" if near else listed
    return fail("issues", text, hint=hint, exit_code=EXIT_UNKNOWN)
