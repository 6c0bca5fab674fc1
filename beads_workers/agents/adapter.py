"""The interface to an agent: one adapter object for each agent CLI, and how adapters are found.

**Adding one** takes one file in ``agents/adapters``: a ``Parser`` that interprets its events, an
``Adapter`` with its arguments, and ``ADAPTER``, the one object of it. With a ``command``, the name
of the file is the name for ``--agent``. Only the file of the agent in use is imported.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    ToolOutput,
    Words,
)
from beads_workers.agents.lines import Parser
from beads_workers.agents.totals import Totals
from beads_workers.agents.verdict import WINDOWS, RunEnding, Verdict, judge
from beads_workers.core.base.model import value
from beads_workers.core.base.text import as_shown, printable

ARGUMENT_BYTES_MAX = 120_000
"""Limit of a prompt that is an argument, in bytes: the kernel takes 128 KiB (MAX_ARG_STRLEN)."""

READABLE_COLUMNS = 2000
FOLD_FIRST, FOLD_LAST = 2, 4
"""Lines of a tool's output that are shown of a longer one."""


class Permission(Enum):
    """Permissions of an agent that does not ask; always stated in its arguments, never left to a
    default."""

    READ = "read"
    """Read files: a review."""
    EDIT = "edit"
    """Edit files and run commands in its folder."""
    ALL = "all"
    """Do anything: only its surroundings limit the agent."""


@value
class AgentRequest:
    """Request for one run of an agent."""

    # With ``asks``, an empty one resumes a session that waits for the answer.
    prompt: str
    # With ``resume`` the session to continue, else a new UUID for agent CLIs that take one
    # (``Adapter.own_session``).
    session: str = ""
    resume: bool = False
    model: str = ""
    permission: Permission = Permission.EDIT
    # Dollars at which the agent is to stop, if it can.
    money: float | None = None
    # Turns at which the agent is to stop, if it can.
    turns: int | None = None
    # The user's, behind ours.
    arguments: tuple[str, ...] = ()
    # A file of settings for this run.
    settings: str = ""
    # A path of ours for agent CLIs that write their usage there.
    usage_file: str = ""
    # A hook of ``settings`` ends the run at a question to a person, or answers it.
    asks: bool = False


@value
class Invocation:
    """Call of an agent: ``environment`` is added to ours, ``stdin`` is written and then closed."""

    argv: tuple[str, ...]
    stdin: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


@value
class Program:
    """Facts about an agent's program: how it is installed and logged in, and how to detect that."""

    install: str
    login: str
    # Any of these in the environment is a login.
    variables: tuple[str, ...]
    # Files of a login, below ``$HOME``; we only check whether one exists.
    login_files: tuple[str, ...] = ()
    # A call that tells without a network and without cost (exit 0: logged in), if there is one.
    login_status: tuple[str, ...] = ()
    # The first version known to have ``login_status``; older ones may take it for a prompt.
    login_status_since: str = ""

    def can_tell_login(self, version: str) -> bool:
        """Return whether this version answers ``login_status``."""
        since = self.login_status_since
        known = not since or (bool(version) and version_key(version) >= version_key(since))
        return bool(self.login_status) and known


@value
class Obstacle:
    """Reason why an installed agent could not work here; ``remedy``: a line to type."""

    text: str
    remedy: str


Read = Callable[[str, str], Iterable[tuple[str, str]]]
"""Reads the files of a folder by a pattern: the path and the text of each, in order."""


class Adapter(ABC):
    """One agent CLI."""

    name: ClassVar[str]
    parser_class: ClassVar[type[Parser]]
    # Facts with which ``doctor`` may run the program; None: it is never run to be asked.
    program: ClassVar[Program | None] = None
    # The agent reports its cost.
    tells_money: ClassVar[bool] = False
    # Beginnings of the names of variables that select the account.
    account_variables: ClassVar[tuple[str, ...]] = ()
    # Its program; with a command, ``--agent`` can name it.
    command: ClassVar[str] = ""
    # The line that installs it, unless ``program`` has it.
    install: ClassVar[str] = ""
    # It takes a session id of ours.
    own_session: ClassVar[bool] = False
    # It can continue a session.
    resumes: ClassVar[bool] = True
    # Limit of a prompt that has to be an argument; None: the prompt comes on stdin.
    prompt_bytes_max: ClassVar[int | None] = None
    # Its ``usage_files`` get a line for each answer, and are no documents.
    usage_grows: ClassVar[bool] = False
    # Its ``usage_files`` have the same answers as its stream, and their whole output, which the
    # stream tells only at the end: they are read of a process that ended without a total.
    usage_kept: ClassVar[bool] = False
    # Versions that were run against a stub, the oldest first.
    measured: ClassVar[tuple[str, ...]] = ()
    # Written from published types, never run by us.
    untried: ClassVar[bool] = False
    # A hook can tell it in time why a guard refuses, and end it at a question to a person.
    has_hook: ClassVar[bool] = False
    # Its sandbox lets it commit in its folder.
    commits: ClassVar[bool] = True
    # The call with which a person opens a session, whose id follows; empty: none is known.
    by_hand: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def arguments(self, request: AgentRequest) -> Invocation:
        """Return the call of the agent: with structured output, and with its permissions stated."""

    def parser(self, model: str = "", last: Totals | None = None, folder: str = "") -> Parser:
        """Return a parser for one run; ``last``: the totals of the session that the run resumes."""
        return self.parser_class(model, last, folder)

    def verdict(self, tally: Tally, ending: RunEnding) -> Verdict:
        """Return the verdict on a run, by the same order for all agents."""
        return judge(tally, ending)

    def usage_files(self, session: str, environment: Mapping[str, str]) -> list[tuple[str, str]]:
        """Return the files to which the agent itself writes the usage of a session: folders, each
        with a pattern of names; none if it writes none."""
        return []

    def settings_file(self, environment: Mapping[str, str]) -> str:
        """Return the path of the agent's own settings that may name a variable with a key; "" if
        none."""
        return ""

    def login_variable(self, settings: str) -> str:
        """Return the variable that those settings (a text) name for a key; "" if they name none."""
        return ""

    def obstacles(
        self, arguments: Sequence[str], environment: Mapping[str, str], *, root: bool
    ) -> list[Obstacle]:
        """Return what would keep the agent from working; ``arguments``: the user's, ``root``:
        whether it runs as root."""
        return []

    def hooks_off(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folders: Sequence[str],
        read: Read,
    ) -> str:
        """Return what switches off its hooks, ours too: a key of a file, or an argument; "" if
        nothing does. ``folders``: its own, then the repository's checkout."""
        return ""

    def readable(self, line: str, *, full: bool = False) -> list[str]:
        """Return a line of its stream as lines for people; none for noise. ``full``: what tools
        printed is not folded."""
        parser = self.parser()
        parser.whole = True
        events = [*parser.feed(line.encode("utf-8", "replace")), *parser.end()]
        return [text for event in events for text in shown(event, full=full)]


def shown(event: Event, *, full: bool = False) -> list[str]:
    """Return an event as lines without control characters; none if there is nothing to show.

    Words, commands and questions are whole, with their later lines indented. ``full``: so is what
    a tool printed; else its first and last lines.
    """
    match event:
        case Doing("running", what):
            text = f"$ {what}"
        case Doing():
            text = event.text
        case OpenQuestion(question) | FinalResult(question=question) if question:
            text = f"asks: {question.strip()}"
        case Words(said) | FinalResult(said, True):
            text = f"> {said.strip()}" if said.strip() else ""
        case FinalResult(said, _) | RunFailure(_, said):
            text = f"failed: {said.strip()}"
        case Denied(tool):
            text = f"refused: {tool}"
        case Retrying(why):
            text = f"tries again: {_first(why)}"
        case Limit(window) if event.rejected:
            text = f"reached: {WINDOWS.get(window, window)}"
        case ToolOutput(printed, failed):
            return _folded(printed, "! " if failed else "| ", full=full)
        case Printed(said):
            text = said
        case _:
            text = ""
    head, *rest = text.splitlines() if text.strip() else [""]
    lines = [head, *(f"  {line}".rstrip() for line in rest)]
    return [printable(as_shown(line), READABLE_COLUMNS) for line in lines] if head else []


def _folded(text: str, mark: str, *, full: bool) -> list[str]:
    lines = [as_shown(line).rstrip() for line in text.strip("\n").splitlines()]
    left_out = len(lines) - FOLD_FIRST - FOLD_LAST
    if left_out > 1 and not full:
        lines[FOLD_FIRST : len(lines) - FOLD_LAST] = [f"... {left_out} lines: logs --full"]
    return [printable(f"  {mark}{line}", READABLE_COLUMNS) for line in lines]


def version_key(version: str) -> tuple[int, ...]:
    """Return a version such as ``2.1.328`` as numbers, for comparisons."""
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def _first(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


# --- where they are -------------------------------------------------------------------------------


def names() -> list[str]:
    """Return the names of all agents that have an adapter; imports none."""
    from pkgutil import iter_modules  # Only needed to list the agents for a person.

    return sorted(module.name for module in iter_modules(adapters.__path__))


def load(name: str) -> Adapter | None:
    """Return the adapter of that name, or None; imports its file only."""
    module = f"{adapters.__name__}.{name}"
    if not name.isidentifier() or name.startswith("_") or find_spec(module) is None:
        return None
    found: Adapter = import_module(module).ADAPTER
    return found
