"""Requests to a forge over HTTP: with time limits, no redirects, and patience where it is asked.

A token is sent to the forge's own address only: an answer that leads elsewhere is an error.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from beads_workers.core.base.model import value
from beads_workers.core.base.source import Calls
from beads_workers.integrations.forge.api import ForgeDown, ForgeError, Gone, NotTaken

CALL_SECONDS = 30.0
CONNECT_SECONDS = 10.0
ANSWER_BYTES_MAX = 32 << 20
RETRY_SECONDS, RETRY_SECONDS_MAX = 30.0, 3600.0
"""How long a forge is left alone that says that it is asked too often, if it does not say how
long."""


@value
class HttpAnswer:
    """An answer: ``data`` is its JSON, "" without one; ``headers`` have names in lower case."""

    status: int
    headers: dict[str, str]
    data: Any


class Patience:
    """Keeps a forge from being asked while it wants to be left alone."""

    def __init__(self) -> None:
        self._until, self._why = 0.0, ""

    def check(self) -> None:
        """Raise ``ForgeDown`` until the time is over."""
        if (left := self._until - time.monotonic()) > 0:
            raise ForgeDown(f"{self._why}; it is asked again in {left:.0f} s")

    def judge(self, reply: HttpAnswer, what: str) -> HttpAnswer:
        """Return an answer that says something; raise ``ForgeError`` for all others."""
        status, said = reply.status, _message(reply.data)
        limited = status == 429 or (status == 403 and _is_limit(reply, said))
        if limited or status == 503:
            self._until = time.monotonic() + _wait(reply)
            self._why = f"{what}: the forge is asked too often" if limited else f"{what}: {said}"
            self.check()
        if status >= 500:
            raise ForgeDown(f"{what}: the forge fails with {status}{said and f' ({said})'}")
        if 300 <= status < 400 and status != 304:
            raise ForgeError(f"{what}: it leads elsewhere, and the token does not follow")
        if status in (401, 403):
            raise ForgeError(
                f"{what}: refused{said and f' ({said})'}", "look at the token's rights"
            )
        if status in (404, 410):
            raise Gone(f"{what}: there is none, or this login cannot see it")
        if status >= 400:
            raise NotTaken(f"{what}: {status} {said}".rstrip())
        return reply


def _is_limit(reply: HttpAnswer, said: str) -> bool:
    headers = reply.headers
    return (
        "retry-after" in headers
        or headers.get("x-ratelimit-remaining") == "0"
        or "rate limit" in said.lower()
    )


def _wait(reply: HttpAnswer) -> float:
    """Return the seconds for which the forge wants to be left alone."""
    text, reset = reply.headers.get("retry-after", ""), reply.headers.get("x-ratelimit-reset", "")
    seconds = RETRY_SECONDS
    if text.isascii() and text.isdigit():
        seconds = float(text[:9])
    elif reset.isascii() and reset.isdigit():
        seconds = float(reset[:12]) - time.time()
    return min(max(seconds, 1.0), RETRY_SECONDS_MAX)


def _message(data: Any) -> str:
    said = data.get("message") if isinstance(data, dict) else None
    return " ".join(str(said or "").split())[:200]


def parsed(data: bytes, what: str) -> Any:
    """Return the JSON of an answer, "" without one; raises ``ForgeError``."""
    try:
        return json.loads(data) if data.strip() else ""
    except (ValueError, RecursionError):
        raise ForgeError(f"{what}: the answer is no JSON") from None


def date_of(headers: dict[str, str]) -> str:
    """Return when an answer was made, as issues have their times; "" if it does not say."""
    try:
        made = parsedate_to_datetime(headers["date"]).astimezone(UTC)
    except (KeyError, ValueError, OverflowError):
        return ""
    return made.isoformat()[:19] + "Z"


def earlier(at: str, seconds: float) -> str:
    """Return the time that is so much earlier, in the same form; "" of ""."""
    if not at:
        return ""
    return (datetime.fromisoformat(at) - timedelta(seconds=seconds)).isoformat()[:19] + "Z"


class Http:
    """Requests with a token; ``url``: the begin of all addresses."""

    def __init__(self, url: str, token: str) -> None:
        import urllib3

        self._url, self._errors = url, urllib3.exceptions.HTTPError
        timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=CALL_SECONDS)
        self._pool = urllib3.PoolManager(timeout=timeout, retries=False)
        self._headers = {"Authorization": f"token {token}", "Accept": "application/json"}
        self._patience = Patience()
        self.calls = Calls()
        self.said_at = ""
        """When the last answer was made, by the server's clock: RFC 3339, in UTC."""

    def ask(self, method: str, path: str, body: Any = None) -> HttpAnswer:
        """Return the answer to a request; raises ``ForgeError``."""
        what = f"{method} {path.partition('?')[0]}"
        self._patience.check()
        began = time.monotonic()
        deadline = began + CALL_SECONDS
        try:
            reply = self._pool.request(
                method,
                self._url + path,
                headers=self._headers,
                preload_content=False,
                redirect=False,
                **({} if body is None else {"json": body}),
            )
            pieces, size = [], 0
            for piece in reply.stream(1 << 16):
                pieces.append(piece)
                size += len(piece)
                if size > ANSWER_BYTES_MAX or time.monotonic() > deadline:
                    reply.close()
                    raise ForgeDown(f"{what}: the answer is too long, or never ends")
            reply.release_conn()
        except (self._errors, OSError) as error:
            raise ForgeDown(f"{what}: the forge does not answer ({_reason(error)})") from None
        finally:
            self.calls.count += 1
            self.calls.seconds += time.monotonic() - began
        headers = {name.lower(): text for name, text in reply.headers.items()}
        self.said_at = date_of(headers) or self.said_at
        data = b"".join(pieces)
        is_json = reply.status < 300 or data[:1] in (b"{", b"[")
        return self._patience.judge(
            HttpAnswer(reply.status, headers, parsed(data, what) if is_json else ""), what
        )

    def close(self) -> None:
        """Close all connections."""
        self._pool.clear()


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__
