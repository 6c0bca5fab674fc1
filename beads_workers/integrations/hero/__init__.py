"""The source kind "Hero jobs": a Hero queue in a Redis."""

from __future__ import annotations

from collections.abc import Mapping

from beads_workers.core.base.model import value
from beads_workers.core.base.plain import from_plain
from beads_workers.core.base.source import Source
from beads_workers.kinds import Capabilities, Late, Opening, SourceKind

SCHEMES = ("redis://", "rediss://", "redis+unix://", "unix://")


@value
class HeroQueue:
    """Options of a served Hero queue."""

    # The address as ``connection.read_url`` reads it, without a secret.
    url: str
    worker: str
    # The templates of ``wire.Keys``, all of them.
    keys: Mapping[str, str]
    # Delay before the second attempt.
    retry_seconds: float
    # ``lease_seconds`` and ``reply_seconds``: see ``store.ServedQueue``.
    lease_seconds: float
    reply_seconds: int


def _open(opening: Opening) -> Source:
    from beads_workers.integrations.hero.buffer import PREFETCH_MAX
    from beads_workers.integrations.hero.connection import read_url
    from beads_workers.integrations.hero.source import HeroSource
    from beads_workers.integrations.hero.store import ServedQueue
    from beads_workers.integrations.hero.wire import Keys

    settings = opening.settings
    hero = from_plain(HeroQueue, settings.source_options)
    queue = ServedQueue(
        read_url(hero.url).address,
        hero.worker,
        Keys(**hero.keys),
        hero.lease_seconds,
        hero.reply_seconds,
    )
    return HeroSource(
        queue,
        actor=opening.actor,
        place=f"{opening.host} {settings.state_directory}",
        shared=settings.tracking.shared,
        # A job in one fleet's buffer is out of reach for the other fleets.
        prefetch_max=max(4, settings.workers) if settings.tracking.shared else PREFETCH_MAX,
        retry_seconds=hero.retry_seconds,
        attempt_seconds=settings.work.timeout_seconds,
    )


KIND = SourceKind(
    name="hero",
    called="Hero jobs",
    open=_open,
    capabilities=Capabilities(push=True),
    prefixes=SCHEMES,
    prepare=Late("beads_workers.integrations.hero.fleet_settings:prepare_hero"),
    client_settings=Late("beads_workers.integrations.hero.fleet_settings:look_at_hero"),
    ingress=Late("beads_workers.integrations.hero.ingress:open_ingress"),
    checks=Late("beads_workers.integrations.hero.checks:queue"),
    checked="redis",
    work_checks=Late("beads_workers.integrations.hero.checks:scripts"),
)
