"""Pieces of a page: whatever the text is, it stays text."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.base.text import printable
from beads_workers.ui.report_sections import bar, el, own, percent, render, table


class Read(HTMLParser):
    """The tags and the text that a parser sees."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.titles: list[str | None] = []
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See ``HTMLParser``."""
        self.tags.append(tag)
        self.titles += [value for name, value in attrs if name == "title"]

    def handle_data(self, data: str) -> None:
        """See ``HTMLParser``."""
        self.text += data


@given(st.text() | st.sampled_from(["</p><script>", "<!--", "]]>", "&lt;", "\ud800", "\x00"]))
def test_text_and_attributes_are_read_back_as_they_were_shown(text: str) -> None:
    read = Read(render(el("p", text, el("b", text), text, title=text)).partition("\n")[2])
    assert read.tags == ["p", "b"]
    assert read.text == printable(text) * 3 + "\n"
    assert read.titles == [printable(text)]


def test_nothing_is_written_for_none() -> None:
    assert render(el("p", None, class_=None)) == "<!DOCTYPE html>\n<p></p>\n"


def test_a_script_of_ours_cannot_end_in_its_middle() -> None:
    with pytest.raises(AssertionError):
        own("script", "'</script>'")


@pytest.mark.parametrize(
    ("part", "whole", "shown"), [(1, 3, "33.333%"), (0, 5, "0%"), (5, 5, "100%"), (1, 0, "0%")]
)
def test_a_share_is_short(part: float, whole: float, shown: str) -> None:
    assert percent(part, whole) == shown


def test_a_bar_has_a_part_for_each_value_that_is_there() -> None:
    rects = bar([("a", 1.0), ("b", 0.0), ("c", 3.0)], 4.0)
    assert [(r.get("class"), r.get("x"), r.get("width")) for r in rects] == [
        ("a", "0%", "25%"),
        ("c", "25%", "75%"),
    ]


def test_a_heading_stands_as_the_cells_below_it() -> None:
    box = table("name", ("A", "B"), [el("tr", el("td", "1", class_="n"), el("td", "x"))])
    assert [head.get("class") for head in box.iter("th")] == ["n", None]
