"""A life on each forge as it was recorded: adapters ask the same, and understand the answers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from beads_workers.integrations.forge.api import ForgeError
from tests.integrations.forge.recording import (
    AGAIN,
    RECORD,
    RECORDED,
    Json,
    Recording,
    kept,
    record_github,
    replayed,
    shape,
    text_of,
)

KINDS = sorted(RECORD)


@pytest.mark.parametrize("kind", KINDS)
def test_an_adapter_asks_and_understands_as_it_did(kind: str, tmp_path: Path) -> None:
    then = kept(kind)
    now = replayed(kind, then, tmp_path)
    assert now.told == then.told
    assert now.exchanges == then.exchanges, f"less was asked; {AGAIN}"
    assert now.seen


@pytest.mark.parametrize("kind", KINDS)
def test_a_recording_is_small_and_names_nobody(kind: str) -> None:
    text = (RECORDED / f"{kind}.json").read_text()
    assert len(text) < 100_000
    assert {*re.findall(r"https?://([^/:\"]+)", text)} <= {"127.0.0.1", "localhost"}
    assert not re.search(r"[0-9a-f]{40}|[\w.]+@[\w.]+\.\w|token", text)
    assert {*re.findall(r"\b\d{4}-\d\d-\d\dT", text)} <= {"2026-01-01T", "0001-01-01T"}


@pytest.mark.parametrize("kind", KINDS)
def test_each_request_counts(kind: str, tmp_path: Path) -> None:
    then = kept(kind)
    for at, exchange in enumerate(then.exchanges):
        other = exchange | {"body": {"text": "another"}}
        exchanges = [*then.exchanges[:at], other, *then.exchanges[at + 1 :]]
        with pytest.raises(AssertionError):
            replayed(kind, replace(then, exchanges=exchanges), tmp_path)
    with pytest.raises(AssertionError, match="nothing more"):
        replayed(kind, replace(then, exchanges=then.exchanges[:-1]), tmp_path)


def changed(data: Any, change: Callable[[Json], None]) -> Any:
    """Return an answer in which every object is changed."""
    if isinstance(data, list):
        return [changed(each, change) for each in data]
    if not isinstance(data, dict):
        return data
    made = {name: changed(each, change) for name, each in data.items()}
    change(made)
    return made


def without(name: str) -> Callable[[Json], None]:
    return lambda fields: fields.pop(name, None)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("gitea", name) for name in ("login", "number", "title", "body", "state", "labels")),
        *(("gitea", name) for name in ("created_at", "updated_at", "permissions", "id")),
        *(("gitea", name) for name in ("version", "assignees", "content_version", "is_locked")),
        *(("github", name) for name in ("login", "number", "title", "body", "state", "labels")),
        *(("github", name) for name in ("url", "createdAt", "updatedAt", "permission")),
        *(("github", name) for name in ("pageInfo", "timelineItems", "lastEditedAt", "locked")),
        *(("github", name) for name in ("issue_dependencies_summary", "sub_issues_summary")),
    ],
)
def test_a_field_that_is_missing_is_noticed(kind: str, name: str, tmp_path: Path) -> None:
    then = kept(kind)
    before = replayed(kind, then, tmp_path)
    exchanges = [each | {"data": changed(each["data"], without(name))} for each in then.exchanges]
    try:
        now = replayed(kind, replace(then, exchanges=exchanges), tmp_path)
    except (ForgeError, AssertionError, LookupError):
        return
    assert before.seen - now.seen, "it was never read"


# --- recorded anew -------------------------------------------------------------------------------


@pytest.mark.peers
def test_a_gitea_of_today_is_asked_the_same_and_answers_the_same_fields(tmp_path: Path) -> None:
    then = kept("gitea")
    new = RECORD["gitea"]()
    # An issue may be asked for once more or less, as seconds end: so these are sets.
    assert shapes(new) == shapes(then)
    assert new.told[1:] == then.told[1:], "all but the version"
    missing = replayed("gitea", then, tmp_path).seen - new.seen
    assert missing == set(), "\n".join(sorted(missing))


def shapes(recording: Recording) -> set[str]:
    """The requests, without times and ids."""
    return {json.dumps(shape(each)) for each in recording.exchanges}


@pytest.mark.peers
def test_our_github_answers_as_recorded() -> None:
    assert text_of(record_github(), "github") == (RECORDED / "github.json").read_text()
