"""What only ``bd`` has, as people who ask see it: both generations."""

from __future__ import annotations

from beads_workers.ui.reasons import epoch
from tests.support.bd import BdProject


def test_a_deferral_is_seen_in_a_look_and_in_the_backlog(project: BdProject) -> None:
    key = project.create("later")
    project.bd("update", key, "--defer=+2h")
    before = project.show(key)
    source = project.source("why")
    (seen,), (listed,) = source.look([key]).values(), source.unfinished(10)
    assert seen == listed
    assert (epoch(seen.deferred_until) or 0) - (epoch(before["updated_at"]) or 0) > 7000
    assert source.ready() == frozenset()
    source.close()
    assert project.show(key) == before
