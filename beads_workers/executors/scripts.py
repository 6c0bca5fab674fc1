"""From a script that came with a job to the programs that validate it and run it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from beads_workers.core.base.model import OutcomeKind, Script
from beads_workers.core.base.plans import NotRunnable, Step, StepKind, plain
from beads_workers.core.base.scripts import Context, ResourceLimits, context_of

REFUSED = OutcomeKind.NOT_FOUND
"""Outcome of a refusal: no further attempt would change it."""

ENVIRONMENT_BYTES_MAX = 128 << 10
"""Bytes of a script's variables: the kernel takes 128 KiB for one, and some MB for all together."""


def script_steps(
    script: Script, contexts: Sequence[Context], added: Mapping[str, str]
) -> tuple[Step, ...] | NotRunnable:
    """Return the steps ``[validate,] run`` of a script; ``added``: variables that any task's
    programs get.

    The validator gets none of the script's own variables: it runs before anything is trusted.
    """
    context = context_of(contexts, script.context)
    if context is None:
        return NotRunnable(f"no such context: {plain(script.context)[:100]!r}", REFUSED)
    if refusal := _refusal(script, context):
        return NotRunnable(refusal, REFUSED)
    around = {
        **added,
        "BW_CONTEXT": plain(script.context),
        "BW_CALLER": plain(script.caller),
    }
    command, variables = context.command, dict(script.environment)
    if context.sandbox and variables:
        command, variables = _set_inside(command, variables)
    command = limited((*context.sandbox, *command), context.limits)
    run = Step(StepKind.RUN, command, {**variables, **around}, script.text, speaks=True)
    if not context.validator:
        return (run,)
    return Step(StepKind.VALIDATE, context.validator, around, script.text), run


def _set_inside(
    command: Sequence[str], variables: Mapping[str, str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Hide the variables' names from the sandbox: a shell within it sets them under their own
    names."""
    names = [f'export {n}="${{{_WRAPPED}{n}-}}"; unset {_WRAPPED}{n}' for n in variables]
    script = "; ".join((*names, 'exec "$@"'))
    wrapped = {f"{_WRAPPED}{name}": value for name, value in variables.items()}
    return ("sh", "-c", script, "sh", *command), wrapped


_WRAPPED = "BW_ENV_"


def limited(argv: Sequence[str], limits: ResourceLimits) -> tuple[str, ...]:
    """Return the command under these limits: a shell sets them, and becomes the command.

    A command beyond its CPU time gets XCPU, and KILL a second later. There are no core files.
    """
    settings = []
    if (seconds := limits.cpu_seconds) is not None:
        settings += [f"ulimit -t {seconds + 1}", f"ulimit -S -t {seconds}"]
    if (memory := limits.memory_bytes) is not None:
        settings.append(f"ulimit -v {max(memory >> 10, 1)}")
    if (size := limits.file_bytes) is not None:
        settings.append(f"ulimit -f {max(size >> 9, 1)}")  # POSIX counts blocks of 512 bytes.
    if not settings:
        return tuple(argv)
    # The command must not run without all of its limits.
    script = " && ".join(("ulimit -c 0", *settings, 'exec "$@"'))
    return ("sh", "-c", script, "sh", *argv)


def _refusal(script: Script, context: Context) -> str:
    """Return why the script is not run, whatever its validator would say; empty: no reason."""
    try:
        size = len(script.text.encode())
    except UnicodeEncodeError:
        return "the script is not UTF-8"
    if "\0" in script.text:
        return "the script holds a NUL byte"
    if size > context.script_bytes_max:
        return f"the script has {size} bytes; {context.script_bytes_max} are allowed"
    taken = 0
    for name, value in script.environment.items():
        if not _NAME.fullmatch(name) or "\0" in value or not _is_utf8(value):
            return f"env_vars: {plain(name)[:100]!r} cannot be set"
        if _FORBIDDEN.fullmatch(name):
            return f"env_vars may not set {name}"
        if not context.may_set(name):
            return f"env_vars may not set {name}: env of context {context.name!r} does not name it"
        taken += len(name) + len(value.encode()) + 2
    if taken > ENVIRONMENT_BYTES_MAX:
        return f"env_vars have {taken} bytes; {ENVIRONMENT_BYTES_MAX} are allowed"
    return ""


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}", re.ASCII)
_FORBIDDEN = re.compile(
    "PATH|IFS|ENV|LD_.*|DYLD_.*|GCONV_PATH|LOCPATH|MALLOC_.*|GLIBC_.*"
    "|BASH_ENV|BASH_FUNC_.*|BASHOPTS|SHELLOPTS|PS4"
    "|PYTHON.*|PERL5.*|PERLLIB|RUBYLIB|RUBYOPT|NODE_OPTIONS|NODE_PATH|JAVA_TOOL_OPTIONS"
    "|BW_.*|BEADS_.*|BD_.*|ORCHESTRATOR_PID"
)
"""Variables that decide which program runs, or what it runs before the script. With one of these a
job would act outside of its sandbox and before its limits. The last line is ours."""
