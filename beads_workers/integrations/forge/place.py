"""Which repository is meant: ``github:OWNER/NAME``, ``gitea:URL``, or that of the remote."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from beads_workers.core.base.plain import to_plain
from beads_workers.core.base.source import SourceError
from beads_workers.integrations.forge.api import FORMS, ForgeRepository
from beads_workers.kinds import Located
from beads_workers.runtime.account_file import state_home
from beads_workers.worktrees.git import GitError, git, git_or_none

GITHUB, GITEA = "github", "gitea"
GITHUB_HOST = "github.com"
KEY = "beads-workers.forge"
"""Of the repository's configuration."""
_PAIR = re.compile(r"([A-Za-z0-9_.-]{1,100})/([A-Za-z0-9_.-]{1,100}?)(?:\.git)?/?")
_URL = re.compile(
    r"(https?)://(?:[^@/\s]*@)?([A-Za-z0-9.-]+(?::\d+)?)((?:/[\w.-]+)*?)/([^/\s]+/[^/\s]+)/?"
)
_ISSUE = re.compile(r"(?:([\w.-]+/[\w.-]+)?#|https?://(\S+)/issues/)(\d{1,18})(?:#\S*)?")
_SSH = re.compile(r"(?:ssh://)?(?:[\w.-]+@)([A-Za-z0-9.-]+)(?::\d+(?=/))?[:/](?!/)(.+)")


def locate(text: str, folder: Path) -> Located:
    """Return where a ``--source`` leads; raise ``SourceError`` with the forms."""
    project = _top(folder) or folder
    found = find(text, project)
    if (other := _remembered(project)) not in ("", found.text):
        error = f"branches of {other} are in this repository, whose issues have the same numbers"
        renamed = f"if it was renamed there: git config {KEY} {found.text}"
        raise SourceError(error, f"use a clone of its own; {renamed}")
    place = (
        state_home()
        / "forges"
        / found.url.partition("://")[2].replace(":", "_")
        / found.owner
        / found.name
    )
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Located(place, project, to_plain(found))


def id_of(text: str, folder: Path) -> str:
    """Return the id that somebody means by ``#12``, ``O/R#12`` or the address of an issue; other
    texts stay as they are. Raises ``SourceError`` for an issue of another repository."""
    if (found := _ISSUE.fullmatch(text)) is None:
        return text
    place, known = (found[1] or found[2] or "").lower(), _remembered(_top(folder) or folder)
    if place and known and not f"/{known}".endswith(f"/{place}"):
        raise SourceError(f"{text} is not of {known}", "give an issue of this repository")
    return found[3]


def remember(project: str, repository: ForgeRepository) -> None:
    """Keep in a repository whose issues its branches are named after, if it is one."""
    if _remembered(Path(project)) != repository.text:
        with suppress(GitError):
            git(project, "config", "--local", KEY, repository.text)


def _remembered(project: Path) -> str:
    try:
        return (git_or_none(str(project), "config", "--local", KEY) or "").strip()
    except GitError:
        return ""


def find(text: str, project: Path, environ: Mapping[str, str] = os.environ) -> ForgeRepository:
    """Return the repository that a text of ``--source`` means."""
    kind, _, rest = text.partition(":")
    rest = rest or (_remote(project) if kind == "forge" else "")
    host, path = _parts(rest)
    if kind == GITHUB or (kind == "forge" and host in _hosts(environ)):
        host = host or environ.get("GH_HOST") or GITHUB_HOST
        if (pair := _PAIR.fullmatch(path or rest)) is not None:
            return ForgeRepository(GITHUB, f"https://{host}", pair[1].lower(), pair[2].lower())
    elif (match := _URL.fullmatch(rest)) is not None:
        pair = _PAIR.fullmatch(match[4])
        if pair is not None:
            url = f"{match[1]}://{match[2].lower()}{match[3]}"
            return ForgeRepository(GITEA, url, pair[1].lower(), pair[2].lower())
    elif (ssh := _SSH.fullmatch(rest)) is not None and (pair := _PAIR.fullmatch(ssh[2])):
        return ForgeRepository(GITEA, f"https://{ssh[1].lower()}", pair[1].lower(), pair[2].lower())
    raise SourceError(f"{text!r} names no repository", f"{', '.join(FORMS)} are known")


def of_remote(project: Path, remote: str) -> ForgeRepository:
    """Return the repository that a remote leads to; raises ``SourceError``."""
    url = _remote(project, remote)
    try:
        return find(f"forge:{url}", project)
    except SourceError:
        error = f"the remote {remote} ({url or 'no address'}) is no repository of a forge"
        raise SourceError(error, "'git remote -v' shows the remotes") from None


def _hosts(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the hosts that are GitHub's, or a GitHub Enterprise that ``gh`` is told of."""
    return tuple(filter(None, (GITHUB_HOST, environ.get("GH_HOST"))))


def _parts(text: str) -> tuple[str, str]:
    """Return host and path of an address of a repository; empty texts if it is none."""
    if (match := _URL.fullmatch(text)) is not None:
        return match[2].lower(), match[4]
    ssh = _SSH.fullmatch(text)
    return (ssh[1].lower(), ssh[2]) if ssh is not None else ("", "")


def _remote(project: Path, name: str = "origin") -> str:
    try:
        return (git_or_none(str(project), "config", f"remote.{name}.url") or "").strip()
    except GitError:
        return ""


def _top(folder: Path) -> Path | None:
    """Return the top of the git repository, None without one."""
    return next((above for above in (folder, *folder.parents) if (above / ".git").exists()), None)
