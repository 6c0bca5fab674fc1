"""The guard of one attempt on a host: it runs only while home's lease lasts, and leaves nothing.

One file, standard library only, Python 3.9 or newer, Linux. It is sent to a host as text and never
imports the package. Three commands:

- ``serve FOLDER ID NONCE`` holds one attempt. It does nothing until the word ``go`` comes.
- ``look FOLDER`` ends an attempt that has no guard any more, and prints how it ended.
- ``relay BASE`` carries JSON lines from stdin to the guards of this host, and their answers back.

**Lease.** Every answer has ``clock``, the host's ``CLOCK_BOOTTIME``, which also counts while the
machine sleeps. Permission lasts until the ``clock`` that home sends back plus the lease, so a late
word renews nothing, and no two clocks need agree. When the lease is over: TERM, the grace, KILL,
and a sweep. If that is noticed late (the machine slept): KILL at once.

**Two holders.** The outer process forks the guard; each leads a session of its own, and the
deadline is in memory that both share. If one is killed, the other ends the attempt at once. If the
guard is stopped, the outer process ends the attempt soon after the deadline.

**Files.** An attempt has a FOLDER, which is BASE/attempts/NONCE:

- ``lock`` is locked while a holder lives; ``s`` is the guard's socket; ``id`` is the issue's ID.
- ``begun`` is written and synced before the first process starts; nothing begins twice.
- ``ended`` is written and synced when no process of the attempt is left.
- ``files`` holds what home sent; ``out`` and ``err`` hold the output.

BASE/parcels holds files by their SHA-256. The words: see ``Guard`` and ``Relay``.
"""

from __future__ import annotations

import base64
import ctypes
import fcntl
import hashlib
import json
import mmap
import os
import re
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PATIENCE = 60.0
"""Seconds that a guard waits for the word ``go``."""
TICK = 0.2
"""Seconds between two looks at the clock: a timer does not count while the machine sleeps."""
LATE = 1.0
"""Seconds after a deadline that only a holder that was stopped, or a machine that slept, misses."""
PEER_SECONDS = 1.0
"""Seconds within which a peer sends its word; the outer process has the deadline meanwhile."""
ANSWER_SECONDS = 5.0
"""Seconds within which a guard answers its relay."""
ROUNDS_MAX = 50
ROUND_SECONDS = 0.02
"""Rounds of a sweep, and seconds between two: each finds what was forked during the last one."""
LINE_MAX = 1 << 20
"""Bytes of a word; an answer is shorter, as a piece is at most 342 KiB in base64."""
PIECE_MAX = 256 << 10
OUTPUT_MAX = 64 << 20
"""Bytes of ``out``, and of ``err``: an attempt that writes more is ended."""
WORDS_MAX = 500
"""Words that wait in a relay; each has a thread."""
LEASE_MAX = 86400.0
"""Seconds of a lease, and of a grace."""

NONCE = re.compile(r"[0-9a-f]{16,64}")
ID = re.compile(r"[^\0]{1,200}")
SHA256 = re.compile(r"[0-9a-f]{64}")
FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
INHERITED = re.compile(r"HOME|PATH|USER|LOGNAME|SHELL|LANG|LC_ALL|TZ|TMPDIR|XDG_\w+")
"""Variables of the host that an attempt gets; all others are home's."""

NO_WORD = "no word came"
LEASE_OVER = "the lease was over"
GUARD_KILLED = "its guard was killed"

Json = dict[str, Any]


class RefusedWord(ValueError):
    """A word that is not obeyed; the text is its answer's ``why``."""


FAILURES = (OSError, ValueError, TypeError)
"""The world's failures, refused words, and words with something of a wrong type."""


# --- serve: the two holders ----------------------------------------------------------------------


class SharedLease(ctypes.Structure):
    """What both holders know of the lease, in memory that they share."""

    _fields_ = (("until", ctypes.c_double), ("grace", ctypes.c_double), ("begun", ctypes.c_bool))
    until: float
    """``clock()`` of the deadline; before ``go``, the time to leave."""
    grace: float
    """Seconds between TERM and KILL."""
    begun: bool


def serve(folder: Path, ident: str, nonce: str) -> None:
    """Hold one attempt until it has ended.

    Return at once if the attempt has begun before. Raises ``BlockingIOError`` if another holder
    lives, ``OSError`` and ``RefusedWord``.
    """
    checked(ID, ident), checked(NONCE, nonce)
    private(folder / "files")
    with locked(folder):  # A fork shares the lock: it lasts as long as both holders.
        known = describe(folder)
        if known["begun"] or known["ended"]:
            return
        write(folder / "id", encode({"id": ident}))
        (folder / "ended").unlink(missing_ok=True)  # Of an earlier guard, to which no word came.
        lease = SharedLease.from_buffer(mmap.mmap(-1, mmap.PAGESIZE))
        lease.until = clock() + PATIENCE
        lead_session()
        outer = os.getpid()
        guard = os.fork()
        if guard == 0:
            lead_session()
            Guard(folder, lease, outer).run()
        else:
            watch(folder, lease, guard)


def lead_session() -> None:
    """Lead a session, and become the parent of whatever is orphaned below this process."""
    with suppress(PermissionError):  # It leads one, or a group, already.
        os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # If it is ignored, no child can be waited for.
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def watch(folder: Path, lease: SharedLease, guard: int) -> None:
    """Wait, as the outer process, until the guard has ended; then end what is left.

    A guard that has not ended the attempt in time is stopped, and is killed.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    why = GUARD_KILLED
    while guard not in reaped():
        if clock() > lease.until + lease.grace + LATE:
            why = LEASE_OVER
            os.kill(guard, signal.SIGKILL)
        signal.sigtimedwait({signal.SIGCHLD}, TICK)  # type: ignore[attr-defined,unused-ignore]
    if lease.begun:
        ended = sweep(folder.name, os.getpid(), why)
        if read_record(folder / "ended") is None:
            write(folder / "ended", encode(ended))


class Guard:
    """The guard of one attempt, after the fork; ``run`` returns when the attempt has ended.

    A connection carries one word, a JSON object in a line: ``{"nonce": N, ...}`` with any of

    - ``clock``: the ``clock`` of the newest answer; renews the lease.
    - ``go``: ``{"argv", "env", "lease", "grace"}``, with ``clock``; begins the attempt, once.
    - ``end``: TERM, the grace, KILL. ``stop``, ``cont``: SIGSTOP and SIGCONT to all processes.
    - ``put``: a file name, with ``at`` and ``data`` (base64), or with ``parcel``; before ``go``.
    - ``get``: a file name, with ``at``; answered by ``data`` and ``size``.
    - ``out``: offsets in ``out`` and ``err``; answered by two pieces in ``out``, and ``sizes``.
    - ``bye``: refused here; a relay removes the folder of an attempt that has ended.

    The answer is what ``describe`` returns, and ``why`` if the word was refused.
    """

    def __init__(self, folder: Path, lease: SharedLease, outer: int) -> None:
        self.folder = folder
        self.lease = lease
        self.outer = outer
        self.seconds = 0.0
        """Seconds of the lease, once begun."""
        self.first = 0
        """Pid of the first process, once begun."""
        self.outputs: list[int] = []
        """Descriptors of ``out`` and ``err``, once begun."""
        self.kill_at: float | None = None
        """``clock()`` of the KILL, once TERM was sent."""
        self.why = "it ended"
        """Reason for the end of the first process, if it ends now."""
        self.ended: Json | None = None
        """What the file ``ended`` holds, once ended."""

    def run(self) -> None:
        """Answer words until the attempt has ended; raises ``OSError``."""
        path = self.folder / "s"
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            with opened(self.folder, os.O_DIRECTORY) as short:
                listener.bind(f"/proc/self/fd/{short}/s")
            listener.listen(100)
            listener.settimeout(TICK)
            while self.ended is None:
                with suppress(OSError):  # Nobody came, or the peer has gone.
                    self.attend(listener.accept()[0])
                self.tick()
            path.unlink(missing_ok=True)
        stat_file = Path(f"/proc/{self.outer}/stat")
        if os.getppid() == self.outer and b") T " in stat_file.read_bytes():
            os.kill(self.outer, signal.SIGKILL)  # It is stopped.

    def attend(self, peer: socket.socket) -> None:
        """Answer the word of a connection if it is of the same user; raises ``OSError``."""
        with peer, peer.makefile("rb") as file:
            credentials = peer.getsockopt(socket.SOL_SOCKET, SO_PEERCRED, 12)
            if struct.unpack("3i", credentials)[1] == os.getuid():
                peer.settimeout(PEER_SECONDS)
                peer.sendall(self.answer(file.readline(LINE_MAX)))

    def tick(self) -> None:
        """Do what is due: the first process has ended, or a deadline has passed."""
        children, now, begun = reaped(), clock(), self.lease.begun
        if self.ended is not None:
            return
        if self.first in children:
            self.finish(self.why, children[self.first])
        elif os.getppid() != self.outer:
            self.finish("its outer process was killed" if begun else NO_WORD)
        elif self.kill_at is not None:
            if now >= self.kill_at:
                self.finish(self.why)
        elif now > self.lease.until + LATE or (now > self.lease.until and not begun):
            self.finish(LEASE_OVER if begun else NO_WORD)
        elif now > self.lease.until:
            self.end(LEASE_OVER)
        elif any(os.fstat(output).st_size > OUTPUT_MAX for output in self.outputs):
            self.end("its output is too long")

    def end(self, why: str) -> None:
        """Send TERM to the first process's group; KILL follows after the grace."""
        self.why, self.kill_at = why, clock() + self.lease.grace
        self.lease.until = min(self.lease.until, clock())  # The outer process sees to it, too.
        with suppress(ProcessLookupError):
            os.killpg(self.first, signal.SIGTERM)
        kill(members(self.folder.name, os.getpid()), signal.SIGCONT)

    def finish(self, why: str, status: int | None = None) -> None:
        """Kill what is left, and write ``ended``; ``status``: of the first process, if reaped."""
        if self.first and status is None:
            os.kill(self.first, signal.SIGKILL)
            status = os.waitpid(self.first, 0)[1]
        self.ended = sweep(self.folder.name, os.getpid(), why, status)
        write(self.folder / "ended", encode(self.ended))

    def answer(self, line: bytes) -> bytes:
        """Obey a word; return the answer's line."""
        self.tick()
        try:
            word = parse(line)
            if word.get("nonce") != self.folder.name:
                raise RefusedWord("this is the guard of another attempt")
            self.obey(word)
            more = read_files(self.folder, word)
        except FAILURES as error:
            more = {"why": reason(error)}
        begun = self.lease.begun
        known = {"until": self.lease.until if begun else 0.0, "begun": begun, "ended": self.ended}
        return encode({**describe(self.folder), **known, **more})

    def obey(self, word: Json) -> None:
        """Do what the word says; raises ``RefusedWord`` and ``OSError``."""
        if word.get("bye"):
            raise RefusedWord("the guard of the attempt has not left")
        if self.ended is not None:
            return
        if "put" in word:
            self.put(word)
        if "go" in word and not self.lease.begun:
            self.go(word["go"], min(number(word.get("clock")), clock()))
        elif "clock" in word and self.lease.begun and self.kill_at is None:
            sent = min(number(word["clock"]), clock())
            self.lease.until = max(self.lease.until, sent + self.seconds)
        if word.get("end") and not self.lease.begun:
            self.finish("ended before it began")
        elif word.get("end") and self.kill_at is None:
            self.end("home ended it")
        for key, number_of in (("stop", signal.SIGSTOP), ("cont", signal.SIGCONT)):
            if word.get(key) and self.lease.begun:
                kill(members(self.folder.name, os.getpid()), number_of)

    def put(self, word: Json) -> None:
        """Write a piece of a file, or name a parcel so; raises ``RefusedWord``, ``OSError``."""
        path = self.folder / "files" / checked(FILE_NAME, word["put"])
        if self.lease.begun:
            raise RefusedWord("the attempt has begun")
        if "parcel" not in word:
            write_piece(path, word)
            return
        parcel = self.folder.parent.parent / "parcels" / checked(SHA256, word["parcel"])
        path.unlink(missing_ok=True)
        try:
            os.link(parcel, path)
        except OSError:  # A file system without links.
            shutil.copyfile(parcel, path)

    def go(self, order: Any, sent: float) -> None:
        """Begin the attempt, permitted from ``sent`` on; raises ``RefusedWord``, ``OSError``."""
        order = dict(order)
        argv, env = order.get("argv"), order.get("env")
        if not isinstance(argv, list) or not argv or not isinstance(env, dict):
            raise RefusedWord("argv is not a list, or env is not an object")
        seconds = number(order.get("lease"), LEASE_MAX)
        grace = number(order.get("grace"), LEASE_MAX)
        if clock() - sent > seconds:
            raise RefusedWord("the word go is older than its lease")
        write(self.folder / "begun", encode({**describe(self.folder), "wall": time.time()}))
        self.seconds = seconds
        self.lease.grace, self.lease.until, self.lease.begun = grace, sent + seconds, True
        try:
            self.first = self.start(argv, env)
        except (*FAILURES, subprocess.SubprocessError) as error:
            late = clock() > self.lease.until
            self.finish(LEASE_OVER if late else f"it cannot be started: {reason(error)}")

    def start(self, argv: list[str], env: dict[str, str]) -> int:
        """Start the first process; return its pid. Raises what ``Popen`` raises."""
        guard = os.getpid()

        def last_look() -> None:  # In the child; the guard may be gone, or late, by now.
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != guard or clock() > self.lease.until:
                raise ProcessLookupError

        inherited = {name: text for name, text in os.environ.items() if INHERITED.fullmatch(name)}
        given = self.folder / "files" / "in"
        self.outputs = [
            os.open(self.folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            for name in ("out", "err")
        ]
        with open(given if given.is_file() else os.devnull, "rb") as stdin:
            process = subprocess.Popen(
                argv,
                cwd=self.folder,
                env={**inherited, **env, "BW_AWAY": self.folder.name},
                stdin=stdin,
                stdout=self.outputs[0],
                stderr=self.outputs[1],
                start_new_session=True,
                preexec_fn=last_look,
            )
        process.returncode = 0  # ``reaped`` waits for it: nobody else may.
        return process.pid


# --- look: attempts without a guard --------------------------------------------------------------


def look(folder: Path) -> Json:
    """Return how an attempt stands, as its guard would; end it if both holders are gone.

    The answer has ``lives`` if a holder lives, else ``gone``. Raises ``OSError``.
    """
    try:
        with locked(folder):  # No guard can begin meanwhile.
            known = describe(folder)
            if known["begun"] and not known["ended"]:
                begun = read_record(folder / "begun") or {}
                same = begun.get("boot") == known["boot"]
                why = GUARD_KILLED if same else "the host was restarted"
                known["ended"] = sweep(folder.name, None, why)
                write(folder / "ended", encode(known["ended"]))
    except FileNotFoundError:
        known = describe(folder)
    except BlockingIOError:
        return {**describe(folder), "lives": True}
    return {**known, "gone": True}


def sweep(nonce: str, root: int | None, why: str, status: int | None = None) -> Json:
    """Kill all processes of an attempt; return what the file ``ended`` is to hold.

    ``root``: see ``members``. ``status``: wait status of the first process, if known. ``left`` in
    the answer: how many processes could not be killed, which is 0 as a rule.
    """
    left = set()
    for _ in range(ROUNDS_MAX):
        left = members(nonce, root)
        if not left:
            break
        kill(left, signal.SIGKILL)
        time.sleep(ROUND_SECONDS)
    code = None if status is None else os.waitstatus_to_exitcode(status)
    number_of = -code if code is not None and code < 0 else None
    ended = {"exit": code if number_of is None else None, "signal": number_of, "why": why}
    return {**ended, "left": len(left), **here()}


# --- relay: home's line to all guards of this host -----------------------------------------------


class Relay:
    """Carries the words of one connection of home; ``run`` returns when stdin ends.

    Words for one attempt keep their order; a guard that does not answer delays no other attempt.
    Any word may have ``ref``, which its answer repeats. Beside the words of ``Guard``:

    - ``hello``: ``{"programs": [name, ...]}``; answered by what this host has.
    - ``serve``: ``[ID, NONCE]``; starts a guard, and is answered by it.
    - ``found``: answered by ``[[ID, NONCE, lives, begun, ended], ...]``.
    - ``clean``: answered by the bytes that are kept for later attempts; if true, they are removed.
      Refused while an attempt is here.
    - ``have``: a SHA-256; answered by whether the parcel is here.
    - ``store``: a SHA-256 with ``at``, ``data`` and ``last``; stores a piece of a parcel.

    If no guard lives, an attempt's files answer, with ``gone``; ``get``, ``out`` and ``bye`` work.
    """

    def __init__(self, base: Path) -> None:
        self.base = base
        self.attempts = base / "attempts"
        self.parcels = base / "parcels"
        self.last: dict[str, threading.Thread] = {}
        """The thread of the newest word, by nonce; empty for words about no attempt."""
        self.output_lock = threading.Lock()

    def run(self) -> None:
        """Obey the words on stdin until it ends; raises ``OSError`` if BASE cannot be made."""
        for folder in (self.attempts, self.parcels):
            private(folder)
        self.base.chmod(0o700)
        while line := sys.stdin.buffer.readline(LINE_MAX):
            rest = line
            while rest and not rest.endswith(b"\n"):
                line, rest = b"", sys.stdin.buffer.readline(LINE_MAX)
            try:
                self.begin(parse(line))
            except ValueError as error:
                self.say({}, {"why": reason(error)})

    def begin(self, word: Json) -> None:
        """Let a thread obey the word, after earlier words for the same attempt."""
        start = word.get("serve")
        named = start[-1] if isinstance(start, list) and start else word.get("nonce")
        nonce = named if isinstance(named, str) else ""
        if threading.active_count() > WORDS_MAX:
            self.say(word, {"nonce": nonce, "why": "too many words wait"})
            return
        thread = threading.Thread(target=self.work, args=(word, nonce, self.last.get(nonce)))
        self.last[nonce] = thread
        thread.start()

    def work(self, word: Json, nonce: str, before: threading.Thread | None) -> None:
        """Obey a word, and answer it."""
        if before is not None:
            before.join()
        try:
            answer = self.obey(word)
        except FAILURES as error:
            answer = {"nonce": nonce, "why": reason(error)}
        self.say(word, answer)

    def say(self, word: Json, answer: Json) -> None:
        """Write the answer to a word."""
        repeated = {"ref": word["ref"]} if "ref" in word else {}
        with self.output_lock, suppress(OSError):  # If home is gone, stdin ends, too.
            sys.stdout.buffer.write(encode({**answer, **repeated}))
            sys.stdout.buffer.flush()

    def obey(self, word: Json) -> Json:
        """Return the answer to a word; raises ``RefusedWord`` and ``OSError``."""
        if "hello" in word:
            return {"hello": self.hello(word["hello"])}
        if "serve" in word:
            return self.serve(word["serve"])
        if "found" in word:
            looks = [look(path) for path in self.attempts.iterdir() if NONCE.fullmatch(path.name)]
            keys = ("id", "nonce", "lives", "begun", "ended")
            return {"found": [[{"lives": False, **each}[key] for key in keys] for each in looks]}
        if "clean" in word:
            return {"clean": self.clean(remove=word["clean"] is True)}
        if "have" in word:
            return {"have": (self.parcels / checked(SHA256, word["have"])).is_file()}
        if "store" in word:
            return self.store(word)
        return self.ask(checked(NONCE, word.get("nonce")), word)

    def hello(self, asked: Any) -> Json:
        """Return what this host has; raises ``RefusedWord``."""
        names = dict(asked).get("programs", [])
        found = pythons()
        newest = max(found, key=lambda version: int(version[2:]), default="")
        return {
            "python": "{}.{}.{}".format(*sys.version_info),
            "pythons": found,
            "python311": found.get(newest),
            **here(),
            "cpus": len(os.sched_getaffinity(0)),  # type: ignore[attr-defined,unused-ignore]
            "free": shutil.disk_usage(self.base).free,
            "programs": {name: shutil.which(name) for name in names},
            "user": os.environ.get("USER", str(os.getuid())),
            "home": str(Path.home()),
        }

    def serve(self, named: Any) -> Json:
        """Start a guard unless one lives or the attempt has begun before; return its answer."""
        ident, nonce = named
        folder = self.attempts / checked(NONCE, nonce)
        text = globals().get("SOURCE") or Path(__file__).read_text(encoding="utf-8")
        program = self.base / f"guard-{hashlib.sha256(text.encode()).hexdigest()[:16]}.py"
        if not program.exists():
            write(program, text.encode())
        command = [sys.executable, "-IS", program, "serve", folder, checked(ID, ident), nonce]
        process = None
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            known = self.ask(nonce, {"nonce": nonce})
            if known["begun"] or known["ended"] or not known.keys() & {"gone", "lives"}:
                return known
            if time.monotonic() > deadline:
                return {**known, "why": "no guard started; see guard.err in its folder"}
            if "gone" in known and (process is None or process.returncode is not None):
                private(folder)
                with (folder / "guard.err").open("ab") as err:
                    null = subprocess.DEVNULL
                    process = subprocess.Popen(
                        command, stdin=null, stdout=null, stderr=err, start_new_session=True
                    )
                threading.Thread(target=process.wait, daemon=True).start()
            time.sleep(TICK / 4)

    def ask(self, nonce: str, word: Json) -> Json:
        """Return the guard's answer to a word, or that of the attempt's files if no guard lives."""
        folder = self.attempts / nonce
        with suppress(FileNotFoundError, ConnectionError, BlockingIOError):
            return ask_guard(folder, word)
        known = look(folder)
        try:
            if word.keys() & {"go", "put", "stop", "cont"}:
                raise RefusedWord("no guard of this attempt lives")
            if word.get("bye") and folder.exists():
                with locked(folder):
                    shutil.rmtree(folder)
            return {**known, **read_files(folder, word)}
        except FAILURES as error:
            return {**known, "why": reason(error)}

    def clean(self, *, remove: bool) -> int:
        """Return the size of this fleet's folder, and remove it; raises ``RefusedWord``."""
        if here := [look(path)["id"] for path in self.attempts.iterdir()]:
            raise RefusedWord(f"it has attempts: {', '.join(map(str, here[:3]))}")
        kept = sum(path.lstat().st_size for path in self.base.rglob("*") if not path.is_dir())
        if remove:
            shutil.rmtree(self.base)
        return kept

    def store(self, word: Json) -> Json:
        """Write a piece of a parcel; check the whole after the last one. Raises ``RefusedWord``."""
        name = checked(SHA256, word["store"])
        by = checked(NONCE, word.get("nonce", "0" * 16))  # Two may send it at once.
        part = self.parcels / f".{name}.{by}.part"
        size = write_piece(part, word)
        if word.get("last"):
            digest = hashlib.sha256()
            with part.open("rb") as file:
                while piece := file.read(LINE_MAX):
                    digest.update(piece)
                os.fsync(file.fileno())
            if digest.hexdigest() != name:
                part.unlink()
                raise RefusedWord("the parcel has another hash")
            part.chmod(0o400)
            part.replace(self.parcels / name)
        return {"store": name, "size": size, "have": bool(word.get("last"))}


def pythons() -> dict[str, str]:
    """Return the paths of Pythons from 3.11 on, by version, as they say themselves."""
    ask = "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"
    found: dict[str, str] = {}
    for name in (sys.executable, "python3", *(f"python3.{minor}" for minor in range(11, 16))):
        with suppress(OSError, ValueError, subprocess.SubprocessError):
            command = [name, "-IS", "-c", ask]
            done = subprocess.run(command, capture_output=True, timeout=5, check=True, text=True)
            version, path = done.stdout.strip().split(" ", 1)
            if int(version[2:]) >= 11:
                found.setdefault(version, path)
    return found


def ask_guard(folder: Path, word: Json) -> Json:
    """Return the guard's answer to one word.

    Raises ``RefusedWord`` if a guard does not answer, ``FileNotFoundError``, ``ConnectionError`` or
    ``BlockingIOError`` if none accepts the connection.
    """
    with socket.socket(socket.AF_UNIX) as sock, opened(folder, os.O_DIRECTORY) as short:
        sock.settimeout(ANSWER_SECONDS)
        sock.connect(f"/proc/self/fd/{short}/s")
        try:
            sock.sendall(encode(word))
            with sock.makefile("rb") as file:
                line = file.readline(LINE_MAX)
        except socket.timeout:  # noqa: UP041 - two classes in Python 3.9
            raise RefusedWord("it does not answer") from None
    if not line:
        raise ConnectionAbortedError
    return parse(line)


# --- processes -----------------------------------------------------------------------------------


LIBC = ctypes.CDLL(None)
"""Loaded before a fork, whose child may not load it."""
SO_PEERCRED, CLOCK_BOOTTIME = 17, 7
"""Linux's, where another system runs the type checker."""
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def clock() -> float:
    """Return the seconds since the host started, including the time that it slept."""
    return time.clock_gettime(CLOCK_BOOTTIME)


def here() -> Json:
    """Return the host, its clock, and the kernel's name of this start of the host."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return {"boot": boot, "clock": clock(), "host": os.uname().nodename}


def reaped() -> dict[int, int]:
    """Reap the children that have ended; return their wait statuses by pid."""
    statuses = {}
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            statuses[found[0]] = found[1]
    return statuses


def kill(pids: set[int], number_of: int) -> None:
    """Send a signal to processes, some of which may have ended."""
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, number_of)


def members(nonce: str, root: int | None) -> set[int]:
    """Return the processes of an attempt.

    These carry its token in their environment, or descend from one that does, or from ``root``.
    ``root`` and this process are left out.
    """
    token = f"BW_AWAY={nonce}".encode()
    parents: dict[int, int] = {}
    family = set() if root is None else {root}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # It has ended, or belongs to another user.
            fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
            # The first thread of a process can be a zombie while others run.
            if fields[0] != b"Z" or fields[17] != b"1":
                parents[int(folder.name)] = int(fields[1])
                if token in (folder / "environ").read_bytes().split(b"\0"):
                    family.add(int(folder.name))
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return family - {root, os.getpid()}


# --- files ---------------------------------------------------------------------------------------


def private(folder: Path) -> None:
    """Make a folder for this user alone, and its parents; raises ``OSError``."""
    if not folder.is_dir():
        private(folder.parent)
        with suppress(FileExistsError):
            folder.mkdir(0o700)


@contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    """Hold a file or folder open in the ``with`` statement; raises ``OSError``."""
    descriptor = os.open(path, flags | os.O_NONBLOCK, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of an attempt in the ``with`` statement.

    Raises ``BlockingIOError`` if another process holds it, ``FileNotFoundError`` without a folder.
    """
    with opened(folder / "lock", os.O_RDWR | os.O_CREAT) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def write(path: Path, data: bytes) -> None:
    """Write a file and sync it and its folder: whole, or not at all. Raises ``OSError``."""
    part = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    with opened(path.parent, os.O_DIRECTORY) as folder:
        os.fsync(folder)


def read_record(path: Path) -> Json | None:
    """Return the JSON object in a file; None if it is not there, or damaged."""
    try:
        return parse(read_piece(path, 0)[0])
    except (OSError, ValueError):
        return None


def read_piece(path: Path, at: Any, most: int = PIECE_MAX) -> tuple[bytes, int]:
    """Return bytes of a regular file, and its size; raises ``OSError`` and ``RefusedWord``."""
    with opened(path, os.O_RDONLY | os.O_NOFOLLOW) as descriptor:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise RefusedWord("it is not a regular file")
        return os.pread(descriptor, most, number(at, kind=int)), found.st_size


def write_piece(path: Path, word: Json) -> int:
    """Write a word's ``data``; return where it ends. Raises ``OSError``, ``RefusedWord``."""
    at = number(word.get("at"), kind=int)
    data = base64.b64decode(word.get("data") or "", validate=True)
    with opened(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW) as descriptor:
        if os.fstat(descriptor).st_nlink > 1:
            raise RefusedWord("a parcel has this name")
        while data:
            written = os.pwrite(descriptor, data, at)
            at, data = at + written, data[written:]
    return int(at)


def read_files(folder: Path, word: Json) -> Json:
    """Return what ``get`` and ``out`` ask for; raises ``OSError`` and ``RefusedWord``."""
    answer: Json = {}
    if "get" in word:
        path = folder / "files" / checked(FILE_NAME, word["get"])
        data, size = read_piece(path, word.get("at"))
        answer = {"data": base64.b64encode(data).decode(), "size": size}
    if "out" in word:
        pieces = [(b"", 0), (b"", 0)]
        with suppress(FileNotFoundError):  # It has not begun.
            at, error_at = word["out"]
            pieces[0] = read_piece(folder / "out", at, PIECE_MAX // 2)
            pieces[1] = read_piece(folder / "err", error_at, PIECE_MAX // 2)
        answer["out"] = [base64.b64encode(data).decode() for data, _ in pieces]
        answer["sizes"] = [size for _, size in pieces]
    return answer


# --- words and answers ---------------------------------------------------------------------------


def describe(folder: Path) -> Json:
    """Return what an attempt's files say about it; every answer about an attempt has these keys."""
    begun = (folder / "begun").exists()
    ended = read_record(folder / "ended")
    if not begun and ended is not None and ended.get("why") == NO_WORD:
        ended = None  # As if there had been no guard: another one may begin the attempt.
    ident = (read_record(folder / "id") or {}).get("id")
    known = {"nonce": folder.name, "id": ident, "until": 0.0, "begun": begun, "ended": ended}
    return {**known, **here()}


def parse(line: bytes) -> Json:
    """Return the JSON object of a line; raises ``RefusedWord``."""
    with suppress(ValueError, RecursionError):
        word = json.loads(line)
        if isinstance(word, dict):
            return word
    raise RefusedWord(f"the line is not a JSON object of at most {LINE_MAX} bytes")


def encode(value: Json) -> bytes:
    """Return the line of a JSON object."""
    return json.dumps(value).encode() + b"\n"


def number(value: Any, most: float = 1e12, kind: Any = (int, float)) -> Any:
    """Return a number from 0 to ``most``; raises ``RefusedWord``."""
    if isinstance(value, bool) or not isinstance(value, kind) or not 0 <= value <= most:
        raise RefusedWord(f"{str(value)[:40]!r} is not a number from 0 to {most}")
    return value


def checked(pattern: re.Pattern[str], text: Any) -> str:
    """Return a text that matches the whole pattern; raises ``RefusedWord``."""
    if not isinstance(text, str) or not pattern.fullmatch(text):
        raise RefusedWord(f"{str(text)[:100]!r} is not like {pattern.pattern}")
    return text


def reason(error: Exception) -> str:
    """Return why something failed, in one line for home."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def main(argv: list[str]) -> int:
    """Run one of the three commands; return the exit code."""
    command, count = argv[:1], len(argv)
    try:
        if command == ["serve"] and count == 4:
            with suppress(BlockingIOError):
                serve(Path(argv[1]).absolute(), argv[2], argv[3])
        elif command == ["look"] and count == 2:
            sys.stdout.write(encode(look(Path(argv[1]).absolute())).decode())
        elif command == ["relay"] and count == 2:
            Relay(Path(argv[1]).expanduser().absolute()).run()
        else:
            raise RefusedWord("usage: guard.py serve FOLDER ID NONCE | look FOLDER | relay BASE")
    except FAILURES as error:
        sys.stderr.write(f"{reason(error)}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
