"""What a live page asks for: parts of logs, attempts as the dashboard has them, reports."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from beads_workers.cli import web_requests
from beads_workers.cli.web_requests import PageAnswers, pin_json
from beads_workers.core.records.journal import RunStarted, encode
from beads_workers.runtime.run_directory import RunDirectory
from beads_workers.ui.attempt_view import Pin, sections
from beads_workers.ui.web import Body
from beads_workers.ui.web_state import PageState
from beads_workers.views.attempt_files import read_view
from beads_workers.views.logs import LOG_PART_BYTES, log_part
from tests.support.journals import night


def part(log: Path, **places: int) -> dict[str, Any]:
    """A part of a log, as a page is told."""
    with log.open("rb") as file:
        return log_part(file, log, **places)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of three parts and more."""
    file = tmp_path / "a-1.1.log"
    chance = random.Random(1)
    lines = [f"line {n} {'x' * chance.randrange(200)}" for n in range(5000)]
    file.write_text("\n".join(lines) + "\n")
    assert file.stat().st_size > 3 * LOG_PART_BYTES
    return file


def test_the_end_of_a_log_and_what_is_before_it_are_all_of_it(log: Path) -> None:
    found = part(log)
    assert found["end"] == found["size"] == log.stat().st_size
    lines, parts = found["lines"], 1
    assert lines[-1].startswith("line 4999 ")
    while found["begin"]:
        found = part(log, before=found["begin"])
        lines, parts = found["lines"] + lines, parts + 1
    assert "\n".join(lines) + "\n" == log.read_text()
    assert parts > 3, "no part is more than a phone can take"


def test_a_log_that_grows_is_told_once_line_by_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"")
    found, told = part(log), []
    text = "".join(f"line {n}\n" for n in range(200))
    for at in range(0, len(text), 7):
        with log.open("a") as file:
            file.write(text[at : at + 7])
        found = part(log, after=found["end"])
        assert not found["anew"]
        told += found["lines"]
        assert "\n".join([*told, found["begun"]]) == text[: at + 7]
    assert told == text.splitlines()


def test_a_log_that_was_replaced_is_told_anew(log: Path) -> None:
    end = part(log)["end"]
    log.write_text("another\n")
    found = part(log, after=end)
    assert found["anew"] and found["lines"] == ["another"]


def test_a_line_longer_than_a_part_stops_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("a\n" + "b" * (3 * LOG_PART_BYTES) + "\nc\n")
    found, told = {"end": 0, "size": 1}, []
    while found["end"] < found["size"]:
        found = part(log, after=found["end"])
        told += found["lines"]
    assert told[0] == "a" and told[-1] == "c"


def test_noise_of_an_agent_is_left_out_and_its_times_are_told(tmp_path: Path) -> None:
    log = tmp_path / "log"
    said = '{"type": "item.completed", "item": {"type": "agent_message", "text": "done"},'
    log.write_text(
        "[beads-workers] agent codex, adapter codex, x\n"
        f'{said} "timestamp": "2026-01-01T00:00:00Z"}}\n'
        '{"type": "turn.started"}\n'
    )
    found = part(log)
    assert len(found["lines"]) == len(found["times"]) == 2
    assert found["times"] == [None, 1767225600.0] and "done" in found["lines"][1]


# --- a run directory ---------------------------------------------------------------------------


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A night with logs."""
    entries = sorted(night(120, 6).entries, key=lambda entry: entry.elapsed)
    (run_id,) = (each.record.run_id for each in entries if isinstance(each.record, RunStarted))
    folder = RunDirectory(tmp_path).run(run_id)
    (folder / "logs").mkdir(parents=True)
    (folder / "journal.jsonl").write_bytes(b"".join(map(encode, entries)))
    (folder / "logs" / "proj-0003.1.log").write_text("it went well\n")
    return tmp_path


def ask(state: Path, what: str, **query: object) -> Any:
    """The answer to a page."""
    query.setdefault("run", RunDirectory(state).last_run())
    return PageAnswers(state, PageState()).answer(
        what, {key: str(each) for key, each in query.items()}
    )


def test_an_attempt_is_the_one_that_the_dashboard_shows(state: Path) -> None:
    run_id = RunDirectory(state).last_run()
    told = ask(state, "attempt", issue="proj-0003", number=0)
    view = read_view(state, Pin("proj-0003", run_id))
    assert told["sections"] == [each for each in sections(view, ()) if each[1]]
    assert told["attempts"] == [pin_json(each.pin) for each in view.attempts] != []
    exact = {key: each for key, each in told["pin"].items() if each is not None}
    assert ask(state, "attempt", **exact)["pin"] == told["pin"]
    assert ask(state, "log", **exact)["lines"] == ["it went well"]


def test_a_log_is_downloaded_whole_under_a_safe_name(state: Path) -> None:
    body = ask(state, "download", issue="proj-0003", number=1, worker="W1")
    assert isinstance(body, Body) and body.data == b"it went well\n"
    assert body.headers == {"Content-Disposition": 'attachment; filename="proj-0003.1.log"'}
    assert ask(state, "download", issue='x"; y\r\nz', number=1, worker="W1") is None


@pytest.mark.parametrize(
    ("what", "query"),
    [
        ("log", {"issue": "../../../secret", "number": 1}),
        ("log", {"issue": "a", "number": 1, "worker": "../../../secret"}),
        ("log", {"issue": "proj-0003", "number": 1, "run": "../.."}),
        ("download", {"issue": "linked", "number": 1}),
        ("log", {"issue": "linked", "number": 1}),
        ("report", {"run": "../.."}),
        ("log", {"issue": "proj-0003", "number": "x"}),
        ("log", {"issue": "proj-0003", "number": 1, "after": "-5x"}),
    ],
)
def test_nothing_outside_is_read(state: Path, what: str, query: dict[str, Any]) -> None:
    secret = state / "secret"
    secret.write_text("SECRET")
    logs = RunDirectory(state).run(RunDirectory(state).last_run()) / "logs"
    (logs / "linked.1.log").symlink_to(secret)
    answer = ask(state, what, **query)
    assert "SECRET" not in str(answer)
    assert answer is None or not answer.get("lines")


def test_the_reports_of_earlier_nights_are_there(state: Path) -> None:
    (row,) = ask(state, "nights")["nights"]
    assert row["run_id"] == RunDirectory(state).last_run() and row["closed"] > 10
    report = ask(state, "report", run=row["run_id"])
    assert isinstance(report, Body) and b"proj-0003" in report.data
    assert report.headers["Content-Security-Policy"] == web_requests.SANDBOX
    assert "allow-same-origin" not in web_requests.SANDBOX


def test_a_page_in_the_background_is_told_how_it_ended(state: Path) -> None:
    told = ask(state, "brief")
    assert told["fleet"] == "ended" and told["queue"]["total"] > told["queue"]["closed"] > 10
    assert told["queue"]["quarantined"] > 0 and told["ended"]["exit_code"] == 7
    assert ask(state.parent / "nothing", "brief", run="")["fleet"] == "none"
