"""A kind of source: one object with everything that other modules ask about it.

Code that starts a fleet, explains why an issue waits, or checks what a start needs asks this object
and never the name of a kind. A kind is registered in ``registry.KINDS``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Protocol

from beads_workers.core.base import limits
from beads_workers.core.base.model import value
from beads_workers.core.base.settings import FleetSettings
from beads_workers.core.base.source import Source, SourceError


@value
class Late:
    """A function that is imported when it is called: ``package.module:function``.

    So a kind can name functions that need asyncio or the command line, at no cost until one is
    called.
    """

    name: str

    def load(self) -> Callable[..., Any]:
        """Import and return the function."""
        module, _, attribute = self.name.partition(":")
        found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
        return found

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Import the function and call it."""
        return self.load()(*arguments, **named)


class CallLog(Protocol):
    """Receiver of every process that a source starts, before the process acts.

    A later run waits for processes that a dead run left running.
    """

    def started(self, pid: int, start_time: int, argv: Sequence[str]) -> None:
        """Record the start of a process.

        ``start_time``: clock ticks since boot, field 22 of ``/proc/PID/stat``; 0: unknown.
        """

    def ended(self, pid: int) -> None:
        """Record that the process has ended and was reaped."""


class KindMissing(SourceError):
    """Error: this installation does not have, or no longer has, this kind of source.

    ``known``: the kinds it has.
    """

    def __init__(self, name: str, known: Sequence[str]) -> None:
        message = f"the source {name} is not part of this installation"
        super().__init__(message, f"known are {', '.join(known)}")


@value
class Capabilities:
    """Promises of a kind of source; the contract tests check exactly these."""

    # An issue may wait for others.
    dependencies: bool = False
    # An issue may be below another one.
    parents: bool = False
    # Claims expire by themselves, so that several fleets may share the tracker.
    leases: bool = False
    # A worker may claim and close by itself.
    hand_over: bool = False
    # What people ask for is written in their names, deletions too, and a claim names its holder;
    # not so in a service that others run.
    owned: bool = True
    # An agent may close its issue by itself, in our name.
    agents_close: bool = True
    # It obeys words in commits that are pushed: "fixes #12" closes an issue.
    obeys_commits: bool = False
    # Work arrives by itself, through an ingress.
    push: bool = False
    # Other processes can read the issues (``why``, ``list``, ``show``).
    looks: bool = True


@value
class Opening:
    """Arguments for opening a source.

    ``host``: this machine; ``call_log``: is told of every process.
    """

    settings: FleetSettings
    actor: str
    host: str
    call_log: CallLog | None = None

    @property
    def place(self) -> Path:
        """Path of the tracker: ``settings.tracker``."""
        return Path(self.settings.tracker)

    @property
    def listed_max(self) -> int:
        """Maximum number of issues in one listing."""
        return max(limits.LISTED_MIN, limits.LISTED_PER_SLOT * self.settings.workers)


@value
class Located:
    """Location of a tracker."""

    # The tracker's own path, which only one fleet may hold.
    place: Path
    # The folder of the project.
    folder: Path
    # Further options for opening, as ``FleetSettings`` keeps them.
    options: Mapping[str, Any] = field(default_factory=dict)


@value
class DoctorInput:
    """Input of the checks of ``doctor``."""

    # All options of command line, environment and file (``options.Resolved``).
    resolved: Any
    # The run directory.
    state: Path
    # None if there is no tracker.
    fleet: FleetSettings | None = None


@value
class SourceKind:
    """A kind of source. Functions may be ``Late``; None means: as for a tracker."""

    # The name of the source, as in ``FleetSettings.source`` and ``Job.source``.
    name: str
    # Its name in messages.
    called: str
    # Returns the source.
    open: Callable[[Opening], Source]
    capabilities: Capabilities = field(default_factory=Capabilities)
    # Beginnings of a ``--source`` text that select this kind, besides its name.
    prefixes: tuple[str, ...] = ()
    # The texts that ``--source`` accepts, for hints.
    forms: tuple[str, ...] = ()
    # Returns the variables with its tokens, from its options: the source has them, and nothing
    # that the fleet starts. ``NAME=TEXT`` is set instead.
    secrets: Callable[[Mapping[str, Any]], tuple[str, ...]] | None = None
    # Its name alone selects it.
    named: bool = True
    # Turns the text of ``--source`` and the current folder into ``Located``, or raises
    # ``SourceError``; None: the tracker is found by walking up (``runtime.project``).
    locate: Callable[[str, Path], Located] | None = None
    # Turns the options (``DoctorInput.resolved``), issues and ``owned`` into the settings of a
    # fleet. It and ``client_settings`` raise ``CommandError``; None: settings come from ``locate``
    # or the project.
    prepare: Callable[..., FleetSettings] | None = None
    # Turns the options and the run directory into settings with which a client may read the source.
    client_settings: Callable[[Any, Path], FleetSettings] | None = None
    # The number of workers that a fleet would have.
    workers: Callable[[Any], int] | None = None
    # Makes the object that serves the sockets of a push source (``runtime.sources``).
    ingress: Callable[..., Any] | None = None
    # ``take`` and ``settle`` only touch memory, so the loop does not wait for them.
    prompt: bool = False
    # Returns the lines of ``doctor`` about the source, from ``DoctorInput``.
    checks: Callable[[DoctorInput], Any] | None = None
    # The name of those lines.
    checked: str = "tracker"
    # Returns the lines about the work, if the options do not decide it.
    work_checks: Callable[[DoctorInput], Any] | None = None

    def recognises(self, text: str) -> bool:
        """Return whether this text of ``--source`` selects this kind."""
        return (self.named and text == self.name) or text.startswith(self.prefixes)
