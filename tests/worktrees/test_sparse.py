"""Worktrees and gates of a sparse checkout hold its folders, and those that are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.attempts.work import Workplace
from beads_workers.worktrees import pool, preparation
from beads_workers.worktrees.sparse import cone_of, holds, take_cone, widened
from tests.support.repository import IDENTITY, commit, git, make_repository
from tests.support.worktrees import Place, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Its checkout has ``in`` of four folders, one of which is in another."""
    world = World(tmp_path)
    for name in ("in/file", "out/file", "far/one/file", "far/two/file"):
        commit(world.top, name, f"{name}\n")
    git(world.top, "sparse-checkout", "set", "in")
    world.settings = replace(
        world.settings, folder=str(tmp_path / "trees"), cone=cone_of(str(world.top)), reuse=4
    )
    yield world
    assert cone_of(str(world.top)) == ("in",), "the user's own stays as it is"
    world.end_run()


def there(folder: Path) -> set[str]:
    return {str(each.relative_to(folder)) for each in folder.rglob("file") if each.is_file()}


def made(world: World, issue_id: str, *paths: str, continues: bool = False) -> Place:
    asked = replace(world.asked(issue_id), paths=paths, continues=continues)
    preparation.prepare(asked)
    record = world.records.of_issue(issue_id)[-1]
    return Place(record, Path(record.path), {})


# --- cones ----------------------------------------------------------------------------------------

FOLDERS = st.lists(
    st.lists(st.text(st.sampled_from("ab é!#\t^]"), min_size=1, max_size=3), min_size=1)
    .map("/".join)
    .filter(lambda folder: folder.strip() == folder),
    max_size=4,
)


@given(FOLDERS)
def test_git_takes_any_cone_and_gives_it_back(
    tmp_path_factory: pytest.TempPathFactory, folders: list[str]
) -> None:
    top = make_repository(tmp_path_factory.mktemp("cone"))
    cone = widened((), folders)
    take_cone(str(top), cone)
    assert cone_of(str(top)) == cone
    assert all(holds(cone, f"{folder}/file") for folder in folders)
    take_cone(str(top), None)
    assert cone_of(str(top)) is None


@pytest.mark.parametrize(
    ("folders", "cone"),
    [
        (["b", "a/x"], ("a/x", "b", "c")),
        (["c/deep"], ("c",)),
        (["a/x", "a", "a/"], ("a", "c")),
        (["/etc", "..", "../up", ".", "", "a\nb", "a*", "./.github"], (".github", "c")),
    ],
)
def test_a_cone_is_widened_by_folders_below_the_top(
    folders: list[str], cone: tuple[str, ...]
) -> None:
    assert widened(("c",), folders) == cone


# --- worktrees ------------------------------------------------------------------------------------


def test_attempts_the_pool_and_what_is_used_again_are_sparse(world: World) -> None:
    record = pool.make_free(world.settings, world.records)
    assert there(Path(record.path)) == {"in/file"}
    ahead, cold = world.make("a"), world.make("b", worker="W2")
    assert ahead.record.path == record.path
    assert there(ahead.folder) == there(cold.folder) == {"in/file"}
    world.records.set_over(cold.record, cold.record.base)
    again = world.make("c", worker="W2")
    assert again.record.path == cold.record.path
    assert there(again.folder) == {"in/file"} and git(again.folder, "status", "--short") == ""


def test_an_issue_has_the_folders_that_it_asks_for_and_the_next_one_does_not(world: World) -> None:
    wide = made(world, "a", "far/one", "nowhere")
    assert there(wide.folder) == {"in/file", "far/one/file"}
    (wide.folder / "far/one/file").write_text("changed")
    git(wide.folder, "checkout", "--force", ".")
    world.records.set_over(wide.record, wide.record.base)
    narrow = world.make("b")
    assert narrow.record.path == wide.record.path, "it is used again"
    assert there(narrow.folder) == {"in/file"} and git(narrow.folder, "status", "--short") == ""
    world.records.set_over(narrow.record, narrow.record.base)
    assert there(made(world, "c", "out").folder) == {"in/file", "out/file"}


def test_a_label_that_is_added_later_widens_the_worktree_that_is_there(world: World) -> None:
    place = world.make("a")
    git(place.folder, "sparse-checkout", "add", "far/two")
    assert there(made(world, "a", "out", continues=True).folder) == {
        *("in/file", "far/two/file", "out/file")
    }


def test_all_files_are_there_if_the_settings_say_so(world: World) -> None:
    sparse = world.make("a")
    world.records.set_over(sparse.record, sparse.record.base)
    world.settings = replace(world.settings, cone=None)
    whole = world.make("b")
    assert whole.record.path != sparse.record.path
    assert len(there(whole.folder)) == 4 and cone_of(str(whole.folder)) is None
    world.settings = replace(world.settings, cone=("in",))


def test_a_checkout_by_patterns_is_no_cone(world: World) -> None:
    git(world.top, "sparse-checkout", "set", "--no-cone", "file", "!out")
    assert cone_of(str(world.top)) is None
    git(world.top, "sparse-checkout", "set", "--cone", "in")


# --- what an attempt did --------------------------------------------------------------------------


@pytest.fixture
def place(world: World, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    """An attempt has changed, added and removed files, in the cone and beside it."""
    made = world.make("a")
    for name, text in {**IDENTITY, **made.environment}.items():
        monkeypatch.setenv(name, text)
    place = Workplace.enter(str(made.folder), "a", 1, "run")
    git(made.folder, "sparse-checkout", "add", "far/one")
    (made.folder / "far/one/file").write_text("changed")
    (made.folder / "in/file").unlink()
    for name in ("in/new", "out/new", "new/new"):
        (made.folder / name).parent.mkdir(exist_ok=True)
        (made.folder / name).write_text("new")
    return place


WORK = "M\tfar/one/file\nD\tin/file\nA\tin/new\nA\tnew/new\nA\tout/new"


def test_all_that_an_attempt_did_is_committed_and_nothing_else(place: Workplace) -> None:
    folder = Path(place.folder)
    assert git(folder, "diff-tree", "-r", "--name-status", "HEAD", place.whole_tree()) == WORK
    assert place.commit("T")
    assert git(folder, "diff", "--name-status", "HEAD~", "HEAD") == WORK
    assert git(folder, "status", "--short") == ""


def test_it_is_brought_back_from_another_branch(place: Workplace) -> None:
    folder = Path(place.folder)
    git(folder, "checkout", "--quiet", "-b", "other")
    assert place.commit("T")
    assert git(folder, "diff", "--name-status", "HEAD~", "HEAD") == WORK
    assert git(folder, "symbolic-ref", "--short", "HEAD") == "bw/a/1"
