"""Leases and sharing on a real ``bd``: docs/SEMANTICS.md, "Leases" and "Sharing a tracker"."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.source import Action, CrashedRun, Result, Settlement, SourceError
from beads_workers.trackers.bd.source import LIFE_SECONDS, BdSource, ClaimedIssues
from beads_workers.trackers.bd.tracker import BdRow
from beads_workers.trackers.settlement_rules import boot_seconds
from tests.support.bd import BdProject

pytestmark = pytest.mark.daily(3)

US, OTHERS = "beads-workers/here/1", "beads-workers/there/2"


class Commands:
    """Which commands of ``bd`` were called (``sources.bd.CallLog``)."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def started(self, pid: int, start_time: int, argv: Sequence[str]) -> None:
        self.called.append(argv[1])

    def ended(self, pid: int) -> None:
        pass


def close(issue_id: IssueId, note: str = "") -> Settlement:
    return Settlement(Action.CLOSE, issue_id, note)


def results(source: BdSource, *settlements: Settlement) -> list[Result]:
    return [settled.result for settled in source.settle(settlements)]


# --- leases ---------------------------------------------------------------------------------------


def test_a_claim_comes_with_its_lease_on_our_own_clock(project_new: BdProject) -> None:
    (key,) = project_new.create_many([{}])
    before = boot_seconds()
    (lease,) = project_new.source(US).take(1, ()).leases
    assert lease.issue_id == key
    assert before <= lease.began <= boot_seconds()
    assert lease.ends - lease.began == pytest.approx(300.0, abs=1.0)


def test_the_old_bd_has_no_leases(project_old: BdProject) -> None:
    (key,) = project_old.create_many([{}])
    source = project_old.source(US)
    assert source.take(1, ()).leases == ()
    before = source.calls.count
    assert source.renew([key]).leases == ()
    assert source.calls.count == before


def test_a_renewal_moves_the_end_and_names_what_is_no_longer_ours(project_new: BdProject) -> None:
    keys = project_new.create_many([{}] * 4)
    source = project_new.source(US)
    taken = source.take(4, ())
    assert len(taken.jobs) == 4
    project_new.bd("close", keys[0], actor=US)
    project_new.put(keys[1], "in_progress", "alice")
    project_new.bd("unclaim", keys[2], actor=US)
    renewed = source.renew(keys)
    assert [lost.issue_id for lost in renewed.lost] == keys[:3]
    assert renewed.lost[1].why == "it is in_progress, assigned to alice"
    (lease,) = renewed.leases
    assert lease.issue_id == keys[3]
    assert lease.ends > next(old for old in taken.leases if old.issue_id == keys[3]).ends


def test_a_lease_that_is_over_is_renewed_when_nobody_has_taken_the_issue(
    project_new: BdProject,
) -> None:
    (key,) = project_new.create_many([{}])
    source = project_new.source(US)
    source.take(1, ())
    project_new.let_lapse(key)
    renewed = source.renew([key])
    assert [lease.issue_id for lease in renewed.leases] == [key] and renewed.lost == ()
    assert project_new.source(OTHERS, shared=True).take(1, ()).jobs == ()


def test_with_over_a_minute_left_a_group_is_closed_in_one_call_without_a_look(
    project_new: BdProject,
) -> None:
    keys = project_new.create_many([{}] * 3)
    log = Commands()
    source = project_new.source(US, call_log=log)
    source.take(3, ())
    log.called.clear()
    assert results(source, *map(close, keys)) == [Result.APPLIED] * 3
    assert log.called == ["batch"]


@pytest.mark.parametrize(("life", "sure"), [("05:00", True), ("00:55", False)])
def test_under_a_minute_a_claim_is_known_but_not_sure(life: str, sure: bool) -> None:
    times = {"heartbeat_at": "2026-01-02T03:00:00Z", "lease_expires_at": f"2026-01-02T03:{life}Z"}
    row = BdRow(IssueId("a"), "", "in_progress", US, 2, "task", (), "", "", times)
    leases = ClaimedIssues()
    leases.claimed({row.issue_id: row}, boot_seconds())
    assert leases.is_known(row.issue_id)
    assert leases.is_sure(row.issue_id) is sure
    assert limits.LEASE_SURE_SECONDS > 55.0


@pytest.mark.parametrize(
    "ends", ["0001-01-01T00:00:00Z", "9999-12-31T00:00:00Z", "0001-01-01", "x"]
)
def test_times_that_cannot_be_meant_name_no_life(ends: str) -> None:
    times = {"heartbeat_at": "2026-01-02T03:00:00Z", "lease_expires_at": ends}
    row = BdRow(IssueId("a"), "", "in_progress", US, 2, "task", (), "", "", times)
    (lease,) = ClaimedIssues().claimed({row.issue_id: row}, 1000.0)
    assert lease.ends - lease.began == LIFE_SECONDS


# --- compare-and-swap -----------------------------------------------------------------------------


def test_shared_a_group_is_closed_in_one_compare_and_swap(project_new: BdProject) -> None:
    keys = project_new.create_many([{}] * 3)
    log = Commands()
    source = project_new.source(US, call_log=log, shared=True)
    source.take(3, ())
    log.called.clear()
    assert results(source, *map(close, keys)) == [Result.APPLIED] * 3
    assert log.called == ["update"]
    assert {status for status, _ in project_new.read_all().values()} == {"closed"}


def test_shared_a_close_keeps_its_note(project_new: BdProject) -> None:
    (key,) = project_new.create_many([{}])
    source = project_new.source(US, shared=True)
    source.take(1, ())
    assert results(source, close(key, "done, and well")) == [Result.APPLIED]
    assert "done, and well" in project_new.notes(key)


@pytest.mark.parametrize(("shared", "result"), [(False, Result.APPLIED), (True, Result.FAILED)])
def test_what_is_still_open_below_holds_up_only_a_compare_and_swap(
    project_new: BdProject, shared: bool, result: Result
) -> None:
    parent = project_new.create("parent")
    source = project_new.source(US, shared=shared)
    source.take(1, ())
    project_new.create("child", parent=parent)
    looked_at = Settlement(Action.CLOSE, parent, read_first=True)
    (settled,) = source.settle([looked_at])
    assert settled.result is result
    assert ("open" in settled.error) is shared


def test_shared_late_writes_change_nothing_of_what_another_has_taken_over(
    project_new: BdProject,
) -> None:
    keys = project_new.create_many([{}] * 4)
    late = project_new.source(US, shared=True)
    assert len(late.take(4, ()).jobs) == 4
    project_new.let_lapse(*keys[:3])
    taken = project_new.source(OTHERS, shared=True).take(4, ())
    over = {job.issue_id for job in taken.jobs}
    assert over == set(keys[:3]), "the fourth lease still goes on"
    why = f"the lease of {US} was over"
    assert {(freed.issue_id, freed.why) for freed in taken.reclaimed} == {(i, why) for i in over}
    actions = (Action.CLOSE, Action.RELEASE, Action.QUARANTINE, Action.CLOSE)
    group = [Settlement(action, key) for action, key in zip(actions, keys, strict=True)]
    assert results(late, *group) == [Result.NOT_OURS] * 3 + [Result.APPLIED]
    left = project_new.read_all()
    assert [left[key] for key in keys[:3]] == [("in_progress", OTHERS)] * 3
    assert late.renew(keys[:1]).lost[0].why == f"it is in_progress, assigned to {OTHERS}"


# --- taking over ----------------------------------------------------------------------------------


def test_only_lapsed_claims_of_other_fleets_are_taken_over(project_new: BdProject) -> None:
    ours, living, persons = project_new.create_many([{}] * 3)
    source = project_new.source(US, shared=True)
    for key, actor in ((ours, US), (living, OTHERS), (persons, "alice")):
        project_new.bd("update", key, "--claim", actor=actor)
    project_new.let_lapse(persons)
    project_new.let_lapse(ours)
    taken = source.take(3, ())
    assert (taken.jobs, taken.reclaimed) == ((), ())
    assert project_new.read(persons) == ("in_progress", "alice")
    assert project_new.read(living) == ("in_progress", OTHERS)


def test_an_orchestrator_that_does_not_share_takes_nothing_over(project_new: BdProject) -> None:
    (key,) = project_new.create_many([{}])
    project_new.source(OTHERS, shared=True).take(1, ())
    project_new.let_lapse(key)
    assert project_new.source(US).take(1, ()).jobs == ()
    assert project_new.read(key) == ("in_progress", OTHERS)


def test_a_recovery_leaves_other_fleets_alone(project_new: BdProject) -> None:
    keys = project_new.create_many([{}] * 2)
    for actor in (US, OTHERS):
        project_new.source(actor, shared=True).take(1, ())
    project_new.let_lapse(keys[1])
    # What its journal took for done has been taken over since.
    dead = CrashedRun(US, unclosed=(keys[1],))
    answers = project_new.source("beads-workers/here/3", shared=True).recover(dead)
    assert {a.settlement.issue_id: a.result for a in answers} == {
        keys[0]: Result.APPLIED,
        keys[1]: Result.NOT_OURS,
    }
    assert project_new.read(keys[0]) == ("open", "")
    assert project_new.read(keys[1]) == ("in_progress", OTHERS)


def test_the_old_bd_cannot_be_shared_and_it_says_what_it_takes(project_old: BdProject) -> None:
    with pytest.raises(SourceError, match=r"bd 1\.2 or later.*this is bd 0\.44\.0") as refused:
        project_old.source(US, shared=True).describe()
    assert "--shared" in refused.value.hint
