"""A pure world for the queue: which branches fit together, and gates that tell it or lie."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil, comb, log2
from random import Random

from beads_workers.landing.queue import (
    Advance,
    Build,
    GateVerdict,
    Later,
    PauseReason,
    Queue,
    Refuse,
    RunGate,
    Say,
    Show,
    StopGate,
    WaitingBranch,
)

Pair = frozenset[str]


@dataclass(slots=True)
class Truth:
    """``textual``: pairs that do not merge; ``semantic``: pairs that merge, and are red together.

    ``broken``: red in every tree. ``silent``: the gate cannot tell of a tree with it. ``mends``:
    the tip is red without it. ``killed``: so many gates with it inside end without a verdict first.
    """

    keys: tuple[str, ...]
    textual: frozenset[Pair] = frozenset()
    semantic: frozenset[Pair] = frozenset()
    broken: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()
    mends: str = ""
    killed: dict[str, int] = field(default_factory=dict)

    def passes(self, tree: Iterable[str]) -> GateVerdict:
        """What the gate says of a tree when it tells the truth."""
        inside = frozenset(tree)
        if self.silent & inside:
            return GateVerdict.NONE
        red = self.broken & inside or any(pair <= inside for pair in self.semantic)
        return (
            GateVerdict.RED
            if red or (self.mends and self.mends not in inside)
            else GateVerdict.GREEN
        )

    def merges(self, tree: Iterable[str], key: str) -> bool:
        """Whether it merges onto this tree."""
        return not any(Pair((key, other)) in self.textual for other in tree)


@dataclass(slots=True)
class World:
    """Carries out what a queue says. ``flaky``: how often a green gate says red. Time is in gates.

    ``landed``: in order. ``refused``: why. ``lies``: for each tree, how many gates lied.
    ``unapproved``: await approval; ``shown``: their verdicts.
    """

    truth: Truth
    queue: Queue
    random: Random
    flaky: float = 0.0
    laters: list[tuple[str, int]] = field(default_factory=list)
    landed: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    pauses: list[PauseReason | None] = field(default_factory=list)
    convicted: list[str] = field(default_factory=list)
    verified: set[frozenset[str]] = field(default_factory=set)
    red_trees: dict[frozenset[str], int] = field(default_factory=dict)
    kept: dict[frozenset[str], GateVerdict] = field(default_factory=dict)
    unapproved: set[str] = field(default_factory=set)
    shown: dict[str, GateVerdict] = field(default_factory=dict)
    began: int = 0
    now: float = 0.0
    _held: list[str] = field(default_factory=list)
    _trains: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = field(default_factory=dict)
    _due: list[tuple[float, int, int]] = field(default_factory=list)
    _lanes: dict[int, tuple[int, RunGate, frozenset[str]]] = field(default_factory=dict)

    def add(self, key: str, priority: int = 2, ended_at: float = 0.0, **fields: bool) -> None:
        """Add a branch; ``awaits``: it is not to land until it is added without."""
        entry = WaitingBranch(key, priority, ended_at, **fields)
        self.refused.pop(key, None)
        self.shown.pop(key, None)
        (self.unapproved.add if entry.awaits else self.unapproved.discard)(key)
        self.queue.add(entry)

    def drain(self) -> None:
        """Until the queue has nothing more to do."""
        self.obey()
        while self.step():
            pass

    def step(self) -> bool:
        """Let one gate end, or else the time of a branch come, and all that follows; False where
        there is neither."""
        while self._due:
            self.now, lane, number = heapq.heappop(self._due)
            if lane in self._lanes and self._lanes[lane][0] == number:
                _, _, tree = self._lanes.pop(lane)
                self._judge(lane, tree)
                self.obey()
                return True
        if self._held and self.queue.paused is None:
            self.queue.put_back(self._held.pop(0))
            self.obey()
            return True
        return False

    def obey(self) -> None:
        """Carry out what it says until it says no more."""
        while (command := self.queue.next()) is not None:
            match command:
                case Build(number, keys):
                    self._build(number, keys)
                case RunGate():
                    self._begin(command)
                case StopGate(lane):
                    self._lanes.pop(lane)
                    self.queue.stopped(lane)
                case Advance(number, place):
                    self._advance(number, place)
                case Later(key, times):
                    self.laters.append((key, times))
                    self._held.append(key)
                case Refuse(key):
                    self._refuse(key)
                case Show(key, verdict):
                    self._show(key, verdict)
                case Say(pause):
                    self.pauses.append(pause)

    # --- inside -----------------------------------------------------------------------------------

    def _refuse(self, key: str) -> None:
        assert key not in self.landed
        self.refused[key] = "verify"
        self.convicted.append(key)

    def _show(self, key: str, verdict: GateVerdict) -> None:
        assert key in self.unapproved and verdict is not GateVerdict.RED
        self.shown[key] = verdict

    def _build(self, number: int, keys: tuple[str, ...]) -> None:
        assert not self.unapproved & set(keys) or len(keys) == 1, "it is gated alone"
        assert len(set(keys)) == len(keys) and not set(keys) & set(self.landed)
        train: list[str] = []
        gone = []
        for key in keys:
            if not self.truth.merges(self.landed, key):
                self.refused[key] = "conflict"
                gone.append(key)
            elif self.truth.merges([*self.landed, *train], key):
                train.append(key)
        self._trains[number] = tuple(self.landed), tuple(train)
        self.queue.built(tuple(train), tuple(gone))

    def _tree(self, number: int, place: int) -> frozenset[str]:
        base, train = self._trains[number]
        return frozenset((*base, *train[:place]))

    def _begin(self, run: RunGate) -> None:
        assert run.lane not in self._lanes, "one gate in a lane"
        tree = self._tree(run.number, run.place)
        if not run.repeated and tree in self.kept:
            self.queue.judged(run.lane, self.kept[tree], kept=True)
            return
        self.began += 1
        self._lanes[run.lane] = (self.began, run, tree)
        seconds = self.random.uniform(0.9, 1.1)
        heapq.heappush(self._due, (self.now + seconds, run.lane, self.began))

    def _judge(self, lane: int, tree: frozenset[str]) -> None:
        verdict = self.truth.passes(tree)
        for key in tree & self.truth.killed.keys():
            if self.truth.killed[key] > 0:
                self.truth.killed[key] -= 1
                verdict = GateVerdict.NONE
        if verdict is GateVerdict.GREEN and self.random.random() < self.flaky:
            verdict = GateVerdict.RED
        if verdict is GateVerdict.GREEN:
            self.verified.add(tree)
        elif verdict is GateVerdict.RED:
            self.red_trees[tree] = self.red_trees.get(tree, 0) + 1
        if verdict is not GateVerdict.NONE:
            self.kept[tree] = verdict
        self.queue.judged(lane, verdict)

    def _advance(self, number: int, place: int) -> None:
        tree = self._tree(number, place)
        assert tree in self.verified, "it lands as the very tree that passed"
        base, train = self._trains[number]
        assert not self.unapproved & set(train[:place]), "nobody has approved it"
        assert list(base) == self.landed[: len(base)] and set(self.landed) <= tree
        self.landed = [*base, *train[:place]]
        self.queue.advanced(place)


def fleet(random: Random, many: int = 60, rate: float = 0.1, conflicts: float = 0.28) -> Truth:
    """Branches as agents leave them: ``rate`` of them red, half of those in pairs."""
    keys = tuple(f"b{number:02}" for number in range(many))
    shuffled = random.sample(keys, len(keys))
    red = max(1, round(many * rate / 2)) if rate else 0
    broken = frozenset(shuffled[:red])
    pairs = shuffled[red : 3 * red]
    textual = [random.sample(keys, 2) for _ in range(round(many * conflicts))]
    return Truth(
        keys,
        frozenset(Pair(pair) for pair in textual),
        frozenset(Pair(pair) for pair in zip(pairs[::2], pairs[1::2], strict=True)),
        broken,
    )


def least(mergeable: int, culprits: int) -> int:
    """The fewest gates that can tell which of so many branches are the culprits: each says one
    bit."""
    return max(1, ceil(log2(comb(mergeable, culprits))) if mergeable else 1)


def play(truth: Truth, seed: int, lanes: int = 2, flaky: float = 0.0) -> World:
    """All of them are there from the beginning, and the queue is drained."""
    random = Random(seed)
    world = World(truth, Queue(lanes), random, flaky)
    for number, key in enumerate(truth.keys):
        world.queue.add(WaitingBranch(key, random.choice((1, 2, 2, 2, 3)), float(number)))
    world.drain()
    return world
