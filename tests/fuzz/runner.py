"""Trying inputs by the thousand: in chunks, each made again exactly from its seed and number."""

from __future__ import annotations

import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from types import FrameType
from typing import Any

from tests.fuzz.minimiser import minimised
from tests.fuzz.parser import Parser

CHUNK = 1000
SECONDS_MAX = 1.0
"""CPU time of one input, thousands of times what it takes."""
HANG_SECONDS = 20.0


class Slow(AssertionError):
    """An input took longer than any should."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Input ``number`` of ``seed`` failed; ``small`` is the least that fails in the same way."""

    parser: str
    seed: int
    number: int
    why: str
    data: bytes
    small: bytes
    trace: str


def inputs(parser: Parser, seed: int, chunk: int) -> Iterator[bytes]:
    """The inputs of one chunk, without end: the first ``CHUNK`` count."""
    rng = Random(f"{seed}:{parser.name}:{chunk}")
    while True:
        yield parser.make(rng)


def the_input(parser: Parser, seed: int, number: int) -> bytes:
    """One input again."""
    chunk, place = divmod(number, CHUNK)
    made = inputs(parser, seed, chunk)
    for _ in range(place):
        next(made)
    return next(made)


def try_chunk(
    parser: Parser, seed: int, chunk: int, count: int = CHUNK, target: Any = None
) -> Failure | None:
    """The first failure among a chunk's first ``count`` inputs; ``target``: a mutant instead."""
    tried = parser.target if target is None else target
    made = inputs(parser, seed, chunk)
    with _alarm():
        for place in range(count):
            data = next(made)
            if (error := fault(parser, tried, data)) is not None:
                number = chunk * CHUNK + place
                return _failure(parser, tried, seed, number, data, error)
    return None


def fault(parser: Parser, target: Any, data: bytes) -> BaseException | None:
    """What is wrong with this input; None where everything holds."""
    began = time.process_time()
    try:
        parser.holds(target, data)
    except Exception as error:  # Whatever gets out of a parser is what is looked for.
        return error
    took = time.process_time() - began
    return Slow(f"{took:.1f} s for {len(data)} bytes") if took > SECONDS_MAX else None


def _failure(
    parser: Parser, target: Any, seed: int, number: int, data: bytes, error: BaseException
) -> Failure:
    kind = _kind(error)

    def fails(smaller: bytes) -> bool:
        found = fault(parser, target, smaller)
        return found is not None and _kind(found) == kind

    # A slow one is shown as it is: making it smaller would take minutes.
    small = data if isinstance(error, Slow) else minimised(data, fails)
    why = f"{type(error).__name__}: {error}"[:300]
    trace = "".join(traceback.format_exception(error)[-4:])
    return Failure(parser.name, seed, number, why, data, small, trace)


def _kind(error: BaseException) -> tuple[str, int]:
    """The same fault: the same type of error from the same line."""
    last = traceback.extract_tb(error.__traceback__)
    return type(error).__name__, (last[-1].lineno or 0) if last else 0


@contextmanager
def _alarm() -> Iterator[None]:
    """A hang becomes a failure of the input that hangs."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise Slow(f"still at it after {HANG_SECONDS:g} s")

    before: Any = signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, HANG_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


Said = Callable[[str], None]
