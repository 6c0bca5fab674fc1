"""Whatever a function does, one answer comes of it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from beads_workers.core.base.model import OutcomeKind
from beads_workers.executors.functions import TRACE_CHARS_MAX, Caller, CallResult
from beads_workers.executors.retry import Retry


@pytest.fixture
def caller() -> Iterator[Caller]:
    made = Caller()
    yield made
    made.close()


def add(a: int, b: int = 1) -> int:
    return a + b


async def add_later(a: int) -> int:
    await asyncio.sleep(0)
    return a + 1


def test_what_it_returns_comes_back_as_json(caller: Caller) -> None:
    assert caller.call(add, [1], {"b": 2}) == CallResult(OutcomeKind.SUCCESS, "3")
    assert json.loads(caller.call(lambda: {"é": [None, 1.5]}, [], {}).result) == {"é": [None, 1.5]}


def test_coroutines_are_run_to_their_end_in_one_loop(caller: Caller) -> None:
    async def loop() -> int:
        return id(asyncio.get_running_loop())

    assert caller.call(add_later, [1], {}).result == "2"
    assert caller.call(loop, [], {}) == caller.call(loop, [], {})


def test_an_exception_is_an_error_with_its_type_and_its_traceback(caller: Caller) -> None:
    answer = caller.call(add, ["a"], {})
    assert answer.kind is OutcomeKind.ERROR
    assert answer.error.startswith("TypeError: can only concatenate str")
    assert "return a + b" in answer.trace


def raising(error: BaseException) -> Callable[[], Any]:
    def raise_it() -> None:
        raise error

    return raise_it


@pytest.mark.parametrize("after", [None, 0.0, 2.5])
def test_retry_asks_for_another_try(caller: Caller, after: float | None) -> None:
    answer = caller.call(raising(Retry("not yet", after_seconds=after)), [], {})
    assert answer == CallResult(OutcomeKind.RETRY, error="not yet", retry_after_seconds=after)


def test_a_timeout_of_its_own_is_a_timeout(caller: Caller) -> None:
    def late() -> None:
        raise TimeoutError("too late")

    answer = caller.call(late, (), {})
    assert (answer.kind, answer.error) == (OutcomeKind.TIMEOUT, "TimeoutError: too late")


def test_leaving_is_an_error_and_not_the_end(caller: Caller) -> None:
    assert caller.call(lambda: sys.exit(3), [], {}).error == "it called exit(3)"
    assert caller.call(add, [1], {}).kind is OutcomeKind.SUCCESS


@pytest.mark.parametrize("value", [object(), float("inf"), {1: {2}}, b"x"])
def test_a_result_that_is_no_json_is_an_error(caller: Caller, value: object) -> None:
    answer = caller.call(lambda: value, [], {})
    assert answer.kind is OutcomeKind.ERROR
    assert "its result is not JSON" in answer.error


def test_errors_are_bounded_and_one_line(caller: Caller) -> None:
    answer = caller.call(raising(ValueError("a\nb" * 100_000)), [], {})
    assert len(answer.error) < 5_000 and "\n" not in answer.error
    assert len(answer.trace) <= TRACE_CHARS_MAX


def test_recursion_without_end_is_an_error(caller: Caller) -> None:
    def deeper() -> None:
        deeper()

    assert caller.call(deeper, [], {}).error.startswith("RecursionError: ")
