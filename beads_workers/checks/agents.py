"""The agents of a fleet: installed, of a tested version, logged in, and guarded.

Only programs of ``agents.presets.PROGRAMS`` are called: an unknown program could take any call for
a task, and cost money. No agent is run, and nothing goes over a network.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from beads_workers.agents.adapter import Adapter, Program, load, version_key
from beads_workers.agents.presets import PROGRAMS
from beads_workers.attempts.guards import GUARDED, read_settings
from beads_workers.checks.named_agents import found_here
from beads_workers.checks.probe import ask
from beads_workers.checks.programs import program
from beads_workers.checks.rules import Check, Grade, fail, ok, warn
from beads_workers.core.base.model import value
from beads_workers.core.base.settings import Agent
from beads_workers.core.base.text import printable
from beads_workers.worktrees.git import argv, environment

ANSWER_SECONDS = 5.0
"""Time limit of a version call: an agent on Node.js takes 1 s, on a busy machine 3 s."""
GIT_MIN = "2.31"
"""Oldest git that reads configuration from the environment (``GIT_CONFIG_COUNT``)."""


def agent(
    agent: Agent, folder: Path, seconds: float = ANSWER_SECONDS, *, name: str = "agent"
) -> list[Check]:
    """Return the checks of an agent that cost nothing.

    ``name``: the name of the lines; a reviewer has its own.
    """
    adapter = load(agent.adapter) if agent.adapter else None
    called = Path(agent.argv[0]).name
    known = adapter.program if adapter is not None else PROGRAMS.get(called)

    def install(*better: str) -> str:
        line = known.install if known else adapter.install if adapter is not None else ""
        return line or f"command -v {shlex.quote(agent.argv[0])}"

    called_as, own = agent.argv[0], adapter.command if adapter is not None else ""
    hint = f"install {agent.name if called_as == own else called_as}; {found_here()}"
    found = program("agent", agent.argv[:1], folder, install, hint)
    if found.remedy:
        prefix = "" if called_as == own else f"[agents.{agent.name}] argv: "
        return [replace(found, name=name, text=prefix + found.text)]
    checks = list(_obstacles(agent, adapter, name))
    if known is None:
        return [*_not_asked(agent, adapter, found, name), *checks]
    answer, version = _answer(agent, known, adapter, folder, seconds)
    checks.insert(0, replace(answer, name=name))
    # An agent that does not answer cannot tell whether it is logged in.
    return (
        [*checks, _login(agent, known, adapter, folder, version)] if version is not None else checks
    )


def _not_asked(agent: Agent, adapter: Adapter | None, found: Check, name: str) -> Iterator[Check]:
    asked = f"{found.text}; it was not asked anything"
    if adapter is not None and adapter.untried:
        remedy = f"beads-workers start -n 1 --limit 1 --agent {shlex.quote(agent.name)}"
        text = f"{asked}. Its adapter was written from published types, and never tried"
        yield warn(name, text, remedy)
    elif adapter is not None and adapter.measured:
        yield ok(name, f"{asked}; {', '.join(adapter.measured)} was tried")
    else:
        yield ok(name, f"{agent.name}: {asked}, for it is not known")


def _obstacles(agent: Agent, adapter: Adapter | None, name: str) -> Iterator[Check]:
    if adapter is None:
        return
    root = os.geteuid() == 0
    for each in adapter.obstacles(agent.arguments, os.environ, root=root):
        yield fail(name, f"{agent.name}: {each.text}", each.remedy)


# --- its version ---------------------------------------------------------------------------------


def _answer(
    agent: Agent, known: Program, adapter: Adapter | None, folder: Path, seconds: float
) -> tuple[Check, str | None]:
    """Return the line and the version: None without an answer, "" if none is named."""
    path = agent.argv[0]
    again = f"{shlex.quote(path)} --version </dev/null"
    try:
        reply = ask([path, "--version"], folder=folder, seconds=seconds)
    except OSError as error:
        return fail("agent", f"{path} cannot be run: {error.strerror}", known.install), None
    if reply.status is None:
        text = f"'{path} --version' did not answer in {seconds:g} s"
        return fail("agent", text, again), None
    first_line = printable((reply.stdout.strip() or reply.stderr.strip()).split("\n")[0], 100)
    if reply.status != 0:
        text = f"'{path} --version' failed (exit {reply.status}): {first_line or 'it said nothing'}"
        return fail("agent", text, again), None
    match = re.search(r"\d+(?:\.\d+)+", first_line)
    version = match[0] if match else ""
    text = f"{agent.name} answers {first_line!r} in {reply.seconds:.1f} s"
    tried, old = _tried(adapter.measured if adapter else (), version)
    text += f"; {tried}" if tried else ""
    return (warn("agent", text, known.install) if old else ok("agent", text)), version


def _tried(measured: tuple[str, ...], version: str) -> tuple[str, bool]:
    """Return a phrase about this version, and whether it is older than all tested ones."""
    if not measured or not version:
        return "", False
    if version in measured:
        return "this version was tried", False
    oldest, newest = measured[0], measured[-1]
    if version_key(version) < version_key(oldest):
        return f"it is older than {oldest}, the oldest that was tried", True
    if version_key(version) > version_key(newest):
        return f"untried: it is newer than {newest}", False
    return f"untried: {', '.join(measured)} were", False


# --- its login -----------------------------------------------------------------------------------


NOT_CHECKED = "was not checked"


def _login(
    agent: Agent, known: Program, adapter: Adapter | None, folder: Path, version: str
) -> Check:
    name = agent.name
    found = next((v for v in known.variables if os.environ.get(v)), "")
    if found := found or _of_settings(adapter):
        return ok("login", f"{name}: {found} is set; whether it is accepted {NOT_CHECKED}")
    if known.can_tell_login(version):
        return _login_status(agent, known, folder)
    for file in known.login_files:
        if (Path.home() / file).exists():
            text = f"a login of {name} is kept here; whether it still holds {NOT_CHECKED}"
            return ok("login", text)
    text = f"no login of {name} in the usual places; whether it has one elsewhere {NOT_CHECKED}"
    return warn("login", text, known.login)


def _of_settings(adapter: Adapter | None) -> str:
    """Return the variable that the agent's own settings take a key from, if it is set."""
    file = adapter.settings_file(os.environ) if adapter is not None else ""
    if adapter is None or not file:
        return ""
    name = adapter.login_variable(_text_of(Path(file)))
    return name if os.environ.get(name) else ""


def _login_status(agent: Agent, known: Program, folder: Path) -> Check:
    name, call = agent.name, [agent.argv[0], *known.login_status]
    try:
        reply = ask(call, folder=folder, seconds=ANSWER_SECONDS)
    except OSError as error:
        return warn("login", f"{name}: not checked: {error}", known.login)
    login = _login_line(reply.stdout.strip() or reply.stderr.strip())
    if reply.status == 0:
        text = f"{name}: {login or 'logged in'}; whether it still holds {NOT_CHECKED}"
        return ok("login", text)
    if reply.status is None:
        text = f"{name}: not checked: '{shlex.join(call)}' did not answer"
        return warn("login", text, shlex.join(call))
    text = f"{name} is not logged in" + (f": {login}" if login else "")
    # With the user's own provider there may be nothing to log in to.
    home = Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex")
    own = "model_provider" in _text_of(home / "config.toml")
    return warn("login", text, known.login) if own else fail("login", text, known.login)


def _login_line(answer: str) -> str:
    """Return the last line, as warnings come first; of a JSON object, the login method."""
    if not answer.startswith("{"):
        return printable(answer.split("\n")[-1], 100)
    try:
        method = json.loads(answer).get("authMethod")
    except (ValueError, RecursionError):
        return ""
    known = isinstance(method, str) and method != "none"
    return f"logged in by {printable(method, 40)}" if known else ""


def _text_of(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace")
    except OSError:
        return ""


# --- guards --------------------------------------------------------------------------------------


@value
class Tools:
    """Tools that the guards need.

    ``git``: its version, or "" if it is missing; ``guarded``: programs of the tracker on ``PATH``.
    """

    git: str
    guarded: tuple[str, ...]


def guards(agents: Iterable[Agent], tools: Tools, folder: Path) -> list[Check]:
    """Return the checks of the guards that hold these agents."""
    agents = list(agents)
    checks = [
        ok("guards", f"{each.name}: none, it has no adapter; its exit status is all that counts")
        for each in agents
        if not each.adapter
    ]
    held = [each for each in agents if each.adapter]
    if not held:
        return checks
    if not tools.git or version_key(tools.git) < version_key(GIT_MIN):
        text = f"git {tools.git or 'is missing'}: a push is refused with {GIT_MIN} or later only"
        return [*checks, fail("guards", text, "sudo apt-get install -y git")]
    parts = [f"'git push' leads nowhere (git {tools.git})"]
    if tools.guarded:
        settles = " and ".join(tools.guarded)
        parts.append(f"{settles} on PATH settles no issue of the agent's own")
    hooked = {x.name: _hooks_off(x, folder) for x in held if (a := load(x.adapter)) and a.has_hook}
    if told := [name for name, off in hooked.items() if not off]:
        parts.append(f"a hook tells {' and '.join(told)} why")
    checks.append(ok("guards", "; ".join(parts)))
    without = "no hook of ours runs; its questions come as words, without choices"
    return checks + [
        warn("guards", f"{name}: {off}: {without}", hint="the other guards hold")
        for name, off in hooked.items()
        if off
    ]


def _hooks_off(agent: Agent, folder: Path) -> str:
    adapter = load(agent.adapter)
    if adapter is None:
        return ""
    off = adapter.hooks_off(agent.arguments, os.environ, [str(folder)], read_settings)
    return off.replace(f"{folder}/", "")


def reviewer(review: Agent, agents: Sequence[Agent], folder: Path) -> list[Check]:
    """Return the checks of the agent that reviews the work of the others."""
    if review in agents:
        return [ok("review", f"{review.name} looks at the work, in a session of its own")]
    checks = agent(review, folder, name="review")
    return [
        replace(each, text=f"{each.text}; it looks at the work")
        if each.name == "review" and each.status is Grade.OK
        else each
        for each in checks
    ]


def tools_here(folder: Path) -> Tools:
    """Return the tools that this machine has for guards."""
    guarded = tuple(name for name in GUARDED if shutil.which(name))
    if shutil.which("git") is None:
        return Tools("", guarded)
    output = ask(argv(["--version"]), folder=folder, seconds=5.0, environment=environment()).stdout
    match = re.search(r"\d+(?:\.\d+)+", output)
    return Tools(match[0] if match else "", guarded)
