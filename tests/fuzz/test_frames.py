"""Some thousand bad frames to a real executor of ours and to lines of our driver.

``scripts/fuzz --frames 1000000`` is the same at full size.
"""

from __future__ import annotations

from random import Random

from beads_workers.integrations.rrq.wire import FrameReader
from tests.fuzz.frames.driver_end import try_lines
from tests.fuzz.frames.executor_end import try_executor
from tests.fuzz.frames.making import FATAL, FRAMES_MAX, connection, is_fatal


def test_an_executor_survives_bad_frames_and_serves_good_ones() -> None:
    told: list[int] = []
    assert try_executor(3000, 1, told.append) == []
    assert told[-1] >= 3000


def test_lines_of_a_driver_survive_bad_frames_and_read_good_ones() -> None:
    told: list[int] = []
    assert try_lines(10_000, 1, told.append) == []
    assert told[-1] >= 10_000


def test_the_same_seed_makes_the_same_frames_and_the_last_one_ends_them() -> None:
    for for_executor in (True, False):
        first, again = Random(7), Random(7)
        for _ in range(300):
            stream = connection(first, for_executor=for_executor)
            assert stream == connection(again, for_executor=for_executor)
            assert 1 <= stream.frames <= FRAMES_MAX
            reader = FrameReader()
            payloads = reader.feed(stream.data)
            if stream.ends and not stream.data.endswith(FATAL):
                assert len(payloads) == stream.frames and not reader.broken
                fatal = [is_fatal(payload, for_executor=for_executor) for payload in payloads]
                assert fatal == [False] * (len(fatal) - 1) + [True]
