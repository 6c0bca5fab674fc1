"""The features of version 1.1, played to an orchestrator: one function each.

Source: docs/PROTOCOL.md, section 9. Optional features (CANCEL, prefetch, BATCH) that an
orchestrator does not use are not claimed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from beads_workers.conformance.bench import NotClaimed
from beads_workers.conformance.floor import WAIT_SECONDS_MAX, Floor, Peer
from beads_workers.conformance.link import Breach, Message
from beads_workers.conformance.orchestrator_cases import Cases, Phase

FEATURES = Cases()
case = FEATURES.case

NOWHERE = "bw-conformance-nowhere"
"""A label, a type and a command that do not exist."""
HEARTBEAT_SECONDS = 1.0
HEARTBEATS_MISSED = 3
EARLY_SECONDS = 0.3
"""Tolerated error of a clock."""
PREFETCH_COUNT = 2
BATCH_SIZE = 3
TRIES = 50
"""Most tasks that the kit takes while it waits for a prefetched task, or for a BATCH."""
TRIES_AT_ONCE = 20
BUSY_SECONDS = 0.2
"""Pause between all later tasks: a load that makes the machine too slow for short tasks may
pass."""
QUICK_SECONDS = 0.002
"""Length of a task that is worth prefetching: an orchestrator need not prefetch long tasks."""


@case("O-9.6-1")
def progress(floor: Floor) -> None:
    """Check that PROGRESS gets no reply."""
    peer = floor.worker("kit", "1.1")
    issue_id = peer.get_task()["issue_id"]
    for percent in (10, None, 20):
        peer.say("PROGRESS", issue_id=issue_id, percent=percent, activity="the kit works")
    peer.quiet("O-9.6-1")


@case("O-9.2-2", "O-5.3-5")
def takes_no_more(floor: Floor) -> None:
    """Check that a worker that is about to leave gets SHUTDOWN, and then nothing."""
    peer = floor.worker("kit", "1.1")
    peer.get_task()
    peer.may_end = True
    peer.finish(is_stopping=True)
    peer.say("READY")
    message = peer.read(peer.timing.hold + peer.timing.patience)
    is_shutdown = message is not None and message["type"] == "SHUTDOWN"
    peer.must("O-9.2-2", is_shutdown, f"SHUTDOWN was due, and {_shown(message)} came")
    peer.say("READY")
    peer.say("DONE", issue_id="no-such-issue", duration_ms=1)
    peer.quiet("O-5.3-5")


def _shown(message: Message | None) -> str:
    return "nothing" if message is None else json.dumps(message)[:200]


# --- what was not announced ----------------------------------------------------------------------


@case("O-8-5")
def messages_of_1_1_from_version_1(floor: Floor) -> None:
    """Check that messages of 1.1 from a worker of version 1 change nothing."""
    peer = floor.worker()
    peer.get_task()
    peer.finish()
    peer.say("PAUSE")
    peer.say("PRIORITY", labels=[NOWHERE])
    peer.say("HEARTBEAT")
    peer.say("STATUS", state="busy")
    _still_served(floor, peer)


@case("O-8-5")
def priority_that_was_not_announced(floor: Floor) -> None:
    """Check that PRIORITY changes nothing if the worker did not announce it."""
    peer = floor.worker("kit", "1.1")
    peer.get_task()
    peer.say("PROGRESS", issue_id="no-such-issue", percent=100, activity="elsewhere")
    peer.finish()
    peer.say("PRIORITY", labels=[NOWHERE])
    _still_served(floor, peer)


def _still_served(floor: Floor, peer: Peer) -> None:
    peer.quiet("O-8-5")
    try:
        peer.get_task("O-8-5")
    except NotClaimed:
        floor.worker().get_task("O-8-5")
        raise Breach("O-8-5", "it gets no task, and somebody else gets one") from None


@case("O-9.1-4")
def nothing_announced(floor: Floor) -> None:
    """Check that the numbers of features have no effect without the features.

    No BATCH, no second task, no end for silence, and no CANCEL may come.
    """
    fields = {"prefetch_count": 3, "batch_size": 5, "heartbeat_seconds": HEARTBEAT_SECONDS}
    peer = floor.worker("kit", "1.1", (), **fields)
    issue_id = peer.get_task("O-9.1-4")["issue_id"]
    peer.quiet("O-9.1-4", HEARTBEATS_MISSED * HEARTBEAT_SECONDS + peer.timing.quiet)
    peer.say("CONTROL", command="cancel", control_data={"uuid": issue_id})
    message = peer.read(peer.timing.quiet)
    while message is not None and message["type"] == "CONTROL_REPLY":
        message = peer.read(peer.timing.quiet)
    peer.must("O-9.1-4", message is None, f"nothing was due, and {_shown(message)} came")
    peer.die()


@case("O-9.1-4", phase=Phase.ALONE)
def announced_once_only(floor: Floor) -> None:
    """Check that the last READY counts, whatever the one before announced."""
    features, fields = ("batch", "cancel", "grouped"), {"batch_size": 5, "prefetch_count": 5}
    peer = floor.worker("kit", "1.1", features, **fields)
    peer.get_task()
    _finish_all(peer)
    peer.says = {"version": "1.1", "features": []}
    peer.get_task("O-9.1-4")
    peer.quiet("O-9.1-4")


# --- prefetch, batch and cancel ------------------------------------------------------------------


def _finish_all(peer: Peer) -> None:
    """Finish all tasks, including those that arrive meanwhile."""
    while peer.task is not None:
        peer.finish()
        while peer.read(QUICK_SECONDS) is not None:
            pass


@case("O-9.5-1", phase=Phase.ALONE)
def prefetch(floor: Floor) -> None:
    """Check that no more tasks are prefetched than announced, and that a crossing READY is
    ignored."""
    peer = floor.worker("kit", "1.1", prefetch_count=PREFETCH_COUNT)
    for number in range(TRIES):
        peer.get_task()
        # Mostly without a pause: on a busy machine a pause is long, and makes a task that is not
        # worth prefetching.
        peer.read(0.0 if number % 5 else QUICK_SECONDS)
        if peer.queued:
            break
        peer.finish()
        if number >= TRIES_AT_ONCE:
            time.sleep(BUSY_SECONDS)
    if not peer.queued:
        raise NotClaimed("it prefetches nothing")
    peer.finish()
    peer.say("READY")
    _prefetched(peer)
    _finish_all(peer)
    peer.ask("O-9.5-1")


def _prefetched(peer: Peer) -> None:
    """Read messages until none comes: new tasks, and not too many; return revoked ones."""
    known = {each["issue_id"] for each in (peer.task, *peer.queued) if each}
    while (message := peer.read(peer.timing.quiet)) is not None:
        if message["type"] == "CANCEL":
            peer.give_back(message["issue_id"])
            known.discard(message["issue_id"])
            continue
        is_new = message["type"] == "TASK" and message["issue_id"] not in known
        peer.must("O-9.5-1", is_new, f"nothing was due, and {_shown(message)} came")
        known.add(message["issue_id"])
        room = f"{len(peer.queued)} are queued, and it accepts {PREFETCH_COUNT}"
        peer.must("O-9.5-1", len(peer.queued) <= PREFETCH_COUNT, room)


@case("O-9.12-1", phase=Phase.ALONE)
def batch(floor: Floor) -> None:
    """Check that a BATCH answers one READY, and that its tasks are ended one by one."""
    features = ("batch", "cancel", "grouped")
    peer = floor.worker("kit", "1.1", features, batch_size=BATCH_SIZE)
    for _ in range(TRIES):
        reply = peer.ask()
        if reply["type"] == "BATCH":
            break
        _finish_all(peer)
        time.sleep(min(reply.get("wait_seconds", 0), WAIT_SECONDS_MAX))
    if reply["type"] != "BATCH":
        raise NotClaimed("it sends no BATCH")
    tasks = [each["issue_id"] for each in reply["tasks"]]
    fits = len(tasks) <= BATCH_SIZE
    peer.must("O-9.12-1", fits, f"it has {len(tasks)} tasks, and batch_size is {BATCH_SIZE}")
    peer.must("O-9.12-1", len({*tasks}) == len(tasks), "it has one issue twice")
    peer.quiet("O-5.1-1")
    peer.say("FAILED", issue_id=tasks[0], error="the kit fails it", duration_ms=1)
    peer.let_go()
    while peer.task is not None:
        peer.finish()
    peer.quiet("O-5.1-2")
    peer.ask()


@case("O-9.4-1")
def cancel(floor: Floor) -> None:
    """Check that CANCEL names the current task, and that an answer that crosses it is accepted."""
    for kind in ("FAILED", "DONE"):
        peer = floor.worker("kit", "1.1")
        issue_id = peer.get_task()["issue_id"]
        peer.say("CONTROL", command="cancel", control_data={"uuid": issue_id})
        message = peer.read(peer.timing.patience)
        if message is not None and message["type"] == "CONTROL_REPLY":
            message = peer.read(peer.timing.patience)
        if message is None or message["type"] != "CANCEL":
            raise NotClaimed("its CONTROL cancel brings no CANCEL")
        is_its = message["issue_id"] == issue_id
        peer.must("O-9.4-1", is_its, f"it has {issue_id}, and not {message['issue_id']}")
        ended = {"outcome": "cancelled", "error": "cancelled"} if kind == "FAILED" else {}
        peer.say(kind, issue_id=issue_id, duration_ms=1, **ended)
        peer.let_go()
        answer = peer.read(peer.timing.quiet)
        if answer is not None and answer["type"] == "CONTROL_REPLY":
            answer = peer.read(peer.timing.quiet)
        peer.must("O-9.4-1", answer is None, f"nothing was due, and {_shown(answer)} came")
        peer.ask("O-9.4-1")


# --- control, heartbeat, pause, priority ---------------------------------------------------------


@case("O-9.7-1")
def control(floor: Floor) -> None:
    """Ask four questions in one write, one of another kind, and check the order of the replies."""
    stranger = floor.worker("kit", "1.1")
    stranger.say("CONTROL", command="alive", control_data={})
    stranger.quiet("O-9.7-1")
    peer = floor.worker("kit", "1.1")
    peer.get_task()
    alone = {}
    for command in ("alive", NOWHERE):
        peer.say("CONTROL", command=command, control_data={})
        alone[command] = _control_reply(peer)
    asked = ["alive", "alive", NOWHERE, "alive"]
    lines = [peer.message("CONTROL", command=each, control_data={}) for each in asked]
    peer.link.send_bytes(b"".join(json.dumps(each).encode() + b"\n" for each in lines))
    replies = [_control_reply(peer) for _ in asked]
    in_order = replies == [alone[each] for each in asked]
    peer.must("O-9.7-1", in_order, "the replies came in another order")
    peer.quiet("O-9.7-1")


def _control_reply(peer: Peer) -> list[str]:
    """Return the keys of a CONTROL_REPLY, which identify it: its values may change."""
    message = peer.read(peer.timing.patience)
    if message is None or message["type"] != "CONTROL_REPLY":
        raise Breach("O-9.7-1", f"CONTROL_REPLY was due, and {_shown(message)} came")
    return sorted(message["reply"])


@case("O-9.8-1")
def heartbeat(floor: Floor) -> None:
    """Check that only valid messages keep a connection with heartbeats open."""
    features = ("cancel", "grouped", "heartbeat")
    peer = floor.worker("kit", "1.1", features, heartbeat_seconds=HEARTBEAT_SECONDS)
    peer.get_task()
    due = HEARTBEATS_MISSED * HEARTBEAT_SECONDS
    until = time.monotonic() + due + HEARTBEAT_SECONDS
    while time.monotonic() < until:
        peer.say("HEARTBEAT")
        peer.quiet("O-9.8-1", HEARTBEAT_SECONDS / 2)
    began = time.monotonic()
    peer.say("HEARTBEAT")
    while time.monotonic() < began + due + peer.timing.patience and not peer.link.is_over:
        peer.link.send_bytes(b"nonsense\n")
        message = peer.read(HEARTBEAT_SECONDS / 2)
        peer.must("O-9.8-1", message is None, f"nothing was due, and {_shown(message)} came")
    took = time.monotonic() - began
    still_open = f"it is still open after {took:.1f} s of silence"
    peer.must("O-9.8-1", peer.link.is_over, still_open, peer.timing.patience)
    peer.must("O-9.8-1", took > due - EARLY_SECONDS, f"it was closed after {took:.1f} s")
    peer.lose("O-9.8-1")


@case("O-9.10-1")
def pause(floor: Floor) -> None:
    """Check that no READY is answered between PAUSE and RESUME; each READY counts once."""
    peer = floor.worker("kit", "1.1", ("cancel", "grouped", "pause"))
    peer.get_task()
    peer.say("PAUSE", reason="the kit pauses")
    peer.quiet("O-9.10-1")
    peer.finish()
    peer.say("READY")
    peer.say("PAUSE")
    peer.quiet("O-9.10-1")
    peer.say("RESUME")
    peer.reply("O-9.10-1")
    _finish_all(peer)
    peer.say("RESUME")
    peer.quiet("O-9.10-1")
    peer.ask("O-9.10-1")


@case("O-9.11-1")
def priority(floor: Floor) -> None:
    """Check that a worker only gets tasks of its choice, and any task once it lifts the choice."""
    peer = floor.worker("kit", "1.1", ("cancel", "grouped", "priority"))
    peer.say("PRIORITY", labels=[NOWHERE])
    _ask_for(peer, {"labels": [NOWHERE]})
    task = peer.get_task()
    _finish_all(peer)
    same = [task["priority"]]
    others = [number for number in range(5) if number not in same]
    choices: list[dict[str, list[object]]] = [
        {"issue_types": [NOWHERE]},
        {"priorities": [*others]},
        {"priorities": [*same], "labels": [NOWHERE]},
    ]
    for choice in choices:
        peer.say("PRIORITY", **choice)
        _ask_for(peer, choice)
    peer.get_task("O-9.11-1")


def _ask_for(peer: Peer, choice: Mapping[str, list[object]]) -> None:
    """Send READY, check its reply, if any, and lift the choice."""
    peer.say("READY")
    reply = peer.read(peer.timing.quiet)
    if reply is not None and reply["type"] == "TASK":
        fits = _fits(reply, choice)
        peer.must("O-9.11-1", fits, f"{_shown(reply)} came, and it takes {json.dumps(choice)}")
        _finish_all(peer)
    peer.say("PRIORITY")
    if reply is None:
        peer.reply("O-9.11-1")
        _finish_all(peer)


def _fits(task: Message, choice: Mapping[str, list[object]]) -> bool:
    values = {"priorities": [task["priority"]], "issue_types": [task.get("issue_type")]}
    values["labels"] = task.get("labels", [])
    return all(set(values[name]) & set(wanted) for name, wanted in choice.items())
