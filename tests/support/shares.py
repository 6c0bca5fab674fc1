"""A share of what runs at full length with ``--every-version``, as ``.ci/run`` has it.

Hundreds of cases of one kind (the mutants of a kit, simulated worlds, kept texts) prove together
what each of them proves of one thing: the everyday suite runs some of each test, drawn by their
names, that are the same each time. The examples of hypothesis are others in every run: fewer.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import pytest
from hypothesis import settings

WHOLE, SOME = 100, 30
"""Examples of hypothesis for each test that names no number: its own default, and our share."""


def pytest_configure(config: pytest.Config) -> None:
    """The mark ``share`` and the profile of hypothesis, before any test file is read."""
    config.addinivalue_line("markers", "share(n): one of n cases is drawn, but --every-version")
    settings.register_profile("some", max_examples=SOME)
    settings.load_profile("default" if config.getoption("every_version") else "some")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what is not drawn; of one case that was selected alone, nothing is left out."""
    if config.getoption("every_version"):
        return
    cases: dict[int, dict[str, list[str]]] = {}
    for item in items:
        if mark := item.get_closest_marker("share"):
            test = item.nodeid.partition("[")[0]
            cases.setdefault(mark.args[0], {}).setdefault(test, []).append(item.nodeid)
    left_out = {
        name
        for n, tests in cases.items()
        for names in tests.values()
        for name in set(names) - share(names, n)
    }
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
    items[:] = [item for item in items if item.nodeid not in left_out]


@pytest.fixture
def every_version(request: pytest.FixtureRequest) -> bool:
    """Whether a test that chooses by itself what it tries has to try all."""
    return bool(request.config.getoption("every_version"))


def share(names: Sequence[str], n: int) -> set[str]:
    """Return one of ``n`` of these, and at least one."""
    return set(sorted(names, key=lambda name: zlib.crc32(name.encode()))[: -(-len(names) // n)])


def examples(whole: int) -> int:
    """Return how many examples a test tries that tries so many at full length."""
    default = settings.default
    assert default is not None
    return max(1, whole * default.max_examples // WHOLE)
