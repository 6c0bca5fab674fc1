"""Families of figures as Prometheus' text format 0.0.4, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from beads_workers.core.values import value

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]


@value
class Sample:
    """One line. ``suffix`` follows the family's name: ``_bucket``, ``_sum``, ``_count``."""

    value: float
    labels: Labels = ()
    suffix: str = ""


@value
class Family:
    """One metric with all its samples. ``kind``: ``counter``, ``gauge`` or ``histogram``."""

    name: str
    kind: str
    help: str
    samples: tuple[Sample, ...]


def to_text(families: Iterable[Family]) -> str:
    """The whole answer to a scrape."""
    return "".join(line + "\n" for family in families for line in _lines(family))


def to_json(families: Iterable[Family]) -> list[dict[str, Any]]:
    """The same for programs; infinity is the text ``+Inf`` there, as in the labels."""
    return [
        {
            "name": family.name,
            "type": family.kind,
            "help": family.help,
            "samples": [
                {"name": family.name + s.suffix, "labels": dict(s.labels), "value": s.value}
                for s in family.samples
            ],
        }
        for family in families
    ]


def from_json(value: list[dict[str, Any]]) -> list[Family]:
    """Read back what ``to_json`` gave; for a client of the fleet that said it."""
    return [
        Family(
            each["name"],
            each["type"],
            each["help"],
            tuple(
                Sample(
                    sample["value"],
                    tuple(sample["labels"].items()),
                    sample["name"].removeprefix(each["name"]),
                )
                for sample in each["samples"]
            ),
        )
        for each in value
    ]


def _lines(family: Family) -> Iterator[str]:
    told = family.help.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {family.name} {told}"
    yield f"# TYPE {family.name} {family.kind}"
    for sample in family.samples:
        inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels)
        labels = f"{{{inside}}}" if inside else ""
        yield f"{family.name}{sample.suffix}{labels} {number(sample.value)}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def number(value: float) -> str:
    """A value as the format writes it: ``3``, ``0.25``, ``+Inf``, ``NaN``."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(int(value)) if value == int(value) and abs(value) < 1 << 53 else repr(float(value))
