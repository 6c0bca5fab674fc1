"""The real peers are installed, and start: what other tests need is there."""

from __future__ import annotations

import subprocess

import pytest

from tests.support.peers import HANDLERS, VERSIONS, Redis, rrq_of


@pytest.mark.parametrize("version", VERSIONS)
def test_the_real_rrq_is_there_in_the_wanted_version_with_our_handlers(version: str) -> None:
    rrq = rrq_of(version)
    module, _, name = HANDLERS.rpartition(".")
    script = f"import importlib.metadata as m, {module}; print(m.version('rrq'), {module}.{name})"
    done = subprocess.run(
        [rrq.python, "-c", script], env=rrq.environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(version)


def test_a_redis_of_its_own_answers(redis: Redis) -> None:
    assert redis.command("ping").strip() == "PONG"
