"""What ``doctor`` says where jobs come from a Redis: of that, of contexts, and of their logs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beads_workers.cli.doctor_remedies import sentence
from beads_workers.cli.errors import CommandError

if TYPE_CHECKING:
    from beads_workers.core.checks import Check
    from beads_workers.core.scripts import Context
    from beads_workers.sources.kind import Looked


def queue(looked: Looked) -> list[Check]:
    """The Redis, and the queue in it."""
    from beads_workers.cli.hero_place import find_queue
    from beads_workers.core.checks import fail
    from beads_workers.edge.checks.redis import redis
    from beads_workers.protocols.hero.keys import Keys
    from beads_workers.sources.hero.addresses import read_url
    from beads_workers.sources.hero.connecting import RedisMissing

    if find_spec("redis") is None:
        return [fail("redis", "redis-py is not installed here", RedisMissing.hint)]
    try:
        found = find_queue(looked.resolved)
    except CommandError as error:
        return [fail("redis", sentence(error))]
    return redis(read_url(found.url).address, Keys(**found.keys), found.worker)


def scripts(looked: Looked) -> Iterator[Check]:
    """What runs the scripts, what confines them, and where their logs go."""
    from beads_workers.cli.hero_place import find_scripts
    from beads_workers.core.checks import fail, ok

    try:
        work = find_scripts(looked.resolved)
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
    said: dict[str, Any] = {
        "s of CPU": limits.cpu_seconds,
        "bytes of memory": limits.memory_bytes,
        "bytes a file": limits.file_bytes,
    }
    given = [f"{value:,} {what}" for what, value in said.items() if value is not None]
    return "; ".join([*parts, f"at most {', '.join(given)}" if given else "without limits"])


def _root(root: Path) -> Check:
    from beads_workers.core.checks import fail, ok, warn

    make = f"mkdir -p -m 700 {shlex.quote(str(root))}"
    if not root.is_dir():
        return fail("logs", f"log_root {root} is no folder", make)
    if not os.access(root, os.W_OK | os.X_OK):
        return fail("logs", f"log_root {root} cannot be written")
    if root.stat().st_mode & 0o002:
        remedy = f"chmod o-w {shlex.quote(str(root))}"
        return warn("logs", f"anybody may write to log_root {root}", remedy)
    return ok("logs", f"logs of jobs go below {root}")
