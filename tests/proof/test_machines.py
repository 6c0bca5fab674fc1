"""The proof of machines itself: what it finds in what was seen, and some of its cases for real."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof.machines import CASES, Case, run
from tests.proof.machines_rig import Beat, at_once, lives

LEASES = {"a" * 32: "bw-1", "b" * 32: "bw-1", "c" * 32: "bw-2"}
A, B, C = LEASES
QUICK = tuple(f"killed: {each}, 2 s" for each in ("ssh", "line", "guard", "relay"))
"""Cases without a wait for a lease."""


def beat(nonce: str, at: float, host: str = "n1") -> Beat:
    return Beat(LEASES[nonce], nonce, host, at)


def test_two_attempts_at_once_are_found_by_their_beats() -> None:
    apart = [beat(A, 1.0), beat(A, 3.0), beat(B, 3.1, "n2"), beat(B, 5.0, "n2"), beat(C, 2.0)]
    assert list(at_once(lives(apart, LEASES, {}))) == []
    (found,) = at_once(lives([*apart, beat(A, 3.5)], LEASES, {}))
    assert "bw-1, aaaaaaaa on n1 and bbbbbbbb on n2, for 0.4 s" in found


def test_two_attempts_at_once_are_found_by_their_processes() -> None:
    beats = [beat(A, 1.0), beat(A, 3.0), beat(B, 3.1, "n2"), beat(B, 5.0, "n2")]
    assert list(at_once(lives(beats, LEASES, {A: (0.5, 3.05), B: (3.08, 5.5)}))) == []
    assert len(list(at_once(lives(beats, LEASES, {A: (0.5, 3.6)})))) == 1
    assert len(list(at_once(lives([], LEASES, {A: (0.5, 3.6), B: (3.5, 4.0)})))) == 1
    assert list(at_once(lives([], LEASES, {A: (0.5, 3.6), C: (3.5, 4.0), "d": (0, 9)}))) == []


def test_an_attempt_at_home_beside_one_on_a_host_is_found() -> None:
    beats = [beat(A, 1.0), beat(A, 3.0), Beat("bw-1", "home", "vm", 2.0)]
    assert len(list(at_once(lives(beats, LEASES, {})))) == 1


def test_a_share_has_one_of_each_kind_and_no_two_cases_have_one_name() -> None:
    kinds = {case.kind for case in CASES}
    assert {case.kind for case in CASES[: len(kinds)]} >= kinds - {"stop", "restarted"}
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.peers
@pytest.mark.share(4)
@pytest.mark.parametrize("case", [c for c in CASES if c.name in QUICK], ids=lambda c: str(c.name))
def test_a_fault_ends_no_attempt_twice_and_leaves_nothing(case: Case, tmp_path: Path) -> None:
    assert run(case, tmp_path) == []
