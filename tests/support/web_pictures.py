"""Pictures of every view of the live page, to be looked at: three widths, both themes.

    python -m tests.support.web_pictures [--taps] [FOLDER]

A short night and then a longer one, with the real claude on the stub of its API. The pictures are
kept outside of git, by commit, with an ``index.html``. ``--taps`` takes none, and does what a
person does with a phone: taps are the browser's own touches, at coordinates of a window of 400 by
800.
"""

from __future__ import annotations

import argparse
import base64
import html
import json
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.night.ground import Ground, ground
from tests.night.page import end_page
from tests.support import night_picture
from tests.support.browser import Browser, Page
from tests.support.fleet import Fleet, until
from tests.support.real_agents import git

ROOT = Path(__file__).parents[2]
KEPT = Path.home() / ".cache/beads-workers/pictures"
WIDTHS, THEMES = (400, 768, 1280), {"light": False, "dark": True}
PHONE = (400, 800)
SWIPES_MAX = 20

LANDS = 'tokens 42000 900 30000; write {n}.py "def {n}(p):\\n    return p"'
FAILS = 'write test_{n}.py "import unittest\\nclass T(unittest.TestCase):\\n    def test(self):\\n'
FAILS += '        self.assertEqual(3, 4)\\n"; commit'
ASKS = 'say "I have read its three callers.\\n\\nOutcome: question: {n}: half up, as the old shop'
ASKS += ' does, or half even, as the bank does? The tests have both."'
WORKS = 'tokens 61000 1400; write {n}.py "x = 1"; wait 15m; say "Done."'
EARLIER = (("Prices with cents", LANDS, ""), ("Orders by day", LANDS, ""), ("VAT", FAILS, ""))
NIGHT = (
    *((title, ASKS, "") for title in ("Round the total", "Round the VAT", "Round discounts")),
    *((title, LANDS, "land:ask") for title in ("Login by mail", "Delete accounts", "Log out")),
    *((title, FAILS, "") for title in ("Discounts twice", "Sum of an empty cart", "Gift cards")),
    *((title, LANDS, "") for title in ("Send an invoice", "Export orders as CSV", "A dark theme")),
    ("Import the old customers", 'say "Outcome: failed: there is no file customers.csv"', ""),
    *((title, WORKS, "") for title in ("Search by name", "A page for every product")),
)
AGAIN = '[[stub when "half": write {n}.py "def half_up(p):\\n    return p"]]'
REMARK = '[[stub when "euros": write {n}.py "def {n}(p):\\n    return p / 100"]]'


def backlog(place: Ground, first: int, rows: tuple[tuple[str, str, str], ...]) -> None:
    """One issue for each row, its files named after its title; numbered from ``first``."""
    found = []
    for number, (title, script, label) in enumerate(rows, first):
        name = re.sub(r"\W+", "_", title.lower())
        text = f"[[stub: {script}]] {AGAIN} {REMARK}".replace("{n}", name)
        issue = {"id": f"shop-{number}", "title": title, "description": text}
        found.append(issue | {"labels": [label] if label else []})
    place.project.create_many(found)


@contextmanager
def night() -> Iterator[tuple[Ground, Fleet, str]]:
    """A fleet in the middle of its night, and the address of its page."""
    with (
        tempfile.TemporaryDirectory(prefix="bw-page-") as folder,
        ground(Path(folder), "shop") as place,
    ):
        night_picture.repository(place.project.folder)
        common = ("--agent", "claude", "--verify", "make test", "--max-attempts", "1")
        backlog(place, 1, EARLIER)
        place.start("-n", "3", *common, "--until-empty")
        place.finish()
        backlog(place, 21, NIGHT)
        notify = ("--notify", f"cat >>'{folder}/notices'")
        fleet = place.start(
            "-n",
            "4",
            *common,
            "--budget",
            "20",
            "--web",
            "0",
            "--web-control",
            "--new-night",
            *notify,
        )
        url = re.search(r"ok web +(http\S+)", fleet.errors)
        assert url is not None, fleet.said()

        def calm() -> bool:
            ends = [r for r in fleet.journal() if r["e"] == "finished"]
            gone = [r for r in fleet.journal() if r["e"] == "settled"]
            return len(ends) >= len(NIGHT) - 2 and len(gone) >= len(NIGHT) - 2

        until(calm, 90, "the night has come to its questions")
        time.sleep(2)
        yield place, fleet, url[1]
        end_page(fleet)


# --- views ------------------------------------------------------------------------------------

DRAWN = "document.querySelectorAll('#ended li').length > 3"
FAILED = "#aside li .opens"
VIEWS: dict[str, tuple[str, ...]] = {
    "first": (),
    "decide": ("#asking textarea",),
    "issues": ("#listed summary",),
    "log": (FAILED, "#tab-log"),
    "diff": (FAILED, "#tab-diff"),
    "about": (FAILED, "#tab-about"),
    "asked": ("#asking .opens",),
    "reports": ("#nights",),
}
"""What is clicked on the way to a view; a page of an earlier version has not all of it."""
ENDED = {"end": (), "end-reports": ("#nights",)}
REPORTS = {"report": "last", "report-end": "first"}
"""Of the earlier night, and of this one: their places in the list."""


def look(browser: Browser, url: str, folder: Path, views: dict[str, tuple[str, ...]]) -> None:
    """A picture of each view: the screen, and all of the page if nothing lies upon it."""
    for theme, dark in THEMES.items():
        for width in WIDTHS:
            for view, steps in views.items():
                page = browser.open(url, width, 800, dark=dark)
                page.until(DRAWN)
                for selector in steps:
                    if page.value(f"document.querySelector({json.dumps(selector)}) !== null"):
                        page.click(selector)
                        time.sleep(0.7)
                file = folder / f"{view}-{width}-{theme}.png"
                file.write_bytes(base64.b64decode(page.call("Page.captureScreenshot")["data"]))
                if view in ("first", "issues", "end"):
                    page.picture(folder / f"{view}-{width}-{theme}-all.png")
                page.close()


def look_at_report(browser: Browser, url: str, folder: Path, view: str) -> None:
    """One of ``REPORTS``."""
    page = browser.open(url, *PHONE)
    page.until(DRAWN)
    if not page.value("document.querySelector('#nights') !== null"):
        return
    page.click("#nights")
    page.until("document.querySelector('#nights-list a') !== null")
    report = page.value(f"document.querySelector('#nights-list li:{REPORTS[view]}-child a').href")
    page.close()
    for theme, dark in THEMES.items():
        for width in WIDTHS:
            page = browser.open(report, width, dark=dark)
            page.picture(folder / f"{view}-{width}-{theme}-all.png")
            page.close()


def index(folder: Path) -> None:
    """All pictures on one page."""
    rows = (
        f"<figure><figcaption>{html.escape(file.stem)}</figcaption><img src={file.name}></figure>"
        for file in sorted(folder.glob("*.png"))
    )
    style = "figure{display:inline-block;vertical-align:top;margin:8px}img{max-width:640px}"
    text = f"<!DOCTYPE html><meta charset=utf-8><style>{style}</style>{''.join(rows)}"
    (folder / "index.html").write_text(text)


def take(browser: Browser, folder: Path) -> None:
    """Every picture of one night."""
    folder.mkdir(parents=True, exist_ok=True)
    with night() as (place, fleet, url):
        look(browser, url, folder, VIEWS)
        look_at_report(browser, url, folder, "report")
        fleet.call("stop")
        place.finish()
        look(browser, url, folder, ENDED)
        look_at_report(browser, url, folder, "report-end")
    index(folder)


# --- taps -------------------------------------------------------------------------------------


SAID = "#answer:not([hidden], .bad)"


class Phone:
    """A page of 400 by 800 and a finger on it; counts ``taps`` and ``swipes`` of three quarters of
    the screen."""

    def __init__(self, browser: Browser, url: str) -> None:
        self.page: Page = browser.open(url, *PHONE)
        self.page.call("Emulation.setTouchEmulationEnabled", enabled=True)
        self.page.until(DRAWN)
        self.taps = self.swipes = 0
        self.began = time.monotonic()

    def middle(self, selector: str) -> tuple[float, float]:
        """Where an element is; the finger moves the page until it can be seen."""
        where = "(e => { const r = e.getBoundingClientRect(); return [r.x + Math.min(r.width / 2,"
        where += f" 60), r.y + r.height / 2]; }})(document.querySelector({json.dumps(selector)}))"
        for _ in range(SWIPES_MAX):
            x, y = self.page.value(where)
            if 0 < y < PHONE[1]:
                return x, y
            by = max(-600.0, min(600.0, PHONE[1] / 2 - y))
            self._swipe(700 if by < 0 else 100, by)
            self.swipes += 1
        raise AssertionError(f"{selector} is not reached")

    def _swipe(self, begin: float, by: float) -> None:
        """At the left edge, where only the page scrolls; held at its end: it does not fly."""
        for step in range(12):
            kind = "touchMove" if step else "touchStart"
            points = [{"x": 4, "y": begin + by * min(step, 10) / 10}]
            self.page.call("Input.dispatchTouchEvent", type=kind, touchPoints=points)
            time.sleep(0.02 if step < 10 else 0.1)
        self.page.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def tap(self, selector: str) -> None:
        """One touch, which has to hit the element or something in it."""
        self.page.until(f"document.querySelector({json.dumps(selector)})?.checkVisibility()", 8)
        x, y = self.middle(selector)
        hit = f"document.elementFromPoint({x}, {y}).closest({json.dumps(selector)}) !== null"
        assert self.page.value(hit), f"something lies upon {selector}"
        self.page.call(
            "Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}]
        )
        self.page.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        self.taps += 1

    def sees(self, selector: str, text: str) -> None:
        """Wait until an element tells that, and move the page to it."""
        told = f"document.querySelector({json.dumps(selector)})?.textContent.includes"
        self.page.until(f"{told}({json.dumps(text)})", 8)
        self.middle(selector)

    def told(self) -> str:
        """The figures, for people."""
        seconds = time.monotonic() - self.began
        return f"{self.taps} taps, {self.swipes} swipes, {seconds:.1f} s"


def why(phone: Phone) -> None:
    """Find why the newest failure failed."""
    phone.tap("#needs .opens")
    phone.sees("#lines", "[beads-workers]")


def landed(phone: Phone) -> None:
    """See what landed, and its diff."""
    phone.tap("#landed .opens")
    phone.tap("#tab-diff")
    phone.sees("#diff .plus", "+")


def answer(phone: Phone) -> None:
    """Answer a question."""
    card = "#asking li:not(.sent)"
    phone.tap(f"{card} textarea")
    phone.page.type("half up, as the old shop does")
    phone.tap(f"{card} .reply")
    phone.sees(SAID, "")


def again(phone: Phone) -> None:
    """Retry all of one cause."""
    phone.tap("#needs .below")
    phone.tap("#aside .again-all:not([hidden])")
    phone.tap("#yes")
    phone.sees(SAID, "")


def when(phone: Phone) -> None:
    """See when it will be done."""
    phone.sees("#facts", "done about")


def hand(phone: Phone) -> None:
    """Three questions answered, two branches approved, one rejected with a remark."""
    for _ in range(3):
        left = phone.page.value("document.querySelectorAll('#asking li').length")
        answer(phone)
        phone.page.until(f"document.querySelectorAll('#asking li').length < {left}")
    for button in ("approve", "reject", "approve"):
        left = phone.page.value("document.querySelectorAll('#awaiting li').length")
        if button == "reject":
            phone.tap("#awaiting li textarea")
            phone.page.type("prices are in euros")
        phone.tap(f"#awaiting li .{button}")
        if button == "approve":
            phone.tap("#yes")
        phone.page.until(f"document.querySelectorAll('#awaiting li').length < {left}")


def tap(browser: Browser) -> None:
    """Do all of it, and print a line for each."""
    with night() as (place, _fleet, url):
        print((place.folder.parent / "notices").read_text())
        page = browser.open(url, *PHONE)
        page.until(DRAWN)
        print("just ended stands at", page.value("document.getElementById('ended').offsetTop"))
        page.close()
        for task in (when, why, landed, hand, again):
            phone = Phone(browser, url)
            try:
                task(phone)
                print(f"{task.__doc__}: {phone.told()}")
            except AssertionError as error:
                print(f"{task.__doc__}: NOT, {error}")
            phone.page.close()


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description="Pictures of the live page.")
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--taps", action="store_true")
    said = parser.parse_args()
    commit = git(ROOT, "rev-parse", "--short=8", "HEAD").strip()
    with tempfile.TemporaryDirectory(prefix="bw-browser-") as profile:
        browser = Browser(Path(profile))
        try:
            if said.taps:
                tap(browser)
            else:
                take(browser, said.folder or KEPT / f"web-{commit}")
        finally:
            browser.close()


if __name__ == "__main__":
    main()
