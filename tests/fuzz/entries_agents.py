"""What agents print: their streams, their texts, their files of usage, and issues as prompts."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

from beads_workers.agents import prompt, texts
from beads_workers.agents.adapter import Adapter, load, names
from beads_workers.agents.events import DENIED_MAX, MODELS_MAX, PRINTED_LINES_MAX, Event, Tally
from beads_workers.agents.lines import Fields, Parser
from beads_workers.agents.planted import risky_part
from beads_workers.agents.totals import from_object
from beads_workers.agents.verdict import RunEnding, Verdict
from beads_workers.core.base.framing import ProtocolError, parse_object
from tests.agents.adapters.test_claude import REJECTED, error
from tests.agents.streams import GOOD
from tests.fuzz import inputs
from tests.fuzz.inputs import texts as joined
from tests.fuzz.parser import Parser as Entry
from tests.fuzz.parser import require, well_typed

# --- streams ----------------------------------------------------------------------------------

LINES = [json.loads(line) for name in sorted(GOOD) for line in GOOD[name].splitlines()]
LINES += [REJECTED, error("rate_limit", "resets 4pm", api_error="usage_limit_reached")]
LINES += [{"type": "turn.failed", "error": {"message": "try again at Nov 25th, 2026 8:25 AM."}}]
LINES += [{"type": "system", "subtype": "api_retry", "error_status": 529, "attempt": 1}]
LINES += [{"type": "session.error", "data": {"errorType": "rate_limit", "statusCode": 429}}]
LINES += [{"type": "error", "error": {"data": {"message": "x", "statusCode": 500}}}]
NAMES = tuple(dict.fromkeys(name for line in LINES for name in line))
NOW = 1_795_340_000.0


def stream(rng: Random) -> bytes:
    """Some lines of some agents, some of them hostile."""
    found = b""
    for _ in range(1 + int(rng.random() * 5)):
        line = inputs.any_of(rng, LINES)
        changed = inputs.hostile_object(rng, line, NAMES) if rng.random() < 0.7 else line
        found += inputs.as_json(rng, changed) + b"\n"
    return inputs.mutated(rng, found, inputs.PIECES) if rng.random() < 0.4 else found


def hears(adapters: list[Adapter], data: bytes) -> None:
    """Every adapter hears the same, however it comes, and has a verdict on it."""
    for adapter in adapters:
        events = _events(adapter.parser(), [data])
        for pieces in inputs.cuts(data)[1:]:
            require(_events(adapter.parser(), pieces) == events, "other events in pieces")
        tally = Tally()
        tally.apply(events)
        for event in events:
            well_typed(event)
        _bounded(tally)
        verdict = adapter.verdict(tally, RunEnding(1, at=NOW))
        _is_verdict(verdict)
        require(tally.result is None or tally.result.ok or verdict.kind.value != "done", "false")
        for line in inputs.as_text(data).splitlines()[:3]:
            for shown in adapter.readable(line):
                require(shown.isprintable() or "\u200d" in shown, "obeyed")


def _events(parser: Parser, pieces: list[bytes]) -> list[Event]:
    found = [event for piece in pieces for event in parser.feed(piece)] + parser.end()
    totals = parser.totals()
    require(from_object(json.loads(json.dumps(totals.to_object()))) == totals, "not kept")
    return found


def _bounded(tally: Tally) -> None:
    require(len(tally.usage) <= MODELS_MAX + 1 and len(tally.denied) <= DENIED_MAX, "too many")
    require(len(tally.printed) <= PRINTED_LINES_MAX, "too many lines")
    require(all(u.tokens >= 0 and (u.money or 0) >= 0 for u in tally.usage.values()), "below 0")


def _is_verdict(verdict: Verdict) -> None:
    well_typed(verdict)
    require(len(verdict.why) <= 400 and "\n" not in verdict.why, "no short sentence")
    latest = NOW + texts.RESET_SECONDS_MAX
    require(verdict.until is None or verdict.until <= latest, "a reset that is too far")


class _Trusting(Parser):
    """Planted bug: takes a field for what it should be."""

    def read(self, said: Fields) -> list[Event]:
        said._fields["type"].upper()
        return []


class _Impatient(Parser):
    """Planted bug: reads what has come as whole lines."""

    def feed(self, data: bytes) -> list[Event]:
        return [event for line in data.splitlines() for event in self.line(line.decode("latin-1"))]

    def read(self, said: Fields) -> list[Event]:
        return []


def _with(parser: type[Parser]) -> list[Adapter]:
    made = type("Planted", (type(ADAPTERS[0]),), {"parser_class": parser})
    return [made()]


ADAPTERS = [found for name in names() if (found := load(name)) is not None]


# --- texts of limits --------------------------------------------------------------------------

WORDS = (
    b"resets ", b"try again ", b"at ", b"in ", b"after ", b"on ", b"Nov ", b"Feb ", b"25th", b"30",
    b", ", b"2026 ", b"8:25", b" AM", b"pm", b"(UTC)", b"(Europe/Berlin)", b"(../../etc)", b"|",
    b"1795342974", b"000", b"2 hours ", b"7200s", b"18h20m10s", b".", b" ", b"0", b"12", b"13",
    b"(", b")", "·".encode(), "\u202f".encode(),
)  # fmt: skip
ZONES = [ZoneInfo("UTC"), ZoneInfo("Europe/Berlin"), ZoneInfo("Australia/Lord_Howe")]


def resets_hold(reset: Any, data: bytes) -> None:
    text = inputs.as_text(data)
    for zone in ZONES:
        found = reset(text, NOW, zone)
        require(
            found is None or NOW - texts.PASSED_SECONDS < found <= NOW + texts.RESET_SECONDS_MAX,
            f"a reset at {found}",
        )
    require(len(texts.sentence(text)) <= 160, "no short sentence")


def _believes(text: str, now: float, zone: Any) -> float | None:
    """Planted bug: a moment is what it is called."""
    found = re.search(r"\|(\d+)", text)
    return float(found[1]) if found else texts.reset(text, now, zone)


# --- a file of usage, and an issue --------------------------------------------------------------

ANSWER = {
    "type": "token_usage_record",
    "payload": {"response_id": "r", "usage": {"input_tokens": 5, "output_tokens": 1}},
}
USAGE = {"totalNanoAiu": 5, "modelMetrics": {"m": {"usage": {"inputTokens": 5, "x": 1}}}}
ISSUE = {
    "id": "x-1", "title": "A title", "description": "`````\ntext", "priority": 1, "notes": "n",
    "created_by": "ann", "labels": ["a"], "comments": [{"author": "`", "text": "~~~\n```"}],
    "dependencies": [{"id": "x-0", "dependency_type": "parent-child"}], "design": "{id}",
}  # fmt: skip


def usage_holds(told: Any, data: bytes) -> None:
    for event in told(inputs.as_text(data)):
        well_typed(event)
        require(event.tokens >= 0, "below 0")


def issue_holds(render: Any, data: bytes) -> None:
    try:
        fields = parse_object(data)
    except ProtocolError:
        return
    text = render(prompt.of_issue(fields))
    text.encode()
    fence = ""
    for line in text.split("\n"):
        if not fence and (match := re.match(r"(`{3,})text$", line)):
            fence = match[1]
        elif fence and line.startswith(fence):
            require(line == fence, "a fence that is longer than its own")
            fence = ""
    require(not fence and text.count("\nRules:\n") >= 1, "a text ended its own block")
    require(text.rstrip().endswith("Do not ask questions: nobody answers."), "not ours at the end")


def _short_fences(briefing: prompt.Briefing) -> str:
    """Planted bug: every fence is three backticks long."""
    return re.sub("(?m)^`{3,}", "```", prompt.render(briefing))


def _believes_usage(text: str) -> Any:
    """Planted bug: what looks like JSON is the file."""
    json.loads(text)
    return []


def _told(text: str) -> list[Event]:
    """By those that write their usage into a file: copilot a document, others a line an answer."""
    return [event for each in ADAPTERS for event in each.parser().usage_told(text)]


HOOKS = {"Stop": [{"hooks": [{"type": "command", "command": "bd prime"}]}]}
PLANTED = {"apiKeyHelper": "x", "hooks": HOOKS, "permissions": {"deny": []}, "model": "m"}


def risky_holds(part: Any, data: bytes) -> None:
    """Nothing raises, all can be hashed, and what names a helper is never passed over."""
    for file in (".claude/settings.json", ".mcp.json"):
        found = part(file, data)
        json.dumps(found, sort_keys=True)
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        require(bool(part(".mcp.json", data)), "what cannot be read is believed")
        return
    if isinstance(said, dict) and said.get("apiKeyHelper"):
        require("apiKeyHelper" in part(".claude/settings.json", data), "a helper is believed")


def _trusting(file: str, content: bytes) -> dict[str, Any]:
    found = risky_part(file, content)
    return {} if "apiKeyHelper" in found else found


WRITERS = tuple(f"agents/adapters/{name}.py" for name in ("copilot", "codex", "claude"))
SAID = {"type": "assistant", "message": {
    "id": "m1", "model": "opus", "usage": {"input_tokens": 9, "output_tokens": 3},
}}  # fmt: skip
"""A line of claude's session."""

PARSERS = [
    Entry("settings of agents in a repository", ("agents/planted.py",), risky_part,
          inputs.objects([PLANTED]), risky_holds, {"believes a helper": _trusting}),
    Entry(
        "agents",
        ("agents/lines.py", "agents/adapters/kimi.py"),
        ADAPTERS,
        stream,
        hears,
        {
            "takes a field for what it should be": _with(_Trusting),
            "reads what has come as lines": _with(_Impatient),
        },
    ),
    Entry("resets of limits", ("agents/texts.py",), texts.reset, joined(WORDS), resets_hold,
          {"believes any moment": _believes}),
    Entry("usage beside the stream", WRITERS, _told, inputs.objects([USAGE, ANSWER, SAID]),
          usage_holds,
          {"believes that it is JSON": _believes_usage}),
    Entry("prompts", ("agents/prompt.py",), prompt.render, inputs.objects([ISSUE]), issue_holds,
          {"short fences": _short_fences}),
]  # fmt: skip
