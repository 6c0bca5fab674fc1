"""Flows and faults of the protocol, played to an orchestrator: one function each.

Source: docs/PROTOCOL.md. A case names the requirements that it confirms if it reaches its end.
"""

from __future__ import annotations

import json
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from beads_workers.conformance.bench import NotClaimed
from beads_workers.conformance.floor import WAIT_SECONDS_MAX, Floor, Peer
from beads_workers.conformance.link import LINE_BYTES_MAX, Breach, Message
from beads_workers.conformance.worker_cases import NONSENSE

Play = Callable[[Floor], None]

CONNECTIONS = 100
HELLO_SECONDS = 10.0
WRONG_LINES = 1000
DRY_TASKS_MAX = 400
"""Tasks that the kit finishes to see an orchestrator without work."""
UNREAD_BYTES = 8 << 20
"""Unread bytes to provoke: twice what may wait for a peer that does not read."""
AGAIN_BY_PATIENCE = 4
"""Factor of the patience within which a lost task is handed on: an orchestrator may back off."""


class Phase(Enum):
    """Phase in which a case is played: with others, alone, at the end of a run, or at its stop."""

    TOGETHER = 0
    ALONE = 1
    LAST = 2
    STOP = 3


@dataclass(frozen=True, slots=True)
class OrchestratorCase:
    """One conversation, with one or two workers."""

    name: str
    ids: tuple[str, ...]
    play: Play
    phase: Phase


class Cases(list[OrchestratorCase]):
    """The cases of one module."""

    def case(self, *ids: str, phase: Phase = Phase.TOGETHER) -> Callable[[Play], Play]:
        """Return a decorator that adds a case to this list."""

        def add(play: Play) -> Play:
            self.append(OrchestratorCase(play.__name__, ids, play, phase))
            return play

        return add


CASES = Cases()
case = CASES.case


# --- the socket ----------------------------------------------------------------------------------


@case("O-2.1-1")
def mode(floor: Floor) -> None:
    """Check that only the owner may connect."""
    found = stat.S_IMODE(Path(floor.path).stat().st_mode)
    if found != 0o600:
        raise Breach("O-2.1-1", f"its mode is {found:04o}")


@case("O-2.1-2")
def a_hundred_at_once(floor: Floor) -> None:
    """Check that a hundred simultaneous connections are accepted."""
    with ExitStack() as open_ones:
        for number in range(CONNECTIONS):
            connection = open_ones.enter_context(socket.socket(socket.AF_UNIX))
            connection.setblocking(False)
            try:
                connection.connect(floor.path)
            except OSError as error:
                raise Breach("O-2.1-2", f"connection {number + 1}: {error.strerror}") from None


@case("O-7-1")
def says_nothing(floor: Floor) -> None:
    """Check that a silent connection is closed after ten seconds."""
    began = time.monotonic()
    peer = floor.worker()
    peer.read(HELLO_SECONDS + floor.timing.patience)
    took = time.monotonic() - began
    still_open = f"it is still open after {took:.0f} s"
    peer.must("O-7-1", peer.link.is_over, still_open, peer.timing.patience)
    peer.must("O-7-1", took > HELLO_SECONDS / 2, f"it was closed after {took:.1f} s")


@case("O-7-1")
def silent_in_a_task(floor: Floor) -> None:
    """Check that no later silence ends a connection."""
    peer = floor.worker()
    peer.get_task("O-7-1")
    peer.quiet("O-7-1", HELLO_SECONDS + floor.timing.quiet)


# --- the conversation ----------------------------------------------------------------------------


@case("O-3-1", "O-4.1-1", "O-5.1-1", "O-5.1-2", "O-6-2", "O-9.1-1")
def one_reply(floor: Floor) -> None:
    """Do two tasks as a worker of version 1, and fail a third."""
    peer = floor.worker()
    peer.quiet("O-5.1-2")
    for _ in range(2):
        task = peer.get_task()
        peer.quiet("O-5.1-1")
        _is_version_1(peer, task)
        peer.finish()
        peer.quiet("O-5.1-2")
    peer.get_task()
    peer.say("FAILED", issue_id=_issue(peer), error="the kit fails it", duration_ms=1)
    peer.let_go()
    peer.quiet("O-5.1-2")
    _is_version_1(peer, peer.ask())


def _issue(peer: Peer) -> str:
    assert peer.task is not None
    return str(peer.task["issue_id"])


_FIELDS = {"TASK": ["issue_id", "priority", "title"], "WAIT": ["wait_seconds"]}


def _is_version_1(peer: Peer, reply: Message) -> None:
    due = ["type", "worker_id", "timestamp", *_FIELDS[reply["type"]]]
    peer.must("O-9.1-1", list(reply) == due, f"{reply['type']} has {', '.join(reply)}")


@case("O-5.3-1")
def ready_in_a_task(floor: Floor) -> None:
    """Check that READY during a task gets the same TASK again, never a second one."""
    peer = floor.worker()
    task = peer.get_task()
    again = peer.ask("O-5.3-1")
    peer.must("O-5.3-1", again["type"] == "TASK", f"{again['type']} came in place of the TASK")
    same = again["issue_id"] == task["issue_id"]
    peer.must("O-5.3-1", same, f"it has {task['issue_id']}, and was sent {again['issue_id']}")
    other = [key for key, value in again.items() if key != "timestamp" and value != task.get(key)]
    peer.must("O-5.3-1", not other, f"it was sent another {', '.join(other)}")


@case("O-5.3-2", "O-5.3-4")
def done_for_another_issue(floor: Floor) -> None:
    """Check that DONE for another issue gets WAIT 1, and the task stays."""
    peer = floor.worker()
    task = peer.get_task()
    peer.say("DONE", issue_id="no-such-issue", duration_ms=1)
    _resynchronised(peer)
    again = peer.ask("O-5.3-4")
    same = again.get("issue_id") == task["issue_id"]
    peer.must("O-5.3-4", same, f"its task was {task['issue_id']}, and now {again.get('issue_id')}")


def _resynchronised(peer: Peer, requirement: str = "O-5.3-2") -> None:
    message = peer.read(peer.timing.patience)
    due = message is not None and message["type"] == "WAIT" and message["wait_seconds"] == 1
    peer.must(requirement, due, f"WAIT of 1 second was due, and {json.dumps(message)[:200]} came")


@case("O-5.3-2", "O-5.3-3")
def done_for_nothing(floor: Floor) -> None:
    """Check that a FAILED that crosses a READY uses up no reply."""
    peer = floor.worker()
    peer.say("DONE", issue_id="no-such-issue", duration_ms=1)
    _resynchronised(peer)
    both = [peer.message("READY"), peer.message("FAILED", issue_id="no-such-issue", error="x",
                                                duration_ms=1)]  # fmt: skip
    peer.link.send_bytes(b"".join(json.dumps(each).encode() + b"\n" for each in both))
    replies = [peer.reply("O-5.3-3") for _ in both]
    waits = [reply for reply in replies if reply["type"] == "WAIT" and reply["wait_seconds"] == 1]
    peer.must("O-5.3-2", bool(waits), "no WAIT of 1 second came")
    peer.quiet("O-5.3-3")


@case("O-6-1", "O-6-3")
def two_of_one_name(floor: Floor) -> None:
    """Check that two workers of the same name are two."""
    first, second = floor.worker("same"), floor.worker("same")
    one, other = first.get_task("O-6-1"), second.get_task("O-6-1")
    first.must("O-6-1", one["issue_id"] != other["issue_id"], "both have the same issue")
    first.must("O-6-1", first.called != second.called, f"both are called {first.called}")
    first.say("DONE", issue_id=other["issue_id"], duration_ms=1)
    _resynchronised(first, "O-6-1")
    # It goes on under the name that the other one was given, and then under a third.
    first.worker_id = second.called
    again = first.ask("O-6-1")
    same = again.get("issue_id") == one["issue_id"]
    first.must("O-6-1", same, "with another worker_id it has another task")
    first.worker_id = "renamed"
    first.finish()
    first.quiet("O-6-1")
    ended = first.ask("O-6-1").get("issue_id") != one["issue_id"]
    first.must("O-6-1", ended, "its DONE with another worker_id has not ended its task")
    again = second.ask("O-6-1")
    same = again.get("issue_id") == other["issue_id"]
    first.must("O-6-1", same, "the DONE of one has ended the task of the other")


@case("O-7-2")
def gone_in_a_task(floor: Floor) -> None:
    """Lose a worker with its process; ``handed_on`` checks who gets its issue."""
    lost = floor.worker()
    lost.get_task()
    lost.lose("O-7-2")


@case("O-7-3")
def back_from_a_task(floor: Floor) -> None:
    """Lose a connection, and come back.

    A DONE on the next connection for the task of the old one counts as a DONE for nothing.
    """
    lost = floor.worker()
    issue_id = lost.get_task()["issue_id"]
    lost.come_back()
    # The end of the old connection may be read after the first one.
    for _ in range(2):
        lost.say("DONE", issue_id=issue_id, duration_ms=1)
        _resynchronised(lost)
    lost.lose("O-7-3")


@case(phase=Phase.LAST)
def handed_on(floor: Floor) -> None:
    """Check that every issue that was lost in any case is handed on.

    An orchestrator may back off, and have claimed others before it: all that are left are taken.
    """
    left = _not_handed_on(floor)
    if not left:
        return
    peer = floor.worker()
    deadline = time.monotonic() + AGAIN_BY_PATIENCE * floor.timing.patience
    while left and time.monotonic() < deadline:
        reply = peer.ask(left[0][1])
        if reply["type"] == "TASK":
            peer.finish()
        else:
            time.sleep(min(reply["wait_seconds"], WAIT_SECONDS_MAX))
        left = _not_handed_on(floor)
    for issue_id, requirement in left:
        raise Breach(requirement, f"nobody was sent {issue_id} again", floor.timing.patience)


def _not_handed_on(floor: Floor) -> list[tuple[str, str]]:
    return [each for each in floor.book.lost.items() if floor.book.times[each[0]] < 2]


@case("O-4.1-1", "O-5.1-1", phase=Phase.STOP)
def runs_dry(floor: Floor) -> None:
    """Finish the issues that are left: what WAIT says, and that nothing follows it unasked.

    One is kept and fails at the end, so that an orchestrator does not end for want of work.
    """
    kept, idle = floor.worker(), floor.worker()
    kept.get_task()
    for _ in range(DRY_TASKS_MAX):
        if idle.ask()["type"] == "WAIT":
            break
        idle.finish()
    kept.say("FAILED", issue_id=_issue(kept), error="the kit fails it", duration_ms=1)
    kept.let_go()
    if idle.task is None:
        idle.quiet("O-5.1-1")


@case("O-4.7-1", "O-5.3-5", phase=Phase.STOP)
def stops(floor: Floor) -> None:
    """Check that a held READY is answered with SHUTDOWN, and so is a READY after a task.

    After that, no message may come.
    """
    if not floor.stop:
        raise NotClaimed("it needs --stop COMMAND")
    busy = floor.worker()
    with suppress(NotClaimed):
        busy.get_task()
    held = _paused(floor)
    held.say("READY")
    held.read(floor.timing.quiet)
    held.may_end = busy.may_end = True
    floor.transcript.append(f"  (the kit runs {' '.join(floor.stop)})")
    quiet = subprocess.DEVNULL
    with subprocess.Popen(floor.stop, stdin=quiet, stdout=quiet, stderr=quiet):
        _told_to_leave(held)
        _told_to_leave(busy)
        for peer in (held, busy):
            peer.say("READY")
        for peer in (held, busy):
            message = peer.read(floor.timing.quiet)
            peer.must("O-5.3-5", message is None, f"after SHUTDOWN came {json.dumps(message)}")
            peer.leave()


def _paused(floor: Floor) -> Peer:
    """Return a worker whose READY is held; in version 1, which has no such thing, a plain
    worker."""
    peer = floor.worker("kit", "1.1", ("cancel", "grouped", "pause"))
    try:
        peer.ask()
    except NotClaimed:
        return floor.worker()
    while peer.task is not None:
        peer.finish()
    peer.say("PAUSE")
    return peer


def _told_to_leave(peer: Peer) -> None:
    message = peer.read(peer.timing.patience)
    if message is None and not peer.link.is_over:
        if peer.task is not None:
            peer.finish()
        peer.say("READY")
        message = peer.read(peer.timing.patience)
    is_shutdown = message is not None and message["type"] == "SHUTDOWN"
    came = "nothing" if message is None else json.dumps(message)[:200]
    is_late = message is None and not peer.link.is_over
    allowed = peer.timing.patience if is_late else 0.0
    peer.must("O-4.7-1", is_shutdown, f"SHUTDOWN was due, and {came} came", allowed)


# --- bytes and wrong messages --------------------------------------------------------------------


@case("O-3-2", "O-3-3")
def lines_in_pieces(floor: Floor) -> None:
    """Send lines in pieces, and several at once: a stream has no messages, only bytes."""
    peer = floor.worker("größe")
    line = json.dumps(peer.message("READY"), ensure_ascii=False).encode()
    for start in range(0, len(line), 9):
        peer.link.send_bytes(line[start : start + 9], shown=False)
        time.sleep(0.005)
    peer.link.send_bytes(b"\n", shown=False)
    peer.reply("O-3-2")
    peer.get_task()
    done = peer.message("DONE", issue_id=_issue(peer), duration_ms=1)
    ready = peer.message("READY")
    peer.let_go()
    lines = b"".join(b"\n\r\n" + json.dumps(each).encode() + b"\r\n" for each in (done, ready))
    peer.link.send_bytes(lines)
    peer.reply("O-3-3")
    peer.quiet("O-3-2")


@case("O-3-4")
def too_long_a_line(floor: Floor) -> None:
    """Check that a line that is too long is skipped to its end."""
    peer = floor.worker()
    peer.link.send_bytes(b"x" * (LINE_BYTES_MAX + 100_000) + b"\n", shown=False)
    peer.ask("O-3-4")


@case("O-4.1-2")
def unknown_keys(floor: Floor) -> None:
    """Check that keys of a later version are ignored."""
    peer = floor.worker()
    peer.say("READY", novelty={"type": "DONE"}, zeal=None)
    peer.reply("O-4.1-2")
    if peer.task is None:
        peer.get_task("O-4.1-2")
    peer.finish(novelty=[1])
    peer.quiet("O-4.1-2")


@case("O-8-1")
def nonsense(floor: Floor) -> None:
    """Check that each of these invalid lines is ignored."""
    peer = floor.worker()
    for line in NONSENSE:
        peer.link.send_bytes(line + b"\n")
    for wrong in ({"timestamp": None}, {"worker_id": 7}, {"worker_id": ""}):
        peer.link.send(peer.message("READY") | wrong)
    peer.quiet("O-8-1")
    peer.ask("O-8-1")


@case("O-8-2")
def unknown_types(floor: Floor) -> None:
    """Check that messages of a later version and those of orchestrators are ignored."""
    peer = floor.worker()
    task = peer.get_task("O-8-2")
    for kind in ("NOVELTY", "ready", "HELLO"):
        peer.say(kind, issue_id=task["issue_id"], duration_ms=1)
    peer.quiet("O-8-2")
    same = peer.ask("O-8-2").get("issue_id") == task["issue_id"]
    peer.must("O-8-2", same, "such a message has ended its task")


@case("O-8-3")
def lean_answers(floor: Floor) -> None:
    """Check that DONE and FAILED end a task even if other fields are missing."""
    peer = floor.worker()
    ended = ""
    for kind, more in (("DONE", {"duration_ms": 1.0, "timestamp": "now"}), ("DONE", {}),
                       ("FAILED", {})):  # fmt: skip
        issue_id = peer.get_task("O-8-3")["issue_id"]
        peer.must("O-8-3", issue_id != ended, f"{issue_id} is its task still, after DONE")
        peer.link.send({"type": kind, "issue_id": issue_id, **more})
        peer.let_go()
        peer.quiet("O-8-3")
        ended = issue_id
    peer.ask("O-8-3")


@case("O-8-4")
def flood(floor: Floor) -> None:
    """Check that a connection with only invalid lines is closed."""
    peer = floor.worker()
    peer.ask("O-8-4")
    peer.let_go()
    peer.link.send_bytes(b"nonsense\n" * (WRONG_LINES + 100), shown=False)
    peer.link.transcript.append(f"> nonsense ({WRONG_LINES + 100} lines)")
    message = peer.read(floor.timing.patience)
    closed = message is None and peer.link.is_over
    peer.must("O-8-4", closed, "its connection is still open", peer.timing.patience)


@case("O-7-4")
def reads_nothing(floor: Floor) -> None:
    """Check that unread replies do not grow without limit: the connection is closed or not read."""
    peer = floor.worker("kit", "1.1")
    try:
        owed = len(json.dumps(peer.get_task()))
    except NotClaimed:
        peer = floor.worker()
        owed = len(json.dumps(peer.get_task()))
    ready = json.dumps(peer.message("READY")).encode() + b"\n"
    ends = peer.link.flood(ready, UNREAD_BYTES // owed, floor.timing.patience)
    peer.must("O-7-4", ends, f"it is still open, with {UNREAD_BYTES >> 20} MiB of unread replies")
    peer.die()


# --- version 1.1 ---------------------------------------------------------------------------------


@case("O-9.1-2", "O-9.2-1")
def version_1_1(floor: Floor) -> None:
    """Check the fields that a worker which opts in to 1.1 is sent."""
    peer = floor.worker("kit", "1.1")
    task = peer.get_task()
    peer.must("O-9.1-2", task.get("version") == "1.1", "its TASK does not say 1.1")
    due = ("description", "issue_type", "labels", "attempt")
    missing = [name for name in due if name not in task]
    peer.must("O-9.2-1", not missing, f"its TASK lacks {', '.join(missing)}")
    peer.finish()
    peer.say("DONE", issue_id="no-such-issue", duration_ms=1)
    wait = peer.reply("O-5.3-2")
    peer.must("O-9.1-2", wait.get("version") == "1.1", "its WAIT does not say 1.1")


@case("O-9.1-3")
def later_version(floor: Floor) -> None:
    """Check that a worker of 1.7 is answered in 1.1, if a worker of 1.1 is."""
    floor.worker("kit", "1.1").get_task()
    peer = floor.worker("kit", "1.7")
    version = peer.ask("O-9.1-3").get("version")
    peer.must("O-9.1-3", version == "1.1", f"it is answered with the version {version!r}")
