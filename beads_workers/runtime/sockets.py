"""Sockets in the loop: listening sockets that are ours alone, and streams that never block."""

from __future__ import annotations

import errno
import os
import re
import selectors
import socket
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from beads_workers.core.base import limits
from beads_workers.core.base.framing import Framed, LineReader
from beads_workers.core.schedule.events import ConditionRecovered, Degraded, Event, Warned
from beads_workers.runtime.kernel import system
from beads_workers.runtime.processes import SEND_LATER
from beads_workers.runtime.run_directory import RUNTIME, SOCKET_PATH_MAX, runtime_directory

# --- listener ------------------------------------------------------------------------------------
# A listening Unix socket that is ours alone, from its birth to its removal.
#
# Source: docs/PROTOCOL.md, "Transport".


class Listener:
    """Listening Unix socket with mode 0600 from its birth; peers of other users are rejected."""

    def __init__(self, path: Path) -> None:
        """Bind and listen. Raises ``OSError`` if something that is not ours is in the way."""
        clear_dead(path)
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        mask = os.umask(0o177)
        try:
            self.socket.bind(os.fspath(path))
        finally:
            os.umask(mask)
        self.socket.listen(limits.LISTEN_BACKLOG)
        self.socket.setblocking(False)
        self._inode = path.lstat().st_ino
        self._uid = os.getuid()

    def fileno(self) -> int:
        """Return the descriptor, for the selector."""
        return self.socket.fileno()

    def is_there(self) -> bool:
        """Return whether the socket's file is still in its place, and still ours."""
        try:
            return self.path.lstat().st_ino == self._inode
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True  # A failing disk tells nothing of it.

    def accept(self) -> tuple[socket.socket, int] | None:
        """Return the next peer and its pid; None when nobody waits. Raises ``OSError``
        (EMFILE...)."""
        while True:
            try:
                sock, _ = self.socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return None
            try:
                pid, uid = system.peer_of(sock)
            except OSError:
                pid = uid = -1  # A peer that the kernel does not know is not let in.
            if uid == self._uid:
                return sock, pid
            sock.close()

    def close(self) -> None:
        """Close, and remove the file if it is still ours."""
        self.socket.close()
        with suppress(OSError):  # A socket that stays is dead: the next run removes it.
            if self.is_there():
                self.path.unlink(missing_ok=True)


class TcpListener:
    """A port of the loopback interface. Only users of this machine can connect, but any of them."""

    def __init__(self, host: str, port: int) -> None:
        """Bind and listen. Raises ``OSError`` if another process has the port."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = socket.create_server(
            (host, port), family=family, backlog=limits.LISTEN_BACKLOG
        )
        self.socket.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor, for the selector."""
        return self.socket.fileno()

    @property
    def port(self) -> int:
        """The actual port: if 0 was asked for, the kernel chose one."""
        return int(self.socket.getsockname()[1])

    def is_there(self) -> bool:
        """Return True: a port has no file that could be removed."""
        return True

    def accept(self) -> tuple[socket.socket, int] | None:
        """Return the next peer, with pid 0 for unknown; None when nobody waits. Raises
        ``OSError``."""
        try:
            sock, _ = self.socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return None
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock, 0

    def close(self) -> None:
        """Close the port."""
        self.socket.close()


def clear_dead(path: Path) -> None:
    """Remove a dead socket of ours; raises ``OSError`` for anything else in its place."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.getuid():
        raise FileExistsError(errno.EEXIST, "something that is not ours is in the way", str(path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except FileNotFoundError:
            return
    raise FileExistsError(errno.EADDRINUSE, "somebody listens there", str(path))


def free_socket(pid: int, run_directory: Path) -> Path:
    """Return a free path for the worker socket of the orchestrator ``pid``: the protocol's own
    path, or, if that name is taken, one in this user's runtime directory.

    If that directory is somebody else's, too, use ``run_directory``. Raises ``OSError`` if that
    path is too long.
    """
    path = Path(f"/tmp/beads-workers-{pid}.sock")
    try:
        clear_dead(path)
    except OSError:
        return _private_socket(pid, run_directory)
    return path


def _private_socket(pid: int, run_directory: Path) -> Path:
    try:
        return runtime_directory() / f"{pid}.sock"
    except OSError:
        path = run_directory / "worker.sock"
        if len(os.fsencode(path)) > SOCKET_PATH_MAX:
            raise
        return path


def dead_sockets(folder: Path = Path("/tmp")) -> list[Path]:
    """Return worker sockets of ours whose orchestrator is gone: nobody listens there."""
    return [path for path in sorted(folder.glob("beads-workers-*.sock")) if _is_dead(path)]


def _is_dead(path: Path) -> bool:
    if not re.fullmatch(r"beads-workers-\d+\.sock", path.name) or not path.is_socket():
        return False
    if path.lstat().st_uid != os.getuid():
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False  # It went away meanwhile, or is busy: alive.
    return False


# --- acceptor ------------------------------------------------------------------------------------
# A listening socket in the loop: opened again when possible, and created again if its file is gone.
#
# Source: docs/PROTOCOL.md, "Transport". Without a free descriptor nobody can be let in: the kernel
# keeps new peers waiting, and the acceptor tries again a moment later, not at once. A cleaner of
# ``/tmp`` may remove the file: connections that stand are not affected, and a new file takes its
# place for new peers.


NONE_LEFT = (errno.EMFILE, errno.ENFILE)
TRY_AGAIN_SECONDS = 1.0
LOOK_SECONDS = 2.0
"""Seconds between two checks of a socket's file; one check costs microseconds."""

Peers = list[tuple[socket.socket, int]]


def next_look(now: float) -> float:
    """Return when to look again, on one beat for all: an idle fleet wakes once for all of them."""
    return (now // LOOK_SECONDS + 1) * LOOK_SECONDS


class Acceptor:
    """Acceptor of connections; ``enter`` gets the new peers with their pids. ``name`` is for
    people.

    ``spares``: descriptors that are kept for when no others are left, so that a few can still
    connect.
    """

    def __init__(
        self,
        name: str,
        place: Path | tuple[str, int] | TcpListener,
        selector: selectors.BaseSelector,
        tell: Callable[[Event], None],
        enter: Callable[[Peers], None],
        spares: int = 0,
    ) -> None:
        """Bind, listen, watch. ``place``: a path, an address and a port, or what listens already.

        Raises ``OSError`` if something is in the way.
        """
        self._name = name
        self._selector = selector
        self._tell = tell
        self._enter = enter
        self._listener: Listener | TcpListener
        if isinstance(place, TcpListener):
            self._listener = place
        else:
            self._listener = Listener(place) if isinstance(place, Path) else TcpListener(*place)
        self._spares_wanted = spares
        self._spares: list[int] = []
        self._shut = False
        self._held = False
        self._degraded = False
        self._next_look = 0.0
        self._keep_spares()
        selector.register(self._listener, selectors.EVENT_READ, self._knocked)

    def deadline(self) -> float:
        """Return when ``tick`` is due (monotonic seconds)."""
        return self._next_look

    def tick(self, now: float) -> None:
        """Open again what is shut, and replace a missing file; do nothing before ``deadline``."""
        if now < self._next_look:
            return
        self._next_look = next_look(now)
        if self._shut and not self._held:
            self._shut = False
            if self._watch():
                self._knocked(0)
            self._next_look = now + TRY_AGAIN_SECONDS
        elif not self._listener.is_there():
            self._listen_anew()
        elif self._keep_spares():
            self._recover()

    def room(self) -> None:
        """Let waiting peers in soon: a descriptor has become free."""
        if self._shut or len(self._spares) < self._spares_wanted:
            self._next_look = 0.0

    def back_off(self, held: bool) -> None:
        """Accept nobody while ``held``, or go on; peers that connect meanwhile wait, and lose
        nothing."""
        if held == self._held:
            return
        self._held = held
        if self._shut:
            return
        if held:
            self._selector.unregister(self._listener)
        else:
            self._watch()

    def close(self) -> None:
        """Accept nobody any more, and remove the file."""
        if not (self._shut or self._held):
            self._selector.unregister(self._listener)
        self._listener.close()
        while self._spares:
            os.close(self._spares.pop())

    def _knocked(self, mask: int) -> None:
        peers: Peers = []
        # The selector reports again the peers that still wait.
        while len(peers) < limits.KNOCKS_AT_ONCE and (peer := self._next()) is not None:
            peers.append(peer)
        self._enter(peers)

    def let_all_in(self) -> None:
        """Accept all peers that wait now, unless there is no descriptor for them."""
        if self._shut:
            return
        peers: Peers = []
        while (peer := self._next()) is not None:
            peers.append(peer)
        self._enter(peers)

    def _next(self) -> tuple[socket.socket, int] | None:
        while True:
            try:
                return self._listener.accept()
            except OSError as error:
                why = error
            if why.errno not in NONE_LEFT or not self._spares:
                self._shut_for_now(why)
                return None
            os.close(self._spares.pop())

    def _watch(self) -> bool:
        """Watch the listener; return False if the kernel has no room (ENOSPC, ENOMEM): ``tick``
        tries again."""
        try:
            self._selector.register(self._listener, selectors.EVENT_READ, self._knocked)
        except OSError as error:
            self._shut = True
            self._degrade(error)
            return False
        return True

    def _shut_for_now(self, why: OSError) -> None:
        # The selector would report the waiting peers again and again.
        self._selector.unregister(self._listener)
        self._shut = True
        self._next_look = time.monotonic() + TRY_AGAIN_SECONDS
        self._degrade(why)

    def _keep_spares(self) -> bool:
        """Fill up the spare descriptors; return False while there are not enough."""
        while len(self._spares) < self._spares_wanted:
            try:
                self._spares.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            except OSError:
                return False
        return True

    def _listen_anew(self) -> None:
        assert isinstance(self._listener, Listener), "a port does not go away"
        try:
            if self._listener.path.parent == RUNTIME:
                runtime_directory()  # Removed together with the socket.
            fresh = Listener(self._listener.path)
        except OSError as error:
            self._degrade(error)
            return
        self.let_all_in()  # Peers that came to the old socket before its file went.
        if not (self._shut or self._held):
            self._selector.unregister(self._listener)
        self._listener.close()
        self._listener, self._shut = fresh, False
        self._tell(Warned(f"{fresh.path} was removed, and is there again"))
        if self._held or self._watch():
            self._recover()

    def _degrade(self, error: OSError) -> None:
        if not self._degraded:
            self._degraded = True
            text = f"{self._name}: nobody new can connect: {error.strerror or error}"
            todo = "raise the limit: prlimit --nofile" if error.errno in NONE_LEFT else "status"
            self._tell(Degraded(self._name, text, todo, stops=False))

    def _recover(self) -> None:
        if self._degraded:
            self._degraded = False
            self._tell(ConditionRecovered(self._name))


# --- streams -------------------------------------------------------------------------------------
# One stream socket: lines in, bytes out, never blocking, never growing without bound.


RECEIVE_BYTES = 1 << 16


class Stream:
    """One stream socket. ``conn_id`` numbers it. ``closed`` is set once, with the ``reason``."""

    def __init__(self, sock: socket.socket, conn_id: int) -> None:
        sock.setblocking(False)
        self.socket = sock
        self.conn_id = conn_id
        self.closed = False
        self.reason = ""
        self.lines = LineReader()
        """Reader of lines, which may hold some that a bounded ``read`` has left."""
        self._outbox = bytearray()
        self._deaf = ""
        """Why nothing can be sent any more, while there may still be something to read."""

    @property
    def unsent(self) -> int:
        """Number of bytes that the peer has not taken yet."""
        return len(self._outbox)

    def fileno(self) -> int:
        """Return the descriptor, for the selector."""
        return self.socket.fileno()

    def read(self, lines_max: int | None = None) -> list[Framed]:
        """Return the lines that have arrived, at most ``lines_max``; set ``closed`` at the end of
        the stream."""
        if self.lines.pending:
            return self.lines.feed(b"", lines_max)
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError as error:
            self._end(error.strerror or "read failed")
            return []
        if not data:
            self._end(self._deaf or "the other end closed it")
            return self.lines.end()
        return self.lines.feed(data, lines_max)

    def queue(self, data: bytes) -> None:
        """Send data with the next ``flush``; a peer that does not read is closed at a limit."""
        if self.closed or self._deaf:
            return
        self._outbox += data
        if len(self._outbox) > limits.OUTBOX_BYTES_MAX:
            self._end("it does not read")

    def flush(self) -> bool:
        """Send what the socket takes; return whether something is left for later."""
        if self.closed or not self._outbox:
            return False
        try:
            sent = self.socket.send(self._outbox)
        except OSError as error:
            if error.errno in SEND_LATER:
                return True
            # Data that a peer sent before its end is still to be read: the end comes after that.
            self._deaf = error.strerror or "write failed"
            self._outbox.clear()
            with suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)
            return False
        del self._outbox[:sent]
        return bool(self._outbox)

    def hang_up(self, reason: str) -> None:
        """Close the stream from our side."""
        self._end(reason)

    def release(self) -> None:
        """Close the descriptor; call last."""
        with suppress(OSError):  # It is closed, whatever that says.
            self.socket.close()

    def _end(self, reason: str) -> None:
        if not self.closed:
            self.closed, self.reason = True, reason
