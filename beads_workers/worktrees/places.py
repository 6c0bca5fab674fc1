"""Places of worktrees: outside the checkout, whose ignored files tools find by walking up."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def default_folder(checkout: Path, top: Path, state_directory: Path) -> Path:
    """Return the folder of a project's worktrees, below the user's cache folder: one for each
    checkout.

    ``top``: of the repository that holds ``checkout``. If that holds the cache folder too, the
    folder is in the state directory, which git ignores.
    """
    folder = cache_folder("worktrees", f"{checkout.name}-{_hash(checkout)[:8]}")
    inside = folder.resolve().is_relative_to(top.resolve())
    return state_directory / "worktrees" if inside else folder


LANDING_SUFFIX = ".landing"
GATED_REPOSITORY = "repository"
"""A file in a landing folder: the path of the repository whose gates work there."""


def landing_folders() -> Iterator[tuple[Path, Path | None]]:
    """Yield all landing folders in the user's cache folder, and the git directory that each is for;
    None if that cannot be told."""
    inside = [*_folders(cache_folder("landing"))]
    beside = [f for f in _folders(cache_folder("worktrees")) if f.name.endswith(LANDING_SUFFIX)]
    for folder in (*inside, *beside):
        yield folder, _repository_of(folder)


def _folders(place: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(each for each in place.iterdir() if each.is_dir() and not each.is_symlink())
    return []


def _repository_of(folder: Path) -> Path | None:
    with suppress(OSError):
        return Path(os.fsdecode((folder / GATED_REPOSITORY).read_bytes()))
    for gate in folder.glob("bw-gate-*/.git"):
        with suppress(OSError):
            # ``gitdir: <common>/worktrees/<name>``
            git_directory = Path(os.fsdecode(gate.read_bytes()).removeprefix("gitdir:").strip())
            if git_directory.is_absolute() and git_directory.parent.name == "worktrees":
                return git_directory.parent.parent
    return None


def landing_folder(folder: Path, checkout: Path, common: Path) -> Path:
    """Return the folder in which gates work: beside the attempts' worktrees if those are outside
    the checkout, else in the user's cache folder."""
    inside = (checkout.resolve(), common.resolve().parent)
    if not any(folder.resolve().is_relative_to(each) for each in inside):
        return folder.with_name(f"{folder.name}{LANDING_SUFFIX}")
    return cache_folder("landing", _hash(common)[:16])


def make_folder(folder: Path) -> None:
    """Make the folder, for this user only, if it does not exist; raises ``OSError``."""
    if not folder.is_dir():
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)


def cache_folder(*names: str) -> Path:
    """Return a folder of ours in the user's cache folder, which may not exist yet."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    # By the XDG specification a relative path does not count.
    home = Path(configured) if os.path.isabs(configured) else Path.home() / ".cache"  # noqa: PTH117
    return home.joinpath("beads-workers", *names)


def _hash(path: Path) -> str:
    from hashlib import sha256  # It loads OpenSSL, and only a start asks.

    return sha256(os.fsencode(path.resolve())).hexdigest()
