"""Spans on their way: what is sent, what is dropped, and that it is counted."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from beads_workers.core.base.plain import to_plain
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry, Record, encode
from beads_workers.integrations.tracing import tracer
from beads_workers.integrations.tracing.spans import Span


class Room:
    """A journal, and an export that may fail."""

    def __init__(self, folder: Path, limits: tracer.Bounds) -> None:
        self.journal = folder / "journal.jsonl"
        self.journal.touch()
        self.sent: list[list[str]] = []
        self.fails = ""
        self.limits = limits
        self.batches = tracer.Batches(self.journal, self.export, limits)

    def export(self, spans: Sequence[Span]) -> str:
        """See ``Export``."""
        if not self.fails:
            self.sent.append([str(span.attributes["beads.issue.id"]) for span in spans])
        return self.fails

    def ran(self, *issue_ids: str, ended: bool = True) -> None:
        """An attempt of each, in the journal."""
        records: list[Record] = []
        for issue_id in issue_ids:
            header = f"00-{'a' * 32}-{'b' * 16}-01"
            records.append(rec.Started(issue_id, "W1", 1, issue_id, traceparent=header))
            if ended:
                end = rec.Finished(issue_id, "W1", 1, issue_id, "success", "finish")
                records.append(end)
        with self.journal.open("ab") as file:
            file.writelines(encode(Entry(record, 1000.0, 1.0)) for record in records)


def test_what_has_ended_is_sent_in_batches(tmp_path: Path) -> None:
    room = Room(tmp_path, tracer.Bounds(queue=10, batch=2))
    room.ran("a", "b", "c")
    room.batches.look()
    assert room.batches.send() and room.batches.send()
    room.ran("d")
    room.batches.look()
    assert room.batches.send()
    assert room.sent == [["a", "b"], ["c"], ["d"]]
    assert room.batches.account == tracer.ExportStatus(exported=4)


def test_what_does_not_fit_the_queue_is_dropped_and_counted(tmp_path: Path) -> None:
    room = Room(tmp_path, tracer.Bounds(queue=2, batch=2))
    room.ran("a", "b", "c", "d", "e")
    room.batches.look()
    assert room.batches.account.dropped == 3
    room.batches.send()
    assert room.sent == [["a", "b"]]


def test_a_batch_that_fails_is_dropped_and_the_next_is_tried(tmp_path: Path) -> None:
    room = Room(tmp_path, tracer.Bounds(queue=10, batch=2))
    room.ran("a", "b", "c")
    room.fails = "nobody there"
    room.batches.look()
    room.batches.send()
    assert room.batches.account == tracer.ExportStatus(dropped=2, error="nobody there")
    room.fails = ""
    room.batches.send()
    assert room.sent == [["c"]] and room.batches.account.exported == 1


def sending(batches: tracer.Batches) -> threading.Thread:
    """As the process does it."""

    def send() -> None:
        while batches.send():
            pass

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread


def test_at_the_end_everything_goes_out_also_what_never_ended(tmp_path: Path) -> None:
    room = Room(tmp_path, tracer.Bounds(queue=10, batch=2))
    room.ran("a")
    room.ran("b", ended=False)
    room.batches.look()
    thread = sending(room.batches)
    room.batches.finish(2000.0, 60.0)
    thread.join(60.0)
    assert sorted(each for batch in room.sent for each in batch) == ["a", "b"]
    assert room.batches.account.dropped == 0 and not thread.is_alive()


def test_a_collector_that_does_not_answer_is_not_waited_for_without_end(tmp_path: Path) -> None:
    room = Room(tmp_path, tracer.Bounds(queue=3, batch=2))
    answers = threading.Event()
    batches = tracer.Batches(
        room.journal, lambda spans: "" if answers.wait(60.0) else "late", room.limits
    )
    thread = sending(batches)
    room.ran("a", "b", "c", "d", "e", "f", "g", "h")
    batches.look()
    batches.finish(2000.0, 0.01)
    assert batches.account.exported == 0 and batches.account.dropped == 8
    answers.set()
    thread.join(60.0)
    assert not thread.is_alive()


def test_the_environment_sets_the_bounds_as_the_standard_has_them() -> None:
    said = {
        "OTEL_BSP_MAX_QUEUE_SIZE": "100",
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "200",
        "OTEL_BSP_SCHEDULE_DELAY": "250",
    }
    assert tracer.bounds(said) == tracer.Bounds(100, 100, 0.25)
    assert (
        tracer.bounds(dict.fromkeys(said, "0"))
        == tracer.bounds(dict.fromkeys(said, "x"))
        == tracer.Bounds()
    )


@pytest.mark.parametrize("values", [None, {}, {"exported": 1}, {"exported": "1", "dropped": 0}])
def test_an_account_that_is_none_is_refused(values: object) -> None:
    assert tracer.account_of(to_plain(tracer.ExportStatus(3, 1, "why"))) == tracer.ExportStatus(
        3, 1, "why"
    )
    with pytest.raises((TypeError, ValueError, KeyError)):
        tracer.account_of(values)
