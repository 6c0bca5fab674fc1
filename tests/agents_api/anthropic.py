"""Anthropic's Messages API, as claude 2.1 asks it: https://docs.anthropic.com/en/api/messages.

The headers ``anthropic-ratelimit-unified-*`` are those of a subscription. They stand in no
document; they are what the program reads.
"""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

from tests.agents_api.accounts import Account, Refusal
from tests.agents_api.script import SHELL, Action, Fault, Tokens, Turn, questions
from tests.agents_api.wire import Asked, Failure, conversation, event, failed

UNIFIED = "anthropic-ratelimit-unified"
SHORT = {"five_hour": "5h", "seven_day": "7d", "seven_day_opus": "7d_opus"}
"""Windows as headers abbreviate them."""
WARNING = 0.9
BLOCKS = "*SEARCH/REPLACE block*"
ASKS = "AskUserQuestion"
SHELLS = ("bash", "run_shell_command", "Shell", "shell")
"""As programs call theirs that have no ``Bash``."""


class Anthropic:
    """``POST /v1/messages``, with and without a stream."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def credential(self, headers: dict[str, str]) -> str:
        return headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")

    def asked(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Asked:
        said: list[tuple[str, str]] = []
        asking: set[str] = set()
        for message in body.get("messages", ()):
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            if message["role"] == "user":
                said += [("user", text) for block in blocks if (text := _said(block, asking))]
            elif any(block["type"] == "tool_use" for block in blocks):
                asking |= {block["id"] for block in blocks if block.get("name") == ASKS}
                said.append(("call", ""))
        return Asked(
            headers.get("x-claude-code-session-id", ""),
            body.get("model", ""),
            conversation(said),
            frozenset(tool["name"] for tool in body.get("tools", ())),
            bool(body.get("stream")),
            BLOCKS in json.dumps(body.get("system", "")) + json.dumps(body.get("messages", "")),
        )

    def answer(self, asked: Asked, turn: Turn) -> list[bytes]:
        number = next(self._numbers)
        blocks: list[dict[str, Any]] = []
        stop = turn.stop
        if asked.plain and not asked.tools:
            blocks = [{"type": "text", "text": _block_of_text(turn)}]
        elif turn.action is not None:
            calls = _calls(turn.action, asked)
            ids = [f"toolu_{number:020d}{index:04d}" for index in range(len(calls))]
            blocks = [{"type": "tool_use", "id": i} | c for i, c in zip(ids, calls, strict=True)]
            stop = "tool_use"
        elif turn.text:
            blocks = [{"type": "text", "text": turn.text}]
        message: dict[str, Any] = {
            "id": f"msg_{number:024d}",
            "type": "message",
            "role": "assistant",
            "model": asked.model,
            "content": blocks,
            "stop_sequence": None,
        }
        if not asked.stream:
            usage = _usage(turn.tokens, turn.tokens.output)
            return [json.dumps(message | {"stop_reason": stop, "usage": usage}).encode()]
        start = message | {"content": [], "stop_reason": None, "usage": _usage(turn.tokens, 1)}
        pieces = [event("message_start", {"message": start})]
        for index, block in enumerate(blocks):
            pieces += _block(index, block)
        delta = {"stop_reason": stop, "stop_sequence": None}
        usage = {"output_tokens": turn.tokens.output}
        return [
            *pieces,
            event("message_delta", {"delta": delta, "usage": usage}),
            event("message_stop", {}),
        ]

    def headers(self, account: Account) -> dict[str, str]:
        if not account.subscription:
            return {}
        warns = account.utilization >= WARNING
        reset = int(time.time()) + 3600
        headers = {
            f"{UNIFIED}-status": "allowed_warning" if warns else "allowed",
            f"{UNIFIED}-reset": str(reset),
            f"{UNIFIED}-representative-claim": "five_hour",
            **_window("5h", account.utilization, reset, "allowed"),
            **_window("7d", 0.4, reset + 3 * 86400, "allowed"),
        }
        if warns:
            headers[f"{UNIFIED}-5h-surpassed-threshold"] = str(WARNING)
        return headers

    def refusal(self, account: Account, refusal: Refusal) -> Failure:
        if refusal.why == "login":
            text = "OAuth token has expired." if account.subscription else "invalid x-api-key"
            return _error(401, "authentication_error", text)
        if refusal.why == "credit":
            text = "Your credit balance is too low to access the Anthropic API."
            return _error(400, "invalid_request_error", text)
        text = "This request would exceed your account's rate limit. Please try again later."
        if not account.subscription:
            return _error(429, "rate_limit_error", text)
        reset, short = refusal.until, SHORT.get(refusal.window, refusal.window)
        headers = {
            f"{UNIFIED}-status": "rejected",
            f"{UNIFIED}-representative-claim": refusal.window,
            f"{UNIFIED}-overage-status": "rejected",
            f"{UNIFIED}-overage-disabled-reason": "org_level_disabled",
            **_window("5h", 0.4, (reset or 0) + 3600, "allowed"),
            **_window("7d", 0.4, (reset or 0) + 86400, "allowed"),
            **_window(short, 1, reset, "rejected"),
        }
        if reset is not None:
            headers[f"{UNIFIED}-reset"] = str(reset)
        return _error(429, "rate_limit_error", text, headers)

    def failure(self, fault: Fault) -> Failure:
        if fault.verb == "overload":
            return _error(529, "overloaded_error", "Overloaded")
        if fault.verb == "busy":
            text = "Number of requests has exceeded your per-minute rate limit."
            return _error(429, "rate_limit_error", text, {"retry-after": "1"})
        status = int(fault.words[0]) if fault.words else 500
        if status == 404:
            return _error(status, "not_found_error", "model: no-such-model")
        return _error(status, "api_error", "Internal server error")


def _block_of_text(turn: Turn) -> str:
    if turn.action is None or turn.action.verb != "write":
        return turn.text
    path, text = turn.action.words[:2]
    return f"{path}\n```\n<<<<<<< SEARCH\n=======\n{text}\n>>>>>>> REPLACE\n```\n{turn.text}"


def _usage(tokens: Tokens, output: int) -> dict[str, int]:
    return {
        "input_tokens": tokens.input,
        "cache_creation_input_tokens": tokens.cache_write,
        "cache_read_input_tokens": tokens.cache_read,
        "output_tokens": output,
    }


def _window(short: str, used: float, reset: int | None, status: str) -> dict[str, str]:
    headers = {f"{UNIFIED}-{short}-utilization": str(used), f"{UNIFIED}-{short}-status": status}
    return headers if reset is None else headers | {f"{UNIFIED}-{short}-reset": str(reset)}


def _block(index: int, block: dict[str, Any]) -> list[bytes]:
    if block["type"] == "text":
        empty: dict[str, Any] = {"type": "text", "text": ""}
        text = block["text"]
        middle = len(text) // 2
        deltas = [{"type": "text_delta", "text": part} for part in (text[:middle], text[middle:])]
    else:
        empty = block | {"input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
    return [
        event("content_block_start", {"index": index, "content_block": empty}),
        *(event("content_block_delta", {"index": index, "delta": delta}) for delta in deltas),
        event("content_block_stop", {"index": index}),
    ]


def _said(block: dict[str, Any], asking: set[str]) -> str:
    """What a person says: also by an answer to a question of the tool."""
    if block["type"] == "tool_result" and block["tool_use_id"] in asking:
        content = block["content"]
        return content if isinstance(content, str) else "".join(c["text"] for c in content)
    return block["text"] if block["type"] == "text" else ""


def _calls(action: Action, asked: Asked) -> list[dict[str, Any]]:
    if action.verb != "question" or not asked.session:
        return [_call(action, asked)]
    return [
        {"name": ASKS, "input": {"questions": [_question(*each) for each in call]}}
        for call in questions(action.words)
    ]


def _question(text: str, choices: list[str]) -> dict[str, Any]:
    options = [{"label": each, "description": f"{each} it is"} for each in choices]
    return {"question": text, "header": "Choice", "multiSelect": False, "options": options}


def _call(action: Action, asked: Asked) -> dict[str, Any]:
    """The tool call in the words of claude, or of a program that has only a shell."""
    words, tools = action.words, asked.tools
    if not asked.session:  # kimi's tools have names of claude's, and other arguments.
        tools -= {"Write", "Edit", "Read"}
    if action.verb == "write" and "Write" in tools:
        call = {"file_path": words[0], "content": words[1] + "\n"}
        return {"name": "Write", "input": call}
    if action.verb == "edit" and "Edit" in tools:
        call = {"file_path": words[0], "old_string": words[1], "new_string": words[2]}
        return {"name": "Edit", "input": call}
    if action.verb == "read" and "Read" in tools:
        return {"name": "Read", "input": {"file_path": words[0]}}
    if "Bash" in tools:
        if action.verb == "background":
            given = {"command": words[0], "run_in_background": True}
            return {"name": "Bash", "input": given}
        return {"name": "Bash", "input": {"command": SHELL[action.verb](words)}}
    shell = next((name for name in SHELLS if name in tools), SHELLS[0])
    # ``description`` and ``is_background`` are asked for by some, and no trouble to the others.
    given = {"command": SHELL[action.verb](words), "description": "work", "is_background": False}
    return {"name": shell, "input": given}


def _error(status: int, kind: str, message: str, headers: dict[str, str] | None = None) -> Failure:
    body = {"type": "error", "error": {"type": kind, "message": message}}
    made = failed(status, body)
    return Failure(status, made.headers | (headers or {}), made.body)
