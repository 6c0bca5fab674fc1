"""The proof of resets itself: a share of its cases, that they differ, and that a fault is seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from beads_workers.core.records.receipts import Closed
from beads_workers.core.schedule.accounts import Account, Accounts
from tests.proof.resets import FORMS, Case, Fleet, cases, main, wrong
from tests.support.shares import examples

JUST_PASSED = Case("time of day", "UTC", "noon", 90.0, 1200.0, True, "one run", 900.0)


def test_no_account_is_closed_for_longer_than_a_probe_nor_asked_more_often(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """``scripts/prove resets`` tries ten times as many."""
    assert main(["--cases", str(examples(200)), "--json"]) == 0, capsys.readouterr().out


def test_the_cases_differ_and_have_each_form() -> None:
    found = cases(2000, 1)
    assert len(set(found)) == 2000
    assert {case.form for case in found} == set(FORMS)


@pytest.mark.parametrize(
    ("seconds", "what"), [(86_400.0, "after it had opened"), (1.0, "times, in ")]
)
def test_a_fleet_that_waits_for_tomorrow_or_asks_all_the_time_is_seen(
    tmp_path: Path, seconds: float, what: str
) -> None:
    class Mutant(Accounts):
        def _probe_at(self, account: Account, closed: Closed) -> float:
            return self._effects.epoch + seconds

    class Run(Fleet):
        kind = Mutant

    assert list(wrong(JUST_PASSED, tmp_path / "right")) == []
    (found,) = wrong(JUST_PASSED, tmp_path / "wrong", Run)
    assert what in found
