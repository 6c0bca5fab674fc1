"""Folders of a run: the run directory, /tmp, and what crashed runs left there.

Nothing is changed: tests use a file without a name, or a socket that is removed at once.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shlex
import socket
from collections.abc import Sequence
from pathlib import Path

from beads_workers.checks.machine import nearest
from beads_workers.checks.rules import Check, fail, ok, warn
from beads_workers.core.base.text import counted
from beads_workers.core.records.journal import decode
from beads_workers.core.views.recovery import RecoveryState
from beads_workers.exits import EXIT_USAGE
from beads_workers.runtime import sessions
from beads_workers.runtime.journal_file import segments
from beads_workers.runtime.kernel import system
from beads_workers.runtime.result_spool import replay_results
from beads_workers.runtime.run_directory import SOCKET_PATH_MAX, RunDirectory
from beads_workers.runtime.sockets import dead_sockets
from beads_workers.runtime.trust import PROBE, Untrusted, check_state
from beads_workers.worktrees.tracked_state import check_untracked

TMP = Path("/tmp")
"""Folder of worker sockets, as the protocol demands, regardless of TMPDIR."""


def state(root: Path) -> Check:
    """Check the run directory: ours, writable, with locks and sockets."""
    there = nearest(root)
    quoted = shlex.quote(str(there))
    elsewhere = 'beads-workers start --state-dir "$HOME/.local/state/beads-workers/here"'
    if (error := _unreachable(root)) is not None:
        return fail("state", f"{root}: {error.strerror}", elsewhere)
    if not there.is_dir():
        return fail("state", f"{there} is in the way: it is no folder", f"mv {quoted} {quoted}.old")
    if there == root and (owner := there.stat().st_uid) != os.geteuid():
        chown = f'sudo chown -R "$(id -un)" {quoted}'
        text = f"{root} belongs to another user (uid {owner})"
        return fail("state", text, chown, exit_code=EXIT_USAGE)
    try:
        check_state(root, Path.cwd())
        check_untracked(root)
    except Untrusted as planted:
        return fail("state", str(planted), "", planted.hint, EXIT_USAGE)
    if (trouble := trouble_in(there)) is not None:
        can_help = trouble.errno in (errno.EACCES, errno.EPERM)
        remedy = f"chmod u+rwx {quoted}" if can_help and _is_ours(there) else elsewhere
        return fail("state", f"{there}: {_error_text(trouble)}", remedy)
    return _control_socket(root) or ok(
        "state", f"{root}{'' if there == root else ' (not made yet)'}"
    )


def _unreachable(root: Path) -> OSError | None:
    try:
        root.stat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None  # Missing folders may be made; other checks report what is in the way.
    except OSError as error:
        return error
    return None


def owed(state: Path) -> list[Check]:
    """Name the worlds of worktrees that nothing works in and that are not torn down."""
    from beads_workers.worktrees import slots  # Only the doctor asks.

    found = [claim for claim in slots.claims() if claim.world and not slots.is_busy(claim)]
    return [
        warn(
            "slots",
            f"slot {claim.slot}: what {claim.worktree} has outside is not torn down",
            "beads-workers clean" + ("" if claim.state == str(state) else f" --slot {claim.slot}"),
        )
        for claim in found
    ]


def sockets() -> Check:
    """Check /tmp: worker sockets are bound there, and programs write there."""
    if not TMP.is_dir() or (trouble := trouble_in(TMP)) is not None:
        what = _error_text(trouble) if TMP.is_dir() and trouble else "is not there"
        return fail("sockets", f"{TMP}: {what}", f"sudo mkdir -p {TMP} && sudo chmod 1777 {TMP}")
    try:
        also = "" if (folder := _temporary()) == TMP else f"; temporary files go to {folder}"
    except FileNotFoundError as error:
        return fail("sockets", f"no folder for temporary files: {error}", "unset TMPDIR")
    return ok("sockets", f"{TMP} is writable and binds sockets{also}")


def _temporary() -> Path:
    if not any(os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP")):
        return TMP
    import tempfile  # Loading it costs more than all other checks of a start.

    return Path(tempfile.gettempdir())


def living(root: Path) -> Check | None:
    """Report a fleet that runs here; None without one."""
    directory = RunDirectory(root)
    if not directory.is_locked():
        return None
    info = directory.read_info()
    who = f"pid {info.pid}, run {info.run_id}" if info else "it is just starting"
    return ok("fleet", f"one is running here: {who}")


def elsewhere(tracker_folder: Path) -> Check | None:
    """Warn of an orchestrator with another run directory on this tracker; None without one."""
    # An orchestrator keeps the folder open for its lock. Trying the lock could disturb a start.
    pids = [process.pid for process in sessions.owners(tracker_folder)]
    pids = [pid for pid in pids if sessions.is_orchestrator(pid)]
    if not pids:
        return None
    text = f"an orchestrator with another run directory (pid {pids[0]}) works on this tracker"
    return warn("fleet", text, f"ps -fp {pids[0]}")


def leftovers(root: Path, typed: str = "") -> list[Check]:
    """Report what crashed runs left: pending writes, processes, sockets.

    ``typed``: the --state-dir that was typed.
    """
    directory = RunDirectory(root)
    info = directory.read_info() if directory.is_locked() else None
    running = info.run_id if info else ""
    unsettled = [left for left in directory.left_over()[0] if left.run_id != running]
    found = [check for left in unsettled for check in _of_run(directory, left, typed)]
    found += [
        c
        for run in _dead_but_settled(directory, unsettled, running)
        if (c := _processes(directory, run))
    ]
    if dead := dead_sockets():
        names = ", ".join(path.name for path in dead[:2]) + (", ..." if len(dead) > 2 else "")
        text = f"{counted(len(dead), 'socket')} in {TMP} of orchestrators that are gone: {names}"
        remedy = "rm -f " + " ".join(shlex.quote(str(path)) for path in dead)
        found.append(
            warn("leftovers", text, remedy if len(remedy) < 400 else "beads-workers clean")
        )
    return found or [ok("leftovers", "crashed runs left nothing")]


def last_seen(root: Path) -> float | None:
    """Return the time of the last run's last record, in seconds since 1970; None without one."""
    directory = RunDirectory(root)
    for run_id in reversed(directory.run_ids()):
        if (at := _last_record(directory.run(run_id) / "journal.jsonl")) is not None:
            return at
    return None


LAST_BYTES = 1 << 16
"""Size that holds the last whole line of a journal, unless that line is very long."""


def _last_record(journal: Path) -> float | None:
    lines = []
    for segment in segments(journal)[-1:]:
        try:
            with segment.open("rb") as file:
                file.seek(max(0, segment.stat().st_size - LAST_BYTES))
                lines = file.read().splitlines()
        except OSError:
            return None
    for line in reversed(lines):
        if (entry := decode(line)) is not None:
            return entry.at
    return None


def _of_run(directory: RunDirectory, left: RecoveryState, typed: str) -> list[Check]:
    replay_results(left, directory.run(left.run_id))
    count = len(left.unclosed)
    pending = f" ({counted(count, 'issue')} done but unclosed)" if count else ""
    text = f"run {left.run_id} ended without settling{pending}; the next start does it"
    found = [warn("leftovers", text, f"beads-workers start{typed} -n 0 --idle-timeout 1s -- true")]
    if (processes := _processes(directory, left.run_id)) is not None:
        found.append(processes)
    if left.last_call and sessions.lives(*left.last_call):
        pid = left.last_call[0]
        text = f"a bd (pid {pid}) of run {left.run_id} still runs; the next start waits for it"
        found.append(warn("leftovers", text, f"tail --pid={pid} -f /dev/null"))
    return found


def _dead_but_settled(
    directory: RunDirectory, unsettled: Sequence[RecoveryState], running: str
) -> list[str]:
    asked = {running, *(left.run_id for left in unsettled)}
    return [run for run in directory.run_ids() if run not in asked and directory.is_alive(run)]


def _processes(directory: RunDirectory, run_id: str) -> Check | None:
    pids = set(sessions.token_holders(run_id))
    alive = directory.run(run_id) / "alive"
    if directory.is_alive(run_id):
        pids |= {process.pid for process in sessions.owners(alive)}
    if not pids:
        return None
    named = " ".join(map(str, sorted(pids)))
    living = counted(len(pids), "process", "processes")
    text = f"{living} of the crashed run {run_id} still live: {named}"
    return warn("leftovers", text, f"kill {named}")


def trouble_in(folder: Path) -> OSError | None:
    """Return the error if files cannot be made and locked, or sockets bound, in a folder."""
    try:
        _try_file(folder)
        _try_socket(folder)
    except OSError as error:
        return error
    return None


def _try_file(folder: Path) -> None:
    try:
        fd = system.unnamed_file(folder)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            raise
        import tempfile

        with tempfile.TemporaryFile(dir=folder) as file:  # On network file systems.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(fd)


def _try_socket(folder: Path) -> None:
    name = f"{PROBE}{os.getpid()}-{secrets.token_hex(4)}"
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            # Through the descriptor, because the folder's own path may be too long for a socket.
            probe.bind(system.path_in(fd, name))
            os.unlink(name, dir_fd=fd)
    finally:
        os.close(fd)


def _control_socket(root: Path) -> Check | None:
    """Check the folder in /tmp for a control socket whose own path is too long."""
    if len(os.fsencode(root / "control.sock")) <= SOCKET_PATH_MAX:
        return None
    folder = TMP / f"beads-workers-{os.getuid()}"
    if not folder.exists():
        return ok("state", f"{root} (a long path: the control socket goes to {folder})")
    status = folder.lstat()
    if status.st_uid != os.getuid():
        return fail("state", f"{folder} belongs to another user", f"sudo rm -r {folder}")
    if status.st_mode & 0o077:
        return fail("state", f"{folder} is open to others", f"chmod 700 {folder}")
    return ok("state", f"{root} (a long path: the control socket is in {folder})")


def _is_ours(folder: Path) -> bool:
    return folder.stat().st_uid == os.geteuid()


def _error_text(error: OSError) -> str:
    if error.errno == errno.EROFS:
        return "the file system is read-only"
    return f"files, locks or sockets cannot be made there ({error.strerror})"
