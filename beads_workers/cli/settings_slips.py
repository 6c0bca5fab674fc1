"""Mistakes in a ``beads-workers.toml``: the line, and the line that was probably meant.

Imported only for a file that cannot be read, or that has an unknown key.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from beads_workers import registry
from beads_workers.core.base.text import printable
from beads_workers.options import KEYS, TABLES, Option, as_toml

LIKE = 'a line looks like: command = ["my-agent", "{id}"]'
TABLES_SAID = ", ".join(f"[{name}]" for name in ("agents.NAME", *TABLES, *registry.TABLES))
LISTS = ("argv", "arguments")
"""List-valued keys of an agent's table."""
TYPED = ("detach", "wait", "dry_run", "json", "no_dashboard")
"""Options of ``start`` that are not settings."""
WORDS = dict.fromkeys(("true", "yes", "on"), True) | dict.fromkeys(("false", "no", "off"), False)
CURLY = str.maketrans("\u201c\u201d\u2018\u2019", "\"\"''")
ROW_CHARS = 100

_LINE = re.compile(r" ?\(at (?:line (\d+), column \d+|end of document)\)$")
_PAIR = re.compile(r"-*([A-Za-z_][\w-]*)\s*(?:[:=]\s*|\s)(.*)$")
_TEXTS = re.compile(r"([\"'])(.*?)\1")
_TABLE = re.compile(r"\s*\[([^\[\]]+)\]")

Slip = tuple[str, str]
"""Description of the mistake, and what to write."""


def of_text(text: str, error: ValueError) -> Slip:
    """Explain a text that is not TOML; ``error``: the message of the parser."""
    reason = str(error)
    found = _LINE.search(reason)
    rows = text.splitlines() or [""]
    number = min(int(found[1] or len(rows)), len(rows)) if found else len(rows)
    if reason.startswith("Unclosed"):
        number = max(n for n, row in enumerate(rows[:number], 1) if "[" in row or "{" in row)
    row = rows[number - 1].strip()
    tables = [table[1].strip() for each in rows[: number - 1] if (table := _TABLE.match(each))]
    why = _LINE.sub("", reason)
    where = f"line {number}"
    shown = f"{where}: {printable(row, ROW_CHARS)}"
    if (straight := row.translate(CURLY)) != row:
        return f"{shown} (curly quotes)", f"write: {straight}"
    if row.startswith("[agent."):
        return shown, f"write: {row.replace('[agent.', '[agents.', 1)}"
    if why.startswith("Cannot declare"):
        return f"{shown} (it is there already)", "put its lines below the first one"
    if why == "Cannot overwrite a value":
        key = row.partition("=")[0].strip()
        return f"{shown} ({printable(key, 40)} is set twice)", "leave one of the lines out"
    meant = _corrected_line(row, tables[-1] if tables else "")
    return f"{shown} ({_lowered(why)})", f"write: {meant}" if meant else LIKE


def _lowered(text: str) -> str:
    return printable(text[:1].lower() + text[1:], ROW_CHARS)


def _corrected_line(row: str, table: str) -> str:
    pair = _PAIR.match(row)
    if pair is None:
        return ""
    key = pair[1].replace("-", "_")
    value = re.sub(r"\s#.*", "", pair[2]).strip()
    if value.startswith("["):
        return f"{key} = {as_toml(tuple(text for _, text in _TEXTS.findall(value)))}"
    value = value.strip("\"'")
    if table.startswith("agents."):
        return f"{key} = {as_toml(tuple(_split(value)) if key in LISTS else value)}"
    option = KEYS.get(TABLES[table].get(key, "") if table in TABLES else key)
    return right(key, value, option) if option is not None else ""


def right(key: str, typed: object, option: Option) -> str:
    """Return the line that sets the key to this value; "" if no value fits."""
    text = str(typed)
    number = [int(text)] if re.fullmatch(r"\d{1,9}", text) else []
    words = [WORDS[text.lower()]] if text.lower() in WORDS else []
    several = [tuple(re.split(r"\s*,\s*", text))] if option.kind.many and "," in text else []
    for value in (*words, *number, *several, text, tuple(_split(text))):
        try:
            option.read(value)
        except ValueError:
            continue
        return f"{key} = {as_toml(value)}"
    return ""


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


# --- keys ----------------------------------------------------------------------------------------


def of_key(key: str, value: object) -> Slip:
    """Explain an unknown key or table."""
    if isinstance(value, Mapping):
        return f"unknown table [{printable(key, 40)}]", _table(key, value)
    if key in TABLES:
        return f"{key} is a table", f"write [{key}], and below it lines like: {_first(key)} = ..."
    return f"unknown key {key!r}", _key(key)


def _table(key: str, inner: Mapping[str, Any]) -> str:
    from beads_workers.agents.presets import PRESETS

    if key == "agent":
        named = next((name for name, each in inner.items() if isinstance(each, Mapping)), "NAME")
        return f"write [agents.{printable(named, 40)}]"
    if key in PRESETS:
        return f"write [agents.{key}]"
    if near := get_close_matches(key, [*TABLES, *registry.TABLES, "agents"], n=1, cutoff=0.7):
        return f"write [{near[0]}]"
    if inner and all(each in KEYS for each in inner):
        return f"leave the line [{printable(key, 40)}] out: these keys stand at the top of the file"
    return f"tables are {TABLES_SAID}; all other keys stand at the top of the file"


def _first(table: str) -> str:
    return "enabled" if "enabled" in TABLES[table] else next(iter(TABLES[table]))


def _key(key: str) -> str:
    from beads_workers.cli.suggestions import OPTIONS

    name = key.strip("-").replace("-", "_").lower()
    if name in TYPED:
        return f"it is typed at each start: beads-workers start --{name.replace('_', '-')}"
    flag = OPTIONS.get(f"--{name.replace('_', '-')}") or OPTIONS.get(f"-{name}") or f"-{name}"
    meant = next((each for each, option in KEYS.items() if flag in option.flags), "")
    meant = meant or flag.strip("-").replace("-", "_")
    known = [each for each, option in KEYS.items() if option.in_file]
    if meant in known:
        return f"did you mean {meant}?"
    return nearest(name, [*known, "agents"])


def nearest(key: str, known: Iterable[str]) -> str:
    """Return a hint with the nearest key, or with all keys if they are few."""
    known = list(known)
    found = get_close_matches(key.replace("-", "_").lower(), known, n=1)
    if found:
        return f"did you mean {found[0]}?"
    if len(known) > KEYS_SHOWN_MAX:
        return "keys are long options with underscores: 'beads-workers start --help' lists them"
    return f"known keys: {', '.join(known)}"


KEYS_SHOWN_MAX = 20
"""Number of keys in a hint: nobody reads a longer list."""
