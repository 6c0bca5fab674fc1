"""Resumption: an open page continues with the next server, which has a new token.

A port is free once its server has ended: another user of this machine can bind it, read the
requests of an open page, and answer them. So each server has its own token. A page that lost its
server asks for the new token with a key. It got the key when it was loaded, and the key is never
sent again:

1. The page sends a nonce. The server answers with a challenge and with ``HMAC(key, "server PORT
   NONCE CHALLENGE")``: only a server of this run directory knows the key. The port is that of the
   server and of the page: a stranger on that port cannot relay the answer of another server of
   ours.
2. The page sends ``HMAC(key, "page PORT NONCE CHALLENGE")``, and gets the token.

A challenge is valid once, and for some seconds.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections import OrderedDict

CHALLENGE_SECONDS = 10.0
CHALLENGES_MAX = 64
NONCE_CHARS_MAX = 64


class Resumption:
    """Resumption of pages. ``key``: kept in the run directory. ``token``: for pages with it."""

    def __init__(self, key: str, port: int, token: str) -> None:
        self._key, self._port, self._token = key, port, token
        self._lock = threading.Lock()
        self._open: OrderedDict[str, tuple[str, float]] = OrderedDict()
        """Challenge -> its nonce, and until when it is valid."""

    def challenge(self, nonce: str) -> dict[str, str] | None:
        """Return ``{"challenge", "proof"}``; None for an invalid nonce."""
        if not (nonce.isascii() and nonce.isalnum() and len(nonce) <= NONCE_CHARS_MAX):
            return None
        challenge = secrets.token_hex(16)
        with self._lock:
            self._open[challenge] = nonce, time.monotonic() + CHALLENGE_SECONDS
            while len(self._open) > CHALLENGES_MAX:
                self._open.popitem(last=False)
        return {"challenge": challenge, "proof": self._proof("server", nonce, challenge)}

    def answer(self, challenge: str, proof: str) -> dict[str, str] | None:
        """Return ``{"token"}`` for a right proof, once for each challenge; None otherwise."""
        with self._lock:
            nonce, until = self._open.pop(challenge, ("", 0.0))
        right = self._proof("page", nonce, challenge).encode()
        knows = hmac.compare_digest(right, proof.encode("utf-8", "replace"))
        return {"token": self._token} if knows and time.monotonic() < until else None

    def _proof(self, who: str, nonce: str, challenge: str) -> str:
        message = f"{who} {self._port} {nonce} {challenge}".encode()
        return hmac.new(self._key.encode(), message, "sha256").hexdigest()
