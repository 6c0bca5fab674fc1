"""What a person is told who does not look: records in, notices out."""

from __future__ import annotations

from math import inf
from typing import Any

from beads_workers.core.base.plain import to_plain
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry, Record
from beads_workers.core.records.receipts import Receipt, Tokens
from beads_workers.core.views.snapshot import Board
from beads_workers.ui import notices
from tests.support.landings import BRANCH, TIP, landed, night, refused, worked

EPOCH = 1_700_000_000.0


class JournaledRun:
    """A run whose records are told of, with a clock that only we move."""

    def __init__(self) -> None:
        self.board = Board()
        self.notices = notices.Notices()
        self.elapsed = 0.0
        self.add(rec.RunStarted("run-1", 1, "actor", "memory", "/project"))

    def add(self, *records: Record) -> list[notices.Notice]:
        """These are journalled now."""
        told = []
        for record in records:
            entry = Entry(record, EPOCH + self.elapsed, self.elapsed)
            self.board.apply(entry)
            told += self.notices.add(entry, self.board)
        return told

    def wait(self, seconds: float) -> list[notices.Notice]:
        """Time passes."""
        self.elapsed += seconds
        return self.notices.due(self.elapsed, self.board)

    def give_up(self, issue_id: str, error: str = "boom", title: str = "") -> list[notices.Notice]:
        """An issue is claimed, tried, and quarantined."""
        ended = rec.Finished(
            issue_id, "W1", 3, f"r.{issue_id}", "error", "quarantined", error, charged=3
        )
        started = rec.Started(issue_id, "W1", 3, f"r.{issue_id}", title)
        return self.add(rec.Claimed(issue_id, title), started, ended)


def one(found: list[notices.Notice]) -> notices.Notice:
    """The only notice."""
    (notice,) = found
    return notice


def test_an_issue_that_is_quarantined_is_told_at_once_with_its_error() -> None:
    notice = one(JournaledRun().give_up("a", "boom\n", "Fix it"))
    assert notice.event == "quarantined"
    assert notice.text == "a (Fix it) was quarantined after 3 attempts: boom⏎"
    assert (notice.issue_ids, notice.issue_title, notice.count) == (("a",), "Fix it", 1)
    assert (notice.run_id, notice.project, notice.quarantined) == ("run-1", "/project", 1)
    assert notice.exit_code is None


def test_fifty_in_a_minute_are_a_few_notices_that_name_how_many() -> None:
    run = JournaledRun()
    told = []
    for number in range(50):
        told += run.give_up(f"n{number}") + run.wait(60 / 50)
    told += run.wait(notices.QUARANTINED_SECONDS)
    assert [notice.count for notice in told] == [1, 25, 24]
    assert len(told[1].issue_ids) == notices.NAMED_MAX
    assert told[1].text == "25 issues were quarantined (n1, n2, n3, n4, n5, ...); n1: boom"
    assert run.notices.ends == inf


def test_a_question_and_a_branch_to_approve_are_told_so_that_their_text_alone_is_enough() -> None:
    there = JournaledRun()
    asks = Receipt(agent="claude", question="Both are there.\n\nFOO or BAR?")
    there.add(rec.Claimed("a", "Name it"), rec.Started("a", "W1", 1, "r.a", "Name it"))
    ended = rec.Finished("a", "W1", 1, "r.a", "question", "asked", "FOO or BAR?", receipt=asks)
    notice = one(there.add(ended))
    text = "a (Name it) asks: Both are there. FOO or BAR? -- beads-workers answer a"
    assert (notice.event, notice.text, notice.issue_ids) == ("question", text, ("a",))
    there.add(rec.Claimed("b", "Login"), rec.Started("b", "W1", 1, "r.b", "Login"))
    work = Receipt(agent="codex", head="1" * 40, branch="bw/b/1", diffstat="3 files changed")
    ended = rec.Finished("b", "W1", 1, "r.b", "success", "land", receipt=work, awaits=True)
    notice = one(there.add(ended))
    text = "b (Login) awaits approval: 3 files changed -- beads-workers diff b"
    assert (notice.event, notice.text, notice.todo) == ("approval", text, "beads-workers diff b")


def test_after_a_quiet_time_the_next_one_is_told_at_once_again() -> None:
    run = JournaledRun()
    run.give_up("a")
    assert run.wait(notices.QUARANTINED_SECONDS) == []
    assert one(run.give_up("b")).issue_ids == ("b",)


def test_what_has_gathered_is_told_before_the_end() -> None:
    run = JournaledRun()
    run.give_up("a")
    assert run.give_up("b") == []
    told = run.add(rec.RunEnded(7, "idle_timeout"))
    assert [notice.event for notice in told] == ["quarantined", "finished"]
    assert told[0].issue_ids == ("b",)


def test_other_endings_of_an_attempt_are_nobody_s_business() -> None:
    run = JournaledRun()
    ends = [("error", "requeue"), ("success", "finish"), ("cancelled", "requeue")]
    for number, (outcome, verdict) in enumerate(ends):
        assert run.add(rec.Finished(f"n{number}", "W1", 1, "r", outcome, verdict, "boom")) == []


def test_a_pause_is_told_with_its_reason() -> None:
    run = JournaledRun()
    assert run.add(rec.RunChanged("running")) == []
    notice = one(run.add(rec.RunChanged("paused", "a person asked for it")))
    assert notice.event == "paused"
    assert "(a person asked for it)" in notice.text


def test_a_failing_tracker_is_told_once_and_its_recovery_too() -> None:
    run = JournaledRun()
    found: list[notices.Notice] = []
    for failures in range(1, 9):
        found += run.add(rec.SourceTrouble("locked", 1.0, "", failures))
        assert bool(found) == (failures >= notices.FAILURES_TOLD)
    assert one(found).text == "the tracker has failed 3 times in a row: locked"
    assert one(run.add(rec.SourceRecovered())).event == "tracker_recovered"
    again = run.add(*(rec.SourceTrouble("locked", 1.0, "", n) for n in range(1, 4)))
    assert one(again).event == "tracker_failing"


def test_a_hiccup_of_the_tracker_is_not_told() -> None:
    assert JournaledRun().add(rec.SourceTrouble("locked"), rec.SourceRecovered()) == []


def test_the_end_is_told_with_the_figures() -> None:
    run = JournaledRun()
    run.give_up("a")
    run.add(
        rec.Finished("b", "W1", 1, "r", "success", "finish"),
        rec.SettledRecord("b", "close", "applied"),
        rec.Finished("c", "W1", 1, "r", "success", "finish"),
    )
    notice = one(run.add(rec.RunEnded(7, "idle_timeout")))
    assert notice.text == (
        "the run has ended (nothing is left to do):"
        " closed 1, failed attempts 1, quarantined 1, unclosed 1"
    )
    assert (notice.closed, notice.failed, notice.unclosed, notice.exit_code) == (1, 1, 1, 7)


def test_the_environment_is_text_that_no_terminal_obeys_and_json_says_the_same() -> None:
    notice = one(JournaledRun().give_up("a", "e\x1b[2J\0", "t\x07"))
    found = notices.environment(notice)
    assert all(value.isprintable() for value in found.values())
    assert (found["BW_EVENT"], found["BW_ISSUE_ID"], found["BW_ERROR"]) == (
        "quarantined",
        "a",
        "e\\x1b[2J\\x00",
    )
    assert found["BW_EXIT_CODE"] == ""
    fields: dict[str, Any] = to_plain(notice)
    assert fields["text"] == found["BW_TEXT"]


def closed(trouble: str, todo: str = "") -> rec.AccountClosed:
    """The account of claude takes no work."""
    why = "not logged in" if todo else "5-hour limit"
    return rec.AccountClosed("c1", "claude", trouble, why, "", 0.0, EPOCH + 60, EPOCH, todo)


def test_an_account_that_needs_a_person_is_told_at_once_with_what_mends_it() -> None:
    told = JournaledRun()
    (notice,) = told.add(closed("needs_person", "claude /login"))
    assert notice.event == "account_needs_person"
    assert notice.text == (
        "claude: not logged in - mend it with 'claude /login', then 'beads-workers resume'"
    )
    assert notices.environment(notice)["BW_TODO"] == "claude /login"
    assert told.add(closed("needs_person", "claude /login")) == []
    (mended,) = told.add(rec.AccountOpened("c1", "claude"))
    assert (mended.event, mended.agent) == ("account_opened", "claude")


def test_a_limit_is_told_once_and_an_overload_never() -> None:
    told = JournaledRun()
    (notice,) = told.add(closed("limited"))
    assert (notice.event, notice.agent, notice.todo) == ("account_limited", "claude", "")
    assert told.add(closed("limited"), rec.AccountOpened("c1", "claude")) == []
    assert told.add(closed("transient")) == []
    assert [each.event for each in told.add(closed("limited"))] == ["account_limited"]


def test_a_budget_that_is_spent_is_told_once() -> None:
    told = JournaledRun()
    why = "the budget of $20 is spent ($20.10, 12345 tokens)"
    (notice,) = told.add(rec.BudgetSpent(why), rec.RunChanged("paused", why))
    assert notice.event == "budget_spent"
    assert notice.text == f"{why}: nothing more is begun"
    # Resumed by a person, and spent again.
    again = "the budget of $20 is spent ($20.50, 12400 tokens)"
    assert told.add(rec.BudgetSpent(again), rec.RunChanged("paused", again)) == []
    (asked,) = told.add(rec.RunChanged("paused", "the budget of the day"))
    assert asked.event == "paused"


def test_a_notice_and_the_end_of_a_run_say_what_agents_used() -> None:
    told = JournaledRun()
    receipt = Receipt("done", usage={"m": Tokens(1000)}, money=0.5, flags=("look",))
    ended = rec.Finished("a", "W1", 1, "r", "success", "finish", receipt=receipt)
    told.add(rec.Started("a", "W1", 1, "r", agent="claude"), ended)
    (notice,) = told.add(rec.RunEnded(0, "idle_timeout"))
    assert (notice.spent_usd, notice.tokens) == (0.5, 1000)
    assert notice.text.endswith("; agents used 1.0k tok $0.50; 1 issue to look at")


# --- landing --------------------------------------------------------------------------------------


def test_a_branch_that_does_not_land_is_told_like_any_that_is_quarantined() -> None:
    there = JournaledRun()
    notice = one(there.add(rec.LandingTip(TIP, BRANCH), *worked("a"), *refused("a")))
    assert notice.event == "quarantined" and notice.issue_ids == ("a",)
    assert notice.text == (
        "a (Do a) was quarantined with its branch: its branch conflicts with what has landed"
        " (landed by a): README"
    )
    assert there.add(*worked("b"), *refused("b", "mend")) == [], "its agent sees to it"


def test_that_nothing_lands_is_told_once_until_something_does() -> None:
    there = JournaledRun()
    why = rec.DegradedBegan("landing", "nothing lands, main is red", "mend it")
    notice = one(there.add(why))
    assert (notice.event, notice.text, notice.todo) == ("landing_paused", why.text, "mend it")
    assert there.add(rec.DegradedEnded("landing"), why) == [], "it was only tried again"
    assert one(there.add(*worked("a"), *landed("a"))).event == "landing_resumed"
    assert there.add(*worked("b"), *landed("b")) == []
    assert one(there.add(why)).event == "landing_paused"


def test_the_end_of_a_run_counts_what_landed_and_what_did_not() -> None:
    there = JournaledRun()
    *_, last = there.add(*night(), rec.RunEnded(0, "idle_timeout"))
    assert (last.landed, last.unlanded) == (3, 1)
    assert "; landed 3 on bw-landing/main; waiting to land 1" in last.text
    told = notices.environment(last)
    assert (told["BW_LANDED"], told["BW_UNLANDED"]) == ("3", "1")
