"""Files of a repository that other programs run: hooks of bd, and settings of agents.

An agent in a worktree finds these files as they are in the commit with which attempts begin. An
agent also searches the folders above its own folder, and may run in the checkout. So files of the
checkout always count as well: those in the project's folder, and those in each folder above the
project's folder, up to the top of the repository.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from beads_workers.agents.planted import PLANTED, risky_part
from beads_workers.checks.plan import FleetPlan
from beads_workers.checks.rules import met
from beads_workers.checks.trust import is_own, store_of, trusted_lines
from beads_workers.core.base.settings import Worktrees
from beads_workers.core.base.text import printable
from beads_workers.options import TRUST_NO_AGENT, RiskyLine
from beads_workers.runtime.trust import in_repository
from beads_workers.worktrees.git import GitError, contents, git
from beads_workers.worktrees.making import base_of

Content = tuple[str, str, bytes]
"""Name of the file, name to show, and content."""

UNKNOWN = b"\0"
"""Stand-in for the content of a file that could not be read. This value parses neither as JSON nor
as TOML, so the user is asked about the file."""


def planted(plan: FleetPlan, *, new: bool = True, any_agent: bool = False) -> list[RiskyLine]:
    """Return a line for each file of this project that other programs run.

    ``new``: return only files that came with the project and are not trusted. ``any_agent``: act
    as if this fleet used every known agent.
    """
    lines = [*hooks(plan, new=new), *_of_agents(plan, new=new, any_agent=any_agent)]
    store = store_of(plan.folder)
    return [line for line in lines if not (new and store.trusts(line.digest))]


def hooks(plan: FleetPlan, *, new: bool = True) -> Iterator[RiskyLine]:
    """Yield a line for each script ``on_*`` in ``.beads/hooks``, and for ``.beads/redirect``.

    Any bd runs these scripts when an issue changes.
    """
    tracker = met(plan.tracker)
    if tracker is None or tracker.source != "bd":
        return
    # The file ``redirect`` sends bd to another folder, which has other hooks.
    scripts = sorted((tracker.place / "hooks").glob("on_*"))
    for path in (*scripts, tracker.place / "redirect"):
        content = _read(path)
        if content is None:
            continue
        name = f"{tracker.place.name}/{path.relative_to(tracker.place)}"
        what = "leads bd to another folder" if path.name == "redirect" else "is run by bd"
        line = _line(plan.folder, name, what, content)
        if not new or line not in trusted_lines([line], path):
            yield line


def _of_agents(plan: FleetPlan, *, new: bool, any_agent: bool) -> Iterator[RiskyLine]:
    for name in dict.fromkeys([*PLANTED] if any_agent else _programs(plan, new=new)):
        files = PLANTED[name].files
        for file, path, content in (*_in_folders(plan, files, new=new), *_committed(plan, files)):
            part = risky_part(file, content)
            if part:
                keys = ", ".join(printable(key, 40) for key in sorted(part))
                part_text = json.dumps(part, sort_keys=True).encode()
                yield _line(plan.folder, path, f"{keys}, obeyed by {name}", part_text)


def _programs(plan: FleetPlan, *, new: bool) -> Iterator[str]:
    """Yield the programs of this fleet that obey files of a repository.

    With ``new``, leave out programs that this fleet tells to ignore these files.
    """
    review = met(plan.review)
    for agent in (*plan.agents, *([review] if review else [])):
        ignores = new and plan.options.trust == TRUST_NO_AGENT
        if agent.adapter in PLANTED and not (ignores and PLANTED[agent.adapter].without):
            yield agent.adapter
        elif not agent.adapter and Path(agent.argv[0]).name in PLANTED:
            yield Path(agent.argv[0]).name
    if plan.command and Path(plan.command[0]).name in PLANTED:
        yield Path(plan.command[0]).name


def _in_folders(plan: FleetPlan, files: tuple[str, ...], *, new: bool) -> Iterator[Content]:
    """Yield the given files of the project's folder and of each folder above the project's folder,
    up to the top of the repository."""
    folder = plan.folder.resolve()
    for place in (folder, *folder.parents):
        for file in files:
            content = _read(place / file)
            if content is not None and not (new and is_own(place / file)):
                yield file, _named(folder, place, file), content
        if not in_repository(place) or (place / ".git").exists():
            break


def _named(folder: Path, place: Path, file: str) -> str:
    return file if place == folder else str(place / file)


def _worktrees(plan: FleetPlan) -> Worktrees | None:
    found = met(plan.worktrees)
    if found is None:
        return None
    settings = plan.settings
    return (settings.work.worktrees if settings is not None else None) or found


def _committed(plan: FleetPlan, files: tuple[str, ...]) -> Iterator[Content]:
    """Yield the given files as they are in the commit with which attempts in worktrees begin."""
    worktrees = _worktrees(plan)
    if worktrees is None:
        return
    folder, parts = plan.folder.resolve(), Path(worktrees.prefix).parts
    above = enumerate([folder, *folder.parents][: len(parts) + 1])
    places = [(parts[: len(parts) - up], place) for up, place in above]
    asked = [(file, within, place) for within, place in places for file in files]
    try:
        base = base_of(replace(worktrees, remote=""))
    except GitError:
        return  # No attempt can begin: another condition reports the error.
    given = "".join(f"{base}:{'/'.join((*within, file))}\n" for file, within, _ in asked)
    try:
        output = git(worktrees.checkout, "cat-file", "--batch", "--follow-symlinks", stdin=given)
        found = contents(output, len(asked))
    except GitError:
        found = [UNKNOWN] * len(asked)
    for (file, _, place), content in zip(asked, found, strict=True):
        if content is not None:
            yield file, _named(folder, place, file), content


def _read(path: Path) -> bytes | None:
    """Return the content of a file or the git tree of a folder; None if ``path`` cannot be read."""
    try:
        if path.is_dir():
            return _tree(path)
        # Non-blocking: a blocking open of a named pipe would wait for a writer.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return file.read()
    except OSError:
        return None


def _tree(folder: Path) -> bytes:
    entries = []
    for path in folder.iterdir():
        if path.is_symlink():
            kind, mode, content = "blob", "120000", os.fsencode(path.readlink())
        elif path.is_dir():
            kind, mode, content = "tree", "40000", _tree(path)
        else:
            kind, mode = "blob", "100755" if path.stat().st_mode & 0o100 else "100644"
            content = _read(path) or b""
        digest = hashlib.sha1(f"{kind} {len(content)}\0".encode() + content).digest()
        name = os.fsencode(path.name)
        order = name + b"/" if kind == "tree" else name
        entries.append((order, mode.encode() + b" " + name + b"\0" + digest))
    return b"".join(entry for _, entry in sorted(entries))


def _line(folder: Path, name: str, what: str, content: bytes) -> RiskyLine:
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape") + b"\0" + content).hexdigest()
    return RiskyLine(folder, f"{printable(name, 200)}: {what}", digest)
