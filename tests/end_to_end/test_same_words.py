"""The dashboard and the live page draw the same run: the same words, counts and order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from beads_workers.core.records import journal as rec
from beads_workers.ui.backlog import issue_rows, of_snapshot
from beads_workers.ui.time_text import began_at
from beads_workers.ui.viewer import Pane, Part, Screen, rows_of
from beads_workers.ui.words import OUTCOME_WORDS
from tests.support import landings
from tests.support.browser import Browser, Page
from tests.support.web import Served
from tests.ui.snapshots import BEGAN, after, ended, to_decide
from tests.ui.test_view import lines

CAUSES = """[...document.querySelectorAll("#aside > li")].map((cause) => [
  [...cause.querySelectorAll("p > b, p > .bad")].map((e) => e.textContent).join(" "),
  ...[...cause.querySelectorAll("ul > li")].map((issue) =>
    issue.querySelector(".opens").textContent + issue.querySelector(".dim").textContent)])"""
WHO = "you stand in its worktree (pid 7, bash)"
COLUMNS = 240


def failed(issue_id: str, error: str, **fields: Any) -> list[rec.Record]:
    """An issue whose attempt failed; it is quarantined unless said otherwise."""
    title = f"Do {issue_id} again"
    said = {"outcome": "error", "verdict": "quarantined", "error": error, "charged": 1} | fields
    settled = rec.SettledRecord(
        issue_id, "quarantined" if said["verdict"] == "quarantined" else "release", "applied"
    )
    begun = [rec.Claimed(issue_id, title), rec.Started(issue_id, "W3", 1, "r", title)]
    return [*begun, ended(issue_id, "W3", **said), settled]


def night() -> dict[str, Any]:
    """A snapshot with something of every kind."""
    gated = rec.BranchGated("app-2", "0123456789abcdef0123456789abcdef01234567", "green", "5" * 40)
    return after(
        *to_decide(),
        gated,
        *landings.night(),
        *(record for n in (1, 2, 3) for record in failed(f"x-{n}", f"E: no such file: /a/{n}")),
        *failed("y-1", "AssertionError: 3 != 4"),
        *failed("z-1", "timed out", outcome="timeout", verdict="requeue", delay_seconds=900.0),
        *failed("z-2", "", outcome="lost", verdict="requeue"),
        *failed("o-1", WHO, outcome="cancelled", verdict="requeue", charged=0, occupied="/w/o-1"),
        rec.Claimed("r-1", "Run at once"),
        rec.Started("r-1", "W1", 2, "r", "Run at once"),
        rec.Listed((1, 2, 0, 0, 0), False, 2),
        elapsed=60.0,
    )


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    """The page of that run, which may control."""
    served = Served(controls=True)
    served.shown.begin()
    served.shown.say_once("clock", {"began_at": began_at(BEGAN.run_id)})
    served.shown.add(
        [("W3", "y-1", "", 1, 1.0, 2.0, word) for word in ("error", "lost", "timeout")]
    )
    served.tell(night())
    opened = browser.open(served.url, 400)
    opened.until("document.querySelectorAll('#aside .opens').length > 0")
    yield opened
    opened.close()
    served.close()


def told(page: Page, selector: str) -> list[str]:
    """The texts of these elements, without the blanks between words that differ."""
    found = page.value(f"[...document.querySelectorAll({selector!r})].map((e) => e.textContent)")
    return [" ".join(text.split()) for text in found]


def terminal(pane: Pane, part: Part | None = None, **screen: Any) -> list[str]:
    """The rows of a pane, wide enough for every word, with each cause unfolded."""
    seen = Screen(pane=pane, **screen)
    if part is not None:
        keys = {row["key"] for row in rows_of(seen, night(), part) if "key" in row}
        seen = Screen(pane=pane, part=part, unfolded=frozenset(keys), **screen)
    rows = lines(night(), seen, columns=COLUMNS, rows=90)
    return [" ".join(row.removeprefix(" ▾ ").split()) for row in rows]


def test_as_many_are_closed_of_as_many_and_as_many_need_a_person(page: Page) -> None:
    head, brief = terminal(Pane.FLEET)[1], terminal(Pane.HELP)[0]
    title = re.match(r"(\d+/\d+) \((\d+)!\)", page.value("document.title"))
    assert title is not None
    assert f" {title[1]} closed" in head and f" {title[1]} closed" in brief
    assert f"{title[2]} need you" in brief
    known = issue_rows(of_snapshot(night()), night(), "")
    assert int(title[2]) == sum(row["state"] in ("needs_you", "quarantined") for row in known)


def test_the_same_moment_is_named_as_the_end(page: Page) -> None:
    (at,) = re.findall(r"done about \d\d:\d\d", " ".join(told(page, "#tiles .dim")))
    assert at in terminal(Pane.FLEET)[1]


def test_all_issues_have_the_same_states_causes_notes_and_order(page: Page) -> None:
    page.click("#listed summary")
    page.until("document.querySelectorAll('#states li').length > 5")
    drawn = told(page, "#states h3, #states li")
    rows = terminal(Pane.ISSUES, Part.ISSUES)
    begin = next(n for n, row in enumerate(rows) if "not closed" in row) + 1
    assert rows[begin : begin + len(drawn) + 1] == [*drawn, ""]
    assert f"o-1 Do o-1 again {WHO}" in drawn and "3 x E: no such file: #" in drawn


def test_quarantined_issues_have_the_same_causes_and_words(page: Page) -> None:
    drawn: list[str] = []
    for cause in page.value(CAUSES):
        head, *issues = (" ".join(text.split()) for text in cause)
        drawn += [head, *issues] if len(issues) > 1 else [f"{each}: {head}" for each in issues]
    rows = terminal(Pane.QUARANTINE, Part.QUARANTINED)
    begin = next(n for n, row in enumerate(rows) if "quarantined: 5" in row) + 1
    assert rows[begin : begin + len(drawn) + 1] == [*drawn, ""]
    assert len(drawn) == 6


def test_the_same_is_to_be_decided_with_the_same_facts(page: Page) -> None:
    cards = told(page, "#asking li > p .opens, #awaiting li > p .opens")
    rows = terminal(Pane.DECISIONS, Part.DECISIONS)
    begin = next(n for n, row in enumerate(rows) if "to decide: 2" in row) + 1
    words = [row.replace(" asks ", " ").replace(" to approve ", " ") for row in rows[begin:]]
    assert words[:2] == cards
    rows = terminal(Pane.DECISIONS, Part.DECISIONS, chosen={Part.DECISIONS: "app-2"})
    for text in told(page, "#awaiting pre, #awaiting p.dim"):
        assert text in rows or not text
    assert "verify passes on 555555555555" in " ".join(rows)


def test_ended_attempts_became_the_same_in_the_same_order(page: Page) -> None:
    ids, why = told(page, "#ended code"), told(page, "#ended .why")
    rows = terminal(Pane.FLEET, Part.ENDED)
    begin = next(n for n, row in enumerate(rows) if "last outcomes" in row) + 1
    assert [row.split()[2] for row in rows[begin : begin + len(ids)]] == ids
    for row, text in zip(rows[begin:], why, strict=False):
        assert row.endswith(text)
    assert "timed out, again in 15 min: timed out" in why and "requeued: " + WHO in why


def test_outcomes_have_one_word_each(page: Page) -> None:
    legend = [re.sub(r"^\d+ ", "", text) for text in told(page, "#outcomes li")]
    assert legend == [OUTCOME_WORDS[each] for each in ("error", "timeout", "lost")]


def test_what_needs_a_person_is_said_once(page: Page) -> None:
    """The page says beside the cards what the dashboard says above its lists."""
    beside = [need["text"] for need in night()["needs"] if "approval" not in need["text"]]
    beside = [text for text in beside if " asks: " not in text]
    assert told(page, "#needs li > span") == beside
    assert f"o-1 waits: {WHO}" in beside
    assert "Open o-1" in told(page, "#needs .opens")
