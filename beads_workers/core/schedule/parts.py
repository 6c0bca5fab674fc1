"""The parts of one orchestrator, made together and handed to the classes that tie them."""

from __future__ import annotations

from dataclasses import dataclass, field

from beads_workers.core.base.settings import FleetSettings
from beads_workers.core.base.states import IssueState, RunState
from beads_workers.core.base.traces import Traces
from beads_workers.core.records.journal import Listed
from beads_workers.core.schedule.agent_work import AgentWork
from beads_workers.core.schedule.connection_registry import ConnectionRegistry
from beads_workers.core.schedule.effects import Effects
from beads_workers.core.schedule.inflight import Leases, Tasks
from beads_workers.core.schedule.landings import Landings
from beads_workers.core.schedule.questions import Questions
from beads_workers.core.schedule.retry import (
    AlikeFailures,
    CircuitBreaker,
    PreparationBrake,
    RetryState,
)
from beads_workers.core.schedule.round_trips import RoundTrips
from beads_workers.core.schedule.supervisor import DegradedConditions, Supervisor


@dataclass(slots=True)
class Parts:
    """The parts of one orchestrator, and the state of its run."""

    settings: FleetSettings
    run_id: str
    # On this source a plain v1 worker claims and closes by itself.
    self_claiming: bool
    # A push source: work arrives by itself, and a publisher waits for its answer.
    push: bool
    effects: Effects
    registry: ConnectionRegistry
    supervisor: Supervisor
    round_trips: RoundTrips
    retry_state: RetryState
    breaker: CircuitBreaker
    preparation: PreparationBrake
    agents: AgentWork
    tasks: Tasks
    traces: Traces
    degraded: DegradedConditions
    leases: Leases
    landings: Landings
    questions: Questions
    # The state of the run, changed only by ``Ending``.
    state: RunState = RunState.RECOVERING
    # Why the run is in this state.
    state_reason: str = ""
    recovered: bool = False
    """Whether what earlier runs left is in our journal: only then is the tracker asked for more."""
    # The reason of the coming SHUTDOWN.
    reason: str = "user_requested"
    # The last listing; kept by ``ClaimScheduler``.
    listed: Listed = field(default_factory=Listed)

    def slots(self) -> int:
        """Return how many workers could have a task, those that are still starting included."""
        return _slots(self.registry, self.supervisor)


def _slots(registry: ConnectionRegistry, supervisor: Supervisor) -> int:
    return max(registry.slots(), supervisor.wanted() - registry.idle_paused(own=True))


def make_parts(
    settings: FleetSettings,
    run_id: str,
    now: float,
    epoch: float,
    boot: float | None,
    *,
    self_claiming: bool,
    push: bool,
) -> Parts:
    """Return the parts of an orchestrator, new and empty."""
    effects = Effects(now, epoch, boot)
    round_trips = RoundTrips(effects, push=push)
    retry_state = RetryState(effects, round_trips)
    breaker = CircuitBreaker(retry_state)
    preparation = PreparationBrake(effects)
    traces = Traces(settings.tracing, keeps=not settings.policy.hand_back)
    registry, supervisor = ConnectionRegistry(), Supervisor(effects)

    def slots() -> int:
        # A worker that is lost has no slot, and may be at work.
        orphaned = effects.issues.count(IssueState.ORPHANED)
        return _slots(registry, supervisor) + orphaned

    agents = AgentWork(effects, settings, slots, AlikeFailures(retry_state), run_id)
    history = retry_state, breaker, preparation, traces, agents
    lands = settings.landing is not None
    tasks = Tasks(
        effects,
        round_trips,
        *history,
        settings.policy,
        run_id,
        lands=lands,
        approves=settings.approves,
    )
    landings = Landings(effects, tasks, round_trips, settings)
    tasks.land_by(landings.add)
    return Parts(
        settings,
        run_id,
        self_claiming,
        push,
        effects,
        registry,
        supervisor,
        round_trips,
        retry_state,
        breaker,
        preparation,
        agents,
        tasks,
        traces,
        DegradedConditions(effects),
        Leases(effects, tasks, settings.work.term_grace_seconds),
        landings,
        Questions(effects, retry_state, round_trips),
    )
