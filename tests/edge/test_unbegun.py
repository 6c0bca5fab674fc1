"""What workers say of tasks that they had for later, where only a file can still be told."""

from __future__ import annotations

from pathlib import Path

from beads_workers.edge.unbegun import FILE, leave_unbegun, unbegun_of


def test_what_is_left_is_found_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    assert unbegun_of(tmp_path) == frozenset()
    for request_id in ("run.1", "run.2", "run.2"):
        leave_unbegun(str(tmp_path), request_id)
    assert unbegun_of(tmp_path) == {"run.1", "run.2"}
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_a_folder_that_is_gone_and_nonsense_harm_nobody(tmp_path: Path) -> None:
    leave_unbegun(str(tmp_path / "gone"), "run.1")
    assert not (tmp_path / "gone").exists()
    (tmp_path / FILE).write_bytes(b"\xff\x00 run.1\n\nrun")
    assert "run.1" in unbegun_of(tmp_path)
