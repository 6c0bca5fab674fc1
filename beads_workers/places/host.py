"""An attempt on a host: a worker of ours with one task, run by the attempt's guard.

``install`` runs first, from the parcel with the package; then ``main``, in the attempt's folder.
``files/order.json`` is what ``away`` has made of the task. Standard output has lines of JSON: a
``progress``, and at the end the ``answer`` of the worker; standard error is the attempt's log.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from beads_workers.runtime.locks import alone, is_locked, try_lock

ORDER, COPIES, WORK = "order.json", "copies.tar", "work.pack"
RESULT, USAGE = "result.json", "usage.jsonl"
"""Files of an attempt: what it is to do, what ``copy`` names; the commits that it has made, a
result that is too long for a line, and its usage so far."""
ENVIRONMENT_CFG = "home = {}\ninclude-system-site-packages = false\nversion = {}.{}.{}\n"
LINE_BYTES_MAX = 256 << 10
"""Bytes of the longest TASK that is sent in one line."""
LOOK_SECONDS = 0.2
KEPT_WORKTREES = 16
"""Worktrees of a host beside those in use, the newest, in which an attempt may be continued."""


def install() -> None:
    """Unpack the package beside its parcel, as the only one of a virtual environment, and run
    ``main`` there: so each program of ours finds it, and no program of the attempt does."""
    parcel = Path(sys.argv[0])
    place = parcel.with_name(f"{parcel.name}.python")
    with alone(Path(f"{place}.lock")):
        if not place.exists():
            _unpack(parcel, place)
    program = str(place / "bin" / "python3")
    os.execv(program, [program, "-P", "-m", "beads_workers.places.host"])


def _unpack(parcel: Path, place: Path) -> None:
    import zipfile  # Once for each version on a host.

    part = Path(f"{place}.part")
    shutil.rmtree(part, ignore_errors=True)
    version = sys.version_info[:3]
    packages = part / "lib" / "python{}.{}".format(*version) / "site-packages"
    packages.mkdir(parents=True)
    (part / "bin").mkdir()
    (part / "bin" / "python3").symlink_to(sys.executable)
    (part / "pyvenv.cfg").write_text(
        ENVIRONMENT_CFG.format(os.path.dirname(sys.executable), *version)  # noqa: PTH120
    )
    with zipfile.ZipFile(parcel) as packed:
        packed.extractall(packages)
    part.rename(place)


def main() -> int:
    """Run the attempt: see the module text. Return 0, or 1 if it has no answer."""
    folder = Path.cwd()
    order = json.loads((folder / "files" / ORDER).read_bytes())
    from beads_workers.core.base.plain import from_plain
    from beads_workers.core.base.settings import WorkerSettings

    settings = from_plain(WorkerSettings, order["settings"])
    base = folder.parents[1]
    if settings.work.worktrees is not None:
        _prepare_repository(base, order)
    settings = _at_home_here(settings, base, folder)
    Path(settings.project).mkdir(0o700, parents=True, exist_ok=True)
    answer = _work(settings, order["task"])
    if answer is None:
        return 1
    receipt = answer.get("receipt")
    if isinstance(receipt, dict) and receipt.get("head") and settings.work.worktrees is not None:
        _pack(settings.work.worktrees.common, receipt, order["commits"], folder)
    if file := answer.get("result_file"):
        shutil.copyfile(file, folder / "files" / RESULT)
    _say({"answer": answer})
    return 0


def _say(fields: Mapping[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(fields)}\n")
    sys.stdout.flush()


# --- the repository ------------------------------------------------------------------------------


def _prepare_repository(base: Path, order: Mapping[str, Any]) -> None:
    """Take in the commits that were sent, in the one repository of this fleet here."""
    from beads_workers.places.parcel import store, take_in
    from beads_workers.worktrees.git import OWN_REFS, git

    base = base / "repository"
    common = str(base)
    with alone(Path(f"{common}.lock")):
        if not base.exists():
            git(str(base.parent), "init", "--quiet", "--bare", f"{common}.part")
            Path(f"{common}.part").rename(base)
        for name, value in order["identity"].items():
            git(common, "config", name, value)
        taken = base / "beads-workers.packs"
        known = taken.read_text().split() if taken.exists() else []
        for pack in order["packs"]:
            if pack not in known:
                store(common, (base.parent / "parcels" / pack).read_bytes())
                known.append(pack)
        for commit in order["commits"]:
            take_in(common, b"", f"{OWN_REFS}/parcels/{commit}", commit)
        taken.write_text("\n".join(known))
        for name, commit in order["branches"].items():
            git(common, "update-ref", f"refs/heads/{name}", commit)


def _pack(common: str, receipt: Mapping[str, Any], sent: list[str], folder: Path) -> None:
    """Pack the commits that the attempt has made: home has all others."""
    from beads_workers.places.parcel import pack_of

    asked = [str(receipt["head"]), *(f"^{commit}" for commit in sent)]
    (folder / "files" / WORK).write_bytes(pack_of(common, "".join(f"{a}\n" for a in asked)))


def _forget_old_runs(runs: Path) -> None:
    """Remove the folders of attempts that are over: each is a run of its own here."""
    for each in runs.iterdir():
        if not is_locked(each / "alive"):
            shutil.rmtree(each, ignore_errors=True)


def _forget_old_worktrees(state: str) -> None:
    """Remove the oldest worktrees that nobody uses: their branches are at home."""
    from beads_workers.worktrees.records import Records
    from beads_workers.worktrees.removal import Survey, remove

    records = Records(Path(state))
    survey = Survey(records, thorough=False)
    unused = [each for each in records.all() if not records.in_use(each)]
    unused.sort(key=records.written_at)
    for each in unused[:-KEPT_WORKTREES]:
        remove(records, survey.look(each), waits=True)


# --- the worker ----------------------------------------------------------------------------------


def _at_home_here(settings: Any, base: Path, folder: Path) -> Any:
    """Return the settings with the paths of this host: each path of home is a field of them."""
    run = base / "state" / "runs" / settings.run_id
    run.parent.mkdir(0o700, parents=True, exist_ok=True)
    with alone(base / "runs.lock"):
        _forget_old_runs(run.parent)
        run.mkdir(0o700)
        # As a run of the fleet, so that whoever looks finds its worktree in use.
        try_lock(run / "alive")
    worktrees = settings.work.worktrees
    if worktrees is not None:
        repository, state = str(base / "repository"), str(base / "state")
        _forget_old_worktrees(state)
        rules = worktrees.rules
        if (folder / "files" / COPIES).exists():
            unpack = f"tar -xpkf '{folder}/files/{COPIES}'"
            rules = replace(rules, setup=f"{unpack}; {rules.setup}" if rules.setup else unpack)
        worktrees = replace(
            worktrees,
            checkout=repository,
            common=repository,
            folder=str(base / "worktrees"),
            state_directory=state,
            rules=replace(rules, copy=()),
        )
    return replace(
        settings,
        run_directory=str(run),
        project=str(base / "project"),
        work=replace(settings.work, worktrees=worktrees),
    )


def _work(settings: Any, task_line: str) -> dict[str, Any] | None:
    """Be the orchestrator of one worker, for one task; return its DONE or FAILED as JSON."""
    from beads_workers.core.base import wire
    from beads_workers.executors.command import step_modules
    from beads_workers.executors.files import log_file, output_file, usage_file
    from beads_workers.runtime import warm_steps

    warm_steps.load(step_modules(settings.work))
    task = wire.parse(task_line.encode())
    assert isinstance(task, wire.Task)
    if len(task_line) > LINE_BYTES_MAX:
        file = Path.cwd() / "files" / "payload.json"
        file.write_text(json.dumps(task.payload))
        task = replace(task, payload={}, payload_file=str(file))
    usage = Path(usage_file(settings.run_directory, task.request_id))
    usage.parent.mkdir(0o700, exist_ok=True)
    usage.touch(0o600)
    with contextlib.suppress(OSError):  # Home reads it if the attempt cannot report it.
        os.link(usage, Path.cwd() / "files" / USAGE)
    run, worker = settings.run_directory, settings.worker_id
    log = _Log(log_file(run, task.issue_id, task.attempt), output_file(run, worker))
    connection, pid = _forked(settings)

    def end(number: int, frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    signal.signal(signal.SIGTERM, end)
    told = wire.encode(task, worker, time.time(), v1=False)
    leave = wire.encode(wire.Shutdown("idle_timeout"), worker, 0.0, v1=False)
    try:
        return _conversation(connection, told, leave, log)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        log.copy()


def _forked(settings: Any) -> tuple[socket.socket, int]:
    """Fork the worker; return the connection to it, and its pid."""
    from beads_workers.runtime.worker import run_worker

    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        status = 1
        try:
            status = run_worker(settings, (), lambda: theirs)
        finally:
            os._exit(status)
    theirs.close()
    return ours, pid


def _conversation(
    connection: socket.socket, task: bytes, leave: bytes, log: _Log
) -> dict[str, Any] | None:
    connection.settimeout(LOOK_SECONDS)
    unread = b""
    while True:
        try:
            data = connection.recv(1 << 16)
        except TimeoutError:
            log.copy()
            continue
        if not data:
            return None
        *lines, unread = (unread + data).split(b"\n")
        for said in map(json.loads, lines):
            if said["type"] == "READY":
                connection.sendall(task)
                task = b""
            elif said["type"] in ("DONE", "FAILED"):
                with contextlib.suppress(OSError):  # It has left by itself.
                    connection.sendall(leave)
                return dict(said)
            elif said["type"] == "PROGRESS":
                _say({"progress": said})


class _Log:
    """Copies what is added to the log of the attempt, and to that of its running step before."""

    def __init__(self, log: str, output: str) -> None:
        self._paths = (log, output)
        self._inode = 0
        self._at = 0
        with contextlib.suppress(OSError):
            # A free retry adds to the log of the try before.
            found = os.stat(log)  # noqa: PTH116
            self._inode, self._at = found.st_ino, found.st_size

    def copy(self) -> None:
        """Write what is new to standard error."""
        for path in self._paths:
            try:
                file = open(path, "rb")  # noqa: SIM115
            except OSError:
                continue
            with file:
                found = os.fstat(file.fileno())
                if found.st_ino != self._inode:
                    self._inode, self._at = found.st_ino, 0
                self._at = min(self._at, found.st_size)
                file.seek(self._at)
                shutil.copyfileobj(file, sys.stderr.buffer)
                self._at = file.tell()
            sys.stderr.buffer.flush()
            return


if __name__ == "__main__":
    sys.exit(main())
