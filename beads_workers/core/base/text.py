"""Make text safe to show. Text from issues and peers is untrusted until it is escaped here."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Sequence
from typing import Any

_JOINERS = "\u200c\u200d"
"""Characters that are unprintable alone, but that ordinary emoji and several scripts contain."""

_MARKS = {"\n": "⏎", "\u2028": "⏎", "\u2029": "⏎", "\t": "\\t", "\r": "\\r"}

_SEQUENCES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]+[0-~]|[0-OQ-WYZ\\`-~])"
)
"""Matches complete escape sequences: colours, cursor moves, titles and links."""

_UNSAFE_IN_JSON = re.compile(
    "[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
"""Matches unsafe characters that ``json.dumps`` does not escape: controls that a terminal obeys,
and lone surrogates, which UTF-8 cannot encode. If a file name is not valid UTF-8, Python turns the
invalid bytes into lone surrogates."""


_BREAK = "\u200b"
"""Of no width: words that a forge obeys are no such words with one inside."""
_OBEYED = (
    (re.compile(r"<!--"), f"<{_BREAK}!--"),
    (re.compile(r"(?<![A-Za-z0-9_])@(?=[\w-])"), f"@{_BREAK}"),
    (re.compile(r"#(?=\d)"), f"#{_BREAK}"),
    (re.compile(r"(?i)\b(gh-)(?=\d)"), rf"\1{_BREAK}"),
    (re.compile(r"(?i)(/(?:issues|pull|pulls|merge_requests)/)(?=\d)"), rf"\1{_BREAK}"),
    (re.compile(r"(?m)^([ \t]*)/(?=\w+(?:\s|$))"), rf"\1{_BREAK}/"),
    (re.compile(r"(?im)^([ \t]*(?:fix|close|resolve)\w*)(?=:)"), rf"\1{_BREAK}"),
)


def defused(text: str) -> str:
    """Return a text in which a forge finds no mention, link to an issue, command or comment."""
    for pattern, by in _OBEYED:
        text = pattern.sub(by, text)
    return text


def printable(text: str, width: int | None = None) -> str:
    """Return the text as one line that is safe in a terminal.

    Control and bidi characters are escaped, and newlines are marked. ``width``: maximum number of
    columns. A line that needs more columns is cut, and ends with an ellipsis.
    """
    # Only the first 4 * width + 4 characters are looked at: a title may be megabytes long, and the
    # characters after these hardly ever fit.
    head = text if width is None else text[: 4 * width + 4]
    safe = head if head.isprintable() else "".join(map(_safe, head))
    return safe if width is None else _shortened(safe, width, cut=len(head) < len(text))


def in_one_line(text: str, width: int) -> str:
    """Return prose of several lines as ``printable`` text: a line end is a space like any other."""
    return printable(" ".join(text.split()), width)


_SENTENCES = re.compile(r"(?<=[.!:]) +|\n+")
_ASKS = re.compile(r"[?\uff1f]")


def asked_in_one_line(question: str, width: int) -> str:
    """Return a question in one line, from the first sentence that asks: what an agent says before
    it is no reason to look."""
    said = _SENTENCES.split(question.strip())
    first = next((at for at, each in enumerate(said) if _ASKS.search(each)), 0)
    return in_one_line(" ".join(said[first:]), width)


def as_shown(line: str) -> str:
    """Return a line of a program's output as a terminal would show it in the end, without colours.

    The result is not yet safe to show: pass it to ``printable``.
    """
    shown = _SEQUENCES.sub("", line.rstrip("\r\n"))
    # A progress bar overwrites its own line: only the last drawing stays.
    return shown.rpartition("\r")[2].expandtabs()


def counted(count: int, one: str, many: str = "") -> str:
    """Return a count and its noun, such as ``1 issue`` or ``1,234 issues``.

    ``many``: the plural, if it is not ``one`` with an s.
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def in_counting_order(text: str) -> list[tuple[str, int]]:
    """Return a key by which ids are sorted as people count: ``t-9`` before ``t-10``."""
    return [(word, int(part or 0)) for word, part in re.findall(r"([^0-9]*)([0-9]*)", text)]


def some(ids: Sequence[str], most: int = 5) -> str:
    """Return the first ids, up to ``most`` of them, and dots if there are more ids."""
    return " ".join(ids[:most]) + (" ..." if len(ids) > most else "")


def columns(text: str) -> int:
    """Return the columns that ``text`` needs in a terminal; East Asian wide characters need two."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def json_line(value: Any) -> str:
    """Return one line of safe JSON: characters that a terminal obeys become ``\\uXXXX``."""
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", line)


LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")
"""Names of this machine in a ``Host`` header. Any port may follow the name: behind a tunnel
(``ssh -L``), the browser's port differs from ours."""


def is_local(host: str, names: Collection[str] = ()) -> bool:
    """Return whether the ``Host`` header of an HTTP request names this machine.

    ``names``: its names beside ``LOCAL_NAMES``.
    """
    whole = host.strip().lower()
    name, _, port = whole.rpartition(":")
    return (name if port.isdecimal() else whole) in {*LOCAL_NAMES, *map(str.lower, names)}


def _safe(character: str) -> str:
    if character.isprintable() or character in _JOINERS:
        return character
    if character in _MARKS:
        return _MARKS[character]
    if unicodedata.category(character) == "Zs":
        return " "
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _columns(character: str) -> int:
    if unicodedata.combining(character) or character in _JOINERS:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _shortened(text: str, width: int, *, cut: bool) -> str:
    if not cut and columns(text) <= width:
        return text
    used = 0
    for at, character in enumerate(text):
        used += _columns(character)
        if used > width - 1:
            return text[:at] + "…"
    return text + "…"


def size(count: int) -> str:
    """Return a number of bytes as people write it: ``1.5 GB`` for 1,500,000,000."""
    amount = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            break
        amount /= 1000
    return f"{amount:.1f} {unit}" if unit == "GB" and amount < 100 else f"{amount:.0f} {unit}"
