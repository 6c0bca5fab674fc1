"""A number for each worktree that runs something, unique on this machine, and its world.

    /var/tmp/beads-workers-slots/   of all users; it outlives a restart of the machine
      <N>                           the lock of a number, held while something changes about it; its
                                    time is when the number was freed last
      <N>.<uid>                     a claim: whose it is, and how its world is torn down

A number is free if nobody holds its lock and nobody has claimed it. A claim is of one worktree, and
stays while that lives. A world that has begun is a debt, written down and synced before; whoever
tears it down holds the lock, reads the claim again, runs its line, and notes that in
``worlds.jsonl`` of the state directory. A killed tear-down runs again. Source: docs/WORLDS.md.
"""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from pathlib import Path

from beads_workers.core.base.model import value
from beads_workers.core.base.plain import BAD_VALUE, from_plain, to_plain
from beads_workers.core.base.settings import Worktrees
from beads_workers.core.base.text import some
from beads_workers.core.base.worlds import WorldRules
from beads_workers.runtime.locks import try_lock
from beads_workers.runtime.processes import inherited

FOLDER, VARIABLE = "/var/tmp/beads-workers-slots", "BW_SLOTS_FOLDER"
"""Where the claims are, and the variable that says so where several machines share ports."""
LOG = "worlds.jsonl"
TEARDOWN_SECONDS = 60.0
LOCK_SECONDS = TEARDOWN_SECONDS + 10.0
SHOWN_MAX = 3


class NoSlot(Exception):
    """No number is free; ``str()`` says why, in one line."""


@value
class Claim:
    """Whose a number is."""

    slot: int
    worktree: str
    # The state directory of its project, and the folder in which its lines run.
    state: str
    folder: str
    variables: Mapping[str, str] = field(default_factory=dict)
    teardown: str | None = None
    # Its world has begun, and is not torn down: the name of that one.
    world: str = ""
    # What set-up made may depend on the number.
    is_in: bool = False


# --- claims --------------------------------------------------------------------------------------


def claims(named: bytes = b"") -> list[Claim]:
    """Return the claims of this user, with ``named`` in their texts."""
    found = (_read(path, named) for path in sorted(_folder().glob(f"*.{os.getuid()}")))
    return [claim for claim in found if claim is not None]


def claim_of(worktree: str) -> Claim | None:
    """Return the claim of a worktree; None if it has no number."""
    found = claims(json.dumps(worktree).encode())
    return next((each for each in found if each.worktree == worktree), None)


def _folder() -> Path:
    return Path(os.environ.get(VARIABLE) or FOLDER)


def _read(path: Path, named: bytes) -> Claim | None:
    """Return a claim, if ``named`` is in its text."""
    try:
        if path.lstat().st_uid != os.getuid():
            return None  # Somebody else has put it there.
        text = path.read_bytes()
        return read_claim(text) if named in text else None
    except OSError:
        return None


def read_claim(text: bytes) -> Claim | None:
    """Return the claim that was written as this text; None for any other text."""
    try:
        return from_plain(Claim, json.loads(text.decode()))
    except (*BAD_VALUE, RecursionError):
        return None


def _file(slot: int) -> Path:
    return _folder() / f"{slot}.{os.getuid()}"


def _write(claim: Claim) -> None:
    fresh = _folder() / f"{claim.slot}.{os.getuid()}.new"
    fresh.unlink(missing_ok=True)
    # Nothing that another user has put there is written to.
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(to_plain(claim), file)
        file.flush()
        if claim.world:
            os.fsync(file.fileno())
    fresh.rename(_file(claim.slot))
    if claim.world:
        folder = os.open(_folder(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


# --- numbers -------------------------------------------------------------------------------------


def take(settings: Worktrees, worktree: str, issue_id: str = "") -> Claim:
    """Return the number of a worktree, with its variables for this issue; claim the one that has
    been free for longest if it has none. The caller has ended its last world. Raises ``NoSlot`` and
    ``OSError``."""
    rules = settings.rules.worlds
    _make_folder()
    claim = claim_of(worktree)
    if claim is None:
        for each in claims():  # Projects that are gone, and owe nothing, need none.
            if not (each.world or Path(each.worktree).exists() or Path(each.state).exists()):
                give_up(each)
        claim = _claimed(settings, worktree) or _given_up(settings, worktree)
    now = Claim(
        claim.slot,
        worktree,
        settings.state_directory,
        os.path.normpath(f"{worktree}/{settings.prefix}"),
        rules.variables(claim.slot, worktree, issue_id),
        rules.teardown,
        is_in=rules.is_in(settings.rules.setup),
    )
    if now != claim:
        _write(now)
    return now


def _make_folder() -> None:
    folder = _folder()
    with suppress(FileExistsError):
        folder.mkdir(mode=0o777)
        folder.chmod(0o1777)
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


def _claimed(settings: Worktrees, worktree: str) -> Claim | None:
    """Claim a free number; None if there is none. Raises ``NoSlot`` if only ports are missing."""
    rules, busy = settings.rules.worlds, list[int]()
    first, last = rules.slots
    claimed, freed = set[str](), dict[str, float]()
    with os.scandir(_folder()) as entries:
        for entry in entries:
            slot, dot, owner = entry.name.partition(".")
            if owner.isdigit():  # Else a killed process has not come to claim it.
                claimed.add(slot)
            elif not dot:
                freed[slot] = entry.stat().st_mtime
    free = (number for number in range(first, last + 1) if str(number) not in claimed)
    # Numbers that were in use before come first, so that they stay small.
    for number in sorted(free, key=lambda number: (freed.get(str(number), math.inf), number)):
        with _locked(number) as held:
            if not held or any(_folder().glob(f"{number}.*[0-9]")):
                continue
            if port := _busy_port(rules, number):
                busy.append(port)
                continue
            claim = Claim(number, worktree, settings.state_directory, worktree)
            _write(claim)
            return claim
    if busy:
        what = f"ports are in use: {some([str(port) for port in busy], SHOWN_MAX)}"
        raise NoSlot(f"no slot of {first}-{last} is free; {what}")
    return None


def _busy_port(rules: WorldRules, slot: int) -> int:
    """Return a port of the number that cannot be bound; 0 if all can, or none is named."""
    if not any("{port}" in text for _, text in rules.env):
        return 0
    import socket  # Most projects name no port.

    for port in rules.block(slot):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except (OSError, OverflowError):
                return port
    return 0


def _given_up(settings: Worktrees, worktree: str) -> Claim:
    """Take the number of a worktree that waits: its world is torn down, and made again before it
    goes on. Raises ``NoSlot``."""
    first, last = settings.rules.worlds.slots
    for claim in claims():
        is_ours = claim.state == settings.state_directory or not claim.world
        if not (first <= claim.slot <= last and is_ours) or give_up(claim) is None:
            continue
        if (found := _claimed(settings, worktree)) is not None:
            return found
    raise NoSlot(f"no slot of {first}-{last} is free: see [worktree] slots, and 'doctor'")


def is_busy(claim: Claim) -> bool:
    """Return whether something works, or stands, in the worktree of a claim."""
    with _unused(claim) as now:
        return now is None


@contextmanager
def _unused(claim: Claim, ended: str = "") -> Iterator[Claim | None]:
    """Hold the lock of a number, and yield its claim as it is now; None if that is another one, or
    something works or stands in the worktree. ``ended``: a run whose workers have all ended."""
    # Imported here: most attempts never need another one's number.
    from beads_workers.runtime.occupants import standing
    from beads_workers.worktrees.records import Records

    records = Records(Path(claim.state))
    with _locked(claim.slot) as is_held:
        now = claim_of(claim.worktree) if is_held else None
        if now is None or now.slot != claim.slot:
            yield None
            return
        mine = [each for each in records.all() if each.path == claim.worktree]
        used = (each for each in mine if each.run_id != ended and records.in_use(each))
        is_used = any(used) or any(map(records.is_locked, mine))
        is_there = Path(claim.worktree).exists()
        yield None if is_used or (is_there and standing(claim.worktree)) else now


def give_up(claim: Claim, ended: str = "", *, is_removed: bool = False) -> str | None:
    """Tear down the world of a claim, and free its number; return what went wrong with that, as one
    line, and None if it is used. ``ended``: as for ``_unused``; ``is_removed``: the caller removes
    the worktree, and nothing works there: then raise ``NoSlot`` if somebody else is at it."""
    with held(claim) if is_removed else _unused(claim, ended) as now:
        if now is None:
            return None
        wrong = _torn_down(now)
        _file(now.slot).unlink(missing_ok=True)
        with suppress(OSError):
            os.utime(_folder() / str(now.slot))
        return wrong


@contextmanager
def _locked(slot: int, seconds: float = 0.0) -> Iterator[bool]:
    """Hold the lock of a number; yield False if another process does, for that long."""
    path, until = _folder() / str(slot), time.monotonic() + seconds
    with suppress(FileExistsError):
        made = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
        os.fchmod(made, 0o666)
        os.utime(made, (0, 0))
        os.close(made)
    lock = None
    with suppress(PermissionError):  # Its maker was killed before others could open it.
        while (lock := try_lock(path, create=False)) is None and time.monotonic() < until:
            time.sleep(0.05)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            os.close(lock)


# --- worlds --------------------------------------------------------------------------------------


@contextmanager
def held(claim: Claim) -> Iterator[Claim]:
    """Hold the lock of a number, as a gate does while it runs; yield its claim as it is now. Raises
    ``NoSlot`` if another process is at it, or the number was given up meanwhile."""
    with _locked(claim.slot, LOCK_SECONDS) as is_held:
        now = claim_of(claim.worktree) if is_held else None
        if now is None or now.slot != claim.slot:
            raise NoSlot(f"slot {claim.slot} is in use by another process")
        yield now


def begin(settings: Worktrees, claim: Claim) -> None:
    """Make a debt of the world of a worktree, which the caller then makes. The caller is ``held``.
    Raises ``OSError``."""
    if settings.rules.worlds.has_worlds:
        now = replace(claim, world=os.urandom(8).hex())
        _write(now)
        _note(now, "begun")


def end(worktree: str) -> str:
    """Tear down the world of a worktree, if it has begun; return what went wrong, as one line.
    Raises ``NoSlot`` if another process is at it."""
    claim = claim_of(worktree)
    if claim is None or not claim.world:
        return ""
    with held(claim) as now:
        return _torn_down(now)


def _torn_down(claim: Claim) -> str:
    if not claim.world:
        return ""
    _note(claim, "begun")  # Its maker may have been killed before it could.
    wrong = _ran(claim) if claim.teardown is not None else ""
    _note(claim, "ended", wrong)
    _write(replace(claim, world=""))
    return f"teardown of slot {claim.slot}: {wrong}" if wrong else ""


def _ran(claim: Claim) -> str:
    """Run a tear-down; return why it failed."""
    folder = next((each for each in (claim.folder, claim.state) if Path(each).is_dir()), "/")
    places = {"BW_WORKTREE": claim.worktree, "PWD": folder}
    assert claim.teardown is not None, "it has a line"
    try:
        process = subprocess.Popen(
            ["sh", "-c", claim.teardown],
            cwd=folder,
            env=inherited() | places | dict(claim.variables),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        return os.strerror(error.errno or 0)
    try:
        status = process.wait(TEARDOWN_SECONDS)
    except subprocess.TimeoutExpired:
        return f"it did not end within {TEARDOWN_SECONDS:.0f} s"
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return f"exit status {status}" if status else ""


def _note(claim: Claim, what: str, wrong: str = "") -> None:
    """Note that a world has begun, or ended, once: a killed process may have done so already."""
    about = {"world": claim.world, "what": what, "slot": claim.slot, "worktree": claim.worktree}
    line = json.dumps({**about, **({"error": wrong} if wrong else {})})
    with suppress(OSError), Path(claim.state, LOG).open("a+") as file:
        file.seek(0)
        of_it = f'{{"world": "{claim.world}", "what": "{what}"'
        if not any(each.startswith(of_it) for each in file):
            file.write(f"{line}\n")


def settle(state_directory: str, ended: str = "") -> list[str]:
    """Tear down the worlds of a project that nothing works in; return what went wrong. What another
    process is at is left to it. ``ended``: as for ``_unused``; then the numbers are given up, too,
    if nothing in the worktrees depends on them."""
    wrong = list[str | None]()
    for claim in claims():
        if claim.state != state_directory:
            continue
        if (ended and not claim.is_in) or not Path(claim.worktree).exists():
            wrong.append(give_up(claim, ended))
        elif claim.world:
            with _unused(claim, ended) as now:
                wrong.append(_torn_down(now) if now is not None else None)
    return [each for each in wrong if each]


if __name__ == "__main__":
    print("\n".join(settle(*sys.argv[1:3])))
