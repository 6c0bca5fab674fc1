"""What a kind of source is: one object that says everything about it that others ask.

Whoever starts a fleet, explains why an issue waits, or checks what a start needs, asks this object
and never the name of a kind. A kind is entered in ``registry.KINDS``.
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

    So a kind can name what needs the edge or the command line, and costs nothing until it is used.
    """

    name: str

    def load(self) -> Callable[..., Any]:
        """The function itself."""
        module, _, attribute = self.name.partition(":")
        found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
        return found

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call it."""
        return self.load()(*arguments, **named)


class CallLog(Protocol):
    """Told of every process that a source starts, before it acts: a later run waits for what a dead
    one left running."""

    def started(self, pid: int, start_time: int, argv: Sequence[str]) -> None:
        """``start_time``: clock ticks since boot, field 22 of ``/proc/PID/stat``; 0: unknown."""

    def ended(self, pid: int) -> None:
        """The process has ended and was reaped."""


class KindMissing(SourceError):
    """This installation has no such kind of source, or not any more; ``known``: those it has."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        message = f"the source {name} is not part of this installation"
        super().__init__(message, f"known are {', '.join(known)}")


@value
class Capabilities:
    """What a kind of source promises; contract tests ask for exactly that.

    ``dependencies``: an issue may wait for others; ``parents``: it may be below another one.
    ``leases``: claims end by themselves, so that several fleets may share the tracker.
    ``hand_over``: a worker may claim and close by itself. ``push``: work arrives by itself, through
    an ingress. ``looks``: somebody else can see what is there (``why``, ``list``, ``show``).
    """

    dependencies: bool = False
    parents: bool = False
    leases: bool = False
    hand_over: bool = False
    push: bool = False
    looks: bool = True


@value
class Opening:
    """What a source is opened with. ``host``: this machine; ``call_log``: told of processes."""

    settings: FleetSettings
    actor: str
    host: str
    call_log: CallLog | None = None

    @property
    def place(self) -> Path:
        """``settings.tracker``."""
        return Path(self.settings.tracker)

    @property
    def listed_max(self) -> int:
        """How many issues a listing is to have."""
        return max(limits.LISTED_MIN, limits.LISTED_PER_SLOT * self.settings.workers)


@value
class Located:
    """Where a tracker is. ``folder``: the project's; ``place``: a path of its own, which only one
    fleet may hold; ``options``: what opening it needs besides, as ``FleetSettings`` keeps it."""

    place: Path
    folder: Path
    options: Mapping[str, Any] = field(default_factory=dict)


@value
class Looked:
    """What the checks of ``doctor`` start from.

    ``resolved``: what was said by command line, environment and file together
    (``cli.config.Resolved``); ``state``: the run directory; ``fleet``: None where there is no
    tracker.
    """

    resolved: Any
    state: Path
    fleet: FleetSettings | None = None


@value
class SourceKind:
    """One kind of source. Functions may be ``Late``; None is what holds for a tracker.

    ``name``: of the source, as in ``FleetSettings.source`` and ``Job.source``. ``called``: for
    people. ``prefixes``: how a text of ``--source`` begins that means it, beside its name.
    ``forms``: what ``--source`` takes, for hints; ``named``: its name alone is one.

    ``open``: gives the source. ``locate``: from the text of ``--source`` and the current folder to
    ``Located``, or raises ``SourceError``; None: it is found by walking up (``runtime.project``).
    ``prepare``: from what was said (``Looked.resolved``), issues and ``owned`` to the settings of
    a fleet; ``beside``: from what was said and the run directory to settings with which a client
    may look at it. Both raise ``CommandError``; None: from what ``locate`` or the project says.
    ``workers``: how many there would be.

    ``ingress``: makes what looks after the sockets of a push source (``runtime.sources``).
    ``prompt``: its ``take`` and ``settle`` only touch memory, so the loop does not wait for them.

    ``checks``: what ``doctor`` says of it, from ``Looked``, in lines that are called ``checked``;
    ``work_checks``: what it says of what runs there, where that is not for the options to say.
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
    beside: Callable[[Any, Path], FleetSettings] | None = None
    workers: Callable[[Any], int] | None = None
    ingress: Callable[..., Any] | None = None
    prompt: bool = False
    checks: Callable[[Looked], Any] | None = None
    checked: str = "tracker"
    work_checks: Callable[[Looked], Any] | None = None

    def recognises(self, text: str) -> bool:
        """Whether this text of ``--source`` means it."""
        return (self.named and text == self.name) or text.startswith(self.prefixes)
