"""A function's call as a step of a task: started and ended as any program is."""

from __future__ import annotations

import select
from collections.abc import Collection, Mapping, Sequence

from beads_workers.core.outcomes import Outcome
from beads_workers.core.plans import Plan, Step
from beads_workers.core.worker_events import StepAnswered, StepOver
from beads_workers.edge.functions.calls import Ended, Host
from beads_workers.edge.outputs import Output
from beads_workers.edge.steps import HINDERED, CannotStart, prepare, step_ended


class CallStep:
    """A running call; the same shape as ``steps.RunningStep``."""

    def __init__(self, host: Host, output: Output) -> None:
        self._host = host
        self.fd = host.socket.fileno()
        self.output = output
        self.ended_by_us = False

    def end(self, *, hard: bool) -> None:
        """A function cannot be ended but with its process."""
        self.ended_by_us = True
        self._host.end(hard=hard)

    def finish(self) -> StepOver | None:
        """Call when ``fd`` can be read; None: it still runs."""
        answer = self._host.read()
        match answer:
            case None:
                return None
            case Outcome():
                self.output.end()
                return StepAnswered(answer)
            case Ended(status):
                return step_ended(status, self.output.end())


class Functions:
    """All calls of one worker, one at a time, in one process that is replaced when it has died."""

    def __init__(self, allowed: Sequence[str]) -> None:
        self._allowed = allowed
        self._host: Host | None = None

    def pids(self) -> Collection[int]:
        """Children of ours that are buried here, and nowhere else."""
        return () if self._host is None or self._host.buried else (self._host.pid,)

    def start(self, plan: Plan, step: Step, inherited: Mapping[bytes, bytes]) -> CallStep:
        """Start a step that is a call; raises ``CannotStart``."""
        assert step.call is not None
        output = prepare(plan, step)
        try:
            host = self._living(inherited)
            host.call(step.call, step.environment, output.fd)
        except (OSError, ValueError) as error:
            output.end()
            hindered = isinstance(error, OSError) and error.errno in HINDERED
            raise CannotStart(f"cannot call {step.name}: {error}", hindered=hindered) from None
        return CallStep(host, output)

    def _living(self, inherited: Mapping[bytes, bytes]) -> Host:
        host = self._host
        if host is not None and not host.buried and _has_ended(host):
            host.close()  # Killed while it had nothing to do: no fault of the next call.
        if host is None or host.buried:
            host = self._host = Host(self._allowed, inherited)
        return host


def _has_ended(host: Host) -> bool:
    return bool(select.select([host.pidfd], [], [], 0)[0])
