"""What an agent may not do is refused by what it runs, whatever its issue is called."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from beads_workers.attempts.guards import guard_environment, no_push, refusals
from beads_workers.core.base.settings import NO_LOGIN_AT
from tests.support.repository import IDENTITY, commit, git, make_repository

HOSTILE = ("i-1", "-x", "--all", "a b", "it's", '"$(touch oops)"', "*", "`id`", "i;exit", "ü-1")


class Guarded:
    """A ``bd`` that says how it was called, and the guard before it."""

    def __init__(self, folder: Path, issue_id: str, tools: str = "tools") -> None:
        self.folder, self.called = folder, folder / "called"
        self.tools = folder / tools
        self.tools.mkdir()
        (self.tools / "bd").write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >>"{self.called}"\n')
        (self.tools / "bd").chmod(0o755)
        self.environment = dict(os.environ) | {"PATH": f"{self.tools}:{os.environ['PATH']}"}
        self.guards = folder / "guards"
        added = guard_environment(self.environment, str(folder), issue_id, self.guards)
        self.environment |= added

    def bd(self, *arguments: str) -> bool:
        """Whether the real one was called."""
        self.called.unlink(missing_ok=True)
        done = subprocess.run(
            ["bd", *arguments], cwd=self.folder, env=self.environment, capture_output=True
        )
        assert (done.returncode == 0) is self.called.exists(), done.stderr
        return self.called.exists()


@pytest.mark.parametrize("issue_id", HOSTILE)
def test_its_own_issue_is_refused_whatever_its_id(tmp_path: Path, issue_id: str) -> None:
    guarded = Guarded(tmp_path, issue_id)
    assert not guarded.bd("close", issue_id)
    assert not guarded.bd("update", "--json", issue_id, "--status=closed")
    assert guarded.bd("show", issue_id)
    assert guarded.bd("close", "other-99")
    assert guarded.bd("create", "--title", "close")
    assert refusals(guarded.guards) == ["bd close", "bd update"]
    assert not (tmp_path / "oops").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("close",),
        ("--actor", "me", "close", "i-a1b"),
        ("--json", "--db", "x.db", "close", "i-a1b"),
        ("close", "other-9", "i-a1b"),
        ("close", "a1b"),
        ("label", "add", "i-a1b", "no-change"),
        ("batch", "-f", "closes.txt"),
        ("sql", "update issues set status='closed'"),
        ("unclaim", "i-a1b"),
    ],
)
def test_ways_around_it_are_refused_as_well(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert not Guarded(tmp_path, "i-a1b").bd(*arguments)


def test_a_program_in_a_folder_with_a_hostile_name_is_called(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path, "i-1", tools='it\'s `touch oops` "$HOME" {x}')
    assert guarded.bd("show", "i-1")
    assert not (tmp_path / "oops").exists()


def test_refusals_of_an_earlier_attempt_are_not_told_again(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path, "i-1")
    assert not guarded.bd("close")
    guard_environment(guarded.environment, str(tmp_path), "i-2", guarded.guards)
    assert refusals(guarded.guards) == []


def test_without_a_tracker_on_path_nothing_is_put_there(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    added = guard_environment({"PATH": str(empty)}, str(tmp_path), "i-1", tmp_path / "guards")
    assert "PATH" not in added
    assert not (tmp_path / "guards").exists()


# --- our own program ------------------------------------------------------------------------------

SHOWS = '#!/bin/sh\necho "$BW_RUN_ID $BW_WORKER_ID $BW_GUARD_LOG $*"\n'


def test_a_call_of_our_program_carries_the_token_also_in_an_empty_environment(
    tmp_path: Path,
) -> None:
    tools, guards = tmp_path / "it's", tmp_path / "guards"
    tools.mkdir()
    (tools / "beads-workers").write_text(SHOWS)
    (tools / "beads-workers").chmod(0o755)
    token = {"BW_RUN_ID": "run", "BW_WORKER_ID": "W1"}
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", **token}
    path = guard_environment(environment, str(tmp_path), "i-1", guards)["PATH"]
    for given, shown in (
        ({}, f"run W1 {guards / 'refused'}"),
        ({"BW_RUN_ID": "inner", "BW_WORKER_ID": "W7", "BW_GUARD_LOG": "log"}, "inner W7 log"),
    ):
        argv = ["beads-workers", "scale", "a b"]
        done = subprocess.run(
            argv, env={"PATH": path, **given}, capture_output=True, text=True, check=True
        )
        assert done.stdout == f"{shown} scale a b\n"


# --- pushes ---------------------------------------------------------------------------------------


class Remote:
    """A repository with a bare one to push to."""

    def __init__(self, folder: Path) -> None:
        self.bare = folder / "remote.git"
        subprocess.run(["git", "init", "-q", "--bare", str(self.bare)], check=True)
        self.folder = make_repository(folder / "checkout")
        commit(self.folder, "a.py")
        git(self.folder, "remote", "add", "origin", str(self.bare))

    def pushes(self, *argv: str, variables: Mapping[str, str] | None = None) -> bool:
        """Whether anything has arrived."""
        environment = {**os.environ, **IDENTITY, **(variables or {})}
        environment |= no_push(environment, str(self.folder))
        subprocess.run(argv, cwd=self.folder, env=environment, capture_output=True, check=False)
        return bool(git(self.bare, "for-each-ref"))


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    return Remote(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "git push origin HEAD:main",
        "cd / && git -C {folder} push origin HEAD:main",
        "sh -c 'git push {bare} HEAD:main'",
        "git push file://{bare} HEAD:main",
        "git remote add other {bare}; git push other HEAD:main",
    ],
)
def test_no_push_arrives(remote: Remote, line: str) -> None:
    line_run = line.format(folder=remote.folder, bare=remote.bare)
    assert not remote.pushes("sh", "-c", line_run)


def test_nor_to_a_push_url_that_was_there_before(remote: Remote) -> None:
    git(remote.folder, "config", "remote.origin.pushurl", str(remote.bare))
    assert not remote.pushes("git", "push", "origin", "HEAD:main")


def test_nor_by_a_rewriting_of_the_users(remote: Remote) -> None:
    git(remote.folder, "remote", "set-url", "origin", "https://example.invalid/remote.git")
    place = f"url.{remote.bare.parent}/.pushInsteadOf"
    git(remote.folder, "config", place, "https://example.invalid/")
    assert not remote.pushes("git", "push", "origin", "HEAD:main")


def test_an_agent_signs_nothing_in_a_worktree_of_its_own_and_elsewhere_as_the_user_does(
    tmp_path: Path,
) -> None:
    top = make_repository(tmp_path / "r")
    git(top, "config", "commit.gpgSign", "true")
    for own, signs in (({"BW_WORKTREE": str(top)}, "false"), ({}, "true")):
        environment = {**os.environ, **own}
        environment |= no_push(environment, str(top))
        asked = ["git", "config", "--type=bool", "commit.gpgSign"]
        done = subprocess.run(asked, cwd=top, env=environment, capture_output=True, check=True)
        assert done.stdout.decode().strip() == signs


@pytest.mark.parametrize("count", ["1", "-3", "many", ""])
def test_what_the_user_has_set_in_the_environment_stays(remote: Remote, count: str) -> None:
    given = {"GIT_CONFIG_COUNT": count, "GIT_CONFIG_KEY_0": "user.name"}
    given |= {"GIT_CONFIG_VALUE_0": "somebody"}
    assert not remote.pushes("git", "push", "origin", "HEAD:main", variables=given)
    environment = {**os.environ, **given}
    environment |= no_push(environment, str(remote.folder))
    done = subprocess.run(
        ["git", "config", "user.name"],
        cwd=remote.folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (done.stdout == "somebody\n") is (count == "1")


def test_the_wall_is_what_refuses_it(remote: Remote) -> None:
    """Without it, the same push arrives."""
    git(remote.folder, "push", "-q", "origin", "HEAD:main")
    assert git(remote.bare, "for-each-ref")


SETS_ITS_OWN = "git config remote.origin.pushurl {bare}; {git} push origin HEAD:main"


@pytest.mark.parametrize("url", ["{bare}", "file://{bare}"])
def test_nor_to_a_push_url_that_the_agent_sets_itself(remote: Remote, url: str) -> None:
    place = url.format(bare=remote.bare)
    assert not remote.pushes("sh", "-c", SETS_ITS_OWN.format(bare=place, git="git"))


@pytest.mark.parametrize(
    "line",
    [
        SETS_ITS_OWN,
        "git config remote.other.pushurl {bare}; git push other HEAD:main",
        "git -c remote.other.url={bare} -c remote.other.pushurl={bare} push other HEAD:main",
        "git --git-dir .git -C . send-pack {bare} HEAD:refs/heads/main",
    ],
)
def test_a_git_of_ours_refuses_it_to_any_remote(remote: Remote, tmp_path: Path, line: str) -> None:
    guards = tmp_path / "guards"
    given = guard_environment(os.environ, str(remote.folder), "i-1", guards)
    command = line.format(bare=remote.bare, git="git")
    assert not remote.pushes("sh", "-c", command, variables=given)
    assert refusals(guards) in (["git push"], ["git send-pack"])


def test_it_lets_everything_else_pass_as_it_is(remote: Remote, tmp_path: Path) -> None:
    given = guard_environment(os.environ, str(remote.folder), "i-1", tmp_path / "guards")
    environment = {**os.environ, **IDENTITY, **given}

    def run(*argv: str) -> tuple[int, str]:
        done = subprocess.run(
            ["git", *argv], cwd=remote.folder, env=environment, capture_output=True, text=True
        )
        return done.returncode, done.stdout

    assert run("commit", "--allow-empty", "-q", "-m", "push")[0] == 0
    assert run("-c", "user.name=push", "log", "-1", "--format=%s")[1] == "push\n"
    assert run("-C", "push", "status")[0] == 128
    assert run("stash", "push")[0] == 0
    assert run()[0] == 1
    assert refusals(tmp_path / "guards") == []


def test_a_fetch_a_pull_and_a_clone_go_on(remote: Remote, tmp_path: Path) -> None:
    git(remote.folder, "push", "-q", "origin", "HEAD:main")
    given = guard_environment(os.environ, str(remote.folder), "i-1", tmp_path / "guards")
    environment = {**os.environ, **IDENTITY, **given}
    copy = str(tmp_path / "copy")
    for argv in (
        ("git", "fetch", "origin"),
        ("git", "pull", "origin", "main"),
        ("git", "clone", "-q", str(remote.bare), copy),
        ("git", "ls-remote", f"file://{remote.bare}"),
    ):
        done = subprocess.run(argv, cwd=remote.folder, env=environment, capture_output=True)
        assert done.returncode == 0, (argv, done.stderr)


def test_git_finds_no_login_at_the_forge_and_any_login_elsewhere(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repository")
    git(repository, "config", "credential.helper", "!echo password=kept; echo username=me #")
    environment = {**os.environ, NO_LOGIN_AT: "https://git.example.org"}
    environment |= {"GIT_ASKPASS": "echo", "HOME": str(tmp_path)}
    environment |= no_push(environment, str(repository))

    def filled(host: str) -> str:
        asked = f"protocol=https\nhost={host}\npath=team/shop\n\n"
        words = ("git", "credential", "fill")
        done = subprocess.run(
            words, input=asked, cwd=repository, env=environment, capture_output=True, text=True
        )
        return done.stdout

    assert filled("git.example.org") == ""
    assert "password=kept" in filled("other.example.org")
