"""Every request is answered exactly once: in turn for version 1, as it comes for version 2."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from beads_workers.core.base.model import IssueId, Outcome, OutcomeKind
from beads_workers.core.schedule.events import ConnId
from beads_workers.integrations.rrq.request_table import (
    ID_CHARS_MAX,
    UNANSWERED_BYTES_MAX,
    UNANSWERED_MAX,
    CloseConnection,
    Offer,
    RequestTable,
    SendFrame,
    Withdraw,
)
from beads_workers.integrations.rrq.wire import (
    V1,
    V2,
    CancelRequest,
    Envelope,
    FrameReader,
    Request,
    RequestContext,
    RequestStatus,
    encode,
    parse,
)
from beads_workers.integrations.rrq.wire import RequestOutcome as Wire

EPOCH = 1_700_000_000.0
NOW = 1000.0
A, B = ConnId(1), ConnId(2)
DONE = Outcome(OutcomeKind.SUCCESS, result="1")


def request(name: str, version: str = V1, *, job: str = "", after: float | None = None) -> Request:
    """Named by its id; its job is called after it, its deadline comes after so many seconds."""
    deadline = None if after is None else EPOCH + after
    context = RequestContext(job or f"job {name}", 1, EPOCH, "default", deadline)
    return Request(name, context.job_id, f"do {name}", context, protocol_version=version)


class Peers:
    """Two connections to one executor, and all that came of it."""

    def __init__(self) -> None:
        self.serving = RequestTable()
        self.answers: list[tuple[ConnId, Wire]] = []
        self.withdrawn: list[str] = []
        self.hung_up: list[ConnId] = []
        self.offers = 0
        for conn in (A, B):
            self.serving.connected(conn)

    def send(self, *envelopes: Envelope, conn: ConnId = A, now: float = NOW) -> None:
        """As frames, one after the other."""
        for envelope in envelopes:
            self.serving.received(conn, encode(envelope), now, EPOCH + now - NOW)
        self.look()

    def say(self, conn: ConnId = A, **payload: Any) -> None:
        """A request that our own half would not write."""
        raw = json.dumps({"type": "request", "payload": payload}).encode()
        self.serving.received(conn, raw, NOW, EPOCH)
        self.look()

    def take(self, limit: int = 100) -> list[str]:
        """The issues that are taken now."""
        return [str(unanswered.issue_id) for unanswered in self.serving.take(limit)]

    def settle(self, issue_id: str, outcome: Outcome | None = DONE) -> None:
        """It went so."""
        self.serving.settled(IssueId(issue_id), outcome)
        self.look()

    def look(self) -> None:
        """Carry out what is asked."""
        for command in self.serving.collect():
            match command:
                case SendFrame(conn, data):
                    (payload,) = FrameReader().feed(data)
                    answer = parse(payload)
                    assert isinstance(answer, Wire)
                    self.answers.append((conn, answer))
                case CloseConnection(conn):
                    self.hung_up.append(conn)
                    self.serving.gone(conn)
                case Withdraw(issue_id):
                    self.withdrawn.append(str(issue_id))
                case Offer():
                    self.offers += 1
        if self.serving.has_commands:
            self.look()

    def answered(self) -> list[str]:
        """Request, status and kind of every answer so far."""
        return [
            " ".join(
                filter(
                    None, (a.request_id, a.status.value, a.error and (a.error.type or a.error.code))
                )
            )
            for _, a in self.answers
        ]


@pytest.fixture
def peers() -> Peers:
    return Peers()


def test_a_request_is_offered_taken_and_answered_once(peers: Peers) -> None:
    peers.send(request("r"))
    assert peers.offers == 1
    assert peers.take() == ["job r"]
    assert peers.take() == []
    peers.settle("job r")
    peers.settle("job r")
    assert peers.answers == [(A, Wire(RequestStatus.SUCCESS, "r", "job r", 1))]
    assert peers.serving.unanswered == 0


def test_version_1_is_answered_in_order_and_one_by_one(peers: Peers) -> None:
    peers.send(request("r1"), request("r2"), request("r3"))
    for name in ("r1", "r2", "r3"):
        assert peers.take() == [f"job {name}"]
        peers.settle(f"job {name}")
    assert peers.answered() == ["r1 success", "r2 success", "r3 success"]


def test_version_2_is_answered_as_it_comes(peers: Peers) -> None:
    peers.send(*(request(f"r{n}", V2) for n in (1, 2, 3)))
    assert peers.take() == ["job r1", "job r2", "job r3"]
    for n in (3, 1, 2):
        peers.settle(f"job r{n}")
    assert peers.answered() == ["r3 success", "r1 success", "r2 success"]


def test_connections_do_not_wait_for_each_other(peers: Peers) -> None:
    peers.send(request("r1"), conn=A)
    peers.send(request("r2"), conn=B)
    assert peers.take() == ["job r1", "job r2"]
    peers.settle("job r2")
    assert peers.answers == [(B, Wire(RequestStatus.SUCCESS, "r2", "job r2", 1))]


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Outcome(OutcomeKind.RETRY, "later", 2.5), "r retry"),
        (Outcome(OutcomeKind.TIMEOUT, "too long"), "r timeout timeout"),
        (Outcome(OutcomeKind.ERROR, "boom"), "r error"),
        (Outcome(OutcomeKind.NOT_FOUND, "no such"), "r error handler_not_found"),
        (Outcome(OutcomeKind.CANCELLED, "stopped"), "r error cancelled"),
        (Outcome(OutcomeKind.LOST, "its worker died"), "r error worker_lost"),
        (None, "r error cancelled"),
    ],
)
def test_each_end_of_an_attempt_has_its_answer(
    peers: Peers, outcome: Outcome | None, said: str
) -> None:
    peers.send(request("r"))
    peers.take()
    peers.settle("job r", outcome)
    assert peers.answered() == [said]
    (_, answer) = peers.answers[0]
    assert answer.retry_after_seconds == (outcome and outcome.retry_after_seconds)


def test_a_result_that_fits_into_no_frame_is_an_error(peers: Peers) -> None:
    peers.send(request("r"))
    peers.take()
    peers.settle("job r", replace(DONE, result=json.dumps("x" * (16 << 20))))
    assert peers.answered() == ["r error"]


def test_a_wrong_version_is_refused_in_turn(peers: Peers) -> None:
    peers.send(request("r1"), replace(request("r2"), protocol_version="9"))
    assert peers.answered() == []
    peers.take()
    peers.settle("job r1")
    assert peers.answered() == ["r1 success", "r2 error unsupported_version"]


def test_a_request_of_wrong_shape_is_answered_and_the_connection_stays(peers: Peers) -> None:
    peers.say(request_id="r1", job_id="j1", protocol_version="1")
    assert peers.answered() == ["r1 error wrong_request"]
    peers.send(request("r2"))
    assert peers.take() == ["job r2"]


def test_an_id_of_enormous_length_is_refused(peers: Peers) -> None:
    peers.send(request("r", job="j" * (ID_CHARS_MAX + 1)))
    assert peers.answered() == ["r error wrong_request"]
    assert peers.take() == []


@pytest.mark.parametrize("name", ["f", ""])
def test_ids_that_no_frame_could_name_end_the_connection(peers: Peers, name: str) -> None:
    whole = json.loads(encode(request("r")))["payload"]
    peers.say(**whole | {"job_id": "\u00e9" * (3 << 20), "function_name": name})
    assert (peers.hung_up, peers.answers) == ([A], [])


def test_a_request_id_that_is_still_unanswered_is_refused_and_the_first_is_answered(
    peers: Peers,
) -> None:
    peers.send(request("r"), conn=A)
    peers.send(request("r", job="another"), conn=B)
    assert peers.answered() == ["r error duplicate_request"]
    assert peers.take() == ["job r"]
    peers.settle("job r")
    assert [conn for conn, _ in peers.answers] == [B, A]


def test_the_same_job_twice_at_the_same_time_is_two_issues(peers: Peers) -> None:
    peers.send(request("r1", V2, job="j"), request("r2", V2, job="j"))
    first, second = peers.take()
    assert first == "j" and second != first
    peers.settle(second)
    peers.settle(first)
    assert peers.answered() == ["r2 success", "r1 success"]


@pytest.mark.parametrize("raw", [b"[]", b"{", b'{"type":"?","payload":{}}', encode(Wire(
    RequestStatus.SUCCESS, "r", "j"))])  # fmt: skip
def test_what_is_no_request_ends_the_connection_and_what_it_asked_for(
    peers: Peers, raw: bytes
) -> None:
    peers.send(request("r"))
    peers.take()
    peers.serving.received(A, raw, NOW, EPOCH)
    peers.serving.received(A, encode(request("later")), NOW, EPOCH)
    peers.look()
    assert peers.hung_up == [A]
    assert peers.withdrawn == ["job r"]
    peers.settle("job r")
    assert peers.answers == []
    assert peers.take() == []


# --- cancel -----------------------------------------------------------------------------------


@pytest.mark.parametrize("by_request", [True, False])
def test_a_running_request_is_cancelled_from_another_connection(
    peers: Peers, by_request: bool
) -> None:
    peers.send(request("r"), conn=A)
    peers.take()
    peers.send(CancelRequest("job r", "r" if by_request else None), conn=B)
    assert peers.withdrawn == ["job r"]
    assert peers.answered() == [], "it is answered when it has really ended"
    peers.settle("job r", Outcome(OutcomeKind.ERROR, "killed by signal TERM"))
    assert [conn for conn, _ in peers.answers] == [A]
    assert peers.answered() == ["r error cancelled"]


def test_what_was_taken_and_not_begun_says_why_it_never_was(peers: Peers) -> None:
    peers.send(request("r", V2), request("s", V2), request("t", V2, after=5.0))
    peers.take()
    peers.send(CancelRequest("job r"), conn=B)
    peers.serving.on_deadline(NOW + 6.0)
    peers.look()
    assert peers.withdrawn == ["job r", "job t"]
    said = [peers.serving.settled(IssueId(f"job {name}"), None) for name in "rst"]
    peers.look()
    errors = {
        answer.request_id: answer.error and answer.error.message for _, answer in peers.answers
    }
    assert errors == {
        "r": "cancelled",
        "s": "never started: it was released",
        "t": "its deadline has passed",
    }
    assert said == ["", "", "its deadline has passed"], "which is no cancel"


def test_what_succeeded_before_its_cancel_arrived_is_a_success(peers: Peers) -> None:
    peers.send(request("r"))
    peers.take()
    peers.send(CancelRequest("job r"), conn=B)
    peers.settle("job r", DONE)
    assert peers.answered() == ["r success"]


def test_what_nobody_works_on_is_cancelled_at_once(peers: Peers) -> None:
    peers.send(request("r", V2))
    peers.send(CancelRequest("job r"), conn=B)
    assert peers.answered() == ["r error cancelled"]
    assert peers.take() == []


def test_what_is_queued_behind_another_is_cancelled_and_answered_in_turn(peers: Peers) -> None:
    peers.send(request("r1"), request("r2"), request("r3"), CancelRequest("job r2"))
    assert peers.take() == ["job r1"]
    peers.settle("job r1")
    assert peers.answered() == ["r1 success", "r2 error cancelled"]
    assert peers.take() == ["job r3"]


@pytest.mark.parametrize(
    "cancel", [CancelRequest("?"), CancelRequest("job r", "?"), CancelRequest("?", "r"),
    CancelRequest("job r", protocol_version="9")]
)  # fmt: skip
def test_a_cancel_that_means_nothing_is_met_with_silence(
    peers: Peers, cancel: CancelRequest
) -> None:
    peers.send(request("r"))
    peers.take()
    peers.send(cancel, conn=B)
    assert (peers.answers, peers.withdrawn, peers.hung_up) == ([], [], [])


# --- deadlines --------------------------------------------------------------------------------


def test_a_deadline_that_has_passed_already_is_a_timeout(peers: Peers) -> None:
    peers.send(request("r", after=-1.0))
    assert peers.answered() == ["r timeout timeout"]
    assert peers.take() == []


@pytest.mark.parametrize("taken", [True, False])
def test_a_deadline_that_passes_is_a_timeout_whatever_its_attempt_does(
    peers: Peers, taken: bool
) -> None:
    peers.send(request("r", after=5.0))
    if taken:
        peers.take()
    assert peers.serving.deadline() == NOW + 5.0
    peers.serving.on_deadline(NOW + 4.9)
    peers.look()
    assert peers.answered() == []
    peers.serving.on_deadline(NOW + 5.0)
    peers.look()
    peers.settle("job r")
    assert peers.answered() == ["r timeout timeout"]
    assert peers.withdrawn == (["job r"] if taken else [])


def test_what_is_answered_has_no_deadline_any_more(peers: Peers) -> None:
    peers.send(request("r", after=5.0))
    peers.take()
    peers.settle("job r")
    assert peers.serving.deadline() is None


# --- who leaves, what is too much, and the end ------------------------------------------------


def test_whoever_leaves_has_its_requests_ended_and_the_others_go_on(peers: Peers) -> None:
    peers.send(request("r1", V2), request("r2", V2), conn=A)
    peers.send(request("r3"), conn=B)
    assert peers.take(1) == ["job r1"]
    peers.serving.gone(A)
    peers.look()
    assert peers.withdrawn == ["job r1"]
    assert peers.take() == ["job r3"]
    peers.settle("job r1", Outcome(OutcomeKind.CANCELLED))
    peers.settle("job r3")
    assert peers.answered() == ["r3 success"]


def test_a_probe_that_says_nothing_leaves_no_trace(peers: Peers) -> None:
    peers.serving.gone(A)
    peers.look()
    assert (peers.answers, peers.withdrawn, peers.offers) == ([], [], 0)


def test_a_connection_that_has_too_much_unsent_is_not_read_from(peers: Peers) -> None:
    peers.send(*(request(f"r{n}", V2) for n in range(UNANSWERED_MAX)))
    assert peers.serving.is_full(A)
    assert not peers.serving.is_full(B)
    peers.take(1)
    peers.settle("job r0")
    assert not peers.serving.is_full(A)


def test_large_requests_count_for_all_connections(peers: Peers) -> None:
    large = replace(request("r", V2), kwargs={"x": "x" * (UNANSWERED_BYTES_MAX // 4)})
    for n in range(4):
        peers.send(replace(large, request_id=f"r{n}", job_id=f"j{n}"))
    assert peers.serving.is_full(B)
    peers.serving.gone(A)
    assert not peers.serving.is_full(B)


def test_at_the_end_what_nobody_works_on_is_answered_and_nothing_is_begun(peers: Peers) -> None:
    peers.send(request("r1"), request("r2"), conn=A)
    peers.send(request("r3"), conn=B)
    assert peers.take(1) == ["job r1"]
    peers.serving.finish()
    peers.look()
    assert peers.answered() == ["r3 error cancelled"]
    peers.send(request("r4"), conn=B)
    assert peers.answered()[1:] == ["r4 error cancelled"]
    peers.settle("job r1")
    assert peers.answered()[2:] == ["r1 success", "r2 error cancelled"]
    assert peers.take() == []


def test_at_the_very_end_nobody_is_left_without_an_answer(peers: Peers) -> None:
    peers.send(request("r1"), request("r2"), conn=A)
    peers.send(request("r3", V2), conn=B)
    peers.take()
    peers.serving.abandon()
    peers.look()
    assert sorted(peers.answered()) == [f"r{n} error cancelled" for n in (1, 2, 3)]
    peers.settle("job r1")
    assert len(peers.answers) == 3
