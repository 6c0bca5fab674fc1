"""An agent that prints for hours: neither its attempt nor its worker holds what it has said."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.agents_api import ModelApi
from tests.end_to_end.conftest import StartFleet
from tests.support.agent_projects import AgentProject
from tests.support.real_agents import AgentHome

SHORT, LONG = 1_000_000, 20_000_000
"""Bytes of events; the attempt of the first issue prints the former."""
GROWTH_MOST = 1.4
"""Its first issue gives a process its size; to hold the second stream would nearly double it."""
LOG_MAX = 4 << 20

AGENT = """\
#!{python}
# Prints events as claude does, each kind of them, and says what its parents have held at most.
import json, os, sys

def say(**line):
    text = json.dumps(dict(line, session_id="s1"))
    print(text, flush=False)
    return len(text)

def assistant(number, *content):
    usage = {{"input_tokens": 10, "output_tokens": 5}}
    message = {{"id": "m%d" % number, "model": "opus-1", "content": content, "usage": usage}}
    return say(type="assistant", message=message)

issue, printed, number = os.environ["BW_ISSUE_ID"], 0, 0
say(type="system", subtype="init", model="opus-1", cwd=os.getcwd())
while printed < (SHORT if issue == "bw-1" else LONG):
    number += 1
    tool = {{"type": "tool_use", "name": "Bash", "input": {{"command": "ls %d" % number}}}}
    printed += assistant(number, {{"type": "text", "text": "word %d " % number * 100}}, tool)
    said = {{"type": "tool_result", "content": "x" * (200_000 if number % 50 == 0 else 900)}}
    printed += say(type="user", message={{"content": [said]}})
    if number % 7 == 0:
        printed += len("a line of its own\\n")
        print("a line of its own", file=sys.stderr if number % 2 else sys.stdout)
open(issue + ".py", "w").write("x = 1")
sys.stdout.flush()
pid = os.getppid()
with open("{folder}/" + issue, "w") as file:
    for _ in range(2):
        status = open("/proc/%d/status" % pid).read()
        found = dict(line.split(":", 1) for line in status.splitlines())
        pid = int(found["PPid"])
        file.write(found["VmHWM"].split()[0] + " ")
    file.write(str(printed))
say(type="result", subtype="success", is_error=False, num_turns=number, result="Done.",
    stop_reason="end_turn", terminal_reason="completed", total_cost_usd=0.5, modelUsage={{}})
"""


@pytest.fixture
def project(tmp_path: Path, home: AgentHome) -> AgentProject:
    return AgentProject(tmp_path, home)


@pytest.mark.timeout(240)
def test_a_stream_of_any_length_takes_no_memory(
    start: StartFleet, project: AgentProject, api: ModelApi, tmp_path: Path
) -> None:
    """The worker is the same one, so that the second issue can only add to what it held."""
    program, peaks = tmp_path / "chatty", tmp_path / "peaks"
    peaks.mkdir()
    text = AGENT.format(python=sys.executable, folder=peaks)
    program.write_text(text.replace("SHORT", str(SHORT)).replace("LONG", str(LONG)))
    program.chmod(0o755)
    settings = (
        f'log_max = "{LOG_MAX >> 20}M"\n[agents.chatty]\nadapter = "claude"\nargv = ["{program}"]\n'
    )
    (project.folder / "beads-workers.toml").write_text(settings)
    project.create_many([{}, {}])
    agent = ("--agent", "chatty", "--skip-check", "agent")
    fleet = start(project, "-n", "1", *agent, "--until-empty")
    assert fleet.wait(200) == 0, fleet.said()
    short, long = ([int(word) for word in (peaks / f"bw-{n}").read_text().split()] for n in (1, 2))
    assert long[2] >= LONG > 10 * short[2]
    for what, before, after in zip(("attempt", "worker"), short, long, strict=False):
        assert after <= GROWTH_MOST * before, f"{what}: {before} KiB, then {after} KiB"
    logs = sum(file.stat().st_size for file in fleet.run_folder.rglob("*.log"))
    assert SHORT + LOG_MAX / 2 < logs < SHORT + 2 * LOG_MAX, "it keeps its head and its tail"
