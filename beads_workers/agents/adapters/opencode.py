"""OpenCode: ``opencode run --format json``.

Measured with 1.18.33. It reports tokens and money for each step. It has no result line: a step with
the reason ``stop`` is its result. At a limit it waits silently, so only ``--stall`` ends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from beads_workers.agents.adapter import Adapter, AgentRequest, Invocation, Permission
from beads_workers.agents.events import Event, FinalResult, Session, Usage, Words
from beads_workers.agents.lines import Fields, Parser
from beads_workers.agents.verdict import of_status

_PERMISSIONS = {
    Permission.READ: ("--agent", "plan"),
    Permission.EDIT: ("--auto",),
    Permission.ALL: ("--auto",),
}


class OpenCodeParser(Parser):
    """Parser of its stream."""

    _session = ""
    _answer = ""

    def read(self, fields: Fields) -> Iterable[Event]:
        """Return the events of one line of the stream."""
        part = fields.at("part")
        events = list(self._begin(fields.name("sessionID")))
        match fields.text("type"):
            case "text" if text := part.text("text").strip():
                self._answer = text
                events.append(Words(text))
            case "tool_use":
                events.append(self.activity(part.name("tool"), part.at("state", "input")))
            case "step_finish":
                events += self._step(part)
            case "error":
                data = fields.at("error", "data")
                text = data.text("message") or fields.text("error", "name")
                events += [of_status(data.count("statusCode"), text), FinalResult(text, False)]
        return events

    def _begin(self, session: str) -> Iterator[Event]:
        if session and session != self._session:
            self._session = session
            yield Session(session)

    def _step(self, part: Fields) -> Iterator[Event]:
        tokens = part.at("tokens")
        yield Usage(
            self.model,
            tokens.count("input"),
            tokens.count("output") + tokens.count("reasoning"),
            tokens.count("cache", "read"),
            tokens.count("cache", "write"),
            part.money("cost"),
        )
        if part.text("reason") == "stop":
            yield FinalResult(self._answer, True)


class OpenCode(Adapter):
    """Adapter of opencode. The prompt comes on stdin: opencode would quote an argument."""

    name = "opencode"
    tells_money = True
    measured = ("1.18.33",)
    command = "opencode"
    install = "npm install -g opencode-ai"
    account_variables = ("OPENCODE_", "XDG_DATA_HOME")
    parser_class = OpenCodeParser

    def arguments(self, request: AgentRequest) -> Invocation:
        """Return the call; ``--auto`` allows everything that the user's own configuration does not
        refuse."""
        argv = ["opencode", "run", "--format", "json", *_PERMISSIONS[request.permission]]
        if request.resume:
            argv += ["-s", request.session]
        if request.model:
            argv += ["-m", request.model]
        return Invocation((*argv, *request.arguments), request.prompt)


ADAPTER = OpenCode()
