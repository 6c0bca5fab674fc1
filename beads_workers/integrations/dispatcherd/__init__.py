"""The source kind "tasks of dispatcherd": brokers that publishers write to."""

from __future__ import annotations

from pathlib import Path

from beads_workers.core.base.plain import from_plain
from beads_workers.core.base.source import Source
from beads_workers.kinds import Capabilities, Late, Opening, SourceKind

CONFIG = "dispatcherd:"
SCHEMES = ("dispatcherd+unix://", "postgresql://", "postgres://")


def _open(opening: Opening) -> Source:
    from beads_workers.integrations.dispatcherd.configuration import Brokers
    from beads_workers.integrations.dispatcherd.queue import TaskQueue
    from beads_workers.integrations.dispatcherd.source import DispatcherdSource
    from beads_workers.integrations.dispatcherd.spool import SPOOL_FILE

    settings = opening.settings
    # The settings may hold a password: a process that only looks does not get them.
    private = settings.source_private
    return DispatcherdSource(
        TaskQueue(),
        Path(settings.state_directory) / SPOOL_FILE,
        actor=opening.actor,
        place=from_plain(Brokers, private).describe() if private else "its brokers",
        calls_functions=settings.work.command is None,
        retries_interrupted=settings.policy.hand_back_after > 1,
    )


KIND = SourceKind(
    name="dispatcherd",
    called="tasks of dispatcherd",
    open=_open,
    capabilities=Capabilities(push=True),
    prefixes=(CONFIG, *SCHEMES),
    forms=("dispatcherd:CONFIG", "dispatcherd+unix:///PATH", "postgresql://"),
    named=False,
    prepare=Late("beads_workers.integrations.dispatcherd.fleet_settings:prepare_dispatcherd"),
    workers=Late("beads_workers.integrations.dispatcherd.checks:workers_of"),
    ingress=Late("beads_workers.integrations.dispatcherd.ingress:open_ingress"),
    prompt=True,
    checks=Late("beads_workers.integrations.dispatcherd.checks:look_at_brokers"),
    checked="broker",
)
