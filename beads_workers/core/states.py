"""Every state and every move, as printed tables; ``docs/STATES.md`` is made from them.

Each table is total: every pair of state and stimulus is decided on purpose. ``Move.reaction``
says what is done besides changing state; the module that owns the state maps each reaction to
one function. A pair that only a bug of ours can produce is ``BUG``, and ends the process: the
next start repairs.

``python -m beads_workers.core.states`` prints the document.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from beads_workers.core.moves import Key, Move, R, S, T, Table, total

# --- a connection, seen from the orchestrator ---------------------------------------------------


class ConnState(Key):
    """The values are the explanations in ``docs/STATES.md``."""

    NEW = "connected, nothing valid said yet"
    IDLE = "known, and due to say READY: told to wait, or just finished"
    READY = "said READY and is owed one reply"
    RESERVED = "owed a TASK whose issue is being handed over in the tracker"
    BUSY = "has a task"
    ENDING = "has a task and was told to shut down"
    LEAVING = "has no task and was told to shut down"


class ConnStimulus(Key):
    """What a worker says, and what we tell it."""

    SAID_READY = "READY arrives"
    FINISHED = "DONE or FAILED for its only task arrives"
    FINISHED_ONE = "DONE or FAILED for one of several tasks arrives"
    STRAY = "DONE or FAILED for anything else arrives"
    RESERVED = "a job is reserved for it"
    TASK_SENT = "TASK is sent"
    WAIT_SENT = "WAIT is sent"
    SHUTDOWN_SENT = "SHUTDOWN is sent"


class ConnReaction(Enum):
    """What a connection's move brings with it."""

    NONE = "-"
    SERVE = "answer: TASK, WAIT or SHUTDOWN; hold it while the tracker is asked"
    REPEAT_TASK = "log an error, send the same TASK again; nothing where it keeps TASKs for later"
    JUDGE = "the policy decides what becomes of the job"
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
        (st.BUSY, sti.FINISHED): Move(st.IDLE, re.JUDGE),
        (st.ENDING, sti.FINISHED): Move(st.LEAVING, re.JUDGE),
        (st.BUSY, sti.FINISHED_ONE): Move(st.BUSY, re.JUDGE),
        (st.ENDING, sti.FINISHED_ONE): Move(st.ENDING, re.JUDGE),
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
    HANDING = "enqueued: being handed over to a worker that claims by itself"
    RUNNING = "running: a worker has it"
    LOOSE = "running: its worker is gone from us, but not yet known to be dead"
    CLOSING = "done: the tracker is owed a close"
    RELEASING = "enqueued: the tracker is owed a release"
    SHELVING = "error: the tracker is owed a set-aside"
    CLOSED = "done"
    SET_ASIDE = "error: out of the backlog until a person's retry"
    FOREIGN = "somebody else's: left alone"


class IssueStimulus(Key):
    """What happens to an issue."""

    CLAIMED = "the source claimed it"
    RESERVED = "it is reserved for a worker that claims by itself"
    SENT = "TASK is sent"
    RECALLED = "its worker gives it back as it went, or died before it began it"
    SUCCEEDED = "the policy says finish"
    REQUEUED = "the policy, or a stop, says give back"
    SPENT = "the policy says set aside"
    HOLDER_LOST = "its worker's connection is lost"
    APPLIED = "the tracker did as asked"
    FOUND_CLOSED = "the tracker says that it is closed already"
    NOT_OURS = "the tracker says that it is somebody else's"
    FAILED = "the tracker failed"


class IssueReaction(Enum):
    """What an issue's move brings with it."""

    NONE = "-"
    SETTLE = "write it to the tracker with the next group"
    WATCH = "wait until its holder is known to be dead"
    DELIVER = "send the TASK"
    RETURN = "count it as given back; retry when it is due"
    COUNT = "count it as done"
    SHELVE = "count it as set aside"
    LEAVE = "leave it alone and say so"
    AGAIN = "ask again with back-off"
    BUG = "cannot happen: a bug of ours"


def _issue_table() -> Table[IssueState, IssueStimulus, IssueReaction]:
    st, sti, re = IssueState, IssueStimulus, IssueReaction
    table: dict[tuple[IssueState, IssueStimulus], Move[IssueState, IssueReaction]] = {
        (st.ENQUEUED, sti.CLAIMED): Move(st.CLAIMED, re.NONE),
        (st.CLAIMED, sti.RESERVED): Move(st.HANDING, re.SETTLE),
        (st.CLAIMED, sti.SENT): Move(st.RUNNING, re.NONE),
        (st.CLAIMED, sti.REQUEUED): Move(st.RELEASING, re.SETTLE),
        (st.HANDING, sti.APPLIED): Move(st.RUNNING, re.DELIVER),
        (st.HANDING, sti.FOUND_CLOSED): Move(st.CLOSED, re.COUNT),
        (st.HANDING, sti.NOT_OURS): Move(st.FOREIGN, re.LEAVE),
        (st.HANDING, sti.FAILED): Move(st.HANDING, re.AGAIN),
        (st.HANDING, sti.REQUEUED): Move(st.RELEASING, re.NONE),
        (st.RUNNING, sti.SUCCEEDED): Move(st.CLOSING, re.SETTLE),
        (st.RUNNING, sti.REQUEUED): Move(st.RELEASING, re.SETTLE),
        (st.RUNNING, sti.SPENT): Move(st.SHELVING, re.SETTLE),
        (st.RUNNING, sti.RECALLED): Move(st.CLAIMED, re.NONE),
        (st.LOOSE, sti.RECALLED): Move(st.CLAIMED, re.NONE),
        (st.RUNNING, sti.HOLDER_LOST): Move(st.LOOSE, re.WATCH),
        (st.LOOSE, sti.REQUEUED): Move(st.RELEASING, re.SETTLE),
        (st.LOOSE, sti.SPENT): Move(st.SHELVING, re.SETTLE),
        (st.CLOSING, sti.APPLIED): Move(st.CLOSED, re.COUNT),
        (st.RELEASING, sti.APPLIED): Move(st.ENQUEUED, re.RETURN),
        (st.SHELVING, sti.APPLIED): Move(st.SET_ASIDE, re.SHELVE),
        (st.SET_ASIDE, sti.REQUEUED): Move(st.ENQUEUED, re.NONE),
    }
    for state in (st.CLOSING, st.RELEASING, st.SHELVING):
        table[state, sti.FOUND_CLOSED] = Move(st.CLOSED, re.COUNT)
        table[state, sti.NOT_OURS] = Move(st.FOREIGN, re.LEAVE)
        table[state, sti.FAILED] = Move(state, re.AGAIN)
    return total(table, st, sti, re.BUG)


# --- the orchestrator ---------------------------------------------------------------------------


class RunState(Key):
    """The life of one run."""

    RECOVERING = "settling what an earlier run left; workers wait"
    RUNNING = "taking and handing out"
    PAUSED = "nothing new is handed out; what runs goes on"
    DRAINING = "nothing new is taken; what runs may finish"
    STOPPING = "every worker was told to shut down"
    SETTLING = "no worker is left; the tracker is still owed"
    ENDED = "over"


class RunStimulus(Key):
    """What changes a run."""

    RECOVERED = "the earlier run is settled"
    PAUSE = "a person pauses"
    RESUME = "a person resumes"
    DRAIN = "a person, or a limit, asks to drain"
    STOP = "stop: by a person, when empty or idle, at a limit, or on a fatal error"
    DRAINED = "nothing runs any more"
    DEADLINE = "the time for leaving is over"
    ALL_LEFT = "every worker has left"
    SETTLED = "the tracker is owed nothing, or given up"


class RunReaction(Enum):
    """What a run's move brings with it."""

    NONE = "-"
    TAKE = "ask the source for work"
    REFUSE = "say that this makes no sense now"
    CEASE = "give back what is claimed and unsent"
    SHUTDOWN = "give back what is unsent, send SHUTDOWN to all, set the deadline"
    HASTEN = "bring the deadline forward if asked"
    KILL = "kill our workers' sessions, hang up on the others and name them"
    END = "write the last record, remove the sockets, exit"
    BUG = "cannot happen: a bug of ours"


def _run_table() -> Table[RunState, RunStimulus, RunReaction]:
    st, sti, re = RunState, RunStimulus, RunReaction
    table: dict[tuple[RunState, RunStimulus], Move[RunState, RunReaction]] = {
        (st.RECOVERING, sti.RECOVERED): Move(st.RUNNING, re.TAKE),
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
    for state in (st.RECOVERING, st.RUNNING, st.PAUSED):
        table[state, sti.DRAIN] = Move(st.DRAINING, re.CEASE)
    for state in (st.RECOVERING, st.RUNNING, st.PAUSED, st.DRAINING):
        table[state, sti.STOP] = Move(st.STOPPING, re.SHUTDOWN)
    for state in (st.PAUSED, st.DRAINING, st.STOPPING, st.SETTLING, st.ENDED):
        # A stop overtakes a recovery that is still under way in the lane.
        table[state, sti.RECOVERED] = Move(state, re.NONE)
    for state in (st.DRAINING, st.STOPPING, st.SETTLING, st.ENDED):
        for stimulus in (sti.PAUSE, sti.RESUME, sti.DRAIN):
            table[state, stimulus] = Move(state, re.REFUSE)
    table[st.RECOVERING, sti.PAUSE] = Move(st.RECOVERING, re.REFUSE)
    return total(table, st, sti, re.BUG)


CONNECTION = _connection_table()
ISSUE = _issue_table()
RUN = _run_table()


def document() -> str:
    """``docs/STATES.md``, whole."""
    # Imported here: the worker's half stands in its own module, and must not load this one.
    from beads_workers.core.worker_states import WORKER

    parts = [
        "# States\n\nMade by `python -m beads_workers.core.states` from the tables that the code"
        " runs on; a test compares it. Where a cell is empty, only a bug of ours could bring the"
        " pair about, and the process ends.\n"
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
