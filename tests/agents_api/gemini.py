"""Google's Gemini API, as gemini-cli 0.61 asks it: https://ai.google.dev/api/generate-content."""

from __future__ import annotations

import json
from typing import Any

from tests.agents_api.accounts import Account, Refusal
from tests.agents_api.script import SHELL, Action, Fault, Turn
from tests.agents_api.wire import Asked, Failure, conversation, failed

REASONS = {"max_tokens": "MAX_TOKENS", "refusal": "SAFETY"}


class Gemini:
    """``POST /v1beta/models/MODEL:generateContent`` and ``:streamGenerateContent``."""

    def credential(self, headers: dict[str, str]) -> str:
        return headers.get("x-goog-api-key", "")

    def asked(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Asked:
        said: list[tuple[str, str]] = []
        for content in body.get("contents", ()):
            for part in content.get("parts", ()):
                if "functionCall" in part:
                    said.append(("call", ""))
                elif "text" in part and content.get("role") == "user":
                    said.append(("user", part["text"]))
        tools = [
            declared["name"]
            for tool in body.get("tools", ())
            for declared in tool.get("functionDeclarations", ())
        ]
        model, _, method = path.partition("/models/")[2].partition(":")
        stream = method.startswith("stream")
        return Asked("", model, conversation(said), frozenset(tools), stream)

    def answer(self, asked: Asked, turn: Turn) -> list[bytes]:
        parts: list[dict[str, Any]] = []
        if turn.action is not None:
            parts = [{"functionCall": _call(turn.action, asked)}]
        elif turn.text:
            parts = [{"text": turn.text}]
        tokens = turn.tokens
        taken = tokens.input + tokens.cache_read
        candidate = {
            "content": {"role": "model", "parts": parts},
            "finishReason": REASONS.get(turn.stop, "STOP"),
            "index": 0,
        }
        usage = {
            "promptTokenCount": taken,
            "cachedContentTokenCount": tokens.cache_read,
            "candidatesTokenCount": tokens.output,
            "totalTokenCount": taken + tokens.output,
        }
        whole = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": asked.model}
        if not asked.stream:
            return [json.dumps(whole).encode()]
        begun = {"candidates": [candidate | {"content": {"role": "model", "parts": []}}]}
        del begun["candidates"][0]["finishReason"]
        return [_data(begun), _data(whole), b"\r\n"]

    def headers(self, account: Account) -> dict[str, str]:
        return {}

    def refusal(self, account: Account, refusal: Refusal) -> Failure:
        if refusal.why == "limit":
            violation = {"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}
            detail = {
                "@type": "type.googleapis.com/google.rpc.QuotaFailure",
                "violations": [violation],
            }
            return _error(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota.", [detail])
        if refusal.why == "credit":
            return _error(403, "PERMISSION_DENIED", "Billing is disabled for this project.")
        return _error(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.")

    def failure(self, fault: Fault) -> Failure:
        if fault.verb == "overload":
            return _error(503, "UNAVAILABLE", "The model is overloaded.")
        if fault.verb == "busy":
            return _error(429, "RESOURCE_EXHAUSTED", "Resource has been exhausted.")
        return _error(int(fault.words[0]) if fault.words else 500, "INTERNAL", "Internal error.")


def _data(body: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(body)}\r\n\r\n".encode()


def _call(action: Action, asked: Asked) -> dict[str, Any]:
    words = action.words
    if action.verb == "write" and "write_file" in asked.tools:
        return {"name": "write_file", "args": {"file_path": words[0], "content": words[1] + "\n"}}
    command = SHELL[action.verb](words)
    return {"name": "run_shell_command", "args": {"command": command, "description": "work"}}


def _error(
    status: int, name: str, message: str, details: list[dict[str, Any]] | None = None
) -> Failure:
    error = {"code": status, "message": message, "status": name, "details": details or []}
    return failed(status, {"error": error})
