"""The two embedded trackers, side by side: whatever happens, they must say the same."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from beads_workers.core.base.model import Filters, IssueId
from beads_workers.core.base.ready import BLOCKS, PARENT_CHILD, WAITS_FOR
from beads_workers.core.base.source import Action, CrashedRun, Settlement
from beads_workers.trackers.issue import Dependency, TrackerIssue
from beads_workers.trackers.sqlite.exchange import write_issues
from beads_workers.trackers.sqlite.source import SqliteSource
from beads_workers.trackers.sqlite.store import SqliteStore, connect, create, transaction
from tests.contracts.memory import MemorySource, MemoryTracker
from tests.support.shares import examples

ACTORS = ("run-1", "run-2")
KEYS = [f"t-{number:02}" for number in range(8)]
FILTERS = {"run-1": Filters(), "run-2": Filters(exclude_labels=("red",), types=("task", "epic"))}

settlements = st.lists(
    st.builds(
        Settlement,
        st.sampled_from(Action),
        st.sampled_from([*KEYS, "t-unknown"]).map(IssueId),
        st.sampled_from(["", "note"]),
        st.booleans(),
        st.booleans(),
    ),
    max_size=4,
)


class SideBySide(RuleBasedStateMachine):
    """Runs every step on both, and compares every answer and every issue."""

    @initialize(
        shape=st.lists(
            st.tuples(
                st.integers(0, 4),
                st.sampled_from(["task", "epic"]),
                st.sampled_from([(), ("red",)]),
                # Only on earlier ones: no cycles. Position 0 depends on nothing.
                st.dictionaries(
                    st.integers(0, 7),
                    st.sampled_from(
                        [BLOCKS, PARENT_CHILD, WAITS_FOR, "conditional-blocks", "related"]
                    ),
                    max_size=2,
                ),
            ),
            min_size=len(KEYS),
            max_size=len(KEYS),
        )
    )
    def begin(self, shape: list[tuple[int, str, tuple[str, ...], dict[int, str]]]) -> None:
        self.folder = tempfile.TemporaryDirectory()
        database = Path(self.folder.name) / "tracker.db"
        create(database, "t")
        self.connection = connect(database)
        self.store = SqliteStore(self.connection)
        self.tracker = MemoryTracker()
        issues = [
            TrackerIssue(
                id=KEYS[at],
                title="t",
                priority=priority,
                issue_type=kind,
                labels=labels,
                created_at="2026-01-02T03:04:05Z",
                updated_at="2026-01-02T03:04:05Z",
                dependencies=tuple(
                    Dependency(KEYS[on], how) for on, how in needs.items() if on < at
                ),
            )
            for at, (priority, kind, labels, needs) in enumerate(shape)
        ]
        with transaction(self.connection):
            write_issues(self.store, issues)
        for issue in issues:
            self.tracker.add(issue)
        self.pairs = {
            actor: (
                SqliteSource(database, actor=actor, filters=FILTERS[actor], listed_max=2),
                MemorySource(
                    actor=actor, tracker=self.tracker, filters=FILTERS[actor], listed_max=2
                ),
            )
            for actor in ACTORS
        }

    @rule(
        actor=st.sampled_from(ACTORS), limit=st.integers(0, 3), skip=st.sets(st.sampled_from(KEYS))
    )
    def take(self, actor: str, limit: int, skip: set[str]) -> None:
        real, model = (
            source.take(limit, [IssueId(key) for key in skip]) for source in self.pairs[actor]
        )
        assert [job.issue_id for job in real.jobs] == [job.issue_id for job in model.jobs]
        assert (real.listed, real.more, real.blocked) == (model.listed, model.more, model.blocked)

    @rule(key=st.sampled_from(KEYS), status=st.sampled_from(["open", "pinned", "closed"]))
    def put(self, key: str, status: str) -> None:
        with transaction(self.connection):
            self.connection.execute("UPDATE issues SET status = ? WHERE id = ?", (status, key))
            self.store.refresh(self.store.dependants([key]))
        model = self.tracker.issues[key]
        self.tracker.put(key, status, model.assignee, model.close_reason)

    @rule(actor=st.sampled_from(ACTORS), group=settlements)
    def settle(self, actor: str, group: list[Settlement]) -> None:
        real, model = (source.settle(group) for source in self.pairs[actor])
        assert real == model

    @rule(
        actor=st.sampled_from(ACTORS),
        done=st.lists(st.sampled_from(KEYS).map(IssueId), max_size=2),
        handed_over=st.lists(st.sampled_from(KEYS).map(IssueId), max_size=2),
    )
    def recover(self, actor: str, done: list[IssueId], handed_over: list[IssueId]) -> None:
        dead = CrashedRun(actor, tuple(done), tuple(handed_over))
        real, model = (source.recover(dead) for source in self.pairs[actor])
        assert real == model

    @invariant()
    def the_same_issues(self) -> None:
        for issue in self.store.issues(KEYS):
            model = self.tracker.issues[issue.id]
            assert (issue.status, issue.assignee, issue.notes, issue.close_reason) == (
                model.status,
                model.assignee,
                model.notes,
                model.close_reason,
            )

    def teardown(self) -> None:
        for source, _ in self.pairs.values():
            source.close()
        self.connection.close()
        self.folder.cleanup()


SideBySide.TestCase.settings = settings(
    max_examples=examples(40), stateful_step_count=20, deadline=None
)
TestSideBySide = SideBySide.TestCase
