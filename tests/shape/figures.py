"""What is counted in the text of the package: files and lines, functions and classes, folds over
the journal, texts in it, names that mean two things, names of integrations outside of their rooms.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.test_tidy import MODULES, PACKAGE, TESTS, part, tree

LIFE = frozenset({"Claimed", "Started", "Finished", "SettledRecord", "OwnerLost", "Requeued"})
"""Records of an issue's life: who tells three of them apart keeps an account of its own."""
FOLD_FROM = 3

INTEGRATIONS = re.compile("hero|dispatcher|rrq|integrations", re.IGNORECASE)

FATES = ("core/base/policy.py:fate", "core/base/policy.py:blamed", "core/base/policy.py:unlanded")
"""Where it is decided what becomes of an attempt that has ended. Kept by hand."""

READ_MODELS = (
    "core/views/snapshot.py",
    "core/views/status.py",
    "core/views/history.py",
    "core/views/agent_board.py",
    "core/views/landing_board.py",
    "core/base/facts.py",
    "integrations/metrics/figures.py",
    "integrations/envelopes/fold.py",
    "integrations/tracing/spans.py",
    "ui/lines.py",
    "ui/notices.py",
)
"""What is made of the records for somebody to read, beside the reducer. Kept by hand."""

TEXTS = frozenset({"receipt", "landing", "mend", "arguments"})
"""Fields of records that hold JSON as a text within the JSON of the journal."""


@dataclass(frozen=True, slots=True)
class Source:
    """A module of the package: ``file`` is its path below it."""

    path: Path
    file: str
    text: str
    tree: ast.Module


def sources() -> list[Source]:
    """Read and parse the whole package; it is large, so do not keep it."""
    return [
        Source(path, str(path.relative_to(PACKAGE)), path.read_text(encoding="utf-8"), tree(path))
        for path in MODULES
    ]


# --- size ----------------------------------------------------------------------------------------


def rooms(package: Iterable[Source]) -> dict[str, tuple[int, int]]:
    """Files and lines by room; the package's own modules are called ``.``."""
    found: dict[str, tuple[int, int]] = {}
    for source in package:
        pieces = source.file.split("/")
        name = "." if len(pieces) == 1 else "/".join(pieces[: 2 if len(pieces) > 2 else 1])
        files, lines = found.get(name, (0, 0))
        found[name] = files + 1, lines + len(source.text.splitlines())
    return found


def code_of_rooms(package: Iterable[Source]) -> dict[str, int]:
    """Code lines by room: the folders of the package; its own modules are called ``.``."""
    found = Counter[str]()
    for source in package:
        room, slash, _ = source.file.partition("/")
        found[room if slash else "."] += code_lines(source)
    return dict(found)


def longest(package: Iterable[Source]) -> list[tuple[str, int]]:
    """The modules with the most lines."""
    return Counter({s.file: len(s.text.splitlines()) for s in package}).most_common(5)


def lines_of_tests() -> int:
    """Lines of Python of the tests."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in TESTS)


def definitions(package: Iterable[Source]) -> tuple[int, int]:
    """How many functions and how many classes are written in it, nested ones too."""
    kinds = Counter(type(node) for source in package for node in ast.walk(source.tree))
    return kinds[ast.FunctionDef] + kinds[ast.AsyncFunctionDef], kinds[ast.ClassDef]


def code_lines(source: Source) -> int:
    """Return how many lines are not blank, and neither comment nor text that stands alone.

    Such a text is a docstring: of a module, a class, a function or a field.
    """
    tokens = tokenize.generate_tokens(io.StringIO(source.text).readline)
    said = {t.start[0] for t in tokens if t.type == tokenize.COMMENT and _alone(t)}
    for node in ast.walk(source.tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str()), lineno=first, end_lineno=int(last)):
                said.update(range(first, last + 1))
    lines = enumerate(source.text.splitlines(), 1)
    return sum(1 for number, line in lines if line.strip() and number not in said)


def _alone(comment: tokenize.TokenInfo) -> bool:
    return comment.line.strip().startswith("#")


# --- definitions ---------------------------------------------------------------------------------


def definition(package: Iterable[Source], named: str) -> ast.ClassDef | ast.FunctionDef:
    """Return the class or function ``FILE:NAME.OF.IT``; fails if there is none."""
    file, _, name = named.partition(":")
    body: Sequence[ast.stmt] = next((s.tree.body for s in package if s.file == file), [])
    found: ast.ClassDef | ast.FunctionDef | None = None
    for piece in name.split("."):
        found = next(
            (n for n in body if isinstance(n, ast.ClassDef | ast.FunctionDef) and n.name == piece),
            None,
        )
        assert found is not None, f"{named} is not there: mend the list that names it"
        body = found.body
    assert found is not None
    return found


def lines_of(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many lines a definition has."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def fate_lines(package: Sequence[Source]) -> dict[str, int]:
    """Lines of each of ``FATES``; fails if one is not there."""
    return {named: lines_of(definition(package, named)) for named in FATES}


def read_model_lines(package: Iterable[Source]) -> dict[str, int]:
    """Lines of each of ``READ_MODELS``; fails if one is not there."""
    lines = {s.file: len(s.text.splitlines()) for s in package}
    missing = [file for file in READ_MODELS if file not in lines]
    assert not missing, f"{missing}: mend READ_MODELS"
    return {file: lines[file] for file in READ_MODELS}


def connection_fields(package: Iterable[Source]) -> dict[str, str]:
    """Fields of the core's ``Connection`` and their types, wherever in the core it stands."""
    found = [
        node
        for s in package
        if s.file.startswith("core/")
        for node in s.tree.body
        if isinstance(node, ast.ClassDef) and node.name == "Connection"
    ]
    return {name: kind for node in found for name, kind in fields(node).items()}


def fields(node: ast.ClassDef) -> dict[str, str]:
    """The annotated fields of a class."""
    return {
        each.target.id: ast.unparse(each.annotation)
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }


# --- the journal ---------------------------------------------------------------------------------


def text_fields(package: Iterable[Source]) -> list[str]:
    """Fields of records that are texts of JSON, as ``Record.field``."""
    journal = next(s for s in package if s.file == "core/records/journal.py")
    return [
        f"{node.name}.{name}"
        for node in journal.tree.body
        if isinstance(node, ast.ClassDef)
        for name, kind in fields(node).items()
        if name in TEXTS and kind == "str"
    ]


def folds(package: Iterable[Source]) -> list[str]:
    """Modules that tell records of an issue's life apart, to know how it stands."""
    found = []
    for source in package:
        told = {name for node in ast.walk(source.tree) for name in _told_apart(node)}
        if len(told & LIFE) >= FOLD_FROM:
            found.append(source.file)
    return found


def _told_apart(node: ast.AST) -> Iterator[str]:
    """Classes that a pattern, or ``isinstance``, asks for."""
    if isinstance(node, ast.MatchClass):
        yield ast.unparse(node.cls).rpartition(".")[2]
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
        for each in ast.walk(node.args[1]):
            if isinstance(each, ast.Attribute | ast.Name):
                yield ast.unparse(each).rpartition(".")[2]


# --- names ---------------------------------------------------------------------------------------


def duplicate_classes(package: Iterable[Source]) -> Mapping[str, list[str]]:
    """Public names of classes that stand in more than one module."""
    where: dict[str, list[str]] = defaultdict(list)
    for source in package:
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].append(source.file)
    return {name: files for name, files in where.items() if len(files) > 1}


def names_outside(package: Iterable[Source]) -> list[str]:
    """Identifiers and imports that name an integration, outside of them and of the registry."""
    found = []
    for source in package:
        if part(source.path) in ("integrations", "registry"):
            continue
        named = {name for name in identifiers(source.tree) if INTEGRATIONS.search(name)}
        found += [f"{source.file}: {name}" for name in sorted(named)]
    return found


def identifiers(module: ast.AST) -> Iterator[str]:
    """Names, attributes, arguments and imported modules."""
    for node in ast.walk(module):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.keyword(arg=str(name)) | ast.FunctionDef(name=name) | ast.alias(name=name):
                yield name
            case ast.ImportFrom(module=str(name)) | ast.ClassDef(name=name):
                yield name
