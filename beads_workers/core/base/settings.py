"""The settings of a fleet and a worker at their start: values, passed on as JSON
(``core.base.plain``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from beads_workers.core.base import limits
from beads_workers.core.base.budget import Budget
from beads_workers.core.base.commit_form import OWN_TRAILERS, CommitForm
from beads_workers.core.base.model import Filters, value
from beads_workers.core.base.night import NightSoFar
from beads_workers.core.base.option import (
    AGENTS,
    ATTEMPTS,
    BOOLEAN,
    BOTH,
    ENDING,
    FLEET,
    FUNCTIONS,
    INSIDE,
    LANDING,
    REF,
    TEXT,
    TEXTS,
    choice,
    duration,
    flag,
    in_file,
    option,
    whole,
)
from beads_workers.core.base.policy import Policy
from beads_workers.core.base.scripts import Context, LogRoot
from beads_workers.core.base.worlds import WorldRules

NO_LOGIN_AT = "BW_NO_LOGIN_AT"
"""Variable of workers: the addresses at which the git of an agent finds no login."""
NOTIFY_DESKTOP = "desktop"
"""``--notify desktop``: a notification of the desktop instead of a command."""


@value
class ProbePace:
    """Pace of probes of closed accounts."""

    reset_grace_seconds: float = option(
        limits.RESET_GRACE_SECONDS,
        duration(),
        "Wait after a limit's reset; default 30s.",
        panel=AGENTS,
        rare=True,
    )
    probe_seconds: float = option(
        limits.PROBE_SECONDS,
        duration(1),
        "How often a closed account is tried; default 15m.",
        panel=AGENTS,
        rare=True,
    )
    person_wait_seconds: float = option(
        limits.PERSON_WAIT_SECONDS,
        duration(),
        "Wait this long for a person: a login, a landing that is paused; default 12h.",
        panel=AGENTS,
        rare=True,
    )


@value
class StrongerTry:
    """Maker of the last attempt before an issue is quarantined. ``model``: "" for the agent's
    own."""

    agent: str
    model: str = ""


@value
class Agent:
    """An AI agent: its command line, and the prompt that is piped to it and then closed."""

    name: str
    # The whole command, which may hold placeholders; with an adapter only its program counts.
    argv: tuple[str, ...]
    # A template (text, not a path); "" for the usual one.
    prompt: str
    # One of ``agents.adapters``, which calls the agent and understands its output; "" for an
    # unknown command line, whose exit status is all there is.
    adapter: str = ""
    model: str = ""
    # They come behind the adapter's own.
    arguments: tuple[str, ...] = ()
    # By a pattern of models, dollars for a million tokens (input, output, cached input).
    prices: Mapping[str, tuple[float, ...]] = field(default_factory=dict, hash=False)
    # The account whose limits it runs into (``core.schedule.accounts``).
    account: str = ""
    # How many attempts of it may run; None for any number.
    at_once: int | None = None
    # The command that logs it in.
    login: str = ""
    # Who makes the last attempt in its place.
    escalate: StrongerTry | None = None
    # It works only in the place of others, or if an issue names it.
    reserve: bool = False


@value
class Executor:
    """A program that serves functions for us: its command line and protocol.

    ``protocol``: RRQ's: ``rrq``, version 1 on a Unix socket, ``rrq-tcp``, the same on a TCP one, or
    ``rrq2``, version 2 (TCP only). Jobs choose it by ``name``: ``name#function``.
    """

    name: str
    argv: tuple[str, ...]
    protocol: str = "rrq"


def _key(table: str, key: str) -> dict[str, Any]:
    return {"name": f"{table}_{key}", "table": (table, key)}


@value
class WorktreeRules:
    """How a git worktree is made (docs/CLI.md, "Several agents at once")."""

    # A ``sh -c`` line that sets a new worktree up.
    setup: str | None = in_file(None, TEXT, **_key("worktree", "setup"))
    # Patterns of ignored files that are copied from the checkout.
    copy: tuple[str, ...] = in_file((), INSIDE, **_key("worktree", "copy"))
    disk_floor_bytes: int = in_file(
        limits.DISK_FLOOR_BYTES, ("bytes", 0), **_key("worktree", "disk_floor")
    )
    # How many are made ahead.
    pool: int = in_file(0, whole(0, 64), **_key("worktree", "pool"))
    # Patterns of files that the set-up reads, beside the known ones.
    setup_reads: tuple[str, ...] = in_file((), INSIDE, **_key("worktree", "setup_reads"))
    # A sparse checkout of the user's is taken over; else worktrees have all files.
    sparse: bool = in_file(True, BOOLEAN, **_key("worktree", "sparse"))
    worlds: WorldRules = field(default_factory=WorldRules)
    # "push": what an attempt changed inside of submodules is committed there, and pushed to their
    # remotes.
    submodules: str = in_file("refuse", choice("refuse", "push"), **_key("landing", "submodules"))

    @property
    def pushes_submodules(self) -> bool:
        """Whether work inside of submodules is pushed; else it is refused."""
        return self.submodules == "push"


@value
class Worktrees:
    """Settings for a git worktree of each attempt. Paths are absolute."""

    # The project's folder in the user's own checkout.
    checkout: str
    # The same, seen from the top of the repository: ``""`` or ``sub/folder``.
    prefix: str
    # The repository's common git directory.
    common: str
    folder: str
    state_directory: str
    # Resolved to a commit for every attempt. A run that was given none has its commit here already;
    # ``base_name`` says what that was.
    base: str
    base_name: str
    # The commit to begin with while there is no such ``base`` yet.
    base_else: str = ""
    # Where the newest ``base`` is; "" for here. ``base_there``: its name there, if it has another.
    remote: str = ""
    base_there: str = ""
    # The tracker's ``.beads``, if there is one, for the agent's own ``bd``.
    beads: str | None = None
    # How many stay at the end of a run, to be used again; 0: none is ever used again.
    reuse: int = 0
    # Of commits that we make of what an attempt left (``core.base.commit_form.own_trailers``).
    trailers: tuple[str, ...] = OWN_TRAILERS
    # The user's branch whose commit ``base`` is; "" if HEAD was detached, or a base was named.
    on: str = ""
    # The folders that are checked out (``worktrees.sparse``); None for all files.
    cone: tuple[str, ...] | None = None
    rules: WorktreeRules = field(default_factory=WorktreeRules)


LANDING_STYLES = ("squash", "merge", "rebase")
NEVER, AUTO, CHECKS = "never", "auto", "checks"
"""Who merges: people; the forge, once it may; we, once the checks are green."""
MERGES = (NEVER, AUTO, CHECKS)
REMOTE = "origin"
"""Where pull requests go, unless ``[landing] remote`` names another one."""
VIA = ("branch", "pr")
"""How branches land: on an integration branch here, or as pull requests of a forge."""
PER_ISSUE, PER_RUN = "issue", "run"
CI_FILES = (
    *(".github/*", ".gitea/*", ".forgejo/*", ".gitlab-ci.yml", ".woodpecker*", "Jenkinsfile"),
    *("action.yml", "action.yaml", "*/action.yml", "*/action.yaml"),
)
"""Patterns of files that a forge's CI obeys as soon as they are pushed."""


@value
class PullRules:
    """How pull requests are opened and merged (docs/PULLS.md)."""

    per: str = option(
        PER_ISSUE,
        choice(PER_ISSUE, PER_RUN),
        "A pull request for each issue (default), or one for the run.",
        name="pr_per",
        table=("forge", "per"),
        panel=LANDING,
        rare=True,
    )
    # Who merges.
    merge: str = in_file(NEVER, choice(*MERGES), **_key("forge", "merge"))
    # With ``none``, a pull request without any check is merged, too.
    checks: str = in_file("seen", choice("seen", "none"), **_key("forge", "checks"))
    # For how long a run waits for pull requests that are not merged by people.
    wait_seconds: float = in_file(
        limits.CHECKS_WAIT_SECONDS,
        duration(),
        name="forge_checks_wait",
        table=("forge", "checks_wait"),
    )
    look_seconds: float = in_file(
        limits.PULLS_LOOK_SECONDS, duration(1), name="forge_look", table=("forge", "look")
    )
    # How often remarks of reviewers go back to the agent.
    rounds: int = in_file(5, whole(0, 100), **_key("forge", "rounds"))
    open_max: int = in_file(10, whole(1, 1000), **_key("forge", "open_max"))
    draft: bool = in_file(False, BOOLEAN, **_key("forge", "draft"))
    # Of each pull request; a reviewer with a slash is a team.
    labels: tuple[str, ...] = in_file((), TEXTS, **_key("forge", "labels"))
    reviewers: tuple[str, ...] = in_file((), TEXTS, **_key("forge", "reviewers"))
    # Its text says what the issue has cost.
    cost: bool = in_file(False, BOOLEAN, **_key("forge", "pr_cost"))
    # Checks that run once more before a red one counts.
    flaky: tuple[str, ...] = in_file((), TEXTS, **_key("forge", "flaky"))
    # A branch that changes such a file waits for a person before it is pushed.
    guarded: tuple[str, ...] = in_file(CI_FILES, TEXTS, **_key("forge", "guarded"))


@value
class LandingRules:
    """How finished branches land (docs/LANDING.md)."""

    # A person approves each branch before it lands.
    approve: bool = flag(
        "--approve",
        "A finished branch lands once you have approved it.",
        False,
        table=("landing", "approve"),
        panel=LANDING,
    )
    via: str = option(
        "branch",
        choice(*VIA),
        "How work lands: branch (default), or pr: a pull request each.",
        name="land_via",
        table=("landing", "via"),
        panel=LANDING,
        rare=True,
    )
    # The user's branch that is moved forward after each landing.
    into: str | None = option(
        None,
        REF,
        "Fast-forward this branch after each landing.",
        name="land_into",
        metavar="BRANCH",
        table=("landing", "into"),
        panel=LANDING,
        rare=True,
    )
    # Gates that run side by side.
    jobs: int = option(
        limits.LAND_JOBS,
        whole(1, 64),
        "Gates side by side; default 2.",
        name="land_jobs",
        table=("landing", "jobs"),
        panel=LANDING,
        rare=True,
    )
    style: str = in_file("squash", choice(*LANDING_STYLES), **_key("landing", "style"))
    # A ``sh -c`` line that runs after each landing.
    after: str | None = in_file(None, TEXT, **_key("landing", "after"))
    # Commands whose output is part of what a kept verdict holds for.
    tools: tuple[str, ...] = in_file((), TEXTS, **_key("landing", "tools"))
    # Where other clones land, too; None for this repository alone.
    remote: str | None = in_file(None, REF, **_key("landing", "remote"))
    form: CommitForm = field(default_factory=CommitForm)
    pulls: PullRules = field(default_factory=PullRules)
    # How often an agent may mend its branch.
    repairs_max: int = in_file(
        limits.REPAIRS_MAX, whole(0, 100), name="repairs", table=("landing", "repairs")
    )
    # A gate that takes longer rejects no branch by that alone.
    gate_timeout_seconds: float = in_file(
        limits.GATE_TIMEOUT_SECONDS, duration(1), table=("landing", "gate_timeout")
    )
    # A branch without a verdict is tried again over this time.
    gate_retry_seconds: float = in_file(
        limits.GATE_RETRY_SECONDS, duration(1), table=("landing", "gate_retry")
    )


@value
class Landing:
    """Where finished branches land, and how."""

    # The integration branch, which is made from the commit ``start`` if there is none.
    branch: str
    start: str
    # The user's branch whose commits land too, "" for none (detached).
    follows: str = ""
    # Words of agents in messages are broken that a forge would obey.
    defuses: bool = False
    # With pull requests: the remote's branch that they are for, by its full name, as which
    # ``branch`` stands here, and the repository on the forge.
    theirs: str = ""
    forge: Mapping[str, Any] = field(default_factory=dict, hash=False)
    rules: LandingRules = field(default_factory=LandingRules)

    @property
    def proposed_for(self) -> str:
        """The branch that pull requests are for; "" if there are none."""
        name = self.theirs.removeprefix("refs/heads/")
        return name or (self.branch.partition("/")[2] if self.forge else "")

    @property
    def is_proposed_whole(self) -> bool:
        """Whether one pull request has all that lands."""
        return bool(self.forge) and not self.theirs

    @property
    def remote(self) -> str:
        """Where others land, too; "" for this repository alone."""
        return self.rules.remote or (REMOTE if self.theirs else "")


class Sight(StrEnum):
    """The finding on what verify tests (docs/LANDING.md, "What the check sees")."""

    BRANCH = "branch"
    NOTHING = "nothing"
    """Verify passes whatever is in the sources."""
    CHECKOUT = "checkout"
    RED = "red"
    """Verify did not pass on unbroken sources, so it is seen again before something lands."""
    UNKNOWN = "unknown"


class Ahead(StrEnum):
    """Work of a process for functions before the first task comes."""

    MESSAGES = "messages"
    """Set up what tasks of dispatcherd need."""
    MODULES = "modules"
    """Import the modules that may be called."""


@value
class AgentRules:
    """How an agent is asked: what it is shown, and when it is asked again or ended."""

    # How often the findings of verify and review go back.
    fix_rounds: int = option(
        2, whole(0, 20), "How often a failed check goes back to the agent; default 2.", panel=AGENTS
    )
    # Whose comments are in the prompt.
    comments: str = option(
        "all",
        choice("all", "owner", "none"),
        "Comments that agents see: all, owner, none.",
        panel=AGENTS,
    )
    # Silence after which an agent is killed; None: no limit.
    stall_seconds: float | None = option(
        limits.STALL_SECONDS,
        duration(1),
        "End an agent that prints nothing for this long; default 15m.",
        panel=AGENTS,
        rare=True,
    )
    # Limits may be exceeded at a price.
    overage: bool = flag(
        "--overage", "Go on beyond limits where that is paid for.", False, panel=AGENTS
    )


@value
class Work:
    """The work of a worker on a task.

    An issue's own command goes first, then ``command``, then one of ``agents``, the first that is
    free unless the issue names one; with none of them only issues that carry a command can be run.
    """

    command: tuple[str, ...] | None = None
    agents: tuple[Agent, ...] = ()
    # The agent that reviews the work of another.
    review: Agent | None = None
    asking: AgentRules = field(default_factory=AgentRules)
    # A further attempt goes on in the worktree and session of the one before.
    continues: bool = True
    # A ``sh -c`` line that must succeed as well.
    verify: str | None = option(
        None,
        TEXT,
        "Shell line that must succeed before an issue is closed.",
        at=BOTH,
        metavar="CMD",
    )
    # What verify was seen to test (``Sight``), "" if nobody wants to know.
    sight: str = ""
    timeout_seconds: float | None = option(
        None, duration(0.001), "Time limit of one attempt: 90s, 30m, 2h."
    )
    term_grace_seconds: float = option(
        limits.TERM_GRACE_SECONDS,
        duration(),
        "Time between TERM and KILL; default 5s.",
        panel=ATTEMPTS,
        rare=True,
    )
    # A paused worker stops its command (SIGSTOP).
    suspends: bool = flag(
        "--suspend",
        "'pause W1' stops its command too (SIGSTOP).",
        False,
        name="suspend",
        panel=ATTEMPTS,
        rare=True,
    )
    # Set if the worker itself claims and closes (``--bd-calls worker``): the program and its fixed
    # options.
    bd_argv: tuple[str, ...] | None = None
    # None if all tasks run in the project's own folder.
    worktrees: Worktrees | None = None
    # Its branches are to land: what a command leaves is committed, and verified by the gate.
    lands: bool = False
    # The log of one attempt loses its middle beyond this.
    log_bytes_max: int = in_file(
        limits.LOG_BYTES_MAX, ("bytes", limits.LOG_BYTES_MIN), name="log_max"
    )
    # Python functions that may be called, by the names of their modules or packages.
    allow_modules: tuple[str, ...] = option(
        (),
        ("modules",),
        "Issues may call what is in this module or package.",
        name="allow_module",
        at=BOTH,
        metavar="NAME",
        panel=FUNCTIONS,
    )
    # If there are any, every worker is a driver of one process of each. The first one is for
    # functions that name none.
    executors: tuple[Executor, ...] = ()
    # Jobs that a driver has at once.
    in_flight: int = option(
        1,
        whole(1, limits.IN_FLIGHT_MAX),
        "Requests at once in each executor; default 1.",
        panel=FUNCTIONS,
        rare=True,
    )
    # For issues that name no function.
    function: str | None = option(
        None, TEXT, "Called for issues that name no function.", metavar="NAME", panel=FUNCTIONS
    )
    # For scripts that come with jobs.
    contexts: tuple[Context, ...] = ()
    # Where those scripts may write their logs.
    log_root: LogRoot | None = None
    # Of the fleet's environment, which tasks do not inherit: its own secrets.
    hidden_variables: tuple[str, ...] = ()
    # Of the environment of functions.
    function_variables: Mapping[str, str] = field(default_factory=dict, hash=False)
    # What their processes have done before READY is said (``Ahead``).
    functions_ahead: str = ""

    @property
    def independent(self) -> bool:
        """Whether verify passes whatever is in the sources."""
        return self.sight == Sight.NOTHING

    @property
    def agent(self) -> Agent | None:
        """The agent of issues that name none."""
        return self.agents[0] if self.agents else None

    @property
    def reads_issues(self) -> bool:
        """Whether whole issues are wanted: an agent is told all that the tracker knows."""
        return not self.command and any(agent.adapter for agent in self.agents)

    @property
    def prefetch_count(self) -> int:
        """Number of tasks that a worker, or a slot of a driver, prefetches beside its current one.
        Functions may take less time than their way here."""
        alone = self.bd_argv or self.worktrees or self.verify
        calls = self.allow_modules or self.executors
        return limits.PREFETCH_MAX if calls and not alone else 0


@value
class WorkerSettings:
    """One worker."""

    worker_id: str
    socket_path: str
    orchestrator_pid: int
    # The folder in which the task runs.
    project: str
    run_id: str
    # It holds ``logs/`` and ``issues/``.
    run_directory: str
    # The run's; a worker that calls ``bd`` itself acts as ``<actor>/<worker_id>``.
    actor: str
    work: Work
    # Where its attempts run; None for this machine.
    place: PlaceSettings | None = None
    # The machine that this is for, if that is not home.
    host: str = ""
    # Variables with tokens of the source: nothing that the worker starts gets them.
    secrets: tuple[str, ...] = ()


@value
class Tracing:
    """Export of a span for each attempt."""

    # A text that no other run has.
    seed: str
    # Share of the traces that begin here that are recorded.
    ratio: float = 1.0
    # Of other traces, those are recorded that their maker records.
    follows_parent: bool = True


@value
class EndRules:
    """When a run ends by itself, and how long that may take. None means no limit."""

    until_empty: bool = flag("--until-empty", "End when nothing is left to do.", False)
    issues_max: int | None = option(
        None, whole(1, 1_000_000_000), "End after this many issues.", name="limit", panel=ENDING
    )
    runtime_max_seconds: float | None = option(
        None, duration(0.001), "End after this long.", name="max_runtime", panel=ENDING
    )
    idle_timeout_seconds: float | None = option(
        None, duration(0.001), "End when idle for this long.", panel=ENDING
    )
    stop_seconds: float = option(
        limits.STOP_SECONDS,
        duration(),
        "Time that workers have to leave; default 10s.",
        name="stop_timeout",
        panel=ENDING,
        rare=True,
    )


@value
class TrackerRules:
    """How the tracker is called."""

    bd_calls: str = option(
        "grouped",
        choice("grouped", "worker"),
        "Calls to bd: grouped (by the fleet), or worker (by each worker).",
        panel=ATTEMPTS,
        rare=True,
    )
    # A call of bd that takes longer is killed; 2 s more for each issue that it names.
    bd_seconds: float = option(
        limits.BD_SECONDS,
        duration(1),
        "End a call of bd that takes longer, 2s more for each issue in it; default 1m.",
        name="bd_timeout",
        panel=FLEET,
        rare=True,
    )
    poll_seconds: float = option(
        limits.POLL_SECONDS,
        duration(0.05),
        "How often to look for new issues; default 5s.",
        panel=FLEET,
        rare=True,
    )
    # ``sh -c`` lines that bring the tracker to where a team has its issues, and back.
    before: str | None = in_file(None, TEXT, name="tracker_before", table=("tracker", "before"))
    after: str | None = in_file(None, TEXT, name="tracker_after", table=("tracker", "after"))
    every_seconds: float = in_file(
        limits.TRACKER_SYNC_SECONDS, duration(1), name="tracker_every", table=("tracker", "every")
    )
    # Other orchestrators, with state directories of their own, work on the same tracker.
    shared: bool = flag(
        "--shared",
        "Share the tracker with other orchestrators; each has its own --state-dir.",
        False,
        panel=FLEET,
    )


@value
class Upkeep:
    """What a run keeps, and whom it tells."""

    # The folder for the attempts' logs instead of the run's own.
    log_directory: str | None = in_file(
        None, TEXT, name="log_dir", path=True, variable="BEADS_WORKERS_LOG_DIR"
    )
    # A ``sh -c`` line that the user typed, or ``desktop``.
    notify: str | None = option(
        None,
        TEXT,
        "sh -c line run when an issue is quarantined, the fleet pauses or has ended, or the "
        "tracker fails; or 'desktop'.",
        metavar="CMD",
        panel=FLEET,
    )
    # Older runs are removed at the start.
    keep_runs: int = in_file(limits.KEEP_RUNS, whole(1, 1_000_000))
    # Of this run's journal, the oldest part goes beyond this.
    journal_bytes_max: int = in_file(
        limits.JOURNAL_BYTES_MAX, ("bytes", limits.JOURNAL_BYTES_MIN), name="journal_max"
    )
    # The port of the loopback interface on which figures are served; 0: any that is free.
    metrics: int | None = option(
        None, ("port", "PORT"), "Serve Prometheus metrics; 0: any free port.", panel=FLEET
    )


@value
class PlaceSettings:
    """Other machines on which attempts run, reached by an engine (``registry.PLACES``)."""

    name: str
    engine: str
    # How many attempts it may have at once.
    slots: int
    # Host, cluster or partition, as the engine wants it; "" for its own choice.
    address: str = ""
    # The Python of the engine's library; "" for ours.
    python: str = ""
    # For each attempt, by the engine's own names.
    resources: Mapping[str, float] = field(default_factory=dict, hash=False)
    lease_seconds: float = limits.AWAY_LEASE_SECONDS
    # A cluster that anybody on its network may use is used all the same.
    insecure: bool = False


@value
class FleetSettings:
    """One run of the orchestrator. Seconds are floats; None means no limit."""

    # Those of ``places`` among them.
    workers: int
    # A name in ``registry.KINDS``.
    source: str
    # The folder ``.beads``, the database file, or the state directory.
    tracker: str
    project: str
    # ``.beads-workers``
    state_directory: str
    work: Work = field(default_factory=Work)
    filters: Filters = field(default_factory=Filters)
    policy: Policy = field(default_factory=Policy)
    ending: EndRules = field(default_factory=EndRules)
    tracking: TrackerRules = field(default_factory=TrackerRules)
    upkeep: Upkeep = field(default_factory=Upkeep)
    pace: ProbePace = field(default_factory=ProbePace)
    # Epoch seconds before which, and from which on, no attempt begins.
    start_at: float | None = None
    until: float | None = None
    # Time after its connection for which a worker that is not ours may keep its issue; None: for as
    # long as its process lives.
    orphan_grace_seconds: float | None = limits.ORPHAN_GRACE_SECONDS
    # The end of the client's connection is a graceful stop.
    owned: bool = True
    # What was typed after ``beads-workers``, and where, for people.
    argv: tuple[str, ...] = ()
    folder: str = ""
    # The same as options, by their names, so that ``restart`` can do it again; None if it was no
    # ``start``. Later versions read it, whatever becomes of the other fields.
    typed: Mapping[str, Any] | None = field(default=None, hash=False)
    # More would get in each other's way, unless they were asked for explicitly.
    workers_max: int | None = None
    # The client is told the end, and no events.
    quiet: bool = False
    # What the kind of source needs to be opened (``kinds``).
    source_options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    # The same, if it may hold a secret, so that only the orchestrator is told.
    source_private: Mapping[str, Any] = field(default_factory=dict, hash=False)
    # Jobs may be taken before a worker is free for them.
    claims_ahead: bool = True
    budget: Budget | None = None
    night: NightSoFar = NightSoFar()
    issue_budget: Budget | None = None
    # Of a push source, whether publishers wait to be told how each job went.
    awaited: bool = True
    # None if branches are left as they are.
    landing: Landing | None = None
    # None if no spans are made.
    tracing: Tracing | None = None
    places: tuple[PlaceSettings, ...] = ()

    @property
    def workers_here(self) -> int:
        """Number of workers whose attempts run on this machine."""
        return self.workers - sum(place.slots for place in self.places)

    def slots(self) -> Iterator[str]:
        """Yield the place of each worker, "" for this machine; these come first."""
        yield from [""] * self.workers_here
        for place in self.places:
            yield from [place.name] * place.slots

    @property
    def approves(self) -> bool:
        """Whether a person approves each branch before it lands."""
        return self.landing is not None and self.landing.rules.approve


def understood(work: Work) -> tuple[str, ...]:
    """Return the names of the working agents with an adapter; none if a command works."""
    return () if work.command else tuple(each.name for each in work.agents if each.adapter)
