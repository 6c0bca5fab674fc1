"""The application of a call: complete for the command that is called, by name for the rest."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from beads_workers.cli.application import COMPLETING, build
from beads_workers.errors import CommandError
from beads_workers.registry import commands

NAMES = [name for commands in commands().values() for name in commands]


def first_sentence(text: str | None) -> str:
    """The first paragraph of a docstring or a help text, on one line."""
    return " ".join((text or "").split("\n\n")[0].split())


@pytest.mark.parametrize("module", commands())
def test_the_table_says_what_the_commands_of_a_module_say(module: str) -> None:
    app = typer.Typer()
    importlib.import_module(f"beads_workers.{module}").register(app)
    said = {c.name: c.help or (c.callback and c.callback.__doc__) for c in app.registered_commands}
    said |= {g.name: g.typer_instance.info.help for g in app.registered_groups if g.typer_instance}
    said = {name: first_sentence(text) for name, text in said.items()}
    assert said == {name: first_sentence(text) for name, text in commands()[module].items()}


@pytest.mark.parametrize("name", NAMES)
def test_a_called_command_has_its_own_options(name: str) -> None:
    command = get_command(build([name, "--json"])).commands[name]  # type: ignore[attr-defined]
    assert command.callback is None or command.callback.__name__ != "_by_name_only"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["sttus"]])
def test_where_none_is_called_all_are_known_by_name(arguments: list[str]) -> None:
    known = get_command(build(arguments)).commands  # type: ignore[attr-defined]
    assert set(known) == {*NAMES, "version"}


def test_completion_knows_every_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMPLETING, "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "beads-workers start --unt")
    start = get_command(build([])).commands["start"]  # type: ignore[attr-defined]
    assert "--until-empty" in {option for p in start.params for option in p.opts}


def modules_after(arguments: list[str], folder: Path) -> set[str]:
    """What a fresh process has loaded when the command ends."""
    script = (
        "import atexit, sys\n"
        f"sys.argv = ['beads-workers', *{arguments!r}]\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from beads_workers.cli.app import main\nmain()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=folder, check=False
    )
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("missing", ["integrations.hero", "integrations.hero.commands"])
def test_a_command_that_was_left_out_is_one_line(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(name=f"beads_workers.{missing}")

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(CommandError, match="not part of this installation: hero"):
        build(["hero"])


def test_what_a_command_needs_and_is_missing_is_no_such_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(name="beads_workers.core.base.model")

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(ModuleNotFoundError):
        build(["hero"])


def test_the_version_is_told_without_typer(tmp_path: Path) -> None:
    assert "typer" not in modules_after(["--version"], tmp_path)


def test_status_loads_nothing_of_the_engine(tmp_path: Path) -> None:
    loaded = modules_after(["status"], tmp_path)
    assert "beads_workers.cli.fleet" in loaded
    engine = {m for m in loaded if m.startswith(("beads_workers.core", "beads_workers.edge"))}
    assert engine <= {"beads_workers.edge", "beads_workers.runtime.locks"}


@pytest.mark.parametrize(
    "command", ["status", "logs x", "show x", "scale 3", "runs -n 3", "dep list x", "add x -p 2"]
)
def test_no_command_loads_what_typer_converts_with(command: str, tmp_path: Path) -> None:
    assert "pydantic" not in modules_after(command.split(), tmp_path)
