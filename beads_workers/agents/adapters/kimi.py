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
from beads_workers.core.framing import ProtocolError, parse_object

_READER = __file__.removesuffix("kimi.py") + "kimi_reader.md"

_ASKS = "AskUserQuestion"
"""Tool that answers, in words, that nobody is there."""


class KimiParser(Parser):
    """Parser of its stream."""

    _answer = ""

    def read(self, said: Fields) -> Iterable[Event]:
        """Return the events of one line of the stream."""
        match said.text("role"), said.text("type"):
            case "assistant", _:
                return self._assistant(said)
            case "meta", "turn.step.retrying":
                text = said.text("error_message") or said.name("error_name")
                return [Retrying(text, of_status(said.count("status_code"), text).kind)]
            case "meta", "session.resume_hint":
                return [Session(said.name("session_id")), FinalResult(self._answer, True)]
        return ()

    def _assistant(self, said: Fields) -> Iterator[Event]:
        if (text := said.text("content")).strip():
            self._answer = text
            yield Words(text)
        for call in said.each("tool_calls"):
            name, given = call.name("function", "name"), _given(call)
            yield self.activity(name, given)
            if name == _ASKS:
                asked = (each.text("question") for each in given.each("questions"))
                yield from (OpenQuestion(each) for each in asked if each)


def _given(call: Fields) -> Fields:
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
