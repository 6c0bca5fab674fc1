"""Amp: ``amp --execute --stream-json``. Untried.

From the types of @sourcegraph/amp-sdk 0.1.0-20260126 only. Its stream is like claude's; it tells
no money, and its exit statuses are unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from beads_workers.agents.adapter import Adapter, AgentRequest, Invocation, Permission
from beads_workers.agents.events import Event, FinalResult, Kind, RunFailure, Session, Words
from beads_workers.agents.lines import Fields, Parser
from beads_workers.agents.verdict import of_text

_TOKENS = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)


class AmpParser(Parser):
    """Parser of its stream."""

    def read(self, fields: Fields) -> Iterable[Event]:
        """Return the events of one line of the stream."""
        match fields.text("type"), fields.text("subtype"):
            case "system", "init":
                return self._begin(fields.name("session_id"))
            case "assistant", _:
                return self._assistant(fields.at("message"))
            case "result", subtype:
                return self._result(fields, subtype)
        return ()

    def _begin(self, session: str) -> Iterator[Event]:
        if session:
            self.usage.begin(session)
            yield Session(session)

    def _assistant(self, message: Fields) -> Iterator[Event]:
        model = message.name("model") or self.model
        usage = message.at("usage").usage(_TOKENS, model)
        yield from self.usage.answer(message.name("id"), usage)
        for part in message.each("content"):
            if (text := part.text("text")).strip():
                yield Words(text)
            elif part.text("type") == "tool_use":
                yield self.activity(part.name("name"), part.at("input"))

    def _result(self, fields: Fields, subtype: str) -> Iterator[Event]:
        if subtype == "success" and not fields.flag("is_error"):
            yield FinalResult(fields.text("result"), True)
            return
        text = fields.text("error") or fields.text("result") or subtype
        if subtype == "error_max_turns":
            yield RunFailure(Kind.CAPPED, "it reached its limit of turns")
        else:
            yield of_text(text)
        yield FinalResult(text, False)


class Amp(Adapter):
    """Adapter of Amp. The prompt comes on stdin."""

    name = "amp"
    parser_class = AmpParser
    untried = True

    def arguments(self, request: AgentRequest) -> Invocation:
        """Return the call; ``threads continue ID`` continues a thread."""
        argv = ["amp"]
        if request.resume:
            argv += ["threads", "continue", request.session]
        argv += ["--execute", "--stream-json"]
        if request.permission is not Permission.READ:
            argv += ["--dangerously-allow-all"]
        return Invocation((*argv, *request.arguments), request.prompt)


ADAPTER = Amp()
