"""What is asked of a script before it runs, and what it then runs under."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from beads_workers.core.base.model import OutcomeKind, Script
from beads_workers.core.base.plans import NotRunnable, Step, StepKind
from beads_workers.core.base.scripts import ANY_CONTEXT, Context, ResourceLimits
from beads_workers.executors.scripts import limited, script_steps

SHELL = Context("shell", ("sh",))
SCRIPT = Script("echo hello", "shell", "ann", {"GREETING": "hello"})
ADDED = {"BW_ISSUE_ID": "1"}


def made(script: Script = SCRIPT, context: Context = SHELL) -> tuple[Step, ...]:
    found = script_steps(script, (context,), ADDED)
    assert not isinstance(found, NotRunnable), found
    return found


def refused(script: Script, context: Context = SHELL) -> str:
    found = script_steps(script, (context,), ADDED)
    assert isinstance(found, NotRunnable)
    assert found.outcome is OutcomeKind.NOT_FOUND, "another attempt would change nothing"
    return found.error


def test_the_command_of_its_context_finds_the_script_on_its_stdin() -> None:
    (run,) = made()
    assert (run.kind, run.argv, run.stdin) == (StepKind.RUN, ("sh",), "echo hello")
    assert run.environment["GREETING"] == "hello"
    assert run.environment["BW_CONTEXT"] == "shell"
    assert run.environment["BW_CALLER"] == "ann"
    assert run.environment["BW_ISSUE_ID"] == "1"


def test_a_validator_sees_the_script_first_and_none_of_its_variables() -> None:
    context = replace(SHELL, validator=("./check", "--strict"), env=("GREETING",))
    validate, run = made(context=context)
    assert (validate.kind, validate.argv) == (StepKind.VALIDATE, ("./check", "--strict"))
    assert validate.stdin == run.stdin == "echo hello"
    assert "GREETING" not in validate.environment
    assert validate.environment["BW_CONTEXT"] == "shell"


def test_a_sandbox_is_given_the_command_and_limits_hold_for_both() -> None:
    context = replace(SHELL, sandbox=("bwrap", "--ro-bind", "/", "/"), limits=ResourceLimits(5))
    (run,) = made(replace(SCRIPT, environment={}), context)
    assert run.argv[:2] == ("sh", "-c")
    assert run.argv[-5:] == ("bwrap", "--ro-bind", "/", "/", "sh")


def test_a_context_of_no_name_of_ours_is_refused_unless_one_is_for_all() -> None:
    other = replace(SCRIPT, context="rhai")
    assert refused(other) == "no such context: 'rhai'"
    (run,) = made(other, Context(ANY_CONTEXT, ("cat",)))
    assert run.argv == ("cat",)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (replace(SCRIPT, text="x" * 11), "the script has 11 bytes; 10 are allowed"),
        (replace(SCRIPT, text="ä" * 6), "the script has 12 bytes; 10 are allowed"),
        (replace(SCRIPT, text="\udcff"), "the script is not UTF-8"),
        (replace(SCRIPT, text="a\0b"), "the script holds a NUL byte"),
    ],
)
def test_a_script_that_is_too_long_or_no_text_is_refused(script: Script, why: str) -> None:
    assert refused(script, replace(SHELL, script_bytes_max=10)) == why


@pytest.mark.parametrize(
    "name",
    ["LD_PRELOAD", "PATH", "BASH_ENV", "PYTHONPATH", "BW_ISSUE_ID", "ENV", "IFS", "BASH_FUNC_x"],
)
def test_no_variable_may_decide_what_runs_before_the_script(name: str) -> None:
    assert refused(replace(SCRIPT, environment={name: "x"})) == f"env_vars may not set {name}"


@pytest.mark.parametrize(
    ("context", "allowed"),
    [
        (SHELL, {"GIT_SSH_COMMAND", "STAGE", "APP_A"}),
        (replace(SHELL, env=()), set[str]()),
        (replace(SHELL, env=("STAGE",)), {"STAGE"}),
        (replace(SHELL, validator=("true",)), set[str]()),
        (replace(SHELL, sandbox=("env",)), set[str]()),
        (replace(SHELL, sandbox=("env",), env=("STAGE", "APP_*")), {"STAGE", "APP_A"}),
        (replace(SHELL, validator=("true",), env=("*",)), {"GIT_SSH_COMMAND", "STAGE", "APP_A"}),
    ],
)
def test_where_something_confines_it_a_job_sets_only_what_was_named(
    context: Context, allowed: set[str]
) -> None:
    for name in ("GIT_SSH_COMMAND", "STAGE", "APP_A"):
        script = replace(SCRIPT, environment={name: "x"})
        if name in allowed:
            made(script, context)
        else:
            assert refused(script, context).startswith(f"env_vars may not set {name}: env of")
    assert "may not set" in refused(replace(SCRIPT, environment={"LD_PRELOAD": "x"}), context)


def test_the_sandbox_itself_runs_without_the_variables(tmp_path: Path) -> None:
    sandbox = tmp_path / "sandbox"
    sandbox.write_text('#!/bin/sh\necho "outside: ${STAGE-} ${A_B-}"\nexec "$@"\n')
    sandbox.chmod(0o755)
    context = replace(SHELL, sandbox=(str(sandbox),), env=("*",), limits=ResourceLimits(5))
    values = {"STAGE": 'a "b" $c\n`d`', "A_B": ""}
    script = 'printf \'%s|\' "inside: $STAGE" "${A_B-unset}"; env | grep -c BW_ENV'
    (run,) = made(replace(SCRIPT, text=script, environment=values), context)
    done = subprocess.run(
        run.argv, input=run.stdin, env=os.environ | run.environment, capture_output=True, text=True
    )
    assert done.stdout == f"outside:  \ninside: {values['STAGE']}||0\n"


@pytest.mark.parametrize(
    ("name", "value"),
    [("", "x"), ("A=B", "x"), ("1A", "x"), ("A\0", "x"), ("A", "x\0y"), ("A", "\ud800"), ("Ä", "")],
)
def test_a_variable_that_no_environment_can_hold_is_refused(name: str, value: str) -> None:
    assert "cannot be set" in refused(replace(SCRIPT, environment={name: value}))


def test_more_variables_than_an_environment_holds_are_refused() -> None:
    long = {f"A{n}": "x" * 1000 for n in range(200)}
    assert refused(replace(SCRIPT, environment=long)).startswith("env_vars have 2")


def run_limited(script: str, limits: ResourceLimits) -> subprocess.CompletedProcess[str]:
    argv = limited(("python3", "-c", script), limits)
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


def test_without_limits_a_command_stays_as_it_is() -> None:
    assert limited(("a", "b c"), ResourceLimits()) == ("a", "b c")


def test_a_command_under_limits_becomes_itself_with_its_arguments_and_limits() -> None:
    show = (
        "import resource, sys; print(sys.argv[1:]); names = 'CPU', 'AS', 'FSIZE', 'CORE';"
        "print(*(resource.getrlimit(getattr(resource, 'RLIMIT_' + name)) for name in names))"
    )
    argv = limited(("python3", "-c", show, "a b", "$x"), ResourceLimits(7, 1 << 30, 1 << 20))
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "['a b', '$x']",
        f"(7, 8) ({1 << 30}, {1 << 30}) ({1 << 20}, {1 << 20}) (0, 0)",
    ]


def test_a_command_that_spins_is_ended_by_the_signal_for_that() -> None:
    assert run_limited("while True: pass", ResourceLimits(cpu_seconds=1)).returncode == -24


def test_a_command_that_takes_too_much_memory_gets_none() -> None:
    done = run_limited("x = bytearray(1 << 30)", ResourceLimits(memory_bytes=256 << 20))
    assert done.returncode == 1
    assert "MemoryError" in done.stderr


def test_a_command_that_writes_too_much_cannot(tmp_path: object) -> None:
    script = f"import os; os.chdir({str(tmp_path)!r}); open('big', 'wb').write(bytes(1 << 20))"
    done = run_limited(script, ResourceLimits(file_bytes=64 << 10))
    assert done.returncode == 1
    assert "File too large" in done.stderr


def test_a_command_that_does_not_exist_is_told_as_a_shell_does() -> None:
    done = subprocess.run(
        limited(("no-such",), ResourceLimits(5)), capture_output=True, check=False
    )
    assert done.returncode == 127
