"""The live page in a real browser: its looks, a run from begin to end, and what dies on the way."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from beads_workers.cli import web
from beads_workers.runtime.locks import is_locked
from tests.end_to_end.conftest import StartFleet
from tests.support.agent_projects import AgentProject
from tests.support.browser import Browser, Page
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import PROGRAM, Fleet, until
from tests.support.journals import HOSTILE_TITLES
from tests.support.real_agents import AgentHome, git
from tests.support.web import COMMIT, DIFFSTAT, QUESTION, Served, full_house

CONTRAST_LEAST = 4.5

UNREADABLE = """(() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const faults = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !node.checkVisibility()) continue;
    if (node.closest("script, style")) continue;
    const style = getComputedStyle(node);
    const ink = parse(node.closest("svg") ? style.fill : style.color);
    const [a, b] = [light(ink), light(ground(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < LEAST) faults.push([ratio.toFixed(2), walk.currentNode.data.slice(0, 40)]);
  }
  return faults;
})()""".replace("LEAST", str(CONTRAST_LEAST))
"""Text that is seen, with too little contrast to what lies below it."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One for all of these tests."""
    opened = Browser(tmp_path_factory.mktemp("browser"))
    yield opened
    opened.close()


@pytest.fixture
def house(request: pytest.FixtureRequest) -> Iterator[Served]:
    """A page that may control, of a fleet of so many workers with everything going on."""
    served = Served(controls=True)
    served.shown.begin()
    ends = [("W1", f"e-{n}", HOSTILE_TITLES[n % 10], 1, n, n + 0.8, "error") for n in range(9)]
    served.shown.add(ends)
    served.tell(full_house(getattr(request, "param", 8)))
    yield served
    served.close()


def drawn(browser: Browser, url: str, width: int = 1280, **options: bool) -> Page:
    """The page, once it shows a fleet."""
    page = browser.open(url, width, **options)
    page.until("document.querySelectorAll('#tiles dt').length > 0")
    return page


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
    page = browser.open(house.url, 1280)
    page.until("document.querySelector('#needs code') !== null")
    told = "[...document.querySelectorAll('#needs code')].map((code) => code.textContent)"
    assert page.value(told) == [
        f"beads-workers {command}"
        for command in (
            *("answer q-1", "answer q-2", "diff a-1", "approve a-1"),
            *("logs x-1", "retry --all"),
        )
    ]
    shown = page.value("document.body.textContent")
    assert "of $20, 12.3k tokens" in shown and "c not landed" in shown
    page.close()


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
    assert told.startswith("e-0 ") and "attempt 1 on W1, failed, began 0:00, 0.8 s" in told
    page.click("[name=span][value='60']")
    page.until("[...document.querySelectorAll('.tick text')].at(-1).textContent === '1:00'")
    page.close()


# --- control ----------------------------------------------------------------------------------


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
    for button, answer in (("#pause", "#question [value='']"), ("#stop", "#question [value='']")):
        page.click(button)
        page.until(seen)
        page.click(answer)
        page.until(f"!{seen}")
    assert house.asked == []
    page.click("#workers .row")
    say_yes(page, house, "#release")
    page.click("#close")
    for button in ("#pause", "#more", "#fewer", "#aside button", "#stop"):
        say_yes(page, house, button)
    assert house.asked == [
        ("bw.release", {"issue_ids": ["app-1"]}),
        ("bw.pause", {}),
        ("bw.scale", {"workers": 9}),
        ("bw.scale", {"workers": 7}),
        ("bw.retry", {"issue_ids": ["x-1"]}),
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
    more = "#controls, #release, .again, #retry-all, .decisions button, .decisions textarea"
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
    assert HOSTILE_TITLES[1] in about and f"at {COMMIT[:12]} by claude, not verified" in about
    assert "3 waiting for you" in page.value("document.getElementById('legend').textContent")
    ended = "[...document.querySelectorAll('#ended li')].find((e) => e.textContent.includes('q-2'))"
    assert "asked a question" in page.value(f"{ended}.textContent")
    fill = f"getComputedStyle({ended}.querySelector('rect')).fill"
    assert page.value(fill) != "rgb(0, 0, 0)", "its outcome has a colour"
    assert page.value(f"!{ended}.querySelector('.bad')"), "a question is no fault"
    write(page, "Answer to q-2", " call it FOO\nplease ")
    page.click(beside("Answer to q-2", "reply"))
    page.until(f"{SAID} === 'done: bw.answer'")
    assert page.value(BOX.format("Answer to q-2") + ".value") == ""
    write(page, "Remarks on a-1", "use euros")
    page.click(beside("Remarks on a-1", "reject"))
    page.until(f"{SAID} === 'done: bw.reject'")
    say_yes(page, house, beside("Remarks on a-1", "approve"))
    assert house.asked == [
        ("bw.answer", {"issue_ids": ["q-2"], "text": "call it FOO\nplease"}),
        ("bw.reject", {"issue_ids": ["a-1"], "text": "use euros"}),
        ("bw.approve", {"commits": {"a-1": COMMIT}}),
    ]
    assert page.complaints() == []
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
    page.until(f'document.querySelector("{beside("Answer to q-2", "reply")}").disabled')
    assert page.value(f"{box}.checkVisibility() && !{box}.readOnly")
    house.shown.say("fleet", {"state": "live"})
    page.until(f'!document.querySelector("{beside("Answer to q-2", "reply")}").disabled')
    say_yes(page, house, beside("Remarks on a-1", "approve"))
    assert house.asked == [("bw.approve", {"commits": {"a-1": "e" * 40}})], "as it is shown now"
    # Another question of the same issue has nothing to do with that answer.
    happens([{**second, "asked_at": second["asked_at"] + 60}], f"{boxes} 1")
    assert page.value(f"{box}.value") == "" and page.complaints() == []
    page.close()


def test_the_log_of_a_worker_that_left_stays_and_is_not_asked_for_again(
    browser: Browser, house: Served
) -> None:
    page = drawn(browser, house.url)
    page.click("#workers .row")
    page.until("document.getElementById('lines').textContent.includes('all is well')")
    house.tell({**full_house(), "workers": []})
    page.until("document.getElementById('log-title').textContent.includes('W1 has left')")
    assert page.value("document.getElementById('lines').textContent.includes('all is well')")
    asked = "performance.getEntriesByType('resource').filter((e) => e.name.includes('log?')).length"
    before = page.value(asked)
    now = page.value("performance.now()")
    page.until(f"performance.now() > {now} + 2200")  # It asks once a second.
    assert page.value(asked) == before
    assert page.complaints() == []
    page.close()


def test_a_page_in_the_background_has_no_stream(browser: Browser, house: Served) -> None:
    page = drawn(browser, house.url)
    assert house.shown.viewers == 1
    hide = (
        "Object.defineProperty(document, 'hidden', {{value: {}, configurable: true}});"
        " document.dispatchEvent(new Event('visibilitychange'))"
    )
    page.value(hide.format("true"))
    until(lambda: [house.tell({"n": n}) for n in range(2)] and house.shown.viewers == 0)
    house.tell(full_house())
    page.value(hide.format("false"))
    page.until("document.getElementById('state').textContent === 'running'")
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
    page.click(beside("Remarks on bw-2", "approve"))
    page.click("#yes")
    until(lambda: project.statuses()[:2] == ["closed", "closed"])
    assert "call it FOO" in fleet.call("show", "bw-1").stdout, "as a comment of the person"
    page.until(f"({commit} ?? {first!r}) !== {first!r}")
    page.click(beside("Remarks on bw-3", "approve"))
    page.click("#yes")
    until(lambda: project.statuses()[2] == "closed")
    page.until("!document.querySelector('.decisions li')")
    said = [git(project.folder, "show", f"bw-landing/main:{name}.py").strip() for name in "abc"]
    assert said == ["FOO", "b", "e"]
    assert page.value("document.documentElement.scrollWidth") == 400
    assert page.complaints() == []
    page.close()


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
