"""Checkouts wait for each other, and never for a process that is gone."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from beads_workers.worktrees import checkout_slots
from beads_workers.worktrees.checkout_slots import turn


@pytest.fixture(autouse=True)
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})


def test_no_more_than_the_turns_are_held_at_a_time_and_all_get_one(tmp_path: Path) -> None:
    held, most, lock, meet = 0, 0, threading.Lock(), threading.Barrier(2)

    def check_out() -> None:
        nonlocal held, most
        with turn(str(tmp_path)):
            with lock:
                held, most = held + 1, max(most, held + 1)
            meet.wait(30)  # Two at a time are there together.
            with lock:
                held -= 1

    threads = [threading.Thread(target=check_out) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert (held, most) == (0, checkout_slots.LEAST)


def test_a_killed_holder_gives_its_turn_back(tmp_path: Path) -> None:
    said, saying = os.pipe()
    children = []
    for _ in range(checkout_slots.LEAST):
        child = os.fork()
        if not child:
            with turn(str(tmp_path)):
                os.write(saying, b".")
                signal.pause()
            os._exit(1)
        children.append(child)
    for _ in children:
        assert os.read(said, 1) == b"."
    os.kill(children[0], signal.SIGKILL)
    os.waitpid(children[0], 0)
    with turn(str(tmp_path)):
        os.kill(children[1], signal.SIGKILL)
        os.waitpid(children[1], 0)
    for each in (said, saying):
        os.close(each)
