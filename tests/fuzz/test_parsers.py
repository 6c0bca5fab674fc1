"""Every parser holds on hostile inputs, and every planted bug of one is found."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

from tests.fuzz.inputs import cuts, mutated
from tests.fuzz.minimiser import minimised
from tests.fuzz.parser import Broken, well_typed
from tests.fuzz.runner import CHUNK, inputs, the_input, try_chunk
from tests.fuzz.table import PARSERS
from tests.support.shares import examples

INPUTS = examples(400)
"""In every test run; ``scripts/fuzz`` tries as many as you like."""
MUTANT_CHUNKS = 3
SEED = 1


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_holds_on_hostile_inputs(name: str) -> None:
    failure = try_chunk(PARSERS[name], SEED, 0, INPUTS)
    assert failure is None, failure


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("name", "mutant"), [(name, mutant) for name, p in PARSERS.items() for mutant in p.mutants]
)
def test_a_planted_bug_is_found_and_made_small(name: str, mutant: str) -> None:
    parser = PARSERS[name]
    for chunk in range(MUTANT_CHUNKS):
        failure = try_chunk(parser, SEED, chunk, target=parser.mutants[mutant])
        if failure is not None:
            assert the_input(parser, SEED, failure.number) == failure.data
            assert len(failure.small) <= len(failure.data)
            return
    pytest.fail(f"{mutant} was not found in {MUTANT_CHUNKS * CHUNK} inputs")


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_has_a_planted_bug_and_other_inputs_for_another_seed(name: str) -> None:
    parser = PARSERS[name]
    assert parser.mutants and parser.reads
    few = [list(islice(inputs(parser, seed, 0), 20)) for seed in (1, 2)]
    assert few[0] != few[1]
    assert all(isinstance(data, bytes) for data in few[0])


def test_an_input_is_cut_at_every_byte_and_never_changed() -> None:
    data = bytes(range(100))
    parts = cuts(data)
    assert all(b"".join(pieces) == data for pieces in parts)
    assert parts[0][:3] == [b"\0", b"\1", b"\2"]


def test_the_same_seed_makes_the_same_changes() -> None:
    first, second = (mutated(Random(7), b'{"a": 1}') for _ in range(2))
    assert first == second


def test_an_input_is_the_same_however_deep_the_caller_is() -> None:
    def again(frames: int) -> bytes:
        return again(frames - 1) if frames else the_input(PARSERS["submissions"], SEED, 3999)

    assert again(0) == again(100)


def test_what_fails_is_made_as_small_as_it_can_be() -> None:
    data = b"0" * 50 + b"x" + b"1" * 50 + b"y"
    assert minimised(data, lambda less: b"x" in less and b"y" in less) == b"xy"


def test_a_field_of_another_type_than_it_is_annotated_with_is_found() -> None:
    from beads_workers.core.base.model import IssueId
    from beads_workers.core.base.wire import Done, Wait

    well_typed(Done(IssueId("bw-1"), "W1", 3))
    for wrong in (Wait(1.5), Done(IssueId("bw-1"), "W1", True)):  # type: ignore[arg-type]
        with pytest.raises(Broken):
            well_typed(wrong)
