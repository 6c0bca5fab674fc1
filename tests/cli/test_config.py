"""``beads-workers.toml``: what is found, what wins, and what each mistake is told."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from beads_workers import registry
from beads_workers.cli.config import find_file, render, resolve, to_json
from beads_workers.cli.configure import register
from beads_workers.core.base.times import parse_duration
from beads_workers.errors import CommandError
from beads_workers.options import FILE_NAME, KEYS, options_of, value_of
from tests.support.trust import TRUSTED


def write(folder: Path, text: str) -> Path:
    """A settings file in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE_NAME
    path.write_text(text)
    return path


def refused(folder: Path, text: str) -> CommandError:
    """How a file with this text is refused."""
    write(folder, text)
    with pytest.raises(CommandError) as caught:
        resolve({}, folder, TRUSTED)
    assert caught.value.exit_code == 2
    return caught.value


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("1.5", 1.5), ("5m", 300), ("2h", 7200), ("1d", 86400),
     ("250ms", 0.25), ("0", 0), (" 7s ", 7)],
)  # fmt: skip
def test_a_duration_is_read_in_the_units_people_write(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1", "1 h", "1e3", "inf", "nan", "5M", "1h30m", "٣"])
def test_a_duration_in_another_form_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ValueError, match="write 90, 90s, 5m or 2h"):
        parse_duration(text)


@given(text=st.text(max_size=10))
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    try:
        assert parse_duration(text) >= 0
    except ValueError:
        pass


def test_every_option_has_a_place_of_its_own_and_every_value_comes_back() -> None:
    assert len({each.place for each in KEYS.values()}) == len(KEYS)
    assert set(registry.TABLES) <= set(KEYS)
    marks = {key: object() for key in KEYS}
    made = options_of(marks)
    assert {key: value_of(made, key) for key in KEYS} == marks


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    resolved = resolve({}, tmp_path, {})
    assert resolved.file is None
    assert set(resolved.origin.values()) == {"default"}
    assert resolved.options.policy.attempts_max == 3
    assert resolved.options.policy.retry_delay_seconds == 10.0
    assert resolved.options.tracking.bd_calls == "grouped"
    assert resolved.options.ending.stop_seconds == 10.0
    assert resolved.options.command is None and resolved.options.filters.labels == ()


def test_the_nearest_file_on_the_way_up_is_found(tmp_path: Path) -> None:
    outer = write(tmp_path, "workers = 1")
    inner = write(tmp_path / "a" / "b", "workers = 2")
    (tmp_path / "a" / "b" / "c").mkdir()
    assert find_file(tmp_path / "a" / "b" / "c") == inner
    assert find_file(tmp_path / "a") == outer


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_above_us_that_a_stranger_put_there_is_not_obeyed(tmp_path: Path) -> None:
    path = write(tmp_path, 'command = ["rm", "-rf", "/"]')
    os.chown(path, 65534, 65534)
    (tmp_path / "mine").mkdir()
    with pytest.raises(CommandError, match="belongs to another user"):
        find_file(tmp_path / "mine")
    os.chown(tmp_path / "mine", 65534, 65534)
    assert find_file(tmp_path / "mine") == path


def test_the_command_line_wins_over_environment_over_file_over_default(tmp_path: Path) -> None:
    path = write(tmp_path, "workers = 2\nmax_attempts = 5\nlog_dir = 'x'\n")
    environ = {"BEADS_WORKERS_COUNT": "7", "BEADS_WORKERS_LOG_DIR": "/logs"}
    resolved = resolve({"workers": 9}, tmp_path, environ)
    options, origin = resolved.options, resolved.origin
    assert (options.workers, origin["workers"]) == (9, "command line")
    assert (options.upkeep.log_directory, origin["log_dir"]) == ("/logs", "BEADS_WORKERS_LOG_DIR")
    assert (options.policy.attempts_max, origin["max_attempts"]) == (5, str(path))
    assert (options.tracking.poll_seconds, origin["poll"]) == (5.0, "default")
    assert resolve({}, tmp_path, environ).options.workers == 7


def test_no_workers_is_a_number_that_is_said_and_not_left_out(tmp_path: Path) -> None:
    write(tmp_path, "workers = 3")
    assert resolve({"workers": 0}, tmp_path, TRUSTED).options.workers == 0


def test_an_empty_environment_variable_says_nothing(tmp_path: Path) -> None:
    assert resolve({}, tmp_path, {"BEADS_WORKERS_COUNT": ""}).origin["workers"] == "default"


def test_paths_in_a_file_belong_to_its_folder_and_others_to_the_current_one(tmp_path: Path) -> None:
    write(tmp_path, 'prompt = "p.txt"')
    folder = tmp_path / "sub"
    folder.mkdir()
    options = resolve({"state_dir": "state"}, folder, {"BEADS_WORKERS_LOG_DIR": "l"}).options
    assert options.prompt == str(tmp_path / "p.txt")
    assert options.state_dir == str(folder / "state")
    assert options.upkeep.log_directory == str(folder / "l")


@pytest.mark.parametrize(
    ("line", "key", "allowed"),
    [
        ("workers = -1", "workers", "whole number from 0"),
        ("workers = 5000", "workers", "to 1024"),
        ("workers = true", "workers", "whole number"),
        ("workers = 2.0", "workers", "whole number"),
        ('workers = "8"', "workers", "whole number"),
        ('source = "jira"', "source", '"bd", "sqlite", "dispatcherd:CONFIG", '),
        ("source = 5", "source", "URL"),
        ("label = [1]", "label", "text"),
        ('label = [""]', "label", "text"),
        ("priority = 5", "priority", "from 0 to 4"),
        ("priority = [0, true]", "priority", "from 0 to 4"),
        ("timeout = 0", "timeout", "90s, 5m or 2h"),
        ('timeout = "soon"', "timeout", "90s, 5m or 2h"),
        ("timeout = inf", "timeout", "90s"),
        ("timeout = nan", "timeout", "90s"),
        ("timeout = true", "timeout", "90s"),
        ("timeout = 1e12", "timeout", "90s"),
        (f"timeout = {10**400}", "timeout", "90s"),
        (f"limit = 0x{'f' * 5000}", "limit", "from 1"),
        ("retry_delay = -1", "retry_delay", "a duration"),
        ("max_attempts = 0", "max_attempts", "from 1 to 1000"),
        ("verify = ''", "verify", "not empty"),
        ('bd_calls = "both"', "bd_calls", '"grouped" or "worker"'),
        ("bd_calls = []", "bd_calls", '"grouped" or "worker"'),
        ("limit = 0", "limit", "from 1"),
        ("poll = 0", "poll", "0.05 s or more"),
        ('until_empty = "yes"', "until_empty", "true or false"),
        ('command = "echo hi"', "command", "list of texts"),
        ("command = []", "command", "list of texts"),
        ('command = ["a\\u0000b"]', "command", "list of texts"),
        ("timeout = 2020-01-01", "timeout", "90s"),
        ("log_max = 0", "log_max", "256 KiB"),
    ],
)
def test_a_wrong_value_is_told_with_file_key_and_what_is_allowed(
    tmp_path: Path, line: str, key: str, allowed: str
) -> None:
    error = refused(tmp_path, line)
    assert error.message.startswith(f"{tmp_path / FILE_NAME}: {key} cannot be ")
    assert allowed in error.hint


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("max-attempts = 3", "did you mean max_attempts?"),
        ("wokers = 3", "did you mean workers?"),
        ("Timeout = 3", "did you mean timeout?"),
        ("zzz = 1", "'beads-workers start --help' lists them"),
    ],
)
def test_an_unknown_key_is_answered_with_the_nearest_known_one(
    tmp_path: Path, line: str, hint: str
) -> None:
    error = refused(tmp_path, line)
    assert "unknown key" in error.message and hint in error.hint


def test_a_misspelt_key_in_a_table_is_named_with_the_nearest(tmp_path: Path) -> None:
    error = refused(tmp_path, "[worktree]\nsetpu = 'x'")
    assert "unknown key 'setpu' in [worktree]" in error.message
    assert error.hint == "did you mean setup?"


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "~/.ssh/id", "", ".", "a\0"])
def test_nothing_outside_the_project_can_be_copied(tmp_path: Path, path: str) -> None:
    error = refused(tmp_path, f"[worktree]\ncopy = [{json.dumps(path)}]")
    assert "inside the project" in error.hint


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("500MB", 500_000_000),
        ("1.5 GB", 1_500_000_000),
        ("2GiB", 2 << 30),
        ("7", 7),
        ("64KiB", 64 << 10),
    ],
)
def test_a_size_is_read_in_the_units_people_write(tmp_path: Path, text: str, size: int) -> None:
    write(tmp_path, f'[worktree]\ndisk_floor = "{text}"')
    assert resolve({}, tmp_path, TRUSTED).options.worktrees.disk_floor_bytes == size


@pytest.mark.parametrize("text", [f'"{"9" * 400}"', '"much"', "-1", '"1 GBB"', "true", '"1e9"'])
def test_a_size_in_another_form_is_refused_with_the_forms(tmp_path: Path, text: str) -> None:
    assert "a size" in refused(tmp_path, f"[worktree]\ndisk_floor = {text}").hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[agents.a]", "agents.a has no argv"),
        ("[agents.a]\nargv = 'x'", "agents.a.argv cannot be"),
        ("[agents.a]\nargv = ['x']\nprompt = 5", "agents.a.prompt cannot be"),
        ("[agents.a]\nargs = ['x']", "unknown key 'args'"),
        ("agents = 5", "agents must be tables"),
        ("[agents]\na = 5", "agents must be tables"),
    ],
)
def test_a_wrong_agent_is_told_by_name(tmp_path: Path, text: str, message: str) -> None:
    assert message in refused(tmp_path, text).message


@pytest.mark.parametrize("content", [b"workers = ", b"\xff\xfe", b"a" * (2 << 20), b"[" * 5000])
def test_a_file_that_is_no_toml_is_one_line_of_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(CommandError) as caught:
        resolve({}, tmp_path, TRUSTED)
    assert FILE_NAME in caught.value.message and "\n" not in caught.value.message


@pytest.mark.parametrize("text", ["many", "-1", "1.5", "99999", "٣" * 9])
def test_a_wrong_count_in_the_environment_is_told_by_its_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(CommandError, match="BEADS_WORKERS_COUNT cannot be"):
        resolve({}, tmp_path, {"BEADS_WORKERS_COUNT": text})


def test_a_wrong_value_on_the_command_line_is_told_by_its_option(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="--max-attempts cannot be 0") as caught:
        resolve({"max_attempts": 0}, tmp_path, TRUSTED)
    assert caught.value.exit_code == 2


def app() -> typer.Typer:
    """An application with the commands of this file only."""
    application = typer.Typer()
    register(application)
    return application


def test_show_prints_a_file_that_reads_back_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        tmp_path,
        'command = ["a\\"b", "\\u007f é"]\ntimeout = "5m"\nlabel = "x"\n'
        '[agents."a b"]\nargv = ["q"]',
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BEADS_WORKERS_COUNT", raising=False)
    shown = CliRunner().invoke(app(), ["config", "show", "--origin"])
    assert shown.exit_code == 0, shown.output
    before = resolve({}, tmp_path, TRUSTED)
    assert tomllib.loads(shown.stdout) == tomllib.loads("\n".join(render(before, origin=False)))
    assert f"# {tmp_path / FILE_NAME}" in shown.stdout and "# default" in shown.stdout
    write(tmp_path / "again", shown.stdout)
    after = resolve({}, tmp_path / "again", TRUSTED)
    assert (after.options, after.agents) == (before.options, before.agents)


def test_show_as_json_names_options_origins_and_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "workers = 6\n")
    monkeypatch.chdir(tmp_path)
    shown = json.loads(CliRunner().invoke(app(), ["config", "show", "--json"]).stdout)
    assert shown["options"]["workers"] == 6
    assert shown["origin"]["workers"] == shown["file"] == str(path)
    assert shown == json.loads(json.dumps(to_json(resolve({}, tmp_path, os.environ))))


def test_path_prints_where_the_file_is_or_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    missing = CliRunner().invoke(app(), ["config", "path"])
    assert isinstance(missing.exception, CommandError) and missing.exception.exit_code == 1
    path = write(tmp_path, "")
    assert CliRunner().invoke(app(), ["config", "path"]).stdout == f"{path}\n"
