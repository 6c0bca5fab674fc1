"""The settings of messages: what may be said, and what a commit says that is made for an agent."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from beads_workers.core.base import commit_form
from beads_workers.core.base.plain import from_plain


@pytest.mark.parametrize("text", ["{title}", "{type}({label:area/}): {title:lower} [{id}]"])
def test_a_template_names_what_there_is(text: str) -> None:
    assert commit_form.read_subject(text) == text


@pytest.mark.parametrize("text", ["", "fixed", "{titel}", "{title", "{label:}", "a\n{title}", 7])
def test_another_template_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"\{title:lower\}"):
        commit_form.read_subject(text)


def test_types_are_added_to_those_that_are_known() -> None:
    assert dict(commit_form.read_types({"bug": "bugfix", "task": "build"})) == {
        "bug": "bugfix",
        "feature": "feat",
        "task": "build",
    }
    for wrong in ({"bug": ""}, {"bug": 1}, "bug", 7, {"a": "b\n"}):
        with pytest.raises(ValueError, match="a word for a type"):
            commit_form.read_types(wrong)


def test_a_co_author_has_an_address() -> None:
    assert (
        commit_form.read_co_author(commit_form.CO_AUTHOR) == commit_form.CO_AUTHOR
        and commit_form.read_co_author("none") == commit_form.NOBODY
    )
    for wrong in ("", "Me", "<m@x>", "Me <m x>", 7):
        with pytest.raises(ValueError, match="NAME <MAIL>"):
            commit_form.read_co_author(wrong)


def test_a_form_comes_back_from_json() -> None:
    form = commit_form.CommitForm("{id}", 80, (("a", "b"),), True, "none")
    assert from_plain(commit_form.CommitForm, json.loads(json.dumps(asdict(form)))) == form


def test_a_commit_that_is_made_for_an_agent_names_it_and_one_for_a_command_does_not() -> None:
    templates = commit_form.own_trailers(
        commit_form.CommitForm(trailers="none"), "squash", commit_form.CO_AUTHOR
    )
    values = {"id": "a-{run}", "attempt": "1", "run": "r"}
    ours = ["Issue: a-{run}", "Attempt: 1", "Run: r"]
    assert commit_form.filled_trailers(templates, "claude", **values) == [
        "Co-authored-by: claude <claude@localhost>",
        *ours,
    ]
    assert commit_form.filled_trailers(templates, "", **values) == ours


def test_what_lands_as_it_is_says_no_more_than_others_do() -> None:
    form = commit_form.CommitForm(trailers="short", signoff=True)
    assert commit_form.own_trailers(form, "merge", commit_form.NOBODY) == (
        commit_form.OWN_TRAILERS[0],
        "Signed-off-by: {committer}",
    )
    assert (
        commit_form.own_trailers(
            commit_form.CommitForm(trailers="none"), "merge", commit_form.NOBODY
        )
        == ()
    )
