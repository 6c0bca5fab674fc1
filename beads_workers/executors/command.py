"""From a TASK to the programs that run for it: pure, so that ``--dry-run`` shows the truth."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace as with_fields
from typing import TYPE_CHECKING, Any

from beads_workers import registry
from beads_workers.core.base.model import Call, IssueId, OutcomeKind, Script, actor_of_task
from beads_workers.core.base.plain import to_plain
from beads_workers.core.base.plans import LogCopy, NotRunnable, Plan, Step, StepKind, plain
from beads_workers.core.base.redaction import UnsafePath, parts_below, secrets_of
from beads_workers.core.base.scripts import from_payload
from beads_workers.core.base.settings import Agent, Work, WorkerSettings
from beads_workers.core.base.traces import variables
from beads_workers.core.base.wire import CLAIMS_ORCHESTRATOR, CLAIMS_WORKER, Task, encode
from beads_workers.executors import files

if TYPE_CHECKING:
    from beads_workers.core.records.assignment import AgentSpec
    from beads_workers.core.records.receipts import Receipt

# --- placeholders --------------------------------------------------------------------------------
# Placeholders in commands and prompts, and the one place where they would be dangerous.
#
# Source: docs/OPERATIONS.md, "Text from issues". A replaced value is never examined again, and
# never reaches a shell: a script handed to ``sh -c`` may not contain an issue's text at all.


TITLE_CHARS_MAX = 32_000
"""Characters of a title: one argument or variable holds 128 KiB (MAX_ARG_STRLEN), and a character
is at most four bytes."""

SAFE_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:/@-]*")
"""Ids that may stand in a script or after a ``bd`` subcommand: no option, nothing to expand."""


def values(task: Task, worker_id: str) -> dict[str, str]:
    """Return the values of a command's placeholders."""
    return {
        "id": plain(task.issue_id),
        "title": plain(task.title)[:TITLE_CHARS_MAX],
        "priority": str(task.priority),
        "worker": plain(worker_id),
        "attempt": str(task.attempt),
    }


def replace(text: str, known: Mapping[str, str]) -> str:
    """Replace ``{name}`` for the known names in one pass; any other stays as it is."""
    return _PLACEHOLDER.sub(lambda match: known.get(match[1], match[0]), text)


NAMES = ("id", "title", "priority", "worker", "attempt")
"""Placeholders of a command: the keys of ``values``."""


def check_command(argv: Sequence[str]) -> str | None:
    """Return why a command that somebody typed is refused: it is unsafe, or misspelt. None: it is
    not."""
    slip = next(slips(argv), None)
    return unsafe_script(argv) or (
        f"{slip[0]} is not a placeholder; did you mean {slip[1]}?" if slip else None
    )


def slips(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield placeholders that look misspelt, each with the nearest one. Other text in braces is
    left alone, and so is code: braces mean something there."""
    code = {*scripts(argv)}
    found = (word for each in argv if each not in code for word in _WORD.findall(each))
    for word in found:
        from difflib import get_close_matches  # No worker needs it.

        name = word.lower()
        meant = get_close_matches(name, NAMES, n=1, cutoff=0.75)
        meant = meant or (["id"] if name in ("issue", "issue_id") else [])
        if word not in NAMES and meant:
            yield f"{{{word}}}", f"{{{meant[0]}}}"


def unsafe_script(argv: Sequence[str]) -> str | None:
    """Return why this command is refused: an issue's text may not become part of a script. None: it
    is not."""
    for script in scripts(argv):
        if match := _TEXT_PLACEHOLDER.search(script):
            return (
                f"{match[0]} inside a script would be executed as code;"
                f' use "${_VARIABLE[match[1]]}" there instead'
            )
    return None


def spelt_for_scripts(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the command as ``unsafe_script`` wants it: variables in scripts instead of
    placeholders."""
    refused = {script for script in scripts(argv) if _TEXT_PLACEHOLDER.search(script)}

    def spelt(match: re.Match[str]) -> str:
        return f"${{{_VARIABLE[match[1]]}}}"

    return tuple(_TEXT_PLACEHOLDER.sub(spelt, a) if a in refused else a for a in argv)


def scripts(argv: Sequence[str]) -> Iterator[str]:
    """Yield the arguments that a shell or interpreter would run as code, as after ``sh -c``.

    They are found wherever the program stands, so that ``env``, ``timeout`` and the like hide
    nothing.
    """
    for position, argument in enumerate(argv):
        letters = _SCRIPT_OPTIONS.get(argument.rpartition("/")[2].rstrip("0123456789."))
        if letters:
            yield from _script_after(argv[position + 1 :], letters)


def _script_after(arguments: Sequence[str], letters: str) -> Iterator[str]:
    code_follows = takes_value = False
    for argument in arguments:
        if takes_value:
            takes_value = False
        elif argument.startswith("--") and argument != "--":
            if "=" in argument and argument.split("=")[0] in _LONG_SCRIPT_OPTIONS:
                yield argument
            code_follows = code_follows or argument in _LONG_SCRIPT_OPTIONS
        elif _OPTIONS.fullmatch(argument):
            code_follows = code_follows or any(letter in argument for letter in letters)
            # ``-o pipefail`` may come before the script, also as the end of ``-ceuo``.
            takes_value = argument[-1] in "oO"
        else:
            if code_follows:
                yield argument
            return


_PLACEHOLDER = re.compile(r"\{([a-z]+)\}")
_WORD = re.compile(r"(?<![${])\{([A-Za-z_]+)\}(?!\})")
_TEXT_PLACEHOLDER = re.compile(r"\{(title|description)\}")
_VARIABLE = {"title": "BW_ISSUE_TITLE", "description": "BW_ISSUE_FILE"}
_SCRIPT_OPTIONS = {
    **dict.fromkeys(("sh", "bash", "zsh", "dash", "ash", "ksh", "mksh", "fish", "su"), "c"),
    "python": "c",
    "pypy": "c",
    "perl": "eE",
    "ruby": "e",
    "node": "ep",
    "php": "r",
}
_LONG_SCRIPT_OPTIONS = ("--command", "--eval", "--print")
_OPTIONS = re.compile(r"--|[-+][A-Za-z]*")


# --- plans ---------------------------------------------------------------------------------------
# From a TASK to the programs that run for it: pure, so that ``--dry-run`` shows the truth.


PREPARE_MODULE = "beads_workers.worktrees.preparation"
"""Module that creates an attempt's worktree; reads a ``preparation`` from its stdin."""

ATTEMPT_MODULE = "beads_workers.attempts.run"
"""Module that runs an agent; reads a ``core.records.assignment.Assignment`` from its stdin."""

DELIVER_MODULE = "beads_workers.attempts.deliver"
"""Module that makes a branch that can land of a command's work; its stdin is that of PREPARE."""

REPORT_MODULE = "beads_workers.worktrees.report"
"""Module that reports the result of the work in a worktree; its stdin is that of PREPARE."""


AWAY_MODULE = "beads_workers.places.away"
"""Module that waits for an attempt on another machine; its stdin is made by ``_away_plan``."""


def step_modules(work: Work, *, away: bool = False) -> list[str]:
    """Return the modules of the steps that nearly every task of a fleet runs; ``away``: of a worker
    whose tasks run on other machines."""
    if away:
        return [AWAY_MODULE]
    if work.worktrees is None:
        return []
    adapters = any(agent.adapter for agent in (work.agent, *work.agents) if agent is not None)
    if work.command is None and adapters:
        return [PREPARE_MODULE, ATTEMPT_MODULE]
    return [PREPARE_MODULE, DELIVER_MODULE if work.lands else REPORT_MODULE]


NO_COMMAND = "nothing to run: the issue has no command of its own, and the fleet has none"


def plan(task: Task, settings: WorkerSettings) -> Plan | NotRunnable:
    """Return what a worker runs for a task: ``[claim,] run [, verify]``, then ``close`` or a
    release.

    The issue's own command comes first, then the fleet's, then the agent. Texts are made fit for
    ``execve``. A payload that is still in a file is not runnable (the edge reads it first).
    """
    if task.payload_file is not None:
        # The machine wrote and lost the file, not the task.
        return NotRunnable(f"cannot read {task.payload_file}", OutcomeKind.RETRY)
    if settings.place is not None:
        return _away_plan(task, settings, settings.place.name)
    if settings.work.executors:
        requests = registry.need("executor_requests")  # No other worker needs it.
        planned: Plan | NotRunnable = requests.plan(task, _call(task.payload), settings)
        return planned
    if (script := from_payload(task.payload.get("script"))) is not None:
        return _script_plan(script, task, settings)
    run = _run(task, settings)
    if isinstance(run, NotRunnable):
        return run
    if _bd(task, settings) and not SAFE_ID.fullmatch(task.issue_id):
        return NotRunnable("the issue's id could be taken for an option")
    return _steps(task, settings, run)


OF_ONE_ISSUE = (
    *("BW_ISSUE_ID", "BW_ISSUE_TITLE", "BW_ISSUE_PRIORITY", "BW_ISSUE_FILE"),
    *("BW_ATTEMPT", "BW_SOCKET", "BW_PROGRESS"),
)
"""Variables of ``environment`` that only an attempt has: the gate of a train is about several
issues."""


def environment(task: Task, settings: WorkerSettings) -> dict[str, str]:
    """Return the variables that a task's programs get in addition to the worker's own
    environment."""
    known = values(task, settings.worker_id)
    added = {
        "BW_ISSUE_ID": known["id"],
        "BW_ISSUE_TITLE": known["title"],
        "BW_ISSUE_PRIORITY": known["priority"],
        "BW_ISSUE_FILE": files.issue_file(settings.run_directory, settings.worker_id),
        "BW_PROGRESS": files.progress_file(settings.run_directory, settings.worker_id),
        "BW_WORKER_ID": settings.worker_id,
        "BW_ATTEMPT": known["attempt"],
        "BW_RUN_ID": settings.run_id,
        # What a task starts ends with its worker: a daemon for everybody must not start there.
        "BEADS_AUTO_START_DAEMON": "false",
    }
    if settings.socket_path:  # On another machine there is none.
        added["BW_SOCKET"] = settings.socket_path
        added["ORCHESTRATOR_PID"] = str(settings.orchestrator_pid)
    if headers := task.payload.get("trace_context"):
        added |= variables(headers)
    if settings.actor:
        # A command's own ``bd close`` must come from the holder of the claim, or it is refused. An
        # agent closes nothing; its name shows which issues it has filed.
        actor = settings.actor
        if settings.work.reads_issues:
            actor = actor_of_task(actor, known["id"])
        if _bd(task, settings):
            actor = f"{settings.actor}/{settings.worker_id}"
        added["BEADS_ACTOR"] = added["BD_ACTOR"] = actor
    return added


def functions_environment(settings: WorkerSettings) -> dict[str, str]:
    """Return the same variables for a process for functions, while it has no task."""
    added = environment(Task(IssueId(""), 0, ""), settings)
    return {k: v for k, v in added.items() if k not in OF_ONE_ISSUE} | dict(
        settings.work.function_variables
    )


def issue_json(task: Task) -> str:
    """Return the whole issue for ``BW_ISSUE_FILE``: as the tracker shows it, or as TASK describes
    it."""
    issue = task.payload.get("issue")
    if not isinstance(issue, dict):
        issue = {
            "id": task.issue_id,
            "title": task.title,
            "description": task.description,
            "priority": task.priority,
            "issue_type": task.issue_type,
            "labels": list(task.labels),
        }
    # One field a line: ``indent`` would be written by Python code, at a tenth of the speed.
    fields = ",\n".join(f"  {_dumps(str(name))}: {_dumps(value)}" for name, value in issue.items())
    return f"{{\n{fields}\n}}\n"


_dumps = json.JSONEncoder().encode
"""Created once: ``json.dumps`` examines its options at every call."""


def preparation(task: Task, settings: WorkerSettings, *, delivers: bool = False) -> str:
    """Return the input of a PREPARE step, as JSON: ``worktrees.orders.Preparation``.

    ``delivers``: a DELIVER step asks what the command changed; an agent's attempt looks itself as
    it begins.
    """
    assert settings.work.worktrees is not None
    fields = {
        "worktrees": to_plain(settings.work.worktrees),
        "issue_id": task.issue_id,
        "attempt": task.attempt,
        "worker_id": settings.worker_id,
        "run_id": settings.run_id,
        "place_file": files.place_file(settings.run_directory, settings.worker_id),
        "continues": settings.work.continues and bool(_agent_fields(task).get("earlier")),
        "may_continue": settings.work.continues and bool(settings.work.agents),
        "lands": delivers,
        "paths": [x.removeprefix(PATHS_LABEL) for x in task.labels if x.startswith(PATHS_LABEL)],
    }
    return json.dumps(fields | _from_elsewhere(task, settings))


def _from_elsewhere(task: Task, settings: WorkerSettings) -> dict[str, str]:
    """Return the commits of an attempt that another machine has made, for the one that goes on."""
    earlier = _agent_fields(task).get("earlier")
    if not isinstance(earlier, Mapping) or earlier.get("host", "") == settings.host:
        return {}
    head, base = earlier.get("head"), earlier.get("base")
    return {"head": str(head), "base": str(base)} if head and base else {}


def _run(task: Task, settings: WorkerSettings) -> Step | NotRunnable:
    """Return the step that does the work."""
    work, added = settings.work, environment(task, settings)
    call = _call(task.payload)
    if call is not None and work.allow_modules:
        added |= work.function_variables
        if work.verify is None:
            del added["BW_ISSUE_FILE"]  # It has its arguments; a file for each would cost more.
        return Step(StepKind.RUN, (), added, call=call)
    # A fleet that calls no functions treats such an issue like any other.
    chosen = _choose(task, settings)
    if chosen is None:
        if call is not None:
            return NotRunnable(f"{call.path[:200]}: no module is allowed (--allow-module)")
        return NotRunnable(NO_COMMAND)
    if isinstance(chosen, Agent) and chosen.adapter:
        return _attempt(task, settings, chosen, added)
    argv, prompt = (chosen.argv, chosen.prompt) if isinstance(chosen, Agent) else (chosen, None)
    if trouble := unsafe_script(argv) or _unsafe_id(argv, task.issue_id):
        return NotRunnable(trouble)
    known = values(task, settings.worker_id)
    stdin = None
    if prompt is not None:
        stdin = replace(prompt, known | {"description": plain(task.description)})
    command = tuple(replace(argument, known) for argument in argv)
    return Step(StepKind.RUN, command, added, stdin, _place(settings))


def _call(payload: Mapping[str, Any]) -> Call | None:
    path, args, kwargs = (payload.get(name) for name in ("callable", "args", "kwargs"))
    if not isinstance(path, str):
        return None
    message = payload.get("message")
    return Call(
        path,
        tuple(args) if isinstance(args, list | tuple) else (),
        kwargs if isinstance(kwargs, Mapping) else {},
        message if isinstance(message, Mapping) else None,
    )


def _place(settings: WorkerSettings) -> str | None:
    if settings.work.worktrees is None:
        return None
    return files.place_file(settings.run_directory, settings.worker_id)


def _choose(task: Task, settings: WorkerSettings) -> tuple[str, ...] | Agent | None:
    work = settings.work
    own = _own_command(task.payload.get("command"))
    if own or work.command:
        return own or work.command or ()
    named = _agent_fields(task).get("name")
    return next((agent for agent in work.agents if agent.name == named), work.agent)


def _agent_fields(task: Task) -> Mapping[str, Any]:
    """Return what the orchestrator says about the agent that is to work on the task."""
    fields = task.payload.get("agent")
    return fields if isinstance(fields, Mapping) else {}


def _attempt(task: Task, settings: WorkerSettings, agent: Agent, added: Mapping[str, str]) -> Step:
    """Return the step of an agent with an adapter: our own program runs it, checks its work, and
    answers."""
    # No other worker needs these.
    from beads_workers.core.records.assignment import Assignment, write_assignment
    from beads_workers.core.records.landing import read_mend
    from beads_workers.core.records.receipts import read_receipt

    work, fields = settings.work, _agent_fields(task)
    issue = task.payload.get("issue")
    asked = Assignment(
        issue_id=task.issue_id,
        title=plain(task.title),
        issue=issue if isinstance(issue, dict) else json.loads(issue_json(task)),
        attempt=task.attempt,
        request_id=task.request_id,
        run_id=settings.run_id,
        worker_id=settings.worker_id,
        agent=_spec(agent, fields.get("model")),
        guards=files.guards_folder(settings.run_directory, settings.worker_id),
        usage_file=files.usage_file(settings.run_directory, task.request_id),
        runs=settings.run_directory.rpartition("/")[0],
        review=_spec(work.review) if work.review else None,
        verify=work.verify,
        independent=work.independent,
        asking=work.asking,
        # Within the worker's own grace, so that the answer is heard.
        term_seconds=work.term_grace_seconds * 0.6,
        allows_no_change=NO_CHANGE_LABEL in task.labels,
        earlier=_earlier(read_receipt(fields.get("earlier")), settings.host),
        error=fields.get("error", ""),
        resumes=work.continues,
        money=fields.get("money"),
        repair=read_mend(fields.get("mend")),
        may_ask=fields.get("may_ask") is True,
        question=fields.get("question", ""),
        asked_at=fields.get("asked_at", 0.0),
        trailers=work.worktrees.trailers if work.worktrees else (),
        pushes_submodules=work.worktrees is not None and work.worktrees.rules.pushes_submodules,
    )
    argv = (sys.executable, "-P", "-m", ATTEMPT_MODULE)
    stdin = write_assignment(asked)
    return Step(StepKind.RUN, argv, added, stdin, _place(settings), is_attempt=True)


def _earlier(receipt: Receipt | None, host: str) -> Receipt | None:
    """Return the receipt of the attempt before; its session goes on only where it lies."""
    elsewhere = receipt is not None and receipt.host != host
    return with_fields(receipt, session="") if receipt is not None and elsewhere else receipt


def _spec(agent: Agent, model: Any = None) -> AgentSpec:
    from beads_workers.core.records.assignment import AgentSpec

    chosen = model if isinstance(model, str) and model else agent.model
    program = agent.argv[0] if agent.argv else ""
    own = agent.arguments, agent.prices, agent.prompt, program
    return AgentSpec(agent.name, agent.adapter, chosen, *own)


NO_CHANGE_LABEL, PATHS_LABEL = "no-change", "paths:"
"""Labels: the issue may be done without a change; it needs this folder, too, in a sparse
worktree."""


def _own_command(command: Any) -> tuple[str, ...]:
    if not isinstance(command, list | tuple) or not all(isinstance(x, str) for x in command):
        return ()
    return tuple(plain(argument) for argument in command)


def _unsafe_id(argv: tuple[str, ...], issue_id: str) -> str | None:
    if SAFE_ID.fullmatch(issue_id) or not any("{id}" in script for script in scripts(argv)):
        return None
    return 'the issue\'s id cannot stand in a script; use "$BW_ISSUE_ID" there instead'


def _script_plan(script: Script, task: Task, settings: WorkerSettings) -> Plan | NotRunnable:
    """Return the plan of a script, which runs as its context says: never in a worktree, and without
    verification."""
    from beads_workers.executors import scripts as of_scripts  # No other worker needs it.

    added = environment(task, settings)
    del added["BW_ISSUE_FILE"]  # It has its stdin; a file for each would cost more than the script.
    steps = of_scripts.script_steps(script, settings.work.contexts, added)
    if isinstance(steps, NotRunnable):
        return steps
    copy = None
    if script.log_path:
        if (root := settings.work.log_root) is None:
            return NotRunnable("log_path: this fleet has no folder for the logs of jobs")
        try:
            parts_below(root.path, script.log_path)
        except UnsafePath as error:
            return NotRunnable(f"log_path: {error}")
        copy = LogCopy(root, script.log_path)
    made = _plan(steps, task, settings)
    return with_fields(made, log_copy=copy, secrets=secrets_of(script.environment))


def _steps(task: Task, settings: WorkerSettings, run: Step) -> Plan:
    added, place, steps = run.environment, _place(settings), [run]
    delivers = settings.work.lands and not run.is_attempt
    if settings.work.worktrees is not None:
        # -P: modules in the project's folder are never imported.
        prepare = (sys.executable, "-P", "-m", PREPARE_MODULE)
        asked = preparation(task, settings, delivers=delivers)
        steps.insert(0, Step(StepKind.PREPARE, prepare, added, asked))
    if delivers:
        # The gate verifies it, on the tree that is to land.
        deliver = (sys.executable, "-P", "-m", DELIVER_MODULE)
        stdin = preparation(task, settings)
        steps.append(Step(StepKind.DELIVER, deliver, added, stdin, place, is_attempt=True))
    elif settings.work.verify is not None and not run.is_attempt:
        verify = ("sh", "-c", settings.work.verify)
        steps.append(Step(StepKind.VERIFY, verify, added, place_file=place))
    if settings.work.worktrees is not None and not run.is_attempt and not settings.work.lands:
        report = (sys.executable, "-P", "-m", REPORT_MODULE)
        steps.append(Step(StepKind.REPORT, report, added, preparation(task, settings)))
    close = release = None
    if bd := _bd(task, settings):
        update = (*bd, "update", task.issue_id)
        steps.insert(0, Step(StepKind.CLAIM, (*update, "--status=in_progress"), added))
        close = Step(StepKind.CLOSE, (*bd, "close", task.issue_id), added)
        release = Step(StepKind.RELEASE, (*update, "--status=open", "--assignee="), added)
    return _plan(steps, task, settings, close, release)


def _away_plan(task: Task, settings: WorkerSettings, place: str) -> Plan:
    """Return the plan of a task whose steps run on another machine: one step, which waits."""
    fields = {
        "task": encode(task, settings.worker_id, 0.0, v1=False).decode(),
        "settings": to_plain(settings),
        "line": files.line_socket(settings.run_directory, place),
    }
    argv = (sys.executable, "-P", "-m", AWAY_MODULE)
    step = Step(StepKind.AWAY, argv, {}, json.dumps(fields), is_attempt=True)
    made = _plan((step,), task, settings)
    return with_fields(made, keeps_time=True)


def _bd(task: Task, settings: WorkerSettings) -> tuple[str, ...]:
    """Return the command by which this worker calls the tracker for a task; empty if the
    orchestrator does that.

    If the TASK is plain version 1, nobody has agreed to what the worker announced.
    """
    if task.v1 or task.claims == CLAIMS_WORKER:
        return settings.work.bd_argv or ("bd",)
    if task.claims == CLAIMS_ORCHESTRATOR:
        return ()
    return settings.work.bd_argv or ()


def _plan(
    steps: Sequence[Step],
    task: Task,
    settings: WorkerSettings,
    close: Step | None = None,
    release: Step | None = None,
) -> Plan:
    return Plan(
        steps=tuple(steps),
        issue_file=(file := steps[0].environment.get("BW_ISSUE_FILE", "")),
        issue_text=issue_json(task) if file else "",
        log_file=files.log_file(settings.run_directory, task.issue_id, task.attempt),
        output_file=files.output_file(settings.run_directory, settings.worker_id),
        progress_file=files.progress_file(settings.run_directory, settings.worker_id),
        result_file=files.result_file(settings.run_directory, task.issue_id, task.attempt),
        log_bytes_max=settings.work.log_bytes_max,
        close=close,
        release=release,
    )
