"""``--web``: its words, the one server for a run directory, and the feed from run to run."""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
from itertools import islice
from pathlib import Path

import pytest

from beads_workers.cli import web
from beads_workers.cli.errors import CommandError
from beads_workers.cli.web import PageFeed, Server, find, with_port
from beads_workers.core.journal import RunEnded, RunStarted, encode
from beads_workers.runtime.locks import try_lock
from beads_workers.runtime.run_directory import RunDirectory
from beads_workers.ui.web_shown import Shown
from tests.support.fleet import until
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
    assert find(tmp_path, controls=False) is None
    first = Server(tmp_path, 0, controls=False)
    file = tmp_path / "web.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert find(tmp_path, controls=False) == first.page
    with pytest.raises(CommandError, match="served here already"):
        Server(tmp_path, 0, controls=False)
    first.close()
    key = json.loads(file.read_bytes())["key"]
    assert find(tmp_path, controls=False) is None
    second = Server(tmp_path, 0, controls=True)
    assert (second.web.server_port, second.page.controls) == (first.web.server_port, True)
    assert json.loads(file.read_bytes())["key"] == key not in second.page.url
    assert second.web.token != first.web.token
    second.close()


def test_a_page_of_the_other_kind_is_refused(tmp_path: Path) -> None:
    server = Server(tmp_path, 0, controls=True)
    with pytest.raises(CommandError, match="can control") as refused:
        find(tmp_path, controls=False)
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
    shown = Shown()
    shown.enter()
    PageFeed(directory, shown, linger=0.0).run()  # It ends at once: nobody was there.
    feed = PageFeed(directory, shown, linger=None)
    feed._show_last()
    stream = shown.follow()
    next(stream)
    blocks = [block.split(b"\n") for block in next(stream).split(b"\n\n") if block]
    pairs = [(line[0][7:].decode(), json.loads(line[1][6:])) for line in blocks if len(line) == 2]
    return dict(pairs)


def test_it_outlives_a_fleet_by_so_long_and_no_longer(tmp_path: Path) -> None:
    lock = try_lock(tmp_path / "lock")
    assert lock is not None
    feed = threading.Thread(target=PageFeed(tmp_path, Shown(), linger=0.5).run)
    feed.start()
    feed.join(2.5)
    assert feed.is_alive()
    os.close(lock)
    feed.join(20)
    assert not feed.is_alive()


def test_whoever_looks_again_is_told_nothing_old(tmp_path: Path) -> None:
    lock, shown = try_lock(tmp_path / "lock"), Shown()
    assert lock is not None
    shown.say("snapshot", {"state": "of an hour ago"})
    feed = threading.Thread(target=PageFeed(tmp_path, shown, linger=0.0).run)
    feed.start()
    until(lambda: b"an hour ago" not in b"".join(islice(shown.follow(), 2)))
    os.close(lock)
    feed.join(20)


def test_before_the_first_run_there_is_none(tmp_path: Path) -> None:
    assert look(tmp_path)["fleet"] == {"state": "none"}


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
    assert told["fleet"] == {"state": "lost" if killed else "ended"}
    snapshot, attempts = told["snapshot"], told["attempts"]
    assert isinstance(snapshot, dict) and isinstance(attempts, dict)
    assert (snapshot["ended"] is None) is killed
    assert len(attempts["rows"]) > 100
