"""A picture of what a program shows in a real terminal: SVG, or PNG where a browser is installed.

    python -m tests.support.picture OUT.svg [--size 100x30] [--until TEXT] [--keys "Down l"] -- CMD

Waits for TEXT, presses the keys, and takes the picture when nothing has changed for half a second.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import subprocess
import time
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME, TerminalTheme

from tests.support.screens import TmuxScreen

# Its fonts would be fetched from the network by whoever looks at it.
_FORMAT = re.sub(r"@font-face \{\{.*?\}\}\n?", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def svg(styled: str, columns: int, title: str = "", theme: TerminalTheme = SVG_EXPORT_THEME) -> str:
    """A screen with its escape sequences, as ``TmuxScreen.styled`` gives it."""
    console = Console(
        record=True,
        width=columns,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
    )
    decoder = AnsiDecoder()  # One for all lines: a style goes on until it is changed.
    for line in styled.rstrip("\n").split("\n"):
        console.print(decoder.decode_line(line), no_wrap=True, overflow="crop", crop=True)
    return console.export_svg(title=title, theme=theme, code_format=_FORMAT)


def png(drawn: str, file: Path) -> None:
    """The same for looking at it, through a headless browser."""
    names = ("chromium-headless-shell", "chromium", "google-chrome")
    browser = next(filter(None, map(shutil.which, names)), None)
    assert browser is not None, "no browser is installed"
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawn)
    assert box is not None
    width, height = (int(float(side)) + 1 for side in box.groups())
    page = file.with_suffix(".html")
    page.write_text(f'<meta charset="utf-8"><body style="margin:0;width:{width}px">{drawn}')
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    words += [f"--window-size={width},{height}", f"--screenshot={file.resolve()}"]
    subprocess.run([browser, *words, page.resolve().as_uri()], capture_output=True, check=True)
    page.unlink()


def take(screen: TmuxScreen, file: Path, title: str = "") -> None:
    """A picture of what the screen shows now; the ending of ``file`` says which kind."""
    drawn = svg(screen.styled(), int(screen.ask("pane_width")), title)
    if file.suffix == ".png":
        png(drawn, file)
    else:
        file.write_text(drawn)


def settled(screen: TmuxScreen, quiet_seconds: float = 0.5, seconds: float = 5.0) -> None:
    """Wait until nothing has changed for a while, or no longer than ``seconds``."""
    deadline = time.monotonic() + seconds
    before, since = screen.styled(), time.monotonic()
    while time.monotonic() < min(since + quiet_seconds, deadline):
        if (now := screen.styled()) != before:
            before, since = now, time.monotonic()
        time.sleep(0.05)


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description="A picture of a program in a real terminal.")
    parser.add_argument("file", type=Path, help="OUT.svg or OUT.png")
    parser.add_argument("command", nargs="+")
    parser.add_argument("--size", default="100x30")
    parser.add_argument("--title", default="")
    parser.add_argument("--until", default="", help="wait for this text")
    parser.add_argument("--keys", default="", help="then press these, in the names of tmux")
    said = parser.parse_args()
    width, height = map(int, said.size.split("x"))
    with TmuxScreen() as screen:
        screen.start(said.command, width, height, env={"COLORTERM": "truecolor"}, folder=Path.cwd())
        screen.wait_for(lambda text: said.until in text and bool(text.strip()), 120)
        if said.keys:
            screen.keys(*said.keys.split())
        settled(screen)
        take(screen, said.file, said.title)


if __name__ == "__main__":
    main()
