"""Leads from the worktree of a check into the user's checkout: editable installs, links, paths.

Files are read, nothing is run. A lead alone convicts nothing. Kept verdicts depend on the leads,
the leads narrow down what is broken, and they are named if the check does read the checkout.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlparse

from beads_workers.core.base.model import value
from beads_workers.core.base.settings import Worktrees
from beads_workers.worktrees.git import GitError, answers, git, names, questions

FILE_BYTES_MAX = 1 << 20
MANIFESTS = (
    *("go.mod", "go.work", "Cargo.toml", "config.toml", "pyproject.toml", "uv.toml"),
    *("package.json", "requirements*.txt", "Gemfile", "composer.json"),
)


@value
class Lead:
    """A lead."""

    # The file that leads into the checkout.
    found: str
    # The place in the checkout, from its top.
    to: str
    # What to do about it.
    remedy: str
    # Text that fixes it before the line of verify, if a variable can.
    before: str = ""


def find_leads(worktrees: Worktrees, verify: str) -> tuple[Lead, ...]:
    """Return the leads that exist now, in order. Raises ``GitError``."""
    top = top_of(worktrees)
    looks: tuple[Callable[[], Iterable[Lead]], ...] = (
        lambda: _python(top, verify, worktrees),
        lambda: _node(top),
        lambda: _go(top),
        lambda: _manifests(top),
    )
    found = {each: None for look in looks for each in look()}
    return tuple(sorted(found, key=lambda lead: (lead.found, lead.to)))


def top_of(worktrees: Worktrees) -> Path:
    """Return the top of the user's checkout; raises ``GitError``."""
    return _places(worktrees.checkout)[0]


@functools.cache
def _places(checkout: str) -> tuple[Path, Path]:
    """Return the top of the checkout, and its index."""
    asked = questions("--show-toplevel", "--absolute-git-dir")
    top, directory = answers(git(checkout, *asked), 2)
    return Path(top).resolve(), Path(directory, "index")


def _inside(top: Path, place: str | Path) -> str | None:
    """Return the place from the top of the checkout; None if it is elsewhere, or does not exist."""
    with suppress(OSError, ValueError, RuntimeError):
        path = Path(place).resolve(strict=True)
        if path.is_relative_to(top):
            return str(path.relative_to(top))
    return None


def _text(file: Path) -> str:
    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            return ""
        return file.read_text("utf-8", "replace")
    except OSError:
        return ""


# --- Python --------------------------------------------------------------------------------------


def _python(top: Path, verify: str, worktrees: Worktrees) -> Iterator[Lead]:
    environments = {each.resolve() for each in _environments(top, verify, worktrees)}
    for environment in sorted(environments):
        yield from installed(environment, top)


def installed(environment: Path, top: Path) -> Iterator[Lead]:
    """Yield a lead for each package that is installed there as a path of the checkout."""
    patterns = ("lib*/python*/site-packages", "lib*/python*/dist-packages")
    folders = {folder.resolve() for pattern in patterns for folder in environment.glob(pattern)}
    for folder in sorted(folders):
        for file in sorted(folder.glob("*.pth")):
            yield from _path_file(top, file)
        for file in sorted(folder.glob("__editable__*.py")):
            for place in re.findall(r"'(/[^'\n]+)'|\"(/[^\"\n]+)\"", _text(file)):
                yield from _editable(top, file, "".join(place))
        for file in sorted(folder.glob("*.egg-link")):
            yield from _editable(top, file, _text(file).split("\n")[0].strip())
        for file in sorted(folder.glob("*.dist-info/direct_url.json")):
            yield from _direct_url(top, file)


def _environments(top: Path, verify: str, worktrees: Worktrees) -> Iterator[Path]:
    """Yield the Pythons of the checkout, of this process, and those that the lines name."""
    project = Path(worktrees.checkout)
    for folder in {top, project}:
        for at in (folder, *_folders(folder)):
            yield from (at / n for n in (".venv", "venv", "env", ".env") if (at / n).is_dir())
    active = [os.environ[n] for n in ("VIRTUAL_ENV", "CONDA_PREFIX") if os.environ.get(n)]
    yield from map(Path, active)
    line = re.sub(
        r"\$\{?BW_CHECKOUT[^}/]*(/\}|\})?", f"{project}/", f"{verify} {worktrees.rules.setup}"
    )
    for word in re.findall(r"/[^\s;&|()<>'\"=]+/bin(?=/)", line):
        yield Path(word).parent
    for program in ("python3", "python"):
        if (path := shutil.which(program)) is None:
            continue
        yield Path(path).resolve().parent.parent
        if Path(path).parent.name == "shims":
            yield from Path(path).parent.parent.glob("versions/*")
    yield Path.home() / ".local"


def _folders(folder: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(
            e for e in folder.iterdir() if e.is_dir() and not e.is_symlink() and e.name[0] != "."
        )
    return []


def _path_file(top: Path, file: Path) -> Iterator[Lead]:
    for line in _text(file).splitlines():
        if line.strip() and not line.startswith(("#", "import ", "import\t")):
            yield from _editable(top, file, str(file.parent / line.strip()))


def _direct_url(top: Path, file: Path) -> Iterator[Lead]:
    with suppress(ValueError, AttributeError, KeyError, TypeError, RecursionError):
        about = json.loads(_text(file) or "{}")
        if about.get("dir_info", {}).get("editable"):
            yield from _editable(top, file, unquote(urlparse(about["url"]).path), project=True)


def _editable(top: Path, file: Path, place: str, *, project: bool = False) -> Iterator[Lead]:
    to = _inside(top, place)
    if to is None or "site-packages" in to or "dist-packages" in to:
        return
    folder = (top / to).parent if (top / to).is_file() else top / to
    if project and (folder / "src").is_dir():
        folder /= "src"
    elif (folder / "__init__.py").is_file():
        folder = folder.parent
    below = folder.relative_to(top) if folder.is_relative_to(top) else Path()
    at = "$BW_WORKTREE" if below == Path() else f"$BW_WORKTREE/{below}"
    remedy = "the worktree's sources come first, by an absolute path"
    yield Lead(str(file), to, remedy, f'PYTHONPATH="{at}" ')


# --- JavaScript ----------------------------------------------------------------------------------


def _node(top: Path) -> Iterator[Lead]:
    places = [top / "node_modules", *(each / "node_modules" for each in _folders(top))]
    for modules in [place for place in places if place.is_dir()]:
        for link in sorted([*modules.glob("*"), *modules.glob("@*/*")]):
            if link.is_symlink() and (to := _inside(top, link)) and "node_modules" not in to:
                yield Lead(str(link), to, '[worktree] setup = "npm ci" links the worktree\'s own')


# --- paths in manifests --------------------------------------------------------------------------


def _go(top: Path) -> Iterator[Lead]:
    work = os.environ.get("GOWORK", "")
    if not work or work == "off":
        return
    used = re.findall(r"^\s*(?:use\s+)?([./][^\s()]*)", _text(Path(work)), re.MULTILINE)
    for place in used:
        if (to := _inside(top, Path(work).parent / place)) is not None:
            yield Lead(work, to, "GOWORK is set", "GOWORK=off ")


@functools.lru_cache(maxsize=1)
def _listed(top: Path, index: tuple[int, ...]) -> list[str]:
    """Return the manifests in the index, which is a new file whenever it changes."""
    patterns = (f":(top,glob)**/{name}" for name in MANIFESTS)
    return names(git(str(top), "ls-files", "-z", "--full-name", "--", *patterns))


def _manifests(top: Path) -> Iterator[Lead]:
    """Yield a lead for each manifest of the project that contains the checkout's own path."""
    try:
        index = _places(str(top))[1].stat()
        listed = _listed(top, (index.st_ino, index.st_mtime_ns, index.st_size))
    except (GitError, OSError):
        return
    path = re.compile(rf"{re.escape(str(top))}(/[^\s'\"#,)}}\]]*)?(?=[\s'\"#,)}}\]]|$)")
    homes = (Path.home() / ".cargo/config.toml", Path.home() / ".config/uv/uv.toml")
    for file in (*(top / name for name in listed), *homes):
        for found in path.finditer(_text(file)):
            if (to := _inside(top, found[0])) is not None:
                yield Lead(str(file), to, "write the path relative to the file")
