"""What an agent does to its own issue in the tracker does not count."""

from __future__ import annotations

import pytest

from beads_workers.core.policy import Policy
from beads_workers.core.settings import Agent, Work
from beads_workers.core.source import Action
from tests.core.playbook import Play, done, failed

CLAUDE = Agent("claude", (), "", adapter="claude", account="acc")


@pytest.mark.parametrize(("attempts", "action"), [(3, Action.RELEASE), (1, Action.QUARANTINE)])
def test_a_close_by_an_agent_that_failed_is_undone(attempts: int, action: Action) -> None:
    play = Play(4, work=Work(agents=(CLAUDE,)), policy=Policy(attempts))
    play.working("a")
    play.do(failed(1, "a", "verify failed"))
    settlement = play.settlement()
    assert settlement.action is action
    assert settlement.undoes_close and settlement.read_first


def test_one_that_succeeded_is_closed_as_ever() -> None:
    play = Play(4, work=Work(agents=(CLAUDE,)))
    play.working("a")
    play.do(done(1, "a"))
    settlement = play.settlement()
    assert (settlement.action, settlement.undoes_close) == (Action.CLOSE, False)


def test_a_command_may_close_its_issue_by_itself() -> None:
    play = Play(4)
    play.working("a")
    play.do(failed(1, "a"))
    assert not play.settlement().undoes_close
