"""A Slurm cluster on this machine: a controller here, and nodes that are hosts of ``hosts``.

Each node has its own network, processes, host name, boot id and HOME, and runs a slurmd. The one
munged is reached through a folder that all nodes see.

``scripts/setup-slurm`` installs the programs; without them tests fail rather than skip.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.support.hosts import PATH, PATIENCE_SECONDS, Hosts
from tests.support.processes import read, send

PROGRAMS = ("munged", "sbatch", "scancel", "setpriv", "slurmctld", "slurmd", "squeue", "srun")
CPUS = 4
"""Claimed by each node, so that as many attempts fit."""
DOWN_SECONDS = 10
"""Silence after which the controller takes a node for lost."""
SAVE_SECONDS = 6.0
"""Time within which the controller saves what has changed; in Slurm that is 5 s."""

_CONFIG = """\
ClusterName=bw
SlurmctldHost={controller}
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
StateSaveLocation={folder}/state
SlurmdPidFile=/run/slurmd.pid
SlurmdLogFile=/var/tmp/slurmd.log
SlurmdSpoolDir=/var/tmp/slurmd
SlurmdParameters=config_overrides
SlurmdTimeout={down}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
MpiDefault=none
ReturnToService=2
TreeWidth=1000
KillWait=2
UnkillableStepTimeout=10
{nodes}
PartitionName=main Nodes=ALL Default=YES State=UP
PartitionName=closed Nodes=ALL State=DOWN
"""


class Cluster(Hosts):
    """Nodes ``n1`` to ``nCOUNT`` within a ``with`` block; Slurm's programs need ``env``."""

    def __init__(self, folder: Path, count: int = 2) -> None:
        super().__init__(folder, count)
        self._files = folder / "slurm"
        self._munged: subprocess.Popen[bytes] | None = None
        self.controller: subprocess.Popen[bytes] | None = None
        self.env = {"SLURM_CONF": str(self._files / "slurm.conf")}

    def _begin(self) -> None:
        if missing := [each for each in PROGRAMS if shutil.which(each, path=PATH) is None]:
            raise RuntimeError(f"{', '.join(missing)}: not found: run scripts/setup-slurm")
        (self._files / "state").mkdir(parents=True)
        for name in self._names:
            self.add(name, sees=[self._files])
        self._configure()
        self._start_munged()
        self.start_controller()
        for name in self._names:
            self.start_slurmd(name)
        self.wait_for_state("IDLE", *self._names)

    def _end(self) -> None:
        if self.controller is not None:
            self.controller.terminate()  # It ends its own child process first.
            try:
                self.controller.wait(PATIENCE_SECONDS / 3)
            except subprocess.TimeoutExpired:
                self.kill_controller()
            self.controller = None
        super()._end()
        if self._munged is not None:
            self._munged.kill()
            self._munged.wait()
            self._munged = None

    # --- what a test does to it -------------------------------------------------------------------

    def call(self, *command: str, check: bool = True) -> str:
        """Run a program of Slurm here; return its output."""
        done = subprocess.run(
            command,
            env={"PATH": PATH, **self.env},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert not check or done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout.strip()

    def kill_node(self, name: str) -> None:
        """Kill all processes of a node at once; nothing is said to anybody, as by a power cut."""
        self[name].kill()

    def start_node(self, name: str) -> None:
        """Boot a node that was killed: with another boot id, and the same HOME."""
        self[name].start()
        self.start_slurmd(name)

    def stop_node(self, name: str, seconds: float) -> None:
        """Stop all processes of a node for this time."""
        pids = self[name].pids()
        for sign in (signal.SIGSTOP, signal.SIGCONT):
            send(pids, sign)
            if sign == signal.SIGSTOP:
                time.sleep(seconds)

    def pids(self) -> list[int]:
        """Return the pids of the daemons here."""
        daemons = (self._munged, self.controller)
        return [each.pid for each in daemons if each is not None]

    def slurmd(self, name: str) -> list[int]:
        """Return the pids of the node's daemon; those of the jobs are ``slurmstepd``."""
        return [pid for pid in self[name].pids() if read(pid, "comm") == b"slurmd\n"]

    def start_slurmd(self, name: str) -> None:
        """Start the daemon of a node; the controller hears of it a moment later."""
        host = self[name]
        # Each node reaches the controller at the one address through its own gateway.
        gateway = host.run("ip", "-o", "-4", "addr", "show", "eth0").stdout.split()[3]
        first, _, last = gateway.partition("/")[0].rpartition(".")
        host.run("ip", "route", "replace", "default", "via", f"{first}.{int(last) - 1}")
        host.run("slurmd", "-f", self.env["SLURM_CONF"], "-N", name)

    def wait_until_saved(self) -> None:
        """Return once the controller would know all its jobs again if it were killed."""
        time.sleep(SAVE_SECONDS)

    def kill_controller(self) -> None:
        """Kill the controller; it forgets the last few seconds: see ``wait_until_saved``."""
        if self.controller is not None:
            self.controller.kill()
            self.controller.wait()
            self.controller = None

    def start_controller(self) -> None:
        """Start the controller; return once it answers. It goes on with the state it has saved."""
        self.controller = self._daemon("slurmctld", "-D", "-f", self.env["SLURM_CONF"])
        _wait(lambda: "UP" in self.call("scontrol", "ping", check=False), self.log)

    def restart_controller(self) -> None:
        """``kill_controller`` and ``start_controller``."""
        self.kill_controller()
        self.start_controller()

    def state(self, name: str) -> str:
        """Return what the controller thinks of a node, as ``sinfo`` shows it."""
        return self.call("sinfo", "-h", "-p", "main", "-n", name, "-o", "%T").upper()

    def wait_for_state(self, state: str, *names: str) -> None:
        """Return once the controller thinks this of these nodes."""
        for name in names:
            _wait(partial(self._is_in, state, name), self.log)

    def log(self) -> str:
        """Return the last lines of all daemons."""
        logs = sorted([*self._files.glob("*.log"), *self._files.glob("*.out")])
        logs += sorted(self._folder.glob("*/var-tmp/slurmd.log"))
        return "\n".join(f"{path}:\n{_tail(path)}" for path in logs)

    # --- how it is made ---------------------------------------------------------------------------

    def _configure(self) -> None:
        with socket.socket() as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        nodes = [
            f"NodeName={name} NodeAddr={self[name].address} CPUs={CPUS} RealMemory=4000"
            for name in self._names
        ]
        own = self[self._names[0]].address.rpartition(".")
        gateway = f"{own[0]}.{int(own[2]) - 1}"
        text = _CONFIG.format(
            controller=f"{socket.gethostname()}({gateway})",
            port=port,
            folder=self._files,
            down=DOWN_SECONDS,
            nodes="\n".join(nodes),
        )
        Path(self.env["SLURM_CONF"]).write_text(text)

    def _start_munged(self) -> None:
        key = self._files / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        files = [f"--key-file={key}"]
        for name in ("socket", "pid-file", "log-file", "seed-file"):
            files.append(f"--{name}={self._files}/munge.{name.removesuffix('-file')}")
        # Forced: the folders above are this user's alone, and munged would have them open.
        self._munged = self._daemon("munged", "--foreground", "--force", *files)
        _wait((self._files / "munge.socket").exists, self.log)

    def _daemon(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a program that is killed with this process."""
        with (self._files / f"{command[0]}.out").open("ab") as log:
            return subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *command],
                env={"PATH": PATH},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _is_in(self, state: str, name: str) -> bool:
        return self.state(name) == state


def _tail(path: Path, lines: int = 12) -> str:
    return "\n".join(_text(path).splitlines()[-lines:])


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _wait(true: Callable[[], object], said: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < deadline, said()
        time.sleep(0.05)
