"""The folder of a demo: its own, gone or kept as it should be, and never somebody else's."""

from __future__ import annotations

from pathlib import Path

import pytest

from beads_workers.demo.backlog import BACKLOG
from beads_workers.demo.workspace import DemoWorkspace
from beads_workers.errors import CommandError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("BW_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def demos(cache: Path) -> list[Path]:
    """The folders of demos."""
    return [path for path in cache.iterdir() if path.is_dir()]


def test_it_holds_every_issue_and_its_task(cache: Path) -> None:
    with DemoWorkspace() as workspace:
        workspace.fill()
        assert set(workspace.statuses().values()) == {"open"}
        assert (
            len(workspace.statuses())
            == len(list((workspace.folder / "work").iterdir()))
            == len(BACKLOG)
        )


def test_it_is_removed_unless_it_is_kept(cache: Path) -> None:
    with pytest.raises(KeyError), DemoWorkspace() as workspace:
        workspace.fill()
        raise KeyError
    assert demos(cache) == []


def test_the_next_demo_replaces_the_one_that_was_kept(cache: Path) -> None:
    with DemoWorkspace() as first:
        first.keep()
    with DemoWorkspace() as second:
        second.keep()
    assert demos(cache) == [second.folder]


def test_a_demo_that_runs_is_left_alone(cache: Path) -> None:
    with DemoWorkspace() as first, DemoWorkspace() as second:
        assert set(demos(cache)) == {first.folder, second.folder}


def test_what_looks_like_a_demo_but_is_a_link_is_left_alone(cache: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    cache.mkdir()
    (cache / "demo-link").symlink_to(precious)
    with DemoWorkspace():
        pass
    assert precious.is_dir() and (cache / "demo-link").is_symlink()


@pytest.mark.parametrize("cache_variable", [None, "/dev/null/no", "/proc/no"])
def test_without_a_cache_it_is_a_folder_for_temporary_files(
    cache_variable: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("BW_CACHE", raising=False)
    if cache_variable:
        monkeypatch.setenv("BW_CACHE", cache_variable)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with DemoWorkspace() as workspace:
        assert workspace.folder.is_relative_to(tmp_path)


def test_with_no_folder_at_all_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BW_CACHE", "/dev/null/no")
    monkeypatch.setattr("tempfile.tempdir", "/dev/null/no")
    with pytest.raises(CommandError, match="no folder") as refused:
        DemoWorkspace()
    assert "BW_CACHE" in refused.value.hint
