"""The settings of a fleet and a worker at their start: values, passed on as JSON
(``core.plain``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from beads_workers.core import limits
from beads_workers.core.budget import Budget
from beads_workers.core.commit_form import OWN_TRAILERS, CommitForm
from beads_workers.core.model import Filters, value
from beads_workers.core.night import NightSoFar
from beads_workers.core.policy import Policy
from beads_workers.core.scripts import Context, LogRoot

NOTIFY_DESKTOP = "desktop"
"""``--notify desktop``: a notification of the desktop instead of a command."""


@value
class ProbePace:
    """Pace of probes of closed accounts: seconds after a reset (``--reset-grace``), between probes
    (``--probe``), and until nobody is waited for any longer (``--person-wait``)."""

    reset_grace_seconds: float = limits.RESET_GRACE_SECONDS
    probe_seconds: float = limits.PROBE_SECONDS
    person_wait_seconds: float = limits.PERSON_WAIT_SECONDS


@value
class StrongerTry:
    """Maker of the last attempt before an issue is quarantined. ``model``: "" for the agent's
    own."""

    agent: str
    model: str = ""


@value
class Agent:
    """An AI agent: its command line, and the prompt that is piped to it and then closed.

    ``adapter``: one of ``agents.adapters``, which calls the agent and understands its output; ""
    for an unknown command line, whose exit status is all there is. ``argv``: the whole command,
    which may hold placeholders; with an adapter only its program counts, and ``arguments`` come
    behind the adapter's own. ``prompt`` is a template (text, not a path), "" for the usual one.
    ``prices``: by a pattern of models, dollars for a million tokens (input, output, cached input).
    ``account``: whose limits it runs into (``core.accounts``). ``at_once``: how many attempts of it
    may run; None for any number. ``login``: the command that logs it in. ``escalate``: who makes
    the last attempt in its place; ``reserve``: it works only in the place of others, or if an issue
    names it.
    """

    name: str
    argv: tuple[str, ...]
    prompt: str
    adapter: str = ""
    model: str = ""
    arguments: tuple[str, ...] = ()
    prices: Mapping[str, tuple[float, ...]] = field(default_factory=dict, hash=False)
    account: str = ""
    at_once: int | None = None
    login: str = ""
    escalate: StrongerTry | None = None
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


@value
class Worktrees:
    """Settings for a git worktree of each attempt (docs/CLI.md). Paths are absolute.

    ``checkout``: the project's folder in the user's own checkout; ``prefix``: the same, seen from
    the top of the repository (``""`` or ``sub/folder``). ``common``: the repository's common git
    directory. ``base``: resolved to a commit for every attempt; a run that was given none has its
    commit here already, and ``base_name`` says what that was. ``base_else``: the commit to begin
    with while there is no such ``base`` yet. ``remote``: where the newest ``base`` is, "" for here.
    ``beads``: the tracker's ``.beads``, if there is one, for the agent's own ``bd``. ``pool``: how
    many are made ahead; ``setup_reads``: patterns of files that the set-up hook reads, beside the
    known ones. ``reuse``: how many worktrees stay at the end of a run, to be used again; 0: none is
    ever used again. ``trailers``: of commits that we make of what an attempt left
    (``core.commit_form.own_trailers``).
    """

    checkout: str
    prefix: str
    common: str
    folder: str
    state_directory: str
    base: str
    base_name: str
    base_else: str = ""
    remote: str = ""
    setup: str | None = None
    copy: tuple[str, ...] = ()
    disk_floor_bytes: int = limits.DISK_FLOOR_BYTES
    beads: str | None = None
    pool: int = 0
    setup_reads: tuple[str, ...] = ()
    reuse: int = 0
    trailers: tuple[str, ...] = OWN_TRAILERS
    # The user's branch whose commit ``base`` is; "" if HEAD was detached, or a base was named.
    on: str = ""


@value
class Landing:
    """Settings for landing finished branches (docs/LANDING.md).

    ``branch``: the integration branch, which is made from the commit ``start`` if there is none;
    ``follows``: the user's branch whose commits land too, "" for none (detached). ``into``: the
    user's branch that is moved forward after each landing (``--land-into``). ``jobs``: gates that
    run side by side. ``style``: one of ``LANDING_STYLES``. ``after``: a ``sh -c`` line that runs
    after each landing. ``tools``: commands whose output is part of what a kept verdict holds for.
    ``repairs_max``: how often an agent may mend its branch. ``gate_timeout_seconds`` alone rejects
    no branch; a branch without a verdict is tried again over ``gate_retry_seconds``. ``remote``:
    where other clones land, too; None for this repository alone. ``form``: of the messages of
    landed commits.
    """

    branch: str
    start: str
    follows: str = ""
    into: str | None = None
    jobs: int = limits.LAND_JOBS
    style: str = "squash"
    after: str | None = None
    tools: tuple[str, ...] = ()
    repairs_max: int = limits.REPAIRS_MAX
    gate_timeout_seconds: float = limits.GATE_TIMEOUT_SECONDS
    gate_retry_seconds: float = limits.GATE_RETRY_SECONDS
    remote: str | None = None
    form: CommitForm = CommitForm()


LANDING_STYLES = ("squash", "merge", "rebase")


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
class Work:
    """The work of a worker on a task.

    An issue's own command goes first, then ``command``, then one of ``agents``, the first that is
    free unless the issue names one; with none of them only issues that carry a command can be run.
    ``review``: the agent that reviews the work of another; ``fix_rounds``: how often the findings
    of verify and review go back; ``stall_seconds``: silence after which an agent is killed;
    ``continues``: a further attempt goes on in the worktree and session of the one before;
    ``comments``: whose comments are in the prompt; ``overage``: limits may be exceeded at a price.
    ``verify`` (a ``sh -c`` line that the user typed) must also succeed; ``sight``: what it was seen
    to test (``Sight``), "" if nobody wants to know. ``bd_argv`` is set if the worker itself claims
    and closes (``--bd-calls worker``): the program and its fixed options. ``term_grace_seconds``
    lies between TERM and KILL. ``suspends``: a paused worker stops its command (SIGSTOP).
    ``lands``: its branches are to land, so that what a command leaves is committed, and verified by
    the gate. ``worktrees``: None if all tasks run in the project's own folder. ``log_bytes_max``:
    the log of one attempt loses its middle beyond this. ``allow_modules``: Python functions that
    may be called, by the names of their modules or packages. ``executors``: if there are any, every
    worker is a driver of one process of each, which has ``in_flight`` jobs at once; the first one
    is for functions that name none, and ``function`` for issues that name no function.
    ``contexts``: for scripts that come with jobs; ``log_root``: where those may write their logs.
    ``hidden_variables``: of the fleet's environment, which tasks do not inherit: its own secrets.
    ``function_variables``: of the environment of functions. ``functions_ahead`` (``Ahead``): their
    processes are there, and have done that, before READY is said.
    """

    command: tuple[str, ...] | None = None
    agents: tuple[Agent, ...] = ()
    review: Agent | None = None
    fix_rounds: int = 2
    stall_seconds: float | None = limits.STALL_SECONDS
    continues: bool = True
    comments: str = "all"
    overage: bool = False
    verify: str | None = None
    sight: str = ""
    timeout_seconds: float | None = None
    term_grace_seconds: float = limits.TERM_GRACE_SECONDS
    suspends: bool = False
    bd_argv: tuple[str, ...] | None = None
    worktrees: Worktrees | None = None
    lands: bool = False
    log_bytes_max: int = limits.LOG_BYTES_MAX
    allow_modules: tuple[str, ...] = ()
    executors: tuple[Executor, ...] = ()
    in_flight: int = 1
    function: str | None = None
    contexts: tuple[Context, ...] = ()
    log_root: LogRoot | None = None
    hidden_variables: tuple[str, ...] = ()
    function_variables: Mapping[str, str] = field(default_factory=dict, hash=False)
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
    """One worker. ``run_directory`` holds ``logs/`` and ``issues/``; the task runs in ``project``.

    ``actor`` is the run's; a worker that calls ``bd`` itself acts as ``<actor>/<worker_id>``.
    """

    worker_id: str
    socket_path: str
    orchestrator_pid: int
    project: str
    run_id: str
    run_directory: str
    actor: str
    work: Work


@value
class Tracing:
    """Export of a span for each attempt. ``seed``: a text that no other run has.

    ``ratio``: share of the traces that begin here that are recorded; ``follows_parent``: of others,
    those are recorded that their maker records.
    """

    seed: str
    ratio: float = 1.0
    follows_parent: bool = True


@value
class FleetSettings:
    """One run of the orchestrator. Seconds are floats; None means no limit.

    ``source``: a name in ``registry.KINDS``; ``tracker``: the folder ``.beads``, the database file,
    or the state directory. ``quiet``: the client is told the end, and no events.
    ``state_directory``: ``.beads-workers``. ``bd_calls``: ``grouped`` or ``worker``. ``owned``: the
    end of the client's connection is a graceful stop. ``log_directory``: the folder for the
    attempts' logs instead of the run's own. ``argv`` and ``folder``: what was typed after
    ``beads-workers``, and where, for people. ``typed``: the same as options, by their names, so
    that ``restart`` can do it again; None if it was no ``start``. ``workers_max``: more would get
    in each other's way, unless they were asked for explicitly. ``notify``: a ``sh -c`` line that
    the user typed, or ``desktop``. ``keep_runs``: older runs are removed at the start;
    ``journal_bytes_max``: of this run's journal, the oldest part. ``shared``: other orchestrators,
    with state directories of their own, work on the same tracker. ``metrics``: the port of the
    loopback interface on which figures are served; 0: any that is free. ``orphan_grace_seconds``:
    time after its connection for which a worker that is not ours may keep its issue; None: for as
    long as its process lives. ``claims_ahead``: jobs may be taken before a worker is free for them.
    ``awaited``: of a push source, whether publishers wait to be told how each job went.
    ``approve``: a person approves each branch before it lands. ``landing``: None if branches are
    left as they are. ``tracing``: None if no spans are made.
    ``source_options``: what the kind of source needs to be opened (``kinds``); ``source_private``:
    the same, if it may hold a secret, so that only the orchestrator is told. ``start_at`` and
    ``until``: epoch seconds before which, and from which on, no attempt begins.
    """

    workers: int
    source: str
    tracker: str
    project: str
    state_directory: str
    work: Work = field(default_factory=Work)
    filters: Filters = field(default_factory=Filters)
    policy: Policy = field(default_factory=Policy)
    bd_calls: str = "grouped"
    # A call of bd that takes longer is killed; 2 s more for each issue that it names.
    bd_seconds: float = limits.BD_SECONDS
    until_empty: bool = False
    issues_max: int | None = None
    runtime_max_seconds: float | None = None
    start_at: float | None = None
    until: float | None = None
    idle_timeout_seconds: float | None = None
    poll_seconds: float = limits.POLL_SECONDS
    stop_seconds: float = limits.STOP_SECONDS
    orphan_grace_seconds: float | None = limits.ORPHAN_GRACE_SECONDS
    owned: bool = True
    log_directory: str | None = None
    argv: tuple[str, ...] = ()
    folder: str = ""
    typed: Mapping[str, Any] | None = field(default=None, hash=False)
    workers_max: int | None = None
    notify: str | None = None
    keep_runs: int = limits.KEEP_RUNS
    journal_bytes_max: int = limits.JOURNAL_BYTES_MAX
    shared: bool = False
    quiet: bool = False
    source_options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    source_private: Mapping[str, Any] = field(default_factory=dict, hash=False)
    claims_ahead: bool = True
    pace: ProbePace = field(default_factory=ProbePace)
    budget: Budget | None = None
    night: NightSoFar = NightSoFar()
    issue_budget: Budget | None = None
    awaited: bool = True
    approve: bool = False
    landing: Landing | None = None
    metrics: int | None = None
    tracing: Tracing | None = None


def understood(work: Work) -> tuple[str, ...]:
    """Return the names of the working agents with an adapter; none if a command works."""
    return () if work.command else tuple(each.name for each in work.agents if each.adapter)
