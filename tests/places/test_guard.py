"""The guard with real processes: what it keeps alive, what it ends, what it refuses."""

from __future__ import annotations

import ast
import base64
import functools
import hashlib
import json
import os
import random
import resource
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from beads_workers.runtime import sessions
from tests.support.fleet import until
from tests.support.processes import alive, parent, read

ROOT = Path(__file__).parent.parent.parent
GUARD = ROOT / "beads_workers/places/guard.py"
TEXT = GUARD.read_text(encoding="utf-8")
IMPATIENT = TEXT.replace("PATIENCE = 60.0", "PATIENCE = 0.5")
LOADER = """
import sys
SOURCE = sys.stdin.buffer.read(int(sys.argv[2])).decode()
sys.argv = ["guard", "relay", sys.argv[1]]
exec(compile(SOURCE, "guard", "exec"), {"__name__": "__main__", "SOURCE": SOURCE})
"""
"""How home starts a relay: no file of ours is on the host."""
LEASE = 1.5

Json = dict[str, Any]


class Home:
    """A relay and its line; each word has a number, which its answer repeats."""

    def __init__(self, base: Path, text: str = TEXT, python: str = sys.executable) -> None:
        source = text.encode()
        self.process = subprocess.Popen(
            [python, "-IS", "-c", LOADER, str(base), str(len(source))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "SSH_AUTH_SOCK": "/agent", "LC_TIME": "C", "XDG_X": "x"},
        )
        self.send_line(source)
        self.words = 0
        self.answers: dict[int, Json] = {}

    def send_line(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def send(self, **word: Any) -> int:
        self.words += 1
        self.send_line(json.dumps({**word, "ref": self.words}).encode() + b"\n")
        return self.words

    def read(self) -> Json:
        assert self.process.stdout is not None
        answer: Json = json.loads(self.process.stdout.readline())
        return answer

    def wait(self, ref: int) -> Json:
        while ref not in self.answers:
            answer = self.read()
            self.answers[answer.pop("ref")] = answer
        return self.answers.pop(ref)

    def ask(self, **word: Any) -> Json:
        return self.wait(self.send(**word))

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Attempt:
    """One attempt, with the words that home has for it."""

    def __init__(self, home: Home, base: Path) -> None:
        self.home = home
        self.nonce = secrets.token_hex(16)
        self.folder = base / "attempts" / self.nonce

    def ask(self, **word: Any) -> Json:
        return self.home.ask(nonce=self.nonce, **word)

    def serve(self) -> Json:
        return self.home.ask(serve=["bw-1", self.nonce])

    def go(self, script: str, lease: float = LEASE, grace: float = 0.2, **word: Any) -> Json:
        sent = {"clock": self.serve()["clock"], **word}
        order = {"argv": ["/bin/bash", "-c", script], "env": {}, "lease": lease, "grace": grace}
        return self.ask(go=order, **sent)

    def renew(self) -> Json:
        return self.ask(clock=self.ask()["clock"])

    def end(self) -> Json:
        """Wait until no holder lives; return the answer that the files give."""
        wait(lambda: not self.holders())
        answer = self.ask()
        assert answer["gone"] and not self.living()
        assert answer["ended"] is None or answer["ended"]["left"] == 0
        return answer

    def output(self) -> str:
        return base64.b64decode(self.ask(out=[0, 0])["out"][0]).decode()

    def pid(self, name: str) -> int:
        path = self.folder / name
        wait(lambda: path.is_file() and path.read_text().endswith("\n"))
        return int(path.read_text())

    def holders(self) -> list[int]:
        """The outer process and the guard, while they live."""
        command = f"serve\0{self.folder}\0bw-1\0{self.nonce}\0".encode()
        all_pids = (int(p.name) for p in Path("/proc").glob("[0-9]*"))
        pids = {pid for pid in all_pids if command in read(pid, "cmdline")}
        return sorted(pids, key=lambda pid: parent(pid) in pids)

    @contextmanager
    def connection(self) -> Iterator[socket.socket]:
        """A peer of the guard, whose address by itself is too long for a socket."""
        with socket.socket(socket.AF_UNIX) as peer:
            descriptor = os.open(self.folder, os.O_RDONLY)
            peer.connect(f"/proc/self/fd/{descriptor}/s")
            os.close(descriptor)
            yield peer

    def living(self) -> list[int]:
        return [process.pid for process in sessions.with_variable(f"BW_AWAY={self.nonce}")]


wait = functools.partial(until, seconds=20.0)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "a" / ("long" * 40) / "fleet"


@pytest.fixture
def home(base: Path) -> Iterator[Home]:
    home = Home(base)
    yield home
    home.close()


@pytest.fixture
def attempt(home: Home, base: Path) -> Iterator[Attempt]:
    attempt = Attempt(home, base)
    yield attempt
    killed = [*attempt.holders(), *attempt.living()]
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    assert killed == [], "the test left processes behind"


# --- an attempt ----------------------------------------------------------------------------------


def test_an_attempt_runs_once_and_its_output_comes_home(attempt: Attempt) -> None:
    answer = attempt.go('echo "$BW_AWAY $XDG_X$SSH_AUTH_SOCK$LC_TIME"; pwd; echo no >&2; exit 3')
    assert answer["begun"] and answer["until"] > answer["clock"]
    answer = attempt.end()
    assert answer["begun"] and answer["id"] == "bw-1"
    assert (answer["ended"]["exit"], answer["ended"]["signal"]) == (3, None)
    answer = attempt.ask(out=[0, 1])
    out, err = (base64.b64decode(piece).decode() for piece in answer["out"])
    assert out == f"{attempt.nonce} x\n{attempt.folder}\n" and err == "o\n"
    assert answer["sizes"] == [len(out), 3]
    assert attempt.go("echo again")["why"] == "no guard of this attempt lives"
    assert attempt.output() == out


def test_the_folders_are_only_for_their_user(attempt: Attempt, base: Path) -> None:
    attempt.serve()
    folders = (base, base / "attempts", base / "parcels", attempt.folder)
    assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700] * 4
    attempt.ask(end=True)
    attempt.end()


def test_each_holder_leads_a_session_and_has_the_words(attempt: Attempt) -> None:
    attempt.serve()
    holders = attempt.holders()
    assert len(holders) == 2 and [os.getsid(pid) for pid in holders] == holders
    attempt.ask(end=True)
    assert attempt.end()["ended"]["why"] == "ended before it began"
    assert attempt.serve()["gone"], "it may not begin any more"


def test_nothing_runs_before_go_and_the_guard_leaves_without_it(base: Path) -> None:
    home = Home(base, IMPATIENT)
    attempt = Attempt(home, base)
    assert attempt.serve()["begun"] is False
    assert attempt.ask(clock=attempt.ask()["clock"], stop=True)["until"] == 0
    answer = attempt.end()
    assert (answer["begun"], answer["ended"]) == (False, None)
    assert json.loads((attempt.folder / "ended").read_text())["why"] == "no word came"
    assert attempt.go("echo hello")["begun"]
    assert attempt.end()["ended"]["exit"] == 0 and attempt.output() == "hello\n"
    home.close()


def test_a_go_without_a_clock_or_with_an_old_one_is_refused(attempt: Attempt) -> None:
    assert "is not a number" in attempt.go("true", clock=None)["why"]
    assert "older" in attempt.go("true", clock=attempt.ask()["clock"] - LEASE - 1)["why"]
    assert not (attempt.folder / "begun").exists()
    assert attempt.go("true")["begun"]
    assert attempt.end()["ended"]["exit"] == 0


def test_a_program_that_is_not_there_has_begun_and_ended(attempt: Attempt) -> None:
    order = {"argv": ["/no/such"], "env": {}, "lease": 1, "grace": 0}
    answer = attempt.ask(go=order, clock=attempt.serve()["clock"])
    assert answer["begun"] and "No such file" in answer["ended"]["why"]
    assert attempt.end()["ended"] == answer["ended"]


def test_stdin_is_the_file_in_if_home_sent_it(attempt: Attempt) -> None:
    attempt.serve()
    attempt.ask(put="in", at=0, data=encoded(b"sent"))
    attempt.go("cat; printf %s $GIVEN")
    attempt.end()
    assert attempt.output() == "sent"


def test_too_much_output_ends_the_attempt(base: Path) -> None:
    home = Home(base, TEXT.replace("OUTPUT_MAX = 64 << 20", "OUTPUT_MAX = 1 << 20"))
    attempt = Attempt(home, base)
    attempt.go("rm out; yes & yes >&2", lease=20)
    assert attempt.end()["ended"]["why"] == "its output is too long"
    home.close()


def test_stop_and_cont_reach_every_process(attempt: Attempt) -> None:
    attempt.go("(exec setsid sleep 1000) & echo $! > child; sleep 1000", lease=10)
    child = attempt.pid("child")
    attempt.ask(stop=True)
    wait(lambda: b") T " in read(child, "stat"))
    attempt.ask(cont=True)
    wait(lambda: b") S " in read(child, "stat"))
    attempt.ask(stop=True)
    answer = attempt.ask(end=True)
    assert answer["until"] <= answer["clock"]
    answer = attempt.end()
    assert (answer["ended"]["why"], answer["ended"]["signal"]) == ("home ended it", signal.SIGTERM)


# --- the lease -----------------------------------------------------------------------------------

CHILDREN = """
setsid bash -c 'echo $$ > daemon; exec sleep 1000' &
(setsid env -i bash -c 'echo $$ > bare; exec sleep 1000' &)
"""
"""A process in a session of its own, and an orphan without any environment."""


@pytest.mark.parametrize(
    ("trap", "ends"),
    [("trap 'echo told; exit 7' TERM", (7, None)), ("trap '' TERM", (None, signal.SIGKILL))],
    ids=["TERM", "KILL"],
)
def test_a_lease_that_is_over_ends_everything(
    attempt: Attempt, trap: str, ends: tuple[int | None, int | None]
) -> None:
    attempt.go(f"{CHILDREN}\n{trap}\nwhile :; do sleep 0.05; done")
    children = [attempt.pid("daemon"), attempt.pid("bare")]
    ended = attempt.end()["ended"]
    assert (ended["exit"], ended["signal"]) == ends
    assert ended["why"] == "the lease was over" and not any(map(alive, children))
    assert attempt.output() == ("told\n" if ends[0] else "")


def test_the_end_of_the_first_process_ends_the_others(attempt: Attempt) -> None:
    attempt.go(f"{CHILDREN}\nwhile [[ ! -s bare || ! -s daemon ]]; do sleep 0.05; done", lease=20)
    children = [attempt.pid("daemon"), attempt.pid("bare")]
    assert attempt.end()["ended"]["exit"] == 0 and not any(map(alive, children))


def test_renewals_keep_it_alive_and_an_old_clock_does_not(attempt: Attempt) -> None:
    first = attempt.go("sleep 1000")
    for _ in range(8):
        time.sleep(0.25)
        assert attempt.renew()["ended"] is None
    renewed = attempt.ask()["until"]
    assert attempt.ask(clock=first["clock"])["until"] == renewed
    answer = attempt.ask(clock=first["clock"] + 1000)
    assert answer["until"] <= answer["clock"] + LEASE, "a clock of the future is that of now"
    while (answer := attempt.ask(clock=first["clock"])).get("gone") is None:
        time.sleep(0.1)
    assert attempt.end()["ended"]["why"] == "the lease was over"


# --- holders that die, or stop -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("who", "why"),
    [
        ([0], "its outer process was killed"),
        ([1], "its guard was killed"),
        ([0, 1], "its guard was killed"),
    ],
    ids=["outer", "guard", "both"],
)
def test_a_killed_holder_ends_the_attempt_at_once(
    attempt: Attempt, who: list[int], why: str
) -> None:
    attempt.go(f"{CHILDREN}\necho $$ > first; sleep 1000", lease=100)
    children = [attempt.pid("daemon"), attempt.pid("bare")]
    holders = attempt.holders()
    for each in who:
        os.kill(holders[each], signal.SIGKILL)
    wait(lambda: not alive(attempt.pid("first")), seconds=2)  # Before anybody looks.
    assert attempt.end()["ended"]["why"] == why
    assert not alive(children[0])
    if len(who) == 2:  # Nothing knows an orphan without environment once both are gone.
        os.kill(children[1], signal.SIGKILL)
    assert len(who) == 2 or not alive(children[1])
    looked = subprocess.run(
        [sys.executable, "-IS", GUARD, "look", attempt.folder], capture_output=True, check=True
    )
    assert json.loads(looked.stdout)["ended"]["why"] == why


@pytest.mark.parametrize("who", [[0], [1], [0, 1]], ids=["outer", "guard", "both"])
def test_a_stopped_holder_does_not_prolong_the_lease(attempt: Attempt, who: list[int]) -> None:
    attempt.go(f"{CHILDREN}\ntrap 'echo told' TERM; while :; do sleep 0.05; done")
    children = [attempt.pid("daemon"), attempt.pid("bare")]
    holders = attempt.holders()
    for each in who:
        os.kill(holders[each], signal.SIGSTOP)
    if len(who) == 2:
        time.sleep(LEASE + 1.2)
        for each in who:
            with suppress(ProcessLookupError):  # The outer process has killed it by now.
                os.kill(holders[each], signal.SIGCONT)
    assert attempt.end()["ended"]["why"] == "the lease was over"
    assert not any(map(alive, children))
    assert attempt.output() == ("told\n" if who == [0] else ""), "KILL at once when it is late"


def test_a_deadline_that_is_noticed_late_gives_no_grace(attempt: Attempt) -> None:
    attempt.go("trap 'echo told' TERM; while :; do sleep 0.05; done", grace=20)
    guard = attempt.holders()[1]
    os.kill(guard, signal.SIGSTOP)
    time.sleep(LEASE + 1.2)
    os.kill(guard, signal.SIGCONT)
    assert attempt.end()["ended"]["signal"] == signal.SIGKILL
    assert attempt.output() == ""


def test_holders_killed_before_go_leave_nothing_begun(attempt: Attempt) -> None:
    for which in (0, 1):
        attempt.serve()
        os.kill(attempt.holders()[which], signal.SIGKILL)
        answer = attempt.end()
        assert (answer["begun"], answer["ended"]) == (False, None)


def test_a_host_that_was_restarted_is_told(attempt: Attempt) -> None:
    attempt.folder.mkdir(parents=True)
    begun = {"id": "bw-1", "nonce": attempt.nonce, "boot": "another", "clock": 1.0, "wall": 1.0}
    (attempt.folder / "begun").write_text(json.dumps(begun))
    assert attempt.ask()["ended"]["why"] == "the host was restarted"
    assert attempt.serve()["gone"]


# --- one attempt, many guards and relays ---------------------------------------------------------


def test_many_guards_and_two_relays_begin_it_once(attempt: Attempt, base: Path) -> None:
    other = Home(base)
    guards = [
        subprocess.Popen(
            [sys.executable, "-IS", GUARD, "serve", attempt.folder, "bw-1", attempt.nonce]
        )
        for _ in range(10)
    ]
    clock = attempt.serve()["clock"]
    order = {"argv": ["sh", "-c", "echo once >> all; sleep 2"], "env": {}, "lease": 9, "grace": 0}
    words = [relay.send(nonce=attempt.nonce, go=order, clock=clock) for relay in [attempt.home] * 2]
    words += [other.send(nonce=attempt.nonce, go=order, clock=clock) for _ in range(2)]
    relays = [attempt.home] * 2 + [other] * 2
    assert all(relay.wait(word)["begun"] for relay, word in zip(relays, words, strict=True))
    wait(lambda: len(attempt.holders()) == 2)
    assert [guard.wait() for guard in guards] == [0] * 10
    assert attempt.end()["ended"]["exit"] == 0
    assert (attempt.folder / "all").read_text() == "once\n"
    again = [sys.executable, "-IS", GUARD, "serve", attempt.folder, "bw-1", attempt.nonce]
    assert subprocess.run(again, capture_output=True, check=True).stderr == b""
    other.close()


def test_a_new_relay_finds_the_attempts_of_a_killed_one(attempt: Attempt, base: Path) -> None:
    attempt.go("sleep 1000", lease=100)
    attempt.home.process.kill()
    attempt.home = Home(base)
    assert attempt.home.ask(found=True)["found"] == [["bw-1", attempt.nonce, True, True, None]]
    assert attempt.ask(end=True)["begun"]
    ended = attempt.end()["ended"]
    assert attempt.home.ask(found=True)["found"] == [["bw-1", attempt.nonce, False, True, ended]]
    attempt.home.close()


def test_a_stopped_guard_delays_no_other_attempt(attempt: Attempt, base: Path) -> None:
    attempt.go("sleep 1000", lease=2)
    os.kill(attempt.holders()[1], signal.SIGSTOP)
    slow = attempt.home.send(nonce=attempt.nonce)
    other = Attempt(attempt.home, base)
    began = time.monotonic()
    other.go("true")
    other.end()
    assert time.monotonic() - began < 3
    assert "clock" in attempt.home.wait(slow), "the outer process killed the guard"
    attempt.end()


def test_a_guard_that_does_not_answer_is_named(base: Path) -> None:
    home = Home(base, TEXT.replace("ANSWER_SECONDS = 5.0", "ANSWER_SECONDS = 0.3"))
    attempt = Attempt(home, base)
    attempt.go("sleep 1000", lease=100)
    guard = attempt.holders()[1]
    os.kill(guard, signal.SIGSTOP)
    assert attempt.ask() == {"nonce": attempt.nonce, "why": "it does not answer"}
    os.kill(guard, signal.SIGKILL)
    attempt.end()
    home.close()


# --- files and words -----------------------------------------------------------------------------


def test_files_go_there_and_come_back_until_bye(attempt: Attempt, base: Path) -> None:
    data = secrets.token_bytes(300_000)
    digest = hashlib.sha256(data).hexdigest()
    home = attempt.home
    assert home.ask(have=digest)["have"] is False
    assert home.ask(store=digest, at=0, data=encoded(data[:1000]))["have"] is False
    assert home.ask(store=digest, at=1000, data=encoded(data[1000:]), last=True)["have"]
    assert home.ask(have=digest)["have"]
    attempt.serve()
    assert "No such file" in attempt.ask(put="other", parcel="0" * 64)["why"]
    for _ in range(2):
        assert "why" not in attempt.ask(put="parcel", parcel=digest)
    assert "parcel" in attempt.ask(put="parcel", at=0, data=encoded(b"x"))["why"]
    attempt.ask(put="a.txt", at=3, data=encoded(b"def"))
    attempt.ask(put="a.txt", at=0, data=encoded(b"abc"))
    answer = attempt.ask(get="parcel", at=0)
    assert base64.b64decode(answer["data"]) == data[: 256 << 10] and answer["size"] == 300_000
    assert "not left" in attempt.ask(bye=True)["why"]
    attempt.go("cat files/a.txt; ln -s /etc/passwd files/link; mkfifo files/pipe; echo x > files/x")
    attempt.end()
    assert "why" in attempt.ask(get="link", at=0) and "why" in attempt.ask(get="pipe", at=0)
    assert base64.b64decode(attempt.ask(get="x", at=1)["data"]) == b"\n"
    assert attempt.output() == "abcdef"
    assert "why" not in attempt.ask(bye=True) and not attempt.folder.exists()
    answer = attempt.ask(bye=True)
    assert "why" not in answer and answer["gone"] and not answer["begun"]
    assert home.ask(found=True)["found"] == []
    assert (base / "parcels" / digest).read_bytes() == data


def test_files_cannot_be_sent_once_it_has_begun(attempt: Attempt) -> None:
    attempt.go("sleep 1000", lease=20)
    assert attempt.ask(put="a", at=0, data="")["why"] == "the attempt has begun"
    attempt.ask(end=True)
    attempt.end()


def test_names_cannot_leave_their_folder(attempt: Attempt) -> None:
    home = attempt.home
    attempt.serve()
    for name in ("../begun", "a/b", "/etc/passwd", "..", ".", ".x", "", "a" * 101, "a\n", "ä", 5):
        assert "why" in attempt.ask(put=name, at=0, data="")
        assert "why" in attempt.ask(get=name, at=0)
    for nonce in (
        "../" + attempt.nonce,
        "",
        "A" * 16,
        "0" * 15,
        "0" * 65,
        5,
        None,
        attempt.nonce + "\n",
    ):
        assert "why" in home.ask(serve=["bw-1", nonce])
        assert "why" in home.ask(nonce=nonce)
    for ident in ("", "x" * 201, "a\0", 5, None, "\ud800"):
        assert "why" in home.ask(serve=[ident, "0" * 16])
    assert "why" in home.ask(have="../x") and "why" in home.ask(store="x", at=0, data="")
    attempt.ask(end=True)
    attempt.end()


def test_another_nonce_is_refused(attempt: Attempt) -> None:
    attempt.serve()
    with attempt.connection() as sock:
        sock.sendall(b'{"nonce": "0123456789abcdef", "end": true}\n')
        answer = json.loads(sock.makefile().readline())
    assert "another attempt" in answer["why"] and answer["ended"] is None
    attempt.ask(end=True)
    attempt.end()


def test_a_peer_that_says_nothing_delays_it_for_a_moment(attempt: Attempt) -> None:
    attempt.serve()
    with attempt.connection() as silent:
        silent.sendall(b'{"nonce"')
        assert "clock" in attempt.ask(end=True)
    attempt.end()


def test_words_for_one_attempt_keep_their_order(attempt: Attempt) -> None:
    attempt.serve()
    guard = attempt.holders()[1]
    os.kill(guard, signal.SIGSTOP)
    for number in range(50):
        attempt.home.send(nonce=attempt.nonce, put="a", at=0, data=encoded(b"%02d" % number))
    os.kill(guard, signal.SIGCONT)
    refs = [attempt.home.read()["ref"] for _ in range(50)]
    assert refs == sorted(refs)
    assert base64.b64decode(attempt.ask(get="a", at=0)["data"]) == b"49"
    attempt.ask(end=True)
    attempt.end()


def test_a_parcel_with_another_hash_is_removed(home: Home, base: Path) -> None:
    digest = "0" * 64
    answer = home.ask(store=digest, at=0, data=encoded(b"x"), last=True)
    assert answer["why"] == "the parcel has another hash"
    assert list((base / "parcels").iterdir()) == []


def test_lines_that_are_no_words_are_answered(home: Home) -> None:
    for line in (b"hello", b"[]", b'{"a": "' + b"x" * (3 << 20) + b'"}', b"[" * 100_000, b"\xff"):
        home.send_line(line + b"\n")
        assert "not a JSON object" in home.read()["why"]
    assert "hello" in home.ask(hello={})


def test_words_of_wrong_types_are_answered(attempt: Attempt) -> None:
    attempt.serve()
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    values = (None, True, -1, 0, 1e400, 10**400, "x", "é", [], [1, 2], [[], {}], {}, {"argv": [5]})
    keys = ("go", "put", "at", "data", "parcel", "get", "out", "stop", "cont", "clock")
    for _ in range(150):
        word = {"clock": 0, **{key: chance.choice(values) for key in chance.sample(keys, 3)}}
        assert "clock" in attempt.ask(**word), (seed, word)
        key = chance.choice(("serve", "have", "store", "nonce"))
        home_word = {"at": 0, "data": "", key: chance.choice(values)}
        assert attempt.home.ask(**home_word), (seed, home_word)
    assert all("why" in attempt.home.ask(hello=value) for value in (5, "x", {"programs": 5}))
    attempt.ask(end=True)
    attempt.end()


def test_hello_says_what_the_host_has(home: Home) -> None:
    said = home.ask(hello={"programs": ["sh", "no-such-program"]})["hello"]
    assert said["programs"] == {"sh": shutil.which("sh"), "no-such-program": None}
    version = "{}.{}".format(*sys.version_info)
    assert version in said["pythons"] and Path(said["python311"]).exists()
    assert said["cpus"] > 0 and said["free"] > 0 and said["clock"] > 0 and said["boot"]
    assert (said["host"], said["home"]) == (os.uname().nodename, str(Path.home()))


def test_a_full_disk_is_an_answer(home: Home, base: Path) -> None:
    home.ask(have="0" * 64)
    resource.prlimit(home.process.pid, resource.RLIMIT_FSIZE, (1000, 1000))
    answer = home.ask(store="0" * 64, at=0, data=encoded(bytes(2000)))
    assert answer["why"] == "File too large"
    answer = home.ask(serve=["bw-1", "0" * 16])
    assert answer == {"nonce": "0" * 16, "why": "File too large"}
    assert [path.name for path in base.iterdir() if path.is_file()] == []


# --- the file ------------------------------------------------------------------------------------


def test_the_text_is_python_3_9_and_imports_nothing_of_ours() -> None:
    tree = ast.parse(TEXT, feature_version=(3, 9))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [a.name for a in node.names]
        )
    }
    assert imported <= set(sys.stdlib_module_names)


def test_an_older_python_runs_it(base: Path) -> None:
    versions = (Path.home() / ".pyenv/versions").glob("3.9.*/bin/python")
    python = next(map(str, versions), shutil.which("python3.9"))
    if python is None:
        pytest.skip("there is no Python 3.9")
    home = Home(base, python=python)
    attempt = Attempt(home, base)
    assert home.ask(hello={})["hello"]["python"].startswith("3.9.")
    attempt.go(f"{CHILDREN}\necho hello; sleep 1000", lease=20)
    guard = attempt.holders()[1]
    wait(lambda: attempt.renew()["begun"] and attempt.output() == "hello\n")
    os.kill(guard, signal.SIGSTOP)
    os.kill(guard, signal.SIGCONT)
    attempt.ask(end=True)
    assert attempt.end()["ended"]["signal"] == signal.SIGTERM
    assert "why" not in attempt.ask(bye=True)
    home.close()


def test_a_command_line_that_is_wrong_shows_the_usage() -> None:
    done = subprocess.run([sys.executable, "-IS", GUARD, "x"], capture_output=True, check=False)
    assert done.returncode == 1 and done.stderr.startswith(b"usage: ")
