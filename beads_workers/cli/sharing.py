"""``--shared``: what must hold before several orchestrators work on one tracker."""

from __future__ import annotations

from beads_workers.cli.errors import EXIT_USAGE, CommandError
from beads_workers.cli.options import Options
from beads_workers.core import limits
from beads_workers.sources.kind import SourceKind
from beads_workers.sources.registry import kinds


def check_shared(options: Options, kind: SourceKind) -> None:
    """Raise ``CommandError`` for what cannot be shared safely.

    Whether this ``bd`` can is seen when the orchestrator asks it for its version.
    """
    if not kind.capabilities.leases:
        able = " or ".join(each.name for each in kinds() if each.capabilities.leases)
        raise CommandError(
            f"--shared goes with {able} only: {kind.called} has no leases",
            f"leave it out; one orchestrator drains {kind.called.replace('the ', 'an ')}",
            EXIT_USAGE,
        )
    if options.bd_calls == "worker":
        raise CommandError(
            "--shared does not go with --bd-calls worker: what a worker claims has no lease",
            "leave one of them out",
            EXIT_USAGE,
        )
    if (options.term_grace or 0.0) > limits.SHARED_GRACE_SECONDS_MAX:
        raise CommandError(
            f"--term-grace is at most {limits.SHARED_GRACE_SECONDS_MAX:g}s with --shared:"
            " a task must end before its lease does",
            "give a shorter one",
            EXIT_USAGE,
        )
