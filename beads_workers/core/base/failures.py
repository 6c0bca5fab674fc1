"""What the output of a failed check says has failed: the first failing test by name.

    reader = FailureReader("/tmp/worktree")
    reader.feed(b"FAILED tests/test_cart.py::test_adds - assert 3 == 4\\n")
    reader.reason()
    # '"tests/test_cart.py::test_adds": assert 3 == 4'

The output is read line by line while it is written: the first by name of hundreds of failures may
stand anywhere. What a line means is in the table ``runners``.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field, fields
from functools import lru_cache

from beads_workers.core.base.runners import RUNNERS, Runner
from beads_workers.core.base.text import as_shown, printable

ITEMS_MAX = 5000
"""Most failing items that are kept of one output."""
LINES_MAX = 12
"""Most lines of a message that are kept; ``Runner.lines`` of them are shown."""
NAME_CHARS, LINE_CHARS = 200, 160
LINE_BYTES_MAX = 1 << 14
"""What of a line is read: a longer one is no sentence about a test."""
LINES_READ, END_BYTES = 150_000, 1 << 20
"""How much of an output is read: a second of work, and then its end."""
PREFIXES_MAX = 40
"""Packages of one output that are read by themselves (``pnpm -r``, ``turbo``)."""


class FailureReader:
    """Reads an output as it is written; ``folder``: paths below it are shown without it."""

    def __init__(self, folder: str = "") -> None:
        self._folder = f"{folder.rstrip('/')}/" if folder else ""
        self._rest = self._end = b""
        self._left = LINES_READ
        self._of_all = _Reading()
        self._by_package: dict[str, _Reading] = {}

    def feed(self, data: bytes) -> None:
        """Read the next bytes. Of an endless output only the beginning and the end are read."""
        if self._left <= 0:
            self._end = (self._end + data)[-END_BYTES:]
            return
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:LINE_BYTES_MAX]
        self._left -= len(lines)
        before = b""
        for line in lines:
            if line != before:
                self._line(line[:LINE_BYTES_MAX].decode("utf-8", "replace"))
            before = line

    def reason(self) -> str:
        """Return the first failing item by name in quotes, and its message; "" if none is known."""
        return min(self.all_reasons(), key=lambda each: each.partition('": ')[0], default="")

    def all_reasons(self) -> list[str]:
        """Return the same of each failing item."""
        end, self._end, self._left = self._end, b"", LINES_READ
        self.feed(end + b"\n" if end or self._rest else b"")
        found = [("", each) for each in self._of_all.items()] or [
            (f"{package.split()[0].rstrip(':')}: ", each)
            for package, reading in self._by_package.items()
            for each in reading.items()
        ]
        return [f'"{_shown(package + each.whole)}": {each.message()}' for package, each in found]

    def _line(self, line: str) -> None:
        text = as_shown(line).replace(self._folder, "") if self._folder else as_shown(line)
        self._of_all.line(text)
        if found := _PACKAGE.match(text):
            package = found[0]
            if package in self._by_package or len(self._by_package) < PREFIXES_MAX:
                self._by_package.setdefault(package, _Reading()).line(text[found.end() :])


def _shown(name: str) -> str:
    return printable(name.replace('"', "'"))[:NAME_CHARS]


_PACKAGE = re.compile(r"[@\w./-]+(?: [\w:.-]+|:[\w:.-]+): |[@\w./-]+ +\| ?")
"""What stands before each line of a package: ``packages/a test: ``, ``web:test: ``, ``web | ``."""


@dataclass(frozen=True, slots=True)
class _Patterns:
    """A runner with its patterns compiled."""

    runner: Runner
    item: re.Pattern[str]
    says: re.Pattern[str]
    drop: re.Pattern[str]
    ends: re.Pattern[str]
    heading: re.Pattern[str]
    footing: re.Pattern[str]
    place: re.Pattern[str]
    joins: re.Pattern[str]
    before: re.Pattern[str]
    recalled: re.Pattern[str]
    passes_over: re.Pattern[str]
    prefers: re.Pattern[str]


@lru_cache(maxsize=1)
def _compiled() -> tuple[tuple[_Patterns, ...], re.Pattern[str]]:
    """Return the table with its patterns compiled, and what any line begins with that is in it."""
    names = [each.name for each in fields(_Patterns) if each.name != "runner"]
    table = tuple(
        _Patterns(runner, **{name: re.compile(getattr(runner, name) or "(?!)") for name in names})
        for runner in RUNNERS
    )
    first = [
        getattr(runner, name)
        for runner in RUNNERS
        for name in ("item", "heading", "footing", "before")
        if getattr(runner, name)
    ]
    return table, re.compile("|".join(f"(?:{_GROUP.sub('(?:', each)})" for each in first))


_GROUP = re.compile(r"\(\?P<\w+>")


@dataclass(slots=True)
class _Item:
    """A failing item. ``begun``: its name may go on in the next line."""

    patterns: _Patterns
    name: str
    file: str = ""
    says: list[str] = field(default_factory=list)
    begun: bool = False
    is_detail: bool = False

    @property
    def lacks_words(self) -> bool:
        """Whether its message is unknown, or cut."""
        return not self.says or self.says[0].endswith(("...", "test module"))

    @property
    def whole(self) -> str:
        """Its name with its file, unless that has it."""
        name = " ".join(self.name.split())
        if not name or not self.file or name.startswith((self.file, f"{self.file}::")):
            return name or self.file
        return f"{self.file}: {name}"

    def message(self) -> str:
        """What ``shown`` returns, as one line."""
        return printable("; ".join(self.shown()).replace(":; ", ": ")) or "failed"

    def shown(self) -> list[str]:
        """The lines that say most."""
        runner, says = self.patterns.runner, self.says
        if preferred := [each for each in says if self.patterns.prefers.match(each)]:
            at = says.index(preferred[-1])
            says = says[at:]
        return [" ".join(each.split())[:LINE_CHARS] for each in says[: runner.lines]]


class _Reading:
    """One conversation: an output, or what one package of it says."""

    def __init__(self) -> None:
        self._table, self._first = _compiled()
        self._named: list[_Item] = []
        # The last ones: of go, those of tests that have passed are among them.
        self._details: deque[_Item] = deque(maxlen=ITEMS_MAX)
        self._current: _Item | None = None
        self._headings: dict[str, str] = {}
        self._before: list[str] = []
        self._listed: list[_Item] = []

    def line(self, text: str) -> None:
        """Read a line."""
        names = self._first.match(text) is not None and self._names(text)
        if not names and not self._recalls(text):
            self._goes_on(text)

    def items(self) -> list[_Item]:
        """Return the failing items: tests, or else what programs complain of."""
        named = [each for each in self._named if not each.is_detail]
        lists = (each for each in self._named if each.is_detail)
        details = [each for each in (*lists, *self._details) if each.says]
        wordless = [each for each in named if each.lacks_words]
        for detail in details:
            item = next((each for each in wordless if _is_about(detail, each)), None)
            if item is not None:
                item.says = detail.shown()
                wordless.remove(item)
        named = [
            item
            for item in named or [each for each in details if each.file]
            if (item.file or not item.patterns.runner.needs_file)
            and not any(item.patterns.passes_over.match(each) for each in item.says[:1])
        ]
        tests = [each for each in named if not each.patterns.runner.is_complaint] or named
        placed = {each.name for each in tests if each.file and each.says}
        tests = [each for each in tests if each.file or each.name not in placed]
        spoken = [each for each in tests if each.says or not each.patterns.runner.ends]
        return spoken or tests

    def _names(self, text: str) -> bool:
        for each in self._table:
            if found := each.heading.match(text):
                self._headings[each.runner.item] = found["file"]
            if found := each.footing.match(text):
                for item in self._named:
                    if item.patterns is each and not item.file:
                        item.file = found["file"]
            if found := each.before.match(text):
                self._before.append(next(filter(None, found.groups())))
        # What a test prints is its own affair.
        in_test = self._current and not self._current.patterns.runner.is_complaint
        for each in self._table:
            if not (in_test and each.runner.is_complaint) and (found := each.item.match(text)):
                self._begin(each, found.groupdict())
                return True
        return False

    def _begin(self, patterns: _Patterns, groups: dict[str, str | None]) -> None:
        runner = patterns.runner
        name, file = groups.get("name") or "", groups.get("file") or ""
        file = file or self._headings.get(runner.item, "")
        item = _Item(patterns, name, file, is_detail=runner.is_detail)
        if runner.joins:
            item.begun, item.name = not name.endswith(":"), name.removesuffix(":")
        item.says += [says for says in (groups.get("says"),) if says]
        if runner.before:
            item.says += self._before[-LINES_MAX:]
            self._before.clear()
        self._current = item if runner.ends and not runner.recalled else None
        if runner.recalled:
            self._listed.append(item)
        if runner.is_detail:
            self._details.append(item)
        elif len(self._named) < ITEMS_MAX:
            self._named.append(item)

    def _recalls(self, text: str) -> bool:
        for runner in {
            each.patterns.runner.recalled: each.patterns for each in self._listed
        }.values():
            found = runner.recalled.match(text)
            name = found["name"] if found else ""
            for item in self._listed if name else ():
                if item.name == name or item.name.startswith(f"{name} "):
                    item.name, self._current = name, item
                    self._listed.remove(item)
                    return True
        return False

    def _goes_on(self, text: str) -> None:
        item = self._current
        if item is None:
            return
        patterns = item.patterns
        if item.begun:
            joined = patterns.joins.match(text)
            item.begun = joined is not None and not text.endswith(":")
            if joined is not None:
                item.name = f"{item.name} {joined['name'].removesuffix(':')}"
                return
            item.is_detail = True  # No colon: a line of a list, or RSpec, which names it again.
        if patterns.ends.match(text):
            self._current = None
            return
        if not item.file and (found := patterns.place.match(text)):
            item.file = next(filter(None, found.groups()), "")
        if not text.strip() or patterns.drop.match(text) or len(item.says) >= LINES_MAX:
            return
        if not patterns.runner.says:
            item.says.append(text.strip())
        elif found := patterns.says.match(text):
            item.says.append(found["says"])


def _is_about(detail: _Item, item: _Item) -> bool:
    """Return whether a detail is about this item: the same name, or the end of it."""
    if item.name == detail.name:
        return True
    named = item.name.endswith(f"::{detail.name.replace('.', '::')}")
    return named and (not detail.file or item.whole.startswith(detail.file))
