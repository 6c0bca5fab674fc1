"""``start``: check, start the orchestrator, show events, and end with its exit code."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, cast

import typer

from beads_workers.cli.client import ControlClient
from beads_workers.cli.completion import AFTER_DASHES
from beads_workers.cli.completion import issues as known_issues
from beads_workers.cli.layout import LaidOut
from beads_workers.cli.parameters import with_options
from beads_workers.cli.shown_work import ISSUES_OWN, shown_command
from beads_workers.cli.web import with_port
from beads_workers.core.base.budget import Budget
from beads_workers.core.base.night import NightSoFar
from beads_workers.core.base.option import FLEET
from beads_workers.core.base.settings import Agent, FleetSettings, understood
from beads_workers.core.base.text import counted, printable
from beads_workers.core.schedule.hours import written
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_USAGE
from beads_workers.options import Options, Typed, given
from beads_workers.runtime.processes import NOT_KEPT, outlive_output
from beads_workers.ui.time_text import clock, moment

if TYPE_CHECKING:
    from beads_workers.cli.launch import Launch, WatchResult
    from beads_workers.cli.proving import Proving
    from beads_workers.landing.sees.run import ProofProcess
    from beads_workers.runtime.live_page import LivePage


# --- start words ---------------------------------------------------------------------------------
# Messages of ``start`` once its fleet answers.


NOBODY = "; 'beads-workers scale 2' starts two workers, 'beads-workers worker' runs as one"


def say_preflight(settings: Any, started: dict[str, Any]) -> None:
    """Print one line per check to stderr."""
    from beads_workers.cli.preparation import shown_place, tracing_lines

    until = ", until empty" if settings.ending.until_empty else ""
    for name, text in (
        ("tracker", started["tracker"]),
        *(agent_lines(settings) or [("command", printable(shown_command(settings.work), 160))]),
        *_also_run(settings),
        *_night(settings.night),
        ("workers", f"{settings.workers}{until}{'' if settings.workers else NOBODY}"),
        *_shown_hours(settings),
        ("folder", printable(shown_place(settings))),
        *_metrics(started),
        *_web(started),
        *tracing_lines(settings.tracing),
        ("fleet", f"pid {started['pid']}, {started['socket']}, run {started['run_id']}"),
    ):
        print(f"ok {name:<8} {text}", file=sys.stderr)


def _shown_hours(settings: FleetSettings) -> Iterator[tuple[str, str]]:
    """Yield the times from which on, and until when, attempts begin."""
    now = time.time()
    if settings.start_at is not None and settings.start_at > now:
        at = clock(settings.start_at, now, seconds=False)
        yield "start at", f"{at}; 'beads-workers resume' begins at once"
    if settings.until is not None:
        yield "until", f"{clock(settings.until, now, seconds=False)}; what runs then may finish"


def _also_run(settings: FleetSettings) -> Iterator[tuple[str, str]]:
    """Yield the other commands that the fleet runs, each under its origin.

    Origins: issues, setup, verify, before, after, notify.
    """
    from beads_workers.checks.project import TrackerChoice, commands_of_issues

    tracker = TrackerChoice(settings.source, Path(settings.tracker), Path(settings.project))
    others = shown_command(settings.work) != ISSUES_OWN
    brought = commands_of_issues(tracker) if others else 0
    if isinstance(brought, int) and brought:
        bring = "issue brings its own command" if brought == 1 else "issues bring their own command"
        yield "issues", f"{brought} {bring}, which runs instead"
    worktrees = settings.work.worktrees
    if worktrees is not None and worktrees.rules.setup:
        yield "setup", printable(worktrees.rules.setup, 160)
    if settings.work.verify and not understood(settings.work):
        yield "verify", printable(settings.work.verify, 160)
    for name, line in (("before", settings.tracking.before), ("after", settings.tracking.after)):
        if line:
            yield name, printable(line, 160)
    if settings.upkeep.notify:
        yield "notify", printable(settings.upkeep.notify, 160)


def agent_lines(settings: FleetSettings) -> list[tuple[str, str]]:
    """Return the lines about agents before a fleet starts: names and texts; none without agents."""
    work = settings.work
    if not understood(work):
        return []
    where = "in worktrees" if work.worktrees else "in the shared checkout"
    lines = [("agent", f"{_agent(each)}, {where}") for each in work.agents if each.adapter]
    if work.review is not None:
        lines.append(("review", _agent(work.review)))
    if work.verify:
        lines.append(("verify", printable(work.verify, 160)))
    if settings.budget is not None:
        lines.append(("budget", _budget(settings.budget, settings.night)))
    if settings.issue_budget is not None:
        lines.append(("budget", f"{settings.issue_budget} for an issue"))
    return lines


def _budget(budget: Budget, night: NightSoFar) -> str:
    if budget.per_run:
        return f"{budget}"
    if not night.first:
        return f"{budget} for the night"
    used, left = (find(night.money, night.tokens) for find in (budget.used, budget.left))
    least = "at least " if night.cut else ""
    return f"{least}{used} of {budget} spent before in this night, {left} left"


def _night(night: NightSoFar) -> list[tuple[str, str]]:
    if not night.first:
        return []
    began = moment(night.began_at, seconds=False)
    runs = counted(night.runs, "run")
    return [("night", f"goes on: {runs} since {began}; --new-night begins another")]


ACCOUNT_CHARS = 4
"""Shown part of an account's hash: enough to tell two accounts apart."""


def _agent(agent: Agent) -> str:
    model = f", model {printable(agent.model, 40)}" if agent.model else ""
    last = ", for last attempts" if agent.reserve else ""
    if agent.escalate is not None:
        to = agent.escalate
        who = to.model if to.agent == agent.name else to.agent
        last = f", last attempt by {printable(who, 40)}"
    return f"{printable(agent.name, 40)}{model}{last}, account {agent.account[:ACCOUNT_CHARS]}..."


def _metrics(started: dict[str, Any]) -> list[tuple[str, str]]:
    return [("metrics", started["metrics"])] if started["metrics"] else []


def _web(started: dict[str, Any]) -> list[tuple[str, str]]:
    return [("web", started["web"])] if "web" in started else []


def show_detached(started: dict[str, Any], *, as_json: bool) -> None:
    """Print where the detached fleet is, and how to reach it."""
    if as_json:
        print(json.dumps(started))
    else:
        print(f"started: pid {started['pid']}, run {started['run_id']}")
        if started["metrics"]:
            print(f"metrics: {started['metrics']}")
        for _, url in _web(started):
            print(f"web: {url}")
        print("see it with 'beads-workers status', end it with 'beads-workers stop'")


# --- start ---------------------------------------------------------------------------------------
# A start is always a client. The orchestrator runs in its own process and session, so that Ctrl-C
# reaches only the client, which then asks for a stop.


NEARLY = 0.75
"""An unknown option at least this similar to a known one is a typing error. Any other may belong to
the user's command, typed without ``--``."""


class CommandAfterDashes(LaidOut):
    """A command line with ``--``: before it are issues, after it is the command."""

    panelled = True

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click."""
        if "--" in args:
            cut = args.index("--")
            ctx.meta[AFTER_DASHES] = tuple(args[cut + 1 :])
            return super().parse_args(ctx, _with_defaults(args[:cut]))
        try:
            return super().parse_args(ctx, _with_defaults(list(args)))
        except _no_such_option() as error:
            from difflib import get_close_matches

            known = [name for each in self.params for name in each.opts]
            if get_close_matches(error.option_name, known, cutoff=NEARLY):
                raise
            takes_value = [each for each in self.params if not getattr(each, "is_flag", True)]
            at = _program_in(args, {name for each in takes_value for name in each.opts})
            if at is None or any(word.startswith(error.option_name) for word in args[:at]):
                raise
            typed = shlex.join([*args[:at], "--", *args[at:]])
            message = f"No such option of '{ctx.info_name}': {error.option_name}"
            hint = f"a command goes after --: {ctx.command_path} {typed}"
            raise CommandError(message, hint, EXIT_USAGE) from None


def _with_defaults(arguments: list[str]) -> list[str]:
    """Return the words; ``--web`` and ``--trust`` get a default value if they have none."""
    words: list[str] = []
    for word in with_port(arguments):
        if words[-1:] == ["--trust"]:
            words[-1:] = ["--trust=agent=no"] if word == "agent=no" else ["--trust=yes", word]
        else:
            words.append(word)
    return ["--trust=yes" if word == "--trust" else word for word in words]


def _no_such_option() -> type[Any]:
    """Return the parser's error class: typer has its own copy of click, or uses the real one."""
    module = sys.modules[typer.BadParameter.__module__]
    return cast("type[Any]", module.NoSuchOption)


def _program_in(args: list[str], valued: set[str]) -> int | None:
    """Return the index of the word that looks like a program; None without one.

    ``valued``: the options whose next word is a value. A word of letters alone is not an issue's
    id.
    """
    from shutil import which

    for at, (before, word) in enumerate(zip(["", *args], args, strict=False)):
        is_bare = word[:1] != "-" and before not in valued
        if is_bare and (word.isalpha() or which(word)):
            return at
    return None


def command_of(ctx: typer.Context) -> tuple[str, ...] | None:
    """Return the words after ``--``; None without any."""
    return ctx.meta.get(AFTER_DASHES) or None


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    app.command(
        "start",
        cls=CommandAfterDashes,
        epilog="Example: beads-workers start -n 8 --until-empty -- ./do-issue.sh {id}",
    )(start)


@with_options(
    "start",
    first=(
        *("issues", "workers", "until_empty", "detach", "dry_run"),
        *("agent", "verify", "budget", "source", "timeout"),
    ),
    last=(
        *("worktree", "shared_checkout", "notify", "web", "web_control", "metrics", "trace"),
        *("wait", "service", "state_dir", "json_lines", "shared", "no_dashboard"),
    ),
)
def start(
    ctx: typer.Context,
    options: Typed,
    issues: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ISSUE]...", help="Take only these.", autocompletion=known_issues),
    ] = None,
    detach: Annotated[
        bool, typer.Option("-d", "--detach", help="Run in the background; return once it answers.")
    ] = False,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait",
            help="With -d: return at the end of the run, with its exit code.",
            rich_help_panel=FLEET,
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be taken, and how it is run.")
    ] = False,
    service: Annotated[
        bool,
        typer.Option(
            "--service",
            help="Print a systemd user unit that starts this, with these options.",
            rich_help_panel=FLEET,
        ),
    ] = False,
    json_lines: Annotated[
        bool, typer.Option("--json", help="One JSON object per event.", rich_help_panel=FLEET)
    ] = False,
    no_dashboard: Annotated[
        bool,
        typer.Option(
            "--no-dashboard", help="Plain lines, also on a terminal.", rich_help_panel=FLEET
        ),
    ] = False,
) -> None:
    """Run the fleet: take issues, hand them to workers, close them.

    The command goes after --. In it {id}, {title}, {priority}, {worker} and {attempt} are
    replaced; its environment has BW_ISSUE_ID, BW_ISSUE_FILE and more. docs/CLI.md has the
    rare options.
    """
    if wait and not detach:
        raise typer.BadParameter(
            "it goes with -d; without -d start waits for the end anyway", param_hint="'--wait'"
        )
    shown = StartView(
        detach=detach, wait=wait, as_json=json_lines, draw=not no_dashboard, dry_run=dry_run
    )
    options = given({**options, "command": command_of(ctx)})
    if service:
        if detach or dry_run or json_lines:
            raise typer.BadParameter(
                "a unit runs in the foreground, and prints plain lines: leave out -d, --dry-run and"
                " --json",
                param_hint="'--service'",
            )
        print_unit(options, tuple(issues or ()), tuple(sys.argv[1:]))
        return
    run_start(options, tuple(issues or ()), shown, tuple(sys.argv[1:]))


def print_unit(options: Typed, issues: tuple[str, ...], argv: tuple[str, ...]) -> None:
    """Print the unit of this start; raise ``CommandError`` if there can be none."""
    from beads_workers.cli import service
    from beads_workers.cli.preparation import plan_of, planned
    from beads_workers.cli.trust import refuse_untrusted, settle

    service.refuse_secrets(argv)
    resolved = settle(options, may_ask=False)
    refuse_untrusted(resolved, tells=False)
    plan = plan_of(resolved, issues, owned=True)
    service.check(plan)
    path = os.environ.get("PATH", os.defpath)
    print(service.unit(planned(plan), resolved.origin, argv, path), end="")


@dataclass(frozen=True, slots=True)
class StartView:
    """Display of a start."""

    detach: bool
    # With ``detach``, wait for the end.
    wait: bool = False
    as_json: bool = False
    # Show the dashboard on a terminal.
    draw: bool = True
    # Only show what would be taken.
    dry_run: bool = False


def run_start(
    options: Typed, issues: tuple[str, ...], how: StartView, argv: tuple[str, ...]
) -> None:
    """Check, start, and show events; end with the exit code of the run.

    ``argv``: the typed words, for people.
    """
    from beads_workers.cli.launch import Launch

    launch = None if how.dry_run else Launch()
    from beads_workers.checks.untrusted_lines import record
    from beads_workers.cli.checking import Drawn, check_start
    from beads_workers.cli.config import typed_options
    from beads_workers.cli.preparation import plan_of, planned
    from beads_workers.cli.trust import refuse_untrusted, settle

    resolved = settle(options, may_ask=not (how.dry_run or how.as_json))
    if resolved.untrusted:
        # Refuse before the plan is made: untrusted lines are left out, and some sources cannot
        # prepare without them.
        refuse_untrusted(resolved, tells=not how.dry_run)
    drawn = Drawn(quiet=how.as_json)
    plan = plan_of(resolved, issues, owned=not how.detach, progress=drawn)
    warnings = check_start(plan, quiet=how.as_json, last=not how.dry_run)
    settings = planned(plan)
    settings = replace(settings, typed=typed_options(resolved) | _hours(settings), argv=argv)
    if launch is None:
        from beads_workers.cli.dry_run import show

        show(settings, warnings, as_json=how.as_json)
        return
    record(plan)
    _repair_worktrees(settings)
    page = open_page(resolved.options, settings)
    if not how.detach:
        proving = _proving(plan.proving, settings)
        _run(launch, settings, page, proving, as_json=how.as_json, draw=how.draw)
    _detach(launch, settings, page, as_json=how.as_json, wait=how.wait)


def _hours(settings: FleetSettings) -> dict[str, str]:
    """Return the hours as options that mean the same moments later (``restart``)."""
    hours = {"start_at": settings.start_at, "until": settings.until}
    return {name: written(at) for name, at in hours.items() if at is not None}


def _repair_worktrees(settings: FleetSettings) -> None:
    """If the project was moved, make its worktrees and their records point to its new place. Have
    the files deleted that earlier runs could not, and the worlds torn down that they left."""
    found = settings.work.worktrees if settings.work is not None else None
    if found is None:
        return
    from beads_workers.worktrees import slots
    from beads_workers.worktrees.records import Records
    from beads_workers.worktrees.relocation import lead_back
    from beads_workers.worktrees.sweep import sweep

    records = Records(Path(found.state_directory))
    lead_back(records, Path(found.checkout), found.common)
    sweep(records)
    for wrong in slots.settle(found.state_directory):
        print(f"warning: {printable(wrong)}", file=sys.stderr)


def open_page(options: Options, settings: FleetSettings) -> LivePage | None:
    """Return the live page if one is asked for; raise ``CommandError``."""
    if options.web is None and not options.web_control:
        return None
    from beads_workers.cli.web import open_beside

    folder = Path(settings.state_directory)
    return open_beside(folder, options.web or 0, controls=options.web_control)


def _detach(
    launch: Launch, settings: FleetSettings, page: LivePage | None, *, as_json: bool, wait: bool
) -> None:
    started = _started(launch, settings, page)
    if not as_json:
        say_preflight(settings, started)
    show_detached(started, as_json=as_json)
    if wait:
        from beads_workers.cli.fleet import wait_for_run

        sys.stdout.flush()
        ended = wait_for_run(Path(settings.state_directory), started["run_id"], None)
        raise typer.Exit(int(ended["exit_code"]))


def _started(launch: Launch, settings: FleetSettings, page: LivePage | None) -> dict[str, Any]:
    started = launch.tell(settings)
    if page is not None:
        started["web"] = page.url
    # The fleet may end with this process, so output that cannot be written must end neither.
    outlive_output(_is_lost)
    return started


def _is_lost(error: OSError) -> bool:
    if error.errno == errno.EPIPE:
        _say_unread()
    return error.errno in (*NOT_KEPT, errno.EPIPE)


@functools.cache
def _say_unread() -> None:
    text = "nobody reads this output any more; the fleet goes on, and 'beads-workers stop' ends it"
    with contextlib.suppress(OSError):
        os.write(2, f"hint: {text}\n".encode())


def _proving(process: ProofProcess | None, settings: FleetSettings) -> Proving | None:
    if process is None:
        return None
    from beads_workers.cli.proving import Proving  # Few starts need it.

    return Proving(process, settings)


def _run(
    launch: Launch,
    settings: FleetSettings,
    page: LivePage | None,
    proving: Proving | None,
    *,
    as_json: bool,
    draw: bool,
) -> NoReturn:
    from beads_workers.cli.launch import Interrupts, watch_run
    from beads_workers.ui.terminal import can_draw

    draws = draw and not as_json and can_draw()
    started = _started(launch, settings, page)
    # A user who sees that the fleet is there may press Ctrl-C at once.
    interrupts = None if draws else Interrupts(launch.client)
    if not as_json:
        say_preflight(settings, started)
    elif page is not None:
        print(json.dumps({"web": page.url}), flush=True)
    code = watch_run(
        launch.client,
        started,
        runs=Path(settings.state_directory) / "runs",
        named=settings.filters.only,
        as_json=as_json,
        show=dashboard(settings.state_directory, started) if draws else None,
        interrupts=interrupts,
        worktrees=settings.work.worktrees,
    )
    if proving is not None:
        proving.settle()
    raise typer.Exit(code)


def dashboard(
    state_directory: str, started: dict[str, Any]
) -> Callable[[ControlClient], WatchResult]:
    """Return the function that draws this run."""

    def show(client: ControlClient) -> WatchResult:
        from beads_workers.cli import live
        from beads_workers.cli.feeds import FleetFeed
        from beads_workers.cli.launch import WatchResult
        from beads_workers.ui.viewer import Role

        runs = Path(state_directory) / "runs"
        seen = live.show(FleetFeed(client), Role.START, runs.joinpath, None)
        if seen.why is live.Left.DETACHED:
            show_detached(started, as_json=False)
        return WatchResult(seen.ended, seen.signal, detached=seen.why is live.Left.DETACHED)

    return show
