"""Import circles: modules of the package that need each other, at whatever time.

An edge is any import: under ``TYPE_CHECKING`` and inside of functions, too. ``from package import
module`` is an edge to that module, ``from module import name`` one to the module. Doors that are
named by a text (``Late("module:function")``) are no edges: nothing there knows what it will load.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping

from tests.shape.figures import Source


def circles(package: Iterable[Source]) -> list[list[str]]:
    """Return the modules of each circle; the largest first."""
    known = {_name(source.file): source for source in package}
    return circles_of({name: edges(name, source, known) for name, source in known.items()})


def edges(name: str, source: Source, known: Collection[str]) -> set[str]:
    """Return the modules of ours that this one imports anywhere."""
    package = name if source.file.endswith("__init__.py") else name.rpartition(".")[0]
    return {each for each in _imported(source.tree, package, known) if each in known} - {name}


def _imported(module: ast.AST, package: str, known: Collection[str]) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            up = package.split(".")[: len(package.split(".")) + 1 - node.level]
            origin = ".".join(
                [*(up if node.level else []), *([node.module] if node.module else [])]
            )
            for alias in node.names:
                inner = f"{origin}.{alias.name}"
                yield inner if inner in known else origin


def circles_of(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one node (Tarjan)."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = lowest[node] = len(index)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in index:
                visit(other)
                lowest[node] = min(lowest[node], lowest[other])
            elif other in stack:
                lowest[node] = min(lowest[node], index[other])
        if lowest[node] == index[node]:
            at = stack.index(node)
            component = sorted(stack[at:])
            del stack[at:]
            if len(component) > 1:
                found.append(component)

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return sorted(found, key=lambda component: (-len(component), component))


def _name(file: str) -> str:
    pieces = ["beads_workers", *file.removesuffix(".py").split("/")]
    return ".".join(pieces[:-1] if pieces[-1] == "__init__" else pieces)


def short(circle: Iterable[str]) -> str:
    """``room: module module`` for the modules of one room, else all of their names."""
    rooms = {name.rpartition(".")[0].removeprefix("beads_workers.") for name in circle}
    if len(rooms) > 1:
        return " ".join(circle)
    return f"{rooms.pop()}: " + " ".join(name.rpartition(".")[2] for name in circle)


def is_part(circle: Iterable[str], known: str) -> bool:
    """Return whether all modules of this circle stand in one that is known (as in ``short``)."""
    room, _, modules = known.partition(": ")
    names = {f"beads_workers.{room}.{name}" for name in modules.split()}
    return set(circle) <= names
