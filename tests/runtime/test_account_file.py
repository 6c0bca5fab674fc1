"""What fleets of one user tell each other of their agents' accounts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from beads_workers.core.records.journal import AccountClosed, AccountOpened
from beads_workers.core.records.receipts import AccountId, AccountRefusal, AccountTrouble, Closed
from beads_workers.core.schedule.events import AccountTold, Event, Warned
from beads_workers.runtime.account_file import AccountFile, SharedAccounts, state_home

ACCOUNT = AccountId("claude-1")
NOW = float(int(time.time()))
LIMIT = Closed(AccountRefusal(AccountTrouble.LIMITED, "5 hours", NOW + 600), NOW, NOW + 630)
CLOSED = AccountClosed(ACCOUNT, "claude", "limited", "5 hours", "", NOW + 600, NOW + 630, NOW)


class Run:
    """One fleet, as the file sees it."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self.events: list[Event] = []
        file = AccountFile(folder, run_id)
        self.shared = SharedAccounts(file, run_id, [ACCOUNT], self.events.append)

    def news(self) -> list[tuple[Closed, ...]]:
        """What it has heard of its account since the last question."""
        self.shared.look()
        events = list(self.events)
        self.events.clear()
        return [event.closed for event in events if isinstance(event, AccountTold)]

    def closes(self, record: AccountClosed = CLOSED) -> None:
        """Its core has written this."""
        self.shared.record(record)
        self.shared.flush()

    def opens(self) -> None:
        """Its canary was answered."""
        self.shared.record(AccountOpened(ACCOUNT, "claude"))
        self.shared.flush()


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Run, Run]:
    return Run(tmp_path / "s", "run-1"), Run(tmp_path / "s", "run-2")


def test_what_one_fleet_finds_out_the_other_one_learns(runs: tuple[Run, Run]) -> None:
    one, other = runs
    assert other.news() == []
    one.closes()
    ((closed,),) = other.news()
    assert (closed.refusal, closed.probe_at) == (LIMIT.refusal, LIMIT.probe_at)
    assert closed.told_by == "run-1"
    assert one.news() == [()], "its own words are none for it"
    one.opens()
    assert other.news() == [()]


def test_a_run_that_begins_later_learns_it_before_it_claims(tmp_path: Path) -> None:
    Run(tmp_path, "run-1").closes()
    assert len(Run(tmp_path, "run-2").news()) == 1


def test_what_was_learned_is_not_told_again(runs: tuple[Run, Run], tmp_path: Path) -> None:
    one, other = runs
    one.closes()
    other.news()
    before = (tmp_path / "s" / "accounts.json").stat().st_mtime_ns
    other.closes()  # The core journals what it has learned, too.
    assert (tmp_path / "s" / "accounts.json").stat().st_mtime_ns == before
    other.opens()
    assert one.news() == [()], "its canary is everybody's news"


def test_an_opening_that_was_learned_wipes_out_nothing(runs: tuple[Run, Run]) -> None:
    one, other = runs
    one.closes()
    other.news()
    other.closes()
    one.opens()
    other.news()
    one.closes()
    other.opens()  # Written late: of the opening that it was told of.
    assert len(other.news()) == 1


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"claude-1": 7}', b'{"claude-1": [{"trouble": "x"}]}', b"\xff"]
)
def test_a_damaged_file_is_empty_and_written_anew(runs: tuple[Run, Run], damage: bytes) -> None:
    one, other = runs
    one.closes()
    path = one.shared._file._path
    path.write_bytes(damage)
    assert other.news() in ([], [()])
    one.closes(AccountClosed(ACCOUNT, "claude", "limited", "", "", 0.0, NOW + 700, NOW))
    assert [closed.probe_at for closed in other.news()[0]] == [NOW + 700]


def test_what_is_not_ours_is_not_believed(runs: tuple[Run, Run], tmp_path: Path) -> None:
    one, other = runs
    one.closes()
    path = tmp_path / "s" / "accounts.json"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert other.news() == []
    path.unlink()
    os.mkfifo(path)
    assert Run(tmp_path / "s", "run-3").news() == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")
def test_the_file_of_somebody_else_is_not_believed(runs: tuple[Run, Run], tmp_path: Path) -> None:
    one, other = runs
    one.closes()
    os.chown(tmp_path / "s" / "accounts.json", 65534, 65534)
    assert other.news() == []


def test_what_was_to_open_long_ago_is_forgotten(tmp_path: Path) -> None:
    old = AccountClosed(ACCOUNT, "claude", "limited", "", "", 0.0, NOW - 90_000, NOW - 100_000)
    Run(tmp_path, "run-1").closes(old)
    assert Run(tmp_path, "run-2").news() == []


def test_a_folder_that_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    run = Run(tmp_path / "file", "run-1")
    run.closes()
    run.closes(AccountClosed(ACCOUNT, "claude", "limited", "", "", 0.0, NOW + 900, NOW))
    (warned,) = run.events
    assert isinstance(warned, Warned)
    assert "other fleets are not told" in warned.text


def test_while_another_one_writes_it_is_told_later(runs: tuple[Run, Run], tmp_path: Path) -> None:
    one, other = runs
    (tmp_path / "s").mkdir()
    with other.shared._file._locked():
        one.closes()
        assert not (tmp_path / "s" / "accounts.json").exists()
    one.shared.flush()
    assert len(other.news()) == 1


WRITER = """
import sys, time
from pathlib import Path
from beads_workers.core.records.receipts import Closed
from beads_workers.core.records.receipts import AccountRefusal, AccountTrouble
from beads_workers.runtime.account_file import AccountFile
folder, name = sys.argv[1:]
file, now = AccountFile(Path(folder), name), time.time()
for number in range(40):
    refusal = AccountRefusal(AccountTrouble.LIMITED, f"{number}", now + 600)
    while True:
        try:
            file.tell(name, [Closed(refusal, now, now + 600 + number)])
            break
        except BlockingIOError:
            time.sleep(0.001)
"""


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    names = [f"account-{number}" for number in range(4)]
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), name]) for name in names
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0, 0]
    found = json.loads((tmp_path / "accounts.json").read_text())
    assert {name: rows[0]["why"] for name, rows in found.items()} == dict.fromkeys(names, "39")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["accounts.json", "accounts.lock"]


def test_the_folder_is_that_of_the_users_state() -> None:
    assert state_home({"XDG_STATE_HOME": "/x"}) == Path("/x/beads-workers")
    assert state_home({"XDG_STATE_HOME": "x"}) == Path.home() / ".local/state/beads-workers"
