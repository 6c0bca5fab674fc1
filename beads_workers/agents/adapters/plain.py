"""Any command that is described as an agent: only its exit status and last lines are known.

Exit status 0 is success, as for every command, with one exception. If no change is known and the
last line is that of a known failure, that failure counts (claude 2.1.49 exited with 0 at a limit).
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
    """Parser for which every line is text, JSON too: the output of a command has no known
    meaning."""

    def line(self, line: str) -> Iterable[Event]:
        """Return the event of a line of its output."""
        return [Printed(line.rstrip()[:PRINTED_CHARS_MAX])]

    def read(self, fields: Fields) -> Iterable[Event]:
        """Return no events: no line is an object here."""
        return ()


class Plain(Adapter):
    """Adapter of any command; the user's configuration has its arguments."""

    name = "plain"
    parser_class = PlainParser
    resumes = False

    def arguments(self, request: AgentRequest) -> Invocation:
        """Return the call; ``request.arguments`` is the whole command."""
        return Invocation(request.arguments, request.prompt)

    def verdict(self, tally: Tally, ending: RunEnding) -> Verdict:
        """Return the verdict; ``RunEnding.changed`` is None for a command that need not change
        anything."""
        last = next((line for line in reversed(tally.printed) if line.strip()), "")
        # Its exit status is all there is: a failure is one, even without a word.
        tally = replace(tally, text=last, began=True)
        if ending.clock:
            return judge(tally, ending)
        if ending.status == TEMPORARY:
            failure = RunFailure(Kind.TRANSIENT, last or "it asked for a retry")
            return judge(replace(tally, failure=failure), ending)
        if ending.status == 0 and (ending.changed or recognise(last) is None):
            return succeeded(tally, ending)
        return judge(tally, ending)


ADAPTER = Plain()
