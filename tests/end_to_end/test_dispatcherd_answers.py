"""No question over PostgreSQL is left lying, whatever it comes together with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.conftest import StartFleet
from tests.end_to_end.test_dispatcherd_control import ask_all, place_of, serving

QUESTIONS = """
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
together = Barrier(3)
def many(_):
    own, answered = get_control_from_settings(), 0
    for _ in range(25):
        together.wait(30)
        answered += len(own.control_with_reply("alive", timeout=5))
    return answered
with ThreadPoolExecutor(3) as pool:
    out = sum(pool.map(many, range(3)))
"""


def test_questions_that_come_while_others_are_answered_are_answered_at_once(
    tmp_path: Path, request: pytest.FixtureRequest, start: StartFleet
) -> None:
    # One that arrives behind the end of a statement is in libpq, and the socket says nothing of it.
    place = place_of("postgres", tmp_path, request)
    serving(place, start)
    assert ask_all(place, QUESTIONS) == 3 * 25
