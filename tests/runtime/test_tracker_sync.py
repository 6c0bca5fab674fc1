"""The lines of ``[tracker]``: when they run, and what becomes of a run if they fail."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from beads_workers.core.base.settings import TrackerRules
from beads_workers.core.base.source import SourceError
from beads_workers.runtime import tracker_sync
from beads_workers.runtime.tracker_sync import TrackerSync
from tests.support import warm
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import until


class Log:
    """The processes that a later run would wait for."""

    def __init__(self) -> None:
        self.open: list[int] = []

    def started(self, pid: int, start_time: int, argv: list[str]) -> None:
        self.open.append(pid)

    def ended(self, pid: int) -> None:
        self.open.remove(pid)


def lines(folder: Path, before: str, after: str, every: float = 1e9) -> tuple[TrackerSync, Log]:
    rules, log = TrackerRules(before=before, after=after, every_seconds=every), Log()
    return TrackerSync(rules, str(folder), folder / "sync.log", log), log  # type: ignore[arg-type]


def said(folder: Path) -> list[str]:
    return (folder / "said").read_text().split()


def test_before_runs_once_ahead_of_all_and_after_at_the_end(tmp_path: Path) -> None:
    sync, log = lines(tmp_path, "echo before >>said", "echo after >>said")
    for _ in range(3):
        sync.before_taking()
    assert said(tmp_path) == ["before"]
    assert sync.at_the_end() == "" and log.open == []
    assert said(tmp_path) == ["before", "after"]


def test_both_run_again_when_their_time_has_come(tmp_path: Path) -> None:
    sync, _ = lines(tmp_path, "echo before >>said", "echo after >>said", every=0.0)
    for _ in range(3):
        sync.before_taking()
    assert said(tmp_path) == ["before", "after", "before", "after", "before"]


def test_a_line_that_fails_is_tried_again_and_says_why(tmp_path: Path) -> None:
    sync, log = lines(tmp_path, "echo; echo 'no network' >&2; exit 3", "echo after >>said")
    for _ in range(2):
        with pytest.raises(SourceError, match="before: exit 3: no network"):
            sync.before_taking()
    assert sync.at_the_end() == "" and not (tmp_path / "said").exists() and log.open == []


def test_a_line_that_hangs_is_ended_with_all_that_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracker_sync, "LINE_SECONDS", 1.0)
    sync, log = lines(tmp_path, "sleep 1000 & echo $! >pid; wait", "true")
    with pytest.raises(SourceError, match="longer than"):
        sync.before_taking()
    assert log.open == []
    stat = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    until(lambda: not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "ZX")


def test_a_line_ends_with_its_run_and_none_begins_after_that(tmp_path: Path) -> None:
    sync, log = lines(tmp_path, "echo $$ >pid; sleep 1000", "echo after >>said")
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(sync.before_taking)
        until(lambda: (tmp_path / "pid").exists())
        sync.stop()
        with pytest.raises(SourceError):
            ended.result(10)
    assert log.open == []
    sync.before_taking()
    assert sync.at_the_end() == "" and not (tmp_path / "said").exists()


def test_a_fleet_works_on_what_before_brings_and_after_sees_it_closed(tmp_path: Path) -> None:
    project = EmbeddedProject(tmp_path)
    ours = f"{sys.executable} -m beads_workers"
    row = '{"id": "p-7", "title": "from elsewhere", "issue_type": "task"}'
    (project.folder / "theirs.jsonl").write_text(row)
    (project.folder / "beads-workers.toml").write_text(
        f"""[tracker]
before = "{ours} import theirs.jsonl"
after = "{ours} list --all --json >told.json"
"""
    )
    words = ("start", "-n", "1", "--until-empty", "--trust", "--", "true")
    done = warm.run(words, project.folder, project.environment, 60)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert '"closed"' in (project.folder / "told.json").read_text()


def test_a_fleet_tells_that_after_has_failed(tmp_path: Path) -> None:
    project = EmbeddedProject(tmp_path)
    project.create_many([{}])
    text = '[tracker]\nafter = "echo no network >&2; false"\n'
    (project.folder / "beads-workers.toml").write_text(text)
    words = ("start", "-n", "1", "--until-empty", "--trust", "--", "true")
    done = warm.run(words, project.folder, project.environment, 60)
    assert "[tracker] after: exit 1: no network" in done.stdout + done.stderr
    report = warm.run(("report", "--json"), project.folder, project.environment, 60)
    assert "no network" in report.stdout
