"""What a fleet runs, where it finds its issues, and what it says where it cannot start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import Ran, StartFleet
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet, call

STUB = """#!/bin/sh
for argument in "$@"; do printf '%s\\n' "$argument"; done >"{folder}/$BW_ISSUE_ID.argv"
cat >"{folder}/$BW_ISSUE_ID.stdin"
echo '{said}'
"""

SAID = {
    "claude": '{"type":"result","subtype":"success","num_turns":1,"result":"done"}',
    "codex": '{"type":"turn.completed","usage":{}}',
    "mine": "done",
}
"""How each says that it is done."""


@pytest.fixture
def stub_folder(tmp_path: Path) -> Path:
    """Programs that write down how they were called."""
    folder = tmp_path / "stubs"
    folder.mkdir()
    for name, said in SAID.items():
        (folder / name).write_text(STUB.format(folder=folder, said=said))
        (folder / name).chmod(0o755)
    return folder


def with_path(project: Any, folder: Path) -> None:
    path = f"{folder}:{project.environment['PATH']}"
    project.environment = {**project.environment, "PATH": path}


ARGV = {
    "claude": (
        *("-p", "--output-format", "stream-json", "--verbose", "--permission-mode", "acceptEdits"),
        *("--allowedTools", "Bash,Edit,Write,Read,Glob,Grep", "--disallowedTools"),
    ),
    "codex": (
        *("exec", "--json", "--sandbox", "workspace-write", "-c", 'approval_policy="never"'),
        *("-c", "allow_login_shell=false", "-"),
    ),
}


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_an_agent_gets_its_exact_arguments_and_its_prompt_on_stdin(
    embedded: Any, start: StartFleet, stub_folder: Path, agent: str
) -> None:
    text = 'Do "this"\nand `touch x` $(touch x)'
    ids = embedded.create_many([{"title": "the {title} $(x)", "description": text}])
    with_path(embedded, stub_folder)
    fleet: Fleet = start(embedded, "-n", "1", "--until-empty", "--agent", agent)
    assert fleet.wait() == 0, fleet.said()
    argv = (stub_folder / f"{ids[0]}.argv").read_text().splitlines()
    assert tuple(argv)[: len(ARGV[agent])] == ARGV[agent]
    prompt = (stub_folder / f"{ids[0]}.stdin").read_text()
    assert f"Issue {ids[0]} (priority 2, attempt 1)\n" in prompt
    assert "Title" in prompt and "the {title} $(x)" in prompt
    assert text in prompt
    assert "Do not claim, update or close this issue" in prompt
    assert embedded.read_all()[ids[0]][0] == "closed"
    fleet.leaves_nothing()


def test_an_agent_of_ones_own_and_a_prompt_from_a_file(
    embedded: EmbeddedProject, start: StartFleet, stub_folder: Path
) -> None:
    ids = embedded.create_many([{"title": "T"}])
    with_path(embedded, stub_folder)
    (embedded.folder / "prompt.md").write_text("just {id}: {title}, as {worker}\n")
    with (embedded.folder / "beads-workers.toml").open("a") as file:
        file.write('\n[agents.own]\nargv = ["mine", "--for", "{id}"]\n')
    options = ("-n", "1", "--agent", "own", "--prompt", "prompt.md")
    shown = call(embedded, "start", "--dry-run", *options)
    assert shown.returncode == 0, shown.stderr
    assert "just {id}: {title}, as {worker}" in shown.stdout
    assert not (stub_folder / "bw-1.argv").exists()
    fleet: Fleet = start(embedded, "--until-empty", *options)
    assert fleet.wait() == 0, fleet.said()
    assert (stub_folder / f"{ids[0]}.argv").read_text() == "--for\nbw-1\n"
    assert (stub_folder / f"{ids[0]}.stdin").read_text() == "just bw-1: T, as W1\n"


def test_a_bare_start_works_with_a_command_in_the_settings_file(
    either_project: Any, start: StartFleet, ran: Ran
) -> None:
    ids = either_project.create_many([{} for _ in range(8)])
    command = json.dumps(list(ran.command()))
    (either_project.folder / "beads-workers.toml").write_text(f"command = {command}\n")
    folder = either_project.folder / "below"
    folder.mkdir()
    fleet: Fleet = start(
        either_project, "-n", "8", "--until-empty", folder=folder, environment=ran.environment
    )
    assert fleet.wait() == 0, fleet.said()
    ran.each_once(list(ids))
    fleet.leaves_nothing()


def test_issues_with_commands_of_their_own_need_no_other(
    embedded: EmbeddedProject, start: StartFleet, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for word in ("one", "two"):
        added = call(embedded, "add", word, "--", "sh", "-c", f"echo {word} >>{out}")
        assert added.returncode == 0, added.stderr
    fleet: Fleet = start(embedded, "-n", "2", "--until-empty")
    assert fleet.wait() == 0, fleet.said()
    assert sorted(out.read_text().split()) == ["one", "two"]


def test_without_anything_to_run_it_exits_2_and_names_what_to_type(
    either_project: Any, stub_folder: Path
) -> None:
    either_project.create_many([{}])
    bare = call(either_project, "start", "--until-empty")
    assert bare.returncode == 2, bare.stderr
    assert bare.stderr.startswith("error: ")
    assert "beads-workers start" in bare.stderr
    with_path(either_project, stub_folder)
    found = call(either_project, "start", "--until-empty")
    assert found.returncode == 2
    assert "--agent claude" in found.stderr
    assert not list(stub_folder.glob("*.argv")), "nothing runs unasked"
    assert set(either_project.read_all().values()) == {("open", "")}


def test_where_issues_name_functions_it_says_how_to_have_them_called(
    embedded: EmbeddedProject,
) -> None:
    embedded.create_many([{"job_path": "shop.mail.send", "args": [], "kwargs": {}}])
    bare = call(embedded, "start", "--until-empty")
    assert bare.returncode == 2
    assert "to call shop.mail.send: beads-workers start --allow-module shop\n" in bare.stderr


def test_without_a_tracker_it_exits_6_and_names_both_commands(
    embedded: EmbeddedProject, tmp_path: Path
) -> None:
    folder = tmp_path / "nowhere"
    folder.mkdir()
    done = call(embedded, "start", "--", "true", folder=folder)
    assert done.returncode == 6
    assert "bd init" in done.stderr
    assert "beads-workers init" in done.stderr
    assert list(folder.iterdir()) == []


def test_a_bd_that_is_not_there_exits_6_and_claims_nothing(
    project_old: Any, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    project_old.environment = {**project_old.environment, "PATH": f"{empty}:/usr/bin:/bin"}
    done = call(project_old, "start", "--until-empty", "--", "true")
    assert done.returncode == 6, done.stderr
    assert done.stderr.startswith("error: ")
    assert "hint: " in done.stderr


def test_a_command_that_does_not_exist_is_refused_before_anything_is_claimed(
    embedded: EmbeddedProject,
) -> None:
    embedded.create_many([{}])
    done = call(embedded, "start", "--until-empty", "--", "no-such-program-at-all")
    assert done.returncode in (1, 2), done.stderr
    assert "no-such-program-at-all" in done.stderr
    assert set(embedded.read_all().values()) == {("open", "")}


def test_only_the_named_issues_and_the_filtered_ones_are_taken(
    either_project: Any, start: StartFleet, ran: Ran
) -> None:
    ids = either_project.create_many(
        [{"labels": ["yes"]}, {"labels": ["yes", "no"]}, {"priority": 0}, {}]
    )
    fleet: Fleet = start(
        either_project,
        *("-n", "2", "--until-empty", "--label", "yes", "--exclude-label", "no", "--"),
        *ran.command(),
        environment=ran.environment,
    )
    assert fleet.wait() == 0, fleet.said()
    assert ran.begun() == [ids[0]]
    fleet = start(
        either_project, ids[3], "--until-empty", "--", *ran.command(), environment=ran.environment
    )
    assert fleet.wait() == 0, fleet.said()
    assert ran.begun() == [ids[0], ids[3]]
    fleet.leaves_nothing()
