"""``--shared``: what must hold before several orchestrators work on one tracker."""

from __future__ import annotations

from beads_workers.cli.errors import EXIT_USAGE, CommandError
from beads_workers.cli.options import Options
from beads_workers.core import limits


def check_shared(options: Options, source: str) -> None:
    """Raise ``CommandError`` for what cannot be shared safely.

    Whether this ``bd`` can is seen when the orchestrator asks it for its version.
    """
    if source != "bd":
        raise CommandError(
            "--shared goes with bd only: the embedded tracker has no leases",
            "leave it out; one orchestrator drains an embedded tracker",
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
