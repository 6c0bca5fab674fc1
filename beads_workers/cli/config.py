"""``beads-workers.toml``: found walking up, checked key by key, and shown with its origin.

Precedence, key by key: command line, environment, file, default. ``status`` and similar commands do
not import this module: their start-up time matters.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from beads_workers import registry
from beads_workers.checks.risky import Risky, SettingsFile
from beads_workers.checks.trust import trusted_lines
from beads_workers.core.base.text import printable
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_USAGE
from beads_workers.options import (
    FILE_NAME,
    KEYS,
    TABLES,
    TRUST_ALL,
    AgentTable,
    Reader,
    Resolved,
    Typed,
    as_toml,
    options_of,
    read_command,
    read_nonempty,
    value_of,
)

FILE_BYTES_MAX = 1 << 20
"""Largest settings file."""
PLACES_TRIED_MAX = 20
"""Number of places that are tried for a new key; then it goes to the top of the file."""


def find_file(folder: Path) -> Path | None:
    """Return the nearest ``beads-workers.toml`` in the folder or above it.

    Raise ``CommandError`` for a file of another user: a settings file decides what is run.
    """
    folder = folder.absolute()
    for above in (folder, *folder.parents):
        path = above / FILE_NAME
        if path.is_file():
            if path.stat().st_uid not in _trusted(folder):
                raise CommandError(
                    f"{path} belongs to another user, so what it says is not run",
                    f"remove it, or put a {FILE_NAME} of your own into {folder}",
                    EXIT_USAGE,
                )
            return path
    return None


def _trusted(folder: Path) -> set[int]:
    import os

    # Also the owner of the folder: in a container, the user is often not the one who checked out.
    return {0, os.geteuid(), folder.stat().st_uid}


def read_file(path: Path) -> tuple[dict[str, Any], dict[str, AgentTable]]:
    """Return the checked values of one file, and its agents; raise ``CommandError``."""
    return read_text(path, content_of(path))


def content_of(path: Path) -> bytes:
    """Return what a file of settings holds; raise ``CommandError``."""
    try:
        with path.open("rb") as stream:
            content = stream.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise ValueError("too large for a file of settings")
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    return content


def _unreadable(path: Path, error: Exception) -> CommandError:
    if isinstance(error, PermissionError):
        hint = f"chmod u+r {shlex.quote(str(path))}, or run it as who owns the file"
        return CommandError(f"{path} may not be read", hint, EXIT_USAGE)
    text = "it is no UTF-8 text" if isinstance(error, UnicodeDecodeError) else error
    return CommandError(f"{path}: {text}", "save it as a text file in UTF-8", EXIT_USAGE)


def read_text(path: Path, content: bytes) -> tuple[dict[str, Any], dict[str, AgentTable]]:
    """Do the same as ``read_file`` for this content; ``path``: for messages only."""
    table = table_of(path, content)
    agents = _agents(path, table.pop("agents", {}))
    return {key: _checked(path, key, value) for key, value in _flat(path, table)}, agents


def table_of(path: Path, content: bytes) -> dict[str, Any]:
    """Return the table of a file with this content; raise ``CommandError`` with its place, if it is
    no TOML."""
    import tomllib

    try:
        text = content.decode("utf-8-sig")
    except ValueError as error:
        raise _unreadable(path, error) from None
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        from beads_workers.cli.settings_slips import of_text  # Few files have a mistake.

        wrong = error if isinstance(error, ValueError) else ValueError("nested too deeply")
        message, hint = of_text(text, wrong)
        raise CommandError(f"{path}, {message}", hint, EXIT_USAGE) from None


def _flat(path: Path, table: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if key not in TABLES or not isinstance(value, dict):
            yield key, value
            continue
        for inner, setting in value.items():
            if inner not in TABLES[key]:
                message = f"{path}: unknown key {inner!r} in [{key}]"
                raise CommandError(message, _nearest(inner, TABLES[key]), EXIT_USAGE)
            yield TABLES[key][inner], setting


def _checked(path: Path, key: str, value: Any) -> Any:
    from beads_workers.cli import settings_slips

    no_table = key == "agent" and isinstance(value, dict)
    if key not in KEYS or not KEYS[key].in_file or no_table:
        message, hint = settings_slips.of_key(key, value)
        raise CommandError(f"{path}: {message}", hint, EXIT_USAGE)
    try:
        return KEYS[key].read(value)
    except ValueError as error:
        wrong = _wrong(f"{path}: {key}", value, error)
        if isinstance(value, str) and (line := settings_slips.right(key, value, KEYS[key])):
            wrong.hint += f"; write: {line}"
        raise wrong from None


def _wrong(what: str, value: object, allowed: ValueError) -> CommandError:
    try:
        words = value if isinstance(value, tuple) else (value,)
        shown = ", ".join(f"{v:g}" if isinstance(v, float) else repr(v) for v in words)
    except ValueError:
        shown = "a number of more than 4300 digits"  # hexadecimal, it can be read
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return CommandError(f"{what} cannot be {shown}", f"it must be {allowed}", EXIT_USAGE)


def _nearest(key: str, known: Iterable[str]) -> str:
    from beads_workers.cli.settings_slips import nearest

    return nearest(key, known)


def _agents(path: Path, tables: Any) -> dict[str, AgentTable]:
    if not isinstance(tables, dict) or not all(isinstance(t, dict) for t in tables.values()):
        hint = 'write [agents.NAME], and below it argv = ["program"]'
        raise CommandError(f"{path}: agents must be tables", hint, EXIT_USAGE)
    return {name: _agent(f"{path}: agents.{name}", table) for name, table in tables.items()}


def _agent(where: str, table: dict[str, Any]) -> AgentTable:
    readers: dict[str, Reader[Any]] = {
        "argv": read_command,
        "prompt": read_nonempty,
        "adapter": read_nonempty,
        "model": read_nonempty,
        "arguments": read_command,
        "prices": _prices,
        "at_once": _at_once,
        "escalate": read_nonempty,
    }
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in readers:
            raise CommandError(f"{where}: unknown key {key!r}", _nearest(key, readers), EXIT_USAGE)
        try:
            values[key] = readers[key](value)
        except ValueError as error:
            raise _wrong(f"{where}.{key}", value, error) from None
    if "argv" not in values and "adapter" not in values and find_spec(_adapter(where)) is None:
        raise CommandError(
            f"{where} has no argv", 'write argv = ["program", "argument"]', EXIT_USAGE
        )
    return AgentTable(**values)


def _adapter(where: str) -> str:
    name = where.rpartition(".")[2]
    return f"beads_workers.agents.adapters.{name if name.isidentifier() else 'none'}"


def _prices(value: Any) -> dict[str, tuple[float, ...]]:
    allowed = 'dollars for a million tokens by model: { "gpt-5*" = [1.25, 10, 0.125] }'
    if not isinstance(value, dict):
        raise ValueError(allowed)
    prices: dict[str, tuple[float, ...]] = {}
    for model, numbers in value.items():
        row = numbers if isinstance(numbers, list) else []
        if not 2 <= len(row) <= 3 or not all(type(n) in (int, float) and n >= 0 for n in row):
            raise ValueError(allowed)
        prices[model] = tuple(float(number) for number in row)
    return prices


def _at_once(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("a whole number from 1 on")
    return value


def resolve(cli: Typed, folder: Path, environ: Mapping[str, str]) -> Resolved:
    """Return the settings in force; raise ``CommandError`` with the mistake and what is allowed."""
    return combine(cli, folder, environ, find_file(folder))


def combine(cli: Typed, folder: Path, environ: Mapping[str, str], file: Path | None) -> Resolved:
    """Return the settings in force with this file, or with none.

    Untrusted lines of a file never become options, so no command can run them.
    """
    settings_file = SettingsFile(*read_file(file), file) if file else SettingsFile({}, {}, folder)
    trusted, untrusted = _believed(settings_file, cli, environ) if file else ((), ())
    in_file, agents = settings_file.without(untrusted)
    values: dict[str, Any] = {}
    origin = dict.fromkeys(KEYS, "default")
    layers = [
        (
            (key, value, str(file), file.parent if file else folder)
            for key, value in in_file.items()
        ),
        ((key, value, name, folder) for key, value, name in _from_environment(environ)),
        ((key, value, "command line", folder) for key, value in _from_command_line(cli)),
    ]
    for layer in layers:
        for key, value, said_by, base in layer:
            values[key] = (
                str(base.absolute() / Path(value).expanduser()) if KEYS[key].path else value
            )
            origin[key] = said_by
    lines = tuple(each.line for each in trusted), tuple(each.line for each in untrusted)
    return Resolved(options_of(values), origin, agents, file, *lines)


def _believed(
    settings_file: SettingsFile, cli: Typed, environ: Mapping[str, str]
) -> tuple[tuple[Risky, ...], tuple[Risky, ...]]:
    """Return the risky lines of the file: the trusted ones, and the others."""
    found = settings_file.risky()
    in_environment = {key: value for key, value, _ in _from_environment(environ)}
    if (cli.get("trust") or in_environment.get("trust")) == TRUST_ALL:
        return found, ()
    good = trusted_lines([each.line for each in found], settings_file.file)
    return tuple(e for e in found if e.line in good), tuple(e for e in found if e.line not in good)


def need_source(resolved: Resolved) -> None:
    """Raise ``CommandError`` if the key that selects the source is not trusted.

    Otherwise the command would silently use another tracker.
    """
    for line in resolved.untrusted:
        if line.text.partition(" ")[0] in ("source", *registry.TABLES):
            raise CommandError(
                f"not trusted, so nothing is asked there: {printable(line.text, 200)}",
                "read beads-workers.toml; then: beads-workers trust",
                EXIT_USAGE,
            )


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, Any, str]]:
    for key, option in KEYS.items():
        if option.variable and (text := environ.get(option.variable)):
            try:
                yield key, option.read(option.kind.from_text(text)), option.variable
            except ValueError as error:
                raise _wrong(option.variable, text, error) from None


def _from_command_line(cli: Typed) -> Iterator[tuple[str, Any]]:
    for key, value in cli.items():
        try:
            yield key, KEYS[key].read(value)
        except ValueError as error:
            raise _wrong(f"--{key.replace('_', '-')}", value, error) from None


def typed_options(resolved: Resolved) -> dict[str, Any]:
    """Return the options of the command line, fit for JSON; ``parameters.given`` reads them."""
    names = (name for name, origin in resolved.origin.items() if origin == "command line")
    # A trusted file may have changed before the next start.
    names = (name for name in names if name != "trust")
    return {name: value_of(resolved.options, name) for name in names if name not in registry.TABLES}


def render(resolved: Resolved, *, origin: bool) -> Iterator[str]:
    """Yield the settings as lines of a ``beads-workers.toml``; unset ones are left out."""
    for key in KEYS:
        value = value_of(resolved.options, key)
        if value is None or value == () or not KEYS[key].in_file:
            continue
        line = f"{key} = {as_toml(value)}"
        yield f"{line:<44} # {resolved.origin[key]}" if origin else line
    for name, agent in resolved.agents.items():
        yield ""
        yield f"[agents.{as_toml(name)}]"
        for key in AgentTable.__slots__:
            if value := getattr(agent, key):
                yield f"{key} = {as_toml(value)}"
    for each in resolved.untrusted:
        yield f"# not trusted, so left out: {each.text}"


def set_key(path: Path, key: str, value: Any) -> str | None:
    """Add a setting to a settings file after the existing ones, or make the file.

    ``key``: one of ``KEYS``; that of a table goes into its table. Return None, or the existing
    value, which stays as it is. All else is kept. Raise ``CommandError``.
    """
    try:
        old = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise _unreadable(path, error) from None
    before = read_text(path, old)
    if (there := before[0].get(key)) is not None:
        return str(there)
    wanted = ({**before[0], key: value}, before[1])
    table, name = next(
        (
            (f"[{table}]", name)
            for table in TABLES
            for name, of in TABLES[table].items()
            if of == key
        ),
        ("", key),
    )
    line = f"{name} = {as_toml(value)}"
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        table = f"{table[:-1]}.{name}]"
        line = "\n".join(f"{each} = {as_toml(text)}" for each, text in value)
    for text in _with_line(old.decode("utf-8-sig"), line, table):
        new = text.encode("utf-8")
        try:
            found = read_text(path, new)
        except CommandError:
            continue  # This place was inside a multi-line text.
        if found == wanted:
            _replace_file(path, new)
            return None
    raise AssertionError("a key at the top of a file is in no table")


def _with_line(text: str, line: str, table: str) -> Iterator[str]:
    """Yield the text with the line at each possible place: in its table, or else before a table,
    at the end, at the top."""
    rows = text.splitlines(keepends=True)
    end = "\r\n" if rows and rows[0].endswith("\r\n") else "\n"
    tables = [number for number, row in enumerate(rows) if row.lstrip().startswith("[")]
    if table:
        for at in (number + 1 for number in tables if rows[number].strip().startswith(table)):
            yield "".join([*rows[:at], line + end, *rows[at:]])
        apart = "" if not text else end if text.endswith("\n") else end + end
        yield f"{text}{apart}{table}{end}{line}{end}"
        return
    for at in tables[:PLACES_TRIED_MAX]:
        # Comments directly above a table belong to it.
        while at and rows[at - 1].lstrip().startswith("#"):
            at -= 1
        yield "".join([*rows[:at], line + end, end, *rows[at:]])
    if not tables:
        yield text + ("" if not text or text.endswith("\n") else end) + line + end
    yield line + end + text


def _replace_file(path: Path, content: bytes) -> None:
    real = path.resolve()
    fresh = real.with_name(f".{real.name}.new")
    try:
        fresh.write_bytes(content)
        if real.exists():
            fresh.chmod(real.stat().st_mode & 0o777)
        fresh.replace(real)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise CommandError(f"{path} cannot be written: {error.strerror}") from None


def to_json(resolved: Resolved) -> dict[str, Any]:
    """Return ``config show --json``: options, origins, agents and the file's path."""
    from dataclasses import asdict

    options = {k: value_of(resolved.options, k) for k, each in KEYS.items() if each.in_file}
    # Of these, only the tables of kinds of sources are dataclasses.
    tables = {key: asdict(value) for key, value in resolved.options.tables.items()}
    return {
        "file": str(resolved.file) if resolved.file else None,
        "options": options | tables,
        "origin": dict(resolved.origin),
        "agents": {name: asdict(agent) for name, agent in resolved.agents.items()},
        "untrusted": [each.text for each in resolved.untrusted],
    }
