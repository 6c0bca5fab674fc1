"""The proof of trust itself: one case of each kind, and that a weakness is seen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.proof.lost_folders import EMBEDDED, READ_ONLY, tried
from tests.proof.second_user import WAYS, Attacked

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount, and be two users")


def test_a_fleet_on_a_disk_that_the_kernel_gives_up_says_so_and_ends(tmp_path: Path) -> None:
    assert tried(tmp_path, EMBEDDED, READ_ONLY) == []


def test_a_second_user_gets_nothing_and_would_if_it_lay_open() -> None:
    attacked, way = Attacked(), "all files of the project"
    try:
        assert WAYS[way](attacked, way) == []
        state = attacked.folder / ".beads-workers"
        state.chmod(0o755)
        (state / "web.json").chmod(0o644)
        broken = WAYS[way](attacked, way)
        assert broken == [f"it has {attacked.page['key']}", f"it has {attacked.token}"]
    finally:
        attacked.close()
