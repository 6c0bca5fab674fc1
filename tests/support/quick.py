"""``scripts/test --quick``: leaves out what needs a built ``bd``, a peer or a whole fleet.

A plugin (``pytest -p tests.support.quick``), so that no test has to know about it.
"""

from __future__ import annotations

import re

import pytest

REAL = (
    frozenset({"project", "project_old", "project_new", "daemon"})
    | {"redis", "durable_redis", "nodes"}
    | {"lonely_postgres", "postgres", "postgres_server"}
)
"""Fixtures of ``tests.support.bd``, ``peers`` and ``postgres``, and of Redis' cluster."""


def needs_much(item: pytest.Item) -> bool:
    """Whether a test runs a real ``bd``, a peer (marker ``peers``), or everything together."""
    fixtures = set(getattr(item, "fixturenames", ()))
    parameters = item.name.partition("[")[2]
    return (
        item.nodeid.startswith("tests/end_to_end/")
        or bool(fixtures & REAL)
        or re.search(r"\b(bd|gh|gitea|postgres)\b", parameters) is not None
        or item.get_closest_marker("peers") is not None
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect them, so that the summary says how many were left out."""
    left_out = [item for item in items if needs_much(item)]
    items[:] = [item for item in items if item not in set(left_out)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
