"""The plan of a ``start`` with these options, computed step by step on demand.

A step that is impossible is a ``Check`` with the reason; every step that needs it is None. The
conditions (``checks.conditions``) check a plan and the machine. If none of them fails, ``settings``
has the settings of the fleet.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from beads_workers.agents.planted import PLANTED
from beads_workers.agents.presets import find_agents
from beads_workers.checks import fleet, night, programs, worktrees
from beads_workers.checks.landing import find_landing
from beads_workers.checks.named_agents import find_agent, find_fleet_agents
from beads_workers.checks.project import TrackerChoice, commands_of_issues, find_tracker
from beads_workers.checks.rules import Check, met, misused
from beads_workers.core.base.night import NightSoFar
from beads_workers.core.base.settings import Agent, FleetSettings, Landing, Tracing, Work, Worktrees
from beads_workers.kinds import DoctorInput, SourceKind
from beads_workers.options import TRUST_NO_AGENT, Options, Resolved
from beads_workers.registry import kind_of, service
from beads_workers.runtime.project import STATE_FOLDER

if TYPE_CHECKING:
    # These load the gate's modules.
    from beads_workers.landing.sees.proof import Proof
    from beads_workers.landing.sees.run import ProofProcess

Progress = Callable[[str, str], None]
"""Receiver of progress: the name of a condition and a line; an empty line at the end."""


class FleetPlan:
    """The plan of a start.

    ``kind``: of the source that was given, or None. ``issues``: the named ones. ``owned``: the
    fleet ends with its client. ``wrong``: errors in the settings. ``prepared``: the settings of a
    kind of source that makes its own. ``progress``: is told of checks that take long.
    """

    def __init__(
        self,
        resolved: Resolved,
        kind: SourceKind | None = None,
        issues: tuple[str, ...] = (),
        *,
        owned: bool = False,
        tracing: Tracing | None = None,
        wrong: tuple[Check, ...] = (),
        prepared: FleetSettings | None = None,
        progress: Progress = lambda name, text: None,
    ) -> None:
        self.resolved = resolved
        self.said_kind = kind
        self.issues = issues
        self.wrong = wrong
        self.prepared = prepared
        self.progress = progress
        self.owned = owned
        self.proof: Proof | None = None
        """Proof of what verify tests, if the start has made it."""
        self.proving: ProofProcess | None = None
        """Process of the proof while it still runs."""
        self._tracing = tracing

    # --- where ---

    @property
    def options(self) -> Options:
        """Every option, with its default."""
        return self.resolved.options

    @property
    def is_pushed(self) -> bool:
        """Whether work arrives by itself, so that there is no tracker."""
        return self.said_kind is not None and self.said_kind.capabilities.push

    @cached_property
    def tracker(self) -> TrackerChoice | Check | None:
        """The tracker; None for a push source."""
        if self.is_pushed:
            return None
        return find_tracker(self.options.source, self.said_kind, Path.cwd())

    @property
    def kind(self) -> SourceKind | None:
        """The kind of source of this fleet, as far as it is known."""
        tracker = met(self.tracker)
        return kind_of(tracker.source) if tracker is not None else self.said_kind

    @property
    def folder(self) -> Path:
        """The project's folder."""
        tracker = met(self.tracker)
        return tracker.folder if tracker is not None else Path.cwd()

    @property
    def state(self) -> Path:
        """The run directory."""
        return Path(self.options.state_dir or self.folder / STATE_FOLDER)

    @property
    def workers(self) -> int:
        """Number of workers that the fleet would have."""
        if self.said_kind is not None and self.said_kind.workers is not None:
            return self.said_kind.workers(self.resolved)
        return self.options.workers

    @property
    def is_all_away(self) -> bool:
        """Whether all attempts run on other machines, which have the agents then."""
        workers, places = fleet.known_slots(self.resolved)
        return bool(places) and workers == sum(place.slots for place in places)

    # --- what is run ---

    @cached_property
    def chosen(self) -> tuple[tuple[str, ...] | None, tuple[Agent, ...]] | Check:
        """The command or the agents in force, or neither; not checked for being runnable."""
        command, name = self.options.command, self.options.agent
        if command and name:
            said_last = "command line"
            origins = self.resolved.origin["command"], self.resolved.origin["agent"]
            if origins[0] == origins[1]:
                text = f"both a command and --agent {name}"
                return misused("settings", text, "leave one of them out")
            command, name = (command, None) if origins[0] == said_last else (None, name)
        if not name:
            return command, ()
        agents = find_fleet_agents(self.resolved)
        return agents if isinstance(agents, Check) else (command, agents)

    @property
    def command(self) -> tuple[str, ...] | None:
        """The command that is run for each issue."""
        chosen = met(self.chosen)
        return chosen[0] if chosen else None

    @property
    def agents(self) -> tuple[Agent, ...]:
        """The agents that work on issues, the first one preferred."""
        chosen = met(self.chosen)
        return chosen[1] if chosen else ()

    @cached_property
    def review(self) -> Agent | Check | None:
        """The agent that reviews the work of the others."""
        name = self.options.review
        return find_agent(self.resolved, name) if name and self.agents else None

    @cached_property
    def commands_brought(self) -> int | Check:
        """Number of issues that bring their own command."""
        tracker = met(self.tracker)
        return commands_of_issues(tracker) if tracker is not None else 0

    @cached_property
    def executors(self) -> Work | Check | None:
        """The work of a fleet of executors (``--executor``); None without them."""
        found = service("executors")
        if not self.options.executor or found is None:
            return None
        work: Work | Check = found.find_executors(self.options, programs.absolute)
        return work

    @cached_property
    def work(self) -> Work | Check | None:
        """The work in the project's own folder."""
        if self.options.executor:
            return self.executors
        if isinstance(self.chosen, Check):
            return self.chosen
        if isinstance(self.review, Check):
            return self.review
        command = programs.absolute(self.command) if self.command else None
        agents = tuple(map(self._called, self.agents))
        review = self._called(self.review) if self.review else None
        return fleet.work_of(self.options, command, agents, review)

    def _called(self, agent: Agent) -> Agent:
        """Return the agent with an absolute program, without planted settings if trust says so."""
        without = PLANTED[agent.adapter].without if agent.adapter in PLANTED else ()
        more = without if self.options.trust == TRUST_NO_AGENT else ()
        return replace(
            agent, argv=programs.absolute(agent.argv), arguments=(*agent.arguments, *more)
        )

    # --- where it is run, and lands ---

    @cached_property
    def wants_worktrees(self) -> bool:
        """Whether each attempt is to have a worktree.

        Without an option: for agents with an adapter, and if other machines are to have the work,
        if git can make worktrees here.
        """
        if self.options.worktree is not None or self.options.shared_checkout:
            return bool(self.options.worktree)
        _, places = fleet.known_slots(self.resolved)
        has_agent = any(agent.adapter for agent in self.agents)
        if self.options.executor or not (has_agent or places):
            return False
        return worktrees.is_repository(self.folder)

    @cached_property
    def worktrees(self) -> Worktrees | Check | None:
        """Place of the attempts' worktrees; None if they have none."""
        if not self.wants_worktrees or met(self.tracker) is None:
            return None
        return worktrees.find_worktrees(self.options, self.folder, str(self.state))

    @property
    def wants_landing(self) -> bool:
        """Whether finished branches are to land."""
        return self.wants_worktrees and self.options.land is not False

    @cached_property
    def landing(self) -> Landing | Check | None:
        """Place where finished branches land; None if they do not land."""
        found = met(self.worktrees)
        if not self.wants_landing or found is None:
            return None
        return find_landing(self.options, self.folder, found.base)

    # --- all of it ---

    @property
    def state_directory(self) -> Path:
        """The run directory; of the settings that are prepared, if they are."""
        return Path(self.prepared.state_directory) if self.prepared is not None else self.state

    @cached_property
    def night(self) -> NightSoFar:
        """The night that the start goes on with."""
        if self.options.new_night:
            return NightSoFar()
        return night.found(self.state_directory, self.folder, self.options.night_gap)

    @cached_property
    def settings(self) -> FleetSettings | None:
        """The settings of the fleet; None if a step above is impossible."""
        if self.prepared is not None:
            return self.prepared
        plain, found, lands = self.plain, self.worktrees, self.landing
        if plain is None or isinstance(found, Check) or isinstance(lands, Check):
            return None
        work = plain.work
        if found is not None:
            work = fleet.in_worktrees(work, found, plain.tracker if plain.source == "bd" else None)
        alone = 1 if worktrees.shares_checkout(work, self.options) else None
        made = replace(plain, work=work, workers_max=alone)
        return made if lands is None else fleet.landing_on(made, lands)

    @cached_property
    def plain(self) -> FleetSettings | None:
        """The settings without worktrees and landing; None without a tracker or work."""
        tracker, work = met(self.tracker), met(self.work)
        if tracker is None or work is None:
            return None
        return fleet.settings_of(
            self.resolved, tracker, work, self.issues, owned=self.owned, tracing=self._tracing
        )

    @cached_property
    def doctor_input(self) -> DoctorInput:
        """Input of the checks of a kind of source."""
        settings = self.prepared or self.plain
        if settings is None and (tracker := met(self.tracker)) is not None:
            # The work is wrong, but the tracker can still be checked.
            settings = fleet.settings_of(
                self.resolved, tracker, Work(), self.issues, owned=False, tracing=None
            )
        return DoctorInput(self.resolved, self.state, settings)


def what_to_type() -> str:
    """Return a hint that names a command to type, so that the fleet has something to run."""
    found = find_agents(os.environ.get("PATH", ""))
    if found:
        return f"type 'beads-workers start --agent {found[0]}' (found here: {', '.join(found)})"
    return "type 'beads-workers start -- ./do-issue.sh {id}', with your own command"
