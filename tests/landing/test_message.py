"""What a landed commit says: its subject, its body, and its trailers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from beads_workers.core.base.commit_form import SUBJECT_COLUMNS, CommitForm, shortened, wrapped
from beads_workers.core.records.landing import Add
from beads_workers.landing.message import (
    AgentCommit,
    Message,
    inert,
    landed_message,
    our_trailers,
    replayed_message,
    revert_message,
    sealed,
)
from beads_workers.worktrees.ledger import LandedCommit
from tests.support.repository import git, make_repository

ADD = Add("app-7", 2, "run-1", "c" * 40, "b" * 40, title="Add the export", labels=("area/io", "p"))
ME = "An Agent <agent@example.org>"
LONG = (
    "Write what the exporter has read into the folder that the user has named, or else say why not"
)


def message(
    *commits: AgentCommit, form: CommitForm | None = None, add: Add = ADD, author: str = ME
) -> Message:
    """Of a branch with these commits."""
    return landed_message(form or CommitForm(), add, commits, author)


def subject(template: str, **fields: object) -> str:
    """What comes of a template."""
    add = replace(ADD, **fields)  # type: ignore[arg-type]
    return message(form=CommitForm(subject=template), add=add).text.partition("\n")[0]


@pytest.mark.parametrize(
    ("template", "fields", "said"),
    [
        ("{title}", {}, "Add the export"),
        ("{title}", {"title": " Add\nit.\x1b "}, "Add it"),
        ("{title} ({id})", {}, "Add the export (app-7)"),
        ("{type}: {title:lower}", {}, "chore: add the export"),
        (
            "{type}: {title:lower}",
            {"issue_type": "bug", "title": "README lies"},
            "fix: readme lies",
        ),
        ("{type}: {title:lower}", {"title": "HTTPServer hangs"}, "chore: httpServer hangs"),
        ("{type}({label:area/}): {title}", {"issue_type": "feature"}, "feat(io): Add the export"),
        ("{type}({label:none/}): {title}", {}, "chore: Add the export"),
        ("{label:none/}: {title}", {}, "Add the export"),
        ("{label:area/}: {title}", {}, "io: Add the export"),
        ("{title}", {"title": "Call foo() {id}"}, "Call foo() {id}"),
        ("{title}", {"title": ""}, "Work of an agent"),
    ],
)
def test_the_subject_is_made_by_the_template(
    template: str, fields: dict[str, object], said: str
) -> None:
    assert subject(template, **fields) == said


def test_a_long_title_is_shortened_at_a_word_and_stands_whole_in_the_body() -> None:
    form = CommitForm(subject="{type}: {title} ({id})", subject_max=60)
    first, _, body = message(form=form, add=replace(ADD, title=LONG)).text.partition("\n\n")
    assert first == "chore: Write what the exporter has read into the (app-7)"
    assert body.replace("\n", " ") == LONG
    assert max(map(len, body.split("\n"))) <= 72
    assert len(subject("{title}", title="x" * 200)) == 72, "a word may be too long"


def test_the_body_is_what_the_agent_committed_and_not_what_it_said_last() -> None:
    add = replace(ADD, text="I have done it all!")
    one = AgentCommit("Write rows in blocks", "The file did not fit into memory.", ME)
    assert message(one, add=add).text == (
        "Add the export\n\nWrite rows in blocks\n\nThe file did not fit into memory."
    )
    two = [AgentCommit("Read the header", "", ME), AgentCommit("WIP", "", ME), one]
    assert message(*two, AgentCommit("Read the header.", "", ME), add=add).text == (
        "Add the export\n\n- Read the header\n\n- Write rows in blocks\n\n"
        "  The file did not fit into memory."
    )
    assert message(AgentCommit("a", "", ME), AgentCommit("b", "", ME)).text.endswith("\n- a\n- b")


@pytest.mark.parametrize("noise", ["wip", "fixup! Read it", "Add the export", "Fix", "tmp."])
def test_its_last_words_stand_only_where_there_is_nothing_else(noise: str) -> None:
    add = replace(ADD, text="The export is there.\n\nVerified: yes")
    found = message(AgentCommit(noise, "", ME), add=add)
    assert found == Message("Add the export\n\nThe export is there.")


def test_what_we_committed_for_it_is_no_message_of_its_own() -> None:
    own = "Issue: app-7\nAttempt: 2\nRun: run-1"
    made = AgentCommit("Add the export", f"Last words.\n\nCo-authored-by: x <x@y>\n{own}", "Me <m>")
    add = replace(ADD, text="Last words.")
    agents = AgentCommit("Read the header", "", ME)
    found = message(agents, made, add=add, author="Me <m>")
    assert found.text == "Add the export\n\nRead the header"
    assert found.trailers == ("Co-authored-by: x <x@y>", f"Co-authored-by: {ME}")
    assert message(made, add=add, author="Me <m>").text.endswith("\n\nLast words.")
    bare = AgentCommit("Add the export", "Last words.", "Me <m>")
    assert message(agents, bare, add=add).text == "Add the export\n\nRead the header"


def test_nor_is_it_with_a_long_title_and_few_trailers() -> None:
    """As ``style = "merge"`` has it, which lands it as it is."""
    add = replace(ADD, title=LONG, text="It was long. " * 9)
    ours = AgentCommit(shortened(LONG, SUBJECT_COLUMNS), wrapped(add.text))
    assert message(ours, AgentCommit("Test it"), add=add).text == (
        f"{ours.subject}\n\n{wrapped(LONG)}\n\nTest it"
    )


def test_lines_are_wrapped_but_not_code_or_addresses() -> None:
    url, code = f"https://example.org/{'x' * 90}", f"    {'y = 1; ' * 11}"
    text = f"- {'word ' * 30}\n\n{url}\n\n{code}\n```\n{'z ' * 45}\n```"
    body = message(AgentCommit("Do it", text, ME)).text
    lines = body.split("\n")
    assert all(line.startswith("  word") for line in lines if "word" in line and "- " not in line)
    assert url in lines and code.rstrip() in lines and ("z " * 45).rstrip() in lines
    assert {line for line in lines if len(line) > 72} == {url, code.rstrip(), ("z " * 45).rstrip()}


def test_a_very_long_body_ends_at_a_line() -> None:
    text = message(*(AgentCommit(f"step {n}", "", ME) for n in range(2000))).text
    assert len(text) < 4100 and text.endswith("\n\n[...]")


def test_the_agents_trailers_stay_trailers_in_one_block_with_ours() -> None:
    first = AgentCommit("a", "Why.\n\nFixes: #12\n\nCo-authored-by: Pair <p@x>", ME)
    second = AgentCommit("b", "Reviewed-by: R <r@x>\nco-authored-by: pair <P@x>\nCc: x\n  y", ME)
    found = message(first, second)
    assert found.trailers == (
        *("Fixes: #12", "Co-authored-by: Pair <p@x>", "Reviewed-by: R <r@x>", "Cc: x y"),
    )
    whole = sealed(found, ["Issue: app-7"], "Me <m@x>")
    block = whole.split("\n\n")[-1].splitlines()
    assert block == [*found.trailers, "Issue: app-7", "Signed-off-by: Me <m@x>"]


def test_a_sign_off_stands_once_and_last() -> None:
    found = message(AgentCommit("a", "Signed-off-by: Me <m@x>", ME))
    assert sealed(found, ["Issue: i"], "Me <m@x>").endswith(
        "a\n\nIssue: i\nSigned-off-by: Me <m@x>\n"
    )
    assert sealed(Message("a"), [], "") == "a\n"


@pytest.mark.parametrize("paragraph", ["Verified: none\nIssue: other", "issue: 7\nRUN: x"])
def test_trailers_that_are_ours_are_not_taken_over(paragraph: str) -> None:
    assert message(AgentCommit("a", paragraph, ME)).trailers == ()


def test_prose_and_a_breaking_change_stay_in_the_body() -> None:
    body = "The plan:\n\nNote: one thing.\n\nFixes: #1\n\nBREAKING CHANGE: all.\nRefs: #2"
    found = message(AgentCommit("a", body, ME))
    assert found.text.endswith("Note: one thing.\n\nFixes: #1\n\nBREAKING CHANGE: all.")
    assert found.trailers == ("Refs: #2",)


def test_a_long_trailer_is_folded() -> None:
    (line,) = message(AgentCommit("a", f"Link: {'word ' * 30}", ME)).trailers
    assert max(map(len, line.split("\n"))) <= 100 and line.split("\n")[1].startswith(" word")


@pytest.mark.parametrize(
    ("kept", "last", "said"),
    [
        ("none", True, []),
        ("short", True, ["Issue: a"]),
        ("full", True, ["Issue: a", "Attempt: 3", "Run: r", "Verified: tree"]),
        ("full", False, ["Issue: a", "Attempt: 3", "Run: r", "Verified-in: tree"]),
    ],
)
def test_our_trailers_are_as_many_as_is_set(kept: str, last: bool, said: list[str]) -> None:
    form, of = CommitForm(trailers=kept), LandedCommit("", "a", 3, "r", "tree")
    assert our_trailers(form, of, last=last) == said


def test_a_commit_that_lands_by_itself_keeps_its_words() -> None:
    found = replayed_message(CommitForm(), ADD, AgentCommit("Do", "Why.\n\nFixes: #1", ME))
    assert found == Message("Do\n\nWhy.", ("Fixes: #1",))
    assert replayed_message(CommitForm(), ADD, AgentCommit("wip")).text == "Add the export"
    own = AgentCommit("Add the export", "Issue: app-7\nAttempt: 2\nRun: run-1")
    form = CommitForm(subject="{type}: {title:lower}")
    assert replayed_message(form, ADD, own) == Message("chore: add the export")


def test_a_commit_that_takes_back_says_so_as_git_does() -> None:
    found = revert_message(CommitForm(), LONG[:72], "c" * 40)
    first, _, rest = found.partition("\n\n")
    assert first.startswith('Revert "Write what') and first.endswith('"') and len(first) <= 72
    assert rest == f"This reverts commit {'c' * 40}."


def test_git_finds_the_trailers_also_below_a_line_of_scissors(tmp_path: Path) -> None:
    for title in ("# ------------------------ >8 ------------------------", "plain"):
        text = sealed(Message(f"{title}\n\nbody"), ["Issue: a"], "")
        top = make_repository(tmp_path / title[-5:].strip("-"))
        git(top, "commit", "-q", "--allow-empty", "--cleanup=verbatim", "-m", text)
        assert git(top, "log", "-1", "--format=%(trailers)").strip() == "Issue: a", title


def test_in_the_words_of_agents_and_issues_a_forge_finds_nothing() -> None:
    add = replace(ADD, title="Fix #12, says @ann", text="closes team/shop#3")
    theirs = AgentCommit("fixes #2", "See https://example.org/t/s/issues/4\n\nFixes: #5", ME)
    form = CommitForm(subject="{title} (#{id})")
    inert_add, inert_commits = inert(add, [theirs])
    said = sealed(landed_message(form, inert_add, inert_commits, ME), ["Issue: 7"], "")
    assert said.startswith("Fix #\u200b12, says @\u200bann (#app-7)\n")
    assert "fixes #\u200b2" in said and "issues/\u200b4" in said and "Fixes\u200b: #\u200b5" in said
    assert said.endswith("\n\nIssue: 7\n")


def test_a_signature_stays_what_it_is() -> None:
    theirs = AgentCommit("Add the export", "Co-authored-by: x <x@y.example>", ME)
    _, (commit,) = inert(ADD, [theirs])
    assert commit == theirs
