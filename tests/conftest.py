"""Fixtures shared by the whole suite live in ``tests/support``."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from pathlib import Path

import pytest

from beads_workers.worktrees.slots import VARIABLE

LONG = (
    *("test_rooms.py", "conformance", "end_to_end/test_night.py", "proof"),
    *("contracts", "trackers", "end_to_end", "oracles", "simulation", "integrations", "cli"),
    *("landing", "worktrees", "runtime"),
)
"""Files and folders in the order of what one file of theirs takes; all others are short."""

TRUST = "BEADS_WORKERS_TRUST"
SLOTS_OF = "TEST_SLOTS_OF"
SUPPORT = ("bd", "mistakes", "peers", "postgres", "shares", "versions")
pytest_plugins = [f"tests.support.{name}" for name in SUPPORT]


def pytest_configure() -> None:
    """What runs under a test gets signals as in a terminal, also where ``nohup`` started us.

    A ``bd`` lives for a third of a second, a sixth of it for its garbage: it may leave that.
    """
    os.environ[VARIABLE] = f"/tmp/beads-workers-slots-{os.getpid()}"
    os.environ.setdefault("GOGC", "off")
    os.environ.setdefault("GOMEMLIMIT", "192MiB")
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A start takes the variable out of its own environment, also if a test calls it as a function.

    Tests of trust itself take it away. Worktrees that a file has left give up their numbers.
    """
    os.environ[TRUST] = "1"
    if os.environ.get(SLOTS_OF) != str(item.path):
        os.environ[SLOTS_OF] = str(item.path)
        shutil.rmtree(os.environ[VARIABLE], ignore_errors=True)


def pytest_unconfigure() -> None:
    """Nothing is left of this process's numbers."""
    shutil.rmtree(os.environ.pop(VARIABLE, ""), ignore_errors=True)


def pytest_collectstart() -> None:
    """Nothing that is collected becomes garbage before the tests: a seventh of what it costs."""
    gc.disable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several processes share the files: the long ones first, that none is left alone."""
    if hasattr(config, "workerinput"):
        items.sort(key=_turn)


def pytest_collection_finish() -> None:
    """Eight thousand tests are no garbage: looking whether they are is a tenth of what we do."""
    gc.enable()
    gc.collect()
    gc.freeze()


def _turn(item: pytest.Item) -> int:
    path = item.path.relative_to(Path(__file__).parent)
    turns = (turn for turn, name in enumerate(LONG) if path.is_relative_to(name))
    return next(turns, len(LONG))
