"""An attempt decides nothing for the person, whichever way it asks; other projects are free."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from beads_workers.registry import DECIDING, commands
from tests.end_to_end.conftest import StartFleet
from tests.support.agent_projects import AgentProject
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import PROGRAM, Fleet, until
from tests.support.real_agents import AgentHome
from tests.support.repository import commit, make_repository

ARGUMENTS = {"scale": ["3"], "pause": [], "resume": [], "stop": [], "restart": [], "trust": []}
"""Those of commands that take no issue."""
THERE = sorted(DECIDING & {name for module in commands().values() for name in module})
READING = ("status", "why", "list", "report", "branches", "runs", "logs")
REFUSED = "an agent's attempt may not '{}' in its own project, only a person may"

TYPES = """
import json, os, subprocess, sys
clean = ["env", "-i", *(f"{name}={os.environ.get(name, '')}" for name in ("PATH", "PYTHONPATH"))]
ends = '("$@" >"$0.out" 2>"$0.err"; echo $? >"$0.new"; mv "$0.new" "$0.code") & :'
orphaned = ["sh", "-c", ends, sys.argv[1] + ".orphan"]
found = {}
for way, before in {"": [], "clean": clean, "session": ["setsid", "-w", *clean]}.items():
    for words in json.loads(sys.argv[2])[way]:
        done = subprocess.run([*before, *words], capture_output=True, text=True)
        found[f"{way} {words[3]}".strip()] = done.returncode, done.stderr
subprocess.run(["setsid", "-w", *clean, *orphaned, *json.loads(sys.argv[2])["orphan"]])
asks = "import json, socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
asks += "s.sendall(sys.argv[2].encode()); print(s.recv(65536).decode())"
control = json.load(open(sys.argv[3]))["control_socket"]
for request in json.loads(sys.argv[4]):
    line = json.dumps({"control": request, "control_data": {"workers": 3}, "reply_to": "x"}) + "\\n"
    done = subprocess.run(
        [*clean, sys.executable, "-c", asks, control, line], capture_output=True, text=True
    )
    found["socket " + request] = json.loads(done.stdout)
with open(sys.argv[1], "w") as file:
    json.dump(found, file)
"""


def words(name: str) -> list[str]:
    """A whole command line."""
    return [*PROGRAM, name, *ARGUMENTS.get(name, ["bw-1"])]


def typed(folder: Path) -> dict[str, Any]:
    """What became of the commands, once the attempt has typed them all."""
    until((folder / "typed.orphan.code").exists)
    found: dict[str, Any] = until(
        lambda: (folder / "typed").exists() and json.loads((folder / "typed").read_text() or "{}")
    )
    orphan = folder / "typed.orphan"
    code, error = (orphan.with_suffix(f".orphan{end}").read_text() for end in (".code", ".err"))
    return found | {"orphan": [int(code), error]}


def test_each_command_that_decides_is_refused_to_an_attempt_and_reading_is_free(
    embedded: EmbeddedProject, start: StartFleet, tmp_path: Path
) -> None:
    embedded.create_many([{}])
    commit(make_repository(embedded.folder), "a.py")
    info = embedded.folder / ".beads-workers" / "run.json"
    asked = {
        "": [words(name) for name in THERE] + [[*PROGRAM, name] for name in READING],
        "clean": [words("scale"), words("trust")],
        "session": [words("release"), words("trust")],
        "orphan": words("trust"),
    }
    requests = ["bw.scale", "bw.stop", "bw.answer", "cancel", "bw.status"]
    texts = (str(tmp_path / "typed"), json.dumps(asked), str(info), json.dumps(requests))
    (tmp_path / "typing_all.py").write_text(TYPES)
    types = shlex.join([sys.executable, str(tmp_path / "typing_all.py"), *texts])
    fleet: Fleet = start(embedded, "-n", "1", "--", "sh", "-c", 'eval "$0"; sleep 60', types)
    found = typed(tmp_path)
    for name in READING:
        code, error = found.pop(name)
        assert code == 0, (name, error)
    assert found.pop("socket bw.status")["state"] == "running"
    assert len(found) == len(THERE) + 4 + 1 + 4
    for name, said in found.items():
        command = "trust" if name == "orphan" else name.split()[-1].removeprefix("bw.")
        if name.startswith("socket"):
            assert said == {"error": REFUSED.format(command)}, name
        else:
            assert said[0] == 2 and REFUSED.format(command) in said[1], (name, said)
    warned = [row["text"] for row in fleet.journal("noted") if row["level"] == "warning"]
    assert len(warned) == 4 and warned[0].startswith("'scale' is refused: an attempt asked for it")
    # The fleet is as it was, and does what the person wants.
    assert [len(fleet.status()["workers"]), fleet.status()["state"]] == [1, "running"]
    assert fleet.call("scale", "2").stdout == "workers: 1 -> 2\n"
    assert fleet.call("stop", "--now").returncode == 0
    fleet.leaves_nothing()


OTHER = """set -e
mkdir "$0.other"
cd "$0.other"
git init -q
{program} init
{program} add one -- sleep 60
{program} start -d -n 1
{program} scale 2
{program} pause
{program} resume
{program} stop --now
{program} trust
echo free >"$0"
"""


def test_a_fleet_of_another_project_is_free_within_an_attempt(
    embedded: EmbeddedProject, start: StartFleet, tmp_path: Path
) -> None:
    embedded.create_many([{}])
    script = OTHER.format(program=shlex.join(PROGRAM))
    fleet = start(
        embedded, "-n", "1", "--until-empty", "--", "sh", "-c", script, str(tmp_path / "f")
    )
    assert fleet.wait() == 0, fleet.said()
    assert (tmp_path / "f").read_text() == "free\n"
    fleet.leaves_nothing()


# --- the live page --------------------------------------------------------------------------------

ASKS = """
import http.client, json, sys
at = json.load(open(sys.argv[1]))
origin = f"http://127.0.0.1:{at['port']}"
token = at["url"].split("/")[3]
asking = http.client.HTTPConnection("127.0.0.1", at["port"])
headers = {"Origin": origin, "Content-Type": "application/json", "X-Beads-Workers-Token": token}
body = json.dumps({"control": "bw.scale", "fields": {"workers": 2}})
asking.request("POST", f"/{token}/control", body, headers)
answer = asking.getresponse()
print(answer.status, answer.read().decode())
"""


def test_an_attempt_that_knows_the_token_of_the_page_controls_nothing(
    embedded: EmbeddedProject, start: StartFleet, tmp_path: Path
) -> None:
    """The script is a person's, too: there it is let in."""
    embedded.create_many([{}])
    (tmp_path / "asks.py").write_text(ASKS)
    web = embedded.folder / ".beads-workers" / "web.json"
    asks = shlex.join([sys.executable, str(tmp_path / "asks.py"), str(web)])
    told = shlex.quote(str(tmp_path / "told"))
    fleet = start(
        embedded,
        *("-n", "1", "--web", "--web-control", "--"),
        *("sh", "-c", f"env -i {asks} >{told}.new && mv {told}.new {told}; sleep 60"),
    )
    until((tmp_path / "told").exists)
    assert (tmp_path / "told").read_text().startswith("403 ")
    assert len(fleet.status()["workers"]) == 1
    argv = [sys.executable, str(tmp_path / "asks.py"), str(web)]
    mine = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert mine.startswith("200 ") and "workers: 1 -> 2" in mine
    os.kill(json.loads(web.read_bytes())["pid"], signal.SIGTERM)


# --- an agent -------------------------------------------------------------------------------------

DECIDES = """#!/bin/sh
env -i "PATH=$PATH" beads-workers scale 3 2>>{said}
"$(dirname "$0")/beads-workers" trust 2>>{said}
"""


def test_the_receipt_of_an_agent_names_what_it_wanted_to_decide(
    start: StartFleet, tmp_path: Path, home: AgentHome
) -> None:
    """The guard before our program marks a call without an environment; past it, the parents do."""
    project = AgentProject(tmp_path, home)
    tools, said = tmp_path / "tools", tmp_path / "said"
    tools.mkdir()
    paths = f"PYTHONPATH={shlex.quote(os.pathsep.join(sys.path))}"
    for name, text in (
        ("beads-workers", f'#!/bin/sh\n{paths} exec {shlex.join(PROGRAM)} "$@"\n'),
        ("decide", DECIDES.format(said=shlex.quote(str(said)))),
    ):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    project.environment["PATH"] = f"{tools}:{project.environment['PATH']}"
    project.issues(f'write a.py "1"; run "{tools}/decide"; say "Done."')
    fleet: Fleet = start(project, *("-n", "1", "--agent", "claude", "--until-empty"))
    assert fleet.wait(90) == 0, fleet.said()
    lines = [line for line in said.read_text().splitlines() if line.startswith("error: ")]
    assert lines == [f"error: {REFUSED.format(name)}" for name in ("scale", "trust")]
    (attempt,) = fleet.journal("finished")
    assert attempt["receipt"]["denied"] == ["beads-workers scale", "beads-workers trust"]
