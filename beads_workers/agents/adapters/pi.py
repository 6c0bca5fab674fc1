"""pi: ``pi -p --mode json``, with the prompt on stdin.

Measured with 0.73.1. Its exit status is 0 even without a login, at a limit, or at an overload. Only
an answer that stopped by itself is a result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from beads_workers.agents import events
from beads_workers.agents.adapter import Adapter, AgentRequest, Invocation, Permission
from beads_workers.agents.lines import Fields, Parser
from beads_workers.agents.verdict import of_quoted

_READ_ONLY = ("--tools", "read,grep,find,ls")

_CUT_OFF = {
    "aborted": "it was interrupted",
    "length": "it reached the model's limit of tokens",
    "toolUse": "it ended in the middle of its task",
}
"""``stopReason`` of a last answer that is no result."""

_STATUS = re.compile(r"\s*(\d{3})\b")
"""Status before the answer of the API, which pi quotes."""

_TOKENS = ("input", "output", "cacheRead", "cacheWrite")


class PiParser(Parser):
    """Parser of its stream."""

    _answer = ""
    _stopped = ""

    def read(self, fields: Fields) -> Iterable[events.Event]:
        """Return the events of one line of the stream."""
        match fields.text("type"):
            case "session":
                return self._begin(fields)
            case "message_end" if fields.text("message", "role") == "assistant":
                return self._message(fields.at("message"))
            case "tool_execution_start":
                return [self.activity(fields.name("toolName"), fields.at("args"))]
            case "auto_retry_start":
                failure = _failed(fields.text("errorMessage"))
                return [events.Retrying(failure.text, failure.kind)]
            case "agent_end":
                return self._end()
        return ()

    def _begin(self, fields: Fields) -> Iterator[events.Event]:
        self.folder = fields.name("cwd") or self.folder
        if session := fields.name("id"):
            self.usage.begin(session)
            yield events.Session(session)

    def _message(self, message: Fields) -> Iterator[events.Event]:
        model = message.name("model") or self.model
        tokens = message.at("usage").usage(_TOKENS, model)
        used = replace(tokens, money=message.at("usage", "cost").money("total"))
        yield from self.usage.answer(message.name("responseId"), used)
        self._stopped = message.name("stopReason")
        texts = (part.text("text") for part in message.each("content"))
        if text := "\n".join(each for each in texts if each.strip()):
            self._answer = text
            yield events.Words(text)
        if self._stopped == "error":
            yield _failed(message.text("errorMessage"))

    def _end(self) -> Iterator[events.Event]:
        """Return the result, if there is one: after an error pi may try again, and reports that."""
        if why := _CUT_OFF.get(self._stopped):
            yield events.RunFailure(events.Kind.UNFINISHED, why)
            yield events.FinalResult(self._answer, False)
        elif self._stopped == "stop":
            yield events.FinalResult(self._answer, True)


def _failed(text: str) -> events.RunFailure:
    return of_quoted(_STATUS.match(text), text or "it ended with an error")


class Pi(Adapter):
    """Adapter of pi."""

    name = "pi"
    tells_money = True
    account_variables = ("PI_", "ANTHROPIC_", "OPENAI_", "GEMINI_")
    parser_class = PiParser
    measured = ("0.73.1",)
    command = "pi"
    install = "npm install -g @mariozechner/pi-coding-agent"

    def arguments(self, request: AgentRequest) -> Invocation:
        """Return the call; ``--offline`` stops its own updates, not its model."""
        argv = ["pi", "-p", "--mode", "json", "--offline"]
        if request.permission is Permission.READ:
            argv += _READ_ONLY
        if request.resume:
            argv += ["--session", request.session]
        if request.model:
            argv += ["--model", request.model]
        return Invocation((*argv, *request.arguments), request.prompt)


ADAPTER = Pi()
