"""From a TASK to programs: what is replaced, what is refused, what the environment says."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from beads_workers.core.base.model import Call, IssueId, OutcomeKind, Script
from beads_workers.core.base.plain import from_plain
from beads_workers.core.base.plans import NotRunnable, Plan, StepKind
from beads_workers.core.base.scripts import Context, to_payload
from beads_workers.core.base.settings import Agent, Work, WorkerSettings, WorktreeRules, Worktrees
from beads_workers.core.base.wire import Task
from beads_workers.executors.command import (
    TITLE_CHARS_MAX,
    check_command,
    environment,
    plan,
    scripts,
)

TASK = Task(IssueId("bw-1"), 1, "A title", "Some text", attempt=2)


def settings(worker_id: str = "W3", **work: Any) -> WorkerSettings:
    return WorkerSettings(
        worker_id=worker_id,
        socket_path="/s",
        orchestrator_pid=7,
        project="/p",
        run_id="r1",
        run_directory="/run",
        actor="beads-workers/h/r1",
        work=Work(**work),
    )


def made(task: Task = TASK, **work: Any) -> Plan:
    result = plan(task, settings(**work))
    assert isinstance(result, Plan), result
    return result


def refused(task: Task = TASK, **work: Any) -> NotRunnable:
    result = plan(task, settings(**work))
    assert isinstance(result, NotRunnable), result
    return result


def test_known_placeholders_are_replaced_once_inside_each_argument() -> None:
    argv = ("x", "{id}-{priority}/{attempt}", "{worker}", "{title}", "{other} {} {ID} {{id}}")
    tricky = replace(TASK, title="{id} {worker}")
    assert made(tricky, command=argv).steps[0].argv == (
        "x",
        "bw-1-1/2",
        "W3",
        "{id} {worker}",
        "{other} {} {ID} {bw-1}",
    )


def test_an_issues_own_command_comes_before_the_fleets_and_that_before_the_agent() -> None:
    agent = Agent("a", ("agent", "{id}"), "Do {title}: {description}")
    own = replace(TASK, payload={"command": ["own", "{id}"]})
    assert made(own, command=("fleet",), agents=(agent,)).steps[0].argv == ("own", "bw-1")
    assert made(command=("fleet",), agents=(agent,)).steps[0].argv == ("fleet",)
    step = made(agents=(agent,)).steps[0]
    assert (step.argv, step.stdin) == (("agent", "bw-1"), "Do A title: Some text")


def test_with_nothing_to_run_it_says_so() -> None:
    assert refused().outcome is OutcomeKind.NOT_FOUND
    assert refused(replace(TASK, payload={"command": []})).outcome is OutcomeKind.NOT_FOUND
    assert refused(replace(TASK, payload={"command": [1]})).outcome is OutcomeKind.NOT_FOUND
    unread = refused(replace(TASK, payload_file="/x"), command=("true",))
    assert unread.outcome is OutcomeKind.RETRY, "lost by the machine, not by the task"


def test_verify_is_a_second_step_with_the_same_environment() -> None:
    run, verify = made(command=("x",), verify="make test").steps
    assert (verify.kind, verify.argv) == (StepKind.VERIFY, ("sh", "-c", "make test"))
    assert verify.environment == run.environment
    assert (run.stdin, verify.stdin) == (None, None)


def test_a_worker_that_calls_the_tracker_claims_first_and_closes_or_requeues() -> None:
    result = made(command=("x",), bd_argv=("bd", "--no-daemon"))
    update = ("bd", "--no-daemon", "update", "bw-1")
    assert [step.kind for step in result.steps] == [StepKind.CLAIM, StepKind.RUN]
    assert result.steps[0].argv == (*update, "--status=in_progress")
    assert result.close is not None and result.release is not None
    assert result.close.argv == ("bd", "--no-daemon", "close", "bw-1")
    assert result.release.argv == (*update, "--status=open", "--assignee=")
    assert result.steps[0].environment["BEADS_ACTOR"] == "beads-workers/h/r1/W3"
    refused(replace(TASK, issue_id=IssueId("--all")), command=("x",), bd_argv=("bd",))


def test_a_grouped_worker_never_touches_the_tracker() -> None:
    result = made(command=("x",))
    assert (len(result.steps), result.close, result.release) == (1, None, None)
    assert result.steps[0].environment["BEADS_ACTOR"] == "beads-workers/h/r1"


@pytest.mark.parametrize(
    ("task", "announced", "expected"),
    [
        (replace(TASK, v1=True), None, ("bd",)),
        (replace(TASK, v1=True), ("bd", "--no-daemon"), ("bd", "--no-daemon")),
        (replace(TASK, claims="worker"), None, ("bd",)),
        (replace(TASK, claims="orchestrator"), ("bd",), None),
        (replace(TASK, claims="of a later version"), None, None),
        (replace(TASK, claims="of a later version"), ("bd",), ("bd",)),
    ],
)
def test_the_task_says_who_claims_and_plain_version_1_leaves_it_to_the_worker(
    task: Task, announced: tuple[str, ...] | None, expected: tuple[str, ...] | None
) -> None:
    result = made(task, command=("x",), bd_argv=announced)
    close = None if result.close is None else result.close.argv
    assert close == (None if expected is None else (*expected, "close", "bw-1"))
    assert (result.steps[0].kind is StepKind.CLAIM) is (expected is not None)


def test_without_an_actor_the_users_own_stays() -> None:
    assert "BEADS_ACTOR" not in environment(TASK, replace(settings(), actor=""))


def test_texts_are_fit_for_the_kernel() -> None:
    odd = replace(TASK, title="a\0b\ud800" + "x" * 200_000, description="\0")
    result = made(odd, agents=(Agent("a", ("x", "{title}"), "{description}"),))
    run = result.steps[0]
    for text in (*run.argv, *run.environment.values(), run.stdin or ""):
        assert "\0" not in text
        text.encode("utf-8")
    assert len(run.environment["BW_ISSUE_TITLE"]) == TITLE_CHARS_MAX


def test_the_issue_file_holds_the_trackers_issue_or_what_the_task_said() -> None:
    original = {"id": "bw-1", "notes": "all of it"}
    whole = made(replace(TASK, payload={"issue": original}), command=("x",))
    assert json.loads(whole.issue_text) == original
    assert json.loads(made(command=("x",)).issue_text)["description"] == "Some text"
    assert whole.issue_file == "/run/issues/W3.json"
    assert whole.log_file == "/run/logs/bw-1.2.log"


@pytest.mark.parametrize(
    "command",
    [
        ["sh", "-c", "echo {title}"],
        ["/bin/bash", "-lc", "echo '{title}'"],
        ["bash", "-e", "-o", "pipefail", "-c", "x {description}"],
        ["bash", "-ceuo", "pipefail", "x {title}"],
        ["bash", "--norc", "-c", "--", "x {title}"],
        ["env", "-i", "A=1", "zsh", "-c", "{title}"],
        ["timeout", "5", "dash", "-c", "x {title}"],
        ["nice", "sh", "-e", "-c", "{title}"],
        ["python3", "-c", "print('{title}')"],
        ["python3.11", "-c", "print('{title}')"],
        ["perl", "-e", "print '{title}'"],
        ["node", "--eval", "'{title}'"],
        ["fish", "--command={title}"],
    ],
    ids=" ".join,
)
def test_an_issues_text_inside_a_script_is_refused(command: list[str]) -> None:
    trouble = check_command(command)
    assert trouble is not None and '"$BW_ISSUE_' in trouble
    assert refused(command=tuple(command)).error == trouble
    assert refused(replace(TASK, payload={"command": command})).error == trouble


@pytest.mark.parametrize(
    "command",
    [
        ["echo", "{title}"],
        ["sh", "-c", 'echo "$1"', "sh", "{title}"],
        ["sh", "script.sh", "-c", "{title}"],
        ["bash", "-c", 'x "$BW_ISSUE_TITLE" {id}'],
        ["grep", "-c", "{title}"],
        ["python3", "run.py", "{title}"],
        [],
    ],
    ids=" ".join,
)
def test_an_issues_text_as_an_argument_is_fine(command: list[str]) -> None:
    assert check_command(command) is None


@pytest.mark.parametrize(
    ("argument", "meant"),
    [
        ("{idd}", "{id}"),
        ("--x={Title}", "{title}"),
        ("{issue_id}", "{id}"),
        ("{prio_ity}", "{priority}"),
    ],
)
def test_a_misspelt_placeholder_is_refused_with_the_nearest_one(argument: str, meant: str) -> None:
    trouble = check_command(["./do.sh", argument])
    assert trouble is not None and f"did you mean {meant}?" in trouble
    # An issue's own command was not written for a fleet, and runs as it is.
    assert made(replace(TASK, payload={"command": ["a", argument]})).steps[0].argv == (
        "a",
        argument,
    )


@pytest.mark.parametrize("text", ["{print}", "{}", "{a,b}", "{name}", "${idd}", "{{idd}}", "{id}"])
def test_other_text_in_braces_stays_as_it_is(text: str) -> None:
    assert check_command(["awk", text]) is None


def test_an_odd_id_is_refused_inside_a_script_only() -> None:
    odd = replace(TASK, issue_id=IssueId("$(touch x)"))
    assert list(scripts(("sh", "-c", "a {id}"))) == ["a {id}"]
    assert "BW_ISSUE_ID" in refused(odd, command=("sh", "-c", "a {id}")).error
    assert made(odd, command=("a", "{id}")).steps[0].argv == ("a", "$(touch x)")


WORKTREES = Worktrees(
    "/p",
    "",
    "/p/.git",
    "/w",
    "/s",
    "main",
    "main",
    rules=WorktreeRules(setup="make", copy=(".env",)),
)


def test_with_worktrees_one_is_made_first_and_the_command_and_its_check_run_there() -> None:
    made_plan = made(command=("x",), verify="v", bd_argv=("bd",), worktrees=WORKTREES)
    places = [(step.kind, step.place_file) for step in made_plan.steps]
    assert places == [
        (StepKind.CLAIM, None),
        (StepKind.PREPARE, None),
        (StepKind.RUN, "/run/issues/W3.place"),
        (StepKind.VERIFY, "/run/issues/W3.place"),
        (StepKind.REPORT, None),
    ]
    assert made_plan.close is not None and made_plan.close.place_file is None
    prepare = made_plan.steps[1]
    assert prepare.stdin is not None
    asked = json.loads(prepare.stdin)
    assert from_plain(Worktrees, asked["worktrees"]) == WORKTREES
    assert (asked["issue_id"], asked["attempt"], asked["worker_id"]) == ("bw-1", 2, "W3")


def test_a_long_argument_is_looked_at_in_no_time() -> None:
    began = time.process_time()
    assert check_command(["true", "9" * 100_000 + "x"]) is None
    assert time.process_time() - began < 1.0


CALL = replace(TASK, payload={"callable": "shop.send", "args": ["me"], "kwargs": {"n": 1}})


def test_a_call_is_a_step_and_needs_no_file_for_its_issue() -> None:
    made_plan = made(CALL, allow_modules=("shop",), command=("x",))
    (step,) = made_plan.steps
    assert step.call == Call("shop.send", ("me",), {"n": 1})
    assert made_plan.issue_file == "" and "BW_ISSUE_FILE" not in step.environment
    assert made_plan.result_file == "/run/results/bw-1.2.json"


def test_what_verifies_a_call_or_claims_for_it_is_a_program_with_the_issues_file() -> None:
    made_plan = made(CALL, allow_modules=("shop",), verify="v", bd_argv=("bd",))
    kinds = [step.kind for step in made_plan.steps]
    assert kinds == [StepKind.CLAIM, StepKind.RUN, StepKind.VERIFY]
    assert made_plan.close and made_plan.issue_file == "/run/issues/W3.json"
    assert made_plan.steps[2].environment["BW_ISSUE_FILE"] == made_plan.issue_file


def test_a_fleet_that_allows_no_module_runs_its_command_for_such_an_issue() -> None:
    assert made(CALL, command=("x",)).steps[0].argv == ("x",)
    assert "no module is allowed (--allow-module)" in refused(CALL).error


def test_a_script_runs_as_its_context_says_and_nothing_else_is_done_about_it() -> None:
    script = to_payload(Script("echo", "shell", "ann", {"A": "1"}))
    task = replace(TASK, payload={"script": script})
    context = Context("shell", ("sh", "-s"), validator=("./check",), env=("A",))
    made_plan = made(task, contexts=(context,), command=("other",), verify="x")
    assert [(s.kind, s.argv) for s in made_plan.steps] == [
        (StepKind.VALIDATE, ("./check",)),
        (StepKind.RUN, ("sh", "-s")),
    ]
    assert made_plan.issue_file == ""
    assert made_plan.log_file == "/run/logs/bw-1.2.log"
    assert refused(task).error == "no such context: 'shell'"


@pytest.mark.parametrize("damaged", [None, 7, {}, {"text": 7}])
def test_what_is_no_script_is_run_as_any_other_issue(damaged: Any) -> None:
    task = replace(TASK, payload={"script": damaged})
    assert made(task, command=("other",)).steps[0].argv == ("other",)


def test_a_message_of_dispatcherd_comes_with_its_call_and_the_settings_of_dispatcherd() -> None:
    task = replace(CALL, payload={**CALL.payload, "message": {"uuid": "u", "bind": True}})
    (step,) = made(
        task, allow_modules=("shop",), function_variables={"DISPATCHERD_CONFIG_FILE": "/d.yml"}
    ).steps
    assert step.call is not None and step.call.message == {"uuid": "u", "bind": True}
    assert step.environment["DISPATCHERD_CONFIG_FILE"] == "/d.yml"
    (plain,) = made(CALL, allow_modules=("shop",)).steps
    assert plain.call is not None and plain.call.message is None
    assert "DISPATCHERD_CONFIG_FILE" not in plain.environment
