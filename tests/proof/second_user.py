"""What a second user of the machine tries against a fleet and its page: none of it works.

The attacker is another uid with the system's Python and nothing of ours. He is told what anybody
can find out (ports, pids, where the project lies), and of ``KNOWS`` even the token: what a site in
the user's own browser could have seen. A way prints what it got; secrets in it, or a line that
begins with ``GOT``, are a break, and so is a fleet that is not as it was.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.cli.test_strangers import STRANGER, USER, environment, ours, user
from tests.support.fleet import until

PYTHON = "/usr/bin/python3"
SECONDS_MAX = 60

SCRIPT = r"""
import ctypes, glob, json, os, re, signal, socket, sys, time
F = json.loads(sys.argv[2])
PORT, PIDS, PROJECT, TOKEN = F["port"], F["pids"], F["project"], F.get("token", "")

def call(request, port=PORT):
    with socket.create_connection(("127.0.0.1", port), 5) as s:
        s.settimeout(5)
        s.sendall(request.replace("\n", "\r\n").encode() + b"\r\n\r\n")
        told = b""
        try:
            while data := s.recv(65536):
                told += data
        except OSError:
            pass
    return told.decode("latin-1")

def get(path, *more, host="127.0.0.1", method="GET"):
    return call("\n".join([f"{method} {path} HTTP/1.1", f"Host: {host}:{PORT}", *more]))

def shown(told):
    status = told.split(" ")[1:2]
    print("GOT" if status == ["200"] else "no", told[:3000])

def read(*patterns):
    print("no more than this:")
    for pattern in patterns:
        for name in glob.glob(pattern, recursive=True, include_hidden=True):
            try:
                with open(name, "rb") as file:
                    print(name, file.read(1 << 20).decode("latin-1"))
            except OSError:
                pass

def denied(what, *arguments):
    try:
        what(*arguments)
    except OSError as error:
        print("no", error)
    else:
        print("GOT", what.__name__, arguments)

def traced(number, pid):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(number, pid, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")

def control(*headers, body='{"control": "bw.stop", "fields": {}}', path="control"):
    length = f"Content-Length: {len(body)}"
    shown(get(f"/{TOKEN}/{path}", *headers, length, "", body, method="POST"))

def unix(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(3)
        s.connect(path)
        s.sendall(b'{"control": "bw.stop"}\n{"type": "READY", "capabilities": []}\n')
        if told := s.recv(4096):
            print("GOT" if b"error" not in told else "no", told.decode("latin-1"))

def sockets():
    for line in open("/proc/net/unix"):
        name = line.split()[-1]
        if "beads" in name or ".sock" in name and PROJECT in name:
            try:
                unix("\0" + name[1:] if name[0] == "@" else name)
            except OSError as error:
                print("no", name, error)

def mirrored():
    own = "Sec-Fetch-Site: same-origin"
    told = json.loads(get("/resume?nonce=a1", own).split("\r\n\r\n")[1])
    shown(get(f"/resume?challenge={told['challenge']}&proof={told['proof']}", own))

def flood():
    held = [socket.create_connection(("127.0.0.1", PORT)) for _ in range(64)]
    print("holding", flush=True)
    until = time.monotonic() + 6
    while time.monotonic() < until:
        held[:20] = []
        held += [socket.create_connection(("127.0.0.1", PORT)) for _ in range(20)]
        time.sleep(0.01)

def freed():
    with socket.create_server(("127.0.0.1", PORT)) as server:
        print("listens", flush=True)
        real = int(sys.stdin.readline())
        page, _ = server.accept()
        asked = page.recv(65536).decode("latin-1")
        passed_on = asked.replace(str(PORT), str(real)).replace("\r", "").strip()
        page.sendall(call(passed_on, real).encode())
        page.close()
        print(asked)

WAYS = {
    "command lines": lambda: read("/proc/[0-9]*/cmdline"),
    "environments": lambda: read("/proc/[0-9]*/environ"),
    "web.json": lambda: denied(open, f"{PROJECT}/.beads-workers/web.json"),
    "all files of the project": lambda: read(f"{PROJECT}/**"),
    "logs and what lies in /tmp": lambda: read("/tmp/beads-workers*/**", "/tmp/*", "/var/log/**"),
    "descriptors": lambda: read(*(f"/proc/{pid}/fd/*" for pid in PIDS)),
    "memory": lambda: [denied(open, f"/proc/{pid}/mem") for pid in PIDS],
    "ptrace": lambda: [denied(traced, how, pid) for pid in PIDS for how in (16, 0x4206)],
    "signals": lambda: [denied(os.kill, pid, n) for pid in PIDS for n in (15, 19, 9)],
    "limits": lambda: [denied(os.sched_setaffinity, pid, [0]) for pid in PIDS],
    "the control socket": lambda: denied(unix, f"{PROJECT}/.beads-workers/control.sock"),
    "sockets of /proc/net/unix": sockets,
    "the socket of workers, moved away": lambda: denied(os.rename, F["sockets"], "/tmp/elsewhere"),
    "paths without the token": lambda: [
        shown(get(path)) for path in ("/", "/events", "//events", "/web.json", "/log?worker=W1",
        "/../events", "/%2e%2e/events", "/control", "/report", "/download?issue=x", "/seen",
        "/favicon.ico", "*", "/./", "/;/events")],
    "guessed tokens": lambda: [
        shown(get(f"/{guess}/")) for guess in ("", "0" * 22, "%00", "A" * 5000, "\u00fc", "null")],
    "other methods": lambda: [
        shown(get("/", method=each)) for each in ("HEAD", "OPTIONS", "TRACE", "CONNECT", "PUT")],
    "requests that are none": lambda: [
        shown(call(each)) for each in ("GET /events", "GET", "\0" * 99, "GET / HTTP/9.9",
        f"GET http://127.0.0.1:{PORT}/events HTTP/1.1\nHost: 127.0.0.1:{PORT}",
        f"GET / HTTP/1.1\nHost: 127.0.0.1:{PORT}\nHost: x", "GET / HTTP/1.1")],
    "resumption with a guess": lambda: [
        shown(get(f"/resume?challenge={c}&proof={p}", "Sec-Fetch-Site: same-origin"))
        for c in ("", "0" * 32) for p in ("", "0" * 64)],
    "resumption with its own proof": mirrored,
    "another name (DNS rebinding), with the token": lambda: [
        shown(get(f"/{TOKEN}/", host=host)) for host in ("evil.example", "localhost.evil", "0")],
    "another site, with the token": lambda: shown(
        get(f"/{TOKEN}/events", "Origin: http://evil.example", "Sec-Fetch-Site: cross-site")),
    "a form of another site, with the token": lambda: [
        control(f"Origin: http://127.0.0.1:{PORT}", "Content-Type: text/plain"),
        control("Origin: null", "Content-Type: application/json"),
        control("Origin: http://evil.example", f"X-Beads-Workers-Token: {TOKEN}",
        "Content-Type: application/json"),
        control(f"X-Beads-Workers-Token: {TOKEN}", "Content-Type: application/json")],
    "a service worker, with the token": lambda: [
        shown(get(f"/{TOKEN}/{name}", "Service-Worker: script")) for name in ("sw.js", "web.js")],
    "connections without end": flood,
    "the freed port": freed,
}
WAYS[sys.argv[1]]()
"""
KNOWS = ", with the token"


class Attacked:
    """A fleet of ``USER`` with a page that steers it, in a folder below /tmp that all can enter."""

    def __init__(self) -> None:
        self.folder = Path(f"/tmp/beads-workers-attacked-{os.getpid()}")
        self.folder.mkdir(mode=0o755)
        os.chown(self.folder, USER, USER)
        self._ours("init")
        self._ours("add", "x", "--", "sleep", "1000")
        started = self._ours("start", "-d", "-n", "1", "--web", "--web-control", "--json")
        self.run = json.loads(started)
        self.page = self._read_page()
        until(lambda: self._busy() == 1)

    @property
    def token(self) -> str:
        """Of the page."""
        return str(self.page["url"]).split("/")[3]

    def _ours(self, *words: str) -> str:
        ran = ours(USER, self.folder, *words)
        assert ran.returncode == 0, (words, ran.stdout, ran.stderr)
        return ran.stdout

    def _busy(self) -> int:
        shown = json.loads(self._ours("status", "--json"))
        assert shown["state"] == "running", shown["state"]
        return int(shown["queue"]["running"])

    def facts(self, way: str) -> dict[str, Any]:
        """What the attacker is told."""
        pids = [self.run["pid"], self.page["pid"], *_children(self.run["pid"])]
        found = {"port": self.page["port"], "pids": pids, "project": str(self.folder)}
        sockets = self.run["socket"]
        return {**found, "sockets": sockets, **({"token": self.token} if KNOWS in way else {})}

    def tries(self, way: str) -> subprocess.Popen[str]:
        """The attacker begins."""
        who = ("setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups")
        words = (*who, PYTHON, "-I", "-c", SCRIPT, way, json.dumps(self.facts(way)))
        pipe = subprocess.PIPE
        return subprocess.Popen(words, cwd="/", stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def judge(self, way: str, output: str, errors: str) -> list[str]:
        """What is wrong after it."""
        broken = [f"it got {line[:200]}" for line in output.splitlines() if line[:3] == "GOT"]
        secrets = [self.page["key"], *([] if KNOWS in way else [self.token])]
        broken += [f"it has {each}" for each in secrets if each in output]
        broken += [f"not tried: {errors[-300:]}"] if not output or "Traceback" in errors else []
        return broken if self._busy() == 1 else [*broken, "the fleet is not as it was"]

    def owner(self) -> bytes:
        """What the owner's browser gets."""
        return _call(self.page["port"], f"/{self.token}/")

    def another_page(self) -> subprocess.Popen[bytes]:
        """The server has ended and its port is free, or taken; the next one has begun."""
        os.kill(self.page["pid"], signal.SIGTERM)
        until(lambda: not Path(f"/proc/{self.page['pid']}").exists())
        taken = self.tries("the freed port")
        assert taken.stdout is not None and taken.stdout.readline() == "listens\n"
        self.taken, before = taken, self.page
        words = [*user(USER), sys.executable, "-P", "-m", "beads_workers", "watch", "--web"]
        quiet = subprocess.DEVNULL
        server = subprocess.Popen(
            words, cwd=self.folder, env=environment(self.folder), stdout=quiet, stderr=quiet
        )
        until(lambda: self._read_page() not in ({}, before))
        self.page = self._read_page() | {"pid": server.pid}
        return server

    def _read_page(self) -> dict[str, Any]:
        text = (self.folder / ".beads-workers/web.json").read_text()
        return json.loads(text) if text.endswith("\n") else {}  # It is just being written.

    def close(self) -> None:
        """All of it ends."""
        ours(USER, self.folder, "stop")
        if Path(f"/proc/{self.page['pid']}").exists():
            os.kill(self.page["pid"], signal.SIGTERM)
        shutil.rmtree(self.folder)


def plain(attacked: Attacked, way: str) -> list[str]:
    """One of ``SCRIPT``'s."""
    attacker = attacked.tries(way)
    output, errors = attacker.communicate(timeout=SECONDS_MAX)
    return attacked.judge(way, output, errors)


def endless(attacked: Attacked, way: str) -> list[str]:
    """The owner is let in, also while somebody holds and renews all connections there are."""
    attacker = attacked.tries(way)
    assert attacker.stdout is not None and attacker.stdout.readline() == "holding\n"
    let_in = 0
    for _ in range(OWNER_TRIES):
        with suppress(OSError):
            let_in += attacked.owner().startswith(b"HTTP/1.0 200")
    output, errors = attacker.communicate(timeout=SECONDS_MAX)
    broken = [f"the owner was let in {let_in} of {OWNER_TRIES} times"]
    wrong = attacked.judge(way, f"holding\n{output}", errors)
    return [*wrong, *(broken if let_in < OWNER_TRIES else [])]


def headers(attacked: Attacked, way: str) -> list[str]:
    """What keeps the page out of frames, caches, referrers and cookies."""
    head = attacked.owner().partition(b"\r\n\r\n")[0].decode()
    wanted: tuple[str, ...] = (
        "frame-ancestors 'none'",
        "default-src 'none'",
        "Referrer-Policy: no-referrer",
    )
    wanted += ("Cache-Control: no-store", "Cross-Origin-Resource-Policy: same-origin")
    return [f"no {each}" for each in wanted if each not in head] + (
        ["a cookie, which all ports get"] if "set-cookie" in head.lower() else []
    )


def freed_port(attacked: Attacked, way: str) -> list[str]:
    """He has the port of a server that has ended, hears an open page, and passes on what the next
    server says; the token that the page had is worth nothing there."""
    old, key = attacked.page["port"], attacked.page["key"].encode()
    token = attacked.token
    server = attacked.another_page()
    try:
        print(attacked.page["port"], file=attacked.taken.stdin, flush=True)
        told = json.loads(_call(old, "/resume?nonce=ab12").partition(b"\r\n\r\n")[2])
        right = hmac.new(key, f"server {old} ab12 {told['challenge']}".encode(), "sha256")
        broken = ["the page believes him"] if told["proof"] == right.hexdigest() else []
        if _call(attacked.page["port"], f"/{token}/").split()[1] != b"404":
            broken.append("the token outlived its server")
        if attacked.page["port"] == old:
            broken.append("not tried: the port was not taken")
        output, errors = attacked.taken.communicate(timeout=SECONDS_MAX)
        return broken + attacked.judge(way, output + "tried", errors)
    finally:
        server.terminate()
        server.wait()


def _call(port: int, path: str) -> bytes:
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nSec-Fetch-Site: same-origin\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), 5) as sock:
        sock.sendall(head.encode())
        return b"".join(iter(lambda: sock.recv(1 << 16), b""))


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in found] + [n for each in found for n in _children(int(each))]


OWNER_TRIES = 20
NAMES = re.findall(r'^    "([^"]+)": ', SCRIPT, re.MULTILINE)
WAYS: Mapping[str, Callable[[Attacked, str], list[str]]] = {
    "frames, caches, referrers, cookies": headers,
    **dict.fromkeys(NAMES, plain),
    "connections without end": endless,
    "the freed port": freed_port,  # It is the last one: the page is another one then.
}
"""Name -> what is tried; the answer is what is wrong."""
