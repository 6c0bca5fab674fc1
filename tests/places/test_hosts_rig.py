"""The hosts of ``tests/support/hosts.py`` do what the tests of places rely on."""

from __future__ import annotations

import functools
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import fleet
from tests.support.hosts import Host, Hosts, need_hosts, only
from tests.support.processes import living

pytestmark = pytest.mark.peers

ROOT = Path(__file__).parent.parent.parent
BOOT_ID = "/proc/sys/kernel/random/boot_id"
CUT_SECONDS = 3.0
PATIENCE_SECONDS = 20.0


@pytest.fixture(autouse=True)
def _possible() -> None:
    need_hosts()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Two of them; the test fails if anything of them is left."""
    with Hosts(tmp_path, 2) as made:
        yield made
        pids = [pid for host in made for pid in host.pids()]
    assert left_by(os.getpid()) == []
    assert living(pids) == []


def left_by(pid: int) -> list[str]:
    """Networks, devices, routes, neighbours and mounts that this process made for hosts."""
    asked = (["netns"], ["-brief", "link"], ["-4", "route"], ["-4", "neigh", "show", "nud", "all"])
    said = [subprocess.check_output(["ip", *words], text=True) for words in asked]
    mounts = Path("/proc/self/mounts").read_text()
    lines = "".join([*said, mounts]).splitlines()
    return [line for line in lines if f"bw{pid}-" in line or f"bw{pid}." in line]


def ssh(hosts: Hosts, *words: str) -> subprocess.CompletedProcess[str]:
    """Call ``ssh`` as the product does: plain, with the folder first on PATH."""
    return subprocess.run(
        ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=1", *words],
        env={**os.environ, "PATH": f"{hosts.bin}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


class Echo:
    """An open ``ssh NAME cat``."""

    def __init__(self, hosts: Hosts, name: str) -> None:
        self.process = subprocess.Popen(
            [hosts.bin / "ssh", "-o", "BatchMode=yes", name, "cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        assert self.said_to(b"hello\n", PATIENCE_SECONDS) == b"hello\n"

    def said_to(self, line: bytes, seconds: float) -> bytes:
        """Send it and return the answer of these seconds."""
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        return self.said(seconds)

    def said(self, seconds: float) -> bytes:
        """Return what is said within these seconds."""
        assert self.process.stdout is not None
        ready = select.select([self.process.stdout], [], [], max(0.0, seconds))[0]
        return os.read(self.process.stdout.fileno(), 1 << 16) if ready else b""

    def end(self) -> int:
        """Its exit code, once the other end has closed it or the connection broke."""
        code = self.process.wait(PATIENCE_SECONDS)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()
        return code


until = functools.partial(fleet.until, seconds=PATIENCE_SECONDS)


def boot_id(host: Host) -> str:
    """Which boot of the host this is."""
    return host.run("cat", BOOT_ID).stdout


def test_each_host_is_a_machine_of_its_own(hosts: Hosts) -> None:
    (hosts["n1"].home / "note").write_text("for n1")
    asked = f"hostname; cat {BOOT_ID} /etc/machine-id; echo $$ $HOME $PWD; ls /root /tmp"
    said = [ssh(hosts, host.name, asked).stdout.split() for host in hosts]
    assert [lines[0] for lines in said] == ["n1", "n2"]
    assert len({*said[0][1:3], *said[1][1:3], Path(BOOT_ID).read_text().strip()}) == 5
    assert all(int(lines[3]) < 100 for lines in said), "pids of a host begin at 1"
    rest = ["/root", "/root", "/root:"]
    assert [lines[4:] for lines in said] == [[*rest, "note", "/tmp:"], [*rest, "/tmp:"]]
    assert ssh(hosts, "n1", "echo x > /usr/local/x").returncode != 0
    assert hosts["n1"].run("sh", "-c", "pwd; cat", given="x").stdout == "/root\nx"


def test_a_cut_is_silence_and_connections_survive_it(hosts: Hosts) -> None:
    echo = Echo(hosts, "n1")
    hosts["n1"].cut()
    began = time.monotonic()
    assert echo.said_to(b"lost, then sent again\n", 1.0) == b""
    refused = ssh(hosts, "n1", "true")
    assert (refused.returncode, "timed out" in refused.stderr) == (255, True), refused.stderr
    assert ssh(hosts, "n2", "echo here").stdout == "here\n"
    assert echo.said(CUT_SECONDS - (time.monotonic() - began)) == b""
    hosts["n1"].mend()
    assert echo.said(PATIENCE_SECONDS) == b"lost, then sent again\n"
    assert ssh(hosts, "n1", "echo here").stdout == "here\n"
    assert echo.process.stdin is not None
    echo.process.stdin.close()
    assert echo.end() == 0


def test_a_restart_kills_everything_and_keeps_the_disk(hosts: Hosts) -> None:
    host = hosts["n1"]
    started = "touch ~/kept /tmp/lost; setsid -f sleep 1000 </dev/null >/dev/null 2>&1"
    assert ssh(hosts, "n1", started).returncode == 0
    echo = Echo(hosts, "n1")
    before, pids, other = boot_id(host), host.pids(), boot_id(hosts["n2"])
    assert len(pids) >= 4, "sshd, sleep, and the session with its cat"
    host.restart()
    assert living(pids) == []
    assert boot_id(host) != before and boot_id(hosts["n2"]) == other
    assert ssh(hosts, "n1", "ls ~ /tmp").stdout.split() == ["/root:", "kept", "/tmp:"]
    # As after a power cut: only the restarted host says that it knows no such connection.
    assert echo.process.poll() is None
    echo.said_to(b"who is there?\n", 1.0)
    assert echo.end() == 255


def test_a_killed_host_is_silent_until_it_starts(hosts: Hosts) -> None:
    host = hosts["n1"]
    echo = Echo(hosts, "n1")
    host.kill(quiet=False)
    assert echo.end() == 255, "an orderly end closes its connections"
    assert host.pids() == []
    assert "timed out" in ssh(hosts, "n1", "true").stderr
    host.cut()
    host.start()
    assert "timed out" in ssh(hosts, "n1", "true").stderr, "it was cut off before"
    host.mend()
    assert ssh(hosts, "n1", "echo here").stdout == "here\n"


def test_orphans_on_a_host_do_not_stay_as_zombies(hosts: Hosts) -> None:
    host = hosts["n1"]
    assert ssh(hosts, "n1", "setsid -f sleep 0.1 </dev/null >/dev/null 2>&1").returncode == 0
    until(lambda: len(host.pids()) == 1)


def test_a_host_may_lack_programs(hosts: Hosts, tmp_path: Path) -> None:
    path = only(tmp_path / "programs", "cat", "ls", "sh")
    host = hosts.add("bare", path=path)
    asked = "for each in python3 git cat; do command -v $each; done; true"
    assert ssh(hosts, "bare", asked).stdout == "/run/path/cat\n"
    assert ssh(hosts, "bare", "python3 -V").returncode == 127
    assert host.run("sh", "-c", asked).stdout == "/run/path/cat\n"


def test_a_host_may_have_a_full_disk(hosts: Hosts) -> None:
    host = hosts.add("full", full_disk=True)
    full = ssh(hosts, "full", "head -c 2000000 /dev/zero > ~/much")
    assert full.returncode != 0 and "No space left" in full.stderr
    host.restart()
    assert 0 < (host.home / "much").stat().st_size <= 1 << 20


def test_a_host_may_have_another_key_or_refuse_ours(hosts: Hosts) -> None:
    hosts.add("changed", key="changed")
    hosts.add("refused", key="refused")
    for _ in range(3):
        changed, refused = ssh(hosts, "changed", "true"), ssh(hosts, "refused", "true")
        assert (changed.returncode, refused.returncode) == (255, 255)
        assert "Host key verification failed" in changed.stderr
        assert "Permission denied (publickey)" in refused.stderr


def test_a_host_may_see_a_folder_of_this_machine(hosts: Hosts, tmp_path: Path) -> None:
    (tmp_path / "note").write_text("seen")
    host = hosts.add("seeing", sees=[tmp_path])
    assert host.run("cat", str(tmp_path / "note")).stdout == "seen"
    assert host.run("touch", str(tmp_path / "note"), check=False).returncode != 0
    assert hosts["n1"].run("ls", str(tmp_path), check=False).returncode != 0


def test_a_start_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="no-such-folder"), Hosts(tmp_path, 1) as hosts:
        hosts.add("n2", path=tmp_path / "no-such-folder")
    assert left_by(os.getpid()) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.support.hosts import Hosts
with Hosts(Path(sys.argv[1]), 1) as hosts:
    full = hosts.add("full", full_disk=True)
    full.restart()
    print(*(host.address for host in hosts), *(pid for host in hosts for pid in host.pids()))
    sys.stdout.flush()
    sys.stdin.read()
"""


def test_the_next_start_removes_what_a_killed_process_left(hosts: Hosts, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, tmp_path / "a folder"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    one, other, *rest = process.stdout.readline().split()
    pids = [int(pid) for pid in rest]
    assert {one, other}.isdisjoint({host.address for host in hosts})
    with Hosts(tmp_path / "beside"):
        assert living(pids) == pids, "its maker is alive"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdin.close()
    process.stdout.close()
    assert living(pids) == pids and left_by(process.pid)
    with Hosts(tmp_path / "later"):
        assert left_by(process.pid) == []
        until(lambda: not living(pids))
    assert ssh(hosts, "n1", "echo here").stdout == "here\n"
