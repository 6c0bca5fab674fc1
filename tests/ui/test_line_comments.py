"""The place of each line of a diff, as git itself writes it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from beads_workers.ui.line_comments import line_comment, places, with_comments
from beads_workers.worktrees.diffs import diff, diff_line
from tests.support.real_agents import git

NAMES = ("cart.py", "a b.py", "ééé.py", "folder/x -y", "--- a", "b/b")
LINES = (
    *("pounds", "-- a/other.py", "++ b/other.py", "@@ -1 +1 @@", "diff --git a/x b/x", ""),
    *("\tx = 1", "+", "- a"),
)
IDENTITY = ("-c", "user.name=a", "-c", "user.email=b")
CONTENTS = st.lists(st.sampled_from(LINES), min_size=1, max_size=12)


@given(st.dictionaries(st.sampled_from(NAMES), st.tuples(CONTENTS, CONTENTS), min_size=1))
@settings(max_examples=15)
def test_each_line_has_the_place_that_it_has_in_its_file(
    files: dict[str, tuple[list[str], list[str]]],
) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        git(folder, "init", "-q")
        for age in (0, 1):
            for name, contents in files.items():
                file = folder / name
                file.parent.mkdir(exist_ok=True)
                file.write_text("".join(f"{line}\n" for line in contents[age]))
            git(folder, "add", "-A")
            git(folder, *IDENTITY, "commit", "-q", "--allow-empty", "--message", "x")
        lines, _ = diff(made, "HEAD^", "HEAD")
    known: dict[str, list[str]] = {}
    for line, place in zip(lines, places(lines), strict=True):
        name, _, number = place.rpartition(":")
        if place and line[0] != "-":
            known.setdefault(name, []).append(number)
            assert line[1:] == diff_line(files[name][1][int(number) - 1]), line
        elif place:
            assert line[1:] in [diff_line(each) for each in files[name][0]]
    changed = {name for name, (old, new) in files.items() if old != new}
    assert changed >= set(known)
    assert sum(map(bool, places(lines))) >= len(changed)


def test_a_name_with_a_quote_is_as_git_spells_it() -> None:
    lines = ["diff --git", '--- "a/a\\"b.py"', '+++ "b/a\\"b.py"', "@@ -1 +1 @@", "-x", "+y"]
    assert places(lines)[4:] == ['a\\"b.py:1', 'a\\"b.py:1']


def test_a_comment_repeats_the_lines_up_to_its_own() -> None:
    lines = ["diff --git", "--- a/x", "+++ b/x", "@@ -1 +1,2 @@", "-a", "+b", "+c"]
    assert line_comment(lines, 3, "no") is None
    found = line_comment(lines, 6, "why?")
    assert found is not None
    assert (found.place, found.code) == ("x:2", "-a\n+b\n+c")
    told = [{"place": found.place, "code": found.code, "text": found.text}]
    assert with_comments(" Not so. ", told) == "Not so.\n\nx:2\n    -a\n    +b\n    +c\nwhy?"
