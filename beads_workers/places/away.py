"""The program of an attempt that runs on another machine: at home it waits, and brings the work.

A worker starts it with its task on stdin; it prints progress and one answer, as an agent's attempt
does (``core.records.assignment``). It speaks to ``places.line`` on a Unix socket, in lines of JSON:

    {"place": {...}}            -> {"placed": {...}} or {"failed": why}
    {"ask": WORD}               -> {"answer": {...}}, of the host's relay
    {"begin": {...}}            -> {"out": [..., ...]} as it comes, and {"ended": {...}}
    {"attach": {...}}           -> likewise, of an attempt that has begun
    {"end": true}

The work is here, checked, before it answers that it is done.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from beads_workers.core.base import wire
from beads_workers.core.base.model import OutcomeKind
from beads_workers.core.base.plain import from_plain, to_plain
from beads_workers.core.base.settings import Work, WorkerSettings, Worktrees
from beads_workers.core.records.journal import Leased
from beads_workers.executors.command import AWAY_MODULE
from beads_workers.executors.files import (
    branch_part,
    file_name,
    log_file,
    result_file,
    usage_file,
)
from beads_workers.places import parcel
from beads_workers.places.host import COPIES, ORDER, RESULT, USAGE, WORK
from beads_workers.runtime.kernel import system
from beads_workers.worktrees import git
from beads_workers.worktrees.git import BRANCHES, GitError
from beads_workers.worktrees.landed import ATTEMPTS
from beads_workers.worktrees.making import base_of
from beads_workers.worktrees.places import cache_folder
from beads_workers.worktrees.records import Records, WorktreeRecord, new_token

CONNECT_SECONDS = 20.0
"""Time in which the line's process is started, or started again."""
TRIES_MAX, TRY_AGAIN_SECONDS = 3, 0.5
PIECE_BYTES = 256 << 10
OVERLAP_BYTES = 200
WORK_BYTES_MAX = 1 << 30
"""Bytes of the commits of one attempt, or of another file that it sends home."""

Json = dict[str, Any]


class AwayFailed(Exception):
    """The attempt came to nothing on its host, through no fault of the issue; the text is why."""


class LineToPlace:
    """A connection to the process that speaks to hosts; raises ``AwayFailed`` if it is gone."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        folder, name = os.path.split(path)
        os.makedirs(folder, 0o700, exist_ok=True)  # noqa: PTH103
        here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        until = time.monotonic() + CONNECT_SECONDS
        try:
            while not self._connects(system.path_in(here, name)):
                if time.monotonic() > until:
                    raise AwayFailed(f"nobody speaks to its place: {path}")
                time.sleep(0.1)
        finally:
            os.close(here)
        self._lines = self._socket.makefile("rb")
        self._busy = self._asked_to_end = False

    def _connects(self, path: str) -> bool:
        try:
            self._socket.connect(path)
        except OSError:
            return False
        return True

    def say(self, fields: Mapping[str, Any]) -> None:
        """Send a line."""
        self._busy = True
        try:
            self._socket.sendall(json.dumps(fields).encode() + b"\n")
        except OSError as error:
            raise AwayFailed(f"the line to its place is gone: {error.strerror}") from None
        finally:
            self._busy = False
        if self._asked_to_end:
            self.end()

    def end(self) -> None:
        """Have the attempt ended; may be called by a signal's handler."""
        self._asked_to_end = True
        if not self._busy:
            self._asked_to_end = False
            self.say({"end": True})

    def hear(self) -> Json:
        """Return the next line."""
        line = self._lines.readline()
        if not line:
            raise AwayFailed("the line to its place is gone")
        said: Json = json.loads(line)
        return said

    def ask(self, word: Mapping[str, Any]) -> Json:
        """Return the host's answer to a word."""
        self.say({"ask": word})
        while "answer" not in (said := self.hear()):
            pass
        answer: Json = said["answer"]
        if why := answer.get("why"):
            raise AwayFailed(str(why))
        return answer


# --- there ---------------------------------------------------------------------------------------


RUN = (
    'P=$1.python/bin/python3; [ -x "$P" ] || exec "$0" -I "$1";'
    ' exec "$P" -P -m beads_workers.places.host'
)
"""What a host runs: the package where it is unpacked, else its parcel (``host.install``)."""
NO_PATHS = dict.fromkeys(("checkout", "common", "folder", "state_directory", "remote", "on"), "")


def order_of(task: wire.Task, settings: WorkerSettings, nonce: str, host: str, cache: Path) -> Json:
    """Return what the host is told of a task; raises ``GitError`` and ``OSError``.

    Nothing in it is a path of home, a socket, or the tracker.
    """
    work = settings.work
    order: Json = {"task": wire.encode(task, settings.worker_id, 0.0, v1=False).decode()}
    worktrees = work.worktrees
    if worktrees is not None:
        base = base_of(worktrees)
        earlier = _earlier(worktrees, task)
        order["commits"] = [base, *earlier.values()]
        order["branches"] = earlier
        order["packs"] = [p.name for p in parcel.packs(cache, worktrees.common, order["commits"])]
        name, email = git.author(worktrees.checkout)
        order["identity"] = {"user.name": name, "user.email": email}
        worktrees = replace(
            worktrees,
            **NO_PATHS,  # type: ignore[arg-type]
            base=base,
            base_else="",
            beads=None,
            reuse=0,
            rules=replace(worktrees.rules, pool=0),
        )
    there = replace(
        settings,
        # What sweeps a run must not meet another one's attempts, nor we these, if a host is here.
        run_id=f"{settings.run_id}-{nonce[:8]}",
        socket_path="",
        project="",
        run_directory="",
        actor="",
        orchestrator_pid=0,
        secrets=(),
        host=host_of(settings.place.name if settings.place else "", host),
        place=None,
        work=_work_there(work, worktrees),
    )
    return {**order, "settings": to_plain(there)}


def _by_name(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command without the place at home of a program that is found by its name."""
    name = os.path.basename(argv[0]) if argv else ""  # noqa: PTH119
    return (name, *argv[1:]) if name and shutil.which(name) == argv[0] else argv


def _work_there(work: Work, worktrees: Worktrees | None) -> Work:
    return replace(
        work,
        worktrees=worktrees,
        agents=tuple(replace(each, argv=_by_name(each.argv)) for each in work.agents),
        review=replace(work.review, argv=_by_name(work.review.argv)) if work.review else None,
        command=_by_name(work.command) if work.command else work.command,
        hidden_variables=(),
    )


def _earlier(worktrees: Worktrees, task: wire.Task) -> dict[str, str]:
    """Return the branches, and their commits, with which the attempt goes on."""
    fields = task.payload.get("agent")
    earlier = fields.get("earlier") if isinstance(fields, Mapping) else None
    if not isinstance(earlier, Mapping):
        return {}
    branch, head = str(earlier.get("branch", "")), str(earlier.get("head", ""))
    known = (
        parcel.has_commit(worktrees.common, head)
        if re.fullmatch("[0-9a-f]{40,64}", head)
        else False
    )
    return {branch: head} if branch and known else {}


def send(line: LineToPlace, path: Path) -> None:
    """Send a parcel that the host does not have."""
    if not line.ask({"have": path.name})["have"]:
        data = path.read_bytes()
        for at, piece in _pieces(data):
            last = at + PIECE_BYTES >= len(data)
            line.ask({"store": path.name, "at": at, "data": piece, "last": last})


def _pieces(data: bytes) -> Iterator[tuple[int, str]]:
    for at in range(0, max(1, len(data)), PIECE_BYTES):
        yield at, base64.b64encode(data[at : at + PIECE_BYTES]).decode()


def begin(line: LineToPlace, task: wire.Task, settings: WorkerSettings) -> Json:
    """Have the attempt placed, send what it needs, and let it begin; return what was placed."""
    place = settings.place
    assert place is not None, "it is one of a place"
    ids = {"issue_id": task.issue_id, "attempt": task.attempt, "request_id": task.request_id}
    line.say({"place": ids})
    while "placed" not in (said := line.hear()):
        if "failed" in said:
            raise AwayFailed(str(said["failed"]))
    placed: Json = said["placed"]
    cache = cache_folder("parcels")
    package = parcel.package(cache)
    mine = cache / placed["fleet"]
    order = order_of(task, settings, placed["nonce"], placed["host"], mine)
    send(line, package)
    for pack in order.get("packs", ()):
        send(line, mine / pack)
    worktrees = settings.work.worktrees
    if worktrees is not None and (copies := parcel.copies(mine, worktrees)) is not None:
        send(line, copies)
        line.ask({"put": COPIES, "parcel": copies.name})
    for at, piece in _pieces(json.dumps(order).encode()):
        line.ask({"put": ORDER, "at": at, "data": piece})
    program = ["sh", "-c", RUN, placed["python"], f"{placed['base']}/parcels/{package.name}"]
    grace = settings.work.term_grace_seconds
    line.say({"begin": {"argv": program, "env": {}, "grace": grace}})
    return placed


# --- and back ------------------------------------------------------------------------------------


class OutputWatch:
    """Passes on what an attempt prints there, until it has ended."""

    def __init__(self, line: LineToPlace, log: str = "") -> None:
        """``log``: has what somebody else has passed on before."""
        self._line = line
        self._known = Path(log).read_bytes() if log else b""
        self._unread = b""
        self.answer: Json | None = None
        """DONE or FAILED of the worker there."""

    def run(self) -> Json:
        """Return how the guard says that it ended."""
        while True:
            said = self._line.hear()
            if "out" in said:
                out, log = map(base64.b64decode, said["out"])
                self._pass_on(log)
                *lines, self._unread = (self._unread + out).split(b"\n")
                for line in lines:
                    self._read(line)
            elif "failed" in said:
                raise AwayFailed(str(said["failed"]))
            elif "ended" in said:
                ended: Json = said["ended"]
                return ended

    def _pass_on(self, log: bytes) -> None:
        if (known := self._known) and log:  # What comes first is the beginning.
            at = known.rfind(log[:OVERLAP_BYTES])
            self._known = b""
            log = log[len(known) - at :] if at >= 0 and log.startswith(known[at:]) else log
        sys.stderr.buffer.write(log)
        sys.stderr.buffer.flush()

    def _read(self, line: bytes) -> None:
        match _parsed(line):
            case {"progress": dict() as progress}:
                _say({"progress": progress})
            case {"answer": dict() as answer}:
                self.answer = answer


def fetch(line: LineToPlace, name: str) -> bytes:
    """Return a file of the attempt; raises ``AwayFailed``."""
    data = b""
    while True:
        answer = line.ask({"get": name, "at": len(data)})
        piece = base64.b64decode(answer["data"])
        data += piece
        if not piece or len(data) >= answer["size"]:
            return data
        if len(data) > WORK_BYTES_MAX:
            raise AwayFailed(f"{name} is longer than {WORK_BYTES_MAX} bytes")


def brought(line: LineToPlace, said: Json, common: str, run: str, lease: Leased) -> Json:
    """Return an answer as it may be given at home: its work is here. Raises ``GitError``."""
    message = wire.parse(json.dumps(said).encode())
    if not isinstance(message, wire.Done | wire.Failed):
        raise AwayFailed("its host answers neither DONE nor FAILED")
    receipt = dict(message.receipt) if message.receipt is not None else None
    if receipt is not None:
        receipt["host"] = host_of(lease.place, lease.host)
        if receipt.get("head"):
            _take_in(line, common, Path(run), lease, receipt)
    if isinstance(message, wire.Failed):
        return {
            "outcome": message.outcome.value,
            "error": message.error,
            "receipt": receipt,
            "unprepared": message.error_detail == wire.CANNOT_PREPARE,
            "retry_after_seconds": message.retry_after_seconds,
        }
    answer = {"outcome": OutcomeKind.SUCCESS.value, "error": "", "receipt": receipt}
    if message.result_file:
        path = Path(result_file(run, lease.issue_id, lease.attempt))
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        path.write_bytes(fetch(line, RESULT))
        return {**answer, "result_file": str(path)}
    return {**answer, "result": message.result}


def host_of(place: str, host: str) -> str:
    """Return the name of a host in a receipt, by which a session is found again."""
    return f"{place}/{host}"


def _take_in(line: LineToPlace, common: str, run: Path, lease: Leased, receipt: Json) -> None:
    """Take in the branch of an attempt, with a record of ours: it goes when its work has landed."""
    branch, head = _branch(lease.issue_id, receipt), _object(receipt["head"])
    work = fetch(line, WORK)
    for last in (*[False] * (TRIES_MAX - 1), True):
        try:
            parcel.take_in(common, work, f"refs/heads/{branch}", head)
            break
        except GitError:
            if last:
                raise
            time.sleep(TRY_AGAIN_SECONDS)
    kept_at = f"{ATTEMPTS}/{branch_part(lease.issue_id)}/{lease.attempt}"
    git.git(common, "update-ref", kept_at, head)
    records = Records(run.parents[1])
    name = f"{file_name(lease.issue_id)}.{branch.rpartition('/')[2]}"
    record = WorktreeRecord(
        name,
        lease.issue_id,
        lease.attempt,
        branch,
        str(receipt.get("base", "")),
        f"{run.parents[1]}/away/{name}",  # No folder here: git knows only the branch.
        common,
        run.name,
        "",
        new_token(),
    )
    os.close(records.begin(record))
    records.ready(record)


def _branch(issue_id: str, receipt: Json) -> str:
    """Return the branch that a receipt names, if it is one of this issue's attempts."""
    branch = str(receipt.get("branch", ""))
    if not re.fullmatch(rf"{BRANCHES}/{re.escape(branch_part(issue_id))}/[0-9.]+", branch):
        raise AwayFailed(f"its host names a branch that is not the issue's: {branch[:100]}")
    return branch


def _object(name: Any) -> str:
    if not isinstance(name, str) or not re.fullmatch("[0-9a-f]{40,64}", name):
        raise AwayFailed("its host names a commit that is none")
    return name


# --- the program ---------------------------------------------------------------------------------


def main() -> int:
    """Run the step: see the module text. Return 0; a failure is in the answer."""
    given = json.loads(sys.stdin.read())
    try:
        _say({"answer": _attempt(given)})
    except (AwayFailed, GitError, OSError, ValueError) as error:
        _say({"answer": _nothing(str(error) or type(error).__name__)})
    return 0


def _nothing(why: str) -> Json:
    retry = OutcomeKind.RETRY.value
    return {"outcome": retry, "error": why, "receipt": None, "nothing": True}


def _attempt(given: Json) -> Json:
    line = LineToPlace(given["line"])
    with _ended_by_term(line.end):
        if (placed := given.get("attach")) is not None:
            line.say({"attach": placed})
            common, run = str(given["common"]), str(given["run"])
        else:
            task = wire.parse(given["task"].encode())
            assert isinstance(task, wire.Task), "it is a worker's"
            settings = from_plain(WorkerSettings, given["settings"])
            worktrees, run = settings.work.worktrees, settings.run_directory
            common = worktrees.common if worktrees is not None else ""
            placed = begin(line, task, settings)
        watch = OutputWatch(line, str(given.get("log", "")))
        ended = watch.run()
        lease = from_plain(Leased, placed)
        if watch.answer is None or "attach" in given:
            with suppress(AwayFailed, OSError):
                _keep_usage(line, usage_file(run, lease.request_id))
        if watch.answer is None:
            return _nothing(f"on {lease.host}: {ended.get('why') or 'it ended'}")
        return brought(line, watch.answer, common, run, lease)


def _keep_usage(line: LineToPlace, path: str) -> None:
    """Keep the usage of an attempt that could not report it: whoever asks reads it here."""
    data = fetch(line, USAGE)
    Path(path).parent.mkdir(0o700, parents=True, exist_ok=True)
    Path(path).write_bytes(data)


async def fetched(socket_path: str, runs: str, common: str, lease: Leased) -> Json | None:
    """Return the answer of an attempt that has ended, brought by this program in the place of a
    worker; None if it has none."""
    run = f"{runs}/{lease.request_id.rpartition('.')[0]}"
    log = log_file(run, lease.issue_id, lease.attempt)
    fields = {"line": socket_path, "attach": to_plain(lease), "run": run, "common": common}
    fields["log"] = log
    with open(log, "ab", opener=_private) as file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", AWAY_MODULE),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=file,
        )
        out, _ = await process.communicate(json.dumps(fields).encode())
    answers = [row["answer"] for row in map(_parsed, out.splitlines()) if row and "answer" in row]
    return None if not answers or answers[-1].get("nothing") else answers[-1]


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


@contextmanager
def _ended_by_term(end: Callable[[], None]) -> Iterator[None]:
    def handle(number: int, frame: object) -> None:
        with suppress(AwayFailed):
            end()

    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _say(fields: Mapping[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(fields)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
