"""What an agent is to us: one object for each command line, and where they are found.

**Adding one** is one file in ``agents/adapters``: a ``Parser`` that says what its events mean, an
``Adapter`` with its arguments, and ``ADAPTER``, the one object of it. With a ``command``, the name
of the file is the name for ``--agent``. Only the file of the agent that is asked for is imported.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import Enum
from importlib import import_module
from importlib.util import find_spec
from typing import ClassVar

from beads_workers.agents import adapters
from beads_workers.agents.events import (
    Denied,
    Doing,
    Event,
    FinalResult,
    Limit,
    OpenQuestion,
    Printed,
    Retrying,
    RunFailure,
    Tally,
    Words,
)
from beads_workers.agents.lines import Parser
from beads_workers.agents.totals import Totals
from beads_workers.agents.verdict import WINDOWS, RunEnding, Verdict, judge
from beads_workers.core.model import value
from beads_workers.core.text import printable

ARGUMENT_BYTES_MAX = 120_000
"""Of a prompt that is an argument: the kernel takes 128 KiB (MAX_ARG_STRLEN)."""

READABLE_COLUMNS = 160


class Permission(Enum):
    """What an agent may do without being asked; said in its arguments, never left to a default."""

    READ = "read"
    """Look at files: a review."""
    EDIT = "edit"
    """Edit files and run commands in its folder."""
    ALL = "all"
    """Whatever it likes: its surroundings are the fence."""


@value
class AgentRequest:
    """One run of an agent that is asked for.

    ``session``: with ``resume`` the one to go on with, else a new UUID for command lines that take
    one (``Adapter.own_session``). ``money``: dollars at which it is to stop; ``turns`` likewise;
    both only where it can. ``arguments``: the user's, behind ours. ``settings``: a file of settings
    for this run. ``usage_file``: a path of ours for command lines that write their usage there.
    """

    prompt: str
    session: str = ""
    resume: bool = False
    model: str = ""
    permission: Permission = Permission.EDIT
    money: float | None = None
    turns: int | None = None
    arguments: tuple[str, ...] = ()
    settings: str = ""
    usage_file: str = ""


@value
class Invocation:
    """How it is called: ``environment`` is added to ours, ``stdin`` is written and then closed."""

    argv: tuple[str, ...]
    stdin: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


@value
class Program:
    """What is known of an agent's program: how it is installed and logged in, and how that shows.

    ``variables``: any of these in the environment is a login. ``login_files``: where a login is
    kept, below ``$HOME``; whether one exists is all that is ever looked at. ``login_status``: a
    call that tells without a network and without cost (exit 0: logged in), where there is one;
    ``login_status_since``: the first version that is known to have it, others may take it for an
    order.
    """

    install: str
    login: str
    variables: tuple[str, ...]
    login_files: tuple[str, ...] = ()
    login_status: tuple[str, ...] = ()
    login_status_since: str = ""

    def can_tell_login(self, version: str) -> bool:
        """Whether this version answers ``login_status``."""
        since = self.login_status_since
        known = not since or (bool(version) and version_key(version) >= version_key(since))
        return bool(self.login_status) and known


@value
class Obstacle:
    """Why an agent could not work here, although it is installed; ``remedy``: a line to type."""

    text: str
    remedy: str


class Adapter(ABC):
    """One command line of an agent.

    ``program``: what ``doctor`` may run and say of it; None: it is never run to be asked.
    ``account_variables``: beginnings of the names of variables that decide whose account it uses.
    ``tells_money``: it says what it cost. ``command``: its program; with one it can be
    named with ``--agent``. ``install``: the line that installs it, unless ``program`` says it.
    ``own_session``: it takes a session id of ours. ``resumes``: it can go on with a session.
    ``prompt_bytes_max``: of a prompt that has to be an argument; None: it comes on stdin.
    ``usage_grows``: its ``usage_files`` get a line for each answer, and are no documents.
    ``measured``: versions that were run against a stub, the oldest first; ``untried``: written from
    published types, never run by us. ``has_hook``: it can be told in time why a guard refuses.
    ``commits``: it can commit in its folder; its sandbox allows it.
    """

    name: ClassVar[str]
    parser_class: ClassVar[type[Parser]]
    program: ClassVar[Program | None] = None
    tells_money: ClassVar[bool] = False
    account_variables: ClassVar[tuple[str, ...]] = ()
    command: ClassVar[str] = ""
    install: ClassVar[str] = ""
    own_session: ClassVar[bool] = False
    resumes: ClassVar[bool] = True
    prompt_bytes_max: ClassVar[int | None] = None
    usage_grows: ClassVar[bool] = False
    measured: ClassVar[tuple[str, ...]] = ()
    untried: ClassVar[bool] = False
    has_hook: ClassVar[bool] = False
    commits: ClassVar[bool] = True

    @abstractmethod
    def arguments(self, request: AgentRequest) -> Invocation:
        """How it is called: with structured output, and with its permissions said."""

    def parser(self, model: str = "", last: Totals | None = None, folder: str = "") -> Parser:
        """A parser for one run; ``last``: the totals of the session that it resumes."""
        return self.parser_class(model, last, folder)

    def verdict(self, tally: Tally, ending: RunEnding) -> Verdict:
        """What became of a run; the same order for all agents."""
        return judge(tally, ending)

    def usage_files(self, session: str, environment: Mapping[str, str]) -> list[tuple[str, str]]:
        """Where it may write down by itself what a session uses: folders, each with a pattern of
        names; none where it does not."""
        return []

    def settings_file(self, environment: Mapping[str, str]) -> str:
        """Where its own settings lie that may name a variable with a key; "" for nowhere."""
        return ""

    def login_variable(self, settings: str) -> str:
        """The variable that those settings (a text) name for a key; "" if they name none."""
        return ""

    def obstacles(
        self, arguments: Sequence[str], environment: Mapping[str, str], *, root: bool
    ) -> list[Obstacle]:
        """What would keep it from working; ``arguments``: the user's, ``root``: run as such."""
        return []

    def readable(self, line: str) -> str | None:
        """A line of its stream as one short line for people; None for noise."""
        parser = self.parser()
        events = [*parser.feed(line.encode("utf-8", "replace")), *parser.end()]
        return next((text for event in events if (text := shown(event))), None)


def shown(event: Event) -> str | None:
    """An event as one short line that no terminal obeys; None where there is nothing to see."""
    match event:
        case Doing("running", what):
            text = f"$ {what}"
        case Doing():
            text = event.text
        case Words(said) | FinalResult(said, True):
            text = f"> {_first(said)}" if said.strip() else ""
        case FinalResult(said, _) | RunFailure(_, said):
            text = f"failed: {_first(said)}"
        case OpenQuestion(question):
            text = f"asks: {_first(question)}"
        case Denied(tool):
            text = f"refused: {tool}"
        case Retrying(why):
            text = f"tries again: {_first(why)}"
        case Limit(window) if event.rejected:
            text = f"reached: {WINDOWS.get(window, window)}"
        case Printed(said):
            text = said
        case _:
            text = ""
    return printable(text, READABLE_COLUMNS) if text.strip() else None


def version_key(version: str) -> tuple[int, ...]:
    """For comparing versions: ``2.1.328`` as numbers."""
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def _first(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


# --- where they are -------------------------------------------------------------------------------


def names() -> list[str]:
    """All agents that have an adapter; imports none."""
    from pkgutil import iter_modules  # Only a person who asks for the list needs it.

    return sorted(module.name for module in iter_modules(adapters.__path__))


def load(name: str) -> Adapter | None:
    """The adapter of that name, or None; imports its file only."""
    module = f"{adapters.__name__}.{name}"
    if not name.isidentifier() or name.startswith("_") or find_spec(module) is None:
        return None
    found: Adapter = import_module(module).ADAPTER
    return found
