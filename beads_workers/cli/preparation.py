"""From options to the settings of a fleet: which tracker, which command, and is it all there."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from beads_workers.agents.adapter import load
from beads_workers.agents.presets import find_agents
from beads_workers.cli.agents import find_agent, find_fleet_agents, found_here, in_worktree
from beads_workers.cli.client import project_here
from beads_workers.cli.config import Resolved
from beads_workers.cli.errors import EXIT_TRACKER, EXIT_USAGE, CommandError
from beads_workers.cli.kinds import kind_said, need
from beads_workers.cli.landing import with_landing
from beads_workers.cli.options import Options, seconds_or_never
from beads_workers.core import limits
from beads_workers.core.budget import Budget, read_budget
from beads_workers.core.model import COMMAND, FUNCTION, Filters
from beads_workers.core.policy import Policy
from beads_workers.core.settings import (
    NOTIFY_DESKTOP,
    Agent,
    FleetSettings,
    ProbePace,
    Tracing,
    Work,
    Worktrees,
)
from beads_workers.core.source import SourceError
from beads_workers.core.text import printable
from beads_workers.executors.command import NAMES, check_command, unsafe_script
from beads_workers.kinds import SourceKind
from beads_workers.registry import kind_of, kinds, service
from beads_workers.runtime.project import STATE_FOLDER, Project
from beads_workers.worktrees.git import BRANCHES, GitError, git
from beads_workers.worktrees.making import matching, resolve_base
from beads_workers.worktrees.places import default_folder

if TYPE_CHECKING:
    import sqlite3


# --- shared checkouts ----------------------------------------------------------------------------
# ``--shared``: what must hold before several orchestrators work on one tracker.


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


# --- allowed modules -----------------------------------------------------------------------------
# ``--allow-module``: whether functions could be called as it says, before a fleet is started.


def check_modules(options: Options, folder: Path) -> None:
    """Raises ``CommandError`` where they could not: each call would quarantine its issue."""
    from beads_workers.executors.functions import is_there

    if options.allow_module and options.worktree:
        raise CommandError(
            "--allow-module and --worktree do not go together",
            "functions are called in the project's own folder; start two fleets",
            EXIT_USAGE,
        )
    for module in options.allow_module or ():
        if not is_there(module, str(folder)):
            raise CommandError(
                f"--allow-module {module}: there is no such module in {folder}",
                f"nor is it installed for {sys.executable}",
                EXIT_USAGE,
            )


def shown_functions(work: Work) -> str:
    """What of an issue's functions is called; "" where none is."""
    modules = ", ".join(work.allow_modules)
    return f"the function of {modules} that an issue names" if modules else ""


def to_bring(work: Work) -> tuple[str, ...]:
    """What an issue must bring, any of it, for a fleet that has nothing of its own to run: others
    are not for it, and are left alone."""
    if work.executors:
        return () if work.function else (FUNCTION,)
    if work.command or work.agent or work.contexts:
        return ()
    return (FUNCTION, COMMAND) if work.allow_modules else (COMMAND,)


# --- embedded work -------------------------------------------------------------------------------
# What the issues of the embedded tracker bring along to be run.


def commands_of_issues(tracker: TrackerChoice) -> int:
    """How many issues that are not closed have a command of their own."""
    if tracker.source != "sqlite":
        return 0
    from beads_workers.trackers.sqlite.store import count_commands

    with _embedded(tracker) as connection:
        return count_commands(connection)


def check_commands(tracker: TrackerChoice, brought: int, options: Options) -> None:
    """Raise ``CommandError`` where issues' commands came with the repository, unless that is said
    to be right: a tracker of one's own making is no part of it."""
    if not brought or options.issue_commands:
        return
    from beads_workers.worktrees.git import GitError, git

    try:
        git(str(tracker.place.parent), "ls-files", "--error-unmatch", "--", tracker.place.name)
    except GitError:
        return
    bring = "issue brings a command" if brought == 1 else "issues bring commands"
    raise CommandError(
        f"{brought} {bring}, and {printable(str(tracker.place))} is committed to git: whoever"
        " writes to the repository would decide what runs here",
        "look at them ('beads-workers list --json'); then --issue-commands, or git rm --cached",
        EXIT_USAGE,
    )


def allow_functions(tracker: TrackerChoice) -> str:
    """What has the functions called that issues name; "" where none does."""
    if kind_of(tracker.source).capabilities.push:
        return "name the modules of the tasks: --allow-module MODULE; or type a command behind --"
    if tracker.source != "sqlite":
        return ""
    from beads_workers.trackers.sqlite.store import a_function

    with _embedded(tracker) as connection:
        path = printable(a_function(connection), 60)
    if not path or "#" in path:  # Of an RRQ executor: it is that which calls it.
        return ""
    return f"to call {path}: beads-workers start --allow-module {path.partition('.')[0]}"


@contextlib.contextmanager
def _embedded(tracker: TrackerChoice) -> Iterator[sqlite3.Connection]:
    from beads_workers.trackers.sqlite.store import connect

    try:
        with contextlib.closing(connect(tracker.place)) as connection:
            yield connection
    except SourceError as error:
        raise CommandError(str(error), error.hint, EXIT_TRACKER) from None


# --- worktree checks -----------------------------------------------------------------------------
# ``--worktree`` and ``--shared-checkout``: what must hold before a fleet starts with them.


def apart(settings: FleetSettings, options: Options) -> FleetSettings:
    """The settings with what keeps attempts out of each other's way; raises ``CommandError``."""
    beads = settings.tracker if settings.source == "bd" else None
    place = Path(settings.project), settings.state_directory
    work = in_worktrees(settings.work, options, *place, beads)
    apart = replace(settings, work=work, workers_max=check_crowd(work, options))
    return with_landing(apart, options)


def in_worktrees(
    work: Work, options: Options, project: Path, state_directory: str, beads: str | None
) -> Work:
    """The work with its worktrees, where they are asked for; raises ``CommandError``."""
    wanted = options.worktree
    if wanted is None and not options.shared_checkout:
        # An agent that is understood gets a place of its own wherever git can make one.
        wanted = any(agent.adapter for agent in work.agents) and _is_repository(project)
    if not wanted:
        return work
    work = replace(work, agents=tuple(map(in_worktree, work.agents)))
    worktrees = find_worktrees(options, project, state_directory)
    for pattern in worktrees.copy:
        if not matching(worktrees, pattern):
            text = f"warning: [worktree] copy: nothing that git ignores matches {pattern}"
            print(printable(text), file=sys.stderr)
    return replace(work, worktrees=replace(worktrees, beads=beads))


def find_worktrees(options: Options, project: Path, state_directory: str) -> Worktrees:
    """Where worktrees are made from and to; raises ``CommandError`` where none can be made."""
    top, prefix, common = _repository(project)
    base = options.worktree_base or "HEAD"
    commit = _base(project, base, named=options.worktree_base is not None)
    if _git(project, "for-each-ref", "--format=%(refname)", f"refs/heads/{BRANCHES}").split() == [
        f"refs/heads/{BRANCHES}"
    ]:
        raise CommandError(
            f"a branch named {BRANCHES} is in the way of {BRANCHES}/<issue>/<attempt>",
            f"rename it: git branch -m {BRANCHES} another-name",
            EXIT_USAGE,
        )
    folder = options.worktree_folder
    if folder:
        _check_folder(Path(folder), top)
    else:
        folder = str(default_folder(project, Path(top), Path(state_directory).absolute()))
    assert options.worktree_disk_floor is not None, "resolve() fills in every default"
    return Worktrees(
        checkout=str(project),
        prefix=prefix,
        common=common,
        folder=folder,
        state_directory=str(Path(state_directory).absolute()),
        # What nobody named is what is checked out now, for all attempts of this run alike.
        base=options.worktree_base or commit,
        base_name=base,
        setup=options.worktree_setup,
        copy=options.worktree_copy or (),
        disk_floor_bytes=options.worktree_disk_floor,
        pool=options.worktree_pool or 0,
        setup_reads=options.worktree_setup_reads or (),
    )


def check_crowd(work: Work, options: Options) -> int | None:
    """How many workers may share the checkout: any number, or one agent alone.

    Raises ``CommandError`` where more are asked for: agents in one folder overwrite each other.
    """
    if work.agent is None or work.worktrees is not None or options.shared_checkout:
        return None
    if (options.workers or 0) > 1:
        raise CommandError(
            f"{options.workers} agents in one checkout would overwrite each other's work",
            "--worktree gives each attempt its own git worktree; --shared-checkout takes the"
            " risk; or have one worker: -n 1",
            EXIT_USAGE,
        )
    return 1


def shown_place(settings: FleetSettings) -> str:
    """Where tasks run."""
    worktrees = settings.work.worktrees
    if worktrees is None:
        return settings.project
    base = worktrees.base_name
    if worktrees.base_else:
        base = f"{base}, where they land"
    elif worktrees.base != base:
        base = f"{base} ({worktrees.base[:12]})"
    name = f"{BRANCHES}/<issue>/<attempt>"
    below = f"/{worktrees.prefix.rstrip('/')}" if worktrees.prefix else ""
    return f"{worktrees.folder}/<issue>.<attempt>{below}, a worktree on {name} from {base}"


def _is_repository(project: Path) -> bool:
    """Whether a worktree can be made of it: a checkout with a commit."""
    try:
        return bool(git(str(project), "rev-parse", "--verify", "--quiet", "HEAD^{commit}").strip())
    except GitError:
        return False


def _repository(project: Path) -> tuple[str, str, str]:
    try:
        bare, inside = git(
            str(project), "rev-parse", "--is-bare-repository", "--is-inside-work-tree"
        ).split()
    except GitError as error:
        raise CommandError(
            f"--worktree needs a git repository: {error}",
            f"run 'git init' in {project} and commit, or leave --worktree out",
            EXIT_USAGE,
        ) from None
    if bare == "true" or inside != "true":
        raise CommandError(
            f"--worktree needs a checkout, and {project} is in a bare repository",
            "put the tracker into a checkout of it: git worktree add FOLDER BRANCH",
            EXIT_USAGE,
        )
    options = ("--path-format=absolute", "--show-toplevel", "--git-common-dir", "--show-prefix")
    top, common, prefix = _git(project, "rev-parse", *options).split("\n")[:3]
    return top, prefix, common


def _base(project: Path, base: str, *, named: bool) -> str:
    try:
        return resolve_base(str(project), base)
    except GitError as error:
        if named:
            message = f"no such base for worktrees: {base}"
            hint = f"[worktree] base is a branch, a tag or a commit; git says: {error}"
        else:
            message = "--worktree needs a commit to begin with, and this repository has none"
            hint = "git add the files and git commit them first"
        raise CommandError(message, hint, EXIT_USAGE) from None


def _check_folder(folder: Path, top: str) -> None:
    if not folder.resolve().is_relative_to(Path(top).resolve()):
        return
    try:
        git(top, "check-ignore", "--quiet", "--no-index", str(folder / "x"))
    except GitError:
        raise CommandError(
            f"worktrees in {folder} would show up in the checkout's 'git status'",
            "name a folder that git ignores, or one outside of the checkout",
            EXIT_USAGE,
        ) from None


def _git(project: Path, *arguments: str) -> str:
    try:
        return git(str(project), *arguments)
    except GitError as error:
        raise CommandError(f"git: {error}", "", EXIT_USAGE) from None


# --- preparation ---------------------------------------------------------------------------------
# From options to the settings of a fleet: which tracker, which command, and is it all there.


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TrackerChoice:
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
    resolved: Resolved, tracker: TrackerChoice, work: Work, issues: tuple[str, ...], *, owned: bool
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
            hold_discovered=work.reads_issues and options.discovered != "take",
        ),
        policy=_policy(resolved),
        bd_calls=options.bd_calls or "grouped",
        until_empty=bool(options.until_empty),
        issues_max=options.limit,
        runtime_max_seconds=options.max_runtime,
        idle_timeout_seconds=options.idle_timeout,
        poll_seconds=_known(options.poll),
        stop_seconds=_known(options.stop_timeout),
        orphan_grace_seconds=seconds_or_never(_known(options.orphan_grace)),
        owned=owned,
        log_directory=options.log_dir,
        argv=tuple(sys.argv[1:]),
        folder=str(Path.cwd()),
        notify=_notify(options.notify),
        keep_runs=_known(options.keep_runs),
        journal_bytes_max=_known(options.journal_max),
        shared=bool(options.shared),
        metrics=options.metrics,
        tracing=find_tracing(options.trace),
        source_options=tracker.options,
        pace=ProbePace(
            reset_grace_seconds=_known(options.reset_grace),
            probe_seconds=_known(options.probe),
            person_wait_seconds=_known(options.person_wait),
        ),
        budget=_budget(options.budget, work.agents),
        issue_budget=_budget(options.issue_budget, work.agents),
    )


def _budget(text: str | None, agents: tuple[Agent, ...]) -> Budget | None:
    """Raises ``CommandError`` for dollars where an agent says none, and has no prices."""
    if text is None:
        return None
    budget = read_budget(text)
    for agent in agents if budget.dollars is not None else ():
        adapter = load(agent.adapter) if agent.adapter else None
        if not agent.prices and (adapter is None or not adapter.tells_money):
            raise CommandError(
                f"a budget in dollars, and nobody knows what {agent.name} costs",
                f'give [agents.{agent.name}] prices = {{ "*" = [1.25, 10, 0.125] }}'
                " in beads-workers.toml (dollars for a million tokens: input, output, cached"
                " input), or a budget in tokens: 5Mtok",
                EXIT_USAGE,
            )
    return budget


def find_tracker(source: str | None) -> TrackerChoice:
    """The tracker that is said, or that of this folder or of the nearest one above with one."""
    kind = kind_said(source)
    if kind is not None and kind.locate is not None:
        return _located(kind, str(source))
    project = project_here()
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
    return TrackerChoice(found, place, project.folder, project.tracker if both else None)


def _located(kind: SourceKind, source: str) -> TrackerChoice:
    assert kind.locate is not None
    try:
        found = kind.locate(source, Path.cwd())
    except SourceError as error:
        raise CommandError(f"--source: {error}", error.hint, EXIT_TRACKER) from None
    return TrackerChoice(kind.name, found.place, found.folder, options=found.options)


def find_work(resolved: Resolved, tracker: TrackerChoice) -> Work:
    """What is run; nothing that costs money is ever run unasked."""
    options = resolved.options
    if options.executor:
        work: Work = need("executors").find_executors(options, runnable)
        return replace(
            work,
            term_grace_seconds=_known(options.term_grace),
            log_bytes_max=_known(options.log_max),
        )
    command, agents = choose_work(resolved)
    check_modules(options, tracker.folder)
    brought = commands_of_issues(tracker)
    check_commands(tracker, brought, options)
    if not (command or agents or options.allow_module or brought):
        hint = allow_functions(tracker) or what_to_type()
        raise CommandError("nothing to run: no command and no agent", hint, EXIT_USAGE)
    if command is not None:
        command = runnable(command)
    review = find_agent(resolved, options.review) if options.review and agents else None
    return Work(
        command=command,
        agents=tuple(map(_installed, agents)),
        review=_installed(review) if review else None,
        fix_rounds=_known(options.fix_rounds),
        stall_seconds=options.stall,
        continues=options.retry != "fresh",
        comments=_known(options.comments),
        overage=bool(options.overage),
        verify=options.verify,
        timeout_seconds=options.timeout,
        term_grace_seconds=_known(options.term_grace),
        suspends=bool(options.suspend),
        log_bytes_max=_known(options.log_max),
        allow_modules=_known(options.allow_module),
    )


def _installed(agent: Agent) -> Agent:
    return replace(agent, argv=runnable(agent.argv, f"install {agent.name}; {found_here()}"))


def choose_work(resolved: Resolved) -> tuple[tuple[str, ...] | None, tuple[Agent, ...]]:
    """The command or the agents that hold, or neither; whether they can be run is not looked at."""
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
    return command, find_fleet_agents(resolved) if name else ()


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
    if command and (why := unsafe_script(("sh", "-c", command))) is not None:
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


def runnable(
    argv: tuple[str, ...], hint: str = "a shell's own words need a shell: -- sh -c '...'"
) -> tuple[str, ...]:
    """The command with a path that holds from anywhere; raises where it cannot be run."""
    if (why := unsafe_script(argv)) is not None:
        raise CommandError(why, "the issue's text must never be part of a script", EXIT_USAGE)
    if (slip := check_command(argv)) is not None:
        known = ", ".join(f"{{{name}}}" for name in NAMES)
        raise CommandError(slip, f"these are replaced: {known}", EXIT_USAGE)
    program = argv[0]
    if "{" in program:
        return argv  # Known only with the issue.
    if "/" in program:
        program = str(Path(program).expanduser().absolute())
    if shutil.which(program) is None:
        raise CommandError(f"command not found, or not executable: {argv[0]}", hint, EXIT_USAGE)
    return (program, *argv[1:])


def what_to_type() -> str:
    """What gives a fleet something to run."""
    found = find_agents(os.environ.get("PATH", ""))
    if found:
        return f"type 'beads-workers start --agent {found[0]}' (found here: {', '.join(found)})"
    return "type 'beads-workers start -- ./do-issue.sh {id}', with your own command"


def find_tracing(asked: bool | None) -> Tracing | None:
    """How spans are made; None where they are not, or cannot be and nobody asked for them."""
    if asked is None and service("tracing") is None:
        return None
    found: Tracing | None = need("tracing").tracing(asked, os.environ)
    return found


def tracing_lines(tracing: Tracing | None) -> list[tuple[str, str]]:
    """What is said of spans before a fleet starts: names, and texts."""
    return need("tracing").lines(tracing) if tracing is not None else []
