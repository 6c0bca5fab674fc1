"""One table of keys and buttons: it says the truth, and nothing collides."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from beads_workers.ui import bindings, viewer, web
from beads_workers.ui.attempt_view import ANSWER, APPROVE, REJECT, RELEASE, RETRY
from tests.ui.test_viewer import BUSY, DECISIONS, QUARANTINE

ROOT = Path(__file__).parents[2]
UI = ROOT / "beads_workers" / "ui"
CLI = (ROOT / "docs" / "CLI.md").read_text()
ACTIONS = (ANSWER, APPROVE, REJECT, RELEASE, RETRY)
IN_LIST = viewer.Screen(pane=viewer.Pane.QUARANTINE, part=viewer.Part.QUARANTINED)
IN_DECISIONS = viewer.Screen(pane=viewer.Pane.DECISIONS, part=viewer.Part.DECISIONS)
KEYS = [
    (role, pane, name, key)
    for row in bindings.ROWS
    for key in row.keys
    for role, pane in product(row.roles, key.panes)
    for name in key.names.split()
]


def test_no_key_and_no_word_has_two_meanings() -> None:
    places = [each[:3] for each in KEYS]
    assert len(places) == len(set(places))
    words = [
        (role, pane, key.word)
        for row in bindings.ROWS
        for key in row.keys
        for role, pane in product(row.roles, key.panes)
        if key.word
    ]
    assert len(words) == len(set(words))


def test_every_key_but_moves_and_the_palette_s_own_has_its_word() -> None:
    wordless = {key.names for row in bindings.ROWS for key in row.keys if not key.word}
    moves = {"j down", "k up", "page_down right", "page_up left", "g home", "G end", "escape", ":"}
    assert wordless - moves == {"wheel_down", "wheel_up", "tab", "shift+tab", "n", "N"}


@pytest.mark.parametrize("role", viewer.Role)
def test_the_help_fits_into_the_smallest_dashboard(role: viewer.Role) -> None:
    lines = bindings.help_lines(role)
    assert len(lines) <= 16
    assert all(len(shown) <= 9 and len(text) <= 50 for shown, text in lines)


def test_what_cannot_be_undone_asks_first_and_nothing_else_does() -> None:
    branch = viewer.Screen(
        pane=viewer.Pane.DECISIONS,
        part=viewer.Part.DECISIONS,
        chosen={viewer.Part.DECISIONS: "app-2"},
    )
    views = {
        "a": (IN_LIST, QUARANTINE),
        "v": (branch, DECISIONS),
        "x": (viewer.Screen(), BUSY),
        "q": (viewer.Screen(), BUSY),
    }
    for role, pane, name, key in KEYS:
        screen, snapshot = views.get(name, (viewer.Screen(pane=pane), BUSY))
        if role is not viewer.Role.START or pane is not screen.pane:
            continue
        after, _ = bindings.press(replace(screen, role=role), name, snapshot)
        assert (after.question is not None) is key.asks, name


def test_a_request_is_made_at_once_exactly_if_a_key_takes_it_back() -> None:
    views = [
        (viewer.Screen(), BUSY),
        (IN_LIST, QUARANTINE),
        *(
            (replace(IN_DECISIONS, chosen={viewer.Part.DECISIONS: issue_id}), DECISIONS)
            for issue_id in ("app-1", "app-2")
        ),
    ]
    at_once, asked, typed = set(), set(), set()
    for (screen, snapshot), (_, _, name, _) in product(views, KEYS):
        after, wish = bindings.press(replace(screen, role=viewer.Role.START), name, snapshot)
        if isinstance(wish, viewer.Ask):
            assert bindings.can_be_undone(wish)
            at_once.add(wish.control)
        if after.writing is not None:
            typed.add(after.writing.control)
        for answer in after.question.answers.values() if after.question else ():
            if isinstance(answer, viewer.Ask):
                assert not bindings.can_be_undone(answer)
                asked.add(answer.control)
    assert at_once == {"bw.pause", "bw.scale", "bw.retry"}
    assert asked == {"bw.release", "bw.approve", "bw.stop", "bw.retry"}
    assert typed == {"bw.answer", "bw.reject"}


@pytest.mark.parametrize("several", [["a", "b"], ["a"]])
def test_one_retry_can_be_taken_back_and_many_at_once_cannot(several: list[str]) -> None:
    ask = viewer.Ask("bw.retry", {"issue_ids": several})
    assert bindings.can_be_undone(ask) is (len(several) == 1)


@pytest.mark.parametrize("table", [bindings.keys_table, bindings.buttons_table])
def test_the_documents_have_the_tables(table: object) -> None:
    assert callable(table) and table() in CLI


def test_the_page_has_exactly_these_buttons_and_asks_as_they_say() -> None:
    page, script = (UI / "web.html").read_text(), web.script()
    page = page.partition('<dialog id="question">')[0].replace("&minus;", "\N{MINUS SIGN}")
    there = dict(re.findall(r'<button (?:role="tab" )?id="([^"]+)"[^>]*>([^<]*)</button>', page))
    there |= dict(re.findall(r'el\("button", "([^"]+)", "([^"]+)"\)', script))
    of_attempt = dict(re.findall(r'^    (\w+): \["([^"]+)", ', script, re.MULTILINE))
    assert of_attempt.keys() == {each.button for each in ACTIONS}
    there |= of_attempt
    there = {name: html.unescape(label) for name, label in there.items()}
    rows = [each for each in bindings.BUTTONS if each.name != "opens"]
    assert there == {each.name: each.label for each in rows}
    for button in rows:
        if button.name.startswith("tab-"):
            continue  # They have one handler, which asks nothing.
        variable = re.sub(r"-(\w)", lambda each: each[1].upper(), button.name)
        starts = (
            rf'(byId\("{button.name}"\)|\b{variable})'
            r'\.addEventListener\("click"',
            rf'\n    {button.name}: \["{button.label}"',
        )
        handlers = [
            script[start.end() :].partition("addEventListener" if n == 0 else "\n    },")[0]
            for n, each in enumerate(starts)
            for start in re.finditer(each, script)
        ]
        assert handlers, button.name
        for handler in handlers:
            handler = re.split(r"\n    \w+: \[|\n  \};", handler)[0]
            assert bool(re.search(r"\bask(?:Again|Approval)?\(", handler)) is button.asks, (
                button.name
            )
