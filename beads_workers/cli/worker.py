"""``worker``: one worker started by hand, beside those of ``start``, or for ``start -n 0``."""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_USAGE

if TYPE_CHECKING:
    from beads_workers.core.base.settings import Work


class BdCallsMode(Enum):
    """The side that claims and closes in the tracker."""

    GROUPED = "grouped"
    WORKER = "worker"


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command(
        "worker",
        epilog="Example: beads-workers worker --socket /tmp/bw-4242.sock -- make {id}",
    )(worker)


def worker(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND [ARG]...", help="The command of a task."),
    ] = None,
    socket: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="The fleet's socket; without it BW_SOCKET or ORCHESTRATOR_PID says which.",
        ),
    ] = None,
    bd_calls: Annotated[
        BdCallsMode, typer.Option(help="Calls to bd: grouped by the fleet, or by this worker.")
    ] = BdCallsMode.GROUPED,
    verify: Annotated[
        str | None, typer.Option(metavar="CMD", help="Must succeed too before a task is done.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0.001, help="For one task.")
    ] = None,
) -> None:
    """Run one worker in this folder.

    Until the fleet shuts it down, or Ctrl-C.
    """
    from beads_workers.core.base.settings import Work

    work = Work(
        command=_checked(command),
        verify=verify,
        timeout_seconds=timeout,
        bd_argv=("bd",) if bd_calls is BdCallsMode.WORKER else None,
    )
    raise typer.Exit(_run(_socket_path(socket), work))


def _checked(command: list[str] | None) -> tuple[str, ...]:
    from beads_workers.executors.command import check_command

    if not command:
        raise CommandError(
            "no command; write what the worker runs after --",
            "beads-workers worker --socket PATH -- COMMAND [ARG]...",
            EXIT_USAGE,
        )
    if trouble := check_command(command):
        raise CommandError(trouble, "", EXIT_USAGE)
    return tuple(command)


def _socket_path(path: str | None) -> str:
    if path := path or os.environ.get("BW_SOCKET", ""):
        return str(Path(path).absolute())
    pid = os.environ.get("ORCHESTRATOR_PID", "")
    if not pid.isdigit():
        raise CommandError(
            "which fleet? No --socket, BW_SOCKET or ORCHESTRATOR_PID is given",
            "'beads-workers status --json' shows the socket of the fleet in this project",
            EXIT_USAGE,
        )
    return f"/tmp/beads-workers-{pid}.sock"


def _run(socket_path: str, work: Work) -> int:
    import sys
    import tempfile

    from beads_workers.core.base.settings import WorkerSettings
    from beads_workers.runtime.processes import outlive_output
    from beads_workers.runtime.sessions import sweep
    from beads_workers.runtime.worker import run_worker

    outlive_output()
    directory = tempfile.mkdtemp(prefix="beads-workers-worker-")
    print(f"logs of this worker: {directory}/logs", file=sys.stderr)
    settings = WorkerSettings(
        worker_id=f"W{os.getpid()}",
        socket_path=socket_path,
        orchestrator_pid=_orchestrator(socket_path),
        project=str(Path.cwd()),
        # The folder's name is unique on this machine, and so is the token of this worker's tasks.
        run_id=Path(directory).name,
        run_directory=directory,
        # The user who starts the worker sets its actor in the tracker: BEADS_ACTOR.
        actor="",
        work=work,
    )
    _start_guard(partial(sweep, settings.run_id, settings.worker_id))
    status = run_worker(settings)
    sweep(settings.run_id, settings.worker_id)
    return status


def _start_guard(sweep: Callable[[], object]) -> None:
    """Start a process that sweeps when this one ends, even if this one is killed.

    Otherwise nothing would end the task of a killed worker without a zygote. The new process is no
    child of this one, because a worker ends its own children.
    """
    ended, ours = os.pipe()
    if child := os.fork():
        os.close(ended)
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        os.close(ours)
        if os.fork() == 0:
            os.read(ended, 1)
            sweep()
    finally:
        os._exit(0)


def _orchestrator(socket_path: str) -> int:
    """Return the pid for ``ORCHESTRATOR_PID`` in a task's environment; 0 if unknown."""
    pid = Path(socket_path).stem.rpartition("-")[2]
    text = pid if pid.isdigit() else os.environ.get("ORCHESTRATOR_PID", "")
    return int(text) if text.isdigit() else 0
