"""Programs that a fleet runs: each exists and can be run. No task and no agent is run."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from beads_workers.checks.probe import ask
from beads_workers.checks.rules import Check, Grade, misused, ok, warn
from beads_workers.core.base.settings import NOTIFY_DESKTOP
from beads_workers.core.base.text import printable
from beads_workers.executors.command import NAMES, scripts, slips, spelt_for_scripts, unsafe_script

SYNTAX_SECONDS = 5.0
HEAD_BYTES = 512

Remedy = Callable[..., str]
"""A function that turns a better command line into the words to type."""


SHELL_HINT = "a shell's own words need a shell: -- sh -c '...'"


def command(argv: tuple[str, ...], folder: Path, edit: str = "") -> list[Check]:
    """Return the checks of the fleet's command.

    ``edit``: a command that opens the settings file which has it; empty if it was typed.
    """

    def suggest(*better: str) -> str:
        return edit or "beads-workers doctor -- " + shlex.join(better)

    if (why := unsafe_script(argv)) is not None:
        hint = "the issue's text must never be part of a script"
        return [misused("command", why, hint, suggest(*spelt_for_scripts(argv)))]
    found = program("command", argv, folder, suggest, SHELL_HINT)
    return [
        found,
        *_slips(argv, suggest),
        *_scripts(argv, folder, edit),
        *_left_alone(argv, suggest),
    ]


def executor(argv: tuple[str, ...], folder: Path, edit: str) -> Check:
    """Check an RRQ executor's program, not started; ``edit`` opens the file that names it."""
    return program("executor", argv, folder, lambda *better: edit, SHELL_HINT)


def verify(line: str, folder: Path) -> Check:
    """Check the shell syntax of ``--verify``."""
    if (wrong := _syntax("sh", line, folder)) is not None:
        return misused("verify", wrong, remedy=f"sh -nc {shlex.quote(line)}")
    return ok("verify", f"sh -c {shlex.quote(printable(line, 120))}")


def notify(line: str | None) -> Check | None:
    """Check ``--notify``: ``desktop``, or a shell line."""
    if line == NOTIFY_DESKTOP and shutil.which("notify-send") is None:
        return misused(
            "notify",
            "--notify desktop needs notify-send, which is not installed",
            "install it ('sudo apt install libnotify-bin'), or give a command:"
            " --notify 'echo \"$BW_TEXT\" >> notices.txt'",
            "sudo apt-get install -y libnotify-bin",
        )
    if line and (why := unsafe_script(("sh", "-c", line))) is not None:
        return misused("notify", f"--notify: {why}")
    return None


def modules(allowed: tuple[str, ...], folder: Path) -> Check | None:
    """Check ``--allow-module``: a missing module would quarantine the issue of each call."""
    from beads_workers.executors.functions import is_there

    for module in allowed:
        if not is_there(module, str(folder)):
            text = f"--allow-module {module}: there is no such module in {folder}"
            return misused("command", text, f"nor is it installed for {sys.executable}")
    return None


# --- programs ---------------------------------------------------------------------------------


def absolute(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command with an absolute path to its program."""
    program = argv[0]
    if "/" not in program or "{" in program:
        return argv  # Found on PATH, or known only with the issue.
    return (str(Path(program).expanduser().absolute()), *argv[1:])


def refused(argv: tuple[str, ...], folder: Path) -> Check | None:
    """Return the first reason why this command cannot be run."""
    return next((each for each in command(argv, folder) if each.status is Grade.FAIL), None)


def program(
    name: str, argv: tuple[str, ...], folder: Path, suggest: Remedy, hint: str = ""
) -> Check:
    """Check that a program exists and can be run.

    ``name``: of the line; ``suggest``: makes a better command.
    """
    program = argv[0]
    if "{" in program and " " not in program:
        return ok(name, f"{program} is known only with the issue")
    path = absolute(argv)[0]
    found = shutil.which(path)
    if found is None:
        wrong = _not_found(name, argv, Path(path), folder, suggest)
        return wrong if "/" in program or wrong.hint else replace(wrong, hint=hint)
    return _readable_head(name, Path(found).absolute(), suggest) or ok(
        name, f"{printable(shlex.join(argv), 100)} ({printable(found, 100)})"
    )


def _not_found(
    name: str, argv: tuple[str, ...], path: Path, folder: Path, suggest: Remedy
) -> Check:
    def wrong(text: str, remedy: str, hint: str = "") -> Check:
        return misused(name, text, hint if name == "command" else "", remedy)

    program, quoted = argv[0], shlex.quote(str(path))
    if "/" in program and path.is_dir():
        return wrong(f"{program} is a folder", f"ls {quoted}")
    if "/" in program and path.exists():
        return wrong(f"{program} may not be executed", f"chmod +x {quoted}")
    if "/" not in program and os.access(folder / program, os.X_OK):
        here = suggest(f"./{program}", *argv[1:])
        text = f"{program} is not on PATH, but here: a path is needed"
        return wrong(text, here, f"write ./{program}")
    words = program.split()
    if len(words) > 1:
        text = f"there is no program {program!r}: is it a command with its arguments?"
        return wrong(
            text, suggest(*words, *argv[1:]), f"without the quotes: -- {shlex.join(words)}"
        )
    in_shell = suggest("sh", "-c", shlex.join(argv))
    if name == "command" and program in _SHELL_WORDS:
        return wrong(f"{program} is a word of the shell, no program", in_shell)
    text = f"{program} was not found{'' if '/' in program else ' on PATH'}"
    close = difflib.get_close_matches(program, _names_like(program), n=1, cutoff=0.8)
    if close and name == "command":
        return wrong(text, suggest(close[0], *argv[1:]), f"did you mean {close[0]}?")
    return wrong(text, suggest() if name == "agent" else f"ls -l {quoted}")


_SHELL_WORDS = frozenset(
    {".", "cd", "eval", "exec", "exit", "export", "for", "if", "set", "source", "trap", "while"}
)


def _names_like(program: str) -> Iterator[str]:
    """Yield programs on PATH with the same first character."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        path = Path(folder or ".")
        if path.is_dir():
            start = re.sub(r"[^A-Za-z0-9]", "?", program[:1])
            yield from (entry.name for entry in path.glob(f"{start}*"))


def _readable_head(name: str, path: Path, suggest: Remedy) -> Check | None:
    """Report an error in the first line of a script; None for a binary or a sound script."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return None  # Some programs may be executed, but not read.
    quoted = shlex.quote(str(path))
    if not head.startswith(b"#!"):
        if head.startswith((b"\x7fELF", b"MZ")) or b"\0" in head:
            return None
        text = f"{path} has no #! line, so /bin/sh runs it"
        return warn(name, text, f"sed -i '1i #!/bin/sh' {quoted}")
    line = head.split(b"\n")[0]
    if line.endswith(b"\r"):
        text = f"{path} has lines that end as on Windows, so its interpreter is not found"
        return misused(name, text, remedy=f"sed -i 's/\\r$//' {quoted}")
    words = line[2:].decode("utf-8", "replace").split()
    missing = _missing_interpreter(words)
    if missing:
        text = f"{path} is run by {missing}, which was not found"
        return misused(name, text, remedy=f"head -n 1 {quoted}; command -v {shlex.quote(missing)}")
    return None


def _missing_interpreter(words: list[str]) -> str | None:
    if not words:
        return None
    if not Path(words[0]).exists():
        return words[0]
    if Path(words[0]).name == "env":
        program = next((w for w in words[1:] if not w.startswith("-") and "=" not in w), None)
        if program and shutil.which(program) is None:
            return program
    return None


# --- what the arguments say -------------------------------------------------------------------


def _slips(argv: tuple[str, ...], suggest: Remedy) -> Iterator[Check]:
    for word, meant in slips(argv):
        better = [each.replace(word, meant) for each in argv]
        text = f"{word} is not a placeholder; did you mean {meant}?"
        known = ", ".join(f"{{{name}}}" for name in NAMES)
        yield misused("command", text, f"these are replaced: {known}", suggest(*better))


_JOINS = frozenset(("&&", "||", "|", ">", ">>", "2>&1"))
_OF_SHELL = re.compile(r"\$\{?BW_[A-Z_]+")


def _left_alone(argv: tuple[str, ...], suggest: Remedy) -> Iterator[Check]:
    """Warn of words that only a shell would interpret, if no shell is involved."""
    if any(scripts(argv)):
        return
    found = next((word for word in argv[1:] if word in _JOINS), None)
    found = found or next((each[0] for word in argv if (each := _OF_SHELL.search(word))), None)
    if found is not None:
        line = " ".join(word if word in _JOINS else shlex.quote(word) for word in argv)
        line = re.sub(r"'(\S*\$\{?BW_[A-Z_]+\}?\S*)'", r'"\1"', line)
        text = f"{found} is an argument of {argv[0]} like any other: no shell is involved"
        typed = shlex.join(["sh", "-c", line])
        yield warn("command", text, suggest("sh", "-c", line), f"with a shell: -- {typed}")


def _scripts(argv: tuple[str, ...], folder: Path, edit: str) -> Iterator[Check]:
    shell = next((word for word in argv if Path(word).name in ("sh", "bash", "dash")), None)
    for script in scripts(argv) if shell else ():
        if (wrong := _syntax(shell or "sh", script, folder)) is not None:
            remedy = edit or f"{shell} -nc {shlex.quote(script)}"
            yield misused("command", wrong, remedy=remedy)


def _syntax(shell: str, script: str, folder: Path) -> str | None:
    try:
        reply = ask([shell, "-n", "-c", script], folder=folder, seconds=SYNTAX_SECONDS)
    except OSError as error:
        return f"{shell} cannot be run: {error.strerror}"
    if reply.status in (0, None):
        return None
    lines = reply.stderr.strip().splitlines() or ["no reason given"]
    return f"the shell does not understand it: {printable(lines[0], 200)}"
