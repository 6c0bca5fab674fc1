"""Peers of several versions: a test draws one of them, ``--every-version`` runs it on all.

Most of what the suite computes is done by ``bd`` and RRQ. If only the version differs, a test is
run on one, drawn by its name and its other parameters: half of them on each, but for ``bd`` 1.3.0,
whose calls compute three times as long: an eighth, beside all the tests of what it alone can do. A
test that is not about trackers is run on the built-in one or, a quarter, on ``bd``, a whole fleet
that must do the same on every tracker on one of three (what a tracker itself must do,
``tests/contracts`` asks of each), and what both agents must pass with one of them: claude, which
computes twice as long as codex, is a quarter. So are the brokers of dispatcherd, the executors of
RRQ, and the workers in other languages where the kit tries them. Continuous integration draws anew
each day (``TESTS_DRAWN_BY``).
"""

from __future__ import annotations

import re
import zlib

import pytest

from tests.support import bd, peers
from tests.support.shares import DRAW

EITHER = tuple(f"either-{kind}" for kind in ("embedded", bd.OLD))
"""The trackers of tests that are not about trackers (``either_project``)."""
ANY = tuple(f"any-{kind}" for kind in ("embedded", *bd.VERSIONS))
"""The trackers of tests that hold on each of them (``any_project``)."""
BROKERS = ("over-socket", "over-postgres")
"""The brokers of dispatcherd, in tests that hold over both."""
EXECUTORS = ("by-rrq-unix", "by-rrq-tcp", "by-rrq2")
"""The real executors of RRQ, in tests of what becomes of a task whoever executes it."""
WORKERS = ("in-go", "in-node", "in-rust")
"""The workers of ``workers/`` that the conformance kit tries."""
CLAUDE, CODEX = AGENTS = ("either-claude", "either-codex")
"""The agents of tests that each of them must pass."""
PROGRAMS = ("github", *(f"bd-{version}" for version in bd.VERSIONS))
"""The trackers of ``tests/contracts`` that are programs: each call is a process. Beside one of
them, each contract is always tried on the two that are none."""
PEERS = dict.fromkeys(EITHER, "tracker") | dict.fromkeys(ANY, "any tracker")
PEERS |= dict.fromkeys(AGENTS, "agent") | dict.fromkeys(BROKERS, "broker")
PEERS |= dict.fromkeys(EXECUTORS, "executor") | dict.fromkeys(WORKERS, "worker")
PEERS |= (
    dict.fromkeys(PROGRAMS, "program")
    | dict.fromkeys(bd.VERSIONS, "bd")
    | dict.fromkeys(peers.VERSIONS, "rrq")
)
LOTS = {bd.OLD: 7, CODEX: 3, EITHER[0]: 3} | dict(zip(ANY, (5, 3, 1), strict=True))
LOTS |= dict(zip(PROGRAMS, (3, 3, 1), strict=True))
"""How many a version has in the draw, if not one."""
VERSION = re.compile(rf"(?<![\d.])({'|'.join(map(re.escape, PEERS))})(?![\d.\w])")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--every-version``."""
    parser.addoption(
        "--every-version", action="store_true", help="all versions of bd and RRQ, not one drawn"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what is not drawn; of what was selected by version, nothing is left to draw from."""
    if config.getoption("every_version"):
        return
    left_out = not_drawn([item.nodeid for item in items], DRAW)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
    items[:] = [item for item in items if item.nodeid not in left_out]


def not_drawn(names: list[str], seed: str = "") -> set[str]:
    """Of tests that differ in the version alone: all but one."""
    alike: dict[str, list[str]] = {}
    for name in names:
        test, _, parameters = name.partition("[")
        whichever = VERSION.sub(lambda found: PEERS[found[0]], parameters)
        if whichever != parameters:
            alike.setdefault(f"{test}[{whichever}", []).append(name)
    drawn = {_drawn(f"{test}{seed}", ours) for test, ours in alike.items()}
    return {name for ours in alike.values() for name in ours} - drawn


def _drawn(test: str, names: list[str]) -> str:
    lots = [name for name in names for _ in range(_lots(name))]
    return lots[zlib.crc32(test.encode()) % len(lots)]


def _lots(name: str) -> int:
    found = VERSION.search(name.partition("[")[2])
    return LOTS.get(found[0], 1) if found else 1
