"""OpenAI's Responses API, as codex 0.169 asks it: https://platform.openai.com/docs/api-reference.

Its default model works in "code mode": one custom tool ``exec`` takes JavaScript, in which the
other tools are functions.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

from tests.agents_api.accounts import Account, Refusal
from tests.agents_api.script import SHELL, Action, Fault, Turn, questions
from tests.agents_api.wire import Asked, Failure, conversation, event, failed

CODE_MODE, ASKS = "exec", "request_user_input_async"
SHELL_TOOLS = ("exec_command", "shell_command")
"""The shell of models without code mode, newest first."""


class OpenAI:
    """``POST /v1/responses``, as a stream."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def credential(self, headers: dict[str, str]) -> str:
        return headers.get("authorization", "").removeprefix("Bearer ")

    def asked(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Asked:
        said: list[tuple[str, str]] = []
        tools = list(body.get("tools", ()))
        for item in body.get("input", ()):
            kind = item.get("type", "message")
            if kind == "additional_tools":
                tools += item["tools"]
            elif kind in ("custom_tool_call", "function_call"):
                said.append(("call", ""))
            elif kind == "message" and item["role"] == "user":
                content = item["content"]
                texts = [content] if isinstance(content, str) else [c["text"] for c in content]
                said += [("user", text) for text in texts]
        session = headers.get("thread-id") or body.get("prompt_cache_key", "")
        stream = bool(body.get("stream"))
        return Asked(session, body["model"], conversation(said), _names(tools), stream)

    def answer(self, asked: Asked, turn: Turn) -> list[bytes]:
        number = next(self._numbers)
        response: dict[str, Any] = {"id": f"resp_{number:024d}", "model": asked.model}
        item: dict[str, Any] | None = None
        if turn.action is not None:
            item = {"id": f"ctc_{number:024d}", "call_id": f"call_{number:024d}"}
            item |= _call(turn.action, asked)
        elif turn.text and turn.stop != "refusal":
            part = {"type": "output_text", "text": turn.text, "annotations": []}
            item = _message(number, part)
        elif turn.stop == "refusal":
            item = _message(number, {"type": "refusal", "refusal": turn.text or "I cannot help."})
        pieces = [event("response.created", {"response": response | {"status": "in_progress"}})]
        if item is not None:
            place = {"output_index": 0, "item": item}
            pieces.append(event("response.output_item.added", place))
            pieces.append(event("response.output_item.done", place))
        tokens = turn.tokens
        taken = tokens.input + tokens.cache_read + tokens.cache_write
        response["usage"] = {
            "input_tokens": taken,
            "input_tokens_details": {"cached_tokens": tokens.cache_read},
            "output_tokens": tokens.output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": taken + tokens.output,
        }
        response["output"] = [] if item is None else [item]
        if turn.stop == "max_tokens":
            why = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
            return [*pieces, event("response.incomplete", {"response": response | why})]
        done = response | {"status": "completed"}
        return [*pieces, event("response.completed", {"response": done})]

    def headers(self, account: Account) -> dict[str, str]:
        return {}

    def refusal(self, account: Account, refusal: Refusal) -> Failure:
        if refusal.why == "login":
            text = "Your authentication token has expired. Please try signing in again."
            return failed(401, {"error": {"message": text, "code": "token_expired"}})
        if refusal.why == "credit":
            text = "You exceeded your current quota, please check your plan and billing details."
            error = {"message": text, "type": "insufficient_quota", "code": "insufficient_quota"}
            return failed(429, {"error": error})
        error = {"type": "usage_limit_reached", "message": "The usage limit has been reached"}
        extra = {} if refusal.until is None else {"resets_at": refusal.until}
        return failed(429, {"error": error | extra | {"plan_type": account.plan}})

    def failure(self, fault: Fault) -> Failure:
        if fault.verb == "overload":
            error = {"message": "The server is overloaded.", "code": "server_is_overloaded"}
            return failed(503, {"error": error})
        if fault.verb == "busy":
            error = {"message": "Rate limit reached for requests", "code": "rate_limit_exceeded"}
            return failed(429, {"error": error}, retry_after="1")
        status = int(fault.words[0]) if fault.words else 500
        return failed(status, {"error": {"message": "The server had an error."}})


def _names(tools: list[dict[str, Any]]) -> frozenset[str]:
    names = [tool["name"] for tool in tools if tool["type"] in ("custom", "function")]
    for tool in tools:
        if tool["type"] == "namespace":
            names += [inner["name"] for inner in tool["tools"]]
    return frozenset(names)


def _message(number: int, part: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "id": f"msg_{number:024d}", "role": "assistant", "content": [part]}


def _call(action: Action, asked: Asked) -> dict[str, Any]:
    if action.verb == "question" and ASKS in asked.tools:
        return {"type": "function_call", "name": ASKS, "arguments": json.dumps(_asked(action))}
    patch = _patch(action)
    command = SHELL[action.verb](action.words)
    if CODE_MODE in asked.tools:
        if patch:
            code = f"text(await tools.apply_patch({json.dumps(patch)}));"
        else:
            given = json.dumps({"cmd": command, "yield_time_ms": 30000})
            code = f"text(await tools.exec_command({given}));"
        return {"type": "custom_tool_call", "name": CODE_MODE, "input": code}
    if patch and "apply_patch" in asked.tools:
        return {"type": "custom_tool_call", "name": "apply_patch", "input": patch}
    shell = next(name for name in SHELL_TOOLS if name in asked.tools)
    given = json.dumps({"cmd" if shell == "exec_command" else "command": command})
    return {"type": "function_call", "name": shell, "arguments": given}


def _asked(action: Action) -> dict[str, Any]:
    """The input of its tool; it has one call a message."""
    asked = [{"title": title, "options": options} for title, options in questions(action.words)[0]]
    return {"questions": asked}


def _patch(action: Action) -> str:
    """For a change of a file, in the format of ``apply_patch``; else empty."""
    words = action.words
    if action.verb == "write":
        lines = [f"+{line}" for line in words[1].splitlines()]
        body = [f"*** Add File: {words[0]}", *lines]
    elif action.verb == "edit":
        old = [f"-{line}" for line in words[1].splitlines()]
        new = [f"+{line}" for line in words[2].splitlines()]
        body = [f"*** Update File: {words[0]}", "@@", *old, *new]
    else:
        return ""
    return "\n".join(["*** Begin Patch", *body, "*** End Patch", ""])
