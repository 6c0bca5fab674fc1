"""The report of real runs, and its page in a real browser."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from beads_workers.core.views.history import fold
from beads_workers.ui.report_html import page
from tests.end_to_end.conftest import StartFleet
from tests.support.browser import Browser
from tests.support.contrast import UNREADABLE
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import until
from tests.support.journals import HOSTILE_TITLES, night

TALL = 'tr[id^="a"]'


@pytest.fixture(scope="module", params=[8, 100])
def night_page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A night of 1,000 attempts by so many workers."""
    entries = sorted(night(1000, request.param).entries, key=lambda entry: entry.elapsed)
    history = fold(entries)
    assert history is not None
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(page(history), encoding="utf-8")
    return file


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (400, True)])
def test_a_thousand_attempts_fit_the_window_and_ask_for_nothing(
    browser: Browser, night_page: Path, width: int, dark: bool
) -> None:
    shown = browser.open(night_page, width, dark=dark)
    assert shown.value("document.documentElement.scrollWidth") == width
    assert shown.value("document.querySelectorAll('.b').length") == 1000
    assert shown.value(f"document.querySelectorAll('{TALL}').length") == 1000
    # A thousand bars are there to be seen, each inside of the plot.
    assert shown.value(
        "[...document.querySelectorAll('.b rect')].every(r => {"
        " const b = r.getBoundingClientRect(),"
        " p = document.querySelector('.plot').getBoundingClientRect();"
        " return b.width > 0.2 && b.height >= 8 && b.x >= p.x - 1 && b.right <= p.right + 2})"
    )
    assert shown.complaints() == []
    assert shown.requests() == [night_page.as_uri()]
    ground = shown.value("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, ground.removeprefix("rgb(").removesuffix(")").split(",")))
    assert (brightness < 200) is dark


@pytest.mark.parametrize("dark", [False, True])
def test_a_long_night_is_a_few_screens_of_a_phone_and_each_word_can_be_read(
    browser: Browser, night_page: Path, dark: bool
) -> None:
    shown = browser.open(night_page, 400, dark=dark)
    few = 8_000 if "W9" not in night_page.read_text() else 10_000
    assert shown.value("document.documentElement.scrollHeight") < few
    assert shown.value(UNREADABLE) == []
    heads = "[...document.querySelectorAll('h2')].map(h => h.firstChild.data)"
    order = shown.value(heads)
    wanted = ["Next steps", "Quarantined", "Failures by reason", "Timeline", "All attempts"]
    assert sorted(wanted, key=order.index) == wanted
    # Whatever is folded is there, and nothing gets wider than the window when it unfolds.
    shown.value("document.querySelectorAll('details').forEach(each => { each.open = true })")
    assert shown.value(f"document.querySelectorAll('{TALL}').length") == 1000
    assert shown.value("document.documentElement.scrollWidth") == 400
    assert shown.value(UNREADABLE) == []


def test_enter_leads_from_a_bar_to_its_row_though_that_is_folded(
    browser: Browser, night_page: Path
) -> None:
    shown = browser.open(night_page, 1280)
    shown.click(".b.o-error")
    row = "document.querySelector('tr.picked')"
    assert not shown.value(f"{row}.checkVisibility()")
    shown.press("Enter")
    assert shown.value(f"{row}.checkVisibility()")


def test_attempts_can_be_picked_walked_through_filtered_and_zoomed(
    browser: Browser, night_page: Path
) -> None:
    shown = browser.open(night_page, 1280)
    shown.click(".b.o-error")
    detail = "document.getElementById('detail').textContent"
    issue = shown.value("document.querySelector('.b.o-error title').textContent.split(',')[0]")
    assert issue in shown.value(detail) and "failed after" in shown.value(detail)
    before = shown.value("document.querySelector('.b.picked').getAttribute('href')")
    for key in ("ArrowRight", "ArrowDown"):
        shown.press(key)
        after = shown.value("document.querySelector('.b.picked').getAttribute('href')")
        assert after != before
        before = after
    shown.click("#show-success")
    seen = "[...document.querySelectorAll('.b')].filter(b => b.checkVisibility()).length"
    done = shown.value("document.querySelectorAll('.b.o-success').length")
    assert shown.value(seen) == 1000 - done
    plot = "document.querySelector('.plot').clientWidth"
    narrow = shown.value(plot)
    shown.click("#zoom-10")
    assert shown.value(plot) == pytest.approx(narrow * 10, rel=0.01)
    assert shown.value("document.documentElement.scrollWidth") == 1280
    shown.press("Escape")
    assert shown.complaints() == []


def test_without_a_script_it_is_read_filtered_and_zoomed_all_the_same(
    browser: Browser, night_page: Path
) -> None:
    shown = browser.open(night_page, 1280, script=False)
    assert "table" in shown.value("document.getElementById('detail').textContent")
    shown.click("#show-error")
    assert not shown.value("document.querySelector('.b.o-error').checkVisibility()")
    shown.click("#zoom-3")
    assert shown.value("document.querySelector('.timeline').scrollWidth") > 3000


def rows(count: int) -> list[dict[str, object]]:
    """Issues, some of which fail, with titles that would like to break a page."""
    told = []
    for n in range(count):
        command = ["sh", "-c", f"echo case {n} failed; exit {int(n % 7 == 0)}"]
        title = HOSTILE_TITLES[n] if n < len(HOSTILE_TITLES) and n not in (2, 9) else f"number {n}"
        told.append({"title": title, "command": command, "priority": n % 5})
    return told


def test_a_real_run_is_told_in_all_three_forms(
    start: StartFleet, embedded: EmbeddedProject, browser: Browser, tmp_path: Path
) -> None:
    embedded.create_many(rows(60))
    fleet = start(
        embedded, "-n", "8", "--until-empty", "--max-attempts", "2", "--retry-delay", "0.1"
    )
    assert fleet.wait() == 7
    told = json.loads(fleet.call("report", "--json").stdout)
    summary = fleet.call("status", "--json")
    last = json.loads(summary.stdout)["last_run"]
    assert told["issues_by_fate"]["closed"] == last["closed"] == 51
    assert told["issues_by_fate"]["quarantined"] == len(last["quarantined"]) == 9
    assert sum(told["attempts_by_outcome"].values()) == len(fleet.journal("finished")) == 69
    (failure,) = told["failures"]
    assert (failure["reason"], failure["attempts"]) == ("case # failed", 18)
    shown = fleet.call("report")
    assert shown.returncode == 0 and "51 closed, 9 quarantined" in shown.stdout
    file = tmp_path / "report.html"
    assert fleet.call("report", "--html", str(file)).returncode == 0
    for width in (1280, 400):
        seen = browser.open(file, width)
        assert seen.value("document.querySelectorAll('.b').length") == 69
        assert seen.value("document.documentElement.scrollWidth") == width
        assert seen.complaints() == []


def test_a_run_is_told_while_it_goes_on_and_after_it_was_killed(
    start: StartFleet, embedded: EmbeddedProject
) -> None:
    embedded.create_many([{"title": "long"}])
    fleet = start(embedded, "-n", "1", "--", "sleep", "60")
    fleet.wait_for("started")
    told = json.loads(fleet.call("report", "--json").stdout)
    assert (told["state"], told["attempts_by_outcome"]) == ("running", {"running": 1})
    os.kill(fleet.pid, signal.SIGKILL)
    fleet.wait()

    def killed() -> bool:
        again = json.loads(fleet.call("report", "--json").stdout)
        return again["state"] == "killed" and again["attempts_by_outcome"] == {"cut_off": 1}

    until(killed, 10)
    assert "beads-workers start" in fleet.call("report").stdout
    assert start(embedded, "--until-empty", "--", "true").wait() == 0
    both = json.loads(fleet.call("report", "--json").stdout)
    assert [run["state"] for run in both["runs"]] == ["killed", "ended"]
    assert both["issues_by_fate"]["closed"] == 1 and not both["issues_by_fate"]["unfinished"]
    assert both["attempts_by_outcome"] == {"cut_off": 1, "success": 1}
    assert "killed" in fleet.call("report").stdout
    last = json.loads(fleet.call("report", "--last", "--json").stdout)
    assert last["attempts_by_outcome"] == {"success": 1}
