"""What a Hero queue in a Redis is as a kind of source."""

from __future__ import annotations

from collections.abc import Mapping

from beads_workers.core.source import Source
from beads_workers.core.values import value
from beads_workers.sources.kind import Capabilities, Late, Opening, SourceKind

SCHEMES = ("redis://", "rediss://", "redis+unix://", "unix://")


@value
class HeroQueue:
    """Serving a Hero queue. ``url``: ``sources.hero.addresses``, without a secret; ``keys``: the
    templates of ``protocols.hero.keys.Keys``, all of them. ``retry_seconds``: before the second
    attempt; ``lease_seconds`` and ``reply_seconds``: ``sources.hero.store.Queue``."""

    url: str
    worker: str
    keys: Mapping[str, str]
    retry_seconds: float
    lease_seconds: float
    reply_seconds: int


def _open(opening: Opening) -> Source:
    from beads_workers.protocols.hero.keys import Keys
    from beads_workers.sources.hero.addresses import read_url
    from beads_workers.sources.hero.queue import Queue
    from beads_workers.sources.hero.source import HeroSource
    from beads_workers.sources.hero.stock import AHEAD_MAX

    settings = opening.settings
    hero = HeroQueue(**settings.source_options)
    queue = Queue(
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
        shared=settings.shared,
        # What lies with one fleet is out of reach for the others.
        ahead_max=max(4, settings.workers) if settings.shared else AHEAD_MAX,
        retry_seconds=hero.retry_seconds,
        attempt_seconds=settings.work.timeout_seconds,
    )


KIND = SourceKind(
    name="hero",
    called="Hero jobs",
    open=_open,
    capabilities=Capabilities(pushes=True),
    prefixes=SCHEMES,
    prepare=Late("beads_workers.cli.hero_place:prepare_hero"),
    beside=Late("beads_workers.cli.hero_place:look_at_hero"),
    ingress=Late("beads_workers.edge.hero_front:open_ingress"),
    checks=Late("beads_workers.cli.doctor_hero:queue"),
    checked="redis",
    work_checks=Late("beads_workers.cli.doctor_hero:scripts"),
)
