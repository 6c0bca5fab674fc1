"""Commands that test, in the text of a CI file. Nothing is run.

No YAML is parsed: lines below a key of ``_KEY`` are shell, and indentation tells what is beside it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from itertools import pairwise

from beads_workers.core.base.model import value

LINES_MAX = 3000
"""Number of lines of a file that are read."""
CHARS_MAX = 1000
"""Longest command that is looked at."""
UNKNOWN = "it needs values or the shell of CI"
PART = "it tests a part"


Key = tuple[str, str]
"""Folder of a suite below the project, "" for its own; and what tests, as ``cargo``."""


@value
class Suite:
    """A way to test."""

    # The command, for ``sh -c``.
    line: str
    # Where it was recognised.
    found: str
    # Commands that a new git worktree needs first, as it has only committed files.
    setup: str = ""
    # Why it is only named, or "".
    why_not: str = ""


_KEY = re.compile(r"( *(?:- +)?)(?:run|script|command):(?: +(.*))?$")
_RUN = r"(?:(?:run|all|unit|ci|e2e|integration)[-_:]?)?tests?"
_TEST = rf"(?:\S+ )*?(?:t|{_RUN}(?:[:/_.-]\S*)?)(?= |$)"
_TOOL = re.compile(
    r"(?P<cargo>(?:cargo|\$\S*(?i:cargo)\S*) (?:\S+ )*?(?:nex)?test(?= |$))"
    rf"|(?P<go>(?:go test|gotestsum)(?= |$))|(?P<make>g?make (?:(?:\S+ )*?check(?= |$)|{_TEST}))"
    rf"|(?P<node>(?:npm|pnpm|yarn|bun|deno|turbo|nx|lerna) {_TEST}"
    r"|(?:jest|vitest|mocha|ng test|karma start|playwright test)(?= |$))"
    r"|(?P<python>(?:pytest|tox|nox|unittest)(?= |$))|(?P<bats>(?:\S+/)?bats )"
    r"|(?P<other>(?:\S+/)?(?:ctest|rspec|phpunit|gradlew? check|mvnw? (?:\S+ )*?verify)(?= |$)"
    r"|(?:\$\S+|\S*gradlew?|\S*mvnw?|dotnet|rake|mix|swift|zig|bazel|meson|just|task|mage|composer"
    rf"|stack|cabal|sbt|dart|flutter|hatch|rails) {_TEST}"
    rf"|(?=\S*[/.])(?:[\w.-]*/)*{_RUN}(?:[_.-][\w.-]*)?(?= |$))"
)
"""What tests, by its name, and the beginning of such a command."""
_BEFORE = re.compile(
    r"\w+=.*|-(?!c$).*|run|exec|dlx|env|time|xvfb-run|npx|node|bash|sh|python[\d.]*|coverage|bundle|uv"
    r"|poetry|pipenv|pdm|rye|hatch|npm|pnpm|yarn|bun"
)
"""Words before the program that tests."""
_NO_TEST = re.compile(
    r"--no-run|--collect-only|--list|--dry-run|eslint|prettier|tsc|(?!-)(?:.*[:/_-])?"
    r"(?:install|deploy|publish|release|upload|push|login|setup|lint|build|watch)(?:[:._-].*)?"
)
"""Words of commands that do something else than a test, or more."""
_PART = re.compile(
    r" (?:-[pkFCw]|-run|--(?:filter|prefix|dir|cwd|package|manifest-path|doc|lib|bin|test|shard))"
    r"(?=[ =]|$)| --workspace=|[:_ -](?:typ\w+|dts|docs)(?= |$)|\bgo test(?!.* [\"']?\./\.\.\.)"
)


def tests_of(text: str) -> Iterator[tuple[Key, Suite]]:
    """Yield the commands of a CI file that test, in its order."""
    for script, folder in _scripts(text):
        at = folder
        shell = re.sub(r"(\$\{\{) *(.*?) *(\}\})", r"\1\2\3", script.replace("\\\n", " "))
        for piece in re.split(r"\n|&&|;", shell):
            # What follows a pipe or a redirection only shows the result.
            kept = re.split(r" (?:\||\d?>|&)", f" {piece} "[: CHARS_MAX + 1])[0]
            words = re.sub(r"^ *\(?([^()]*)\)? *$", r"\1", kept).split()
            if words[:1] == ["cd"] and len(words) == 2:
                at = posixpath.join(at, words[1])
            elif found := _test(words, posixpath.normpath(at.strip("'\"") or ".")):
                yield found


def _scripts(text: str) -> Iterator[tuple[str, str]]:
    """Yield every script with its folder."""
    lines = [line for line in text.splitlines()[:LINES_MAX] if line.strip()]
    indents = [len(line) - len(line.lstrip(" ")) for line in lines]
    default, inside = "", 0
    for at, line in enumerate(lines):
        if indents[at] < inside:
            default = ""  # The job with the default has ended.
        if (key := _KEY.match(line)) is None:
            continue
        column = len(key[1])
        first = next((n for n in range(at, -1, -1) if indents[n] < column), at)
        last = next((n for n in range(at + 1, len(lines)) if indents[n] < column), len(lines))
        end = next((n for n in range(at + 1, last) if lines[n][column] not in " -"), last)
        rows = [re.sub(r"^(?:- +|command: +)+", "", each.strip()) for each in lines[at + 1 : end]]
        where = rf"[ -]{{{column}}} *working-directory: *(.*\S)"
        folders = [found[1] for each in lines[first:last] if (found := re.match(where, each))]
        if rows and rows[0].startswith("working-directory:"):
            default, inside = folders[0], indents[first]
        elif (head := key[2] or "") and head[0] != "|":
            rows = [" ".join([head.lstrip(">-+ "), *rows])]
        plain = (re.sub(r"^(['\"])(.*)\1$|(?:^| )#.*$", r"\2", each) for each in rows)
        yield "\n".join(plain), folders[0] if folders else default


def _test(words: list[str], folder: str) -> tuple[Key, Suite] | None:
    """Return the command if it tests."""
    line, at = " ".join(words), 0
    while (found := _TOOL.match(" ".join(words[at:]))) is None:
        of_option = at > 0 and words[at - 1].startswith("-")
        if at == len(words) or not (of_option or _BEFORE.fullmatch(words[at])):
            return None
        at += 1
    is_cut = line.count("'") % 2 or line.count('"') % 2
    named = (word for before, word in pairwise(["", *words[at:]]) if before[:2] != "--")
    if is_cut or any(map(_NO_TEST.fullmatch, named)):
        return None
    unknown = re.search(r"[$`{]", line + folder) or folder.startswith(("/", ".."))
    why_not = UNKNOWN if unknown else PART if _PART.search(line) else ""
    key = ("" if folder == "." else folder, found.lastgroup or "")
    return key, Suite(line, "", why_not=why_not)
