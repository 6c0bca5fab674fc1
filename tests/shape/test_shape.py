"""The shape that the house was built for; a number that grows wants a reason, or another room."""

from __future__ import annotations

from tests.shape import figures
from tests.shape.journey import travel

FILES_MAX = 322
FUNCTIONS_MAX = 135
JOURNEY_FILES_MAX = 26
"""Wanted are 75 functions in 15 files; docs/decisions/rooms.md says what stands between."""


def test_there_are_few_files_and_each_is_in_a_room() -> None:
    assert sum(files for files, _ in figures.rooms().values()) <= FILES_MAX


def test_no_integration_is_named_outside_of_its_room() -> None:
    assert figures.names_outside() == []


def test_one_class_name_means_one_thing() -> None:
    assert figures.duplicate_classes() == {}


def test_records_are_told_apart_only_where_they_are_shown() -> None:
    """Whoever else wants to know how an issue stands asks the reducer, ``core.issues``."""
    shown = {"chaos/account.py", "core/history.py", "core/snapshot.py", "demo/account.py"}
    shown |= {"integrations/envelopes/fold.py", "ui/lines.py"}
    assert set(figures.folds()) <= shown


def test_the_next_task_is_not_far_from_a_done() -> None:
    journey = travel()
    assert len(journey.functions) <= FUNCTIONS_MAX, journey.functions
    assert len(journey.files) <= JOURNEY_FILES_MAX, journey.files
