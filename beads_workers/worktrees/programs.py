"""Settings, ignore rules and hooks that all worktrees share, and which of them were changed.

The user's next git runs and obeys what an agent, or a set-up, writes there. We do not take back
such changes; we name them. Our own calls switch most of these settings off
(``worktrees.overrides``), and a run commits in the name that was set when it began (``pinned``).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from beads_workers.core.base.settings import Worktrees
from beads_workers.core.base.text import some
from beads_workers.worktrees.git import config, git, git_or_none, identity
from beads_workers.worktrees.records import led_to, run_folder

FILE = "bw-programs"
"""File in a worktree's own git directory: the settings as they were before its first attempt."""
BEFORE_SET_UP = ""
"""Entry of that file: the settings before the set-up, if that changed them."""

SETTINGS = ("config", "config.worktree")
EXCLUDE = "info/exclude"
_OF_ANY = "clean|cmd|command|defaultkeycommand|driver|external|path|process|program|smudge|textconv"
RUNS = re.compile(
    r"(alias|pager)\..+|include(if\..+)?\.path|protocol\.(.+\.)?allow|credential\.(.+\.)?helper"
    r"|core\.(alternaterefscommand|askpass|editor|fsmonitor|gitproxy|hookspath|pager|sshcommand)"
    r"|(browser|diff|difftool|filter|gpg|guitool|hook|man|merge|mergetool|tar|trailer)\.(.+\.)?"
    rf"({_OF_ANY})|interactive\.difffilter|remote\..+\.(receivepack|uploadpack|vcs)"
    r"|sendemail\..*cmd|sequence\.editor|submodule\..+\.update|uploadpack\.packobjectshook",
    re.DOTALL,
)
"""Keys, as git prints them, whose value is run, or leads to a program that is."""


def keep(directory: Path, before_set_up: Mapping[str, str] | None = None) -> None:
    """Write the current settings and hooks to a worktree's own git directory; raises ``OSError``.
    ``before_set_up``: the settings before the set-up; None: as they were written before."""
    known = json.dumps(before_set_up) if before_set_up else _kept(directory).get(BEFORE_SET_UP)
    file = os.open(directory / FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(file, "w") as kept:
        json.dump(current(_common(directory)) | ({BEFORE_SET_UP: known} if known else {}), kept)


def _kept(directory: Path) -> dict[str, str]:
    return read_kept(_read(directory / FILE)) or {}


def changed(directory: Path, git: Callable[..., str]) -> list[str]:
    """Return a line, for people, on what has changed since ``keep``, and one on what the set-up had
    changed; none if nobody kept it. Raises as ``git`` does."""
    if not (directory / FILE).exists():
        return []
    before = _kept(directory)
    if not before:
        return [f"changed {_RUN}: {FILE}"]  # The agent can write to this file, too.
    first = read_kept(before.pop(BEFORE_SET_UP, "")) or before
    now = current(_common(directory))
    return [*told(first, before, git, "setup "), *told(before, now, git)]


def told(
    before: Mapping[str, str], now: Mapping[str, str], git: Callable[..., str], who: str = ""
) -> list[str]:
    """Return lines, for people, on the settings and hooks that differ; raises as ``git`` does."""
    if before == now:
        return []
    old, new = _entries(before, git), _entries(now, git)
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    runs = [name for name in names if name.startswith("hooks/") or RUNS.fullmatch(name)]
    rest = [name for name in names if name not in runs]
    return [
        f"{who}changed {what}: {some(each)}" for what, each in ((_RUN, runs), (_ALL, rest)) if each
    ]


_RUN, _ALL = "what git runs in this repository", "settings that all worktrees share"


@contextmanager
def of_set_up(worktree: str) -> Iterator[None]:
    """Run a set-up in the worktree: what it changes is noted there, for the receipt of the attempt,
    and does not count as the attempt's. Raises ``OSError``."""
    directory = led_to(Path(worktree))
    before = current(_common(directory)) if directory else {}
    yield
    if directory and current(_common(directory)) != before:
        keep(directory, before)


def read_kept(text: str) -> dict[str, str] | None:
    """Parse what ``keep`` wrote; None if it is something else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_kept = isinstance(found, dict) and all(isinstance(each, str) for each in found.values())
    return found if is_kept else None


def current(common: Path) -> dict[str, str]:
    """Return the text of each file of settings, and the inode and time of change of each hook."""
    found = {name: _read(common / name) for name in (*SETTINGS, EXCLUDE)}
    try:
        with os.scandir(common / "hooks") as hooks:
            for hook in hooks:
                if not hook.name.endswith(".sample"):
                    status = hook.stat(follow_symlinks=False)
                    found[f"hooks/{hook.name}"] = f"{status.st_ino} {status.st_mtime_ns}"
    except OSError:
        pass  # There are none, or one was removed meanwhile.
    return found


def _common(directory: Path) -> Path:
    return directory / _read(directory / "commondir").strip()


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "surrogateescape")
    except OSError:
        return ""


def _entries(files: Mapping[str, str], git: Callable[..., str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, text in files.items():
        if name not in SETTINGS:
            found[name] = [text]
            continue
        for key, setting in config(git("config", "--file", "-", "--list", "-z", stdin=text)):
            found.setdefault(key, []).append(setting)
    return found


# --- as the run began ----------------------------------------------------------------------------

IDENTITY, EXCLUDE_KEPT = "git-identity", "git-exclude"
"""Files in the folder of a run, from its beginning: who commits, and a copy of ``EXCLUDE``."""
_SIGNS = r"^(commit\.gpgsign|user\.signingkey|gpg\..+)$"


def pinned(settings: Worktrees, run_id: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables with which every git in this repository, and in no other, commits in the
    name that was set when the run began; none if the run has no folder. Raises ``GitError`` and
    ``OSError``."""
    common, run = settings.common, run_folder(settings.state_directory, run_id)
    if run is None:
        return {}
    if not (run / IDENTITY).exists():
        _pin(common, run)
    here = re.sub(r"([\\*?\[])", r"\\\1", common).replace("\n", "?")  # No key has a line end.
    keys = [f"includeIf.gitdir:{place}.path" for place in (here, f"{here}/")]
    return configured(environment, [(key, str(run / IDENTITY)) for key in keys])


def _pin(common: str, run: Path) -> None:
    found, who = [("commit.gpgsign", "false")], identity(common)
    for role in ("author", "committer"):
        ident = git(common, *who, "var", f"GIT_{role.upper()}_IDENT")
        name, _, mail = ident[: ident.rindex(">")].rpartition(" <")
        found += [(f"{role}.name", name), (f"{role}.email", mail)]
    found += config(git_or_none(common, "config", "-z", "--get-regexp", _SIGNS) or "")
    fresh = run / f"{IDENTITY}.{os.getpid()}"
    for key, setting in found:
        git(common, "config", "--file", str(fresh), "--add", key, setting)
    (run / EXCLUDE_KEPT).write_text(_read(Path(common, EXCLUDE)), "utf-8", "surrogateescape")
    fresh.rename(run / IDENTITY)


def configured(
    environment: Mapping[str, str], settings: Iterable[tuple[str, str]]
) -> dict[str, str]:
    """Return the variables that add these settings to those that git reads from the environment."""
    try:
        first = max(0, int(environment.get("GIT_CONFIG_COUNT", "0")))
    except ValueError:
        first = 0
    numbered = list(enumerate(settings, first))
    added = {"GIT_CONFIG_COUNT": str(first + len(numbered))}
    for number, (key, setting) in numbered:
        added[f"GIT_CONFIG_KEY_{number}"] = key
        added[f"GIT_CONFIG_VALUE_{number}"] = setting
    return added
