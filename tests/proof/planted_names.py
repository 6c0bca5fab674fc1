"""Something else at each name that is opened below the run directory: refused by name or harmless.

A link, a named pipe, a socket, a device, a folder and a file of somebody else; the user's own file,
to which the link leads, is byte for byte as before.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping
from contextlib import chdir
from pathlib import Path

from beads_workers.runtime.trust import NAMED
from tests.cli.test_strangers import STRANGER
from tests.support import warm
from tests.support.embedded import EmbeddedProject

IN_A_RUN = ("alive", "ended.json", "issues", "journal.jsonl", "lander.log", "logs", "settled")
MORE_IN_A_RUN = ("orchestrator.log", "settings.json", "notify.log", "result_spool")
RUN = "runs/RUN"
BELOW = (
    "worktrees/w",
    "worktree-records/w.json",
    f"{RUN}/logs/bw-1.1.log",
    f"{RUN}/issues/W1.json",
)
NAMES = (
    *(name for name in NAMED if name not in (*IN_A_RUN, *MORE_IN_A_RUN)),
    *(f"{RUN}/{name}" for name in (*IN_A_RUN, *MORE_IN_A_RUN)),
    *BELOW,
)
COMMANDS = (
    ("start", "-n", "1", "--until-empty", "--no-dashboard", "--", "true"),
    ("status",),
    ("logs", "bw-1"),
    ("report",),
    ("stop",),
    ("clean",),
    ("doctor", "--", "true"),
)
SECONDS_MAX = 20.0


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound, chdir(path.parent):
        bound.bind(path.name)


def _of_a_stranger(path: Path) -> None:
    path.touch()
    os.chown(path, STRANGER, STRANGER)


def _link(path: Path) -> None:
    path.symlink_to(os.path.relpath(_precious(path), path.parent))


def _precious(path: Path) -> Path:
    project = next(each for each in path.parents if each.name == "project")
    return project.parent / "precious"


KINDS: Mapping[str, Callable[[Path], object]] = {
    "link": _link,
    "pipe": os.mkfifo,
    "socket": _socket,
    "device": lambda path: os.mknod(path, 0o600 | 0o020000, os.makedev(1, 3)),
    "folder": Path.mkdir,
    "file of a stranger": _of_a_stranger,
}


def tried(folder: Path, name: str) -> list[str]:
    """What is wrong with each kind, and each command."""
    project = EmbeddedProject(folder)
    project.create_many([{}])
    state = project.folder / ".beads-workers"
    ended = warm.run(COMMANDS[0], project.folder, project.environment, SECONDS_MAX)
    assert ended.returncode == 0, ended.stderr
    (run,) = (state / "runs").iterdir()
    whole = folder / "whole"
    shutil.copytree(state, whole, symlinks=True)
    broken = []
    for kind, make in KINDS.items():
        shutil.rmtree(state)
        shutil.copytree(whole, state, symlinks=True)
        (folder / "precious").write_text("mine\n")
        path = state / name.replace("RUN", run.name)
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        make(path)
        broken += [f"{kind}: {each}" for each in _judged(project, path)]
    return broken


def _judged(project: EmbeddedProject, path: Path) -> list[str]:
    broken, before = [], {each.name for each in project.folder.parent.iterdir()}
    for command in COMMANDS:
        try:
            ran = warm.run(command, project.folder, project.environment, SECONDS_MAX, safe=True)
        except subprocess.TimeoutExpired:
            broken.append(f"{command[0]} hangs")
            continue
        said = ran.stderr + ran.stdout
        if "Traceback" in said or (ran.returncode == 2 and path.name not in said):
            broken.append(f"{command[0]}: {ran.returncode} {said[-200:]}")
    precious = project.folder.parent / "precious"
    if precious.read_text() != "mine\n":
        broken.append("the user's file has changed")
    new = {each.name for each in project.folder.parent.iterdir()} - before
    return [*broken, *(f"{each} is new outside of the project" for each in new)]
