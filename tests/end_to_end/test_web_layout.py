"""The live page on a phone, a tablet and a screen: it fits, can be read, and needs no mouse."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import Browser, Page
from tests.support.contrast import UNREADABLE
from tests.support.web import Served, drawn, everything

pytestmark = pytest.mark.daily(3)

ROOT = Path(__file__).parents[2]
VIOLATIONS = """axe.run(document, {resultTypes: ["violations"]}).then((found) =>
  found.violations.map((each) => [each.id, ...each.nodes.map((node) => node.target.join(" "))]))"""


@pytest.fixture(scope="module")
def axe() -> str:
    """The program that checks pages, as the project's script installs it."""
    found = subprocess.run(
        [ROOT / "scripts" / "setup-peers", "axe"], capture_output=True, text=True, check=True
    )
    return Path(found.stdout.strip(), "node_modules/axe-core/axe.min.js").read_text()


@pytest.fixture
def house() -> Iterator[Served]:
    """A page that shows wall clocks, of a fleet with everything going on."""
    served = everything()
    served.shown.say_once("clock", {"began_at": 1_795_830_000.0})
    yield served
    served.close()


def violations(page: Page, axe: str) -> Any:
    """What axe finds in a page as it is now."""
    if not page.value("window.axe !== undefined"):
        page.value(f"{axe}; 0")
    told = page.call(
        "Runtime.evaluate", expression=VIOLATIONS, awaitPromise=True, returnByValue=True
    )
    return told["result"]["value"]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 768, 1280])
def test_each_part_of_it_fits_can_be_read_and_is_without_a_finding(
    browser: Browser, house: Served, axe: str, width: int, dark: bool
) -> None:
    page = drawn(browser, house.url, width, dark=dark)

    def check(what: str) -> None:
        assert violations(page, axe) == [], what
        assert page.value(UNREADABLE) == [], what
        assert page.value("document.documentElement.scrollWidth") == width, what

    page.click("#listed summary")
    page.until("document.querySelectorAll('#states li').length > 5")
    check("the page, with all issues")
    page.click("#stop")
    check("a question")
    page.click("#question [value='']")
    page.click("#nights")
    page.until("document.getElementById('reports').open")
    check("the reports")
    page.click("#reports button")
    page.click("#workers .row")
    page.until("document.getElementById('lines').textContent.includes('line 59')")
    page.click("#find")
    page.type("line 4")
    page.click("#times")
    check("a log")
    page.click("#tab-diff")
    page.until("document.querySelectorAll('#diff .plus').length === 1")
    check("a diff")
    page.click("#tab-about")
    page.until("document.querySelectorAll('#about .line:not(.none)').length > 0")
    check("all about an attempt")
    page.close()


def test_axe_sees_what_is_wrong(browser: Browser, house: Served, axe: str) -> None:
    page = drawn(browser, house.url, 1280)
    page.value("document.getElementById('more').removeAttribute('aria-label')")
    page.value("document.getElementById('more').textContent = ''")
    assert [each[0] for each in violations(page, axe)] == ["button-name"]
    page.close()


@pytest.mark.parametrize("width", [400, 1280])
def test_the_keyboard_alone_reaches_everything(browser: Browser, house: Served, width: int) -> None:
    page = drawn(browser, house.url, width)
    name = "(e => e.id || e.classList[0] || e.tagName)(document.activeElement)"
    outlined = "getComputedStyle(document.activeElement).outlineStyle !== 'none'"
    seen = []
    for _ in range(200):
        page.press("Tab")
        seen.append(page.value(name))
        if seen[-1] == "BODY":
            break
        assert page.value(outlined), f"the focus on {seen[-1]} is seen"
    wanted = {"pause", "fewer", "more", "drain", "stop", "nights", "retry-all", "timeline"}
    assert wanted | {"row", "opens", "again", "reply", "diff", "reject"} <= {*seen}
    page.value("document.querySelector('#ended .opens').focus()")
    page.press("Enter")
    page.until("!document.getElementById('log').hidden")
    seen = []
    for _ in range(12):
        page.press("Tab")
        seen.append(page.value(name))
    assert {"close", "tab-log", "follow", "wrap", "times", "find", "download", "lines"} <= {*seen}
    page.press("Escape")
    page.until("document.activeElement === document.querySelector('#ended .opens')")
    page.close()
