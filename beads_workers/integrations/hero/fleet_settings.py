"""``start --source redis://HOST/DB?worker=ID``: which queue is served, and what runs its
scripts."""

from __future__ import annotations

import os
import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from beads_workers.checks.combinations import meaningless, of_trackers
from beads_workers.cli.refusals import refuse
from beads_workers.core.base.plain import to_plain
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_USAGE
from beads_workers.integrations.hero.options import HeroTable

if TYPE_CHECKING:
    from beads_workers.core.base.scripts import Context
    from beads_workers.core.base.settings import FleetSettings, Work
    from beads_workers.integrations.hero import HeroQueue
    from beads_workers.options import Resolved


POLL_SECONDS = 30.0
"""Interval of polls: jobs are reported as they arrive, and polls find what is not reported."""
LEASE_SECONDS = 15.0
REPLY_SECONDS = 86_400.0
SECONDS_MIN, SECONDS_MAX = 1.0, 366 * 86_400.0
_DOCS = "docs/HERO.md has the forms: redis://HOST/DB?worker=ID"


def prepare_hero(resolved: Resolved, issues: tuple[str, ...], *, owned: bool) -> FleetSettings:
    """Return the settings of a run that serves a queue; raise ``CommandError``."""
    from beads_workers.checks.project import TrackerChoice
    from beads_workers.cli.preparation import settings_of
    from beads_workers.core.base.policy import Policy
    from beads_workers.integrations.hero.connection import read_url, secret_variables
    from beads_workers.runtime.project import STATE_FOLDER

    options = resolved.options
    not_ours = {"--executor": options.executor, "--verify": options.work.verify}
    refused = {**of_trackers(options, issues), **not_ours}
    refuse(meaningless(refused, "{} does not go with Hero jobs"))
    queue = find_queue(resolved)
    folder = Path.cwd()
    state = Path(options.state_dir) if options.state_dir else folder / STATE_FOLDER
    tracker = TrackerChoice("hero", state.absolute(), folder)
    hidden = secret_variables(read_url(queue.url).address)
    work = replace(find_scripts(resolved), hidden_variables=hidden)
    root = work.log_root
    if root is not None and not os.access(root.path, os.W_OK | os.X_OK):
        message = f"log_root {root.path} is no folder that can be written"
        raise CommandError(message, f"mkdir -p -m 700 {shlex.quote(root.path)}", EXIT_USAGE)
    settings = settings_of(resolved, tracker, work, (), owned=owned)
    return replace(
        settings,
        policy=Policy(hand_back=True),
        tracking=replace(settings.tracking, poll_seconds=POLL_SECONDS),
        source_options=to_plain(queue),
        claims_ahead=False,
    )


def look_at_hero(resolved: Resolved, directory: Path) -> FleetSettings:
    """Return the settings that ``why`` needs to look into the queue; raise ``CommandError``."""
    from beads_workers.core.base.settings import FleetSettings

    queue, state = find_queue(resolved), str(directory)
    folder = str(Path.cwd())
    return FleetSettings(0, "hero", state, folder, state, source_options=to_plain(queue))


def find_queue(resolved: Resolved) -> HeroQueue:
    """Return the queue that ``--source`` and ``[hero]`` describe; raise ``CommandError``."""
    from beads_workers.integrations.hero import HeroQueue
    from beads_workers.integrations.hero.connection import read_url
    from beads_workers.integrations.hero.source import RETRY_SECONDS
    from beads_workers.integrations.hero.wire import is_id, keys_of

    options = resolved.options
    table = options.tables.get("hero") or HeroTable()
    _need_redis()
    try:
        if options.source == "hero" and not table.url:
            raise ValueError("[hero] of beads-workers.toml says no url")
        place = read_url(table.url if options.source == "hero" else str(options.source))
        parameters = dict(place.options)
        worker = parameters.pop("worker", table.worker)
        keys = keys_of(parameters.pop("naming", table.naming), table.keys)
        lease = _seconds(parameters, "lease", LEASE_SECONDS)
        reply = _seconds(parameters, "reply", REPLY_SECONDS)
    except ValueError as error:
        raise CommandError(f"--source: {error}", _DOCS, EXIT_USAGE) from None
    if parameters:
        known = "worker, naming, lease, reply, db, password_file, password_env, ca, cert, key"
        raise CommandError(
            f"--source: nobody knows {next(iter(parameters))[:40]!r}", f"known: {known}", EXIT_USAGE
        )
    if not is_id(worker):
        raise CommandError(
            "--source: whose queue is it?",
            "redis://HOST/DB?worker=ID, or worker in [hero] of beads-workers.toml",
            EXIT_USAGE,
        )
    is_default = resolved.origin["retry_delay"] == "default"
    return HeroQueue(
        place.address.url(),
        worker,
        asdict(keys),
        RETRY_SECONDS if is_default else options.policy.retry_delay_seconds,
        lease,
        int(reply),
    )


def find_scripts(resolved: Resolved) -> Work:
    """Return what runs the scripts; without any command, raise ``CommandError``.

    Each context of ``[hero.contexts]`` has its command; the one behind ``--`` is for all others. No
    incoming script is ever run without such a setting.
    """
    from beads_workers.cli.preparation import runnable
    from beads_workers.core.base.scripts import ANY_CONTEXT, Context

    options = resolved.options
    table = options.tables.get("hero") or HeroTable()
    contexts = [_checked(context) for context in table.contexts]
    if options.command:
        contexts = [context for context in contexts if context.name != ANY_CONTEXT]
        contexts.append(Context(ANY_CONTEXT, runnable(options.command)))
    if not contexts:
        raise CommandError(
            "nothing to run scripts with: no command, and no context",
            "'-- sh' runs all of them with sh; [hero.contexts.NAME] in beads-workers.toml says"
            " more: docs/HERO.md",
            EXIT_USAGE,
        )
    return replace(
        options.work, allow_modules=(), contexts=tuple(contexts), log_root=table.log_root
    )


def _checked(context: Context) -> Context:
    """Return the context with programs that exist: a missing validator would let nothing pass."""
    from beads_workers.cli.preparation import runnable

    return replace(
        context,
        command=runnable(context.command),
        validator=runnable(context.validator) if context.validator else (),
        sandbox=runnable(context.sandbox) if context.sandbox else (),
    )


def _seconds(parameters: dict[str, str], name: str, default: float) -> float:
    from beads_workers.core.base.times import parse_duration

    if name not in parameters:
        return default
    seconds = parse_duration(parameters.pop(name))
    if not SECONDS_MIN <= seconds <= SECONDS_MAX:
        raise ValueError(f"{name} is from 1 second to a year")
    return seconds


def _need_redis() -> None:
    from importlib.util import find_spec

    from beads_workers.integrations.hero.connection import RedisMissing

    if find_spec("redis") is None:
        raise CommandError("redis-py is not installed here", RedisMissing.hint, EXIT_USAGE)
