"""Which options the command of an executor has."""

from __future__ import annotations

from beads_workers.integrations.rrq import commands


def test_an_option_that_is_named_is_there_although_it_does_not_apply_by_itself() -> None:
    signature = vars(commands.rrq_executor)["__signature__"]
    assert "timeout" in signature.parameters and "label" not in signature.parameters
