"""Where worktrees lie: outside of the checkout, whose ignored files tools find by walking up."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path


def default_folder(checkout: Path, top: Path, state_directory: Path) -> Path:
    """The folder of a project's worktrees, below the user's cache folder: one for each checkout.

    ``top``: of the repository that holds ``checkout``. Where that holds the cache folder too, the
    state directory is the better place: git ignores it.
    """
    folder = cache_folder("worktrees", f"{checkout.name}-{_hash(checkout)[:8]}")
    inside = folder.resolve().is_relative_to(top.resolve())
    return state_directory / "worktrees" if inside else folder


def landing_folder(folder: Path, checkout: Path, common: Path) -> Path:
    """Where gates work: beside the attempts' worktrees where those are outside of the checkout,
    else in the user's cache folder."""
    inside = (checkout.resolve(), common.resolve().parent)
    if not any(folder.resolve().is_relative_to(each) for each in inside):
        return folder.with_name(f"{folder.name}.landing")
    return cache_folder("landing", _hash(common)[:16])


def make_folder(folder: Path) -> None:
    """Make it, for us alone, where it is not there; raises ``OSError``."""
    if not folder.is_dir():
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)


def cache_folder(*names: str) -> Path:
    """A folder of ours in the user's cache folder, which may not be there yet."""
    said = os.environ.get("XDG_CACHE_HOME", "")
    # The specification: a relative path is no path.
    home = Path(said) if os.path.isabs(said) else Path.home() / ".cache"  # noqa: PTH117
    return home.joinpath("beads-workers", *names)


def _hash(path: Path) -> str:
    return sha256(os.fsencode(path.resolve())).hexdigest()
