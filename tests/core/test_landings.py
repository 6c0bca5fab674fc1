"""A success with a branch is closed when it has landed, and not before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from beads_workers.core.base import limits
from beads_workers.core.base.facts import IssueFacts
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.settings import Agent, Landing, ProbePace, Work
from beads_workers.core.base.source import Action, Result, Settled, Settlement
from beads_workers.core.base.states import IssueState, RunState
from beads_workers.core.base.wire import Task
from beads_workers.core.records import journal as rec
from beads_workers.core.records import landing as ld
from beads_workers.core.records.journal import Checkpointed
from beads_workers.core.requests.retry import RetryAskedFor
from beads_workers.core.requests.why import WhyAsked
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import Answer, Command, Send, StartLander, TellLander
from beads_workers.core.schedule.events import StopAsked
from beads_workers.core.views.history import Fate, fold
from beads_workers.core.views.recovery import recovery_state
from beads_workers.core.views.status import status
from tests.core.playbook import Play, done, lost, notes, of, ready, records, sent_messages, task_of

CLAUDE = Agent("claude", (), "", adapter="claude", account="acc")
LANDING = Landing("bw-landing/main", "f" * 40, "main")
HEAD, BASE, TIP = "a" * 40, "b" * 40, "c" * 40


def new_play(
    workers: int = 0, *, agents: bool = True, verify: str | None = None, **others: Any
) -> Play:
    work = Work(agents=(CLAUDE,)) if agents else Work(command=("true",))
    work = replace(work, lands=True, verify=verify)
    return Play(workers, work=work, **{"landing": LANDING, **others})


def work_of(issue_id: str, head: str = HEAD) -> dict[str, Any]:
    branch = f"bw/{issue_id}/1"
    return {"verdict": "done", "agent": "claude", "branch": branch, "base": BASE, "head": head}


def orders(commands: Iterable[Command]) -> list[ld.Order]:
    return [command.order for command in of(commands, TellLander)]


def delivered(play: Play, *issue_ids: str) -> list[Command]:
    """Each is worked on, and its work is to land; the tracker has answered all that was asked."""
    commands: list[Command] = []
    for number in range(1, len(issue_ids) + 1):
        commands += play.join(number)
    left = list(issue_ids)
    while left:
        if play.round_trip is None:
            commands += play.wait(5.0)
        assert play.round_trip is not None
        take = play.round_trip.take or 0
        commands += play.answer(*left[:take], listed=left[take:])
        left = left[take:]
    for sent in of(commands, Send):
        if isinstance(sent.message, Task):
            issue_id = sent.message.issue_id
            commands += play.do(done(sent.conn_id, issue_id, receipt=work_of(issue_id)))
    settled(play)
    return commands


def settled(play: Play) -> None:
    """The tracker answers, until nothing is asked of it."""
    for _ in range(9):
        play.quiet()
    assert play.round_trip is None


def landed(issue_id: str, attempt: int = 1) -> ev.LanderSaid:
    return ev.LanderSaid(ld.Landed(issue_id, attempt, TIP, "tree"))


def refused(issue_id: str, why: str = "conflict", attempt: int = 1) -> ev.LanderSaid:
    return ev.LanderSaid(ld.Refused(issue_id, attempt, why, "<<<<<<<", ("shop.py",), TIP))


def state_of(play: Play, issue_id: str) -> IssueState:
    return play.board.issues.known[issue_id].state


def test_the_lander_is_started_once_earlier_runs_are_settled() -> None:
    play = new_play(recovering=True)
    assert not of(play.first, StartLander)
    assert len(of(play.do(ev.RecoveryEnded()), StartLander)) == 1


def test_without_landing_a_receipt_closes_as_ever() -> None:
    play = Play(4, work=Work(agents=(CLAUDE,)))
    play.working("a")
    assert not of(play.do(done(1, "a", receipt=work_of("a"))), TellLander)
    assert play.pending() == [(Action.CLOSE, "a")]


def test_a_success_is_told_to_the_lander_and_closed_when_it_has_landed() -> None:
    play = new_play()
    play.working("a")
    assert not orders(play.do(done(1, "a", receipt=work_of("a"))))
    assert state_of(play, "a") is IssueState.LANDING
    assert play.pending() == [(Action.CONFIRM, "a")]
    assert play.settlement().by_agent and play.settlement().read_first
    (add,) = orders(play.answer())
    assert isinstance(add, ld.Add)
    assert (add.issue_id, add.attempt, add.run_id) == ("a", 1, "run-1")
    assert (add.commit, add.base, add.branch) == (HEAD, BASE, "bw/a/1")
    assert state_of(play, "a") is IssueState.LANDING
    settled(play)
    play.do(landed("a"))
    settlement = play.settlement()
    assert (settlement.action, settlement.shelved) == (Action.CLOSE, False)
    assert settlement.note.startswith(f"landed as {TIP[:12]} on bw-landing/main; done, by claude")
    play.answer()
    assert "a" not in play.board.issues.known
    assert play.board.totals["done"] == 1


def test_the_slot_of_what_waits_to_land_is_free() -> None:
    play = new_play()
    play.working("a")
    play.do(done(1, "a", receipt=work_of("a")))
    settled(play)
    play.wait(5.0)
    play.do(ready(1))
    assert task_of(play.answer("b"), 1) == "b"


def test_a_conflict_goes_back_to_its_agent_with_what_it_conflicts_with() -> None:
    play = new_play()
    delivered(play, "a")
    commands = play.do(refused("a"))
    (ended,) = records(commands, rec.LandingEnded)
    assert (ended.verdict, ended.files) == ("mend", ("shop.py",))
    assert play.round_trip is None, "it is ours still: the tracker is asked for nothing"
    commands = play.do(ready(1))
    (task,) = sent_messages(commands, 1)
    agent = task.payload["agent"]  # type: ignore[union-attr]
    assert agent["mend"] == {"why": "conflict", "tip": TIP, "files": ["shop.py"]}
    assert agent["earlier"]["lesson"] == "<<<<<<<"
    assert "conflicts with what has landed" in agent["error"]


def test_repairs_are_not_charged_and_have_an_end() -> None:
    play = new_play()
    delivered(play, "a")
    for _ in range(LANDING.rules.repairs_max):
        play.do(refused("a"))
        play.do(ready(1))
        play.do(done(1, "a", receipt=work_of("a")))
        settled(play)
    assert play.board.issues.known["a"].charged == 0
    play.do(refused("a", "verify"))
    if play.round_trip is not None and not play.round_trip.settlements:
        play.answer()
    assert play.pending() == [(Action.QUARANTINE, "a")]
    play.answer()
    assert state_of(play, "a") is IssueState.QUARANTINED
    assert play.board.totals["quarantined"] == 1


def test_a_command_cannot_mend_its_branch() -> None:
    play = new_play(agents=False)
    delivered(play, "a")
    play.do(refused("a"))
    settlement = play.settlement()
    assert settlement.action is Action.QUARANTINE
    assert "conflicts with what has landed: shop.py" in settlement.note


def test_what_any_worker_says_of_money_is_not_believed_but_its_branch_is() -> None:
    play = new_play(agents=False)
    play.working("a")
    said_too = {"money": 5.0, "session": "x", "flags": ["v1 was made"]}
    commands = play.do(done(1, "a", receipt={**work_of("a"), **said_too}))
    (finished,) = records(commands, rec.Finished)
    assert finished.receipt is not None and finished.receipt.money is None
    assert finished.receipt.head == HEAD and finished.receipt.flags == ("v1 was made",)
    assert finished.verdict == "land"


def test_a_run_that_drains_waits_for_the_queue_and_mends_nothing() -> None:
    play = new_play(2)
    delivered(play, "a", "b")
    play.do(StopAsked(drain=True))
    assert play.core.state is RunState.DRAINING
    play.do(refused("a"))
    assert (Action.RELEASE, "a") in play.pending()
    play.answer()
    play.do(landed("b"))
    assert play.pending() == [(Action.CLOSE, "b")]
    play.answer()
    assert play.core.state is RunState.DRAINING, "the lander has still to do with it"
    play.do(ev.LanderSaid(ld.Idle()))
    assert play.core.state is RunState.STOPPING


def test_a_stop_shelves_what_has_not_landed_and_the_next_run_lands_it() -> None:
    play = new_play()
    delivered(play, "a")
    play.do(StopAsked(seconds=0.0))
    play.do(*(ev.Disconnected(ev.ConnId(1)),))
    assert play.pending() == [(Action.SHELVE, "a")]
    assert "has not landed yet" in play.settlement().note
    play.answer()
    assert play.ended == 7
    (kept,) = recovery_state(play.entries).checkpoint()
    again = new_play(checkpointed=[kept])
    assert state_of(again, "a") is IssueState.SHELVED
    assert not orders(again.first) and again.settlement().shelved
    (add,) = orders(again.answer())
    assert isinstance(add, ld.Add) and (add.commit, add.attempt) == (HEAD, 1)
    again.do(landed("a"))
    settlement = again.settlement()
    assert (settlement.action, settlement.shelved) == (Action.CLOSE, True)
    again.answer()
    assert "a" not in again.board.issues.known and again.board.totals["done"] == 1


def shelved() -> Checkpointed:
    add = ld.Add("a", 1, "run-0", HEAD, BASE, "bw/a/1")
    return Checkpointed("a", landing=add)


def test_a_shelved_branch_that_conflicts_opens_its_issue_again_for_its_agent() -> None:
    play = new_play(checkpointed=[shelved()])
    play.quiet()
    play.do(refused("a"))
    assert play.pending() == [(Action.REOPEN, "a")]
    play.answer()
    play.join(1)
    commands = play.answer("a")
    (task,) = sent_messages(commands, 1)
    assert task.payload["agent"]["mend"]["tip"] == TIP  # type: ignore[union-attr]


def test_what_a_killed_run_had_to_land_is_shelved_by_the_next_start() -> None:
    play = new_play(2)
    delivered(play, "a", "b")
    play.do(landed("b"))
    left = recovery_state(play.entries)
    (run,) = left.unsettled_runs()
    assert [issue_id for issue_id, _ in run.to_land] == ["a"]
    assert run.unclosed == ("b",)
    (settlement,) = run.closes(run.unclosed)
    assert settlement.note.startswith(f"landed as {TIP[:12]}")
    assert run.back(run.to_land[0][0]).action is Action.SHELVE
    kept = {each.issue_id: each for each in left.checkpoint()}
    assert kept["a"].landing and not kept["a"].claimed_by
    assert kept["b"].claimed_by


def test_a_shelved_issue_that_somebody_closed_does_not_land() -> None:
    play = new_play(checkpointed=[shelved()], recovering=True)
    settled = ev.RecoveryEnded(settled=(of_shelve(Result.FOUND_CLOSED),))
    assert not orders(play.do(settled))


def test_what_landed_is_not_taken_before_the_tracker_has_answered_to_its_close() -> None:
    play = new_play(checkpointed=[shelved()])
    play.answer()
    play.do(landed("a"))
    play.answer(results={"a": Result.FAILED})
    play.join(1)
    assert play.asked() == 1 and not play.pending()
    assert play.round_trip is not None and "a" in play.round_trip.skip


def of_shelve(result: Result) -> Settled:
    return Settled(Settlement(Action.SHELVE, IssueId("a")), result)


def test_a_lander_that_dies_is_started_again_and_asked_for_the_same() -> None:
    play = new_play()
    delivered(play, "a")
    play.do(ev.LanderGone("killed"))
    assert of(play.wait(5.0), StartLander)
    (add,) = orders(play.answer())
    assert isinstance(add, ld.Add) and add.issue_id == "a"


def test_news_of_another_attempt_or_of_a_withdrawn_one_changes_nothing() -> None:
    play = new_play()
    delivered(play, "a")
    assert not records(play.do(landed("a", 7)), rec.BranchLanded)
    assert not records(play.do(refused("zzz")), rec.LandingEnded)
    assert state_of(play, "a") is IssueState.LANDING


def test_a_lost_claim_leaves_the_branch_as_it_is() -> None:
    play = new_play()
    delivered(play, "a")
    commands = play.do(ev.Withdrawn((IssueId("a"),), "nobody wants it"))
    assert orders(commands) == [ld.CancelLanding(IssueId("a"))]
    assert play.pending() == [(Action.RELEASE, "a")]


KEPT = "closed by somebody else; its branch stays: bw/a/1"


def refuse(play: Play) -> list[Command]:
    """The tracker says that somebody else has closed what it was asked to confirm."""
    assert play.round_trip is not None
    (asked,) = play.round_trip.settlements
    assert asked.action is Action.CONFIRM
    gone = Settled(asked, Result.NOT_OURS, "closed by somebody else")
    return play.do(ev.RoundTripEnded(0.1, settled=(gone,)))


def test_what_a_person_closed_while_its_agent_worked_does_not_land() -> None:
    play = new_play()
    play.working("a")
    play.do(done(1, "a", receipt=work_of("a")))
    commands = refuse(play)
    settled(play)
    assert orders(commands) == [ld.CancelLanding(IssueId("a"))]
    assert notes(commands, "warning") == [f"a: {KEPT}"]
    assert "a" not in play.board.issues.known and play.board.totals["done"] == 0
    history = fold(play.entries)
    assert history is not None
    (issue,) = history.issues
    assert (issue.fate, issue.error) == (Fate.NOT_OURS, KEPT)
    assert issue.landing is not None
    assert (issue.landing.branch, issue.landing.error) == ("bw/a/1", KEPT)


def test_nor_does_what_a_person_closed_while_it_was_shelved() -> None:
    play = new_play(checkpointed=[shelved()])
    commands = refuse(play)
    assert orders(commands) == [ld.CancelLanding(IssueId("a"))]
    assert notes(commands, "warning") == [f"a: {KEPT}"]
    assert "a" not in play.board.issues.known and play.core.state is RunState.RUNNING


def test_a_tracker_that_does_not_answer_says_nothing_of_whose_it_is() -> None:
    play = new_play()
    play.working("a")
    play.do(done(1, "a", receipt=work_of("a")))
    assert not orders(play.answer(results={"a": Result.FAILED}))
    play.wait(5.0)
    assert play.pending() == [(Action.CONFIRM, "a")]
    assert orders(play.answer())


def test_what_is_shelved_before_the_tracker_has_answered_does_not_land() -> None:
    play = new_play()
    play.working("a")
    play.do(done(1, "a", receipt=work_of("a")))
    play.do(StopAsked(seconds=0.0), lost(1))
    assert not orders(play.answer())
    assert play.pending() == [(Action.SHELVE, "a")]


def test_what_somebody_else_closes_meanwhile_stands_and_does_not_land() -> None:
    play = new_play(agents=False)
    play.join(1)
    play.answer("a", lease=300.0)
    play.do(done(1, "a", receipt=work_of("a")))
    settled(play)
    play.wait(151.0)
    while play.round_trip is None or not play.round_trip.renew:
        play.quiet()
    assert orders(play.answer(lost={"a"})) == [ld.CancelLanding(IssueId("a"))]
    settlement = play.settlement()
    assert (settlement.action, settlement.read_first) == (Action.RELEASE, True)
    play.answer(results={"a": Result.FOUND_CLOSED})
    assert not records(play.do(landed("a")), rec.BranchLanded), "it came too late"
    assert "a" not in play.board.issues.known


def test_a_pause_is_shown_once_and_resume_asks_to_look_again() -> None:
    play = new_play()
    delivered(play, "a")
    said_so = ev.LanderSaid(ld.LandingPaused("the tip fails verify"))
    play.do(said_so, said_so)
    assert [c.text for c in play.board.degraded.values()] == ["nothing lands, the tip fails verify"]
    assert ld.GoOn() in orders(play.do(ev.ResumeAsked(ev.Ticket(1))))
    play.do(ev.LanderSaid(ld.LandingResumed()))
    assert not play.board.degraded


def test_the_segment_of_a_long_journal_holds_what_waits_to_land() -> None:
    play = new_play()
    delivered(play, "a")
    play.folds.believed(play.core, play.now, whole=True)
    assert play.board.waiting_to_land[0].issue_id == "a"
    assert play.board.waiting_to_land[0].landing is not None


def test_until_empty_waits_for_the_queue_but_not_for_a_person() -> None:
    play = new_play(until_empty=True)
    delivered(play, "a")
    play.wait(60.0)
    while play.round_trip is not None:
        play.answer()
    assert play.core.state is RunState.RUNNING
    play.do(ev.LanderSaid(ld.LandingPaused("main conflicts", ("shop.py",))))
    assert play.core.state is RunState.RUNNING, "it is in hand"


def test_a_convicted_branch_that_lands_after_all_is_closed() -> None:
    play = new_play(agents=False)
    delivered(play, "a")
    play.do(refused("a", "verify"))
    play.do(landed("a"))
    assert play.pending() == [(Action.QUARANTINE, "a")], "the tracker is just being told"
    play.answer()
    settlement = play.settlement()
    assert (settlement.action, settlement.shelved) == (Action.CLOSE, True)
    play.answer()
    assert "a" not in play.board.issues.known


def test_a_retry_of_a_convicted_one_calls_its_branch_back() -> None:
    play = new_play(agents=False)
    delivered(play, "a")
    play.do(refused("a", "verify"))
    play.answer()
    commands = play.do(RetryAskedFor(ev.Ticket(1), (IssueId("a"),)))
    assert orders(commands) == [ld.CancelLanding(IssueId("a"))]
    assert not records(play.do(landed("a")), rec.BranchLanded)


def test_what_is_to_be_mended_is_called_back_first() -> None:
    play = new_play()
    delivered(play, "a")
    assert orders(play.do(refused("a"))) == [ld.CancelLanding(IssueId("a"))]


def asked_why(play: Play, *issue_ids: str) -> list[IssueFacts]:
    """What the fleet knows of these."""
    commands = play.do(WhyAsked(ev.Ticket(9), tuple(map(IssueId, issue_ids))))
    (answer,) = of(commands, Answer)
    assert answer.facts is not None
    return list(answer.facts.issues)


def test_how_long_the_gate_has_run_is_said_of_what_is_in_it_and_of_what_waits_for_it() -> None:
    play = new_play()
    delivered(play, "a", "b", "c")
    assert [facts.gate_seconds for facts in asked_why(play, "a", "b", "c")] == [None] * 3
    play.do(ev.LanderSaid(ld.Gate(0, "began", "tree", ("a",))))
    play.wait(4.0)
    play.do(ev.LanderSaid(ld.Gate(1, "began", "tree", ("a", "b"))))
    play.wait(1.0)
    facts = asked_why(play, "a", "b", "c")
    assert [each.gate_seconds for each in facts] == [5.0, 1.0, 5.0]
    assert [each.behind for each in facts] == [(), ("a",), ("a", "b")]
    play.do(landed("a"))
    closing, _, last = asked_why(play, "a", "b", "c")
    assert closing.gate_seconds is None and closing.behind == () and last.behind == ("b",)


def test_a_branch_without_a_verdict_says_why_and_is_set_aside_uncharged_at_last() -> None:
    play = new_play(until_empty=True)
    delivered(play, "a")
    why = "verify: ended by signal 9"
    commands = play.do(ev.LanderSaid(ld.WithoutVerdict("a", 1, why, 2, 45.0)))
    warning = f"a had no verdict so far (2 times): {why}; it is tried again alone in 45 s"
    assert notes(commands, "warning") == [warning]
    (facts,) = asked_why(play, "a")
    assert facts.no_verdict == f"{why} (2 times)"
    text = f"no verdict, tried for 600 s: {why}\nmore"
    play.do(ev.LanderSaid(ld.Refused("a", 1, "gate", text)))
    assert play.pending() == [(Action.QUARANTINE, "a")]
    assert f"no verdict, tried for 600 s: {why}" in play.settlement().note
    play.answer()
    issue = play.board.issues.known["a"]
    assert (issue.state, issue.charged) == (IssueState.QUARANTINED, 0)
    assert asked_why(play, "a")[0].no_verdict == ""
    play.do(ev.LanderSaid(ld.Idle()))
    play.do(landed("a"))
    assert state_of(play, "a") is IssueState.CLOSING, "it was tried once more when idle"


def test_one_of_several_that_landed_is_not_blamed_for_all() -> None:
    assert "(landed by a)" in ld.refusal_text("verify", against=("a",))
    assert "(landed by one of a, b)" in ld.refusal_text("verify", against=("a", "b"))


def test_a_verdict_that_was_known_is_no_run_of_a_gate() -> None:
    play = new_play()
    delivered(play, "a")
    said_so = [ld.Gate(0, "green", "tree", ("a",), kept=True), ld.Gate(0, "red", "tree", ("a",))]
    play.do(*(ev.LanderSaid(each) for each in said_so))
    assert play.board.landings.gates["kept"] == play.board.landings.gate_runs == 1


def test_a_branch_that_nobody_mends_is_shown_as_refused_until_there_is_work_again() -> None:
    play = new_play(agents=False)
    play.do(ev.LanderSaid(ld.Tip(TIP, LANDING.branch)))
    delivered(play, "a")
    play.do(refused("a"))
    settled(play)
    (shown,) = play.board.refused
    assert shown.issue_id == "a" and shown.error.endswith(": shop.py")
    row = status(play.board, 20.0)["landing"]["refused"][0]
    assert (row["issue_id"], row["branch"]) == ("a", "bw/a/1")


def test_when_its_time_is_over_a_run_still_lands_what_is_done() -> None:
    play = new_play(runtime_max_seconds=600.0)
    delivered(play, "a")
    play.wait(601.0)
    settled(play)
    play.do(ev.Disconnected(ev.ConnId(1)))
    assert play.core.state is RunState.STOPPING
    play.do(landed("a"), ev.LanderSaid(ld.Idle()))
    assert play.pending() == [(Action.CLOSE, "a")]
    play.answer()
    assert play.ended == 124


def test_but_not_once_a_person_says_stop() -> None:
    play = new_play(runtime_max_seconds=600.0)
    delivered(play, "a")
    play.wait(601.0)
    settled(play)
    play.do(ev.Disconnected(ev.ConnId(1)))
    play.do(StopAsked())
    assert play.pending() == [(Action.SHELVE, "a")]


def test_a_lander_that_only_dies_is_said_and_goes_on_when_it_lives() -> None:
    play = new_play()
    delivered(play, "a")
    for _ in range(limits.LANDER_DEATHS_MAX + 1):
        play.do(ev.LanderGone("killed"))
        play.wait(120.0)
    assert "the lander died" in play.board.degraded["landing"].text
    play.do(landed("a"))
    assert not play.board.degraded


def test_what_made_a_lander_pause_is_found_out_anew_by_the_next_one() -> None:
    play = new_play()
    delivered(play, "a")
    play.do(ev.LanderSaid(ld.LandingPaused("the tip fails verify")))
    play.do(ev.LanderGone("killed"))
    play.wait(5.0)
    assert not play.board.degraded


def test_what_landed_while_the_machine_slept_is_looked_at_before_it_is_closed() -> None:
    play = new_play(agents=False)
    delivered(play, "a")
    play.sleep(60.0)
    play.do(landed("a"))
    assert play.settlement().read_first


# --- a pause that ends the spending --------------------------------------------------------------

PAUSED = ev.LanderSaid(ld.LandingPaused("main at 1234 does not merge", ("a.py",)))
RESUMED = ev.LanderSaid(ld.LandingResumed())
WAIT = ProbePace().person_wait_seconds


def pool(play: Play, *open_: str, warnings: list[str] | None = None) -> list[str]:
    """What is begun of these issues within a minute by workers that say READY again, and done."""
    left, begun = list(open_), list[str]()
    found_warnings = list[str]() if warnings is None else warnings
    until = play.now + 60.0
    while play.now < until:
        commands = play.wait(5.0)
        for conn in (1, 2):
            commands += play.do(ready(conn))
        while play.round_trip is not None:
            take = [i for i in left if i not in play.round_trip.skip]
            took = take[: play.round_trip.take or 0]
            commands += play.answer(*took, listed=take[len(took) :])
        found_warnings += notes(commands, "warning")
        for sent in of(commands, Send):
            if isinstance(sent.message, Task):
                issue_id = str(sent.message.issue_id)
                begun.append(issue_id)
                left.remove(issue_id)
                ended = play.do(done(sent.conn_id, issue_id, receipt=work_of(issue_id)))
                found_warnings += notes(ended, "warning")
    return begun


def test_while_landing_is_paused_no_more_is_begun_than_there_are_workers() -> None:
    play = new_play()
    play.join(1)
    play.join(2)
    play.do(PAUSED)
    warnings = list[str]()
    assert pool(play, "a", "b", "c", "d", "e", "f", warnings=warnings) == ["a", "b"]
    assert state_of(play, "a") is state_of(play, "b") is IssueState.LANDING
    (said_once,) = [text for text in warnings if "nothing new is begun" in text]
    assert "2 branches wait to land" in said_once


def test_what_earlier_runs_left_counts_and_a_landing_makes_room_again() -> None:
    play = new_play()
    play.join(1)
    play.join(2)
    play.do(PAUSED)
    assert pool(play, "a", "b", "c", "d") == ["a", "b"]
    # It tries again, and in vain: nothing has changed.
    play.do(RESUMED, PAUSED, RESUMED)
    assert pool(play, "c", "d") == []
    play.do(landed("a"))
    settled(play)
    assert pool(play, "c", "d") == ["c", "d"]


def test_a_gate_that_passes_makes_no_room_before_something_has_landed() -> None:
    """What comes after it may fail again: the signature, the push."""
    play = new_play()
    play.join(1)
    play.join(2)
    play.do(PAUSED)
    assert pool(play, "a", "b", "c", "d") == ["a", "b"]
    play.do(RESUMED, ev.LanderSaid(ld.Gate(0, "green", "tree", ("a", "b"), 1.0)))
    assert pool(play, "c", "d") == []
    play.do(landed("a"))
    settled(play)
    assert pool(play, "c", "d") == ["c", "d"]


def test_claims_that_nobody_has_begun_go_back_when_there_is_no_room_left() -> None:
    play = new_play()
    play.join(1)
    play.join(2)
    play.quiet()
    play.wait(30.0)
    play.do(ready(1), ready(2))
    assert play.asked() == 2
    play.do(lost(2))
    play.answer("a", "b")
    assert any(i.state is IssueState.CLAIMED for i in play.board.issues.known.values())
    play.do(PAUSED)
    assert all(i.state is not IssueState.CLAIMED for i in play.board.issues.known.values())


def test_until_empty_ends_with_7_once_a_person_had_the_time_to_come() -> None:
    play = new_play(until_empty=True)
    play.join(1)
    play.join(2)
    play.do(PAUSED)
    assert pool(play, "a", "b", "c") == ["a", "b"]
    play.wait(WAIT - 120.0)
    assert play.core.state is RunState.RUNNING
    # Trying again in vain gives no new time.
    play.do(RESUMED, PAUSED)
    play.wait(100.0)
    assert play.core.state is not RunState.RUNNING
    for conn in (1, 2):
        play.do(lost(conn))
    while play.round_trip is not None:
        play.answer()
    assert play.ended == 7
    ended = [each.record for each in play.entries if isinstance(each.record, rec.RunEnded)]
    assert "2 branches did not land: main at 1234 does not merge: a.py" in ended[0].reason


def test_a_pause_of_a_moment_ends_no_run() -> None:
    play = new_play(until_empty=True)
    play.join(1)
    play.do(PAUSED)
    assert pool(play, "a") == ["a"]
    play.do(RESUMED)
    play.do(ev.LanderSaid(ld.Gate(0, "green", "tree", ("a",), 1.0)))
    play.wait(2 * WAIT)
    assert play.core.state is RunState.RUNNING


def left_over(*issue_ids: str) -> list[Checkpointed]:
    adds = [ld.Add(each, 1, "run-0", HEAD, BASE, f"bw/{each}/1") for each in issue_ids]
    return [Checkpointed(add.issue_id, landing=add) for add in adds]


def test_a_pause_ends_a_restart_no_sooner_than_a_first_start() -> None:
    """What waits from an earlier start is in hand, and counts among what ends the spending."""
    play = new_play(until_empty=True, checkpointed=left_over("a", "b"))
    play.join(1)
    play.join(2)
    play.do(PAUSED)
    assert pool(play, "c", "d") == []
    assert play.core.state is RunState.RUNNING
    play.do(RESUMED, PAUSED)
    play.wait(WAIT - 120.0)
    assert play.core.state is RunState.RUNNING
    play.do(RESUMED, landed("a"), landed("b"))
    settled(play)
    assert pool(play, "c", "d") == ["c", "d"]


def test_what_earlier_starts_left_is_in_hand_at_a_limit_and_while_a_run_drains() -> None:
    """So is what this one did: a pause of a moment ends neither."""
    play = new_play(until_empty=True, checkpointed=left_over("a"), issues_max=1)
    play.join(1)
    play.do(PAUSED)
    assert pool(play, "c") == [], "as many branches wait as there are workers"
    play.do(StopAsked(drain=True))
    play.wait(30.0)
    assert play.core.state is RunState.DRAINING
    play.do(RESUMED, landed("a"))
    settled(play)
    play.do(ev.LanderSaid(ld.Idle()))
    assert play.core.state is not RunState.DRAINING


def test_at_a_limit_what_earlier_starts_left_still_lands() -> None:
    play = new_play(checkpointed=left_over("a"), issues_max=1)
    delivered(play, "c")
    play.do(landed("c"))
    settled(play)
    assert play.core.state is RunState.RUNNING, "a waits as if it were of this run"
    play.do(landed("a"))
    settled(play)
    assert play.core.state is not RunState.RUNNING


def test_a_fleet_that_serves_on_waits_for_as_long_as_it_takes() -> None:
    play = new_play()
    play.join(1)
    play.do(PAUSED)
    assert pool(play, "a") == ["a"]
    play.wait(5 * WAIT)
    assert play.core.state is RunState.RUNNING
