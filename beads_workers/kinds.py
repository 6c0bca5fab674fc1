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

from beads_workers.core import limits
from beads_workers.core.model import value
from beads_workers.core.settings import FleetSettings
from beads_workers.core.source import Source, SourceError


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
    """Promises of a kind of source; the contract tests check exactly these.

    ``dependencies``: an issue may wait for others; ``parents``: an issue may be below another one.
    ``leases``: claims expire by themselves, so that several fleets may share the tracker.
    ``hand_over``: a worker may claim and close by itself. ``push``: work arrives by itself, through
    an ingress. ``looks``: other processes can read the issues (``why``, ``list``, ``show``).
    """

    dependencies: bool = False
    parents: bool = False
    leases: bool = False
    hand_over: bool = False
    push: bool = False
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
    """Location of a tracker.

    ``folder``: the project's; ``place``: the tracker's own path, which only one fleet may hold;
    ``options``: further options for opening, as ``FleetSettings`` keeps them.
    """

    place: Path
    folder: Path
    options: Mapping[str, Any] = field(default_factory=dict)


@value
class Looked:
    """Input of the checks of ``doctor``.

    ``resolved``: all options of command line, environment and file (``cli.config.Resolved``);
    ``state``: the run directory; ``fleet``: None if there is no tracker.
    """

    resolved: Any
    state: Path
    fleet: FleetSettings | None = None


@value
class SourceKind:
    """A kind of source. Functions may be ``Late``; None means: as for a tracker.

    ``name``: of the source, as in ``FleetSettings.source`` and ``Job.source``. ``called``: its name
    in messages. ``prefixes``: beginnings of a ``--source`` text that select this kind, besides its
    name. ``forms``: the texts that ``--source`` accepts, for hints. ``named``: its name alone
    selects it.

    ``open``: returns the source. ``locate``: turns the text of ``--source`` and the current folder
    into ``Located``, or raises ``SourceError``; None: the tracker is found by walking up
    (``runtime.project``). ``prepare``: turns the options (``Looked.resolved``), issues and
    ``owned`` into the settings of a fleet. ``client_settings``: turns the options and the run
    directory into settings with which a client may read the source. Both raise ``CommandError``;
    None: settings come from ``locate`` or the project. ``workers``: the number of workers that a
    fleet would have.

    ``ingress``: makes the object that serves the sockets of a push source (``runtime.sources``).
    ``prompt``: ``take`` and ``settle`` only touch memory, so the loop does not wait for them.

    ``checks``: returns the lines of ``doctor`` about the source, from ``Looked``; the lines are
    named ``checked``. ``work_checks``: returns the lines about the work, if the options do not
    decide it.
    """

    name: str
    called: str
    open: Callable[[Opening], Source]
    capabilities: Capabilities = field(default_factory=Capabilities)
    prefixes: tuple[str, ...] = ()
    forms: tuple[str, ...] = ()
    named: bool = True
    locate: Callable[[str, Path], Located] | None = None
    prepare: Callable[..., FleetSettings] | None = None
    client_settings: Callable[[Any, Path], FleetSettings] | None = None
    workers: Callable[[Any], int] | None = None
    ingress: Callable[..., Any] | None = None
    prompt: bool = False
    checks: Callable[[Looked], Any] | None = None
    checked: str = "tracker"
    work_checks: Callable[[Looked], Any] | None = None

    def recognises(self, text: str) -> bool:
        """Return whether this text of ``--source`` selects this kind."""
        return (self.named and text == self.name) or text.startswith(self.prefixes)
