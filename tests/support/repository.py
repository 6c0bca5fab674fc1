"""A real git repository for tests, and what people do to it."""

from __future__ import annotations

import atexit
import functools
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

IDENTITY = {
    "GIT_AUTHOR_NAME": "tester",
    "GIT_AUTHOR_EMAIL": "tester@localhost",
    "GIT_COMMITTER_NAME": "tester",
    "GIT_COMMITTER_EMAIL": "tester@localhost",
    "GIT_CONFIG_GLOBAL": str(Path(__file__).with_name("gitconfig")),
    "GIT_CONFIG_NOSYSTEM": "1",
}
"""For the environment of whatever commits: nobody's own configuration takes part."""


def git(folder: Path, *arguments: str, check: bool = True, given: str = "") -> str:
    """What git prints there, without the last line's end; bytes that are no UTF-8 as surrogates.

    ``given``: its stdin.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env=kept | IDENTITY,
        input=given,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        check=False,
    )
    assert done.returncode == 0 or not check, (arguments, done.stdout, done.stderr)
    return done.stdout.rstrip("\n")


def commit(folder: Path, name: str, text: str = "x\n") -> str:
    """Commit one file; returns the commit."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    git(folder, "add", "--", name)
    git(folder, "commit", "--quiet", "-m", f"add {name}")
    return git(folder, "rev-parse", "HEAD")


def make_repository(folder: Path, *options: str) -> Path:
    """A repository with one commit on ``main``, in which ``.env`` and ``*.local`` are ignored.

    ``options``: of ``git init``.
    """
    shutil.copytree(_made(options), folder, dirs_exist_ok=True)
    git(folder, "update-index", "-q", "--refresh")
    return folder


@functools.cache
def _made(options: tuple[str, ...]) -> Path:
    """One to be copied, which lasts as long as this process."""
    folder = Path(tempfile.mkdtemp(prefix="bw-repository-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    git(folder, "init", "--quiet", "--initial-branch=main", *options)
    commit(folder, ".gitignore", ".env\n*.local\n.beads-workers/\n")
    return folder


def needs_git(*version: int) -> pytest.MarkDecorator:
    """Skips a test where git is older."""
    said = git(Path("/"), "version")
    found = tuple(map(int, re.findall(r"\d+", said)[:2]))
    needed = ".".join(map(str, version))
    return pytest.mark.skipif(found < version, reason=f"needs git {needed}, and this is {said}")


FORMATS = (
    pytest.param("--object-format=sha256", id="sha256"),
    pytest.param("--ref-format=reftable", id="reftable", marks=needs_git(2, 45)),
)
"""Options of ``git init`` that make another repository than the usual one."""


def ref_lock(top: Path, ref: str) -> Path:
    """The file with which git locks this ref; with reftables it is one for all. Its folder is
    there."""
    tables = top / ".git" / "reftable"
    lock = tables / "tables.list.lock" if tables.exists() else top / ".git" / f"{ref}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    return lock


def commits(folder: Path) -> set[str]:
    """Every commit that a branch, a remote branch, a tag or a worktree's HEAD still reaches."""
    heads = [
        line.removeprefix("HEAD ")
        for line in git(folder, "worktree", "list", "--porcelain").splitlines()
        if line.startswith("HEAD ")
    ]
    return set(git(folder, "rev-list", "--all", *heads).splitlines())
