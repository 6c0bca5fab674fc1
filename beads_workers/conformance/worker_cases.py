"""Flows and faults of the protocol, played to a worker: one function each.

Source: docs/PROTOCOL.md. A case names the requirements that it confirms if it reaches its end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from beads_workers.conformance.bench import DYING_SECONDS, Bench, NotClaimed
from beads_workers.conformance.link import Breach, Message

Play = Callable[[Bench], None]

LONG_CHARS = 300_000
"""Length of a long description: far beyond the 64 KiB that many line readers accept."""
EARLY_SECONDS = 0.1
"""Tolerated error of a clock."""
TASKS = 8
BATCH_TASKS = 4
LONG_WAIT_SECONDS = 3
LATE_SECONDS = 2.0
"""Longest delay of the READY after a WAIT: less than the WAIT itself."""
LETS_GO_SECONDS = 0.4
"""Time for a cancelled task to be gone after FAILED: less than the second that such a task takes
to end, so that an early FAILED is noticed."""


@dataclass(frozen=True, slots=True)
class WorkerCase:
    """``feature``: must be announced in the worker's READY; otherwise the ids are not claimed."""

    name: str
    ids: tuple[str, ...]
    play: Play
    feature: str = ""


CASES: list[WorkerCase] = []


def case(*ids: str, feature: str = "") -> Callable[[Play], Play]:
    """Return a decorator that adds a case to ``CASES``."""

    def add(play: Play) -> Play:
        CASES.append(WorkerCase(play.__name__, ids, play, feature))
        return play

    return add


# --- connecting ----------------------------------------------------------------------------------


@case("W-2.3-2", "W-2.3-3")
def nobody_listens(bench: Bench) -> None:
    """Check that the worker gives up after four attempts within seven seconds."""
    began = time.monotonic()
    bench.launch()
    status = bench.exit_status("W-2.3-3", 7.0 + bench.timing.patience)
    bench.must("W-2.3-3", status != 0, "it exits with status 0")
    took = time.monotonic() - began
    why = f"it gave up after {took:.1f} s; {bench.last_words()}"
    bench.must("W-2.3-2", took > 7.0 - EARLY_SECONDS, why)


@case("W-2.3-2")
def somebody_listens_later(bench: Bench) -> None:
    """Check that the worker finds a socket that appears before its second or third attempt."""
    bench.launch()
    bench.until(lambda: bench.has_exited, 1.5)
    bench.listen()
    bench.accept("W-2.3-2")
    bench.hear_ready()


@case("W-2.2-1")
def bw_socket_counts(bench: Bench) -> None:
    """Check that BW_SOCKET takes precedence over ORCHESTRATOR_PID."""
    elsewhere = bench.folder / "elsewhere.sock"
    bench.listen(elsewhere)
    bench.launch(bw_socket=elsewhere)
    bench.accept("W-2.2-1")
    bench.hear_ready()


@case("W-2.2-2")
def orchestrator_pid_counts(bench: Bench) -> None:
    """Check that the worker derives the socket from the pid if BW_SOCKET is not set."""
    bench.listen()
    bench.launch(only_pid=True)
    bench.accept("W-2.2-2")
    bench.hear_ready()


# --- the plain conversation ----------------------------------------------------------------------


@case(
    *("W-2.3-1", "W-3-1", "W-4.1-1", "W-4.3-2", "W-4.4-1", "W-4.5-1", "W-4.7-1"),
    *("W-5.1-1", "W-5.1-2", "W-5.1-5"),
)
def works_fails_and_leaves(bench: Bench) -> None:
    """Play the flows of docs/PROTOCOL.md, one after the other."""
    bench.start()
    bench.task("ok-1")
    bench.expect("DONE", "W-4.4-1", issue_id="ok-1")
    begun = bench.began("ok-1")
    bench.must("W-4.3-2", begun == 1 or bench.has_own_command, f"ok-1 was begun {begun} times")
    bench.expect("READY", "W-5.1-1")
    bench.quiet("W-5.1-5", ready="W-5.1-2", at_end="W-5.1-4")
    if not bench.has_own_command:
        bench.task("fail-1")
        failed = bench.expect("FAILED", "W-4.5-1", issue_id="fail-1")
        bench.must("W-4.5-1", bool(failed["error"].strip()), "its error says nothing")
        bench.expect("READY", "W-5.1-1")
        bench.quiet("W-5.1-5", ready="W-5.1-2", at_end="W-5.1-4")
    bench.say("SHUTDOWN", reason="idle_timeout")
    bench.must("W-4.7-1", bench.exit_status("W-4.7-1") == 0, "its exit status is not 0")
    bench.proved |= {"W-4.4-1", "W-5.1-1", "W-5.1-2", "W-5.1-5"}
    bench.must_be_ours()


@case("W-5.1-1", "W-5.1-5")
def many_tasks(bench: Bench) -> None:
    """Check that several tasks are answered once each, with a READY after each."""
    bench.start()
    for number in range(TASKS):
        bench.task(f"ok-{number}")
        bench.expect("DONE", "W-5.1-5", issue_id=f"ok-{number}")
        bench.expect("READY", "W-5.1-1")


@case("W-5.1-2", "W-5.1-4")
def silence_after_ready(bench: Bench) -> None:
    """Check that the worker takes an unanswered READY neither for an end nor as a reason to
    repeat."""
    bench.start()
    bench.quiet("W-5.1-2", 3 * bench.timing.quiet, at_end="W-5.1-4")
    bench.task("ok-1")
    bench.expect("DONE", "W-5.1-4", issue_id="ok-1")


@case("W-4.1-3", "W-4.6-1", "W-4.6-3")
def waits(bench: Bench) -> None:
    """Check WAIT of one second, of a float that is an integer, of zero, and of three seconds."""
    bench.start()
    for requirement, seconds in (("W-4.6-1", 1), ("W-4.1-3", 1.0), ("W-4.6-3", 0)):
        began = time.monotonic()
        bench.say("WAIT", wait_seconds=seconds)
        bench.quiet(requirement, 1.0 - EARLY_SECONDS, since=began)
        bench.expect("READY", requirement, 1.0 + bench.timing.patience)
    began = time.monotonic()
    bench.say("WAIT", wait_seconds=LONG_WAIT_SECONDS)
    bench.quiet("W-4.6-1", LONG_WAIT_SECONDS - EARLY_SECONDS, since=began)
    bench.expect("READY", "W-4.6-1", LONG_WAIT_SECONDS + bench.timing.patience)
    took = time.monotonic() - began
    why = f"READY came {took:.1f} s after a WAIT of {LONG_WAIT_SECONDS} s"
    bench.must("W-4.6-1", took < LONG_WAIT_SECONDS + LATE_SECONDS, why, LATE_SECONDS)


@case("W-4.6-2")
def shutdown_while_waiting(bench: Bench) -> None:
    """Check that SHUTDOWN ends a WAIT."""
    bench.start()
    bench.say("WAIT", wait_seconds=60)
    bench.quiet("W-4.6-2", bench.timing.quiet / 2)
    bench.say("SHUTDOWN", reason="user_requested")
    bench.must("W-4.6-2", bench.exit_status("W-4.6-2") == 0, "its exit status is not 0")


@case("W-5.2-4")
def task_while_waiting(bench: Bench) -> None:
    """Check that the worker takes a TASK during a WAIT."""
    bench.start()
    bench.say("WAIT", wait_seconds=60)
    bench.quiet("W-5.2-4", bench.timing.quiet / 2)
    bench.task("ok-1")
    bench.expect("DONE", "W-5.2-4", issue_id="ok-1")
    bench.expect("READY", "W-5.2-4")


@case("W-5.2-5")
def wait_while_waiting(bench: Bench) -> None:
    """Check that the newest WAIT counts, from its own time."""
    bench.start()
    bench.say("WAIT", wait_seconds=2)
    bench.quiet("W-5.2-5", 0.3)
    began = time.monotonic()
    bench.say("WAIT", wait_seconds=3)
    bench.quiet("W-5.2-5", 3.0 - EARLY_SECONDS, since=began)
    bench.expect("READY", "W-5.2-5", 3.0 + bench.timing.patience)


@case("W-4.7-4")
def shutdown_for_no_known_reason(bench: Bench) -> None:
    """Check that SHUTDOWN with a reason of a later version is obeyed."""
    bench.start()
    bench.say("SHUTDOWN", reason="the_moon")
    bench.must("W-4.7-4", bench.exit_status("W-4.7-4") == 0, "its exit status is not 0")


@case("W-4.7-4")
def shutdown_for_no_reason(bench: Bench) -> None:
    """Check that SHUTDOWN without any other field is obeyed."""
    bench.start()
    bench.link.send({"type": "SHUTDOWN"})
    bench.must("W-4.7-4", bench.exit_status("W-4.7-4") == 0, "its exit status is not 0")


@case("W-6-1")
def other_worker_ids(bench: Bench) -> None:
    """Check that the worker accepts any worker_id, even a changing one."""
    bench.start()
    for number, name in enumerate(("somebody else", "W77")):
        task = bench.message("TASK", issue_id=f"ok-{number}", priority=0, title="Try it")
        bench.link.send(task | {"worker_id": name})
        bench.expect("DONE", "W-6-1", issue_id=f"ok-{number}")
        bench.expect("READY", "W-6-1")


# --- busy ----------------------------------------------------------------------------------------


def _holding(bench: Bench) -> Message:
    """Start a worker, and give it a task of version 1 that is held."""
    bench.start()
    task = bench.task("hold-1")
    bench.wait_begun("hold-1")
    return task


@case("W-5.1-3", "W-5.2-1")
def same_task_while_busy(bench: Bench) -> None:
    """Check that a repeated TASK changes nothing."""
    task = _holding(bench)
    bench.quiet("W-5.1-5", ready="W-5.1-3", at_end="W-5.1-4")
    bench.link.send(task)
    bench.quiet("W-5.2-1")
    bench.must("W-5.2-1", bench.began("hold-1") == 1, "it has begun the same task twice")
    bench.let_go("hold-1")
    bench.expect("DONE", "W-4.4-1", issue_id="hold-1")
    bench.expect("READY", "W-5.1-1")
    bench.quiet("W-5.2-1", ready="W-5.1-2")


@case("W-5.2-2")
def another_task_while_busy(bench: Bench) -> None:
    """Check that another TASK is refused at once, and the first one goes on."""
    _holding(bench)
    if bench.ready.get("prefetch_count") or bench.ready.get("batch_size"):
        raise NotClaimed("it prefetches")
    bench.task("ok-2")
    bench.expect("FAILED", "W-5.2-2", issue_id="ok-2", error="busy")
    bench.quiet("W-5.2-2")
    bench.must("W-5.2-2", bench.began("ok-2") == 0, "it has begun what it refused")
    bench.let_go("hold-1")
    bench.expect("DONE", "W-5.2-2", issue_id="hold-1")
    bench.expect("READY", "W-5.1-1")


@case("W-5.2-3")
def wait_while_busy(bench: Bench) -> None:
    """Check that a WAIT during a task changes nothing, and causes no READY."""
    _holding(bench)
    bench.say("WAIT", wait_seconds=1)
    bench.quiet("W-5.2-3", 1.0 + bench.timing.quiet)
    bench.let_go("hold-1")
    bench.expect("DONE", "W-5.2-3", issue_id="hold-1")
    bench.expect("READY", "W-5.1-1")
    bench.quiet("W-5.2-3", ready="W-5.1-2")


@case("W-4.7-1", "W-4.7-2")
def shutdown_while_busy(bench: Bench) -> None:
    """Check that SHUTDOWN ends the task with its child, and then the worker."""
    _holding(bench)
    bench.say("SHUTDOWN", reason="user_requested")
    bench.wait_ended("W-4.7-2")
    bench.must("W-4.7-1", bench.exit_status("W-4.7-1") == 0, "its exit status is not 0")


@case("W-7-1", "W-7-2")
def lost_while_busy(bench: Bench) -> None:
    """Check that the task ends, and then the worker, if the orchestrator is gone during a task."""
    _holding(bench)
    bench.stop_listening()
    bench.link.close()
    bench.wait_ended("W-7-1")
    status = bench.exit_status("W-7-2", 7.0 + bench.timing.patience)
    bench.must("W-7-2", status != 0, "it exits with status 0")


@case("W-7-2")
def lost_while_idle(bench: Bench) -> None:
    """Check that the worker ends if the orchestrator is gone while a READY is unanswered."""
    bench.start()
    bench.stop_listening()
    bench.link.close()
    status = bench.exit_status("W-7-2", 7.0 + bench.timing.patience)
    bench.must("W-7-2", status != 0, "it exits with status 0")


@case("W-7-4")
def connection_lost_orchestrator_there(bench: Bench) -> None:
    """Check that a worker that connects again has ended the task of its lost connection."""
    _holding(bench)
    bench.link.close()
    try:
        bench.accept("W-7-4")
    except Breach:
        raise NotClaimed("it does not connect anew") from None
    bench.hear_ready()
    has_ended = bench.until(lambda: not bench.processes(), DYING_SECONDS)
    bench.must("W-7-4", has_ended, "it said READY while its lost task goes on")


# --- who claims ----------------------------------------------------------------------------------


def _is(call: str, what: str) -> bool:
    words = call.split()
    if what == "close":
        return words[1] == "close"
    return words[1] == "update" and any(word.endswith(what) for word in words)


def _claimed(bench: Bench, issue_id: str) -> None:
    """Raise ``NotClaimed`` for a worker that does not call the tracker itself."""
    if not bench.bd_calls(issue_id):
        raise NotClaimed("it does not call the tracker")


@case("W-4.3-1", "W-4.3-4", "W-4.3-5")
def claims_and_closes(bench: Bench) -> None:
    """Check the order ``bd update``, work, ``bd close``, DONE; failed issues are not closed."""
    bench.start()
    bench.task("ok-1")
    bench.expect("DONE", "W-4.4-1", issue_id="ok-1")
    _claimed(bench, "ok-1")
    _saw_claim_and_close(bench, "ok-1", "W-4.3-1", "W-4.3-4")
    bench.expect("READY", "W-5.1-1")
    bench.task("fail-1")
    bench.expect("FAILED", "W-4.5-1", issue_id="fail-1")
    bench.expect("READY", "W-5.1-1")
    closed = any(_is(call, "close") for call in bench.bd_calls("fail-1"))
    bench.must("W-4.3-5", not closed, "it closed an issue that failed")


def _saw_claim_and_close(bench: Bench, issue_id: str, claim: str, close: str) -> None:
    bench.must_be_ours()
    log = [line for line in bench.log() if issue_id in line.split()]
    begun = next(n for n, line in enumerate(log) if line.startswith("task "))
    before, after = log[:begun], log[begun + 1 :]
    not_called = "was not called, in a folder with a .beads,"
    claimed = any(_is(call, "in_progress") for call in before)
    bench.must(claim, claimed, f"bd update ... --status=in_progress {not_called} before the work")
    closed = any(_is(call, "close") for call in after)
    bench.must(close, closed, f"bd close {not_called} between the work and DONE")


@case("W-4.3-3")
def claim_is_refused(bench: Bench) -> None:
    """Check that a worker does no work if its claim is refused."""
    bench.start()
    bench.task("ok-refused-1")
    ended = bench.next_turn()
    _claimed(bench, "ok-refused-1")
    bench.must("W-4.3-3", bench.began("ok-refused-1") == 0, "it worked on what it could not claim")
    failed = ended is not None and ended["type"] == "FAILED"
    bench.must("W-4.3-3", failed, "it has not said FAILED")


@case("W-4.7-3")
def shutdown_opens_the_issue(bench: Bench) -> None:
    """Check that the worker reopens its issue on SHUTDOWN."""
    _holding(bench)
    _claimed(bench, "hold-1")
    bench.say("SHUTDOWN", reason="user_requested")
    bench.exit_status("W-4.7-3")
    opened = any(_is(call, "open") for call in bench.bd_calls("hold-1"))
    bench.must("W-4.7-3", opened, "bd update --status=open was not called")


@case("W-7-3")
def loss_opens_the_issue(bench: Bench) -> None:
    """Check that the worker reopens its issue if the orchestrator is gone."""
    _holding(bench)
    _claimed(bench, "hold-1")
    bench.stop_listening()
    bench.link.close()

    def opened() -> bool:
        return any(_is(call, "open") for call in bench.bd_calls("hold-1"))

    bench.must("W-7-3", bench.until(opened), "bd update --status=open was not called")


# --- bytes and wrong messages --------------------------------------------------------------------


@case("W-3-2", "W-3-3")
def lines_in_pieces(bench: Bench) -> None:
    """Send lines in pieces, and several at once: a stream has no messages, only bytes."""
    bench.start()
    line = json.dumps(_small_task(bench, "ok-1")).encode()
    for start in range(0, len(line), 40):
        bench.link.send_bytes(line[start : start + 40], shown=False)
        time.sleep(0.005)
    bench.link.send_bytes(b"\n", shown=False)
    bench.transcript.append(f"< {line.decode()} (in pieces)")
    bench.expect("DONE", "W-3-2", issue_id="ok-1")
    bench.expect("READY", "W-3-2")
    bench.link.send_bytes(b"\n\r\n" + json.dumps(_small_task(bench, "ok-2")).encode() + b"\r\n\n")
    bench.expect("DONE", "W-3-3", issue_id="ok-2")
    bench.expect("READY", "W-3-3")
    unknown = json.dumps(bench.message("NOVELTY")).encode()
    bench.link.send_bytes(
        unknown + b"\n" + json.dumps(_small_task(bench, "ok-3")).encode() + b"\n" + unknown + b"\n"
    )
    bench.expect("DONE", "W-3-2", issue_id="ok-3")


def _small_task(bench: Bench, issue_id: str) -> Message:
    title = "Größe: ein Titel, 標題, \N{ROCKET}"
    return bench.message("TASK", issue_id=issue_id, priority=1, title=title)


@case("W-3-4")
def torn_last_line(bench: Bench) -> None:
    """Check that a message without its line feed is ignored."""
    bench.start()
    bench.link.send_bytes(json.dumps(_small_task(bench, "ok-1")).encode())
    bench.quiet("W-3-4", bench.timing.quiet / 2)
    bench.stop_listening()
    bench.link.close()
    bench.until(lambda: bench.has_exited or bench.began("ok-1") > 0)
    bench.must("W-3-4", bench.began("ok-1") == 0, "it acted on a line without an end")


@case("W-3-5", feature="1.1")
def long_line(bench: Bench) -> None:
    """Check that a description of 300,000 characters is read."""
    bench.start()
    bench.claims_11("1.1")
    additions = bench.additions() | {"description": "x" * LONG_CHARS}
    bench.task("ok-1", **additions)
    bench.expect("DONE", "W-3-5", bench.timing.patience + 5.0, issue_id="ok-1")


@case("W-4.1-2")
def unknown_keys(bench: Bench) -> None:
    """Check that keys of a later version are ignored."""
    bench.start()
    bench.task("ok-1", novelty={"a": [1, None, {"type": "SHUTDOWN"}]}, zeal=True)
    bench.expect("DONE", "W-4.1-2", issue_id="ok-1")
    bench.expect("READY", "W-4.1-2")


NONSENSE = (
    *(b"{", b"[]", b"null", b'"TASK"', b"7", b"{}", b'{"type": 7}', b'{"type": null}'),
    *(b"\xff\xfe\x00", b"\xc3(", b'{"type": "TASK",}', b"[" * 2000, b"TASK", b"\x00"),
)
"""Lines that are no messages."""


@case("W-8-1")
def nonsense(bench: Bench) -> None:
    """Check that each of these invalid lines is ignored."""
    bench.start()
    for line in NONSENSE:
        bench.link.send_bytes(line + b"\n")
    bench.quiet("W-8-1")
    bench.task("ok-1")
    bench.expect("DONE", "W-8-1", issue_id="ok-1")
    bench.expect("READY", "W-8-1")


@case("W-8-1", "W-8-2")
def nonsense_while_waiting(bench: Bench) -> None:
    """Check that ignored lines do not end a WAIT, neither now nor for ever."""
    bench.start()
    began = time.monotonic()
    bench.say("WAIT", wait_seconds=1)
    bench.link.send_bytes(b"nonsense\n")
    bench.quiet("W-8-1", 0.3, since=began)
    bench.say("NOVELTY")
    bench.quiet("W-8-2", 1.0 - EARLY_SECONDS, since=began)
    bench.expect("READY", "W-8-2")


@case("W-8-2")
def unknown_types(bench: Bench) -> None:
    """Check that messages of a later version and those of workers are ignored."""
    bench.start()
    for kind in ("NOVELTY", "task", "READY", "HEARTBEAT", "TASK2"):
        bench.say(kind, issue_id="ok-1", priority=1, title="none of yours", wait_seconds=1)
    bench.quiet("W-8-2", 1.0 + bench.timing.quiet)
    bench.must("W-8-2", bench.began("ok-1") == 0, "it took one of them for a TASK")
    bench.task("ok-2")
    bench.expect("DONE", "W-8-2", issue_id="ok-2")


@case("W-8-3")
def tasks_without_their_fields(bench: Bench) -> None:
    """Check that a TASK with a missing or wrong field is ignored."""
    bench.start()
    whole = _small_task(bench, "ok-1")
    wrong: dict[str, list[object]] = {
        "issue_id": [None, "", 7, ["ok-1"]],
        "priority": [None, 5, -1, "high", True, 1.5],
        "title": [None, 7],
        "worker_id": [None],
        "timestamp": [None],
    }
    for key, values in wrong.items():
        for value in values:
            changed = {k: v for k, v in whole.items() if k != key}
            bench.link.send(changed if value is None else changed | {key: value})
    bench.quiet("W-8-3")
    bench.must("W-8-3", not bench.log(), "it has begun one of them")
    bench.task("ok-2")
    bench.expect("DONE", "W-8-3", issue_id="ok-2")


@case("W-8-4")
def waits_without_seconds(bench: Bench) -> None:
    """Check that a WAIT without valid seconds is ignored: the READY still awaits its answer."""
    bench.start()
    bench.say("WAIT")
    for seconds in (None, "soon", "1", [1], True, 1.5):
        bench.say("WAIT", wait_seconds=seconds)
    bench.quiet("W-8-4", 1.5 + bench.timing.quiet)
    bench.task("ok-1")
    bench.expect("DONE", "W-8-4", issue_id="ok-1")


# --- version 1.1 ---------------------------------------------------------------------------------


@case("W-9.1-1", "W-9.1-2", "W-9.1-3", feature="1.1")
def both_versions(bench: Bench) -> None:
    """Check that the answer to a TASK of version 1 has no field of 1.1."""
    bench.start()
    bench.claims_11("1.1")
    version = bench.ready["version"]
    for issue_id, kind in (("ok-1", "DONE"), ("fail-1", "FAILED")):
        bench.task_11(issue_id)
        ended = bench.expect(kind, "W-9.1-3", issue_id=issue_id)
        bench.must("W-9.1-3", "version" in ended, f"its {kind} says no version")
        ready = bench.expect("READY", "W-5.1-1")
        bench.must("W-9.1-1", ready.get("version") == version, "a later READY says no version")
    for issue_id, kind, more in (("ok-2", "DONE", ()), ("fail-2", "FAILED", ("error",))):
        bench.task(issue_id)
        ended = bench.expect(kind, "W-9.1-2", issue_id=issue_id)
        due = {"type", "worker_id", "timestamp", "issue_id", "duration_ms", *more}
        extra = sorted(ended.keys() - due)
        bench.must("W-9.1-2", not extra, f"its {kind} says {', '.join(extra)}")
        bench.expect("READY", "W-5.1-1")


@case("W-9.2-1", feature="1.1")
def repeated_request(bench: Bench) -> None:
    """Check that a repeated TASK of the last request is ignored."""
    bench.start()
    bench.claims_11("1.1")
    task = bench.task_11("ok-1")
    bench.expect("DONE", "W-4.4-1", issue_id="ok-1")
    bench.expect("READY", "W-5.1-1")
    bench.quiet("W-9.2-1")
    bench.link.send(task)
    bench.quiet("W-9.2-1", 2 * bench.timing.quiet)
    bench.must_be_ours()
    bench.must("W-9.2-1", bench.began("ok-1") == 1, "it has done it twice")
    bench.task_11("ok-1")
    bench.expect("DONE", "W-9.2-1", issue_id="ok-1")


@case("W-9.2-2", feature="1.1")
def task_times_out(bench: Bench) -> None:
    """Check that the worker enforces the timeout of a TASK."""
    bench.start()
    bench.claims_11("1.1")
    bench.task_11("hold-1", timeout_seconds=0.5)
    bench.wait_begun("hold-1")
    bench.expect("FAILED", "W-9.2-2", issue_id="hold-1", outcome="timeout")
    bench.wait_ended("W-9.2-2")
    bench.expect("READY", "W-5.1-1")


@case("W-9.2-3", feature="1.1")
def own_command(bench: Bench) -> None:
    """Check that the worker runs the command of an issue, from the TASK or from a file."""
    bench.start()
    bench.claims_11("1.1")
    file = bench.folder / "payload.json"
    file.write_text(json.dumps({"command": ["bw-task", "ok-own-2"]}))
    ways: list[Message] = [
        {"payload": {"command": ["bw-task", "ok-own-1"]}},
        {"payload_file": str(file)},
    ]
    for number, way in enumerate(ways, 1):
        bench.task_11(f"ok-{number}", **way)
        ended = bench.next_turn(kind="DONE")
        ran = bench.began(f"ok-own-{number}") == 1 and not bench.began(f"ok-{number}")
        failed = ended is not None and ended["type"] == "FAILED" and not bench.began(f"ok-{number}")
        why = f"it has run its own command, and not that of the issue (in {', '.join(way)})"
        bench.must("W-9.2-3", ran or failed, why)
        bench.expect("READY", "W-5.1-1")


@case("W-9.1-4", "W-9.3-1", feature="grouped")
def grouped(bench: Bench) -> None:
    """Check that ``grouped`` leaves the tracker alone, but not for a TASK of version 1."""
    bench.start()
    bench.claims_11("grouped")
    bench.task_11("ok-1")
    bench.expect("DONE", "W-4.4-1", issue_id="ok-1")
    bench.must("W-9.3-1", not bench.bd_calls("ok-1"), "it called the tracker")
    bench.expect("READY", "W-5.1-1")
    bench.task("ok-2")
    bench.expect("DONE", "W-4.4-1", issue_id="ok-2")
    _saw_claim_and_close(bench, "ok-2", "W-9.1-4", "W-9.1-4")


@case("W-9.3-2", "W-9.3-3", feature="1.1")
def told_who_claims(bench: Bench) -> None:
    """Check that ``claims`` decides for a worker that has not announced ``grouped``."""
    bench.start()
    bench.claims_11("1.1")
    if "grouped" in bench.ready.get("features", []):
        raise NotClaimed("it announces grouped, and is told nothing")
    bench.task_11("ok-1", claims="worker")
    bench.expect("DONE", "W-4.4-1", issue_id="ok-1")
    _saw_claim_and_close(bench, "ok-1", "W-9.3-2", "W-9.3-2")
    bench.expect("READY", "W-5.1-1")
    bench.task_11("ok-2", claims="orchestrator")
    bench.expect("DONE", "W-4.4-1", issue_id="ok-2")
    bench.must("W-9.3-3", not bench.bd_calls("ok-2"), "it called the tracker")


def _holding_11(bench: Bench, feature: str, **fields: object) -> Message:
    """Start a worker with this feature, and give it a task of 1.1 that is held."""
    bench.start()
    bench.claims_11(feature)
    task = bench.task_11("hold-1", **fields)
    bench.wait_begun("hold-1")
    return task


def _cancel(bench: Bench, issue_id: str, reason: str) -> None:
    bench.say("CANCEL", version="1.1", issue_id=issue_id, reason=reason)


@case("W-9.4-1", "W-9.4-2", "W-9.4-3", feature="cancel")
def cancel(bench: Bench) -> None:
    """Check that CANCEL ends only the current task, and not with the reason ``revoked``."""
    _holding_11(bench, "cancel")
    _cancel(bench, "hold-2", "another one")
    bench.quiet("W-9.4-2")
    bench.must("W-9.4-2", len(bench.processes()) == 2, "it ended another task")
    _cancel(bench, "hold-1", "revoked")
    bench.quiet("W-9.4-3")
    bench.must("W-9.4-3", len(bench.processes()) == 2, "it ended a task that it had begun")
    _cancel(bench, "hold-1", "a person asked for it")
    bench.expect("FAILED", "W-9.4-1", issue_id="hold-1", outcome="cancelled")
    gone = bench.until(lambda: not bench.processes(), LETS_GO_SECONDS)
    bench.must("W-9.4-1", gone, "it said so while processes of the task are still there")
    bench.expect("READY", "W-9.4-1")


@case("W-9.6-1", feature="1.1")
def progress(bench: Bench) -> None:
    """Check that PROGRESS is only sent for the current task, and only with a request_id."""
    _holding_11(bench, "1.1")
    bench.quiet("W-5.1-5", 1.0 + bench.timing.quiet)
    bench.let_go("hold-1")
    bench.expect("DONE", "W-4.4-1", issue_id="hold-1")
    bench.expect("READY", "W-5.1-1")
    progress_of = _progress_of(bench)
    if not progress_of:
        raise NotClaimed("it says no PROGRESS")
    bench.must("W-9.6-1", set(progress_of) == {"hold-1"}, f"it says PROGRESS of {set(progress_of)}")
    bench.task("hold-2")
    bench.wait_begun("hold-2")
    bench.quiet("W-5.1-5", 1.0 + bench.timing.quiet)
    more = len(_progress_of(bench)) - len(progress_of)
    bench.must("W-9.6-1", more == 0, "it says PROGRESS of a task without a request_id")


def _progress_of(bench: Bench) -> list[str]:
    return [each["issue_id"] for each in bench.link.received if each["type"] == "PROGRESS"]


# --- several tasks -------------------------------------------------------------------------------


@case("W-9.5-1", "W-9.5-2", feature="prefetch")
def prefetch(bench: Bench) -> None:
    """Check that the second of two tasks begins after the first, without a READY in between."""
    _holding_11(bench, "prefetch")
    bench.task_11("hold-2")
    bench.quiet("W-9.5-1", ready="W-9.5-2")
    bench.must("W-9.5-1", bench.order() == ["hold-1"], "it began two at once")
    bench.let_go("hold-1")
    bench.expect("DONE", "W-9.5-1", issue_id="hold-1")
    bench.wait_begun("hold-2", "W-9.5-1")
    bench.quiet("W-9.5-1", ready="W-9.5-2")
    bench.let_go("hold-2")
    bench.expect("DONE", "W-9.5-1", issue_id="hold-2")
    bench.expect("READY", "W-9.5-2")


@case("W-9.5-4", feature="prefetch")
def prefetched_task_is_revoked(bench: Bench) -> None:
    """Check that CANCEL returns a task that has not started."""
    _holding_11(bench, "prefetch")
    task = bench.task_11("ok-2")
    _cancel(bench, "ok-2", "revoked")
    _returned(bench, task, "W-9.5-4")
    bench.let_go("hold-1")
    bench.expect("DONE", "W-9.5-4", issue_id="hold-1")
    bench.expect("READY", "W-9.5-4")
    bench.must("W-9.5-4", bench.began("ok-2") == 0, "it began what it returned")


@case("W-9.5-3", feature="prefetch")
def shutdown_with_prefetched_tasks(bench: Bench) -> None:
    """Check that a task that has not started is returned on SHUTDOWN, and not begun."""
    _holding_11(bench, "prefetch")
    task = bench.task_11("ok-2")
    bench.say("SHUTDOWN", version="1.1", reason="user_requested")
    _returned(bench, task, "W-9.5-3")
    bench.exit_status("W-4.7-1")
    bench.must("W-9.5-3", bench.began("ok-2") == 0, "it began what it returned")


def _returned(bench: Bench, task: Message, requirement: str) -> None:
    failed = bench.expect("FAILED", requirement, issue_id=task["issue_id"], outcome="cancelled")
    bench.must(requirement, failed.get("error_detail") == "returned_unstarted", "its error_detail")
    named = failed.get("request_id") == task["request_id"]
    bench.must(requirement, named, "it does not name the request_id of the TASK")


def _batch(bench: Bench, *issue_ids: str) -> list[Message]:
    """Send a BATCH of these issues; return its tasks."""
    tasks = []
    for issue_id in issue_ids:
        bench.prepare(issue_id)
        task = {"issue_id": issue_id, "priority": 2, "title": "Try it", **bench.additions()}
        del task["version"]
        tasks.append(task)
    bench.say("BATCH", version="1.1", tasks=tasks)
    return tasks


@case("W-9.12-1", feature="batch")
def batch(bench: Bench) -> None:
    """Send as many tasks in one BATCH as the worker accepts, four at most."""
    bench.start()
    bench.claims_11("batch")
    count = min(int(bench.ready.get("batch_size", 2)), BATCH_TASKS)
    names = [*(f"ok-{number}" for number in range(1, count)), f"fail-{count}"]
    _batch(bench, *names)
    for name in names[:-1]:
        bench.expect("DONE", "W-9.12-1", issue_id=name)
    bench.expect("FAILED", "W-9.12-1", issue_id=names[-1])
    bench.expect("READY", "W-9.12-1")
    bench.must("W-9.12-1", bench.order() == names, f"it began {bench.order()}")


@case("W-9.12-2", feature="batch")
def shutdown_in_a_batch(bench: Bench) -> None:
    """Check that the rest of a BATCH is returned unstarted on SHUTDOWN."""
    bench.start()
    bench.claims_11("batch")
    tasks = _batch(bench, "hold-1", "ok-2")
    bench.wait_begun("hold-1", "W-9.12-1")
    bench.say("SHUTDOWN", version="1.1", reason="user_requested")
    _returned(bench, tasks[1], "W-9.12-2")
    bench.exit_status("W-4.7-1")
    bench.must("W-9.12-2", bench.began("ok-2") == 0, "it began what it returned")


# --- heartbeat, status, pause --------------------------------------------------------------------


@case("W-9.8-1", feature="heartbeat")
def heartbeat(bench: Bench) -> None:
    """Check that the worker is never silent longer than announced, also during a task."""
    bench.start()
    bench.claims_11("heartbeat")
    seconds = bench.ready.get("heartbeat_seconds")
    if not isinstance(seconds, int | float) or seconds > (most := bench.timing.heartbeat):
        raise NotClaimed(f"heartbeat_seconds is {seconds}, the kit waits for {most:g} at most")
    for _ in range(2):
        _hear_anything(bench, seconds)
    bench.task_11("hold-1")
    bench.wait_begun("hold-1")
    for _ in range(2):
        _hear_anything(bench, seconds)


def _hear_anything(bench: Bench, seconds: float) -> None:
    if bench.link.read(1.5 * seconds) is None:
        text = f"it said nothing in {1.5 * seconds:g} s, with heartbeat_seconds {seconds:g}"
        raise Breach("W-9.8-1", text)


@case("W-9.9-1", feature="status")
def status(bench: Bench) -> None:
    """Ask for STATUS while the worker is idle, and while it works."""
    bench.start()
    bench.claims_11("status")
    _ask_status(bench, "idle")
    bench.task_11("hold-1")
    bench.wait_begun("hold-1")
    answer = _ask_status(bench, "busy")
    bench.must("W-9.9-1", answer.get("issue_id") == "hold-1", "it does not name its task")


def _ask_status(bench: Bench, state: str) -> Message:
    bench.say("STATUS", version="1.1")
    deadline = time.monotonic() + bench.timing.patience
    while (answer := bench.link.read(deadline - time.monotonic())) is not None:
        if answer["type"] == "STATUS" and answer.get("state") == state:
            return answer
    raise Breach("W-9.9-1", f"it has not answered STATUS with the state {state}")


@case("W-9.10-2", feature="pause")
def pause_in_a_task(bench: Bench) -> None:
    """Pause and resume during a task, which may be stopped meanwhile, and check that it ends."""
    _holding_11(bench, "pause")
    bench.say("PAUSE", version="1.1", reason="a person asked for it")
    bench.quiet("W-9.10-2")
    bench.say("RESUME", version="1.1")
    bench.let_go("hold-1")
    bench.expect("DONE", "W-9.10-2", issue_id="hold-1")
    bench.expect("READY", "W-9.10-2")


@case("W-9.10-1", feature="pause")
def pause_before_a_prefetched_task(bench: Bench) -> None:
    """Check that a task queued on the worker waits for RESUME."""
    _holding_11(bench, "pause")
    bench.claims_11("prefetch")
    bench.task_11("ok-2")
    bench.say("PAUSE", version="1.1", reason="a person asked for it")
    bench.quiet("W-9.10-1", bench.timing.quiet / 2)
    bench.let_go("hold-1")
    bench.until(lambda: bench.began("ok-2") > 0, bench.timing.quiet)
    bench.must("W-9.10-1", bench.began("ok-2") == 0, "it began a task while it was paused")
    bench.say("RESUME", version="1.1")
    bench.expect("DONE", "W-9.10-1", issue_id="hold-1")
    bench.expect("DONE", "W-9.10-2", issue_id="ok-2")
    bench.expect("READY", "W-9.10-2")


@case("W-9.10-3", feature="pause")
def shutdown_while_paused(bench: Bench) -> None:
    """Check that SHUTDOWN ends a task that is paused."""
    _holding_11(bench, "pause")
    bench.say("PAUSE", version="1.1", reason="a person asked for it")
    bench.quiet("W-9.10-1", bench.timing.quiet / 2)
    bench.say("SHUTDOWN", version="1.1", reason="user_requested")
    bench.wait_ended("W-9.10-3")
    bench.must("W-9.10-3", bench.exit_status("W-9.10-3") == 0, "its exit status is not 0")
