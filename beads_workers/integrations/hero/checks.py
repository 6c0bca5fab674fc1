"""``doctor`` checks for a Redis source: the Redis, contexts, and logs of jobs."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beads_workers.checks.rules import Check, fail, ok, warn
from beads_workers.cli.refusals import sentence
from beads_workers.core.base.model import value
from beads_workers.core.base.text import counted, printable
from beads_workers.errors import CommandError
from beads_workers.integrations.hero import connection
from beads_workers.integrations.hero.store import text_of
from beads_workers.integrations.hero.wire import WAITS, Keys, WrongField, read_ids

if TYPE_CHECKING:
    from beads_workers.core.base.scripts import Context
    from beads_workers.kinds import DoctorInput


# --- redis checks --------------------------------------------------------------------------------
# Rules for a Redis that holds queues, applied to what it says of itself.


VERSION_MIN = (6, 2)
"""First version that moves a job between lists in one step (LMOVE)."""

NAME = "redis"


def version(text: str) -> Check:
    """Check that the version is recent enough."""
    numbers = tuple(int(part) for part in text.split(".")[:2] if part.isascii() and part.isdigit())
    needed = ".".join(map(str, VERSION_MIN))
    if len(numbers) < len(VERSION_MIN):
        return warn(NAME, f"it calls its version {text[:40]!r}; {needed} or later is needed")
    if numbers < VERSION_MIN:
        return fail(NAME, f"version {text[:40]} is too old: {needed} or later is needed")
    return ok(NAME, f"version {text[:40]}")


def eviction(info: Mapping[str, Any], cli: str) -> Check:
    """Check that jobs are not evicted when memory is full. ``cli``: the redis-cli command."""
    policy, most = str(info.get("maxmemory_policy", "")), info.get("maxmemory")
    if not policy:
        return warn(NAME, "it does not say what it does when its memory is full")
    if policy == "noeviction":
        return ok(NAME, "it throws nothing away: maxmemory-policy is noeviction")
    remedy = f"{cli} CONFIG SET maxmemory-policy noeviction && {cli} CONFIG REWRITE"
    if most == 0:
        # Without a limit nothing is evicted yet; one day somebody sets a limit.
        text = f"maxmemory-policy is {policy}: with a maxmemory, jobs would be thrown away"
        return warn(NAME, text, remedy)
    return fail(NAME, f"maxmemory-policy is {policy}: jobs are thrown away when it is full", remedy)


def persistence(info: Mapping[str, Any], cli: str) -> Check:
    """Check that jobs survive a restart of the Redis."""
    if "aof_enabled" not in info:
        return warn(NAME, "it does not say whether it keeps anything on disk")
    if info["aof_enabled"] == 1:
        if str(info.get("aof_last_write_status", "ok")) != "ok":
            remedy = f"{cli} INFO persistence"
            return fail(NAME, "its append-only file cannot be written", remedy)
        return ok(NAME, "jobs survive its restart: appendonly is on")
    remedy = f"{cli} CONFIG SET appendonly yes && {cli} CONFIG REWRITE"
    text = "appendonly is off: jobs of the last minutes are lost when it ends"
    return warn(NAME, text, remedy)


def role(info: Mapping[str, Any]) -> Check | None:
    """Check that the Redis is no replica; None if it is not."""
    if str(info.get("role", "master")) == "master":
        return None
    host, port = info.get("master_host"), info.get("master_port")
    return fail(NAME, f"it is a replica, which cannot be written; {host}:{port} is what it follows")


# --- redis ---------------------------------------------------------------------------------------
# Checks of a Redis that holds queues: reachable, recent enough, safe for jobs. Only reads.


SLOW_SECONDS = 0.05
"""Slowest good answer: a slower Redis makes every job wait several times as long."""


def redis(address: connection.Address, keys: Keys, worker: str) -> list[Check]:
    """Return the checks of the Redis and of this worker's queue in it."""
    try:
        client = connection.connect(address)
        try:
            return _look(client, address, keys, worker)
        finally:
            client.close()
    except connection.RedisMissing as error:
        return [fail(NAME, str(error), error.hint)]
    except connection.CannotReach as error:
        hint = f"; {error.hint}" if error.hint else ""
        return [fail(NAME, f"{printable(str(error))}{hint}", f"{cli_of(address)} PING")]


def cli_of(address: connection.Address) -> str:
    """Return the redis-cli command for this Redis, without its password."""
    if address.path:
        words = ["redis-cli", "-s", address.path]
    else:
        words = ["redis-cli", "-h", address.host, "-p", str(address.port)]
    words += ["--tls"] if address.tls else []
    words += ["--cacert", address.ca] if address.ca else []
    words += ["--user", address.user] if address.user else []
    words += ["-n", str(address.db)] if address.db else []
    return shlex.join(words)


def _timed(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def _look(client: Any, address: connection.Address, keys: Keys, worker: str) -> list[Check]:
    work = keys.work_key(worker)
    if (kind := connection.patiently(lambda: _kind(client, work), address, 0.0)) not in (
        "list",
        "none",
    ):
        no_list = Damage(work, kind, "a list")
        return [fail(NAME, no_list.text, no_list.remedy(address))]
    queued = connection.patiently(lambda: client.llen(work), address, 0.0)  # This also connects.
    took = min(
        _timed(lambda: connection.patiently(lambda: client.llen(work), address, 0.0))
        for _ in range(5)
    )
    found = f"{address} answers in {took * 1000:.1f} ms; {counted(queued, 'job')} in {work}"
    checks = [(warn if took > SLOW_SECONDS else ok)(NAME, printable(found))]
    cli = cli_of(address)
    try:
        info = connection.patiently(client.info, address, 0.0)
    except connection.CannotReach as error:
        text = f"version, eviction and persistence are not known: {printable(str(error))}"
        return [*checks, warn(NAME, text)]
    findings = [version(str(info.get("redis_version", ""))), role(info)]
    findings += [eviction(info, cli), persistence(info, cli)]
    try:
        damaged = connection.patiently(lambda: find_damage(client, keys, worker), address, 0.0)
    except connection.CannotReach as error:
        findings.append(warn(NAME, f"its keys were not looked at: {printable(str(error))}"))
        damaged = []
    findings += [warn(NAME, each.text, each.remedy(address)) for each in damaged[:DAMAGE_SHOWN]]
    if len(damaged) > DAMAGE_SHOWN:
        more = f"{len(damaged) - DAMAGE_SHOWN} more keys hold what they should not"
        findings.append(warn(NAME, more))
    return checks + [check for check in findings if check is not None]


DAMAGE_LOOKED_AT = 10_000
DAMAGE_SHOWN = 10


OWN_HASHES = ("fleet", "attempts", "holders", "contexts")
"""Hashes that we keep for a queue; the queue stands still if one of these keys is no hash."""


@value
class Damage:
    """A key of the wrong type; a damaged key of a job costs that job only."""

    key: str
    kind: str
    wanted: str

    @property
    def text(self) -> str:
        """The fault, on one line."""
        return f"{printable(self.key)} holds a {self.kind}, not {self.wanted}"

    def remedy(self, address: connection.Address) -> str:
        """Return the command that deletes the key, for when nobody needs it."""
        return f"{cli_of(address)} DEL {shlex.quote(printable(self.key))}"


def find_damage(client: Any, keys: Keys, worker: str) -> list[Damage]:
    """Return the damaged keys of the queue.

    Checked are the jobs in the queue, their replies, the jobs they wait for, the stop requests, and
    our own hashes.
    """
    queued = client.lrange(keys.work_key(worker), -DAMAGE_LOOKED_AT, -1)
    ids = list(dict.fromkeys(map(text_of, queued)))
    wanted = {keys.stop_key(worker): "list"}
    wanted |= {keys.own_key(worker, name): "hash" for name in OWN_HASHES}
    wanted |= {keys.job_key(job_id): "hash" for job_id in ids}
    wanted |= {keys.reply_key(job_id): "list" for job_id in ids}
    kinds = _kinds(client, wanted)
    jobs = [key for key in map(keys.job_key, ids) if kinds[key] == "hash"]
    needed = {keys.job_key(each): "hash" for each in _waited_for(client, jobs)}
    wanted |= needed
    kinds |= _kinds(client, needed)
    return [
        Damage(key, kinds[key], f"a {want}")
        for key, want in wanted.items()
        if kinds[key] not in (want, "none")
    ]


def _kinds(client: Any, keys: Iterable[str]) -> dict[str, str]:
    asked = list(keys)
    with client.pipeline(transaction=False) as pipe:
        for key in asked:
            pipe.type(key)
        return dict(zip(asked, map(text_of, pipe.execute()), strict=True))


def _waited_for(client: Any, jobs: Sequence[str]) -> Iterator[str]:
    with client.pipeline(transaction=False) as pipe:
        for key in jobs:
            pipe.hmget(key, *WAITS)
        answers = pipe.execute()
    for found in answers:
        fields = {
            k.encode(): text for k, text in zip(WAITS, found, strict=True) if text is not None
        }
        for name in WAITS:
            with suppress(WrongField):  # The job is answered with this error when its turn comes.
                yield from read_ids(fields, name)


def _kind(client: Any, key: str) -> str:
    return text_of(client.type(key))


# --- doctor hero ---------------------------------------------------------------------------------
# ``doctor`` checks for a Redis source: the Redis, contexts, and logs of jobs.


def queue(doctor_input: DoctorInput) -> list[Check]:
    """Check the Redis, and the queue in it."""
    from beads_workers.checks.rules import fail
    from beads_workers.integrations.hero.connection import read_url
    from beads_workers.integrations.hero.fleet_settings import find_queue
    from beads_workers.integrations.hero.wire import Keys

    if find_spec("redis") is None:
        return [fail("redis", "redis-py is not installed here", connection.RedisMissing.hint)]
    try:
        found = find_queue(doctor_input.resolved)
    except CommandError as error:
        return [fail("redis", sentence(error))]
    return redis(read_url(found.url).address, Keys(**found.keys), found.worker)


def scripts(doctor_input: DoctorInput) -> Iterator[Check]:
    """Check what runs the scripts, what confines them, and where their logs go."""
    from beads_workers.checks.rules import fail, ok
    from beads_workers.integrations.hero.fleet_settings import find_scripts

    try:
        work = find_scripts(doctor_input.resolved)
    except CommandError as error:
        yield fail("contexts", sentence(error))
        return
    for context in work.contexts:
        yield ok("contexts", _described(context))
    if work.log_root is not None:
        yield _root(Path(work.log_root.path))


def _described(context: Context) -> str:
    parts = [f"{context.name}: {shlex.join(context.command)}"]
    if context.validator:
        parts.append(f"validated by {shlex.join(context.validator)}")
    parts.append(f"in {context.sandbox[0]}" if context.sandbox else "in no sandbox")
    limits = context.limits
    bounds: dict[str, Any] = {
        "s of CPU": limits.cpu_seconds,
        "bytes of memory": limits.memory_bytes,
        "bytes a file": limits.file_bytes,
    }
    given = [f"{value:,} {what}" for what, value in bounds.items() if value is not None]
    return "; ".join([*parts, f"at most {', '.join(given)}" if given else "without limits"])


def _root(root: Path) -> Check:
    from beads_workers.checks.rules import fail, ok, warn

    make = f"mkdir -p -m 700 {shlex.quote(str(root))}"
    if not root.is_dir():
        return fail("logs", f"log_root {root} is no folder", make)
    if not os.access(root, os.W_OK | os.X_OK):
        return fail("logs", f"log_root {root} cannot be written")
    if root.stat().st_mode & 0o002:
        remedy = f"chmod o-w {shlex.quote(str(root))}"
        return warn("logs", f"anybody may write to log_root {root}", remedy)
    return ok("logs", f"logs of jobs go below {root}")
