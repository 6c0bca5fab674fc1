"""The one process at home that speaks to the hosts of a place: ``python -m`` with lines of JSON.

On stdin it gets its ``LineSettings``, then orders of the orchestrator: a ``commands.Word``, a lease
and the journal. On stdout it tells news: ``placed``, ``heard``, ``ended``, each with a lease, and
``seen``, which hosts answer. The programs of attempts connect to its socket (``places.away``).

It sends each host a word for each attempt every other second or more often. That renews the
attempt's lease, and brings its output. It ends with the orchestrator, whose stdin closes; the
attempts go on.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import signal
import sys
import time
from collections.abc import Awaitable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from beads_workers import registry
from beads_workers.core.base.plain import from_plain, to_plain
from beads_workers.core.base.text import size
from beads_workers.core.records.journal import Leased
from beads_workers.places import guard
from beads_workers.runtime.kernel import system
from beads_workers.runtime.places import LineSettings

WORD_SECONDS, OFTEN_SECONDS, SOON_SECONDS = 2.0, 0.5, 0.25
"""Time between two words for an attempt: for one of many, of few, and where something has just
changed."""
WORDS_PER_SECOND = 32
"""Words for all attempts together, so that each is asked less often if there are many."""
ANSWER_SECONDS = 5.0
"""Silence after which a line is given up, and another one begun."""
LOOK_SECONDS = 10.0
REACH_SECONDS = 10.0
"""Time in which a host must have answered before an attempt begins there."""
AGAIN_SECONDS_MAX, LACKING_SECONDS_MAX = 5.0, 60.0
"""Time between two tries of a line: to a host that is silent, and to one that lacks something."""
ASK_SECONDS = 60.0
"""Time in which a host must have answered what is asked before its attempt begins."""
PART_SECONDS = 8.0
"""Time at the end in which hosts are still told what is over."""
FREE_BYTES_MIN = 64 << 20
"""Room that an attempt must find on a host."""
LINE_BYTES_MAX = 4 << 20
SOURCE = Path(guard.__file__).read_text("utf-8")
RECEIVE = (
    "import sys;SOURCE=sys.stdin.buffer.read(%d).decode();"
    "sys.argv=['guard','relay',%r];"
    "exec(compile(SOURCE,'guard','exec'),{'__name__':'__main__','SOURCE':SOURCE})\n"
)
REMOTE = "python3 -IS -c 'import sys;text=sys.stdin.buffer.readline();exec(text)'"
"""What an engine runs on a host: it reads the guard's text from its stdin, and is its relay."""

Json = dict[str, Any]


class Unreached(Exception):
    """A host does not answer; the text says why, as far as that is known."""


class Lacking(Exception):
    """A host answers, and no attempt can run there; the text says why."""


NONSENSE = (AttributeError, KeyError, TypeError, ValueError, RecursionError)
"""What comes of an answer that is not of a guard: a host is not trusted."""
NO_SENSE = "it answers nothing that makes sense"


class Engine(Protocol):
    """How hosts of a place are reached, and attempts placed there. May raise ``Unreached``."""

    waiting: Mapping[str, str]
    """Why attempts wait for a host, by nonce."""

    def known_hosts(self) -> list[str]:
        """Return the hosts to which lines are kept, whether an attempt is there or not."""

    def argv(self, host: str) -> list[str]:
        """Return a command here that runs ``REMOTE`` on a host, with its stdin and stdout."""

    async def place(self, issue_id: str, nonce: str, base: str) -> str:
        """Return the host on which an attempt is to run, once there is room."""

    async def drop(self, nonce: str) -> None:
        """Give up the room of an attempt that is over, or is not wanted."""

    async def find(self, host: str, nonce: str) -> str:
        """Return where an attempt of an earlier run is reached now."""


def lacks_of(hello: Json, needs: Iterable[str]) -> list[str]:
    """Return what a host lacks, by what it says that it has."""
    found = hello["programs"]
    lacks = [name for name in needs if not found.get(name)]
    lacks += [] if hello.get("python311") else ["python 3.11 or newer"]
    free = hello["free"]
    return lacks + ([] if free >= FREE_BYTES_MIN else [f"room ({size(free)} are free)"])


# --- one host ------------------------------------------------------------------------------------


class HostLine:
    """The line to one host: begun anew whenever it breaks, or is silent."""

    def __init__(self, argv: list[str], base: str, needs: tuple[str, ...], tell: Any) -> None:
        self._argv, self._base, self._needs, self._tell = argv, base, needs, tell
        self.hello: Json = {}
        """What the host has, once it has answered."""
        self._process: asyncio.subprocess.Process | None = None
        self._waiting: dict[int, asyncio.Future[Json]] = {}
        self._ref = 0
        self.why = "it was not reached yet"
        """Why it does not answer; "" if it does."""
        self.tried = asyncio.Event()
        """Set once it is known for the first time whether the host answers."""
        self.cut_since = time.monotonic()
        self.seconds = 0.0
        """How long the last answer took."""
        self._task = asyncio.create_task(self._keep())

    async def ask(self, word: Mapping[str, Any], seconds: float = ANSWER_SECONDS) -> Json:
        """Return the answer to a word. Raises ``Unreached``."""
        if self.why or self._process is None:
            raise Unreached(self.why)
        return await self._ask(self._process, word, seconds)

    async def _ask(
        self, process: asyncio.subprocess.Process, word: Mapping[str, Any], seconds: float
    ) -> Json:
        assert process.stdin is not None
        self._ref += 1
        ref, began = self._ref, time.monotonic()
        answer = self._waiting[ref] = asyncio.get_running_loop().create_future()
        try:
            process.stdin.write(json.dumps({**word, "ref": ref}).encode() + b"\n")
            found: Json = await asyncio.wait_for(answer, seconds)
        except TimeoutError:
            self._break(f"it has not answered for {seconds:g} s")
            raise Unreached(self.why) from None
        except OSError as error:
            raise Unreached(str(error)) from None
        finally:
            self._waiting.pop(ref, None)
        self.seconds = time.monotonic() - began
        return found

    async def ask_patiently(self, word: Mapping[str, Any], seconds: float) -> Json:
        """Repeat ``ask`` over this time; each word may come twice."""
        until = time.monotonic() + seconds
        while True:
            try:
                return await self.ask(word)
            except Unreached:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(SOON_SECONDS)

    async def close(self) -> None:
        """Break the line for good."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    def _break(self, why: str) -> None:
        if not self.why:
            self.why, self.cut_since = why, time.monotonic()
            self._tell()
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        self._fail(why)

    def _fail(self, why: str) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(Unreached(why))

    async def _keep(self) -> None:
        again = 0.5
        while True:
            was_reached = not self.why
            try:
                why, most = await self._connected(), AGAIN_SECONDS_MAX
            except Lacking as error:
                why, most = str(error), LACKING_SECONDS_MAX
            except NONSENSE:
                why, most = NO_SENSE, LACKING_SECONDS_MAX
            except (OSError, Unreached, TimeoutError) as error:
                why, most = str(error) or "it does not answer", AGAIN_SECONDS_MAX
            again = 0.5 if was_reached else again
            was_new = self.why and self.why != why
            self._break(why)
            if was_new:
                self.why = why
                self._tell()
            self.tried.set()
            await asyncio.sleep(again)
            again = min(2 * again, most)

    async def _connected(self) -> str:
        """Speak to the host until the line breaks; return why it did."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *self._argv, stdin=pipe, stdout=pipe, stderr=pipe, limit=LINE_BYTES_MAX
        )
        assert process.stdin is not None and process.stdout is not None
        try:
            text = SOURCE.encode()
            process.stdin.write((RECEIVE % (len(text), self._base)).encode() + text)
            self._process = process
            reading = asyncio.create_task(self._read(process.stdout))
            reading.add_done_callback(lambda task: self._fail("the line was closed"))
            with suppress(Unreached):  # Its complaint says more.
                self.hello = await self._greeted(process)
                self.why = ""
                self.tried.set()
                self._tell()
            await reading
            assert process.stderr is not None
            said = (await asyncio.wait_for(process.stderr.read(1 << 16), 1.0)).decode(
                "utf-8", "replace"
            )
            lines = [each.strip() for each in said.splitlines() if each.strip()]
            return lines[-1][:300] if lines else "the line was closed"
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
            await process.wait()

    async def _greeted(self, process: asyncio.subprocess.Process) -> Json:
        answer = await self._ask(process, {"hello": {"programs": self._needs}}, REACH_SECONDS)
        if why := answer.get("why"):
            raise Lacking(str(why)[:300])
        hello: Json = answer["hello"]
        if lacks := lacks_of(hello, self._needs):
            raise Lacking(f"it has no {', no '.join(lacks)}")
        return hello

    async def _read(self, stdout: asyncio.StreamReader) -> None:
        while line := await stdout.readline():
            answer = json.loads(line)
            waiting = self._waiting.get(answer["ref"])
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)


# --- one attempt ---------------------------------------------------------------------------------


@dataclass(slots=True)
class AwayAttempt:
    """An attempt that this process knows."""

    nonce: str
    issue_id: str
    attempt: int
    request_id: str
    host: str = ""
    lease: Leased | None = None
    client: Client | None = None
    # What is to begin, once its client has sent it all.
    order: Json | None = None
    clock: float | None = None
    may_go: bool = False
    begun: bool = False
    ends: bool = False
    is_paused: bool = False
    read: list[int] = field(default_factory=lambda: [0, 0])
    ended: Json | None = None
    # Its end is known to the orchestrator.
    heard: bool = False
    # Its worker is gone, or has given it up; once its own program is gone, too, its answer is
    # fetched by another one.
    orphaned: bool = False
    looked_for: bool = False
    told: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def patience(self) -> float:
        """How long a host is asked: for what an attempt has left longer than its lease."""
        left = self.lease.seconds if self.lease is not None and self.ended else 0.0
        return ASK_SECONDS + left


@dataclass(slots=True)
class Client:
    """The program of an attempt, connected."""

    writer: asyncio.StreamWriter
    pid: int

    def say(self, fields: Mapping[str, Any]) -> None:
        """Send it a line; one that has gone hears nothing."""
        with suppress(OSError, RuntimeError):
            self.writer.write(json.dumps(fields).encode() + b"\n")

    @property
    def is_stopped(self) -> bool:
        """Whether its worker has stopped it: then its attempt is stopped, too."""
        stat = system.stat_of(self.pid)
        return stat is not None and stat.is_stopped


class PlaceLine:
    """All lines and attempts of a place."""

    def __init__(self, settings: LineSettings) -> None:
        self.settings = settings
        self.engine: Engine = registry.place_engine(settings.place.engine)(settings.place, REMOTE)
        self.lines: dict[str, HostLine] = {}
        self.attempts: dict[str, AwayAttempt] = {}
        self._told, self._told_at = "", 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self.parting: dict[asyncio.Task[None], str] = {}
        """What tells a host, and its engine, that an attempt is over."""

    def news(self, fields: Mapping[str, Any]) -> None:
        """Tell the orchestrator, if it still listens."""
        with suppress(BrokenPipeError):
            sys.stdout.write(f"{json.dumps(fields)}\n")
            sys.stdout.flush()

    def spawn(self, work: Awaitable[None], attempt: AwayAttempt) -> asyncio.Task[None]:
        """Run a coroutine for an attempt beside the others; if it fails, its client is told."""

        async def guarded() -> None:
            try:
                await work
            except Exception as error:  # Whatever it is, nobody must wait for ever.
                sys.stderr.write(f"{attempt.issue_id}: {type(error).__name__}: {error}\n")
                if attempt.client is not None:
                    attempt.client.say({"failed": f"{type(error).__name__}: {error}"})

        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def line(self, host: str) -> HostLine:
        """Return the line that serves a host."""
        if host not in self.lines:
            argv = self.engine.argv(host)
            needs = self.settings.needs
            self.lines[host] = HostLine(argv, self.settings.base, needs, self.look)
        return self.lines[host]

    def look(self) -> None:
        """Tell which hosts answer, if that has changed, or now and then."""
        now, place = time.monotonic(), self.settings.place
        hosts = [
            {
                "name": name,
                "why": line.why,
                "since": round(time.time() - now + line.cut_since, 1),
                "ms": round(line.seconds * 1000),
            }
            for name, line in sorted(self.lines.items())
        ]
        why = str(hosts[0]["why"]) if hosts and all(h["why"] for h in hosts) else ""
        reasons = self.engine.waiting
        waiting = {a.issue_id: reasons[n] for n, a in self.attempts.items() if n in reasons}
        told = json.dumps([waiting, *([h["name"], h["why"]] for h in hosts)])
        if told != self._told:
            for attempt in self.attempts.values():
                attempt.changed.set()  # A host that is reached again renews all leases at once.
        if told != self._told or now > self._told_at + LOOK_SECONDS:
            self._told, self._told_at = told, now
            facts = {"engine": place.engine, "slots": place.slots}
            lease = {"lease_seconds": place.lease_seconds}
            seen = {"hosts": hosts, "waiting": waiting, "why": why}
            self.news({"seen": {**facts, **lease, **seen}})

    async def keep_looking(self) -> None:
        """Look now and then."""
        while True:
            self.look()
            await asyncio.sleep(WORD_SECONDS)

    # --- from placing to the end ---------------------------------------------------------------

    async def place(self, attempt: AwayAttempt) -> None:
        """Find a host for an attempt, and have a guard wait there; tell its client."""
        client = attempt.client
        assert client is not None
        settings = self.settings
        try:
            placing = self.engine.place(attempt.issue_id, attempt.nonce, settings.base)
            attempt.host = await placing
            line = self.line(attempt.host)
            word = {"serve": [attempt.issue_id[:200], attempt.nonce]}
            said = await line.ask_patiently(word, REACH_SECONDS)
            hello = line.hello
            if said.get("why"):
                raise Unreached(str(said["why"]))
            lease = Leased(
                *(attempt.issue_id, attempt.attempt, attempt.request_id, settings.place.name),
                *(attempt.host, str(said["boot"]), attempt.nonce, settings.place.lease_seconds),
            )
            attempt.lease, attempt.clock = lease, float(said["clock"])
        except (Unreached, KeyError, TypeError, ValueError) as error:
            client.say({"failed": f"{settings.place.name}: {error}"})
            await self._forget(attempt)
            return
        base = settings.base.replace("~", hello["home"], 1)
        client.say(
            {
                "placed": {
                    **to_plain(lease),
                    "fleet": settings.fleet,
                    "python": hello["python311"],
                    "base": base,
                }
            }
        )

    async def keep(self, attempt: AwayAttempt) -> None:
        """Send words for an attempt until its end is known, and nobody needs it any more."""
        pause = SOON_SECONDS
        while attempt.nonce in self.attempts and not (attempt.ended and attempt.heard):
            news = False
            with suppress(Unreached, *NONSENSE):  # Not heard: its lease counts.
                news = await self._word(attempt)
            most = min(WORD_SECONDS, max(OFTEN_SECONDS, len(self.attempts) / WORDS_PER_SECOND))
            pause = SOON_SECONDS if news else min(most, pause * 1.3)
            attempt.changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(attempt.changed.wait(), pause)
        client = attempt.client
        if attempt.nonce in self.attempts and client is not None and not attempt.looked_for:
            await self._drain(attempt)
            client.say({"ended": attempt.ended})

    async def _word(self, attempt: AwayAttempt) -> bool:
        """Send one word, and take in the answer; return whether something is new."""
        word: Json = {"nonce": attempt.nonce, "clock": attempt.clock}
        lease = attempt.lease
        assert lease is not None
        if attempt.may_go and not attempt.begun and attempt.order is not None:
            word["go"] = {**attempt.order, "lease": lease.seconds}
        if attempt.ends or (attempt.looked_for and not attempt.begun and attempt.clock):
            word["end"] = True  # What has not begun for another run begins for nobody.
        stopped = attempt.client is not None and attempt.client.is_stopped
        if stopped is not attempt.is_paused:
            word["stop" if stopped else "cont"] = True
        wants_output = attempt.client is not None and attempt.begun and not attempt.looked_for
        if wants_output:
            word["out"] = attempt.read
        said = await self.line(attempt.host).ask(word)
        if said.get("nonce") != attempt.nonce:
            return False  # It speaks of another attempt.
        attempt.is_paused = stopped
        was = attempt.begun, attempt.ended
        if said.get("boot") == lease.boot:
            attempt.clock = max(attempt.clock or 0.0, float(said.get("clock") or 0.0))
        attempt.begun = attempt.begun or bool(said.get("begun"))
        if attempt.begun or attempt.looked_for:
            self.news({"heard": to_plain(lease)})
        self._take_end(attempt, said)
        printed = self._pass_on(attempt, said) if wants_output else False
        return printed or was != (attempt.begun, attempt.ended)

    def _take_end(self, attempt: AwayAttempt, said: Json) -> None:
        ended = said.get("ended")
        if not ended and said.get("gone") and not said.get("begun"):
            if not (attempt.begun or attempt.looked_for or attempt.may_go):
                return
            ended = {"why": "it had not begun", "exit": None}
        if ended and attempt.ended is None:
            attempt.ended = {"why": str(ended.get("why") or "")[:300], "exit": ended.get("exit")}
        self._tell_end(attempt)

    def _tell_end(self, attempt: AwayAttempt) -> None:
        """Tell that an attempt has ended, once somebody is there for its answer."""
        if attempt.ended is None or attempt.told or attempt.lease is None:
            return
        if attempt.looked_for:
            attempt.told = True
            self.spawn(self._fetch(attempt), attempt)
        elif attempt.client is not None:
            attempt.told = True
            self.news({"ended": to_plain(attempt.lease)})

    def _pass_on(self, attempt: AwayAttempt, said: Json) -> bool:
        out, sizes = said.get("out"), said.get("sizes")
        if attempt.client is None or not out or not any(out) or not sizes:
            return False
        if max(attempt.read) > guard.OUTPUT_MAX:
            return False  # More than a guard lets pass: a host is not trusted.
        attempt.client.say({"out": out})
        for number, data in enumerate(out):
            attempt.read[number] += len(data) * 3 // 4 - data.count("=", -2)
        return True

    async def _drain(self, attempt: AwayAttempt) -> None:
        """Bring the rest of the output of an attempt that has ended; raises ``Unreached``."""
        while True:
            word = {"nonce": attempt.nonce, "out": attempt.read}
            said = await self.line(attempt.host).ask_patiently(word, attempt.patience)
            if not self._pass_on(attempt, said):
                return

    async def _fetch(self, attempt: AwayAttempt) -> None:
        """Have the answer of an attempt brought by a program of ours, in the place of a worker."""
        from beads_workers.places.away import fetched

        lease = attempt.lease
        assert lease is not None
        settings = self.settings
        answer = await fetched(settings.socket, settings.runs, settings.common, lease)
        self.news({"ended": to_plain(lease), "answer": answer})

    async def _forget(self, attempt: AwayAttempt) -> None:
        self.attempts.pop(attempt.nonce, None)
        attempt.changed.set()
        with suppress(Unreached):
            await self.engine.drop(attempt.nonce)

    async def _close_unused(self, host: str) -> None:
        """Close a line to a host that is not known without an attempt there."""
        parting = [there for task, there in self.parting.items() if task != asyncio.current_task()]
        used = (*self.engine.known_hosts(), *parting, *(a.host for a in self.attempts.values()))
        if host in self.lines and host not in used:
            await self.lines.pop(host).close()
            self.look()

    # --- what the orchestrator wants -----------------------------------------------------------

    def order(self, said: Json) -> None:
        """Carry out an order: see the module text."""
        word, lease = said["word"], from_plain(Leased, said["lease"])
        attempt = self.attempts.get(lease.nonce)
        if word in ("look", "end"):
            if attempt is None:
                ids = lease.issue_id, lease.attempt, lease.request_id
                attempt = AwayAttempt(lease.nonce, *ids, lease.host, lease)
                self.attempts[lease.nonce] = attempt
                attempt.orphaned = attempt.looked_for = attempt.may_go = True
                self.spawn(self._found(attempt), attempt)
            else:
                attempt.orphaned = True
                self._adopt(attempt)
            attempt.ends = attempt.ends or word == "end"
        elif attempt is None:
            return
        elif word == "go":
            self._sync(said)
            attempt.may_go = True
        elif word in ("drop", "bye"):
            if attempt.client is not None:
                attempt.client.say({"failed": "it is not wanted any more"})
            self._sync(said)
            task = self.spawn(self._part(attempt), attempt)
            self.parting[task] = attempt.host
            task.add_done_callback(self.parting.pop)
        elif word == "heard":
            attempt.heard = True
        attempt.changed.set()

    def _adopt(self, attempt: AwayAttempt) -> None:
        """Look for the end of an orphaned attempt, once nobody else does."""
        if attempt.orphaned and attempt.client is None and not attempt.looked_for:
            attempt.looked_for, attempt.told = True, False
            self._tell_end(attempt)
        attempt.changed.set()

    def _sync(self, said: Json) -> None:
        """Bring what the orchestrator has written to disk; raises ``OSError``."""
        with open(said["journal"], "rb") as file:
            os.fsync(file.fileno())

    async def _part(self, attempt: AwayAttempt) -> None:
        """Have the host forget an attempt: what came of it is on disk here."""
        await self._forget(attempt)
        if attempt.host:
            with suppress(Unreached):
                line, word = self.line(attempt.host), {"nonce": attempt.nonce}
                if not attempt.ended:
                    await line.ask_patiently({**word, "end": True}, REACH_SECONDS)
                    await asyncio.sleep(WORD_SECONDS)
                await line.ask_patiently({**word, "bye": True}, REACH_SECONDS)
            await self._close_unused(attempt.host)

    async def _found(self, attempt: AwayAttempt) -> None:
        with suppress(Unreached):
            attempt.host = await self.engine.find(attempt.host, attempt.nonce)
        await self.keep(attempt)

    # --- what programs of attempts want --------------------------------------------------------

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve the program of one attempt."""
        pid, uid = system.peer_of(writer.get_extra_info("socket"))
        attempt: AwayAttempt | None = None
        client = Client(writer, pid)
        try:
            while uid == os.geteuid() and (line := await reader.readline()):
                said = json.loads(line)
                if "place" in said or "attach" in said:
                    attempt = self._taken_on(client, said)
                elif attempt is not None:
                    await self._asked(attempt, client, said)
        except (OSError, ValueError, asyncio.CancelledError):
            pass  # It is gone, or this process is about to be.
        finally:
            writer.close()
            if attempt is not None and attempt.client is client:
                attempt.client = None
                if attempt.may_go:
                    self._adopt(attempt)
                else:
                    await self._forget(attempt)

    def _taken_on(self, client: Client, said: Json) -> AwayAttempt:
        if "attach" in said:
            lease = from_plain(Leased, said["attach"])
            attempt = self.attempts.get(lease.nonce)
            if attempt is None:
                ids = lease.issue_id, lease.attempt, lease.request_id
                attempt = AwayAttempt(lease.nonce, *ids, lease.host, lease, may_go=True, begun=True)
                self.attempts[lease.nonce] = attempt
                self.spawn(self._found(attempt), attempt)
            attempt.client = client
            if attempt.ended is not None and attempt.looked_for:
                self.spawn(self._reread(attempt, client), attempt)
            return attempt
        asked = said["place"]
        ids = str(asked["issue_id"]), int(asked["attempt"]), str(asked["request_id"])
        attempt = AwayAttempt(secrets.token_hex(16), *ids, client=client)
        self.attempts[attempt.nonce] = attempt
        self.spawn(self.place(attempt), attempt)
        return attempt

    async def _reread(self, attempt: AwayAttempt, client: Client) -> None:
        attempt.read = [0, 0]
        await self._drain(attempt)
        client.say({"ended": attempt.ended})

    async def _asked(self, attempt: AwayAttempt, client: Client, said: Json) -> None:
        if "ask" in said:
            word = {**said["ask"], "nonce": attempt.nonce}
            try:
                answer = await self.line(attempt.host).ask_patiently(word, attempt.patience)
                client.say({"answer": answer})
            except Unreached as error:
                client.say({"answer": {"why": f"{attempt.host}: {error}"}})
        elif "begin" in said and attempt.lease is not None:
            attempt.order = said["begin"]
            self.news({"placed": to_plain(attempt.lease)})
            self.spawn(self.keep(attempt), attempt)
        elif "end" in said:
            # A worker whose orchestrator is gone says so, too: its attempt is for the next start.
            await asyncio.sleep(SOON_SECONDS)
            if os.getppid() != self.settings.orchestrator_pid:
                return
            attempt.ends = True
            if attempt.order is None:
                client.say({"failed": "it was ended before it began"})
                await self._forget(attempt)
            attempt.changed.set()


async def run() -> None:
    """Serve a place until stdin ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    line = PlaceLine(from_plain(LineSettings, json.loads(await reader.readline())))
    folder, name = os.path.split(line.settings.socket)
    os.makedirs(folder, 0o700, exist_ok=True)  # noqa: PTH103
    os.chdir(folder)  # A path may be too long for a socket.
    with suppress(FileNotFoundError):
        os.unlink(name)  # noqa: PTH108
    server = await asyncio.start_unix_server(line.serve, name, limit=LINE_BYTES_MAX)
    os.chmod(name, 0o600)  # noqa: PTH101
    for host in line.engine.known_hosts():
        line.line(host)
    looking = asyncio.create_task(line.keep_looking())
    try:
        while text := await reader.readline():
            line.order(json.loads(text))
    finally:
        looking.cancel()
        server.close()
        if line.parting:
            await asyncio.wait(line.parting, timeout=PART_SECONDS)
        await asyncio.gather(*(each.close() for each in line.lines.values()))


def main() -> int:
    """Run the process: see the module text."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.getLogger("asyncio").disabled = True  # It warns of programs that ended before.
    asyncio.run(run())
    return 0


if __name__ == "__main__":
    from beads_workers.places import line  # Engines know this one's ``Unreached``.

    sys.exit(line.main())
