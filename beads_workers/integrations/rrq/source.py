"""The fleet's view of an RRQ executor: requests are jobs, and settling one is its answer."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from ipaddress import ip_address
from typing import Any

from beads_workers.core.base import source
from beads_workers.core.base.model import Call, IssueId, Job, value
from beads_workers.executors.files import with_result
from beads_workers.integrations.rrq import wire
from beads_workers.integrations.rrq.request_table import RequestTable, Unanswered

# --- addresses -----------------------------------------------------------------------------------
# Address that an executor listens at, from its environment or its arguments.


PATH_BYTES_MAX = 107
"""Longest path that the kernel accepts for a Unix socket, without the closing zero."""


@value
class Unix:
    """A Unix socket at this absolute path."""

    path: str

    def __str__(self) -> str:
        """Return the address for people and for ``from_text``."""
        return f"unix:{self.path}"


@value
class Tcp:
    """A numeric loopback address and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return the address for people and for ``from_text``."""
        return (
            f"tcp:[{self.host}]:{self.port}" if ":" in self.host else f"tcp:{self.host}:{self.port}"
        )


Address = Unix | Tcp


def choose(socket: str | None, tcp_socket: str | None, environment: Mapping[str, str]) -> Address:
    """Return the address in the arguments or, without one, in the environment.

    Raises ``ValueError``: one line for people. An empty variable counts as not set, as with the
    real executors.
    """
    if not (socket or tcp_socket):
        socket, tcp_socket = (
            environment.get(wire.SOCKET_VARIABLE),
            environment.get(wire.TCP_VARIABLE),
        )
    if socket and tcp_socket:
        raise ValueError(
            f"both {wire.SOCKET_VARIABLE} and {wire.TCP_VARIABLE} are set: one address is enough"
        )
    if socket:
        return unix(socket)
    if tcp_socket:
        return tcp(tcp_socket)
    raise ValueError(f"no address: neither {wire.SOCKET_VARIABLE} nor {wire.TCP_VARIABLE} is set")


def unix(text: str) -> Unix:
    """Return the address of a Unix socket; raise ``ValueError`` if its path is not valid."""
    path = os.path.abspath(text)  # noqa: PTH100 - no file is looked at
    if "\0" in path or len(os.fsencode(path)) > PATH_BYTES_MAX:
        raise ValueError(f"the path of a socket has {PATH_BYTES_MAX} bytes at most: {text[:200]!r}")
    return Unix(path)


def tcp(text: str) -> Tcp:
    """``host:port`` or ``[host]:port`` on the loopback interface; raises ``ValueError``."""
    host, colon, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    try:
        address = ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise ValueError(f"{text[:80]!r} is no host:port, like 127.0.0.1:9000") from None
    if not address.is_loopback:
        raise ValueError(f"{host} is not this machine alone: an executor listens on 127.0.0.1")
    if not (colon and port.isascii() and port.isdecimal() and 0 < int(port[:6]) < 65536):
        raise ValueError(f"{port[:20]!r} is no port from 1 to 65535")
    return Tcp(str(address), int(port))


def from_text(text: str) -> Address:
    """Return the address that ``str`` made this text of."""
    kind, _, rest = text.partition(":")
    return Unix(rest) if kind == "unix" else tcp(rest)


def split_command(words: Sequence[str]) -> tuple[tuple[str, ...], str | None]:
    """Return the command, and the address that rrq 0.11 has put behind it, or None."""
    if len(words) >= 2 and words[-2] == wire.TCP_OPTION:
        return tuple(words[:-2]), words[-1]
    return tuple(words), None


# --- source --------------------------------------------------------------------------------------
# The fleet's view of an RRQ executor: requests are jobs, and settling one is its answer.


EXECUTOR = "default"
"""Name of this executor where jobs are shown: the orchestrator does not say how it calls us."""

LEFT = "whoever asked for it has left"

SECONDS_MIN = 0.001
"""Shortest time for an attempt: a request without time left has been answered already."""


class RrqSource:
    """See ``Source``. The source never blocks, and belongs to the thread of the loop.

    ``prefix``: prefix of every function name, joined by a dot. ``calls_functions``: requests are
    calls of Python functions, and not of the fleet's command. ``attempt_seconds``: limit for each
    attempt.
    """

    name = "rrq"
    self_claiming = False

    def __init__(
        self,
        serving: RequestTable,
        *,
        actor: str,
        place: str,
        calls_functions: bool,
        prefix: str = "",
        attempt_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.serving = serving
        self.actor = actor
        self.calls = source.Calls()
        self._place = place
        self._calls_functions = calls_functions
        self._prefix = f"{prefix}." if prefix else ""
        self._attempt_seconds = attempt_seconds
        self._clock = clock

    def describe(self) -> str:
        """Return where requests come from."""
        return f"RRQ requests at {self._place}"

    def take(self, limit: int, skip: Collection[IssueId]) -> source.Taken:
        """Return the next requests, oldest first."""
        now = self._clock()
        return source.Taken(
            tuple(self._job(unanswered, now) for unanswered in self.serving.take(limit))
        )

    def settle(self, settlements: Sequence[source.Settlement]) -> list[source.Settled]:
        """Answer the requests; skip those whose connection is gone."""
        return [
            source.Settled(
                each,
                source.Result.APPLIED,
                self.serving.settled(each.issue_id, with_result(each.outcome)),
            )
            for each in settlements
        ]

    def renew(self, issue_ids: Sequence[IssueId]) -> source.Renewed:
        """Do nothing: there are no leases."""
        return source.Renewed()

    def recover(self, dead: source.CrashedRun) -> list[source.Settled]:
        """Report the unclosed requests of a crashed run as ``NOT_OURS``.

        Nothing is pending: their connections ended with the run. Unreported, they would be
        remembered for ever as unclosed.
        """
        done = (source.Settlement(source.Action.CLOSE, issue_id) for issue_id in dead.unclosed)
        return [source.Settled(each, source.Result.NOT_OURS, LEFT) for each in done]

    def look(self, issue_ids: Sequence[IssueId]) -> dict[IssueId, source.TrackedIssue]:
        """Return nothing: an answered request leaves no trace here."""
        return {}

    def unfinished(self, rows_max: int) -> list[source.TrackedIssue]:
        """Return nothing: the orchestrator shows the requests that wait."""
        return []

    def ready(self) -> frozenset[IssueId]:
        """See ``unfinished``."""
        return frozenset()

    def close(self) -> None:
        """Do nothing: the connections belong to the ingress."""

    def _job(self, unanswered: Unanswered, now: float) -> Job:
        request = unanswered.request
        assert request is not None and unanswered.issue_id is not None, "it is still wanted"
        seconds = self._attempt_seconds
        if unanswered.deadline is not None:
            left = max(SECONDS_MIN, unanswered.deadline - now)
            seconds = left if seconds is None else min(left, seconds)
        calls = self._calls_functions
        before = self._prefix if calls else f"{EXECUTOR}#"
        call = Call(before + request.function_name, request.args, request.kwargs)
        return Job(
            self.name,
            unanswered.issue_id,
            request.function_name,
            issue_type="request",
            timeout_seconds=seconds,
            attempt=request.context.attempt,
            enqueued_at=request.context.enqueue_time,
            trace_context=request.context.trace_context,
            call=call if calls else None,
            named=None if calls else call,
            original={} if calls else _shown(unanswered.issue_id, request),
        )


def _shown(issue_id: IssueId, request: wire.Request) -> dict[str, Any]:
    """Return the content of ``BW_ISSUE_FILE`` for a command: the request with the keys of an
    issue."""
    return {"id": issue_id, "title": request.function_name, **wire.request_fields(request)}
