"""A listening Unix socket that is ours alone, from its birth to its removal.

Source: docs/PROTOCOL.md, "The socket".
"""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
from pathlib import Path

from beads_workers.core import limits
from beads_workers.edge.streams import peer_of


class Listener:
    """0600 before anybody can connect; peers of other users are turned away."""

    def __init__(self, path: Path) -> None:
        """Bind and listen. Raises ``OSError`` where something that is not ours is in the way."""
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
        """For the selector."""
        return self.socket.fileno()

    def is_there(self) -> bool:
        """Whether its file is still in its place, and still ours."""
        try:
            return self.path.lstat().st_ino == self._inode
        except OSError:
            return False

    def accept(self) -> tuple[socket.socket, int] | None:
        """The next peer and its pid; None when nobody waits. Raises ``OSError`` (EMFILE...)."""
        while True:
            try:
                sock, _ = self.socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return None
            pid, uid = peer_of(sock)
            if uid == self._uid:
                return sock, pid
            sock.close()

    def close(self) -> None:
        """Close, and remove the file if it is still ours."""
        self.socket.close()
        if self.is_there():
            self.path.unlink(missing_ok=True)


class TcpListener:
    """A port of the loopback interface. Anybody on this machine can connect; nobody else can."""

    def __init__(self, host: str, port: int) -> None:
        """Bind and listen. Raises ``OSError`` where somebody else has the port."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = socket.create_server(
            (host, port), family=family, backlog=limits.LISTEN_BACKLOG
        )
        self.socket.setblocking(False)

    def fileno(self) -> int:
        """For the selector."""
        return self.socket.fileno()

    @property
    def port(self) -> int:
        """The one that it has: asked for 0, the kernel chose."""
        return int(self.socket.getsockname()[1])

    def is_there(self) -> bool:
        """A port has no file that could go."""
        return True

    def accept(self) -> tuple[socket.socket, int] | None:
        """The next peer, whose pid nobody knows (0); None when nobody waits. Raises ``OSError``."""
        try:
            sock, _ = self.socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return None
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock, 0

    def close(self) -> None:
        """Close it."""
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


def dead_sockets(folder: Path = Path("/tmp")) -> list[Path]:
    """Worker sockets of ours whose orchestrator is gone: nobody listens there."""
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
