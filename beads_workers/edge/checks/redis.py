"""A Redis that holds queues: reached, let in, recent enough, kept from losing jobs. Only reads."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from typing import Any

from beads_workers.core import redis_checks as rules
from beads_workers.core.checks import Check, fail, ok, warn
from beads_workers.core.text import counted, printable
from beads_workers.protocols.hero.keys import Keys
from beads_workers.sources.hero.addresses import Address
from beads_workers.sources.hero.connecting import CannotReach, RedisMissing, connect, patiently

SLOW_SECONDS = 0.05
"""An answer that takes this long makes every job wait several times as long."""


def redis(address: Address, keys: Keys, worker: str) -> list[Check]:
    """What can be said of it, and of this worker's queue in it."""
    try:
        client = connect(address)
        try:
            return _look(client, address, keys, worker)
        finally:
            client.close()
    except RedisMissing as error:
        return [fail(rules.NAME, str(error), error.hint)]
    except CannotReach as error:
        hint = f"; {error.hint}" if error.hint else ""
        return [fail(rules.NAME, f"{printable(str(error))}{hint}", f"{cli_of(address)} PING")]


def cli_of(address: Address) -> str:
    """How redis-cli is called for it; without its password."""
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


def _look(client: Any, address: Address, keys: Keys, worker: str) -> list[Check]:
    work = keys.work_key(worker)
    queued = patiently(lambda: client.llen(work), address, 0.0)  # It connects as well.
    took = min(_timed(lambda: patiently(lambda: client.llen(work), address, 0.0)) for _ in range(5))
    found = f"{address} answers in {took * 1000:.1f} ms; {counted(queued, 'job')} in {work}"
    checks = [(warn if took > SLOW_SECONDS else ok)(rules.NAME, printable(found))]
    cli = cli_of(address)
    try:
        info = patiently(client.info, address, 0.0)
    except CannotReach as error:
        text = f"version, eviction and persistence are not known: {printable(str(error))}"
        return [*checks, warn(rules.NAME, text)]
    said = [rules.version(str(info.get("redis_version", ""))), rules.role(info)]
    said += [rules.eviction(info, cli), rules.persistence(info, cli)]
    return checks + [check for check in said if check is not None]
