"""The worker's half of the conversation as one total table; ``core.worker`` runs on it.

Source: docs/PROTOCOL.md, "Conversation". A task is followed through three phases: its
programs run (``WORKING``), they are being ended (``TIMING_OUT``, ``CANCELLING``, ``STOPPING``,
``ABANDONING``), and, where the worker itself holds the claim, the tracker gets its one last write
(``SETTLING`` and its two ends). What comes after the task - READY, exit 0, exit 1 - is part of
the state, so that a SHUTDOWN or a lost connection at any moment only changes the state.
"""

from __future__ import annotations

from enum import Enum

from beads_workers.core.moves import Key, Move, Table


class WorkerState(Key):
    """The values are the explanations in ``docs/STATES.md``."""

    CONNECTING = "a connection is being tried"
    BACKING_OFF = "not connected, the next try has its time"
    ASKING = "READY is sent, its reply is awaited"
    WAITING = "told to wait; READY follows when the time is over"
    WORKING = "a step of the task runs"
    TIMING_OUT = "the task has outlived its timeout and is being ended; READY follows"
    CANCELLING = "the task is being ended on CANCEL; READY follows"
    STOPPING = "the task is being ended on SHUTDOWN; exit 0 follows"
    ABANDONING = "the task is being ended because the connection is lost; exit 1 follows"
    SETTLING = "its own claim is being closed or given back; READY follows"
    SETTLING_TO_STOP = "its own claim is being closed or given back; exit 0 follows"
    SETTLING_ALONE = "its own claim is being closed or given back; exit 1 follows"
    GONE = "told to exit"


class WorkerStimulus(Key):
    """What can happen to a worker, already sorted by what matters about it."""

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
    SETTLE_DUE = "the programs have ended, and the tracker is owed a write"
    TASK_OVER = "the programs have ended, and nothing is owed"
    NEXT_DUE = "the programs have ended, nothing is owed, and a TASK was kept for now"
    TIMER = "its deadline has come"
    LOST = "the connection is lost"


class WorkerReaction(Enum):
    """What a worker's move brings with it."""

    NONE = "-"
    CONNECT = "try to connect"
    BACK_OFF = "set the time of the next try"
    GIVE_UP = "log it, exit 1"
    ASK = "send READY"
    REST = "set the time of the next READY"
    START = "make a plan, run its first step"
    KEEP = "keep it for later, as far as there is room; else REFUSE"
    REFUSE = "send FAILED with outcome `cancelled` and the error `busy`"
    REFUSE_ASK = "send FAILED that says why, send READY"
    CONTINUE = "run the next step"
    END = "TERM to the step's process group (SIGUSR1 to dispatcherd's tasks), set the time for KILL"
    KILL = "KILL to the step's process group (TERM, where it was only asked so far)"
    SETTLE = "close the issue, or give it back"
    ANSWER_ASK = "send DONE or FAILED, send READY"
    ANSWER_NEXT = "send DONE or FAILED, run the first step of the next one"
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
"""With a task, and another one may follow it."""

SETTLES = (WorkerState.SETTLING, WorkerState.SETTLING_TO_STOP, WorkerState.SETTLING_ALONE)
"""The programs of a task have ended."""


def _idle() -> Cells:
    """Without a task: connecting, asking, waiting."""
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
    """With a task: what is said to the worker, or not any more."""
    st, sti, re = WorkerState, WorkerStimulus, WorkerReaction
    cells: Cells = {
        (st.WORKING, sti.CANCEL): Move(st.CANCELLING, re.END),
        (st.WORKING, sti.SHUTDOWN): Move(st.STOPPING, re.END),
        (st.WORKING, sti.LOST): Move(st.ABANDONING, re.END),
        # Already being ended: who asks again, or louder, changes only what comes afterwards.
        (st.TIMING_OUT, sti.CANCEL): Move(st.CANCELLING, re.NONE),
        (st.TIMING_OUT, sti.SHUTDOWN): Move(st.STOPPING, re.NONE),
        (st.TIMING_OUT, sti.LOST): Move(st.ABANDONING, re.NONE),
        (st.CANCELLING, sti.CANCEL): Move(st.CANCELLING, re.NONE),
        (st.CANCELLING, sti.SHUTDOWN): Move(st.STOPPING, re.NONE),
        (st.CANCELLING, sti.LOST): Move(st.ABANDONING, re.NONE),
        # The last write is let finish: a close that is cut off leaves nobody knowing.
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
    """With a task: its steps and its time."""
    st, sti, re = WorkerState, WorkerStimulus, WorkerReaction
    return {
        (st.WORKING, sti.STEP_PASSED): Move(st.WORKING, re.CONTINUE),
        (st.WORKING, sti.TIMER): Move(st.TIMING_OUT, re.END),
        (st.TIMING_OUT, sti.TIMER): Move(st.TIMING_OUT, re.KILL),
        (st.CANCELLING, sti.TIMER): Move(st.CANCELLING, re.KILL),
        (st.STOPPING, sti.TIMER): Move(st.STOPPING, re.KILL),
        (st.ABANDONING, sti.TIMER): Move(st.ABANDONING, re.KILL),
        (st.SETTLING, sti.TIMER): Move(st.SETTLING, re.KILL),
        (st.SETTLING_TO_STOP, sti.TIMER): Move(st.SETTLING_TO_STOP, re.KILL),
        (st.SETTLING_ALONE, sti.TIMER): Move(st.SETTLING_ALONE, re.KILL),
        (st.WORKING, sti.SETTLE_DUE): Move(st.SETTLING, re.SETTLE),
        (st.CANCELLING, sti.SETTLE_DUE): Move(st.SETTLING, re.SETTLE),
        (st.STOPPING, sti.SETTLE_DUE): Move(st.SETTLING_TO_STOP, re.SETTLE),
        (st.ABANDONING, sti.SETTLE_DUE): Move(st.SETTLING_ALONE, re.SETTLE),
        (st.WORKING, sti.NEXT_DUE): Move(st.WORKING, re.ANSWER_NEXT),
        (st.TIMING_OUT, sti.NEXT_DUE): Move(st.WORKING, re.ANSWER_NEXT),
        (st.CANCELLING, sti.NEXT_DUE): Move(st.WORKING, re.ANSWER_NEXT),
        (st.WORKING, sti.TASK_OVER): Move(st.ASKING, re.ANSWER_ASK),
        (st.TIMING_OUT, sti.TASK_OVER): Move(st.ASKING, re.ANSWER_ASK),
        (st.CANCELLING, sti.TASK_OVER): Move(st.ASKING, re.ANSWER_ASK),
        (st.STOPPING, sti.TASK_OVER): Move(st.GONE, re.ANSWER_LEAVE),
        (st.ABANDONING, sti.TASK_OVER): Move(st.GONE, re.FAIL),
        (st.SETTLING, sti.TASK_OVER): Move(st.ASKING, re.ANSWER_ASK),
        (st.SETTLING_TO_STOP, sti.TASK_OVER): Move(st.GONE, re.ANSWER_LEAVE),
        (st.SETTLING_ALONE, sti.TASK_OVER): Move(st.GONE, re.FAIL),
    }


_DECIDED = _idle() | _told_while_busy() | _course_of_a_task()

WORKER: Table[WorkerState, WorkerStimulus, WorkerReaction] = {
    (state, stimulus): _DECIDED.get((state, stimulus), Move(state, WorkerReaction.BUG))
    for state in WorkerState
    for stimulus in WorkerStimulus
}
"""Every pair that is not decided above is a bug of ours, said explicitly."""
