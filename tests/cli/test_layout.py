"""How ``--help`` is laid out: groups, panels, and the width of the terminal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from beads_workers.cli.application import build
from beads_workers.cli.layout import GROUPS
from beads_workers.core.base.option import PANELS
from beads_workers.registry import commands
from tests.support import warm
from tests.support.embedded import EmbeddedProject

NAMES = {name for commands in commands().values() for name in commands} | {"version"}
MATTERING = 9


def help_of(*arguments: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines of ``--help`` on a terminal of that width."""
    monkeypatch.setenv("COLUMNS", str(columns))
    program: Any = get_command(build([*arguments, "--help"]))
    with program.make_context("beads-workers", [*arguments], resilient_parsing=True) as ctx:
        if not arguments:
            return str(program.get_help(ctx)).splitlines()
        command = program.commands[arguments[0]]
        with command.make_context(arguments[0], [], parent=ctx, resilient_parsing=True) as inner:
            return str(command.get_help(inner)).splitlines()


def sections(lines: list[str]) -> dict[str, list[str]]:
    """The names below each title."""
    found: dict[str, list[str]] = {}
    for line in lines:
        if title := re.fullmatch(r"(\w.*):", line):
            found[title[1]] = names = []
        elif found and (name := re.match(r"  (\S.*?)(  |$)", line)):
            names.append(name[1])
    return found


def test_every_group_names_commands_that_there_are() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) <= NAMES


def test_every_command_stands_in_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    found = sections(help_of(columns=100, monkeypatch=monkeypatch))
    assert [title for title in found if title in GROUPS] == [*GROUPS]
    listed = [name for title in GROUPS for name in found[title]]
    assert sorted(each for each in listed if each in NAMES) == sorted(NAMES)


def test_those_of_integrations_stand_in_the_last_group(monkeypatch: pytest.MonkeyPatch) -> None:
    found = sections(help_of(columns=100, monkeypatch=monkeypatch))
    rooms = [names for module, names in commands().items() if module.startswith("integrations.")]
    assert {name for names in rooms for name in names} <= set(found[[*GROUPS][-1]])


def test_the_options_that_matter_stand_first(monkeypatch: pytest.MonkeyPatch) -> None:
    found = sections(help_of("start", columns=120, monkeypatch=monkeypatch))
    assert [*found] == ["Arguments", "Options", *PANELS]
    assert found["Options"][-1].startswith("-h, --help")
    assert len(found["Options"]) == MATTERING + 1


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
@pytest.mark.parametrize("arguments", [[], ["start"], ["doctor"], ["stop"]])
def test_help_is_as_wide_as_the_terminal(
    arguments: list[str], columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = help_of(*arguments, columns=columns, monkeypatch=monkeypatch)
    assert max(map(len, lines)) <= columns
    assert not [line for line in lines[1:] if line.endswith("...")]  # Nothing is cut.


def test_on_a_wide_terminal_a_sentence_has_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = help_of("start", columns=200, monkeypatch=monkeypatch)
    notify = next(line for line in lines if "--notify" in line)
    assert notify.endswith("or 'desktop'.")


def test_all_second_columns_begin_at_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = help_of("start", columns=200, monkeypatch=monkeypatch)
    rows = [found for each in lines if (found := re.match(r"  -\S.*?  +(?=\S)", each))]
    assert len({found.end() for found in rows}) == 1


@pytest.mark.parametrize(
    "name", ["", *sorted(NAMES - {"conformance", "config", "hero", "dispatcherd-config"})]
)
def test_what_is_to_be_pasted_stands_in_one_line_of_eighty_columns(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = help_of(*filter(None, [name]), columns=80, monkeypatch=monkeypatch)
    last = [line for line in lines if line][-1]
    assert not name or "Example: " not in "\n".join(lines) or last.startswith("  Example: ")
    assert name or last.startswith("  See: ")


def test_an_issue_may_be_named_as_on_a_forge(tmp_path: Path) -> None:
    project = EmbeddedProject(tmp_path)
    project.create_many([{"id": key, "title": key} for key in ("12", "13")])

    def told(*words: str) -> str:
        done = warm.run(words, project.folder, project.environment, 30)
        assert done.returncode == 0, done.stderr
        return done.stdout

    told("close", "#12", "team/shop#13")
    assert {status for status, _ in project.read_all().values()} == {"closed"}
    told("reopen", "#12", "https://git.example.org/team/shop/issues/13")
    assert told("dep", "add", "#12", "#13") == "12 waits for 13\n"
    assert told("show", "#12").startswith("id: 12\n")
    assert told("comment", "12", "#13") and "#13" in told("show", "12")
