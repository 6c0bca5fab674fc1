"""GitHub Copilot: ``copilot --output-format json``, with the prompt on stdin.

Measured with 1.0.102, with a model provider of our own; the shapes are those of the events of
github/copilot-sdk. Only the file of ``--usage-output-file`` has tokens, as the total of the
session. There is no money, but "premium requests". For a limit it names no reset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from beads_workers.agents import events
from beads_workers.agents.adapter import Adapter, AgentRequest, Invocation, Permission
from beads_workers.agents.lines import Fields, Parser
from beads_workers.agents.verdict import of_status
from beads_workers.core.base.framing import ProtocolError, parse_object

_PERMISSIONS = {
    Permission.READ: ("--allow-all-tools", "--deny-tool=write", "--deny-tool=shell"),
    Permission.EDIT: ("--allow-all-tools",),
    Permission.ALL: ("--allow-all-tools", "--allow-all-paths"),
}

_ERRORS = {
    "rate_limit": events.Kind.TRANSIENT,
    "quota": events.Kind.LIMITED,
    "authentication": events.Kind.NEEDS_PERSON,
    "authorization": events.Kind.NEEDS_PERSON,
}

_TOKENS = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens")


class CopilotParser(Parser):
    """Parser of its stream."""

    _failed: events.RunFailure | None = None
    _answer = ""

    def read(self, fields: Fields) -> Iterable[events.Event]:
        """Return the events of one line of the stream; its content is in ``data``, for the result
        beside it."""
        data = fields.at("data") or fields
        match fields.text("type"):
            case "session.start" | "session.resume":
                return [events.Session(session)] if (session := data.name("sessionId")) else []
            case "assistant.message":
                return self._message(data)
            case "tool.execution_start":
                return [self.activity(data.name("toolName"), data.at("arguments"))]
            case "tool.execution_complete":
                if data.text("error", "code") in ("denied", "rejected"):
                    return [events.Denied(data.name("toolName") or "a tool")]
                return ()
            case "model.call_failure":
                failed = of_status(data.count("statusCode"), data.text("errorMessage"))
                return [events.Retrying(f"status {data.count('statusCode')}", failed.kind)]
            case "assistant.turn_retry":
                return [events.Retrying(data.text("reason"))]
            case "session.error":
                return self._error(data)
            case "abort":
                self._failed = events.RunFailure(events.Kind.UNFINISHED, "it was interrupted")
                return [self._failed]
            case "result":
                return self._result(data)
        return ()

    def _message(self, data: Fields) -> Iterator[events.Event]:
        if (text := data.text("content")).strip():
            self._failed, self._answer = None, text
            yield events.Words(text)

    def _error(self, data: Fields) -> Iterator[events.Event]:
        text = data.text("message") or data.text("errorType")
        kind = _ERRORS.get(data.text("errorType"))
        self._failed = of_status(data.count("statusCode"), text)
        if kind and self._failed.kind is events.Kind.UNFINISHED:
            self._failed = events.RunFailure(kind, text)
        yield self._failed

    def _result(self, data: Fields) -> Iterator[events.Event]:
        if session := data.name("sessionId"):
            yield events.Session(session)
        ok = data.number("exitCode") == 0 and self._failed is None
        yield events.FinalResult(self._answer if ok or not self._failed else self._failed.text, ok)

    def usage_told(self, text: str) -> list[events.Event]:
        """Return the tokens by model; none if the text is no such file."""
        try:
            report = Fields(parse_object(text.strip().encode("utf-8", "replace")))
        except ProtocolError:
            return []
        models = report.items("modelMetrics")
        totals = [fields.at("usage").usage(_TOKENS, model) for model, fields in models]
        return list(self.usage.total(totals))


class Copilot(Adapter):
    """Adapter of copilot. Without ``-p`` it reads the prompt from stdin, and asks nobody."""

    name = "copilot"
    account_variables = ("COPILOT_", "GH_TOKEN", "GITHUB_TOKEN")
    parser_class = CopilotParser
    own_session = True
    measured = ("1.0.102",)
    command = "copilot"
    install = "npm install -g @github/copilot"

    def arguments(self, request: AgentRequest) -> Invocation:
        """Return the call; ``--session-id`` begins or continues a session."""
        argv = ["copilot", "--output-format", "json", "--no-ask-user"]
        argv += _PERMISSIONS[request.permission]
        if request.session:
            argv += ["--session-id", request.session]
        if request.model:
            argv += ["--model", request.model]
        if request.usage_file:
            argv += ["--usage-output-file", request.usage_file]
        return Invocation((*argv, *request.arguments), request.prompt)


ADAPTER = Copilot()
