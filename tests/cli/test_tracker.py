"""The built-in tracker's commands, through the application that they register with."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from beads_workers.cli import tracker
from beads_workers.errors import CommandError
from tests.support.commands import Commands

_COMMANDS = Commands(tracker)
asked, told = _COMMANDS.asked, _COMMANDS.told


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and the process in it."""
    folder = tmp_path / "My.Proj"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def refused(*arguments: str, given: str | bytes = "") -> CommandError:
    result = asked(*arguments, given=given)
    assert isinstance(result.exception, CommandError), (result.exception, result.output)
    assert "\n" not in result.exception.message + result.exception.hint
    return result.exception


def shown(issue_id: str) -> dict[str, Any]:
    fields = json.loads(told("show", issue_id, "--json"))
    assert isinstance(fields, dict)
    return fields


def test_init_makes_a_private_folder_a_tracker_and_a_settings_file(project: Path) -> None:
    assert "created" in told("init")
    assert (project / ".beads-workers" / ".gitignore").read_text() == "*\n"
    assert (project / ".beads-workers").stat().st_mode & 0o777 == 0o700
    config = (project / "beads-workers.toml").read_text()
    assert all(not line or line.startswith("#") for line in config.splitlines())
    assert '# command = ["' in config


def test_init_again_keeps_what_is_there(project: Path) -> None:
    told("init")
    (project / "beads-workers.toml").write_text("workers = 3\n")
    key = told("add", "kept").strip()
    assert "already there" in told("init")
    assert shown(key)["title"] == "kept"
    assert (project / "beads-workers.toml").read_text() == "workers = 3\n"
    answer = json.loads(told("init", "--json"))
    assert (answer["created"], answer["config_created"]) == (False, False)


def test_ids_begin_with_the_folders_name_or_with_what_is_asked_for(project: Path) -> None:
    told("init")
    assert told("add", "one").startswith("my-proj-")
    other = project / "other"
    other.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(other)
        told("init", "--prefix", "zz")
        assert told("add", "two").startswith("zz-")
    assert refused("init", "--prefix", "../x").exit_code == 2


@pytest.mark.parametrize(
    "command", [["add", "t"], ["list"], ["show", "x"], ["import", "-"], ["export"]]
)
def test_without_a_tracker_every_command_says_what_to_do(command: list[str]) -> None:
    error = refused(*command)
    assert (error.message, error.exit_code) == ("no tracker here", 6)
    assert error.hint.startswith("run 'beads-workers init' here")


def test_add_takes_everything_from_any_folder_below(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told("init")
    (project / "sub").mkdir()
    monkeypatch.chdir(project / "sub")
    first = told("add", "first").strip()
    options = ["-p", "0", "-d", "long\ntext", "-l", "red", "-l", "blue", "--dep", first]
    options += ["--type", "bug", "--timeout", "1.5"]
    second = told("add", "second", *options, "--", "sh", "-c", "echo -- $1", "--", "-n").strip()
    found = shown(second)
    assert (found["title"], found["priority"], found["description"]) == ("second", 0, "long\ntext")
    assert (found["labels"], found["issue_type"]) == (["red", "blue"], "bug")
    assert found["timeout_seconds"] == 1.5
    assert found["command"] == ["sh", "-c", "echo -- $1", "--", "-n"]
    assert [each["depends_on_id"] for each in found["dependencies"]] == [first]


def test_a_title_may_look_like_an_option() -> None:
    told("init")
    assert shown(told("add", "--", "--help").strip())["title"] == "--help"
    found = shown(told("add", "--", "--help", "--", "echo", "hi").strip())
    assert (found["title"], found["command"]) == ("--help", ["echo", "hi"])


def test_an_unquoted_title_is_not_taken_for_a_command() -> None:
    told("init")
    error = refused("add", "Fix", "the", "bug")
    assert error.exit_code == 2 and "quotes" in error.hint
    assert json.loads(told("list", "--json")) == []


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [
        (["add", "  "], 2),
        (["add", "t", "--timeout", "-1"], 2),
        (["add", "t", "--timeout", "nan"], 2),
        (["add", "--", "a", "b"], 2),
        (["add", "t", "--dep", "x-none"], 4),
        (["show", "x-none"], 4),
        (["import", "no such file"], 2),
    ],
)
def test_what_is_wrong_has_its_exit_code_and_adds_nothing(
    arguments: list[str], exit_code: int
) -> None:
    told("init")
    assert refused(*arguments).exit_code == exit_code
    assert json.loads(told("list", "--all", "--json")) == []


def test_a_priority_beyond_4_is_a_usage_error() -> None:
    told("init")
    assert asked("add", "t", "-p", "5").exit_code == 2


def test_list_is_aligned_most_urgent_first_and_hides_what_is_closed() -> None:
    told("init", "--prefix", "x")
    issues = [
        {"id": "x-long-id", "title": "later", "priority": 3},
        {"id": "x-1", "title": "now", "priority": 0, "labels": ["red"]},
        {"id": "x-2", "title": "over", "status": "closed"},
        {"id": "x-3", "title": "after", "dependencies": [{"depends_on_id": "x-1"}]},
    ]
    told("import", "-", given="\n".join(map(json.dumps, issues)))
    assert told("list").splitlines() == [
        "x-1        P0  open         now  [red]",
        "x-3        P2  open         after  waits for x-1",
        "x-long-id  P3  open         later",
    ]
    assert "over" in told("list", "--all")
    assert [each["id"] for each in json.loads(told("list", "--json"))] == [
        "x-1",
        "x-3",
        "x-long-id",
    ]


def test_nothing_from_an_issue_reaches_the_terminal_unescaped() -> None:
    told("init")
    evil = "a\x1b[31m\x9b2J\u202e\nb"
    key = told("add", evil, "-d", evil, "-l", evil, "--", "echo", evil).strip()
    for command in (["list"], ["show", key], ["list", "--json"], ["export"]):
        assert not set(told(*command)) & set("\x1b\x9b\u202e")
    assert shown(key)["title"] == evil
    assert len(told("list").splitlines()) == 1


def test_import_reports_counts_and_drops_commands_aloud() -> None:
    told("init")
    line = json.dumps({"id": "x-1", "title": "t", "command": ["true"]})
    result = asked("import", "-", given=line)
    assert result.stdout == "created 1, updated 0, unchanged 0\n"
    assert "1 command was dropped" in result.stderr
    assert "command" not in shown("x-1")
    counts = json.loads(told("import", "--allow-commands", "--json", "-", given=line))
    assert (counts["updated"], counts["commands_dropped"]) == (1, 0)
    assert shown("x-1")["command"] == ["true"]


def test_a_bad_line_imports_nothing_and_is_named() -> None:
    told("init")
    result = asked("import", "-", given=b'{"id": "x-1", "title": "t"}\n\x1b[31m garbage\n')
    assert isinstance(result.exception, CommandError)
    assert (result.exception.exit_code, "line 2" in result.stderr) == (1, True)
    assert told("export") == ""


def test_export_and_import_are_inverse(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told("init")
    first = told("add", "first", "-l", "ü").strip()
    told("add", "second", "--dep", first, "--", "echo", "hi")
    lines = told("export")
    assert json.loads(told("export", "--json")) == [json.loads(each) for each in lines.splitlines()]
    (project / "issues.jsonl").write_text(lines)
    (project / "copy").mkdir()
    monkeypatch.chdir(project / "copy")
    told("init")
    told("import", "--allow-commands", "../issues.jsonl")
    assert told("export") == lines


def test_a_broken_tracker_is_exit_6(project: Path) -> None:
    told("init")
    (project / ".beads-workers" / "tracker.db").write_bytes(b"not a database" * 100)
    assert refused("list").exit_code == 6


@pytest.mark.parametrize("command", ["export", "list"])
def test_a_reader_that_has_seen_enough_ends_the_command_quietly(command: str) -> None:
    told("init")
    issues = [{"id": f"x-{number}", "title": "long " * 20} for number in range(2000)]
    told("import", "-", given="\n".join(map(json.dumps, issues)))
    with subprocess.Popen(
        [sys.executable, "-m", "beads_workers", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""


@pytest.mark.parametrize("command", ["init", "add", "list", "show", "import", "export"])
def test_help_shows_an_example(command: str) -> None:
    assert f"Example: beads-workers {command}" in told(command, "--help")


def test_the_module_loads_neither_sqlite_nor_rich() -> None:
    loads = "import sys, beads_workers.cli.tracker; print({'sqlite3', 'rich'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", loads], capture_output=True, check=True)
    assert found.stdout == b"set()\n"
