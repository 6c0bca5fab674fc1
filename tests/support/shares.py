"""A share of what runs at full length with ``--every-version``, as before a release.

Hundreds of cases of one kind (the mutants of a kit, simulated worlds, kept texts) prove together
what each of them proves of one thing: the everyday suite runs some of each test, drawn by their
names, that are the same each time. The examples of hypothesis are others in every run: fewer.

So it is with files whose tests each take a second of a real ``bd``, agent or fleet: a run of
everything has one of ``n`` tests of each, drawn anew each day. A file that is named runs whole.
With ``TESTS_DRAWN_BY``, a word that ``.ci/run`` makes of the day, all is drawn by that word: in
time, each case and each version of a peer runs there.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from datetime import date

import pytest
from hypothesis import HealthCheck, settings

DRAW = os.environ.get("TESTS_DRAWN_BY", "")
WHOLE, SOME = 100, 30
"""Examples of hypothesis for each test that names no number: its own default, and our share."""


def pytest_configure(config: pytest.Config) -> None:
    """The mark ``share`` and the profile of hypothesis, before any test file is read."""
    config.addinivalue_line("markers", "share(n): one of n cases is drawn, but --every-version")
    config.addinivalue_line("markers", "daily(n): one of n tests of this file is drawn each day")
    # A busy machine is no fault of a test.
    slow = [HealthCheck.too_slow]
    settings.register_profile("whole", suppress_health_check=slow, deadline=None)
    settings.register_profile("some", settings.get_profile("whole"), max_examples=SOME)
    settings.load_profile("whole" if config.getoption("every_version") else "some")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what is not drawn; of one case that was selected alone, nothing is left out."""
    if config.getoption("every_version"):
        return
    names_path = config.args_source is pytest.Config.ArgsSource.ARGS
    left_out = _not_drawn(items, "share", "[", DRAW)
    if not names_path:
        left_out |= _not_drawn(items, "daily", "::", DRAW or f"{date.today()}")
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
    items[:] = [item for item in items if item.nodeid not in left_out]


def _not_drawn(items: Sequence[pytest.Item], kind: str, mark_of: str, seed: str) -> set[str]:
    """The node ids that are left out; those are drawn from together that are the same up to
    ``mark_of``."""
    groups: dict[tuple[int, str], list[str]] = {}
    for item in items:
        if mark := item.get_closest_marker(kind):
            group = (mark.args[0], item.nodeid.partition(mark_of)[0])
            groups.setdefault(group, []).append(item.nodeid)
    return {name for (n, _), names in groups.items() for name in set(names) - share(names, n, seed)}


@pytest.fixture
def every_version(request: pytest.FixtureRequest) -> bool:
    """Whether a test that chooses by itself what it tries has to try all."""
    return bool(request.config.getoption("every_version"))


def share(names: Sequence[str], n: int, seed: str = "") -> set[str]:
    """Return one of ``n`` of these, and at least one."""
    drawn = sorted(names, key=lambda name: zlib.crc32(f"{name}{seed}".encode()))
    return set(drawn[: -(-len(names) // n)])


def examples(whole: int) -> int:
    """Return how many examples a test tries that tries so many at full length."""
    default = settings.default
    assert default is not None
    return max(1, whole * default.max_examples // WHOLE)
