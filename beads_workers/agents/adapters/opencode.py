"""OpenCode: ``opencode run --format json``.

Measured with 1.18.33. It says tokens and money for each step. It has no result line: it is over
when the process is. At a limit it waits and says nothing, so only ``--stall`` ends it.
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
    """Its stream to events."""

    _session = ""
    _answer = ""

    def read(self, said: Fields) -> Iterable[Event]:
        """One line of the stream."""
        part = said.at("part")
        events = list(self._begin(said.name("sessionID")))
        match said.text("type"):
            case "text" if text := part.text("text").strip():
                self._answer = text
                events.append(Words(text))
            case "tool_use":
                events.append(self.activity(part.name("tool"), part.at("state", "input")))
            case "step_finish":
                events += self._step(part)
            case "error":
                data = said.at("error", "data")
                text = data.text("message") or said.text("error", "name")
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
    """Its arguments. The prompt comes on stdin: an argument it would put in quotes."""

    name = "opencode"
    tells_money = True
    measured = ("1.18.33",)
    command = "opencode"
    install = "npm install -g opencode-ai"
    account_variables = ("OPENCODE_", "XDG_DATA_HOME")
    parser_class = OpenCodeParser

    def arguments(self, request: AgentRequest) -> Invocation:
        """``--auto``: what is not refused by the user's own configuration is allowed."""
        argv = ["opencode", "run", "--format", "json", *_PERMISSIONS[request.permission]]
        if request.resume:
            argv += ["-s", request.session]
        if request.model:
            argv += ["-m", request.model]
        return Invocation((*argv, *request.arguments), request.prompt)


ADAPTER = OpenCode()
