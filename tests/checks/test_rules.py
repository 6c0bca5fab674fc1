"""The rules of ``doctor`` that need nothing but numbers."""

from __future__ import annotations

import pytest

from beads_workers.checks import rules
from beads_workers.checks.rules import Check, FreeSpace, Grade
from beads_workers.core.base.text import size

GB = 1_000_000_000
NOW = 1_800_000_000.0


def graded(check: Check) -> str:
    """The grade, as it is written."""
    return check.status.value


@pytest.mark.parametrize(
    ("hard", "workers", "grade"),
    [(31, 8, "fail"), (32, 8, "warn"), (79, 8, "warn"), (80, 8, "ok"), (None, 500, "ok")],
)
def test_a_hard_limit_of_files_fails_where_not_all_workers_can_connect(
    hard: int | None, workers: int, grade: str
) -> None:
    assert graded(rules.file_limit(1024, hard, workers, root=True)) == grade


def test_who_may_not_raise_the_hard_limit_is_told_to_ask_for_it() -> None:
    assert rules.file_limit(16, 16, 2, root=False).remedy.startswith("sudo prlimit --pid $$ ")
    assert rules.file_limit(16, 16, 2, root=True).remedy == "ulimit -n 1024"


def test_a_low_soft_limit_is_a_warning_because_tasks_get_it_back() -> None:
    found = rules.file_limit(128, 4096, 2, root=False)
    assert (graded(found), found.remedy) == ("warn", "ulimit -Sn $(ulimit -Hn)")


@pytest.mark.parametrize(
    ("free", "inodes", "grade"),
    [(GB, 10_000, "ok"), (GB, None, "ok"), (GB - 1, 10_000, "warn"), (GB, 9999, "warn"),
     (32_000_000 - 1, 10_000, "fail"), (GB, 199, "fail")],
)  # fmt: skip
def test_a_disk_is_judged_by_bytes_and_by_inodes(free: int, inodes: int | None, grade: str) -> None:
    (found,) = rules.disk([FreeSpace("/var/x y", "the tracker", free, inodes)])
    assert graded(found) == grade
    assert ("'/var/x y'" in found.remedy) == (grade != "ok")


def test_file_systems_with_room_share_a_line_beside_the_one_without() -> None:
    full, fine, other = (
        FreeSpace("/a", "a", 0, None),
        FreeSpace("/b", "b", GB, None),
        FreeSpace("/c", "c", GB, None),
    )
    found = rules.disk([fine, full, other])
    assert [graded(each) for each in found] == ["fail", "ok"]
    assert found[1].text == "1.0 GB free for b, 1.0 GB free for c"


@pytest.mark.parametrize(
    ("used", "limit", "agent", "grade"),
    [(10, None, True, "ok"), (90, 100, False, "fail"), (84, 100, False, "ok"),
     (84, 100, True, "warn"), (0, 1000, True, "ok")],
)  # fmt: skip
def test_processes_must_fit_and_agents_need_many(
    used: int, limit: int | None, agent: bool, grade: str
) -> None:
    assert graded(rules.process_limit(used, limit, 4, agent=agent)) == grade


def test_fewer_workers_are_proposed_so_that_they_fit() -> None:
    found = rules.process_limit(90, 100, 4, agent=False)
    assert found.remedy == "beads-workers start -n 2"
    assert graded(rules.process_limit(90, 100, 2, agent=False)) == "ok"
    found = rules.memory(2 * GB, 8, agent=True)
    assert (graded(found), found.remedy) == ("warn", "beads-workers start -n 4")
    assert graded(rules.memory(2 * GB, 4, agent=True)) == "ok"


@pytest.mark.parametrize(
    ("now", "last_seen", "grade"),
    [(0.0, None, "fail"), (NOW, None, "ok"), (NOW, NOW - 5, "ok"), (NOW, NOW + 300, "warn")],
)
def test_a_clock_that_was_set_back_is_noticed(
    now: float, last_seen: float | None, grade: str
) -> None:
    found = rules.clock(now, last_seen)
    assert graded(found) == grade
    assert bool(found.remedy) == (grade != "ok")


def test_a_clock_that_nothing_keeps_is_named_but_is_no_fault() -> None:
    found = rules.ntp(False)
    assert (found.status, "not kept by NTP" in found.text) == (Grade.OK, True)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (2000, "2 kB"), (GB * 3 // 2, "1.5 GB"), (200 * GB, "200 GB")],
)
def test_sizes_are_said_in_people_s_units(count: int, text: str) -> None:
    assert size(count) == text


def test_warnings_fail_nothing() -> None:
    assert not rules.any_failed([rules.ok("a", ""), rules.warn("b", "")])
    assert rules.any_failed([rules.ok("a", ""), rules.fail("b", "")])
