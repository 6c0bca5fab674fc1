"""The pane that says how to open the live page: its address, the tunnel, and a QR code."""

from __future__ import annotations

import pytest

from beads_workers.cli.web import card
from beads_workers.ui import bindings, viewer
from beads_workers.ui.page_card import WITHOUT, page_card
from beads_workers.ui.viewer import PageCard, Pane, Screen
from tests.ui.test_viewer import BUSY

URL = "http://127.0.0.1:45123/abcdefghijklmnopqrstuv/"
CODE = tuple(
    "".join(str((row * 7 + column * 3) % 5 % 2) for column in range(33)) for row in range(33)
)
CARD = PageCard(URL, "ssh -N -L 45123:127.0.0.1:45123 me@night", CODE)


def drawn(columns: int, rows: int, shown: PageCard = CARD, *, unicode: bool = True) -> list[str]:
    """The rows of the pane, each as wide as the screen."""
    lines = [text.plain for text in page_card(Screen(card=shown, unicode=unicode), columns, rows)]
    assert all(len(line) == columns for line in lines)
    return [line.rstrip() for line in lines]


def read(lines: list[str]) -> tuple[str, ...]:
    """The modules of a code, as a camera would see them."""
    above = {" ": "00", "\u2584": "01", "\u2580": "10", "\u2588": "11"}
    halves = [[above[char] for char in line] for line in lines]
    return tuple("".join(each[half] for each in row) for row in halves for half in (0, 1))[:33]


@pytest.mark.parametrize(
    ("columns", "rows", "first"), [(120, 40, 0), (80, 40, 9), (80, 21, 3), (100, 17, 0)]
)
def test_the_code_is_drawn_whole_beside_the_text_or_below_it(
    columns: int, rows: int, first: int
) -> None:
    lines = drawn(columns, rows)
    assert len(lines) <= rows and any(URL in line for line in lines)
    code = [line.ljust(columns)[1:34] for line in lines[first : first + 17]]
    assert read(code) == CODE


@pytest.mark.parametrize(("columns", "rows", "unicode"), [(60, 14, True), (120, 40, False)])
def test_without_room_or_characters_for_a_code_the_rest_is_there(
    columns: int, rows: int, unicode: bool
) -> None:
    lines = drawn(columns, rows, unicode=unicode)
    assert any("too small" in line for line in lines) and f" {CARD.tunnel}" in lines
    assert "\u2588" not in "".join(lines)


def test_without_the_extra_it_is_named() -> None:
    assert f" {WITHOUT}" in drawn(80, 24, PageCard(URL, "ssh"))


def test_the_code_is_that_of_the_address() -> None:
    segno = pytest.importorskip("segno")
    shown = card(URL)
    assert shown.code == tuple(
        "".join(map(str, row)) for row in segno.make_qr(URL, error="l").matrix_iter(border=2)
    )
    assert len(shown.code) == len(shown.code[0]) and "1" not in shown.code[0] + shown.code[1]
    assert shown.tunnel.startswith("ssh -N -L 45123:127.0.0.1:45123 ")


def test_w_opens_it_over_any_list_and_leads_back() -> None:
    for pane in (Pane.FLEET, Pane.QUARANTINE, Pane.LANDING):
        screen, wish = bindings.press(Screen(pane=pane), "w", BUSY)
        assert screen.pane is pane and isinstance(wish, viewer.SayPage)
        opened = bindings.show_page(screen, CARD)
        assert opened.pane is Pane.PAGE and opened.card is CARD
        for key in ("w", "q", "escape"):
            assert bindings.press(opened, key, BUSY)[0].pane is pane, key
        assert bindings.press(opened, "j", BUSY)[0].pane is Pane.PAGE
