"""Settling what crashed runs left: first they must be gone, then the tracker is asked."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from beads_workers.agents.events import Usage
from beads_workers.agents.totals import Totals
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.source import Action, CrashedRun, Result, Settled, Settlement
from beads_workers.core.base.wire import Done
from beads_workers.core.records import journal as rec
from beads_workers.core.schedule.events import RecoveryFailed, UsageRead
from beads_workers.core.views.recovery import RecoveryState, recovery_state
from beads_workers.executors.files import usage_file
from beads_workers.runtime import sessions
from beads_workers.runtime.journal_file import read_journal
from beads_workers.runtime.result_spool import spool_result
from beads_workers.runtime.run_directory import RunDirectory
from beads_workers.runtime.tracker_thread import Recovery
from beads_workers.runtime.usage_file import UsageFile
from beads_workers.trackers.issue import TrackerIssue
from tests.contracts.memory import Fault, FaultKind, MemorySource


class Scene:
    """A crashed run that holds issue a, and one that works on it now."""

    def __init__(self, folder: Path, *faults: Fault) -> None:
        self.directory = RunDirectory(folder)
        self.directory.create()
        self.run_id, self.alive = self.directory.create_run()
        self.dead = RecoveryState(run_id=self.run_id, actor="actor/dead")
        self.source = MemorySource(
            [TrackerIssue(id="a", title="t", status="in_progress", assignee="actor/dead")],
            actor="actor/new",
            faults=faults,
        )
        self.trouble: list[RecoveryFailed] = []
        self.used: list[UsageRead] = []
        self.recovery = Recovery(self.directory, self.source, [self.dead], self.failed)

    def failed(self, event: RecoveryFailed | UsageRead) -> None:
        if isinstance(event, UsageRead):
            self.used.append(event)
            return
        self.trouble.append(event)
        self.recovery.abandon()  # A stop comes: nothing here waits for a second.


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_what_a_crashed_run_held_is_requeued_and_the_run_is_settled(scene: Scene) -> None:
    os.close(scene.alive)
    (settled,) = scene.recovery.run().settled
    assert (settled.settlement.action, settled.result) == (Action.RELEASE, Result.APPLIED)
    assert scene.source.tracker.issues["a"].status == "open"
    assert scene.directory.is_settled(scene.run_id)


class Broken(MemorySource):
    """Meets an error of the machine instead of the tracker."""

    def recover(self, dead: CrashedRun) -> list[Settled]:
        """No descriptor, no process, no room."""
        raise OSError(errno.EMFILE, "Too many open files")


def test_a_machine_in_trouble_is_waited_for_like_a_tracker_in_trouble(scene: Scene) -> None:
    os.close(scene.alive)
    scene.recovery = Recovery(
        scene.directory, Broken([], actor="actor/new"), [scene.dead], scene.failed
    )
    assert scene.recovery.run().settled == ()
    (failure,) = scene.trouble
    assert "Too many open files" in failure.error
    assert not scene.directory.is_settled(scene.run_id)


def test_what_it_had_done_is_closed(scene: Scene) -> None:
    os.close(scene.alive)
    scene.dead.apply(rec.Entry(rec.Checkpointed("a", claimed_by="actor/dead"), 5.0, 2.0))
    scene.recovery.run()
    assert scene.source.tracker.issues["a"].status == "closed"


def test_what_its_workers_have_left_word_of_is_closed_with_what_came_of_it(scene: Scene) -> None:
    os.close(scene.alive)
    folder = scene.directory.run(scene.run_id)
    started = rec.Started("a", "W1", 1, "r.1")
    (folder / "journal.jsonl").write_bytes(
        rec.encode(rec.Entry(started, 5.0, 2.0)) + b'{"v":1,"e":"to'
    )
    scene.dead.apply(rec.Entry(started, 5.0, 2.0))
    spool_result(str(folder), Done(IssueId("a"), "W1", 7, {"note": "fine"}, request_id="r.1"))
    ended = scene.recovery.run()
    (settled,) = ended.settled
    assert (settled.settlement.action, settled.result) == (Action.CLOSE, Result.APPLIED)
    assert settled.settlement.note == "fine"
    assert ended.late_entries == (rec.Checkpointed("a", claimed_by="actor/dead"),)
    assert scene.source.tracker.issues["a"].status == "closed"
    _, added = read_journal(folder / "journal.jsonl")
    assert isinstance(added.record, rec.Finished) and added.record.verdict == "finish"
    assert (added.at, added.elapsed) == (5.007, 2.007), "when its worker was done with it"


def test_a_branch_to_land_is_told_again_if_the_start_that_was_told_of_it_dies(scene: Scene) -> None:
    os.close(scene.alive)
    journal = scene.directory.run(scene.run_id) / "journal.jsonl"
    began = rec.RunStarted(scene.run_id, 1, "actor/dead", "memory", "/p", lands=True)
    working = (began, rec.Claimed("a", "a"), rec.Started("a", "W1", 1, "r.1", agent="claude"))
    journal.write_bytes(b"".join(rec.encode(rec.Entry(each, 5.0, 2.0)) for each in working))
    receipt = {"verdict": "done", "head": "c1", "branch": "bw/a/1"}
    spooled = Done(IssueId("a"), "W1", 7, request_id="r.1", receipt=receipt)
    spool_result(str(journal.parent), spooled)
    for _ in range(2):  # The first dies before its own journal has any of it.
        dead = recovery_state(read_journal(journal))
        recovery = Recovery(scene.directory, scene.source, [dead], scene.failed)
        (entry,) = recovery.run().late_entries
        assert entry.landing is not None and entry.landing.commit == "c1"
        assert not scene.directory.is_settled(scene.run_id)
    recovery.conclude()
    assert scene.directory.is_settled(scene.run_id)
    assert isinstance(list(read_journal(journal))[-1].record, rec.Finished)


def test_its_journal_is_told_only_when_all_is_settled(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Fault(FaultKind.NOT_APPLIED, "recover"))
    os.close(scene.alive)
    folder = scene.directory.run(scene.run_id)
    scene.dead.apply(rec.Entry(rec.Started("a", "W1", 1, "r.1"), 5.0, 2.0))
    spool_result(str(folder), Done(IssueId("a"), "W1", 7, request_id="r.1"))
    ended = scene.recovery.run()
    assert [s.result for s in ended.settled] == [Result.FAILED] and len(ended.late_entries) == 1
    assert not (folder / "journal.jsonl").exists() and not scene.directory.is_settled(scene.run_id)


def test_what_its_agents_had_used_is_told_also_where_the_tracker_is_in_trouble(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path, Fault(FaultKind.REFUSED, "recover"))
    os.close(scene.alive)
    file = UsageFile(usage_file(str(scene.directory.run(scene.run_id)), "r.1"))
    file.begin("claude", "", {})
    file.add([Usage("m", 10, 1, money=0.25)], Totals("s"))
    scene.dead.apply(rec.Entry(rec.Started("a", "W1", 1, "r.1", agent="claude"), 5.0, 2.0))
    scene.recovery.run()
    assert not scene.directory.is_settled(scene.run_id)
    (used,) = scene.used
    assert (used.issue_id, used.attempt, used.request_id) == ("a", 1, "r.1")
    assert used.receipt is not None and used.receipt.money == 0.25


RECEIPT = {"verdict": "done", "agent": "claude", "usage": {"m": {"input": 10, "output": 1}}}


def agent_used(scene: Scene, issue_id: str = "a") -> UsageFile:
    """An agent of the crashed run has worked on it, and used something."""
    file = UsageFile(usage_file(str(scene.directory.run(scene.run_id)), "r.1"))
    file.begin("claude", "", {})
    file.add([Usage("m", 10, 1, money=0.25)], Totals("s"))
    started = rec.Started(issue_id, "W7", 1, "r.1", agent="claude")
    scene.dead.apply(rec.Entry(started, 5.0, 2.0))
    return file


def test_the_usage_in_a_spooled_result_is_told_and_not_what_its_file_says(scene: Scene) -> None:
    os.close(scene.alive)
    agent_used(scene)
    folder = scene.directory.run(scene.run_id)
    spooled = Done(IssueId("a"), "W7", 7, request_id="r.1", receipt=RECEIPT)
    spool_result(str(folder), spooled)
    scene.recovery.run()
    (used,) = scene.used
    assert (used.request_id, used.receipt.tokens.total, used.whole) == ("r.1", 11, True)
    assert not scene.directory.is_settled(scene.run_id), "our journal may not have it yet"
    scene.recovery.conclude()
    assert scene.directory.is_settled(scene.run_id)


def test_a_run_is_settled_only_once_our_journal_has_what_its_agents_had_used(scene: Scene) -> None:
    os.close(scene.alive)
    agent_used(scene)
    (settled,) = scene.recovery.run().settled
    assert settled.result is Result.APPLIED and len(scene.used) == 1
    # Killed now, the next start finds it again.
    assert not scene.directory.is_settled(scene.run_id)
    scene.recovery.conclude()
    assert scene.directory.is_settled(scene.run_id)


def test_of_a_worker_that_lives_on_all_is_counted_once_it_has_ended(scene: Scene) -> None:
    os.close(scene.alive)
    here = (os.getpid(), sessions.start_time(os.getpid()) or 0)
    scene.dead.apply(rec.Entry(rec.Unsettled("a", "", *here), 5.0, 2.0))
    file = agent_used(scene)
    scene.recovery.run()
    scene.recovery.conclude()
    assert scene.used == [], "it goes on using more"
    file.add([Usage("m", 10, 1, money=0.5)], Totals("s"))
    asked = Settlement(Action.RELEASE, IssueId("a"), read_first=True, run_id=scene.run_id)
    assert scene.recovery.release([asked]).settled[0].result is Result.APPLIED
    (used,) = scene.used
    assert used.receipt is not None and used.receipt.money == 0.75
    assert not scene.directory.is_settled(scene.run_id)
    scene.recovery.conclude()
    assert scene.directory.is_settled(scene.run_id)


def test_one_that_ends_while_its_run_is_recovered_is_counted(scene: Scene) -> None:
    os.close(scene.alive)
    here = (os.getpid(), sessions.start_time(os.getpid()) or 0)
    scene.dead.apply(rec.Entry(rec.Unsettled("a", "", *here), 5.0, 2.0))
    agent_used(scene)
    folder = scene.directory.run(scene.run_id)
    spool_result(str(folder), Done(IssueId("a"), "W7", 7, request_id="r.1"))
    scene.recovery.run()
    assert len(scene.used) == 1


def test_nothing_is_touched_while_any_process_of_that_run_lives(scene: Scene) -> None:
    thread = threading.Thread(target=scene.recovery.run)
    thread.start()
    thread.join(0.15)
    assert thread.is_alive() and scene.source.tracker.writes == []
    os.close(scene.alive)
    thread.join(10)
    assert scene.source.tracker.issues["a"].status == "open"


@pytest.mark.parametrize("what", ["its last call of the tracker", "a worker of a push source"])
def test_nor_while_what_it_has_left_behind_runs(scene: Scene, what: str) -> None:
    os.close(scene.alive)
    wait, release = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(release)
        os.read(wait, 1)
        os._exit(0)
    left = (child, sessions.start_time(child) or 0)
    if what.startswith("its"):
        scene.dead.last_call = left
    else:
        scene.dead.apply(rec.Entry(rec.Unsettled("a", "", *left), 5.0, 2.0))
        scene.recovery = Recovery(
            scene.directory, scene.source, [scene.dead], scene.failed, inherits=False
        )
    thread = threading.Thread(target=scene.recovery.run)
    thread.start()
    thread.join(0.15)
    assert thread.is_alive() and scene.source.tracker.writes == []
    os.close(release)
    os.waitpid(child, 0)
    os.close(wait)
    thread.join(10)
    assert scene.source.tracker.issues["a"].status == "open"


def test_a_call_of_the_tracker_that_hangs_is_ended(scene: Scene) -> None:
    os.close(scene.alive)
    with subprocess.Popen(["sleep", "60"], process_group=0) as hangs:
        scene.dead.last_call = (hangs.pid, sessions.start_time(hangs.pid) or 0)
        reaper = threading.Thread(target=hangs.wait)
        reaper.start()
        recovery = Recovery(
            scene.directory, scene.source, [scene.dead], scene.failed, call_seconds=0.1
        )
        recovery.run()
        reaper.join(10)
        assert hangs.returncode == -signal.SIGTERM
    assert scene.source.tracker.issues["a"].status == "open"


def test_what_a_worker_of_somebody_else_still_has_is_left_alone_and_nothing_else(
    scene: Scene,
) -> None:
    os.close(scene.alive)
    scene.source.tracker.issues["b"] = TrackerIssue(
        id="b", title="t", status="in_progress", assignee="actor/dead"
    )
    here = (os.getpid(), sessions.start_time(os.getpid()) or 0)
    lost = rec.OwnerLost("a", "W7", os.getpid(), told_to_stop=True)
    for record in (rec.Unsettled("a", "", *here), rec.Started("a", "W7", 1, "r.1"), lost):
        scene.dead.apply(rec.Entry(record, 5.0, 2.0))
    ended = scene.recovery.run()
    assert [s.settlement.issue_id for s in ended.settled] == ["b"]
    (inherited,) = ended.inherited
    assert (inherited.issue_id, inherited.run_id) == ("a", scene.run_id)
    assert (inherited.worker_id, inherited.pid, inherited.start_time) == ("W7", *here)
    assert inherited.told_to_stop and inherited.lost_at == 5.0
    assert scene.source.tracker.issues["a"].assignee == "actor/dead"
    assert not scene.directory.is_settled(scene.run_id)
    asked = Settlement(Action.RELEASE, IssueId("a"), read_first=True, run_id=scene.run_id)
    assert scene.recovery.release([asked]).settled == [Settled(asked, Result.APPLIED)]
    assert scene.source.tracker.issues["a"].status == "open"
    assert scene.directory.is_settled(scene.run_id)
    assert scene.recovery.release([asked]).settled[0].result is Result.NOT_OURS, "once is enough"


def test_a_later_run_that_crashed_too_gives_back_nothing_that_a_worker_still_has(
    scene: Scene,
) -> None:
    os.close(scene.alive)
    later, alive = scene.directory.create_run()
    os.close(alive)
    here = (os.getpid(), sessions.start_time(os.getpid()) or 0)
    for record in (rec.Unsettled("a", "", *here), rec.Started("a", "W7", 1, "a")):
        scene.dead.apply(rec.Entry(record, 5.0, 2.0))
    second = RecoveryState(run_id=later, actor="actor/later")
    for state in (scene.dead, second):
        state.apply(rec.Entry(rec.Checkpointed("b", claimed_by="actor/dead"), 5.0, 2.0))
    issues = [
        TrackerIssue(id=i, title="t", status="in_progress", assignee="actor/dead") for i in "ab"
    ]
    source = MemorySource(issues, actor="actor/new")
    recovery = Recovery(scene.directory, source, [scene.dead, second], scene.failed)
    assert [each.issue_id for each in recovery.run().inherited] == ["a"]
    assert [source.tracker.issues[i].status for i in "ab"] == ["in_progress", "closed"]


class Counting(MemorySource):
    """Counts how often it is asked for what a crashed run left."""

    recoveries = 0

    def recover(self, dead: CrashedRun) -> list[Settled]:
        self.recoveries += 1
        return super().recover(dead)


def test_what_several_workers_had_is_given_back_in_one_go(scene: Scene) -> None:
    os.close(scene.alive)
    held = [
        TrackerIssue(id=i, title="t", status="in_progress", assignee="actor/dead") for i in "abcd"
    ]
    source = Counting(held, actor="actor/new")
    here = (os.getpid(), sessions.start_time(os.getpid()) or 0)
    for issue in held:
        for record in (
            rec.Unsettled(issue.id, "", *here),
            rec.Started(issue.id, "W7", 1, issue.id),
        ):
            scene.dead.apply(rec.Entry(record, 5.0, 2.0))
    recovery = Recovery(scene.directory, source, [scene.dead], scene.failed)
    assert len(recovery.run().inherited) == 4
    source.recoveries = 0

    def release(*issue_ids: str) -> list[Result]:
        asked = [
            Settlement(Action.RELEASE, IssueId(i), read_first=True, run_id=scene.run_id)
            for i in issue_ids
        ]
        answers = recovery.release(asked).settled
        assert [a.settlement for a in answers] == asked
        return [a.result for a in answers]

    assert release("a", "x", "b", "c") == [
        *(Result.APPLIED, Result.NOT_OURS, Result.APPLIED, Result.APPLIED)
    ]
    assert source.recoveries == 1
    assert [source.tracker.issues[i].status for i in "abcd"] == [*["open"] * 3, "in_progress"]
    assert not scene.directory.is_settled(scene.run_id)
    assert release("d", "a") == [Result.APPLIED, Result.NOT_OURS]
    assert scene.directory.is_settled(scene.run_id)


def test_a_push_source_waits_for_such_a_worker_no_longer_than_its_grace(scene: Scene) -> None:
    os.close(scene.alive)
    here = (os.getpid(), sessions.start_time(os.getpid()) or 0)
    scene.dead.apply(rec.Entry(rec.Unsettled("a", "", *here), 5.0, 2.0))
    made = scene.directory, scene.source, [scene.dead], scene.failed
    Recovery(*made, inherits=False, grace_seconds=0.1).run()
    assert scene.source.tracker.issues["a"].status == "open"


def test_another_process_under_the_same_pid_is_not_waited_for(scene: Scene) -> None:
    os.close(scene.alive)
    scene.dead.last_call = (os.getpid(), 1)
    scene.dead.apply(rec.Entry(rec.Unsettled("a", "", os.getpid(), 1), 5.0, 2.0))
    assert len(scene.recovery.run().settled) == 1


def test_a_tracker_in_trouble_is_told_of_and_the_run_stays_unsettled(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Fault(FaultKind.REFUSED, "recover"))
    os.close(scene.alive)
    assert scene.recovery.run().settled == ()
    assert [t.error for t in scene.trouble] == ["the tracker does not answer"]
    assert not scene.directory.is_settled(scene.run_id)


def test_a_run_of_which_one_issue_could_not_be_settled_stays_unsettled(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Fault(FaultKind.NOT_APPLIED, "recover"))
    os.close(scene.alive)
    assert [s.result for s in scene.recovery.run().settled] == [Result.FAILED]
    assert not scene.directory.is_settled(scene.run_id)


def test_a_stop_overtakes_the_waiting(scene: Scene) -> None:
    scene.recovery.abandon()
    assert scene.recovery.run().settled == ()
    assert scene.source.tracker.writes == []
    os.close(scene.alive)
