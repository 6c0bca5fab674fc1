"""A remote that several clones land on: calls of git over a network, with a time limit and no
prompts.

Nothing here moves a ref of this repository; fetched commits are named by their ids. Source:
docs/LANDING.md, "Several clones".
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from beads_workers.core.base.model import value
from beads_workers.core.base.text import printable
from beads_workers.worktrees.git import (
    OWN_REFS,
    GitCall,
    GitError,
    argv,
    bound,
    complaint,
    environment,
    git,
    is_object,
    lines,
)

NETWORK_SECONDS = 60.0
"""Time limit of a call, in seconds, after which it counts as hung."""
TRIES_MAX = 3
TRY_AGAIN_SECONDS = 0.5
"""Tries, and the pause between them in seconds: a short failure of the remote is no reason to
pause."""

HUNG = -256
"""Status of a hung call, instead of an exit status, or minus the number of a signal."""

REMOTE_LINES_MAX = 12
REMOTE_CHARS_MAX = 300
"""Limits for the lines shown of a remote's refusal."""

NOBODY_ASKED = {"GIT_ASKPASS": "true", "SSH_ASKPASS": "true", "SSH_ASKPASS_REQUIRE": "never"}
"""Variables that keep a call from asking for a password."""


NOBODY: Mapping[str, str] = {}
"""No login beside the user's own; else settings of git, by their keys."""


class RemoteTrouble(GitError):
    """Nothing lands through the remote now; ``str()`` is one line for people."""


class Refuses(RemoteTrouble):
    """The remote has answered, and does not take what was pushed."""


class LostRace(Exception):
    """Somebody else has moved the remote's branch."""


def remote_heads(
    folder: str, remote: str, refs: Sequence[str], login: Mapping[str, str] = NOBODY
) -> dict[str, str]:
    """Return the commits of these refs, as far as the remote has them. Afterwards each commit is in
    this repository.

    ``folder``: a checkout, as the remote may be named by a relative path; ``login``: as ``NOBODY``.
    Raises ``RemoteTrouble``.
    """
    heads = _listed(folder, remote, refs, login)
    missing = [ref for ref, commit in heads.items() if not _is_here(folder, commit)]
    if missing:
        only = ("--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--refmap=")
        answered(folder, remote, "fetch", "--quiet", *only, "--", remote, *missing, login=login)
    for ref in missing:
        if not _is_here(folder, heads[ref]):
            raise RemoteTrouble(f"{remote} does not give the commit {heads[ref][:12]} of {ref}")
    return heads


def ahead(branch: str, remote: str, tip: str) -> str:
    """Return the message for a ``branch`` with commits here that the remote, at ``tip``, has
    not."""
    return (
        f"{branch} has commits here that {remote} has not:"
        f" 'git push {remote} {branch}' takes them there, 'git branch -f"
        f" {branch} {tip[:12]}' drops them"
    )


@value
class RefMove:
    """A move of a ref from ``old`` ("": it does not exist) to ``new``."""

    ref: str
    old: str
    new: str


def push(folder: str, remote: str, *moves: RefMove, login: Mapping[str, str] = NOBODY) -> None:
    """Move these refs of the remote, all of them or none, and no other; ``login``: as above.

    Raises ``LostRace`` if a ref stands elsewhere, and ``RemoteTrouble``. After a kill, or without
    an answer, the caller has to ask the remote whether it has moved.
    """
    leases = [f"--force-with-lease={each.ref}:{each.old}" for each in moves]
    only = (*leases, "--no-follow-tags", "--recurse-submodules=no", "--no-verify")
    only = (*only, "--atomic") if any(OWN_REFS in each.ref for each in moves) else only
    wanted = [f"{each.new}:{each.ref}" for each in moves]
    done, name, why = GitCall(-1, "", ""), moves[0].ref, ""
    for tries_left in reversed(range(TRIES_MAX)):
        done = _call(folder, "push", "--porcelain", *only, "--", remote, *wanted, login=login)
        if done.status == 0:
            return
        name, why = _refusal(done, moves[0].ref)
        stands = _listed(folder, remote, [each.ref for each in moves], login)
        if all(stands.get(each.ref, "") == each.new for each in moves):
            return
        if any(stands.get(each.ref, "") != each.old for each in moves):
            raise LostRace
        if tries_left:  # Another push may hold the ref's lock, and fail without moving it.
            time.sleep(TRY_AGAIN_SECONDS)
    trouble = f"{remote} does not take {name.removeprefix('refs/heads/')}: {why}"
    raise Refuses(trouble) if done.status > 0 else RemoteTrouble(trouble)


def check_push(
    folder: str,
    remote: str,
    ref: str,
    commit: str,
    seconds: float,
    login: Mapping[str, str] = NOBODY,
) -> None:
    """Ask the remote whether this user may push there; nothing is pushed. ``login``: as above.

    Refusals by a hook of the remote are not detected. Raises ``RemoteTrouble``, within ``seconds``.
    """
    until = time.monotonic() + seconds
    only = ("--no-follow-tags", "--recurse-submodules=no", "--no-verify")
    trial = ("push", "--dry-run", "--porcelain", *only, "--", remote, f"{commit}:{ref}")
    done = _call(folder, *trial, seconds=seconds, login=login)
    for _ in range(TRIES_MAX - 1):
        # This git refuses a branch that stands elsewhere: then the remote has answered. It has not
        # if git was killed, which includes SIGPIPE as the remote hangs up.
        if done.status == 0 or _rows(done) or time.monotonic() + TRY_AGAIN_SECONDS >= until:
            break
        time.sleep(TRY_AGAIN_SECONDS)
        done = _call(folder, *trial, seconds=until - time.monotonic(), login=login)
    if done.status == 0 or _rows(done):
        return
    why = done.error or f"git push exited with {done.status}"
    left = until - time.monotonic()
    answers = done.status > 0 and left > 0
    asked = ("ls-remote", "--", remote, ref)
    if answers and _call(folder, *asked, seconds=left, login=login).status == 0:
        raise RemoteTrouble(f"{remote} does not let you push: {why}")
    raise RemoteTrouble(f"{remote} cannot be reached: {why}")


def _rows(done: GitCall) -> list[str]:
    return [row for row in lines(done.output) if row.startswith("!")]


def _refusal(done: GitCall, ref: str) -> tuple[str, str]:
    """Return the ref that was refused, and why, in the words of git and of the remote."""
    rows = [row.split("\t") for row in _rows(done)]
    # In an atomic push, all other refs are refused because one is.
    rows.sort(key=lambda row: "atomic" in row[-1])
    if rows and len(rows[0]) > 1:
        ref = rows[0][1].rpartition(":")[2]
    why = (rows[0][-1] if rows else done.error) or f"git push exited with {done.status}"
    return ref, "; ".join([why, *([f"it says: {' / '.join(done.remote)}"] if done.remote else [])])


def _listed(
    folder: str, remote: str, refs: Sequence[str], login: Mapping[str, str]
) -> dict[str, str]:
    output = answered(folder, remote, "ls-remote", "--", remote, *refs, login=login)
    found = (line.partition("\t") for line in lines(output))
    return {ref: commit for commit, _, ref in found if ref in refs and is_object(commit)}


def _is_here(folder: str, commit: str) -> bool:
    try:
        git(folder, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    except GitError:
        return False
    return True


def answered(folder: str, remote: str, *arguments: str, login: Mapping[str, str] = NOBODY) -> str:
    """Return the output of a call of git that needs the remote; raises ``RemoteTrouble``."""
    done = GitCall(-1, "", "")
    for tries_left in reversed(range(TRIES_MAX)):
        done = _call(folder, *arguments, login=login)
        if done.status == 0:
            return done.output
        if done.status == HUNG:
            break
        if tries_left:
            time.sleep(TRY_AGAIN_SECONDS)
    raise RemoteTrouble(f"{remote} cannot be reached: {done.error or 'git fails'}")


def _call(
    folder: str,
    *arguments: str,
    seconds: float | None = None,
    login: Mapping[str, str] = NOBODY,
) -> GitCall:
    """Call git in a session of its own: it has no terminal to ask on, and ``ssh`` is killed with
    it. The status of a call that does not end is ``HUNG``."""
    seconds = bound(NETWORK_SECONDS if seconds is None else seconds)
    try:
        process = subprocess.Popen(
            argv(arguments),
            cwd=folder,
            env=_environment(login),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise RemoteTrouble(f"git: {error.strerror} ({error.filename})") from None
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return GitCall(HUNG, "", f"no answer in {seconds:.0f} seconds")
    return GitCall(process.returncode, os.fsdecode(output), complaint(errors), _remote(errors))


def _environment(login: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a call. A login is configuration that no command line shows."""
    found = environment() | NOBODY_ASKED
    if login:
        first = int(found.get("GIT_CONFIG_COUNT") or 0)
        for at, (key, text) in enumerate(login.items(), first):
            found |= {f"GIT_CONFIG_KEY_{at}": key, f"GIT_CONFIG_VALUE_{at}": text}
        found["GIT_CONFIG_COUNT"] = str(first + len(login))
    return found


def _remote(errors: bytes) -> tuple[str, ...]:
    """Return the lines of the remote without its progress, and no more than people read."""
    error_lines = [line.strip() for line in os.fsdecode(errors).replace("\r", "\n").split("\n")]
    own = [
        line.removeprefix("remote:").strip() for line in error_lines if line.startswith("remote:")
    ]
    kept = [printable(line, REMOTE_CHARS_MAX) for line in own if line and "error: hook" not in line]
    return tuple(kept[:REMOTE_LINES_MAX])
