"""Being an RRQ executor: a peer that says anything, and a fleet that does anything with it."""

from __future__ import annotations

import json
import struct
from collections import Counter
from random import Random
from typing import Any

from beads_workers.core.base.framing import ProtocolError
from beads_workers.core.base.model import IssueId, Outcome, OutcomeKind
from beads_workers.core.schedule.events import ConnId
from beads_workers.integrations.rrq import request_table, wire
from beads_workers.integrations.rrq.wire import FrameReader, parse
from tests.fuzz.inputs import any_of, as_json, hostile, hostile_object
from tests.fuzz.parser import Parser, require

PEER, GOOD = ConnId(1), ConnId(2)
EPOCH = 1_735_732_800.0
"""2025-01-01T12:00:00Z, when every input begins."""
OUTCOMES: list[Outcome | None] = [
    Outcome(OutcomeKind.SUCCESS, result="[1]"),
    Outcome(OutcomeKind.ERROR, "no"),
    Outcome(OutcomeKind.RETRY, "later", 1.0),
    Outcome(OutcomeKind.CANCELLED, "stopped"),
    None,
]


class Conversation:
    """One hostile peer, one good one, and what both have heard."""

    def __init__(self, serving: Any, rng: Random) -> None:
        self.serving, self.rng = serving(), rng
        self.now = 1000.0
        self.reader = FrameReader()
        self.asked: list[tuple[str, bool]] = []
        """Requests of the hostile peer: id, and whether its answer has its turn."""
        self.answers: dict[ConnId, list[str]] = {PEER: [], GOOD: []}
        self.taken: list[request_table.Unanswered] = []
        self.hung_up = False
        self.serving.connected(PEER)
        self.serving.connected(GOOD)
        self._say(GOOD, _request("good", "good", "1", None))

    def hear(self, data: bytes) -> None:
        """The peer's bytes; between its frames the fleet and the clock go on."""
        for payload in self.reader.feed(data):
            if not self.hung_up:
                self._note(payload)
            self._say(PEER, payload)
            self._go_on()
        if self.reader.broken:
            self.serving.misread(PEER, self.reader.broken)
            self._look()

    def end(self) -> None:
        """The executor ends, and what it works on a little later."""
        if self.rng.random() < 0.3 and not self.hung_up:
            self.serving.gone(PEER)
            self.hung_up = True
        self.serving.finish()
        self._look()
        if self.rng.random() < 0.5:
            self._settle_all()
        self.serving.abandon()
        self._look()
        self._settle_all()

    def _note(self, payload: bytes) -> None:
        try:
            envelope = parse(payload)
        except wire.WrongRequest as error:
            self.asked.append((error.request_id, True))
        except ProtocolError:
            pass
        else:
            if isinstance(envelope, wire.Request):
                self.asked.append((envelope.request_id, envelope.protocol_version != wire.V2))

    def _say(self, conn: ConnId, payload: bytes) -> None:
        self.serving.received(conn, payload, self.now, EPOCH + self.now - 1000.0)
        self._look()

    def _go_on(self) -> None:
        kind = self.rng.random()
        if kind < 0.4:
            self.taken += self.serving.take(1 + int(self.rng.random() * 3))
        elif kind < 0.7 and self.taken:
            self._settle(self.taken.pop(int(self.rng.random() * len(self.taken))))
        elif kind < 0.8:
            self.now += self.rng.random() * 200
            self.serving.on_deadline(self.now)
            self._look()

    def _settle_all(self) -> None:
        while self.taken:
            self._settle(self.taken.pop())

    def _settle(self, unanswered: request_table.Unanswered) -> None:
        assert unanswered.issue_id is not None
        self.serving.settled(IssueId(unanswered.issue_id), any_of(self.rng, OUTCOMES))
        self._look()

    def _look(self) -> None:
        while commands := self.serving.collect():
            for command in commands:
                match command:
                    case request_table.SendFrame(conn, data):
                        self._hear(conn, data)
                    case request_table.CloseConnection(conn):
                        require(conn == PEER, "hung up on the good one")
                        self.hung_up = True
                        self.serving.gone(conn)
                    case request_table.Withdraw(issue_id):
                        known = {unanswered.issue_id for unanswered in self.taken}
                        require(issue_id in known, "withdrawn, and nobody has it")

    def _hear(self, conn: ConnId, data: bytes) -> None:
        (payload,) = FrameReader().feed(data)
        answer = parse(payload)
        require(isinstance(answer, wire.RequestOutcome), "no answer")
        assert isinstance(answer, wire.RequestOutcome) and answer.request_id is not None
        self.answers[conn].append(answer.request_id)


def serving_holds(serving: Any, data: bytes) -> None:
    talk = Conversation(serving, Random(len(data) * 257 + sum(data[:200])))
    talk.hear(data)
    talk.end()
    asked, answered = Counter(i for i, _ in talk.asked), Counter(talk.answers[PEER])
    require(answered <= asked, f"answered twice: {answered - asked}")
    require(talk.hung_up or answered == asked, f"never answered: {asked - answered}")
    require(talk.answers[GOOD] == ["good"], "the good one has paid for it")
    rest = talk.serving
    require(not rest.unanswered and not rest.waiting, "something is left")
    require(rest._bytes == 0 and rest.deadline() is None, "something is counted for ever")
    in_turn = [i for i, turn in talk.asked if turn]
    free = {i for i, turn in talk.asked if not turn}
    heard = [i for i in talk.answers[PEER] if i not in free]
    require(heard == [i for i in in_turn if i not in free][: len(heard)], "not in their turn")


# --- inputs -----------------------------------------------------------------------------------


def _request(request_id: str, job_id: str, version: str, deadline: str | None) -> bytes:
    return json.dumps({"type": "request", "payload": _fields(request_id, job_id, version, deadline)}
    ).encode()  # fmt: skip


def _fields(request_id: str, job_id: str, version: str, deadline: str | None) -> dict[str, Any]:
    context = {"job_id": job_id, "attempt": 1, "enqueue_time": "2025-01-01T12:00:00Z",
               "queue_name": "q", "deadline": deadline}  # fmt: skip
    head = {"protocol_version": version, "request_id": request_id, "job_id": job_id}
    named = {"args": [1], "kwargs": {}} if version == "1" else {"params": {"a": 1}}
    return head | {"function_name": "f", "context": context} | named


def _payload(rng: Random) -> bytes:
    request_id, job_id = any_of(rng, ["r1", "r2", "r3", "r4"]), any_of(rng, ["j1", "j2", "j3"])
    version = any_of(rng, ["1", "1", "1", "2", "2", "2", "9"])
    if rng.random() < 0.25:
        fields: dict[str, Any] = {"protocol_version": version, "job_id": job_id}
        fields |= {"request_id": request_id} if rng.random() < 0.5 else {}
        return json.dumps({"type": "cancel", "payload": fields}).encode()
    deadline = any_of(
        rng, [None, "2025-01-01T12:01:00Z", "2025-01-01T12:05:00Z", "2024-01-01T00:00:00Z"]
    )
    fields = _fields(request_id, job_id, version, deadline)
    if rng.random() < 0.15:
        return as_json(rng, {"type": "request", "payload": hostile_object(rng, fields)})
    return json.dumps({"type": "request", "payload": fields}).encode()


def _stream(rng: Random) -> bytes:
    payloads = [_payload(rng) for _ in range(1 + int(rng.random() * 10))]
    return b"".join(struct.pack(">I", len(payload)) + payload for payload in payloads)


_broken = hostile(_stream, grows=False)


def _make(rng: Random) -> bytes:
    # Most changes of bytes end the conversation at once, so they are seldom.
    return _broken(rng) if rng.random() < 0.2 else _stream(rng)


# --- planted bugs -----------------------------------------------------------------------------


class Hasty(request_table.RequestTable):
    """Planted bug: answers what is done, whoever is before it."""

    def _advance(self, connection: Any) -> None:
        for unanswered in list(connection.line):
            if unanswered.answer is not None:
                connection.line.remove(unanswered)
                self._reply(unanswered, unanswered.answer)
        super()._advance(connection)


class Silent(request_table.RequestTable):
    """Planted bug: what is refused for its id is told nothing."""

    def _refusal(self, request: Any, *, known: bool) -> Any:
        if known:
            self._commands.clear()
            self._by_request.pop(request.request_id, None)
        return super()._refusal(request, known=known)


class Leaky(request_table.RequestTable):
    """Planted bug: a request whose deadline has passed stays counted."""

    def _time_out(self, unanswered: Any) -> None:
        size = unanswered.size
        super()._time_out(unanswered)
        self._bytes += size


PARSERS = [
    Parser("rrq serving", ("integrations/rrq/request_table.py",), request_table.RequestTable, _make,
           serving_holds, {"hasty": Hasty, "silent": Silent, "leaky": Leaky}),
]  # fmt: skip
