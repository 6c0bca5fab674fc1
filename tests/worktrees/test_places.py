"""Where worktrees lie when nobody says."""

from __future__ import annotations

from pathlib import Path

import pytest

from beads_workers.worktrees.places import default_folder, landing_folder, make_folder


def test_each_checkout_has_a_folder_of_its_own_below_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    one, other = tmp_path / "a" / "shop", tmp_path / "b" / "shop"
    folders = [default_folder(each, each, each / ".beads-workers") for each in (one, other)]
    assert {folder.parent for folder in folders} == {
        tmp_path / "cache" / "beads-workers" / "worktrees"
    }
    assert len(set(folders)) == 2 and all(f.name.startswith("shop-") for f in folders)
    assert landing_folder(folders[0], one, one / ".git") == folders[0].with_name(
        f"{folders[0].name}.landing"
    )


def test_a_cache_that_is_no_absolute_path_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = default_folder(Path("/srv/shop"), Path("/srv/shop"), Path("/srv/shop/state"))
    assert folder.is_relative_to(tmp_path / ".cache")


def test_a_repository_that_holds_the_cache_has_them_where_git_ignores_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    state = tmp_path / "shop" / ".beads-workers"
    assert default_folder(tmp_path / "shop", tmp_path, state) == state / "worktrees"


def test_what_is_made_is_for_us_alone_and_what_is_there_stays_as_it_is(tmp_path: Path) -> None:
    make_folder(tmp_path / "cache" / "ours")
    assert (tmp_path / "cache" / "ours").stat().st_mode & 0o777 == 0o700
    (tmp_path / "theirs").mkdir(mode=0o755)
    (tmp_path / "theirs").chmod(0o755)
    make_folder(tmp_path / "theirs")
    assert (tmp_path / "theirs").stat().st_mode & 0o777 == 0o755
