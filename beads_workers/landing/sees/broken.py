"""Sources that fail when they run, and not when they are read: a linter sees nothing wrong.

To add a language, add a row to ``LANGUAGES``. Languages without one that are compiled do not
compile. If a project has no source in any of these, its text files are emptied.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from beads_workers.core.base.model import value
from beads_workers.worktrees.git import GitError, call, git, names
from beads_workers.worktrees.sparse import Cone, holds

Break = Callable[[str], str]
"""Function from the text of a source to a text that fails when it runs."""


def _before(pattern: str, statement: str, gap: str = "\n") -> Break:
    """Return a ``Break`` that puts a statement before the first line that ends the module early, or
    else at its end."""
    early = re.compile(pattern, re.MULTILINE)

    def broken(text: str) -> str:
        found = early.search(text)
        if found is not None:
            return f"{text[: found.start()]}{statement}\n{gap}{text[found.start() :]}"
        return f"{text.rstrip()}\n{gap}{statement}\n" if text.strip() else f"{statement}\n"

    return broken


def _script(text: str) -> str:
    """Break JavaScript and TypeScript, in the file's own style: formatters count semicolons."""
    ends = [line.rstrip()[-1:] for line in text.splitlines()]
    style = ";" if ";" in ends or not text.strip() else ""
    return f"{text.rstrip()}\n\nthrow new Error(){style}\n".lstrip("\n")


def _php(text: str) -> str:
    opened = text.rfind("<?php") > text.rfind("?>")
    return f"{text.rstrip()}\n\n{'' if opened else '<?php '}throw new \\Error();\n".lstrip("\n")


def _go(text: str) -> str:
    return f'{text.rstrip()}\n\nfunc init() {{\n\tpanic("broken on purpose")\n}}\n'


def _uncompiled(text: str) -> str:
    return f"{text}\n}}}} broken on purpose ((((\n"


# No analyser treats the code after this statement as dead.
_PYTHON = _before(
    r"^(if __name__\b|sys\.exit\(|raise SystemExit)", "if __name__:\n    raise RuntimeError", "\n\n"
)
LANGUAGES: dict[str, Break] = {
    ".py": _PYTHON,
    **dict.fromkeys((".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx"), _script),
    ".rb": _before(r"^(__END__$|if __FILE__\b)", "raise"),
    ".pl": _before(r"^__(END|DATA)__$", "die;"),
    ".pm": _before(r"^__(END|DATA)__$", "die;"),
    ".php": _php,
    ".go": _go,
    **dict.fromkeys((".rs", ".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".m", ".zig"), _uncompiled),
    **dict.fromkeys((".java", ".kt", ".scala", ".groovy", ".cs", ".fs", ".swift"), _uncompiled),
    **dict.fromkeys((".hs", ".ml", ".ex", ".erl", ".clj", ".dart", ".lua", ".nim"), _uncompiled),
}

TEST_FOLDERS = frozenset(
    {"test", "tests", "testing", "__tests__", "spec", "specs", "e2e", "testdata", "fixtures"}
)
NOT_OURS = frozenset({"vendor", "third_party", "node_modules"})
TEST_FILES = (
    *("test_*", "*_test.*", "*_tests.*", "*.test.*", "*.spec.*", "*_spec.*", "tests.py"),
    *("*Test.*", "*Tests.*", "*Spec.*", "conftest.py"),
)
TOOL_FILES = (
    *("setup.py", "noxfile.py", "tasks.py", "manage.py", "conf.py", "*.config.*", "*.conf.*"),
    *(
        "*rc.js",
        "*rc.cjs",
        "*rc.mjs",
        "gulpfile.*",
        "Gruntfile.*",
        "Rakefile",
        "build.rs",
        "*.d.ts",
    ),
)
"""Files that say how other files are built and tested. Broken, they stop every check, whatever it
tests."""
LEFT_WHOLE = (
    *("Makefile", "makefile", "GNUmakefile", "*.mk", "justfile", "Justfile", "Taskfile.*"),
    *("*.toml", "*.json", "*.yml", "*.yaml", "*.ini", "*.cfg", "*.lock", "go.*", "Dockerfile*"),
    *("Gemfile*", "*.gradle*", "CMakeLists.txt", ".*"),
)
"""Such files among the files that are emptied."""
TEXT_BYTES = 1 << 20


@value
class SourceFile:
    """A file of a commit. ``name``: from the top of the repository."""

    name: str
    mode: str
    blob: str


@value
class Sources:
    """Files of a project to break: its sources, or its text files if it has no sources that we
    know."""

    files: tuple[SourceFile, ...]
    emptied: bool = False

    def within(self, places: Iterable[str]) -> Sources:
        """Return the files in these folders, which are given from the top of the repository."""
        below = tuple(PurePosixPath(place) for place in places)
        found = (
            f for f in self.files if any(PurePosixPath(f.name).is_relative_to(b) for b in below)
        )
        return Sources(tuple(found), self.emptied)

    def text_of(self, name: str, text: str = "") -> str:
        """Return the text of the file, broken."""
        return "" if self.emptied else LANGUAGES[PurePosixPath(name).suffix](text)


def find_sources(
    common: str, commit: str, named: str, prefix: str = "", cone: Cone | None = None
) -> Sources:
    """Return the project's own sources at a commit, of those folders alone that are checked out;
    raises ``GitError``.

    ``named``: the lines of verify and set-up. A file named there tests the others, and is left out,
    unless no other is left. ``prefix``: folder in which these lines run.
    """
    there = (f for f in _files(common, commit) if cone is None or holds(cone, f.name))
    files = [each for each in there if not _is_left(each.name)]
    code = [f for f in files if PurePosixPath(f.name).suffix in LANGUAGES]
    words = re.split(r"[\s;&|()<>'\"=]+", named)
    named_files = {os.path.normpath(f"{prefix}/{word}".lstrip("/")) for word in words if word}
    if code:
        return Sources(tuple(f for f in code if f.name not in named_files) or tuple(code))
    rest = (f for f in files if f.name not in named_files and not _matches(f.name, LEFT_WHOLE))
    return Sources(tuple(rest), emptied=True)


def break_sources(common: str, commit: str, sources: Sources, ref: str) -> str:
    """Write a commit in which these sources are broken, and that ``ref`` holds; return it. Raises
    ``GitError``."""
    changed = list(_broken(common, sources))
    message = "broken on purpose, to see whether verify tests it\n"
    head = (
        f"commit {ref}\nmark :1\ncommitter beads-workers <beads-workers@localhost> 0 +0000\n"
        f"data {len(message)}\n{message}from {commit}\n"
    )
    rows = (_row(source, text) for source, text in changed)
    stream = "".join((head, *rows, "get-mark :1\ndone\n"))
    # One pack, instead of a loose object for each source.
    return git(common, "fast-import", "--quiet", "--done", "--force", stdin=stream).strip()


def _broken(common: str, sources: Sources) -> Iterator[tuple[SourceFile, str]]:
    if sources.emptied:
        yield from ((each, "") for each in sources.files)
        return
    asked = "".join(f"{each.blob}\n" for each in sources.files)
    done = call(common, "cat-file", "--batch", stdin=asked)
    rest = os.fsencode(done.output)
    for each in sources.files:
        head, _, rest = rest.partition(b"\n")
        if head.split()[:2] != [each.blob.encode(), b"blob"]:
            raise GitError(f"git does not show {each.name}")
        size = int(head.split()[2])
        text, rest = os.fsdecode(rest[:size]), rest[size + 1 :]
        yield each, sources.text_of(each.name, text)


def _row(source: SourceFile, text: str) -> str:
    name = source.name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'M {source.mode} inline "{name}"\ndata {len(os.fsencode(text))}\n{text}\n'


def _files(common: str, commit: str) -> Iterator[SourceFile]:
    for row in names(git(common, "ls-tree", "-r", "-z", "--full-tree", commit)):
        about, _, name = row.partition("\t")
        mode, _, blob = about.split()
        if mode.startswith("100"):
            yield SourceFile(name, mode, blob)


def _is_left(name: str) -> bool:
    path = PurePosixPath(name)
    if not (TEST_FOLDERS | NOT_OURS).isdisjoint(path.parts[:-1]):
        return True
    return _matches(name, TEST_FILES) or _matches(name, TOOL_FILES)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    last = PurePosixPath(name).name
    return any(fnmatchcase(last, pattern) for pattern in patterns)
