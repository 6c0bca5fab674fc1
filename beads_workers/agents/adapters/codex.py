"""Codex: ``codex exec --json``.

Measured with 0.169.0 and 0.171.0; the shapes are those of ``index.d.ts`` in @openai/codex-sdk.
Facts:

- An ``error`` line may be a retry ("Reconnecting... 1/5"); ``turn.failed`` is the end.
- The reason of a failure is only in a sentence: a usage limit names its reset as local time.
- ``usage`` of a turn is the total of the thread, resumed ones included; there is no money. It comes
  at the end of the turn, so after a kill it may never include the last answer. The file of the
  session has each answer (``token_usage_record``) as soon as it is there.
- It asks by ``request_user_input_async``, which returns at once, and goes on. Only the same file
  shows that it was a question.
- In its sandbox it cannot commit: its work is in the files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from beads_workers.agents import adapter, events
from beads_workers.agents.lines import Fields, Parser
from beads_workers.agents.texts import recognise
from beads_workers.agents.verdict import of_text
from beads_workers.core.base.framing import ProtocolError, parse_object

_SANDBOXES = {
    adapter.Permission.READ: ("--sandbox", "read-only"),
    adapter.Permission.EDIT: ("--sandbox", "workspace-write"),
    adapter.Permission.ALL: ("--sandbox", "danger-full-access"),
}

_ASKS_NOBODY = ("-c", 'approval_policy="never"')
"""Setting for approvals: ``exec`` takes it as a configuration value only (openai/codex issue
13614)."""


class CodexParser(Parser):
    """Parser of its stream."""

    _answer = ""

    def read(self, fields: Fields) -> Iterable[events.Event]:
        """Return the events of one line of the stream."""
        match fields.text("type"):
            case "thread.started":
                return self._begin(fields.name("thread_id"))
            case "item.started":
                return self._started(fields.at("item"))
            case "item.completed":
                return self._completed(fields.at("item"))
            case "turn.completed":
                return self._turn(fields.at("usage"))
            case "turn.failed":
                text = fields.text("error", "message") or "the turn failed"
                return [of_text(text), events.FinalResult(text, False)]
            case "error":
                return [_error(fields.text("message"))]
        return ()

    def usage_told(self, text: str) -> list[events.Event]:
        """Return the events of a line of the session's file."""
        if _ANSWER not in text and _QUESTIONS not in text:
            return []
        try:
            fields = Fields(parse_object(text.encode("utf-8", "replace")))
        except ProtocolError:
            return []
        if fields.text("type") != _ANSWER:
            asked = fields.at("payload", "item").each("questions")
            return [events.OpenQuestion(found) for each in asked if (found := _question(each))]
        answer, used = fields.at("payload"), fields.at("payload", "usage")
        return list(self.usage.answer(answer.name("response_id"), self._usage(used)))

    def _begin(self, thread: str) -> Iterator[events.Event]:
        if thread:
            self.usage.begin(thread)
            yield events.Session(thread)

    def _started(self, item: Fields) -> Iterator[events.Event]:
        match item.text("type"):
            case "command_execution":
                yield self.activity("shell", item)
            case "mcp_tool_call":
                yield events.Doing("using", item.name("tool"))
            case "web_search":
                yield events.Doing("searching", item.name("query"))

    def _completed(self, item: Fields) -> Iterator[events.Event]:
        if item.text("status") == "declined":
            yield events.Denied(item.name("command") or item.name("type"))
        match item.text("type"):
            case "agent_message" if text := item.text("text"):
                self._answer = text
                yield events.Words(text)
            case "command_execution" if self.whole:
                failed = item.count("exit_code") != 0
                yield events.ToolOutput(item.text("aggregated_output"), failed)
            case "file_change":
                for change in item.each("changes")[:20]:
                    yield self.activity("edit", change)

    def _turn(self, usage: Fields) -> Iterator[events.Event]:
        yield from self.usage.total([self._usage(usage)])
        yield events.FinalResult(self._answer, True)

    def _usage(self, usage: Fields) -> events.Usage:
        cached, written = (usage.count(n) for n in ("cached_input_tokens", _WRITTEN))
        own = max(0, usage.count("input_tokens") - cached - written)
        return events.Usage(self.model, own, usage.count("output_tokens"), cached, written)


_WRITTEN = "cache_write_input_tokens"
_ANSWER, _QUESTIONS = "token_usage_record", '"questions"'
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _question(asked: Fields) -> str:
    """Return a question with its choices; "" without a title."""
    title, choices = asked.text("title"), " / ".join(asked.strings("options"))
    return f"{title} ({choices})" if title and choices else title


def _error(text: str) -> events.Event:
    """Return the event of an error line. It may be a retry; a final error comes again in
    ``turn.failed``."""
    if recognise(text) and not text.startswith("Reconnecting"):
        return of_text(text)
    return events.Retrying(text, of_text(text, events.Kind.TRANSIENT).kind)


def _home(environment: Mapping[str, str]) -> str:
    return environment.get("CODEX_HOME") or f"{environment.get('HOME', '')}/.codex"


class Codex(adapter.Adapter):
    """Adapter of codex. The prompt comes on stdin (``-``), which codex reads to its end in any
    case."""

    name = "codex"
    account_variables = ("CODEX_HOME", "CODEX_API_KEY", "OPENAI_")
    parser_class = CodexParser
    program = adapter.Program(
        install="npm install -g @openai/codex",
        login="codex login",
        variables=("CODEX_API_KEY",),
        login_status=("login", "status"),
    )
    usage_grows = True
    commits = False
    by_hand = ("codex", "resume")
    measured = ("0.169.0", "0.171.0")
    command = "codex"

    def arguments(self, request: adapter.AgentRequest) -> adapter.Invocation:
        """Return the call; options stand before ``resume``, which does not know ``--sandbox``."""
        argv = ["codex", "exec", "--json", *_SANDBOXES[request.permission], *_ASKS_NOBODY]
        # A login shell would reset PATH, and lose the folder that we put first there.
        argv += ["-c", "allow_login_shell=false"]
        if request.model:
            argv += ["-m", request.model]
        argv += request.arguments
        if request.resume:
            argv += ["resume", request.session]
        return adapter.Invocation((*argv, "-"), request.prompt)

    def usage_files(self, session: str, environment: Mapping[str, str]) -> list[tuple[str, str]]:
        """Return the folders of the day on which the session began, and of the days beside it. The
        session's id (a UUID of version 7) has the time; the local day may differ."""
        if not _UUID.fullmatch(session):
            return []
        try:
            began = datetime.fromtimestamp(int(session.replace("-", "")[:12], 16) / 1000, UTC)
            days = [began + timedelta(days=n) for n in (-1, 0, 1)]
        except (ValueError, OverflowError, OSError):
            return []
        name = f"rollout-*-{session}.jsonl"
        return [(f"{_home(environment)}/sessions/{day:%Y/%m/%d}", name) for day in days]

    def settings_file(self, environment: Mapping[str, str]) -> str:
        """Return the path of the settings in its home."""
        return f"{_home(environment)}/config.toml"

    def login_variable(self, settings: str) -> str:
        """Return the variable of another provider of models (``model_provider``), which takes no
        login."""
        from tomllib import loads  # Only ``doctor`` asks for it.

        try:
            fields = loads(settings)
            name = fields["model_providers"][fields["model_provider"]]["env_key"]
        except (ValueError, RecursionError, LookupError, TypeError):
            return ""
        return name if isinstance(name, str) else ""

    def obstacles(
        self, arguments: Sequence[str], environment: Mapping[str, str], *, root: bool
    ) -> list[adapter.Obstacle]:
        """Return an obstacle if its home is below the folder for temporary files: its sandbox does
        not start there. Then every command fails, and it exits with 0."""
        home = _home(environment)
        usual = _home({**environment, "CODEX_HOME": ""})
        temporary = (environment.get("TMPDIR") or "/tmp").rstrip("/")
        if not home.startswith(f"{temporary}/"):
            return []
        text = f"its home {home} lies below {temporary}, where its sandbox cannot start"
        movable = not usual.startswith(f"{temporary}/")
        remedy = 'export CODEX_HOME="$HOME/.codex"' if movable else "export TMPDIR=/var/tmp"
        return [adapter.Obstacle(text, remedy)]


ADAPTER = Codex()
