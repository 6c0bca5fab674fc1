"""What a task asks of the orchestrator, on the wire and in the worker's half."""

from __future__ import annotations

import pytest

from beads_workers.core.base.framing import ProtocolError
from beads_workers.core.base.wire import ControlAsked, ControlReply, encode, parse
from beads_workers.core.workers import worker_events as ev
from tests.core.test_worker import busy

ASKED = ControlAsked("running", {"uuid": "u"})
REPLY = ControlReply({"worker-1": {"uuid": "u"}})


@pytest.mark.parametrize("message", [ASKED, REPLY], ids=["asked", "reply"])
def test_both_are_read_as_they_are_written(message: ControlAsked | ControlReply) -> None:
    assert parse(encode(message, "W1", 12.5, v1=False)) == message


def test_they_are_lines_like_all_others() -> None:
    line = b'{"type":"CONTROL","worker_id":"W1","timestamp":12.500000,"version":"1.1",'
    data = b'"command":"running","control_data":{"uuid":"u"}}\n'
    assert encode(ASKED, "W1", 12.5, v1=False) == line + data


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"CONTROL","worker_id":"W1","timestamp":1}',
        b'{"type":"CONTROL","worker_id":"W1","timestamp":1,"command":""}',
        b'{"type":"CONTROL","command":"alive"}',
        b'{"type":"CONTROL_REPLY","reply":7}',
    ],
)
def test_what_asks_or_answers_nothing_is_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse(line)


def test_a_question_without_data_asks_for_all() -> None:
    line = b'{"type":"CONTROL","worker_id":"W1","timestamp":1,"command":"alive"}'
    assert parse(line) == ControlAsked("alive", {})


def test_a_worker_passes_on_both_and_goes_on_with_its_task() -> None:
    book = busy()
    state = book.half.state
    assert book.tell(ev.StepSaid(ASKED)) == [ev.SendMessage(ASKED)]
    assert book.tell(ev.MessageReceived(REPLY)) == [ev.TellStep(REPLY.reply)]
    assert book.half.state is state
