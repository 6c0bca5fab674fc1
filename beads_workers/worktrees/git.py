"""Calls of ``git``, in the environment of nobody else's checkout."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from beads_workers.core.model import value
from beads_workers.runtime.processes import GIT_PLACES
from beads_workers.runtime.sessions import owners
from beads_workers.worktrees.overrides import OPTIONS, SAID, VARIABLES

BRANCHES = "bw"
"""Our branches are ``bw/<issue>/<attempt>``."""


OWN_REFS = "refs/bw"
"""Whatever else we keep is below: attempts, runs, trains."""

SECONDS_MAX = 600.0
"""A commit of a large worktree, or a program that signs, takes minutes; no call takes longer."""

SECONDS_VARIABLE = "BEADS_WORKERS_GIT_SECONDS"
"""The same, by the environment: for machines on which everything is slow, or nothing is."""

TRIES_MAX = 3
TRY_AGAIN_SECONDS = 0.1
"""So often git is called if it does not answer; another git may hold one of its short locks."""

LOCKED_SECONDS = 10.0
"""A ref that has been locked for longer is locked by nobody."""

TABLES_LOCK = "reftable/tables.list.lock"
"""In a repository with reftables, one lock for all refs; each worktree has one of its own as well,
for its ``HEAD``."""

_TABLES_LOCKED = "cannot lock references"
"""What git says of this lock. It says ``cannot lock ref 'refs/...'`` of a ref's own."""

GITLINK = "160000"
"""The mode of a commit of another repository in a tree or an index."""

NONE_THERE = 1
"""The exit status of ``config``, ``show-ref``, ``symbolic-ref --quiet`` and ``rev-parse --quiet``
for what is not there."""

FALLBACK_IDENTITY = ("-c", "user.name=beads-workers", "-c", "user.email=beads-workers@localhost")


class GitError(Exception):
    """``git`` failed; ``str()`` is one line, in its own words."""


class GitNoAnswer(GitError):
    """git was killed or could not be started, again and again: it has said nothing."""


class GitHangs(GitNoAnswer):
    """git had not ended when its time was over, again and again."""


def is_outside(error: GitError) -> bool:
    """Return whether git says that the folder is in no repository, and nothing else."""
    return "not a git repository" in str(error)


@value
class GitCall:
    """How a call of ``git`` ended, which a signal is not. ``error``: one line of its complaint;
    ``remote``: what the remote said by itself, a hook of its own for instance."""

    status: int
    output: str
    error: str
    remote: tuple[str, ...] = ()


def git(folder: str, *arguments: str, given: str | None = None, index: str | None = None) -> str:
    """What ``git`` prints when it is called in ``folder``; raises ``GitError``.

    Names may hold bytes that are no UTF-8: they come and go as surrogates. ``index``: the path of
    another index than the folder's own.
    """
    done = call(folder, *arguments, given=given, places={"GIT_INDEX_FILE": index} if index else {})
    if done.status != 0:
        raise failure(arguments, done)
    return done.output


def failure(arguments: Sequence[str], done: GitCall) -> GitError:
    """The error of a call that failed."""
    return GitError(done.error or f"git {_name(arguments)} exited with {done.status}")


def _name(arguments: Sequence[str]) -> str:
    """Which command it is, without the options before it."""
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
    given: str | None = None,
    places: Mapping[str, str] | None = None,
    seconds: float = SECONDS_MAX,
    tries: int = TRIES_MAX,
) -> GitCall:
    """The same for whoever reads the exit status. ``places``: variables that tell git where it is,
    or whose name it writes. A lock of reftables that a killed git has left goes.

    A git that is killed, cannot be started, or takes longer than ``seconds`` has said nothing: it
    is called again, and then it is ``GitNoAnswer``. It may have done all the same what it was told,
    so that the next call says that it cannot be done. ``tries``: 1 for whoever looks for himself.
    """
    for tries_left in reversed(range(tries)):
        try:
            return _answer(folder, arguments, given, places, seconds)
        except GitNoAnswer:
            if not tries_left or not Path(folder).is_dir():
                raise
        time.sleep(TRY_AGAIN_SECONDS)
    raise AssertionError("the last try returns or raises")


def bound(seconds: float = SECONDS_MAX) -> float:
    """How long a call may take that would be given ``seconds``: ``SECONDS_VARIABLE`` says less."""
    try:
        said = float(os.environ.get(SECONDS_VARIABLE, ""))
    except ValueError:
        return seconds
    return min(seconds, said) if said > 0 else seconds


def _answer(
    folder: str,
    arguments: Sequence[str],
    given: str | None,
    places: Mapping[str, str] | None,
    seconds: float,
) -> GitCall:
    done = _called(folder, arguments, given, places, seconds)
    if done.status > 0 and done.error.endswith(_TABLES_LOCKED) and _unlock_tables(folder, places):
        done = _called(folder, arguments, given, places, seconds)
    if done.status < 0:
        raise GitNoAnswer(f"git {_name(arguments)} was ended by signal {-done.status}")
    return done


def git_or_none(folder: str, *arguments: str) -> str | None:
    """Return what ``git`` prints, None if it exits with 1: there is none of what was asked for.
    Raises ``GitError`` for everything else, so that a killed git is no such answer."""
    done = call(folder, *arguments)
    if done.status not in (0, NONE_THERE):
        raise failure(arguments, done)
    return done.output if done.status == 0 else None


def argv(arguments: Sequence[str]) -> list[str]:
    """The command line of a call of ours: no configuration changes what it does or prints."""
    return ["git", *OPTIONS, *arguments]


def _called(
    folder: str,
    arguments: Sequence[str],
    given: str | None,
    places: Mapping[str, str] | None,
    seconds: float,
) -> GitCall:
    seconds = bound(seconds)
    try:
        done = subprocess.run(
            argv(arguments),
            cwd=folder,
            env=environment() | dict(places or {}),
            input=os.fsencode(given or ""),
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
    """Remove the lock of a ref of ours that a killed git has left: nobody else ever would, and a
    git that lives holds it for milliseconds."""
    _remove_old(Path(common, f"{ref}.lock"))


def unlock_all(common: str, *, dry_run: bool = False) -> list[Path]:
    """The same for all refs below ``refs/bw``, and for ``packed-refs``, without which no ref can be
    deleted; gives the locks that went, or would go. The last one may be somebody else's: say so."""
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
    """All refs that these names begin, in one call; raises ``GitError``."""
    # Asked for none, ``for-each-ref`` names all that there are.
    told = git(common, "for-each-ref", "--format=delete %(refname)", *below) if below else ""
    if told:
        git(common, "update-ref", "--stdin", given=told)


def unlock_worktree(folder: str) -> None:
    """The same for a worktree of ours in which nobody works any more; see ``unlock_here``."""
    asked = questions("--absolute-git-dir", "--git-common-dir")
    with suppress(GitError):
        unlock_here(*(Path(place) for place in answers(git(folder, *asked), 2)))


def unlock_here(own: Path, common: Path) -> None:
    """Remove the locks of its index, its ``HEAD`` and the branch that is checked out, however young
    they are. ``own`` and ``common``: its git directories."""
    with suppress(OSError):
        head = (own / "HEAD").read_text().strip().removeprefix("ref: ")
        branch = [common / f"{head}.lock"] if head.startswith(f"refs/heads/{BRANCHES}/") else []
        for lock in (own / "index.lock", own / "HEAD.lock", *branch):
            lock.unlink(missing_ok=True)


def _unlock_tables(folder: str, places: Mapping[str, str] | None) -> bool:
    """Remove the locks of reftables by which a call in ``folder`` has just failed, where a killed
    git has left them; whether there is none any more.

    They are the user's as well. A git that lives has them open until it renames them: one that is
    old and open nowhere is nobody's.
    """
    asked = questions("--git-common-dir", "--absolute-git-dir")
    told = _called(folder, asked, None, places, SECONDS_MAX).output
    locks = [Path(directory, TABLES_LOCK) for directory in (set(answers(told, 2)) if told else ())]
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


def identity(folder: str) -> tuple[str, ...]:
    """Options by which a commit can be made, also where nobody ever said who commits."""
    for tries_left in reversed(range(TRIES_MAX)):
        # It says so as it says everything else that it cannot do: ask it more than once.
        if call(folder, "var", "GIT_COMMITTER_IDENT").status == 0:
            return ()
        time.sleep(TRY_AGAIN_SECONDS if tries_left else 0)
    return FALLBACK_IDENTITY


# --- its answers ---------------------------------------------------------------------------------
# One reader for all calls. Names and messages hold whatever people put there: line ends of every
# alphabet, blanks, bytes. What does not have the form that was asked for is no answer.


def row_format(*fields: str) -> str:
    """The option of ``for-each-ref`` that asks for these fields of each row, for ``rows``."""
    return "--format=" + "".join(f"{field}%00" for field in fields)


def log_format(*fields: str) -> str:
    """The same option of ``log``."""
    return "--format=" + "".join(f"{field}%x00" for field in fields)


def rows(told: str, count: int) -> list[tuple[str, ...]]:
    """The rows that ``row_format`` or ``log_format`` asked for, each of ``count`` fields; raises
    ``GitError``."""
    *found, rest = told.split("\0")
    read = [tuple(found[at : at + count]) for at in range(0, len(found), count)]
    # A line's end stands between the rows, and before the first field of the next one.
    begun = [row[0].startswith("\n") for row in read[1:]]
    if rest.strip("\n") or len(found) % count or not all(begun):
        raise GitError(f"git's answer does not have {count} fields a row: {told[:80]!r}")
    return [*read[:1], *((row[0][1:], *row[1:]) for row in read[1:])]


def fields(told: str, count: int) -> list[tuple[str, ...]]:
    """What a call with ``-z`` says, in rows of ``count`` fields; raises ``GitError``."""
    *found, rest = told.split("\0")
    if rest or len(found) % count:
        raise GitError(f"git's answer does not have {count} fields a row: {told[-80:]!r}")
    return [tuple(found[at : at + count]) for at in range(0, len(found), count)]


def names(told: str) -> list[str]:
    """What a call with ``-z`` names; raises ``GitError``."""
    found = [name for (name,) in fields(told, 1)]
    if "" in found:
        raise GitError(f"git's answer is cut off: {told[-80:]!r}")
    return found


def pairs(told: str) -> list[tuple[str, str]]:
    """The same for calls that say two things of each; raises ``GitError``."""
    found = names(told)
    if len(found) % 2:
        raise GitError(f"git's answer lacks a field: {told[-80:]!r}")
    return list(zip(found[0::2], found[1::2], strict=True))


def questions(*asked: str) -> tuple[str, ...]:
    """The words that ask ``rev-parse`` for these, in one call, for ``answers``: paths hold line
    ends, and words that it does not know it repeats."""
    between = [word for one in asked for word in (_BETWEEN, one)]
    return ("rev-parse", "--path-format=absolute", *between[1:])


def answers(told: str, count: int = 1) -> list[str]:
    """What it says of each; raises ``GitError``."""
    found = told.removesuffix("\n").split(f"\n{_BETWEEN}\n")
    if len(found) != count:
        raise GitError(f"git's answer is not of {count} parts: {told[:80]!r}")
    return found


_BETWEEN = "--beads-workers-next"


def config(told: str) -> list[tuple[str, str]]:
    """Keys and values of ``config -z --get-regexp``; raises ``GitError``."""
    return [(key, setting) for key, _, setting in (row.partition("\n") for row in names(told))]


def merged(told: str) -> tuple[str, list[str], list[str]]:
    """What ``merge-tree -z --name-only`` says: the tree, the files with conflicts, and what is said
    of these; raises ``GitError``."""
    tree, _, rest = told.partition("\0")
    if not is_object(tree):
        raise GitError(f"git's answer names no tree: {told[:80]!r}")
    named, _, rest = rest.partition("\0\0")
    files = [name for name in dict.fromkeys(named.split("\0")) if name]
    # For each message: how many paths, the paths, the kind, the text.
    words, said = rest.lstrip("\0").split("\0"), []
    while words and words[0].isdigit():
        after = int(words[0]) + 1
        if len(words) > after + 1 and words[after].startswith("CONFLICT"):
            said.append(words[after + 1].strip())
        words = words[after + 2 :]
    return tree, files, said


def lines(told: str, count: int | None = None) -> list[str]:
    """The lines of an answer that has no other form, as that of ``rev-parse``: so many, if that is
    known. Raises ``GitError``."""
    found = told.removesuffix("\n").split("\n") if told else []
    if count is not None and len(found) != count:
        raise GitError(f"git's answer has not {count} lines, but {len(found)}: {told[:80]!r}")
    return found


def objects(told: str) -> list[str]:
    """Names of objects, one a line; raises ``GitError``."""
    found = lines(told)
    for name in found:
        if not _OBJECT.fullmatch(name):
            raise GitError(f"git's answer names no object: {name[:80]!r}")
    return found


_OBJECT = re.compile("[0-9a-f]{40}(?:[0-9a-f]{24})?")


def contents(told: str, count: int) -> list[bytes | None]:
    """What ``cat-file --batch --follow-symlinks`` says of so many paths: None for what is no file
    or folder of the repository's; raises ``GitError``."""
    rest, found = os.fsencode(told), list[bytes | None]()
    while rest:
        head, _, rest = rest.partition(b"\n")
        words = head.split(b" ")
        if words[-1] in (b"missing", b"ambiguous"):
            found.append(None)
            continue
        if not words[-1].isdigit() or len(rest) <= int(words[-1]):
            raise GitError(f"git's answer is cut off: {told[-80:]!r}")
        size = int(words[-1])
        # A link that leads out of the repository: its name is said.
        is_there = words[1:2] in ([b"blob"], [b"tree"]) or words[0] == b"symlink"
        found.append(rest[:size] if is_there else None)
        rest = rest[size + 1 :]
    if len(found) != count:
        raise GitError(f"git's answer is not of {count} parts: {told[:80]!r}")
    return found


def is_object(name: str) -> bool:
    """Whether it is the full name of an object."""
    return _OBJECT.fullmatch(name) is not None


# -------------------------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """That of a call of git: in the environment of nobody else's checkout."""
    left_out = {*GIT_PLACES, *VARIABLES}
    return {name: value for name, value in os.environ.items() if name not in left_out} | SAID


def complaint(stderr: bytes) -> str:
    """The one line of it that says what is wrong."""
    said = [line.strip() for line in os.fsdecode(stderr).splitlines() if line.strip()]
    telling = next((line for line in said if line.startswith(("fatal:", "error:"))), "")
    if telling.startswith(_SAYS_NOTHING) and (before := said[: said.index(telling)]):
        return before[-1].removeprefix("ERROR: ")
    line = telling or (said or [""])[0]
    return line.removeprefix("fatal: ").removeprefix("error: ").removesuffix(":")


_SAYS_NOTHING = "fatal: Could not read from remote repository"
"""What says why stands before it: a line of ssh, or of the server."""
