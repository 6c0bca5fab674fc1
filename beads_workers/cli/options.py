"""The options of ``start`` as one table: names, types, ranges and defaults.

The same table reads the command line's values, the environment and ``beads-workers.toml``, so an
option cannot mean two things. Adding one is a field of ``Options`` and a line of ``KEYS``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from beads_workers.cli.option_executor import read_executor
from beads_workers.cli.option_hero import HeroTable, read_hero
from beads_workers.cli.option_metrics import read_port
from beads_workers.core import limits
from beads_workers.core.jobs import PRIORITY_LEAST_URGENT, is_module_name

WORKERS_DEFAULT = 4
IN_FLIGHT_MAX = 1000
WORKERS_MAX = limits.LISTEN_BACKLOG
POLL_PUSHED_SECONDS = 3600.0
"""Where work comes by itself: nothing is to be found by asking."""
SECONDS_MAX = 366 * 86_400.0
"""A year and a day: longer than any run, shorter than any overflow."""


@dataclass(frozen=True, slots=True)
class Options:
    """Every option of ``start``; None is "not said". Durations in seconds, paths as text."""

    workers: int | None = None
    source: str | None = None
    label: tuple[str, ...] | None = None
    label_any: tuple[str, ...] | None = None
    exclude_label: tuple[str, ...] | None = None
    type: tuple[str, ...] | None = None
    priority: tuple[int, ...] | None = None
    parent: str | None = None
    timeout: float | None = None
    max_attempts: int | None = None
    retry_delay: float | None = None
    verify: str | None = None
    bd_calls: str | None = None
    agent: str | None = None
    prompt: str | None = None
    limit: int | None = None
    max_runtime: float | None = None
    idle_timeout: float | None = None
    poll: float | None = None
    state_dir: str | None = None
    log_dir: str | None = None
    until_empty: bool | None = None
    command: tuple[str, ...] | None = None
    term_grace: float | None = None
    stop_timeout: float | None = None
    worktree: bool | None = None
    worktree_base: str | None = None
    worktree_setup: str | None = None
    worktree_copy: tuple[str, ...] | None = None
    worktree_folder: str | None = None
    worktree_disk_floor: int | None = None
    shared_checkout: bool | None = None
    notify: str | None = None
    keep_runs: int | None = None
    log_max: int | None = None
    journal_max: int | None = None
    shared: bool | None = None
    allow_module: tuple[str, ...] | None = None
    executor: tuple[str, ...] | None = None
    in_flight: int | None = None
    function: str | None = None
    metrics: int | None = None
    hero: HeroTable | None = None
    trace: bool | None = None


def parse_duration(text: str) -> float:
    """Seconds from ``90``, ``90s``, ``1.5m``, ``2h``; raises ``ValueError`` naming the forms."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?", text.strip(), re.ASCII)
    if match is None:
        raise ValueError(f"{text!r} is no duration: write 90, 90s, 5m or 2h")
    return float(match[1]) * _UNITS[match[2] or "s"]


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}

Reader = Callable[[Any], Any]
"""Takes a value as TOML or the command line has it; raises ``ValueError`` saying what may be."""


def _integer(low: int, high: int) -> Reader:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return value

    return read


def _duration(low: float) -> Reader:
    allowed = f"a duration of {low:g} s or more: 90, 90s, 5m or 2h" if low else _FROM_NOUGHT

    def read(value: Any) -> float:
        try:
            seconds = parse_duration(value) if isinstance(value, str) else value
        except ValueError:
            raise ValueError(allowed) from None
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise ValueError(allowed)
        if not low <= seconds <= SECONDS_MAX:  # False for NaN, too
            raise ValueError(allowed)
        return float(seconds)

    return read


_FROM_NOUGHT = "a duration: 0, 90, 90s, 5m or 2h"


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError("a text that is not empty")
    return value


def _choice(*names: str) -> Reader:
    def read(value: Any) -> str:
        if value not in names:
            raise ValueError(" or ".join(f'"{name}"' for name in names))
        return str(value)

    return read


def _source(value: Any) -> str:
    known = ("bd", "sqlite", "hero")
    if isinstance(value, str) and (value in known or value.startswith("dispatcherd:")):
        return value
    if isinstance(value, str) and "://" in value:
        return value
    raise ValueError('"bd", "sqlite", "dispatcherd:CONFIG" or a URL')


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _several(one: Reader, *, alone: bool = True) -> Reader:
    """A list of what ``one`` reads; where ``alone``, a single value is a list of one."""

    def read(value: Any) -> tuple[Any, ...]:
        values = value if isinstance(value, list | tuple) else [value]
        if not alone and not (isinstance(value, list | tuple) and value):
            raise ValueError("a list of texts, the program first")
        return tuple(one(each) for each in values)

    return read


def _argument(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("a list of texts, the program first")
    return value


def _inside(value: Any) -> str:
    """A file or pattern inside the project: nothing else is ever copied."""
    if (
        not isinstance(value, str)
        or not value.strip("/. ")
        or "\0" in value
        or value.startswith(("/", "~"))
        or ".." in value.split("/")
    ):
        raise ValueError('files or patterns inside the project: [".env", "config/*.local"]')
    return value


def read_bytes(low: int) -> Reader:
    """Reads a size in bytes, also as a text with its unit; ``low`` is the least."""
    least = f"of {low >> 10} KiB or more" if low else "0"

    def read(value: Any) -> int:
        allowed = f'a size: {least}, "500MB" or "2GB"'
        if isinstance(value, str):
            match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kKMGT]i?)?B?", value.strip(), re.ASCII)
            if match is None:
                raise ValueError(allowed)
            base, power = (
                (1024 if match[2] and "i" in match[2] else 1000),
                (match[2] or "").replace("K", "k"),
            )
            number = float(match[1]) * base ** " kMGT".index(power[:1] or " ")
            value = int(number) if number < 1 << 63 else None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value < 1 << 63:
            raise ValueError(allowed)
        return value

    return read


def _ref(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or value.startswith("-") or "\0" in value:
        raise ValueError("a branch, a tag or a commit")
    return value


def _module(value: Any) -> str:
    if not isinstance(value, str) or not is_module_name(value):
        raise ValueError("the name of a module or package: tasks, shop.tasks")
    return value


COMMAND: Reader = _several(_argument, alone=False)
"""Reads ``command`` and an agent's ``argv``."""

TEMPLATE: Reader = _text
"""Reads an agent's ``prompt``: the template itself, not a path."""


@dataclass(frozen=True, slots=True)
class Key:
    """One option: how it is read, and what holds when nobody says anything."""

    read: Reader
    default: Any = None
    path: bool = False
    """Relative to the file's folder in the file, to the current folder elsewhere."""


KEYS: Mapping[str, Key] = {
    "workers": Key(_integer(0, WORKERS_MAX), WORKERS_DEFAULT),
    "source": Key(_source),
    "label": Key(_several(_text), ()),
    "label_any": Key(_several(_text), ()),
    "exclude_label": Key(_several(_text), ()),
    "type": Key(_several(_text), ()),
    "priority": Key(_several(_integer(0, PRIORITY_LEAST_URGENT)), ()),
    "parent": Key(_text),
    "timeout": Key(_duration(0.001)),
    "max_attempts": Key(_integer(1, 1000), limits.ATTEMPTS_MAX),
    "retry_delay": Key(_duration(0), limits.RETRY_DELAY_SECONDS),
    "verify": Key(_text),
    "bd_calls": Key(_choice("grouped", "worker"), "grouped"),
    "agent": Key(_text),
    "prompt": Key(_text, path=True),
    "limit": Key(_integer(1, 1_000_000_000)),
    "max_runtime": Key(_duration(0.001)),
    "idle_timeout": Key(_duration(0.001)),
    "poll": Key(_duration(0.05), limits.POLL_SECONDS),
    "state_dir": Key(_text, path=True),
    "log_dir": Key(_text, path=True),
    "until_empty": Key(_boolean, False),
    "command": Key(COMMAND),
    "term_grace": Key(_duration(0), limits.TERM_GRACE_SECONDS),
    "stop_timeout": Key(_duration(0), limits.STOP_SECONDS),
    "worktree": Key(_boolean, False),
    "worktree_base": Key(_ref),
    "worktree_setup": Key(_text),
    "worktree_copy": Key(_several(_inside), ()),
    "worktree_folder": Key(_text, path=True),
    "worktree_disk_floor": Key(read_bytes(0), limits.DISK_FLOOR_BYTES),
    "shared_checkout": Key(_boolean, False),
    "notify": Key(_text),
    "keep_runs": Key(_integer(1, 1_000_000), limits.KEEP_RUNS),
    "log_max": Key(read_bytes(limits.LOG_BYTES_MIN), limits.LOG_BYTES_MAX),
    "journal_max": Key(read_bytes(limits.JOURNAL_BYTES_MIN), limits.JOURNAL_BYTES_MAX),
    "shared": Key(_boolean, False),
    "allow_module": Key(_several(_module), ()),
    "executor": Key(_several(read_executor), ()),
    "in_flight": Key(_integer(1, IN_FLIGHT_MAX), 1),
    "function": Key(_text),
    "metrics": Key(read_port),
    "hero": Key(read_hero),
    "trace": Key(_boolean),
}
"""Keys of ``beads-workers.toml``: the long options of ``start``, with underscores."""

TABLES: Mapping[str, Mapping[str, str]] = {
    "worktree": {
        "enabled": "worktree",
        "base": "worktree_base",
        "setup": "worktree_setup",
        "copy": "worktree_copy",
        "folder": "worktree_folder",
        "disk_floor": "worktree_disk_floor",
    },
}
"""Tables of ``beads-workers.toml``: their keys, and those that they stand for."""

ENVIRONMENT: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "BEADS_WORKERS_COUNT": ("workers", lambda text: int(text) if text.isdecimal() else text),
    "BEADS_WORKERS_LOG_DIR": ("log_dir", str),
}
"""Variables that are honoured: the key that they set, and how their text is turned into it."""
