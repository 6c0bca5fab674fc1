"""Every limit of the core in one place, each with its reason.

Bytes, seconds or counts, as the name says.
"""

from __future__ import annotations

# --- the wire -------------------------------------------------------------------------------
LINE_BYTES_MAX = 1 << 20
"""A longer line is skipped to its end: one peer must not grow the orchestrator's memory."""

INLINE_BYTES_MAX = 256 << 10
"""Payloads and results above this travel as files, so that a line never nears its limit."""

RESULT_CHARS_MAX = 64 << 10
RESULT_CHARS_SHOWN = 1000
"""The JSON of a result, in the journal and in the tracker: ten thousand of them must not fill it.
Of a longer one the beginning is kept there, and a function's lies whole in a file."""

OUTPUT_BYTES_MAX = 1 << 20
"""What a script prints is its result: so much of it, as its sender has to read it whole."""

ARGUMENTS_CHARS_MAX = 4096
"""The JSON of a call's arguments, in the journal: longer ones are in the tracker only."""

TITLE_CHARS_MAX = 64 << 10
"""Of a title in 1.1. Escaped, it is at most six times as long: a TASK must fit into a line."""

TITLE_CHARS_SHORT = 500
"""Of a title in version 1: many readers of lines end at 64 KiB, and nothing else in version 1 is
long."""

NESTED_MAX = 100
"""Levels of JSON inside each other, in what we pass on: Python writes down far fewer than it reads
where the stack is deep already, and no issue or result needs a tenth of it."""

OUTBOX_BYTES_MAX = 4 << 20
"""A peer that does not read is closed here: a TASK and a repeat of it always fit."""

BAD_LINES_MAX = 1000
BAD_LINES_SECONDS = 60.0
"""So many wrong lines of one connection within this time, and it is closed: far above any slip,
far below a flood. A worker with a small fault may live for weeks: over its whole life nothing is
counted."""

BAD_LINES_SHOWN = 20
"""How many wrong lines, and how many unknown types, the log shows for one connection: a flood must
not fill the disk."""

INTEGER_MAX = (1 << 63) - 1
"""No count, time or pid goes further, and neither does what reads the journal back."""

LINES_AT_ONCE = 8
"""So many lines of one connection are read before others have their turn."""

STRANGERS_AT_ONCE = 4
"""So many connections that have said nothing valid lately are heard in one turn of the loop:
a thousand that talk at once must not hold up those that work."""

NONSENSE_PAUSE_SECONDS = 0.002
"""Between two turns that hear nonsense: a flood costs a quarter of one core, not all of
it."""

KNOCKS_AT_ONCE = 32
"""So many new connections are let in during one turn; the others wait in the kernel's
queue."""

LOGGED_BYTES_MAX = 300
"""How much of a wrong line the log shows."""

HELLO_SECONDS = 10.0
"""A connection that has said nothing valid by then is no worker."""

WARM_SECONDS = 6.0
"""A worker says READY when its process for functions can call, or after this: what is imported
there may take longer, and whoever has started us gives us 15 s (RRQ)."""

HOLD_SECONDS = 3.0
"""A READY is kept waiting this long while the tracker is asked, then answered with WAIT."""

IDLE_SECONDS_MAX = 25.0
OWN_IDLE_SECONDS_MAX = 60.0
IDLE_BEAT_SECONDS = 5.0
"""A READY for which nothing is there is kept waiting this long at most: a hundred who wait cost
nothing to speak of, and have work as soon as it comes. Sockets of others give up after 30 s. A peer
that is gone without a word is found out. WAITs go out on one beat: an idle fleet wakes once for
several of them."""

WAIT_AT_ONCE_SECONDS_MAX = 86_400.0
"""A selector refuses waits of more than 24 days; after a day it may look up for nothing."""

LISTEN_BACKLOG = 1024
"""A hundred workers that connect at once must not meet a full queue (at least 512)."""

CONNECT_DELAYS_SECONDS = (1.0, 2.0, 4.0)
"""A worker that cannot connect tries again after each of these, then gives up."""

WAIT_SECONDS_MIN = 1
WAIT_SECONDS_MAX = 3600
WAIT_SECONDS_RESYNC = 1
"""Answer to a DONE or FAILED for nothing."""

ASIDE_SECONDS = 1.0
"""Of messages beside the conversation one of a kind is kept for each task in so many seconds: they
are shown to people, and a hundred workers must not keep the loop from its work."""


HEARTBEAT_SECONDS_MIN = 1.0
HEARTBEAT_SECONDS_MAX = 300.0
HEARTBEATS_MISSED = 3
"""A worker that has announced heartbeats and says nothing for so many of its intervals is lost."""

WORKER_HEARTBEAT_SECONDS = 60.0
"""What our own workers announce: one that is frozen is noticed after three minutes, and one that
has nothing to say wakes up once a minute for it."""

STATUS_SECONDS = 5.0
"""So often workers are asked for their STATUS while somebody looks."""

LABELS_KEPT = 50
"""Labels of an issue that its claim keeps, for the message of the commit that lands."""

CHOICES_MAX = 1000
"""Labels, or types, in one PRIORITY: each task is compared with them."""

BATCH_MAX = 100
BATCH_CHARS_MAX = 64 << 10
"""Tasks in one BATCH, and characters of their titles and labels together, but for the last one:
escaped they fit into a line. What else is long travels as files."""


# --- claims and listings --------------------------------------------------------------------
CLAIM_AHEAD_MAX = 32
CLAIM_AHEAD_PER_SLOT = 2
"""Jobs claimed beyond the free slots, at most the larger of 32 and 2 per slot: enough for a group,
and for workers that end together, twice; little to requeue at a stop."""

CLAIM_AHEAD_QUICK_MAX = 1024
QUICK_TRIP_SECONDS = 0.1
"""In place of 32 where a round trip takes less than this: such a source takes hundreds back
as quickly, and with fewer functions that take no time would wait for the disk at every turn."""

LINGER_SECONDS = 0.03
LINGER_SHARE = 0.1
LINGER_SECONDS_MAX = 1.0
LINGER_ISSUES_MAX = 100
"""While other work is at hand, settlements gather so long for one round trip, or a tenth of a round
trip where that is longer; a hundred are a group that needs to grow no further."""

LONG_ATTEMPT_SECONDS = 10.0
"""Attempts from here on hoard nothing: beside them, one round trip is no wait."""

CLAIM_AHEAD_SECONDS = 0.25
"""Of attempts that do not hoard, what will be begun within this time is claimed at once."""

SHORT_ATTEMPT_SECONDS = 1.0
"""Of shorter attempts two for each worker are claimed ahead: nobody is kept from them for long."""

DISCOVERED_MAX = 20
"""So many ids of what agents have filed are kept of a listing: a person reads them."""

HELD_MAX = 20
"""So many issues that other runs hold are kept of a listing: a person reads them."""

LISTED_MIN = 200
LISTED_PER_SLOT = 4
"""A listing is bounded to the larger of 200 rows and 4 per slot: parsing holds the interpreter."""

UNWANTED_SECONDS = 300.0
"""What suited none of the workers that say PRIORITY is claimed again after this: a person may have
changed its priority or its labels meanwhile."""

POLL_SECONDS = 5.0
"""How often an idle fleet asks the tracker for new work."""

WATCH_SECONDS = 1.0
"""How often an idle fleet looks whether somebody has written to the tracker; no call of ``bd``."""
WATCH_REST = 10.0
"""After a round trip because of that, the next look comes so many times its seconds later, or after
``POLL_SECONDS``: who writes all the time costs a tenth of a core at most."""

RECHECK_SECONDS = 0.5
"""What has come to a queue is shown within this, also while every worker is busy."""

PREFETCH_MAX = 32
"""TASKs queued on a worker, at most, beside the one that it works on: enough that it never
waits for one, while others are at work on the machine."""

LINES_OF_A_WORKER = PREFETCH_MAX + 2
"""So many lines are read at once of a connection that has talked sense so far: a READY, and the
answers to all that it was sent. A worker that keeps to the protocol never sends more."""

WORD_BYTES_MAX = 2 * RESULT_CHARS_MAX
"""Of a line that a worker leaves for the next start; a longer one goes without its result."""
WORDS_BYTES_MAX = 16 << 20
"""Of all such lines of a run: what stands behind that is not read, and runs again."""

PREFETCH_SECONDS = 0.01
"""Prefetched is what a worker will begin within this: nobody else could begin it much sooner."""

REVOKE_SECONDS = 0.1
"""What is queued behind a task that takes this long is revoked: another worker may be free."""

# --- leases ---------------------------------------------------------------------------------
LEASE_SURE_SECONDS = 60.0
"""With more than this left a group is closed without a look: the call ends before the lease."""

LEASE_LOOK_SECONDS = 5.0
"""Timers stand still while the machine sleeps: so soon after it woke its leases are looked at."""

SLEEP_SECONDS_MIN = 1.0
"""What the two clocks differ by more than before is a sleep: they are read one after the other."""

LEASE_RETRY_SECONDS = 10.0
"""A renewal that was neither done nor refused is tried again after this."""

LEASE_MARGIN_SECONDS = 30.0
"""Beyond TERM's grace: an attempt is ended so long before its lease is, if that is not renewed.
Even a worker that ignores CANCEL is dead before anybody else may start the issue."""

LEASE_MARGIN_SHARE_MAX = 0.4
"""Of a lease's life: whatever the grace, there is time to renew after half of it."""

LEASE_WAKE_SECONDS = 10.0
"""A lease that is found over, because we slept or were stopped, is renewed within this if nobody
has taken the issue; only then is its attempt ended. Sleep must not throw away what runs."""

TAKEOVER_SECONDS = 60.0
"""With --shared: so long after its end a lease counts as over. Clocks of machines differ."""

TAKEOVER_LOOK_SECONDS = 60.0
"""With --shared: how often it is asked whether another orchestrator has left something."""

SHARED_GRACE_SECONDS_MAX = 60.0
"""With --shared TERM's grace must fit into the margin before the end of a lease."""

# --- failure --------------------------------------------------------------------------------
ATTEMPTS_MAX = 3
RETRY_DELAY_SECONDS = 10.0
RETRY_DELAY_MAX_SECONDS = 300.0
RETRY_AFTER_MAX_SECONDS = 86_400.0
"""A worker may ask for a later retry, but not park an issue for ever."""
FREE_RETRIES_MAX = 19
"""Uncharged retries in a row; from the twentieth on they count, or a job could spin for ever."""
UNPREPARED_MAX = 3
"""Attempts in a row without a worktree, for one reason: an issue that cannot have one."""
UNPREPARED_ISSUES = 3
"""So many different issues without a worktree, and none with one in between: that is the
repository's fault, or the machine's."""
UNPREPARED_TRIAL_SECONDS = 300.0
"""How often one issue finds out whether that is over."""
ALIKE_ISSUES = 3
"""So many different issues in a row on which an agent fails in the same words, without an answer of
its model: that is the model's fault, or the server's."""
ERROR_CHARS_MAX = 2000
"""How much of an error text is kept in journal, note and status."""

CLOSE_REASON_CHARS_MAX = 1500
"""Of the reason of a close in the tracker, which is one line, and committed with it."""

BREAKER_ISSUES = 5
BREAKER_SECONDS = 2.0
"""So many different issues that fail so soon after their start, before the first success of a run:
that is a missing login or the wrong folder, and not the issues' fault."""

# --- agents ---------------------------------------------------------------------------------
RESET_GRACE_SECONDS = 30.0
"""A limit's reset is said to the second, and comes a little later."""
PROBE_SECONDS = 900.0
"""So often one issue finds out whether somebody has logged in again, or a late reset has come."""
PERSON_WAIT_SECONDS = 12 * 3600.0
"""--until-empty waits so long for a person to mend what only a person can."""
TRANSIENT_DELAY_SECONDS = 30.0
TRANSIENT_SECONDS_MAX = 86_400.0
"""The first wait after an overload, doubled each time; what lasts for a day is charged."""
UTILIZATION_HIGH = 0.9
"""From here on a limit is near: fewer agents at once, so that fewer meet it in mid-work."""
WALL_CLOCK_LOOK_SECONDS = 60.0
"""Resets are moments on the clock on the wall, which may jump, and a laptop sleeps."""
STALL_SECONDS = 900.0
"""An agent that prints nothing for so long hangs: the longest tool call is shorter."""
RECEIPT_ITEMS_MAX = 50
LESSON_CHARS_MAX = 8000
"""Of a receipt: entries of a list, and characters of what the next attempt should know."""

# --- landing --------------------------------------------------------------------------------
LAND_JOBS = 2
"""Gates side by side. A second one saves about a fifth of the time, four a quarter."""
REPAIRS_MAX = 2
GATE_TIMEOUT_SECONDS = 1800.0
GATE_RETRY_SECONDS = 600.0
"""Over so long a branch is gated again on which no gate had a verdict."""
LANDER_DELAY_SECONDS = 0.5
LANDER_DELAY_MAX_SECONDS = 60.0
LANDER_DEATHS_MAX = 5
"""A lander that dies is started again, ever later; from here on a person is told."""

# --- the tracker in trouble -----------------------------------------------------------------
SOURCE_RETRY_SECONDS = 1.0
SOURCE_RETRY_MAX_SECONDS = 30.0
START_TRIES = 6
"""So often a start asks a tracker whose trouble may pass, half a minute in all, if it answers."""
BD_SECONDS = 60.0
"""Of one call of ``bd``, far above any that was measured: what takes longer is stuck on a lock or
on the network, and is ended."""
SETTLE_TIMEOUT_SECONDS = 60.0
"""Under --until-empty a close that fails this long ends the run; it is kept for the next start."""
FORGETFUL_SETTLE_SECONDS = 3.0
"""The same if the run directory is gone: nothing can be kept."""

# --- the end --------------------------------------------------------------------------------
STOP_SECONDS = 10.0
"""From the protocol text: workers have ten seconds to leave, then they are killed."""
TERM_GRACE_SECONDS = 5.0
"""Between TERM and KILL to a task's process group; must fit into the stop."""
ABANDON_GRACE_SECONDS = 0.5
"""The same where the orchestrator is gone: the next one may be waiting, and nobody hears us."""
LEAVE_MARGIN_SECONDS = 1.0
"""A worker that lost its connection ends its task within the grace, and exits within this."""
SET_UP_SECONDS = 120.0
"""What a task of dispatcherd that has a timeout needs first is ready by then: its worker class, its
module. The time of the task itself begins afterwards."""
TIMEOUT_MARGIN_SECONDS = 15.0
"""A worker that has not ended an attempt this long after its timeout is itself stuck."""

ORPHAN_GRACE_SECONDS = 30.0
"""A worker that is not ours has lost its connection: it ends its task within this, and longer than
most programs let a child take to end."""
GRACE_SECONDS_MIN = 0.1
"""Of what is left of it after a start, and of the option: 0 stands for none at all."""
LAST_LOOK_SECONDS = 1.0
"""Whoever was hung up on at the end of a stop may still exit because of that."""

SELF_CLAIM_CALL_SECONDS = 60.0
"""A claim, close or release by the worker itself is ended after this: a stuck ``bd`` must not
hold a worker for ever. The same limit as for a ``bd`` of the orchestrator."""

DISK_FLOOR_BYTES = 1_000_000_000
"""No worktree is made with less free disk than this: a full disk stops the whole machine."""

ROOM_BYTES = 4 << 20
"""With less than this free where a run writes, nothing new is taken: what is left is for the
journal and the logs of what runs."""
ROOM_FILES = 64
"""The same in files: each attempt may need one for its issue and one for its log."""

# --- workers that die -----------------------------------------------------------------------
RESPAWN_DELAY_SECONDS = 0.5
RESPAWN_DELAY_MAX_SECONDS = 30.0
CRASH_LOOP_SECONDS = 5.0
"""A worker that lives shorter than this has crashed at its start."""
CRASH_LOOP_MAX = 5
"""Crashes at the start in a row, per worker, before it is given up and shown."""
REAPED_PIDS_KEPT = 64
"""Of so many ended processes a connection that was not looked at yet is known as theirs."""

# --- what is kept on disk -------------------------------------------------------------------
KEEP_RUNS = 20
RUNS_BYTES_MAX = 1 << 30
"""Of older runs only what fits: a fleet that is left alone for months must not fill the disk."""

JOURNAL_BYTES_MAX = 64 << 20
"""Of one run: some 50,000 attempts, read within seconds. What is older is counted, and dropped."""
JOURNAL_BYTES_MIN = 1 << 20
"""Below this a checkpoint could be most of it."""

ATTEMPT_FILES_MAX = 2000
"""Logs, and results, of a run whose jobs come by themselves and never end: the oldest go."""

LOG_BYTES_MAX = 64 << 20
"""Of one attempt: more than anybody reads, and a hundred endless ones do not fill a disk."""
LOG_BYTES_MIN = 256 << 10
"""Below this, too little would be left of beginning and end to tell what happened."""

# --- what is kept in memory for people ------------------------------------------------------
RECENT_MAX = 50
"""Last outcomes and warnings kept for the dashboard."""

BUCKET_SECONDS = 1.0
BUCKETS_MAX = 120
"""Throughput over the whole run, in at most so many buckets, each this long at first."""

assert INLINE_BYTES_MAX * 2 < LINE_BYTES_MAX < OUTBOX_BYTES_MAX // 2
assert TITLE_CHARS_SHORT * 6 < 64 << 10 < TITLE_CHARS_MAX * 6 < LINE_BYTES_MAX
assert (BATCH_CHARS_MAX + TITLE_CHARS_MAX) * 6 < LINE_BYTES_MAX
assert RESULT_CHARS_SHOWN * 6 < RESULT_CHARS_MAX <= INLINE_BYTES_MAX
assert HOLD_SECONDS < HELLO_SECONDS
assert WARM_SECONDS < HELLO_SECONDS
assert HEARTBEAT_SECONDS_MIN <= WORKER_HEARTBEAT_SECONDS <= HEARTBEAT_SECONDS_MAX
assert TERM_GRACE_SECONDS < STOP_SECONDS
assert TERM_GRACE_SECONDS < TIMEOUT_MARGIN_SECONDS
assert HOLD_SECONDS + IDLE_BEAT_SECONDS < IDLE_SECONDS_MAX * 0.8 < OWN_IDLE_SECONDS_MAX
assert WAIT_SECONDS_MIN <= WAIT_SECONDS_RESYNC <= WAIT_SECONDS_MAX
assert WATCH_SECONDS < POLL_SECONDS
assert LISTED_MIN > CLAIM_AHEAD_MAX
assert LISTED_PER_SLOT > CLAIM_AHEAD_PER_SLOT
assert TIMEOUT_MARGIN_SECONDS + LEASE_LOOK_SECONDS + LEASE_RETRY_SECONDS <= LEASE_MARGIN_SECONDS
assert TERM_GRACE_SECONDS + LEASE_MARGIN_SECONDS < LEASE_SURE_SECONDS
assert SHARED_GRACE_SECONDS_MAX + LEASE_MARGIN_SECONDS <= 300.0 * LEASE_MARGIN_SHARE_MAX
