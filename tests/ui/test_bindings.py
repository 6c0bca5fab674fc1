"""One table of keys and buttons: it says the truth, and nothing collides."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from beads_workers.ui import bindings, viewer, web
from beads_workers.ui.attempt import ANSWER, APPROVE, REJECT, RELEASE, RETRY
from tests.ui.test_look import BUSY, DECISIONS, QUARANTINE

ROOT = Path(__file__).parents[2]
UI = ROOT / "beads_workers" / "ui"
CLI = (ROOT / "docs" / "CLI.md").read_text()
ACTIONS = (ANSWER, APPROVE, REJECT, RELEASE, RETRY)
IN_LIST = viewer.Look(pane=viewer.Pane.QUARANTINE, part=viewer.Part.QUARANTINED)
KEYS = [
    (role, pane, name, key)
    for row in bindings.ROWS
    for key in row.keys
    for role, pane in product(row.roles, key.panes)
    for name in key.names.split()
]


def test_no_key_has_two_meanings_and_none_is_reserved_for_something_else() -> None:
    places = [each[:3] for each in KEYS]
    assert len(places) == len(set(places))
    assert not {name for _, _, name, _ in KEYS} & bindings.RESERVED.keys()


def test_a_reserved_key_does_nothing_yet() -> None:
    for key in bindings.RESERVED.keys() - {"mouse"}:
        look, wish = bindings.press(viewer.Look(), key, BUSY)
        assert wish is None and "does nothing here" in look.message


@pytest.mark.parametrize("role", viewer.Role)
def test_the_help_fits_into_the_smallest_dashboard(role: viewer.Role) -> None:
    lines = bindings.help_lines(role)
    assert len(lines) <= 16
    assert all(len(shown) <= 9 and len(text) <= 50 for shown, text in lines)


def test_what_cannot_be_undone_asks_first_and_nothing_else_does() -> None:
    branch = viewer.Look(
        pane=viewer.Pane.DECISIONS,
        part=viewer.Part.DECISIONS,
        chosen={viewer.Part.DECISIONS: "app-2"},
    )
    views = {
        "a": (IN_LIST, QUARANTINE),
        "v": (branch, DECISIONS),
        "x": (viewer.Look(), BUSY),
        "q": (viewer.Look(), BUSY),
    }
    for role, pane, name, key in KEYS:
        look, snapshot = views.get(name, (viewer.Look(pane=pane), BUSY))
        if role is not viewer.Role.START or pane is not look.pane:
            continue
        after, _ = bindings.press(replace(look, role=role), name, snapshot)
        assert (after.question is not None) is key.asks, name


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
            assert bool(re.search(r"\bask(?:Again)?\(", handler)) is button.asks, button.name
