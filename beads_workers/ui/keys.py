"""Names of keys from the bytes that a terminal sends. Pure: time is an argument, reads may split.

A character stands for itself (``"p"``, ``"+"``, ``"é"``). The others: ``up down left right home end
page_up page_down insert delete enter escape tab backspace space`` and ``f1`` to ``f12``. Modifiers
come first, in this order: ``ctrl+up``, ``shift+tab``, ``alt+x``, ``ctrl+alt+shift+f5``, ``ctrl+l``.
A terminal that was asked for its background answers ``background:dark`` or ``background:light``.
A mouse that was asked for (SGR, mode 1006) is ``click:COLUMN,ROW`` from 1 on, ``wheel_up`` and
``wheel_down``; its other buttons, movements and releases are nothing.

A paste is not a command. If one read brings more than ``BURST_MAX`` characters, they are ignored,
and so are those that follow within ``BURST_QUIET_SECONDS`` of each other. Where a person writes
(``takes_text``) they are text, and its line ends are spaces. Arrows and similar keys pass: a mouse
wheel sends many of them at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from beads_workers.ui.theme import background_key

ESCAPE_SECONDS = 0.1
"""Time after which a lone ESC is the key; over a slow link a sequence arrives in pieces."""
BURST_MAX = 8
"""Number of characters that nobody types within one turn of the loop."""
BURST_QUIET_SECONDS = 0.2
"""Time after a burst in which nobody types; a long paste arrives in many reads."""
SEQUENCE_BYTES_MAX = 256
"""Maximum length of an unfinished sequence that is kept; longer ones are no keys."""

_LETTERS = {
    "A": "up", "B": "down", "C": "right", "D": "left", "F": "end", "H": "home", "Z": "shift+tab",
    "P": "f1", "Q": "f2", "R": "f3", "S": "f4", "M": "enter", "E": "begin",
}  # fmt: skip
_NUMBERS = {
    1: "home", 2: "insert", 3: "delete", 4: "end", 5: "page_up", 6: "page_down", 7: "home",
    8: "end", 11: "f1", 12: "f2", 13: "f3", 14: "f4", 15: "f5", 17: "f6", 18: "f7", 19: "f8",
    20: "f9", 21: "f10", 23: "f11", 24: "f12",
}  # fmt: skip
_CONTROLS = {
    0x00: "ctrl+space", 0x08: "backspace", 0x09: "tab", 0x0A: "enter", 0x0D: "enter",
    0x20: "space", 0x7F: "backspace",
}  # fmt: skip

_BEGINNINGS = (b"[", b"O", b"]", b"P", b"^", b"_", b"X")
"""Characters that begin a sequence after ESC, or are a key with Alt if nothing follows."""

_CSI = re.compile(rb"\x1b\[([0-?]*)([ -/]*)([@-~])")
_CSI_BEGUN = re.compile(rb"\x1b\[[0-?]*[ -/]*")
_MOUSE = re.compile(rb"\x1b\[M...", re.DOTALL)
_SGR_MOUSE = re.compile(r"<([0-9]{1,3});([1-9][0-9]{0,3});([1-9][0-9]{0,3})")
_LINUX_CONSOLE = re.compile(rb"\x1b\[\[[A-E]")
_PARAMETERS = re.compile("([0-9]{0,3})(?:;([1-8]))?")
_SS3 = re.compile(rb"\x1bO([0-9;]*)([A-Za-z])")
_SS3_BEGUN = re.compile(rb"\x1bO[0-9;]*")
_STRING = re.compile(rb"\x1b[]P^_X][^\x07\x1b]*(?:\x07|\x1b\\)")
_STRING_BEGUN = re.compile(rb"\x1b[]P^_X][^\x07\x1b]*\x1b?")


class KeyParser:
    """Parser of terminal input: ``feed`` every read, call ``on_deadline`` at the ``deadline``."""

    def __init__(self) -> None:
        self._rest = b""
        self._deadline: float | None = None
        self._burst_until = 0.0
        self.takes_text = False
        """Whether a person writes, so that a paste is wanted."""

    def feed(self, data: bytes, now: float) -> list[str]:
        """Return the keys that this read completes; ``now``: seconds of any steady clock."""
        self._rest += data
        keys = self._without_paste(list(self._complete()), now)
        self._deadline = now + ESCAPE_SECONDS if self._rest else None
        return keys

    def deadline(self) -> float | None:
        """Return when an unfinished sequence counts as complete."""
        return self._deadline

    def on_deadline(self, now: float) -> list[str]:
        """Return the key of a lone ESC; drop any other unfinished sequence."""
        if self._deadline is None or now < self._deadline:
            return []
        rest, self._rest, self._deadline = self._rest, b"", None
        if rest == b"\x1b":
            return ["escape"]
        return [f"alt+{chr(rest[1])}"] if rest[1:] in _BEGINNINGS else []

    def _without_paste(self, keys: list[str], now: float) -> list[str]:
        typed = [key for key in keys if len(key) == 1 or key in ("enter", "space", "tab")]
        if len(typed) > BURST_MAX or (typed and now < self._burst_until):
            self._burst_until = now + BURST_QUIET_SECONDS
            if self.takes_text:
                return ["space" if key in ("enter", "tab") else key for key in keys]
            return [key for key in keys if key not in typed]
        return keys

    def _complete(self) -> Iterator[str]:
        while self._rest:
            length, key = _first(self._rest)
            if not length:
                # The middle is dropped: the beginning decides the end, and it stays too long for a
                # key.
                half = SEQUENCE_BYTES_MAX // 2
                if len(self._rest) > SEQUENCE_BYTES_MAX:
                    self._rest = self._rest[:half] + self._rest[-half:]
                return
            self._rest = self._rest[length:]
            if key:
                yield key


def _first(data: bytes) -> tuple[int, str]:
    """Return the length of the first key in bytes, 0 if more must come, and its name or ""."""
    first = data[0]
    if first == 0x1B:
        return _escape(data)
    if first in _CONTROLS:
        return 1, _CONTROLS[first]
    if first < 0x20:
        return 1, "ctrl+" + chr(first | 0x40).lower()
    return (1, chr(first)) if first < 0x7F else _character(data)


def _character(data: bytes) -> tuple[int, str]:
    """Parse one UTF-8 character; a byte that begins none is noise."""
    length = 2 if 0xC2 <= data[0] <= 0xDF else 3 if 0xE0 <= data[0] <= 0xEF else 4
    if not 0xC2 <= data[0] <= 0xF4:
        return 1, ""
    following = data[1:length]
    good = next((n for n, byte in enumerate(following) if byte & 0xC0 != 0x80), len(following))
    if good < len(following):
        return 1 + good, ""
    if len(data) < length:
        return 0, ""
    character = data[:length].decode("utf-8", "replace")
    return length, character if character.isprintable() and "\ufffd" not in character else ""


def _escape(data: bytes) -> tuple[int, str]:
    if len(data) == 1:
        return 0, ""
    match data[1:2]:
        case b"[":
            return _csi(data)
        case b"O":
            return _ss3(data)
        case b"]" | b"P" | b"^" | b"_" | b"X":
            return _string(data)
        case b"\x1b":
            return 1, "escape"
    length, key = _first(data[1:])
    return (length + 1, f"alt+{key}" if key else "") if length else (0, "")


def _csi(data: bytes) -> tuple[int, str]:
    # Two exceptions to the grammar: reports of a mouse, and function keys of the console.
    if data.startswith(b"\x1b[M"):
        return (6, "") if _MOUSE.match(data) else (0, "")
    if data.startswith(b"\x1b[["):
        if len(data) == 3:
            return 0, ""
        return (4, f"f{data[3] - 0x40}") if _LINUX_CONSOLE.match(data) else (3, "")
    if (whole := _CSI.match(data)) is None:
        return _cut_short(data, _CSI_BEGUN)
    parameters, between, final = (piece.decode("ascii") for piece in whole.groups())
    if parameters.startswith("<"):
        return whole.end(), "" if between else _pointed(parameters, final)
    return whole.end(), "" if between else _named(parameters, final)


LEFT_BUTTON = 0
WHEEL = {64: "wheel_up", 65: "wheel_down"}


def _pointed(parameters: str, final: str) -> str:
    """Parse a report of the mouse: only the left button alone, when it goes down, and the wheel."""
    if final != "M" or (match := _SGR_MOUSE.fullmatch(parameters)) is None:
        return ""
    button = int(match[1])
    return f"click:{match[2]},{match[3]}" if button == LEFT_BUTTON else WHEEL.get(button, "")


def _ss3(data: bytes) -> tuple[int, str]:
    if (whole := _SS3.match(data)) is None:
        return _cut_short(data, _SS3_BEGUN)
    parameters, final = (piece.decode("ascii") for piece in whole.groups())
    if final in "jklmnopqrstuvwxy":
        return whole.end(), "*+,-./0123456789"[ord(final) - ord("j")]
    return whole.end(), _named(parameters, final)


def _string(data: bytes) -> tuple[int, str]:
    """Parse an answer of the terminal: its background, or an unsolicited one."""
    if whole := _STRING.match(data):
        return whole.end(), background_key(data[2 : whole.end()].decode("ascii", "replace"))
    return _cut_short(data, _STRING_BEGUN)


def _cut_short(data: bytes, begun: re.Pattern[bytes]) -> tuple[int, str]:
    """Wait for the rest, or drop a broken sequence up to the byte that broke it."""
    match = begun.match(data)
    end = match.end() if match else 1
    return (0, "") if end == len(data) else (end, "")


def _named(parameters: str, final: str) -> str:
    """Parse ``CSI number ; modifiers ~``, ``CSI 1 ; modifiers letter``, or no parameters."""
    if (match := _PARAMETERS.fullmatch(parameters)) is None:
        return ""
    number, modifiers = int(match[1] or 1), int(match[2] or 1)
    if final == "~":
        key = _NUMBERS.get(number, "")
    else:
        key = _LETTERS.get(final, "") if number == 1 else ""
    return _modifiers(modifiers) + key if key else ""


def _modifiers(number: int) -> str:
    named = ((4, "ctrl+"), (2, "alt+"), (1, "shift+"))
    return "".join(name for bit, name in named if number - 1 & bit)
