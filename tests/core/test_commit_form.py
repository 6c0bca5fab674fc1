"""The settings of messages: what may be said, and what a commit says that is made for an agent."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from beads_workers.core.commit_form import (
    CO_AUTHOR,
    NOBODY,
    OWN_TRAILERS,
    CommitForm,
    filled_trailers,
    own_trailers,
    read_co_author,
    read_subject,
    read_types,
)
from beads_workers.core.plain import from_plain


@pytest.mark.parametrize("text", ["{title}", "{type}({label:area/}): {title:lower} [{id}]"])
def test_a_template_names_what_there_is(text: str) -> None:
    assert read_subject(text) == text


@pytest.mark.parametrize("text", ["", "fixed", "{titel}", "{title", "{label:}", "a\n{title}", 7])
def test_another_template_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"\{title:lower\}"):
        read_subject(text)


def test_types_are_added_to_those_that_are_known() -> None:
    assert dict(read_types({"bug": "bugfix", "task": "build"})) == {
        "bug": "bugfix",
        "feature": "feat",
        "task": "build",
    }
    for wrong in ({"bug": ""}, {"bug": 1}, "bug", 7, {"a": "b\n"}):
        with pytest.raises(ValueError, match="a word for a type"):
            read_types(wrong)


def test_a_co_author_has_an_address() -> None:
    assert read_co_author(CO_AUTHOR) == CO_AUTHOR and read_co_author("none") == NOBODY
    for wrong in ("", "Me", "<m@x>", "Me <m x>", 7):
        with pytest.raises(ValueError, match="NAME <MAIL>"):
            read_co_author(wrong)


def test_a_form_comes_back_from_json() -> None:
    form = CommitForm("{id}", 80, (("a", "b"),), True, "none")
    assert from_plain(CommitForm, json.loads(json.dumps(asdict(form)))) == form


def test_a_commit_that_is_made_for_an_agent_names_it_and_one_for_a_command_does_not() -> None:
    templates = own_trailers(CommitForm(trailers="none"), "squash", CO_AUTHOR)
    said = {"id": "a-{run}", "attempt": "1", "run": "r"}
    ours = ["Issue: a-{run}", "Attempt: 1", "Run: r"]
    assert filled_trailers(templates, "claude", **said) == [
        "Co-authored-by: claude <claude@localhost>",
        *ours,
    ]
    assert filled_trailers(templates, "", **said) == ours


def test_what_lands_as_it_is_says_no_more_than_others_do() -> None:
    form = CommitForm(trailers="short", signoff=True)
    assert own_trailers(form, "merge", NOBODY) == (
        OWN_TRAILERS[0],
        "Signed-off-by: {committer}",
    )
    assert own_trailers(CommitForm(trailers="none"), "merge", NOBODY) == ()
