"""Gemini CLI: ``gemini -o stream-json``, with the prompt on stdin.

Sources: measurements with 0.61.0, and geminicli.com/docs/cli/headless. gemini reports no money.
It reports tokens only when it ends: the tokens of this process, even if the process resumes a
session. If the API refused a request, the exit status of gemini is the HTTP status modulo 256: 173
for 429.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from beads_workers.agents import events
from beads_workers.agents.adapter import Adapter, AgentRequest, Invocation, Permission
from beads_workers.agents.lines import Fields, Parser
from beads_workers.agents.verdict import RunEnding, Verdict, of_quoted, of_status

_PERMISSIONS = {
    Permission.READ: ("--approval-mode", "plan"),
    # Not ``auto_edit``, which refuses every command, including the project's tests.
    Permission.EDIT: ("--approval-mode", "yolo"),
    Permission.ALL: ("--approval-mode", "yolo"),
}

_STATUSES = {41: 401, 144: 400, 145: 401, 147: 403, 173: 429, 244: 500, 247: 503}
"""HTTP status for each exit status. 41 means that no login is chosen; each other exit status is the
HTTP status modulo 256."""

_ENDS = {
    53: events.RunFailure(events.Kind.CAPPED, "it reached its limit of turns"),
    55: events.RunFailure(
        events.Kind.NEEDS_PERSON,
        "it does not trust this folder: export GEMINI_CLI_TRUST_WORKSPACE=true",
    ),
}
"""Failures of its own, by exit status."""

_CODE = re.compile(r'"code":\s*(\d{3})\b')
"""Matches the HTTP status in an answer of the API that gemini quotes."""


class GeminiParser(Parser):
    """Parser of gemini's stream."""

    _answer = ""
    _trouble = ""

    def read(self, fields: Fields) -> Iterable[events.Event]:
        """Return the events of one line of the stream."""
        match fields.text("type"):
            case "init":
                self.model = fields.name("model") or self.model
                return [events.Session(session)] if (session := fields.name("session_id")) else []
            case "message" if fields.text("role") == "assistant":
                return self._message(fields)
            case "tool_use":
                return [self.activity(fields.name("tool_name"), fields.at("parameters"))]
            case "error":
                return self._error(fields.text("message"))
            case "result":
                return self._result(fields)
        return ()

    def _message(self, fields: Fields) -> Iterator[events.Event]:
        text = fields.text("content")
        self._answer = (self._answer + text if fields.flag("delta") else text)[-_ANSWER_CHARS_MAX:]
        if text.strip():
            yield events.Words(self._answer)

    def _result(self, result: Fields) -> Iterator[events.Event]:
        stats = result.at("stats")
        models = [_usage(fields, model) for model, fields in stats.items("models")]
        yield from models or [_usage(stats, self.model)]
        if result.text("status") == "success":
            yield events.FinalResult(self._answer, True)
            return
        if text := result.text("error", "message"):
            yield from self._error(text)
        yield events.FinalResult(self._trouble or "it ended with an error", False)

    def _error(self, text: str) -> Iterator[events.Event]:
        self._trouble = text
        yield of_quoted(_CODE.search(text), text)


_ANSWER_CHARS_MAX = 16 << 10


def _usage(stats: Fields, model: str) -> events.Usage:
    cached = stats.count("cached")
    fresh = max(0, stats.count("input_tokens") - cached)
    return events.Usage(model, fresh, stats.count("output_tokens"), cached)


class Gemini(Adapter):
    """Adapter of gemini, which reads the prompt on stdin and appends the text of ``-p`` to it."""

    name = "gemini"
    account_variables = ("GEMINI_", "GOOGLE_")
    parser_class = GeminiParser
    own_session = True
    measured = ("0.61.0",)
    command = "gemini"
    install = "npm install -g @google/gemini-cli"

    def arguments(self, request: AgentRequest) -> Invocation:
        """Return the call. It has ``--skip-trust``, because nobody is there to confirm that gemini
        may trust the folder."""
        argv = ["gemini", "-o", "stream-json", "--skip-trust", *_PERMISSIONS[request.permission]]
        if request.session:
            argv += ["--resume" if request.resume else "--session-id", request.session]
        if request.model:
            argv += ["-m", request.model]
        return Invocation((*argv, *request.arguments, "-p", "Do this."), request.prompt)

    def verdict(self, tally: events.Tally, ending: RunEnding) -> Verdict:
        """Return the verdict. If the output has no failure and no success, the exit status
        decides."""
        succeeded = tally.result is not None and tally.result.ok
        if tally.failure is None and not succeeded:
            text = tally.printed[-1] if tally.printed else tally.text
            if failure := _ENDS.get(ending.status or 0):
                tally = replace(tally, failure=failure)
            elif ending.status in _STATUSES:
                tally = replace(tally, failure=of_status(_STATUSES[ending.status], text))
        return super().verdict(tally, ending)


ADAPTER = Gemini()
