"""Nothing that a path says leads out of the root, and no log grows without end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from beads_workers.core.base.redaction import UnsafePath, parts_below
from beads_workers.core.base.scripts import LogRoot
from beads_workers.runtime.output import append, open_to_read


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """With something beside it that is nobody's business."""
    made = tmp_path / "root"
    made.mkdir()
    (tmp_path / "outside").write_text("secret")
    return made


def write(root: Path, path: str, data: bytes = b"x", **limits: int) -> None:
    append(LogRoot(str(root), **limits), path, data)


def read(root: Path, path: str) -> bytes:
    file = open_to_read(str(root), path)
    with os.fdopen(file, "rb") as stream:
        return stream.read()


def test_a_log_is_made_with_its_folders_for_us_alone(root: Path) -> None:
    write(root, "a/b/job.log", b"one\n")
    write(root, str(root / "a/b/job.log"), b"two\n")
    file = root / "a/b/job.log"
    assert file.read_text() == "one\ntwo\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert read(root, "a/b/job.log") == b"one\ntwo\n"


@pytest.mark.parametrize(
    "path",
    ["../outside", "a/../../outside", "/etc/passwd", "", "/", "a/", ".", "./a", "a\nb", "x" * 300,
     "a/" * 40 + "b", "{root}x/job.log", "{root}/../outside", "{root}", "{root}/"],
)  # fmt: skip
def test_a_path_that_leads_elsewhere_is_refused(root: Path, path: str) -> None:
    path = path.replace("{root}", str(root))
    with pytest.raises(UnsafePath):
        write(root, path)
    with pytest.raises(UnsafePath):
        read(root, path)
    assert list(root.iterdir()) == []
    assert (root.parent / "outside").read_text() == "secret"


def test_two_slashes_are_one(root: Path) -> None:
    assert parts_below(str(root), "a//b") == ("a", "b")
    assert parts_below("/", "/a") == ("a",)


def test_no_link_is_followed_be_it_a_file_or_a_folder(root: Path) -> None:
    (root / "file").symlink_to(root.parent / "outside")
    (root / "folder").symlink_to(root.parent)
    (root / "nowhere").symlink_to(root.parent / "new")
    for path in ("file", "folder/outside", "nowhere"):
        with pytest.raises(UnsafePath, match="link"):
            write(root, path)
        with pytest.raises(UnsafePath, match="link"):
            read(root, path)
    assert (root.parent / "outside").read_text() == "secret"
    assert not (root.parent / "new").exists()


def test_a_file_with_a_second_name_outside_is_left_alone(root: Path) -> None:
    os.link(root.parent / "outside", root / "hard")
    with pytest.raises(UnsafePath, match="another name"):
        write(root, "hard")
    assert (root.parent / "outside").read_text() == "secret"


def test_what_is_no_file_is_refused_and_holds_nobody_up(root: Path) -> None:
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    for path in ("pipe", "folder"):
        with pytest.raises(UnsafePath, match="no file"):
            write(root, path)
    with pytest.raises(UnsafePath, match="no file"):
        read(root, "pipe")


def test_a_log_that_gets_too_long_is_rotated(root: Path) -> None:
    for data in (b"1" * 60, b"2" * 60, b"3" * 60, b"4" * 60):
        write(root, "job.log", data, bytes_max=100, keep=2)
    found = {path.name: path.read_bytes()[:1] for path in root.iterdir()}
    assert found == {"job.log": b"4", "job.log.1": b"3", "job.log.2": b"2"}


def test_where_none_are_kept_it_begins_anew(root: Path) -> None:
    for data in (b"1" * 60, b"2" * 60):
        write(root, "job.log", data, bytes_max=100, keep=0)
    assert [path.read_bytes()[:1] for path in root.iterdir()] == [b"2"]


def test_a_root_that_is_not_there_is_no_answer(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "missing", "job.log")
    with pytest.raises(FileNotFoundError):
        read(tmp_path, "job.log")
