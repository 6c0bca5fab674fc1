"""Exit statuses and output become outcomes."""

from __future__ import annotations

import pytest

from beads_workers.core.base import limits
from beads_workers.core.base.model import Outcome, OutcomeKind
from beads_workers.core.base.plans import Step, StepKind
from beads_workers.core.workers.worker import failure, last_line, timed_out
from beads_workers.core.workers.worker_events import StepAnswered, StepEnded, StepNotStarted

RUN = Step(StepKind.RUN, ("tool", "x"))


@pytest.mark.parametrize(
    ("tail", "shown"),
    [
        ("", ""),
        ("\n \n\t\n", ""),
        ("one\ntwo\n\n  \n", "two"),
        ("10%\r20%\r\n", "20%"),
        ("\x1b[1;31mred\x1b[0m\x1b]8;;http://x\x07link\x1b]8;;\x07\n", "redlink"),
        ("a\x00b\x08c\u202ed\u2066e", "abcde"),
        ("x" * 5000, "x" * limits.ERROR_CHARS_MAX),
    ],
)
def test_the_last_line_that_shows_anything_without_control_characters(
    tail: str, shown: str
) -> None:
    assert last_line(tail) == shown


@pytest.mark.parametrize(
    ("ended", "kind", "error"),
    [
        (StepEnded(1, "a\nb\n"), OutcomeKind.ERROR, "b"),
        (StepEnded(9), OutcomeKind.ERROR, "exit status 9"),
        (
            StepEnded(
                2,
                "1 failed\nmake[1]: *** [Makefile:9: unit] Error 1\n"
                "make[1]: Leaving directory '/p'\nmake: *** [Makefile:2: test] Error 2\n",
            ),
            OutcomeKind.ERROR,
            "1 failed",
        ),
        (
            StepEnded(2, "ok\nmake: *** No rule to make target 'tets'.  Stop.\n"),
            OutcomeKind.ERROR,
            "make: *** No rule to make target 'tets'.  Stop.",
        ),
        (
            StepEnded(
                2,
                "AssertionError: 4 != 3\n\n-----\nRan 1 test in 0.1s\n\nFAILED (failures=1)\n"
                "make: *** [Makefile:2: test] Error 1\n",
            ),
            OutcomeKind.ERROR,
            "AssertionError: 4 != 3",
        ),
        (
            StepEnded(1, "FAILED test_x.py::test_a - assert 1 == 2\n1 failed, 3 passed in 0.02s\n"),
            OutcomeKind.ERROR,
            "FAILED test_x.py::test_a - assert 1 == 2",
        ),
        (
            StepEnded(1, "    x_test.go:5: wrong\nFAIL\nexit status 1\nFAIL\tshop\t0.002s\n"),
            OutcomeKind.ERROR,
            "x_test.go:5: wrong",
        ),
        (StepEnded(1, "1 failed in 0.1s"), OutcomeKind.ERROR, "1 failed in 0.1s"),
        (StepEnded(2, "make: *** [test] Error 1"), OutcomeKind.ERROR, "make: *** [test] Error 1"),
        (StepEnded(75, "busy"), OutcomeKind.RETRY, "busy"),
        (StepEnded(-9, "", "KILL"), OutcomeKind.ERROR, "killed by signal KILL"),
        (StepEnded(-9, "so far\n", "KILL"), OutcomeKind.ERROR, "killed by signal KILL (so far)"),
        (StepEnded(127), OutcomeKind.ERROR, "Task execution failed: command not found: tool"),
        (
            StepEnded(126, "sh: x: Permission denied"),
            OutcomeKind.ERROR,
            "Task execution failed: not executable: sh: x: Permission denied",
        ),
        (StepNotStarted("no y"), OutcomeKind.ERROR, "Task execution failed: no y"),
    ],
)
def test_how_a_run_failed(ended: StepEnded | StepNotStarted, kind: OutcomeKind, error: str) -> None:
    outcome = failure(RUN, ended)
    assert (outcome.kind, outcome.error) == (kind, error)


@pytest.mark.parametrize(
    ("ended", "kind", "error"),
    [
        (StepEnded(1, "uses eval\n"), OutcomeKind.NOT_FOUND, "refused: uses eval"),
        (StepEnded(2), OutcomeKind.NOT_FOUND, "refused: exit status 2"),
        (StepEnded(75, "later"), OutcomeKind.RETRY, "not validated: later"),
        (StepEnded(127), OutcomeKind.RETRY, "not validated: exit status 127"),
        (StepEnded(-9, "", "KILL"), OutcomeKind.ERROR, "not validated: killed by signal KILL"),
        (StepNotStarted("no y", missing=True), OutcomeKind.RETRY, "not validated: no y"),
    ],
)
def test_a_validator_refuses_for_good_and_only_by_its_own_word(
    ended: StepEnded | StepNotStarted, kind: OutcomeKind, error: str
) -> None:
    outcome = failure(Step(StepKind.VALIDATE, ("check",)), ended)
    assert (outcome.kind, outcome.error) == (kind, error)


@pytest.mark.parametrize(
    ("name", "error"), [("XCPU", "used up its CPU time"), ("XFSZ", "a file grew beyond its limit")]
)
def test_a_limit_that_was_met_is_named(name: str, error: str) -> None:
    assert failure(RUN, StepEnded(-24, "", name)).error == error


def test_an_error_never_passes_its_limit() -> None:
    verify = Step(StepKind.VERIFY, ("sh",))
    assert len(failure(verify, StepEnded(1, "x" * 4096)).error) == limits.ERROR_CHARS_MAX


@pytest.mark.parametrize(
    ("kind", "failed", "late"),
    [
        (StepKind.CLAIM, "claim failed: no", "claim failed: the tracker did not answer"),
        (StepKind.PREPARE, "no worktree: no", "no worktree: not ready after 5 s"),
    ],
)
def test_what_comes_before_a_task_is_no_fault_of_it(kind: StepKind, failed: str, late: str) -> None:
    step = Step(kind, ("tool",))
    assert failure(step, StepEnded(1, "no")) == Outcome(OutcomeKind.RETRY, failed)
    assert timed_out(step, 5.0, StepEnded(-15)) == Outcome(OutcomeKind.RETRY, late)


def test_a_call_that_was_not_begun_in_time_or_ended_for_anothers_sake_is_charged_nothing() -> None:
    late = Outcome(OutcomeKind.TIMEOUT, "timed out after 5 s")
    innocent = Outcome(OutcomeKind.RETRY, "not started")
    assert timed_out(RUN, 5.0, StepAnswered(innocent)) == innocent
    for kind in (OutcomeKind.SUCCESS, OutcomeKind.ERROR, OutcomeKind.CANCELLED):
        assert timed_out(RUN, 5.0, StepAnswered(Outcome(kind))) == late
    assert timed_out(RUN, 5.0, StepEnded(75)) == late
