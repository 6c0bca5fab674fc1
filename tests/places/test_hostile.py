"""What a host answers that is not ours to trust: it breaks its own line, and changes nothing here.

The host is a program here that speaks instead of the guard; its packs are real.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.records.journal import Leased
from beads_workers.places import away, parcel
from beads_workers.places.line import HostLine, Unreached
from beads_workers.worktrees.git import GitError
from tests.support.loops import in_loop
from tests.support.repository import git, make_repository

HELLO = {"programs": {"git": "/usr/bin/git"}, "python311": "python3", "free": 1 << 40, "home": "/"}
LEASE = Leased("bw-1", 1, "run.1", "n1", "n1", "boot", "0" * 32, 60.0)
RELAY = """
import json, sys
data = sys.stdin.buffer.readline()  # The program that reads the guard's text.
sys.stdin.buffer.read(int(data.split(b"read(")[1].split(b")")[0]))
for line in sys.stdin:
    word = json.loads(line)
    if "hello" in word:
        print({hello}, flush=True)
    else:
        print({answer}, flush=True)
"""
FINE = f'json.dumps({{"ref": word["ref"], "hello": {HELLO}}})'
NONSENSE = "it answers nothing that makes sense"


async def close(line: HostLine) -> None:
    """Close a line, and let its pipes be closed."""
    await line.close()
    await asyncio.sleep(0.1)


def relay(hello: str = FINE, answer: str = "1") -> list[str]:
    """Return a host that answers as these expressions say."""
    text = RELAY.replace("{hello}", hello).replace("{answer}", answer)
    return [sys.executable, "-c", text]


async def _line(argv: list[str]) -> HostLine:
    line = HostLine(argv, "~/x", ("git",), lambda: None)
    await asyncio.wait_for(line.tried.wait(), 20.0)
    return line


@pytest.mark.parametrize(
    ("hello", "why"),
    [
        (FINE, ""),
        ('json.dumps({"ref": word["ref"]})', NONSENSE),
        ('json.dumps({"ref": word["ref"], "hello": 5})', NONSENSE),
        ('json.dumps({"ref": word["ref"], "hello": {"programs": []}})', NONSENSE),
        (
            'json.dumps({"ref": word["ref"], "hello": {"programs": {"git": 1}, "free": "much",'
            ' "python311": 1}})',
            NONSENSE,
        ),
        ('json.dumps({"ref": [1], "hello": {}})', NONSENSE),
        ('"[" * 100_000', NONSENSE),
        ('"x" * (5 << 20)', NONSENSE),
        ('"this is no JSON"', NONSENSE),
    ],
)
@in_loop
async def test_a_greeting_that_is_none_is_refused(hello: str, why: str) -> None:
    line = await _line(relay(hello))
    try:
        assert why in line.why if why else line.why == ""
    finally:
        await close(line)


@pytest.mark.parametrize(
    "answer", ['"[" * 100_000', '"x" * (5 << 20)', "[1, 2]", "\"{'ref': 1}\"", '"null"']
)
@in_loop
async def test_a_line_is_begun_anew_after_an_answer_that_is_none(answer: str) -> None:
    line = await _line(relay(answer=answer))
    try:
        with pytest.raises(Unreached):
            await line.ask({"nonce": "0"}, 20.0)
        for _ in range(200):
            if not line.why:
                break
            await asyncio.sleep(0.05)
        assert line.why == "", "it is greeted again"
    finally:
        await close(line)


# --- what is brought home ------------------------------------------------------------------------


class Host(away.LineToPlace):
    """The line of an attempt whose host sends this as its work."""

    def __init__(self, work: bytes = b"", *, size: int | None = None) -> None:
        self.work, self.size = work, len(work) if size is None else size

    def ask(self, word: Any) -> dict[str, Any]:
        """Answer as a guard does."""
        data = self.work[word["at"] : word["at"] + (1 << 18)]
        return {"data": base64.b64encode(data).decode(), "size": self.size}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "home")


@pytest.fixture
def made(home: Path, tmp_path: Path) -> tuple[str, bytes]:
    """A commit of a host and the pack that brings it."""
    there = make_repository(tmp_path / "there")
    base = git(there, "rev-parse", "HEAD")
    assert base == git(home, "rev-parse", "HEAD")
    (there / "work.txt").write_text("work")
    git(there, "add", "-A")
    git(there, "commit", "-q", "-m", "work")
    head = git(there, "rev-parse", "HEAD")
    return head, parcel.pack_of(str(there / ".git"), f"{head}\n^{base}\n")


def _done(**receipt: Any) -> dict[str, Any]:
    fields = {"issue_id": "bw-1", "worker_id": "W1", "attempt": 1, "request_id": "run.1"}
    fields |= {"type": "DONE", "timestamp": 1.0, "result": "", "duration_ms": 5}
    return {**fields, "receipt": receipt}


def _brought(home: Path, tmp_path: Path, host: Host, **receipt: Any) -> dict[str, Any]:
    run = tmp_path / "state" / "runs" / "run"
    run.mkdir(parents=True)
    return away.brought(host, _done(**receipt), str(home / ".git"), str(run), LEASE)


def test_the_work_of_an_attempt_is_taken_in(
    home: Path, tmp_path: Path, made: tuple[str, bytes]
) -> None:
    head, pack = made
    answer = _brought(home, tmp_path, Host(pack), branch="bw/bw-1/1", head=head)
    assert answer["outcome"] == "success"
    assert answer["receipt"]["host"] == "n1/n1", "as home knows it"
    assert git(home, "rev-parse", "bw/bw-1/1") == head


@pytest.mark.parametrize(
    "branch",
    [
        *("main", "refs/heads/main", "bw/bw-2/1", "bw/bw-1/../bw-2/1"),
        *("bw/bw-1/1\nmain", "", "--force", "bw/bw-1/1 x"),
    ],
)
def test_a_branch_that_is_not_of_the_issue_is_refused(
    home: Path, tmp_path: Path, made: tuple[str, bytes], branch: str
) -> None:
    before = git(home, "for-each-ref")
    with pytest.raises(away.AwayFailed):
        _brought(home, tmp_path, Host(made[1]), branch=branch, head=made[0])
    assert git(home, "for-each-ref") == before


@pytest.mark.parametrize("head", ["HEAD", "main", "--all", "0" * 39, ["a"], "@{1}"])
def test_a_head_that_is_no_object_is_refused(home: Path, tmp_path: Path, head: Any) -> None:
    before = git(home, "for-each-ref")
    with pytest.raises(away.AwayFailed):
        _brought(home, tmp_path, Host(b""), branch="bw/bw-1/1", head=head)
    assert git(home, "for-each-ref") == before


@pytest.mark.parametrize("kind", ["nothing", "noise", "cut short", "another commit"])
def test_objects_that_are_not_what_they_say_are_refused(
    home: Path,
    tmp_path: Path,
    made: tuple[str, bytes],
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(away, "TRY_AGAIN_SECONDS", 0.0)
    head, pack = made
    sent = {
        "nothing": b"",
        "noise": bytes(range(256)) * 4,
        "cut short": pack[:-30],
        "another commit": pack,
    }[kind]
    head = "f" * 40 if kind == "another commit" else head
    before = git(home, "for-each-ref")
    with pytest.raises(GitError):
        _brought(home, tmp_path, Host(sent), branch="bw/bw-1/1", head=head)
    assert git(home, "for-each-ref") == before


def test_a_tree_that_git_would_not_check_out_is_refused(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(away, "TRY_AGAIN_SECONDS", 0.0)
    there = make_repository(tmp_path / "there")
    blob = git(there, "hash-object", "-w", "--stdin", given="[core]\nfsmonitor = x\n")
    inner = git(there, "mktree", given=f"100644 blob {blob}\tconfig\n")
    tree = git(there, "mktree", given=f"040000 tree {inner}\t.GIT\n")
    head = git(there, "commit-tree", tree, "-p", "HEAD", "-m", "trap")
    pack = parcel.pack_of(str(there / ".git"), f"{head}\n")
    with pytest.raises(GitError):
        _brought(home, tmp_path, Host(pack), branch="bw/bw-1/1", head=head)


def test_work_without_an_end_is_refused(
    home: Path, tmp_path: Path, made: tuple[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(away, "WORK_BYTES_MAX", 1 << 20)
    host = Host(b"x" * (3 << 20), size=1 << 60)
    with pytest.raises(away.AwayFailed, match="longer than"):
        _brought(home, tmp_path, host, branch="bw/bw-1/1", head=made[0])


@pytest.mark.parametrize("said", [{"type": "READY", "worker_id": "W1"}, {"type": "SHUTDOWN"}])
def test_an_answer_that_ends_nothing_is_refused(home: Path, said: dict[str, Any]) -> None:
    fields = {"pid": 1, "timestamp": 1.0, "reason": "idle_timeout", "capabilities": {}}
    with pytest.raises((away.AwayFailed, ValueError)):
        away.brought(Host(), {**fields, **said}, str(home), str(home), LEASE)


def test_a_result_lies_where_home_keeps_results(home: Path, tmp_path: Path) -> None:
    run = tmp_path / "state" / "runs" / "run"
    said = {**_done(), "receipt": None, "result_file": "/etc/passwd"}
    answer = away.brought(Host(json.dumps("long").encode()), said, str(home), str(run), LEASE)
    path = Path(answer["result_file"])
    assert path.is_relative_to(run)
    assert path.read_text() == '"long"'
