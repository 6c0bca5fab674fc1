"""Commands that change issues, on the built-in tracker and in a project of bd."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from beads_workers.cli import edit, tracker
from beads_workers.cli.app import main
from beads_workers.errors import CommandError
from beads_workers.trackers.sqlite.store import connect, transaction
from tests.support.bd import BdProject
from tests.support.commands import Commands

_COMMANDS = Commands(tracker, edit)
asked, told = _COMMANDS.asked, _COMMANDS.told
RUN = "beads-workers/host/0123"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a built-in tracker, the process in it, and Ann at the keyboard."""
    folder = tmp_path / "built-in"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("BEADS_ACTOR", "Ann")
    told("init", "--prefix", "x")
    return folder


def refused(*arguments: str, given: str = "") -> CommandError:
    result = asked(*arguments, given=given)
    assert isinstance(result.exception, CommandError), (result.exception, result.output)
    assert "\n" not in result.exception.message + result.exception.hint
    return result.exception


def shown(issue_id: str) -> dict[str, Any]:
    fields = json.loads(told("show", issue_id, "--json"))
    assert isinstance(fields, dict)
    return fields


def listed(*arguments: str) -> list[str]:
    return [each["title"] for each in json.loads(told("list", "--json", *arguments))]


def hold(place: Path, issue_id: str) -> None:
    """A fleet is at work on it."""
    connection = connect(place / ".beads-workers" / "tracker.db")
    with transaction(connection):
        connection.execute(
            "UPDATE issues SET status = 'in_progress', assignee = ? WHERE id = ?", (RUN, issue_id)
        )
    connection.close()


def editor(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = folder / "editor"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(program))
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)


def test_edit_changes_what_is_named() -> None:
    key = told("add", "old", "-p", "3", "-l", "red", "-d", "text", "--", "echo", "hi").strip()
    options = ["--title", "new", "-p", "0", "-t", "bug", "--add-label", "blue"]
    assert told("edit", key, *options, "--remove-label", "red") == f"changed: {key}\n"
    found = shown(key)
    assert (found["title"], found["priority"], found["issue_type"]) == ("new", 0, "bug")
    assert (found["labels"], found["description"]) == (["blue"], "text")
    assert found["command"] == ["echo", "hi"]
    told("edit", key, "--timeout", "5m", "--", "make", "-j4")
    assert (shown(key)["timeout_seconds"], shown(key)["command"]) == (300, ["make", "-j4"])
    told("edit", key, "-d", "-", given="long\n- text\n")
    assert shown(key)["description"] == "long\n- text"


def test_edit_without_options_opens_title_and_text(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = told("add", "old title", "-d", "old text").strip()
    editor(place, monkeypatch, 'sed -i s/old/new/ "$1"')
    told("edit", key)
    assert (shown(key)["title"], shown(key)["description"]) == ("new title", "new text")
    assert told("edit", key) == "nothing changed\n"
    editor(place, monkeypatch, "exit 3")
    assert "exit 3: nothing was written" in refused("edit", key).message
    editor(place, monkeypatch, ': > "$1"')
    assert refused("edit", key).exit_code == 2
    assert shown(key)["title"] == "new title"


def test_a_comment_is_typed_piped_or_written_and_shown_with_its_author(place: Path) -> None:
    key = told("add", "t").strip()
    assert told("comment", key, "call", "it", "FOO") == f"commented on {key} as Ann\n"
    said = json.loads(told("comment", key, "--json", given="two\nlines\x1b[31m\n"))
    assert (said["id"], said["author"], said["issue_id"]) == ("2", "Ann", key)
    kept = shown(key)["comments"]
    assert [each["text"] for each in kept] == ["call it FOO", "two\nlines\x1b[31m"]
    assert [each["id"] for each in kept] == [1, 2] and kept[1]["created_at"].endswith("Z")
    text = told("show", key)
    assert "Ann, " in text and "    lines\\x1b[31m" in text and "\x1b" not in text
    assert refused("comment", key, given=" \n").exit_code == 2
    assert len(shown(key)["comments"]) == 2


def test_a_comment_is_in_the_name_that_git_knows(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = told("add", "t").strip()
    monkeypatch.delenv("BEADS_ACTOR")
    monkeypatch.delenv("BD_ACTOR", raising=False)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(place / "config"))
    (place / "config").write_text('[user]\nname = "Ann O\'Neil"\n')
    assert json.loads(told("comment", key, "x", "--json"))["author"] == "Ann O'Neil"
    (place / "config").write_text("")
    monkeypatch.setenv("LOGNAME", "ann")
    assert json.loads(told("comment", key, "x", "--json"))["author"] == "ann"


def test_close_and_reopen_say_what_they_did_and_what_was_so_already() -> None:
    first, second = (told("add", title).strip() for title in ("one", "two"))
    assert told("close", first, "-r", "not needed") == f"closed: {first}  one\n"
    assert shown(first)["close_reason"] == "not needed"
    again = asked("close", first, second)
    assert again.stdout == f"closed: {second}  two\n" and "closed already" in again.stderr
    assert json.loads(told("reopen", first, second, "--json", "-r", "still wrong")) == {
        "reopened": [first, second]
    }
    assert [shown(first)["status"], shown(first)["comments"][0]["text"]] == ["open", "still wrong"]
    assert "close_reason" not in shown(first)
    assert "open already" in asked("reopen", first).stderr
    told("edit", first, "--status", "blocked")
    assert f"beads-workers retry {first}" in refused("reopen", first).hint


def test_delete_first_says_what_would_go() -> None:
    first = told("add", "one").strip()
    second = told("add", "two", "--dep", first).strip()
    error = refused("delete", first)
    assert error.exit_code == 2 and f"{first} 'one'" in error.message
    assert error.hint.endswith(f"beads-workers delete {first} --force")
    assert told("delete", first, "--force") == f"deleted: {first}  one\n"
    assert listed() == ["two"] and "dependencies" not in shown(second)
    assert refused("delete", first, "-f").exit_code == 4


def test_nothing_is_written_if_one_of_several_is_missing_or_held(place: Path) -> None:
    free, held = told("add", "free").strip(), told("add", "held").strip()
    hold(place, held)
    for command in (["close"], ["delete", "--force"], ["delete"]):
        assert refused(*command, free, "x-none").exit_code == 4
        error = refused(*command, free, held)
        assert RUN in error.message and f"beads-workers release {held}" in error.hint
    assert listed() == ["free", "held"]
    assert [shown(key)["status"] for key in (free, held)] == ["open", "in_progress"]
    assert RUN in refused("edit", held, "--status", "open").message
    assert "not closed: it is in_progress" in refused("reopen", held).message


def test_a_change_of_what_runs_is_written_and_says_that_the_attempt_does_not_see_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = told("add", "held").strip()
    hold(place, held)
    for command in (["edit", held, "-d", "other"], ["comment", held, "look"]):
        assert f"{held} is being worked on ({RUN})" in asked(*command).stderr
    assert (shown(held)["description"], shown(held)["assignee"]) == ("other", RUN)
    monkeypatch.setenv("BEADS_ACTOR", f"{RUN}/{held}")
    told_by_its_agent = asked("comment", held, "found more")
    assert (told_by_its_agent.exit_code, told_by_its_agent.stderr) == (0, "")


def test_dependencies_are_added_and_removed() -> None:
    first, second = told("add", "one").strip(), told("add", "two").strip()
    assert told("dep", "add", second, first) == f"{second} waits for {first}\n"
    assert f"waits for {first}" in told("list")
    assert refused("dep", "add", first, "--blocked-by", second).message.startswith("these would")
    assert refused("dep", "add", first, first).message.endswith("depends on itself")
    assert refused("dep", "add", first).exit_code == 2
    removed = json.loads(told("dep", "remove", second, first, "--json"))
    assert removed == {"issue_id": second, "depends_on_id": first, "status": "removed"}
    assert "waits for" not in told("list")
    assert refused("dep", "remove", second, first).exit_code == 1


def test_list_shows_those_with_a_status_and_all_labels() -> None:
    told("add", "both", "-l", "red", "-l", "blue")
    red = told("add", "red", "-l", "red").strip()
    done = told("add", "done", "-l", "red").strip()
    told("edit", red, "--status", "blocked")
    told("close", done)
    assert listed("-l", "red") == ["both", "red"]
    assert listed("-l", "red", "--label", "blue") == ["both"]
    assert listed("--status", "closed") == ["done"]
    assert listed("-s", "closed,blocked", "-l", "red") == ["red", "done"]
    assert "nothing to list with that status" in asked("list", "-s", "opne").stderr


def test_a_status_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    key = told("add", "t").strip()
    error = refused("edit", key, "--status", "opne")
    assert error.exit_code == 1 and "open, in_progress, blocked" in error.hint
    assert "depth" in refused("edit", key, "depth").message


@pytest.mark.parametrize("command", ["edit", "comment", "close", "reopen", "delete"])
def test_help_shows_an_example(command: str) -> None:
    assert f"Example: beads-workers {command}" in told(command, "--help")


def test_in_a_project_of_bd_the_same_commands_call_bd(
    project: BdProject, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def typed(*words: str, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["beads-workers", *words])
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr()
        assert (end.value.code or 0) == code, said.err
        return said.err if code else said.out

    for name, value in (project.environment | {"BEADS_ACTOR": "Ann"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(project.folder)
    first = typed("add", "one", "-p", "1", "-l", "red", "-d", "long\ntext", "--timeout", "5m")
    first = first.strip()
    made = json.loads(typed("add", "two", "--dep", first, "--json"))
    second = made["id"]
    assert made["dependencies"][0]["id"] == first
    assert "timeout:300s" in typed("list", "-l", "red")
    typed("edit", first, "--title", "uno", "--add-label", "blue", "--timeout", "90s")
    typed("comment", first, "call it FOO")
    found = json.loads(typed("show", first, "--json"))
    assert (found["title"], {*found["labels"]}) == ("uno", {"red", "blue", "timeout:90s"})
    (kept,) = found["comments"]
    assert (kept["author"], kept["text"]) == ("Ann", "call it FOO")
    assert kept["id"] and kept["created_at"]
    assert "Ann, " in typed("show", first)
    typed("dep", "remove", second, first)
    typed("close", first, "-r", "not needed")
    assert [each["id"] for each in json.loads(typed("list", "--status", "closed", "--json"))] == [
        first
    ]
    typed("reopen", first)
    assert project.read(first) == ("open", "")
    assert "bd keeps no command" in typed("add", "x", "--", "true", code=1)
    project.put(second, "in_progress", RUN)
    assert f"beads-workers release {second}" in typed("close", second, code=1)
    typed("delete", first, "--force")
    assert [each["id"] for each in json.loads(typed("list", "--json"))] == [second]
