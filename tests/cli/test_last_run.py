"""How the last run ended: what it wrote down itself says the same as its journal."""

from __future__ import annotations

import os
from pathlib import Path

from beads_workers.cli.last_run import last_run
from tests.support import warm


def run(folder: Path, *arguments: str) -> None:
    """A command of ours, as a person would give it."""
    warm.run(arguments, folder, {**os.environ, "XDG_RUNTIME_DIR": str(folder)}, timeout=60)


def test_what_a_run_wrote_at_its_end_is_what_its_journal_says(tmp_path: Path) -> None:
    run(tmp_path, "init")
    run(tmp_path, "add", "fails", "--", "false")
    run(tmp_path, "add", "succeeds", "--", "true")
    run(tmp_path, "start", "-n", "1", "--until-empty", "--max-attempts", "1")
    directory = tmp_path / ".beads-workers"
    (written,) = directory.glob("runs/*/ended.json")
    quick = last_run(directory)
    assert quick is not None
    assert (quick["closed"], quick["failed"], quick["exit_code"]) == (1, 1, 7)
    assert [row["attempts"] for row in quick["quarantined"]] == [1]
    written.write_text("torn")
    told = last_run(directory)
    assert told is not None
    # The journal rounds its times to milliseconds.
    for key in ("began_at", "ended_at"):
        assert abs(told.pop(key) - quick.pop(key)) < 0.003
    assert told == quick


def test_without_a_run_there_is_nothing_to_tell(tmp_path: Path) -> None:
    assert last_run(tmp_path) is None
