"""Calls of ``git``, in an environment without the settings of any other checkout."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from beads_workers.core.base.model import value
from beads_workers.runtime.processes import GIT_PLACES
from beads_workers.runtime.sessions import owners
from beads_workers.worktrees.overrides import OPTIONS, OWN_VARIABLES, VARIABLES

BRANCHES = "bw"
"""Prefix of our branches, ``bw/<issue>/<attempt>``."""


OWN_REFS = "refs/bw"
"""Prefix of all other refs of ours: attempts, runs, trains."""

SECONDS_MAX = 600.0
"""Time limit of a call, in seconds: a commit of a large worktree, or a program that signs, takes
minutes."""

SECONDS_VARIABLE = "BEADS_WORKERS_GIT_SECONDS"
"""Environment variable with a shorter limit, in seconds."""

TRIES_MAX = 3
TRY_AGAIN_SECONDS = 0.1
"""Tries, and the pause between them in seconds, if git does not answer: another git may hold a
short-lived lock."""

LOCKED_SECONDS = 10.0
"""Age in seconds after which the lock of a ref counts as left behind."""

TABLES_LOCK = "reftable/tables.list.lock"
"""Lock of all refs in a repository with reftables; each worktree has one of its own as well, for
its ``HEAD``."""

_TABLES_LOCKED = "cannot lock references"
"""Message of git about this lock. For the lock of one ref, git prints ``cannot lock ref
'refs/...'``."""

_HALF_MADE = re.compile(r"failed to read .*/commondir:")
"""Message of git in every call that looks at all worktrees, if it finds this file empty."""
_COMMON_DIR = "../..\n"

GITLINK = "160000"
"""Mode of a commit of another repository in a tree or an index."""

NONE_THERE = 1
"""Exit status of ``config``, ``show-ref``, ``symbolic-ref --quiet`` and ``rev-parse --quiet`` if
the thing asked for does not exist."""

FALLBACK_IDENTITY = ("-c", "user.name=beads-workers", "-c", "user.email=beads-workers@localhost")


class GitError(Exception):
    """``git`` failed; ``str()`` is one line, in git's own words."""


class GitNoAnswer(GitError):
    """git was killed or could not be started, again and again: there is no answer."""


class GitHangs(GitNoAnswer):
    """git did not end within its time limit, again and again."""


def is_outside(error: GitError) -> bool:
    """Return whether git says that the folder is in no repository, and nothing else."""
    return "not a git repository" in str(error)


@value
class GitCall:
    """Result of a call of ``git`` that no signal ended. ``error``: one line of its complaint;
    ``remote``: lines of the remote itself, for instance of a hook."""

    status: int
    output: str
    error: str
    remote: tuple[str, ...] = ()


def git(folder: str, *arguments: str, stdin: str | None = None, index: str | None = None) -> str:
    """Call ``git`` in ``folder``, and return its output. Raises ``GitError``.

    Names may hold bytes that are no UTF-8: they are passed as surrogates. ``index``: the path of
    another index than the folder's own.
    """
    done = call(folder, *arguments, stdin=stdin, places={"GIT_INDEX_FILE": index} if index else {})
    if done.status != 0:
        raise failure(arguments, done)
    return done.output


def failure(arguments: Sequence[str], done: GitCall) -> GitError:
    """Return the error for a call that failed."""
    return GitError(done.error or f"git {_name(arguments)} exited with {done.status}")


def _name(arguments: Sequence[str]) -> str:
    """Return the name of the command, without the options before it."""
    words = iter(arguments)
    for word in words:
        if word == "-c":
            next(words, "")
        elif not word.startswith("-"):
            return word
    return arguments[0]


def call(
    folder: str,
    *arguments: str,
    stdin: str | None = None,
    places: Mapping[str, str] | None = None,
    seconds: float = SECONDS_MAX,
    tries: int = TRIES_MAX,
) -> GitCall:
    """Call ``git``, and return its exit status with its output. ``places``: variables that tell git
    where the repository is, or in whose name it writes. Locks of reftables left by a killed git are
    removed.

    If git is killed, cannot be started, or takes longer than ``seconds``, it is called again; after
    the last try ``GitNoAnswer`` is raised. The first call may have done its work all the same, so
    that the second one fails. ``tries``: 1 for a caller that checks this itself.
    """
    for tries_left in reversed(range(tries)):
        try:
            return _answer(folder, arguments, stdin, places, seconds)
        except GitNoAnswer:
            if not tries_left or not Path(folder).is_dir():
                raise
        time.sleep(TRY_AGAIN_SECONDS)
    raise AssertionError("the last try returns or raises")


def bound(seconds: float = SECONDS_MAX) -> float:
    """Return the limit of a call, in seconds: ``seconds``, or less if ``SECONDS_VARIABLE`` is
    less."""
    try:
        limit = float(os.environ.get(SECONDS_VARIABLE, ""))
    except ValueError:
        return seconds
    return min(seconds, limit) if limit > 0 else seconds


def _answer(
    folder: str,
    arguments: Sequence[str],
    stdin: str | None,
    places: Mapping[str, str] | None,
    seconds: float,
) -> GitCall:
    done = _called(folder, arguments, stdin, places, seconds)
    if done.status > 0 and _is_mended(done.error, folder, places):
        done = _called(folder, arguments, stdin, places, seconds)
    if done.status < 0:
        raise GitNoAnswer(f"git {_name(arguments)} was ended by signal {-done.status}")
    return done


def _is_mended(error: str, folder: str, places: Mapping[str, str] | None) -> bool:
    """Return whether what made a call fail was left by a killed git, and is put right."""
    if error.endswith(_TABLES_LOCKED):
        return _unlock_tables(folder, places)
    return bool(_HALF_MADE.match(error)) and _complete_worktrees(folder, places)


def git_or_none(folder: str, *arguments: str) -> str | None:
    """Return the output of ``git``, or None if it exits with 1: the thing asked for does not exist.
    Raises ``GitError`` for everything else, so that a killed git is no such answer."""
    done = call(folder, *arguments)
    if done.status not in (0, NONE_THERE):
        raise failure(arguments, done)
    return done.output if done.status == 0 else None


def is_ancestor(folder: str, commit: str, of: str) -> bool | None:
    """Return whether ``commit`` is ``of`` or one of its ancestors; None if one of the two is not
    there. Raises ``GitError``: git that fails has given none of these answers."""
    asked = ("merge-base", "--is-ancestor", commit, of)
    done = call(folder, *asked)
    if done.status in (0, NONE_THERE):
        return done.status == 0
    for name in (commit, of):  # git reports what is not there like any failure.
        if git_or_none(folder, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}") is None:
            return None
    raise failure(asked, done)


def argv(arguments: Sequence[str]) -> list[str]:
    """Return the command line of a call, with options that override the user's configuration."""
    return ["git", *OPTIONS, *arguments]


def _called(
    folder: str,
    arguments: Sequence[str],
    stdin: str | None,
    places: Mapping[str, str] | None,
    seconds: float,
) -> GitCall:
    seconds = bound(seconds)
    try:
        done = subprocess.run(
            argv(arguments),
            cwd=folder,
            env=environment() | dict(places or {}),
            input=os.fsencode(stdin or ""),
            capture_output=True,
            check=False,
            timeout=seconds,
        )
    except OSError as error:
        raise GitNoAnswer(f"git: {error.strerror} ({error.filename})") from None
    except subprocess.TimeoutExpired:
        raise GitHangs(f"git {_name(arguments)} took longer than {seconds:g} seconds") from None
    return GitCall(done.returncode, os.fsdecode(done.stdout), complaint(done.stderr))


def unlock(common: str, ref: str) -> None:
    """Remove the lock of one of our refs if a killed git has left it: nobody else ever would. A
    living git holds such a lock for milliseconds."""
    _remove_old(Path(common, f"{ref}.lock"))


def unlock_all(common: str, *, dry_run: bool = False) -> list[Path]:
    """Remove such locks of all refs below ``refs/bw``, and the lock of ``packed-refs``, without
    which no ref can be deleted. Return the locks that were removed, or would be. Report the last
    one: it may be somebody else's."""
    locks = [Path(common, "packed-refs.lock"), *Path(common, OWN_REFS).rglob("*.lock")]
    return [lock for lock in locks if (_is_old(lock) if dry_run else _remove_old(lock))]


def _is_old(lock: Path) -> bool:
    try:
        return time.time() - lock.stat().st_mtime > LOCKED_SECONDS
    except OSError:
        return False


def _remove_old(lock: Path) -> bool:
    with suppress(OSError):
        if _is_old(lock):
            lock.unlink()
            return True
    return False


def delete_refs(common: str, *below: str) -> None:
    """Delete all refs that begin with these names, in one call; raises ``GitError``."""
    # Without a pattern, ``for-each-ref`` would list all refs.
    output = git(common, "for-each-ref", "--format=delete %(refname)", *below) if below else ""
    if output:
        git(common, "update-ref", "--stdin", stdin=output)


def unlock_worktree(folder: str) -> None:
    """Remove the locks of a worktree of ours that is not used any more; see ``unlock_here``."""
    asked = questions("--absolute-git-dir", "--git-common-dir")
    with suppress(GitError):
        unlock_here(*(Path(place) for place in answers(git(folder, *asked), 2)))


AWAITED = "an answer is awaited"
"""Reason of the lock on a worktree whose agent has asked a person."""


def keep_for_answer(own: Path) -> None:
    """Lock a worktree, as ``git worktree lock`` does, until its next attempt; ``own``: its git
    directory. Raises ``OSError``."""
    (own / "locked").write_text(AWAITED)


def unlock_here(own: Path, common: Path) -> None:
    """Remove the locks of a worktree's index, its ``HEAD`` and its checked-out branch, however
    young they are. ``own`` and ``common``: the worktree's git directories."""
    with suppress(OSError):
        if (own / "locked").read_text() == AWAITED:
            (own / "locked").unlink()
    with suppress(OSError):
        head = (own / "HEAD").read_text().strip().removeprefix("ref: ")
        branch = [common / f"{head}.lock"] if head.startswith(f"refs/heads/{BRANCHES}/") else []
        for lock in (own / "index.lock", own / "HEAD.lock", *branch):
            lock.unlink(missing_ok=True)


def _unlock_tables(folder: str, places: Mapping[str, str] | None) -> bool:
    """Remove the locks of reftables that made a call in ``folder`` fail, if a killed git has left
    them. Return whether none is left.

    The user's git uses the same locks. A living git keeps such a lock open until it renames it. So
    an old lock that no process has open is left behind.
    """
    asked = questions("--git-common-dir", "--absolute-git-dir")
    output = _called(folder, asked, None, places, SECONDS_MAX).output
    locks = [
        Path(directory, TABLES_LOCK) for directory in (set(answers(output, 2)) if output else ())
    ]
    for lock in locks:
        with suppress(OSError):
            found = lock.stat()
            if owners(lock):
                continue
            young = found.st_mtime + LOCKED_SECONDS - time.time()
            time.sleep(min(max(0.0, young), LOCKED_SECONDS))
            if os.path.samestat(found, lock.stat()) and not owners(lock):
                lock.unlink()
    return not any(lock.exists() for lock in locks)


def _complete_worktrees(folder: str, places: Mapping[str, str] | None) -> bool:
    """Write what a ``git worktree add`` was to write when it was killed. One that still lives
    writes the same. Return whether something was missing."""
    output = _called(folder, questions("--git-common-dir"), None, places, SECONDS_MAX).output
    mended = False
    for common in answers(output) if output else ():
        for each in Path(common, "worktrees").glob("*/commondir"):
            with suppress(OSError):
                if not each.stat().st_size:
                    each.write_text(_COMMON_DIR)
                    mended = True
    return mended


def identity(folder: str) -> tuple[str, ...]:
    """Return options with which git can commit even if no identity is configured."""
    for tries_left in reversed(range(TRIES_MAX)):
        # git reports a missing identity like any other failure: ask more than once.
        if call(folder, "var", "GIT_COMMITTER_IDENT").status == 0:
            return ()
        time.sleep(TRY_AGAIN_SECONDS if tries_left else 0)
    return FALLBACK_IDENTITY


def author(folder: str) -> tuple[str, str]:
    """Return the name and the address with which git commits here; raises ``GitError``."""
    name, _, rest = git(folder, *identity(folder), "var", "GIT_AUTHOR_IDENT").partition(" <")
    return name, rest.partition(">")[0]


# --- its answers ---------------------------------------------------------------------------------
# One reader for all calls. Names and messages may hold anything: line ends of every alphabet,
# blanks, bytes. Output that does not have the requested form is no answer.


def row_format(*fields: str) -> str:
    """Return the option of ``for-each-ref`` that prints these fields of each row, for ``rows``."""
    return "--format=" + "".join(f"{field}%00" for field in fields)


def log_format(*fields: str) -> str:
    """Return the same option of ``log``."""
    return "--format=" + "".join(f"{field}%x00" for field in fields)


def rows(output: str, count: int) -> list[tuple[str, ...]]:
    """Parse the rows that ``row_format`` or ``log_format`` asked for, each of ``count`` fields.
    Raises ``GitError``."""
    *found, rest = output.split("\0")
    read = [tuple(found[at : at + count]) for at in range(0, len(found), count)]
    # A line end separates the rows: it stands before the first field of the next one.
    begun = [row[0].startswith("\n") for row in read[1:]]
    if rest.strip("\n") or len(found) % count or not all(begun):
        raise GitError(f"git's answer does not have {count} fields a row: {output[:80]!r}")
    return [*read[:1], *((row[0][1:], *row[1:]) for row in read[1:])]


def fields(output: str, count: int) -> list[tuple[str, ...]]:
    """Parse the output of a call with ``-z``, in rows of ``count`` fields; raises ``GitError``."""
    *found, rest = output.split("\0")
    if rest or len(found) % count:
        raise GitError(f"git's answer does not have {count} fields a row: {output[-80:]!r}")
    return [tuple(found[at : at + count]) for at in range(0, len(found), count)]


def names(output: str) -> list[str]:
    """Parse the names in the output of a call with ``-z``; raises ``GitError``."""
    found = [name for (name,) in fields(output, 1)]
    if "" in found:
        raise GitError(f"git's answer is cut off: {output[-80:]!r}")
    return found


def pairs(output: str) -> list[tuple[str, str]]:
    """Parse the output of calls that print two fields for each entry; raises ``GitError``."""
    found = names(output)
    if len(found) % 2:
        raise GitError(f"git's answer lacks a field: {output[-80:]!r}")
    return list(zip(found[0::2], found[1::2], strict=True))


def questions(*asked: str) -> tuple[str, ...]:
    """Return the arguments that ask ``rev-parse`` for these values in one call, for ``answers``.
    Paths may hold line ends; ``rev-parse`` repeats words that it does not know, which separate the
    values."""
    between = [word for one in asked for word in (_BETWEEN, one)]
    return ("rev-parse", "--path-format=absolute", *between[1:])


def answers(output: str, count: int = 1) -> list[str]:
    """Parse the values that ``questions`` asked for; raises ``GitError``."""
    found = output.removesuffix("\n").split(f"\n{_BETWEEN}\n")
    if len(found) != count:
        raise GitError(f"git's answer is not of {count} parts: {output[:80]!r}")
    return found


_BETWEEN = "--beads-workers-next"


def config(output: str) -> list[tuple[str, str]]:
    """Parse the keys and values of ``config -z --get-regexp``; raises ``GitError``."""
    return [(key, setting) for key, _, setting in (row.partition("\n") for row in names(output))]


def merged(output: str) -> tuple[str, list[str], list[str]]:
    """Parse the output of ``merge-tree -z --name-only``: return the tree, the files with conflicts,
    and the messages about these. Raises ``GitError``."""
    tree, _, rest = output.partition("\0")
    if not is_object(tree):
        raise GitError(f"git's answer names no tree: {output[:80]!r}")
    named, _, rest = rest.partition("\0\0")
    files = [name for name in dict.fromkeys(named.split("\0")) if name]
    # Each message has: number of paths, the paths, the kind, the text.
    words, messages = rest.lstrip("\0").split("\0"), []
    while words and words[0].isdigit():
        after = int(words[0]) + 1
        if len(words) > after + 1 and words[after].startswith("CONFLICT"):
            messages.append(words[after + 1].strip())
        words = words[after + 2 :]
    return tree, files, messages


def lines(output: str, count: int | None = None) -> list[str]:
    """Split an answer without any other form into lines, as that of ``rev-parse``. ``count``: their
    number, if that is known. Raises ``GitError``."""
    found = output.removesuffix("\n").split("\n") if output else []
    if count is not None and len(found) != count:
        raise GitError(f"git's answer has not {count} lines, but {len(found)}: {output[:80]!r}")
    return found


def objects(output: str) -> list[str]:
    """Parse names of objects, one a line; raises ``GitError``."""
    found = lines(output)
    for name in found:
        if not _OBJECT.fullmatch(name):
            raise GitError(f"git's answer names no object: {name[:80]!r}")
    return found


_OBJECT = re.compile("[0-9a-f]{40}(?:[0-9a-f]{24})?")


def contents(output: str, count: int) -> list[bytes | None]:
    """Parse the answer of ``cat-file --batch --follow-symlinks`` for ``count`` paths: None for a
    path that is no file or folder of the repository. Raises ``GitError``."""
    rest, found = os.fsencode(output), list[bytes | None]()
    while rest:
        head, _, rest = rest.partition(b"\n")
        words = head.split(b" ")
        if words[-1] in (b"missing", b"ambiguous"):
            found.append(None)
            continue
        if not words[-1].isdigit() or len(rest) <= int(words[-1]):
            raise GitError(f"git's answer is cut off: {output[-80:]!r}")
        size = int(words[-1])
        # A link that leads out of the repository: its target is printed.
        is_there = words[1:2] in ([b"blob"], [b"tree"]) or words[0] == b"symlink"
        found.append(rest[:size] if is_there else None)
        rest = rest[size + 1 :]
    if len(found) != count:
        raise GitError(f"git's answer is not of {count} parts: {output[:80]!r}")
    return found


def is_object(name: str) -> bool:
    """Return whether the name is the full name of an object."""
    return _OBJECT.fullmatch(name) is not None


# -------------------------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """Return the environment of a call of git, without variables that belong to other checkouts."""
    left_out = {*GIT_PLACES, *VARIABLES}
    return {
        name: value for name, value in os.environ.items() if name not in left_out
    } | OWN_VARIABLES


def complaint(stderr: bytes) -> str:
    """Return the line of stderr that names the problem."""
    stderr_lines = [line.strip() for line in os.fsdecode(stderr).splitlines() if line.strip()]
    telling = next((line for line in stderr_lines if line.startswith(("fatal:", "error:"))), "")
    if telling.startswith(_SAYS_NOTHING) and (
        before := stderr_lines[: stderr_lines.index(telling)]
    ):
        return before[-1].removeprefix("ERROR: ")
    line = telling or (stderr_lines or [""])[0]
    return line.removeprefix("fatal: ").removeprefix("error: ").removesuffix(":")


_SAYS_NOTHING = "fatal: Could not read from remote repository"
"""Message after which the cause stands in the line before it, from ssh or from the server."""
