"""``start``: check, start the orchestrator, show what happens, and end with its exit code.

What the user starts is always a client. The orchestrator is a process of its own, in a session
of its own, so that Ctrl-C reaches only the client, which then asks for a stop.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from beads_workers.cli.client import Client
from beads_workers.cli.errors import CommandError
from beads_workers.cli.option_metrics import typed_port
from beads_workers.cli.options import Options, parse_duration
from beads_workers.cli.start_words import say_preflight, show_detached

if TYPE_CHECKING:
    from beads_workers.cli.launching import Launch, Watched
    from beads_workers.core.settings import FleetSettings

_AFTER_DASHES = "beads_workers.command"


class CommandAfterDashes(TyperCommand):
    """Keeps what stands after ``--``: before it are issues, after it is the command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click."""
        if "--" in args:
            cut = args.index("--")
            ctx.meta[_AFTER_DASHES] = tuple(args[cut + 1 :])
            args = args[:cut]
        return super().parse_args(ctx, args)


def command_of(ctx: typer.Context) -> tuple[str, ...] | None:
    """What stood after ``--``; None where nothing did."""
    return ctx.meta.get(_AFTER_DASHES) or None


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    app.command(
        "start",
        cls=CommandAfterDashes,
        epilog="Example: beads-workers start -n 8 --until-empty -- ./do-issue.sh {id}",
    )(start)


def _duration(text: str | float | None) -> float | None:
    if text is None or isinstance(text, float):
        return text
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def start(
    ctx: typer.Context,
    issues: Annotated[
        list[str] | None, typer.Argument(metavar="[ISSUE]...", help="Take only these.")
    ] = None,
    workers: Annotated[int | None, typer.Option("-n", "--workers", help="Default 4.")] = None,
    detach: Annotated[
        bool, typer.Option("-d", "--detach", help="Return once the fleet answers.")
    ] = False,
    until_empty: Annotated[
        bool, typer.Option("--until-empty", help="End when nothing is left to do.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be taken, and how it is run.")
    ] = False,
    source: Annotated[
        str | None, typer.Option(help="bd, sqlite, dispatcherd:CONFIG or a URL.")
    ] = None,
    label: Annotated[list[str] | None, typer.Option(help="All of these.")] = None,
    label_any: Annotated[list[str] | None, typer.Option(help="Any of these.")] = None,
    exclude_label: Annotated[list[str] | None, typer.Option(help="None of these.")] = None,
    type: Annotated[list[str] | None, typer.Option(help="Only these types.")] = None,
    priority: Annotated[list[int] | None, typer.Option(help="Only these, 0 to 4.")] = None,
    parent: Annotated[str | None, typer.Option(help="Only below this epic.")] = None,
    timeout: Annotated[
        float | None, typer.Option(parser=_duration, metavar="DURATION", help="For one attempt.")
    ] = None,
    max_attempts: Annotated[int | None, typer.Option(help="Default 3.")] = None,
    retry_delay: Annotated[
        float | None,
        typer.Option(parser=_duration, metavar="DURATION", help="Doubled each time; default 10s."),
    ] = None,
    verify: Annotated[
        str | None, typer.Option(metavar="CMD", help="sh -c line that must succeed, too.")
    ] = None,
    bd_calls: Annotated[str | None, typer.Option(help="grouped or worker.")] = None,
    agent: Annotated[str | None, typer.Option(help="claude, codex, or one of your own.")] = None,
    prompt: Annotated[str | None, typer.Option(metavar="FILE", help="The agent's prompt.")] = None,
    limit: Annotated[int | None, typer.Option(help="End after so many issues.")] = None,
    max_runtime: Annotated[
        float | None, typer.Option(parser=_duration, metavar="DURATION", help="End by then.")
    ] = None,
    idle_timeout: Annotated[
        float | None,
        typer.Option(parser=_duration, metavar="DURATION", help="End when idle so long."),
    ] = None,
    poll: Annotated[
        float | None,
        typer.Option(parser=_duration, metavar="DURATION", help="Look for new issues; default 5s."),
    ] = None,
    term_grace: Annotated[
        float | None,
        typer.Option(parser=_duration, metavar="DURATION", help="TERM to KILL; default 5s."),
    ] = None,
    stop_timeout: Annotated[
        float | None,
        typer.Option(parser=_duration, metavar="DURATION", help="To leave in; default 10s."),
    ] = None,
    allow_module: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Issues may call what is in this module or package."),
    ] = None,
    executor: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]rrq:CMD", help="Drive this RRQ executor; or rrq-tcp:, rrq2:."),
    ] = None,
    in_flight: Annotated[
        int | None, typer.Option(help="Requests at once in each executor; default 1.")
    ] = None,
    function: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of the executor, for issues without one.")
    ] = None,
    worktree: Annotated[
        bool | None,
        typer.Option("--worktree/--no-worktree", help="A git worktree for each attempt."),
    ] = None,
    shared_checkout: Annotated[
        bool, typer.Option("--shared-checkout", help="Several agents in one folder are fine.")
    ] = False,
    notify: Annotated[
        str | None,
        typer.Option(
            metavar="CMD",
            help="sh -c line run when an issue is set aside, the fleet pauses or has ended, or the "
            "tracker fails; or 'desktop'.",
        ),
    ] = None,
    metrics: Annotated[
        int | None,
        typer.Option(parser=typed_port, metavar="PORT", help="Serve figures; 0: any free port."),
    ] = None,
    trace: Annotated[
        bool | None, typer.Option("--trace/--no-trace", help="A span for each attempt, by OTLP.")
    ] = None,
    state_dir: Annotated[str | None, typer.Option(metavar="DIR")] = None,
    json_lines: Annotated[bool, typer.Option("--json", help="One JSON object per event.")] = False,
    shared: Annotated[
        bool | None,
        typer.Option(
            "--shared", help="Others, with state directories of their own, work here too."
        ),
    ] = None,
    no_dashboard: Annotated[
        bool, typer.Option("--no-dashboard", help="Plain lines, also on a terminal.")
    ] = False,
) -> None:
    """Run the fleet: take issues, hand them to workers, close them.

    What stands after -- is the command; {id}, {title}, {priority}, {worker} and {attempt} in it
    are replaced, and the environment holds BW_ISSUE_ID and its like.
    """
    from beads_workers.cli.launching import Launch

    launch = None if dry_run else Launch()
    from beads_workers.cli import preparing
    from beads_workers.cli.config import resolve

    said = Options(
        workers=workers,
        source=source,
        label=tuple(label or ()),
        label_any=tuple(label_any or ()),
        exclude_label=tuple(exclude_label or ()),
        type=tuple(type or ()),
        priority=tuple(priority or ()),
        parent=parent,
        timeout=timeout,
        max_attempts=max_attempts,
        retry_delay=retry_delay,
        verify=verify,
        bd_calls=bd_calls,
        agent=agent,
        prompt=prompt,
        limit=limit,
        max_runtime=max_runtime,
        idle_timeout=idle_timeout,
        poll=poll,
        state_dir=state_dir,
        until_empty=until_empty or None,
        command=command_of(ctx),
        term_grace=term_grace,
        stop_timeout=stop_timeout,
        allow_module=tuple(allow_module or ()),
        executor=tuple(executor or ()),
        in_flight=in_flight,
        function=function,
        worktree=worktree,
        shared_checkout=shared_checkout or None,
        notify=notify,
        metrics=metrics,
        trace=trace,
        shared=shared,
    )
    resolved = resolve(said, Path.cwd(), os.environ)
    settings = preparing.prepare(resolved, tuple(issues or ()), owned=not detach)
    if launch is None:
        from beads_workers.cli.dry_run import show

        show(settings, as_json=json_lines)
        return
    look_ahead(settings, quiet=json_lines)
    _run(launch, settings, detach=detach, as_json=json_lines, draw=not no_dashboard)


def _run(
    launch: Launch, settings: FleetSettings, *, detach: bool, as_json: bool, draw: bool
) -> None:
    from beads_workers.cli.launching import Interrupts, watch_run

    started = launch.tell(settings)
    drawn = None
    if draw and not as_json and not detach:
        drawn = dashboard(settings.state_directory, started)
    # Whoever reads that the fleet is there may at once tell us to stop it.
    interrupts = None if drawn or detach else Interrupts(launch.client)
    if not as_json:
        say_preflight(settings, started)
    if detach:
        show_detached(started, as_json=as_json)
        return
    code = watch_run(
        launch.client,
        started,
        named=settings.filters.only,
        as_json=as_json,
        show=drawn,
        interrupts=interrupts,
        worktrees=settings.work.worktrees,
    )
    raise typer.Exit(code)


def dashboard(state_directory: str, started: dict[str, Any]) -> Callable[[Client], Watched] | None:
    """What draws this run; None where there is no terminal to draw on."""
    from beads_workers.edge.terminal import can_draw

    if not can_draw():
        return None

    def show(client: Client) -> Watched:
        from beads_workers.cli import live
        from beads_workers.cli.feeds import FleetFeed
        from beads_workers.cli.launching import Watched
        from beads_workers.dashboard.look import Role

        runs = Path(state_directory) / "runs"
        seen = live.show(FleetFeed(client), Role.START, runs.joinpath, None)
        if seen.why is live.Left.DETACHED:
            show_detached(started, as_json=False)
        return Watched(seen.ended, seen.signal, detached=seen.why is live.Left.DETACHED)

    return show


def look_ahead(settings: Any, *, quiet: bool) -> None:
    """The checks of ``doctor`` that cost nothing; raises ``CommandError`` for what cannot work."""
    from beads_workers.core.checks import Grade
    from beads_workers.edge.checks.machine import quick

    places = [(Path(settings.state_directory), "the run directory")]
    places += [(Path(settings.tracker), "the tracker"), (Path("/tmp"), "/tmp")]
    for check in quick(settings.workers, places):
        if check.status is Grade.FAIL and check.name == "files":
            # Not all workers could connect, and 'status' perhaps not either.
            raise CommandError(check.text, f"type: {check.remedy}")
        if check.status is not Grade.OK and not quiet:
            print(f"{check.status.value} {check.name:<8} {check.text}", file=sys.stderr)
            print(f"hint: {check.remedy}", file=sys.stderr)
