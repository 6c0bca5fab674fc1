"""The pane of the dashboard that says how to open the live page, with a QR code for a phone."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from beads_workers.ui.rows import Row
from beads_workers.ui.viewer import PageCard, Screen

HALVES = {"00": " ", "01": "\N{LOWER HALF BLOCK}", "10": "\N{UPPER HALF BLOCK}"}
HALVES["11"] = "\N{FULL BLOCK}"
"""Two rows of a code -> a character; a module is as wide as half a character is high."""

WITHOUT = "a QR code of it: pip install segno"


def page_card(screen: Screen, columns: int, rows: int) -> Iterator[Text]:
    """Yield the address, the tunnel and the code, as far as there is room for them."""
    if (card := screen.card) is None:
        return
    text = _text(card)
    code = _code(card.code) if screen.unicode else []
    width = len(card.code[0]) if card.code else 0
    if code and len(code) <= rows and width + 4 + max(map(len, text)) <= columns:
        for at in range(max(len(code), len(text))):
            row = Row(columns).add(" ").add(code[at] if at < len(code) else "", width, "code")
            yield row.add("  ").fill(text[at] if at < len(text) else "").text()
        return
    if code and width < columns and len(code) + 3 <= rows:
        if len(text) + 1 + len(code) > rows:
            text = [card.url, card.tunnel]
    else:
        small = "(no QR code: the terminal is too small, or cannot draw it)"
        text, code = [*text, "", small if card.code else WITHOUT], []
    for line in [*text, ""]:
        yield Row(columns).add(" ").fill(line).text()
    for each in code:
        yield Row(columns).add(" ").add(each, width, "code").text()


def _text(card: PageCard) -> list[str]:
    return [
        "the live page, on this machine:",
        card.url,
        "",
        "from a phone or another machine, first there:",
        card.tunnel,
        "then the same address, there",
        "",
        "The address is a key: whoever has it sees titles and logs.",
    ]


def _code(rows: tuple[str, ...]) -> list[str]:
    """Return the code as text, two of its rows in one."""
    even = [*rows, "0" * len(rows[0])] if len(rows) % 2 else list(rows)
    return [
        "".join(HALVES[above + below] for above, below in zip(one, other, strict=True))
        for one, other in zip(even[::2], even[1::2], strict=True)
    ]
