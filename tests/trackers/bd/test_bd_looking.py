"""What only ``bd`` has, as people who ask see it: both generations."""

from __future__ import annotations

from contextlib import closing

from beads_workers.core.base.source import Action, Settlement
from beads_workers.ui.reasons import epoch
from tests.support.bd import BdProject

US = "beads-workers/host/run-1"


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


def test_who_takes_is_told_how_many_wait_for_others(project_new: BdProject) -> None:
    needs = [{"issue_id": "bw-3", "depends_on_id": "bw-1", "type": "blocks"}]
    later = {"defer_until": "2099-01-01T00:00:00Z"}
    first, *_ = project_new.create_many([{}, {}, {"dependencies": needs}, later])
    with closing(project_new.source(US)) as source:
        assert source.take(1, ()).blocked is None, "the first take does not ask"
        assert source.take(1, ()).blocked == 1
        source.settle([Settlement(Action.CLOSE, first)])
        assert source.take(0, ()).blocked == 0
