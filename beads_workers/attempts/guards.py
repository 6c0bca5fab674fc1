"""Guards: an agent's environment refuses to push, to settle the agent's own issue, and to decide
for the person.

Agents evade instructions, and deny rules are only patterns, so the guards are mechanical: git finds
no push URL, and a ``git`` and a ``bd`` of ours stand first on ``PATH``. A change that evades them,
for instance by an absolute path, is found in the tracker afterwards and undone (docs/AGENTS.md,
"Guards").
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from beads_workers.attempts import ask_hook, hook
from beads_workers.attempts.git_calls import Git
from beads_workers.core.base.settings import NO_LOGIN_AT
from beads_workers.worktrees.git import NONE_THERE, config
from beads_workers.worktrees.programs import configured

NO_PUSH = "no-push://"
"""A transport that git does not have: a push to it fails before anything is sent."""

NO_RECEIVER = "no-push"
"""Name of a program that no machine has: the receiving side of a push would run it."""

GUARDED = ("bd", "beads")
"""Programs of trackers that have a guard of ours before them on ``PATH``."""


ANSWERS = "answers.json"
"""File in the folder of the guards with a person's answers to claude's question."""

HOOK_SECONDS = 10
"""Seconds for the hook, which takes 30 ms. A late hook refuses nothing; the guards do."""

_GUARD = """\
#!/bin/sh
# Stands before the tracker's program while an agent works (docs/AGENTS.md, "Guards").
command=
valued=
for argument in "$@"; do
  if [ -n "$valued" ]; then
    valued=
    continue
  fi
  case $argument in
    {valued}) valued=1 ;;
    -*) ;;
    *) [ -n "$command" ] || command=$argument ;;
  esac
done
refused=
case $command in
  {never}) refused=1 ;;
  {refused})
    named=
    for argument in "$@"; do
      case $argument in
        "$BW_GUARDED_ISSUE") refused=1 ;;
        -* | "$command") ;;
        ???*)
          named=1
          # A part of an id means the whole one, as bd reads it.
          case $BW_GUARDED_ISSUE in *"$argument") refused=1 ;; esac ;;
        *) named=1 ;;
      esac
    done
    # Without an id it means the issue that was touched last: ours, most likely.
    [ -n "$named" ] || refused=1 ;;
esac
if [ -n "$refused" ]; then
  printf '%s\\n' "{name} $command" >>"$BW_GUARD_LOG" 2>/dev/null
  echo "beads-workers: '$command' of $BW_GUARDED_ISSUE is refused: it is done for you when" \\
    "your work has passed its checks" >&2
  exit 1
fi
exec {program} "$@"
"""


_GIT_GUARD = """\
#!/bin/sh
# Stands before git while an agent works (docs/AGENTS.md, "Guards").
valued=
for argument in "$@"; do
  if [ -n "$valued" ]; then
    valued=
    continue
  fi
  case $argument in
    {valued}) valued=1 ;;
    -*) ;;
    {refused})
      printf '%s\\n' "git $argument" >>"$BW_GUARD_LOG" 2>/dev/null
      echo "beads-workers: 'git $argument' is refused: nothing is pushed in this task" >&2
      exit 1 ;;
    *) break ;;
  esac
done
exec {program} "$@"
"""

OURS = "beads-workers"
"""Our own program, which refuses to an attempt what a person decides."""

_MARKING_GUARD = """\
#!/bin/sh
# Stands before beads-workers while an agent works: also a call with an empty environment is known
# as one of this attempt (docs/TRUST.md, "What an attempt may not decide").
[ -n "$BW_RUN_ID" ] || BW_RUN_ID={run_id}
[ -n "$BW_WORKER_ID" ] || BW_WORKER_ID={worker_id}
[ -n "$BW_GUARD_LOG" ] || BW_GUARD_LOG={log}
export BW_RUN_ID BW_WORKER_ID BW_GUARD_LOG
exec {program} "$@"
"""

PUSHES = ("push", "send-pack", "http-push")
"""Subcommands of git that write to another repository."""


def guard_environment(
    environment: Mapping[str, str], folder: str, issue_id: str, directory: Path
) -> dict[str, str]:
    """Return the variables added to an agent's environment; create ``directory`` for the guards and
    their log.

    ``folder``: where git finds the repository, if there is one. Raises ``OSError``.
    """
    # The folder is its worker's: refusals of an earlier attempt do not count for this one.
    (directory / "refused").unlink(missing_ok=True)
    return no_push(environment, folder) | _guarded_programs(environment, issue_id, directory)


def write_settings(issue_id: str, directory: Path) -> str:
    """Write claude's settings for this attempt: a hook that refuses the same in time, with a
    reason, and one for its questions.

    Returns the file's path. Raises ``OSError``.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    (directory / ANSWERS).unlink(missing_ok=True)
    hooks = [
        _hook("Bash", hook.__file__, issue_id),
        _hook("AskUserQuestion", ask_hook.__file__, str(directory / ANSWERS)),
    ]
    file = directory / "settings.json"
    file.write_text(json.dumps({"hooks": {"PreToolUse": hooks}}))
    return str(file)


def _hook(tool: str, program: str, argument: str) -> dict[str, Any]:
    command = shlex.join((sys.executable, "-I", "-S", program, argument))
    called = {"type": "command", "command": command, "timeout": HOOK_SECONDS}
    return {"matcher": tool, "hooks": [called]}


def write_answers(directory: Path, call: str, answers: Sequence[str]) -> None:
    """Write what the hook answers to this call of claude's. Raises ``OSError``."""
    (directory / ANSWERS).write_text(json.dumps({"call": call, "answers": answers}))


def read_settings(folder: str, pattern: str) -> Iterator[tuple[str, str]]:
    """Read an agent's own settings, as ``Adapter.hooks_off`` asks for them."""
    for file in sorted(Path(folder).glob(pattern)):
        with suppress(OSError, UnicodeDecodeError):
            yield str(file), file.read_text("utf-8")


def refusals(directory: Path) -> list[str]:
    """Return what was refused so far, in order: ``bd close``, ``git push``."""
    try:
        return (directory / "refused").read_text(errors="replace").splitlines()
    except OSError:
        return []


def no_push(environment: Mapping[str, str], folder: str) -> dict[str, str]:
    """Return git configuration, as variables, by which every URL that could be pushed to fails.

    Raises ``GitError`` if the remotes cannot be read.

    The user's own configuration stays as it is. A remote with a push URL of its own is not
    rewritten by ``pushInsteadOf``; its URL is replaced itself. git applies the longest of several
    rewritings, so each remote's whole URL is named, too: the user may rewrite a part of it. In a
    worktree of the attempt's own, commits are not signed.
    """
    remotes = _remotes(folder)
    settings = [(f"url.{NO_PUSH}.pushInsteadOf", "")]
    settings += [(f"url.{NO_PUSH}.pushInsteadOf", url) for url in _urls(remotes, "url")]
    settings += [(f"url.{NO_PUSH}.insteadOf", url) for url in _urls(remotes, "pushurl")]
    # If the agent sets a push URL itself: the program that would receive the push there.
    settings += [
        (f"remote.{name}.receivepack", NO_RECEIVER)
        for name in sorted({name for name, *_ in remotes})
    ]
    for host in environment.get(NO_LOGIN_AT, "").split():
        # The last helper has git ask nobody else: no program, no editor, no terminal.
        settings += [(f"credential.{host}.helper", each) for each in ("", "!echo quit=1 #")]
    if environment.get("BW_WORKTREE"):
        # What lands is signed as it lands; here nobody is there to answer a signer.
        settings.append(("commit.gpgSign", "false"))
    return configured(environment, settings)


def _urls(remotes: Iterable[tuple[str, str, str]], kind: str) -> list[str]:
    return sorted({url for _, its_kind, url in remotes if its_kind == kind})


def _remotes(folder: str) -> list[tuple[str, str, str]]:
    """Return the URLs of all remotes: the remote's name, ``url`` or ``pushurl``, and the URL."""
    asked = ("config", "-z", "--get-regexp", r"^remote\..*\.(push)?url$")
    done = Git(folder).answered(*asked, good=(0, NONE_THERE))
    found = ((key.removeprefix("remote."), url) for key, url in config(done.output) if url)
    return [(name, kind, url) for key, url in found for name, _, kind in (key.rpartition("."),)]


def _guarded_programs(
    environment: Mapping[str, str], issue_id: str, directory: Path
) -> dict[str, str]:
    path = environment.get("PATH", os.defpath)
    made = False
    of_attempt = (environment.get(name, "") for name in ("BW_RUN_ID", "BW_WORKER_ID"))
    run_id, worker_id = map(shlex.quote, of_attempt)
    for name in ("git", *GUARDED, OURS):
        if (program := shutil.which(name, path=path)) is None:
            continue
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        guard = directory / name
        text = {"git": _GIT_GUARD, OURS: _MARKING_GUARD}.get(name, _GUARD)
        refused = PUSHES if name == "git" else hook.REFUSED
        guard.write_text(
            text.format(
                name=name,
                refused=" | ".join(refused),
                never=" | ".join(hook.NEVER),
                valued=" | ".join(sorted(hook.VALUED["git" if name == "git" else "bd"])),
                run_id=run_id,
                worker_id=worker_id,
                log=shlex.quote(str(directory / "refused")),
                program=shlex.quote(os.path.abspath(program)),  # noqa: PTH100 - no link followed
            )
        )
        guard.chmod(0o700)
        made = True
    if not made:
        return {}
    return {
        "PATH": f"{directory}{os.pathsep}{path}",
        "BW_GUARDED_ISSUE": issue_id,
        "BW_GUARD_LOG": str(directory / "refused"),
    }
