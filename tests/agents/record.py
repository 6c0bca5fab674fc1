"""Records how the real command lines of agents end, for the tests of verdicts.

``python -m tests.agents.record`` runs every scenario with every installed program
(``scripts/setup-agents``) against the stub of the model APIs, and writes the corpus anew::

    python -m tests.agents.record                      everything that is installed
    python -m tests.agents.record claude-2.1.328       one program and version
    python -m tests.agents.record --only limit         scenarios with this in their name

A new version of a program is one recording: set its variable for ``scripts/setup-agents``, run
this, and look at the difference.

**The format.** An ending is two files, ``corpus/AGENT-VERSION/NAME.json`` and ``NAME.out``:

- ``NAME.out`` is stdout, byte for byte as the program wrote it, but for this: folders are
  ``/corpus/work`` (the repository), ``/corpus/home`` and ``/corpus/agents``, the stub is
  ``127.0.0.1:1``, the long lists of claude's ``init`` (tools, commands, skills) have at most three
  entries, and copilot's ``session.background_tasks_changed`` stands there once.
- ``NAME.json`` has the rest, as ``endings.RunEnding`` describes: ``agent``, ``version``,
  ``form`` (``stream-json`` or ``text``), ``arguments``, ``status`` or ``signal``, ``sent``,
  ``git`` {``commits``, ``changed``}, ``began``, ``seconds``, ``zone``, ``stderr`` and the
  ``label``: {``verdict``, ``until``, ``window``}.

**The labels** are what is true, which is not always what the program says:

- ``limited``: a usage limit of the account. ``until`` is the epoch that the server named, which is
  a whole minute, so that an adapter that has only the text (codex) can come to the same; ``null``
  where no reset was named.
- ``needs_person``: login, billing, account. Nothing mends it but a person.
- ``transient``: overload, errors of the server, a 429 of a minute, a stream that was cut.
- ``capped``: it was stopped by our own limit of turns or money.
- ``unfinished``: it was ended by a signal, or in the middle of its task: no result, refused its
  tools and changed nothing, stopped by the service's safeguards, no turn at all, called wrongly.
- ``no_change``: it ended well and changed nothing, whatever it says (also a question).
- ``done``: it ended well, and there is a commit or a change.

``git`` is part of the verdict: the same stdout is ``done`` with a change and ``no_change`` without.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from beads_workers.agents.adapter import AgentRequest, load
from tests.agents.endings import Git, Label, RunEnding
from tests.agents.scenarios import FEW, Scenario, scenarios
from tests.agents_api import ModelApi
from tests.support.real_agents import AgentHome, cache, git, program, repository

PATIENCE_SECONDS = 45.0
NAMES_RESET = ("claude", "codex")
"""The APIs of the others do not say when a limit ends."""
LIST_MAX = 3
STDERR_MAX = 2000

_CLAUDE_MODES = {
    "free": ("--dangerously-skip-permissions",),
    "asking": ("--permission-mode", "default"),
    "edits": ("--permission-mode", "acceptEdits"),
    "dont-ask": ("--permission-mode", "dontAsk"),
    "no-bash": ("--permission-mode", "acceptEdits", "--disallowedTools", "Bash"),
}
_CODEX_MODES = {
    "free": "danger-full-access",
    "workspace": "workspace-write",
    "read-only": "read-only",
}


def _claude(scenario: Scenario, prompt: str) -> tuple[list[str], str]:
    verbose = ["--verbose"] if scenario.form == "stream-json" else []
    argv = ["-p", "--output-format", scenario.form, *verbose, *_CLAUDE_MODES[scenario.mode]]
    return [*argv, *scenario.extra], prompt


def _codex(scenario: Scenario, prompt: str) -> tuple[list[str], str]:
    lines = ["--json"] if scenario.form == "stream-json" else []
    argv = ["exec", "--sandbox", _CODEX_MODES[scenario.mode], "-c", 'approval_policy="never"']
    return [*argv, *scenario.extra, *lines, "-"], prompt


def _copilot(scenario: Scenario, prompt: str) -> tuple[list[str], str]:
    argv = ["-p", prompt, "--allow-all-tools", "--output-format", "json", "--no-ask-user"]
    return [*argv, *scenario.extra], ""


def _gemini(scenario: Scenario, prompt: str) -> tuple[list[str], str]:
    argv = ["-p", prompt, "-o", "stream-json", "-y", "--skip-trust", "-m", "gemini-2.5-pro"]
    return [*argv, *scenario.extra], ""


def _opencode(scenario: Scenario, prompt: str) -> tuple[list[str], str]:
    argv = ["run", "--format", "json", "-m", "stub/claude-sonnet-5-5", "--auto"]
    # It would put an argument in quotes.
    return [*argv, *scenario.extra], prompt


def _as_the_adapter_says(agent: str) -> Callable[[Scenario, str], tuple[list[str], str]]:
    def call(scenario: Scenario, prompt: str) -> tuple[list[str], str]:
        adapter = load(agent)
        assert adapter is not None
        session = (
            str(uuid.uuid4()) if adapter.own_session and "--resume" not in scenario.extra else ""
        )
        asked = AgentRequest(prompt, session=session, arguments=scenario.extra)
        called = adapter.arguments(asked)
        return list(called.argv[1:]), called.stdin

    return call


CALLS: dict[str, Callable[[Scenario, str], tuple[list[str], str]]] = {
    "claude": _claude,
    "codex": _codex,
    "copilot": _copilot,
    "gemini": _gemini,
    "opencode": _opencode,
    **{agent: _as_the_adapter_says(agent) for agent in FEW},
}
"""Of each program: its arguments, and what it reads from stdin."""


def record(agent: str, version: str, scenario: Scenario) -> RunEnding:
    """Run one scenario to its end. Raises ``subprocess.TimeoutExpired`` when it has none."""
    with ModelApi(script=scenario.script if scenario.quiet else "") as api:
        home = AgentHome(api, scenario.key, retries=scenario.retries)
        work = Path(tempfile.mkdtemp(prefix="corpus-", dir=home.folder)) / "work"
        work.mkdir()
        if scenario.git:
            repository(work)
        script = "" if scenario.quiet else f" [[stub: {scenario.script}]]"
        prompt = scenario.prompt + script
        arguments, given = CALLS[agent](scenario, prompt)
        environment = home.environment | dict(scenario.environment)
        environment = {name: text for name, text in environment.items() if text}
        began = time.time()
        code, stdout, stderr = _run(
            [str(program(agent, version)), *arguments], given, work, environment, scenario, api
        )
        seconds = time.time() - began
        until = api.account(scenario.key).until if agent in NAMES_RESET else None
        facts = _facts(work) if scenario.git else Git(0, any(work.iterdir()))
        scrub = _Scrub(work, home.folder, api.url)
        home.close()
    return RunEnding(
        name=scenario.name,
        agent=agent,
        version=version,
        form=scenario.form,
        scenario=scenario.script,
        label=Label(scenario.verdict, until, scenario.window),
        status=None if code < 0 else code,
        signal=signal.Signals(-code).name.removeprefix("SIG") if code < 0 else None,
        sent=scenario.send,
        git=facts,
        began=int(began),
        seconds=round(seconds, 1),
        zone="UTC",
        arguments=tuple(scrub(word.encode()).decode() for word in arguments),
        stderr=scrub(stderr).decode(errors="replace")[-STDERR_MAX:],
        stdout=_shorten(scrub(stdout)),
    )


def _run(
    argv: Sequence[str],
    text: str,
    work: Path,
    environment: dict[str, str],
    scenario: Scenario,
    api: ModelApi,
) -> tuple[int, bytes, bytes]:
    process = subprocess.Popen(
        argv,
        cwd=work,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    over = threading.Event()

    def send() -> None:
        while not over.wait(0.05):
            silent = any(request.outcome == "silence" for request in api.requests)
            tried = scenario.tried and len(api.requests) >= scenario.tried
            if silent or tried or (work / ".git" / "begun").exists():
                # Its lines come a moment after the tool.
                over.wait(0.5)
                with contextlib.suppress(ProcessLookupError):  # Some end after three tries.
                    os.killpg(process.pid, signal.Signals[f"SIG{scenario.send}"])
                return

    if scenario.send:
        threading.Thread(target=send).start()
    try:
        stdout, stderr = process.communicate(text.encode(), PATIENCE_SECONDS)
    finally:
        over.set()
        # What a tool left behind is in a session of its own, and ends by itself.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, stdout, stderr


def _facts(work: Path) -> Git:
    commits = int(git(work, "rev-list", "--count", "HEAD")) - 1
    return Git(commits, bool(git(work, "status", "--porcelain")))


class _Scrub:
    """Replaces what is of this machine and moment."""

    def __init__(self, work: Path, home: Path, url: str) -> None:
        folders = ((str(work), "/corpus/work"), (str(home), "/corpus/home"))
        pairs = [(url.removeprefix("http://"), "127.0.0.1:1"), *folders]
        pairs.append((str(cache() / "agents"), "/corpus/agents"))
        # Names of transcripts are made of folders.
        pairs += [
            (re.sub(r"[^A-Za-z0-9]", "-", old), new.replace("/", "-")) for old, new in folders
        ]
        self._pairs = [(old.encode(), new.encode()) for old, new in pairs]

    def __call__(self, text: bytes) -> bytes:
        for old, new in self._pairs:
            text = text.replace(old, new)
        return text


def _shorten(stdout: bytes) -> bytes:
    """claude names every tool and command when it begins: three of each are enough. copilot says
    again and again that its background tasks have changed: once is enough."""
    lines: list[bytes] = []
    noise = b'{"type":"session.background_tasks_changed"'
    for line in stdout.splitlines(keepends=True):
        if not line.startswith(noise) or not any(kept.startswith(noise) for kept in lines):
            lines.append(_shorten_line(line))
    return b"".join(lines)


def _shorten_line(line: bytes) -> bytes:
    if not line.startswith(b'{"type":"system","subtype":"init"') or not line.endswith(b"\n"):
        return line
    facts = {
        name: what[:LIST_MAX] if isinstance(what, list) else what
        for name, what in json.loads(line).items()
    }
    return json.dumps(facts, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def installed() -> list[tuple[str, str]]:
    """Programs and versions that ``scripts/setup-agents`` has installed."""
    folders = sorted(mark.parent.name for mark in (cache() / "agents").glob("*/complete"))
    return [(name, version) for name, _, version in (f.partition("-") for f in folders)]


def main() -> None:
    """Record what the arguments name."""
    parser = argparse.ArgumentParser(description="Record how agents end.")
    parser.add_argument("programs", nargs="*", help="claude-2.1.328, ... (all that are installed)")
    parser.add_argument("--only", default="", help="scenarios with this in their name")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    wanted = [
        (agent, version, scenario)
        for agent, version in installed()
        if not given.programs or f"{agent}-{version}" in given.programs
        for scenario in scenarios(agent)
        if given.only in scenario.name
    ]
    with ThreadPoolExecutor(given.jobs) as pool:
        list(pool.map(lambda one: _keep(*one), wanted))


def _keep(agent: str, version: str, scenario: Scenario) -> None:
    place = f"{agent}-{version}/{scenario.name}"
    try:
        ending = record(agent, version, scenario)
    except subprocess.TimeoutExpired:
        print(f"{place}: had not ended after {PATIENCE_SECONDS:.0f} s, not kept", flush=True)
        return
    ending.write()
    end = ending.signal or ending.status
    print(f"{place}: {ending.label.verdict}, {end}, {ending.git}, {ending.seconds} s", flush=True)


if __name__ == "__main__":
    main()
