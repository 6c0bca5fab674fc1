"""An attempt on another machine: who waits for its end, and who for its answer."""

from __future__ import annotations

from beads_workers.core.base import limits, wire
from beads_workers.core.base.model import IssueId, OutcomeKind
from beads_workers.core.records import journal as rec
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import Command, TellGuard, Word
from tests.core import playbook

SECONDS = 60.0


def begun() -> tuple[playbook.Play, rec.Leased]:
    """A worker of ours that waits for an attempt on n1, which has our word to begin."""
    play = playbook.Play(1)
    play.own(1)
    (started,) = playbook.records(play.answer("a"), rec.Started)
    lease = rec.Leased("a", 1, started.request_id, "n1", "n1", "boot", "0" * 32, SECONDS)
    assert words(play.do(ev.Placed(lease))) == [Word.GO]
    return play, lease


def words(commands: list[Command]) -> list[Word]:
    """What guards are told."""
    return [told.word for told in playbook.of(commands, TellGuard)]


def ends(commands: list[Command]) -> list[str]:
    """The outcomes of the attempts that ended."""
    return [finished.outcome for finished in playbook.records(commands, rec.Finished)]


def answer(lease: rec.Leased) -> wire.Done:
    """What the attempt's own worker said on its host."""
    return wire.Done(IssueId("a"), "W0", None, {"note": "found"}, request_id=lease.request_id)


def gone(**fields: object) -> ev.Received:
    """The word of a worker whose step could not bring the answer."""
    return playbook.failed(
        1, "a", "the line to its place: killed", outcome=OutcomeKind.RETRY, **fields
    )


def test_a_worker_that_brings_the_answer_ends_its_attempt() -> None:
    play, lease = begun()
    assert words(play.do(ev.FoundEnded(lease))) == [Word.HEARD]
    said = play.do(playbook.done(1, "a"))
    assert (ends(said), words(said)) == (["success"], [Word.BYE])


def test_an_answer_that_could_not_be_brought_is_brought_by_another() -> None:
    play, lease = begun()
    play.do(ev.FoundEnded(lease))
    said = play.do(gone())
    assert (ends(said), words(said)) == ([], [Word.LOOK]), "it still lies there"
    said = play.do(ev.FoundEnded(lease, answer(lease)))
    assert ends(said) == ["success"]


def test_but_only_once() -> None:
    play, lease = begun()
    play.do(ev.FoundEnded(lease))
    play.do(gone())
    said = play.do(ev.FoundEnded(lease))
    assert ends(said) == ["cancelled"]
    (finished,) = playbook.records(said, rec.Finished)
    assert finished.charged == 0


def test_nor_for_ever() -> None:
    play, lease = begun()
    play.do(ev.FoundEnded(lease))
    play.do(gone())
    assert ends(play.wait(SECONDS)) == []
    assert ends(play.wait(limits.AWAY_MARGIN_SECONDS + 30.0)) == ["cancelled"]


def test_an_attempt_whose_worker_is_gone_is_over_when_its_lease_is() -> None:
    play, _ = begun()
    said = play.do(gone())
    assert (ends(said), words(said)) == ([], [Word.LOOK])
    assert ends(play.wait(SECONDS)) == []
    (finished,) = playbook.records(play.wait(limits.AWAY_MARGIN_SECONDS + 30.0), rec.Finished)
    assert (finished.outcome, finished.charged) == ("cancelled", 0)


def test_a_guard_that_is_heard_of_keeps_it() -> None:
    play, lease = begun()
    play.do(gone())
    for _ in range(5):
        assert ends(play.wait(SECONDS - 1.0)) == []
        play.do(ev.GuardHeard(IssueId("a"), lease.nonce))
    assert ends(play.do(ev.FoundEnded(lease, answer(lease)))) == ["success"]


def test_another_nonce_changes_nothing() -> None:
    play, lease = begun()
    play.do(gone())
    other = rec.Leased("a", 1, lease.request_id, "n1", "n1", "boot", "1" * 32, SECONDS)
    assert words(play.do(ev.FoundEnded(other, answer(lease)))) == [Word.DROP]
    play.do(ev.GuardHeard(IssueId("a"), other.nonce))
    assert ends(play.wait(SECONDS + limits.AWAY_MARGIN_SECONDS + 30.0)) == ["cancelled"]
