"""What is sent to a host: the package, commits and files, each named by the hash of its content.

A host keeps what it got, so that only what it lacks is sent. Commits are packs, each of which needs
those before it. All is made at home in the user's cache folder.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
import zipfile
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

import beads_workers
from beads_workers.core.base.settings import Worktrees
from beads_workers.runtime.locks import alone
from beads_workers.worktrees import git
from beads_workers.worktrees.making import matching

PACKS_MAX = 20
"""Packs of a repository, after which one pack of all commits begins anew."""
MAIN = "from beads_workers.places.host import install\ninstall()\n"
NOT_SENT = ("__pycache__", "cli", "checks", "conformance", "demo", "chaos", "integrations", "ui")
"""Folders of the package that no attempt needs."""


def package(cache: Path) -> Path:
    """Return a zip of this package that Python can run; it is made if it has changed."""
    root = Path(beads_workers.__file__).parent
    files = [
        each
        for each in sorted(root.rglob("*.py"))
        if not set(each.relative_to(root).parts[:-1]) & set(NOT_SENT)
    ]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in (
            ("__main__.py", MAIN.encode()),
            *((f"beads_workers/{each.relative_to(root)}", each.read_bytes()) for each in files),
        ):
            packed.writestr(zipfile.ZipInfo(name), data)  # Without a time: the same each time.
    return kept(cache, out.getvalue())


def kept(cache: Path, data: bytes) -> Path:
    """Keep a parcel; return its path, whose name is its hash. Raises ``OSError``."""
    path = cache / sha256(data).hexdigest()
    if not path.exists():
        cache.mkdir(0o700, parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}")
        part.write_bytes(data)
        part.replace(path)
    return path


def packs(cache: Path, common: str, commits: Iterable[str]) -> list[Path]:
    """Return packs that together hold these commits, in the order in which they are to be taken in.

    Raises ``GitError`` and ``OSError``.
    """
    wanted = list(dict.fromkeys(commits))
    cache.mkdir(0o700, parents=True, exist_ok=True)
    with alone(cache / "packs.lock"):
        chain_file = cache / "packs.json"
        chain = _read_chain(chain_file, cache)
        sent = [tip for _, tips in chain for tip in tips if has_commit(common, tip)]
        missing = [each for each in wanted if not _is_in(common, each, sent)]
        if missing:
            if len(chain) >= PACKS_MAX:
                chain, sent = [], []
            asked = "".join(f"{each}\n" for each in [*missing, *(f"^{tip}" for tip in sent)])
            chain.append((kept(cache, pack_of(common, asked)).name, missing))
            chain_file.write_text(json.dumps(chain))
        return [cache / name for name, _ in chain]


def copies(cache: Path, settings: Worktrees) -> Path | None:
    """Return an archive of the files that ``copy`` names; None if there are none."""
    found = sorted({name for each in settings.rules.copy for name in matching(settings, each)})
    if not found:
        return None
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in found:
            archive.add(Path(settings.checkout, name), arcname=name, recursive=False)
    return kept(cache, out.getvalue())


def pack_of(common: str, asked: str) -> bytes:
    """Return the objects that these lines name, as for ``git rev-list``; raises ``GitError``."""
    asking = ("pack-objects", "--revs", "--thin", "--stdout", "--quiet")
    return os.fsencode(git.git(common, *asking, stdin=asked))


def store(common: str, pack: bytes, *options: str) -> None:
    """Store the objects of a pack; raises ``GitError``."""
    storing = ("index-pack", "--stdin", "--fix-thin", *options)
    git.git(common, *storing, stdin=os.fsdecode(pack))


def take_in(common: str, pack: bytes, ref: str, head: str) -> None:
    """Take in the commits of a pack under this name only.

    Each object is checked, and all that ``head`` needs must be there. Raises ``GitError``.
    """
    if pack:
        store(common, pack, "--strict")
    git.git(common, "rev-list", "--objects", "--quiet", head, "--not", "--single-worktree", "--all")
    git.git(common, "update-ref", ref, head)


def _read_chain(path: Path, cache: Path) -> list[tuple[str, list[str]]]:
    try:
        chain = [
            (str(name), [str(tip) for tip in tips]) for name, tips in json.loads(path.read_text())
        ]
    except (OSError, ValueError, TypeError):
        return []
    return chain if all((cache / name).exists() for name, _ in chain) else []


def has_commit(common: str, commit: str) -> bool:
    """Return whether the repository has this commit; raises ``GitError``."""
    asked = ("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    return git.git_or_none(common, *asked) is not None


def _is_in(common: str, commit: str, tips: list[str]) -> bool:
    return any(git.is_ancestor(common, commit, tip) for tip in tips)
