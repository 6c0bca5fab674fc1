"""A network that loses answers: between a client and a server, it cuts where it is told to."""

from __future__ import annotations

import socket
import threading


class Cutting:
    """Listens on ``port``; once a client sends ``at``, the server gets it, and its answer is lost
    with the connection. Later connections are left alone."""

    def __init__(self, server_port: int, at: bytes) -> None:
        self._server = server_port
        self._at = at
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """No further connection is accepted."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._server))
            threading.Thread(target=self._forth, args=(client, server), daemon=True).start()

    def _forth(self, client: socket.socket, server: socket.socket) -> None:
        back = threading.Thread(target=_pump, args=(server, client), daemon=True)
        back.start()
        while data := _received(client):
            if self._at in data and not self.cuts:
                self.cuts += 1
                client.shutdown(socket.SHUT_RDWR)  # What comes back now goes nowhere.
                server.sendall(data)
                server.shutdown(socket.SHUT_WR)
                break
            server.sendall(data)
        back.join()
        client.close()
        server.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    while data := _received(source):
        try:
            target.sendall(data)
        except OSError:
            pass  # Read on: who sends it must not be held up.


def _received(source: socket.socket) -> bytes:
    try:
        return source.recv(1 << 16)
    except OSError:
        return b""
