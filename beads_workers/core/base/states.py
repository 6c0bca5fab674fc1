"""Every state and every move, as total tables; ``docs/internals/STATES.md`` is made from them.

Every pair of state and stimulus is decided on purpose. ``python -m beads_workers.core.base.states``
prints the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Generic, TypeVar

from beads_workers.core.base.model import value

# --- moves ---------------------------------------------------------------------------------------
# The elements of every state table: moves, totality, and the look-up.


S = TypeVar("S", bound=Enum)
T = TypeVar("T", bound=Enum)
R = TypeVar("R", bound=Enum)


class Key(Enum):
    """Base of states and stimuli: every message looks some up, a dozen times.

    A member is equal to itself only, so its identity will do for a hash; ``Enum`` would hash its
    name, in Python code.
    """

    __hash__ = object.__hash__


@value
class Move(Generic[S, R]):
    """The next state of a stimulus, and the reaction on the way; ``bug``: the pair is
    impossible."""

    to: S
    reaction: R
    bug: bool = False


Table = Mapping[tuple[S, T], Move[S, R]]


class ImpossibleMove(AssertionError):
    """A bug of ours: a pair that the table calls impossible."""


def step(table: Table[S, T, R], state: S, stimulus: T) -> Move[S, R]:
    """Look up a move; raise ``ImpossibleMove`` for a pair that the table rules out."""
    move = table[state, stimulus]
    if move.bug:
        raise ImpossibleMove(f"{stimulus} in {state}")
    return move


def total(
    table: dict[tuple[S, T], Move[S, R]], states: type[S], stimuli: type[T], bug: R
) -> Table[S, T, R]:
    """Return the table with every pair that is not listed as a bug of ours, said explicitly."""
    return {
        (state, stimulus): table.get((state, stimulus), Move(state, bug, bug=True))
        for state in states
        for stimulus in stimuli
    }


# --- worker states -------------------------------------------------------------------------------
# The worker's half of the conversation as one total table; ``core.workers.worker`` runs on it.
#
# Source: docs/PROTOCOL.md, "Conversation". A task is followed through three phases. Its programs
# run (``WORKING``). They are being ended (``TIMING_OUT``, ``CANCELLING``, ``STOPPING``,
# ``ABANDONING``). And, if the worker itself holds the claim, the tracker gets its one last write
# (``SETTLING`` and its two ends). The sequel of the task - READY, exit 0, exit 1 - is part of the
# state. So a SHUTDOWN or a lost connection at any moment only changes the state.


class WorkerState(Key):
    """The values are the explanations in ``docs/internals/STATES.md``."""

    CONNECTING = "a connection is being tried"
    BACKING_OFF = "not connected, the next try has its time"
    ASKING = "READY is sent, its reply is awaited"
    WAITING = "told to wait; READY follows when the time is over"
    WORKING = "a step of the task runs"
    TIMING_OUT = "the task has outlived its timeout and is being ended; READY follows"
    CANCELLING = "the task is being ended on CANCEL; READY follows"
    STOPPING = "the task is being ended on SHUTDOWN; exit 0 follows"
    ABANDONING = "the task is being ended because the connection is lost; exit 1 follows"
    SETTLING = "its own claim is being closed or requeued; READY follows"
    SETTLING_TO_STOP = "its own claim is being closed or requeued; exit 0 follows"
    SETTLING_ALONE = "its own claim is being closed or requeued; exit 1 follows"
    HELD = "paused between two tasks that are queued on it"
    GONE = "told to exit"


class WorkerStimulus(Key):
    """The events of a worker, already sorted by what matters about them."""

    CONNECTED = "the connection stands"
    CONNECT_FAILED = "connecting failed, tries are left"
    OUT_OF_TRIES = "connecting failed for the last time"
    TASK = "TASK arrives"
    REPEATED_TASK = "TASK arrives once more, for what it is busy with or has just ended"
    WAIT = "WAIT arrives"
    SHUTDOWN = "SHUTDOWN arrives, or the worker is interrupted by a signal"
    CANCEL = "CANCEL arrives for the issue that it is busy with"
    OTHER_CANCEL = "CANCEL arrives for anything else"
    NOT_RUNNABLE = "TASK arrives, and there is nothing that could be run for it"
    STEP_PASSED = "a step succeeded and another one follows"
    SETTLE_DUE = "the programs have ended, and a write is pending"
    TASK_OVER = "the programs have ended, and nothing is pending"
    NEXT_DUE = "the programs have ended, nothing is pending, and a TASK was kept for now"
    HELD_DUE = "as before, while it is paused"
    QUEUE_EMPTY = "the last TASK that was kept is taken from it, while it has none"
    PAUSE = "PAUSE arrives"
    RESUME = "RESUME arrives"
    TIMER = "its deadline has come"
    LOST = "the connection is lost"


class WorkerReaction(Enum):
    """The actions that a worker's move brings with it."""

    NONE = "-"
    CONNECT = "try to connect"
    BACK_OFF = "set the time of the next try"
    GIVE_UP = "log it, exit 1"
    ASK = "send READY"
    REST = "set the time of the next READY"
    START = "make a plan, run its first step"
    KEEP = "queue it, as far as there is room; else REFUSE"
    REFUSE = "send FAILED with outcome `cancelled` and the error `busy`"
    REFUSE_ASK = "send FAILED that says why, send READY"
    CONTINUE = "run the next step"
    END = "TERM to the step's process group (SIGUSR1 to dispatcherd's tasks), set the time for KILL"
    KILL = "KILL to the step's process group (TERM, where it was only asked so far)"
    SETTLE = "close the issue, or requeue it"
    ANSWER_ASK = "send DONE or FAILED, send READY"
    ANSWER_NEXT = "send DONE or FAILED, run the first step of the next one"
    ANSWER_HOLD = "send DONE or FAILED"
    NEXT = "go on, run the first step of the next one"
    PAUSE = "begin nothing that is queued; SIGSTOP to a command that can bear it"
    RESUME = "begin again; SIGCONT to what was stopped"
    ANSWER_LEAVE = "send DONE or FAILED, exit 0"
    LEAVE = "exit 0"
    FAIL = "leave word of what has succeeded, exit 1"
    NOTE = "log it and ignore it"
    BUG = "cannot happen: a bug of ours"


Cells = dict[tuple[WorkerState, WorkerStimulus], Move[WorkerState, WorkerReaction]]

_CONNECTED_BUSY = (
    WorkerState.WORKING,
    WorkerState.TIMING_OUT,
    WorkerState.CANCELLING,
    WorkerState.STOPPING,
    WorkerState.SETTLING,
    WorkerState.SETTLING_TO_STOP,
)

GOES_ON = (WorkerState.WORKING, WorkerState.TIMING_OUT, WorkerState.CANCELLING)
"""States with a task, after which another one may follow."""

KEEPS = (*GOES_ON, WorkerState.HELD)
"""States in which the queue is kept, and begun later."""

WITH_CONNECTION = (WorkerState.ASKING, WorkerState.WAITING, *_CONNECTED_BUSY, WorkerState.HELD)
"""States with a connection."""

SETTLES = (WorkerState.SETTLING, WorkerState.SETTLING_TO_STOP, WorkerState.SETTLING_ALONE)
"""States in which the programs of a task have ended."""


def _idle() -> Cells:
    """Return the moves without a task: connecting, asking, waiting."""
    st, sti, re = WorkerState, WorkerStimulus, WorkerReaction
    cells: Cells = {
        (st.CONNECTING, sti.CONNECTED): Move(st.ASKING, re.ASK),
        (st.CONNECTING, sti.CONNECT_FAILED): Move(st.BACKING_OFF, re.BACK_OFF),
        (st.CONNECTING, sti.OUT_OF_TRIES): Move(st.GONE, re.GIVE_UP),
        (st.CONNECTING, sti.SHUTDOWN): Move(st.GONE, re.LEAVE),
        (st.BACKING_OFF, sti.TIMER): Move(st.CONNECTING, re.CONNECT),
        (st.BACKING_OFF, sti.SHUTDOWN): Move(st.GONE, re.LEAVE),
        (st.WAITING, sti.TIMER): Move(st.ASKING, re.ASK),
    }
    for state in (st.ASKING, st.WAITING):
        # A TASK while waiting answers an earlier READY: a stray WAIT may have come between.
        cells[state, sti.TASK] = Move(st.WORKING, re.START)
        cells[state, sti.NOT_RUNNABLE] = Move(st.ASKING, re.REFUSE_ASK)
        cells[state, sti.REPEATED_TASK] = Move(state, re.NOTE)
        cells[state, sti.WAIT] = Move(st.WAITING, re.REST)
        cells[state, sti.SHUTDOWN] = Move(st.GONE, re.LEAVE)
        cells[state, sti.OTHER_CANCEL] = Move(state, re.NOTE)
        cells[state, sti.LOST] = Move(st.GONE, re.FAIL)
    return cells


def _told_while_busy() -> Cells:
    """Return the moves with a task on messages to the worker, and on a lost connection."""
    st, sti, re = WorkerState, WorkerStimulus, WorkerReaction
    cells: Cells = {
        (st.WORKING, sti.CANCEL): Move(st.CANCELLING, re.END),
        (st.WORKING, sti.SHUTDOWN): Move(st.STOPPING, re.END),
        (st.WORKING, sti.LOST): Move(st.ABANDONING, re.END),
        # Already being ended: a further or stronger request changes only what comes afterwards.
        (st.TIMING_OUT, sti.CANCEL): Move(st.CANCELLING, re.NONE),
        (st.TIMING_OUT, sti.SHUTDOWN): Move(st.STOPPING, re.NONE),
        (st.TIMING_OUT, sti.LOST): Move(st.ABANDONING, re.NONE),
        (st.CANCELLING, sti.CANCEL): Move(st.CANCELLING, re.NONE),
        (st.CANCELLING, sti.SHUTDOWN): Move(st.STOPPING, re.NONE),
        (st.CANCELLING, sti.LOST): Move(st.ABANDONING, re.NONE),
        # The last write may finish: after a close that is cut off nobody knows the state.
        (st.SETTLING, sti.CANCEL): Move(st.SETTLING, re.NOTE),
        (st.SETTLING, sti.SHUTDOWN): Move(st.SETTLING_TO_STOP, re.NONE),
        (st.SETTLING, sti.LOST): Move(st.SETTLING_ALONE, re.NONE),
        # The connection is gone: only a signal can still ask.
        (st.ABANDONING, sti.SHUTDOWN): Move(st.ABANDONING, re.NONE),
        (st.SETTLING_ALONE, sti.SHUTDOWN): Move(st.SETTLING_ALONE, re.NONE),
    }
    for state in (st.STOPPING, st.SETTLING_TO_STOP):
        cells[state, sti.CANCEL] = Move(state, re.NONE)
        cells[state, sti.SHUTDOWN] = Move(state, re.NONE)
        # After SHUTDOWN the other side may leave first: that is no failure of ours.
        cells[state, sti.LOST] = Move(state, re.NONE)
    for state in _CONNECTED_BUSY:
        cells[state, sti.TASK] = Move(state, re.KEEP if state in GOES_ON else re.REFUSE)
        cells[state, sti.NOT_RUNNABLE] = Move(state, re.REFUSE)
        cells[state, sti.REPEATED_TASK] = Move(state, re.NOTE)
        cells[state, sti.WAIT] = Move(state, re.NOTE)
        cells[state, sti.OTHER_CANCEL] = Move(state, re.NOTE)
    return cells


def _course_of_a_task() -> Cells:
    """Return the moves with a task on its steps and its time."""
    st, sti, re = WorkerState, WorkerStimulus, WorkerReaction
    cells: Cells = {
        (st.WORKING, sti.STEP_PASSED): Move(st.WORKING, re.CONTINUE),
        (st.WORKING, sti.TIMER): Move(st.TIMING_OUT, re.END),
        (st.WORKING, sti.SETTLE_DUE): Move(st.SETTLING, re.SETTLE),
        (st.CANCELLING, sti.SETTLE_DUE): Move(st.SETTLING, re.SETTLE),
        (st.STOPPING, sti.SETTLE_DUE): Move(st.SETTLING_TO_STOP, re.SETTLE),
        (st.ABANDONING, sti.SETTLE_DUE): Move(st.SETTLING_ALONE, re.SETTLE),
        (st.STOPPING, sti.TASK_OVER): Move(st.GONE, re.ANSWER_LEAVE),
        (st.ABANDONING, sti.TASK_OVER): Move(st.GONE, re.FAIL),
        (st.SETTLING, sti.TASK_OVER): Move(st.ASKING, re.ANSWER_ASK),
        (st.SETTLING_TO_STOP, sti.TASK_OVER): Move(st.GONE, re.ANSWER_LEAVE),
        (st.SETTLING_ALONE, sti.TASK_OVER): Move(st.GONE, re.FAIL),
    }
    for state in GOES_ON:
        cells[state, sti.NEXT_DUE] = Move(st.WORKING, re.ANSWER_NEXT)
        cells[state, sti.HELD_DUE] = Move(st.HELD, re.ANSWER_HOLD)
        cells[state, sti.TASK_OVER] = Move(st.ASKING, re.ANSWER_ASK)
    settling = (st.SETTLING, st.SETTLING_TO_STOP, st.SETTLING_ALONE)
    for state in (st.TIMING_OUT, st.CANCELLING, st.STOPPING, st.ABANDONING, *settling):
        cells[state, sti.TIMER] = Move(state, re.KILL)
    return cells


def _paused() -> Cells:
    """Return the moves on PAUSE and RESUME, which make a state only with tasks queued."""
    st, sti, re = WorkerState, WorkerStimulus, WorkerReaction
    cells: Cells = {
        (st.HELD, sti.QUEUE_EMPTY): Move(st.ASKING, re.ASK),
        (st.HELD, sti.TASK): Move(st.HELD, re.KEEP),
        (st.HELD, sti.NOT_RUNNABLE): Move(st.HELD, re.REFUSE),
        (st.HELD, sti.REPEATED_TASK): Move(st.HELD, re.NOTE),
        (st.HELD, sti.WAIT): Move(st.HELD, re.NOTE),
        (st.HELD, sti.OTHER_CANCEL): Move(st.HELD, re.NOTE),
        (st.HELD, sti.SHUTDOWN): Move(st.GONE, re.LEAVE),
        (st.HELD, sti.LOST): Move(st.GONE, re.FAIL),
    }
    for state in WITH_CONNECTION:
        cells[state, sti.PAUSE] = Move(state, re.PAUSE)
        cells[state, sti.RESUME] = Move(state, re.RESUME)
    cells[st.HELD, sti.RESUME] = Move(st.WORKING, re.NEXT)
    return cells


_DECIDED = _idle() | _told_while_busy() | _course_of_a_task() | _paused()

WORKER: Table[WorkerState, WorkerStimulus, WorkerReaction] = {
    (state, stimulus): _DECIDED.get((state, stimulus), Move(state, WorkerReaction.BUG))
    for state in WorkerState
    for stimulus in WorkerStimulus
}
"""All pairs; a pair that is not decided above is a bug of ours, said explicitly."""


# --- states --------------------------------------------------------------------------------------
# Each table is total: every pair of state and stimulus is decided on purpose. ``Move.reaction``
# says what is done besides changing state; the module that owns the state maps each reaction to one
# function. A pair that only a bug of ours can produce is ``BUG``, and ends the process: the next
# start repairs.


# --- a connection, seen from the orchestrator ---------------------------------------------------


class ConnState(Key):
    """The values are the explanations in ``docs/internals/STATES.md``."""

    NEW = "connected, nothing valid said yet"
    IDLE = "known, and due to say READY: told to wait, or just finished"
    READY = "said READY and awaits one reply"
    RESERVED = "waiting for a TASK whose issue is being handed over in the tracker"
    BUSY = "has a task"
    ENDING = "has a task and was told to shut down"
    LEAVING = "has no task and was told to shut down"


class ConnStimulus(Key):
    """Messages of a worker, and messages to it."""

    SAID_READY = "READY arrives"
    FINISHED = "DONE or FAILED for its only task arrives"
    FINISHED_ONE = "DONE or FAILED for one of several tasks arrives"
    STRAY = "DONE or FAILED for anything else arrives"
    RESERVED = "a job is reserved for it"
    TASK_SENT = "TASK is sent"
    WAIT_SENT = "WAIT is sent"
    SHUTDOWN_SENT = "SHUTDOWN is sent"


class ConnReaction(Enum):
    """The actions that a connection's move brings with it."""

    NONE = "-"
    SERVE = "answer: TASK, WAIT or SHUTDOWN; hold it while the tracker is asked"
    REPEAT_TASK = "log an error, send the same TASK again; nothing where it prefetches"
    ATTEMPT_END = "the policy decides what becomes of the job"
    RESYNC = "log an error, send a short WAIT"
    NOTE = "log it; a reply is already on its way"
    ANSWERED = "the SHUTDOWN that is on its way answers it"
    BUG = "cannot happen: a bug of ours"


def _connection_table() -> Table[ConnState, ConnStimulus, ConnReaction]:
    st, sti, re = ConnState, ConnStimulus, ConnReaction
    table: dict[tuple[ConnState, ConnStimulus], Move[ConnState, ConnReaction]] = {
        (st.NEW, sti.SAID_READY): Move(st.READY, re.SERVE),
        (st.IDLE, sti.SAID_READY): Move(st.READY, re.SERVE),
        (st.READY, sti.SAID_READY): Move(st.READY, re.NOTE),
        (st.RESERVED, sti.SAID_READY): Move(st.RESERVED, re.NOTE),
        (st.BUSY, sti.SAID_READY): Move(st.BUSY, re.REPEAT_TASK),
        (st.ENDING, sti.SAID_READY): Move(st.ENDING, re.ANSWERED),
        (st.LEAVING, sti.SAID_READY): Move(st.LEAVING, re.ANSWERED),
        (st.BUSY, sti.FINISHED): Move(st.IDLE, re.ATTEMPT_END),
        (st.ENDING, sti.FINISHED): Move(st.LEAVING, re.ATTEMPT_END),
        (st.BUSY, sti.FINISHED_ONE): Move(st.BUSY, re.ATTEMPT_END),
        (st.ENDING, sti.FINISHED_ONE): Move(st.ENDING, re.ATTEMPT_END),
        (st.NEW, sti.STRAY): Move(st.IDLE, re.RESYNC),
        (st.IDLE, sti.STRAY): Move(st.IDLE, re.RESYNC),
        (st.READY, sti.STRAY): Move(st.READY, re.RESYNC),
        (st.RESERVED, sti.STRAY): Move(st.RESERVED, re.RESYNC),
        (st.BUSY, sti.STRAY): Move(st.BUSY, re.RESYNC),
        (st.ENDING, sti.STRAY): Move(st.ENDING, re.NOTE),
        (st.LEAVING, sti.STRAY): Move(st.LEAVING, re.NOTE),
        (st.READY, sti.RESERVED): Move(st.RESERVED, re.NONE),
        (st.READY, sti.TASK_SENT): Move(st.BUSY, re.NONE),
        (st.BUSY, sti.TASK_SENT): Move(st.BUSY, re.NONE),
        (st.RESERVED, sti.TASK_SENT): Move(st.BUSY, re.NONE),
        (st.READY, sti.WAIT_SENT): Move(st.IDLE, re.NONE),
        (st.RESERVED, sti.WAIT_SENT): Move(st.IDLE, re.NONE),
        (st.BUSY, sti.SHUTDOWN_SENT): Move(st.ENDING, re.NONE),
        (st.ENDING, sti.SHUTDOWN_SENT): Move(st.ENDING, re.NONE),
    }
    for state in (st.NEW, st.IDLE, st.READY, st.RESERVED, st.LEAVING):
        table[state, sti.SHUTDOWN_SENT] = Move(st.LEAVING, re.NONE)
    return total(table, st, sti, re.BUG)


# --- an issue ------------------------------------------------------------------------------------


class IssueState(Key):
    """The core's four states, with the steps between them that can be interrupted."""

    ENQUEUED = "enqueued: in the tracker, nobody's"
    CLAIMED = "enqueued: ours in the tracker, not yet sent"
    DELEGATING = "enqueued: being handed over to a worker that claims by itself"
    RUNNING = "running: a worker has it"
    ORPHANED = "running: its worker is gone from us, but may still be at work on it"
    LANDING = "done: its branch is to land first"
    SHELVING = "done: it is to be blocked until the next start lands its branch"
    SHELVED = "done: blocked until its branch has landed"
    CLOSING = "done: a close is pending"
    RELEASING = "enqueued: a release is pending"
    QUARANTINING = "error: a quarantine is pending"
    CLOSED = "done"
    QUARANTINED = "error: out of the backlog until a person's retry"
    FOREIGN = "somebody else's: left alone"


class IssueStimulus(Key):
    """The events of an issue."""

    CLAIMED = "the source claimed it"
    RESERVED = "it is reserved for a worker that claims by itself"
    SENT = "TASK is sent"
    RETURNED_UNSTARTED = "its worker returns it as it went, or died before it began it"
    SUCCEEDED = "the policy says finish"
    TO_LAND = "the policy says finish, and there is a branch to land"
    LANDED = "its branch has landed"
    TO_MEND = "its branch cannot land as it is, and its agent is to mend it"
    SHELVE = "the run ends before its branch has landed"
    REQUEUED = "the policy, or a stop, says requeue"
    SPENT = "the policy says quarantine"
    OWNER_LOST = "its worker's connection is lost"
    APPLIED = "the tracker did as asked"
    FOUND_CLOSED = "the tracker says that it is closed already"
    NOT_OURS = "the tracker says that it is somebody else's"
    FAILED = "the tracker failed"
    INHERITED = "an earlier run holds it, and its worker, which is not ours, lives on, or its lease"


class IssueReaction(Enum):
    """The actions that an issue's move brings with it."""

    NONE = "-"
    SETTLE = "write it to the tracker with the next group"
    CONFIRM = "ask the tracker whether it is ours still"
    LAND = "ask the lander"
    KEEP = "remember its branch for the next start"
    WATCH = "wait until its owner is dead or says READY; one that is not ours has a grace"
    DELIVER = "send the TASK"
    RETURN = "count it as requeued; retry when it is due"
    COUNT = "count it as done"
    QUARANTINE = "count it as quarantined"
    LEAVE = "leave it alone and say so"
    RETRY = "ask again with back-off"
    BUG = "cannot happen: a bug of ours"


def _issue_table() -> Table[IssueState, IssueStimulus, IssueReaction]:
    st, sti, re = IssueState, IssueStimulus, IssueReaction
    table: dict[tuple[IssueState, IssueStimulus], Move[IssueState, IssueReaction]] = {
        (st.ENQUEUED, sti.CLAIMED): Move(st.CLAIMED, re.NONE),
        (st.ENQUEUED, sti.INHERITED): Move(st.ORPHANED, re.WATCH),
        (st.CLAIMED, sti.RESERVED): Move(st.DELEGATING, re.SETTLE),
        (st.CLAIMED, sti.SENT): Move(st.RUNNING, re.NONE),
        (st.CLAIMED, sti.REQUEUED): Move(st.RELEASING, re.SETTLE),
        (st.DELEGATING, sti.APPLIED): Move(st.RUNNING, re.DELIVER),
        (st.DELEGATING, sti.FOUND_CLOSED): Move(st.CLOSED, re.COUNT),
        (st.DELEGATING, sti.NOT_OURS): Move(st.FOREIGN, re.LEAVE),
        (st.DELEGATING, sti.FAILED): Move(st.DELEGATING, re.RETRY),
        (st.DELEGATING, sti.REQUEUED): Move(st.RELEASING, re.NONE),
        (st.RUNNING, sti.SUCCEEDED): Move(st.CLOSING, re.SETTLE),
        (st.RUNNING, sti.TO_LAND): Move(st.LANDING, re.CONFIRM),
        (st.LANDING, sti.APPLIED): Move(st.LANDING, re.LAND),
        (st.LANDING, sti.NOT_OURS): Move(st.FOREIGN, re.LEAVE),
        (st.LANDING, sti.FAILED): Move(st.LANDING, re.RETRY),
        (st.LANDING, sti.LANDED): Move(st.CLOSING, re.SETTLE),
        (st.LANDING, sti.TO_MEND): Move(st.CLAIMED, re.NONE),
        (st.LANDING, sti.REQUEUED): Move(st.RELEASING, re.SETTLE),
        (st.LANDING, sti.SPENT): Move(st.QUARANTINING, re.SETTLE),
        (st.LANDING, sti.SHELVE): Move(st.SHELVING, re.SETTLE),
        (st.SHELVING, sti.APPLIED): Move(st.SHELVED, re.KEEP),
        (st.SHELVED, sti.LANDED): Move(st.CLOSING, re.SETTLE),
        # Gates may be flaky: a branch that one rejected is tried once more when nobody waits.
        (st.QUARANTINED, sti.LANDED): Move(st.CLOSING, re.SETTLE),
        (st.SHELVED, sti.REQUEUED): Move(st.ENQUEUED, re.SETTLE),
        (st.SHELVED, sti.SPENT): Move(st.QUARANTINED, re.QUARANTINE),
        (st.RUNNING, sti.REQUEUED): Move(st.RELEASING, re.SETTLE),
        (st.RUNNING, sti.SPENT): Move(st.QUARANTINING, re.SETTLE),
        (st.RUNNING, sti.RETURNED_UNSTARTED): Move(st.CLAIMED, re.NONE),
        (st.ORPHANED, sti.RETURNED_UNSTARTED): Move(st.CLAIMED, re.NONE),
        (st.RUNNING, sti.OWNER_LOST): Move(st.ORPHANED, re.WATCH),
        (st.ORPHANED, sti.SUCCEEDED): Move(st.CLOSING, re.SETTLE),
        (st.ORPHANED, sti.TO_LAND): Move(st.LANDING, re.CONFIRM),
        (st.ORPHANED, sti.REQUEUED): Move(st.RELEASING, re.SETTLE),
        (st.ORPHANED, sti.SPENT): Move(st.QUARANTINING, re.SETTLE),
        (st.CLOSING, sti.APPLIED): Move(st.CLOSED, re.COUNT),
        (st.RELEASING, sti.APPLIED): Move(st.ENQUEUED, re.RETURN),
        (st.QUARANTINING, sti.APPLIED): Move(st.QUARANTINED, re.QUARANTINE),
        (st.QUARANTINED, sti.REQUEUED): Move(st.ENQUEUED, re.NONE),
    }
    for state in (st.CLOSING, st.RELEASING, st.QUARANTINING, st.SHELVING):
        table[state, sti.FOUND_CLOSED] = Move(st.CLOSED, re.COUNT)
        table[state, sti.NOT_OURS] = Move(st.FOREIGN, re.LEAVE)
        table[state, sti.FAILED] = Move(state, re.RETRY)
    return total(table, st, sti, re.BUG)


# --- the orchestrator ---------------------------------------------------------------------------


class RunState(Key):
    """The life of one run."""

    RECOVERING = "settling what an earlier run left; workers wait"
    WAITING = "nothing is begun before the time of --start-at"
    RUNNING = "taking and handing out"
    PAUSED = "nothing new is handed out; what runs goes on"
    DRAINING = "nothing new is taken; what runs may finish"
    STOPPING = "every worker was told to shut down"
    SETTLING = "no worker is left; writes are still pending"
    ENDED = "over"


class RunStimulus(Key):
    """The events that change a run."""

    RECOVERED = "the earlier run is settled"
    RECOVERED_EARLY = "the earlier run is settled, before the time of --start-at"
    BEGIN = "the time of --start-at has come"
    PAUSE = "a person pauses"
    RESUME = "a person resumes"
    DRAIN = "a person, or a limit, asks to drain"
    STOP = "stop: by a person, when empty or idle, at a limit, or on a fatal error"
    DRAINED = "nothing runs any more"
    DEADLINE = "the time for leaving is over"
    ALL_LEFT = "every worker has left"
    SETTLED = "nothing is pending for the tracker, or given up"


class RunReaction(Enum):
    """The actions that a run's move brings with it."""

    NONE = "-"
    TAKE = "ask the source for work"
    REFUSE = "say that this makes no sense now"
    STOP_ACCEPTING = "requeue what is claimed and unsent"
    SHUTDOWN = "requeue what is unsent, send SHUTDOWN to all, set the deadline"
    HASTEN = "bring the deadline forward if asked"
    KILL = "kill our workers' sessions, hang up on the others and name them"
    END = "write the last record, remove the sockets, exit"
    BUG = "cannot happen: a bug of ours"


def _run_table() -> Table[RunState, RunStimulus, RunReaction]:
    st, sti, re = RunState, RunStimulus, RunReaction
    table: dict[tuple[RunState, RunStimulus], Move[RunState, RunReaction]] = {
        (st.RECOVERING, sti.RECOVERED): Move(st.RUNNING, re.TAKE),
        (st.RECOVERING, sti.RECOVERED_EARLY): Move(st.WAITING, re.NONE),
        (st.WAITING, sti.BEGIN): Move(st.RUNNING, re.TAKE),
        (st.WAITING, sti.RESUME): Move(st.RUNNING, re.TAKE),
        (st.WAITING, sti.PAUSE): Move(st.PAUSED, re.NONE),
        (st.RUNNING, sti.PAUSE): Move(st.PAUSED, re.NONE),
        (st.PAUSED, sti.PAUSE): Move(st.PAUSED, re.NONE),
        (st.PAUSED, sti.RESUME): Move(st.RUNNING, re.TAKE),
        (st.RUNNING, sti.RESUME): Move(st.RUNNING, re.NONE),
        (st.RECOVERING, sti.RESUME): Move(st.RECOVERING, re.NONE),
        (st.DRAINING, sti.DRAINED): Move(st.STOPPING, re.SHUTDOWN),
        (st.STOPPING, sti.STOP): Move(st.STOPPING, re.HASTEN),
        (st.STOPPING, sti.DEADLINE): Move(st.STOPPING, re.KILL),
        (st.STOPPING, sti.ALL_LEFT): Move(st.SETTLING, re.NONE),
        (st.SETTLING, sti.STOP): Move(st.SETTLING, re.HASTEN),
        (st.SETTLING, sti.SETTLED): Move(st.ENDED, re.END),
        (st.ENDED, sti.STOP): Move(st.ENDED, re.NONE),
    }
    for state in (st.RECOVERING, st.WAITING, st.RUNNING, st.PAUSED):
        table[state, sti.DRAIN] = Move(st.DRAINING, re.STOP_ACCEPTING)
    for state in (st.RECOVERING, st.WAITING, st.RUNNING, st.PAUSED, st.DRAINING):
        table[state, sti.STOP] = Move(st.STOPPING, re.SHUTDOWN)
    for state in (st.PAUSED, st.DRAINING, st.STOPPING, st.SETTLING, st.ENDED):
        # A stop overtakes a recovery that is still under way in the tracker thread.
        table[state, sti.RECOVERED] = table[state, sti.RECOVERED_EARLY] = Move(state, re.NONE)
    for state in (st.DRAINING, st.STOPPING, st.SETTLING, st.ENDED):
        for stimulus in (sti.PAUSE, sti.RESUME, sti.DRAIN):
            table[state, stimulus] = Move(state, re.REFUSE)
    table[st.RECOVERING, sti.PAUSE] = Move(st.RECOVERING, re.REFUSE)
    return total(table, st, sti, re.BUG)


CONNECTION = _connection_table()
ISSUE = _issue_table()
RUN = _run_table()


def document() -> str:
    """Return ``docs/internals/STATES.md``, whole."""

    parts = [
        "# States\n\nMade by `python -m beads_workers.core.base.states` from the tables that the"
        " code runs on; a test compares it. An empty cell is a pair that only a bug of ours could"
        " bring about: the process then ends.\n"
    ]
    parts.append(_section("A connection, seen from the orchestrator", CONNECTION))
    parts.append(_section("An issue", ISSUE))
    parts.append(_section("The orchestrator", RUN))
    parts.append(_section("The worker's half", WORKER))
    return "\n".join(parts)


def _section(title: str, table: Mapping[tuple[S, T], Move[S, R]]) -> str:
    states = list(dict.fromkeys(state for state, _ in table))
    stimuli = list(dict.fromkeys(stimulus for _, stimulus in table))
    lines = [f"## {title}\n", "| state | |", "|---|---|"]
    lines += [f"| `{s.name}` | {s.value} |" for s in states]
    for stimulus in stimuli:
        lines += [f"\n**{stimulus.value}**\n", "| in | goes to | and |", "|---|---|---|"]
        for state in states:
            move = table[state, stimulus]
            if move.reaction.name != "BUG":
                lines.append(f"| `{state.name}` | `{move.to.name}` | {move.reaction.value} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(document(), end="")
