"""The merge queue, without git or processes: orders trains, bisects red ones, says what lands.

A *train* is a row of branches, merged one upon the other on top of what has landed. Its *places*
are trees: place 0 is the tip as it was when the train was built, place ``k`` has the first ``k``
branches in it. A place that passes the gate lands as that very tree, and the rest of the train
still stands on it. A red place has a culprit at or below it. Smaller places are gated until one
branch is left: the place below it has landed, and with this branch the gate is red.

No branch is convicted by one red gate. The gate is run once more in a fresh worktree, and some gate
must have been green since the first red one. Otherwise the tip is gated again: a red tip convicts
no branch and pauses landing. If it was the set-up that failed, only a gate that ran it counts as
green, so the tip is gated in a fresh worktree, too. Meanwhile the next train runs ahead, without
the culprit. A gate without a verdict convicts no branch: the branch waits, and is tried again
later, alone.

A branch that awaits a person's approval is gated alone once no other branch waits, and it gives way
to each that comes. It never lands: a green gate is only reported. Source: docs/LANDING.md, "The
queue".

``Queue.next`` returns one command after the other until there is none. The lander carries out each
command, and reports the result.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from beads_workers.core.base.model import value

TRAIN_FIRST = 8
TRAIN_MAX = 64
"""Branches in a train: before any failure rate is known, and at most."""

TRAIN_FACTOR = 1.5 * math.log(2)
"""Factor that, divided by the failure rate, gives the best size of a train (simulated;
``benchmarks/landing.py``)."""

TRIED_BEFORE = 25.0
REMEMBERED = 0.99
"""The failure rate starts as if so many branches had been tried already; each further branch
reduces the weight of the earlier ones by the factor ``REMEMBERED``."""

REDS_FEW = 2
"""Number of gates that did not pass, up to which a culprit may be innocent, if gates are flaky: it
is tried once more when no branch waits. More of them are hardly all wrong."""

SUSPECTS_WIDE = 8
"""Number of suspects from which on all lanes search for the culprit, side by side.
Compared with a limit of 16, 8 takes a tenth less time and 6 % more gates. A limit of 5 would take
another 3 % less time and another 3 % more gates."""

NO_VERDICTS_MAX = 6
"""Number of gates without a verdict on one branch before it is set aside."""


class GateVerdict(Enum):
    """Verdict of a gate on a tree. ``NONE``: the gate gave no verdict."""

    GREEN = "green"
    RED = "red"
    NONE = "none"


class PauseReason(Enum):
    """Reason why nothing lands: the tip does not pass its own gate, gates give no verdict, or
    the user's own branch conflicts or does not pass."""

    TIP = "tip"
    GATE = "gate"
    FIRST = "first"


@value
class WaitingBranch:
    """A branch that waits."""

    key: str
    priority: int = 2
    ended_at: float = 0.0
    # It is the user's own, which goes before all others.
    first: bool = False
    # It is gated alone, and does not land: its verdict is shown.
    awaits: bool = False
    # Only a green verdict is shown.
    needs_verdict: bool = False

    @property
    def order(self) -> tuple[bool, int, float, str]:
        """Sort key: the most urgent branch is the smallest; with equal priority, the oldest."""
        return (not self.first, self.priority, self.ended_at, self.key)


# --- commands ------------------------------------------------------------------------------------


@value
class Build:
    """Merge these branches in this order on top of the tip, and answer with ``built``. ``number``:
    of the train; at most two are in use."""

    number: int
    keys: tuple[str, ...]


@value
class RunGate:
    """Gate this place of the train, and answer with ``judged``. ``fresh``: in a worktree that holds
    nothing of earlier gates. ``repeated``: a kept verdict does not count."""

    lane: int
    number: int
    place: int
    fresh: bool = False
    repeated: bool = False


@value
class StopGate:
    """Stop the gate, whose verdict is not needed any more; answer with ``stopped`` once it is
    gone."""

    lane: int


@value
class Advance:
    """Land the train up to this place, and answer with ``advanced``, or ``tip_moved``."""

    number: int
    place: int


@value
class Later:
    """Retry this branch later: ``times`` gates had no verdict on it. When the delay is over,
    answer with ``put_back``."""

    key: str
    times: int


@value
class Refuse:
    """Refuse the branch. ``was_red``: the gate was red. Otherwise the branch never had a verdict,
    and is set aside: ``one_more`` tries it once more."""

    key: str
    was_red: bool = True


@value
class Show:
    """Report the verdict on a branch that awaits approval, and that now waits outside of the
    queue."""

    key: str
    verdict: GateVerdict


@value
class Say:
    """Report a pause, or (None) that landing goes on."""

    pause: PauseReason | None


Command = Build | RunGate | StopGate | Advance | Later | Refuse | Show | Say


# --- inside --------------------------------------------------------------------------------------


class _Kind(Enum):
    USUAL = "usual"
    LONE = "lone"
    """The tip is red: one gate tells whether the branch fixes it, and no branch is convicted."""
    CHANCE = "chance"
    """The branch was convicted, or set aside: one gate tells whether that was wrong."""
    ALONE = "alone"
    """There was no verdict on the branch: it is gated while no other gate runs."""


@dataclass(slots=True)
class _Run:
    number: int
    place: int
    fresh: bool
    began: int
    set_up: bool = False


@dataclass(slots=True)
class _Train:
    """A train."""

    number: int
    keys: tuple[str, ...]
    kind: _Kind = _Kind.USUAL
    # Its one branch awaits approval.
    awaits: bool = False
    # The place up to which the train has landed.
    landed: int = 0
    # The lowest place above ``landed`` that did not pass, red or without a verdict.
    lowest_bad: int | None = None
    # For each place that did not pass, the clock when its last gate without a verdict ended, or, if
    # there was none, when its first red gate began.
    bad: dict[int, int] = field(default_factory=dict)
    # A set-up made a gate red.
    of_set_up: bool = False
    # Places that were red again in a fresh worktree.
    fresh: set[int] = field(default_factory=set)
    # Places that were red.
    red_places: set[int] = field(default_factory=set)
    # The place of each gate that did not pass.
    bads: list[int] = field(default_factory=list)
    # How often the tip did not pass.
    tip_bad: int = 0
    # The tip was red.
    tip_red: bool = False
    # Another try of a branch without a verdict would take too long.
    enough: bool = False
    # Verdict on a train that ran ahead.
    early: tuple[_Run, GateVerdict, bool] | None = None

    def cut(self, places: int) -> None:
        self.keys = self.keys[:places]
        self.bad = {place: began for place, began in self.bad.items() if place <= places}
        self.lowest_bad = min((place for place in self.bad if place > self.landed), default=None)


class Queue:
    """The queue of branches. ``lanes``: gates that may run side by side. ``gated``: False if
    branches land without a gate.

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
        self._no_verdicts: dict[str, int] = {}
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
        self._tip_green, self._tip_repeated = not gated, False
        self._clock = self._green_at = self._set_up_at = 0
        self._failed = TRIED_BEFORE * TRAIN_FACTOR / TRAIN_FIRST
        self._tried = TRIED_BEFORE

    # --- what it shows ----------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do until the queue is told something."""
        busy = self._train or self._commands or self._running or self._stopping or self._asked
        return not busy and (self.paused is not None or not (self._waiting or self._chance()))

    @property
    def order(self) -> list[str]:
        """Keys of the waiting branches, the most urgent first."""
        return [entry.key for entry in sorted(self._waiting.values(), key=lambda e: e.order)]

    def _ready(self) -> list[str]:
        """Return the branches that may be in a train with others."""
        apart = {*self._held, *self._due, *self._unapproved()}
        return [key for key in self.order if key not in apart]

    def _unapproved(self) -> list[str]:
        """Return the branches that are gated alone, and that no gate has judged."""
        apart = {*self._held, *self._due}
        return [key for key in self.order if self._waiting[key].awaits and key not in apart]

    @property
    def in_use(self) -> set[int]:
        """Numbers of the trains that a command may still name."""
        return {each.number for each in (self._train, self._ahead) if each is not None}

    @property
    def size(self) -> int:
        """Number of branches of the next train."""
        return max(1, min(TRAIN_MAX, round(TRAIN_FACTOR * self._tried / self._failed)))

    # --- what it is told --------------------------------------------------------------------------

    def add(self, entry: WaitingBranch) -> None:
        """Add a waiting branch; it replaces one with the same key."""
        self.withdraw(entry.key)
        self._waiting[entry.key] = entry
        if entry.awaits:
            if entry.needs_verdict:
                self._new.add(entry.key)
            return
        self._new.add(entry.key)
        if self._train is not None and (self._train.awaits or self._train.kind is _Kind.CHANCE):
            self._dissolve()

    def withdraw(self, key: str) -> bool:
        """Remove a branch from the queue, so that it does not land; return False if it is not
        there."""
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
        """Forget that gates had no verdict on this branch."""
        self._no_verdicts.pop(key, None)
        self._held.discard(key)
        if key in self._due:
            self._due.remove(key)

    def put_back(self, key: str) -> None:
        """Put a branch back in line: the time of its ``Later`` has come."""
        if key in self._held:
            self._held.remove(key)
            self._due.append(key)

    def one_more(self) -> None:
        """Try a branch once more that was set aside, if the queue is idle: no branch waits for its
        result."""
        if self._aside and self.idle and self.paused is None:
            key = next(iter(self._aside))
            self._waiting[key] = self._aside.pop(key)
            self._build(_Kind.CHANCE, (key,))

    def tip_moved(self) -> None:
        """Forget the state of the tip: somebody else has moved the branch."""
        self._look_again(repeated=False)

    def go_on(self) -> None:
        """Check everything again: a person says that the problem is fixed."""
        self._look_again(repeated=True)

    def built(
        self, train: tuple[str, ...], gone: tuple[str, ...] = (), *, blocked: bool = False
    ) -> None:
        """Take the train as it was built. ``gone``: branches that wait no more, because they
        conflict with the tip or are contained in it. ``blocked``: the user's own branch
        conflicts."""
        kind, self._asked = self._asked, None
        assert kind is not None, "nothing was to be built"
        for key in gone:
            self._waiting.pop(key, None)
        awaits = any(self._waiting[key].awaits for key in train)
        made = _Train(self._number, train, kind, awaits)
        if self._train is not None:
            self._ahead = None if blocked else made
        elif blocked:
            self._pause(PauseReason.FIRST)
        elif train:
            self._train = made
            if not self._gated:
                self._land(made, len(train))

    def judged(
        self,
        lane: int,
        verdict: GateVerdict,
        *,
        kept: bool = False,
        enough: bool = False,
        set_up: bool = False,
    ) -> None:
        """Take the verdict of a gate. ``kept``: the verdict was known, and the gate did not run.
        ``enough``: another try of a branch without a verdict would take too long. ``set_up``: the
        set-up ran, and passed if the verdict is green; otherwise it is what failed."""
        run = self._running.pop(lane)
        run.set_up = set_up
        self._clock += 1
        self.runs += not kept
        if verdict is GateVerdict.GREEN and not kept:
            self._green_at = self._clock
            self._set_up_at = self._clock if set_up else self._set_up_at
        if self._train is not None:
            self._train.enough = enough
        self._take_verdict(run, verdict, kept=kept)

    def _take_verdict(self, run: _Run, verdict: GateVerdict, *, kept: bool) -> None:
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
        elif verdict is GateVerdict.NONE and train.awaits and not self._needs_verdict(train):
            self._show(train, verdict)
        elif verdict is GateVerdict.NONE and run.place == train.landed + 1:
            self._hold(train)
        else:
            self._bad(train, run, verdict)

    def _needs_verdict(self, train: _Train) -> bool:
        return any(self._waiting[key].needs_verdict for key in train.keys)

    def is_stopping(self, lane: int) -> bool:
        """Return whether the verdict of this lane's gate does not count any more."""
        return lane in self._stopping

    def stopped(self, lane: int) -> None:
        """Free the lane of a stopped gate, of which nothing is left."""
        self._stopping.discard(lane)

    def advanced(self, place: int) -> None:
        """Note that the branch stands at this place of the train now."""
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
        self._tip_green, self._tip_repeated = True, False
        if place == len(train.keys):
            self._dissolve()
        self._resume()

    # --- what is next -----------------------------------------------------------------------------

    def next(self) -> Command | None:
        """Return the next command; None until the queue is told something else."""
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
            # Only branches added since the pause may fix the tip. Each is tried once, alone.
            kind = _Kind.LONE
            keys = tuple(key for key in self._lone(ready) if key in self._new)[:1]
            if self.paused is PauseReason.FIRST:
                keys = ()
        elif self._due:
            kind, keys = _Kind.ALONE, (self._due.pop(0),)
        elif not keys and (chance := self._chance()) is not None:
            kind, keys = _Kind.CHANCE, (chance,)
            self._waiting[chance] = self._evicted.pop(chance)
        elif not keys:
            keys = tuple(self._unapproved()[:1])
        if keys:
            self._new.difference_update(keys)
            self._build(kind, keys)

    def _lone(self, ready: list[str]) -> list[str]:
        """Return the branches that may fix a red tip."""
        return ready + [key for key in self._unapproved() if self._waiting[key].needs_verdict]

    def _build(self, kind: _Kind, keys: tuple[str, ...]) -> None:
        self._asked = kind
        self._number += 1
        self._commands.append(Build(self._number, keys))

    def _chance(self) -> str | None:
        """Return a convicted branch to try again, if gates are known to be flaky here."""
        return next(iter(self._evicted), None) if self.flaky else None

    def _schedule(self, train: _Train) -> None:
        if self._is_convicted(train):
            self._convict(train)
            return
        free = [n for n in range(self._lanes) if n not in {*self._running, *self._stopping}]
        if not free or (train.kind is _Kind.ALONE and len(free) < self._lanes):
            return
        # One command at a time: its verdict may be known already, and decide the next one.
        under_way = {(run.number, run.place) for run in self._running.values()}
        for number, place, fresh, repeated in self._wanted(train):
            if (number, place) not in under_way:
                self._clock += 1
                self._running[free[0]] = _Run(number, place, fresh, self._clock)
                self._commands.append(RunGate(free[0], number, place, fresh, repeated))
                return
        is_found = train.lowest_bad == train.landed + 1
        if self._ahead is None and is_found and train.bad and self._tip_green:
            keys = [key for key in self._ready() if key != train.keys[train.landed]][: self.size]
            if keys and train.kind is _Kind.USUAL:
                self._build(_Kind.USUAL, tuple(keys))

    def _wanted(self, train: _Train) -> Iterator[tuple[int, int, bool, bool]]:
        """Yield the places to gate, the most useful first, as train, place, ``fresh`` and
        ``repeated``."""
        number, whole, tip = train.number, len(train.keys), train.landed
        lowest_bad = train.lowest_bad
        if train.kind is _Kind.ALONE:
            if self._no_verdicts.get(train.keys[train.landed], 0) >= NO_VERDICTS_MAX:
                yield number, tip, True, True
            else:
                yield number, whole, False, False
            return
        if train.kind is not _Kind.USUAL:
            yield number, whole, False, train.kind is _Kind.CHANCE
            return
        # What cannot land anyhow needs the tip only if it is red.
        if not (self._tip_green or (train.awaits and lowest_bad is None)):
            again = train.tip_bad > 0
            yield number, tip, again, again or self._tip_repeated
        if lowest_bad is None:
            yield number, whole, False, False
        elif lowest_bad > tip + 1:
            for place in self._splits(train, lowest_bad):
                yield number, place, False, False
        elif self._tip_green:
            if lowest_bad not in train.fresh:
                yield number, lowest_bad, True, True
            elif not self._was_green(train):
                yield number, tip, train.of_set_up, True
            if self._ahead is not None and self._ahead.keys and self._ahead.early is None:
                yield self._ahead.number, len(self._ahead.keys), False, False

    def _splits(self, train: _Train, high: int) -> Iterator[int]:
        """Yield places to gate in the search for the lowest place that does not pass, at about
        equal distances. ``high``: the lowest such place so far."""
        low, wide = train.landed, high - train.landed >= SUSPECTS_WIDE
        ours = [run.place for run in self._running.values() if run.number == train.number]
        places = sorted(place for place in ours if low < place < high)
        if not places:
            free = self._lanes - len(self._running) - len(self._stopping)
            yield low + max(1, (high - low) // (free + 1 if wide else 2))
        elif wide:
            gaps = zip((low, *places), (*places, high), strict=True)
            below, above = max(gaps, key=lambda gap: gap[1] - gap[0])
            if above - below > 1:
                yield (below + above) // 2

    # --- verdicts ---------------------------------------------------------------------------------

    def _green(self, train: _Train, run: _Run) -> None:
        if run.place == train.landed:
            self.flaky += train.tip_red
            self._tip_green, self._tip_repeated = True, False
            train.tip_bad, train.tip_red = 0, False
            if train.kind is _Kind.ALONE:
                self._set_aside(train)
            return
        self.flaky += run.place in train.red_places
        # All lower places have landed with it; higher places stand on it.
        self._stop(train, lambda other: other.place <= run.place)
        self._land(train, run.place)

    def _land(self, train: _Train, place: int) -> None:
        """Have the train land up to this place, or say that it could if a person approved it."""
        if train.awaits:
            self._show(train, GateVerdict.GREEN)
        else:
            self._commands.append(Advance(train.number, place))

    def _show(self, train: _Train, verdict: GateVerdict) -> None:
        (key,) = train.keys
        del self._waiting[key]
        self._commands.append(Show(key, verdict))
        self._dissolve()

    def _bad(self, train: _Train, run: _Run, verdict: GateVerdict) -> None:
        train.kind = _Kind.USUAL
        if verdict is GateVerdict.NONE:
            train.bad[run.place] = self._clock
        train.bad.setdefault(run.place, run.began)
        train.bads.append(run.place)
        if verdict is GateVerdict.RED:
            train.of_set_up = train.of_set_up or run.set_up
            # A red gate in a fresh worktree confirms only an earlier red gate of this place. After
            # gates without a verdict it is the first red one, and may be wrong itself.
            if run.fresh and run.place in train.red_places:
                train.fresh.add(run.place)
            train.red_places.add(run.place)
        train.lowest_bad = min(train.lowest_bad or run.place, run.place)
        self._stop(train, lambda other: other.place > run.place)

    def _tip_bad(self, train: _Train, verdict: GateVerdict) -> None:
        train.tip_bad += 1
        train.tip_red = train.tip_red or verdict is GateVerdict.RED
        self._tip_green = False
        if train.tip_bad > 1:
            self._pause(PauseReason.TIP if verdict is GateVerdict.RED else PauseReason.GATE)

    def _hold(self, train: _Train) -> None:
        """Let a branch wait that has no verdict: so far that is no fault of the branch."""
        key = train.keys[train.landed]
        times = NO_VERDICTS_MAX if train.enough else self._no_verdicts.get(key, 0) + 1
        self._no_verdicts[key] = times
        if times >= NO_VERDICTS_MAX:
            # Is it the branch, or do gates have no verdict on anything now? A gate of the tip
            # shows.
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
        self._commands.append(Refuse(key, was_red=False))

    def _leave(self, train: _Train) -> None:
        """Drop the train's next branch; the train that ran ahead without it, if any, replaces the
        train."""
        self._stop(train, lambda run: True)
        ahead, self._ahead = self._ahead, None
        self._train = ahead if ahead is not None and ahead.keys else None
        if ahead is not None and ahead.early is not None:
            run, verdict, kept = ahead.early
            self._take_verdict(run, verdict, kept=kept)

    def _is_convicted(self, train: _Train) -> bool:
        place = train.landed + 1
        if train.kind is not _Kind.USUAL or train.lowest_bad != place:
            return False
        return place in train.fresh and self._tip_green and self._was_green(train)

    def _was_green(self, train: _Train) -> bool:
        """Return whether a gate has been green since the first bad one of this train."""
        green_at = self._set_up_at if train.of_set_up else self._green_at
        return green_at >= min(train.bad.values())

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
        if sum(bad > place for bad in train.bads) <= REDS_FEW and not entry.awaits:
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
        if train.lowest_bad is None and any(run.place == whole for run in self._running.values()):
            # The whole train may be what fixes the tip.
            train.kind = _Kind.LONE
            self._stop(train, lambda run: run.place != whole)
        else:
            self._dissolve()

    def _resume(self) -> None:
        if self.paused is not None:
            self.paused = None
            self._commands.append(Say(None))

    def _look_again(self, *, repeated: bool) -> None:
        # The branch may have moved, perhaps in the middle of a Build. Drop all commands that name a
        # train (Build, RunGate, Advance), and keep the rest.
        self._asked = None
        self._commands = deque(
            c for c in self._commands if isinstance(c, StopGate | Later | Refuse | Show | Say)
        )
        self._dissolve()
        self._tip_green, self._tip_repeated = not self._gated, repeated
        self._resume()

    def _dissolve(self) -> None:
        """Dissolve the train; its remaining branches wait for the next one."""
        train, self._train = self._train, None
        self._call_back()
        if train is not None:
            self._stop(train, lambda run: True)
            for key in train.keys[train.landed :]:
                if train.kind is _Kind.CHANCE:
                    self._waiting.pop(key, None)
                elif train.kind is _Kind.ALONE and key in self._waiting:
                    self._no_verdicts[key] = min(self._no_verdicts.get(key, 0), NO_VERDICTS_MAX - 1)
                    self._due.append(key)

    def _call_back(self) -> None:
        """Stop the train that ran ahead: it cannot land as it was built."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            self._stop(ahead, lambda run: True)

    def _stop(self, train: _Train, which: Callable[[_Run], bool]) -> None:
        ours = {lane: run for lane, run in self._running.items() if run.number == train.number}
        for lane in [lane for lane, run in ours.items() if which(run)]:
            del self._running[lane]
            self._stopping.add(lane)
            self._commands.append(StopGate(lane))
