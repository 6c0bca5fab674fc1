"""What runs leave behind, and what a person may still say about it when no fleet runs."""

from __future__ import annotations

from beads_workers.runtime.run_directory import RunDirectory
from tests.end_to_end.conftest import StartFleet
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import call, until


def test_old_runs_go_by_themselves_at_the_next_start(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    (embedded.folder / "beads-workers.toml").write_text("keep_runs = 2\n")
    directory = RunDirectory(embedded.folder / ".beads-workers")
    made = []
    for _ in range(4):
        embedded.create_many([{}])
        words = ("--new-night", "-n", "1", "--until-empty", "--", "echo", "hello")
        fleet = start(embedded, *words)
        assert fleet.wait() == 0, fleet.said()
        made.append(directory.run_ids()[-1])
    until(lambda: directory.run_ids() == made[-2:])


def test_retry_without_a_fleet_ends_the_cooling_down(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    (issue_id,) = embedded.create_many([{}])
    script = "[ -e gate ] || exit 1"
    fleet = start(embedded, "-n", "1", "--retry-delay", "1h", "--", "sh", "-c", script)
    fleet.wait_for("finished")
    until(lambda: fleet.status()["queue"]["retrying"] == 1)
    assert fleet.call("stop").returncode == 0
    assert fleet.wait() == 7, fleet.said()
    (embedded.folder / "gate").touch()
    asked = call(embedded, "retry", issue_id)
    assert asked.returncode == 0, asked.stderr
    again = start(embedded, "-n", "1", "--until-empty", "--", "sh", "-c", script)
    assert again.wait() == 0, again.said()
    assert [r["attempt"] for r in again.journal("started")] == [1]
