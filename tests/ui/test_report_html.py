"""The report's page as text: everything is in it, nothing is loaded, nothing breaks out of it."""

from __future__ import annotations

import base64
import hashlib
import re
from xml.etree.ElementTree import Element

import pytest

from beads_workers.core.records import journal as rec
from beads_workers.core.records.receipts import Receipt
from beads_workers.core.views.history import OUTCOMES
from beads_workers.ui.report_html import page
from beads_workers.ui.report_sections import el, folded_table, render
from tests.core.test_history import account, begun
from tests.support.journals import HOSTILE_TITLES, Script, agents_night, night, started
from tests.ui.test_report_sections import Read


@pytest.fixture(scope="module")
def night_page() -> str:
    """The page of a bad night."""
    return page(account(night(300, 8)))


def test_every_attempt_has_its_bar_and_its_row(night_page: str) -> None:
    assert len(re.findall(r'<a href="#a\d+" class="b o-', night_page)) == 300
    rows = re.findall(r'<tr id="a(\d+)"', night_page)
    assert rows == [str(n) for n in range(300)]


def test_nothing_is_loaded_and_the_policy_names_just_what_is_inside(night_page: str) -> None:
    assert not re.findall(r'(?:src|href|action|data|poster)="(?!#|data:image/svg)', night_page)
    assert "@import" not in night_page and not re.findall(r"url\((?!#)", night_page)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', night_page)
    assert policy.startswith("default-src 'none'; ")
    for tag in ("style", "script"):
        (inside,) = re.findall(f"<{tag}>(.*?)</{tag}>", night_page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not re.findall(r'\s(?:style|on\w+)="', night_page), "the policy would forbid these"


def test_text_from_issues_adds_no_markup(night_page: str) -> None:
    read = Read(night_page)
    assert read.tags.count("script") == 1 and "img" not in read.tags
    assert HOSTILE_TITLES[0] in read.text
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", night_page
    )
    night_page.encode("utf-8")


def test_a_thousand_attempts_stay_under_a_megabyte() -> None:
    for workers in (8, 100):
        assert len(page(account(night(1000, workers))).encode()) < 1_000_000


def test_a_thousand_long_errors_in_another_script_stay_under_a_megabyte() -> None:
    script = begun()
    for n in range(1000):
        verdict = "quarantined" if n % 3 == 0 else "requeue"
        script.attempt("W1", f"a{n}", n, n + 1, "error", verdict, error=f"{n} " + "ошибка " * 45)
    assert len(page(account(script)).encode()) < 1_000_000


def test_megabytes_of_title_and_error_stay_a_small_page() -> None:
    script = begun()
    for n in range(20):
        script.attempt("W1", f"a{n}", n, n + 1, "error", "quarantined", error="x" * 2000,
                       title="y" * 60_000)  # fmt: skip
    assert len(page(account(script)).encode()) < 100_000


def test_the_style_knows_every_outcome() -> None:
    style = page(account(begun())).partition("<style>")[2].partition("</style>")[0]
    for outcome in OUTCOMES:
        assert f".o-{outcome} rect" in style
        assert f"#show-{outcome}:not(:checked)" in style


@pytest.mark.parametrize("alive", [True, False])
def test_a_run_without_a_single_attempt_has_a_page(alive: bool) -> None:
    script = begun()
    script.add(1.0, rec.WorkerStarted("W1", 5))
    shown = page(account(script, alive=alive))
    assert "No issue was taken." in shown
    assert ("still running" if alive else "killed") in shown


def test_quarantined_issues_are_a_paragraph_for_each_cause() -> None:
    script = begun()
    for n in range(40):
        script.attempt("W1", f"a{n}", n, n + 1, "error", "quarantined", error=f"boom {n}: no rule",
                       title=f"Mend part {n}")  # fmt: skip
    script.attempt("W1", "alone", 50, 51, "error", "quarantined", error="its own reason")
    read = Read(page(account(script)))
    section = read.text.partition("Quarantined")[2].partition("Failures by reason")[0]
    assert section.count("boom #: no rule") == 1 and section.count("its own reason") == 1
    assert "40 x boom #: no rule" in section and "40 issues" in section
    assert "Mend part 39 after 1 attempt" in section


def test_a_long_table_folds_and_loses_no_row() -> None:
    def rows(count: int) -> list[Element]:
        return [el("tr", el("td", f"row {n}")) for n in range(count)]

    one, *none = folded_table("x", ["A"], rows(9))
    assert not none and "row 8" in render(one), "one more row is no longer than a fold"
    first, rest = folded_table("x", ["A"], rows(30))
    assert rest.tag == "details" and "and 22 more" in render(rest)
    text = render(first) + render(rest)
    assert all(text.count(f">row {n}<") == 1 for n in range(30))
    assert folded_table("x", ["A"], []) == []


def test_receipts_and_costs_are_in_the_page_and_add_no_markup() -> None:
    text = page(account(agents_night()))
    read = Read(text)
    assert read.tags.count("script") == 1
    for said in (
        "What it cost", "For you to look at", "says that no change is needed",
        "2 commits on bw/a/2: 3 files changed", "passed: make test", "</script> done", "$0.75",
    ):  # fmt: skip
        assert said in read.text, said
    assert "What it cost" not in page(account(night(20, 2)))


def test_a_failure_has_the_last_lines_of_its_check_and_what_landed_its_diff() -> None:
    script = Script()
    lesson = "\n".join(["$ make test", *(f"line {n}" for n in range(30)), HOSTILE_TITLES[0]])
    receipt = Receipt("done", agent="claude", lesson=lesson)
    script.add(0.0, started(1))
    script.attempt("W1", "a", 1.0, 9.0, "error", "quarantined", error="no", receipt=receipt)
    told = account(script)
    (issue,) = told.issues
    shown = page(told, [(issue, "c" * 40, ["diff --git a/x b/x", "+<b>new</b>"])])
    last = re.findall(r"<summary>its last lines</summary><pre><bdi>([^<]*)", shown)
    assert last == ["line 16"], "the last 15 of them"
    assert "+&lt;b&gt;new&lt;/b&gt;" in shown and "cccccccccccc" in shown
