"""Every recorded ending of a real command line is judged as its label says: none falsely done,
none falsely failed, and each reset to the minute."""

from __future__ import annotations

import signal
from zoneinfo import ZoneInfo

import pytest

from beads_workers.agents.adapter import Adapter, load
from beads_workers.agents.events import Kind, Tally
from beads_workers.agents.verdict import RunEnding, Verdict
from tests.agents.endings import RunEnding as Recorded
from tests.agents.endings import read_corpus

CORPUS = read_corpus()
PROGRAMS = sorted({(recorded.agent, recorded.version) for recorded in CORPUS})
STRUCTURED = "stream-json"
TEXTS_LEAVE_OUT = 60.0
"""Seconds."""


def judged(recorded: Recorded, piece_bytes: int = 1 << 16) -> Verdict:
    """The verdict of the adapter that would have run it, from bytes in such pieces."""
    adapter = _adapter(recorded)
    tally, parser = Tally(), adapter.parser()
    for at in range(0, len(recorded.stdout), piece_bytes):
        tally.apply(parser.feed(recorded.stdout[at : at + piece_bytes]))
    tally.apply(parser.end())
    tally.apply(parser.feed(recorded.stderr.encode()) + parser.end())
    return adapter.verdict(tally, _ending(recorded, "result" if tally.result else "timeout"))


def _adapter(recorded: Recorded) -> Adapter:
    found = load(recorded.agent if recorded.form == STRUCTURED else "plain")
    assert found is not None
    return found


def _ending(recorded: Recorded, clock: str) -> RunEnding:
    return RunEnding(
        status=recorded.status,
        signal=signal.Signals[f"SIG{recorded.signal}"] if recorded.signal else None,
        clock=clock if recorded.sent else "",
        changed=recorded.git.commits > 0 or recorded.git.changed,
        at=recorded.began + recorded.seconds,
        zone=ZoneInfo(recorded.zone),
    )


@pytest.mark.parametrize("program", PROGRAMS, ids="-".join)
def test_every_label_is_met(program: tuple[str, str]) -> None:
    for recorded in (each for each in CORPUS if (each.agent, each.version) == program):
        verdict, label = judged(recorded), recorded.label
        assert verdict.kind is Kind(label.verdict), (recorded.name, verdict)
        assert (verdict.until is None) == (label.until is None), (recorded.name, verdict)
        if verdict.until is not None and label.until is not None:
            assert abs(verdict.until - label.until) < TEXTS_LEAVE_OUT, (recorded.name, verdict)
        assert (verdict.kind is Kind.DONE) or verdict.why, recorded.name
        assert verdict.window in ("", label.window), (recorded.name, verdict)


def test_the_corpus_has_every_verdict_of_both_programs() -> None:
    for agent in ("claude", "codex"):
        seen = {r.label.verdict for r in CORPUS if r.agent == agent}
        missing = {kind.value for kind in Kind} - seen
        assert missing <= ({"capped"} if agent == "codex" else set())


def test_the_exit_status_alone_would_call_done_what_is_not() -> None:
    """What these labels are for: a judge that asks for nothing else does not pass."""
    false = [r for r in CORPUS if r.status == 0 and Kind(r.label.verdict) is not Kind.DONE]
    assert len(false) >= 20


def test_a_window_of_one_model_is_known_as_that() -> None:
    opus = [judged(r) for r in CORPUS if r.name == "limit-opus" and r.form == STRUCTURED]
    assert opus and {(v.window, v.model) for v in opus} == {("seven_day_opus", "opus")}


def test_pieces_of_a_stream_make_no_difference() -> None:
    for recorded in CORPUS[::7]:
        assert judged(recorded, 7) == judged(recorded)
