"""Commits that land must be signed without a terminal: nobody is asked for a password."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path

from beads_workers.checks.probe import ProbeResult, ask
from beads_workers.checks.rules import Check, fail, ok
from beads_workers.core.base.text import printable
from beads_workers.worktrees.git import argv, complaint, environment, git, git_or_none, identity
from beads_workers.worktrees.remote import NOBODY_ASKED

NAME = "signing"
NO_SCREEN = {"GPG_TTY": "", "DISPLAY": "", "WAYLAND_DISPLAY": ""}
TEXT_CHARS = 200


def signer(common: str, seconds: float) -> Check | None:
    """Sign a scratch commit of this repository as the lander does; None if nothing is signed.

    The commit is written to a temporary folder. Raise ``GitError``.
    """
    if _config(common, "commit.gpgSign", "--type=bool") != "true":
        return None
    how = _config(common, "gpg.format") or "openpgp"
    tree = git(common, "hash-object", "-t", "tree", "--stdin").strip()
    words = argv((*identity(common), "commit-tree", "-S", "-m", "beads-workers: a trial", tree))
    with tempfile.TemporaryDirectory() as objects:
        places = {"GIT_DIR": common, "GIT_OBJECT_DIRECTORY": objects}
        variables = environment() | NOBODY_ASKED | NO_SCREEN | places
        done = ask(words, folder=Path(objects), seconds=seconds, environment=variables)
    if done.status == 0:
        return ok(NAME, f"commits that land are signed ({how})")
    why = _why(done, seconds)
    text = f"nothing lands: commit.gpgSign is set, and the signer cannot sign by itself: {why}"
    return fail(NAME, printable(text, 2 * TEXT_CHARS), _unlock(common, how), _hint(how))


def _why(done: ProbeResult, seconds: float) -> str:
    if done.status is None:
        return f"no answer in {seconds:g} seconds"
    return complaint(done.stderr.encode()) or f"git commit-tree exited with {done.status}"


def _hint(how: str) -> str:
    key = "add the key to your ssh agent" if how == "ssh" else "unlock the key for your agent"
    return f"{key}, for longer than the run takes; --no-land lands nothing, and signs nothing"


def _unlock(common: str, how: str) -> str:
    """Return a command that asks the person to unlock the key, as the signer would."""
    if how == "ssh":
        key = _config(common, "user.signingKey", "--type=path")
        # git accepts a public key here, ssh-add does not.
        return f"ssh-add {shlex.quote(key.removesuffix('.pub'))}" if key[:1] == "/" else "ssh-add"
    key = _config(common, "user.signingKey")
    program = _config(common, f"gpg.{how}.program") or _config(common, "gpg.program")
    program = program or {"x509": "gpgsm"}.get(how, "gpg")
    named = f" --local-user {shlex.quote(key)}" if key else ""
    return f"echo | {shlex.quote(program)}{named} --sign --armor >/dev/null"


def _config(common: str, name: str, *options: str) -> str:
    return (git_or_none(common, "config", *options, name) or "").strip()
