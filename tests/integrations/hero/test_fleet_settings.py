"""``start --source redis://...``: which queue that is, what runs its scripts, and each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from beads_workers.cli.config import resolve
from beads_workers.cli.kinds import kind_said
from beads_workers.errors import CommandError
from beads_workers.integrations.hero.fleet_settings import find_queue, find_scripts, prepare_hero
from beads_workers.options import FILE_NAME, Resolved
from tests.support.trust import TRUSTED

TABLE = """
[hero]
url = "redis://fleet@db.example:7000/2?password_file=/run/secret"
worker = "w1"
naming = "later"
[hero.contexts.py]
command = ["python3", "-"]
[hero.contexts."*"]
command = ["cat"]
"""


def resolve_with(folder: Path, source: str, table: str = "", **options: object) -> Resolved:
    (folder / FILE_NAME).write_text(table)
    return resolve({"source": source, **options}, folder, TRUSTED)


@pytest.mark.parametrize(
    ("source", "hero"),
    [
        ("redis://h/0?worker=w", True),
        ("rediss://h", True),
        ("redis+unix:///s", True),
        ("hero", True),
        ("bd", False),
        (None, False),
        ("postgresql://h", False),
    ],
)
def test_a_redis_is_told_from_other_sources(source: str | None, hero: bool) -> None:
    kind = kind_said(source)
    assert (kind is not None and kind.name == "hero") is hero


def test_the_url_says_all_that_is_needed(tmp_path: Path) -> None:
    source = "redis://ann@db:7000/3?worker=rhai&naming=cluster&lease=5s&reply=1h&password_env=PW"
    queue = find_queue(resolve_with(tmp_path, source, retry_delay=2.5))
    assert queue.url == "redis://ann@db:7000/3?password_env=PW"
    assert (queue.worker, queue.lease_seconds, queue.reply_seconds) == ("rhai", 5.0, 3600)
    assert queue.keys["work"] == "{{hero}}:work_queue:{worker}"
    assert queue.retry_seconds == 2.5


def test_what_it_does_not_say_stands_in_the_settings_file(tmp_path: Path) -> None:
    queue = find_queue(resolve_with(tmp_path, "hero", TABLE))
    assert queue.url == "redis://fleet@db.example:7000/2?password_file=%2Frun%2Fsecret"
    assert (queue.worker, queue.keys["work"]) == ("w1", "hero:q:work:type:{worker}")
    assert (queue.retry_seconds, queue.lease_seconds) == (1.0, 15.0)
    other = find_queue(resolve_with(tmp_path, "redis://h/0?worker=w2&naming=text", TABLE))
    assert (other.worker, other.keys["work"]) == ("w2", "hero:work_queue:{worker}")


def test_a_command_runs_what_no_context_of_its_own_has(tmp_path: Path) -> None:
    work = find_scripts(resolve_with(tmp_path, "hero", TABLE, command=("sh", "-e")))
    assert {c.name: c.command for c in work.contexts} == {"py": ("python3", "-"), "*": ("sh", "-e")}
    assert work.command is None


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("redis://h/0", "whose queue is it"),
        ("redis://:secret@h/0?worker=w", "a password in a URL"),
        ("redis://h/0?worker=w&shoe=7", "nobody knows 'shoe'"),
        ("redis://h/0?worker=w&naming=old", "no such naming"),
        ("redis://h/0?worker=w&lease=0s", "lease is from 1 second"),
        ("redis://h/x?worker=w", "is a number"),
        ("hero", "says no url"),
    ],
)
def test_a_mistake_is_told_in_a_line_without_the_secret(
    tmp_path: Path, source: str, why: str
) -> None:
    with pytest.raises(CommandError, match=why) as raised:
        find_queue(resolve_with(tmp_path, source))
    assert raised.value.exit_code == 2
    assert "secret" not in f"{raised.value} {raised.value.hint}"


def test_nothing_is_run_that_nobody_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="nothing to run scripts with"):
        find_scripts(resolve_with(tmp_path, "redis://h/0?worker=w"))


def test_what_only_means_something_to_a_tracker_is_refused(tmp_path: Path) -> None:
    resolved = resolve_with(tmp_path, "redis://h/0?worker=w", command=("sh",), label=("x",))
    with pytest.raises(CommandError, match="--label does not go with Hero jobs"):
        prepare_hero(resolved, (), owned=True)


def test_a_fleet_claims_nothing_ahead_and_leaves_retries_to_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    resolved = resolve_with(tmp_path, "redis://h/0?worker=w", command=("sh",))
    settings = prepare_hero(resolved, (), owned=True)
    assert (settings.source, settings.claims_ahead, settings.policy.hand_back) == (
        "hero",
        False,
        True,
    )
    assert settings.filters.bring == ()
    assert settings.state_directory == str(tmp_path / ".beads-workers")
