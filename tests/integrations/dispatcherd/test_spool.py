"""The spool: what is not over is there again, whenever its writer died."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import pytest

from beads_workers.core.base.model import IssueId
from beads_workers.integrations.dispatcherd import spool as module
from beads_workers.integrations.dispatcherd.queue import QueuedTask
from beads_workers.integrations.dispatcherd.wire import TaskCall


def entry(number: int, **fields: object) -> QueuedTask:
    task = TaskCall("a.b", (number, "é\n"), uuid=f"u{number}", extra={"callbacks": []})
    return QueuedTask(number, IssueId(f"u{number}"), task, "channel", 1.5, 10)


def numbers(content: bytes) -> list[int]:
    return list(module.read_spool(content).entries)


def opened(path: Path) -> tuple[module.Spool, module.Restored]:
    found = module.look_at(path)
    return module.Spool(path, found), found


@pytest.fixture
def spool(tmp_path: Path) -> module.Spool:
    return opened(tmp_path / "spool.jsonl")[0]


def test_what_was_written_is_read_as_it_was(spool: module.Spool) -> None:
    spool.append([entry(1), entry(2)])
    spool.append([entry(3)], finished=[1])
    found = module.read_spool(spool.path.read_bytes())
    assert (list(found.entries), found.last, found.damaged) == ([2, 3], 3, 0)
    read = found.entries[3]
    assert (read.issue_id, read.task, read.channel, read.received_at) == (
        "u3", entry(3).task, "channel", 1.5,
    )  # fmt: skip


def test_it_is_for_its_owner_alone(spool: module.Spool) -> None:
    assert spool.path.stat().st_mode & 0o777 == 0o600


def test_wherever_its_writer_died_all_whole_lines_count(spool: module.Spool) -> None:
    spool.append([entry(1), entry(2), entry(3)])
    content = spool.path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(content) if byte == ord("\n")]
    for cut in range(len(content) + 1):
        found = module.read_spool(content[:cut])
        assert len(found.entries) == sum(end <= cut for end in ends)
        assert found.damaged == 0


def test_a_start_forgets_what_is_over_and_goes_on_behind_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "spool.jsonl"
    path.write_bytes(
        module.write_entry(entry(1)) + module.write_entry(entry(2)) + b'{"d":[1]}\n{"n":3,"id'
    )
    spool, found = opened(path)
    assert (list(found.entries), found.last) == ([2], 2)
    assert path.read_bytes() == module.write_entry(entry(2))
    spool.append([entry(3)], finished=[2])
    assert numbers(path.read_bytes()) == [3]


def test_a_damaged_line_costs_no_other_and_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "spool.jsonl"
    damaged = module.write_entry(entry(1)) + b'{"n":2,"id":\x00\n' + module.write_entry(entry(3))
    path.write_bytes(damaged)
    _, found = opened(path)
    assert (list(found.entries), found.damaged) == ([1, 3], 1)
    assert (tmp_path / "spool.jsonl.damaged-1").read_bytes() == damaged
    assert numbers(path.read_bytes()) == [1, 3]


def test_an_empty_one_shrinks(spool: module.Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANEW_BYTES", 100)
    spool.append([entry(1)])
    assert not spool.wants_rewriting
    spool.append([], finished=[1])
    assert spool.wants_rewriting
    spool.rewrite([])
    assert spool.path.read_bytes() == b"" and not spool.wants_rewriting


def test_it_is_brought_to_disk_by_any_thread_until_after_its_end(spool: module.Spool) -> None:
    spool.append([entry(1)])
    spool.sync()
    spool.close()
    spool.sync()
    assert numbers(spool.path.read_bytes()) == [1]


def test_what_is_mostly_over_is_written_anew_with_what_is_on_file(
    spool: module.Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REWRITE_BYTES", 500)
    spool.append([entry(n) for n in range(1, 20)])
    spool.append([], finished=list(range(1, 15)))
    assert spool.wants_rewriting
    spool.rewrite([entry(n) for n in range(15, 25)])
    assert numbers(spool.path.read_bytes()) == list(range(15, 20)), "20 is not on file yet"
    spool.append([entry(20)], finished=[15])
    assert numbers(spool.path.read_bytes()) == [16, 17, 18, 19, 20]


def test_without_room_nothing_is_half_written(spool: module.Spool) -> None:
    spool.append([entry(1)])
    size = spool.path.stat().st_size
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, hard))
    try:
        with pytest.raises(OSError):
            spool.append([entry(2)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert spool.path.stat().st_size == size
    spool.append([entry(2)])
    assert numbers(spool.path.read_bytes()) == [1, 2]
