"""What a repository may have put below the run directory is not believed, nor written to."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from beads_workers.runtime.run_directory import RunDirectory
from beads_workers.runtime.trust import Untrusted, check_state, is_in_index
from beads_workers.worktrees.tracked_state import check_untracked
from tests.support.repository import git, make_repository

RUN = "runs/r"
AT_THE_TOP = ("lock", "run.json", "tracker.db", "web.json", "runs", "worktrees", "odd.json")
IN_A_RUN = ("journal.jsonl", "settings.json", "logs", "issues", "alive", "odd.log")
DEEPER = ("worktrees/w", "worktree-records/w.json", f"{RUN}/logs/a.1.log", f"{RUN}/issues/W1.json")
PLACES = (*AT_THE_TOP, *(f"{RUN}/{name}" for name in IN_A_RUN), *DEEPER)


def link(path: Path) -> None:
    path.symlink_to(path.parent / "elsewhere")


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound, contextlib.chdir(path.parent):
        bound.bind(path.name)


def device(path: Path) -> None:
    os.mknod(path, 0o600 | 0o020000, os.makedev(1, 3))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a run that ended well."""
    monkeypatch.chdir(tmp_path)
    directory = RunDirectory(tmp_path / ".beads-workers")
    directory.create()
    (directory.root / RUN).mkdir()
    for name in ("tracker.db", "run.json", "web.json", "lock"):
        (directory.root / name).touch()
    for folder in ("worktrees", "worktree-records", f"{RUN}/logs", f"{RUN}/issues"):
        (directory.root / folder).mkdir()
    check_state(directory.root, tmp_path)
    return directory.root


def plant(root: Path, name: str, make: Callable[[Path], None]) -> None:
    place = root / name
    if place.is_dir():
        place.rename(root.parent / "put aside")
    place.unlink(missing_ok=True)
    make(place)


@pytest.mark.parametrize("name", PLACES)
def test_a_link_is_refused_at_each_name(root: Path, name: str) -> None:
    plant(root, name, link)
    with pytest.raises(Untrusted, match=f"{Path(name).name} is a symbolic link, and is not used"):
        check_state(root, root.parent)


@pytest.mark.parametrize("make", [os.mkfifo, bind, Path.mkdir])
@pytest.mark.parametrize("name", ["lock", "run.json", "web.json", f"{RUN}/journal.jsonl"])
def test_another_kind_than_the_name_says_is_refused(
    root: Path, name: str, make: Callable[[Path], None]
) -> None:
    plant(root, name, make)
    with pytest.raises(Untrusted, match=r"is a (named pipe|socket|folder), and is not used"):
        check_state(root, root.parent)


@pytest.mark.parametrize("name", ["worktree-records/w.json", f"{RUN}/logs/a.1.log"])
def test_what_would_be_waited_for_is_refused_deeper_too(root: Path, name: str) -> None:
    for make in (os.mkfifo, bind, Path.mkdir):
        plant(root, name, make)
        with pytest.raises(Untrusted, match=r"is a (named pipe|socket|folder), and is not used"):
            check_state(root, root.parent)
        (root / name).rename(root.parent / make.__name__)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices and files of others")
@pytest.mark.parametrize("name", ["lock", "runs", f"{RUN}/alive"])
def test_devices_and_files_of_strangers_are_refused(root: Path, name: str) -> None:
    os.chown(root / name if (root / name).exists() else root / RUN, 65534, 65534)
    with pytest.raises(Untrusted, match="belongs to another user"):
        check_state(root, root.parent)
    os.chown(root / name if (root / name).exists() else root / RUN, 0, 0)
    plant(root, name, device)
    with pytest.raises(Untrusted, match="is a device"):
        check_state(root, root.parent)


def test_what_checkouts_and_later_versions_keep_is_fine(root: Path) -> None:
    (root / "worktrees/w").mkdir()
    link(root / "worktrees/w/link")
    (root / "later").mkdir()
    link(root / "later/link")
    bind(root / "control.sock")
    bind(root / ".bw-doctor-1-abcd")  # Of a start that looks at the folder just now.
    check_state(root, root.parent)


def test_the_directory_itself_may_be_a_link(root: Path) -> None:
    elsewhere = root.rename(root.parent / "elsewhere")
    root.symlink_to(elsewhere)
    check_state(root, root.parent)
    link(elsewhere / "web.json.new")
    with pytest.raises(Untrusted):
        check_state(root, root.parent)


# --- what git brings ---


@pytest.mark.parametrize("version", [2, 4])
@pytest.mark.parametrize("below", ["", "sub/folder"])
def test_what_git_tracks_is_refused_by_name(tmp_path: Path, version: int, below: str) -> None:
    repository = make_repository(tmp_path / "repository")
    folder = repository / below
    root = folder / ".beads-workers"
    root.mkdir(parents=True)
    git(repository, "update-index", f"--index-version={version}")
    (folder / ".beads-workers.toml").touch()
    (root / "tracker.db").touch()
    git(repository, "add", "--force", "--", str(folder))
    check_untracked(root)  # A tracker may be shared through git.
    (root / "web.json").touch()
    check_untracked(root)  # It is no more than a file of ours.
    git(repository, "add", "--force", "--", str(root))
    with pytest.raises(Untrusted, match=r"web\.json is tracked by git, and is not used") as refused:
        check_untracked(root)
    assert str(root / "web.json") in refused.value.hint


def test_a_link_that_git_brings_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repository")
    (tmp_path / "victim").mkdir()
    (repository / ".beads-workers").symlink_to("../victim")
    check_untracked(repository / ".beads-workers")
    git(repository, "add", "--force", ".beads-workers")
    with pytest.raises(Untrusted, match="is tracked by git"):
        check_untracked(repository / ".beads-workers")


def test_git_is_asked_only_if_the_index_names_the_directory(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repository")
    root = repository / ".beads-workers"
    assert not is_in_index(tmp_path / ".beads-workers"), "there is no repository"
    assert not is_in_index(root)
    git(repository, "worktree", "add", "-q", str(tmp_path / "linked"))
    linked = tmp_path / "linked/.beads-workers"
    assert not is_in_index(linked)
    linked.mkdir()
    (linked / "run.json").touch()
    git(tmp_path / "linked", "add", "--force", ".")
    assert is_in_index(linked) and not is_in_index(root)
    (repository / ".git/index").write_bytes(b"DIRC\0\0\0\4damaged")
    with pytest.raises(Untrusted, match="may be tracked by git"):
        check_untracked(root)
