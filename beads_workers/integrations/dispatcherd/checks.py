"""``doctor`` checks for a dispatcherd source: its brokers."""

from __future__ import annotations

import os
import shlex
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

from beads_workers.checks.conditions.settings import edit
from beads_workers.checks.leftovers import trouble_in
from beads_workers.checks.rules import Check, fail, ok, warn
from beads_workers.cli.refusals import sentence
from beads_workers.core.base.text import printable
from beads_workers.errors import CommandError
from beads_workers.integrations.dispatcherd.configuration import Brokers, Postgres
from beads_workers.runtime import sessions
from beads_workers.runtime.kernel import system

if TYPE_CHECKING:
    from psycopg import Connection

    from beads_workers.kinds import DoctorInput
    from beads_workers.options import Resolved


# --- brokers -------------------------------------------------------------------------------------
# Checks of dispatcherd brokers before a fleet listens on them. No message is taken.
#
# Messages published meanwhile reach their listeners: a notification goes to each listener.


NAME = "broker"
CONNECT_SECONDS = 5
"""Longest wait for a connection: half of a fleet's, since a person waits for this check."""
ECHO_SECONDS = 2.0
SLOW_SECONDS = 0.05
"""Slowest good notification: a slower one, which no other process takes, has a reason."""


def brokers(found: Brokers, root: Path, fix: str) -> list[Check]:
    """Return the checks of all brokers.

    ``root``: the run directory. ``fix`` opens the file that names the brokers; empty if they were
    typed.
    """
    checks = [unix_socket(Path(path), root, fix) for path in found.sockets]
    for settings in found.postgres:
        checks += postgres(settings, fix)
    return checks


def unix_socket(path: Path, root: Path, fix: str) -> Check:
    """Check that a fleet could listen on this path, or does."""
    folder = next(each for each in path.parents if each.exists())
    quoted = shlex.quote(str(path))
    if not folder.is_dir():
        return fail(NAME, f"{path}: {folder} is no folder", fix)
    if (why := trouble_in(folder)) is not None:
        text = f"{path}: no socket can be made in {folder} ({why.strerror})"
        return fail(NAME, printable(text), fix)
    if not os.path.lexists(path):
        return ok(NAME, printable(f"{path} is free; publishers of this user are let in"))
    if not path.is_socket():
        return fail(NAME, printable(f"{path} is there, and is no socket"), f"ls -l {quoted}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            if path.lstat().st_uid != os.getuid():
                owner = f"sudo rm {shlex.quote(str(path))}"
                return fail(NAME, printable(f"{path} is a dead socket of another user"), owner)
            return ok(NAME, printable(f"{path} is free; a dead socket there is removed"))
        except OSError as error:
            return fail(NAME, printable(f"{path}: {error.strerror}"), f"ls -l {quoted}")
        pid, _ = system.peer_of(probe)
    return _taken(path, pid, root)


def _taken(path: Path, pid: int, root: Path) -> Check:
    from beads_workers.runtime.run_directory import RunDirectory

    info = RunDirectory(root).read_info()
    if info is not None and info.pid == pid:
        return ok(NAME, printable(f"{path} is served by the fleet that runs here (pid {pid})"))
    who = "another fleet" if sessions.is_orchestrator(pid) else "somebody"
    text = f"{path}: {who} listens there already (pid {pid}), and a start would be refused"
    return fail(NAME, printable(text), f"ps -o pid,user,args -p {pid}")


def postgres(settings: Postgres, fix: str) -> list[Check]:
    """Check that PostgreSQL lets us in, takes the channels, and delivers notifications."""
    import psycopg

    from beads_workers.integrations.dispatcherd.postgres import connect

    name = f"PostgreSQL ({', '.join(settings.channels)})"
    # Typed as a URL, which holds no password: the fix is the same connection by hand.
    fix = fix or f"psql {shlex.quote(str(settings.config.get('conninfo', '')))} -c 'SELECT 1'"
    try:
        connection = connect(settings, CONNECT_SECONDS)
    except psycopg.Error as error:
        return [fail(NAME, printable(f"{name}: {' '.join(str(error).split())}", 400), fix)]
    try:
        return [_echo(connection, name, fix)]
    except psycopg.Error as error:
        return [fail(NAME, printable(f"{name}: {' '.join(str(error).split())}", 400), fix)]
    finally:
        connection.close()


def _echo(connection: Connection, name: str, fix: str) -> Check:
    """Check that a notification comes back, on a channel that only this check uses."""
    from psycopg import sql

    channel = f"beads_workers_doctor_{os.getpid()}_{time.monotonic_ns()}"
    connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
    began = time.monotonic()
    connection.execute("SELECT pg_notify(%s, '')", (channel,))
    took = None
    for notification in connection.notifies(timeout=ECHO_SECONDS):
        # Notifications on other channels may be tasks of the fleet: they are ignored.
        if notification.channel == channel:
            took = time.monotonic() - began
            break
    info = connection.info
    where = f"{info.host}:{info.port}/{info.dbname} as {info.user}"
    if took is None:
        text = f"{name} at {where} brings no notifications: is it a pooler of transactions?"
        return fail(NAME, printable(text), fix)
    version = ".".join(map(str, divmod(info.server_version, 10_000)))
    text = f"{name} at {where}, version {version}, brings a notification in {took * 1000:.1f} ms"
    return (warn if took > SLOW_SECONDS else ok)(NAME, printable(text))


# --- doctor dispatcherd --------------------------------------------------------------------------
# ``doctor`` checks for a dispatcherd source: its brokers.


def look_at_brokers(doctor_input: DoctorInput) -> list[Check]:
    """Check the configuration, and each broker that it names."""
    from beads_workers.integrations.dispatcherd import CONFIG
    from beads_workers.integrations.dispatcherd.fleet_settings import EXTRA, IGNORED, find_brokers

    source = str(doctor_input.resolved.options.source)
    file = Path(source.removeprefix(CONFIG)).expanduser() if source.startswith(CONFIG) else None
    fix = edit(file) if file else ""
    try:
        found, _, unused = find_brokers(source)
    except CommandError as error:
        if error.hint == EXTRA:
            return [fail(NAME, error.message, EXTRA)]
        return [fail(NAME, sentence(error), fix)]
    text = printable(f"ignored: {', '.join(unused)}: {IGNORED}")
    return [
        *brokers(found, doctor_input.state, fix),
        *([warn("config", text, fix)] if unused else []),
    ]


def workers_of(resolved: Resolved) -> int:
    """Return the number of workers; the configuration's if no option sets it."""
    from beads_workers.integrations.dispatcherd.fleet_settings import find_brokers

    workers = resolved.options.workers or 0
    if resolved.origin["workers"] != "default":
        return workers
    try:
        return find_brokers(str(resolved.options.source))[1] or workers
    except CommandError:
        return workers  # ``look_at_brokers`` reports the error.
