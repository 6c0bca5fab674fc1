"""Pieces of an HTML page that cannot be broken by what they are given.

Everything that is text goes through ``el``: control and bidi characters become visible, and the
serializer escapes the rest. There is no way to add markup as text; style and script are ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from xml.etree.ElementTree import Element, tostring

from beads_workers.core.text import printable

Child = Element | str | None


def el(tag: str, *children: Child, **attributes: str | float | None) -> Element:
    """An element. ``class_`` and ``for_`` lose the underscore, other ones become dashes.

    None stands for nothing, as a child and as an attribute.
    """
    node = Element(tag)
    for name, value in attributes.items():
        if value is not None:
            node.set(name.rstrip("_").replace("_", "-"), _attribute(value))
    add(node, children)
    return node


def add(node: Element, children: Iterable[Child]) -> Element:
    """Put children into an element, in order; returns it."""
    for child in children:
        if child is None:
            continue
        if isinstance(child, Element):
            node.append(child)
        elif len(node):
            node[-1].tail = (node[-1].tail or "") + printable(child)
        else:
            node.text = (node.text or "") + printable(child)
    return node


def own(tag: str, text: str) -> Element:
    """A ``style`` or ``script`` of ours, written as it is: never anything from outside."""
    assert f"</{tag}" not in text, "it would end in its middle"
    node = Element(tag)
    node.text = text
    return node


def foreign(text: str, width: int) -> Element:
    """Text from issues and errors, cut to ``width`` columns; its direction stays its own."""
    return el("bdi", printable(text, width))


def number(value: float) -> str:
    """As short as it may be in an attribute."""
    return f"{value:.3f}".rstrip("0").rstrip(".") or "0"


def percent(part: float, whole: float) -> str:
    """A length in SVG, as a share of what it lies in."""
    return number(100.0 * part / whole if whole else 0.0) + "%"


def bar(parts: Iterable[tuple[str, float]], whole: float, height: int = 12) -> Element:
    """One horizontal bar of parts, each with a class of its own; no text of its own."""
    svg = el("svg", class_="bar-line", width="100%", height=height, aria_hidden="true")
    at = 0.0
    for name, value in parts:
        if value:
            svg.append(
                el("rect", class_=name, x=percent(at, whole), width=percent(value, whole),
                   height=height)
            )  # fmt: skip
        at += value
    return svg


def table(name: str, heads: Iterable[Child], rows: Iterable[Element]) -> Element:
    """A table in a box of its own, which scrolls where the screen is too narrow.

    A heading stands over its column as the cells of the first row do.
    """
    body = add(el("tbody"), rows)
    kinds = [cell.get("class") for cell in body[0]] if len(body) else []
    aligned = zip_longest(heads, kinds)
    head = el("tr", *(el("th", h, scope="col", class_=kind) for h, kind in aligned))
    return el("div", el("table", el("thead", head), body), class_=f"scroll {name}")


def render(root: Element) -> str:
    """The document's text."""
    return "<!DOCTYPE html>\n" + tostring(root, encoding="unicode", method="html") + "\n"


def _attribute(value: str | float) -> str:
    return printable(value) if isinstance(value, str) else number(value)
