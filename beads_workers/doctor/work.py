"""What tasks would run and the repository that they work in. No task and no agent is run."""

from __future__ import annotations

import difflib
import os
import re
import selectors
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from beads_workers.core.model import value
from beads_workers.core.text import counted, printable
from beads_workers.doctor.rules import Check, fail, ok, warn
from beads_workers.executors.command import scripts, slips, spelt_for_scripts, unsafe_script

# --- questions -----------------------------------------------------------------------------------
# Asking a program something that it answers at once: bounded in time and output, stdin empty.
#
# Only for programs that may be killed in the middle (``claude --version``, ``git status``), never
# for ``bd``: see ``trackers/bd/calls``.


OUTPUT_BYTES_MAX = 1 << 20
"""More is no answer; what came so far is kept, and the program ended."""


@value
class ProbeResult:
    """``status``: the exit status, or None when it was ended because it took too long."""

    status: int | None
    stdout: str
    stderr: str
    seconds: float


def ask(
    argv: Sequence[str],
    *,
    folder: Path,
    seconds: float,
    environment: Mapping[str, str] | None = None,
) -> ProbeResult:
    """Run it in ``folder``; raises ``OSError`` when it cannot be started.

    Whatever it has started in its own process group ends with it.
    """
    began = time.monotonic()
    process = subprocess.Popen(
        argv,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with process:
        told, in_time = _read(process, began + seconds)
        if in_time:
            in_time = _ended(process, began + seconds)
        if not in_time:
            # Not reaped yet, so the group's number is still its own.
            os.killpg(process.pid, signal.SIGKILL)
    stdout, stderr = (part.decode("utf-8", "replace") for part in told)
    status = process.returncode if in_time else None
    return ProbeResult(status, stdout, stderr, time.monotonic() - began)


def _read(process: subprocess.Popen[bytes], deadline: float) -> tuple[list[bytes], bool]:
    """Both outputs to their end; False when that did not come in time, or not within bounds."""
    assert process.stdout is not None and process.stderr is not None
    told = [b"", b""]
    with selectors.DefaultSelector() as selector:
        for index, stream in enumerate((process.stdout, process.stderr)):
            selector.register(stream, selectors.EVENT_READ, index)
        while selector.get_map():
            ready = selector.select(max(deadline - time.monotonic(), 0))
            if not ready:
                return told, False
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                told[key.data] += data
                if not data:
                    selector.unregister(key.fileobj)
                if len(told[key.data]) > OUTPUT_BYTES_MAX:
                    return told, False
    return told, True


def _ended(process: subprocess.Popen[bytes], deadline: float) -> bool:
    try:
        process.wait(max(deadline - time.monotonic(), 0))
    except subprocess.TimeoutExpired:
        return False
    return True


# --- git -----------------------------------------------------------------------------------------
# The repository that tasks work in. Git is only read, and takes no lock for it.


GIT_SECONDS = 3.0
"""A status of a large repository on a cold disk; what takes longer says so."""


def git(folder: Path, *, agent: bool, apart: bool = False) -> list[Check]:
    """Version, state of the work tree, who commits, and branches of ours.

    ``apart``: tasks run in worktrees of their own, which begin with what is committed.
    """
    if shutil.which("git") is None:
        text = "git is not on PATH: nothing that a task changes can be undone"
        return [warn("git", text, "sudo apt-get install -y git") if agent else ok("git", "no git")]
    version = printable(_git(folder, "--version").stdout.strip().removeprefix("git version "), 40)
    inside = _git(folder, "rev-parse", "--is-inside-work-tree")
    if "dubious ownership" in inside.stderr:
        return [_dubious(folder)]
    if inside.status != 0 or inside.stdout.strip() != "true":
        return [_no_repository(version, agent=agent)]
    return [_work_tree(folder, version, apart=apart), *_identity(folder, agent=agent)]


def _work_tree(folder: Path, version: str, *, apart: bool) -> Check:
    # The tracker's own files change with every issue, and are nobody's unfinished work.
    status = _git(folder, "status", "--porcelain", "--", ":/", ":(exclude).beads")
    ours = _git(folder, "for-each-ref", "--format=x", "refs/heads/bw/").stdout.count("x")
    branches = f", {counted(ours, 'branch', 'branches')} bw/*" if ours else ""
    if status.status is None:
        text = (
            f"git {version}: its status took more than {GIT_SECONDS:g} s, so it was not waited for"
        )
        return warn("git", text + branches, "git status --short")
    if status.status != 0:
        return warn("git", f"git status: {_last_line(status)}", "git status")
    changed = len(status.stdout.splitlines())
    if changed:
        fate = (
            "tasks in worktrees would not see them" if apart else "tasks would work on top of them"
        )
        text = f"{counted(changed, 'uncommitted change')}: {fate}{branches}"
        return warn("git", text, "git add --all && git commit --message 'before the fleet'")
    return ok("git", f"git {version}, clean{branches}")


def _identity(folder: Path, *, agent: bool) -> list[Check]:
    missing = [
        key for key in ("user.name", "user.email") if _git(folder, "config", key).status != 0
    ]
    if not missing or not agent:
        return []
    values = {"user.name": '"$(id -un)"', "user.email": '"$(id -un)@$(hostname)"'}
    remedy = " && ".join(f"git config {key} {values[key]}" for key in missing)
    return [warn("git", f"{' and '.join(missing)} not set: {_WITHOUT}", remedy)]


_WITHOUT = "agents cannot commit, and what they leave is committed as beads-workers"


def _no_repository(version: str, *, agent: bool) -> Check:
    if agent:
        text = "no git repository here: what an agent changes cannot be undone"
        return warn("git", text, "git init")
    return ok("git", f"git {version}; no repository here, and a command needs none")


def _dubious(folder: Path) -> Check:
    text = "git refuses this folder: it belongs to another user"
    return warn("git", text, f"git config --global --add safe.directory {folder}")


def _git(folder: Path, *arguments: str) -> ProbeResult:
    # No index is written back, and no hook of the repository's runs for a mere look.
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    argv = ["git", "-c", "core.fsmonitor=false", *arguments]
    return ask(argv, folder=folder, seconds=GIT_SECONDS, environment=environment)


def _last_line(reply: ProbeResult) -> str:
    lines = (reply.stderr.strip() or reply.stdout.strip() or "no answer").splitlines()
    return printable(lines[-1], 200)


# --- work ----------------------------------------------------------------------------------------
# What tasks would run: is it there, can it be run. Of agents: ``doctor.agents``.


SYNTAX_SECONDS = 5.0
HEAD_BYTES = 512

Remedy = Callable[..., str]
"""From a better command line to what is to be typed."""


def command(argv: tuple[str, ...], folder: Path, edit: str = "") -> list[Check]:
    """The command of a fleet. ``edit`` opens the file that says it; empty where it was typed."""

    def again(*better: str) -> str:
        return edit or "beads-workers doctor -- " + shlex.join(better)

    if (why := unsafe_script(argv)) is not None:
        return [fail("command", why, again(*spelt_for_scripts(argv)))]
    found = program("command", argv, folder, again)
    return [found, *_slips(argv, again), *_scripts(argv, folder, edit)]


def executor(argv: tuple[str, ...], folder: Path, edit: str) -> Check:
    """An RRQ executor's program; it is not started. ``edit`` opens the file that names it."""
    return program("executor", argv, folder, lambda *better: edit)


def verify(line: str, folder: Path) -> Check:
    """``--verify``: a line of shell, so its syntax can be checked."""
    if (wrong := _syntax("sh", line, folder)) is not None:
        return fail("verify", wrong, f"sh -nc {shlex.quote(line)}")
    return ok("verify", f"sh -c {shlex.quote(printable(line, 120))}")


# --- programs ---------------------------------------------------------------------------------


def program(name: str, argv: tuple[str, ...], folder: Path, again: Remedy) -> Check:
    """Whether it is there and can be run; ``name``: of the line, ``again``: a better command."""
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
    for word, meant in slips(argv):
        better = [each.replace(word, meant) for each in argv]
        yield fail("command", f"{word} is not a placeholder; did you mean {meant}?", again(*better))


def _scripts(argv: tuple[str, ...], folder: Path, edit: str) -> Iterator[Check]:
    shell = next((word for word in argv if Path(word).name in ("sh", "bash", "dash")), None)
    for script in scripts(argv) if shell else ():
        if (wrong := _syntax(shell or "sh", script, folder)) is not None:
            yield fail("command", wrong, edit or f"{shell} -nc {shlex.quote(script)}")


def _syntax(shell: str, script: str, folder: Path) -> str | None:
    try:
        reply = ask([shell, "-n", "-c", script], folder=folder, seconds=SYNTAX_SECONDS)
    except OSError as error:
        return f"{shell} cannot be run: {error.strerror}"
    if reply.status in (0, None):
        return None
    lines = reply.stderr.strip().splitlines() or ["no reason given"]
    return f"the shell does not understand it: {printable(lines[0], 200)}"
