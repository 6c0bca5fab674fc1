"""PAUSE of a worker on which tasks are queued: two features that meet."""

from __future__ import annotations

from beads_workers.core.base.model import IssueId
from beads_workers.core.base.wire import BATCH, CANCEL, GROUPED, PAUSE, REVOKED, Cancel, Pause
from beads_workers.core.records.journal import Finished, Requeued
from beads_workers.core.schedule.events import BY_HAND
from tests.core.playbook import Play, done, records, sent_messages, task_of, unstarted
from tests.core.test_pausing import asks, hold


def test_its_task_goes_on_and_what_is_queued_goes_to_others() -> None:
    play = Play()
    play.connect(1)
    play.do(asks(1, GROUPED, CANCEL, PAUSE, BATCH))
    play.answer("a", "b", "c")
    play.quiet()
    commands = play.do(hold())
    revoked = [Cancel(IssueId(i), REVOKED) for i in ("b", "c")]
    assert sent_messages(commands, 1) == [Pause(BY_HAND), *revoked]
    back = play.do(unstarted(1, "b"), unstarted(1, "c"))
    assert {each.issue_id for each in records(back, Requeued)} == {"b", "c"}
    play.join(2)
    play.quiet()
    assert task_of(play.answer("b"), 2) == "b"
    assert records(play.do(done(1, "a")), Finished)[0].outcome == "success"
    assert not sent_messages(play.do(asks()), 1)
