"""``submit`` and what shows envelopes, through the application that they register with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from beads_workers.cli import fleet, tracker, watch
from beads_workers.errors import CommandError
from beads_workers.integrations.envelopes import commands
from beads_workers.integrations.envelopes.wire import schema
from tests.integrations.envelopes.test_envelope import DONE, ENQUEUED
from tests.support.commands import Commands
from tests.support.journals import night

_COMMANDS = Commands(commands, tracker, fleet, watch)
asked, told = _COMMANDS.asked, _COMMANDS.told


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh embedded tracker, and the process in its folder."""
    monkeypatch.chdir(tmp_path)
    told("init", "--prefix", "p")
    return tmp_path


def refused(*arguments: str, given: str | bytes = "") -> tuple[CommandError, str]:
    """The error, and the warnings before it."""
    result = asked(*arguments, given=given)
    assert isinstance(result.exception, CommandError), (result.exception, result.output)
    assert "\n" not in result.exception.message + result.exception.hint
    return result.exception, result.stderr


def listed(*arguments: str) -> list[dict[str, Any]]:
    found = json.loads(told("list", "--envelopes", "--json", *arguments))
    assert isinstance(found, list)
    return found


def test_what_is_handed_in_is_listed_as_it_was() -> None:
    sent = ENQUEUED | {"tenant": "x"}
    assert told("submit", given=json.dumps(sent, indent=2)) == (
        "submitted 1 job\nnext: beads-workers start --allow-module backend\n"
    )
    assert listed() == [sent]
    assert "job_path: backend.workers.tasks.worker_heartbeat" in told("show", "job-123")
    assert told("list", "--envelopes") == (
        "enqueued  job-123  backend.workers.tasks.worker_heartbeat\n"
    )


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("rrq.shop.send", "--executor shop=rrq:CMD"),
        ("rrq.$(reboot).send", "--executor NAME=rrq:CMD"),
        ("rrq.;reboot;.send", "--executor NAME=rrq:CMD"),
        ("$(reboot).tasks.send", "--allow-module NAME"),
        ("send", "--allow-module NAME"),
        ("shop.tasks.send", "--allow-module shop"),
    ],
)
def test_what_is_to_be_started_for_it_is_said(path: str, hint: str) -> None:
    said = told("submit", given=json.dumps(ENQUEUED | {"job_path": path}))
    assert said.splitlines()[-1] == f"next: beads-workers start {hint}"


@pytest.mark.parametrize("path", ["../../x", ".f", "a..b", "f.", "a b.c", "a/b", "a\nb"])
def test_what_is_no_name_of_a_function_is_refused(path: str) -> None:
    error, _ = refused("submit", given=json.dumps(ENQUEUED | {"job_path": path}))
    assert "job_path: " in error.message and "names no callable" in error.message


@pytest.mark.parametrize(
    "lone", [{"args": ["\ud800"]}, {"x": {"\udfff": 1}}, {"job_path": "a.\ud83d"}]
)
def test_half_of_a_character_is_refused_and_not_replaced(lone: dict[str, Any]) -> None:
    error, _ = refused("submit", given=json.dumps(ENQUEUED | lone))
    assert f"line 1: {next(iter(lone))}: half of a character" in error.message
    assert listed() == []


def test_a_name_without_end_is_not_repeated_whole() -> None:
    error, _ = refused("submit", given=json.dumps(ENQUEUED | {"9" * 5000: "\ud800"}))
    assert f"line 1: {'9' * 80}: half of a character" in error.message


def test_what_only_a_job_that_ran_has_is_left_out_and_said() -> None:
    ran = {
        "attempt": 3,
        "result": {"a": 1},
        "reason": "lost",
        "next_retry_at": 5,
        "omitted": ["args"],
    }
    result = asked("submit", given=json.dumps(ENQUEUED | ran))
    for name in ran:
        assert f"{name}: not kept, for the job has not begun" in result.stderr
    assert listed() == [ENQUEUED]


def test_files_are_taken_together_or_not_at_all(place: Path) -> None:
    one, two = place / "one.jsonl", place / "two.jsonl"
    one.write_text("".join(json.dumps(ENQUEUED | {"job_id": i}) + "\n" for i in "ab"))
    two.write_text(json.dumps(ENQUEUED | {"job_id": "b"}))
    error, _ = refused("submit", str(one), str(two))
    assert error.exit_code == 1 and f"{two}: line 1: job_id: 'b' was on" in error.message
    assert listed() == []
    two.write_text(json.dumps(ENQUEUED | {"job_id": "c"}))
    answer = json.loads(told("submit", "--json", str(one), str(two)))
    assert answer == {"submitted": 3, "job_ids": ["a", "b", "c"]}


def test_to_hand_in_the_same_again_is_refused_and_changes_nothing() -> None:
    told("submit", given=json.dumps(ENQUEUED))
    error, _ = refused("submit", given=json.dumps(ENQUEUED | {"args": [1]}))
    assert "'job-123' is in the tracker already" in error.message
    assert "list --envelopes" in error.hint
    assert listed() == [ENQUEUED]


def test_every_problem_is_named_and_none_is_taken() -> None:
    lines = [ENQUEUED, DONE, ENQUEUED | {"kwargs": None}]
    error, warnings = refused("submit", given="\n".join(map(json.dumps, lines)))
    assert "line 2: state: " in warnings and "line 3: kwargs: " in warnings
    assert error.message.startswith("nothing was taken")
    assert listed() == []


def test_a_key_that_is_no_use_is_a_warning() -> None:
    result = asked("submit", given=json.dumps(ENQUEUED | {"priority": "high"}))
    assert result.exit_code == 0 and "line 1: priority: " in result.stderr


@pytest.mark.parametrize(("given", "code"), [("", 2), ("\n \n", 2), ("nonsense", 1), (b"\xff", 1)])
def test_what_is_no_envelope_is_an_error(given: str | bytes, code: int) -> None:
    assert refused("submit", given=given)[0].exit_code == code


def test_a_file_that_is_not_there_is_a_usage_error() -> None:
    assert refused("submit", "nosuch.json")[0].exit_code == 2


def test_a_project_with_only_bd_says_what_to_do_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Out of the folder that has a tracker, or that would be found on the way up.
    folder = tmp_path.parent / f"{tmp_path.name}-bd"
    (folder / ".beads").mkdir(parents=True)
    monkeypatch.chdir(folder)
    error, _ = refused("submit", given=json.dumps(ENQUEUED))
    assert error.exit_code == 6 and "call:" in error.hint


def test_beside_a_beads_folder_it_is_said_which_one_start_takes(place: Path) -> None:
    (place / ".beads").mkdir()
    result = asked("submit", given=json.dumps(ENQUEUED))
    assert result.exit_code == 0 and "--source sqlite" in result.stderr


def test_the_schema_is_printed_for_other_programs() -> None:
    assert json.loads(told("submit", "--schema")) == schema()


@pytest.mark.parametrize("command", ["status", "watch", "replay"])
def test_envelopes_go_with_json(command: str) -> None:
    assert refused(command, "--envelopes")[0].exit_code == 2


def test_jobs_of_the_last_run_are_listed_by_state_and_replayed(place: Path) -> None:
    night(40, 3).write(place / ".beads-workers")
    replayed = [json.loads(x) for x in told("replay", "--json", "--envelopes").splitlines()]
    assert {job["state"] for job in replayed} == {"enqueued", "running", "done", "error"}
    last = {job["job_id"]: job for job in replayed}
    status = json.loads(asked("status", "--json", "--envelopes").stdout)
    unfinished = [job for job in last.values() if job["state"] != "done"]
    assert sorted(status["envelopes"], key=repr) == sorted(unfinished, key=repr)


def test_what_was_deleted_from_the_tracker_is_not_listed_any_more(place: Path) -> None:
    night(5, 1).write(place / ".beads-workers")
    assert listed("--all") == []


def test_no_text_of_a_job_reaches_a_terminal_unescaped() -> None:
    error, _ = refused("submit", given=json.dumps(ENQUEUED | {"job_path": "m.\x1b]0;a\x07f"}))
    assert error.message.isprintable()
    told("submit", given=json.dumps(ENQUEUED | {"x": "\x1b[31m\u202e"}))
    for shown in (told("list", "--envelopes"), told("list", "--envelopes", "--json")):
        assert not {"\x1b", "\x07", "\u202e"} & set(shown)
