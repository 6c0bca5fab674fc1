"""``status --json``: exactly the keys that people's scripts rely on, and what stands in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.policy import Policy
from beads_workers.core.base.source import Result
from beads_workers.core.records import journal as rec
from beads_workers.core.records.receipts import Receipt
from beads_workers.core.requests.release import ReleaseAskedFor
from beads_workers.core.requests.retry import RetryAskedFor
from beads_workers.core.schedule import events as ev
from beads_workers.core.views.snapshot import Board
from beads_workers.core.views.status import status
from tests.core.playbook import BEGAN, EPOCH, Play, cancelled, done, failed, lost, ready

PROMISED: dict[str, set[str]] = {
    "": {
        "running", "pid", "run_id", "socket", "control_socket", "project", "source", "state",
        "uptime_seconds", "workers", "queue", "quarantined", "totals", "source_state",
        "rate_per_minute", "eta_seconds", "source_calls",
    },
    "workers": {
        "worker_id", "pid", "state", "issue_id", "title", "attempt", "elapsed_seconds", "done",
        "failed",
    },
    "queue": {"ready", "running", "retrying", "blocked", "quarantined", "unclosed"},
    "quarantined": {"issue_id", "title", "attempts", "error"},
    "totals": {"done", "failed", "retried", "lost", "quarantined"},
    "source_state": {"state", "error", "since_seconds", "retry_in_seconds"},
    "source_calls": {"count", "seconds", "per_done"},
}  # fmt: skip


def shown(play: Play) -> dict[str, Any]:
    """``status`` as it is now."""
    return status(play.board, play.now - BEGAN)


def test_every_promised_key_is_there() -> None:
    play = Play(policy=Policy(attempts_max=1))
    play.working("a", "b")
    play.do(failed(2, "b"))
    play.answer()
    found = shown(play)
    assert found.keys() >= PROMISED.pop("")
    for key, keys in PROMISED.items():
        part = found[key][0] if isinstance(found[key], list) else found[key]
        assert part.keys() >= keys, key


def _only_documented(documented: Any, real: Any, place: str = "") -> list[str]:
    """Keys that the document shows and ``status`` does not have."""
    if isinstance(documented, list) and isinstance(real, list):
        return _only_documented(documented[0], real[0], place) if documented and real else []
    if not isinstance(documented, dict) or not isinstance(real, dict):
        return []
    missing = [f"{place}.{key}" for key in documented.keys() - real.keys()]
    inner = [
        _only_documented(documented[k], real[k], f"{place}.{k}")
        for k in documented.keys() & real.keys()
    ]
    return missing + [key for keys in inner for key in keys]


def test_the_document_shows_every_key_and_no_key_that_there_is_not() -> None:
    document = (Path(__file__).parents[2] / "docs" / "CLI.md").read_text()
    example = document.partition("## `status --json`")[2].split("```")[1]
    play = Play(policy=Policy(attempts_max=1))
    play.working("a", "b")
    play.do(failed(2, "b"))
    play.answer()
    assert _only_documented(json.loads(example), shown(play)) == []
    assert shown(play).keys() - json.loads(example).keys() == set()
    assert _only_documented({"workers": [{"x": 1}]}, shown(play)) == [".workers.x"]


def test_a_busy_worker_shows_its_issue_and_for_how_long() -> None:
    play = Play()
    play.working("a")
    play.wait(2.5)
    (row,) = shown(play)["workers"]
    assert (row["state"], row["issue_id"], row["title"]) == ("busy", "a", "title of a")
    assert (row["attempt"], row["elapsed_seconds"], row["pid"]) == (1, 2.5, 901)


def test_an_idle_worker_shows_none_and_one_that_left_is_gone() -> None:
    play = Play()
    play.working("a")
    play.do(done(1, "a"))
    (row,) = shown(play)["workers"]
    assert (row["state"], row["issue_id"], row["elapsed_seconds"], row["done"]) == (
        "idle",
        None,
        None,
        1,
    )
    play.do(lost(1))
    assert shown(play)["workers"] == []


def test_done_counts_when_the_tracker_has_closed_it_and_is_unclosed_until_then() -> None:
    play = Play()
    play.working("a")
    play.do(done(1, "a"))
    assert (shown(play)["totals"]["done"], shown(play)["queue"]["unclosed"]) == (0, 1)
    play.answer()
    assert (shown(play)["totals"]["done"], shown(play)["queue"]["unclosed"]) == (1, 0)


def test_a_failure_is_failed_and_retried_and_cools_down() -> None:
    play = Play()
    play.working("a")
    play.do(failed(1, "a"))
    found = shown(play)
    assert found["totals"] == {"done": 0, "failed": 1, "retried": 1, "lost": 0, "quarantined": 0}
    assert found["queue"]["retrying"] == 1
    play.answer()
    play.quiet()
    play.wait(30.0)
    play.quiet()
    play.wait(30.0)
    play.do(ready(1))
    play.answer("a")
    assert (shown(play)["queue"]["retrying"], shown(play)["queue"]["running"]) == (0, 1)


def test_what_is_quarantined_is_listed_with_its_reason_until_a_person_asks() -> None:
    play = Play(policy=Policy(attempts_max=1))
    play.working("a")
    play.do(failed(1, "a", "no rule"))
    play.answer()
    assert shown(play)["quarantined"] == [
        {"issue_id": "a", "title": "title of a", "attempts": 1, "error": "no rule"}
    ]
    play.do(RetryAskedFor(ev.Ticket(1), (IssueId("a"),)))
    assert shown(play)["quarantined"] == []


def test_a_snapshot_fits_a_connection_however_much_went_wrong() -> None:
    """The client that owns a fleet watches it: a snapshot that is too long would end the fleet."""
    checkpointed = [
        rec.Checkpointed(
            f"old-{n}", title="\N{SNOWMAN}" * 9_000, quarantined=True, error="\N{SNOWMAN}" * 2000
        )
        for n in range(3000)
    ]
    play = Play(policy=Policy(attempts_max=1), checkpointed=checkpointed)
    title = "\N{SNOWMAN}" * limits.TITLE_CHARS_MAX
    for n in range(limits.RECENT_MAX):
        worker_id, issue_id = f"W{n}", f"i-{n}"
        started = rec.Started(issue_id, worker_id, 1, f"r{n}", title)
        ended = rec.Finished(issue_id, worker_id, 1, f"r{n}", "error", "quarantined", title)
        for record in (
            rec.Claimed(issue_id, title),
            started,
            ended,
            started,
            rec.Noted("warning", title),
        ):
            play.board.apply(rec.Entry(record, EPOCH, 1.0))
    found = shown(play)
    assert found["queue"]["quarantined"] == 3000
    assert found["queue"]["running"] == limits.RECENT_MAX, "quarantined, and begun again"
    newest = found["quarantined"][-1]["issue_id"]
    assert newest == issue_id and f"logs {newest};" in found["needs"][-1]["remedy"]
    assert len(json.dumps({"snapshot": found})) < limits.OUTBOX_BYTES_MAX


def test_a_reopening_that_finds_the_issue_closed_is_no_work_of_ours() -> None:
    play = Play(checkpointed=[rec.Checkpointed("a", charged=3, quarantined=True)])
    play.do(RetryAskedFor(ev.Ticket(1), (IssueId("a"),)))
    play.answer(results={"a": Result.FOUND_CLOSED})
    assert shown(play)["totals"]["done"] == 0


def test_what_earlier_runs_left_is_shown_from_the_start() -> None:
    play = Play(
        checkpointed=[
            rec.Checkpointed("a", charged=3, quarantined=True, error="boom"),
            rec.Checkpointed("b", charged=1, not_before=EPOCH + 60.0),
            rec.Checkpointed("c", claimed_by="actor/run-0"),
        ]
    )
    queue = shown(play)["queue"]
    assert (queue["quarantined"], queue["retrying"], queue["unclosed"]) == (1, 1, 1)


def test_trouble_is_backing_off_at_first_and_failing_from_the_third_time_on() -> None:
    play = Play()
    play.join(1)
    states = []
    for _ in range(3):
        play.answer(take_error="locked")
        states.append(shown(play)["source_state"]["state"])
        play.wait(5.0)
        play.do(ready(1))
    assert states == ["backing_off", "backing_off", "failing"]
    assert shown(play)["source_state"]["since_seconds"] == 15.0
    play.answer()
    assert shown(play)["source_state"]["state"] == "ok"


def test_the_states_that_are_shown_are_the_four_that_are_promised() -> None:
    play = Play(recovering=True)
    states = [shown(play)["state"]]
    play.do(ev.RecoveryEnded())
    play.working("a")
    for event in (
        ev.PauseAsked(ev.Ticket(1)),
        ev.StopAsked(drain=True),
        ev.StopAsked(),
        failed(1, "a"),
        lost(1),
    ):
        play.do(event)
        states.append(shown(play)["state"])
    assert states == ["running", "paused", "draining", "stopping", "stopping", "stopping"]
    play.quiet()
    assert (shown(play)["running"], play.ended) == (False, 7)


def test_what_a_stop_gives_back_is_still_to_be_done() -> None:
    play = Play()
    play.working("a", "b", "held")
    play.do(ReleaseAskedFor(ev.Ticket(1), (IssueId("held"),)))
    play.do(cancelled(3, "held"))
    play.quiet()
    play.do(ev.StopAsked(), lost(3))
    for conn, issue_id in enumerate(("a", "b"), 1):
        play.do(cancelled(conn, issue_id))
        play.do(lost(conn))
    play.quiet()
    play.quiet()
    assert (play.ended, shown(play)["queue"]["ready"]) == (0, 2)


def test_a_worker_that_died_is_about_to_start_again_and_one_that_ends_with_the_run_is_not() -> None:
    play = Play(workers=1)
    play.do(ev.WorkerSpawned("W1", 901))
    play.do(ev.WorkerReaped("W1", 901, 137))
    assert [row["state"] for row in shown(play)["workers"]] == ["starting"]
    play.wait(60)
    play.do(ev.WorkerSpawned("W1", 902), ev.StopAsked())
    play.do(ev.WorkerReaped("W1", 902, 0))
    assert [row["state"] for row in shown(play)["workers"]] in ([], ["stopping"])


def close_in(board: Board, issue_id: str, elapsed: float) -> None:
    """An attempt that ends well, and the close of its issue."""
    done = rec.Finished(issue_id, "W1", 1, f"r-{issue_id}", "success", "finish")
    for record in (done, rec.SettledRecord(issue_id, "close", "applied")):
        board.apply(rec.Entry(record, EPOCH + elapsed, elapsed))


def test_an_attempt_that_awaits_approval_is_no_closing() -> None:
    board = Board()
    receipt = Receipt("done", branch="bw/a", base="b", head="h", commits=("h",))
    done = rec.Finished("a", "W1", 1, "r", "success", "land", receipt=receipt, awaits=True)
    for record in (rec.RunChanged("running"), rec.Listed((0, 0, 8, 0, 0)), done):
        board.apply(rec.Entry(record, EPOCH, 60.0))
    found = status(board, 70.0)
    assert (found["queue"]["total"], found["queue"]["closed"]) == (9, 0)
    assert (found["rate_per_minute"], found["eta_seconds"]) == (0.0, None)


def test_the_rate_is_that_of_the_last_two_hundred_however_soon_they_came() -> None:
    board = Play().board
    assert status(board, 1.0)["rate_per_minute"] == 0.0

    def done_at(elapsed: float, number: int) -> None:
        close_in(board, f"i{number}", elapsed)

    for number in range(5):
        done_at(1.0 + 0.001 * number, number)
    assert status(board, 2.0)["rate_per_minute"] == 30.0, "five within ten seconds"
    for number in range(1000):
        done_at(10.0 + 0.001 * number, number)
    assert 50_000 < status(board, 11.0)["rate_per_minute"] < 61_000, "a thousand a second"
    assert status(board, 70.0)["rate_per_minute"] < 4, "which is over"


def test_the_rate_falls_after_the_last_work_but_not_while_many_are_at_it() -> None:
    board = Play().board
    for number in range(8):
        close_in(board, f"i{number}", 60.0 * number)
    assert status(board, 430.0)["rate_per_minute"] == 1.1, "one a minute"
    assert status(board, 4020.0)["rate_per_minute"] == 0.1, "three in an hour at most"
    for number in range(8):
        began = rec.Started(f"j{number}", f"W{number}", 1, f"s{number}")
        board.apply(rec.Entry(rec.Claimed(f"j{number}"), EPOCH + 430.0, 430.0))
        board.apply(rec.Entry(began, EPOCH + 430.0, 430.0))
    assert status(board, 900.0)["rate_per_minute"] == 0.5, "eight of them, in 15 min"


def test_no_end_is_foretold_in_a_pause_nor_while_the_tracker_fails() -> None:
    def told(*records: rec.Record) -> float | None:
        board = Play().board
        close_in(board, "a", 1.0)
        for record in (rec.RunChanged("running"), rec.Listed((9, 0, 0, 0, 0)), *records):
            board.apply(rec.Entry(record, EPOCH + 1.0, 1.0))
        eta: float | None = status(board, 5.0)["eta_seconds"]
        return eta

    assert told() is not None
    assert told(rec.RunChanged("paused")) is None
    assert told(rec.RunChanged("waiting", "--start-at", EPOCH + 3600.0)) is None
    assert told(rec.RunChanged("draining")) is None
    assert told(rec.SourceTrouble("bd: locked", 8.0, "bd doctor", failures=3)) is None


def test_what_agents_filed_is_told_with_the_command_that_takes_it() -> None:
    board = Board()
    board.apply(rec.Entry(rec.Listed(discovered=("shop-8", "shop-9")), 0.0, 0.0))
    found = status(board, 0.0)
    assert found["discovered"] == ["shop-8", "shop-9"]
    (need,) = found["needs"]
    assert need["text"].startswith("2 issues that agents filed")
    assert need["remedy"] == "start shop-8 shop-9"
