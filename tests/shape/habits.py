"""How the code is written: calls that re-pack fields, fields explained in a paragraph, tiny private
functions with one caller. Each figure is a sign of a second mechanism for the same thing.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from tests.shape.figures import Source, fields, lines_of

REPACKED_FROM = 4
"""A call that hands on so many fields under their own names copies a value by hand."""
EXPLAINED_FROM = 3
"""A docstring that names so many fields of its class explains them far from where they stand."""
TINY = 2
"""Statements of a function that is only a name for them."""
LONG = 60

_PRIVATE = re.compile(r"\b_\w+\b")
_NAMED = re.compile(r"``(\w+)``")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def repacking(package: Iterable[Source]) -> list[tuple[str, int]]:
    """Return the calls that re-pack fields by name (``f(a=x.a, b=x.b)``), and how many."""
    return [
        (f"{source.file}:{node.lineno}", count)
        for source in package
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and (count := _repacked(node)) >= REPACKED_FROM
    ]


def _repacked(call: ast.Call) -> int:
    handed_on = (k for k in call.keywords if k.arg and isinstance(k.value, ast.Attribute))
    return sum(1 for k in handed_on if isinstance(k.value, ast.Attribute) and k.value.attr == k.arg)


def paragraphs(package: Iterable[Source]) -> dict[str, int]:
    """Return the classes whose docstring explains fields in a paragraph, and how many fields."""
    found = {}
    for source in package:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef):
                named = fields(node).keys() & set(_NAMED.findall(ast.get_docstring(node) or ""))
                if len(named) >= EXPLAINED_FROM:
                    found[f"{source.file}:{node.name}"] = len(named)
    return found


def functions(package: Iterable[Source]) -> Iterator[tuple[Source, Function]]:
    """Yield every function, nested ones too."""
    for source in package:
        for node in ast.walk(source.tree):
            if isinstance(node, Function):
                yield source, node


def mean_lines(package: Iterable[Source]) -> int:
    """Return the mean number of lines of a function, in tenths of a line."""
    sizes = [lines_of(node) for _, node in functions(package)]
    return round(10 * sum(sizes) / len(sizes)) if sizes else 0


def long_functions(package: Iterable[Source]) -> list[str]:
    """Return the functions of more than ``LONG`` lines."""
    return [f"{s.file}:{n.name}" for s, n in functions(package) if lines_of(n) > LONG]


def names_for_nothing(package: list[Source]) -> list[str]:
    """Return the private functions with one reference and at most ``TINY`` statements."""
    words = Counter(word for source in package for word in _PRIVATE.findall(source.text))
    found = []
    for source, node in functions(package):
        name = node.name
        if not name.startswith("_") or name.startswith("__") or words[name] != 2:
            continue
        here = len(re.findall(rf"\b{re.escape(name)}\b", source.text))
        body = node.body[1:] if ast.get_docstring(node) else node.body
        if here == 2 and len(body) <= TINY:
            found.append(f"{source.file}:{name}")
    return found
