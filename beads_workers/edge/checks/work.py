"""What tasks would run: is it there, can it be run, does it answer. No task and no agent is run.

Only programs of ``executors.agents.PROGRAMS`` are asked for their version: an unknown one could
take any call for an order, and cost money.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from beads_workers.core.checks import Check, fail, ok, warn
from beads_workers.core.settings import Agent
from beads_workers.core.text import printable
from beads_workers.edge.asking import ask
from beads_workers.executors.agents import PROGRAMS
from beads_workers.executors.placeholders import check_command, scripts, spelt_for_scripts

ANSWER_SECONDS = 5.0
"""An agent on Node.js says its version within one; on a busy machine within three."""
PLACEHOLDERS = ("id", "title", "priority", "worker", "attempt")
HEAD_BYTES = 512

Remedy = Callable[..., str]
"""From a better command line to what is to be typed."""


def command(argv: tuple[str, ...], folder: Path, edit: str = "") -> list[Check]:
    """The command of a fleet. ``edit`` opens the file that says it; empty where it was typed."""

    def again(*better: str) -> str:
        return edit or "beads-workers doctor -- " + shlex.join(better)

    if (why := check_command(argv)) is not None:
        return [fail("command", why, again(*spelt_for_scripts(argv)))]
    program = _program("command", argv, folder, again)
    return [program, *_slips(argv, again), *_scripts(argv, folder, edit)]


def executor(argv: tuple[str, ...], folder: Path, edit: str) -> Check:
    """An RRQ executor's program; it is not started. ``edit`` opens the file that names it."""
    return _program("executor", argv, folder, lambda *better: edit)


def agent(given: Agent, folder: Path, seconds: float = ANSWER_SECONDS) -> list[Check]:
    """The agent of a fleet: found, answering, logged in, as far as that can be known for free."""
    name = Path(given.argv[0]).name
    known = PROGRAMS.get(name)

    def install(*better: str) -> str:
        return known.install if known else f"command -v {shlex.quote(given.argv[0])}"

    found = _program("agent", given.argv, folder, install)
    if found.remedy or known is None:
        asked = "" if found.remedy else f"; {name} is not known, so it was not asked anything"
        return [Check("agent", found.status, found.text + asked, found.remedy)]
    answer = _answer(given.argv[0], folder, known.install, seconds)
    if answer.remedy:
        return [answer]
    return [Check("agent", answer.status, f"{name} {answer.text}"), _login(name, given, folder)]


def verify(line: str, folder: Path) -> Check:
    """``--verify``: a line of shell, so its syntax can be checked."""
    if (wrong := _syntax("sh", line, folder)) is not None:
        return fail("verify", wrong, f"sh -nc {shlex.quote(line)}")
    return ok("verify", f"sh -c {shlex.quote(printable(line, 120))}")


def _answer(program: str, folder: Path, install: str, seconds: float) -> Check:
    call = f"{program} --version"
    try:
        reply = ask([program, "--version"], folder=folder, seconds=seconds)
    except OSError as error:
        return fail("agent", f"{program} cannot be run: {error.strerror}", install)
    if reply.status is None:
        text = f"'{call}' did not answer in {seconds:g} s"
        return fail("agent", text, f"{shlex.quote(program)} --version </dev/null")
    said = printable((reply.stdout.strip() or reply.stderr.strip()).split("\n")[0], 100)
    if reply.status != 0:
        text = f"'{call}' failed (exit {reply.status}): {said or 'it said nothing'}"
        return fail("agent", text, f"{shlex.quote(program)} --version </dev/null")
    return ok("agent", f"answers {said!r} in {reply.seconds:.1f} s")


def _login(name: str, given: Agent, folder: Path) -> Check:
    known = PROGRAMS[name]
    found = next((v for v in known.variables if os.environ.get(v)), None)
    if found is not None:
        return ok("login", f"{found} is set; whether it is accepted was not checked")
    if known.login_status:
        return _login_status(name, given, folder)
    for file in known.login_files:
        if (Path.home() / file).exists():
            return ok(
                "login", f"a login of {name} is kept here; whether it still holds was not checked"
            )
    text = f"no login of {name} in the usual places; whether it has one elsewhere was not checked"
    return warn("login", text, known.login)


def _login_status(name: str, given: Agent, folder: Path) -> Check:
    known = PROGRAMS[name]
    call = [given.argv[0], *known.login_status]
    try:
        reply = ask(call, folder=folder, seconds=ANSWER_SECONDS)
    except OSError as error:
        return warn("login", f"not checked: {error}", known.login)
    said = printable((reply.stdout.strip() or reply.stderr.strip()).split("\n")[0], 100)
    if reply.status == 0:
        return ok(
            "login", f"{said or name + ' is logged in'}; whether it still holds was not checked"
        )
    if reply.status is None:
        return warn("login", f"not checked: '{shlex.join(call)}' did not answer", shlex.join(call))
    text = f"{name} is not logged in: {said}"
    # With a provider of one's own there may be nothing to log in to.
    home = Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex")
    own = "model_provider" in _text_of(home / "config.toml")
    return warn("login", text, known.login) if own else fail("login", text, known.login)


def _text_of(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace")
    except OSError:
        return ""


# --- programs ---------------------------------------------------------------------------------


def _program(name: str, argv: tuple[str, ...], folder: Path, again: Remedy) -> Check:
    program = argv[0]
    if "{" in program and " " not in program:
        return ok(name, f"{program} is known only with the issue")
    path = str(Path(program).expanduser().absolute()) if "/" in program else program
    found = shutil.which(path)
    if found is None:
        return _not_found(name, argv, Path(path), folder, again)
    return _readable_head(name, Path(found).absolute(), again) or ok(
        name, f"{printable(shlex.join(argv), 100)} ({printable(found, 100)})"
    )


def _not_found(name: str, argv: tuple[str, ...], path: Path, folder: Path, again: Remedy) -> Check:
    program, quoted = argv[0], shlex.quote(str(path))
    if "/" in program and path.is_dir():
        return fail(name, f"{program} is a folder", f"ls {quoted}")
    if "/" in program and path.exists():
        return fail(name, f"{program} may not be executed", f"chmod +x {quoted}")
    if "/" not in program and os.access(folder / program, os.X_OK):
        here = again(f"./{program}", *argv[1:])
        return fail(name, f"{program} is not on PATH, but here: a path is needed", here)
    words = program.split()
    if len(words) > 1:
        text = f"there is no program {program!r}: is it a command with its arguments?"
        return fail(name, text, again(*words, *argv[1:]))
    in_shell = again("sh", "-c", shlex.join(argv))
    if name == "command" and program in _SHELL_WORDS:
        return fail(name, f"{program} is a word of the shell, no program", in_shell)
    text = f"{program} was not found{'' if '/' in program else ' on PATH'}"
    close = difflib.get_close_matches(program, _names_like(program), n=1, cutoff=0.8)
    if close and name == "command":
        return fail(name, f"{text}; there is {close[0]}", again(close[0], *argv[1:]))
    return fail(name, text, again() if name == "agent" else f"ls -l {quoted}")


_SHELL_WORDS = frozenset(
    {".", "cd", "eval", "exec", "exit", "export", "for", "if", "set", "source", "trap", "while"}
)


def _names_like(program: str) -> Iterator[str]:
    """What is on PATH and begins alike."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        path = Path(folder or ".")
        if path.is_dir():
            yield from (entry.name for entry in path.glob(f"{_plain_start(program)}*"))


def _plain_start(program: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "?", program[:1])


def _readable_head(name: str, path: Path, again: Remedy) -> Check | None:
    """What is wrong with the first line of a script; None for a program or a sound script."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return None  # It may be executed without being readable.
    quoted = shlex.quote(str(path))
    if not head.startswith(b"#!"):
        if head.startswith((b"\x7fELF", b"MZ")) or b"\0" in head:
            return None
        text = f"{path} has no #! line, so /bin/sh runs it"
        return warn(name, text, f"sed -i '1i #!/bin/sh' {quoted}")
    line = head.split(b"\n")[0]
    if line.endswith(b"\r"):
        text = f"{path} has lines that end as on Windows, so its interpreter is not found"
        return fail(name, text, f"sed -i 's/\\r$//' {quoted}")
    words = line[2:].decode("utf-8", "replace").split()
    missing = _missing_interpreter(words)
    if missing:
        text = f"{path} is run by {missing}, which was not found"
        return fail(name, text, f"head -n 1 {quoted}; command -v {shlex.quote(missing)}")
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


def _slips(argv: tuple[str, ...], again: Remedy) -> Iterator[Check]:
    """Placeholders that look like a slip; any other text in braces stays as it is."""
    for argument in argv[1:]:
        for word in re.findall(r"\{([A-Za-z_]+)\}", argument):
            meant = difflib.get_close_matches(word.lower(), PLACEHOLDERS, n=1, cutoff=0.75)
            meant = meant or (["id"] if word.lower() in ("issue", "issue_id") else [])
            if word not in PLACEHOLDERS and meant:
                better = [a.replace(f"{{{word}}}", f"{{{meant[0]}}}") for a in argv]
                text = f"{{{word}}} is not replaced; is {{{meant[0]}}} meant?"
                yield warn("command", text, again(*better))


def _scripts(argv: tuple[str, ...], folder: Path, edit: str) -> Iterator[Check]:
    shell = next((word for word in argv if Path(word).name in ("sh", "bash", "dash")), None)
    for script in scripts(argv) if shell else ():
        if (wrong := _syntax(shell or "sh", script, folder)) is not None:
            yield fail("command", wrong, edit or f"{shell} -nc {shlex.quote(script)}")


def _syntax(shell: str, script: str, folder: Path) -> str | None:
    try:
        reply = ask([shell, "-n", "-c", script], folder=folder, seconds=ANSWER_SECONDS)
    except OSError as error:
        return f"{shell} cannot be run: {error.strerror}"
    if reply.status in (0, None):
        return None
    lines = reply.stderr.strip().splitlines() or ["no reason given"]
    return f"the shell does not understand it: {printable(lines[0], 200)}"
