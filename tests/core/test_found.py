"""Which tasks a filter means."""

from __future__ import annotations

from typing import Any

import pytest

from beads_workers.core.schedule.events import TaskFilter

MESSAGE = {"uuid": "u1", "task": "shop.add", "args": [1, 2], "kwargs": {"c": 3}, "channel": "x"}


@pytest.mark.parametrize(
    ("data", "meant"),
    [
        ({}, True),
        ({"task": "", "args": [], "kwargs": {}, "uuid": None}, True),
        ({"task": "shop.add"}, True),
        ({"task": "shop.ad"}, False),
        ({"uuid": "u1", "task": "shop.add"}, True),
        ({"uuid": "u2", "task": "shop.add"}, False),
        ({"args": [1, 2]}, True),
        ({"args": [1]}, False),
        ({"kwargs": {"c": 3}}, True),
        ({"kwargs": {"c": 4}}, False),
        ({"channel": "another", "limit": 3}, True),
    ],
)
def test_a_task_is_meant_when_all_that_is_said_is_equal(data: dict[str, Any], meant: bool) -> None:
    assert TaskFilter.from_data(data).matches(MESSAGE) is meant


def test_what_a_task_has_not_is_not_equal_to_anything() -> None:
    assert not TaskFilter.from_data({"args": [1]}).matches({"task": "shop.add"})
