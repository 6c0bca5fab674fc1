"""Hosts that a fleet reaches over ssh, all on this machine: each is a few namespaces with an sshd.

A host has its own network, processes, host name, boot id, HOME and temporary folders. It can be cut
off, killed and restarted for real. All else it shares with this machine, and cannot write to it.

``scripts/setup-hosts`` installs the programs; without them tests fail rather than skip.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address
from pathlib import Path
from typing import Literal, Self

import pytest

from beads_workers.runtime import sessions
from tests.support.processes import read, send

PATIENCE_SECONDS = 30.0
PROGRAMS = ("ip", "mount", "nsenter", "ssh", "ssh-keygen", "sshd", "umount", "unshare")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The search path of this rig, and of a session on a host that has no other."""

Key = Literal["right", "changed", "refused"]
"""``changed``: the client knows another key of the host; ``refused``: the host does not know the
client's key."""

FLEET_MAC = "02:00:00:00:00:01"
HOST_MAC = "02:00:00:00:00:02"
NOBODY_MAC = "02:00:00:00:00:03"
"""Packets that are sent to this address arrive, and the receiving kernel drops them."""

SUBNETS = 1 << 22
"""Networks of four addresses in 10.0.0.0/8."""

_numbers = itertools.count(1)

_SSHD_CONFIG = """\
HostKey /run/host/host_key
AuthorizedKeysFile /run/host/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
UseDNS no
ClientAliveInterval 0
MaxSessions 1000
MaxStartups 1000
PidFile /run/sshd.pid
PrintMotd no
Subsystem sftp internal-sftp
"""

_SSH_CONFIG = """\
Host {name}
  HostName {address}
  Port 22
  User root
  IdentityFile "{folder}/user_key"
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile "{folder}/known_hosts"
  GlobalKnownHostsFile /dev/null
"""

_PASSWD = """\
root:x:0:0:root:/root:/bin/bash
sshd:x:101:65534::/run/sshd:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
"""
# A password that starts with "!" locks root out, also for keys.
_SHADOW = "root:*:20000:0:99999:7:::\n"

# The first process of a host. The sources of bind mounts lie in folders that the host does not see,
# such as /tmp: they are gathered in /run/outside before anything is covered.
_BOOT = """\
set -e
echo {name} >/proc/sys/kernel/hostname
mount -t tmpfs -o mode=755 run /run
mkdir /run/sshd /run/host /run/outside
{gather}
mount -o bind,ro /run/outside/etc /run/host
for file in hostname machine-id passwd shadow; do
  [ ! -e /etc/$file ] || mount --bind /run/host/$file /etc/$file
done
mount --bind /run/host/boot_id /proc/sys/kernel/random/boot_id
mount --bind /run/outside/home /root
mount --bind /run/outside/var-tmp /var/tmp
mount -t tmpfs -o mode=1777 tmp /tmp
mount -t tmpfs -o mode=1777 shm /dev/shm
{show}
umount /run/outside/*
rmdir /run/outside/* /run/outside
mount -o remount,bind,ro /
cd /
exec /usr/sbin/sshd -D -e -f /run/host/sshd_config
"""


class Host:
    """One host; ``Hosts.add`` makes and starts it, and ``Hosts`` removes it.

    ``path``: the only folder in the PATH of its sessions. ``full_disk``: HOME takes 1 MB. ``sees``:
    folders of this machine below /root or /tmp, such as a checkout, which the host has at the same
    path, read-only. Everything else below these two is its own.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        path: Path | None = None,
        full_disk: bool = False,
        sees: Sequence[Path] = (),
    ) -> None:
        self.name = name
        self.home = folder / "home"
        """Its HOME, seen from outside: the disk that survives a restart."""
        self.address = ""
        self._etc = folder / "etc"
        self._log = folder / "log"
        self._path = path
        self._sees = tuple(sees)
        self._number = next(_numbers)
        self._owner = _owner()
        self._device = f"bw{os.getpid()}-{self._number}"
        self._boots = 0
        self._is_cut = False
        self._process: subprocess.Popen[bytes] | None = None
        self._init = 0
        for each in (self._etc, self.home, folder / "var-tmp"):
            each.mkdir(parents=True)
        self.home.chmod(0o700)
        (folder / "var-tmp").chmod(0o1777)
        self._sources = {"etc": self._etc, "home": self.home, "var-tmp": folder / "var-tmp"}
        self._has_mount = full_disk
        if full_disk:
            _call("mount", "-t", "tmpfs", "-o", "size=1m,mode=700", self._netns, str(self.home))

    @property
    def _netns(self) -> str:
        """The network of this boot; the name says whose it is, for ``_sweep``."""
        return f"{self._owner}-{self._number}.{self._boots}"

    # --- what a test does to it -------------------------------------------------------------------

    def run(
        self, *command: str, given: str = "", check: bool = True, seconds: float = PATIENCE_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the host, without ssh, in HOME; ``given``: its stdin."""
        # Its own PATH need not have this program.
        nsenter = shutil.which("nsenter", path=PATH) or "nsenter"
        enter = [nsenter, f"--target={self._init}", "--mount", "--uts", "--net", "--pid"]
        assert self._process is not None, f"{self.name} does not run"
        done = subprocess.run(
            [*enter, f"--wd=/proc/{self._init}/root/root", "--", *command],
            input=given,
            env={"HOME": "/root", "PATH": self._session_path, "USER": "root"},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert not check or done.returncode == 0, f"{command}: {done.returncode}: {done.stderr}"
        return done

    def cut(self) -> None:
        """Drop every packet both ways, without any error; connections survive it."""
        self._is_cut = True
        self._lead_to(NOBODY_MAC)

    def mend(self) -> None:
        """Let packets through again. TCP repeats lost ones after up to the time that it was cut."""
        self._is_cut = False
        if self._process is not None:
            self._lead_to(HOST_MAC)

    def restart(self, *, quiet: bool = True) -> None:
        """``kill`` and ``start``."""
        self.kill(quiet=quiet)
        self.start()

    def kill(self, *, quiet: bool = True) -> None:
        """Kill all processes at once, and drop every packet to the host until ``start``.

        ``quiet``: as by a power cut, no connection is closed. A client learns of it by a timeout of
        its own, or by the first answer of the restarted host. Otherwise the connections are closed.
        """
        assert self._process is not None, f"{self.name} does not run"
        if quiet:
            self._lead_to(NOBODY_MAC)
        self._end()
        self._lead_to(NOBODY_MAC)
        # Sockets outlive their processes. They vanish with the old network, without a packet.
        old = self._netns
        self._boots += 1
        _ip("netns", "add", self._netns)
        _ip("-n", old, "link", "set", "eth0", "netns", self._netns)
        _ip("-n", self._netns, "link", "set", "eth0", "up")
        _ip("netns", "del", old)

    def start(self) -> None:
        """Boot it; returns once its sshd listens. If it was cut off, it still is."""
        assert self._process is None, f"{self.name} runs already"
        up = ("link set lo up", "link set eth0 up")
        _ip_batch(*up, f"addr add {self.address}/30 dev eth0", netns=self._netns)
        (self._etc / "boot_id").write_text(f"{uuid.uuid4()}\n")
        own = ["--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]
        inside = ["nsenter", f"--net=/run/netns/{self._netns}", "--", "unshare", *own]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*inside, "/bin/sh", "-c", self._boot_script()],
                env={"PATH": PATH},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + PATIENCE_SECONDS
        while b"Server listening on" not in self._log.read_bytes():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.01)
        (self._init,) = _children(self._process.pid)
        self._lead_to(NOBODY_MAC if self._is_cut else HOST_MAC)

    def pids(self) -> list[int]:
        """Return the pids of its processes as seen from outside, in order; none once killed."""
        return sorted(_pids_in(_namespace(self._init))) if self._process is not None else []

    # --- how it is made ---------------------------------------------------------------------------

    @property
    def _session_path(self) -> str:
        return PATH if self._path is None else "/run/path"

    def connect(self) -> None:
        """Give it a network, and an address that no other host on this machine has."""
        _ip("netns", "add", self._netns)
        link = f"link add {self._device} address {FLEET_MAC} type veth peer name eth0"
        _ip_batch(f"{link} address {HOST_MAC} netns {self._netns}", f"link set {self._device} up")
        for number in itertools.count(16 * os.getpid() + self._number):
            gateway = IPv4Address("10.0.0.1") + number % SUBNETS * 4
            # The kernel refuses a second route to an address: the first one claims it.
            claim = ("route", "add", f"{gateway + 1}/32", "dev", self._device)
            done = _ip(*claim, check=False)
            if done.returncode == 0:
                break
            assert "File exists" in done.stderr, done.stderr
        self.address = str(gateway + 1)
        _ip("addr", "add", f"{gateway}/30", "dev", self._device, "noprefixroute")

    def configure(self, user_key: str, *, is_authorised: bool) -> str:
        """Write the files of its sshd; returns the host's public key."""
        key = _new_key(self._etc / "host_key")
        config = _SSHD_CONFIG + _penalties()
        config += f"SetEnv PATH={self._session_path}\n"
        (self._etc / "sshd_config").write_text(config)
        (self._etc / "authorized_keys").write_text(user_key if is_authorised else "")
        (self._etc / "hostname").write_text(f"{self.name}\n")
        (self._etc / "passwd").write_text(_PASSWD)
        (self._etc / "shadow").write_text(_SHADOW)
        (self._etc / "machine-id").write_text(f"{uuid.uuid4().hex}\n")
        return key

    def remove(self) -> None:
        """Remove its processes, network and mount, also if it is half made. Its folder stays."""
        if self._process is not None:
            self._end()
        _remove(self._netns)
        if self._has_mount:
            _call("umount", "--lazy", str(self.home), check=False)

    def _boot_script(self) -> str:
        outside, gather, show = "/run/outside", [], []
        sources = dict(self._sources)
        if self._path is not None:
            sources["path"] = self._path
            show += ["mkdir /run/path", f"mount -o bind,ro {outside}/path /run/path"]
        for number, seen in enumerate(self._sees):
            sources[f"seen-{number}"] = seen
            place = shlex.quote(str(seen))
            show += [f"mkdir -p {place}", f"mount -o bind,ro {outside}/seen-{number} {place}"]
        for name, source in sources.items():
            gather += [f"mkdir {outside}/{name}"]
            gather += [f"mount --bind {shlex.quote(str(source))} {outside}/{name}"]
        return _BOOT.format(name=self.name, gather="\n".join(gather), show="\n".join(show))

    def _lead_to(self, host_mac: str) -> None:
        """Send packets for the host to this address; if it is nobody's, so does the host.

        Unlike a link that is down, and unlike a firewall's refusal, this is an error for nobody.
        """
        fleet_mac = FLEET_MAC if host_mac == HOST_MAC else host_mac
        entry = "neigh replace {} lladdr {} dev {} nud permanent"
        gateway = IPv4Address(self.address) - 1
        _ip_batch(entry.format(self.address, host_mac, self._device))
        _ip_batch(entry.format(gateway, fleet_mac, "eth0"), netns=self._netns)

    def _end(self) -> None:
        """Kill its first process: the kernel kills all others, and the parent waits for them."""
        assert self._process is not None
        if self._process.poll() is None:
            send(_children(self._process.pid) or [self._process.pid], signal.SIGKILL)
        self._process.wait(PATIENCE_SECONDS)
        self._process, self._init = None, 0


class Hosts:
    """Hosts ``n1`` to ``nCOUNT``, and those of ``add``, within a ``with`` block.

    ``ssh_config`` leads to them. Plain ``ssh n1`` does so too if ``bin`` is first on PATH.
    """

    def __init__(self, folder: Path, count: int = 0) -> None:
        self._folder = folder / "hosts"
        self._names = [f"n{number}" for number in range(1, count + 1)]
        self._hosts: dict[str, Host] = {}
        self._pid = os.getpid()
        self._user_key = ""
        self.ssh_config = self._folder / "ssh_config"
        self.bin = self._folder / "bin"
        """Programs of OpenSSH that take ``ssh_config``."""

    def __enter__(self) -> Self:
        need_hosts()
        _sweep()
        self.bin.mkdir(parents=True)
        self._user_key = _new_key(self._folder / "user_key")
        self.ssh_config.touch()
        (self._folder / "known_hosts").touch()
        for program in ("ssh", "scp", "sftp"):
            wrapper = self.bin / program
            config = shlex.quote(str(self.ssh_config))
            wrapper.write_text(f'#!/bin/sh\nexec /usr/bin/{program} -F {config} "$@"\n')
            wrapper.chmod(0o755)
        atexit.register(self.close)
        try:
            self._begin()
        except BaseException:
            # Also on Ctrl-C: ``__exit__`` is not called if ``__enter__`` raises.
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def __iter__(self) -> Iterator[Host]:
        return iter([*self._hosts.values()])

    def add(
        self,
        name: str,
        *,
        path: Path | None = None,
        full_disk: bool = False,
        key: Key = "right",
        sees: Sequence[Path] = (),
    ) -> Host:
        """Start one more host, which may lack something or be hostile; see ``Host``, ``Key``."""
        assert name not in self._hosts and re.fullmatch("[a-z][a-z0-9-]*", name), name
        folder = self._folder / name
        host = Host(name, folder, path=path, full_disk=full_disk, sees=sees)
        self._hosts[name] = host
        host.connect()
        host_key = host.configure(self._user_key, is_authorised=key != "refused")
        if key == "changed":
            host_key = _new_key(folder / "former_key")
        with (self._folder / "known_hosts").open("a") as known:
            known.write(f"{host.address} {host_key}")
        with self.ssh_config.open("a") as config:
            fields = {"name": name, "address": host.address, "folder": self._folder}
            config.write(_SSH_CONFIG.format(**fields))
        host.start()
        return host

    def close(self) -> None:
        """End all hosts; a fork of this process leaves them alone."""
        if os.getpid() == self._pid:
            self._end()
        atexit.unregister(self.close)

    def _begin(self) -> None:
        """Start all that is there from the beginning."""
        for name in self._names:
            self.add(name)

    def _end(self) -> None:
        """End all that runs, also if it is half begun."""
        for host in self:
            host.remove()
        self._hosts.clear()


def only(folder: Path, *programs: str) -> Path:
    """Make a folder with links to these programs alone, for ``Hosts.add(path=...)``."""
    folder.mkdir()
    for program in programs:
        found = shutil.which(program, path=PATH)
        assert found is not None, f"{program} is not installed"
        (folder / program).symlink_to(found)
    return folder


def need_hosts() -> None:
    """Skip the test if this user or this kernel makes no hosts; fail if programs are missing."""
    if os.geteuid() != 0:
        pytest.skip("making hosts needs root, as in CI")
    if missing := [each for each in PROGRAMS if shutil.which(each, path=PATH) is None]:
        raise RuntimeError(f"{', '.join(missing)}: not found: run scripts/setup-hosts")
    if refused := _refused():
        pytest.skip(f"no hosts can be made here: {refused}")


@functools.cache
def _refused() -> str:
    """Return what the kernel says if it makes no namespaces or no pairs of devices."""
    tried = ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--mount-proc", "--"]
    tried += ["ip", "link", "add", "bw1", "type", "veth", "peer", "name", "bw2"]
    done = _call(*tried, check=False)
    return done.stderr.strip() if done.returncode else ""


# --- leftovers ------------------------------------------------------------------------------------


def _owner() -> str:
    """Return how the name of everything that this process makes begins.

    It has more than the pid, which a later process may get.
    """
    return f"bw{os.getpid()}.{sessions.start_time(os.getpid())}"


def _sweep() -> None:
    """Remove what test processes left that were killed."""
    made = re.compile(r"(bw(\d+)\.(\d+))-\d+\.\d+")
    networks = Path("/run/netns")
    names = [path.name for path in networks.iterdir()] if networks.is_dir() else []
    mounts = [line.split()[:2] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for name in {*names, *(source for source, _ in mounts)}:
        match = made.fullmatch(name)
        if match is None or sessions.lives(int(match[2]), int(match[3])):
            continue
        if name in names:
            send(map(int, _ip("netns", "pids", name, check=False).stdout.split()), signal.SIGKILL)
            _remove(name)
        for source, place in mounts:
            if source == name:
                _call("umount", "--lazy", place.encode().decode("unicode_escape"), check=False)


def _remove(netns: str) -> None:
    """Remove a network and its device outside, which by itself would follow a moment later."""
    owner, _, number = netns.partition("-")
    device = f"{owner.partition('.')[0]}-{number.partition('.')[0]}"
    _ip("link", "del", device, check=False)
    _ip("netns", "del", netns, check=False)


# --- programs and processes -----------------------------------------------------------------------


def _call(*command: str, given: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, input=given, env={"PATH": PATH}, capture_output=True, text=True, check=False
    )
    assert not check or done.returncode == 0, f"{' '.join(command)} {given}: {done.stderr}"
    return done


def _ip(*words: str, given: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
    return _call("ip", *words, given=given, check=check)


def _ip_batch(*lines: str, netns: str = "") -> None:
    where = ["-n", netns] if netns else []
    _ip(*where, "-batch", "-", given="\n".join(lines) + "\n")


def _new_key(file: Path) -> str:
    """Make a key pair; returns the line of its public half."""
    _call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(file))
    return file.with_name(f"{file.name}.pub").read_text()


@functools.cache
def _penalties() -> str:
    """Let a client whose login failed come back at once, which sshd does not from 9.8 on."""
    said = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=True).stderr
    found = re.match(r"OpenSSH_(\d+)\.(\d+)", said)
    assert found is not None, said
    return "PerSourcePenalties no\n" if (int(found[1]), int(found[2])) >= (9, 8) else ""


def _children(pid: int) -> list[int]:
    return [int(each) for each in read(pid, f"task/{pid}/children").split()]


def _namespace(pid: int) -> str:
    """The pid namespace of a process; "" once the process has ended."""
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def _pids_in(namespace: str) -> Iterator[int]:
    pids = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    return (pid for pid in pids if _namespace(pid) == namespace)
