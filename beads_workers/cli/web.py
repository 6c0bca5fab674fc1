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
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from beads_workers import __version__
from beads_workers.cli.client import connect, connect_if_running
from beads_workers.cli.config import resolve
from beads_workers.cli.layout import LaidOut
from beads_workers.cli.person import signed
from beads_workers.core.base.text import printable
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_USAGE
from beads_workers.runtime import live_page
from beads_workers.runtime.live_page import LivePage
from beads_workers.runtime.locks import is_locked, try_lock
from beads_workers.runtime.within_attempt import is_reached_from

if TYPE_CHECKING:
    from beads_workers.cli.client import ControlClient
    from beads_workers.core.records.journal import Entry
    from beads_workers.runtime.journal_file import JournalTail
    from beads_workers.ui.viewer import PageCard
    from beads_workers.ui.web import WebServer
    from beads_workers.ui.web_state import Message, PageState

UNREAD_SECONDS = 24 * 3600.0
"""Time that the server of ``start --web`` outlives its run at most, unless another one begins.

A night that ends in the evening can be read on the next day. Nothing of ours runs for ever.
"""

READ_SECONDS = 3600.0
"""Time for which that server goes on after somebody has read the end of the run, and has left."""

NO_RUN_SECONDS = 600.0
"""Time for which it waits for a run: a start that was refused has nothing to read."""

LOOK_SECONDS = 1.0
"""Interval of checks whether a fleet runs."""

OPENS_SECONDS = 15.0
"""Time for a server to report its address."""

LOCK_TRIES, LOCK_TRY_SECONDS = 5, 0.02
"""Tries to lock the file: a process that checks the lock holds it for some microseconds."""

NICE = 5
"""Niceness of the server: viewers get less of a busy machine than workers."""

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


class Lifetime:
    """How long the server of ``start --web`` lives; all times are monotonic seconds."""

    def __init__(
        self,
        unread: float = UNREAD_SECONDS,
        read: float = READ_SECONDS,
        no_run: float = NO_RUN_SECONDS,
    ) -> None:
        self._unread, self._read, self._no_run = unread, read, no_run
        self.has_run = False
        """Whether a run has been here; set from outside for one that nobody has seen run."""
        self._over: float | None = None
        """When the last run here was over, or the server began to wait for one."""
        self._read_at: float | None = None

    def runs(self) -> None:
        """Note that a fleet runs."""
        self.has_run, self._over, self._read_at = True, None, None

    def is_over(self, now: float, *, read: bool) -> None:
        """Note that none runs; ``read``: somebody looks who has read its end."""
        self._over = now if self._over is None else self._over
        self._read_at = now if read else self._read_at

    def ends_at(self) -> float | None:
        """Return when the server ends; None while a fleet runs."""
        if self._over is None:
            return None
        latest = self._over + (self._unread if self.has_run else self._no_run)
        return latest if self._read_at is None else min(latest, self._read_at + self._read)


class PageFeed:
    """Feed of ``shown`` with the state of a run directory's fleet.

    ``lifetime``: None for a server that a person ends. ``note``: told when the server ends, in
    epoch seconds or None; returns False if it is to end now.
    """

    def __init__(
        self,
        directory: Path,
        shown: PageState,
        lifetime: Lifetime | None,
        note: Callable[[float | None], bool] = lambda until: True,
    ) -> None:
        self._directory = directory
        self._shown = shown
        self._lifetime = lifetime
        self._note = note
        self._run_id = ""
        self._shown_to_end = False
        """True if all of that run was shown, to its end."""
        self._ended = ""
        """How that run ended, as the page is told."""
        self._decided: object = None
        """What ``_decisions`` was when the last run was shown."""
        self._tail: JournalTail | None = None
        self._until: float | None = None
        """When the server ends, in epoch seconds, to a minute."""
        self._before = self._last_run()

    def run(self) -> None:
        """Feed viewers until the lifetime is over."""
        while True:
            alive = is_locked(self._directory / "lock")
            if not self._goes_on(alive=alive):
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

    def _goes_on(self, *, alive: bool) -> bool:
        """Return whether the server goes on, and have it noted until when."""
        now, lifetime = time.monotonic(), self._lifetime
        if lifetime is None:
            return self._note(None)
        if alive:
            lifetime.runs()
            self._shown.end_was_read = False
        else:
            lifetime.is_over(now, read=self._shown.end_was_read and self._shown.viewers > 0)
        ends_at = lifetime.ends_at()
        if ends_at is not None and now > ends_at:
            if lifetime.has_run or self._last_run() == self._before:
                return False
            lifetime.has_run = True  # It was too short to be seen.
        self._until = None if ends_at is None else round((time.time() + ends_at - now) / 60) * 60.0
        return self._note(self._until)

    def _last_run(self) -> str:
        from beads_workers.runtime.run_directory import RunDirectory

        return RunDirectory(self._directory).last_run()

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
                self._say("live")
            ended = ended or any("ended" in message for message in messages)
        self._read_journal()
        self._ended = "ended" if ended else "lost"
        self._say(self._ended)
        return True

    def _say(self, state: str) -> None:
        """Say how the fleet is, and until when the page is served if that is known."""
        self._shown.say("fleet", {"state": state, "until": self._until})

    def _show(self, snapshot: Message) -> None:
        from beads_workers.core.records.issues import Issues
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
        from beads_workers.ui.web_state import ended_attempts

        if self._tail is not None:
            try:
                # All of it is read first: a long journal blocks no viewer.
                rows = list(ended_attempts(self._issues, self._timed(self._tail.read())))
            except OSError:
                return  # The run was removed; what was shown stays.
            self._shown.add(rows)

    def _timed(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        """Say when the run began, in epoch seconds, as its first entry has it."""
        for entry in entries:
            began_at = round(entry.at - entry.elapsed, 3)
            self._shown.say_once("clock", {"began_at": began_at})
            yield entry
            break
        yield from entries

    def _decisions(self, journal: Path) -> object:
        """Return what is another value once somebody has decided something about an ended run, or
        it is time to look at the tracker again."""
        from beads_workers.cli.last_run import REFRESH_SECONDS

        minute = int(time.monotonic() / REFRESH_SECONDS)
        try:
            return self._shown.decisions, minute, journal.stat().st_mtime_ns
        except OSError:
            return self._shown.decisions, minute

    def _show_last(self) -> None:
        """Show how the last run ended, unless it is shown already."""
        from beads_workers.cli.last_run import last_snapshot
        from beads_workers.runtime.run_directory import RunDirectory

        runs = RunDirectory(self._directory)
        run_id = runs.last_run()
        if not run_id:
            self._say("none")
            return
        decided = self._decisions(runs.run(run_id) / "journal.jsonl")
        if self._shown_to_end and (run_id, decided) == (self._run_id, self._decided):
            self._say(self._ended)
            return
        if (snapshot := last_snapshot(self._directory)) is None:
            return
        self._decided = decided
        self._show(snapshot)
        self._ended = "lost" if snapshot["killed"] else "ended"
        self._say(self._ended)
        self._shown_to_end = True


# --- what a page may ask -------------------------------------------------------------------------


def control(directory: Path, request: str, fields: Message) -> Message:
    """Return the fleet's answer to a request, or why there is none."""
    try:
        client = connect_if_running(directory)
    except CommandError as error:
        return {"error": error.message}
    if client is None:
        return _decided(directory, request, fields)
    try:
        if request == "bw.stop":
            client.send(request, fields)
            ends = "what runs may finish" if fields.get("drain") else "everyone is told to leave"
            return {"text": f"stopping: {ends}"}
        return client.ask(request, dict(signed(request, fields)))
    except CommandError as error:
        return {"error": error.message}
    finally:
        client.close()


def _decided(directory: Path, request: str, fields: Message) -> Message:
    from beads_workers.cli.decisions import decide

    try:
        return decide(directory, request, signed(request, fields))
    except CommandError as error:
        return {"error": error.message}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {"error": "a page of another version? Reload it"}
    except Exception as error:  # Whatever it is: it is said, and the server goes on.
        return {"error": printable(str(error), 300)}


# --- one server for a run directory --------------------------------------------------------------


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


def url(directory: Path) -> str | None:
    """Return the address of this directory's page; None if it is not served."""
    try:
        page = live_page.served(directory)
    except ValueError:
        return None
    return None if page is None else page.url


def card(url: str) -> PageCard:
    """Return how to open the page at this address, here and from another machine."""
    from beads_workers.runtime.run_directory import host_name
    from beads_workers.ui.viewer import PageCard

    port = urlsplit(url).port
    user = os.environ.get("USER") or os.environ.get("LOGNAME")
    at = f"{user}@" if user else ""
    tunnel = f"ssh -N -L {port}:127.0.0.1:{port} {shlex.quote(f'{at}{host_name()}')}"
    return PageCard(url, tunnel, _code(url))


def _code(url: str) -> tuple[str, ...]:
    """Return the address as a QR code; nothing without ``segno``."""
    try:
        segno = import_module("segno")
    except ImportError:
        return ()
    code = segno.make_qr(url, error="l", boost_error=False)
    return tuple("".join(map(str, row)) for row in code.matrix_iter(border=2))


def find(directory: Path, port: int, *, controls: bool) -> LivePage | None:
    """Return the page of a running server; None without one.

    A server that an earlier start left is ended if it is another one than is asked for: its kind,
    its port, names or version. Raise ``CommandError`` if somebody else's is of the other kind.
    """
    try:
        found = live_page.served(directory)
    except ValueError as error:
        raise CommandError(str(error), "try again in a moment") from None
    if found is None:
        return None
    other = found.control != controls
    stale = other or port not in (0, urlsplit(found.url).port)
    stale = stale or (found.version, found.hosts) != (__version__, _hosts())
    if stale and found.beside and not is_locked(directory / "lock"):
        if live_page.end(directory, found):
            return None
        raise CommandError(f"the server of an earlier page (pid {found.pid}) does not end", "")
    if other:
        kind = "can control the fleet" if found.control else "can only be looked at"
        raise CommandError(
            f"a page that {kind} is served here already",
            f"end its server first: kill {found.pid}",
            EXIT_USAGE,
        )
    return found


def _hosts() -> tuple[str, ...]:
    """Return the names that the settings of this folder give to the page."""
    return resolve({}, Path.cwd(), os.environ).options.web_hosts


def _locked(file: Path) -> int:
    for _ in range(LOCK_TRIES):
        if (lock := try_lock(file)) is not None:
            return lock
        time.sleep(LOCK_TRY_SECONDS)
    raise CommandError("a page is served here already", "'watch --web' says where")


class Server:
    """The server of this process; raises ``CommandError``. ``port`` 0: the last one, or any.

    ``beside``: whether it is that of ``start --web``, which ends by itself.
    """

    def __init__(self, directory: Path, port: int, *, controls: bool, beside: bool = False) -> None:
        from beads_workers.ui.web_state import PageState

        directory.mkdir(parents=True, exist_ok=True)
        self._file = file = directory / live_page.FILE
        self._directory, self.shown = directory, PageState()
        self._lock = _locked(file)
        before, key = _kept(file)
        os.fchmod(self._lock, 0o600)
        try:
            self.web = self._bound((port,) if port else (before, 0), key, controls=controls)
        except OSError as error:
            os.close(self._lock)
            message = f"port {port}: {error.strerror}"
            raise CommandError(message, "without a port it takes one that is free") from None
        self.web.hosts = _hosts()
        self.page = LivePage(
            self.web.url, os.getpid(), controls, beside, __version__, hosts=_hosts()
        )
        self._key = key
        live_page.note(self._lock, self.page, self.web.server_port, key)

    def note(self, until: float | None) -> bool:
        """Write down when this server ends; return False if its file was removed: end now."""
        try:
            is_ours = os.path.samestat(self._file.stat(), os.fstat(self._lock))
        except FileNotFoundError:
            return False
        if is_ours and until != self.page.until:
            self.page = replace(self.page, until=until)
            live_page.note(self._lock, self.page, self.web.server_port, self._key)
        return is_ours

    def _bound(self, ports: tuple[int, ...], key: str, *, controls: bool) -> WebServer:
        """Return a server on the first free port of these; raise ``OSError``."""
        import secrets

        from beads_workers.cli.web_requests import PageAnswers
        from beads_workers.ui.web import WebServer

        directory, shown = self._directory, self.shown
        for port in ports:
            try:
                return WebServer(
                    port,
                    secrets.token_urlsafe(16),
                    key,
                    shown,
                    ask=PageAnswers(directory, shown).answer,
                    control=self._control if controls else None,
                    may_control=lambda viewer, port: not is_reached_from(directory, viewer, port),
                )
            except OSError:
                if port == ports[-1]:
                    raise
        raise AssertionError("there is a last one")

    def _control(self, request: str, fields: Message) -> Message:
        try:
            return control(self._directory, request, fields)
        finally:
            self.shown.decisions += 1

    def close(self) -> None:
        """Release the port and the file."""
        self.web.server_close()
        os.close(self._lock)

    def serve(self, lifetime: Lifetime | None) -> None:
        """Serve until ``PageFeed.run`` ends."""
        os.nice(NICE)
        threading.Thread(target=self.web.serve_forever, daemon=True).start()
        try:
            PageFeed(self._directory, self.shown, lifetime, self.note).run()
        finally:
            self.web.shutdown()
            self.close()


def watch(directory: Path, port: int, *, controls: bool) -> None:
    """Serve ``watch --web`` until Ctrl-C, or print where the page is served already."""
    if (found := find(directory, port, controls=controls)) is not None:
        print(found.url)
        print(f"served already, by pid {found.pid}", file=sys.stderr)
        return
    server = Server(directory, port, controls=controls)
    print(server.page.url, flush=True)
    print("Ctrl-C ends the page; the fleet goes on without it", file=sys.stderr)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    server.serve(None)


# --- start --web ---------------------------------------------------------------------------------


def open_beside(directory: Path, port: int, *, controls: bool) -> LivePage:
    """Start a server for a run that is about to begin, and return its page.

    Raise ``CommandError``.
    """
    if (found := find(directory, port, controls=controls)) is not None:
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
    return LivePage(answer["url"], process.pid, controls, beside=True)


def main(arguments: list[str]) -> None:
    """Run the server of ``start --web``: print its address or an error as one line, then serve."""
    directory, port, controls = Path(arguments[0]), int(arguments[1]), arguments[2] == "1"
    try:
        server = Server(directory, port, controls=controls, beside=True)
    except CommandError as error:
        print(json.dumps({"error": error.message, "hint": error.hint}), flush=True)
        return
    print(json.dumps({"url": server.page.url}), flush=True)
    null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    for number in (1, 2):
        os.dup2(null, number)
    os.close(null)
    server.serve(Lifetime())


if __name__ == "__main__":
    main(sys.argv[1:])
