"""Conditions: said once, and asked by ``start``, ``start --dry-run`` and ``doctor`` alike."""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from beads_workers.checks import conditions as folder
from beads_workers.checks import runner
from beads_workers.checks.condition import CheckedBy, Condition, conditions, table
from beads_workers.checks.rules import Grade, fail, ok
from beads_workers.cli.application import build
from beads_workers.cli.doctor import Printer
from beads_workers.errors import CommandError
from beads_workers.options import Options
from beads_workers.worktrees.ledger import ledger_ref
from tests.cli.doctor_support import Patient, initialised, write
from tests.support.repository import IDENTITY, commit, git, make_repository

if TYPE_CHECKING:
    from beads_workers.checks.plan import FleetPlan

TRIAL = """
from beads_workers.checks.condition import Condition, Stage, skip
from beads_workers.checks.rules import misused

CONDITIONS = (
    Condition(
        Stage.STATE, "moon", "the moon is full",
        lambda plan: misused("moon", "the moon is new", "wait a fortnight"), skip("moon"),
    ),
)
"""


@pytest.fixture
def project(tmp_path: Path) -> Patient:
    """A project with a built-in tracker."""
    return initialised(tmp_path)


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """No trial stays loaded: the next one has the same name."""
    monkeypatch.delitem(sys.modules, f"{folder.__name__}.trial_of_the_moon", raising=False)


def started(
    project: Patient, monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> CommandError | None:
    """How ``start`` refuses, in this process; None if it does not."""
    argv = ["start", *arguments]
    for name, text in project.environment.items():
        monkeypatch.setenv(name, text)
    monkeypatch.chdir(project.folder)
    try:
        build(argv)(args=argv, standalone_mode=False)
    except CommandError as error:
        return error
    return None


def test_a_condition_is_added_by_its_file_alone(
    project: Patient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "added"
    place.mkdir()
    (place / "trial_of_the_moon.py").write_text(TRIAL)
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(place)])
    found = project.doctor("--", "true")
    assert (found.status, found.problems()) == (1, {"moon"})
    assert found.one("moon")["text"] == "the moon is new; wait a fortnight"
    for command in (("-n", "1", "--", "true"), ("-n", "1", "--dry-run", "--", "true")):
        refused = started(project, monkeypatch, *command)
        assert refused is not None and refused.message == "the moon is new"
        assert refused.hint == "wait a fortnight; or go on without: --skip-check moon"
        assert refused.exit_code == 2
    lifted = project.doctor("--skip-check", "moon", "--", "true")
    assert (lifted.status, lifted.one("moon")["status"]) == (0, "warn")
    assert started(project, monkeypatch, "--dry-run", "--skip-check", "moon", "--", "true") is None
    row = "| moon | the moon is full | `start`, `doctor` | `--skip-check moon` |"
    assert row in table().splitlines()


def test_a_misspelt_condition_is_not_skipped_in_silence(
    project: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("dsik", "landing"):
        refused = started(project, monkeypatch, "--dry-run", "--skip-check", name, "--", "true")
        assert refused is not None and refused.exit_code == 2
        assert refused.message == f"--skip-check does not lift a condition '{name}'"
        assert "agent, clock, disk," in refused.hint


def test_a_warning_is_a_line_of_start_and_in_the_object_of_a_dry_run(
    project: Patient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = tmp_path / "added"
    place.mkdir()
    warns = TRIAL.replace("misused", "warn").replace('"wait a fortnight"', '"date"')
    (place / "trial_of_the_moon.py").write_text(warns)
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(place)])
    assert started(project, monkeypatch, "--dry-run", "--json", "--", "true") is None
    (warning,) = json.loads(capsys.readouterr().out)["warnings"]
    said = {"name": "moon", "status": "warn", "text": "the moon is new", "remedy": "date"}
    assert warning == said
    assert started(project, monkeypatch, "--dry-run", "--", "true") is None
    assert "warn moon     the moon is new\nhint: date\n" in capsys.readouterr().err


def _script(project: Patient, text: str, mode: int = 0o755) -> tuple[str, ...]:
    write(project.folder / "do-it", text, mode)
    return ("--", "./do-it")


def _held(project: Patient) -> tuple[str, ...]:
    project.environment |= IDENTITY
    git(project.folder, "init", "--quiet", "--initial-branch=main")
    git(project.folder, "commit", "--quiet", "--allow-empty", "-m", "first")
    git(project.folder, "branch", "bw-landing/main")
    git(project.folder, "worktree", "add", "--quiet", "../theirs", "bw-landing/main")
    return ("--worktree", "--verify", "true", "--", "true")


def _landing(project: Patient) -> tuple[str, ...]:
    """``main``, on which last night's work has not been merged."""
    project.environment |= IDENTITY
    make_repository(project.folder)
    git(project.folder, "checkout", "--quiet", "-b", "bw-landing/main")
    commit(project.folder, "landed", "night\n")
    git(project.folder, "checkout", "--quiet", "main")
    return ("--worktree", "--verify", "true", "--", "true")


def _on_the_landing_branch(project: Patient) -> tuple[str, ...]:
    arguments = _landing(project)
    git(project.folder, "checkout", "--quiet", "bw-landing/main")
    git(project.folder, "tag", "bw-landing/main")  # With it git's short name is another one.
    return arguments


def _named_landing_branch(project: Patient) -> tuple[str, ...]:
    arguments = _landing(project)
    (project.folder / "beads-workers.toml").write_text('[landing]\non = "bw-landing/main"\n')
    return arguments


def _conflict(project: Patient) -> tuple[str, ...]:
    arguments = _landing(project)
    commit(project.folder, "landed", "morning\n")
    return arguments


def _signer(project: Patient) -> tuple[str, ...]:
    arguments = _landing(project)
    git(project.folder, "config", "commit.gpgSign", "true")
    git(project.folder, "config", "gpg.program", "false")
    return arguments


def _filter(project: Patient) -> tuple[str, ...]:
    arguments = _landing(project)
    commit(project.folder, ".gitattributes", "*.bin filter=lfs\n")
    commit(project.folder, "a.bin")
    git(project.folder, "config", "filter.lfs.process", "no-such-lfs")
    git(project.folder, "config", "filter.lfs.required", "true")
    git(project.folder, "branch", "--force", "bw-landing/main", "main")
    return arguments


def _remote(project: Patient, answer: str) -> tuple[str, ...]:
    """A server that says this to who would push; whoever reads is let in."""
    arguments = _landing(project)
    git(project.folder.parent, "clone", "--quiet", "--bare", "project", "server.git")
    git(project.folder, "remote", "add", "origin", str(project.folder.parent / "server.git"))
    pack = project.put("receive-pack", f"#!/bin/sh\n{answer}\n")
    git(project.folder, "config", "remote.origin.receivepack", str(pack))
    (project.folder / "beads-workers.toml").write_text('[landing]\nremote = "origin"\n')
    return arguments


def _no_login(project: Patient) -> tuple[str, ...]:
    return _remote(project, "echo 'Permission denied (publickey).' >&2; exit 1")


def _no_server(project: Patient) -> tuple[str, ...]:
    arguments = _remote(project, "exit 1")
    git(project.folder, "remote", "set-url", "origin", str(project.folder.parent / "nothing.git"))
    return arguments


def _floor(project: Patient) -> tuple[str, ...]:
    project.environment |= IDENTITY
    git(project.folder, "init", "--quiet", "--initial-branch=main")
    git(project.folder, "commit", "--quiet", "--allow-empty", "-m", "first")
    settings = '[worktree]\ndisk_floor = "1000000GB"\n[landing]\nenabled = false\n'
    (project.folder / "beads-workers.toml").write_text(settings)
    return ("--worktree", "--", "true")


def _state(project: Patient) -> tuple[str, ...]:
    (project.folder.parent / "state").write_text("")
    return ("--state-dir", str(project.folder.parent / "state"), "--", "true")


def _agent(project: Patient) -> tuple[str, ...]:
    project.put("claude", "#!/bin/sh\nexit 3\n")
    return ("--agent", "claude", "--shared-checkout")


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("command", lambda project: _script(project, "#!/no/such/shell\n")),
        ("command", lambda project: _script(project, "#!/bin/sh\r\n")),
        ("command", lambda project: _script(project, "#!/bin/sh\n", 0o644)),
        ("command", lambda project: ("--", "sh", "-c", "if true; then")),
        ("command", lambda project: ("--", "no-such-program")),
        ("verify", lambda project: ("--verify", "make &&", "--", "true")),
        ("agent", _agent),
        ("landing", _held),
        ("landing", _on_the_landing_branch),
        ("landing", _named_landing_branch),
        ("landing", _conflict),
        ("landing", _no_login),
        ("landing", _no_server),
        ("signing", _signer),
        ("filters", _filter),
        ("worktree", _floor),
        ("state", _state),
    ],
)
def test_start_refuses_what_doctor_fails_in_the_same_words(
    project: Patient,
    name: str,
    make: Callable[[Patient], tuple[str, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments = ("-n", "1", *make(project))
    failed = [c for c in project.doctor(*arguments).all(name) if c["status"] == "fail"]
    assert len(failed) == 1
    for command in (arguments, ("--dry-run", *arguments)):
        refused = started(project, monkeypatch, *command)
        assert refused is not None, shlex.join(command)
        room = re.compile(r"^[\d.]+ GB free")  # What is free changes meanwhile.
        assert room.sub("", failed[0]["text"]).startswith(room.sub("", refused.message))


def test_a_remote_whose_branch_stands_elsewhere_takes_pushes_all_the_same(project: Patient) -> None:
    """What is refused by this git as no fast-forward has been answered by the remote."""
    arguments = _remote(project, 'exec git receive-pack "$@"')
    assert {c["status"] for c in project.doctor("-n", "1", *arguments).all("landing")} == {"ok"}
    commit(project.folder, "other")
    git(project.folder, "push", "--quiet", "origin", "main:bw-landing/main", "--force")
    git(project.folder, "reset", "--quiet", "--hard", "HEAD^")
    (refused,) = project.doctor("-n", "1", *arguments).all("landing")
    assert "has commits here that origin has not" in refused["text"]
    git(project.folder, "branch", "--quiet", "--delete", "--force", "bw-landing/main")
    assert {c["status"] for c in project.doctor("-n", "1", *arguments).all("landing")} == {"ok"}


def test_a_remote_that_would_not_take_the_ledger_is_refused_by_start(
    project: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = _remote(project, 'exec git receive-pack "$@"')
    hook = project.folder.parent / "server.git" / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ncase $1 in refs/bw/*) echo not here; exit 1;; esac\n")
    hook.chmod(0o755)
    refused = started(project, monkeypatch, "-n", "1", *arguments)
    assert refused is not None and refused.message.endswith("it says: not here")
    assert started(project, monkeypatch, "-n", "1", "--dry-run", *arguments) is None
    # Also what an earlier run has landed here is first pushed by a start.
    git(project.folder, "update-ref", ledger_ref("bw-landing/main"), "HEAD")
    assert project.doctor("-n", "1", *arguments).shown["pending"] == ["landing", "sees"]
    refused = started(project, monkeypatch, "-n", "1", *arguments)
    assert refused is not None and refused.message.endswith("it says: not here")
    hook.unlink()
    git(project.folder, "push", "--quiet", "origin", ledger_ref("bw-landing/main"))
    assert project.doctor("-n", "1", *arguments).shown["pending"] == ["sees"]


@pytest.mark.parametrize(
    ("make", "option"),
    [
        (_conflict, ("--no-land",)),
        (_no_login, ("--no-land",)),
        (_signer, ("--no-land",)),
        (_signer, ("--skip-check", "signing")),
        (_filter, ("--skip-check", "filters")),
        (_on_the_landing_branch, ("--land-on", "main")),
        (_named_landing_branch, ("--land-on", "main")),
    ],
)
def test_the_option_that_a_refusal_names_lifts_it(
    project: Patient,
    make: Callable[[Patient], tuple[str, ...]],
    option: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments = ("-n", "1", *make(project))
    refused = started(project, monkeypatch, "--dry-run", *arguments)
    assert refused is not None and " ".join(option) in (refused.hint or "")
    lifted = started(project, monkeypatch, "--dry-run", *option, *arguments)
    assert lifted is None or lifted.message != refused.message


def test_what_costs_minutes_is_asked_last_and_every_row_says_who_asks() -> None:
    asked = [each.asked for each in conditions()]
    assert CheckedBy.AT_THE_END not in asked[: -asked.count(CheckedBy.AT_THE_END)]
    assert table().count("\n|") == len(asked) + 2


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_doctor_never_says_ready_where_start_refuses(data: st.DataObject) -> None:
    """Whatever fails, alone or with others, and whatever an option lifts."""
    known = [each for each in conditions() if each.asked is not CheckedBy.BY_START]
    failing = data.draw(st.sets(st.sampled_from(range(len(known))), min_size=1, max_size=3))
    lifted = data.draw(st.sets(st.sampled_from([each.name for each in known]), max_size=2))
    base = data.draw(st.booleans())

    def broken(number: int, each: Condition) -> Condition:
        """The condition, which fails or holds. What only a start finds out stays open for others:
        of that, doctor has a condition of its own."""
        is_open = each.asked is CheckedBy.BY_DOCTOR and not base
        found = replace(ok(each.name, "fine"), pending=is_open)
        if number in failing and each.asked is not CheckedBy.BY_DOCTOR:
            found = fail(each.name, "broken")
        look = (lambda plan: None) if is_open and base else (lambda plan: found)
        return replace(each, look=look)

    trial = tuple(broken(number, each) for number, each in enumerate(known))
    options = Options(skip_base_check=base, skip_check=tuple(lifted))
    plan = cast("FleetPlan", SimpleNamespace(options=options))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "conditions", lambda: trial)
        refused = any(check.status is Grade.FAIL for _, check in runner.start_checks(plan))
        said = io.StringIO()
        Printer(said, silent=False).end(
            [check for _, check in runner.all_checks(plan, lambda name: None)]
        )
    event(f"refused: {refused}")
    assert not (refused and said.getvalue().startswith("ready:")), said.getvalue()


def test_what_only_a_start_checks_has_a_line_of_doctor() -> None:
    by_start = (CheckedBy.BY_START, CheckedBy.AT_THE_END)
    tried = {each.name for each in conditions() if each.asked in by_start}
    said = {each.name for each in conditions() if each.asked not in by_start}
    assert tried <= said
