"""Requests as jobs, and outcomes as answers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.base.model import Call, IssueId, Job, Outcome, OutcomeKind
from beads_workers.core.base.source import Action, CrashedRun, Result, Settlement
from beads_workers.core.schedule.events import ConnId
from beads_workers.integrations.rrq.request_table import RequestTable, SendFrame
from beads_workers.integrations.rrq.source import RrqSource
from beads_workers.integrations.rrq.wire import V1, V2, FrameReader, Request, RequestContext, encode

CONN = ConnId(1)
NOW, EPOCH = 1000.0, 1_700_000_000.0


def source(**others: Any) -> RrqSource:
    """With one connection."""
    made = RrqSource(
        RequestTable(),
        actor="us",
        place="unix:/x",
        **({"calls_functions": True} | others),
        clock=lambda: NOW + 1,
    )
    made.serving.connected(CONN)
    return made


def job(made: RrqSource, version: str = V1, after: float | None = None) -> Job:
    """What a request with arguments becomes."""
    deadline = None if after is None else EPOCH + after
    args = (1, "two") if version == V1 else ()
    context = RequestContext("j", 3, EPOCH - 60, "default", deadline)
    request = Request("r", "j", "send", context, args, {"flag": True}, version)
    made.serving.received(CONN, encode(request), NOW, EPOCH)
    (taken,) = made.take(5, ()).jobs
    return taken


def answer(made: RrqSource, outcome: Outcome) -> dict[str, Any]:
    """What is answered to the job that was taken."""
    settlement = Settlement(Action.CLOSE, made_id(made), outcome=outcome)
    (settled,) = made.settle([settlement])
    assert settled.result is Result.APPLIED
    (reply,) = [c for c in made.serving.collect() if isinstance(c, SendFrame)]
    (payload,) = FrameReader().feed(reply.data)
    fields: dict[str, Any] = json.loads(payload)["payload"]
    return fields


def made_id(made: RrqSource) -> Any:
    """The only job there is."""
    return job(made).issue_id


@pytest.mark.parametrize(
    ("version", "call"),
    [
        (V1, Call("shop.send", (1, "two"), {"flag": True})),
        (V2, Call("shop.send", (), {"flag": True})),
    ],
)
def test_a_request_is_a_call_below_the_prefix(version: str, call: Call) -> None:
    made = job(source(prefix="shop"), version)
    assert (made.call, made.title, made.attempt, made.source) == (call, "send", 3, "rrq")


def test_for_a_command_it_is_an_issue_with_the_request_in_it() -> None:
    made = job(source(calls_functions=False))
    assert made.call is None
    assert made.original["id"] == made.issue_id
    assert (made.original["args"], made.original["kwargs"]) == ([1, "two"], {"flag": True})
    assert made.original["context"]["attempt"] == 3


@pytest.mark.parametrize(
    ("after", "limit", "seconds"),
    [(None, None, None), (None, 5.0, 5.0), (10.0, None, 9.0), (10.0, 5.0, 5.0), (3.0, 5.0, 2.0)],
)
def test_the_time_for_it_is_what_is_left_of_its_deadline_or_less(
    after: float | None, limit: float | None, seconds: float | None
) -> None:
    assert job(source(attempt_seconds=limit), after=after).timeout_seconds == seconds


def test_a_result_that_is_too_long_for_a_frame_is_an_error() -> None:
    fields = answer(source(), Outcome(OutcomeKind.SUCCESS, result=json.dumps("x" * (17 << 20))))
    assert (fields["status"], fields["result"]) == ("error", None)
    assert fields["error"]["message"].startswith("the result cannot be sent: a frame of")


def test_a_result_in_a_file_is_answered_whole(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text(json.dumps({"long": "x" * 100_000}))
    outcome = Outcome(OutcomeKind.SUCCESS, result='{"cut":true}', result_file=str(file))
    assert answer(source(), outcome)["result"] == {"long": "x" * 100_000}


@pytest.mark.parametrize("kind", ["missing", "no json", "infinite", "too long", "a pipe"])
def test_a_result_file_that_is_none_is_an_error(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "result.json"
    if kind == "no json":
        file.write_text("{")
    elif kind == "infinite":
        file.write_text("[1e999]")  # JSON, but read as what could not be written as it.
    elif kind == "too long":
        with file.open("wb") as out:
            out.truncate(17 << 20)
    elif kind == "a pipe":
        os.mkfifo(file)
    fields = answer(source(), Outcome(OutcomeKind.SUCCESS, result_file=str(file)))
    assert fields["status"] == "error"
    assert fields["error"]["message"].startswith("its result cannot be read")


def test_nothing_is_pending_for_what_a_crashed_run_has_done() -> None:
    """It would be remembered as unclosed by every run that follows."""
    dead = CrashedRun("an actor", (IssueId("a"), IssueId("b")))
    settled = source().recover(dead)
    assert [(each.settlement.issue_id, each.result) for each in settled] == [
        ("a", Result.NOT_OURS),
        ("b", Result.NOT_OURS),
    ]
