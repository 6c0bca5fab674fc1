"""Any command that is described as an agent: exit status and the last lines are all there is.

Exit status 0 is success, as for every command, with one exception: where no change is known of and
its last line is that of a known failure (claude 2.1.49 ended with 0 at a limit), it is that one.
75 (EX_TEMPFAIL) asks for a retry that charges nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from beads_workers.agents.adapter import Adapter, AgentRequest, Invocation
from beads_workers.agents.events import PRINTED_CHARS_MAX, Event, Kind, Printed, RunFailure, Tally
from beads_workers.agents.lines import Fields, Parser
from beads_workers.agents.texts import recognise
from beads_workers.agents.verdict import RunEnding, Verdict, judge, succeeded

TEMPORARY = 75


class PlainParser(Parser):
    """Every line is text, JSON too: what a command prints has no meaning that we know."""

    def line(self, line: str) -> Iterable[Event]:
        """A line of its output."""
        return [Printed(line.rstrip()[:PRINTED_CHARS_MAX])]

    def read(self, said: Fields) -> Iterable[Event]:
        """Nothing: no line is an object here."""
        return ()


class Plain(Adapter):
    """Its arguments are what the user wrote down."""

    name = "plain"
    parser_class = PlainParser
    resumes = False

    def arguments(self, request: AgentRequest) -> Invocation:
        """``request.arguments`` is the whole command."""
        return Invocation(request.arguments, request.prompt)

    def verdict(self, tally: Tally, ending: RunEnding) -> Verdict:
        """``RunEnding.changed`` is None for a command that need not change anything."""
        last = next((line for line in reversed(tally.printed) if line.strip()), "")
        tally = replace(tally, text=last)
        if ending.clock:
            return judge(tally, ending)
        if ending.status == TEMPORARY:
            failure = RunFailure(Kind.TRANSIENT, last or "it asked for a retry")
            return judge(replace(tally, failure=failure), ending)
        if ending.status == 0 and (ending.changed or recognise(last) is None):
            return succeeded(tally, ending)
        return judge(tally, ending)


ADAPTER = Plain()
