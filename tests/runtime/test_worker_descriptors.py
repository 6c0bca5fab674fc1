"""A worker that has no descriptor left still ends its task and all that is below it."""

from __future__ import annotations

import errno

from beads_workers.runtime.processes import Spares
from tests.end_to_end.test_hostile import leave_no_descriptors
from tests.runtime import test_worker
from tests.runtime.test_worker import Bench
from tests.support.fleet import until
from tests.support.peer import descriptors, gone, wait_for

bench = test_worker.bench


def test_without_descriptors_orphans_are_reaped_and_ended_and_the_worker_lives(
    bench: Bench,
) -> None:
    # Two that leave their session, and have the worker for a parent: one dies, one is ended.
    bench.sh(
        """
        (setsid sh -c 'echo $$ > dies; while ! [ -e go ]; do sleep 0.2; done' &)
        (env -i setsid sh -c 'echo $$ > stays; exec sleep 1000' &)
        exec sleep 1000
        """
    )
    bench.peer.task("t-1")
    dies, stays = (int(wait_for(bench.file(name))) for name in ("dies", "stays"))
    # It may run before its worker watches it.
    until(lambda: any("pidfd" in name for name in descriptors(bench.pid).values()))
    leave_no_descriptors(bench.pid)
    bench.file("go").touch()
    assert gone(dies)
    bench.peer.send("CANCEL", issue_id="t-1", reason="released")
    assert bench.peer.expect("FAILED")["outcome"] == "cancelled"
    bench.peer.expect("READY")
    assert gone(stays)


def test_spares_are_given_where_something_fails_and_are_kept_again() -> None:
    spares = Spares(2)
    tries = []

    def fail_once() -> None:
        tries.append(len(spares._held))
        if len(tries) == 1:
            raise OSError(errno.EMFILE, "Too many open files")

    spares.do(fail_once)
    assert tries == [2, 0] and len(spares._held) == 2
