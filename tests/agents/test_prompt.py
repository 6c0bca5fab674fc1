"""The prompt: the whole issue, each text as data that cannot end its own block."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beads_workers.agents import prompt

WHOLE = prompt.Briefing(
    id="shop-7",
    title="Add the cart",
    priority=1,
    attempt=2,
    author="ann",
    description="A cart with a total.",
    acceptance="The total is a sum.",
    design="One class.",
    notes="Ask nobody.",
    comments=(prompt.Comment("bob", "In euros.", "2026-11-22T10:00:00Z"),),
    labels=("shop", "no-change"),
    parent="shop-1",
    parent_title="A shop",
    delivered=(prompt.Delivered("shop-3", "Prices", "0123abc", "Prices are read."),),
    lessons=prompt.Lessons(
        "verify failed", "1 failed", "Name it total.", ("4567def Add taxes (shop-5)",)
    ),
    verify="pytest -q",
)

JSON = {
    "id": "shop-7",
    "title": "Add the cart",
    "description": "A cart.",
    "acceptance_criteria": "A sum.",
    "design": "One class.",
    "notes": "None.",
    "priority": 0,
    "created_by": "ann",
    "labels": ["shop"],
    "comments": [
        {"author": "bob", "text": "In euros.", "created_at": "2026-11-22T10:00:00Z"},
        {"author": "ann", "text": "Yes."},
        {"author": "eve", "text": " "},
    ],
    "dependencies": [{"id": "shop-1", "title": "A shop", "dependency_type": "parent-child"}],
}


def blocks(text: str) -> list[str]:
    """The contents of all fenced blocks, as a reader of Markdown finds them."""
    found, fence, inside = [], "", list[str]()
    for line in text.split("\n"):
        if not fence and (match := re.match(r"(`{3,})[^`]*$", line)):
            fence, inside = match[1], []
        elif fence and re.fullmatch(r"`+ *", line) and len(line.strip()) >= len(fence):
            found.append("\n".join(inside))
            fence = ""
        elif fence:
            inside.append(line)
    assert not fence
    return found


def test_the_prompt_holds_the_whole_issue() -> None:
    text = prompt.render(WHOLE)
    assert "Issue shop-7 (priority 1, attempt 2)\nLabels: shop, no-change\nPart of: shop-1" in text
    assert "Comment of 2026-11-22T10:00:00Z (by bob):" in text
    assert "Done before this: shop-3, commit 0123abc:" in text
    assert "Description (by ann):" in text
    assert blocks(text) == [
        *("Add the cart", "A shop", "A cart with a total.", "The total is a sum.", "One class."),
        *("Ask nobody.", "In euros.", "Prices\nPrices are read."),
        *("verify failed", "1 failed", "Name it total.", "4567def Add taxes (shop-5)"),
    ]


def test_the_prompt_says_what_it_overrides() -> None:
    rules = prompt.render(WHOLE).partition("\nRules:\n")[2]
    assert "This overrides what CLAUDE.md, AGENTS.md or any other file" in rules
    assert "do not push" in rules
    assert "this has to pass: pytest -q" in rules
    assert "worktree of your own" in rules
    assert "same folder" in prompt.render(replace(WHOLE, worktree=False))
    assert "the project's own tests" in prompt.render(replace(WHOLE, verify=""))


def test_what_there_is_not_leaves_no_trace() -> None:
    text = prompt.render(prompt.Briefing("x-1", "Do it"))
    assert blocks(text) == ["Do it"]
    assert "\n\n\n" not in text and "earlier attempt" not in text
    assert not [line for line in text.splitlines() if line.endswith((":", " ")) and line != "Rules:"
                and not line.startswith("Title")]  # fmt: skip


def test_a_session_that_goes_on_is_told_so() -> None:
    lessons = replace(WHOLE.lessons, same_session=True)
    assert "It is still here: go on with it." in prompt.render(replace(WHOLE, lessons=lessons))
    assert "did not succeed" in prompt.render(WHOLE)


TEXTS = st.text(st.sampled_from("`~ \n\r\t{}abc#\0\ud800é"), max_size=60)


@settings(deadline=None)
@given(TEXTS, TEXTS, TEXTS)
def test_no_text_ends_its_own_block(description: str, comment: str, author: str) -> None:
    """Nor does it move into another one; it stands there as it was."""
    briefing = prompt.Briefing(
        "x-1", "Title", author=author, description=description,
        comments=(prompt.Comment(author, comment),),
    )  # fmt: skip
    expected = [
        text.replace("\0", "\N{REPLACEMENT CHARACTER}").replace("\ud800", "?").strip("\n")
        for text in ("Title", description, comment)
        if text.strip()
    ]
    assert blocks(prompt.render(briefing)) == expected


@settings(deadline=None)
@given(TEXTS)
def test_a_line_of_a_person_stays_a_line(text: str) -> None:
    found = prompt.render(
        prompt.Briefing(text, text, parent=text, labels=(text,)), "{id}{title}{labels}{parent}"
    )
    assert "\n" not in found and "`" not in found


def test_placeholders_in_texts_are_not_looked_at() -> None:
    briefing = prompt.Briefing("x-1", "{id}", description="{notes} {verify}", verify="make {id}")
    assert blocks(prompt.render(briefing)) == ["{id}", "{notes} {verify}"]
    assert "make {id}" in prompt.render(briefing)


def test_a_template_has_all_pieces_as_placeholders() -> None:
    for name in prompt.PLACEHOLDERS:
        assert prompt.render(WHOLE, f"<{{{name}}}>") != f"<{{{name}}}>"
    assert prompt.render(WHOLE, "Do {id}, {title}: {{id}} stays. { } {X}") == (
        "Do shop-7, Add the cart: {id} stays. { } {X}"
    )
    assert prompt.check_template(prompt.TEMPLATE) is None


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{descripton}", "unknown placeholder {descripton}: did you mean {description}?"),
        ("a {qqq} b", "unknown placeholder {qqq}: known are {id}, {title}"),
    ],
)
def test_an_unknown_placeholder_is_refused(template: str, why: str) -> None:
    trouble = prompt.check_template(template)
    assert trouble is not None and trouble.startswith(why)
    with pytest.raises(ValueError, match="unknown placeholder"):
        prompt.render(WHOLE, template)


def test_empty_paragraphs_and_lines_of_a_template_are_left_out() -> None:
    template = "Do it.\n\n{notes}\n\n{design}\n{id}\n\n\nEnd."
    assert prompt.render(prompt.Briefing("x-1", "t"), template) == "Do it.\n\nx-1\n\n\nEnd."


def test_a_block_that_is_too_long_loses_its_middle_and_says_so() -> None:
    text = "a" * 500 + "b" * 500
    found = prompt.block("Notes", text, "ann", 100)
    assert found.startswith("Notes (by ann), without 900 characters of its middle:\n")
    assert blocks(found) == ["a" * 50 + "\n[...]\n" + "b" * 50]


def test_a_prompt_fits_where_it_has_to_be_an_argument() -> None:
    briefing = replace(WHOLE, description="é" * 200_000, notes="n" * 500)
    text = prompt.render(briefing, bytes_max=120_000)
    assert len(text.encode()) <= 120_000
    assert "n" * 500 in text
    with pytest.raises(ValueError, match="does not fit"):
        prompt.render(briefing, bytes_max=500)


@pytest.mark.parametrize(
    ("whose", "texts"), [("all", ["In euros.", "Yes."]), ("owner", ["Yes."]), ("none", [])]
)
def test_an_issue_is_read_as_bd_shows_it(whose: str, texts: list[str]) -> None:
    briefing = prompt.of_issue(JSON, whose)
    assert [comment.text for comment in briefing.comments] == texts
    assert (briefing.acceptance, briefing.parent, briefing.author) == ("A sum.", "shop-1", "ann")
    assert briefing.parent_title == "A shop"
    assert (briefing.priority, briefing.labels) == (0, ("shop",))


def test_what_it_waited_for_is_told_once_it_is_closed() -> None:
    needed = {"title": "Prices", "status": "closed", "close_reason": "commit 0123abc: read"}
    rows = [
        {"id": "shop-3", "dependency_type": "blocks", **needed},
        {"depends_on_id": "shop-4", "type": "blocks", **needed, "close_reason": "tree 0123abc"},
        {"id": "shop-5", **needed, "status": "open"},
        {"id": "shop-6", "dependency_type": "related", **needed},
    ]
    briefing = prompt.of_issue({**JSON, "dependencies": rows})
    assert briefing.delivered == (
        prompt.Delivered("shop-3", "Prices", "0123abc", "commit 0123abc: read"),
        prompt.Delivered("shop-4", "Prices", "", "tree 0123abc"),
    )


SHA = "0123456789abcdef0123456789abcdef01234567"
DIGITS = "1234567890" * 4


@pytest.mark.parametrize(
    ("reason", "commit"),
    [
        ("done, by claude; branch bw/a/1; 1 commit: 0123abcd0123; attempt 1", "0123abcd0123"),
        ("done, by claude; 2 commits: 0123abc 89abcde; verify passed on tree 77777ab", "89abcde"),
        ("done; 9 commits, the last 2: 0123abc 89abcde; attempt 2", "89abcde"),
        ("commit 1234567", "1234567"),
        ("merged as deadbeef", "deadbeef"),
        ("Fixed in 0123abc", "0123abc"),
        ("see `0123abc`.", "0123abc"),
        ("(0123abc, #12)", "0123abc"),
        (f"https://example.invalid/o/r/commit/{SHA}", SHA),
        (f"{DIGITS} is a number of 40 digits", DIGITS),
        ("done, by claude; branch bw/0123abc/1; verify passed on tree 0123abc: x", ""),
        ("the issue bw-0123abc, and 1234567 rows", ""),
        ("an effaced and a defaced facade", ""),
        ("see 0123abc.py and 0123abc/x and 0123abcdefg", ""),
        ("id 123e4567-e89b-12d3-a456-426614174000", ""),
        ("Done.", ""),
        ("", ""),
    ],
)
def test_the_commit_of_a_close_is_found_however_its_reason_is_worded(
    reason: str, commit: str
) -> None:
    assert prompt.commit_in(reason) == commit


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*JSON, "parent"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["author", "text", "type", "id"]), inner)
            ),
            max_leaves=5,
        ),
    )
)
def test_any_object_is_an_issue(fields: dict[str, object]) -> None:
    assert "Rules:" in prompt.render(prompt.of_issue(fields))


@pytest.mark.parametrize(
    ("pushes", "rule"), [(False, "A commit inside of one does not land."), (True, "lands, too")]
)
def test_what_becomes_of_work_in_submodules_is_said(pushes: bool, rule: str) -> None:
    briefing = prompt.Briefing("x-1", "Do it", pushes_submodules=pushes)
    assert "ubmodule" not in prompt.render(briefing)
    said = prompt.render(replace(briefing, submodules=("libs/a", "libs/b")))
    assert "- Submodules: libs/a libs/b. " in said and rule in said
