"""A dry round for ``doctor``: two worktrees, one after the other and then side by side.

In each run set-up, world, verify and tear-down, as in a gate. What both use outside of their
worktrees collides, whether a check noticed or not: ports on which something listens, databases of
PostgreSQL, files that are written. Source: docs/WORLDS.md.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from select import POLLIN, poll

from beads_workers.checks.base import alone, base_commit, lander_settings, verdicts_here
from beads_workers.checks.rules import Check, fail, ok, warn
from beads_workers.core.base.settings import FleetSettings
from beads_workers.core.base.text import printable, some
from beads_workers.core.records.landing import LanderSettings
from beads_workers.landing.gate import GateOrder, GateResult, start_gate
from beads_workers.landing.queue import GateVerdict
from beads_workers.landing.repository import landing_folder
from beads_workers.runtime.kernel import system
from beads_workers.runtime.kernel.folder_events import WRITTEN, FolderEvents
from beads_workers.worktrees.git import GitError, git, names

NAME = "beside"
TEXT_CHARS = 400
LOOK_SECONDS = 0.01
"""Pause between two looks: a program may listen for no longer."""
SHOWN_MAX = 3
REMEDY = "beads-workers config worktree"
SHARED = {"port": "listen on port", "database": "use the PostgreSQL database", "file": "write"}
"""What both worktrees do, by the kind of what they use."""
FROM_WHICH_OTHERS_ARE_MADE = {"postgres", "template1"}

_BACKEND = re.compile(rb"postgres: (?:\S+: )?\S+ (\S+) (?:\[local\]|\S+\(\d+\)) ")


def check_side_by_side(settings: FleetSettings, waiting: Callable[[str], None]) -> Iterator[Check]:
    """Yield what two worktrees of this project share. ``waiting``: is told what runs."""
    lander = lander_settings(settings)
    try:
        with alone(lander.worktrees) as is_free:
            busy = [warn(NAME, "not tried: a fleet works here")]
            yield from _tried(lander, waiting) if is_free else busy
    except (GitError, OSError) as error:
        yield warn(NAME, printable(f"not tried: {error}", TEXT_CHARS))


def _tried(settings: LanderSettings, waiting: Callable[[str], None]) -> Iterator[Check]:
    verify, runs, uses = (
        f"'{printable(settings.verify or '', 60)}'",
        list[str](),
        list[set[tuple[str, str]]](),
    )
    for what, lanes in (("the first", (0,)), ("the second", (1,)), ("both at once", (0, 1))):
        waiting(f"two worktrees: {what}")
        results, used = _run(settings, *lanes)
        uses.append(used)
        runs.append(next((r.why for r in results if r.verdict is not GateVerdict.GREEN), ""))
        if runs[0]:
            yield warn(NAME, printable(f"not tried: {verify} does not pass: {runs[0]}", TEXT_CHARS))
            return
    shared = uses[0] & uses[1]
    said = [
        f"both worktrees {does} {some(found, SHOWN_MAX)}"
        for kind, does in SHARED.items()
        if (found := sorted(name for of, name in shared if of == kind))
    ]
    if runs[1]:
        said.append(f"{verify} passes in a worktree, and then not in another: {runs[1]}")
    elif runs[2]:
        said.append(f"{verify} passes alone, and not beside another worktree: {runs[2]}")
    yield from (fail(NAME, printable(each, TEXT_CHARS), REMEDY) for each in said)
    if not said:
        yield ok(NAME, f"two worktrees share no port, database or file: {verify} passes in both")


def _run(settings: LanderSettings, *lanes: int) -> tuple[list[GateResult], set[tuple[str, str]]]:
    """Run a gate in each lane; return the results, and what was used meanwhile."""
    folder, verdicts = landing_folder(settings.worktrees), verdicts_here(settings)
    commit, _ = base_commit(settings)
    look, ready = _Look(settings), poll()
    try:
        # Without a tree the set-up runs each time.
        orders = (GateOrder(lane, commit, "", commit) for lane in lanes)
        gates = [start_gate(settings, folder, order, verdicts) for order in orders]
        left = {gate.pidfd for gate in gates}
        for pidfd in left:
            ready.register(pidfd, POLLIN)
        while left:
            for pidfd, _ in ready.poll(LOOK_SECONDS * 1000):
                left.discard(pidfd)
                ready.unregister(pidfd)
            look.again()
        return [gate.result() for gate in gates], look.used
    finally:
        look.events.close()


class _Look:
    """Looks at what programs use outside of worktrees; ``used``: since the first look."""

    def __init__(self, settings: LanderSettings) -> None:
        worktrees = settings.worktrees
        top = Path(worktrees.checkout)
        tracked = names(git(str(top), "ls-files", "-z"))
        above = (parent for name in tracked for parent in (top / name).parents)
        self.events = FolderEvents()
        around = {Path(tempfile.gettempdir()), Path.home(), top, top.parent}
        around |= {each for each in above if each.is_relative_to(top)}
        self.events.watch(around, WRITTEN)
        apart = worktrees.folder, worktrees.state_directory, str(landing_folder(worktrees))
        self._apart = tuple(f"{each}/" for each in apart)
        self._known, self._before, self.used = (
            set[int](),
            set[tuple[str, str]](),
            set[tuple[str, str]](),
        )
        self.again()
        self._before, self.used = self.used, set()

    def again(self) -> None:
        """Look once more."""
        found = {("port", str(port)) for port in system.listening_ports()}
        found |= {("database", name) for name in self._databases()}
        for _, path in self.events.read():
            # Files without a name have their number.
            if not (str(path).startswith(self._apart) or re.match(r"#\d+$", path.name)):
                found.add(("file", str(path)))
        self.used |= found - self._before

    def _databases(self) -> Iterator[str]:
        """Yield the databases of new backends, which have them in their titles."""
        for pid in {*system.pids()} - self._known:
            with suppress(OSError):
                title = system.command_of(pid)[0]
                if (backend := _BACKEND.match(title)) is not None:
                    yield from {os.fsdecode(backend[1])} - FROM_WHICH_OTHERS_ARE_MADE
                elif b"postgres" in title:
                    continue  # It has no title yet.
            self._known.add(pid)
