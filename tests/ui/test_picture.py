"""Pictures of a terminal, for the documents and for looking at."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.picture import settled, take
from tests.support.screens import TmuxScreen


def test_a_picture_shows_text_and_colours_and_fetches_nothing(tmp_path: Path) -> None:
    with TmuxScreen() as screen:
        screen.start("printf 'a \\033[38;2;255;136;0mfleet\\033[0m'; exec sleep 600", 30, 4)
        screen.wait_for("fleet")
        settled(screen, 0.1)
        take(screen, tmp_path / "x.svg", "of a run")
    drawn = (tmp_path / "x.svg").read_text()
    assert "fleet" in drawn and "#ff8800" in drawn and "of&#160;a&#160;run" in drawn
    assert re.findall(r"url\((?!#)|href=", drawn) == []
