"""From options to the settings of a fleet: which tracker, which command, and is it all there."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from beads_workers.cli.allowing import check_modules, to_bring
from beads_workers.cli.config import Resolved
from beads_workers.cli.embedded_work import allow_functions, issues_bring_commands
from beads_workers.cli.errors import EXIT_TRACKER, EXIT_USAGE, CommandError
from beads_workers.cli.executing import find_executors
from beads_workers.cli.kinds import kind_said
from beads_workers.cli.option_trace import tracing
from beads_workers.cli.sharing import check_shared
from beads_workers.cli.worktree_checks import apart
from beads_workers.core.jobs import Filters
from beads_workers.core.policy import Policy
from beads_workers.core.settings import NOTIFY_DESKTOP, Agent, FleetSettings, Work
from beads_workers.core.source import SourceError
from beads_workers.edge.project import STATE_FOLDER, Project, find_project
from beads_workers.executors.agents import DEFAULT_PROMPT, PRESETS, find_agents
from beads_workers.executors.placeholders import check_command
from beads_workers.sources.kind import SourceKind
from beads_workers.sources.registry import kind_of, kinds

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tracker:
    """``source`` is its kind, ``place`` the folder ``.beads`` or the database.

    ``passed_over``: the embedded tracker that is here too, where nobody said which one to take.
    ``options``: what opening it needs besides (``FleetSettings.source_options``).
    """

    source: str
    place: Path
    folder: Path
    passed_over: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def prepare(resolved: Resolved, issues: tuple[str, ...], *, owned: bool) -> FleetSettings:
    """Everything a run is told; raises ``CommandError`` for what cannot work."""
    options = resolved.options
    kind = kind_said(options.source)
    if kind is not None and kind.prepare is not None:
        return kind.prepare(resolved, issues, owned=owned)
    tracker = find_tracker(options.source)
    if tracker.passed_over:
        print("both trackers are here: taking bd (--source sqlite for the other)", file=sys.stderr)
    if options.shared:
        check_shared(options, kind_of(tracker.source))
    if options.bd_calls == "worker" and not kind_of(tracker.source).capabilities.hand_over:
        raise CommandError(
            "--bd-calls worker goes with bd only", "leave it out, or use --source bd", EXIT_USAGE
        )
    work = find_work(resolved, tracker)
    return apart(settings_of(resolved, tracker, work, issues, owned=owned), options)


def settings_of(
    resolved: Resolved, tracker: Tracker, work: Work, issues: tuple[str, ...], *, owned: bool
) -> FleetSettings:
    """The settings of a fleet whose tracker and work are known."""
    options = resolved.options
    return FleetSettings(
        workers=options.workers or 0,
        source=tracker.source,
        tracker=str(tracker.place),
        project=str(tracker.folder),
        state_directory=options.state_dir or str(tracker.folder / STATE_FOLDER),
        work=work,
        filters=Filters(
            labels=options.label or (),
            labels_any=options.label_any or (),
            exclude_labels=options.exclude_label or (),
            types=options.type or (),
            priorities=options.priority or (),
            parent=options.parent,
            only=issues,
            bring=() if issues or not options.workers else to_bring(work),
        ),
        policy=_policy(resolved),
        bd_calls=options.bd_calls or "grouped",
        until_empty=bool(options.until_empty),
        issues_max=options.limit,
        runtime_max_seconds=options.max_runtime,
        idle_timeout_seconds=options.idle_timeout,
        poll_seconds=_known(options.poll),
        stop_seconds=_known(options.stop_timeout),
        owned=owned,
        log_directory=options.log_dir,
        argv=tuple(sys.argv[1:]),
        folder=str(Path.cwd()),
        notify=_notify(options.notify),
        keep_runs=_known(options.keep_runs),
        journal_bytes_max=_known(options.journal_max),
        shared=bool(options.shared),
        metrics=options.metrics,
        tracing=tracing(options.trace, os.environ),
        source_options=tracker.options,
    )


def find_tracker(source: str | None) -> Tracker:
    """The tracker that is said, or that of this folder or of the nearest one above with one."""
    kind = kind_said(source)
    if kind is not None and kind.locate is not None:
        return _located(kind, str(source))
    project = find_project(Path.cwd())
    if project is None:
        raise CommandError(
            "no tracker here: neither a .beads folder nor an embedded tracker, up to /",
            "run 'bd init' for beads, or 'beads-workers init' for the embedded tracker",
            EXIT_TRACKER,
        )
    if source not in (None, "bd", "sqlite"):
        *known, last = [form for kind in kinds() for form in kind.forms]
        hint = f"{', '.join(known)} and {last} are known"
        raise CommandError(f"no such source: {source}", hint, EXIT_USAGE)
    place = _place(project, source)
    if place is None:
        raise CommandError(
            f"no {source} tracker in {project.folder}",
            "run 'bd init'" if source == "bd" else "run 'beads-workers init'",
            EXIT_TRACKER,
        )
    found = "bd" if place == project.beads else "sqlite"
    both = source is None and project.beads and project.tracker
    return Tracker(found, place, project.folder, project.tracker if both else None)


def _located(kind: SourceKind, source: str) -> Tracker:
    assert kind.locate is not None
    try:
        found = kind.locate(source, Path.cwd())
    except SourceError as error:
        raise CommandError(f"--source: {error}", error.hint, EXIT_TRACKER) from None
    return Tracker(kind.name, found.place, found.folder, options=found.options)


def find_work(resolved: Resolved, tracker: Tracker) -> Work:
    """What is run; nothing that costs money is ever run unasked."""
    options = resolved.options
    if options.executor:
        return replace(
            find_executors(options, runnable),
            term_grace_seconds=_known(options.term_grace),
            log_bytes_max=_known(options.log_max),
        )
    command, agent = choose_work(resolved)
    check_modules(options, tracker.folder)
    if not (command or agent or options.allow_module or issues_bring_commands(tracker)):
        hint = allow_functions(tracker) or what_to_type()
        raise CommandError("nothing to run: no command and no agent", hint, EXIT_USAGE)
    if command is not None:
        command = runnable(command)
    if agent is not None:
        agent = replace(agent, argv=runnable(agent.argv, f"install {agent.name}; {_found()}"))
    return Work(
        command=command,
        agent=agent,
        verify=options.verify,
        timeout_seconds=options.timeout,
        term_grace_seconds=_known(options.term_grace),
        log_bytes_max=_known(options.log_max),
        allow_modules=_known(options.allow_module),
    )


def choose_work(resolved: Resolved) -> tuple[tuple[str, ...] | None, Agent | None]:
    """The command or the agent that holds, or neither; whether it can be run is not looked at."""
    options = resolved.options
    command, name = options.command, options.agent
    if command and name:
        said_last = "command line"
        origins = resolved.origin["command"], resolved.origin["agent"]
        if origins[0] == origins[1]:
            raise CommandError(
                f"both a command and --agent {name}", "leave one of them out", EXIT_USAGE
            )
        command, name = (command, None) if origins[0] == said_last else (None, name)
    return command, _agent(resolved, name) if name else None


def _place(project: Project, source: str | None) -> Path | None:
    if source == "bd":
        return project.beads
    if source == "sqlite":
        return project.tracker
    return project.beads or project.tracker


def _notify(command: str | None) -> str | None:
    if command == NOTIFY_DESKTOP and shutil.which("notify-send") is None:
        raise CommandError(
            "--notify desktop needs notify-send, which is not installed",
            "install it ('sudo apt install libnotify-bin'), or give a command:"
            " --notify 'echo \"$BW_TEXT\" >> notices.txt'",
            EXIT_USAGE,
        )
    if command and (why := check_command(("sh", "-c", command))) is not None:
        raise CommandError(f"--notify: {why}", "", EXIT_USAGE)
    return command


def _policy(resolved: Resolved) -> Policy:
    options = resolved.options
    return Policy(
        attempts_max=_known(options.max_attempts),
        retry_delay_seconds=_known(options.retry_delay),
    )


def _known(value: T | None) -> T:
    assert value is not None, "resolve() fills in every default"
    return value


def _agent(resolved: Resolved, name: str) -> Agent:
    agent = PRESETS.get(name)
    if table := resolved.agents.get(name):
        agent = Agent(name, table.argv, table.prompt or DEFAULT_PROMPT)
    if agent is None:
        known = ", ".join([*PRESETS, *resolved.agents])
        raise CommandError(
            f"no such agent: {name}",
            f"known are {known}; beads-workers.toml can describe it: [agents.{name}] argv = [...]",
            EXIT_USAGE,
        )
    if resolved.options.prompt:
        try:
            agent = replace(agent, prompt=Path(resolved.options.prompt).read_text())
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"the prompt cannot be read: {error}", "", EXIT_USAGE) from None
    return agent


def runnable(
    argv: tuple[str, ...], hint: str = "a shell's own words need a shell: -- sh -c '...'"
) -> tuple[str, ...]:
    """The command with a path that holds from anywhere; raises where it cannot be run."""
    if (why := check_command(argv)) is not None:
        raise CommandError(why, "the issue's text must never be part of a script", EXIT_USAGE)
    program = argv[0]
    if "{" in program:
        return argv  # Known only with the issue.
    if "/" in program:
        program = str(Path(program).expanduser().absolute())
    if shutil.which(program) is None:
        raise CommandError(f"command not found, or not executable: {argv[0]}", hint, EXIT_USAGE)
    return (program, *argv[1:])


def _found() -> str:
    found = find_agents(os.environ.get("PATH", ""))
    return f"agents found here: {', '.join(found) or 'none'}"


def what_to_type() -> str:
    """What gives a fleet something to run."""
    found = find_agents(os.environ.get("PATH", ""))
    if found:
        return f"type 'beads-workers start --agent {found[0]}' (found here: {', '.join(found)})"
    return "type 'beads-workers start -- ./do-issue.sh {id}', with your own command"
