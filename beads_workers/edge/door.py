"""A listening socket in the loop: open again when it can be, and put back when its file is gone.

Source: docs/PROTOCOL.md, "The socket". Without a descriptor left, nobody can be let in: the
kernel keeps whoever knocks waiting, and the door is tried again a moment later, not at once. A
cleaner of ``/tmp`` may remove the file: connections that stand are not touched by that, and a new
file takes its place for those that come.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import time
from collections.abc import Callable
from pathlib import Path

from beads_workers.core import limits
from beads_workers.core.events import Eased, Event, Hindered, Warned
from beads_workers.edge.listener import Listener, TcpListener
from beads_workers.edge.run_directory import RUNTIME, runtime_directory

NONE_LEFT = (errno.EMFILE, errno.ENFILE)
TRY_AGAIN_SECONDS = 1.0
LOOK_SECONDS = 2.0
"""How long the file of a socket may be missing: one look costs microseconds."""

Peers = list[tuple[socket.socket, int]]


def next_look(now: float) -> float:
    """When to look again, on one beat for everybody: an idle fleet wakes once for all of them."""
    return (now // LOOK_SECONDS + 1) * LOOK_SECONDS


class Door:
    """``enter`` gets those who come, with their pids. ``name`` is for people.

    ``spares``: descriptors that are kept for bad times, so that a few can still come in.
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

        Raises ``OSError`` where something is in the way.
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
        self._hindered = False
        self._next_look = 0.0
        self._keep_spares()
        selector.register(self._listener, selectors.EVENT_READ, self._knocked)

    def deadline(self) -> float:
        """When ``tend`` is due (monotonic seconds)."""
        return self._next_look

    def tend(self, now: float) -> None:
        """Open what is shut, and put the file back; does nothing before ``deadline``."""
        if now < self._next_look:
            return
        self._next_look = next_look(now)
        if self._shut and not self._held:
            self._shut = False
            self._selector.register(self._listener, selectors.EVENT_READ, self._knocked)
            self._knocked(0)
            self._next_look = now + TRY_AGAIN_SECONDS
        elif not self._listener.is_there():
            self._put_back()
        elif self._keep_spares():
            self._ease()

    def room(self) -> None:
        """A descriptor has become free: whoever waits outside can come in at once."""
        if self._shut or len(self._spares) < self._spares_wanted:
            self._next_look = 0.0

    def hold(self, held: bool) -> None:
        """Let nobody in for now, or go on: whoever knocks waits, and loses nothing."""
        if held == self._held:
            return
        self._held = held
        if self._shut:
            return
        if held:
            self._selector.unregister(self._listener)
        else:
            self._selector.register(self._listener, selectors.EVENT_READ, self._knocked)

    def close(self) -> None:
        """Nobody is let in any more, and the file goes."""
        if not (self._shut or self._held):
            self._selector.unregister(self._listener)
        self._listener.close()
        while self._spares:
            os.close(self._spares.pop())

    def _knocked(self, mask: int) -> None:
        peers: Peers = []
        # The selector reports again whoever is left outside.
        while len(peers) < limits.KNOCKS_AT_ONCE and (peer := self._next()) is not None:
            peers.append(peer)
        self._enter(peers)

    def let_all_in(self) -> None:
        """Whoever waits outside now, unless there is no descriptor for anybody."""
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
                if error.errno not in NONE_LEFT:
                    raise
                why = error
            if not self._spares:
                self._shut_for_now(why)
                return None
            os.close(self._spares.pop())

    def _shut_for_now(self, why: OSError) -> None:
        # The selector would report whoever waits outside again and again.
        self._selector.unregister(self._listener)
        self._shut = True
        self._next_look = time.monotonic() + TRY_AGAIN_SECONDS
        self._hinder(why)

    def _keep_spares(self) -> bool:
        """False while no more descriptors are to be had."""
        while len(self._spares) < self._spares_wanted:
            try:
                self._spares.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            except OSError:
                return False
        return True

    def _put_back(self) -> None:
        assert isinstance(self._listener, Listener), "a port does not go away"
        try:
            if self._listener.path.parent == RUNTIME:
                runtime_directory()  # Swept away with what lay in it.
            fresh = Listener(self._listener.path)
        except OSError as error:
            self._hinder(error)
            return
        self.let_all_in()  # Whoever came to the old one before its file went is not forgotten.
        if not (self._shut or self._held):
            self._selector.unregister(self._listener)
        self._listener.close()
        self._listener, self._shut = fresh, False
        if not self._held:
            self._selector.register(fresh, selectors.EVENT_READ, self._knocked)
        self._tell(Warned(f"{fresh.path} was removed, and is there again"))
        self._ease()

    def _hinder(self, error: OSError) -> None:
        if not self._hindered:
            self._hindered = True
            text = f"{self._name}: nobody new can connect: {error.strerror or error}"
            todo = "raise the limit: prlimit --nofile" if error.errno in NONE_LEFT else "status"
            self._tell(Hindered(self._name, text, todo, stops=False))

    def _ease(self) -> None:
        if self._hindered:
            self._hindered = False
            self._tell(Eased(self._name))
