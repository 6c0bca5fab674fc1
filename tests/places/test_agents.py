"""The real claude and codex on other machines, reached by ssh: their work, sessions and limits.

Each host has the programs, and a login that is its own. Home has neither. On a host, the stub of
the model APIs listens at the same loopback address as here.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import shlex
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from beads_workers.runtime import sessions
from tests.agents_api import ModelApi
from tests.support.agent_projects import AGENTS, CODEX_KEY
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet, until
from tests.support.hosts import Host, Hosts, need_hosts
from tests.support.processes import command, send
from tests.support.real_agents import AgentHome, cache, git, program, repository

pytestmark = [pytest.mark.peers, pytest.mark.daily(3)]

CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)
PATIENCE_SECONDS = 90.0
AGAIN_SECONDS = 3.0
"""Time from a kill of home to the next start."""
LANDED = "bw-landing/main"
N1, N2 = ("--on", "ssh:n1:1"), ("--on", "ssh:n2:1")
AWAY = Path(".cache/beads-workers/away")
"""The folder of a host's HOME that the product keeps its files in."""
OPTIONS = ("--retry-delay", "0", "--poll", "0.3s")
ENDS = (*OPTIONS, "--until-empty")
LIMITS = ("--reset-grace", "1s")
ASKS = (
    ': write a.py "a"; commit; say "Outcome: question: FOO or BAR?"',
    ' when "call it FOO": write b.py "FOO"; commit',
)
"""An issue with a question, for ``Machines.issue``."""

WRAPPER = """\
#!/bin/sh
mkdir -p "$HOME/seen"
{{
  env -0
  [ ! -d "$BW_WORKTREE" ] || [ ! -s "$BW_ISSUE_FILE" ] || printf 'ARE_THERE=yes\\0'
}} >"$HOME/seen/{name}-$$"
. "$HOME/agents.sh"
exec {program} "$@"
"""
"""An agent's program on a host: it notes what an attempt has given it, and adds the login."""
OF_HOME = ("BW_SOCKET", "ORCHESTRATOR_PID", "BW_CHECKOUT", "SECRET")
"""Variables that no attempt on a host has."""


# --- the stub, from a host ------------------------------------------------------------------------


class Door:
    """Carries connections from a port on a host's loopback to the same port on ours."""

    def __init__(self, host: Host, port: int) -> None:
        self._port = port
        self._listeners: list[socket.socket] = []
        # The network of a thread is its own.
        made = threading.Thread(target=self._listen, args=(host.pids()[0],))
        made.start()
        made.join()
        (self._listener,) = self._listeners
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _listen(self, pid: int) -> None:
        with open(f"/proc/{pid}/ns/net") as network:
            assert LIBC.setns(network.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        self._listeners.append(socket.create_server(("127.0.0.1", self._port), backlog=64))

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # Once it is closed.
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=_carry, args=(one, other), daemon=True).start()


def _carry(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(1 << 16):
            other.sendall(data)
    with contextlib.suppress(OSError):
        other.shutdown(socket.SHUT_WR)


# --- the machines ---------------------------------------------------------------------------------


class Machines:
    """A project at home, whose fleets reach the hosts ``n1`` and ``n2`` by ssh."""

    def __init__(self, folder: Path, hosts: Hosts, api: ModelApi, home: AgentHome) -> None:
        self.folder, self.hosts, self.api = folder, hosts, api
        self.project = EmbeddedProject(folder)
        repository(self.project.folder)
        self._doors: list[Door] = []
        path = folder / "path"
        _fill(path)
        for name in ("n1", "n2"):
            host = hosts.add(name, path=path, sees=[cache() / "agents"])
            shutil.copytree(home.folder, host.home, dirs_exist_ok=True)
            lines = [f"export {k}={shlex.quote(v)}" for k, v in _login(home).items()]
            (host.home / "agents.sh").write_text("\n".join(lines) + "\n")
            self._doors.append(Door(host, int(api.url.rpartition(":")[2])))
        (folder / "me").mkdir()
        self.project.environment |= {
            "PATH": f"{hosts.bin}:{self.project.environment['PATH']}",
            "HOME": str(folder / "me"),
            "XDG_STATE_HOME": str(folder / "state"),
            "SECRET": "of home",
        }

    def close(self) -> None:
        """Let nobody on the hosts reach the stub any more."""
        for door in self._doors:
            door.close()

    # --- what is seen of the hosts ----------------------------------------------------------------

    def processes(self) -> list[str]:
        """Return the commands on all hosts, but for those of sshd."""
        found = [command(pid) for pid in self.pids()]
        return [each for each in found if each and not re.match(r"(\S*/)?sshd", each)]

    def pids(self) -> set[int]:
        """Return the processes of all hosts."""
        return {pid for host in self.hosts for pid in host.pids()}

    def has(self, host: str, name: str) -> bool:
        """Return whether a worktree on a host has a file of this name."""
        return any((self.hosts[host].home / AWAY).glob(f"*/worktrees/*/{name}"))

    def given(self) -> dict[Path, dict[str, str]]:
        """Return the environments in which agents were started, by the file that has them."""
        return {
            file: dict(entry.split("=", 1) for entry in file.read_text().split("\0") if entry)
            for host in self.hosts
            for file in (host.home / "seen").glob("*")
        }

    def sessions(self) -> set[str]:
        """Return the sessions that the stub was asked in, and has charged."""
        return {charge.session for charge in self.api.accounts.charges if charge.session}

    # --- what is done at home ---------------------------------------------------------------------

    def issue(self, *texts: str, **fields: Any) -> str:
        """Add an issue, of which the agent reads these scripts of the stub; return its id."""
        number = len(self.project.read_all()) + 1
        description = "\n".join(f"[[stub{text}]]" for text in texts)
        row = {"id": f"bw-{number}", "description": description, **fields}
        self.project.create_many([row])
        return str(row["id"])

    def kill_home(self, fleet: Fleet) -> None:
        """Kill the fleet with everything that it has started here, at once."""
        workers = {int(each["pid"]) for each in fleet.journal("worker_started")}
        known = {fleet.process.pid, fleet.pid, *workers, *fleet.token_holders()}
        known |= {each.pid for pid in set(known) for each in sessions.descendants(pid)}
        known -= self.pids()
        commands = [command(pid) for pid in known]
        for word in ("beads_workers.runtime.main", "beads_workers.places.line", "/usr/bin/ssh "):
            assert any(word in each for each in commands), (word, commands)
        # Stopped first: none of them sees another one's end.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            send(known, number)
        fleet.process.wait(PATIENCE_SECONDS)
        until(lambda: not set(fleet.token_holders()) - self.pids())

    def statuses(self) -> list[str]:
        """Return the status of each issue, in the order of their ids."""
        found = self.project.read_all()
        return [found[each][0] for each in sorted(found)]

    def landed(self, name: str) -> str:
        """Return a file of the landing branch."""
        return git(self.project.folder, "show", f"{LANDED}:{name}")


def _fill(path: Path) -> None:
    """Make the folder of programs of the hosts: those of /usr/bin, and the agents."""
    path.mkdir()
    for each in Path("/usr/bin").iterdir():
        (path / each.name).symlink_to(each)
    for name, version in AGENTS.items():
        wrapper = path / name
        wrapper.unlink(missing_ok=True)
        real = shlex.quote(str(program(name, version)))
        wrapper.write_text(WRAPPER.format(name=name, program=real))
        wrapper.chmod(0o755)


def _login(home: AgentHome) -> dict[str, str]:
    """Return what makes an agent on a host ask the stub, with its files in the host's HOME."""
    hosts_own = ("PATH", "HOME", "TMPDIR", "TZ", "LANG")
    given = {k: v for k, v in home.environment.items() if k not in hosts_own}
    moved = {k: v.replace(str(home.folder), "/root") for k, v in given.items()}
    return moved | {"STUB_KEY": CODEX_KEY}


@pytest.fixture
def api() -> Iterator[ModelApi]:
    """A stub of the model APIs, which ends with the test."""
    with ModelApi() as stub:
        yield stub


@pytest.fixture
def machines(tmp_path: Path, api: ModelApi) -> Iterator[Machines]:
    """Home and two hosts; nothing of home may have reached an agent."""
    need_hosts()
    with contextlib.closing(AgentHome(api)) as home, Hosts(tmp_path) as hosts:
        made = Machines(tmp_path, hosts, api, home)
        yield made
        made.close()
        for file, environment in made.given().items():
            _has_nothing_of_home(made, file, environment)


def _has_nothing_of_home(machines: Machines, file: Path, environment: Mapping[str, str]) -> None:
    assert not environment.keys() & {*OF_HOME}, (file, environment)
    for name, text in environment.items():
        # Also the project, its state, HOME, the ssh programs: all of home is below it.
        assert str(machines.folder) not in text, (file, name, text)
    assert environment["HOME"] == "/root"
    for name in ("BW_WORKTREE", "BW_ISSUE_FILE"):
        assert environment[name].startswith(f"/root/{AWAY}/"), environment
    assert environment["ARE_THERE"] == "yes"


StartFleet = Callable[..., Fleet]


@pytest.fixture
def start(machines: Machines) -> Iterator[StartFleet]:
    """Starts fleets: ``start(*arguments)``; what is left of them ends with the test."""
    fleets: list[Fleet] = []

    def begin(*arguments: str) -> Fleet:
        fleets.append(Fleet(machines.project, *arguments))
        return fleets[-1]

    yield begin
    for fleet in fleets:
        fleet.end()


def receipts(fleet: Fleet) -> list[dict[str, Any]]:
    """Return the receipts of all attempts of a run that have ended."""
    return [row["receipt"] for row in fleet.journal("finished")]


def ends(*fleets: Fleet) -> list[tuple[str, int]]:
    """Return outcome and charge of each attempt that has ended, in the order of their ends."""
    rows = [row for fleet in fleets for row in fleet.journal("finished")]
    return [(row["outcome"], row.get("charged", 0)) for row in rows]


def hosts_of(*fleets: Fleet) -> list[str]:
    """Return the host of each attempt, in the order of their beginnings."""
    return [str(row["host"]) for fleet in fleets for row in fleet.journal("leased")]


def nothing_is_left(machines: Machines) -> None:
    """Wait until no process but those of sshd is on any host."""
    until(lambda: not machines.processes(), 20)


# --- the cases ------------------------------------------------------------------------------------


def test_each_agent_does_its_issue_on_a_host_and_the_branch_lands_at_home(
    machines: Machines, start: StartFleet
) -> None:
    issue = machines.issue(': tokens 5000 500; write a.py "a"; run "echo hello"; commit')
    machines.issue(': write b.py "b"', labels=["agent:codex"])
    verify = ("--verify", "test -e a.py -o -e b.py")
    fleet = start(*N1, *N2, *ENDS, "--agent", "claude,codex", *verify)
    assert fleet.wait(PATIENCE_SECONDS) == 0, fleet.said()
    assert machines.statuses() == ["closed"] * 2
    assert (machines.landed("a.py"), machines.landed("b.py")) == ("a", "b")
    assert sorted(hosts_of(fleet)) == ["n1", "n2"]
    found = {each["agent"]: each for each in receipts(fleet)}
    assert found["claude"]["verified"] and found["codex"]["verified"]
    nothing_is_left(machines)

    total = machines.api.accounts.total()
    dollars = machines.api.accounts.total(session=found["claude"]["session"]).dollars
    assert found["claude"]["money"] == pytest.approx(dollars)
    money = json.loads(fleet.call("report", "--json").stdout)["money"]
    assert money["by_issue"][issue]["usd"] == pytest.approx(dollars)
    assert money["tokens"]["total"] == total.tokens.input + total.tokens.output
    log = fleet.call("logs", issue).stdout
    assert "[beads-workers] agent claude, adapter claude, session " in log
    assert "$ echo hello\n" in log

    refs = git(machines.project.folder, "for-each-ref", "--format=%(refname)")
    assert "refs/heads/bw/" not in refs, "no branch holds work any more"
    assert refs.count("refs/bw/attempts/") == 2


def test_a_question_is_answered_at_home_and_its_session_goes_on_on_its_host(
    machines: Machines, start: StartFleet
) -> None:
    issue = machines.issue(*ASKS)
    first = start(*N1, *ENDS, "--agent", "codex")
    assert first.wait(PATIENCE_SECONDS) == 7, first.said()
    said = first.call("answer", issue, "call it FOO")
    assert said.returncode == 0, said
    second = start(*N1, *ENDS, "--agent", "codex")
    assert second.wait(PATIENCE_SECONDS) == 0, second.said()
    assert machines.statuses() == ["closed"]
    assert (machines.landed("a.py"), machines.landed("b.py")) == ("a", "FOO")
    assert ends(first, second) == [("question", 0), ("success", 0)]
    (asked,), (done,) = receipts(first), receipts(second)
    assert machines.sessions() == {asked["session"]} == {done["session"]}


def test_an_attempt_goes_on_on_another_host_in_a_new_session_with_its_commits(
    machines: Machines, start: StartFleet
) -> None:
    issue = machines.issue(*ASKS)
    first = start(*N1, *ENDS, "--agent", "claude")
    assert first.wait(PATIENCE_SECONDS) == 7, first.said()
    assert first.call("answer", issue, "call it FOO").returncode == 0
    second = start(*N2, *ENDS, "--agent", "claude")
    assert second.wait(PATIENCE_SECONDS) == 0, second.said()
    assert hosts_of(first, second) == ["n1", "n2"]
    (asked,), (done,) = receipts(first), receipts(second)
    assert machines.sessions() == {asked["session"], done["session"]}
    assert asked["session"] != done["session"]
    # The stub has found the answer in the prompt, with the question.
    assert machines.landed("b.py") == "FOO"
    assert machines.landed("a.py") == "a"
    parent = git(machines.project.folder, "rev-parse", f"{done['commits'][-1]}^")
    assert parent == asked["head"]


def test_a_limit_is_met_once_and_the_attempt_goes_on_in_its_session_on_its_host(
    machines: Machines, start: StartFleet
) -> None:
    issue = machines.issue(': write a.py "a"; limit five_hour 4s; write b.py "b"')
    fleet = start(*N1, *N2, *OPTIONS, *LIMITS, "--agent", "claude")
    closed = fleet.wait_for("account_closed")
    # For the worker of the other host, which is free.
    machines.issue(': write c.py "c"')
    until(lambda: machines.statuses() == ["closed"] * 2)
    assert [machines.landed(f"{name}.py") for name in "abc"] == ["a", "b", "c"]
    assert len(fleet.journal("account_closed")) == 1
    (account,) = machines.api.accounts.by_name.values()
    assert account.refused == {"limit": 1}, "nobody asks before the reset"
    began = [each["t"] for each in fleet.journal("started")]
    assert len(began) == 3 and min(began[1:]) >= closed["until"] > closed["t"]
    assert ends(fleet) == [("retry", 0), *[("success", 0)] * 2]
    leased = [each for each in fleet.journal("leased") if each["issue_id"] == issue]
    assert len({each["host"] for each in leased}) == 1
    finished = [each for each in fleet.journal("finished") if each["issue_id"] == issue]
    assert len({each["receipt"]["session"] for each in finished}) == 1
    assert len(machines.sessions()) == 2, "one of each issue"


def test_a_kill_of_all_of_home_leaves_the_attempt_to_the_next_start(
    machines: Machines, start: StartFleet
) -> None:
    issue = machines.issue(': tokens 5000 50; write a.py "a"; run "touch began; sleep 8"; commit')
    first = start(*N1, *ENDS, "--agent", "claude")
    until(lambda: machines.has("n1", "began"))
    machines.kill_home(first)
    time.sleep(AGAIN_SECONDS)
    assert any("claude" in each for each in machines.processes()), "the agent works on"
    second = start(*N1, *ENDS, "--agent", "claude")
    assert second.wait(PATIENCE_SECONDS) == 0, second.said()
    assert machines.statuses() == ["closed"]
    assert machines.landed("a.py") == "a"
    records = [*first.journal(), *second.journal()]
    kinds = [each["e"] for each in records]
    assert (kinds.count("started"), kinds.count("branch_landed")) == (1, 1)
    assert sum(each.get("charged", 0) for each in records) == 0
    assert len(machines.sessions()) == 1
    total = machines.api.accounts.total()
    money = json.loads(second.call("report", "--json").stdout)["money"]
    assert money["tokens"]["total"] == total.tokens.input + total.tokens.output
    assert money["by_issue"][issue]["usd"] == pytest.approx(total.dollars)
    assert second.call("logs", issue).stdout.count("$ touch began") == 1
    nothing_is_left(machines)


def test_a_failed_check_and_a_remark_of_the_reviewer_are_mended_on_the_host(
    machines: Machines, start: StartFleet
) -> None:
    machines.issue(
        ': write cart.py "total = 1"',
        ' when "AssertionError": write cart.py "total = 2"',
        ' when "- no tax": write tax.py "vat"',
        r' when "+vat": say "{\"approve\": true}"',
        r' when "You review": say "{\"approve\": false, \"remarks\": [\"no tax\"]}"',
    )
    verify = "python3 -B -c 'import cart; assert cart.total == 2, cart.total'"
    work = ("--agent", "codex", "--review", "codex", "--verify", verify)
    fleet = start(*N1, *ENDS, *work)
    assert fleet.wait(PATIENCE_SECONDS) == 0, fleet.said()
    assert (machines.landed("cart.py"), machines.landed("tax.py")) == ("total = 2", "vat")
    (receipt,) = receipts(fleet)
    assert (receipt["rounds"], receipt["verified"]) == (2, True)


def test_a_conflict_at_home_goes_back_to_the_agent_on_the_host(
    machines: Machines, start: StartFleet
) -> None:
    mend = ' when "conflicts stand in": write shop.py "both"; commit "mend"'
    for text in ("one", "two"):
        machines.issue(f': write shop.py "{text}"; run "sleep 2"', mend)
    fleet = start("--on", "ssh:n1:2", *ENDS, "--agent", "codex")
    assert fleet.wait(PATIENCE_SECONDS) == 0, fleet.said()
    assert machines.statuses() == ["closed"] * 2
    assert machines.landed("shop.py") == "both"
    assert len(fleet.journal("finished")) == 3
    assert len(machines.sessions()) == 2
