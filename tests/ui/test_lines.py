"""Plain lines: what is said of which record, and when."""

from __future__ import annotations

import time

import pytest

from beads_workers.core.journal import KINDS, Entry, Noted
from beads_workers.ui.lines import SILENT, line
from tests.core.test_journal import bare, filled


@pytest.mark.parametrize("kind", sorted(SILENT))
def test_what_readers_pass_over_unread_would_have_said_nothing(kind: str) -> None:
    for make in (bare, filled):
        assert line(Entry(make(KINDS[kind]), 1.0, 2.0)) is None


def test_each_line_begins_with_its_own_second() -> None:
    for at in (1_700_000_000.999, 1_700_000_001.0, 1_700_000_000.0, 1_700_086_400.5):
        clock = time.strftime("%H:%M:%S", time.localtime(at))
        assert line(Entry(Noted("info", "x"), at, 2.0)) == f"{clock}      info: x"
