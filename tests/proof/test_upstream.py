"""``scripts/prove upstream``: what it makes of what pytest says."""

from __future__ import annotations

from pathlib import Path

from tests.proof.upstream import Account, read_report

REPORT = """
<testsuites><testsuite>
<testcase name="test_fine[fork]"><system-out>said</system-out></testcase>
<testcase name="test_slow[fork]"><failure message="assert 2 &lt; 1&#10;more">at</failure></testcase>
<testcase name="test_set_up"><error message="no server">trace</error></testcase>
<testcase name="test_of_another_python"><skipped message="needs 3.12">where</skipped></testcase>
</testsuite></testsuites>
"""


def test_only_what_ran_and_held_has_passed(tmp_path: Path) -> None:
    account, report = Account(), tmp_path / "report.xml"
    report.write_text(REPORT)
    assert read_report(account, report)
    assert (account.cases, account.passed) == (4, 1)
    assert account.broken == [
        "test_slow[fork]: failure: assert 2 < 1",
        "test_set_up: error: no server",
        "test_of_another_python: skipped: needs 3.12",
    ]
    assert account.promises[0]["broken"] == account.broken


def test_a_round_without_a_test_is_told_from_one_that_passed(tmp_path: Path) -> None:
    account, report = Account(), tmp_path / "report.xml"
    assert not read_report(account, report)
    report.write_text("<testsuites><testsuite/></testsuites>")
    assert not read_report(account, report)
