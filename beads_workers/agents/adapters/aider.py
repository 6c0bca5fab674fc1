"""aider: ``aider --message-file``, which prints text.

Measured with 0.86.2. Its exit status is 0 even if its login is gone. It writes histories and
``.gitignore`` unless its options forbid that. The line that counts its tokens shows that the model
has answered. It keeps no session.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from beads_workers.agents.adapter import Adapter, AgentRequest, Invocation, Permission
from beads_workers.agents.events import (
    PRINTED_CHARS_MAX,
    Doing,
    Event,
    FinalResult,
    Printed,
    Retrying,
    Usage,
    Words,
)
from beads_workers.agents.lines import Fields, Parser
from beads_workers.agents.texts import recognise
from beads_workers.agents.verdict import of_text

_LEAVES_NOTHING = (
    *("--no-gitignore", "--chat-history-file", "/dev/null", "--input-history-file", "/dev/null"),
    # The map of a repository is a cache in it, and would land.
    *("--map-tokens", "0"),
)
_ASKS_NOBODY = (
    *("--yes-always", "--no-auto-commits", "--no-check-update", "--no-show-release-notes"),
    *("--no-analytics", "--no-pretty", "--no-stream", "--no-show-model-warnings"),
    *("--no-detect-urls", "--no-suggest-shell-commands"),
)
_ASK = ("--chat-mode", "ask")

_NUMBER = r"(\d{1,9}(?:,\d{3})*(?:\.\d{1,9})?k?)"
_COUNTED = re.compile(
    rf"Tokens: {_NUMBER} sent,(?: {_NUMBER} cache write,)?(?: {_NUMBER} cache hit,)?"
    rf" {_NUMBER} received\.(?: Cost: \$(\d+(?:\.\d+)?) message)?"
)
_APPLIED = re.compile(r"Applied edit to (.+)")
_ANSWER_LINES_MAX = 200


class AiderParser(Parser):
    """Parser of its text: an answer is the text that it has printed when it counts the tokens."""

    _has_answer = _is_up = False
    _answer = ""
    _printed_lines: tuple[str, ...] = ()

    def line(self, line: str) -> Iterable[Event]:
        """Return the events of a line of its output."""
        line = line.rstrip()[:PRINTED_CHARS_MAX]
        if (counted := _COUNTED.match(line)) is not None:
            return self._answered(counted)
        if (applied := _APPLIED.match(line)) is not None:
            return [Doing("editing", applied[1])]
        self._is_up = self._is_up or line.startswith("Aider v")
        if not self._is_up and recognise(line):
            return []  # It asked for the newest list of models: such an error does not matter.
        self._printed_lines = (*self._printed_lines, line)[-_ANSWER_LINES_MAX:]
        if recognise(line):
            self._has_answer = False
            return [Printed(line), of_text(line)]
        if line.startswith("Retrying in "):
            last = next((each for each in reversed(self._printed_lines) if recognise(each)), line)
            pattern = recognise(last)
            return [Retrying(last, pattern.kind)] if pattern else [Retrying(last)]
        return [Printed(line)]

    def read(self, fields: Fields) -> Iterable[Event]:
        """Return no events: no line is an object here."""
        return ()

    def end(self) -> list[Event]:
        """End the run: only now it is certain that it asks for no more answers."""
        events = super().end()
        return [*events, FinalResult(self._answer, True)] if self._has_answer else events

    def _answered(self, counted: re.Match[str]) -> Iterator[Event]:
        self._answer, self._printed_lines = "\n".join(self._printed_lines).strip(), ()
        self._has_answer = True
        sent, written, hit, received = (_tokens(each) for each in counted.groups()[:4])
        money = float(counted[5]) if counted[5] else None
        fresh = max(0, sent - written - hit)
        yield Usage(self.model, fresh, received, hit, written, money)
        yield Words(self._answer)


def _tokens(shown: str | None) -> int:
    """Parse ``1.2k``, rounded as aider shows numbers."""
    if not shown:
        return 0
    number = shown.rstrip("k").replace(",", "")
    return round(float(number) * (1000 if shown.endswith("k") else 1))


class Aider(Adapter):
    """Adapter of aider. Its prompt comes on stdin, as a file of messages."""

    name = "aider"
    tells_money = True
    account_variables = ("AIDER_", "ANTHROPIC_", "OPENAI_", "GEMINI_", "DEEPSEEK_", "OPENROUTER_")
    parser_class = AiderParser
    resumes = False
    measured = ("0.86.2",)
    command = "aider"
    install = "python -m pip install aider-chat"

    def arguments(self, request: AgentRequest) -> Invocation:
        """Return the call; its questions are answered with yes, and it leaves nothing but its
        work."""
        argv = ["aider", *_LEAVES_NOTHING, *_ASKS_NOBODY]
        if request.permission is Permission.READ:
            argv += _ASK
        if request.model:
            argv += ["--model", request.model]
        return Invocation(
            (*argv, *request.arguments, "--message-file", "/dev/stdin"), request.prompt
        )


ADAPTER = Aider()
