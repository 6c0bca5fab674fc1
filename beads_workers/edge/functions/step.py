"""A function's call as a step of a task: started and ended as any program is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from beads_workers.core.plans import Plan, Step
from beads_workers.core.worker_events import StepAnswered, StepOver
from beads_workers.edge.functions.answers import Asked, Said
from beads_workers.edge.functions.calls import Ended, Host
from beads_workers.edge.outputs import Output
from beads_workers.edge.steps import HINDERED, CannotStart, encoded, prepare, step_ended

Questions = Callable[[str, Mapping[str, Any]], None]
"""Takes a control command and its data."""


class CallStep:
    """A running call; the same shape as ``steps.RunningStep``."""

    def __init__(self, host: Host, output: Output, result_file: str, asked: Questions) -> None:
        self._host = host
        self._asked = asked
        self._result_file = result_file
        self.fd = host.socket.fileno()
        self.output = output
        self.ended_by_us = False

    def end(self, *, hard: bool, ask: bool = False) -> None:
        """A function cannot be ended but with its process; ``ask``: SIGUSR1, and it may live."""
        self.ended_by_us = True
        if ask:
            self._host.ask_to_cancel()
        else:
            self._host.end(hard=hard)

    def tell(self, reply: Mapping[str, Any]) -> None:
        """The answer to what it asked."""
        self._host.tell(reply)

    def finish(self) -> StepOver | None:
        """Call when ``fd`` can be read, or a child has ended; None: it still runs."""
        answer = self._host.read()
        match answer:
            case None:
                return None
            case Asked(command, data):
                self._asked(command, data)
                return None
            case Ended(status):
                return step_ended(status, self.output.end())
            case Said(outcome, in_file, spent, is_stopping):
                if spent:
                    self._host.close()
                self.output.end(keep=True)
                if in_file:
                    outcome = replace(outcome, result_file=self._result_file)
                return StepAnswered(outcome, is_stopping)


class Functions:
    """All calls of one worker, one at a time, in one process that is replaced when it has died.

    ``asked``: told what a call asks of the orchestrator.
    """

    def __init__(self, allowed: Sequence[str], asked: Questions) -> None:
        self._asked = asked
        self._allowed = allowed
        self._host: Host | None = None
        self._output: Output | None = None

    def pids(self) -> Collection[int]:
        """Children of ours that are buried here, and nowhere else."""
        return () if self._host is None or self._host.buried else (self._host.pid,)

    def start(self, plan: Plan, step: Step, inherited: Mapping[bytes, bytes]) -> CallStep:
        """Start a step that is a call; raises ``CannotStart``."""
        assert step.call is not None
        output = self._prepared(plan, step)
        try:
            host = self._living(step, inherited)
            host.call(step.call, step.environment, output.fd, output, plan.result_file)
        except (OSError, ValueError) as error:
            self.let_go()
            self.close()
            hindered = isinstance(error, OSError) and error.errno in HINDERED
            raise CannotStart(f"cannot call {step.name}: {error}", hindered=hindered) from None
        return CallStep(host, output, plan.result_file, self._asked)

    @property
    def fd(self) -> int:
        """What to watch for reading, also while no call runs: then ``close`` it. -1 for none."""
        return -1 if self._host is None or self._host.buried else self._host.socket.fileno()

    def close(self) -> None:
        """End the process with all it has started; the next call gets another one."""
        if self._host is not None:
            self._host.close()

    def retire(self) -> None:
        """The worker ends: dispatcherd's own may have something to do at its end."""
        if self._host is not None and not self._host.buried:
            self._host.retire()

    def let_go(self) -> None:
        """Another program of this worker prints next: to a file that it opens, and may rename."""
        if self._output is not None:
            self._output.close()
            self._output = None

    def _prepared(self, plan: Plan, step: Step) -> Output:
        output = self._output
        if output is None or plan.issue_file or not output.again(plan):
            self.let_go()
            output = self._output = prepare(plan, step)
        return output

    def _living(self, step: Step, inherited: Mapping[bytes, bytes]) -> Host:
        host = self._host
        if host is not None and not host.is_fit():
            host.close()  # Killed, or talking, while it had nothing to do: no fault of the next.
        if host is None or host.buried:
            # With this task's variables it carries the token by which what is ours is found.
            environment = {**inherited, **encoded(step.environment)}
            host = self._host = Host(self._allowed, environment)
        return host
