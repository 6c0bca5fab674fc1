"""``start --source redis://...`` and ``[hero]``: which queue is served, and what runs its
scripts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beads_workers.core.base.scripts import SCRIPT_BYTES_MAX, Context, LogRoot, ResourceLimits

if TYPE_CHECKING:
    from beads_workers.integrations.hero.wire import Keys


CPU_SECONDS_MAX = 366 * 86_400
ROTATED_MAX = 100


@dataclass(frozen=True, slots=True)
class HeroTable:
    """The table ``[hero]``."""

    # ``url`` and ``worker``: "" if they are not given.
    url: str = ""
    worker: str = ""
    naming: str = "text"
    # Templates that replace those of ``naming``.
    keys: Mapping[str, str] = field(default_factory=dict)
    contexts: tuple[Context, ...] = ()
    log_root: LogRoot | None = None

    def made_keys(self) -> Keys:
        """Return the names of all keys in the Redis."""
        from beads_workers.integrations.hero.wire import (
            keys_of,  # ``start`` reads this module, too.
        )

        return keys_of(self.naming, self.keys)

    def as_table(self) -> dict[str, Any]:
        """Return the table as the file has it, without unset values."""
        root = self.log_root
        return _without_empty(
            url=self.url,
            worker=self.worker,
            naming="" if self.naming == "text" else self.naming,
            keys=dict(self.keys),
            contexts={context.name: _context_table(context) for context in self.contexts},
            log_root=root.path if root else "",
            log_max=root.bytes_max if root else None,
            log_keep=root.keep if root else None,
        )


def _context_table(context: Context) -> dict[str, Any]:
    env = {} if context.env is None else {"env": context.env}  # None is not the same as ().
    return env | _without_empty(
        command=context.command,
        sandbox=context.sandbox,
        validator=context.validator,
        cpu_seconds=context.limits.cpu_seconds,
        memory=context.limits.memory_bytes,
        file_size=context.limits.file_bytes,
        script_max=context.script_bytes_max,
    )


def _without_empty(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in (None, "", (), {})}


Reader = Callable[[Any], Any]


def read_hero(value: Any) -> HeroTable:
    """Return the whole table; raise ``ValueError`` whose text says what is allowed."""
    if isinstance(value, HeroTable):
        return value
    if not isinstance(value, dict):
        raise ValueError("a table: [hero]")
    from beads_workers.options import read_bytes, read_nonempty

    readers: dict[str, Reader] = {
        "url": _url,
        "worker": _worker,
        "naming": read_nonempty,
        "keys": _keys,
        "contexts": _contexts,
        "log_root": _folder,
        "log_max": read_bytes(1 << 10),
        "log_keep": _whole_number(0, ROTATED_MAX),
    }
    fields = _read(value, readers, "hero")
    sizes = {"bytes_max": fields.pop("log_max", None), "keep": fields.pop("log_keep", None)}
    root = fields.pop("log_root", None)
    if root is not None:
        given = {name: size for name, size in sizes.items() if size is not None}
        fields["log_root"] = LogRoot(root, **given)
    elif any(size is not None for size in sizes.values()):
        raise ValueError("a table with a log_root, where it has log_max or log_keep")
    table = HeroTable(**fields)
    table.made_keys()
    return table


def _contexts(value: Any) -> tuple[Context, ...]:
    if not isinstance(value, dict):
        raise ValueError("tables: [hero.contexts.NAME]")
    return tuple(_context(name, table) for name, table in value.items())


def _context(name: str, table: Any) -> Context:
    from beads_workers.options import read_bytes, read_command

    where = f"hero.contexts.{name[:60]}"
    if not isinstance(table, dict):
        raise _InnerTable(f"a table: [{where}]")
    readers: dict[str, Reader] = {
        "command": read_command,
        "sandbox": read_command,
        "validator": read_command,
        "cpu_seconds": _whole_number(1, CPU_SECONDS_MAX),
        "memory": read_bytes(1 << 20),
        "file_size": read_bytes(1 << 10),
        "script_max": read_bytes(1 << 10),
        "env": _names,
    }
    fields = _read(table, readers, where)
    if "command" not in fields:
        raise _InnerTable(f'a table with a command: [{where}] needs command = ["PROGRAM"]')
    return Context(
        name,
        fields["command"],
        fields.get("sandbox", ()),
        fields.get("validator", ()),
        ResourceLimits(fields.get("cpu_seconds"), fields.get("memory"), fields.get("file_size")),
        fields.get("script_max", SCRIPT_BYTES_MAX),
        fields.get("env"),
    )


class _InnerTable(ValueError):
    """An error whose text names the wrong table by itself."""


def _read(table: dict[str, Any], readers: Mapping[str, Reader], where: str) -> dict[str, Any]:
    fields = {}
    for key, value in table.items():
        if key not in readers:
            known = ", ".join(readers)
            raise ValueError(
                f"a table without {key[:60]!r} in [{where}]; known keys there: {known}"
            )
        try:
            fields[key] = readers[key](value)
        except _InnerTable:
            raise  # The error names its table.
        except ValueError as error:
            raise _InnerTable(f"a table whose {where}.{key} is {error}") from None
    return fields


def _url(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a URL: redis://HOST/DB")
    from beads_workers.integrations.hero.connection import read_url

    read_url(value)
    return value


def _worker(value: Any) -> str:
    from beads_workers.integrations.hero.wire import is_id

    if not isinstance(value, str) or not is_id(value):
        raise ValueError("the id of a worker, whose queue it is")
    return value


def _keys(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ValueError('templates: { reply = "hero:q:reply:{id}" }')
    return dict(value)


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(
        isinstance(name, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*\*?|\*", name, re.ASCII)
        for name in value
    ):
        raise ValueError('names of variables: ["STAGE", "APP_*"]')
    return tuple(value)


def _folder(value: Any) -> str:
    path = Path(value).expanduser() if isinstance(value, str) else Path()
    if not path.is_absolute() or "\0" in str(path):
        raise ValueError('a whole path: "/var/log/hero"')
    return str(path)


def _whole_number(low: int, high: int) -> Reader:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return value

    return read
