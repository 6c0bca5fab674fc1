"""``watch --web`` and ``start --web``: the live page of a run directory, for all its runs.

The server has its own process and is a client of the fleet like ``watch``. It has one connection,
and only while somebody looks. Ended attempts come from the journal, which costs the fleet nothing.
Run as a program, this module is the server of ``start --web``.

There is one server for a run directory. It writes its address to ``web.json``, readable by the
owner only, and holds a lock on that file. The next server has its own token, but takes the same
port and key, so that an open page goes on (``ui.web_resumption``).
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beads_workers.cli.client import connect
from beads_workers.cli.errors import CommandError
from beads_workers.cli.layout import LaidOut
from beads_workers.cli.person import signed
from beads_workers.exits import EXIT_USAGE
from beads_workers.runtime.locks import is_locked, try_lock
from beads_workers.runtime.within_attempt import is_reached_from

if TYPE_CHECKING:
    from beads_workers.cli.client import ControlClient
    from beads_workers.runtime.journal_file import JournalTail
    from beads_workers.ui.web import WebServer
    from beads_workers.ui.web_shown import Message, Shown

LINGER_SECONDS = 600.0
"""Time that the server of ``start --web`` outlives its run, unless another one begins.

People can read the end of the run, and an open page finds the next run.
"""

LOOK_SECONDS = 1.0
"""Interval of checks whether a fleet runs."""

OPENS_SECONDS = 15.0
"""Time for a server to report its address."""

LOCK_TRIES, LOCK_TRY_SECONDS = 5, 0.02
"""Tries to lock the file: a process that checks the lock holds it for some microseconds."""

LOG_LINES = 300
LOG_BYTES = 256 << 10
NICE = 5
"""Niceness of the server: viewers get less of a busy machine than workers."""

FILE = "web.json"

# --- words ---------------------------------------------------------------------------------------


def with_port(arguments: list[str]) -> list[str]:
    """Return the words with ``--web PORT`` as one word, and port 0 if none follows.

    So an issue's id is not taken for a port.
    """
    words: list[str] = []
    for at, word in enumerate(arguments):
        if word == "--":
            return [*with_port(words), *arguments[at:]]
        if words[-1:] == ["--web"]:
            is_port = re.fullmatch(r"(?:127\.0\.0\.1:)?[0-9]{1,5}", word)
            words[-1:] = [f"--web={word}"] if is_port else ["--web=0", word]
        else:
            words.append(word)
    return ["--web=0" if word == "--web" else word for word in words]


class WithPort(LaidOut):
    """A command with ``--web [PORT]``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click."""
        return super().parse_args(ctx, with_port(args))


# --- feed ----------------------------------------------------------------------------------------


class PageFeed:
    """Feed of ``shown`` with the state of a run directory's fleet.

    ``linger``: end after so many seconds without a fleet; None: never.
    """

    def __init__(self, directory: Path, shown: Shown, linger: float | None) -> None:
        self._directory = directory
        self._shown = shown
        self._linger = linger
        self._run_id = ""
        self._shown_to_end = False
        """True if all of that run was shown, to its end."""
        self._tail: JournalTail | None = None

    def run(self) -> None:
        """Feed viewers until ``linger`` has passed."""
        alone_since: float | None = None
        while True:
            alive, now = is_locked(self._directory / "lock"), time.monotonic()
            if alive:
                alone_since = None
            elif alone_since is None:
                alone_since = now
            elif self._linger is not None and now > alone_since + self._linger:
                return
            if not self._shown.viewers:
                if alive or not self._shown_to_end:
                    self._shown.forget()  # It grows old: nobody is followed meanwhile.
                self._shown.wait_for_viewer(LOOK_SECONDS)
            elif alive:
                self._watch()
            else:
                self._show_last()
                time.sleep(LOOK_SECONDS)

    def _watch(self) -> None:
        """Watch the run until it ends, or nobody looks any more."""
        try:
            client = connect(self._directory)
        except CommandError:
            time.sleep(LOOK_SECONDS)  # The fleet has just ended, or does not answer.
            return
        try:
            client.send("bw.watch")
            if self._follow(client):
                self._shown_to_end = True
                return
        except CommandError:
            pass  # The fleet has another version, or a line was cut off.
        finally:
            client.close()
        self._shown_to_end = False

    def _follow(self, client: ControlClient) -> bool:
        """Show snapshots; return True at the end of the run, False if nobody looks."""
        over = ended = False
        while not over:
            if not self._shown.viewers:
                return False
            if not select.select([client], [], [], LOOK_SECONDS)[0]:
                continue
            messages, over = client.receive()
            snapshots = [message["snapshot"] for message in messages if "snapshot" in message]
            if snapshots:
                self._show(snapshots[-1])
                self._shown.say("fleet", {"state": "live"})
            ended = ended or any("ended" in message for message in messages)
        self._read_journal()
        self._shown.say("fleet", {"state": "ended" if ended else "lost"})
        return True

    def _show(self, snapshot: Message) -> None:
        from beads_workers.core.issues import Issues
        from beads_workers.runtime.journal_file import JournalTail

        if snapshot["run_id"] != self._run_id:
            self._run_id = snapshot["run_id"]
            if self._tail is not None:
                self._tail.close()
            folder = self._directory / "runs" / self._run_id
            self._tail, self._issues = JournalTail(folder / "journal.jsonl"), Issues()
            self._shown.begin()
        self._shown.say("snapshot", snapshot)
        self._read_journal()

    def _read_journal(self) -> None:
        from beads_workers.ui.web_shown import ended_attempts

        if self._tail is not None:
            try:
                # All of it is read first: a long journal blocks no viewer.
                rows = list(ended_attempts(self._issues, self._tail.read()))
            except OSError:
                return  # The run was removed; what was shown stays.
            self._shown.add(rows)

    def _show_last(self) -> None:
        """Show how the last run ended, unless it is shown already."""
        from beads_workers.core.snapshot import Board
        from beads_workers.core.status import status
        from beads_workers.runtime.journal_file import read_journal
        from beads_workers.runtime.run_directory import RunDirectory

        runs = RunDirectory(self._directory)
        run_id = runs.last_run()
        if not run_id:
            self._shown.say("fleet", {"state": "none"})
            return
        if self._shown_to_end and run_id == self._run_id:
            return
        board = Board()
        for entry in read_journal(runs.run(run_id) / "journal.jsonl"):
            board.apply(entry)
        if board.run is None:
            return
        self._show(status(board, board.elapsed))
        self._shown.say("fleet", {"state": "ended" if board.ended else "lost"})
        self._shown_to_end = True


# --- what a page may ask -------------------------------------------------------------------------


def read_log(directory: Path, shown: Shown, worker_id: str) -> Message | None:
    """Return the end of a worker's log; None if there is no such worker."""
    from beads_workers.cli.log_tail import LogTail
    from beads_workers.ui.viewer import Look, Part

    snapshot = shown.snapshot
    if snapshot is None or all(w["worker_id"] != worker_id for w in snapshot["workers"]):
        return None
    tail = LogTail((directory / "runs").joinpath, LOG_BYTES)
    try:
        log = tail.read(Look(chosen={Part.WORKERS: worker_id}), snapshot)
    except OSError as error:
        return {"title": f"{worker_id}: {error.strerror}", "lines": []}
    return {"title": log.title, "lines": list(log.lines[-LOG_LINES:])}


def control(directory: Path, request: str, fields: Message) -> Message:
    """Return the fleet's answer to a request, or why there is none."""
    try:
        client = connect(directory)
    except CommandError as error:
        return {"error": error.message}
    try:
        if request == "bw.stop":
            client.send(request, fields)
            return {"text": "stopping: everyone is told to leave"}
        return client.ask(request, dict(signed(request, fields)))
    except CommandError as error:
        return {"error": error.message}
    finally:
        client.close()


# --- one server for a run directory --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Page:
    """A live page. ``pid``: its server. ``controls``: whether it can control the fleet."""

    url: str
    pid: int
    controls: bool


def _kept(file: Path) -> tuple[int, str]:
    """Return port and key of the last server here.

    Return 0 and a new key if there was none, or if others could have read the key.
    """
    try:
        if file.stat().st_mode & 0o077:
            raise ValueError("no secret")
        fields = json.loads(file.read_bytes())
        port, key = fields["port"], fields["key"]
        if isinstance(port, int) and re.fullmatch(r"[\w-]{43}", key):
            return port, key
    except (OSError, ValueError, KeyError, TypeError):
        pass
    import secrets  # ``--help`` does without.

    return 0, secrets.token_urlsafe(32)


def _running(file: Path) -> Page:
    """Return the page of the server that holds the file.

    Raise ``CommandError`` if the file has no address yet.
    """
    try:
        fields = json.loads(file.read_bytes())
        return Page(fields["url"], fields["pid"], fields["control"])
    except (OSError, ValueError, KeyError, TypeError):
        raise CommandError(
            f"another server holds {file}, and does not say where it is", "try again in a moment"
        ) from None


def url(directory: Path) -> str | None:
    """Return the address of this directory's page; None if it is not served."""
    try:
        return _running(directory / FILE).url if is_locked(directory / FILE) else None
    except CommandError:
        return None


def find(directory: Path, *, controls: bool) -> Page | None:
    """Return the page of a running server; None without one.

    Raise ``CommandError`` if one server controls the fleet and the other may not.
    """
    file = directory / FILE
    if not is_locked(file):
        return None
    found = _running(file)
    if found.controls != controls:
        kind = "can control the fleet" if found.controls else "can only be looked at"
        raise CommandError(
            f"a page that {kind} is served here already",
            f"end its server first: kill {found.pid}",
            EXIT_USAGE,
        )
    return found


def _locked(file: Path) -> int:
    for _ in range(LOCK_TRIES):
        if (lock := try_lock(file)) is not None:
            return lock
        time.sleep(LOCK_TRY_SECONDS)
    raise CommandError("a page is served here already", "'watch --web' says where")


class Server:
    """The server of this process; raises ``CommandError``. ``port`` 0: the last one, or any."""

    def __init__(self, directory: Path, port: int, *, controls: bool) -> None:
        from beads_workers.ui.web_shown import Shown

        directory.mkdir(parents=True, exist_ok=True)
        file = directory / FILE
        self._directory, self.shown = directory, Shown()
        self._lock = _locked(file)
        before, key = _kept(file)
        os.fchmod(self._lock, 0o600)
        try:
            self.web = self._bound((port,) if port else (before, 0), key, controls=controls)
        except OSError as error:
            os.close(self._lock)
            message = f"port {port}: {error.strerror}"
            raise CommandError(message, "without a port it takes one that is free") from None
        self.page = Page(self.web.url, os.getpid(), controls)
        fields = {"url": self.web.url, "port": self.web.server_port, "key": key}
        fields |= {"pid": os.getpid(), "control": controls}
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, json.dumps(fields).encode() + b"\n", 0)

    def _bound(self, ports: tuple[int, ...], key: str, *, controls: bool) -> WebServer:
        """Return a server on the first free port of these; raise ``OSError``."""
        import secrets

        from beads_workers.ui.web import WebServer

        directory, shown = self._directory, self.shown
        for port in ports:
            try:
                return WebServer(
                    port,
                    secrets.token_urlsafe(16),
                    key,
                    shown,
                    read_log=lambda worker_id: read_log(directory, shown, worker_id),
                    control=(lambda name, fields: control(directory, name, fields))
                    if controls
                    else None,
                    may_control=lambda viewer, port: not is_reached_from(directory, viewer, port),
                )
            except OSError:
                if port == ports[-1]:
                    raise
        raise AssertionError("there is a last one")

    def close(self) -> None:
        """Release the port and the file."""
        self.web.server_close()
        os.close(self._lock)

    def serve(self, linger: float | None) -> None:
        """Serve until ``PageFeed.run`` ends."""
        os.nice(NICE)
        threading.Thread(target=self.web.serve_forever, daemon=True).start()
        try:
            PageFeed(self._directory, self.shown, linger).run()
        finally:
            self.web.shutdown()
            self.close()


def watch(directory: Path, port: int, *, controls: bool) -> None:
    """Serve ``watch --web`` until Ctrl-C, or print where the page is served already."""
    if (found := find(directory, controls=controls)) is not None:
        print(found.url)
        print(f"served already, by pid {found.pid}", file=sys.stderr)
        return
    server = Server(directory, port, controls=controls)
    print(server.page.url, flush=True)
    print("Ctrl-C ends the page; the fleet goes on without it", file=sys.stderr)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    server.serve(None)


# --- start --web ---------------------------------------------------------------------------------


def open_beside(directory: Path, port: int, *, controls: bool) -> Page:
    """Start a server for a run that is about to begin, and return its page.

    Raise ``CommandError``.
    """
    if (found := find(directory, controls=controls)) is not None:
        return found
    process = subprocess.Popen(
        # -P: files in the project's folder are never imported.
        [sys.executable, "-P", "-m", __name__, str(directory), str(port), str(int(controls))],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None, "it was asked for"
    with process.stdout as output:
        ready = select.select([output], [], [], OPENS_SECONDS)[0]
        line = output.readline() if ready else b""
    try:
        answer = json.loads(line)
    except ValueError:
        process.kill()
        raise CommandError("the server of the page did not start", "leave --web out") from None
    if "error" in answer:
        raise CommandError(answer["error"], answer["hint"])
    process.returncode = 0  # It lives on: without this its destructor would warn.
    return Page(answer["url"], process.pid, controls)


def main(arguments: list[str]) -> None:
    """Run the server of ``start --web``: print its address or an error as one line, then serve."""
    directory, port, controls = Path(arguments[0]), int(arguments[1]), arguments[2] == "1"
    try:
        server = Server(directory, port, controls=controls)
    except CommandError as error:
        print(json.dumps({"error": error.message, "hint": error.hint}), flush=True)
        return
    print(json.dumps({"url": server.page.url}), flush=True)
    null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    for number in (1, 2):
        os.dup2(null, number)
    os.close(null)
    server.serve(LINGER_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1:])
