"""Kinds of repositories for ``hostile_git``: how each is made, and what becomes of work in it.

In each of them a tag, a remote and a file are called like the user's branch. What a git lacks is
``git``: a row that is not for older ones.
"""

from __future__ import annotations

import atexit
import functools
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.repository import git

TIP = "bw-landing/main"
BASE = "base.txt"
ODD = 'line\nend "quoted" \\ \u2028'
BYTES = "b\udcff\udcfe"
"""A name that is no UTF-8."""
ALLOWED = ("-c", "protocol.file.allow=always")


def _nothing(top: Path) -> None:
    pass


@dataclass(frozen=True)
class Kind:
    """``init``: options of ``git init``. ``clone``: what was made is cloned with these options.

    ``make``: what is done in the user's checkout; ``folder``: what it is called; ``prefix``: the
    project's folder in it; ``linked``: it is a worktree of another one. ``run``: what an agent does
    besides, writing ``files`` (``{}``: of its issue). ``warned``, ``refused``: a line of ``start``,
    which lands nothing if it refuses. ``git``: what it needs, and ``lacks``: a program that must
    not be there.
    """

    init: tuple[str, ...] = ()
    clone: tuple[str, ...] = ()
    make: Callable[[Path], None] = _nothing
    folder: str = ""
    prefix: str = ""
    linked: bool = False
    remote: bool = False
    run: str = ""
    files: tuple[str, ...] = ()
    warned: str = ""
    refused: str = ""
    git: tuple[int, int] = (2, 38)
    lacks: str = ""

    def why_not(self) -> str:
        """Return why it cannot be tried here, "" if it can."""
        said = git(Path("/"), "version")
        if tuple(map(int, re.findall(r"\d+", said)[:2])) < self.git:
            return f"not with {said}"
        found = shutil.which(self.lacks) if self.lacks else None
        return f"{found} is there" if found else ""


# --- how they are made ---------------------------------------------------------------------------


def _submodules(top: Path) -> None:
    inner = top.with_name("inner")
    inner.mkdir()
    git(inner, "init", "--quiet", "--initial-branch=main", *_format_of(top))
    git(inner, "commit", "--quiet", "--allow-empty", "-m", "inner")
    git(top, *ALLOWED, "submodule", "--quiet", "add", str(inner), "module")
    git(top, "commit", "--quiet", "-m", "a submodule")


def _format_of(top: Path) -> tuple[str, ...]:
    return (f"--object-format={git(top, 'rev-parse', '--show-object-format')}",)


def _sparse(top: Path) -> None:
    git(top, "sparse-checkout", "set", "--cone", "kept")


def _odd_names(top: Path) -> None:
    for name in (ODD, BYTES, "-n", ":(top)x", "* ", "ends in blank "):
        (top / name).write_text("x\n")
    git(top, "add", "--all")
    git(top, "commit", "--quiet", "-m", "names")


def _lfs(top: Path) -> None:
    (top / "art.bin").write_bytes(b"\x00raw\r\n")
    (top / ".gitattributes").open("a").write("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    git(top, "add", "--all")
    git(top, "commit", "--quiet", "-m", "attributes of LFS")


def _lfs_set_up(top: Path) -> None:
    _lfs(top)
    # As ``git lfs install --local`` does.
    git(top, "config", "filter.lfs.clean", "git-lfs clean -- %f")
    git(top, "config", "filter.lfs.smudge", "git-lfs smudge -- %f")
    git(top, "config", "filter.lfs.process", "git-lfs filter-process")
    git(top, "config", "filter.lfs.required", "true")


KINDS: Mapping[str, Kind] = {
    "SHA-256": Kind(init=("--object-format=sha256",)),
    "reftables": Kind(init=("--ref-format=reftable",), git=(2, 45)),
    "submodules": Kind(make=_submodules, warned="1 submodule is empty in worktrees: module"),
    "LFS that nobody set up": Kind(
        make=_lfs,
        run='cp art.bin "$BW_ISSUE_ID.bin"',
        files=("{}.bin",),
        warned="no filter 'lfs' is set up, which art.bin has",
    ),
    "LFS without git-lfs": Kind(
        make=_lfs_set_up,
        refused="no worktree can be made: the filter 'lfs', which art.bin has, needs git-lfs",
        lacks="git-lfs",
    ),
    "a sparse checkout": Kind(make=_sparse),
    "a partial clone": Kind(clone=("--filter=blob:none",)),
    "a shallow clone": Kind(clone=("--depth=1",)),
    "a linked worktree": Kind(linked=True),
    "a subfolder": Kind(prefix="deep/down"),
    "odd names": Kind(
        make=_odd_names,
        run=r"""cp base.txt "$(printf '%s\n"y\377' "$BW_ISSUE_ID")" """
        '; cp base.txt "./-m$BW_ISSUE_ID"; cp base.txt "$BW_ISSUE_ID "',
        files=('{}\n"y\udcff', "-m{}", "{} "),
    ),
    # The path of the checkout, and of all that is made for it.
    "an odd path": Kind(folder="line\nend \u2028 \u00e4"),
    "a remote": Kind(remote=True),
}


# --- a repository --------------------------------------------------------------------------------


def make(kinds: Sequence[Kind], folder: Path, top: Path) -> None:
    """Make a repository that is of all these kinds in ``top``, beside what is there already;
    ``folder``: for whatever else belongs to it."""
    made, source = folder / "made", _template(tuple(o for kind in kinds for o in kind.init))
    cloned = [option for kind in kinds for option in kind.clone]
    if cloned:
        git(folder, "clone", "--quiet", *cloned, f"file://{source}", str(made))
    else:
        shutil.copytree(source, made, symlinks=True)
    linked = any(kind.linked for kind in kinds)
    if linked:
        first = made.rename(folder / "the first checkout")
        git(first, "checkout", "--quiet", "--detach")
        git(first, "worktree", "add", "--quiet", str(made), "main")
    for each in made.iterdir():
        each.rename(top / each.name)
    if linked:
        git(first, "worktree", "repair", str(top))
    # Whatever else is called like the branches.
    git(top, "remote", "add", "main", str(folder / "nowhere"))
    git(top, "tag", "--force", "main", "HEAD")
    git(top, "tag", "--force", TIP, "HEAD")
    for kind in kinds:
        if kind.prefix:
            (top / kind.prefix).mkdir(parents=True, exist_ok=True)
            shutil.copy(top / BASE, top / kind.prefix / BASE)
            git(top, "add", "--all")
            git(top, "commit", "--quiet", "-m", "a project in a folder")
        kind.make(top)
        if kind.remote:
            origin = folder / "origin.git"
            git(folder, "clone", "--quiet", "--bare", str(top), str(origin))
            git(origin, "config", "receive.advertisePushOptions", "true")
            git(top, "remote", "add", "origin", str(origin))
            (top / "beads-workers.toml").write_text('[landing]\nremote = "origin"\n')


@functools.cache
def _template(init: tuple[str, ...]) -> Path:
    scratch = Path(tempfile.mkdtemp(prefix="beads-workers-hostile-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    top = scratch / "top"
    top.mkdir()
    git(top, "init", "--quiet", "--initial-branch=main", *init)
    # For clones of some of it.
    git(top, "config", "uploadpack.allowFilter", "true")
    git(top, "config", "uploadpack.allowAnySHA1InWant", "true")
    (top / ".gitignore").write_text(
        ".beads-workers/\n.beads/\n.beads.gate.lock\n*.toml\nstart-*.???\n"
    )
    (top / BASE).write_text("one\n")
    (top / ".gitattributes").write_text("*.txt text eol=lf\n")
    for name in ("kept", "left"):
        (top / name).mkdir()
        (top / name / "x").write_text(f"{name}\n")
    git(top, "add", ".")
    git(top, "commit", "--quiet", "-m", "first")
    (top / BASE).write_text("one\ntwo\n")
    (top / "main").write_text("a file\n")
    git(top, "add", ".")
    git(top, "commit", "--quiet", "-m", "a file called like the branch")
    return top
