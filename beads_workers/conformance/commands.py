"""``conformance``: does a worker, or an orchestrator, keep to docs/PROTOCOL.md?"""

from __future__ import annotations

import json
import shlex
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_USAGE

if TYPE_CHECKING:
    from beads_workers.conformance.report import Report

EXTRA = "pip install 'beads-workers[conformance]'"

HELP = """Test any worker or orchestrator against the protocol.

Prints a verdict for each requirement of docs/PROTOCOL.md; exit status 1 where one fails.
"""

WORKER_EPILOG = (
    "Example: beads-workers conformance worker -- ./my-worker bw-task {id}. The worker is to run "
    "the program 'bw-task' with the issue's id as its last argument (or in BW_ISSUE_ID) for each "
    "task. The kit puts it first on PATH, with a 'bd' that only notes how it is called. It starts "
    "the worker some fifty times, in folders with a .beads, several at once: half a minute. "
    "A requirement that is 'not claimed' is no fault: the worker's READY names no such feature."
)

Json = Annotated[bool, typer.Option("--json", help="One JSON object.")]
Junit = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write JUnit XML to this file, too.")
]
Patience = Annotated[
    float, typer.Option(metavar="SECONDS", min=0.1, help="How long to wait for what is due.")
]
Stop = Annotated[
    str, typer.Option(metavar="COMMAND", help="Has the orchestrator stop; run at the end.")
]
Patient = Annotated[
    bool, typer.Option(help="Wait for heartbeats of any interval, which may take 20 minutes.")
]
Only = Annotated[
    list[str] | None, typer.Option(metavar="ID", help="Only this requirement; may be repeated.")
]
Without = Annotated[
    list[str] | None,
    typer.Option(metavar="ID", help="Do not claim this requirement; may be repeated."),
]


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    group = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)
    group.command("worker", epilog=WORKER_EPILOG)(worker)
    group.command("orchestrator", epilog=ORCHESTRATOR_EPILOG)(orchestrator)
    app.add_typer(group, name="conformance")


ORCHESTRATOR_EPILOG = (
    "Example: beads-workers conformance orchestrator --socket /tmp/beads-workers-4242.sock. The "
    "tracker behind it must have 190 issues that are ready, of which nobody minds that they are "
    "closed, and no worker but those of the kit. With --stop 'beads-workers stop' it is also seen "
    "how it ends."
)


def worker(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND [ARG]...", help="Starts the worker.")
    ],
    as_json: Json = False,
    junit: Junit = None,
    patience: Patience = 10.0,
    only: Only = None,
    patient: Patient = False,
) -> None:
    """Play the orchestrator to a worker: each flow, each mishap."""
    from beads_workers.conformance.requirements import WORKER

    _check_known(only or [], list(WORKER))
    from beads_workers.conformance.bench import Timing
    from beads_workers.conformance.worker_suite import try_worker
    from beads_workers.core.base.limits import HEARTBEAT_SECONDS_MAX

    timing = Timing(patience)
    if patient:
        timing = Timing(patience, heartbeat=HEARTBEAT_SECONDS_MAX)
    try:
        report = try_worker(command, timing, only or [])
    except FileNotFoundError as error:
        hint = "behind -- comes the command that starts the worker, by its path or from PATH"
        raise CommandError(f"{error.filename} cannot be run", hint, EXIT_USAGE) from None
    _show(report, as_json=as_json, junit=junit)


def orchestrator(
    socket: Annotated[str, typer.Option(metavar="PATH", help="The orchestrator's socket.")],
    as_json: Json = False,
    junit: Junit = None,
    patience: Patience = 10.0,
    only: Only = None,
    without: Without = None,
    stop: Stop = "",
) -> None:
    """Play workers to an orchestrator: each flow, each mishap."""
    from beads_workers.conformance.requirements import ORCHESTRATOR

    _check_known([*(only or []), *(without or [])], list(ORCHESTRATOR))
    from beads_workers.conformance.bench import Timing
    from beads_workers.conformance.orchestrator_suite import try_orchestrator

    if not Path(socket).is_socket():
        hint = "'beads-workers status --json' shows the socket of the fleet in this project"
        raise CommandError(f"there is no socket at {socket}", hint, EXIT_USAGE)
    command = shlex.split(stop)
    if command and shutil.which(command[0]) is None:
        raise CommandError(f"{command[0]} cannot be run", "", EXIT_USAGE)
    report = try_orchestrator(socket, Timing(patience), only or [], command, without or [])
    _show(report, as_json=as_json, junit=junit)


def _check_known(only: list[str], known: list[str]) -> None:
    if find_spec("jsonschema") is None:
        raise CommandError("the messages cannot be checked without jsonschema", EXTRA)
    if unknown := [each for each in only if each not in known]:
        hint = f"they go from {known[0]} to {known[-1]}"
        raise CommandError(f"no requirement {unknown[0]}", hint, EXIT_USAGE)


def _show(report: Report, *, as_json: bool, junit: Path | None) -> None:
    if junit is not None:
        junit.write_text(report.as_junit(), encoding="utf-8")
    if as_json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        for line in report.lines():
            print(line)
    raise typer.Exit(0 if report.is_conformant else 1)
