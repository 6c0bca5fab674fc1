"""What a user writes of places, what a host must have, and what is sent to it."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.base.settings import PlaceSettings
from beads_workers.places import parcel
from beads_workers.places.line import lacks_of
from beads_workers.places.options import find_places, read_on, read_places
from beads_workers.places.ssh import Ssh
from beads_workers.worktrees.git import GitError
from tests.support import repository
from tests.support.repository import git


def test_places_are_named_by_words_and_tables() -> None:
    tables = read_places({"big": {"engine": "slurm", "lease": "1h", "resources": {"cpus": 2}}})
    local, places = find_places(["local:2", "ssh:me@n3:8", "big:16"], tables)
    assert local == 2
    assert [(p.name, p.engine, p.slots, p.lease_seconds) for p in places] == [
        ("me@n3", "ssh", 8, 600.0),
        ("big", "slurm", 16, 3600.0),
    ]
    assert places[1].resources == {"cpus": 2}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["local", "local:2"], "local twice"),
        (["ssh:n3", "ssh:n3:2"], "n3 twice"),
        (["n3:2"], "a host is ssh:n3"),
        (["ssh:n3:5000"], "at most"),
    ],
)
def test_words_that_contradict_are_named(words: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        find_places(words, {})


@pytest.mark.parametrize("word", ["", "-oProxyCommand=x", "ssh:-x:2", "ssh:a b", "n:x", "ssh:", 5])
def test_a_word_that_ssh_could_take_for_an_option_is_refused(word: object) -> None:
    with pytest.raises(ValueError, match="NAME:16"):
        read_on(word)


@given(st.text(max_size=12))
def test_a_word_is_read_or_refused(word: str) -> None:
    try:
        assert read_on(word) == word
    except ValueError:
        return
    assert not word.startswith("-")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"engin": "ssh"}, "not engin"),
        ({"engine": "condor"}, "ssh, ray, slurm"),
        ({"address": "-oX"}, "no option"),
        ({"lease": "1s"}, "10 s or more"),
        ({"lease": "soon"}, "10 s or more"),
        ({"resources": {"cpus": True}}, "numbers"),
        ({"resources": 4}, "numbers"),
    ],
)
def test_a_table_that_is_wrong_is_named(table: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        read_places({"big": table})


def test_an_address_is_never_an_option_of_ssh() -> None:
    argv = Ssh(PlaceSettings("n3", "ssh", 1, address="me@n3"), "true").argv("me@n3")
    assert argv[-3:] == ["--", "me@n3", "true"]


@pytest.mark.parametrize(
    ("hello", "lacks"),
    [
        ({"programs": {"git": "/usr/bin/git"}, "python311": "p", "free": 1 << 40}, []),
        ({"programs": {"git": ""}, "python311": "p", "free": 1 << 40}, ["git"]),
        ({"programs": {"git": "g"}, "python311": "", "free": 1 << 40}, ["python 3.11 or newer"]),
        ({"programs": {"git": "g"}, "python311": "p", "free": 5}, ["room (5 bytes are free)"]),
    ],
)
def test_what_a_host_lacks_is_named(hello: dict[str, Any], lacks: list[str]) -> None:
    assert lacks_of(hello, ["git"]) == lacks


# --- parcels -------------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    return folder


def commit(folder: Path, name: str) -> str:
    """Add a file of a kilobyte in a commit; return it."""
    return repository.commit(folder, name, name * 1000)


def test_a_host_is_sent_what_it_lacks(checkout: Path, tmp_path: Path) -> None:
    cache, common = tmp_path / "cache", str(checkout / ".git")
    first = commit(checkout, "a")
    one = parcel.packs(cache, common, [first])
    assert parcel.packs(cache, common, [first]) == one, "nothing is packed twice"
    second = commit(checkout, "b")
    two = parcel.packs(cache, common, [second])
    assert two[:1] == one
    assert len(two) == 2
    there = tmp_path / "there.git"
    git(tmp_path, "init", "-q", "--bare", str(there))
    with pytest.raises(GitError):
        parcel.take_in(str(there), two[1].read_bytes(), "refs/bw/x", second)  # Without the first.
    parcel.take_in(str(there), two[0].read_bytes(), "refs/bw/x", first)
    parcel.take_in(str(there), two[1].read_bytes(), "refs/bw/x", second)
    assert git(there, "rev-parse", "refs/bw/x") == second
    assert git(there, "for-each-ref", "--format=%(refname)") == "refs/bw/x"


def test_a_chain_of_packs_begins_anew(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parcel, "PACKS_MAX", 3)
    cache, common = tmp_path / "cache", str(checkout / ".git")
    lengths = [
        len(parcel.packs(cache, common, [commit(checkout, str(number))])) for number in range(5)
    ]
    assert lengths == [1, 2, 3, 1, 2]


def test_a_chain_that_was_cleared_away_is_made_again(checkout: Path, tmp_path: Path) -> None:
    cache, common = tmp_path / "cache", str(checkout / ".git")
    head = commit(checkout, "a")
    (made,) = parcel.packs(cache, common, [head])
    made.unlink()
    (again,) = parcel.packs(cache, common, [head])
    assert again.exists()


def test_the_package_is_the_same_each_time_and_runs(tmp_path: Path) -> None:
    one, two = parcel.package(tmp_path), parcel.package(tmp_path)
    assert one == two
    names = zipfile.ZipFile(one).namelist()
    assert "beads_workers/places/host.py" in names
    assert not [name for name in names if name.startswith("beads_workers/ui/")]
