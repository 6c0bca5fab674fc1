"""The live page's server in this process, and viewers that speak HTTP by hand."""

from __future__ import annotations

import json
import random
import socket
import threading
import zlib
from collections.abc import Iterator
from itertools import count
from typing import Any

from beads_workers.cli.web_requests import attempt_json, issues_json
from beads_workers.core.records import journal as rec
from beads_workers.core.records.receipts import Receipt
from beads_workers.ui.attempt_view import AttemptView, Pin
from beads_workers.ui.backlog import of_snapshot
from beads_workers.ui.line_comments import places
from beads_workers.ui.web import Body, WebServer
from beads_workers.ui.web_state import Message, PageState
from tests.support import landings
from tests.support.browser import Browser, Page
from tests.support.journals import HOSTILE_TITLES
from tests.ui.snapshots import after, agents_at_work, closed, ended, fleet

TOKEN = "abcdefghijklmnopqrstuv"
KEY = "k" * 43
PATIENCE_SECONDS = 20.0


class Served:
    """A server that shows what ``shown`` is told; ``asked`` has what was asked of the fleet.

    ``error``: the answer to everything that is asked, if there is one.
    """

    def __init__(self, *, controls: bool = False, **limits: float) -> None:
        self.shown = PageState()
        self.asked: list[tuple[str, Message]] = []
        self.error = ""
        self.web = WebServer(
            0,
            TOKEN,
            KEY,
            self.shown,
            ask=self._ask,
            control=self._control if controls else None,
            **limits,
        )
        self.port = self.web.server_port
        self.url = self.web.url
        self._thread = threading.Thread(target=self.web.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Listen no more; whoever follows is left alone."""
        self.web.shutdown()
        self.web.server_close()
        self._thread.join()

    def tell(self, snapshot: Message, state: str = "live") -> None:
        """What a feed would."""
        self.shown.say("snapshot", snapshot)
        self.shown.say("fleet", {"state": state})

    def call(self, text: str, body: bytes = b"") -> bytes:
        """One request, its lines divided by ``|``; the whole answer."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE_SECONDS) as sock:
            sock.sendall(text.replace("|", "\r\n").encode() + b"\r\n\r\n" + body)
            answer = b""
            while data := sock.recv(1 << 16):
                answer += data
        return answer

    def get(self, path: str, *headers: str) -> bytes:
        """With the token and the right ``Host``."""
        lines = [f"GET /{TOKEN}/{path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", *headers]
        return self.call("|".join(lines))

    def _ask(self, what: str, query: dict[str, str]) -> Message | Body | None:
        lines = [HOSTILE_TITLES[0], "all is well", *(f"line {n}" for n in range(60))]
        match what:
            case "log" if query.get("worker") == "W1":
                end = 4000
                told = [] if "after" in query else lines
                found = {"begin": 0, "end": end, "size": end, "lines": told, "begun": ""}
                return found | {"times": [1.0] * len(told), "name": "W1", "runs": True}
            case "log":
                return {"error": "that run is not here any more"}
            case "diff":
                shown = ["bw/x at 123", "", "diff --git a/x b/x", f"+{lines[0]}", "-gone"]
                return {"lines": shown, "places": places(shown)}
            case "issues" if self.shown.snapshot is not None:
                found = of_snapshot(self.shown.snapshot)
                return issues_json(found, self.shown.snapshot, 0.0) | {"mark": "m"}
            case "why":
                return {"lines": [f"x: {lines[0]}"]}
            case "attempt":
                pin = Pin(
                    query["issue"], query["run"], int(query["number"]), query.get("worker", "")
                )
                return attempt_json(AttemptView(pin), self.shown.snapshot)
            case _:
                return None

    def _control(self, name: str, fields: Message) -> Message:
        self.asked.append((name, fields))
        return {"error": self.error} if self.error else {"text": f"done: {name}"}


def patched(old: Any, change: Any) -> Any:
    """What a change makes of a value, as the page does it."""
    if isinstance(change, dict):
        kept = {key: each for key, each in old.items() if change.get(key) != 0}
        return kept | {key: patched(old.get(key), each) for key, each in change.items() if each}
    kind, *rest = change
    if not kind:
        return rest[0]
    found: list[Any] = []
    for op in rest:
        match op:
            case [item]:
                found.append(item)
            case [at, int(count)]:
                found += old[at : at + count]
            case [at, inner]:
                found.append(patched(old[at], inner))
    return found


class Viewer:
    """Follows the events of a server, or does not read at all."""

    def __init__(self, served: Served, *, receive_bytes: int = 0, zipped: bool = False) -> None:
        self.socket = socket.socket()
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(PATIENCE_SECONDS)
        self.socket.connect(("127.0.0.1", served.port))
        lines = [f"GET /{TOKEN}/events HTTP/1.1", f"Host: localhost:{served.port}"]
        lines += ["Accept-Encoding: br, gzip"] if zipped else []
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode())
        self.received = 0
        self._unzip = zlib.decompressobj(wbits=31) if zipped else None
        self._rest = b""
        self._sent: Any = None

    def head(self) -> bytes:
        """Up to the blank line, which comes first."""
        unzip, self._unzip = self._unzip, None
        found = self._until(b"\r\n\r\n")
        self._unzip = unzip
        self._rest = unzip.decompress(self._rest) if unzip else self._rest
        return found

    def event(self) -> tuple[str, Any]:
        """The next event with data: its name, and what it holds; a snapshot as it is by then."""
        while True:
            lines = self._until(b"\n\n").decode().split("\n")
            fields = dict(line.split(": ", 1) for line in lines if line)
            if "event" not in fields:
                continue
            event, data = fields["event"], json.loads(fields["data"])
            if event == "change":
                event, data = "snapshot", patched(self._sent, data)
            if event == "snapshot":
                self._sent = data
            return event, data

    def close(self) -> None:
        """Leave."""
        self.socket.close()

    def _until(self, end: bytes) -> bytes:
        while end not in self._rest:
            data = self.socket.recv(1 << 16)
            assert data, "the server closed the stream"
            self.received += len(data)
            self._rest += self._unzip.decompress(data) if self._unzip else data
        found, _, self._rest = self._rest.partition(end)
        return found


def everything(workers: int = 8) -> Served:
    """A page that may control, of a fleet of so many workers with everything going on."""
    served = Served(controls=True)
    served.shown.begin()
    ends = [("W1", f"e-{n}", HOSTILE_TITLES[n % 10], 1, n, n + 0.8, "error") for n in range(9)]
    served.shown.add(ends)
    served.tell(full_house(workers))
    return served


def drawn(browser: Browser, url: str, width: int = 1280, **options: bool) -> Page:
    """The page, once it shows a fleet."""
    page = browser.open(url, width, **options)
    page.until("document.querySelectorAll('#tiles dt').length > 0")
    return page


def full_house(workers: int = 8) -> Message:
    """A snapshot with something in every part of the page, and titles that would break it."""
    records: list[rec.Record] = [*agents_at_work(), closed(), *fleet(workers, workers // 2)[4:]]
    for n, title in enumerate(HOSTILE_TITLES):
        worker, issue = f"W{n % workers + 1}", f"x-{n}"
        records += [rec.Claimed(issue, title), rec.Started(issue, worker, 1, "r", title)]
        how = {"outcome": "error", "verdict": "quarantined", "error": title or "no", "charged": 1}
        records.append(ended(issue, worker, **(how if n % 3 else {})))
        records.append(rec.SettledRecord(issue, "quarantined" if n % 3 else "close", "applied"))
    records += [*asking(), *landings.night(), *awaiting(), rec.Noted("warning", HOSTILE_TITLES[0])]
    return after(*records)


QUESTION = f"FOO or BAR?\n- FOO: {HOSTILE_TITLES[0]}\n- BAR: {'x' * 300}\u202e"
DIFFSTAT = f"{HOSTILE_TITLES[1]} | 3 +++\n 1 file changed"
COMMIT = "abc" + "d" * 37


def asking(*issue_ids: str) -> list[rec.Record]:
    """Issues that ask a person, ``q-1`` and ``q-2`` unless named."""
    return [
        record
        for issue_id in issue_ids or ("q-1", "q-2")
        for record in (
            rec.Claimed(issue_id, HOSTILE_TITLES[0]),
            rec.Started(issue_id, "W1", 1, "r", HOSTILE_TITLES[0]),
            ended(
                *(issue_id, "W1"),
                outcome="question",
                verdict="asked",
                receipt=Receipt(agent="claude", branch=f"bw/{issue_id}/1", question=QUESTION),
            ),
            rec.SettledRecord(issue_id, "ask", "applied"),
        )
    ]


def awaiting(issue_id: str = "a-1", commit: str = COMMIT) -> list[rec.Record]:
    """An issue whose branch awaits approval."""
    work = {"base": "0" * 40, "head": commit, "commits": (commit,), "diffstat": DIFFSTAT}
    receipt = Receipt(agent="claude", branch=f"bw/{issue_id}/1", **work)
    return [
        rec.Claimed(issue_id, HOSTILE_TITLES[1]),
        rec.Started(issue_id, "W1", 1, "r", HOSTILE_TITLES[1]),
        ended(issue_id, "W1", verdict="land", awaits=True, receipt=receipt),
        rec.LandingEnded(issue_id, "shelve"),
        rec.SettledRecord(issue_id, "shelve", "applied"),
    ]


WORDS = ("edit", "read", "search", "tests", "core", "ui", "parser", "cache", "tokens", "module")


def busy_night(workers: int, issues: int, seed: int = 1) -> Iterator[Message]:
    """Snapshots of four a second: each agent says something once a second, one ends in two.

    Half of the issues are quarantined, each with an error of its own.
    """
    chance = random.Random(seed)

    def text(words: int) -> str:
        return " ".join(chance.choices(WORDS, k=words))

    now = full_house(workers)
    now["quarantined"] = [
        {"issue_id": f"proj-{n}", "attempts": 3, "error": f"E: {text(8)}: {n} != {n + 1}"}
        for n in range(issues // 2)
    ]
    for at in count():
        yield json.loads(json.dumps(now))
        now["uptime_seconds"] += 0.25
        for worker in now["workers"]:
            if worker["issue_id"] is None or (at % 8 == 0 and chance.random() < 1 / workers):
                worker |= {"issue_id": f"proj-{at}", "title": text(6), "attempt": 1}
                worker |= {"elapsed_seconds": 0.0, "tokens": 0}
            worker["elapsed_seconds"] = round(worker["elapsed_seconds"] + 0.25, 3)
            if chance.random() < 0.25:
                worker["activity"] = f"{text(2)} {'/'.join(chance.choices(WORDS, k=3))}.py"
                worker["tokens"] = (worker["tokens"] or 0) + chance.randrange(3000)
        if at % 8 == 0:
            row = now["outcomes"][0] | {"at": now["outcomes"][-1]["at"] + 1, "title": text(5)}
            now["outcomes"] = [*now["outcomes"][1:], row]
            now["totals"]["done"] += 1
            now["rate_per_minute"] = round(30 + chance.random(), 1)
