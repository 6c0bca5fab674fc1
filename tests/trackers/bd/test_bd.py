"""What is particular to ``bd``, against the real one: grouping, claims, untrusted text, leases.

What every source promises is in ``tests/contracts``.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from beads_workers.core.base.model import Filters, IssueId, Job
from beads_workers.core.base.source import Action, CrashedRun, Result, Settled, Settlement
from beads_workers.trackers.bd.source import BdSource
from tests.support.bd import OLD, BdProject

pytestmark = pytest.mark.daily(3)

US = "beads-workers/host/run-1"
THEM = "beads-workers/host/run-2"

NASTY = [
    "plain",
    "quo\"tes \\ and 'single'",
    "$(touch x) `touch x` ; touch x",
    "--help",
    "line\nbreak\tand \x1b[31mred\x1b[0m",
    "é ☃ 🐚 %s {} {title}",
    "x" * 400,
]


def results(answers: list[Settled]) -> list[Result]:
    return [answer.result for answer in answers]


def closes(jobs: tuple[Job, ...]) -> list[Settlement]:
    return [Settlement(Action.CLOSE, job.issue_id, f"{job.title} is done") for job in jobs]


def test_it_says_version_mode_place_and_prefix(project: BdProject) -> None:
    mode = "without daemon" if project.version == OLD else "embedded"
    description = project.source(US).describe()
    assert description == f"bd {project.version}, {mode}, {project.folder}/.beads (prefix bw)"


def test_one_call_tells_the_same_abilities_as_many(project: BdProject, tmp_path: Path) -> None:
    without = tmp_path / "bd"
    without.write_text(f'#!/bin/sh\n[ "$2" = --all ] && exit 1\nexec {project.directory}/bd "$@"\n')
    without.chmod(0o755)
    many = project.source(US, program=str(without))
    few = project.source(US, program=str(project.directory / "bd"))
    assert few.abilities == many.abilities
    assert many.calls.count == 6
    assert few.calls.count == (6 if project.version == OLD else 2)


@pytest.mark.parametrize("reference", ["", "# bd\n### bd update\n  --claim\n", "## x\n## x\n"])
def test_a_reference_of_another_form_is_not_believed(
    project_new: BdProject, tmp_path: Path, reference: str
) -> None:
    (tmp_path / "reference").write_text(reference)
    strange = tmp_path / "bd"
    strange.write_text(
        f'#!/bin/sh\n[ "$2" = --all ] && exec cat {tmp_path}/reference\n'
        f'exec {project_new.directory}/bd "$@"\n'
    )
    strange.chmod(0o755)
    assert project_new.source(US, program=str(strange)).abilities.leases


def test_bd_is_found_on_the_path(project: BdProject, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in project.environment.items():
        monkeypatch.setenv(name, value)
    source = BdSource(project.folder, actor=US, filters=Filters(), listed_max=10)
    assert source.describe().startswith(f"bd {project.version}")
    assert source.self_claiming


def test_a_group_costs_a_handful_of_calls_however_large_it_is(project: BdProject) -> None:
    project.create_many([{}] * 8)
    source = project.source(US)
    source.describe()
    before = source.calls.count
    jobs = source.take(8, ()).jobs
    assert results(source.settle(closes(jobs))) == [Result.APPLIED] * 8
    # Where there is no batch, each reason of its own costs a call.
    assert source.calls.count - before == (12 if project.version == OLD else 3)


def test_text_from_issues_is_never_run_and_never_an_option(project: BdProject) -> None:
    project.create_many(
        [{"title": text, "description": text, "labels": ["a,b", 'c"d']} for text in NASTY]
    )
    source = project.source(US, Filters(labels=("a,b", 'c"d')))
    jobs = source.take(10, ()).jobs
    assert {job.description for job in jobs} == set(NASTY)
    assert {job.labels for job in jobs} == {("a,b", 'c"d')}
    half = [Settlement(Action.QUARANTINE, job.issue_id, job.description) for job in jobs[:3]]
    assert results(source.settle([*half, *closes(jobs[3:])])) == [Result.APPLIED] * len(NASTY)
    assert all(job.description in project.notes(job.issue_id) for job in jobs[:3])
    assert not (project.folder / "x").exists()


def test_a_note_is_added_to_the_notes_that_are_there(project: BdProject) -> None:
    (key,) = project.create_many([{"notes": "a person wrote this"}])
    source = project.source(US)
    source.take(1, ())
    quarantined = Settlement(Action.QUARANTINE, key, "--failed\0 three times\n" + "x" * 3000)
    assert results(source.settle([quarantined])) == [Result.APPLIED]
    notes = project.show(key)["notes"]
    assert notes.startswith("a person wrote this\n--failed  three times\nxxx")
    assert len(notes) < 2100


@pytest.mark.parametrize("issue_id", ["--all", "-f", "a b", "../x", "", "a,b", "a\nb"])
def test_an_id_that_bd_would_not_give_reaches_no_command(tmp_path: Path, issue_id: str) -> None:
    # There is no such program: any call would raise.
    source = BdSource(tmp_path, actor=US, filters=Filters(), listed_max=9, program="no-such-bd")
    answers = source.settle([Settlement(Action.CLOSE, IssueId(issue_id))])
    assert results(answers) == [Result.NOT_OURS] and source.calls.count == 0


def test_a_worker_that_acts_by_the_text_can_claim_and_close_after_a_hand_over(
    project: BdProject,
) -> None:
    closed, begun, stolen = project.create_many([{}] * 3)
    source = project.source(US)
    assert len(source.take(3, ()).jobs) == 3
    over = [Settlement(Action.HAND_OVER, key) for key in (closed, begun, stolen)]
    assert results(source.settle(over)) == [Result.APPLIED] * 3
    project.bd("update", "--claim", stolen, actor="alice", check=False)
    for key in (closed, begun):
        project.bd("update", key, "--status=in_progress", actor=f"{US}/W3")
    project.bd("close", closed, actor=f"{US}/W3")
    assert project.read(stolen)[1] != "alice"
    settlements = [
        Settlement(action, key, read_first=True, handed_over=True)
        for action, key in zip(
            (Action.CLOSE, Action.RELEASE, Action.QUARANTINE), (closed, begun, stolen), strict=True
        )
    ]
    answers = results(source.settle(settlements))
    assert answers == [Result.FOUND_CLOSED, Result.APPLIED, Result.APPLIED]
    assert project.read(begun) == ("open", "")
    assert project.read(stolen) == ("blocked", "")


def test_what_was_closed_behind_our_back_keeps_its_reason_and_does_not_spoil_the_group(
    project: BdProject,
) -> None:
    ours, closed, deleted = project.create_many([{}] * 3)
    source = project.source(US)
    assert len(source.take(3, ()).jobs) == 3
    project.bd("close", closed, "--reason=by the agent", actor=US)
    project.bd("delete", deleted, "--force")
    found = results(source.settle([Settlement(Action.CLOSE, k) for k in (ours, closed, deleted)]))
    assert found == [Result.APPLIED, Result.FOUND_CLOSED, Result.NOT_OURS]
    assert project.read(ours)[0] == "closed"
    assert project.show(closed)["close_reason"] == "by the agent"


def test_a_lost_release_is_seen_for_what_it_is(project: BdProject) -> None:
    closed, opened, stolen = project.create_many([{}] * 3)
    source = project.source(US)
    assert len(source.take(3, ()).jobs) == 3
    project.bd("close", closed, actor=US)
    project.put(opened, "open", "")
    project.put(stolen, "in_progress", "alice")
    found = results(
        source.settle([Settlement(Action.RELEASE, k) for k in (closed, opened, stolen)])
    )
    assert found == [Result.FOUND_CLOSED, Result.APPLIED, Result.NOT_OURS]
    assert project.read(stolen) == ("in_progress", "alice")


def test_two_words_about_one_issue_are_obeyed_in_order(project: BdProject) -> None:
    (key,) = project.create_many([{}])
    source = project.source(US)
    source.take(1, ())
    first, second = Settlement(Action.RELEASE, key), Settlement(Action.QUARANTINE, key, "x")
    assert results(source.settle([first, second])) == [Result.APPLIED] * 2
    assert project.read(key) == ("blocked", "")


def test_unwanted_rows_do_not_hide_wanted_ones(project: BdProject) -> None:
    keys = project.create_many(
        [{"priority": 0, "status": "in_progress", "assignee": "alice"}] * 12
        + [{"priority": 0, "assignee": "alice"}] * 12
        + [{"priority": 4, "labels": ["rare"]}]
    )
    answer = project.source(US, listed_max=3).take(0, ())
    assert [row.issue_id for row in answer.listed] == [keys[-1]]
    assert not answer.more


def test_a_young_listing_serves_a_second_claim_only_where_claims_are_safe(
    project: BdProject,
) -> None:
    keys = project.create_many([{"priority": 0}, {"priority": 1}, {"priority": 2}])
    # Young for as long as a slow machine needs for the calls in between.
    source = project.source(US, reuse_seconds=60.0)
    assert [job.issue_id for job in source.take(1, ()).jobs] == keys[:1]
    project.bd("close", keys[1])
    second = [job.issue_id for job in source.take(1, ()).jobs]
    # Here the claim refuses what is closed; there it would reopen it, so it was listed anew.
    assert second == (keys[2:] if project.version == OLD else [])
    assert project.read(keys[1])[0] == "closed"


def test_of_two_runs_that_race_each_issue_goes_to_one(project_new: BdProject) -> None:
    project_new.create_many([{}] * 6)
    sources = [project_new.source(actor) for actor in (US, THEM)]
    for source in sources:
        source.describe()
    barrier = threading.Barrier(2)
    won: dict[str, list[IssueId]] = {}

    def race(source: BdSource) -> None:
        barrier.wait()
        won[source.actor] = [job.issue_id for job in source.take(6, ()).jobs]

    threads = [threading.Thread(target=race, args=(source,)) for source in sources]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted([*won[US], *won[THEM]]) == sorted(project_new.read_all())
    assert all(
        held == ("in_progress", US if key in won[US] else THEM)
        for key, held in project_new.read_all().items()
    )


def test_recovery_takes_back_what_workers_of_the_crashed_run_hold(project: BdProject) -> None:
    ours, workers, opened, strangers = project.create_many(
        [
            {"status": "in_progress", "assignee": US},
            {"status": "in_progress", "assignee": f"{US}/W3"},
            {"status": "open", "assignee": US},
            {"status": "in_progress", "assignee": "alice"},
        ]
    )
    answers = project.source(THEM).recover(CrashedRun(US, unclosed=(ours, strangers)))
    settled = {a.settlement.issue_id: (a.settlement.action, a.result) for a in answers}
    assert settled == {
        ours: (Action.CLOSE, Result.APPLIED),
        strangers: (Action.CLOSE, Result.NOT_OURS),
        workers: (Action.RELEASE, Result.APPLIED),
        opened: (Action.RELEASE, Result.APPLIED),
    }
    assert project.read_all() == {
        ours: ("closed", US),
        workers: ("open", ""),
        opened: ("open", ""),
        strangers: ("in_progress", "alice"),
    }


def test_the_json_lines_of_the_old_bd_are_complete_in_the_end(project_old: BdProject) -> None:
    project_old.create_many([{}] * 6)
    sources = [project_old.source(actor) for actor in (US, THEM)]

    def drain(source: BdSource) -> None:
        while jobs := source.take(2, ()).jobs:
            source.settle(closes(jobs))

    threads = [threading.Thread(target=drain, args=(source,)) for source in sources]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for source in sources:
        source.close()
    lines = (project_old.folder / ".beads" / "issues.jsonl").read_text().splitlines()
    assert len(lines) == 6
    assert {json.loads(line)["status"] for line in lines} == {"closed"}
    assert {status for status, _ in project_old.read_all().values()} == {"closed"}


def test_the_daemon_of_the_old_bd_is_used_where_it_runs(
    project_old: BdProject, daemon: int
) -> None:
    keys = [project_old.create(f"number {number}") for number in range(3)]
    source = project_old.source(US)
    assert "with its daemon" in source.describe()
    assert source.self_claiming_argv == (str(project_old.directory / "bd"),)
    project_old.put(keys[0], "in_progress", "alice")
    jobs = source.take(5, ()).jobs
    assert [job.issue_id for job in jobs] == keys[1:]
    assert results(source.settle(closes(jobs))) == [Result.APPLIED] * 2
    assert project_old.read(keys[0]) == ("in_progress", "alice")


def test_no_daemon_is_left_behind(project_old: BdProject) -> None:
    source = project_old.source(US)
    source.describe()
    source.take(1, ())
    source.close()
    assert not (project_old.folder / ".beads" / "daemon.pid").exists()
