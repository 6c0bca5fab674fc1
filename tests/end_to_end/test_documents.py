"""Every command that a document shows is run, in order, as its reader would: ``console`` fences.

The reader has a git repository with a program for issues, a built-in tracker with a little work
and one run behind it (or what ``bd init`` makes), and the programs that the commands name.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bd import NEW, bd_environment
from tests.test_docs import DOCUMENTS, ROOT, fences, name

MERGE = "git merge --ff-only bw-landing/main"
NIGHT = (
    "beads-workers start -n 1 --limit 1 --worktree --verify true --until-empty"
    " -- sh -c 'echo x >x; git add x; git commit --quiet -m x'"
)
"""What lands, so that it can be merged in the morning."""

PROGRAMS = {
    "claude": "cat >/dev/null; git commit --quiet --allow-empty --message solved; echo "
    + """'{"type":"result","subtype":"success","num_turns":1,"result":"solved"}'""",
    "codex": "cat >/dev/null",
    "notify-send": ":",
    "make": ":",
}
MODULES = ("shop/tasks.py", "myproject/jobs.py")
"""Functions that documents have called."""

ENVELOPE = {"job_id": "job-1", "job_path": "myproject.jobs.send", "args": [], "kwargs": {}}
ENVELOPE |= {"state": "enqueued", "ts_enqueued": 1_700_000_000}

PID = "4242"
"""Stands in the documents for a running orchestrator's."""


class Reader:
    """Somebody with a project who types what a document says."""

    def __init__(self, folder: Path, *, bd: bool, before: Reader | None = None) -> None:
        self.folder = folder / "project"
        self._number = 0
        self._bd = bd
        programs = folder / "programs"
        for path, script in [
            *((programs / program, script) for program, script in PROGRAMS.items()),
            (self.folder / "do-issue.sh", 'echo "did ${BW_ISSUE_ID:-$1}"'),
            (self.folder / "solve", "cat >/dev/null"),
        ]:
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        for module in MODULES:
            (self.folder / module).parent.mkdir()
            (self.folder / module).write_text("def send(*args): pass\n\ndef triage(issue): pass\n")
        (self.folder / "envelope.json").write_text(json.dumps(ENVELOPE))
        (self.folder / "bin").symlink_to(ROOT / "bin")
        self._environment = bd_environment(NEW)
        venv = Path(sys.executable).parent
        self._environment["PATH"] = f"{programs}:{venv}:{self._environment['PATH']}"
        for who in ("AUTHOR", "COMMITTER"):
            self._environment |= {f"GIT_{who}_NAME": "r", f"GIT_{who}_EMAIL": "r@example.org"}
        if before is not None:
            self._begin_with(before)
            return
        self.type("git init --quiet -b main && git add do-issue.sh && git commit --quiet -m begin")
        if not bd:
            self.type("beads-workers init")
            self.work_to_do()
            self.type("beads-workers start --until-empty -- ./do-issue.sh {id}")

    def _begin_with(self, before: Reader) -> None:
        """Whatever another one has done: its folder is the same from inside."""
        shutil.rmtree(self.folder)
        shutil.copytree(before.folder, self.folder, symlinks=True)
        self._number = before._number

    def type(self, command: str) -> str:
        """Run it; returns what it printed. It must succeed, and end."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}"
        return done.stdout

    def work_to_do(self) -> None:
        """Two more issues."""
        if self._bd:
            return
        rows = []
        for _ in range(2):
            self._number += 1
            rows.append({"id": f"app-{self._number}", "title": "Say what went wrong"})
        text = "\n".join(json.dumps(row) for row in rows)
        self.type(f"beads-workers import - <<'END'\n{text}\nEND")

    def start_for(self, command: str) -> str:
        """A command that names a running fleet: start one, and put its pid in."""
        if not re.search(rf"\b{PID}\b", command):
            return command
        said = self.type("beads-workers start -d -n 0 --until-empty --json -- ./do-issue.sh")
        return re.sub(rf"\b{PID}\b", str(json.loads(said.splitlines()[-1])["pid"]), command)

    def leave(self) -> None:
        """End what is left running."""
        self.type("beads-workers stop --now || true")


def shown() -> Iterator[object]:
    """One parameter per ``console`` fence."""
    for path in DOCUMENTS:
        for number, fence in enumerate(fences(path, "console"), 1):
            commands = re.findall(r"^\$ (.*(?:(?<=\\)\n.*)*)$", fence, re.MULTILINE)
            assert commands, f"{name(path)}: a console fence without a command"
            yield pytest.param(commands, id=f"{name(path)}-{number}")


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """One with the built-in tracker, a little work and one run behind it."""
    return Reader(tmp_path_factory.mktemp("begun"), bd=False)


@pytest.mark.parametrize("commands", list(shown()))
def test_every_command_of_a_document_works_as_shown(
    commands: list[str], begun: Reader, tmp_path: Path
) -> None:
    bd = any(command.startswith("bd init") for command in commands)
    reader = Reader(tmp_path, bd=bd, before=None if bd else begun)
    try:
        if MERGE in commands:
            reader.work_to_do()
            reader.type(NIGHT)
        for command in commands:
            reader.work_to_do()
            reader.type(reader.start_for(command))
    finally:
        reader.leave()


@pytest.mark.parametrize(
    ("path", "toml"),
    [(path, text) for path in DOCUMENTS for text in fences(path, "toml")],
    ids=lambda value: name(value) if isinstance(value, Path) else "",
)
def test_every_settings_file_of_a_document_is_accepted(
    path: Path, toml: str, tmp_path: Path
) -> None:
    (tmp_path / "beads-workers.toml").write_text(toml)
    done = subprocess.run(
        [sys.executable, "-m", "beads_workers", "config", "show"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
