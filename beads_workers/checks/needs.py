"""What a new worktree of a project needs beside git's files: a proposal for ``[worktree]``.

It is recognised from the project's files, and from the variables that its code reads; nothing is
run. Source: docs/WORLDS.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from beads_workers.checks.verify import propose, text_of
from beads_workers.core.base.worlds import SLOT, read_variables
from beads_workers.worktrees.git import call, failure, git_or_none, names

SETUPS = {"uv.lock": "uv sync", "poetry.lock": "poetry install", "Gemfile.lock": "bundle install"}
"""Set-up by a lock file, if the check needs none."""
COPIED = (
    *(".env", ".env.*", "config/*.key", "config/*.local*", "local.properties"),
    *(".claude/settings.local.json", ".mcp.json", "local_settings.py", "*/local_settings.py"),
)
"""Files that people keep beside git, and that the code or an agent needs."""
DOTENV = (".env.example", ".env.sample", ".env.template", ".env.test", ".env.development", ".env")
"""Files with variables; the last one that has a name counts."""
COMPOSE = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
CONFIGS = ("*.config.js", "*.config.ts", "*.config.mjs", "package.json", "Procfile*")
MIGRATIONS = {
    "prisma/schema.prisma": "npx prisma migrate deploy",
    "db/schema.rb": "bin/rails db:schema:load",
}
"""Commands that fill a new database, by the file that shows them."""
DOCKER = Path("/var/run/docker.sock")

_READ = (
    r"(process\.env\.|environ\[[\"']|env(iron)?\.get\([\"']|[gG]et_?[eE]nv\([\"']|LookupEnv\(\""
    r"|ENV\[[\"']|ENV\.fetch\([\"']|env(::var)?\([\"']|\$\{)[A-Z][A-Z0-9_]*"
)
"""How code of many languages, and compose files, name a variable that they read."""
_VALUE = re.compile(r"^(?:export )?([A-Z][A-Z0-9_]*)=[\"']?([^\"'\n#]*)", re.MULTILINE)
_OF_SERVER = re.compile(r"(DB|DATABASE|PG|POSTGRES|MYSQL|REDIS|MONGO|SMTP|MAIL|RABBIT|KAFKA|PROXY)")
"""Ports of servers that are there already, unless a compose file publishes them."""
_PUBLISHED = re.compile(r"^\s*-\s*[\"']?(?:\d+\.\d+\.\d+\.\d+:)?(\d+):\d+", re.MULTILINE)
_FIXED = re.compile(r"(?:\bport[\"']?\s*[:=]\s*|(?:--port|-p)[ =])(\d{4,5})\b")
_URL = re.compile(r"(postgres|mysql|mongodb|redis)\S*?://([^@/\s]*@)?([^/\s]*)/(\w*)(.*)")


@dataclass(slots=True)
class Needs:
    """A proposal."""

    # By their keys in ``[worktree]``.
    settings: dict[str, Any] = field(default_factory=dict)
    # Of ``[worktree.env]``.
    env: dict[str, str] = field(default_factory=dict)
    # Where each of both was recognised.
    why: dict[str, str] = field(default_factory=dict)
    # What no setting changes.
    notes: list[str] = field(default_factory=list)

    def add(self, key: str, setting: Any, why: str) -> None:
        """Propose a setting, or what follows on its line."""
        if isinstance(before := self.settings.get(key), str):
            setting = f"{before}{' && ' if key == 'world' else '; '}{setting}"
        self.settings[key] = setting
        self.why.setdefault(key, why)

    def set(self, name: str, text: str, why: str) -> None:
        """Propose a variable, if a project may set it."""
        try:
            read_variables({name: text})
        except ValueError:
            return
        self.env[name], self.why[name] = text, why

    def all(self) -> dict[str, Any]:
        """Return the settings as they are in force, by their keys in ``[worktree]``."""
        return {**({"env": tuple(self.env.items())} if self.env else {}), **self.settings}


def find_needs(folder: Path) -> Needs:
    """Return what worktrees of this project need; raises ``GitError``."""
    found, check = Needs(), propose(folder)
    locks = ((line, lock) for lock, line in SETUPS.items() if (folder / lock).is_file())
    line, why = (check.setup, check.why) if check and check.setup else next(locks, ("", ""))
    if line:
        found.add("setup", line, why)
    if ignored := _ignored(folder):
        found.add("copy", tuple(sorted(ignored)), "git ignores them")
    compose = next((name for name in COMPOSE if (folder / name).is_file()), "")
    published = compose and (text_of(folder / compose) or "")
    texts = [(name, text_of(folder / name) or "") for name in DOTENV]
    values = {
        row[1]: (row[2].strip(), file) for file, text in texts for row in _VALUE.finditer(text)
    }
    variables = dict.fromkeys(_read(folder), "the code reads it")
    _ports(found, variables | {name: file for name, (_, file) in values.items()}, published)
    for name, (text, file) in values.items():
        if (url := _URL.match(text)) is None:
            continue
        if file in ignored and ":" in (url[2] or ""):
            secret = f"{name} in {file} has a password, so it is not copied to the settings"
            found.notes.append(f"{secret}: each worktree needs a database of its own")
        else:
            _address(folder, found, name, url, file)
    if compose:
        _compose(folder, found, compose, published)
    for path in sorted({path for each in CONFIGS for path in folder.glob(each)}):
        for port in dict.fromkeys(_FIXED.findall(text_of(path) or "")):
            found.notes.append(f"{path.name} names port {port}, which every worktree would bind")
    return found


def _ports(found: Needs, variables: Mapping[str, str], published: str) -> None:
    ports = [name for name in variables if name == "PORT" or name.endswith("_PORT")]
    ours = [n for n in ports if not _OF_SERVER.match(n) or f"${{{n}" in published]
    for number, name in enumerate(sorted(ours, key=lambda name: (name != "PORT", name))):
        found.set(name, f"{{port+{number}}}" if number else "{port}", variables[name])


def _address(folder: Path, found: Needs, name: str, url: re.Match[str], file: str) -> None:
    """Propose a database of its own for the address in a variable."""
    kind, who, host, base, rest = (each or "" for each in url.groups())
    before = url[0][: url.start(4)]
    if kind == "redis":
        found.set(name, f"{before}{{slot}}", file)
        found.add("slots", (0, 15), "the databases of a Redis")
        found.add("teardown", f'redis-cli -u "${name}" flushdb', file)
    elif base:
        found.set(name, f"{before}{base}_{{slot}}{rest}", file)
    if kind == "postgres" and base:
        server = f"--maintenance-db=postgres://{who}{host}/postgres " if host else ""
        found.add("world", f"createdb {server}{base}_${SLOT}", file)
        found.add("teardown", f"dropdb --if-exists --force {server}{base}_${SLOT}", file)
        for sign, line in MIGRATIONS.items():
            if (folder / sign).is_file():
                found.add("world", line, sign)


def _compose(folder: Path, found: Needs, file: str, text: str) -> None:
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-") or "project"
    found.set("COMPOSE_PROJECT_NAME", f"{name}_{{slot}}", file)
    for port in dict.fromkeys(_PUBLISHED.findall(text)):
        found.notes.append(f"{file} publishes port {port}: write ${{APP_PORT:-{port}}} there")
    if "container_name:" in text:
        found.notes.append(f"{file}: a container_name is there once; leave it out")
    if DOCKER.exists():
        found.add("world", "docker compose up --detach --wait", file)
        found.add("teardown", "docker compose down --volumes --timeout 10", file)


# --- files ---------------------------------------------------------------------------------------


def _ignored(folder: Path) -> set[str]:
    """Return those of ``COPIED`` that git ignores."""
    there = {str(path.relative_to(folder)) for each in COPIED for path in folder.glob(each)}
    stdin = "".join(f"{name}\0" for name in there)
    asked = ("check-ignore", "-z", "--stdin")
    if (done := call(str(folder), *asked, stdin=stdin)).status > 1:
        raise failure(asked, done)
    return {*names(done.output)}


def _read(folder: Path) -> set[str]:
    """Return the variables that tracked files read."""
    asked = ("grep", "-hoIE", "--no-color", "-e", _READ, "--", ".", ":!*.md", ":!*.lock")
    rows = (git_or_none(str(folder), *asked) or "").splitlines()
    return {found[0] for row in rows if (found := re.search(r"[A-Z][A-Z0-9_]*$", row))}
