"""Qwen Code: ``qwen -o stream-json``, with the prompt on stdin.

Measured with 0.24.4. Its lines are like claude's. ``auto-edit`` takes the shell away, so edits need
``yolo``. It retries a 429 for over 40 s without a message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from beads_workers.agents import events
from beads_workers.agents.adapter import Adapter, AgentRequest, Invocation, Permission
from beads_workers.agents.lines import Fields, Parser
from beads_workers.agents.verdict import RunEnding, Verdict, of_quoted

_PERMISSIONS = {
    Permission.READ: ("--approval-mode", "plan"),
    Permission.EDIT: ("--approval-mode", "yolo"),
    Permission.ALL: ("--approval-mode", "yolo"),
}

_UNWANTED = "enter_worktree,exit_worktree,loop_wakeup,cron_create"
"""Tools like claude's: their work stays elsewhere, or the session goes on after its end."""

_CAPPED = {53: "it reached its limit of turns", 55: "it reached its budget"}
"""Caps by exit status."""

_API_ERROR = re.compile(r"\[API Error: (\d{3})?")
"""Beginning of a failure in an answer, and in the error of the result."""


_WAITS = events.Doing("waiting", "for its model")


class QwenParser(Parser):
    """Parser of its stream."""

    def read(self, fields: Fields) -> Iterable[events.Event]:
        """Return the events of one line of the stream."""
        match fields.text("type"), fields.text("subtype"):
            case "system", "init":
                return self._begin(fields)
            case "assistant", _:
                return self._assistant(fields)
            case "user", _:
                return [_WAITS]
            case "result", subtype:
                return self._result(fields, subtype)
        return ()

    def _begin(self, fields: Fields) -> Iterator[events.Event]:
        self.model = fields.name("model") or self.model
        self.folder = fields.name("cwd") or self.folder
        if session := fields.name("session_id"):
            self.usage.begin(session)
            yield events.Session(session)
        yield _WAITS

    def _assistant(self, fields: Fields) -> Iterator[events.Event]:
        message = fields.at("message")
        yield from self.usage.answer(message.name("id"), _usage(message, self.model))
        is_own = not fields.text("parent_tool_use_id")
        for part in message.each("content"):
            text = part.text("text")
            if is_own and text.strip() and not _API_ERROR.match(text):
                yield events.Words(text)
            elif part.text("type") == "tool_use":
                yield self.activity(part.name("name"), part.at("input"))

    def _result(self, fields: Fields, subtype: str) -> Iterator[events.Event]:
        if subtype == "success" and not fields.flag("is_error"):
            yield events.FinalResult(fields.text("result"), True)
            return
        text = fields.text("error", "message") or fields.text("result") or subtype
        yield of_quoted(_API_ERROR.search(text), text)
        yield events.FinalResult(text, False)


def _usage(message: Fields, model: str) -> events.Usage:
    used, cached = message.at("usage"), message.count("usage", "cache_read_input_tokens")
    own = max(0, used.count("input_tokens") - cached)
    return events.Usage(message.name("model") or model, own, used.count("output_tokens"), cached)


class Qwen(Adapter):
    """Adapter of qwen."""

    name = "qwen"
    account_variables = ("QWEN_", "OPENAI_", "ANTHROPIC_", "GEMINI_", "DASHSCOPE_", "BAILIAN_")
    parser_class = QwenParser
    own_session = True
    measured = ("0.24.4",)
    command = "qwen"
    install = "npm install -g @qwen-code/qwen-code"

    def arguments(self, request: AgentRequest) -> Invocation:
        """Return the call, without the tools that a fleet does not want."""
        argv = ["qwen", "-o", "stream-json", *_PERMISSIONS[request.permission]]
        argv += ["--exclude-tools", _UNWANTED]
        if request.session:
            argv += ["--resume" if request.resume else "--session-id", request.session]
        if request.turns is not None:
            argv += ["--max-session-turns", str(request.turns)]
        if request.model:
            argv += ["-m", request.model]
        return Invocation((*argv, *request.arguments), request.prompt)

    def verdict(self, tally: events.Tally, ending: RunEnding) -> Verdict:
        """Return the verdict; the exit status tells its caps. A run that stalls while it waits for
        its model is retrying against a limit or an overload."""
        if ending.clock == "stall" and tally.activity == _WAITS.text:
            tally = replace(tally, retrying=events.Retrying("its model did not answer"))
        if why := _CAPPED.get(ending.status or 0):
            tally = replace(tally, failure=events.RunFailure(events.Kind.CAPPED, why), result=None)
        return super().verdict(tally, ending)


ADAPTER = Qwen()
