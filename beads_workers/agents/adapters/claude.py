"""Claude Code: ``claude -p --output-format stream-json``.

Measured with 2.1.197, 2.1.328 and 2.1.332; the shapes are those of ``sdk.d.ts`` in
@anthropic-ai/claude-agent-sdk 0.3.330. Facts:

- Its exit status does not tell the reason. A limit, a login or an overload comes as a result of
  ``subtype: success`` with ``is_error``.
- One answer of the model comes as several lines with the same message id and usage.
- It goes on after a result when one of its background tasks ends: there is a second ``init``, and a
  second result.
- That usage has the output as it was when the answer began. The session's file has all of it.
- It asks a person by ``AskUserQuestion``, but only with ``--permission-prompt-tool stdio``. A hook
  that answers ``defer`` ends the run at the call. ``--resume`` with an empty stdin runs the call
  again, and a hook can answer it. Without a hook the call fails, and claude goes on. So does a
  call that needs a permission: the flag changes only the words of its refusal ("Stream closed").
- ``modelUsage`` of the result is the right account (``usage`` leaves out sub-agents, and is zero at
  a budget). In newer versions, after ``--resume``, it is the account of the session.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from beads_workers.agents import adapter, events
from beads_workers.agents.lines import Fields, Parser
from beads_workers.agents.texts import recognise
from beads_workers.agents.verdict import of_status
from beads_workers.core.base.framing import ProtocolError, parse_object

_TOOLS = "Bash,Edit,Write,Read,Glob,Grep"

_PERMISSIONS = {
    adapter.Permission.READ: ("--permission-mode", "dontAsk", "--allowedTools", "Read,Glob,Grep"),
    # Edits and commands inside the folder without questions; everything else is refused.
    adapter.Permission.EDIT: ("--permission-mode", "acceptEdits", "--allowedTools", _TOOLS),
    adapter.Permission.ALL: ("--permission-mode", "bypassPermissions"),
}

_UNWANTED = "EnterWorktree,ExitWorktree,EnterPlanMode,ExitPlanMode,ScheduleWakeup"
"""Tools that a fleet does not want. A worktree of claude is made in the user's main checkout, and
the work stays there; a plan waits for a person; a wake-up starts again after the end. No permission
mode refuses them."""

_ASKS = "AskUserQuestion"

_INSTEAD = ("--settings", "--bare", "--permission-prompt-tool", "--permission-prompts")
"""Arguments of the user by which our hooks, or our way to questions, are gone."""

_MANAGED = "/etc/claude-code"

_BYPASSES = {"--dangerously-skip-permissions", "bypassPermissions"}

_ERRORS = {
    "authentication_failed": events.Kind.NEEDS_PERSON,
    "oauth_org_not_allowed": events.Kind.NEEDS_PERSON,
    "account_on_hold": events.Kind.NEEDS_PERSON,
    "verification_required": events.Kind.NEEDS_PERSON,
    "billing_error": events.Kind.NEEDS_PERSON,
    "cloud_credential_error": events.Kind.NEEDS_PERSON,
    "model_not_found": events.Kind.NEEDS_PERSON,
    "rate_limit": events.Kind.TRANSIENT,
    "overloaded": events.Kind.TRANSIENT,
    "server_error": events.Kind.TRANSIENT,
}
"""Kinds by the ``error`` of an assistant line or of a retry. A ``rate_limit`` is a usage limit if
it says so. The kind of any other error is known by its status and text."""

_USAGE_LIMIT = "usage_limit_reached"

_CAPS = {
    "error_max_turns": "it reached its limit of turns",
    "error_max_budget_usd": "it reached its budget",
    "max_turns": "it reached its limit of turns",
    "budget_exhausted": "it reached its budget",
}
"""``subtype`` and ``terminal_reason`` of the limits that we set."""

_CUT_OFF = {
    "aborted_streaming": "it was interrupted",
    "aborted_tools": "it was interrupted",
    "background_requested": "it went on in the background",
    "hook_stopped": "a hook stopped it",
    "stop_hook_prevented": "a hook stopped it",
    "tool_deferred": "a tool waits for somebody",
    "tool_deferred_unavailable": "a tool waits for somebody",
}
"""``terminal_reason`` of a run that was cut off without an error."""

_MID_TASK = "tool_use"
_STOPPED = {
    _MID_TASK: "it ended in the middle of its task",
    "refusal": "the model refused to go on",
}
"""``stop_reason`` of a result that calls itself a success."""

_NO_TOOL = re.compile(r"No such tool available: (\S{1,100}?)(?:\.|<|\s|$)")
"""Message about a tool that the user's rules deny altogether: the model tries it anyway."""

_ANSWER_TOKENS = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)
_TOTAL_TOKENS = (
    "inputTokens",
    "outputTokens",
    "cacheReadInputTokens",
    "cacheCreationInputTokens",
)


class ClaudeParser(Parser):
    """Parser of its stream."""

    _error: events.RunFailure | None = None
    _rejected: events.Limit | None = None
    _refused: frozenset[str] = frozenset()

    def read(self, fields: Fields) -> Iterable[events.Event]:
        """Return the events of one line of the stream."""
        match fields.text("type"), fields.text("subtype"):
            case "system", "init":
                return self._begin(fields)
            case "system", "api_retry":
                return [self._retry(fields)]
            case "system", "background_tasks_changed":
                return [events.Background(sum(1 for _ in fields.each("tasks")))]
            case "system", "permission_denied":
                return self._denied(fields)
            case "rate_limit_event", _:
                return self._limit(fields.at("rate_limit_info"))
            case "assistant", _:
                return self._assistant(fields)
            case "user", _:
                return self._tool_results(fields)
            case "result", subtype:
                return self._result(fields, subtype)
        return ()

    def usage_told(self, text: str) -> list[events.Event]:
        """Return the events of a line of the session's file: it has an answer's whole output."""
        if _ANSWER not in text:
            return []
        try:
            message = Fields(parse_object(text.encode("utf-8", "replace"))).at("message")
        except ProtocolError:
            return []
        if not (model := _model(message.name("model"))):
            return []
        usage = message.at("usage").usage(_ANSWER_TOKENS, model)
        return list(self.usage.answer(message.name("id"), usage))

    def _begin(self, fields: Fields) -> Iterator[events.Event]:
        self.model = _model(fields.name("model")) or self.model
        self.folder = fields.name("cwd") or self.folder
        if session := fields.name("session_id"):
            self.usage.begin(session)
            yield events.Session(session)

    def _retry(self, fields: Fields) -> events.Retrying:
        status, error = fields.count("error_status"), fields.name("error")
        failed = _failed(error, status, fields.text("error_message"))
        why = f"{error or 'error'}{f' {status}' if status else ''}"
        return events.Retrying(f"{why}, attempt {fields.count('attempt')}", failed.kind)

    def _limit(self, info: Fields) -> Iterator[events.Event]:
        limit = _limit(info)
        self._rejected = limit if limit.rejected and not limit.overage else None
        yield limit

    def _denied(self, fields: Fields) -> Iterator[events.Event]:
        if (call := fields.name("tool_use_id")) not in self._refused:
            if call and len(self._refused) < events.DENIED_MAX:
                self._refused |= {call}
            yield events.Denied(fields.name("tool_name") or "a tool")

    def _tool_results(self, fields: Fields) -> Iterator[events.Event]:
        for part in fields.each("message", "content"):
            if part.flag("is_error") and (match := _NO_TOOL.search(part.text("content"))):
                yield events.Denied(match[1])
            elif self.whole and part.text("type") == "tool_result":
                texts = [each.text("text") for each in part.each("content")]
                printed = part.text("content") or "\n".join(filter(None, texts))
                yield events.ToolOutput(printed, part.flag("is_error"))

    def _assistant(self, fields: Fields) -> Iterator[events.Event]:
        message = fields.at("message")
        texts = [part.text("text") for part in message.each("content") if part.has("text")]
        if error := fields.name("error"):
            yield from self._assistant_error(fields, error, "\n".join(texts))
            return
        self._error = None
        model = _model(message.name("model")) or self.model
        usage = message.at("usage").usage(_ANSWER_TOKENS, model)
        yield from self.usage.answer(message.name("id"), usage)
        if fields.text("parent_tool_use_id"):
            texts = []  # Words of a sub-agent are no answer.
        yield from (events.Words(text) for text in texts if text.strip())
        for part in message.each("content"):
            if part.text("type") == "tool_use":
                yield self.activity(part.name("name"), part.at("input"))

    def _assistant_error(self, fields: Fields, error: str, text: str) -> Iterator[events.Event]:
        failed = _failed(error, fields.count("api_error_status"), text)
        if info := fields.at("api_error_params", "rate_limit_info"):
            self._rejected = _limit(info)
        if fields.text("api_error") == _USAGE_LIMIT or (error == "rate_limit" and self._rejected):
            limit = self._rejected or events.Limit("")
            failed = events.RunFailure(events.Kind.LIMITED, text or limit.window, limit.until)
        self._error = failed
        if not fields.text("parent_tool_use_id"):
            yield failed

    def _result(self, fields: Fields, subtype: str) -> Iterator[events.Event]:
        usages = [
            usage.usage(_TOTAL_TOKENS, _model(model), "costUSD")
            for model, usage in fields.items("modelUsage")
        ]
        if usages:
            yield from self.usage.total(usages)
        elif (money := fields.money("total_cost_usd")) and fields.has("usage"):
            tokens = fields.at("usage").usage(_ANSWER_TOKENS, self.model)
            yield from self.usage.total([tokens.plus(events.Usage(money=money))])
        for denied in fields.each("permission_denials"):
            if denied.text("tool_name") == _ASKS:
                yield events.OpenQuestion(_question(denied.at("tool_input")))
            else:
                yield from self._denied(denied)
        text = fields.text("result")
        deferred = fields.at("deferred_tool_use")
        if fields.text("stop_reason") == "tool_deferred" and deferred.text("name") == _ASKS:
            question, call = _question(deferred.at("input")), deferred.name("id")
            yield events.FinalResult(text, True, question, call)
            return
        if (failure := self._ended_badly(fields, subtype, text)) is not None:
            yield failure
        yield events.FinalResult(text, failure is None)

    def _ended_badly(self, fields: Fields, subtype: str, text: str) -> events.RunFailure | None:
        reason = fields.name("terminal_reason")
        if why := _CAPS.get(subtype) or _CAPS.get(reason):
            return events.RunFailure(events.Kind.CAPPED, why)
        if fields.flag("is_error") or subtype != "success":
            text = text or _CUT_OFF.get(reason) or next(iter(fields.strings("errors")), "")
            status = fields.count("api_error_status")
            if self._error and (status or reason == "api_error" or text in self._error.text):
                return self._error
            return _failed("", status, text or subtype)
        if why := _CUT_OFF.get(reason):
            return events.RunFailure(events.Kind.UNFINISHED, why)
        stopped = fields.text("stop_reason")
        # An answer by a schema (--json-schema) is a call of a tool, and the last one.
        is_answer = stopped == _MID_TASK and fields.has("structured_output")
        if not is_answer and (why := _STOPPED.get(stopped)):
            return events.RunFailure(events.Kind.UNFINISHED, why)
        if fields.number("num_turns") == 0:
            return events.RunFailure(events.Kind.UNFINISHED, "it ended before its first turn")
        return None


def _question(asked: Fields) -> str:
    """Return the questions of a call with their choices, numbered: a person may answer by number
    (``attempts.ask_hook``)."""
    lines = []
    questions = asked.each("questions")
    for number, each in enumerate(questions, 1):
        of = f"{number}/{len(questions)}: " if len(questions) > 1 else ""
        lines.append(f"{of}{each.text('question')}{_SEVERAL if each.flag('multiSelect') else ''}")
        for at, option in enumerate(each.each("options"), 1):
            told = option.text("description")[:_CHOICE_CHARS_MAX]
            lines.append(f"  {at}. {option.name('label')}{f': {told}' if told else ''}")
    if len(questions) > 1:
        lines.append("Answer each on a line of its own, or divide the answers by ';'.")
    return "\n".join(lines)


_SEVERAL = " (several may be chosen, divided by commas)"
_CHOICE_CHARS_MAX = 300


def _failed(error: str, status: int, text: str) -> events.RunFailure:
    kind = _ERRORS.get(error)
    known = recognise(text)
    if kind is None or (known and known.kind is events.Kind.LIMITED):
        return of_status(status, text)
    return events.RunFailure(kind, text or error)


def _limit(info: Fields) -> events.Limit:
    window = info.name("rateLimitType")
    windows = dict(info.items("unifiedWindows"))
    resets = [info.number("resetsAt")]
    # Several windows can be full at once: all of them have to reset.
    resets += [w.number("resetsAt") for w in windows.values() if _is_rejected(w)]
    own = windows.get(window, Fields(None))
    utilization = info.number("utilization")
    return events.Limit(
        window,
        own.number("utilization") if utilization is None else utilization,
        max((moment for moment in resets if moment), default=None),
        # Without a window it is a 429 of a minute, which says "rejected" as well.
        rejected=_is_rejected(info) and bool(window or resets[0]),
        overage=info.flag("isUsingOverage"),
        model=window.removeprefix("seven_day_") if window in _WINDOWS_OF_MODELS else "",
    )


_WINDOWS_OF_MODELS = ("seven_day_opus", "seven_day_sonnet")


def _is_rejected(info: Fields) -> bool:
    return info.text("status") == "rejected"


def _model(name: str) -> str:
    """Return the model without the suffix of ``modelUsage`` for a larger context (``[1m]``); "" for
    claude's own messages (``<synthetic>``)."""
    return "" if name.startswith("<") else name.partition("[")[0]


_ANSWER = '"assistant"'
"""Mark of an answer in the session's file."""

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _home(environment: Mapping[str, str]) -> str:
    return environment.get("CLAUDE_CONFIG_DIR") or f"{environment.get('HOME', '')}/.claude"


def _switches(text: str) -> dict[str, Any]:
    """Return the settings in a text; claude ignores one that is no JSON."""
    try:
        return parse_object(text.encode())
    except ProtocolError:
        return {}


class Claude(adapter.Adapter):
    """Adapter of claude. The prompt comes on stdin; ``--allowedTools`` would take it for a tool."""

    name = "claude"
    tells_money = True
    account_variables = ("ANTHROPIC_", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR")
    parser_class = ClaudeParser
    own_session = True
    usage_kept = True
    program = adapter.Program(
        install="npm install -g @anthropic-ai/claude-code",
        login="claude /login",
        variables=(
            *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
            *("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"),
        ),
        login_files=(".claude/.credentials.json",),
        login_status=("auth", "status"),
        login_status_since="2.1.197",
    )
    by_hand = ("claude", "--resume")
    measured = ("2.1.197", "2.1.328", "2.1.332")
    has_hook = True

    def usage_files(self, session: str, environment: Mapping[str, str]) -> list[tuple[str, str]]:
        """Return the file of the session, in the folder of whichever project."""
        if not _UUID.fullmatch(session):
            return []
        return [(f"{_home(environment)}/projects", f"*/{session}.jsonl")]

    command = "claude"

    def arguments(self, request: adapter.AgentRequest) -> adapter.Invocation:
        """Return the call; ``stream-json`` needs ``--verbose``."""
        argv = ["claude", "-p", "--output-format", "stream-json", "--verbose"]
        argv += (*_PERMISSIONS[request.permission], "--disallowedTools", _UNWANTED)
        if request.session:
            argv += ["--resume" if request.resume else "--session-id", request.session]
        if request.model:
            argv += ["--model", request.model]
        if request.money is not None:
            argv += ["--max-budget-usd", f"{request.money:g}"]
        if request.turns is not None:
            argv += ["--max-turns", str(request.turns)]
        if request.settings:
            argv += ["--settings", request.settings]
        environment = {}
        if request.asks:
            argv += ["--permission-prompt-tool", "stdio"]
        elif request.resume:  # A session that waits for an answer goes on with the prompt.
            environment["CLAUDE_CODE_DROP_UNAVAILABLE_DEFERRED_TOOL"] = "1"
        return adapter.Invocation((*argv, *request.arguments), request.prompt, environment)

    def hooks_off(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folders: Sequence[str],
        read: adapter.Read,
    ) -> str:
        """Return what switches off our hooks; the file that says so first decides, as in claude.
        The local settings of the checkout hold in its worktrees, too."""
        if named := next((x for x in arguments if x.partition("=")[0] in _INSTEAD), ""):
            return named.partition("=")[0]
        places = [
            (_MANAGED, "managed-settings.json"),
            (f"{_MANAGED}/managed-settings.d", "*.json"),
            *((f"{each}/.claude", "settings.local.json") for each in folders),
            (f"{folders[0]}/.claude", "settings.json"),
            (_home(environment), "settings.json"),
        ]
        for file, text in (found for place in places for found in read(*place)):
            keys = _switches(text)
            if file.startswith(_MANAGED) and keys.get("allowManagedHooksOnly") is True:
                return f"allowManagedHooksOnly in {file}"
            if isinstance(off := keys.get("disableAllHooks"), bool):
                return f"disableAllHooks in {file}" if off else ""
        return ""

    def obstacles(
        self, arguments: Sequence[str], environment: Mapping[str, str], *, root: bool
    ) -> list[adapter.Obstacle]:
        """Return an obstacle if claude runs as root and its permissions are bypassed: it refuses
        that unless a variable says that it is in a sandbox."""
        words = {word.rpartition("=")[2] for word in arguments}
        if not root or environment.get("IS_SANDBOX") == "1" or not words & _BYPASSES:
            return []
        text = "as root it refuses to run with its permissions bypassed"
        return [adapter.Obstacle(text, "export IS_SANDBOX=1")]


ADAPTER = Claude()
