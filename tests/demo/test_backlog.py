"""The backlog of the demo: it can be worked off, whatever fails, and its tasks do what it says."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from beads_workers.demo.backlog import BACKLOG, RELEASE, Item, ItemFate, of_fate, script

FAILING = [
    item for item in BACKLOG if item.fate in (ItemFate.FLAKY, ItemFate.BUSY, ItemFate.HOPELESS)
]


def quick(item: Item, folder: Path, attempt: int) -> subprocess.CompletedProcess[str]:
    """Run its task without its pauses."""
    (folder / "work").mkdir(exist_ok=True)
    return subprocess.run(
        ["sh", "-c", "sleep() { :; }\n" + script(item)],
        cwd=folder,
        env={"BW_ATTEMPT": str(attempt), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_issue_waits_only_for_earlier_ones_that_can_be_closed() -> None:
    assert [item.number for item in BACKLOG] == list(range(1, len(BACKLOG) + 1))
    hopeless = {item.number for item in of_fate(ItemFate.HOPELESS)}
    for item in BACKLOG:
        assert all(each < item.number for each in item.needs)
        assert not hopeless & set(item.needs)


def test_there_is_one_release_and_every_fate() -> None:
    assert RELEASE.needs and not any(RELEASE.number in item.needs for item in BACKLOG)
    assert all(of_fate(fate) for fate in ItemFate)


@pytest.mark.parametrize("item", BACKLOG, ids=lambda item: item.issue_id)
def test_a_second_attempt_says_its_lines_and_succeeds_unless_it_is_hopeless(
    item: Item, tmp_path: Path
) -> None:
    first, second = quick(item, tmp_path, 1), quick(item, tmp_path, 2)
    if item.fate is ItemFate.HOPELESS:
        assert second.returncode == 1
    else:
        assert (second.returncode, second.stdout.splitlines()) == (0, list(item.says))
    assert first.stderr == second.stderr == ""


@pytest.mark.parametrize("item", FAILING, ids=lambda item: item.issue_id)
def test_an_attempt_that_fails_ends_with_its_reason(item: Item, tmp_path: Path) -> None:
    failed = quick(item, tmp_path, 1)
    assert failed.returncode == (75 if item.fate is ItemFate.BUSY else 1)
    assert failed.stdout.splitlines()[-1] == item.trouble


def test_a_task_takes_the_time_that_stands_there(tmp_path: Path) -> None:
    short = Item(1, "short", 2, 0.3, (), ("one", "two", "three"))
    began = time.monotonic()
    subprocess.run(["sh", "-c", script(short)], cwd=tmp_path, check=True)
    assert time.monotonic() - began >= 0.2
    assert script(short).count("sleep") == 2
