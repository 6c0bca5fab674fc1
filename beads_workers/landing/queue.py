"""Which tree is built and gated next, and what lands: the strategy, without any git or process.

A *train* is a row of branches, merged one upon the other on top of what has landed. Its *places*
are trees: place 0 is the tip as it was when the train was built, place ``k`` has the first ``k``
branches in it. Whatever place passes the gate lands as that very tree, and the rest of the train
still stands on it. A red place has a culprit at or below it, and smaller places are gated until one
branch is left: the place below it has landed, and with it the gate is red.

Nobody is convicted by one red gate. It is run once more in a fresh worktree, and some gate must
have been green since the first red one: else the tip is gated again, and a red tip convicts nobody
and pauses landing. Meanwhile the next train runs ahead, without the culprit. A gate without a
verdict convicts nobody at all: whoever it leaves waits, and is tried again alone and later. Source:
docs/LANDING.md, "The queue".

``Queue.next`` gives one command after the other until there is none; the lander carries each out,
and tells what came of it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from beads_workers.core.model import value

TRAIN_FIRST = 8
TRAIN_MAX = 64
"""So many branches in a train, before anything is learnt and at most."""

TRAIN_FACTOR = 1.5 * math.log(2)
"""Over the failure rate: the best size of a train (simulated; ``benchmarks/landing.py``)."""

TRIED_BEFORE = 25.0
REMEMBERED = 0.99
"""The failure rate is believed as if so many branches had been tried already; each further one
makes those before it count for so much less."""

REDS_FEW = 2
"""A culprit that was red no more often, alone or with others behind it, may be none where gates
lie: it is tried once more when nobody waits. More red gates hardly lie all together."""

SUSPECTS_WIDE = 8
"""Among so many suspects and more all lanes look for the culprit, side by side: next to 16, a tenth
less time for 6 % more gates. From 5 on it is another 3 % of each."""

UNTOLD_MAX = 6
"""So often a branch alone is gated without a verdict before it is set aside."""


class GateVerdict(Enum):
    """What a gate said of a tree. ``NONE``: it could not be told."""

    GREEN = "green"
    RED = "red"
    NONE = "none"


class PauseReason(Enum):
    """Why nothing lands: the tip does not pass its own gate, the gate cannot tell, or the user's
    own branch conflicts or does not pass."""

    TIP = "tip"
    GATE = "gate"
    FIRST = "first"


@value
class WaitingBranch:
    """A branch that waits. ``first``: the user's own, which goes before all others."""

    key: str
    priority: int = 2
    ended_at: float = 0.0
    first: bool = False

    @property
    def order(self) -> tuple[bool, int, float, str]:
        """The most urgent is the smallest; never the newest first."""
        return (not self.first, self.priority, self.ended_at, self.key)


# --- commands ------------------------------------------------------------------------------------


@value
class Build:
    """Merge these in this order on top of the tip, and answer with ``built``. ``number``: of the
    train; at most two are in use."""

    number: int
    keys: tuple[str, ...]


@value
class RunGate:
    """Gate this place of the train, and answer with ``judged``. ``fresh``: in a worktree that holds
    nothing of before. ``anew``: a verdict that was kept does not count."""

    lane: int
    number: int
    place: int
    fresh: bool = False
    anew: bool = False


@value
class StopGate:
    """Its verdict is of no use any more; answer with ``stopped`` once nothing of it is left."""

    lane: int


@value
class Advance:
    """Land the train up to this place, and answer with ``advanced``, or ``tip_moved``."""

    number: int
    place: int


@value
class Later:
    """There was no verdict on it alone, for so many ``times``; ``again`` when its time has come."""

    key: str
    times: int


@value
class Refuse:
    """It does not land. ``told``: the gate was red; else it never had a verdict, and is set aside:
    ``one_more`` tries it once more."""

    key: str
    told: bool = True


@value
class Say:
    """It pauses, or (None) goes on."""

    pause: PauseReason | None


Command = Build | RunGate | StopGate | Advance | Later | Refuse | Say


# --- inside --------------------------------------------------------------------------------------


class _Kind(Enum):
    USUAL = "usual"
    LONE = "lone"
    """The tip is red: one gate says whether this mends it, and nobody is convicted."""
    CHANCE = "chance"
    """It was convicted, or set aside: one gate says whether that was wrong."""
    ALONE = "alone"
    """There was no verdict on it: it is gated with no other gate beside it."""


@dataclass(slots=True)
class _Run:
    number: int
    place: int
    fresh: bool
    began: int


@dataclass(slots=True)
class _Train:
    """``landed``: up to here. ``red``: the lowest place above that did not pass. ``bad``: when the
    run began that makes each place red; ``told``: places that were red; ``fresh``: those that were
    so in a fresh worktree again. ``tip_bad``: how often the tip did not pass; ``tip_red``: whether
    it was red. ``enough``: another try of who has no verdict would take too long.
    ``early``: what was said of a train that ran ahead."""

    number: int
    keys: tuple[str, ...]
    kind: _Kind = _Kind.USUAL
    landed: int = 0
    red: int | None = None
    bad: dict[int, int] = field(default_factory=dict)
    fresh: set[int] = field(default_factory=set)
    told: set[int] = field(default_factory=set)
    reds: list[int] = field(default_factory=list)
    tip_bad: int = 0
    tip_red: bool = False
    enough: bool = False
    early: tuple[_Run, GateVerdict, bool] | None = None

    def cut(self, places: int) -> None:
        self.keys = self.keys[:places]
        self.bad = {place: began for place, began in self.bad.items() if place <= places}
        self.red = min((place for place in self.bad if place > self.landed), default=None)


class Queue:
    """``lanes``: gates that may run side by side. ``gated``: False where what merges may land.

    ``flaky``: how often a gate was red and then green on the same tree. ``runs``: gates so far.
    ``paused``: why nothing lands.
    """

    def __init__(self, lanes: int, *, gated: bool = True) -> None:
        self.flaky = 0
        self.runs = 0
        self.paused: PauseReason | None = None
        self._lanes, self._gated = lanes, gated
        self._waiting: dict[str, WaitingBranch] = {}
        self._evicted: dict[str, WaitingBranch] = {}
        self._aside: dict[str, WaitingBranch] = {}
        self._untold: dict[str, int] = {}
        self._held: set[str] = set()
        self._due: list[str] = []
        self._new: set[str] = set()
        self._asked: _Kind | None = None
        self._train: _Train | None = None
        self._ahead: _Train | None = None
        self._number = 0
        self._running: dict[int, _Run] = {}
        self._stopping: set[int] = set()
        self._commands: deque[Command] = deque()
        self._tip_green, self._tip_anew = not gated, False
        self._clock = self._green_at = 0
        self._failed = TRIED_BEFORE * TRAIN_FACTOR / TRAIN_FIRST
        self._tried = TRIED_BEFORE

    # --- what it shows ----------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether nothing is to be done until something is told."""
        busy = self._train or self._commands or self._running or self._stopping or self._asked
        return not busy and (self.paused is not None or not (self._waiting or self._chance()))

    @property
    def order(self) -> list[str]:
        """Who waits, the most urgent first."""
        return [entry.key for entry in sorted(self._waiting.values(), key=lambda e: e.order)]

    def _ready(self) -> list[str]:
        """Who may get on a train with others."""
        return [key for key in self.order if key not in self._held and key not in self._due]

    @property
    def in_use(self) -> set[int]:
        """The numbers of the trains that a command may still name."""
        return {each.number for each in (self._train, self._ahead) if each is not None}

    @property
    def size(self) -> int:
        """How many get on the next train."""
        return max(1, min(TRAIN_MAX, round(TRAIN_FACTOR * self._tried / self._failed)))

    # --- what it is told --------------------------------------------------------------------------

    def add(self, entry: WaitingBranch) -> None:
        """It waits from now on; one of the same key is replaced."""
        self.withdraw(entry.key)
        self._waiting[entry.key] = entry
        self._new.add(entry.key)
        if self._train is not None and self._train.kind is _Kind.CHANCE:
            self._dissolve()

    def withdraw(self, key: str) -> bool:
        """It does not land; False where it is not there."""
        self._new.discard(key)
        evicted = self._evicted.pop(key, self._aside.pop(key, None))
        entry, train = self._waiting.pop(key, evicted), self._train
        self._forget(key)
        if self._ahead is not None and key in self._ahead.keys:
            self._call_back()
        if train is not None and key in train.keys[train.landed :]:
            place = train.keys.index(key)
            train.cut(place)
            self._stop(train, lambda run: run.place > place)
            self._call_back()
            if train.landed == place:
                self._dissolve()
        if entry is not None and entry.first and self.paused is PauseReason.FIRST:
            self._resume()
        return entry is not None

    def _forget(self, key: str) -> None:
        """What was not told of it counts no more."""
        self._untold.pop(key, None)
        self._held.discard(key)
        if key in self._due:
            self._due.remove(key)

    def again(self, key: str) -> None:
        """The time of a ``Later`` has come."""
        if key in self._held:
            self._held.remove(key)
            self._due.append(key)

    def one_more(self) -> None:
        """Nobody waits for what it says: one that was set aside is tried once more."""
        if self._aside and self.idle and self.paused is None:
            key = next(iter(self._aside))
            self._waiting[key] = self._aside.pop(key)
            self._build(_Kind.CHANCE, (key,))

    def tip_moved(self) -> None:
        """Somebody else has moved the branch: nothing is known of its tip."""
        self._look_again(anew=False)

    def go_on(self) -> None:
        """A person says that it is mended: everything is looked at again."""
        self._look_again(anew=True)

    def built(
        self, train: tuple[str, ...], gone: tuple[str, ...] = (), *, blocked: bool = False
    ) -> None:
        """The train as it came out. ``gone``: what waits no more: it conflicts with the tip, or is
        contained in it. ``blocked``: the user's own branch conflicts."""
        kind, self._asked = self._asked, None
        assert kind is not None, "nothing was to be built"
        for key in gone:
            self._waiting.pop(key, None)
        made = _Train(self._number, train, kind)
        if self._train is not None:
            self._ahead = None if blocked else made
        elif blocked:
            self._pause(PauseReason.FIRST)
        elif train:
            self._train = made
            if not self._gated:
                self._commands.append(Advance(made.number, len(train)))

    def judged(
        self, lane: int, verdict: GateVerdict, *, kept: bool = False, enough: bool = False
    ) -> None:
        """A gate has ended. ``kept``: it was not run, its verdict was known. ``enough``: another
        try of who has no verdict would take too long."""
        run = self._running.pop(lane)
        self._clock += 1
        self.runs += not kept
        if verdict is GateVerdict.GREEN and not kept:
            self._green_at = self._clock
        if self._train is not None:
            self._train.enough = enough
        self._hear(run, verdict, kept=kept)

    def _hear(self, run: _Run, verdict: GateVerdict, *, kept: bool) -> None:
        train = self._train
        assert train is not None, "without a train every gate is stopped"
        if self._ahead is not None and run.number == self._ahead.number:
            self._ahead.early = (run, verdict, kept)
        elif verdict is GateVerdict.GREEN:
            self._green(train, run)
        elif train.kind not in (_Kind.USUAL, _Kind.ALONE):
            self._dissolve()
        elif run.place == train.landed:
            self._tip_bad(train, verdict)
        elif verdict is GateVerdict.NONE and run.place == train.landed + 1:
            self._hold(train)
        else:
            self._bad(train, run, verdict)

    def is_stopping(self, lane: int) -> bool:
        """Whether the verdict of the gate that runs there does not count any more."""
        return lane in self._stopping

    def stopped(self, lane: int) -> None:
        """Nothing of a stopped gate is left."""
        self._stopping.discard(lane)

    def advanced(self, place: int) -> None:
        """The branch stands at this place of the train now."""
        train = self._train
        assert train is not None, "nothing was to land"
        for key in train.keys[train.landed : place]:
            self._waiting.pop(key, None)
            self._new.discard(key)
            self._forget(key)
            self._learn(failed=False)
        self._call_back()
        train.landed, train.tip_bad, train.tip_red = place, 0, False
        train.cut(len(train.keys))
        self._tip_green, self._tip_anew = True, False
        if place == len(train.keys):
            self._dissolve()
        self._resume()

    # --- what is next -----------------------------------------------------------------------------

    def next(self) -> Command | None:
        """The next command; None until something else is told."""
        if not self._commands and self._asked is None:
            if self._train is None:
                self._begin()
            else:
                self._schedule(self._train)
        return self._commands.popleft() if self._commands else None

    def _begin(self) -> None:
        ready = self._ready()
        kind, keys = _Kind.USUAL, tuple(ready[: self.size])
        if self.paused is not None:
            # Only what came since may mend the tip. Each is tried once, alone.
            kind = _Kind.LONE
            keys = tuple(key for key in ready if key in self._new)[:1]
            if self.paused is PauseReason.FIRST:
                keys = ()
        elif self._due:
            kind, keys = _Kind.ALONE, (self._due.pop(0),)
        elif not keys and (chance := self._chance()) is not None:
            kind, keys = _Kind.CHANCE, (chance,)
            self._waiting[chance] = self._evicted.pop(chance)
        if keys:
            self._new.difference_update(keys)
            self._build(kind, keys)

    def _build(self, kind: _Kind, keys: tuple[str, ...]) -> None:
        self._asked = kind
        self._number += 1
        self._commands.append(Build(self._number, keys))

    def _chance(self) -> str | None:
        """Who was convicted, though gates are known to lie here."""
        return next(iter(self._evicted), None) if self.flaky else None

    def _schedule(self, train: _Train) -> None:
        if self._is_convicted(train):
            self._convict(train)
            return
        free = [n for n in range(self._lanes) if n not in {*self._running, *self._stopping}]
        if not free or (train.kind is _Kind.ALONE and len(free) < self._lanes):
            return
        # One at a time: its verdict may be known, and settle what the next one is.
        under_way = {(run.number, run.place) for run in self._running.values()}
        for number, place, fresh, anew in self._wanted(train):
            if (number, place) not in under_way:
                self._clock += 1
                self._running[free[0]] = _Run(number, place, fresh, self._clock)
                self._commands.append(RunGate(free[0], number, place, fresh, anew))
                return
        if self._ahead is None and train.red == train.landed + 1 and train.bad and self._tip_green:
            keys = [key for key in self._ready() if key != train.keys[train.landed]][: self.size]
            if keys and train.kind is _Kind.USUAL:
                self._build(_Kind.USUAL, tuple(keys))

    def _wanted(self, train: _Train) -> Iterator[tuple[int, int, bool, bool]]:
        """Places that are to be gated, the most useful first: of which train, which, whether in a
        fresh worktree, whether anew."""
        number, whole, tip, red = train.number, len(train.keys), train.landed, train.red
        if train.kind is _Kind.ALONE:
            if self._had_enough(train):
                yield number, tip, True, True
            else:
                yield number, whole, False, False
            return
        if train.kind is not _Kind.USUAL:
            yield number, whole, False, train.kind is _Kind.CHANCE
            return
        if not self._tip_green:
            again = train.tip_bad > 0
            yield number, tip, again, again or self._tip_anew
        if red is None:
            yield number, whole, False, False
        elif red > tip + 1:
            for place in self._splits(train, red):
                yield number, place, False, False
        elif self._tip_green:
            if red not in train.fresh:
                yield number, red, True, True
            elif not self._was_green(train):
                yield number, tip, False, True
            if self._ahead is not None and self._ahead.keys and self._ahead.early is None:
                yield self._ahead.number, len(self._ahead.keys), False, False

    def _splits(self, train: _Train, red: int) -> Iterator[int]:
        """Where to look for the lowest red place, at about equal distances."""
        low, wide = train.landed, red - train.landed >= SUSPECTS_WIDE
        ours = [run.place for run in self._running.values() if run.number == train.number]
        places = sorted(place for place in ours if low < place < red)
        if not places:
            free = self._lanes - len(self._running) - len(self._stopping)
            yield low + max(1, (red - low) // (free + 1 if wide else 2))
        elif wide:
            gaps = zip((low, *places), (*places, red), strict=True)
            below, above = max(gaps, key=lambda gap: gap[1] - gap[0])
            if above - below > 1:
                yield (below + above) // 2

    # --- verdicts ---------------------------------------------------------------------------------

    def _green(self, train: _Train, run: _Run) -> None:
        if run.place == train.landed:
            self.flaky += train.tip_red
            self._tip_green, self._tip_anew = True, False
            train.tip_bad, train.tip_red = 0, False
            if train.kind is _Kind.ALONE:
                self._set_aside(train)
            return
        self.flaky += run.place in train.told
        # What is below has landed with it; what is above stands on it.
        self._stop(train, lambda other: other.place <= run.place)
        self._commands.append(Advance(train.number, run.place))

    def _bad(self, train: _Train, run: _Run, verdict: GateVerdict) -> None:
        train.kind = _Kind.USUAL
        if verdict is GateVerdict.NONE:
            train.bad[run.place] = self._clock
        train.bad.setdefault(run.place, run.began)
        train.reds.append(run.place)
        if verdict is GateVerdict.RED:
            # The first red may lie, whatever had no verdict before.
            if run.fresh and run.place in train.told:
                train.fresh.add(run.place)
            train.told.add(run.place)
        train.red = min(train.red or run.place, run.place)
        self._stop(train, lambda other: other.place > run.place)

    def _tip_bad(self, train: _Train, verdict: GateVerdict) -> None:
        train.tip_bad += 1
        train.tip_red = train.tip_red or verdict is GateVerdict.RED
        self._tip_green = False
        if train.tip_bad > 1:
            self._pause(PauseReason.TIP if verdict is GateVerdict.RED else PauseReason.GATE)

    def _had_enough(self, train: _Train) -> bool:
        return self._untold.get(train.keys[train.landed], 0) >= UNTOLD_MAX

    def _hold(self, train: _Train) -> None:
        """There is no verdict on one branch: that is nobody's fault so far."""
        key = train.keys[train.landed]
        times = UNTOLD_MAX if train.enough else self._untold.get(key, 0) + 1
        self._untold[key] = times
        if times >= UNTOLD_MAX:
            # Is it the branch, or does no gate tell anything now? The tip says, by itself.
            train.kind = _Kind.ALONE
            train.cut(train.landed + 1)
            self._stop(train, lambda run: True)
            self._call_back()
            return
        self._held.add(key)
        self._new.discard(key)
        self._commands.append(Later(key, times))
        self._leave(train)

    def _set_aside(self, train: _Train) -> None:
        key = train.keys[train.landed]
        entry = self._waiting[key]
        self._forget(key)
        self._train = None
        if entry.first:
            self._pause(PauseReason.FIRST)
            return
        self._aside[key] = self._waiting.pop(key)
        self._new.discard(key)
        self._commands.append(Refuse(key, told=False))

    def _leave(self, train: _Train) -> None:
        """Its next branch is out of it, and what ran ahead without that one is the train now."""
        self._stop(train, lambda run: True)
        ahead, self._ahead = self._ahead, None
        self._train = ahead if ahead is not None and ahead.keys else None
        if ahead is not None and ahead.early is not None:
            run, verdict, kept = ahead.early
            self._hear(run, verdict, kept=kept)

    def _is_convicted(self, train: _Train) -> bool:
        red = train.red
        if train.kind is not _Kind.USUAL or red is None or red != train.landed + 1:
            return False
        return red in train.fresh and self._tip_green and self._was_green(train)

    def _was_green(self, train: _Train) -> bool:
        """Whether a gate has been green since one of this train was not."""
        return self._green_at >= min(train.bad.values())

    def _convict(self, train: _Train) -> None:
        place = train.landed
        key = train.keys[place]
        entry = self._waiting[key]
        self._learn(failed=True)
        if entry.first:
            self._stop(train, lambda run: True)
            self._pause(PauseReason.FIRST)
            return
        del self._waiting[key]
        self._new.discard(key)
        self._forget(key)
        if sum(red > place for red in train.reds) <= REDS_FEW:
            self._evicted[key] = entry
        self._commands.append(Refuse(key))
        self._leave(train)

    def _learn(self, *, failed: bool) -> None:
        self._tried = self._tried * REMEMBERED + 1.0
        self._failed = self._failed * REMEMBERED + failed

    # --- pauses -----------------------------------------------------------------------------------

    def _pause(self, why: PauseReason) -> None:
        train = self._train
        self.paused = why
        self._new.clear()
        self._commands.append(Say(why))
        if train is None:
            return
        whole = len(train.keys)
        if train.red is None and any(run.place == whole for run in self._running.values()):
            # It may be what mends the tip.
            train.kind = _Kind.LONE
            self._stop(train, lambda run: run.place != whole)
        else:
            self._dissolve()

    def _resume(self) -> None:
        if self.paused is not None:
            self.paused = None
            self._commands.append(Say(None))

    def _look_again(self, *, anew: bool) -> None:
        # What was being carried out when the branch turned out to have moved.
        self._asked = None
        self._commands = deque(
            c for c in self._commands if isinstance(c, StopGate | Later | Refuse | Say)
        )
        self._dissolve()
        self._tip_green, self._tip_anew = not self._gated, anew
        self._resume()

    def _dissolve(self) -> None:
        """Who is left of the train waits for the next one."""
        train, self._train = self._train, None
        self._call_back()
        if train is not None:
            self._stop(train, lambda run: True)
            for key in train.keys[train.landed :]:
                if train.kind is _Kind.CHANCE:
                    self._waiting.pop(key, None)
                elif train.kind is _Kind.ALONE and key in self._waiting:
                    self._untold[key] = min(self._untold.get(key, 0), UNTOLD_MAX - 1)
                    self._due.append(key)

    def _call_back(self) -> None:
        """The train that ran ahead stands on nothing any more."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            self._stop(ahead, lambda run: True)

    def _stop(self, train: _Train, which: Callable[[_Run], bool]) -> None:
        ours = {lane: run for lane, run in self._running.items() if run.number == train.number}
        for lane in [lane for lane, run in ours.items() if which(run)]:
            del self._running[lane]
            self._stopping.add(lane)
            self._commands.append(StopGate(lane))
