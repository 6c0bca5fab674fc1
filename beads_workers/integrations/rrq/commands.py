"""``rrq-executor``: our workers run the requests of a real RRQ orchestrator."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from beads_workers.cli.parameters import with_options
from beads_workers.cli.start import CommandAfterDashes, command_of
from beads_workers.core.base.plain import to_plain
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_USAGE
from beads_workers.options import WORKERS_DEFAULT, WORKERS_MAX, Typed, options_of
from beads_workers.runtime.locks import is_locked, try_lock

if TYPE_CHECKING:
    from beads_workers.core.base.settings import FleetSettings, Work


# --- slots ---------------------------------------------------------------------------------------
# State directories for several executors of one folder: each executor takes the first free one.


def take_slot(folder: Path) -> tuple[Path, int]:
    """Lock the first free slot of ``folder/1``, ``folder/2``, ...; return its path and descriptor.

    The slot is ours until the descriptor is closed. A slot of an orchestrator that is still ending
    is not free. Raises ``OSError``.
    """
    for number in count(1):
        slot = folder / str(number)
        slot.mkdir(parents=True, exist_ok=True)
        fd = try_lock(slot / "slot")
        if fd is not None and not is_locked(slot / "lock"):
            return slot, fd
        if fd is not None:
            os.close(fd)
    raise AssertionError("there is always another number")


# --- rrq executor --------------------------------------------------------------------------------


FOLDER = "rrq"
"""Folder below the run directory of a project: one slot for each executor that runs there."""

POLL_SECONDS = 3600.0
"""Interval of polls, which find nothing: requests arrive on their own."""

OPEN_SECONDS = 8.0
"""Seconds until the executor listens, of the 15 s that an orchestrator gives it for its start."""

ALONE_SECONDS = 60.0
"""Seconds without a connection, after which an executor ends. An orchestrator connects as soon
as it can, and gives up after 15 s."""


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command(
        "rrq-executor",
        cls=CommandAfterDashes,
        epilog="Example: beads-workers rrq-executor -n 8 --allow-module shop.tasks",
    )(rrq_executor)


@with_options(
    "rrq-executor",
    first=("workers", "in_flight", "allow_module", "prefix", "timeout", "term_grace"),
    last=("socket", "tcp_socket", "no_parent", "metrics", "trace", "state_dir", "json_lines"),
    words={
        "in_flight": "Requests at once in each worker; default 1.",
        "allow_module": "Requests may call what is in this module or package.",
        "timeout": "For one request.",
        "trace": "A span for each request, by OTLP.",
        "state_dir": "Default: one that no other executor has.",
    },
)
def rrq_executor(
    ctx: typer.Context,
    options: Typed,
    workers: Annotated[
        int, typer.Option("-n", "--workers", min=1, max=WORKERS_MAX, help="Requests at a time.")
    ] = WORKERS_DEFAULT,
    prefix: Annotated[
        str, typer.Option(metavar="NAME", help="Stands before every function's name, with a dot.")
    ] = "",
    socket: Annotated[
        str | None, typer.Option(metavar="PATH", help="Instead of RRQ_EXECUTOR_SOCKET.")
    ] = None,
    tcp_socket: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Instead of RRQ_EXECUTOR_TCP_SOCKET; loopback only."
        ),
    ] = None,
    no_parent: Annotated[
        bool, typer.Option("--no-parent", help="Do not end with whoever has started it.")
    ] = False,
    json_lines: Annotated[bool, typer.Option("--json", help="One JSON object per event.")] = False,
) -> None:
    """Be an RRQ executor: run what an orchestrator sends.

    It calls Python functions below --allow-module by their names, or runs the command behind --,
    which finds the request as JSON in the file $BW_ISSUE_FILE.
    """
    from beads_workers import BEGUN
    from beads_workers.cli.preparation import check_modules, find_tracing
    from beads_workers.core.base.policy import Policy
    from beads_workers.core.base.settings import FleetSettings, TrackerRules
    from beads_workers.integrations.rrq import RrqExecutor
    from beads_workers.integrations.rrq.source import choose, split_command
    from beads_workers.runtime.project import STATE_FOLDER

    command, behind = split_command(command_of(ctx) or ())
    try:
        address = choose(socket, tcp_socket or behind, os.environ)
    except ValueError as error:
        raise CommandError(str(error), _HINT, EXIT_USAGE) from None
    said = options_of(options)
    work = _work(command, prefix, said.work)
    parent, alone_seconds = (0, None) if no_parent else ends_with()
    served = RrqExecutor(str(address), prefix, parent, alone_seconds, BEGUN[1] + OPEN_SECONDS)
    folder = Path.cwd()
    check_modules(work.allow_modules, folder)
    # Held until this process ends: no other executor gets the same state directory.
    place, _ = (
        (Path(said.state_dir), -1) if said.state_dir else take_slot(folder / STATE_FOLDER / FOLDER)
    )
    _run(
        FleetSettings(
            workers=workers,
            source="rrq",
            tracker=str(place.absolute()),
            project=str(folder),
            state_directory=str(place.absolute()),
            work=work,
            policy=Policy(hand_back=True),
            tracking=TrackerRules(poll_seconds=POLL_SECONDS),
            argv=tuple(sys.argv[1:]),
            folder=str(folder),
            quiet=not json_lines,
            source_options=to_plain(served),
            upkeep=said.upkeep,
            tracing=find_tracing(said.trace),
        ),
        as_json=json_lines,
    )


def ends_with() -> tuple[int, float | None]:
    """Return the process to end with, 0 for none, and how long nobody may connect, None for ever.

    The time limit applies if the parent is process 1 (of the machine or a container) or belongs to
    another session. Such an executor may have lost its orchestrator before its first line, or was
    started that way on purpose: then its orchestrator will connect. Raises ``CommandError`` if the
    parent is gone.
    """
    from beads_workers import BEGUN  # Imported here: a test replaces it.

    parent, _ = BEGUN
    if parent != os.getppid():
        raise CommandError("whoever has started it is gone", "--no-parent serves all the same")
    alone = parent == 1
    with suppress(ProcessLookupError):  # The parent is gone by now: the ingress notices.
        alone = alone or (parent > 1 and os.getsid(parent) != os.getsid(0))
    return (parent if parent > 1 else 0), ALONE_SECONDS if alone else None


_HINT = (
    "an RRQ orchestrator gives one: RRQ_EXECUTOR_SOCKET=PATH or RRQ_EXECUTOR_TCP_SOCKET=HOST:PORT;"
    " by hand: --socket PATH"
)


def _work(command: tuple[str, ...], prefix: str, said: Work) -> Work:
    from beads_workers.cli.preparation import runnable
    from beads_workers.core.base.model import is_module_name
    from beads_workers.core.base.settings import Ahead

    allow_modules = said.allow_modules
    if bool(command) == bool(allow_modules):
        what = "both functions and a command" if command else "nothing to run"
        hint = "--allow-module NAME for Python functions, or -- COMMAND [ARG]..., one of them"
        raise CommandError(what, hint, EXIT_USAGE)
    for name in (*allow_modules, *([prefix] if prefix else [])):
        if not is_module_name(name):
            raise CommandError(
                f"{name!r} is no name of a module", "like tasks, or shop.tasks", EXIT_USAGE
            )
    if prefix and command:
        raise CommandError("--prefix goes with --allow-module", "leave it out", EXIT_USAGE)
    if said.in_flight > 1 and command:
        hint = "leave it out: -n says how many commands run at once"
        raise CommandError("--in-flight goes with --allow-module", hint, EXIT_USAGE)
    return replace(
        said,
        command=runnable(command) if command else None,
        functions_ahead=Ahead.MODULES if allow_modules and said.in_flight == 1 else "",
    )


def _run(settings: FleetSettings, *, as_json: bool) -> None:
    from beads_workers.cli.launch import Interrupts, Launch, watch_run
    from beads_workers.cli.preparation import tracing_lines
    from beads_workers.core.base.text import printable

    launch = Launch()
    started = launch.tell(settings)
    interrupts = Interrupts(launch.client)
    if not as_json:
        state = printable(settings.state_directory)
        fleet = f"pid {started['pid']}, {started['socket']}, run {started['run_id']}"
        print(f"ok rrq      {printable(started['tracker'])}", file=sys.stderr)
        print(f"ok workers  {settings.workers}, state in {state}", file=sys.stderr)
        if started["metrics"]:
            print(f"ok metrics  {started['metrics']}", file=sys.stderr)
        for name, text in tracing_lines(settings.tracing):
            print(f"ok {name:<8} {text}", file=sys.stderr)
        print(f"ok fleet    {fleet}", file=sys.stderr)
    runs = Path(settings.state_directory) / "runs"
    code = watch_run(
        launch.client, started, runs=runs, named=(), as_json=as_json, interrupts=interrupts
    )
    raise typer.Exit(code)
