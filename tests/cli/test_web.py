"""``--web``: its words, the one server for a run directory, and the feed from run to run."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import threading
from itertools import islice
from pathlib import Path

import pytest

from beads_workers.cli import web
from beads_workers.cli.web import (
    NO_RUN_SECONDS,
    READ_SECONDS,
    UNREAD_SECONDS,
    Lifetime,
    PageFeed,
    Server,
    find,
    with_port,
)
from beads_workers.core.records.journal import RunEnded, RunStarted, encode
from beads_workers.errors import CommandError
from beads_workers.runtime import live_page
from beads_workers.runtime.live_page import LivePage
from beads_workers.runtime.locks import is_locked, try_lock
from beads_workers.runtime.run_directory import RunDirectory
from beads_workers.ui.web_state import PageState
from tests.support.fleet import PROGRAM, until
from tests.support.journals import night


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("", ""),
        ("--web", "--web=0"),
        ("--web 8080", "--web=8080"),
        ("--web 127.0.0.1:8080 -n 2", "--web=127.0.0.1:8080 -n 2"),
        ("--web=8080 7", "--web=8080 7"),
        ("--web app-1", "--web=0 app-1"),
        ("-n 2 --web -d", "-n 2 --web=0 -d"),
        ("--web --web-control", "--web=0 --web-control"),
        ("--web -- run --web 1", "--web=0 -- run --web 1"),
        ("app-1 -- --web", "app-1 -- --web"),
        ("--state-dir x", "--state-dir x"),
    ],
)
def test_a_port_may_follow_and_an_issue_is_none(typed: str, meant: str) -> None:
    assert with_port(typed.split()) == meant.split()


def test_the_next_server_has_the_same_port_and_key_and_a_token_of_its_own(tmp_path: Path) -> None:
    assert find(tmp_path, 0, controls=False) is None
    first = Server(tmp_path, 0, controls=False)
    file = tmp_path / "web.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert find(tmp_path, 0, controls=False) == first.page
    with pytest.raises(CommandError, match="served here already"):
        Server(tmp_path, 0, controls=False)
    first.close()
    key = json.loads(file.read_bytes())["key"]
    assert find(tmp_path, 0, controls=False) is None
    second = Server(tmp_path, 0, controls=True)
    assert (second.web.server_port, second.page.control) == (first.web.server_port, True)
    assert json.loads(file.read_bytes())["key"] == key not in second.page.url
    assert second.web.token != first.web.token
    second.close()


def test_the_page_has_the_names_of_the_settings_and_a_server_without_them_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    server = Server(tmp_path, 0, controls=False)
    assert (server.web.hosts, find(tmp_path, 0, controls=False)) == ((), server.page)
    server.close()
    (tmp_path / "beads-workers.toml").write_text('[web]\nport = 0\nhosts = "box.ts.net"\n')
    named = Server(tmp_path, 0, controls=False)
    assert (named.web.hosts, find(tmp_path, 0, controls=False)) == (("box.ts.net",), named.page)
    named.close()


def test_a_page_of_the_other_kind_is_refused(tmp_path: Path) -> None:
    server = Server(tmp_path, 0, controls=True)
    with pytest.raises(CommandError, match="can control") as refused:
        find(tmp_path, 0, controls=False)
    assert f"kill {os.getpid()}" in refused.value.hint
    server.close()


def test_a_key_that_others_could_read_is_not_used_again(tmp_path: Path) -> None:
    first = Server(tmp_path, 0, controls=False)
    first.close()
    (tmp_path / "web.json").chmod(0o644)
    key = json.loads((tmp_path / "web.json").read_bytes())["key"]
    second = Server(tmp_path, 0, controls=False)
    assert json.loads((tmp_path / "web.json").read_bytes())["key"] != key
    assert stat.S_IMODE((tmp_path / "web.json").stat().st_mode) == 0o600
    second.close()


@pytest.mark.parametrize("text", ["", "[]", '{"port": "x", "key": "../.."}', '{"port": 1'])
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "web.json"
    file.write_text(text)
    file.chmod(0o600)
    server = Server(tmp_path, 0, controls=False)
    assert json.loads(file.read_bytes())["url"] == server.page.url
    server.close()


def test_a_port_that_is_taken_is_said_and_the_last_one_is_given_up(tmp_path: Path) -> None:
    first = Server(tmp_path, 0, controls=False)
    port = first.web.server_port
    first.close()
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(CommandError, match=f"port {port}"):
            Server(tmp_path, port, controls=False)
        other = Server(tmp_path, 0, controls=False)
        assert other.web.server_port != port
        other.close()


def test_a_page_is_opened_beside_a_run_and_says_why_not(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CommandError, match=f"port {port}"):
            web.open_beside(tmp_path, port, controls=False)


# --- feed -------------------------------------------------------------------------------------


def look(directory: Path) -> dict[str, object]:
    """What somebody is shown who looks where no fleet runs."""
    shown = PageState()
    shown.enter()
    feed = PageFeed(directory, shown, None)
    feed._show_last()
    stream = shown.follow()
    next(stream)
    told = next(stream)
    told += b"" if b"event: attempts" in told else next(stream)
    blocks = [block.split(b"\n") for block in told.split(b"\n\n") if block]
    pairs = [(line[0][7:].decode(), json.loads(line[1][6:])) for line in blocks if len(line) == 2]
    return dict(pairs)


def test_it_outlives_a_fleet_by_so_long_and_no_longer(tmp_path: Path) -> None:
    lock = try_lock(tmp_path / "lock")
    assert lock is not None
    feed = threading.Thread(target=PageFeed(tmp_path, PageState(), Lifetime(0.5, 0.5, 0.5)).run)
    feed.start()
    feed.join(2.5)
    assert feed.is_alive()
    os.close(lock)
    feed.join(20)
    assert not feed.is_alive()


def ends_at(*notes: str | tuple[str, float]) -> float | None:
    """When a server ends by itself of which this is noted, each at its second."""
    life = Lifetime()
    for each in notes:
        what, at = each if isinstance(each, tuple) else (each, 0.0)
        if what == "runs":
            life.runs()
        else:
            life.is_over(at, read=what == "read")
    return life.ends_at()


@pytest.mark.parametrize(
    ("noted", "ends"),
    [
        (["runs"], None),
        ([("over", 100.0)], 100.0 + NO_RUN_SECONDS),
        (["runs", ("over", 100.0)], 100.0 + UNREAD_SECONDS),
        (["runs", ("over", 100.0), ("over", 900.0)], 100.0 + UNREAD_SECONDS),
        (["runs", ("over", 1.0), ("read", 50.0), ("over", 60.0)], 50.0 + READ_SECONDS),
        # However long somebody reads.
        (["runs", ("over", 1.0), ("read", UNREAD_SECONDS)], 1.0 + UNREAD_SECONDS),
        (["runs", ("read", 1.0), "runs"], None),
        (["runs", ("read", 1.0), "runs", ("over", 9.0)], 9.0 + UNREAD_SECONDS),
    ],
)
def test_a_server_lives_until_the_end_of_the_run_was_read(
    noted: list[str | tuple[str, float]], ends: float | None
) -> None:
    assert ends_at(*noted) == ends


def test_a_run_too_short_to_be_seen_is_waited_for_like_any_other(tmp_path: Path) -> None:
    noted: list[float | None] = []
    until = noted.append
    life = Lifetime(unread=3600.0, no_run=0.3)
    feed = PageFeed(tmp_path, PageState(), life, lambda at: until(at) or len(noted) < 4)
    entries = sorted(night(20, 2).entries, key=lambda entry: entry.elapsed)
    folder = RunDirectory(tmp_path).run("20260101-000000.000-abcdef")
    folder.mkdir(parents=True)
    (folder / "journal.jsonl").write_bytes(b"".join(map(encode, entries)))
    feed.run()
    assert len(noted) == 4, "its time without a run was over"
    assert noted[-1] is not None and noted[0] is not None and noted[-1] > noted[0] + 3000


def test_a_server_ends_with_its_file(tmp_path: Path) -> None:
    server = Server(tmp_path, 0, controls=False)
    serving = threading.Thread(target=server.serve, args=(None,))
    serving.start()
    (tmp_path / "web.json").unlink()
    serving.join(20)
    assert not serving.is_alive()


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, in this folder."""
    return subprocess.run([*PROGRAM, *arguments], cwd=folder, capture_output=True, text=True)


def test_what_a_start_left_is_known_to_all_and_ended_by_a_person(tmp_path: Path) -> None:
    state = tmp_path / ".beads-workers"
    page = web.open_beside(state, 0, controls=False)
    until(lambda: (live_page.lingering(state) or page).until is not None)
    for command in ("status", "doctor", "clean --dry-run"):
        assert f"pid {page.pid}" in run(tmp_path, *command.split()).stdout, command
    ended = run(tmp_path, "stop")
    assert ended.returncode == 0 and f"(pid {page.pid}) has ended" in ended.stdout
    assert not is_locked(state / "web.json")
    assert run(tmp_path, "stop").returncode == 3, "there is nothing left to stop"
    page = web.open_beside(state, 0, controls=False)
    assert f"pid {page.pid}" in run(tmp_path, "clean").stdout
    assert live_page.lingering(state) is None


def test_a_start_replaces_what_an_earlier_one_left_if_it_is_not_what_is_asked_for(
    tmp_path: Path,
) -> None:
    first = web.open_beside(tmp_path, 0, controls=False)
    assert web.open_beside(tmp_path, 0, controls=False).pid == first.pid
    second = web.open_beside(tmp_path, 0, controls=True)
    assert second.pid != first.pid and second.url != first.url
    lock = try_lock(tmp_path / "lock")
    assert lock is not None
    with pytest.raises(CommandError, match="can control"):
        web.open_beside(tmp_path, 0, controls=False)  # A fleet runs: its page stays.
    os.close(lock)
    assert live_page.end(tmp_path, second)


def test_a_pid_that_does_not_hold_the_file_is_not_ended(tmp_path: Path) -> None:
    lock = try_lock(tmp_path / "web.json")
    assert lock is not None
    with subprocess.Popen(["sleep", "60"]) as bystander:
        page = LivePage("http://127.0.0.1:1/x/", bystander.pid, False, beside=True)
        live_page.note(lock, page, 1, "k" * 43)
        assert live_page.lingering(tmp_path) == page
        assert not live_page.end(tmp_path, page) and bystander.poll() is None
        bystander.kill()
    os.close(lock)


def test_whoever_looks_again_is_told_nothing_old(tmp_path: Path) -> None:
    lock, shown = try_lock(tmp_path / "lock"), PageState()
    assert lock is not None
    shown.say("snapshot", {"state": "of an hour ago"})
    feed = threading.Thread(target=PageFeed(tmp_path, shown, Lifetime(0.0, 0.0, 0.0)).run)
    feed.start()
    until(lambda: b"an hour ago" not in b"".join(islice(shown.follow(), 2)))
    os.close(lock)
    feed.join(20)


def test_before_the_first_run_there_is_none(tmp_path: Path) -> None:
    assert look(tmp_path)["fleet"] == {"state": "none", "until": None}


@pytest.mark.parametrize("killed", [False, True])
def test_the_last_run_is_shown_as_it_ended(tmp_path: Path, killed: bool) -> None:
    entries = sorted(night(200, 8).entries, key=lambda entry: entry.elapsed)
    if killed:
        entries = [each for each in entries if not isinstance(each.record, RunEnded)]
    (run_id,) = (each.record.run_id for each in entries if isinstance(each.record, RunStarted))
    folder = RunDirectory(tmp_path).run(run_id)
    folder.mkdir(parents=True)
    (folder / "journal.jsonl").write_bytes(b"".join(map(encode, entries)))
    told = look(tmp_path)
    assert told["fleet"] == {"state": "lost" if killed else "ended", "until": None}
    snapshot, attempts = told["snapshot"], told["attempts"]
    assert isinstance(snapshot, dict) and isinstance(attempts, dict)
    assert (snapshot["ended"] is None) is killed
    assert len(attempts["rows"]) > 100
