"""The live page in a real browser: its looks, a run from begin to end, and what dies on the way."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from beads_workers.cli import web
from beads_workers.cli.backlog import BacklogWatch
from beads_workers.runtime.locks import is_locked
from beads_workers.ui import viewer
from beads_workers.ui.attempt_view import Pin, actions, sections
from beads_workers.ui.backlog import IssueBacklog
from beads_workers.ui.bindings import BUTTONS
from beads_workers.ui.issues import issues
from beads_workers.views.attempt_files import read_view
from tests.end_to_end.conftest import StartFleet
from tests.support.agent_projects import AgentProject
from tests.support.browser import Browser, Page
from tests.support.contrast import UNREADABLE
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import PROGRAM, Fleet, until
from tests.support.journals import HOSTILE_TITLES
from tests.support.real_agents import AgentHome, git
from tests.support.slow_line import SlowLine
from tests.support.web import (
    COMMIT,
    DIFFSTAT,
    QUESTION,
    Served,
    busy_night,
    drawn,
    everything,
    full_house,
)

pytestmark = pytest.mark.daily(2)


@pytest.fixture
def house(request: pytest.FixtureRequest) -> Iterator[Served]:
    """A page of a fleet of so many workers, which ends with the test."""
    served = everything(getattr(request, "param", 8))
    yield served
    served.close()


# --- looks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("house", [8, 100], indirect=True)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_all_of_it_can_be_read_and_fits_the_window(
    browser: Browser, house: Served, width: int, dark: bool
) -> None:
    page = drawn(browser, house.url, width, dark=dark)
    workers = page.value("document.querySelectorAll('#workers li').length")
    assert workers in (8, 100)
    assert page.value("document.documentElement.scrollWidth") == width
    page.click("#workers .row")
    page.until("document.getElementById('lines').textContent.includes('all is well')")
    assert page.value(UNREADABLE) == []
    assert page.value("document.documentElement.scrollWidth") == width
    ground = page.value("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, ground.removeprefix("rgb(").removesuffix(")").split(",")))
    assert (brightness < 200) is dark
    assert page.complaints() == []
    assert all(address.startswith((house.url, "data:")) for address in page.requests())
    page.close()


def test_the_checker_of_contrast_sees_what_cannot_be_read(browser: Browser, house: Served) -> None:
    page = drawn(browser, house.url)
    page.value("document.getElementById('facts').style.color = '#ddd'")
    assert len(page.value(UNREADABLE)) == 1
    page.close()


def test_what_a_person_is_to_type_and_what_was_spent_stand_as_they_are_meant(
    browser: Browser, house: Served
) -> None:
    looks = Served()
    looks.tell(full_house())
    told = "[...document.querySelectorAll('#needs code')].map((code) => code.textContent)"
    decided = ["answer q-1", "answer q-2", "diff a-1", "approve a-1"]
    # A card with buttons says it already.
    for served, typed in ((looks, decided), (house, [])):
        page = drawn(browser, served.url)
        commands = [*typed, "logs c", "retry --all"]
        assert page.value(told) == [f"beads-workers {each}" for each in commands]
        shown = page.value("document.body.textContent")
        assert "of $20, 12.3k tokens" in shown and "c did not land" in shown
        page.close()
    looks.close()


def test_a_page_that_was_there_all_the_time_shows_what_one_does_that_has_just_come(
    browser: Browser,
) -> None:
    served = Served()
    nights = busy_night(30, 60)
    served.tell(next(nights))
    early = drawn(browser, served.url, alone=True)
    for snapshot in islice(nights, 60):
        served.tell(snapshot)
        done = snapshot["queue"]["closed"]
        early.until(f"document.title.startsWith('{done}/')")
    served.tell({**snapshot, "workers": snapshot["workers"][3:], "accounts": []})
    early.until("document.querySelectorAll('#workers li').length === 27")
    late = drawn(browser, served.url, alone=True)
    shown = "document.querySelector('main').textContent.replace(/\\d+ s/g, '')"
    late.until(f"{shown} === {json.dumps(early.value(shown))}")
    for page in (early, late):
        assert page.complaints() == []
        page.close()
    served.close()


def test_a_slow_line_is_no_hindrance(browser: Browser) -> None:
    served = Served(controls=True)
    served.shown.begin()
    rows = [("W1", f"e-{n}", f"case {n}", 1, n, n + 0.8, "error") for n in range(3000)]
    served.shown.add(rows)
    served.tell(next(busy_night(100, 500)))
    line = SlowLine(served.port, delay=0.1, rate=64_000)
    page = drawn(browser, served.url.replace(str(served.port), str(line.port)), 400)
    page.until("document.querySelectorAll('#timeline rect.bar').length >= 3000")
    assert line.received < 90_000, "of the page, a hundred workers and three thousand attempts"
    page.click("#workers .row")
    page.until("document.getElementById('lines').textContent.includes('all is well')")
    assert page.complaints() == []
    page.close()
    line.close()
    served.close()


def test_no_text_of_anybody_becomes_markup(browser: Browser, house: Served) -> None:
    page = drawn(browser, house.url)
    page.click("#workers .row")
    page.until("document.getElementById('lines').textContent.includes('all is well')")
    said = page.value("document.body.textContent")
    for hostile in HOSTILE_TITLES[:2]:
        assert hostile in said
    assert "\u202e" not in said and "\\u202e" in said and "\x1b" not in said
    assert (
        page.value("document.querySelectorAll('img, iframe, object, link[href^=http]').length") == 0
    )
    assert page.value("document.querySelectorAll('script').length") == 1
    # Even a mistake of ours would stay without effect.
    page.value(
        "(() => { const s = document.createElement('div');"
        " try { s.innerHTML = '<img src=x onerror=\"window.broken = 1\">';"
        " document.body.append(s); }"
        " catch (e) { window.refused = true; } })()"
    )
    assert page.value("window.refused") is True and page.value("window.broken ?? 0") == 0
    page.close()


def test_the_page_cannot_be_put_into_another_one(
    browser: Browser, house: Served, tmp_path: Path
) -> None:
    file = tmp_path / "other.html"
    file.write_text(f'<iframe src="{house.url}"></iframe>')
    page = browser.open(file, 800)
    assert any("frame-ancestors" in json.dumps(c) for c in page.complaints())
    assert house.shown.viewers == 0
    page.close()


def test_a_bar_says_what_it_stands_for_and_the_span_can_be_chosen(
    browser: Browser, house: Served
) -> None:
    page = drawn(browser, house.url)
    bars = "document.querySelectorAll('#timeline rect.bar').length"
    page.until(f"{bars} === 9 + 4")
    page.click("#timeline rect.o-error")
    told = page.value("document.getElementById('detail').textContent")
    assert told.startswith("e-0 ") and "attempt 1 on W1, failed, began 0 s, 0.8 s" in told
    page.click("[name=span][value='60']")
    page.until("[...document.querySelectorAll('.tick text')].at(-1).textContent === '1 min'")
    page.close()


# --- control ----------------------------------------------------------------------------------


def look_at(page: Page, label: str) -> None:
    """Open the diff beside this box, and close it again: only then it may be approved."""
    approve = f'document.querySelector("{beside(label, "approve")}")'
    assert page.value(f"{approve}.disabled")
    page.click(beside(label, "diff"))
    page.until(f"!{approve}.disabled")
    page.click("#close")


def say_yes(page: Page, house: Served, button: str) -> None:
    asked = len(house.asked)
    seen = "document.getElementById('question').open"
    page.click(button)
    page.until(seen)
    page.click("#yes")
    page.until(f"!{seen}")
    # An answer to the question before may still be on the page.
    until(lambda: len(house.asked) > asked, 5, str(house.asked))
    page.until("!document.getElementById('answer').hidden")


@pytest.mark.parametrize("width", [1280, 400])
def test_what_a_person_says_yes_to_is_asked_and_nothing_else(
    browser: Browser, house: Served, width: int
) -> None:
    page = drawn(browser, house.url, width)
    seen = "document.getElementById('question').open"
    for button in ("#drain", "#stop", "#retry-all"):
        page.click(button)
        page.until(seen)
        page.click("#question [value='']")
        page.until(f"!{seen}")
    assert house.asked == [], "what cannot be undone is asked about"
    page.click("#workers .row")
    page.until("document.getElementById('release') !== null")
    say_yes(page, house, "#release")
    page.click("#close")
    for button in ("#pause", "#more", "#fewer", "#aside .again"):
        before = len(house.asked)
        page.click(button)
        until(lambda before=before: len(house.asked) > before)
        assert not page.value(seen), "what can be undone is done"
    for button in ("#drain", "#stop"):
        say_yes(page, house, button)
    assert house.asked == [
        ("bw.release", {"issue_ids": ["app-1"]}),
        ("bw.pause", {}),
        ("bw.scale", {"workers": 1, "relative": True}),
        ("bw.scale", {"workers": -1, "relative": True}),
        ("bw.retry", {"issue_ids": ["x-1"]}),
        ("bw.stop", {"drain": True}),
        ("bw.stop", {}),
    ]
    assert page.complaints() == []
    page.close()


def test_a_page_that_may_only_look_has_no_buttons_for_more(browser: Browser) -> None:
    served = Served()
    served.tell(full_house())
    page = drawn(browser, served.url)
    page.click("#workers .row")
    page.until("document.getElementById('lines').textContent.includes('all is well')")
    more = "#controls, #acts *, .again, .again-all, #retry-all, .form button, textarea"
    hidden = f"![...document.querySelectorAll('{more}')].some((e) => e.checkVisibility())"
    assert page.value(hidden)
    assert page.value("document.querySelectorAll('.decisions pre:not([hidden])').length") == 3
    first = full_house(2) | {"queue": dict.fromkeys(full_house()["queue"], 0)}
    first["source_calls"] |= {"now": "listing", "count": 0}
    served.tell(first)  # Nobody knows yet what is to do.
    page.until("document.getElementById('tiles').textContent.includes('not listed yet')")
    page.close()
    served.close()


BOX = "document.querySelector(\"textarea[aria-label='{}']\")"
SAID = "document.getElementById('answer').textContent"


def write(page: Page, label: str, text: str) -> None:
    """Type into a box, after what is there."""
    page.click(f"textarea[aria-label='{label}']")
    page.type(text)


def beside(label: str, button: str) -> str:
    return f"textarea[aria-label='{label}'] ~ .{button}"


@pytest.mark.parametrize("width", [1280, 400])
def test_a_person_answers_approves_and_rejects(browser: Browser, house: Served, width: int) -> None:
    page = drawn(browser, house.url, width)
    shown = page.value("[...document.querySelectorAll('.decisions pre')].map((e) => e.innerText)")
    assert shown[0] == shown[1] == QUESTION.replace("\u202e", "\\u202e")
    assert shown[2] == DIFFSTAT and page.value("innerWidth") == width
    about = page.value("document.querySelector('#awaiting li').innerText")
    said = f"{COMMIT[:12]} on bw/a-1/1 by claude, not verified"
    assert HOSTILE_TITLES[1] in about and said in about
    assert "3 waiting for you" in page.value("document.getElementById('legend').textContent")
    ended = "[...document.querySelectorAll('#ended li')].find((e) => e.textContent.includes('q-2'))"
    assert page.value(f"{ended}.querySelector('.why').textContent") == "asks"
    fill = f"getComputedStyle({ended}.querySelector('rect')).fill"
    assert page.value(fill) != "rgb(0, 0, 0)", "its outcome has a colour"
    assert page.value(f"!{ended}.querySelector('.bad')"), "a question is no fault"
    write(page, "Answer to q-2", " call it FOO\nplease ")
    place = "document.getElementById('asking').offsetTop"
    before = page.value(place)
    page.click(beside("Answer to q-2", "reply"))
    page.until(f"{SAID} === 'done: bw.answer'")
    assert page.value(place) == before, "what is said moves nothing under a finger"
    assert page.value(BOX.format("Answer to q-2") + ".value") == ""
    write(page, "Remarks on a-1", "use euros")
    page.click(beside("Remarks on a-1", "reject"))
    page.until(f"{SAID} === 'done: bw.reject'")
    look_at(page, "Remarks on a-1")
    say_yes(page, house, beside("Remarks on a-1", "approve"))
    assert house.asked == [
        ("bw.answer", {"issue_ids": ["q-2"], "text": "call it FOO\nplease"}),
        ("bw.reject", {"issue_ids": ["a-1"], "text": "use euros"}),
        ("bw.approve", {"commits": {"a-1": COMMIT}}),
    ]
    assert page.complaints() == []
    page.close()


def test_an_opened_question_stands_above_its_box(browser: Browser, house: Served) -> None:
    page = drawn(browser, house.url)
    page.click("#asking .opens")
    page.until("document.querySelector('#acts textarea') !== null")
    asked = page.value("document.querySelector('#acts pre').innerText")
    assert asked == page.value("document.querySelector('#asking pre').innerText")
    above = "document.querySelector('#acts pre').getBoundingClientRect().bottom"
    assert page.value(f"{above} <= {BOX.format('Answer to q-1')}.getBoundingClientRect().top")
    page.press("Escape")
    page.click("#awaiting .opens")
    page.until("document.querySelector('#acts .approve') !== null")
    assert page.value("document.querySelector('#acts pre') === null")
    page.close()


SEEN = "document.querySelector({!r}).checkVisibility()"


def test_what_the_page_does_is_not_to_be_typed_on_a_phone(browser: Browser, house: Served) -> None:
    def needs(*rows: tuple[str, str]) -> dict[str, Any]:
        return full_house() | {"needs": [{"text": t, "remedy": r} for t, r in rows]}

    house.tell(needs(("2 quarantined", "logs x-1; retry x-1 x-2"), ("paused", "resume")))
    page = drawn(browser, house.url, 400)
    assert page.value(SEEN.format("#needs .tapped"))
    page.call("Emulation.setTouchEmulationEnabled", enabled=True)
    page.until(f"!{SEEN.format('#needs .tapped')}")
    told = "[...document.querySelectorAll('#needs code')].filter((e) => e.checkVisibility())"
    assert page.value(f"{told}.map((e) => e.textContent)") == ["beads-workers resume"]
    top = "Math.abs(document.getElementById('quarantined').getBoundingClientRect().top) < 400"
    assert not page.value(top)
    page.click("#needs .below")
    page.until(top)
    # Nor once no fleet runs: the server of the page does it.
    write(page, "Answer to q-2", "call it FOO")
    house.shown.say("fleet", {"state": "ended", "until": 1.0})
    page.until("document.getElementById('state').textContent.includes('ended')")
    page.click(beside("Answer to q-2", "reply"))
    until(lambda: house.asked == [("bw.answer", {"issue_ids": ["q-2"], "text": "call it FOO"})])
    typed = page.value(f"{told}.map((e) => e.textContent).join(' ')")
    assert not {"answer", "approve", "diff", "reject"} & {*typed.split()}
    page.close()


def test_nothing_is_sent_without_words_and_a_refusal_loses_none(
    browser: Browser, house: Served
) -> None:
    page = drawn(browser, house.url)
    for label, button, said in (
        ("Answer to q-1", "reply", "Type the answer first."),
        ("Remarks on a-1", "reject", "Type what is wrong first"),
    ):
        write(page, label, "  ")
        page.click(beside(label, button))
        page.until(f"{SAID}.startsWith({said!r})")
        assert page.value(f"document.activeElement === {BOX.format(label)}")
    look_at(page, "Remarks on a-1")
    page.click(beside("Remarks on a-1", "approve"))
    page.click("#question [value='']")
    write(page, "Answer to q-1", "y" * 10_001)
    page.click(beside("Answer to q-1", "reply"))
    page.until(f"{SAID} === 'At most 10,000 characters can be sent.'")
    assert house.asked == []
    house.error = "no question is open"
    write(page, "Answer to q-2", "call it FOO")
    page.click(beside("Answer to q-2", "reply"))
    page.until(f"{SAID} === {house.error!r}")
    assert page.value(BOX.format("Answer to q-2") + ".value") == "call it FOO"
    page.close()


def test_a_half_typed_text_outlives_all_that_happens_meanwhile(
    browser: Browser, house: Served
) -> None:
    page = drawn(browser, house.url)
    box = BOX.format("Answer to q-2")
    first, second = full_house()["questions"]
    write(page, "Remarks on a-1", "use eu")
    write(page, "Answer to q-2", "call  FOO")
    page.value(f"{box}.setSelectionRange(5, 5)")

    def happens(questions: list[Any], seen: str, **more: Any) -> None:
        house.tell({**full_house(), "questions": questions, **more})
        page.until(seen)

    boxes = "document.querySelectorAll('#asking textarea').length === "
    happens([second], f"{boxes} 1")
    happens([{**first, "issue_id": "q-0"}, second, first], f"{boxes} 3")
    page.type("it")
    assert page.value(f"document.activeElement === {box}")
    assert page.value(f"{box}.value") == "call it FOO", "neither focus nor place is lost"
    happens([], "!document.getElementById('asking').checkVisibility()", landing=None, approvals=[])
    for commit in ("f" * 40, "e" * 40):
        newer = full_house()["approvals"]
        newer[0]["commit"] = commit
        seen = f"document.querySelector('#awaiting .dim')?.textContent.includes({commit[:12]!r})"
        happens([first, second], seen, approvals=newer)
    assert page.value(f"{box}.value") == "call it FOO", "its card was away for a moment"
    assert page.value(BOX.format("Remarks on a-1") + ".value") == "use eu"
    house.shown.say("fleet", {"state": "lost"})
    page.until("document.getElementById('state').textContent.includes('gone')")
    assert page.value(f"{box}.checkVisibility() && !{box}.readOnly")
    house.shown.say("fleet", {"state": "live"})
    page.until("document.getElementById('state').textContent === 'running'")
    assert page.value(f"{box}.value") == "call it FOO"
    look_at(page, "Remarks on a-1")
    say_yes(page, house, beside("Remarks on a-1", "approve"))
    assert house.asked == [("bw.approve", {"commits": {"a-1": "e" * 40}})], "as it is shown now"
    # Another question of the same issue has nothing to do with that answer.
    happens([{**second, "asked_at": second["asked_at"] + 60}], f"{boxes} 1")
    assert page.value(f"{box}.value") == "" and page.complaints() == []
    page.close()


def test_an_open_attempt_stays_whatever_begins_or_ends(browser: Browser, house: Served) -> None:
    page = drawn(browser, house.url)
    page.click("#workers .row")
    page.until("document.getElementById('lines').textContent.includes('all is well')")
    title = page.value(TEXT.format("log-title"))
    assert title == "app-1 attempt 1 on W1: Say what went wrong"
    workers = full_house()["workers"]
    workers[0] |= {"issue_id": "app-9", "title": "another", "attempt": 2, "elapsed_seconds": 0.1}
    for shown in (workers, workers[1:], []):
        house.tell({**full_house(), "workers": shown})
        page.until(f"document.querySelectorAll('#workers li').length === {len(shown)}")
        assert page.value(TEXT.format("log-title")) == title
        assert page.value("document.getElementById('lines').textContent.includes('all is well')")
    page.press("Escape")
    page.until("document.getElementById('log').hidden")
    assert page.complaints() == []
    page.close()


ROWS = {
    "#needs .opens": "c",
    "#asking .opens": "q-1",
    "#awaiting .opens": "a-1",
    "#ended .opens": "a-1",
    "#waiting .opens": "e",
    "#landed .opens": "d",
    "#aside .opens": "x-1",
    "#detail .opens": "app-4",
}


@pytest.mark.parametrize("width", [1280, 400])
def test_each_row_leads_to_its_attempt_by_mouse_and_by_keyboard(
    browser: Browser, house: Served, width: int
) -> None:
    page = drawn(browser, house.url, width)
    page.value("document.getElementById('timeline').focus()")
    page.press("ArrowLeft")
    page.until("document.querySelector('#detail .opens') !== null")
    for selector, issue in ROWS.items():
        page.click(selector)
        page.until(f"{TEXT.format('log-title')}.split(/[ :]/)[0] === {issue!r}")
        page.press("Escape")
        page.until("document.getElementById('log').hidden")
        focused = f"document.activeElement === document.querySelector({selector!r})"
        assert page.value(focused), "the focus goes back to where it was"
    page.value("document.getElementById('timeline').focus()")
    for key in ("ArrowDown", "ArrowDown", "ArrowUp"):
        page.press(key)
    page.press("Enter")
    page.until(f"{TEXT.format('log-title')}.startsWith('app-3 ')")
    assert page.complaints() == []
    page.close()


def test_an_attempt_is_read_from_end_to_end(browser: Browser, house: Served) -> None:
    page = drawn(browser, house.url)
    page.click("#workers .row")
    lines = "document.getElementById('lines')"
    page.until(f"{lines}.textContent.includes('line 59')")
    assert page.value(f"{lines}.scrollTop + {lines}.clientHeight >= {lines}.scrollHeight - 1")
    page.click("#find")
    page.type("LINE 4")
    page.until("document.getElementById('hits').value === '1 of 11'")
    page.press("Enter")
    page.until("document.querySelector('.hit.at').textContent.includes('line 40')")
    assert page.value("document.querySelector('.line .t').checkVisibility()") is False
    page.click("#times")
    time = "document.querySelector('.line .t').textContent"
    page.until(f"/^\\d\\d:\\d\\d:\\d\\d$/.test({time})")
    page.click("#wrap")
    assert page.value("getComputedStyle(document.querySelector('.line')).whiteSpace") == "pre"
    page.click("#tab-diff")
    page.until("document.querySelectorAll('#diff .plus, #diff .minus').length === 2")
    assert HOSTILE_TITLES[0] in page.value(TEXT.format("diff"))
    page.press("ArrowRight")
    page.until("document.querySelector('#about h3').textContent === 'why app-1'")
    page.until(f"document.getElementById('about').textContent.includes({HOSTILE_TITLES[0]!r})")
    assert page.complaints() == []
    page.close()


HIDE = (
    "Object.defineProperty(document, 'hidden', {{value: {}, configurable: true}});"
    " document.dispatchEvent(new Event('visibilitychange'))"
)
ICON = "decodeURIComponent(document.querySelector('link[rel=icon]').href)"


def test_the_title_and_the_icon_count_what_is_given_up_and_what_waits_for_a_person(
    browser: Browser, house: Served
) -> None:
    page = drawn(browser, house.url)
    shown = full_house()
    person = shown["queue"]["quarantined"] + 3
    everything = (
        f"{shown['totals']['done']}/{shown['totals']['done'] + 5 + person} ({person}!) project"
    )
    assert page.value("document.title") == everything
    icon = page.value(ICON)
    house.shown.say("fleet", {"state": "lost"})
    page.until(f"document.title.includes(' gone ') && {ICON} !== {icon!r}")
    assert page.complaints() == []
    page.close()


def test_a_page_in_the_background_still_counts_and_says_what_needs_a_person(
    browser: Browser, embedded: EmbeddedProject, webbed: Callable[..., Fleet]
) -> None:
    go = embedded.folder / "go"
    embedded.create_many([{"title": "fails"}])
    task = f"while [ ! -e {go} ]; do sleep 0.05; done; exit 1"
    arguments = ("-n", "1", "--max-attempts", "1", "--until-empty", "--", "sh", "-c", task)
    fleet = webbed(embedded, *arguments)
    page = drawn(browser, url_of(fleet))
    # What the browser would show, and that time passes: a tab in the background is slow.
    page.value(
        "window.Notification = class { static permission = 'granted';"
        " constructor(title, more) { (window.noticed ??= []).push([title, more.body]); } }; 0"
    )
    page.value(HIDE.format("true"))
    page.until("document.title.startsWith('0/1')")
    go.touch()
    assert fleet.wait() == 7
    page.until("document.title.startsWith('0/1 (1!) ended')")
    said = "(window.noticed ?? []).map((each) => each[1]).join('; ')"
    page.until(f"{said}.includes('1 issue needs you') && {said}.includes('the run has ended')")
    assert page.complaints() == []
    page.close()


def test_a_page_in_the_background_has_no_stream(browser: Browser, house: Served) -> None:
    page = drawn(browser, house.url)
    assert house.shown.viewers == 1
    page.value(HIDE.format("true"))
    until(lambda: [house.tell({"n": n}) for n in range(2)] and house.shown.viewers == 0)
    house.tell(full_house())
    page.value(HIDE.format("false"))
    page.until("document.getElementById('state').textContent === 'running'")
    page.close()


def test_the_end_of_a_run_is_read_by_somebody_who_touches_the_page(
    browser: Browser, house: Served
) -> None:
    page = drawn(browser, house.url)
    page.click("h1")
    assert not house.shown.end_was_read, "it still runs"
    house.shown.say("fleet", {"state": "ended", "until": 1.0})
    page.until("document.getElementById('banner').textContent.includes('is served until')")
    assert not house.shown.end_was_read, "a page that lies open has no reader"
    page.click("h1")
    until(lambda: house.shown.end_was_read)
    assert page.complaints() == []
    page.close()


# --- real fleets ------------------------------------------------------------------------------


def kept(fleet: Fleet) -> dict[str, Any]:
    """Where its page is, as its server has written it down."""
    told: dict[str, Any] = json.loads((fleet.state_directory / "web.json").read_bytes())
    return told


@pytest.fixture
def webbed(start: StartFleet) -> Iterator[Callable[..., Fleet]]:
    """Starts fleets with a page; its server ends with the test."""
    fleets: list[Fleet] = []

    def begin(project: EmbeddedProject, *arguments: str, **options: Any) -> Fleet:
        fleets.append(start(project, "--web", *arguments, **options))
        return fleets[-1]

    yield begin
    for fleet in fleets:
        if is_locked(fleet.state_directory / "web.json"):
            os.kill(kept(fleet)["pid"], signal.SIGTERM)


def url_of(fleet: Fleet) -> str:
    """As ``start`` says it."""
    match = re.search(r"ok web +(http\S+)", fleet.started().errors)
    assert match is not None, fleet.said()
    return match[1]


TEXT = "document.getElementById('{}').textContent"
STATE = TEXT.format("state")


def test_four_viewers_see_a_run_from_its_begin_to_its_end(
    browser: Browser, embedded: EmbeddedProject, webbed: Callable[..., Fleet]
) -> None:
    rows = [{"title": HOSTILE_TITLES[n % 10] or "none"} for n in (0, 1, 3, 5) * 6]
    embedded.create_many(rows)
    # Every seventh fails once; all wait for the file, so that everybody is there at the beginning.
    go = embedded.folder / "go"
    task = (
        f'while [ ! -e {go} ]; do sleep 0.05; done; echo "{{id}} at work"; sleep 0.3;'
        ' [ "$(( ${BW_ISSUE_ID#bw-} % 7 ))" != 0 ] || [ "$BW_ATTEMPT" != 1 ]'
    )
    arguments = ("-n", "6", "--until-empty", "--retry-delay", "0.1", "--", "sh", "-c", task)
    fleet = webbed(embedded, *arguments)
    url = url_of(fleet)
    assert stat.S_IMODE((fleet.state_directory / "web.json").stat().st_mode) == 0o600
    assert web.url(fleet.state_directory) == url
    widths = (1280, 400)
    pages = [browser.open(url, widths[n % 2], dark=n % 4 > 1, alone=True) for n in range(4)]
    for page in pages:
        page.until(f"{STATE} === 'running'")
        page.until("document.querySelectorAll('#timeline rect.o-running').length === 6")
    pages[0].click("#workers .row")
    go.touch()
    pages[0].until(f"{TEXT.format('lines')}.includes('at work')")
    pages[0].click("#close")
    assert fleet.wait() in (0, 7), fleet.said()
    for page in pages:
        page.until(f"{STATE} === 'ended'")
        page.until("document.querySelectorAll('#timeline rect.bar').length === 24 + 3")
        tiles = page.value("[...document.querySelectorAll('#tiles > div')].map(d => d.innerText)")
        assert tiles[0].split("\n")[:2] == ["closed", "24"]
        assert page.value("document.documentElement.scrollWidth") in widths
        assert page.value(UNREADABLE) == []
        assert page.complaints() == []
        page.close()
    fleet.leaves_nothing()


def test_an_open_page_goes_on_with_the_next_run_after_a_kill(
    browser: Browser, embedded: EmbeddedProject, webbed: Callable[..., Fleet]
) -> None:
    embedded.create_many([{"title": f"number {n}"} for n in range(4)])
    first = webbed(embedded, "-n", "2", "--", "sleep", "60")
    page = browser.open(url_of(first), 1280)
    page.value("window.same = true")
    page.until("document.querySelectorAll('#timeline rect.o-running').length === 2")
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    page.until(f"{STATE} === 'orchestrator gone'")
    assert "ended without a word" in page.value(TEXT.format("banner"))
    second = webbed(embedded, "-n", "2", "--until-empty", "--", "sleep", "0.2")
    assert url_of(second) == url_of(first)
    assert second.wait() == 0, second.said()
    page.until(f"{STATE} === 'ended'")
    page.until("document.querySelectorAll('#timeline rect.o-success').length === 4")
    assert second.run_id in page.value(TEXT.format("run"))
    assert page.value("window.same") is True and page.complaints() == []
    page.close()


def test_a_run_that_waits_for_its_time_says_so_and_a_click_begins_it(
    browser: Browser, embedded: EmbeddedProject, webbed: Callable[..., Fleet]
) -> None:
    embedded.create_many([{"title": "long"}])
    hours = ("--start-at", "20h", "--until", "8h")
    fleet = webbed(embedded, "-n", "1", "--web-control", *hours, "--", "sleep", "60")
    page = browser.open(url_of(fleet), 1280)
    page.until(f"{STATE}.startsWith('waiting until ')")
    assert page.value(TEXT.format("banner")).startswith("Waiting: the first attempt begins at ")
    assert page.value(TEXT.format("pause")) == "Begin now"
    page.click("#pause")
    page.click("#yes")
    page.until(f"{STATE}.startsWith('running until ')")
    page.until("document.querySelectorAll('#timeline rect.o-running').length === 1")
    assert page.complaints() == []
    page.close()


def test_a_night_is_talked_over_on_a_phone(
    browser: Browser, tmp_path: Path, home: AgentHome, webbed: Callable[..., Fleet]
) -> None:
    project = AgentProject(tmp_path, home)
    asks = '[[stub: say "Outcome: question: FOO or BAR?"]]'
    project.create_many(
        [
            {"description": f'{asks} [[stub when "call it FOO": write a.py "FOO"]]'},
            {"description": '[[stub: write b.py "b"]]', "labels": ["land:ask"]},
            {
                "description": '[[stub: write c.py "$"]] [[stub when "use euros": write c.py "e"]]',
                "labels": ["land:ask"],
            },
        ]
    )
    options = ("-n", "1", "--agent", "claude", "--retry-delay", "0", "--poll", "0.3s")
    fleet = webbed(project, "--web-control", *options)
    page = browser.open(url_of(fleet), 400)
    page.until("document.querySelectorAll('.decisions textarea').length === 3")
    assert page.value("document.querySelector('#asking pre').innerText") == "FOO or BAR?"
    write(page, "Answer to bw-1", "call it")
    write(page, "Remarks on bw-3", "use")
    os.kill(fleet.pid, signal.SIGKILL)
    page.until(f"{STATE} === 'orchestrator gone'")
    fleet = webbed(project, "--web-control", *options)
    page.until(f"{STATE} === 'running'")
    page.until("document.querySelectorAll('.decisions textarea').length === 3")
    write(page, "Answer to bw-1", " FOO")
    page.click(beside("Answer to bw-1", "reply"))
    commit = f"{BOX.format('Remarks on bw-3')}?.closest('li').querySelector('.dim').textContent"
    first = page.value(commit)
    write(page, "Remarks on bw-3", " euros")
    page.click(beside("Remarks on bw-3", "reject"))
    look_at(page, "Remarks on bw-2")
    page.click(beside("Remarks on bw-2", "approve"))
    page.click("#yes")
    until(lambda: project.statuses()[:2] == ["closed", "closed"])
    assert "call it FOO" in fleet.call("show", "bw-1").stdout, "as a comment of the person"
    page.until(f"({commit} ?? {first!r}) !== {first!r}")
    look_at(page, "Remarks on bw-3")
    page.click(beside("Remarks on bw-3", "approve"))
    page.click("#yes")
    until(lambda: project.statuses()[2] == "closed")
    page.until("!document.querySelector('.decisions li')")
    said = [git(project.folder, "show", f"bw-landing/main:{name}.py").strip() for name in "abc"]
    assert said == ["FOO", "b", "e"]
    assert page.value("document.documentElement.scrollWidth") == 400
    assert page.complaints() == []
    page.close()


def test_an_attempt_that_awaits_approval_is_read_and_landed_on_a_phone(
    browser: Browser, tmp_path: Path, home: AgentHome, webbed: Callable[..., Fleet]
) -> None:
    project = AgentProject(tmp_path, home)
    said = f"&lt;b&gt; {HOSTILE_TITLES[0]}"
    project.create_many(
        [
            {
                "title": said,
                "description": '[[stub: write b.py "<i>b</i>"]]',
                "labels": ["land:ask"],
            },
            {"description": "[[stub: fail]]"},
        ]
    )
    options = ("-n", "1", "--agent", "claude", "--max-attempts", "2", "--retry-delay", "0")
    fleet = webbed(project, "--web-control", *options)
    page = browser.open(url_of(fleet), 400)
    page.until("document.querySelector('#awaiting .opens') !== null")
    page.click("#awaiting .opens")
    page.until(f"{TEXT.format('lines')}.includes('[beads-workers] agent claude')")
    page.click("#tab-diff")
    page.until(f"{TEXT.format('diff')}.includes('+<i>b</i>')")
    page.click("#tab-about")
    page.until(f"{TEXT.format('about')}.includes('awaits')")
    # The page draws the same model as the dashboard: words, counts and order.
    pin = Pin("bw-1", fleet.run_id)
    view = read_view(fleet.state_directory, pin)
    written = "[...document.querySelectorAll('#about section')].slice(1).map((each) =>"
    written += " [each.querySelector('h3').textContent,"
    written += " [...each.querySelectorAll('.line, li')].map((e) => e.textContent.trimEnd())])"
    drawn_ = [[heading, lines] for heading, lines in sections(view, ()) if lines]
    assert page.value(written) == drawn_
    acts = "[...document.querySelectorAll('#acts button')].map((each) => each.textContent)"
    labels = {each.name: each.label for each in BUTTONS}
    wanted = [labels[each.button] for each in actions("bw-1", fleet.status())]
    assert page.value(acts) == wanted == ["Approve", "Reject"]
    page.click("#acts .approve")
    page.click("#yes")
    until(lambda: project.statuses()[0] == "closed")
    page.until(f"{TEXT.format('about')}.includes('bw-1 landed as')")
    assert page.value(acts) == []
    assert page.value("document.querySelectorAll('#log b, #log i').length") == 0
    page.press("Escape")
    # What failed, in the morning: its last attempt, and the one before.
    page.until("document.querySelector('#aside .opens') !== null")
    page.click("#aside .opens")
    page.until(f"{TEXT.format('place')} === '2 of 2'")
    page.click("#older")
    page.until(f"{TEXT.format('place')} === '1 of 2'")
    assert "attempt 1" in page.value(TEXT.format("log-title"))
    page.until(f"{TEXT.format('acts')} === 'Try again'")
    assert page.value("document.documentElement.scrollWidth") == 400
    page.press("Escape")
    assert page.complaints() == []
    page.close()


def test_all_issues_are_listed_by_state_as_the_dashboard_lists_them(
    browser: Browser, embedded: EmbeddedProject, webbed: Callable[..., Fleet]
) -> None:
    waits = {"issue_id": "bw-4", "depends_on_id": "bw-3", "type": "blocks"}
    rows = [{"priority": 0}] * 2 + [{"title": HOSTILE_TITLES[0]}, {"dependencies": [waits]}, {}]
    embedded.create_many(rows)
    task = "case $BW_ISSUE_ID in bw-1 | bw-2) echo no luck; exit 1;; esac; sleep 60"
    fleet = webbed(embedded, "-n", "1", "--max-attempts", "1", "--", "sh", "-c", task)
    page = drawn(browser, url_of(fleet), 400)
    page.until("document.querySelectorAll('#aside .opens').length === 2")
    page.click("#listed summary")
    shown = "[...document.querySelectorAll('#states section')].map((each) =>"
    shown += " [each.querySelector('h3').textContent,"
    shown += " [...each.querySelectorAll('code')].map((e) => e.textContent)])"
    page.until(f"{shown}.length === 4")
    states = [["quarantined 2", ["bw-1", "bw-2"]], ["in progress 1", ["bw-3"]]]
    assert page.value(shown) == [*states, ["ready 1", ["bw-5"]], ["blocked 1", ["bw-4"]]]
    known = backlog_of(fleet.state_directory, fleet.status())
    screen = viewer.Screen(pane=viewer.Pane.ISSUES, part=viewer.Part.ISSUES, backlog=known)
    terminal = [row.plain for row in issues(fleet.status(), screen, 0.0, 100, 40)]
    headings = [" ".join(row.split()) for row in terminal[1:] if row[1].isalpha()]
    assert headings == [heading for heading, _ in page.value(shown)]
    assert "by bw-3" in page.value(TEXT.format("states"))
    page.click("#sought")
    page.type("BW-4")
    page.until(f"{shown}.length === 1")
    page.click("#states .opens")
    page.until(f"{TEXT.format('log-title')}.startsWith('bw-4')")
    page.until(f"{TEXT.format('lines')} === 'it printed nothing'")
    assert page.complaints() == [] and page.value("document.documentElement.scrollWidth") == 400
    page.close()


def backlog_of(directory: Path, snapshot: dict[str, Any]) -> IssueBacklog:
    """The backlog, as a dashboard asks for it."""
    watched = BacklogWatch(directory)

    def answer() -> IssueBacklog | None:
        found = watched.of(snapshot)
        return found if found is not None and not found.unseen else None

    found: IssueBacklog = until(answer)
    return found


def test_reports_of_earlier_nights_are_opened_from_the_page(
    browser: Browser, embedded: EmbeddedProject, webbed: Callable[..., Fleet]
) -> None:
    embedded.create_many([{"title": HOSTILE_TITLES[0]}])
    fleet = webbed(embedded, "-n", "1", "--until-empty", "--", "true")
    assert fleet.wait() == 0
    page = drawn(browser, url_of(fleet), 400)
    page.click("#nights")
    page.until("document.querySelector('#nights-list a') !== null")
    report = browser.open(page.value("document.querySelector('#nights-list a').href"), 400)
    assert HOSTILE_TITLES[0] in report.value("document.body.textContent")
    assert report.value("self.origin") == "null", "it is no page of this origin"
    for each in (report, page):
        assert each.complaints() == []
        each.close()


def test_an_open_page_finds_the_next_server(
    browser: Browser, embedded: EmbeddedProject, webbed: Callable[..., Fleet]
) -> None:
    embedded.create_many([{"title": "long"}])
    fleet = webbed(embedded, "-n", "1", "--", "sleep", "60")
    page = browser.open(url_of(fleet), 400)
    page.until(f"{STATE} === 'running'")
    again = fleet.call("watch", "--web")
    assert again.stdout.strip() == url_of(fleet) and "served already" in again.stderr
    other = fleet.call("watch", "--web", "--web-control")
    assert other.returncode == 2 and f"kill {kept(fleet)['pid']}" in other.stderr
    os.kill(kept(fleet)["pid"], signal.SIGKILL)
    page.until(f"{STATE} === 'reconnecting'")
    server = subprocess.Popen(
        [*PROGRAM, "watch", "--web", "--web-control"],
        cwd=embedded.folder,
        env=embedded.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert server.stdout is not None
    try:
        url = server.stdout.readline().strip()
        assert url != url_of(fleet), "the token of a server that has ended is worth nothing"
        page.until(f"{STATE} === 'running'")
        assert page.value("location.href") == url
        page.until("document.getElementById('controls').checkVisibility()")
        page.click("#pause")
        page.click("#yes")
        page.until(f"{STATE} === 'paused'")
        assert fleet.status()["state"] == "paused"
    finally:
        server.terminate()
        server.communicate()
    page.close()


STRANGER = """
import http.server, json, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print(self.path, flush=True)
        body = json.dumps({"challenge": "c", "proof": "p", "token": "x" * 22}).encode()
        if self.path.endswith("/events"):
            body = b'event: fleet\\ndata: {"state": "none"}\\n\\n'
        kind = "text/event-stream" if b"event" in body else "application/json"
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *arguments): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
"""Takes a port, prints what it is asked for, and says yes to everything."""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_another_user_who_takes_the_port_hears_nothing_of_worth_and_is_not_believed(
    browser: Browser, tmp_path: Path
) -> None:
    first = web.open_beside(tmp_path, 0, controls=True)
    page = browser.open(first.url, 400)
    page.until(f"{STATE} === 'no fleet yet'")
    os.kill(first.pid, signal.SIGKILL)
    page.until(f"{STATE} === 'reconnecting'")
    kept = json.loads((tmp_path / "web.json").read_bytes())
    port = kept["port"]
    as_stranger = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    stranger = subprocess.Popen(
        [*as_stranger, "/usr/bin/python3", "-c", STRANGER, str(port)],
        cwd="/",
        stdout=subprocess.PIPE,
    )
    assert stranger.stdout is not None
    heard = [stranger.stdout.readline().decode() for _ in range(3)]
    assert page.value(STATE) == "reconnecting"
    stranger.terminate()
    heard += [line.decode() for line in stranger.stdout.readlines()]
    stranger.wait()
    assert all(line.startswith("/resume?nonce=") for line in heard), heard
    second = web.open_beside(tmp_path, 0, controls=True)
    try:
        page.until(f"{STATE} === 'no fleet yet'")
        assert page.value("location.href") == second.url != first.url
        token = second.url.split("/")[-2]
        assert token not in "".join(heard) and kept["key"] not in "".join(heard)
        page.close()
    finally:
        os.kill(second.pid, signal.SIGTERM)


def test_the_end_of_a_run_that_nobody_watched_can_be_read(
    browser: Browser, embedded: EmbeddedProject, webbed: Callable[..., Fleet]
) -> None:
    embedded.create_many([{"title": "fails", "command": ["sh", "-c", "echo no luck; exit 1"]}])
    fleet = webbed(embedded, "-n", "1", "--until-empty", "--max-attempts", "1")
    assert fleet.wait() == 7
    page = drawn(browser, url_of(fleet))
    page.until(f"{STATE} === 'ended'")
    assert "no luck" in page.value(TEXT.format("aside"))
    assert page.value("document.querySelectorAll('#timeline rect.o-error').length") == 1
    page.close()
