"""Who closed an issue that an agent works on: only its own close does not count."""

from __future__ import annotations

from pathlib import Path

import pytest

from beads_workers.core.base.model import IssueId
from beads_workers.core.base.source import Action, CrashedRun, Result, Settlement
from beads_workers.trackers.bd.source import BdSource
from tests.support.bd import NEW, OLD, BdProject

pytestmark = pytest.mark.daily(3)

US, ALICE = "beads-workers/host/run-1", "alice"


def claimed(project: BdProject, source: BdSource, count: int = 1) -> list[IssueId]:
    """So many issues, in our name."""
    project.create_many([{}] * count)
    return [job.issue_id for job in source.take(count, frozenset()).jobs]


def asked(issue_id: IssueId, action: Action = Action.RELEASE) -> Settlement:
    return Settlement(action, issue_id, "receipt", read_first=True, by_agent=True)


def agent(issue_id: IssueId) -> str:
    return f"{US}/{issue_id}"


@pytest.mark.parametrize("action", [Action.RELEASE, Action.QUARANTINE, Action.CLOSE])
def test_what_a_person_closed_stays_closed_with_its_reason(
    project: BdProject, action: Action
) -> None:
    source = project.source(US)
    (issue,) = claimed(project, source)
    project.close_as(issue, ALICE)
    (answer,) = source.settle([asked(issue, action)])
    assert answer.result is Result.FOUND_CLOSED
    assert project.read(issue)[0] == "closed"
    assert project.show(issue)["close_reason"] == "all done"


def test_what_its_own_agent_closed_may_land_and_what_a_person_closed_may_not(
    project: BdProject,
) -> None:
    source = project.source(US)
    held, mine, theirs = claimed(project, source, 3)
    project.close_as(mine, agent(mine))
    project.close_as(theirs, ALICE)
    before = project.read_all()
    answers = source.settle([asked(each, Action.CONFIRM) for each in (held, mine, theirs)])
    assert [each.result for each in answers] == [Result.APPLIED] * 2 + [Result.NOT_OURS]
    assert answers[2].error == "closed by somebody else (alice)"
    assert project.read_all() == before


def test_so_does_what_a_person_closed_before_the_agent(project: BdProject) -> None:
    source = project.source(US)
    (issue,) = claimed(project, source)
    for closer in (ALICE, agent(issue)):
        project.close_as(issue, closer)
    (answer,) = source.settle([asked(issue)])
    assert answer.result is Result.FOUND_CLOSED


def test_so_does_what_a_person_closed_after_the_agent(project_old: BdProject) -> None:
    # bd 1.3 knows who closed an issue first, and nothing of a second close.
    source = project_old.source(US)
    (issue,) = claimed(project_old, source)
    for closer in (agent(issue), ALICE):
        project_old.close_as(issue, closer)
    (answer,) = source.settle([asked(issue)])
    assert answer.result is Result.FOUND_CLOSED


def test_so_does_what_a_person_closed_after_a_crash(project: BdProject) -> None:
    source = project.source(US)
    mine, theirs = claimed(project, source, 2)
    project.close_as(mine, agent(mine))
    project.close_as(theirs, ALICE)
    later = project.source("beads-workers/host/run-2")
    both = (mine, theirs)
    answers = later.recover(CrashedRun(US, begun=both, by_agents=both))
    assert {each.settlement.issue_id: each.result for each in answers} == {
        mine: Result.APPLIED,
        theirs: Result.FOUND_CLOSED,
    }
    assert project.read_all() == {mine: ("open", ""), theirs: ("closed", US)}


def test_a_close_by_update_is_told_from_a_person_s_as_well(project: BdProject) -> None:
    source = project.source(US)
    mine, theirs = claimed(project, source, 2)
    for issue, actor in ((mine, agent(mine)), (theirs, ALICE)):
        force = ["--force"] if project.version == NEW else []
        project.bd("update", *force, "--status=closed", issue, actor=actor)
    answers = source.settle([asked(mine), asked(theirs)])
    assert [each.result for each in answers] == [Result.APPLIED, Result.FOUND_CLOSED]


def test_a_person_s_close_that_was_taken_back_is_none(project_old: BdProject) -> None:
    # bd 1.3 has seconds only: there the order of what happened within one is not known.
    source = project_old.source(US)
    (issue,) = claimed(project_old, source)
    project_old.close_as(issue, ALICE)
    project_old.bd("reopen", issue, actor=ALICE)
    project_old.close_as(issue, agent(issue))
    (answer,) = source.settle([asked(issue)])
    assert answer.result is Result.APPLIED
    assert project_old.read(issue) == ("open", "")


def test_the_daemon_of_the_old_bd_says_who_it_was(project_old: BdProject, daemon: int) -> None:
    source = project_old.source(US)
    mine, theirs = claimed(project_old, source, 2)
    project_old.close_as(mine, agent(mine))
    project_old.close_as(theirs, ALICE)
    answers = source.settle([asked(mine), asked(theirs)])
    assert [each.result for each in answers] == [Result.APPLIED, Result.FOUND_CLOSED]


def test_where_nobody_can_tell_it_was_the_agent(project_new: BdProject, tmp_path: Path) -> None:
    program = tmp_path / "bd"
    real = project_new.directory / "bd"
    program.write_text(f'#!/bin/sh\ncase "$1" in history) exit 1;; esac\nexec {real} "$@"\n')
    program.chmod(0o755)
    source = project_new.source(US, program=str(program))
    undone, done = claimed(project_new, source, 2)
    for issue in (undone, done):
        project_new.close_as(issue, ALICE)
    answers = source.settle([asked(undone), asked(done, Action.CLOSE)])
    assert [each.result for each in answers] == [Result.APPLIED, Result.FOUND_CLOSED]


@pytest.mark.peers
@pytest.mark.parametrize("version", [OLD, NEW])
def test_each_issue_of_a_group_is_closed_for_its_own_reason(version: str, tmp_path: Path) -> None:
    project = BdProject(tmp_path, version)
    source = project.source(US)
    issues = claimed(project, source, 5)
    settlements = [
        Settlement(Action.CLOSE, issue, f'done, by claude: "{number}"', by_agent=by_agent)
        for number, (issue, by_agent) in enumerate(zip(issues, [True] * 4 + [False], strict=True))
    ]
    before = source.calls.count
    answers = source.settle(settlements)
    assert [each.result for each in answers] == [Result.APPLIED] * 5
    reasons = [project.show(issue)["close_reason"] for issue in issues]
    assert reasons == [each.note for each in settlements]
    # One call for all where there is a batch; else a look, and one for each reason.
    assert source.calls.count - before == (1 if version == NEW else 6)


@pytest.mark.peers
@pytest.mark.parametrize("version", [OLD, NEW])
def test_what_has_no_reason_of_its_own_shares_a_call(version: str, tmp_path: Path) -> None:
    project = BdProject(tmp_path, version)
    source = project.source(US)
    issues = claimed(project, source, 5)
    before = source.calls.count
    source.settle([Settlement(Action.CLOSE, issue) for issue in issues])
    assert source.calls.count - before == (1 if version == NEW else 2)


def test_the_reason_of_an_agent_s_own_close_is_replaced_beside_others(project: BdProject) -> None:
    source = project.source(US)
    own, other = claimed(project, source, 2)
    project.close_as(own, agent(own))
    answers = source.settle([asked(own, Action.CLOSE), asked(other, Action.CLOSE)])
    assert [each.result for each in answers] == [Result.APPLIED] * 2
    assert [project.show(i)["close_reason"] for i in (own, other)] == ["receipt"] * 2
    # Once more, as after a lost answer: nothing is written any more.
    again = source.settle([asked(own, Action.CLOSE)])
    assert [each.result for each in again] == [Result.FOUND_CLOSED]
