"""Kimi Code: ``kimi -p PROMPT --output-format stream-json``.

Measured with 2.1.0. It reports no tokens, and its session only at a good end: a killed one is not
resumed. A failure is on stderr. It refuses ``--plan`` with ``-p``, so for reading only there is an
agent of its own, without the tools that write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from beads_workers.agents import adapter
from beads_workers.agents.events import Event, FinalResult, OpenQuestion, Retrying, Session, Words
from beads_workers.agents.lines import Fields, Parser
from beads_workers.agents.verdict import of_status
from beads_workers.core.base.framing import ProtocolError, parse_object

_READER = __file__.removesuffix("kimi.py") + "kimi_reader.md"

_ASKS = "AskUserQuestion"
"""Tool that answers, in words, that nobody is there."""


class KimiParser(Parser):
    """Parser of its stream."""

    _answer = ""

    def read(self, fields: Fields) -> Iterable[Event]:
        """Return the events of one line of the stream."""
        match fields.text("role"), fields.text("type"):
            case "assistant", _:
                return self._assistant(fields)
            case "meta", "turn.step.retrying":
                text = fields.text("error_message") or fields.name("error_name")
                return [Retrying(text, of_status(fields.count("status_code"), text).kind)]
            case "meta", "session.resume_hint":
                return [Session(fields.name("session_id")), FinalResult(self._answer, True)]
        return ()

    def _assistant(self, fields: Fields) -> Iterator[Event]:
        if (text := fields.text("content")).strip():
            self._answer = text
            yield Words(text)
        for call in fields.each("tool_calls"):
            name, arguments = call.name("function", "name"), _arguments(call)
            yield self.activity(name, arguments)
            if name == _ASKS:
                asked = (each.text("question") for each in arguments.each("questions"))
                yield from (OpenQuestion(each) for each in asked if each)


def _arguments(call: Fields) -> Fields:
    try:
        return Fields(parse_object(call.text("function", "arguments").encode("utf-8", "replace")))
    except ProtocolError:
        return Fields(None)


class Kimi(adapter.Adapter):
    """Adapter of kimi. The prompt is an argument."""

    name = "kimi"
    account_variables = ("KIMI_", "MOONSHOT_")
    parser_class = KimiParser
    prompt_bytes_max = adapter.ARGUMENT_BYTES_MAX
    measured = ("2.1.0",)
    command = "kimi"
    install = "npm install -g @moonshot-ai/kimi-code"

    def arguments(self, request: adapter.AgentRequest) -> adapter.Invocation:
        """Return the call; with ``-p`` its tools run unasked. A resumed session keeps its agent."""
        argv = ["kimi", "--output-format", "stream-json"]
        if request.resume:
            argv += ["-S", request.session]
        elif request.permission is adapter.Permission.READ:
            argv += ["--agent-file", _READER]
        if request.model:
            argv += ["-m", request.model]
        return adapter.Invocation((*argv, *request.arguments, "-p", request.prompt))


ADAPTER = Kimi()
