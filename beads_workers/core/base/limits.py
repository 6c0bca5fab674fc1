"""Every limit of the core in one place, each with its reason.

Bytes, seconds or counts, as the name says.
"""

from __future__ import annotations

# --- the wire -------------------------------------------------------------------------------
LINE_BYTES_MAX = 1 << 20
"""Maximum line: a longer one is skipped to its end, so no peer grows the orchestrator's memory."""

INLINE_BYTES_MAX = 256 << 10
"""Payloads and results above this travel as files, so that a line never nears its limit."""

RESULT_CHARS_MAX = 64 << 10
RESULT_CHARS_SHOWN = 1000
"""Maximum JSON of a result in the journal and in the tracker: ten thousand of them must not fill
it. Of a longer one the beginning is kept there, and a function's whole result is in a file."""

OUTPUT_BYTES_MAX = 1 << 20
"""Maximum output of a script, which is its result: its sender has to read it whole."""

ARGUMENTS_CHARS_MAX = 4096
"""Maximum JSON of a call's arguments in the journal: longer ones are in the tracker only."""

TITLE_CHARS_MAX = 64 << 10
"""Maximum title in 1.1. Escaped, it is at most six times as long: a TASK must fit into a line."""

TITLE_CHARS_SHORT = 500
"""Maximum title in version 1: many readers of lines end at 64 KiB, and nothing else in version 1 is
long."""

NESTED_MAX = 100
"""Maximum levels of nested JSON in what we pass on. Python can write far fewer levels than it reads
if the stack is deep already, and no issue or result needs a tenth of this."""

OUTBOX_BYTES_MAX = 4 << 20
"""Unsent bytes that close a peer which does not read: a TASK and its repeat always fit."""

BAD_LINES_MAX = 1000
BAD_LINES_SECONDS = 60.0
"""Wrong lines of one connection within this time that close it: far above any slip, far below a
flood. A worker with a small fault may live for weeks, so nothing is counted over its whole life."""

BAD_LINES_SHOWN = 20
"""Wrong lines, and unknown types, that the log shows for one connection: a flood must not fill the
disk."""

INTEGER_MAX = (1 << 63) - 1
"""Maximum of counts, times and pids; whatever reads the journal back goes no further either."""

LINES_AT_ONCE = 8
"""Lines of one connection that are read before others have their turn."""

STRANGERS_AT_ONCE = 4
"""Connections without a recent valid message that are heard in one turn of the loop. A thousand
that talk at once must not hold up those that work."""

NONSENSE_PAUSE_SECONDS = 0.002
"""Pause between two turns that hear nonsense: a flood costs a quarter of one core, not all of
it."""

KNOCKS_AT_ONCE = 32
"""New connections that are let in during one turn; the others wait in the kernel's queue."""

LOGGED_BYTES_MAX = 300
"""Bytes of a wrong line that the log shows."""

HELLO_SECONDS = 10.0
"""Deadline of a connection's first valid message; without one it is no worker."""

WARM_SECONDS = 6.0
"""Maximum wait for the process for functions before a worker says READY. Its imports may take
longer, and whoever has started us gives us 15 s (RRQ)."""

HOLD_SECONDS = 3.0
"""Time that a READY is held while the tracker is asked; then it is answered with WAIT."""

IDLE_SECONDS_MAX = 25.0
OWN_IDLE_SECONDS_MAX = 60.0
IDLE_BEAT_SECONDS = 5.0
"""Maximum time that a READY is held if there is no work. A hundred held workers cost nothing to
speak of, and get work as soon as it comes. Sockets of others give up after 30 s. A peer that is
gone without a word is found out. WAITs go out on one beat: an idle fleet wakes once for several of
them."""

WAIT_AT_ONCE_SECONDS_MAX = 86_400.0
"""Maximum wait of a selector, which refuses 24 days; waking up once a day costs nothing."""

IN_FLIGHT_MAX = 1000
"""Maximum of ``--in-flight``: each request has an answer in memory."""

LISTEN_BACKLOG = 1024
"""Listen queue: a hundred workers that connect at once must not meet a full one (at least 512)."""

CONNECT_DELAYS_SECONDS = (1.0, 2.0, 4.0)
"""Delays after which a worker that cannot connect tries again; then it gives up."""

WAIT_SECONDS_MIN = 1
WAIT_SECONDS_MAX = 3600
WAIT_SECONDS_RESYNC = 1
"""Seconds of the WAIT that answers a DONE or FAILED for nothing."""

ASIDE_SECONDS = 1.0
"""Interval of messages beside the conversation: one of a kind is kept for each task. They are shown
to people, and a hundred workers must not keep the loop from its work."""


HEARTBEAT_SECONDS_MIN = 1.0
HEARTBEAT_SECONDS_MAX = 300.0
HEARTBEATS_MISSED = 3
"""Silent intervals after which a worker that has announced heartbeats is lost."""

WORKER_HEARTBEAT_SECONDS = 60.0
"""Heartbeat that our own workers announce. A frozen worker is noticed after three minutes, and one
that has nothing to say wakes up for it once a minute."""

STATUS_SECONDS = 5.0
"""Interval at which workers are asked for their STATUS while a person looks."""

LISTEN_SECONDS = 30.0
"""Interval at which comments of issues that wait for an answer are read: an answer that a person
gives by the tracker's own program is noticed soon, and ``bd`` starts a process for each call."""

LISTEN_ISSUES_MAX = 200
"""Maximum issues whose comments are read at a time, those first that have waited longest."""

QUESTIONS_MAX = 3
"""Questions that an issue may ask of a person, unless ``--questions`` says otherwise."""

LABELS_KEPT = 50
"""Labels of an issue that its claim keeps, for the message of the commit that lands."""

CHOICES_MAX = 1000
"""Maximum labels, or types, in one PRIORITY: each task is compared with them."""

BATCH_MAX = 100
BATCH_CHARS_MAX = 64 << 10
"""Maximum tasks in one BATCH, and characters of their titles and labels together, the last task
excluded. Escaped they fit into a line; everything else that is long travels as files."""


# --- claims and listings --------------------------------------------------------------------
CLAIM_AHEAD_MAX = 32
CLAIM_AHEAD_PER_SLOT = 2
"""Maximum of jobs claimed beyond the free slots: the larger of 32 and 2 per slot. That is enough
for a group, and for workers that end together, twice; little to requeue at a stop."""

CLAIM_AHEAD_QUICK_MAX = 1024
QUICK_TRIP_SECONDS = 0.1
"""Maximum in place of 32 if a round trip takes less than this. Such a source takes hundreds back as
quickly, and with fewer claims functions that take no time would wait for the disk at every turn."""

LINGER_SECONDS = 0.03
LINGER_SHARE = 0.1
LINGER_SECONDS_MAX = 1.0
LINGER_ISSUES_MAX = 100
"""Time for which settlements gather for one round trip while other work is at hand, or a tenth of a
round trip if that is longer. A hundred are a group that needs to grow no further."""

LONG_ATTEMPT_SECONDS = 10.0
"""Attempts of this length or longer hoard nothing: beside them, one round trip is no wait."""

CLAIM_AHEAD_SECONDS = 0.25
"""Time span claimed ahead for shorter attempts, or four round trips if that is longer."""

SHORT_ATTEMPT_SECONDS = 1.0
"""Attempts below this have two claimed ahead per worker: others wait only briefly for these."""

DISCOVERED_MAX = 20
"""Maximum ids of issues filed by agents that are kept of a listing: a person reads them."""

HELD_MAX = 20
"""Maximum issues held by other runs that are kept of a listing: a person reads them."""

LISTED_MIN = 200
LISTED_PER_SLOT = 4
"""Bound of a listing, the larger of 200 rows and 4 per slot: parsing holds the interpreter."""

UNWANTED_SECONDS = 300.0
"""Time after which issues that suited no worker with a PRIORITY are claimed again. A person may
have changed their priority or labels meanwhile."""

POLL_SECONDS = 5.0
"""Interval at which an idle fleet asks the tracker for new work."""

TRACKER_SYNC_SECONDS = 600.0
"""Interval at which the lines of ``[tracker]`` are run."""

WATCH_SECONDS = 1.0
"""Interval at which an idle fleet checks for writes to the tracker; no call of ``bd``."""
WATCH_REST = 10.0
"""Factor of the pause after a round trip for such a write: so many times its seconds, or
``POLL_SECONDS``. Somebody who writes all the time costs a tenth of a core at most."""

RECHECK_SECONDS = 0.5
"""Delay within which work that came to a queue is shown, even while every worker is busy."""

PREFETCH_MAX = 32
"""Maximum TASKs queued on a worker beside the one that it works on. With these it never waits for a
TASK, while other processes use the machine."""

LINES_OF_A_WORKER = PREFETCH_MAX + 2
"""Lines read at once of a connection that has kept to the protocol so far: a READY, and the answers
to all that it was sent. A worker that keeps to the protocol never sends more."""

WORD_BYTES_MAX = 2 * RESULT_CHARS_MAX
"""Maximum line that a worker leaves for the next start; a longer one goes without its result."""
WORDS_BYTES_MAX = 16 << 20
"""Maximum of all such lines of a run: the tasks of lines behind that run again."""

PREFETCH_SECONDS = 0.01
"""Work that begins within this is prefetched: no other worker could begin it much sooner."""

REVOKE_SECONDS = 0.1
"""Duration of a task that revokes the tasks queued behind it: another worker may be free."""

# --- leases ---------------------------------------------------------------------------------
LEASE_SURE_SECONDS = 60.0
"""Rest of a lease above which a group is closed without a look: the call ends before the lease."""

LEASE_LOOK_SECONDS = 5.0
"""Interval at which leases are checked, because timers stand still while the machine sleeps."""

SLEEP_SECONDS_MIN = 1.0
"""Change of the two clocks' difference that is a sleep: they are read one after the other."""

LEASE_RETRY_SECONDS = 10.0
"""Time after which a renewal that was neither done nor refused is tried again."""

LEASE_MARGIN_SECONDS = 30.0
"""Time beyond TERM's grace at which an attempt is ended before its lease is, if that is not
renewed. Even a worker that ignores CANCEL is dead before anybody else may start the issue."""

LEASE_MARGIN_SHARE_MAX = 0.4
"""Maximum share of this margin in a lease's life: time to renew remains after half of it."""

LEASE_WAKE_SECONDS = 10.0
"""Time for renewing a lease that is found over because we slept or were stopped, if nobody has
taken the issue. Only then is its attempt ended: sleep must not throw away running work."""

TAKEOVER_SECONDS = 60.0
"""With --shared, time after its end at which a lease counts as over. Clocks of machines differ."""

TAKEOVER_LOOK_SECONDS = 60.0
"""With --shared, interval at which issues left by other orchestrators are looked for."""

SHARED_GRACE_SECONDS_MAX = 60.0
"""With --shared, maximum of TERM's grace: it must fit into the margin before a lease's end."""

# --- failure --------------------------------------------------------------------------------
ATTEMPTS_MAX = 3
RETRY_DELAY_SECONDS = 10.0
RETRY_DELAY_MAX_SECONDS = 300.0
RETRY_AFTER_MAX_SECONDS = 86_400.0
"""Maximum delay of a retry that a worker asks for: it must not park an issue for ever."""
FREE_RETRIES_MAX = 19
"""Uncharged retries in a row; from the twentieth on they count, or a job could spin for ever."""
UNPREPARED_MAX = 3
"""Attempts in a row without a worktree, for one reason: an issue that cannot have one."""
UNPREPARED_ISSUES = 3
"""Different issues without a worktree, and none with one in between, after which the fault is the
repository's, or the machine's."""
UNPREPARED_TRIAL_SECONDS = 300.0
"""Interval at which one issue finds out whether that is over."""
ALIKE_ISSUES = 3
"""Different issues in a row on which an agent fails in the same words, without an answer of its
model: then the fault is the model's, or the server's."""
ERROR_CHARS_MAX = 2000
"""Maximum of an error text that is kept in journal, note and status."""

CLOSE_REASON_CHARS_MAX = 1500
"""Maximum reason of a close in the tracker, which is one line, and committed with it."""

BREAKER_ISSUES = 5
BREAKER_SECONDS = 2.0
"""Different issues that fail so soon after their start, before the first success of a run. The
cause is a missing login or the wrong folder, not the issues."""

# --- agents ---------------------------------------------------------------------------------
RESET_GRACE_SECONDS = 30.0
"""Delay after an announced reset: it is given to the second, and comes a little later."""
PROBE_SECONDS = 900.0
"""Interval at which one issue finds out whether the login is fixed, or a late reset has come."""
PERSON_WAIT_SECONDS = 12 * 3600.0
"""Time for which --until-empty waits for a person to fix what only a person can."""
TRANSIENT_DELAY_SECONDS = 30.0
TRANSIENT_SECONDS_MAX = 86_400.0
"""First wait after an overload, doubled each time; an overload that lasts for a day is charged."""
UTILIZATION_HIGH = 0.9
"""Utilization from which fewer agents run at once, so that fewer meet the limit in mid-work."""
WALL_CLOCK_LOOK_SECONDS = 60.0
"""Interval at which the wall clock is read for resets: the clock may jump, and a laptop sleeps."""
STALL_SECONDS = 900.0
"""Silence after which an agent hangs: the longest tool call is shorter."""
RECEIPT_ITEMS_MAX = 50
LESSON_CHARS_MAX = 8000
"""Maximum entries of a list in a receipt, and characters of what the next attempt should know."""

# --- landing --------------------------------------------------------------------------------
LAND_JOBS = 2
"""Gates side by side. A second one saves about a fifth of the time, four a quarter."""
REPAIRS_MAX = 2
GATE_TIMEOUT_SECONDS = 1800.0
GATE_RETRY_SECONDS = 600.0
"""Time over which a branch is gated again on which no gate had a verdict."""
PULLS_LOOK_SECONDS = 30.0
CHECKS_WAIT_SECONDS = 1800.0
"""How often pull requests are looked at, and how long a run waits for them."""
LANDER_DELAY_SECONDS = 0.5
LANDER_DELAY_MAX_SECONDS = 60.0
LANDER_DEATHS_MAX = 5
"""Delays before a dead lander is started again, and deaths after which a person is told."""

# --- the tracker in trouble -----------------------------------------------------------------
SOURCE_RETRY_SECONDS = 1.0
SOURCE_RETRY_MAX_SECONDS = 30.0
START_TRIES = 6
"""Tries of a start at a tracker whose trouble may pass: half a minute in all, if it answers."""
BD_SECONDS = 60.0
"""Maximum time of one call of ``bd``, far above any that was measured. A longer call is stuck on a
lock or on the network, and is killed."""
SETTLE_TIMEOUT_SECONDS = 60.0
"""Time after which a failing close ends a run with --until-empty; it is kept for the next start."""
FORGETFUL_SETTLE_SECONDS = 3.0
"""The same if the run directory is gone, and nothing can be kept; or the tracker, and the journal
keeps what is pending."""

# --- the end --------------------------------------------------------------------------------
STOP_SECONDS = 10.0
"""Time for workers to leave, from the protocol text; after these ten seconds they are killed."""
TERM_GRACE_SECONDS = 5.0
"""Time between TERM and KILL to a task's process group; must fit into the stop."""
ABANDON_GRACE_SECONDS = 0.5
"""The same if the orchestrator is gone: the next one may be waiting, and nobody hears us."""
LEAVE_MARGIN_SECONDS = 1.0
"""Time beyond the grace in which a worker that lost its connection exits."""
SET_UP_SECONDS = 120.0
"""Time for the setup of a task of dispatcherd that has a timeout: its worker class, its module. The
time of the task itself begins afterwards."""
TIMEOUT_MARGIN_SECONDS = 15.0
"""Time after its timeout at which an unended attempt means that its worker is stuck."""

AWAY_LEASE_SECONDS = 600.0
"""Time that an attempt on another machine goes on while it does not hear of us."""
AWAY_MARGIN_SECONDS = 5.0
"""Time after a lease and its grace at which nothing of an attempt lives any more."""
ORPHAN_GRACE_SECONDS = 30.0
"""Time in which a worker that is not ours ends its task after it lost its connection. It is longer
than most programs let a child take to end."""
GRACE_SECONDS_MIN = 0.1
"""Minimum of the grace that is left after a start, and of the option: 0 stands for none at all."""
LAST_LOOK_SECONDS = 1.0
"""Last wait at the end of a stop: a worker may exit because its connection was closed."""

SELF_CLAIM_CALL_SECONDS = 60.0
"""Time after which a claim, close or release by the worker itself is killed: a stuck ``bd`` must
not hold a worker for ever. The same limit as for a ``bd`` of the orchestrator."""

DISK_FLOOR_BYTES = 1_000_000_000
"""Minimum of free disk for a new worktree: a full disk stops the whole machine."""

ROOM_BYTES = 4 << 20
"""Minimum of free disk for new work on the disk of a run: the rest is for the journal and the logs
of running attempts."""
ROOM_FILES = 64
"""The same in files: each attempt may need one for its issue and one for its log."""

# --- workers that die -----------------------------------------------------------------------
RESPAWN_DELAY_SECONDS = 0.5
RESPAWN_DELAY_MAX_SECONDS = 30.0
CRASH_LOOP_SECONDS = 5.0
"""Lifetime below which a worker has crashed at its start."""
CRASH_LOOP_MAX = 5
"""Crashes at the start in a row, per worker, before it is given up and shown."""
REAPED_PIDS_KEPT = 64
"""Ended processes that are remembered, so that an unread connection is known as theirs."""

# --- what is kept on disk -------------------------------------------------------------------
NIGHT_GAP_SECONDS = 8 * 3600.0
"""Seconds without a run after which the next one begins another night: longer than a break, shorter
than a working day."""

NIGHT_RUNS_MAX = 200
"""Runs of one night that are told and kept: a fleet that is started each hour, for ever, has nights
without an end."""

KEEP_RUNS = 20
RUNS_BYTES_MAX = 1 << 30
"""Maximum size of older runs: a fleet that is left alone for months must not fill the disk."""

JOURNAL_BYTES_MAX = 64 << 20
"""Maximum journal of one run: some 50,000 attempts, read within seconds. Older records are counted,
and dropped."""
JOURNAL_BYTES_MIN = 1 << 20
"""Minimum of that limit: below it a checkpoint could be most of the journal."""

ATTEMPT_FILES_MAX = 2000
"""Maximum logs, and results, of a run with endless jobs: the oldest are removed."""

LOG_BYTES_MAX = 64 << 20
"""Maximum log of one attempt: nobody reads more, and a hundred endless ones fill no disk."""
LOG_BYTES_MIN = 256 << 10
"""Minimum of that limit: with less, beginning and end would not tell what happened."""

# --- what is kept in memory for people ------------------------------------------------------
RECENT_MAX = 50
"""Maximum of last outcomes and warnings kept for the dashboard."""

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
