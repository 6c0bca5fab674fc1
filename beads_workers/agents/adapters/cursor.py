"""Cursor: ``cursor-agent -p --output-format stream-json``. Untried.

From cursor.com/docs/cli/reference/output-format only. A failure is a text on stderr and an exit
status, without JSON; the texts of a limit are unknown. It reports neither tokens nor money.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from beads_workers.agents import adapter
from beads_workers.agents.events import Event, FinalResult, Session, Words
from beads_workers.agents.lines import Fields, Parser


class CursorParser(Parser):
    """Parser of its stream."""

    def read(self, fields: Fields) -> Iterable[Event]:
        """Return the events of one line of the stream."""
        match fields.text("type"), fields.text("subtype"):
            case "system", "init":
                return [Session(session)] if (session := fields.name("session_id")) else []
            case "assistant", _:
                texts = (part.text("text") for part in fields.each("message", "content"))
                return [Words(text) for text in texts if text.strip()]
            case "tool_call", "started":
                return self._calls(fields)
            case "result", _:
                return [FinalResult(fields.text("result"), not fields.flag("is_error"))]
        return ()

    def _calls(self, fields: Fields) -> Iterator[Event]:
        for name, call in fields.items("tool_call"):
            yield self.activity(name.removesuffix("ToolCall"), call.at("args"))


class Cursor(adapter.Adapter):
    """Adapter of Cursor. The prompt is the last argument."""

    name = "cursor"
    parser_class = CursorParser
    prompt_bytes_max = adapter.ARGUMENT_BYTES_MAX
    untried = True

    def arguments(self, request: adapter.AgentRequest) -> adapter.Invocation:
        """Return the call; without ``--force`` it proposes changes and makes none."""
        argv = ["cursor-agent", "-p", "--output-format", "stream-json"]
        if request.permission is not adapter.Permission.READ:
            argv += ["--force"]
        if request.resume:
            argv += ["--resume", request.session]
        if request.model:
            argv += ["--model", request.model]
        return adapter.Invocation((*argv, *request.arguments, "--", request.prompt))


ADAPTER = Cursor()
