"""Streams of agents for tests: one of each that ends well, and shorthands to hear them."""

from __future__ import annotations

import json
from typing import Any

from beads_workers.agents.adapter import Adapter, load
from beads_workers.agents.events import Event, Printed, Tally
from beads_workers.agents.totals import Totals

NOW = 1_795_340_000.0
"""2026-11-22 09:33:20 UTC."""


def adapter(name: str) -> Adapter:
    """The adapter of that name, which there is."""
    found = load(name)
    assert found is not None
    return found


def stream(*lines: dict[str, Any] | str) -> bytes:
    """JSON Lines; a text stands as it is."""
    return "".join(
        (each if isinstance(each, str) else json.dumps(each)) + "\n" for each in lines
    ).encode()


def events(name: str, data: bytes, last: Totals | None = None) -> list[Event]:
    """All events of a whole stream."""
    parser = adapter(name).parser("", last)
    return [*parser.feed(data), *parser.end()]


def tally_of(name: str, data: bytes, last: Totals | None = None) -> Tally:
    """Their sum."""
    tally = Tally()
    tally.apply(events(name, data, last))
    return tally


def without_printed(found: list[Event]) -> list[Event]:
    """The events that are not just lines."""
    return [event for event in found if not isinstance(event, Printed)]


def claude_answer(
    message_id: str, *content: dict[str, Any], tokens: int = 1000, **more: Any
) -> dict[str, Any]:
    """An assistant line of claude."""
    usage = {"input_tokens": tokens, "output_tokens": 20, "cache_read_input_tokens": 5}
    message = {"id": message_id, "model": "opus-1", "content": list(content), "usage": usage}
    return {"type": "assistant", "message": message, "session_id": "s1", **more}


def claude_result(tokens: int, output: int, money: float, **more: Any) -> dict[str, Any]:
    """The last line of claude; ``more`` replaces what a success has."""
    model = {
        "inputTokens": tokens,
        "outputTokens": output,
        "cacheReadInputTokens": 5,
        "costUSD": money,
    }
    fields = {"subtype": "success", "is_error": False, "num_turns": 2, "stop_reason": "end_turn"}
    fields |= {"terminal_reason": "completed", "result": "All is there.", "permission_denials": []}
    fields |= {"total_cost_usd": money, "modelUsage": {"opus-1[1m]": model}, "session_id": "s1"}
    return {"type": "result", **fields, **more}


def pi_answer(answer_id: str, stopped: str, text: str = "", **more: Any) -> dict[str, Any]:
    """A message of pi's model."""
    usage = {"input": 1000, "output": 20, "cacheRead": 5, "cost": {"total": 0.005}}
    content = [{"type": "text", "text": text}] if text else []
    fields = {"role": "assistant", "responseId": answer_id, "stopReason": stopped}
    return {**fields, "model": "m-1", "content": content, "usage": usage, **more}


CLAUDE_INIT = {
    "type": "system",
    "subtype": "init",
    "session_id": "s1",
    "model": "opus-1",
    "cwd": "/repo",
}
TOOL = {"type": "tool_use", "name": "Edit", "input": {"file_path": "/repo/shop/cart.py"}}
TEXT = {"type": "text", "text": "Adding it up."}

GOOD: dict[str, bytes] = {
    "claude": stream(
        CLAUDE_INIT,
        claude_answer("m1", TEXT),
        claude_answer("m1", TOOL),
        {"type": "user", "message": {"content": [{"type": "tool_result", "content": "ok"}]}},
        claude_answer("m2", {"type": "text", "text": "All is there."}),
        claude_result(2000, 40, 0.005),
    ),
    "codex": stream(
        {"type": "thread.started", "thread_id": "t1"},
        {"type": "turn.started"},
        {
            "type": "item.started",
            "item": {"type": "command_execution", "command": "/bin/bash -lc 'pytest -q'"},
        },
        {
            "type": "item.completed",
            "item": {"type": "file_change", "changes": [{"path": "shop/cart.py", "kind": "add"}]},
        },
        {"type": "item.completed", "item": {"type": "error", "message": "unknown model"}},
        {"type": "item.completed", "item": {"type": "agent_message", "text": "All is there."}},
        {
            "type": "turn.completed",
            "usage": {"input_tokens": 1000, "cached_input_tokens": 400, "output_tokens": 20},
        },
    ),
    "copilot": stream(
        {"type": "session.start", "data": {"sessionId": "c1"}},
        {
            "type": "tool.execution_start",
            "data": {"toolName": "bash", "arguments": {"command": "pytest -q"}},
        },
        {"type": "assistant.message", "data": {"content": "All is there."}},
        {"type": "result", "sessionId": "c1", "exitCode": 0, "usage": {"premiumRequests": 1}},
    ),
    "gemini": stream(
        {"type": "init", "session_id": "g1", "model": "gemini-3"},
        {
            "type": "tool_use",
            "tool_name": "write_file",
            "parameters": {"file_path": "shop/cart.py"},
        },
        {"type": "message", "role": "assistant", "content": "All is ", "delta": True},
        {"type": "message", "role": "assistant", "content": "there.", "delta": True},
        {
            "type": "result",
            "status": "success",
            "stats": {"input_tokens": 1000, "output_tokens": 20, "cached": 400},
        },
    ),
    "opencode": stream(
        {"type": "step_start", "sessionID": "o1", "part": {}},
        {
            "type": "tool_use",
            "sessionID": "o1",
            "part": {"tool": "bash", "state": {"input": {"command": "pytest -q"}}},
        },
        {
            "type": "step_finish",
            "sessionID": "o1",
            "part": {"reason": "tool-calls", "cost": 0.01, "tokens": {"input": 900, "output": 10}},
        },
        {"type": "text", "sessionID": "o1", "part": {"text": "All is there."}},
        {
            "type": "step_finish",
            "sessionID": "o1",
            "part": {
                "reason": "stop",
                "cost": 0.02,
                "tokens": {"input": 100, "output": 8, "reasoning": 2, "cache": {"read": 400}},
            },
        },
    ),
    "kimi": stream(
        {"role": "meta", "type": "system.version", "version": "2.1.0"},
        {
            "role": "assistant",
            "tool_calls": [
                {"function": {"name": "Bash", "arguments": json.dumps({"command": "pytest -q"})}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
        {"role": "assistant", "content": "All is there."},
        {"role": "meta", "type": "session.resume_hint", "session_id": "k1"},
    ),
    "pi": stream(
        {"type": "session", "id": "p1", "cwd": "/repo"},
        {"type": "tool_execution_start", "toolName": "bash", "args": {"command": "pytest -q"}},
        {"type": "message_end", "message": pi_answer("r1", "toolUse")},
        {"type": "message_end", "message": pi_answer("r2", "stop", "All is there.")},
        {"type": "agent_end", "messages": []},
    ),
    "qwen": stream(
        {**CLAUDE_INIT, "session_id": "q1"},
        claude_answer("m1", TOOL),
        claude_answer("m2", {"type": "text", "text": "All is there."}),
        {"type": "result", "subtype": "success", "is_error": False, "result": "All is there."},
    ),
    "cursor": stream(
        {"type": "system", "subtype": "init", "session_id": "u1"},
        {
            "type": "tool_call",
            "subtype": "started",
            "tool_call": {"writeToolCall": {"args": {"path": "shop/cart.py"}}},
        },
        {"type": "assistant", "message": {"content": [{"type": "text", "text": "Nearly."}]}},
        {"type": "result", "subtype": "success", "is_error": False, "result": "All is there."},
    ),
    "amp": stream(
        {"type": "system", "subtype": "init", "session_id": "a1"},
        claude_answer("m1", TOOL),
        {"type": "result", "subtype": "success", "is_error": False, "result": "All is there."},
    ),
}
"""A run that ends well, of every agent whose stream has a structure."""
