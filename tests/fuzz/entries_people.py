"""What a person types, writes into a file, or sees: keys, settings, and text on a terminal."""

from __future__ import annotations

import re
import tomllib
from dataclasses import is_dataclass
from pathlib import Path
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

from beads_workers.cli import config, own_keys
from beads_workers.core.base import limits, text
from beads_workers.core.base.times import parse_duration
from beads_workers.core.base.wire import Task
from beads_workers.core.schedule import hours
from beads_workers.core.workers.worker import last_line
from beads_workers.errors import CommandError
from beads_workers.executors import command
from beads_workers.options import KEYS
from beads_workers.ui.keys import KeyParser
from beads_workers.ui.terminal import READ_BYTES
from tests.fuzz.inputs import any_of, as_text, cuts, hostile, hostile_value, texts
from tests.fuzz.parser import Parser, require

# --- keys -------------------------------------------------------------------------------------

KEYS_SENT = (
    b"p", b"q", b"+", b" ", b"\r", b"\t", b"\x1b", b"\x1b[A", b"\x1bOB", b"\x1b[1;5C", b"\x1b[5~",
    b"\x1b[15;2~", b"\x1b[[A", b"\x1b[M !!", b"\x1b[<0;1;2M", b"\x1b]11;rgb:0/0/0\x07", b"\x1b\\",
    b"\x1bP1$r\x1b\\", b"\x1bx", "é".encode(), "日".encode(), "👩".encode(), b"\x7f", b"\x0c",
    b"\x1bO",
    b"\x1b[200~", b"\x1b]" + b"a" * 300, b"\x1b[" + b"1;" * 150 + b"A",
)  # fmt: skip
LONG_BYTES = 10_000
PIECE_BYTES = 8
"""No piece of a split is a paste; each comes long after the one before."""


def keys_hold(parser_of: Any, data: bytes) -> None:
    data = data if len(data) > LONG_BYTES else data[:80]
    parser = parser_of()
    whole = [
        parser.feed(data[at : at + PIECE_BYTES], at) for at in range(0, len(data), PIECE_BYTES)
    ]
    keys = [key for each in whole for key in each]
    for key in keys:
        require(key and key.isprintable() and len(key) < 30, f"no name of a key: {key!r}")
    if len(data) > LONG_BYTES:
        # A large one is there for its time: as much at once as one read brings.
        parser_of().feed(data[:READ_BYTES], 1.0)
        return
    for pieces in cuts(data):
        require(_by_pieces(parser_of, pieces) == keys, "other keys when they come in pieces")
    parser = parser_of()
    at_once = [key for key in parser.feed(data, 1.0) if _is_command(key)]
    require(
        at_once == [key for key in keys if _is_command(key)], "other keys when all come at once"
    )
    rest = parser.on_deadline(2.0)
    require(len(rest) <= 1 and parser.deadline() is None, "something stays for ever")


def _by_pieces(parser_of: Any, pieces: list[bytes]) -> list[str]:
    parser, found, now = parser_of(), list[str](), 0.0
    for piece in pieces:
        for at in range(0, len(piece), PIECE_BYTES):
            now += 1.0
            found += parser.feed(piece[at : at + PIECE_BYTES], now)
    return found


def _is_command(key: str) -> bool:
    return len(key) > 1 and key not in ("enter", "space", "tab")


class HalfCharacters(KeyParser):
    """Planted bug: gives up on a character that has not come wholly."""

    def feed(self, data: bytes, now: float) -> list[str]:
        found = super().feed(data, now)
        self._rest = b"" if self._rest[:1] >= b"\x80" else self._rest
        return found


# --- text on a terminal -------------------------------------------------------------------------

SHOWN = (
    b"a", b" ", b"\n", b"\r", b"\t", b"\x1b[31m", b"\x1b]8;;x\x07", b"\x1b]0;t\x1b\\", b"\x1b(B",
    "é".encode(), "e\u0301".encode(), "日本".encode(), "👩‍👩‍👧".encode(),
    b"\xe2\x80\xae", b"\xc2\x85",
    b"\xc2\xa0", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"50%\r60%", b"\x1b]", b"\x1bP", b"\x1b[0;",
)  # fmt: skip
_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def shown_holds(printable: Any, data: bytes) -> None:
    raw = as_text(data)
    line = printable(raw)
    require(not _OBEYED.search(line), "a terminal would obey it")
    line.encode()
    for width in (1, 7, 40):
        cut = printable(raw, width)
        require(text.columns(cut) <= width and not _OBEYED.search(cut), "it does not fit")
    require(not _OBEYED.search(printable(text.as_shown(raw))), "a terminal would obey it")
    written = text.json_line({"text": raw})
    written.encode()
    require(not _OBEYED.search(written), "a terminal would obey it")


def last_line_holds(last: Any, data: bytes) -> None:
    line = last(as_text(data))
    require(len(line) <= limits.ERROR_CHARS_MAX and line == line.strip(), "not short")
    require(not re.search("[\x00-\x08\n-\x1f\x7f-\x9f]", line), "a terminal would obey it")


def _raw_colours(raw: str, width: int | None = None) -> str:
    """Planted bug: takes the C1 controls for letters."""
    safe = "".join(c if c.isprintable() or "\x80" <= c < "\xa0" else "?" for c in raw)
    return text.printable(safe) if width is None and "\x9b" not in safe else safe[:width]


# --- settings -----------------------------------------------------------------------------------

TOML = (
    b"workers = 3\n", b'command = ["my-agent", "{id}"]\n', b'timeout = "5m"\n', b"timeout = 5\n",
    b"[worktree]\n", b"enabled = true\n", b'disk_floor = "2GB"\n', b'[agents.mine]\nargv = ["x"]\n',
    b'prompt = "p.md"\n', b"priority = [0, 1]\n", b'label = "x"\n', b"until_empty = true\n",
    b"retry_delay = 0.5\n", b'source = "sqlite"\n', b"a.b.c = 1\n", b"max_attempts = ",
    b"9" * 400 + b"\n", b"nan\n", b"-inf\n", b"1979-05-27T07:32:00Z\n", b"'''", b'"""', b"#",
    b"copy = ['.env']\n", b"notify = 'desktop'\n", b"[[agents]]\n", b"{ x = 1 }\n", b" = ",
    b"1e999\n",
)  # fmt: skip


def settings_hold(read: Any, data: bytes) -> None:
    try:
        values, agents = read(data)
    except CommandError as error:
        require(error.exit_code == 2, "another exit code than for a wrong word")
        return
    require(set(values) <= set(KEYS), "an option that there is not")
    for value in values.values():
        require(_is_setting(value), f"no setting: {value!r:.60}")
    require(all(isinstance(name, str) for name in agents), "an agent without a name")


def _is_setting(value: Any) -> bool:
    if isinstance(value, tuple):
        # Words, numbers, or pairs of words (``landing.types``).
        return all(isinstance(each, str | int) or _is_pair(each) for each in value)
    if is_dataclass(value):
        return True  # The table of an integration, which has a parser of its own here.
    return isinstance(value, str | int) or (isinstance(value, float) and 0 <= value < 1e9)


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(isinstance(w, str) for w in value)


def _read(data: bytes) -> Any:
    return config.read_text(Path("beads-workers.toml"), data)


def _trusts_toml(data: bytes) -> Any:
    """Planted bug: any number is a setting."""
    values, agents = _read(data)
    return {k: 10.0**300 if k == "timeout" else v for k, v in values.items()}, agents


OWN_KEYS = (
    b"[keys]\n", b'o = "code {worktree}"\n', b'"\xe2\x82\xac" = "x"\n', b"q = 'x'\n", b'oo = "x"\n',
    b'z = "a \\u0000"\n', b"y = 3\n", b'x = "\'"\n', b'"\\n" = "x"\n', b"keys = 1\n", b"[" * 2000,
    b"v = [", b'w = ""\n', b"\xff",
)  # fmt: skip


def own_keys_hold(read: Any, data: bytes) -> None:
    try:
        found = read(data)
    except CommandError:
        return
    for key, words in found.items():
        require(len(key) == 1 and key.isprintable(), "no key that can be pressed")
        require(words.strip(), "nothing to run")
        require("\0" not in words, "the kernel takes no NUL")


def _read_own_keys(data: bytes) -> Any:
    return own_keys.read_text(Path("config.toml"), data)


def _any_own_keys(data: bytes) -> Any:
    """Planted bug: any string under any name is a command."""
    try:
        found = tomllib.loads(data.decode()).get("keys")
    except (ValueError, RecursionError):
        raise CommandError("no TOML") from None
    strings = found.items() if isinstance(found, dict) else ()
    return {key: value for key, value in strings if isinstance(value, str)}


OPTION_PIECES = (
    b"90",
    b"s",
    b"m",
    b"h",
    b"ms",
    b"d",
    b".",
    b"1.5",
    b"-",
    b"1e3",
    b"GB",
    b"Ki",
    b"\xd9\xa3",
)


def _option(rng: Random) -> bytes:
    key = any_of(rng, OPTION_NAMES)
    return key.encode() + b"=" + any_of(rng, OPTION_PIECES) + any_of(rng, OPTION_PIECES)


OPTION_NAMES = tuple(KEYS)


def options_hold(keys: Any, data: bytes) -> None:
    name, _, said = data.partition(b"=")
    key = keys.get(name.decode("ascii", "replace"))
    if key is None:
        key = keys[OPTION_NAMES[len(data) % len(OPTION_NAMES)]]
    hostile_ones = [hostile_value(Random(data)) for _ in range(2)]
    for value in (as_text(said), [as_text(said)], *hostile_ones):
        try:
            read = key.read(value)
        except ValueError as error:
            require(0 < len(str(error)) < 200, "no hint")
            continue
        require(_is_setting(read), f"no setting: {read!r:.60}")
    try:
        require(parse_duration(as_text(said)) >= 0, "a duration below nothing")
    except ValueError:
        pass


class _Unbounded:
    """Planted bug: a duration is whatever ``float`` takes."""

    def read(self, value: Any) -> Any:
        return float(value) if isinstance(value, str) and value.isdigit() else value


# --- moments ------------------------------------------------------------------------------------

MOMENT_PIECES = (
    b"07:00", b"23:59:59", b"24:00", b"2:3", b"8h", b"1.5", b"0", b"400d", b"2027-01-31", b"T",
    b" ",
    b"0001-01-01", b"9999-12-31", b"2027-02-30", b"Z", b"+14:00", b"-23:59", b".5", b"\xd9\xa0:00",
)  # fmt: skip
NOW = 1_795_235_892.4
ZONES = (None, ZoneInfo("Pacific/Apia"), ZoneInfo("Europe/Berlin"))


def moments_hold(read: Any, data: bytes) -> None:
    try:
        said = read(as_text(data))
    except ValueError as error:
        require(0 < len(str(error)) < 200, "no hint")
        return
    for zone in ZONES:
        at = hours.moment(said, NOW, zone)
        require(type(at) is float, "no float")
        require(hours.moment(hours.written(at), 0.0, zone) == at, f"{at} is not kept")


def _any_date(text: str) -> str:
    """Planted bug: any date is a moment, also one that no clock counts to."""
    return text if text.startswith(("0001-01-01", "9999-12-31")) else hours.read_moment(text)


# --- commands -----------------------------------------------------------------------------------

WORDS = (
    b"sh\0-c\0", b"bash\0-ec\0", b"python3\0-c\0", b"env\0", b"{title}", b"{description}",
    b"{id}", b"\0",
    b"--", b"-o\0pipefail\0", b"/usr/bin/perl\0-E\0", b"node\0--eval=", b"echo ", b"{", b"}",
    b"{{id}}",
    b"{worker}", b"su\0-c\0", b"timeout\x005\0", b"-", b"+x\0", b"{attempt}",
)  # fmt: skip


def commands_hold(spelt: Any, data: bytes) -> None:
    argv = as_text(data).split("\0")
    task = Task(as_text(data[:9]) or "bw-1", 1, as_text(data[:300]), attempt=2)
    known = command.values(task, "W1")
    safe = spelt(argv)
    require(len(safe) == len(argv), "other arguments than before")
    require(command.unsafe_script(safe) is None, "an issue's text inside a script")
    for argument in argv:
        replaced = command.plain(command.replace(argument, known))
        require("\0" not in replaced, "the kernel takes no NUL")
        replaced.encode()
        require(command.replace(argument, {}) == argument, "changes what it does not know")


PARSERS = [
    Parser("keys", ("ui/keys.py",), KeyParser, texts(KEYS_SENT), keys_hold,
           {"half a character": HalfCharacters}),
    Parser("shown", ("core/base/text.py",), text.printable, texts(SHOWN), shown_holds,
           {"old controls": _raw_colours}),
    Parser("last-line", ("core/workers/worker.py",), last_line, texts(SHOWN), last_line_holds,
           {"the last of all": lambda tail: tail.rstrip("\n").rpartition("\n")[2][:2000]}),
    Parser("settings-file", ("cli/config.py",), _read, hostile(texts(TOML, 6), TOML), settings_hold,
           {"any number": _trusts_toml}),
    Parser("own-keys", ("cli/own_keys.py",), _read_own_keys, hostile(texts(OWN_KEYS, 6), OWN_KEYS),
           own_keys_hold, {"any string": _any_own_keys}),
    Parser("options", ("options.py",), KEYS, hostile(_option, OPTION_PIECES), options_hold,
           {"any duration": dict.fromkeys(KEYS, _Unbounded())}),
    Parser("moments", ("core/schedule/hours.py",), hours.read_moment,
           hostile(texts(MOMENT_PIECES, 3)), moments_hold, {"any date": _any_date}),
    Parser("commands", ("executors/command.py",), command.spelt_for_scripts, texts(WORDS),
           commands_hold, {"as they are": tuple}),
]  # fmt: skip
