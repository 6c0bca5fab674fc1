"""The ingress of dispatcherd's brokers, in the loop of the orchestrator."""

from __future__ import annotations

import json
import selectors
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from beads_workers.core.base.framing import ProtocolError
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.plain import from_plain
from beads_workers.core.base.settings import FleetSettings
from beads_workers.core.base.source import Source
from beads_workers.core.schedule.commands import FoundTask
from beads_workers.core.schedule.events import Arrived, Event, TaskFilter, Warned
from beads_workers.integrations.dispatcherd import configuration, wire
from beads_workers.integrations.dispatcherd.brokers import Answer, Broker, UnixBroker
from beads_workers.integrations.dispatcherd.control import Service
from beads_workers.integrations.dispatcherd.queue import QueuedTask, TaskQueue
from beads_workers.integrations.dispatcherd.source import DispatcherdSource, message_of
from beads_workers.integrations.dispatcherd.wire_chunks import ChunkAccumulator, read_object

# --- ingress -------------------------------------------------------------------------------------
# See ``runtime.sources.Ingress``.
#
# Messages that were read are written to the spool first, with all others of the same turn of the
# loop. Control requests are answered at once, by ``answerer``.


EXPIRE_SECONDS = 1.0
"""Interval at which stale chunks are looked for; they are stale after half an hour."""
DISK_RETRY_SECONDS = 1.0
WARNINGS_MAX = 20
WARNINGS_SECONDS = 60.0
"""Most warnings about wrong messages in this time: a peer that sends nothing else must not fill
the journal."""

Receive = Callable[[bytes, str, Callable[[str], Answer]], None]
Reply = Callable[[dict[str, Any]], None]
Answerer = Callable[[wire.ControlRequest, Reply], None]
"""Answers a control request, now or later, even if nobody wants the answer."""


class DispatcherdIngress:
    """See also ``control.Dispatches``. ``answerer`` is set by the caller."""

    def __init__(
        self,
        source: DispatcherdSource,
        tell: Callable[[Event], None],
        *,
        chunk_seconds: float,
        node_id: str = "",
    ) -> None:
        """Make an ingress without brokers; add them to ``brokers``."""
        self.node_id = node_id or str(uuid.uuid4())
        self.chunks = ChunkAccumulator(message_timeout_seconds=chunk_seconds)
        self.brokers: list[Broker] = []
        self.answerer: Answerer = _nobody
        self._source = source
        assert source.spool is not None, "it is open"
        self._spool = source.spool
        self._tell = tell
        self._began = time.monotonic()
        self._read: list[QueuedTask] = []
        self._expire_at = 0.0
        self._write_at = 0.0
        self._paused = False
        self._disk_full = False
        self._warned = 0
        self._warned_at = 0.0
        self._refused = self._unreported = 0

    @property
    def queue(self) -> TaskQueue:
        """The unfinished tasks."""
        return self._source.queue

    # --- what the brokers bring -------------------------------------------------------------------

    def receive(self, payload: bytes, channel: str, answer: Callable[[str], Answer]) -> None:
        """See ``brokers.Receiver``."""
        try:
            message = self._message(payload)
        except ProtocolError as error:
            self.refuse(f"dispatcherd message refused: {error}: {payload[:200]!r}")
        else:
            if isinstance(message, wire.TaskCall):
                self._arrived(message, channel, len(payload))
            elif message is not None:
                self._control(message, answer)
        if self.chunks.troubles:
            for trouble in self.chunks.troubles:
                self.refuse(f"dispatcherd: {trouble}")
            self.chunks.troubles.clear()

    def _arrived(self, task: wire.TaskCall, channel: str, size: int) -> None:
        self._read.append(self.queue.make(task, channel, time.time(), size))
        if self.queue.is_full:
            self._pause(True)

    def warn(self, text: str) -> None:
        """See ``brokers.Receiver``."""
        now = time.monotonic()
        if now >= self._warned_at + WARNINGS_SECONDS:
            self._warned, self._warned_at = 0, now
        self._warned += 1
        if self._warned > WARNINGS_MAX:
            return
        if self._warned == WARNINGS_MAX:
            text = "dispatcherd: more of this is not shown for a minute"
        unreported, self._unreported = self._unreported, 0
        self._tell(Warned(text, refused=unreported))

    def refuse(self, text: str) -> None:
        """See ``brokers.Receiver``."""
        self._refused += 1
        self._unreported += 1
        self.warn(text)

    def _message(self, payload: bytes) -> wire.TaskCall | wire.ControlRequest | None:
        """Return the message; None for a chunk of a message that is not complete yet."""
        if (bare := wire.bare_task(payload)) is not None:
            return bare
        _, fields, _ = self.chunks.ingest_dict(read_object(payload), time.monotonic())
        return None if fields is None else wire.from_fields(fields)

    def _control(self, asked: wire.ControlRequest, answer: Callable[[str], Answer]) -> None:
        # The requester sees all tasks that were sent before.
        self._enter(time.monotonic())
        send = answer(asked.reply_to) if asked.reply_to else None

        def reply(fields: dict[str, Any]) -> None:
            if send is not None:
                send(json.dumps(fields))

        self.answerer(asked, reply)

    # --- for whoever answers ----------------------------------------------------------------------

    def find(self, wanted: TaskFilter) -> Iterator[FoundTask]:
        """Yield the tasks that nobody has taken."""
        for entry in self.queue.untaken():
            message = message_of(entry)
            if wanted.matches(message):
                yield FoundTask(entry.issue_id, entry.place.value, message)

    def cancel(self, keys: Iterable[str]) -> None:
        """Forget the waiting tasks with these keys."""
        self.queue.cancel(IssueId(key) for key in keys)

    def submit(self, message: Mapping[str, Any]) -> str:
        """Take a task as if a broker had brought it; return "", or why it was refused."""
        try:
            task = wire.from_fields(message)
        except ProtocolError as error:
            return str(error)
        if not isinstance(task, wire.TaskCall):
            return "a control request is no task"
        self._arrived(task, "", len(json.dumps(message)))
        self._enter(time.monotonic())
        return ""

    def describe(self, service: Service) -> None:
        """Write brokers, chunks and the number of received tasks into ``service``."""
        service.chunks.append(self.chunks)
        service.received, service.queued = self.queue.received_count, self.queue.waiting_count
        service.refused = self._refused
        uptime = time.monotonic() - self._began
        for broker in self.brokers:
            service.producers[broker.producer] = broker.status() | {"uptime_seconds": uptime}

    # --- the loop ---------------------------------------------------------------------------------

    def deadline(self) -> float:
        """Return when ``tick`` is due (monotonic seconds)."""
        due = [broker.deadline() for broker in self.brokers]
        if (at := self.queue.deadline()) is not None:
            due.append(at)
        if self.chunks.active_messages:
            due.append(self._expire_at)
        if self._unreported:
            due.append(self._warned_at + WARNINGS_SECONDS)
        if self._disk_full:
            due.append(self._write_at)
        return min(due, default=float("inf"))

    def tick(self, now: float) -> None:
        """Write tasks that were read to the spool and the queue, and do what is due."""
        for broker in self.brokers:
            broker.tick(now)
        self._enter(now)
        self.queue.on_deadline(now)
        if self.chunks.active_messages and now >= self._expire_at:
            self._expire_at = now + EXPIRE_SECONDS
            self.chunks.expire_partial_messages(now)
        if self._unreported and now >= self._warned_at + WARNINGS_SECONDS:
            self.warn(f"dispatcherd: {self._unreported} more messages were refused")
        self._tell_news()

    def open(self) -> None:
        """Do nothing: messages that arrive before wait, and lose nothing."""

    def flush(self) -> None:
        """Write finished tasks to the spool; pause the brokers if there is no room."""
        self._put_on_file([])
        for trouble in self._source.troubles:
            self._tell(Warned(trouble))
        self._source.troubles.clear()
        self._pause(self._disk_full or self.queue.is_full)
        self._tell_news()

    def stop_accepting(self) -> None:
        """Accept no more messages: the run is ending. What has arrived is kept for the next run."""
        if not self._source.is_ending:
            self._source.is_ending = True
            for broker in self.brokers:
                broker.stop_accepting()
            self._enter(time.monotonic())

    def close(self) -> None:
        """Close brokers and spool: the run is over."""
        self.stop_accepting()
        for broker in self.brokers:
            broker.close()
        self._put_on_file([])
        self._spool.close()

    def _pause(self, paused: bool) -> None:
        if paused != self._paused:
            self._paused = paused
            for broker in self.brokers:
                broker.pause(paused)

    def _tell_news(self) -> None:
        if self.queue.has_news:
            self.queue.has_news = False
            self._tell(Arrived())

    # --- on file ----------------------------------------------------------------------------------

    def _enter(self, now: float) -> None:
        if not self._read:
            return
        entries, self._read = self._read, []
        if not self._put_on_file(entries):
            self._read = entries
            return
        epoch = time.time()
        for entry in entries:
            self.queue.enter(entry, now, epoch)

    def _put_on_file(self, entries: list[QueuedTask]) -> bool:
        """Append new and finished tasks to the spool; return False if the disk has no room."""
        spool, over = self._spool, self.queue.finished
        if not (entries or over):
            return True
        now = time.monotonic()
        if self._disk_full and now < self._write_at:
            return False
        try:
            spool.append(entries, over)
            over.clear()
            if spool.wants_rewriting:
                spool.rewrite(self.queue.all())
        except OSError as error:
            if not self._disk_full:
                self._tell(Warned(f"{spool.path} cannot be written, nothing is read: {error}"))
            self._disk_full, self._write_at = True, now + DISK_RETRY_SECONDS
            return False
        self._disk_full = False
        return True


class Producers:
    """The producers of a configuration: a broker (``brokers.Broker``) that nobody writes to.

    As in the real service, a period begins when its task was produced, and missed tasks are not
    made up for. ``produced``: all of one kind.
    """

    def __init__(
        self, producer: str, produced: Sequence[configuration.Produced], receive: Receive
    ) -> None:
        self.producer = producer
        self._produced = produced
        self._receive = receive
        now = time.monotonic()
        self._due = [now + each.seconds for each in produced]
        self._count = 0
        self._paused = False

    def deadline(self) -> float:
        """See ``Broker``."""
        return float("inf") if self._paused else min(self._due, default=float("inf"))

    def tick(self, now: float) -> None:
        """See ``Broker``."""
        for number, each in enumerate(self._produced):
            if self._paused or now < self._due[number]:
                continue
            self._due[number] = now + each.seconds if each.seconds else float("inf")
            # The names of the real service: the first ones are sch-1 and on-start-0.
            self._count += 1
            name = f"sch-{self._count}" if each.seconds else f"on-start-{self._count - 1}"
            self._receive(json.dumps({**each.message, "uuid": name}).encode(), "", _no_answer)

    def status(self) -> dict[str, Any]:
        """See ``Broker``."""
        return {"produced_count": self._count}

    def pause(self, paused: bool) -> None:
        """See ``Broker``."""
        self._paused = paused

    def stop_accepting(self) -> None:
        """See ``Broker``."""
        self._due = [float("inf")] * len(self._due)

    def close(self) -> None:
        """See ``Broker``."""
        self.stop_accepting()


def _no_answer(reply_to: str) -> Answer:
    return lambda text: None


def _nobody(asked: wire.ControlRequest, reply: Reply) -> None:
    reply({"error": f"No control method {asked.control}"})


# --- openers -------------------------------------------------------------------------------------
# Constructors of an ingress with its brokers.


def open_dispatcherd(
    brokers: configuration.Brokers,
    source: DispatcherdSource,
    selector: selectors.BaseSelector,
    tell: Callable[[Event], None],
) -> DispatcherdIngress:
    """Return an ingress that listens at all brokers.

    Raises ``OSError`` if an address cannot be used.
    """
    source.open()
    ingress = DispatcherdIngress(
        source, tell, chunk_seconds=brokers.chunk_seconds, node_id=brokers.node_id
    )
    for path in brokers.sockets:
        ingress.brokers.append(UnixBroker(Path(path), selector, tell, ingress))
    for settings in brokers.postgres:
        # Imported here: few fleets need it, and it loads slower than all the rest.
        from beads_workers.integrations.dispatcherd.postgres import PostgresBroker

        ingress.brokers.append(PostgresBroker(settings, selector, tell, ingress))
    for name, produced in (
        (configuration.SCHEDULED, [each for each in brokers.produced if each.seconds]),
        (configuration.ON_START, [each for each in brokers.produced if not each.seconds]),
    ):
        if produced:
            ingress.brokers.append(Producers(name, produced, ingress.receive))
    return ingress


def open_ingress(
    settings: FleetSettings,
    source: Source,
    selector: selectors.BaseSelector,
    tell: Callable[[Event], None],
    control: Callable[[], Any],
) -> DispatcherdIngress:
    """See ``kinds.SourceKind.ingress``; control requests of brokers are answered, too."""
    assert isinstance(source, DispatcherdSource)
    brokers = from_plain(configuration.Brokers, settings.source_private)
    ingress = open_dispatcherd(brokers, source, selector, tell)
    answering = control()
    ingress.answerer, answering.ingress = answering.ask, ingress
    return ingress
