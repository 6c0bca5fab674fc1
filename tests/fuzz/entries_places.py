"""Where a Redis is, what ``[hero]`` says, and where the logs of jobs go."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

from beads_workers.core.base.redaction import UnsafePath, parts_below
from beads_workers.integrations.hero.connection import RedisAddress, read_url
from beads_workers.integrations.hero.options import HeroTable, read_hero
from tests.fuzz.inputs import objects, texts
from tests.fuzz.parser import Parser, require, well_typed

ROOT = "/var/log/hero"
PATHS = (
    "a", "a/b.log", "../a", "/", "..", ".", "./a", "a/../../b", "//", "a//b", "/var/log/hero/a",
    "/var/log/heroes/a", "/var/log/hero/../x", "\n", "\0", "\u2028", "é", "x" * 300, "/etc/passwd",
)  # fmt: skip

SECRET = "hunter2"
URLS = (
    "redis://", "rediss://", "redis+unix://", "http://", "ann@", f"ann:{SECRET}@", f":{SECRET}@",
    "host", "[::1]", "[", ":6379", ":99999", "/0", "/x", "?db=1", "&worker=w", "?password_file=/p",
    "/run/redis.sock", "%40", "%", "#", "\\", " ", "é",
)  # fmt: skip

TABLE: dict[str, Any] = {
    "url": "redis://h/0", "worker": "w1", "naming": "later", "keys": {"reply": "r:{id}"},
    "log_root": ROOT, "log_max": "1MB", "log_keep": 2,
    "contexts": {
        "sh": {
            "command": ["sh"], "sandbox": ["bwrap"], "validator": ["./check"], "cpu_seconds": 5,
            "memory": "1GB", "file_size": 1000000, "script_max": "64KB",
        },
    },
}  # fmt: skip


def paths_hold(read: Any, data: bytes) -> None:
    path = data.decode("utf-8", "surrogateescape")
    try:
        parts = read(ROOT, path)
    except UnsafePath:
        return
    require(parts, "no name at all")
    for part in parts:
        require(part not in ("", ".", "..") and "/" not in part, f"leads elsewhere: {part!r}")
        require(part.isprintable(), "a name that a terminal obeys")
        require(len(part.encode("utf-8", "replace")) < 255, "no room for a number behind it")
    whole = path if path.startswith("/") else f"{ROOT}/{path}"
    require(whole.startswith(f"{ROOT}/"), "it is not below the root")


def urls_hold(read: Any, data: bytes) -> None:
    url = data.decode("utf-8", "replace")
    try:
        place = read(url)
    except ValueError as error:
        require(SECRET not in str(error), "it repeats a password")
        return
    require(isinstance(place, RedisAddress), "something else")
    well_typed(place.address)
    require(urlsplit(url).password is None, "a password in a URL")
    require(read(place.address.url()).address == place.address, "it is another one when read again")


def tables_hold(read: Any, data: bytes) -> None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    try:
        table = read(value)
    except ValueError:
        return
    require(isinstance(table, HeroTable), "something else")
    well_typed(table)
    for context in table.contexts:
        well_typed(context)
        require(context.command and "\0" not in "".join(context.command), "nothing to run")
    table.made_keys()
    require(read(table.as_table()) == table, "it says another thing when it is read again")


def _hopeful(root: str, path: str) -> tuple[str, ...]:
    """Planted bug: believes that a path which begins with the root stays below it."""
    whole = path if path.startswith("/") else f"{root}/{path}"
    if not whole.startswith(f"{root}/"):
        raise UnsafePath("elsewhere")
    return tuple(part for part in whole.removeprefix(root).split("/") if part) or ("x",)


def _talkative(url: str) -> RedisAddress:
    """Planted bug: repeats what it was given."""
    try:
        return read_url(url)
    except ValueError as error:
        raise ValueError(f"{error}: {urlsplit('').netloc}{url}") from None


def _hasty(value: Any) -> HeroTable:
    """Planted bug: forgets to look at the templates of keys."""
    if isinstance(value, dict) and isinstance(value.get("keys"), dict):
        return HeroTable(keys=value["keys"])
    return read_hero(value)


PARSERS = [
    Parser("log paths", ("core/base/redaction.py",), parts_below,
           texts([path.encode() for path in PATHS], 3), paths_hold,
           {"only the beginning": _hopeful}),
    Parser("redis urls", ("integrations/hero/connection.py",), read_url,
           texts([piece.encode() for piece in URLS], 5), urls_hold,
           {"repeats a secret": _talkative}),
    Parser("hero tables", ("integrations/hero/options.py",), read_hero, objects([TABLE]),
           tables_hold, {"any template": _hasty}),
]  # fmt: skip
