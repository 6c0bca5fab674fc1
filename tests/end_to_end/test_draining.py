"""The main job: a fleet drains a backlog, each command exactly once, in the right order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import Ran, StartFleet
from tests.support.bd import NEW, BdProject
from tests.support.fleet import call, until


def backlog(count: int) -> list[dict[str, Any]]:
    """Every third issue waits for the one before it, and every ninth for one far ahead too."""
    rows = []
    for number in range(1, count + 1):
        row: dict[str, Any] = {"priority": (number * 7) % 5}
        blockers = [number - 1] if number % 3 == 0 else []
        blockers += [number - 8] if number % 9 == 0 else []
        row["dependencies"] = [
            {
                "issue_id": f"bw-{number}",
                "depends_on_id": f"bw-{blocker}",
                "type": "blocks",
                "created_at": "2026-01-02T03:04:05Z",
                "created_by": "tester",
            }
            for blocker in blockers
        ]
        rows.append(row)
    return rows


def blockers_of(rows: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    return {
        f"bw-{number}": [d["depends_on_id"] for d in row["dependencies"]]
        for number, row in enumerate(rows, 1)
    }


def assert_no_dependency_was_early(ran: Ran, rows: Sequence[dict[str, Any]]) -> None:
    lines = ran.lines()
    for issue_id, blockers in blockers_of(rows).items():
        for blocker in blockers:
            assert lines.index(("end", blocker)) < lines.index(("begin", issue_id))


def all_closed(project: Any) -> bool:
    return {status for status, _ in project.read_all().values()} == {"closed"}


@pytest.mark.timeout(180)
def test_every_issue_is_run_exactly_once_in_order_and_closed(
    any_project: Any, start: StartFleet, ran: Ran
) -> None:
    rows = backlog(18 if getattr(any_project, "version", "") == NEW else 60)
    ids = any_project.create_many(rows)
    fleet = start(
        any_project, "-n", "8", "--until-empty", "--", *ran.command(), environment=ran.environment
    )
    assert fleet.wait(120) == 0, fleet.said()
    ran.each_once(ids)
    assert all_closed(any_project)
    assert_no_dependency_was_early(ran, rows)
    free = {issue_id for issue_id, blockers in blockers_of(rows).items() if not blockers}
    priority_of = dict(zip(ids, (row["priority"] for row in rows), strict=True))
    sent = [r["issue_id"] for r in fleet.journal("started") if r["issue_id"] in free]
    assert [priority_of[i] for i in sent] == sorted(priority_of[i] for i in sent)
    # Eight that were sent one after the other may begin in any order among themselves.
    began = [priority_of[i] for i in ran.begun() if i in free]
    for place, priority in enumerate(began):
        assert sum(later < priority for later in began[place + 1 :]) < 8
    assert f"closed {len(ids)}, failed attempts 0" in fleet.output
    fleet.leaves_nothing()


@pytest.mark.timeout(240)
def test_four_workers_in_bash_beside_four_of_ours_share_the_work(
    any_project: Any, start: StartFleet, ran: Ran
) -> None:
    rows = backlog(9 if hasattr(any_project, "bd") else 60)
    ids = any_project.create_many(rows)
    command = ran.command("sleep 0.1")
    fleet = start(
        any_project, "-n", "0", "--until-empty", "--", *command, environment=ran.environment
    )
    any_project.environment = {**any_project.environment, **ran.environment}
    for _ in range(4):
        fleet.bash_worker(*command)
    until(lambda: len(fleet.journal("worker_joined")) == 4, what=fleet.said())
    until(lambda: fleet.journal("started") != [], what=fleet.said())
    assert call(any_project, "scale", "4").returncode == 0
    assert fleet.wait(180) == 0, fleet.said()
    assert fleet.bash_workers_left() == [0, 0, 0, 0]
    ran.each_once(ids)
    assert all_closed(any_project)
    assert_no_dependency_was_early(ran, rows)
    strangers = {r["worker_id"] for r in fleet.journal("worker_joined") if not r.get("own", True)}
    assert len(strangers) == 4
    assert strangers & {r["worker_id"] for r in fleet.journal("finished")}
    fleet.leaves_nothing()


@pytest.mark.timeout(180)
def test_workers_that_call_bd_themselves_do_the_same(
    bd_project: BdProject, start: StartFleet, ran: Ran
) -> None:
    rows = backlog(6)
    ids = bd_project.create_many(rows)
    fleet = start(
        bd_project,
        *("-n", "4", "--until-empty", "--bd-calls", "worker", "--"),
        *ran.command(),
        environment=ran.environment,
    )
    assert fleet.wait(150) == 0, fleet.said()
    ran.each_once(ids)
    assert all_closed(bd_project)
    assert_no_dependency_was_early(ran, rows)
    fleet.leaves_nothing()


HORRORS = (
    'it\'s "quoted" `touch x` $(touch x) ; touch x | touch x && touch x',
    "--help",
    "-n 99 -- rm -rf",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 bell \x9b31m",
    "new\nlines\r\nand\ttabs",
    "right-to-left \u202egnp.exe, zero\u200bwidth, \U0001f4a9",
    "{id} {title} %s %(x)s ${HOME} ~ * ? [a-z] \\n",
    "x" * 10_000,
)


def test_no_title_is_executed_or_breaks_the_screen(
    either_project: Any, start: StartFleet, ran: Ran, tmp_path: Path
) -> None:
    # What a tracker does not take as a title, it gets as a description.
    fits = [t for t in HORRORS if not hasattr(either_project, "bd") or _fits_bd(t)]
    rows = [{"title": t, "description": t} for t in fits]
    rows += [{"title": f"long {n}", "description": t} for n, t in enumerate(HORRORS)]
    ids = either_project.create_many(rows)
    fleet = start(
        either_project,
        *("-n", "4", "--until-empty", "--"),
        *("sh", "-c", 'printf "begin %s\\nend %s\\n" "$1" "$1" >>"$RAN"; echo "$BW_ISSUE_TITLE"'),
        *("sh", "{id}", "{title}"),
        environment=ran.environment,
    )
    assert fleet.wait(90) == 0, fleet.said()
    ran.each_once(ids)
    assert not list(either_project.folder.rglob("x")) and not (tmp_path / "x").exists()
    shown = [fleet.output, fleet.errors]
    for arguments in (("status",), ("logs",)):
        done = fleet.call(*arguments)
        shown += [done.stdout, done.stderr]
    if not hasattr(either_project, "bd"):
        shown += [fleet.call("list", "--all").stdout, fleet.call("show", ids[3]).stdout]
    for text in shown:
        assert not set(text) & set("\x1b\x07\x9b\r\u202e"), ascii(text)
    assert max(len(line) for line in fleet.output.splitlines()) < 400


def _fits_bd(title: str) -> bool:
    return len(title) <= 500
