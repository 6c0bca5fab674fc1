"""The command that was probably meant by a call with a mistake.

Imported only after a failed call. Words of other tools are rows of a table; all other words are
compared with existing names.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from shutil import which
from typing import Any

from beads_workers.options import KEYS
from beads_workers.registry import COMMANDS

PROGRAM = "beads-workers"
NEARLY = 0.7
"""Least similarity of a name and a misspelt one."""

Explained = tuple[str, str]
"""Description of the mistake, and what to do."""

MEANT: Mapping[str, Mapping[str, str]] = {
    "": {
        **dict.fromkeys(("man", "usage", "commands"), "--help"),
        **dict.fromkeys(("run", "up", "go", "work", "exec", "fleet", "begin", "launch"), "start"),
        **dict.fromkeys(("serve", "daemon"), "start -d"),
        **dict.fromkeys(("down", "quit", "exit", "end", "halt", "shutdown"), "stop"),
        **dict.fromkeys(("kill", "abort", "terminate"), "stop --now"),
        **dict.fromkeys(("drain", "finish"), "stop --drain"),
        "reload": "restart",
        **dict.fromkeys(("ls", "issues", "tasks", "backlog", "queue"), "list"),
        **dict.fromkeys(("ready", "next", "plan"), "start --dry-run"),
        **dict.fromkeys(("ps", "workers", "state", "stats", "stat", "info"), "status"),
        **dict.fromkeys(("attach", "ui", "tui", "top", "dashboard", "monitor"), "watch"),
        **dict.fromkeys(("web", "open", "browse", "page"), "watch --web"),
        **dict.fromkeys(("log", "output", "events"), "logs"),
        **dict.fromkeys(("tail", "follow"), "logs -f"),
        **dict.fromkeys(("create", "new", "q", "task", "issue"), "add"),
        **dict.fromkeys(("get", "describe", "view", "cat"), "show"),
        **dict.fromkeys(("blocked", "explain"), "why"),
        **dict.fromkeys(("continue", "unpause", "unfreeze"), "resume"),
        **dict.fromkeys(("freeze", "suspend"), "pause"),
        **dict.fromkeys(("rerun", "requeue", "unblock", "again"), "retry"),
        **dict.fromkeys(("cancel", "unclaim", "hold", "skip"), "release"),
        **dict.fromkeys(("history", "ls-runs", "jobs"), "runs"),
        **dict.fromkeys(("cost", "costs", "usage-report", "summary"), "report"),
        **dict.fromkeys(("check", "diagnose", "health", "verify-setup"), "doctor"),
        **dict.fromkeys(("settings", "configure", "conf", "options"), "config show --origin"),
        "verify": "config verify",
        "install": "init",
        **dict.fromkeys(("merge", "push"), "land"),
        **dict.fromkeys(("branch", "worktrees"), "branches"),
        **dict.fromkeys(("revert", "rollback", "reset"), "undo"),
        **dict.fromkeys(("prune", "gc", "cleanup", "rm", "purge"), "clean --dry-run"),
        **dict.fromkeys(("test", "try", "example"), "demo"),
        **dict.fromkeys(("resize", "scale-up"), "scale"),
        **dict.fromkeys(("done", "complete", "resolve"), "close"),
        **dict.fromkeys(("update", "change", "modify"), "edit"),
        **dict.fromkeys(("label", "labels"), "beads-workers edit ISSUE --add-label LABEL"),
        "assign": "beads-workers edit ISSUE --assignee NAME",
        "comments": "beads-workers comment ISSUE TEXT; beads-workers show ISSUE shows them",
        **dict.fromkeys(("note", "reply", "say"), "comment"),
        **dict.fromkeys(("deps", "depend", "depends", "block", "link"), "dep"),
        "remove": "delete",
        **dict.fromkeys(("-v", "-V", "-version", "--Version", "-ver"), "--version"),
        **dict.fromkeys(("-help", "-?", "-H", "--usage"), "--help"),
    },
    "config": dict.fromkeys(("get", "set", "list", "ls", "edit", "print", "cat"), "show --origin"),
    "dep": {**dict.fromkeys(("rm", "delete", "del"), "remove"), "new": "add"},
}
"""Commands of other tools, by their group -> the words to type here, or how it is done."""

OPTIONS: Mapping[str, str] = {
    **dict.fromkeys(("-j", "--jobs", "-w", "-c", "-p", "--parallel", "--parallelism"), "-n"),
    **dict.fromkeys(("--concurrency", "--max-workers", "--max-parallel", "--agents-max"), "-n"),
    **dict.fromkeys(("-D", "--daemon", "--background", "--bg"), "-d"),
    **dict.fromkeys(("--once", "--oneshot", "--drain", "--exit-when-empty"), "--until-empty"),
    **dict.fromkeys(("--until-done", "--wait-empty"), "--until-empty"),
    **dict.fromkeys(("--retries", "--max-retries", "--attempts", "--tries"), "--max-attempts"),
    **dict.fromkeys(("--max-cost", "--cost", "--max-budget", "--max-usd", "--usd"), "--budget"),
    **dict.fromkeys(("--duration", "--max-time", "--max-duration"), "--max-runtime"),
    **dict.fromkeys(("--test", "--check", "--gate"), "--verify"),
    **dict.fromkeys(("--tracker", "--backend"), "--source"),
    **dict.fromkeys(("--tag", "--labels", "--tags"), "--label"),
    **dict.fromkeys(("--dry", "--plan", "--what-if"), "--dry-run"),
    **dict.fromkeys(("--tail",), "-f"),
    **dict.fromkeys(("--force", "--kill", "-9"), "--now"),
    **dict.fromkeys(("-m", "--model"), 'in beads-workers.toml: [agents.claude] model = "..."'),
    **dict.fromkeys(("-e", "--cmd", "--command", "--exec"), "a command goes after --"),
    **dict.fromkeys(("--config", "--file"), "beads-workers.toml is found here or above"),
    **dict.fromkeys(("-q", "--quiet", "--silent"), "nothing is said with: >/dev/null 2>&1"),
}
"""Options of other tools -> the option that is meant, if the command has it, or how it is done."""


def explained(error: Any, arguments: Sequence[str]) -> Explained:
    """Return what is wrong and what to do; ``error``: the exception of the parser."""
    ctx = getattr(error, "ctx", None)
    path = ctx.command_path if ctx is not None else _called(arguments)
    message = error.format_message()
    help_hint = f"'{path} --help' shows how"
    if ctx is not None and type(error).__name__ == "NoSuchOption":
        return _option(error.option_name, ctx, list(arguments), help_hint)
    if ctx is not None and (unknown := re.match(r"No such command '(.*?)'\.", message, re.DOTALL)):
        return _command(unknown[1], ctx, list(arguments), help_hint)
    if (wrong := _number(error)) is not None:
        return wrong
    if message.startswith(("Missing argument", "Missing option")) and ctx is not None:
        example = str(ctx.command.epilog or "").partition(PROGRAM)[2]
        help_hint += f"; for example: {PROGRAM}{example}" if example else ""
    return _too_many(message, path, help_hint)


# --- commands ------------------------------------------------------------------------------------


def _command(name: str, ctx: Any, arguments: list[str], otherwise: str) -> Explained:
    group = ctx.command_path.removeprefix(PROGRAM).strip()
    at = arguments.index(name)
    rest, message = arguments[at + 1 :], f"No such command '{name}'."
    meant = MEANT.get(group, {}).get(name) or MEANT.get(group, {}).get(name.lower())
    known = ctx.command.list_commands(ctx)
    if meant is None and (near := get_close_matches(name.lower(), known, n=1, cutoff=NEARLY)):
        meant = near[0]
    if meant == "--help":
        return message, _type(*rest[:1], "--help")
    if meant is None:
        return message, (not group and _as_work(name, rest)) or otherwise
    words = meant.split()
    if words[0] not in known and not meant.startswith("-"):
        return message, meant
    # Arguments after the name are kept only for the very same command.
    return message, _type(*arguments[:at], *words, *(rest if len(words) == 1 else []))


def _as_work(name: str, rest: list[str]) -> str:
    """Return the ``start`` command for an agent or a program; "" for any other word."""
    from beads_workers.agents.presets import PRESETS

    if name in PRESETS:
        return _type("start", "--agent", name)
    typed = shlex.join([PROGRAM, "start", "--", name, *rest])
    return f"a command goes after --: {typed}" if which(name) else ""


# --- options -------------------------------------------------------------------------------------


def _option(name: str, ctx: Any, arguments: list[str], otherwise: str) -> Explained:
    message = f"No such option: {name}"
    if ctx.parent is None:
        return message, _before_the_command(name, ctx, arguments) or otherwise
    known = [each for param in ctx.command.params for each in param.opts if each.startswith("-")]
    meant = OPTIONS.get(name, "")
    if meant.startswith("-") and meant not in known:
        meant = ""
    near = get_close_matches(name, known, n=1, cutoff=NEARLY) if not meant else []
    meant = near[0] if near else meant
    if not meant.startswith("-"):
        return message, meant or otherwise
    message += f". Did you mean {meant}?"
    at = next((n for n, word in enumerate(arguments) if word.startswith(name)), None)
    if at is None:  # One letter of several: -xf.
        return message, otherwise
    value = arguments[at].removeprefix(name).removeprefix("=")
    arguments[at : at + 1] = [meant, value] if value else [meant]
    return message, _type(*arguments)


def _before_the_command(name: str, ctx: Any, arguments: list[str]) -> str:
    """Return the corrected line for an option before the command."""
    if meant := MEANT[""].get(name):
        return _type(meant)
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    known = {each for named in COMMANDS.values() for each in named}
    command = next((word for word in arguments[:cut] if word in known), "")
    if "--version" in arguments:
        return _type("version", *(word for word in arguments if word != "--version"))
    if not command:
        flags = (each.flags or (f"--{key.replace('_', '-')}",) for key, each in KEYS.items())
        of_start = {"-d", "--detach", "--dry-run"}.union(*flags)
        return _type("start", *arguments) if name in of_start else ""
    arguments.remove(command)
    return f"options go after the command: {PROGRAM} {shlex.join([command, *arguments])}"


def _called(arguments: Sequence[str]) -> str:
    """Return the command that was typed, if the parser does not say."""
    known = {name for named in COMMANDS.values() for name in named}
    return " ".join([PROGRAM, *[word for word in arguments[:1] if word in known]])


def _type(*words: str) -> str:
    return f"type: {PROGRAM} {shlex.join(words)}"


# --- values --------------------------------------------------------------------------------------

_NO_NUMBER = re.compile(r"'?(.*?)'? is not (?:a valid|in the range|a duration)", re.DOTALL)


def _number(error: Any) -> Explained | None:
    """Explain a value that is no number or duration, or is too small or too large."""
    param = getattr(error, "param", None)
    found = _NO_NUMBER.match(getattr(error, "message", ""))
    if param is None or found is None:
        return None
    flag = max(param.opts, key=len) if param.param_type_name == "option" else param.metavar
    allowed = _allowed(error.ctx.info_name, param, found[1])
    return f"{flag} cannot be {found[1]!r}", f"it must be {allowed}"


def _allowed(command: str, param: Any, word: str) -> str:
    option = KEYS.get(param.name)
    if option is not None and command in option.at:
        try:
            option.read((word,) if option.kind.many else word)
        except ValueError as error:
            return str(error)
    # typer 0.29 has a descriptor where others have a type of click's.
    described = getattr(param, "type_descriptor", None)
    kind = described.parameter_info if described is not None else param.type
    least, most = getattr(kind, "min", None), getattr(kind, "max", None)
    name = described.annotation.__name__ if described is not None else str(param.type.name)
    number = "a whole number" if name.startswith("int") else "a number"
    if least is not None and most is not None:
        return f"{number} from {least} to {most}"
    return f"{number} of {least:g} or more" if least is not None else number


OF_ONE = {"status": "why", "list": "show", "stop": "release", "watch": "logs"}
"""Commands about everything -> the same about one issue."""
_EXTRA = re.compile(r"Got unexpected extra argument(?:s|\(s\))? \((.*)\)", re.DOTALL)


def _too_many(message: str, path: str, otherwise: str) -> Explained:
    found = _EXTRA.match(message)
    if found is None:
        return message, otherwise
    words = found[1].split()
    if path.endswith(" doctor") and which(words[0]):
        return f"too many arguments: {found[1]}", f"a command goes after --: {path} -- {found[1]}"
    of_one = OF_ONE.get(path.removeprefix(PROGRAM).strip())
    hint = _type(of_one, found[1]) if of_one and " " not in found[1] else otherwise
    return f"too many arguments: {found[1]}", hint
