"""What the last run wrote down, for the check of the clock."""

from __future__ import annotations

import time
from pathlib import Path

from beads_workers.checks.leftovers import last_seen
from beads_workers.core.records import journal as rec
from beads_workers.runtime.journal import Journal
from beads_workers.runtime.run_directory import RunDirectory


def test_the_last_record_of_the_last_run_says_when_it_was_seen(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    assert last_seen(tmp_path) is None
    directory.create()
    run_id, _ = directory.create_run()
    journal = Journal(directory.run(run_id) / "journal.jsonl")
    began = time.time()
    journal.append(rec.Noted("info", "x"))
    journal.flush()
    with journal.path.open("ab") as file:
        file.write(b'{"v":1,"e":"noted","t":99')  # Cut off by a crash.
    seen = last_seen(tmp_path)
    assert seen is not None and began - 1 <= seen <= time.time() + 1
