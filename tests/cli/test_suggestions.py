"""What is said to a call of a command or an option that is not there: the line that was meant."""

from __future__ import annotations

import pytest
from typer.main import get_command

from beads_workers.cli.application import build
from beads_workers.cli.suggestions import MEANT, OF_ONE, OPTIONS
from beads_workers.registry import commands
from tests.support.mistakes import Mistake

KNOWN = {name for named in commands().values() for name in named} | {"version"}

MISTAKES = [
    # arguments, words of the error, words of the hint
    ("man start", "No such command 'man'.", "type: beads-workers start --help"),
    ("-ver", "No such option: -v", "beads-workers --version"),
    ("done bw-1", "No such command 'done'.", "type: beads-workers close bw-1"),
    ("update bw-1 -p 1", "No such command 'update'.", "type: beads-workers edit bw-1 -p 1"),
    ("label add bw-1 x", "No such command 'label'.", "edit ISSUE --add-label LABEL"),
    ("dep rm a b", "No such command 'rm'.", "type: beads-workers dep remove a b"),
    ("log W3 -f", "No such command 'log'.", "type: beads-workers logs W3 -f"),
    ("kill W3", "No such command 'kill'.", "type: beads-workers stop --now"),
    ("sttus --json", "No such command 'sttus'.", "type: beads-workers status --json"),
    ("Start -n 2", "No such command 'Start'.", "type: beads-workers start -n 2"),
    ("claude", "No such command 'claude'.", "type: beads-workers start --agent claude"),
    ("sh do.sh", "No such command 'sh'.", "beads-workers start -- sh do.sh"),
    ("config get workers", "No such command 'get'.", "type: beads-workers config show --origin"),
    ("--json status", "No such option: --json", "beads-workers status --json"),
    ("-n 4 start -- true", "No such option: -n", "beads-workers start -n 4 -- true"),
    ("--agent claude", "No such option: --agent", "type: beads-workers start --agent claude"),
    ("--version --json", "No such option: --json", "type: beads-workers version --json"),
    ("start -j4 -- true", "Did you mean -n?", "type: beads-workers start -n 4 -- true"),
    ("start --jobs=4 -- true", "Did you mean -n?", "type: beads-workers start -n 4 -- true"),
    ("start -j 4 sh", "Did you mean -n?", "type: beads-workers start -n 4 sh"),
    ("start --untilempty", "mean --until-empty?", "type: beads-workers start --until-empty"),
    ("start --model opus", "No such option: --model", '[agents.claude] model = "..."'),
    ("stop --force", "Did you mean --now?", "type: beads-workers stop --now"),
    ("status bw-1", "too many arguments: bw-1", "type: beads-workers why bw-1"),
    ("logs a b", "too many arguments: b", "'beads-workers logs --help'"),
    ("start -n eight", "--workers cannot be 'eight'", "a whole number from 0 to 1024"),
    ("scale", "Missing argument 'N'.", "for example: beads-workers scale 16"),
]


@pytest.mark.parametrize(("typed", "message", "remedy"), MISTAKES)
def test_what_was_meant_is_the_line_to_type(
    mistake: Mistake, typed: str, message: str, remedy: str
) -> None:
    mistake(typed, message, remedy, 2)


def test_a_name_of_another_tool_leads_to_a_command_and_hides_none() -> None:
    lines = [meant for meant in MEANT[""].values() if meant.split()[0] in {*KNOWN, "--help"}]
    others = {meant for meant in MEANT[""].values() if meant not in lines}
    assert not {*MEANT[""]} & KNOWN
    assert all("beads-workers" in words or words == "--version" for words in others)
    assert {*OF_ONE, *OF_ONE.values()} <= KNOWN


def test_an_option_of_another_tool_leads_to_one_of_ours() -> None:
    made = (get_command(build([name])).commands[name] for name in KNOWN)  # type: ignore[attr-defined]
    ours = {option for command in made for each in command.params for option in each.opts}
    assert {meant for meant in OPTIONS.values() if meant.startswith("-")} <= ours
