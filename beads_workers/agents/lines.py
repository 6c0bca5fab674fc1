"""Streams of JSON objects, one a line: the common part of all parsers of agents.

A stream may be cut anywhere. A line that is no JSON object is ``Printed``; a line that is too long
is skipped. Nothing in a stream raises, and no length of it costs memory.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from types import MappingProxyType
from typing import Any

from beads_workers.agents import events
from beads_workers.agents.totals import Increments, Totals
from beads_workers.core.base import framing, limits

LINE_BYTES_MAX = 4 << 20
"""Limit of a line, in bytes. The output of a tool is in one line, images too; the end of a run is
far shorter."""

NAME_CHARS_MAX = 200
"""Limit of an id, a model, a tool, a path or a command, in an event."""


class Parser(ABC):
    """Parser from the bytes of one run to events. A subclass interprets one object: ``read``.

    ``model``: the requested model, if the stream names none. ``last``: totals of the session that
    the run resumes; ``totals()`` returns them for the next run. ``folder``: the agent's folder,
    left out of paths in activities.
    """

    whole = False
    """Commands are told whole, and so is what tools printed: for the reader of a log."""

    def __init__(self, model: str = "", last: Totals | None = None, folder: str = "") -> None:
        self.model = model
        self.folder = folder
        self.usage = Increments(last)
        self._lines = framing.LineReader(LINE_BYTES_MAX)

    def feed(self, data: bytes) -> list[events.Event]:
        """Return the events of new bytes; half a line waits for its end."""
        return [event for framed in self._lines.feed(data) for event in self._events(framed)]

    def end(self) -> list[events.Event]:
        """Return the events of a last line without an end: the stream is over."""
        return self.feed(b"\n")

    def usage_told(self, text: str) -> list[events.Event]:
        """Return the events of usage that the agent wrote beside its stream. ``text``: a line of
        one of ``Adapter.usage_files``, or the whole of ``AgentRequest.usage_file``. Most agents
        write nothing."""
        return []

    def totals(self, prices: events.Prices = MappingProxyType({})) -> Totals:
        """Return the totals to keep for the next run of this session; ``prices``: of the user."""
        return self.usage.totals(prices)

    def activity(self, tool: str, arguments: Fields) -> events.Event:
        """Return a call of a tool as an activity."""
        return activity(tool, arguments, self.folder, whole=self.whole)

    @abstractmethod
    def read(self, fields: Fields) -> Iterable[events.Event]:
        """Return the events of one object of the stream: none, for most of them."""

    def line(self, line: str) -> Iterable[events.Event]:
        """Return the events of a line: those of its object, or ``Printed``."""
        if line.lstrip().startswith("{"):
            try:
                return self.read(Fields(framing.parse_object(line.strip().encode())))
            except framing.ProtocolError:
                pass
        return [events.Printed(line.rstrip()[: events.PRINTED_CHARS_MAX])]

    def _events(self, framed: framing.Framed) -> Iterable[events.Event]:
        if not isinstance(framed, framing.Line):
            return ()
        return self.line(framed.text.decode("utf-8", "replace").removeprefix("\ufeff"))


class Fields:
    """An object of a stream. No access raises: a value that is missing, or of another type, is
    empty. A path leads through objects: ``fields.text("message", "id")``."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Any) -> None:
        self._fields: dict[str, Any] = fields if isinstance(fields, dict) else {}

    def __bool__(self) -> bool:
        return bool(self._fields)

    def text(self, *path: str) -> str:
        """Return a text, bounded."""
        found = self._find(path)
        return found[: events.TEXT_CHARS_MAX] if isinstance(found, str) else ""

    def name(self, *path: str) -> str:
        """Return a short text: an id, a model, a path."""
        return self.text(*path)[:NAME_CHARS_MAX]

    def number(self, *path: str) -> float | None:
        """Return a finite number."""
        return framing.as_number(self._find(path))

    def count(self, *path: str) -> int:
        """Return a whole number from 0 on."""
        return int(min(max(0.0, self.number(*path) or 0.0), limits.INTEGER_MAX))

    def money(self, *path: str) -> float | None:
        """Return dollars, from 0 on."""
        number = self.number(*path)
        return None if number is None else max(0.0, number)

    def flag(self, *path: str) -> bool:
        """Return whether the value is ``true``."""
        return self._find(path) is True

    def at(self, *path: str) -> Fields:
        """Return an inner object."""
        return Fields(self._find(path))

    def each(self, *path: str) -> list[Fields]:
        """Return the objects of a list."""
        found = self._find(path)
        return [Fields(x) for x in found if isinstance(x, dict)] if isinstance(found, list) else []

    def strings(self, *path: str) -> list[str]:
        """Return the texts of a list."""
        found = self._find(path)
        return [x for x in found if isinstance(x, str)] if isinstance(found, list) else []

    def items(self, *path: str) -> Iterator[tuple[str, Fields]]:
        """Yield the objects of an object, with their names."""
        for name, each in self.at(*path)._fields.items():
            yield name[:NAME_CHARS_MAX], Fields(each)

    def has(self, name: str) -> bool:
        """Return whether the name exists, with any value."""
        return name in self._fields

    def usage(self, names: Sequence[str], model: str, money: str = "") -> events.Usage:
        """Return tokens by the names of input, output, cached_read and cached_write."""
        own, output, read, written = (self.count(name) for name in names)
        return events.Usage(model, own, output, read, written, self.money(money) if money else None)

    def _find(self, path: tuple[str, ...]) -> Any:
        found: Any = self._fields
        for name in path:
            if not isinstance(found, dict):
                return None
            found = found.get(name)
        return found


# --- activities -----------------------------------------------------------------------------------


def activity(
    tool: str, arguments: Fields, folder: str = "", *, whole: bool = False
) -> events.Doing:
    """Return a call of a tool in the words of people; the tools of all agents are much alike.

    ``folder``: left out if a path begins with it. ``whole``: all lines of a command.
    """
    word = tool.lower().replace("_", "")
    if command := arguments.text("command") or arguments.text("cmd"):
        wrapped = _SHELL.fullmatch(command)
        command = wrapped[2] if wrapped else command
        return events.Doing("running", command.strip() if whole else _first_line(command))
    path = next((p for name in _PATHS if (p := arguments.name(name))), "")
    path = path.removeprefix(f"{folder}/") if folder else path
    for verb, words in _VERBS.items():
        if any(each in word for each in words) and path:
            return events.Doing(verb, _first_line(path))
    if pattern := arguments.name("pattern") or arguments.name("query"):
        return events.Doing("searching", _first_line(pattern))
    return events.Doing("using", _first_line(tool)[:NAME_CHARS_MAX])


_SHELL = re.compile(r"(?:/\S*/)?(?:ba|z)?sh -l?c (['\"]?)(.*)\1", re.DOTALL)
"""Call of a shell; people want to see the command in it."""

_PATHS = ("file_path", "filePath", "path", "absolute_path", "notebook_path", "filename")
_VERBS = {
    "editing": ("edit", "write", "replace", "patch", "create", "strreplace"),
    "reading": ("read", "view", "cat", "open"),
}


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:NAME_CHARS_MAX]
