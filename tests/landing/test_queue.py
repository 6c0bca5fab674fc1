"""The strategy against a pure world: what lands has passed, who can land lands, no one innocent is
convicted, and how many gates that takes."""

from __future__ import annotations

from math import ceil, log2
from random import Random
from statistics import median

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from beads_workers.landing.queue import (
    NO_VERDICTS_MAX,
    Advance,
    Build,
    Command,
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
from tests.landing.truth import Pair, Truth, World, fleet, least, play
from tests.support.shares import examples

KEYS = tuple("abcdefghij")
GREEN, RED, NONE = GateVerdict.GREEN, GateVerdict.RED, GateVerdict.NONE


def pairs() -> st.SearchStrategy[frozenset[Pair]]:
    """Some pairs of different branches."""
    pair = st.lists(st.sampled_from(KEYS), min_size=2, max_size=2, unique=True).map(frozenset)
    return st.frozensets(pair, max_size=5)


truths = st.builds(
    Truth,
    st.just(KEYS),
    textual=pairs(),
    semantic=pairs(),
    broken=st.frozensets(st.sampled_from(KEYS), max_size=4),
    silent=st.frozensets(st.sampled_from(KEYS), max_size=1),
)


class CheckedWorld(World):
    """Who is refused is looked at in the moment: the tip passes, and with it that does not."""

    lies: frozenset[int] = frozenset()
    silences: frozenset[int] = frozenset()

    def _refuse(self, key: str) -> None:
        assert self.truth.passes(self.landed) is GREEN
        tree = frozenset((*self.landed, key))
        if self.truth.passes(tree) is GREEN:
            assert self.red_trees[tree] >= 2, "an innocent one, by two lies on the same tree"
        World._refuse(self, key)

    def _show(self, key: str, verdict: GateVerdict) -> None:
        World._show(self, key, verdict)
        alone = self.truth.passes((*self.landed, key))
        assert verdict is NONE or alone is GREEN, "on this tip it may land at once"

    def _judge(self, lane: int, tree: frozenset[str]) -> None:
        self.flaky = 1.0 if self.began in self.lies else 0.0
        self.truth.killed = {key: 1 for key in KEYS if self.began in self.silences}
        World._judge(self, lane, tree)


moves = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(KEYS)),
        st.tuples(st.just("await"), st.sampled_from(KEYS)),
        st.tuples(st.just("withdraw"), st.sampled_from(KEYS)),
        st.tuples(st.just("gate"), st.just("")),
        st.tuples(st.just("gate"), st.just("")),
    ),
    max_size=40,
)


@settings(max_examples=examples(400), deadline=None)
@example(
    truth=Truth(KEYS),
    told=[("add", "a"), ("gate", ""), ("add", "b"), *[("gate", "")] * 3],
    lanes=2,
    seed=1,
    lies=frozenset({3, 4}),
    silences=frozenset(),
)
@example(
    truth=Truth(KEYS, semantic=frozenset({frozenset("bc")}), silent=frozenset("a")),
    told=[],
    lanes=1,
    seed=0,
    lies=frozenset({11}),
    silences=frozenset({9}),
)
@given(
    truths,
    moves,
    st.integers(1, 3),
    st.integers(0, 99),
    st.frozensets(st.integers(1, 40), max_size=4),
    st.frozensets(st.integers(1, 40), max_size=NO_VERDICTS_MAX - 1),
)
def test_whatever_happens_what_can_land_lands_and_nobody_innocent_is_convicted(
    truth: Truth,
    told: list[tuple[str, str]],
    lanes: int,
    seed: int,
    lies: frozenset[int],
    silences: frozenset[int],
) -> None:
    world = CheckedWorld(truth, Queue(lanes), Random(seed))
    world.lies, world.silences = lies, silences
    asked: dict[str, str] = {}
    for what, key in [*told, *(("add", key) for key in KEYS)]:
        match what:
            case "add" if asked.get(key) != "added" and key not in world.landed:
                asked[key] = "added"
                world.add(key, seed % 3, float(KEYS.index(key)))
            case "await" if asked.get(key) not in ("added", "awaits") and key not in world.landed:
                asked[key] = "awaits"
                world.add(key, seed % 3, float(KEYS.index(key)), awaits=True)
            case "withdraw" if world.queue.withdraw(key):
                asked[key] = "withdrawn"
            case "gate":
                world.step()
        world.obey()
    world.drain()
    while world.queue.paused is not None:
        assert lies or silences, "a green tip"
        world.queue.go_on()
        world.drain()
    assert world.queue.idle and not world.queue.order
    assert set(KEYS) == set(world.landed) | set(world.refused)
    for key in set(KEYS) - set(world.landed):
        fits = truth.merges(world.landed, key) and truth.passes((*world.landed, key)) is GREEN
        assert not fits or lies
    odd = len(world.convicted) + len(lies) + len(silences)
    bound = 8 + 2 * len(told) + odd * (8 + ceil(log2(len(KEYS)))) + len(world.laters)
    assert world.began <= bound


@settings(max_examples=examples(150), deadline=None)
@given(truths, st.integers(1, 3), st.integers(0, 99))
def test_on_a_red_tip_nobody_is_convicted_and_what_mends_it_lands(
    truth: Truth, lanes: int, seed: int
) -> None:
    mends = KEYS[seed % len(KEYS)]
    truth.mends, truth.broken, truth.silent = mends, truth.broken - {mends}, frozenset()
    world = World(truth, Queue(lanes), Random(seed))
    for key in KEYS:
        if key != mends:
            world.queue.add(WaitingBranch(key))
    world.drain()
    assert world.pauses == [PauseReason.TIP] and not world.convicted and not world.landed
    assert world.queue.idle
    world.queue.add(WaitingBranch(mends))
    world.drain()
    assert world.pauses == [PauseReason.TIP, None]
    assert mends in world.landed and world.queue.idle


@pytest.mark.parametrize(
    ("rate", "flaky", "most", "wall"),
    [(0.05, 0.0, 1.8, 0.4), (0.1, 0.0, 1.7, 0.5), (0.1, 0.05, 1.8, 0.6), (0.2, 0.0, 1.8, 0.8)],
)
def test_gates_are_near_the_least_that_can_tell(
    rate: float, flaky: float, most: float, wall: float
) -> None:
    """60 branches, of which 28 % conflict, two lanes; wall time against one gate for each."""
    runs, times = [], []
    for seed in range(40):
        world = play(fleet(Random(seed), rate=rate), seed, 2, flaky)
        mergeable = len(world.landed) + len(world.convicted)
        runs.append(world.began / least(mergeable, len(world.convicted)))
        times.append(world.now / mergeable)
    assert median(runs) <= most
    assert median(times) <= wall


def test_the_size_of_trains_is_learnt() -> None:
    good = Queue(2)
    assert good.size == 8
    for rate, expected in ((0.0, range(16, 65)), (0.5, range(1, 6))):
        truth = fleet(Random(1), many=100, rate=rate, conflicts=0.0)
        assert play(truth, 1).queue.size in expected


# --- one step after the other ---------------------------------------------------------------------


def commands_of(queue: Queue) -> list[Command]:
    """All that it says now; builds are answered as asked."""
    commands = []
    while (command := queue.next()) is not None:
        commands.append(command)
        match command:
            case Build(_, keys):
                queue.built(keys)
            case StopGate(lane):
                queue.stopped(lane)
            case Advance(_, place):
                queue.advanced(place)
    return commands


def queue_of(*keys: str, lanes: int = 2, gated: bool = True) -> Queue:
    """They wait in this order."""
    queue = Queue(lanes, gated=gated)
    for number, key in enumerate(keys):
        queue.add(WaitingBranch(key, ended_at=float(number)))
    return queue


def test_the_most_urgent_goes_first_then_the_oldest_and_the_users_own_before_all() -> None:
    queue = Queue(1)
    for entry in (
        WaitingBranch("new", 2, 9.0),
        WaitingBranch("old", 2, 1.0),
        WaitingBranch("urgent", 0, 10.0),
    ):
        queue.add(entry)
    queue.add(WaitingBranch("main", 4, 99.0, first=True))
    assert queue.order == ["main", "urgent", "old", "new"]


def test_the_tip_and_the_whole_train_are_gated_side_by_side() -> None:
    queue = queue_of("a", "b", "c")
    assert commands_of(queue) == [Build(1, ("a", "b", "c")), RunGate(0, 1, 0), RunGate(1, 1, 3)]
    queue.judged(1, GREEN)
    assert commands_of(queue) == [StopGate(0), Advance(1, 3)]
    assert queue.idle


def test_with_one_lane_the_tip_comes_first() -> None:
    queue = queue_of("a", lanes=1)
    assert commands_of(queue)[1:] == [RunGate(0, 1, 0)]
    queue.judged(0, GREEN)
    assert commands_of(queue) == [RunGate(0, 1, 1)]


def test_a_culprit_is_found_by_halves_and_convicted_after_a_second_run_in_a_fresh_worktree() -> (
    None
):
    queue = queue_of("a", "b", "c", "d")
    commands_of(queue)
    queue.judged(0, GREEN)
    assert commands_of(queue) == []
    queue.judged(1, RED)
    assert commands_of(queue) == [RunGate(0, 1, 2)]
    queue.judged(0, GREEN)
    assert commands_of(queue) == [Advance(1, 2), RunGate(0, 1, 3)]
    queue.judged(0, RED)
    assert commands_of(queue) == [
        *(RunGate(0, 1, 3, fresh=True, repeated=True), Build(2, ("d",)), RunGate(1, 2, 1))
    ]
    queue.judged(1, GREEN)
    assert commands_of(queue) == []
    queue.judged(0, RED)
    assert commands_of(queue) == [Refuse("c"), Advance(2, 1)]


def test_a_second_run_that_is_green_lands_it_and_is_counted() -> None:
    queue = queue_of("a")
    commands_of(queue)
    queue.judged(0, GREEN)
    queue.judged(1, RED)
    assert commands_of(queue) == [RunGate(0, 1, 1, fresh=True, repeated=True)]
    queue.judged(0, GREEN)
    assert commands_of(queue) == [Advance(1, 1)] and queue.flaky == 1


def test_without_a_green_gate_since_the_tip_is_gated_before_anybody_is_convicted() -> None:
    queue = queue_of("a")
    commands_of(queue)
    queue.judged(0, GREEN)
    commands_of(queue)
    queue.judged(1, RED)
    commands_of(queue)
    queue.judged(0, RED)
    assert commands_of(queue) == [Refuse("a")], "the tip was green while it was red"
    queue.add(WaitingBranch("b"))
    assert commands_of(queue)[1:] == [RunGate(0, 2, 1)]
    queue.judged(0, RED)
    assert commands_of(queue) == [RunGate(0, 2, 1, fresh=True, repeated=True)]
    queue.judged(0, RED)
    assert commands_of(queue) == [RunGate(0, 2, 0, repeated=True)]
    queue.judged(0, RED)
    assert commands_of(queue) == [RunGate(0, 2, 0, fresh=True, repeated=True)]
    queue.judged(0, RED)
    assert commands_of(queue) == [Say(PauseReason.TIP)]
    queue.go_on()
    assert commands_of(queue)[:3] == [Say(None), Build(3, ("b",)), RunGate(0, 3, 0, repeated=True)]


@pytest.mark.parametrize("lanes", [1, 2])
def test_without_a_verdict_it_is_tried_alone_and_later_and_lands_at_last(lanes: int) -> None:
    truth = Truth(KEYS, killed={"b": NO_VERDICTS_MAX})
    world = play(truth, 1, lanes)
    assert set(world.landed) == set(KEYS) and not world.convicted and not world.pauses
    assert {key for key, _ in world.laters} == {"b"} and world.queue.flaky == 0


@pytest.mark.parametrize("lanes", [1, 2])
def test_after_six_times_it_is_set_aside_beside_a_green_tip_and_tried_once_more_when_idle(
    lanes: int,
) -> None:
    world = play(Truth(("a", "b", "c"), silent=frozenset("b")), 1, lanes)
    assert set(world.landed) == {"a", "c"} and world.convicted == ["b"]
    assert world.laters == [("b", times) for times in range(1, NO_VERDICTS_MAX)]
    assert world.queue.idle and not world.queue.order, "it holds up nothing"
    world.truth.silent = frozenset()
    world.queue.one_more()
    world.drain()
    assert "b" in world.landed
    world.queue.one_more()
    assert world.queue.next() is None


def no_verdicts(queue: Queue, times: int = NO_VERDICTS_MAX) -> list[Command]:
    """The only branch has no verdict so often; what is said after the last one."""
    last = commands_of(queue)
    for number in range(1, times + 1):
        queue.judged(0, NONE)
        last = commands_of(queue)
        if number < NO_VERDICTS_MAX:
            assert last == [Later("b", number)]
            queue.put_back("b")
            assert commands_of(queue)[-1] == RunGate(0, number + 1, 1)
    return last


def test_no_gate_runs_beside_one_that_is_tried_alone() -> None:
    queue = queue_of("a", "b")
    commands_of(queue)
    queue.judged(1, NONE)
    assert commands_of(queue) == [RunGate(1, 1, 1)]
    queue.judged(1, NONE)
    queue.put_back("a")
    assert commands_of(queue) == [*(Later("a", 1), StopGate(0), Build(2, ("a",)), RunGate(0, 2, 1))]


def test_where_no_gate_can_tell_nobody_is_set_aside() -> None:
    queue = queue_of("b", lanes=1)
    commands_of(queue)
    queue.judged(0, GREEN)
    last = no_verdicts(queue)
    assert last == [RunGate(0, NO_VERDICTS_MAX, 0, fresh=True, repeated=True)]
    queue.judged(0, NONE)
    commands_of(queue)
    queue.judged(0, NONE)
    assert commands_of(queue) == [Say(PauseReason.GATE)]
    queue.go_on()
    assert commands_of(queue) == [Say(None), Build(7, ("b",)), RunGate(0, 7, 1)]
    queue.judged(0, NONE)
    commands_of(queue)
    queue.judged(0, GREEN)
    assert commands_of(queue) == [Refuse("b", was_red=False)]


def test_a_verdict_after_all_is_one_and_red_goes_the_usual_way() -> None:
    queue = queue_of("b", lanes=1)
    commands_of(queue)
    queue.judged(0, GREEN)
    no_verdicts(queue, 3)
    queue.judged(0, RED)
    assert commands_of(queue) == [RunGate(0, 4, 1, fresh=True, repeated=True)]
    queue.judged(0, NONE)
    assert commands_of(queue) == [Later("b", 4)]
    queue.put_back("b")
    commands_of(queue)
    queue.judged(0, RED)
    commands_of(queue)
    queue.judged(0, RED)
    commands_of(queue)
    queue.judged(0, GREEN)
    assert commands_of(queue) == [Refuse("b")]


def test_what_takes_too_long_to_try_again_is_set_aside_sooner() -> None:
    queue = queue_of("b", lanes=1)
    commands_of(queue)
    queue.judged(0, GREEN)
    commands_of(queue)
    queue.judged(0, NONE, enough=True)
    assert commands_of(queue) == [RunGate(0, 1, 0, fresh=True, repeated=True)]
    queue.judged(0, GREEN)
    assert commands_of(queue) == [Refuse("b", was_red=False)]


def test_the_users_own_branch_without_a_verdict_holds_nobody_up_and_pauses_at_last() -> None:
    queue = Queue(1)
    queue.add(WaitingBranch("b", first=True))
    queue.add(WaitingBranch("a"))
    commands_of(queue)
    queue.judged(0, GREEN)
    commands_of(queue)
    queue.judged(0, NONE)
    commands_of(queue)
    queue.judged(0, NONE)
    assert commands_of(queue) == [Later("b", 1), Build(2, ("a",)), RunGate(0, 2, 1)]
    queue.judged(0, GREEN)
    assert commands_of(queue) == [Advance(2, 1)]
    for _ in range(2, NO_VERDICTS_MAX + 1):
        queue.put_back("b")
        commands_of(queue)
        queue.judged(0, NONE)
    commands_of(queue)
    queue.judged(0, GREEN)
    assert commands_of(queue) == [Say(PauseReason.FIRST)]


def test_the_users_own_branch_pauses_in_conflict_and_goes_on_when_it_has_moved() -> None:
    queue = Queue(2)
    queue.add(WaitingBranch("main", first=True))
    queue.add(WaitingBranch("a"))
    assert queue.next() == Build(1, ("main", "a"))
    queue.built((), blocked=True)
    assert commands_of(queue) == [Say(PauseReason.FIRST)] and queue.idle
    queue.add(WaitingBranch("b"))
    assert commands_of(queue) == []
    queue.add(WaitingBranch("main", first=True))
    assert commands_of(queue)[:2] == [Say(None), Build(2, ("main", "a", "b"))]


def test_who_is_withdrawn_leaves_the_train_and_those_before_it_stay() -> None:
    queue = queue_of("a", "b", "c")
    commands_of(queue)
    assert queue.withdraw("b")
    assert commands_of(queue) == [StopGate(1), RunGate(1, 1, 1)]
    assert not queue.withdraw("b") and not queue.withdraw("nobody")
    queue.judged(1, GREEN)
    assert commands_of(queue)[:2] == [StopGate(0), Advance(1, 1)]


def test_who_was_convicted_where_gates_lie_is_tried_once_more_when_nobody_waits() -> None:
    queue = queue_of("a", lanes=1)
    queue.flaky = 1
    commands_of(queue)
    for verdict in (GREEN, RED, RED, GREEN):
        queue.judged(0, verdict)
        last = commands_of(queue)
    assert last == [Refuse("a"), Build(2, ("a",)), RunGate(0, 2, 1, repeated=True)]
    queue.judged(0, GREEN)
    assert commands_of(queue) == [Advance(2, 1)] and queue.idle


def test_who_was_red_three_times_is_not_tried_again() -> None:
    queue = queue_of("a", "b", lanes=1)
    queue.flaky = 1
    commands_of(queue)
    for verdict in (GREEN, RED, RED, RED, GREEN, GREEN):
        queue.judged(0, verdict)
        last = commands_of(queue)
    assert last == [Advance(2, 1)] and queue.idle


def test_among_many_suspects_all_lanes_look_side_by_side() -> None:
    queue = Queue(3)
    for train in range(3):  # So many must have landed that a train is long enough.
        for number in range(queue.size):
            queue.add(WaitingBranch(f"{train}{number:02}"))
        commands_of(queue)
        queue.judged(1 if train == 0 else 0, GREEN)
        commands_of(queue)
    for number in range(16):
        queue.add(WaitingBranch(f"k{number:02}"))
    assert commands_of(queue)[-1] == RunGate(0, 4, 16)
    queue.judged(0, RED)
    assert commands_of(queue) == [RunGate(0, 4, 4), RunGate(1, 4, 10), RunGate(2, 4, 7)]
    queue.judged(2, RED)
    assert commands_of(queue) == [StopGate(1)]
    queue.judged(0, GREEN)
    assert commands_of(queue)[0] == Advance(4, 4)


def test_a_chance_gives_way_to_whoever_comes() -> None:
    queue = queue_of("a", lanes=1)
    queue.flaky = 1
    commands_of(queue)
    for verdict in (GREEN, RED, RED, GREEN):
        queue.judged(0, verdict)
        last = commands_of(queue)
    assert last[-1] == RunGate(0, 2, 1, repeated=True)
    queue.add(WaitingBranch("b"))
    assert commands_of(queue) == [StopGate(0), Build(3, ("b",)), RunGate(0, 3, 1)]


def test_a_branch_that_somebody_else_moved_is_gated_again() -> None:
    queue = queue_of("a")
    commands_of(queue)
    queue.judged(0, GREEN)
    queue.tip_moved()
    assert commands_of(queue) == [StopGate(1), Build(2, ("a",)), RunGate(0, 2, 0), RunGate(1, 2, 1)]


# --- ahead of approval ----------------------------------------------------------------------------


def unapproved(*keys: str, lanes: int = 2) -> Queue:
    """They await approval, in this order."""
    queue = Queue(lanes)
    for number, key in enumerate(keys):
        queue.add(WaitingBranch(key, ended_at=float(number), awaits=True))
    return queue


def test_what_awaits_approval_is_gated_alone_and_never_lands() -> None:
    queue = unapproved("a", "b")
    assert commands_of(queue) == [Build(1, ("a",)), RunGate(0, 1, 1)]
    queue.judged(0, GREEN)
    assert commands_of(queue) == [Show("a", GREEN), Build(2, ("b",)), RunGate(0, 2, 1)]
    queue.judged(0, NONE)
    assert commands_of(queue) == [Show("b", NONE)]
    assert queue.idle and not queue.order


def test_what_awaits_approval_waits_for_all_others_and_gives_way_to_each() -> None:
    queue = unapproved("a", lanes=1)
    queue.add(WaitingBranch("b"))
    assert commands_of(queue) == [Build(1, ("b",)), RunGate(0, 1, 0)]
    queue.judged(0, GREEN)
    commands_of(queue)
    queue.judged(0, GREEN)
    assert commands_of(queue) == [Advance(1, 1), Build(2, ("a",)), RunGate(0, 2, 1)]
    queue.add(WaitingBranch("c", awaits=True))
    assert commands_of(queue) == [], "another one of its kind waits"
    queue.add(WaitingBranch("d"))
    assert commands_of(queue) == [StopGate(0), Build(3, ("d",)), RunGate(0, 3, 1)]


def test_what_is_approved_while_it_is_gated_is_gated_as_any_other() -> None:
    queue = unapproved("a")
    commands_of(queue)
    queue.add(WaitingBranch("a"))
    assert commands_of(queue)[:2] == [StopGate(0), Build(2, ("a",))]


def test_what_is_red_ahead_of_approval_is_convicted_as_any_other() -> None:
    queue = unapproved("a", lanes=1)
    commands_of(queue)
    queue.judged(0, RED)
    assert commands_of(queue) == [RunGate(0, 1, 0)], "is it the tip?"
    queue.judged(0, GREEN)
    assert commands_of(queue) == [RunGate(0, 1, 1, fresh=True, repeated=True)]
    queue.judged(0, RED)
    assert commands_of(queue) == [Refuse("a")] and queue.idle


def test_what_is_green_at_the_second_try_is_shown_and_does_not_land() -> None:
    queue = unapproved("a", lanes=1)
    commands_of(queue)
    for verdict in (RED, GREEN):
        queue.judged(0, verdict)
        commands_of(queue)
    queue.judged(0, GREEN)
    assert commands_of(queue) == [Show("a", GREEN)] and queue.flaky == 1


def test_a_red_tip_convicts_nobody_who_awaits_approval() -> None:
    queue = unapproved("a", lanes=1)
    commands_of(queue)
    queue.judged(0, RED)
    commands_of(queue)
    queue.judged(0, RED)
    commands_of(queue)
    queue.judged(0, RED)
    assert commands_of(queue) == [Say(PauseReason.TIP)]
    assert queue.idle and queue.order == ["a"]
    queue.go_on()
    assert commands_of(queue) == [Say(None), Build(2, ("a",)), RunGate(0, 2, 1)]


def test_without_a_gate_what_merges_lands() -> None:
    assert commands_of(queue_of("a", "b", gated=False)) == [Build(1, ("a", "b")), Advance(1, 2)]
