"""Broker messages: every field of the text read and written; what is wrong is named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.base.framing import ProtocolError
from beads_workers.integrations.dispatcherd import wire

TEXT = """
{
  "uuid": "9760671a-6261-45aa-881a-f66929ff9725",
  "args": [4],
  "kwargs": {},
  "task": "awx.main.tasks.jobs.RunJob",
  "time_pub": 1727354869.5126922,
  "guid": "8f887a0c51f7450db3542c501ba83756"
}
"""
"""The example of the protocol text."""

FULL = {
    "uuid": "u-1",
    "args": [1, "two", None],
    "kwargs": {"flag": True},
    "task": "pkg.mod.fn",
    "time_pub": 1.5,
    "guid": "g",
    "timeout": 2.5,
    "delay": 0.25,
    "on_duplicate": "queue_one",
    "bind": True,
    "reply_to": "channel",
}


def of(fields: object) -> wire.Message:
    return wire.parse(json.dumps(fields).encode())


def test_the_example_of_the_text_is_read() -> None:
    assert wire.parse(TEXT.encode()) == wire.TaskCall(
        "awx.main.tasks.jobs.RunJob",
        (4,),
        {},
        "9760671a-6261-45aa-881a-f66929ff9725",
        1727354869.5126922,
        "8f887a0c51f7450db3542c501ba83756",
        empty=("kwargs",),
    )


def test_every_field_of_a_task_is_read_and_written_back() -> None:
    task = of(FULL)
    assert task == wire.TaskCall(
        task="pkg.mod.fn",
        args=(1, "two", None),
        kwargs={"flag": True},
        uuid="u-1",
        time_pub=1.5,
        guid="g",
        timeout=2.5,
        delay=0.25,
        on_duplicate="queue_one",
        bind=True,
        reply_to="channel",
    )
    assert isinstance(task, wire.TaskCall) and task.duplicates is wire.OnDuplicate.QUEUE_ONE
    assert wire.to_fields(task) == FULL


def test_what_a_publisher_leaves_out_is_left_out_again() -> None:
    small = {"task": "a.b", "time_pub": 3.0, "uuid": "u"}
    assert wire.to_fields(of(small)) == small


def test_fields_that_nobody_knows_are_passed_on() -> None:
    callbacks = [{"task": "a.c", "args": [], "kwargs": {}}]
    task = of({"task": "a.b", "callbacks": callbacks, "self_check": False})
    assert isinstance(task, wire.TaskCall)
    assert task.extra == {"callbacks": callbacks, "self_check": False}
    assert wire.to_fields(task) == {"task": "a.b", "callbacks": callbacks, "self_check": False}


def test_a_control_request_is_one_whatever_else_it_says() -> None:
    asked = {"control": "running", "reply_to": "r", "control_data": {"task": "a.b"}}
    assert of(asked) == wire.ControlRequest("running", {"task": "a.b"}, "r")
    assert wire.to_fields(of(asked)) == asked
    assert of({"control": "alive", "task": "a.b"}) == wire.ControlRequest("alive")


def test_a_payload_that_is_no_json_but_a_path_is_a_task() -> None:
    assert wire.parse(b" pkg.mod.fn\n") == wire.TaskCall("pkg.mod.fn")


@pytest.mark.parametrize("null", ["args", "kwargs", "uuid", "guid", "timeout", "delay", "reply_to"])
def test_null_is_the_same_as_missing(null: str) -> None:
    assert of({"task": "a.b", null: None}) == wire.TaskCall("a.b")


def test_an_unknown_on_duplicate_means_parallel_and_is_kept() -> None:
    task = of({"task": "a.b", "on_duplicate": "sometimes"})
    assert isinstance(task, wire.TaskCall)
    assert (task.duplicates, task.on_duplicate) == (wire.OnDuplicate.PARALLEL, "sometimes")


def test_a_uuid_that_is_a_number_is_read_as_text() -> None:
    assert of({"task": "a.b", "uuid": 7}) == wire.TaskCall("a.b", uuid="7")


def test_a_delay_before_now_is_now_and_a_timeout_is_over() -> None:
    assert of({"task": "a.b", "delay": -3, "timeout": -1}) == wire.TaskCall("a.b", timeout=-1)


def test_empty_arguments_stay_empty_arguments() -> None:
    for fields in ({"args": []}, {"kwargs": {}}, {"args": [], "kwargs": {}}, {}):
        task = of({"task": "a.b", **fields})
        assert isinstance(task, wire.TaskCall) and (task.args, task.kwargs) == ((), {})
        assert wire.to_fields(task) == {"task": "a.b", **fields}


@pytest.mark.parametrize("control", [5, True, "", ["alive"]])
def test_what_is_no_name_of_a_command_is_asked_for_all_the_same(control: object) -> None:
    asked = of({"control": control, "reply_to": "r"})
    assert asked == wire.ControlRequest(str(control), reply_to="r")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"uuid": "u"}, "no task"),
        ({"task": ""}, "no task"),
        ({"task": 5}, "no task"),
        ({"task": "a." + "b" * 500}, "task is longer than 500 characters"),
        ({"task": "a.b", "uuid": "u" * 501}, "uuid is longer than 500 characters"),
        ({"task": "a.b", "args": {}}, "args is no array"),
        ({"task": "a.b", "kwargs": [1]}, "kwargs is no object"),
        ({"task": "a.b", "delay": "5"}, "delay is no number of seconds"),
        ({"task": "a.b", "timeout": True}, "timeout is no number of seconds"),
        ({"control": "run", "control_data": []}, "control_data is no object"),
        ([1], "not a JSON object"),
    ],
)
def test_what_would_have_to_be_guessed_is_refused(fields: Any, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        of(fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"task": "lambda: 1"},
        {"task": "lambda_looks_like_one.f"},
        {"task": "a.b", "callbacks": [{"task": "a.c", "errbacks": [{"task": "lambda: 1"}]}]},
    ],
)
def test_nothing_that_would_be_evaluated_is_accepted(fields: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError, match="lambda"):
        of(fields)


@pytest.mark.parametrize(
    "wrong",
    [
        wire.TaskCall(""),
        wire.ControlRequest(""),
        wire.TaskCall("a.b", (float("nan"),)),
        wire.TaskCall("a.b", (b"",)),
    ],
)
def test_what_is_no_json_is_not_written(wrong: wire.Message) -> None:
    with pytest.raises(ValueError, match=r"name|JSON"):
        wire.encode(wrong)


TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
NAMES = st.from_regex(r"[a-k]{1,5}(\.[a-z]{1,5}){1,2}", fullmatch=True)


@given(
    st.builds(
        wire.TaskCall,
        NAMES,
        st.lists(VALUES, max_size=3).map(tuple),
        st.dictionaries(NAMES, VALUES, max_size=3),
        uuid=TEXTS,
        time_pub=st.none() | st.floats(0, 1e10),
        guid=TEXTS,
        timeout=st.floats(0, 1e6),
        delay=st.floats(0, 1e6),
        on_duplicate=st.sampled_from(["", *(each.value for each in wire.OnDuplicate)]),
        bind=st.booleans(),
        reply_to=TEXTS,
        extra=st.dictionaries(st.sampled_from(["x", "channel"]), VALUES),
    )
    | st.builds(wire.ControlRequest, NAMES, st.dictionaries(NAMES, VALUES, max_size=3), TEXTS)
)
def test_what_is_written_is_read_as_it_was(message: wire.Message) -> None:
    assert wire.parse(wire.encode(message).encode()) == message
