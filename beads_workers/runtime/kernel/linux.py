"""What Linux says of processes, sockets, descriptors and the machine.

Sources: ``man 5 proc``, ``man 2 pidfd_open``, ``man 2 prctl``, ``man 7 unix``, ``man 7 inotify``.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
from contextlib import suppress

assert sys.platform != "darwin", "``kernel`` chooses"

TYPE_CHECKING = False
if TYPE_CHECKING:  # Every process loads this file, and nothing that it does not need.
    import socket
    from collections.abc import Callable, Iterator
    from pathlib import Path

# --- processes -----------------------------------------------------------------------------------


class Stat:
    """What ``/proc/PID/stat`` says of a process. Times are in clock ticks since boot."""

    __slots__ = ("_fields", "pid")

    def __init__(self, pid: int, text: bytes) -> None:
        self.pid = pid
        # The name is in parentheses and may hold any byte: fields count from the last parenthesis.
        self._fields = text[text.rfind(b")") + 2 :].split()

    @property
    def is_dead(self) -> bool:
        """Whether it has ended, and is only not reaped yet."""
        return self._fields[0] in (b"Z", b"X")

    @property
    def is_stopped(self) -> bool:
        """Whether a signal has stopped it."""
        return self._fields[0] == b"T"

    @property
    def parent(self) -> int:
        """The process that it is a child of."""
        return int(self._fields[1])

    @property
    def group(self) -> int:
        """The leader of its process group."""
        return int(self._fields[2])

    @property
    def session(self) -> int:
        """The leader of its session."""
        return int(self._fields[3])

    @property
    def started(self) -> int:
        """When it began: with the pid, the name of this process for good."""
        return int(self._fields[19])

    @property
    def cpu_seconds(self) -> float:
        """What it has computed."""
        return sum(map(int, self._fields[11:13])) / os.sysconf("SC_CLK_TCK")

    @property
    def reaped_seconds(self) -> float:
        """What the children that it has reaped had computed."""
        return sum(map(int, self._fields[13:15])) / os.sysconf("SC_CLK_TCK")

    @property
    def resident_bytes(self) -> int:
        """The memory that it holds."""
        return int(self._fields[21]) * os.sysconf("SC_PAGE_SIZE")


def stat_of(pid: int) -> Stat | None:
    """Return what is known of a process; None if there is none with that pid (any more)."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return Stat(pid, file.read())
    except OSError:
        return None


def pids() -> list[int]:
    """Return all processes that can be seen."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208


def user_of(pid: int) -> int:
    """Return the user that a process runs as; raises ``OSError`` if it has ended."""
    return os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116 - thousands of looks


def environment_of(pid: int) -> list[bytes]:
    """Return the variables that a process was started with; raises ``OSError`` if it has ended, or
    is another user's."""
    with open(f"/proc/{pid}/environ", "rb") as file:
        return file.read().split(b"\0")


def command_of(pid: int) -> list[bytes]:
    """Return the words of a process's command line; raises ``OSError`` if it has ended."""
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read().removesuffix(b"\0").split(b"\0")


def name_of(pid: int) -> str:
    """Return the short name of a process; raises ``OSError`` if it has ended."""
    with open(f"/proc/{pid}/comm", "rb") as file:
        return os.fsdecode(file.read()).strip()


def program_of(pid: int) -> str:
    """Return the file that a process runs, with `` (deleted)`` behind it if another one is there by
    now; raises ``OSError``."""
    return os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115


def folder_of(pid: int) -> str:
    """Return the working directory of a process; raises ``OSError``."""
    return os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115 - many looks


def files_of(pid: int) -> Iterator[str]:
    """Yield the names of what a process has open (``socket:[INODE]`` for sockets); raises
    ``OSError``."""
    for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - many looks
        with suppress(FileNotFoundError):  # It was closed meanwhile.
            yield os.readlink(f"/proc/{pid}/fd/{number}")  # noqa: PTH115


def holds(pid: int, wanted: os.stat_result) -> bool:
    """Return whether a process has this file open; False if it is gone, or not ours to look at."""
    try:
        with os.scandir(f"/proc/{pid}/fd") as descriptors:
            return any(_is(entry, wanted) for entry in descriptors)
    except OSError:
        return False


def _is(entry: os.DirEntry[str], wanted: os.stat_result) -> bool:
    try:
        return os.path.samestat(entry.stat(), wanted)
    except OSError:
        return False


def children_of(pid: int) -> list[int]:
    """Return the children of a process; none if it has ended."""
    found = list[int]()
    with suppress(OSError):  # A child is listed with the thread that forked it.
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - many looks
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    return found


def own_children() -> list[int]:
    """Return the children of this process, those that are not reaped included."""
    us = os.getpid()
    try:
        with open(f"/proc/self/task/{us}/children", "rb") as file:
            return [int(word) for word in file.read().split()]
    except FileNotFoundError:  # A kernel without that list.
        return [pid for pid in pids() if (stat := stat_of(pid)) is not None and stat.parent == us]


def threads_of(pid: int) -> int:
    """Return the number of threads of a process; 0 if it has ended."""
    try:
        return len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208 - counted, never opened
    except OSError:
        return 0


def waited_seconds(pid: int) -> float:
    """Return how long a thread of a process was ready and did not run, at most; 0 if the kernel
    does not say."""
    waited = [0.0]
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            with suppress(OSError, IndexError):
                row = _text(f"/proc/{pid}/task/{thread}/schedstat").split()
                waited.append(int(row[1]) / 1e9)
    return max(waited)


def name_process(name: str) -> None:
    """Name this process for people who look at ``ps`` or ``top``; the kernel keeps 15
    characters."""
    with suppress(OSError), open("/proc/self/comm", "wb", buffering=0) as comm:
        comm.write(os.fsencode(name)[:15])


# --- their ends ----------------------------------------------------------------------------------


def exit_descriptor(pid: int) -> int:
    """Return a descriptor that is readable once the process has ended. Raises
    ``ProcessLookupError`` if there is none."""
    return os.pidfd_open(pid)


def send(descriptor: int, number: int) -> None:
    """Send a signal to the process of an ``exit_descriptor``, and to no other. Raises
    ``ProcessLookupError`` if it has ended, ``PermissionError`` if it is another user's."""
    signal.pidfd_send_signal(descriptor, number)


def wait_unreaped(pid: int) -> None:
    """Wait until a child has ended; it stays to be reaped, and its pid with it."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def has_children() -> bool:
    """Return whether this process has a child, of its own or adopted."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def adopt() -> bool:
    """Become the parent of whatever is orphaned below this process; not inherited by a fork.

    Return False if the kernel refuses: then only sessions and tokens identify processes.
    """
    PR_SET_CHILD_SUBREAPER = 36
    try:
        return _prctl()(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    except (OSError, AttributeError):
        return False


def die_with_parent(number: int) -> None:
    """Receive this signal when the process that forked this one dies; not inherited by a fork."""
    PR_SET_PDEATHSIG = 1
    with suppress(OSError, AttributeError):  # The sweep by the token finds us all the same.
        _prctl()(PR_SET_PDEATHSIG, number, 0, 0, 0)


@functools.cache
def _prctl() -> Callable[..., int]:
    """Return libc's ``prctl``. Loading it costs as much as a fork of a hundred workers: the zygote
    does it for all."""
    import ctypes

    found: Callable[..., int] = ctypes.CDLL(None).prctl
    return found


# --- sockets -------------------------------------------------------------------------------------


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Return the pid and the user of the process at the other end of a Unix socket, as the kernel
    knows them."""
    from socket import SO_PEERCRED, SOL_SOCKET

    found = connection.getsockopt(SOL_SOCKET, SO_PEERCRED, 12)
    return int.from_bytes(found[:4], sys.byteorder), int.from_bytes(found[4:8], sys.byteorder)


def path_in(folder: int, name: str, pid: int | None = None) -> str:
    """Return a short path of an entry in an open folder, for a Unix socket: the folder's own may be
    too long. ``pid``: the process that has it open, if that is to be seen from others."""
    return f"/proc/{pid or 'self'}/fd/{folder}/{name}"


_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
"""That of IPv6 has mapped addresses, too, which end like those of IPv4."""


def tells_connections() -> bool:
    """Return whether the system tells of connections."""
    return any(map(os.path.exists, _TABLES))


def _connections() -> Iterator[list[str]]:
    for table in filter(os.path.exists, _TABLES):
        yield from (line.split() for line in _text(table).splitlines()[1:])


def connection_of(peer: tuple[str, int], port: int) -> str:
    """Return the inode of the peer's socket of a connection over loopback to our ``port``: "0" if
    no process has it open any more, empty if there is no such socket."""
    address = int.from_bytes(bytes(map(int, peer[0].split("."))), sys.byteorder)
    theirs = f"{address:08X}:{peer[1]:04X}"
    for fields in _connections():
        if fields[1].endswith(theirs) and fields[2].endswith(f":{port:04X}"):
            return fields[9]
    return ""


def listening_ports() -> set[int]:
    """Return the TCP ports on which something listens."""
    LISTEN = "0A"
    return {int(row[1].rpartition(":")[2], 16) for row in _connections() if row[3] == LISTEN}


# --- descriptors and files -----------------------------------------------------------------------


def own_descriptors() -> list[int]:
    """Return the open descriptors of this process, but that of this look."""
    found = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208
    return [each for each in found if _is_open(each)]


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def name_of_descriptor(descriptor: int) -> str:
    """Return the path of what this process has open, as it was called then; raises ``OSError``."""
    return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115


def opened_anew(descriptor: int, flags: int) -> int:
    """Open the file of a descriptor once more, with a position and flags of its own. Raises
    ``OSError``."""
    return os.open(f"/proc/self/fd/{descriptor}", flags | os.O_CLOEXEC)


def memory_file(name: str) -> int:
    """Return a descriptor of a file without a name that needs no disk."""
    return os.memfd_create(name, os.MFD_CLOEXEC)


def unnamed_file(folder: Path) -> int:
    """Return a descriptor of a file without a name in a folder. Raises ``OSError``:
    ``EOPNOTSUPP``, ``EISDIR`` or ``EINVAL`` if its file system has none."""
    return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)


def pipe(*, blocks: bool = True) -> tuple[int, int]:
    """Return the ends of a pipe that no other program inherits."""
    return os.pipe2(os.O_CLOEXEC | (0 if blocks else os.O_NONBLOCK))


def sync_data(descriptor: int) -> None:
    """Have the data of a file on its disk. Raises ``OSError``."""
    os.fdatasync(descriptor)


def look_only(folder: str) -> int:
    """Open a folder only to name what is in it. Raises ``OSError``."""
    return os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


# --- the machine ---------------------------------------------------------------------------------


def missing() -> tuple[str, str]:
    """Return what this system lacks for a fleet, and a command that shows or mends that; empty if
    it has all."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError) as error:
        return f"no pidfd_open ({error}): Linux 5.3 or later is needed", "uname -sr"
    if not os.path.exists("/proc/self/stat"):  # noqa: PTH110
        return "/proc is not mounted", "sudo mount -t proc proc /proc"
    return "", ""


def clock() -> float:
    """Return seconds that count while the machine sleeps, too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0))


def available_memory() -> int:
    """Return the bytes of memory that programs may still take; raises ``OSError``."""
    for line in _text("/proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) << 10
    raise OSError("MemAvailable is not in /proc/meminfo")


def is_clock_synchronised() -> bool | None:
    """Return whether something keeps the clock right; None if the kernel does not say."""
    import ctypes

    TIME_ERROR, TIMEX_BYTES = 5, 512  # ``struct timex`` has 208 bytes; all zero, it is only read.
    try:
        answer = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(TIMEX_BYTES))
    except (OSError, AttributeError):
        return None
    return None if answer < 0 else bool(answer != TIME_ERROR)


def memory_kills() -> list[int]:
    """Return the counters of processes that the kernel has ended for want of memory, of the machine
    and of our groups: one end may be in several of them."""
    files = [MACHINES_KILLS]
    for folder in memory_groups():
        files += [f"{folder}/memory.events", f"{folder}/memory.oom_control"]
    return list(map(_killed, files))


MACHINES_KILLS = "/proc/vmstat"


def _killed(file: str) -> int:
    try:
        rows = [line.split() for line in _text(file).splitlines()]
    except OSError:
        return 0
    return next((int(row[1]) for row in rows if row[:1] == ["oom_kill"]), 0)


def memory_groups() -> list[Path]:
    """Return the folders of the memory cgroup of this process; none if they are not visible."""
    from pathlib import Path

    try:
        groups = [line.split(":", 2) for line in _text("/proc/self/cgroup").splitlines()]
        mounts = [line.split() for line in _text("/proc/self/mountinfo").splitlines()]
    except OSError:
        return []
    paths = {
        "cgroup2" if not names else "cgroup": path
        for _, names, path in groups
        if not names or "memory" in names.split(",")
    }
    found = []
    for fields in mounts:
        kind, options = fields[fields.index("-") + 1], fields[-1].split(",")
        if kind not in paths or (kind == "cgroup" and "memory" not in options):
            continue
        root, place = fields[3], Path(fields[4])
        below = os.path.relpath(paths[kind], root)
        # In a container the mount may begin below the path that the kernel names.
        found.append(place if below.startswith("..") else place / below)
    return found


def _text(file: str) -> str:
    with open(file) as opened:
        return opened.read()
