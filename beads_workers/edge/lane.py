"""The lane's thread: the only one that talks to the source, one turn at a time.

It recovers first (what earlier runs left), then carries out each ``Turn`` that the core begins.
Before it writes anything to the tracker it syncs the journal: nothing outside is told before it
is on disk.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from beads_workers.core.commands import Turn
from beads_workers.core.events import RecoveryEnded, TurnEnded
from beads_workers.core.source import Renewed, Settled, Source, SourceError, Taken
from beads_workers.edge.journal import Journal

TIDY_SECONDS = 60.0
SYNC_SECONDS = 1.0
"""Where nothing that is told waits for the disk: a power cut costs so much of the account."""

Answer = RecoveryEnded | TurnEnded


class _Settling(NamedTuple):
    """What came of a turn's settlements: see ``TurnEnded``."""

    settled: tuple[Settled, ...] = ()
    error: str = ""
    hint: str = ""


class _Taking(NamedTuple):
    """What came of its other half."""

    renewed: Renewed | None = None
    taken: Taken | None = None
    error: str = ""
    hint: str = ""


class LaneThread:
    """``post`` is called in the lane's thread with each answer, and must be quick and safe."""

    is_prompt = False
    """Whether a turn is over as soon as it has begun."""

    def __init__(
        self,
        source: Source,
        journal: Journal,
        recover: Callable[[], RecoveryEnded],
        post: Callable[[Answer | BaseException], None],
        tidy: Callable[[], None] = lambda: None,
    ) -> None:
        """``tidy``: called in this thread once a minute, while there is anything to do."""
        self._source = source
        self._journal = journal
        self._recover = recover
        self._post = post
        self._tidy = tidy
        self._turns: queue.SimpleQueue[Turn | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="lane", daemon=True)

    def start(self) -> None:
        """Begin with the recovery."""
        self._thread.start()

    def begin(self, turn: Turn) -> None:
        """Hand it a turn; the core sees to it that there is only one at a time."""
        self._turns.put(turn)

    def stop(self, seconds: float) -> None:
        """Let it finish what it does, for so long, and close the source."""
        self._turns.put(None)
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            self._post(self._recover())
            self._work()
            self._source.close()
        except BaseException as error:  # A bug must end the process, not only this thread.
            self._post(error)

    def _work(self) -> None:
        tidy_at = time.monotonic() + TIDY_SECONDS
        while (turn := self._turns.get()) is not None:
            # Whatever this turn writes to the tracker follows from records before it.
            self._journal.sync_patiently()
            self._post(self.carry_out(turn))
            if time.monotonic() >= tidy_at:
                self._tidy()
                tidy_at = time.monotonic() + TIDY_SECONDS

    def carry_out(self, turn: Turn) -> TurnEnded:
        """One turn, whole."""
        began = time.monotonic()
        settled, settle_error, hint = self._settle(turn)
        renewed, taken, take_error = None, None, ""
        if not settle_error:  # A tracker that failed just now is not asked again at once.
            renewed, taken, take_error, hint = self._take(turn)
        calls = self._source.calls
        return TurnEnded(
            time.monotonic() - began,
            settled,
            settle_error,
            taken,
            take_error,
            hint,
            renewed,
            calls.count,
            calls.seconds,
        )

    def _settle(self, turn: Turn) -> _Settling:
        if not turn.settlements:
            return _Settling()
        try:
            settled = tuple(self._source.settle(turn.settlements))
        except SourceError as error:
            return _Settling(error=_reason(error), hint=error.hint)
        except OSError as error:
            return _Settling(error=_of_machine(error))
        assert len(settled) == len(turn.settlements), "one answer for each settlement"
        return _Settling(settled)

    def _take(self, turn: Turn) -> _Taking:
        renewed, taken = None, None
        try:
            if turn.renew:
                renewed = self._source.renew(turn.renew)
            if turn.take is not None:
                taken = self._source.take(turn.take, turn.skip)
        except SourceError as error:
            return _Taking(renewed, taken, _reason(error), error.hint)
        except OSError as error:
            return _Taking(renewed, taken, _of_machine(error))
        return _Taking(renewed, taken)


class PromptLane(LaneThread):
    """The lane of a source that never blocks: its turns are carried out where they are begun.

    Somebody waits for each answer, and a journey to a thread and back takes longer than the turn.
    Nothing that such a source tells outlives a power cut that the journal does not, so it does not
    wait for the disk: the thread, having recovered, syncs the journal soon afterwards.
    """

    is_prompt = True

    def __init__(
        self,
        source: Source,
        journal: Journal,
        recover: Callable[[], RecoveryEnded],
        post: Callable[[Answer | BaseException], None],
        tell: Callable[[TurnEnded], None],
        tidy: Callable[[], None] = lambda: None,
        sync: Callable[[], None] = lambda: None,
    ) -> None:
        """``tell``: takes the answers of turns, in the thread that begins them; ``sync``: called
        whenever the journal was brought to disk."""
        super().__init__(source, journal, recover, post, tidy)
        self._tell = tell
        self._sync = sync
        self._told = threading.Event()
        self._over = threading.Event()

    def begin(self, turn: Turn) -> None:
        """Carry it out."""
        self._tell(self.carry_out(turn))
        self._told.set()

    def stop(self, seconds: float) -> None:
        """Let it finish what it does, for so long, and close the source."""
        self._over.set()
        self._told.set()
        self._thread.join(seconds)

    def _work(self) -> None:
        # However much is told, the disk is bothered once a second; where nothing is, never.
        tidy_at = time.monotonic() + TIDY_SECONDS
        while not self._over.wait(SYNC_SECONDS):
            self._told.wait()
            self._told.clear()
            self._journal.sync_patiently()
            self._sync()
            if time.monotonic() >= tidy_at:
                self._tidy()
                tidy_at = time.monotonic() + TIDY_SECONDS


def _of_machine(error: OSError) -> str:
    # No descriptor, no memory, no room: the world's failure, whatever the source was about to do.
    return f"the tracker could not be asked: {error.strerror or error}"


def _reason(error: SourceError) -> str:
    return str(error) or "no reason given"
