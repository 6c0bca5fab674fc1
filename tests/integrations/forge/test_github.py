"""The source on GitHub: the real ``gh``, over TLS, against a GitHub of our own."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.base.source import Action, Result, Settlement, SourceError
from beads_workers.integrations.forge import gh, reading
from beads_workers.integrations.forge.api import ForgeDown, ForgeError, Gone
from beads_workers.integrations.forge.source import ForgeSource
from tests.contracts.pull_sources import THEM, US, settled, taken
from tests.integrations.forge.test_source import SECRET, given_to_agents, key, source
from tests.integrations.forge.tracker import LOGIN, GitHubTracker
from tests.support.github import PATH

pytestmark = [pytest.mark.peers, pytest.mark.daily(3)]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[GitHubTracker]:
    made = GitHubTracker(tmp_path)
    yield made


def test_an_issue_costs_six_calls_at_most_from_claim_to_close(here: GitHubTracker) -> None:
    number = here.at.issue("one", "", "ready")
    ours = source(here)
    ours.take(0, ())
    before = len(here.at.requests(LOGIN))
    assert taken(ours) == [key(number)]
    assert settled(ours, Settlement(Action.CONFIRM, key(number), by_agent=True)) == [Result.APPLIED]
    close = Settlement(Action.CLOSE, key(number), "done, by claude")
    assert settled(ours, close) == [Result.APPLIED]
    looks = ("/issues?", "/blocked_by?", "/sub_issues?")
    asked = here.at.requests(LOGIN)[before:]
    new = [each for each in asked if not any(look in each for look in looks)]
    assert len(new) <= 6, new
    (receipt,) = here.at.comments(number)
    assert receipt["body"].startswith("done, by claude")
    assert (here.at.read(number)["state"], here.at.rows[number]["labels"]) == ("closed", ["ready"])


def test_pull_requests_are_no_issues_and_a_page_that_is_unchanged_is_free(
    here: GitHubTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        here.at.issue(f"issue {number}", "", "ready")
    shown = here.at.shown

    def with_pull_request(row: dict[str, Any]) -> dict[str, Any]:
        return shown(row) | ({"pull_request": {}} if row["number"] == 3 else {})

    monkeypatch.setattr(here.at, "shown", with_pull_request)
    time.sleep(1.1)
    ours = source(here)
    ours._forge.page = 2  # type: ignore[attr-defined]
    assert {row.issue_id for row in ours.take(0, ()).listed} == {key(n) for n in (1, 2, 4, 5)}
    ours._since = "2026-01-01T00:00:00Z"
    ours.take(0, ())
    before = here.at.not_modified
    ours._since = "2026-01-01T00:00:00Z"
    ours.take(0, ())
    assert here.at.not_modified == before + 3, "each page by itself"


def test_a_conversation_of_several_pages_is_read_whole(here: GitHubTracker) -> None:
    number = here.at.issue("long", "", "ready")
    for at in range(230):
        here.at.comment(number, f"remark {at}", by="alice")
    thread = here.forge().thread(number)
    assert [each.text for each in thread.comments] == [f"remark {at}" for at in range(230)]


def test_two_machines_never_have_one_issue_though_comments_are_late(tmp_path: Path) -> None:
    here = GitHubTracker(tmp_path, late=1.0)
    both = [source(here, actor, sleep=lambda seconds: time.sleep(1.2)) for actor in (US, THEM)]
    for ours in both:
        ours._look_seconds = 3600.0
    count = 6
    for number in range(count):
        here.at.issue(f"race {number}", "", "ready")
    won: list[list[str]] = [[], []]

    def take(at: int) -> None:
        for _ in range(count):
            won[at] += taken(both[at], 2)

    threads = [threading.Thread(target=take, args=(at,)) for at in (0, 1)]
    for thread in threads:
        thread.start()
    for number in range(1, count + 1):
        here.at.comment(number, "what about this?", by="eve")
    for thread in threads:
        thread.join()
    assert not {*won[0]} & {*won[1]}, won
    assert len(won[0]) + len(won[1]) == count
    for number in range(1, count + 1):
        claims = [e for e in here.at.comments(number) if "beads-workers claim" in e["body"]]
        assert len(claims) == 1 and reading.IN_PROGRESS in here.at.rows[number]["labels"]


def test_a_text_that_was_changed_after_its_label_waits(here: GitHubTracker) -> None:
    before = here.at.issue("edited before", "x", by="eve")
    here.at.edit(before, body="harmless", by="eve")
    kept = here.at.issue("kept", "of a stranger", "ready", by="eve")
    edited = here.at.issue("edited", "harmless", "ready", by="eve")
    renamed = here.at.issue("renamed", "", "ready", by="eve")
    time.sleep(1.1)
    here.at.mark(before, "ready", by="alice")
    here.at.edit(edited, body=SECRET, by="eve")
    here.at.edit(renamed, title=SECRET, by="eve")
    by_form = here.at.issue("by a form", SECRET, by="eve")
    here.at.mark(by_form, "ready", by="eve")
    said = given_to_agents(source(here, texts_from="labelled"))
    assert SECRET not in said and "of a stranger" in said and "harmless" in said
    assert "edited before" in said
    assert here.read(key(kept))[0] == "in_progress"


@pytest.mark.parametrize("login", ["renovate[bot]", "eve"])
def test_bots_and_strangers_are_read_where_they_are_trusted(
    here: GitHubTracker, login: str
) -> None:
    here.at.issue("theirs", SECRET, "ready", by=login)
    assert SECRET not in given_to_agents(source(here))
    assert SECRET in given_to_agents(source(here, trusted=(login,)))


# --- what goes wrong -----------------------------------------------------------------------------


def test_a_forge_that_is_asked_too_often_is_left_alone(here: GitHubTracker) -> None:
    here.at.issue("one", "", "ready")
    ours = source(here)
    ours.take(0, ())
    here.at.answers.append((403, {"Retry-After": "1"}, b'{"message": "secondary rate limit"}'))
    with pytest.raises(ForgeDown, match="too often"):
        ours.take(1, ())
    before = len(here.at.asked)
    with pytest.raises(SourceError):
        ours.take(1, ())
    assert len(here.at.asked) == before
    time.sleep(1.1)
    assert taken(ours) == [key(1)]


@pytest.mark.parametrize(
    ("status", "headers", "body", "error"),
    [
        (500, {}, b"oops", ForgeDown),
        (200, {}, b'{"half', ForgeError),
        (302, {"Location": "https://localhost:1/x"}, b"", ForgeError),
        (401, {}, b'{"message": "Bad credentials"}', ForgeError),
        (404, {}, b'{"message": "Not Found"}', Gone),
        (200, {}, b'{"data": {"repository": null}}', ForgeError),
        (200, {}, b'{"errors": [{"message": "Something went wrong"}]}', ForgeError),
        (200, {}, b"[]", ForgeError),
    ],
)
def test_a_bad_answer_is_an_error(
    here: GitHubTracker, status: int, headers: dict[str, str], body: bytes, error: type[Exception]
) -> None:
    number = here.at.issue("one", "", "ready")
    forge = here.forge()
    here.at.answers.append((status, headers, body))
    with pytest.raises(error):
        forge.thread(number)
    assert forge.thread(number).issue.title == "one"


def test_gh_is_given_up_after_a_while_and_is_not_left_running(
    here: GitHubTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gh, "CALL_SECONDS", 0.5)
    ours = here.forge()
    with here.at.lock, pytest.raises(ForgeDown, match="not answered"):
        ours.login()
    found = subprocess.run(["pgrep", "-f", f"gh api.*{PATH}"], capture_output=True).stdout
    assert not found


def test_an_issue_that_is_not_there_is_gone(here: GitHubTracker) -> None:
    ours: ForgeSource = source(here)
    assert ours.look([key(99)]) == {}
    with pytest.raises(Gone):
        here.forge().thread(99)
