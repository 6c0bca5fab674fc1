"""What is counted: files and lines of each room, folds over the journal, names that mean two
things, names of integrations outside of their rooms.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from tests.test_tidy import MODULES, PACKAGE, part, tree

LIFE = frozenset({"Claimed", "Started", "Finished", "SettledRecord", "OwnerLost", "Requeued"})
"""Records of an issue's life: who tells three of them apart keeps an account of its own."""
FOLD_FROM = 3

INTEGRATIONS = re.compile("hero|dispatcher|rrq|integrations", re.IGNORECASE)


def rooms() -> dict[str, tuple[int, int]]:
    """Files and lines by room; the package's own modules are called ``.``."""
    found: dict[str, tuple[int, int]] = {}
    for path in MODULES:
        pieces = path.relative_to(PACKAGE).parts
        name = "." if len(pieces) == 1 else "/".join(pieces[: 2 if len(pieces) > 2 else 1])
        files, lines = found.get(name, (0, 0))
        found[name] = files + 1, lines + len(path.read_text(encoding="utf-8").splitlines())
    return found


def folds() -> list[str]:
    """Modules that tell records of an issue's life apart, to know how it stands."""
    found = []
    for path in MODULES:
        told = {name for node in ast.walk(tree(path)) for name in _told_apart(node)}
        if len(told & LIFE) >= FOLD_FROM:
            found.append(str(path.relative_to(PACKAGE)))
    return found


def _told_apart(node: ast.AST) -> Iterator[str]:
    """Classes that a pattern, or ``isinstance``, asks for."""
    if isinstance(node, ast.MatchClass):
        yield ast.unparse(node.cls).rpartition(".")[2]
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
        for each in ast.walk(node.args[1]):
            if isinstance(each, ast.Attribute | ast.Name):
                yield ast.unparse(each).rpartition(".")[2]


def duplicate_classes() -> Mapping[str, list[str]]:
    """Public names of classes that stand in more than one module."""
    where: dict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].append(str(path.relative_to(PACKAGE)))
    return {name: files for name, files in where.items() if len(files) > 1}


def names_outside() -> list[str]:
    """Identifiers and imports that name an integration, outside of them and of the registry."""
    found = []
    for path in MODULES:
        if part(path) in ("integrations", "registry"):
            continue
        named = {name for name in identifiers(tree(path)) if INTEGRATIONS.search(name)}
        found += [f"{path.relative_to(PACKAGE)}: {name}" for name in sorted(named)]
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


def longest() -> list[tuple[str, int]]:
    """The modules with the most lines."""
    lines = Counter(
        {
            str(path.relative_to(PACKAGE)): len(path.read_text(encoding="utf-8").splitlines())
            for path in MODULES
        }
    )
    return lines.most_common(5)
