"""A whole worker of the protocol, version 1 and 1.1, and one mutant for each of its requirements.

    python reference_worker.py [--features NAME,...] [--prefetch N] [--break ID] -- COMMAND [ARG]...

``--break`` names the one requirement that it does not keep to. Without ``--features`` it speaks
version 1. Small and alone: it is started for each case.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

DELAYS = (1.0, 2.0, 4.0)
TICK_SECONDS = 0.05
HEARTBEAT_SECONDS = 1
KNOWN = frozenset({"SHUTDOWN", "TASK", "WAIT", "CANCEL", "BATCH", "STATUS", "PAUSE", "RESUME"})
AGAIN = "x-again"
"""A feature that only this worker has: it connects anew when its connection is lost."""
KEYS = frozenset({"type", "worker_id", "timestamp", "issue_id", "priority", "title"})


class Worker:
    """``broken``: the requirement that this one breaks."""

    def __init__(self, command: list[str], features: list[str], prefetch: int, broken: str) -> None:
        self.command, self.features, self.prefetch = command, features, prefetch
        self.broken = broken
        self.link: socket.socket = socket.socket(socket.AF_UNIX)
        self.buffer = b""
        self.name = f"W{os.getpid()}"
        self.state = "connecting"  # asked, waiting or busy
        self.ready_at: float | None = None
        self.queue: list[dict[str, Any]] = []
        self.task: dict[str, Any] = {}
        self.child: subprocess.Popen[bytes] | None = None
        self.began = self.spoke = self.asked_at = time.monotonic()
        self.taken = ""
        self.called = ""
        self.ending = ""
        self.is_paused = False
        self.readies = 0
        self.others: list[subprocess.Popen[bytes]] = []

    def breaks(self, *requirements: str) -> bool:
        return self.broken in requirements

    # --- the connection ---------------------------------------------------------------------------

    def connect(self) -> None:
        pid = os.environ.get("ORCHESTRATOR_PID", "")
        path = os.environ.get("BW_SOCKET") or f"/tmp/beads-workers-{pid}.sock"
        if self.breaks("W-2.2-1"):
            path = f"/tmp/beads-workers-{pid}.sock"
        if self.breaks("W-2.2-2"):
            path = os.environ.get("BW_SOCKET", "/nowhere")
        quick = self.breaks("W-2.2-1", "W-2.2-2", "W-2.3-2", "W-2.3-3")
        for delay in (*(() if quick else DELAYS), None):
            try:
                self.link = socket.socket(socket.AF_UNIX)
                self.link.connect(path)
            except OSError:
                if delay is None:
                    sys.exit(0 if self.breaks("W-2.3-3") else 1)
                time.sleep(delay)
            else:
                return

    def send(self, kind: str, **fields: Any) -> None:
        self.spoke = time.monotonic()
        name: Any = 7 if self.breaks("W-4.1-1") else self.name
        message = {"type": kind, "worker_id": name, "timestamp": time.time(), **fields}
        text = json.dumps(message, indent=1 if self.breaks("W-3-1") else None)
        try:
            self.link.sendall(text.encode() + b"\n")
        except OSError:
            pass  # The end of the stream is read next.

    def ready(self) -> None:
        fields: dict[str, Any] = {}
        self.readies += 1
        if self.features and not (self.breaks("W-9.1-1") and self.readies > 1):
            fields = {"version": "1.1", "features": [f for f in self.features if f != "1.1"]}
            if self.prefetch:
                fields["prefetch_count"] = self.prefetch
            if "heartbeat" in self.features:
                fields["heartbeat_seconds"] = HEARTBEAT_SECONDS
            if "batch" in self.features:
                fields["batch_size"] = 4
        self.send("READY", **fields)
        self.state, self.ready_at, self.asked_at = "asked", None, time.monotonic()

    def run(self) -> None:
        self.connect()
        if self.breaks("W-2.3-1"):
            self.send("HELLO")
        self.ready()
        while True:
            if select.select([self.link], [], [], TICK_SECONDS)[0]:
                self.receive()
            self.tick(time.monotonic())

    def receive(self) -> None:
        try:
            data = self.link.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self.lost()
            return
        self.buffer += data
        if self.breaks("W-3-2"):
            lines, self.buffer = [self.buffer], b""
        else:
            *lines, self.buffer = self.buffer.split(b"\n")
        for line in lines:
            self.read_line(line)

    def read_line(self, line: bytes) -> None:
        if not line.removesuffix(b"\r"):
            if self.breaks("W-3-3"):
                sys.exit(1)
            return
        if self.breaks("W-3-5") and len(line) > 65_536:
            return
        try:
            message = json.loads(line.decode("utf-8"))
            assert isinstance(message, dict) and isinstance(message.get("type"), str)
        except (ValueError, AssertionError, RecursionError):
            if self.breaks("W-8-1"):
                sys.exit(1)
            return
        if self.breaks("W-6-1"):
            self.called = self.called or str(message.get("worker_id"))
            if message.get("worker_id") != self.called:
                return
        if message["type"] not in KNOWN:
            if self.breaks("W-8-2"):
                sys.exit(1)
            return
        getattr(self, "hear_" + message["type"].lower())(message)

    # --- what is heard ----------------------------------------------------------------------------

    def hear_shutdown(self, message: dict[str, Any]) -> None:
        known = message.get("reason") in ("user_requested", "idle_timeout", "error")
        if self.breaks("W-4.7-4") and not known:
            return
        if self.breaks("W-9.10-3") and self.is_paused:
            return
        if not self.breaks("W-9.5-3", "W-9.12-2"):
            self.give_back(self.queue)
        if self.child is not None:
            self.end_task()
            if not self.breaks("W-4.7-3"):
                self.bd("update", self.task["issue_id"], "--status=open", "--assignee=")
        self.link.close()
        sys.exit(3 if self.breaks("W-4.7-1") else 0)

    def give_back(self, tasks: list[dict[str, Any]]) -> None:
        for task in tasks:
            fields = {"outcome": "cancelled", "error_detail": "returned_unstarted"}
            named = {"issue_id": task["issue_id"], "request_id": task["request_id"]}
            self.send("FAILED", error="not begun", duration_ms=0, version="1.1", **fields, **named)

    def lost(self) -> None:
        if self.buffer and self.breaks("W-3-4"):
            self.read_line(self.buffer)
            time.sleep(0.5)
        if self.breaks("W-7-4"):
            self.connect()
            self.ready()
            return
        if self.child is not None and not self.breaks("W-7-1"):
            self.end_task()
            if not self.breaks("W-7-3"):
                self.bd("update", self.task["issue_id"], "--status=open", "--assignee=")
        if AGAIN in self.features:
            self.child, self.queue, self.task, self.buffer = None, [], {}, b""
            self.connect()
            self.ready()
            return
        sys.exit(0 if self.breaks("W-7-2") else 1)

    def hear_wait(self, message: dict[str, Any]) -> None:
        seconds = message.get("wait_seconds")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds % 1:
            if not self.breaks("W-8-4"):
                return
            seconds = 1
        if self.breaks("W-4.1-3") and not isinstance(seconds, int):
            return
        if self.state == "busy" and not self.breaks("W-5.2-3"):
            return
        if self.breaks("W-5.2-5") and self.ready_at is not None:
            return
        least = 0 if self.breaks("W-4.6-3") else 1
        seconds = 0 if self.breaks("W-4.6-1") else min(max(seconds, least), 3600)
        seconds *= 2 if self.breaks("W-4.6-1 twice as long") and seconds > 1 else 1
        if self.breaks("W-4.6-2"):
            time.sleep(seconds)
        self.ready_at = time.monotonic() + seconds
        if self.state != "busy":
            self.state = "waiting"

    def hear_task(self, message: dict[str, Any]) -> None:
        if not _is_whole(message) and not self.breaks("W-8-3"):
            return
        if self.breaks("W-4.1-2") and message.keys() - KEYS:
            return
        if self.breaks("W-5.2-4") and self.state == "waiting":
            return
        known = [self.task.get("issue_id"), *(task["issue_id"] for task in self.queue)]
        if self.child is not None and message["issue_id"] in known:
            if self.breaks("W-5.2-1"):
                self.others.append(self.spawn(message))
            return
        again = self.taken == message.get("request_id")
        if self.taken and again and not self.breaks("W-9.2-1"):
            return
        if self.child is None and not self.is_paused:
            self.begin(message)
        elif self.is_paused or len(self.queue) < self.prefetch:
            self.queue.append(message)
            if self.breaks("W-9.5-1"):
                self.others.append(self.spawn(message))
        elif not self.breaks("W-5.2-2"):
            said = {"error": "busy", "duration_ms": 0, **self.version_of(message)}
            self.send("FAILED", issue_id=message["issue_id"], **said)

    def hear_batch(self, message: dict[str, Any]) -> None:
        tasks = [{**self.head(message), **task, "version": "1.1"} for task in message["tasks"]]
        if self.breaks("W-9.12-1 the last before its time"):
            tasks.insert(1, tasks.pop())
        self.queue += reversed(tasks) if self.breaks("W-9.12-1") else tasks
        self.begin_next()

    def head(self, message: dict[str, Any]) -> dict[str, Any]:
        return {key: message[key] for key in ("type", "worker_id", "timestamp")}

    def hear_cancel(self, message: dict[str, Any]) -> None:
        queued = [task for task in self.queue if task["issue_id"] == message["issue_id"]]
        if queued:
            if not self.breaks("W-9.5-4"):
                self.queue = [task for task in self.queue if task not in queued]
                self.give_back(queued)
            return
        mine = message["issue_id"] == self.task.get("issue_id") or self.breaks("W-9.4-2")
        revoked = message.get("reason") == "revoked" and not self.breaks("W-9.4-3")
        if self.child is not None and mine and not revoked:
            self.ending = "error" if self.breaks("W-9.4-1") else "cancelled"
            if self.breaks("W-9.4-1 said too early"):
                os.killpg(self.child.pid, signal.SIGTERM)
                self.answer("cancelled")
                return
            self.end_task()

    def hear_status(self, message: dict[str, Any]) -> None:
        state = "idle" if self.state == "asked" or self.breaks("W-9.9-1") else self.state
        named = {"issue_id": self.task["issue_id"]} if self.child is not None else {}
        self.send("STATUS", version="1.1", state="paused" if self.is_paused else state, **named)

    def hear_pause(self, message: dict[str, Any]) -> None:
        self.is_paused = True
        if self.child is not None and not self.breaks("W-9.10-1"):
            os.killpg(self.child.pid, signal.SIGSTOP)

    def hear_resume(self, message: dict[str, Any]) -> None:
        if not self.breaks("W-9.10-2"):
            self.is_paused = False
            if self.child is not None:
                os.killpg(self.child.pid, signal.SIGCONT)
            self.begin_next()

    # --- a task -----------------------------------------------------------------------------------

    def claims(self, task: dict[str, Any]) -> bool:
        if "version" not in task:
            return not (self.breaks("W-9.1-4") and "grouped" in self.features)
        if self.breaks("W-9.3-1", "W-9.3-3"):
            return True
        if self.breaks("W-9.3-2") or "grouped" in self.features:
            return False
        return bool(task.get("claims") == "worker")

    def bd(self, *words: str) -> bool:
        if not self.claims(self.task):
            return True
        return subprocess.call(["bd", *words], stdout=2) == 0

    def begin(self, task: dict[str, Any]) -> None:
        self.task, self.ending, self.began = task, "", time.monotonic()
        self.taken, self.state, self.ready_at = task.get("request_id", ""), "busy", None
        claim = ("update", str(task["issue_id"]), "--status=in_progress")
        if not self.breaks("W-4.3-1") and not self.bd(*claim) and not self.breaks("W-4.3-3"):
            self.answer("claim failed")
            return
        self.child = self.spawn(task)
        if self.breaks("W-4.3-2"):
            self.others.append(self.spawn(task))
        if self.breaks("W-5.1-3"):
            self.send("READY")

    def spawn(self, task: dict[str, Any]) -> "subprocess.Popen[bytes]":
        words = [*self.command, str(task["issue_id"])]
        payload = task.get("payload", {})
        if "payload_file" in task and not self.breaks("W-9.2-3 in a file"):
            payload = json.loads(Path(task["payload_file"]).read_text())
        if "command" in payload and not self.breaks("W-9.2-3"):
            words = payload["command"]
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=2, start_new_session=True)

    def end_task(self) -> None:
        """All of its processes are gone behind this."""
        for child in [self.child, *self.others]:
            if child is not None and self.breaks("W-4.7-2"):
                child.kill()
            elif child is not None and child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            if child is not None:
                child.wait()

    def answer(self, error: str) -> None:
        version, self.child = self.version_of(self.task), None
        ended = {"issue_id": self.task["issue_id"], "duration_ms": self.milliseconds()}
        if self.breaks("W-4.4-1"):
            error = error or "it succeeded"
        if error:
            outcome = {"outcome": self.ending or "error"} if version else {}
            said = "" if self.breaks("W-4.5-1") else error
            self.send("FAILED", **ended, error=said, **version, **outcome)
        for _ in range(0 if error else 2 if self.breaks("W-5.1-5") else 1):
            self.send("DONE", **ended, **version)
        if self.queue and (not self.is_paused or self.breaks("W-9.10-1")):
            if self.breaks("W-9.5-2"):
                self.ready()
            self.begin_next()
        elif not self.queue and not self.says_no_ready(error):
            self.ready()

    def says_no_ready(self, error: str) -> bool:
        late = self.readies >= 4 and self.breaks("W-5.1-1 after the fourth task")
        return late or bool(error and self.breaks("W-5.1-1"))

    def begin_next(self) -> None:
        if self.queue and self.child is None:
            self.begin(self.queue.pop(0))

    def version_of(self, task: dict[str, Any]) -> dict[str, str]:
        says = "version" in task
        if self.breaks("W-9.1-2", "W-9.1-3"):
            says = self.breaks("W-9.1-2")
        return {"version": "1.1"} if says and self.features else {}

    def milliseconds(self) -> int:
        return int((time.monotonic() - self.began) * 1000)

    # --- time -------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        if self.ready_at is not None and now >= self.ready_at:
            self.ready()
        silent = now - self.asked_at if self.state == "asked" else 0.0
        if self.breaks("W-5.1-2") and silent > 0.3:
            self.ready()
        if self.breaks("W-5.1-4") and silent > 1.0:
            sys.exit(1)
        silent_at_work = self.breaks("W-9.8-1") and self.child is not None
        beats = "heartbeat" in self.features and not silent_at_work
        if beats and now - self.spoke > HEARTBEAT_SECONDS / 2:
            self.send("HEARTBEAT", version="1.1")
        if self.child is None:
            return
        limit = self.task.get("timeout_seconds")
        if limit and now - self.began > limit and not self.breaks("W-9.2-2"):
            self.ending = "timeout"
            self.end_task()
        if "request_id" in self.task or self.breaks("W-9.6-1"):
            self.tell_progress(now)
        if (status := self.child.poll()) is not None:
            self.task_over(status)

    def tell_progress(self, now: float) -> None:
        if self.features and now - self.spoke > 0.2 and not self.breaks("W-9.8-1"):
            named = {"issue_id": self.task["issue_id"], "percent": 40, "activity": "works"}
            self.send("PROGRESS", version="1.1", **named)

    def task_over(self, status: int) -> None:
        for other in self.others:
            other.wait()
        issue_id = str(self.task["issue_id"])
        if self.breaks("W-4.3-1"):
            self.bd("update", issue_id, "--status=in_progress")
        if (status == 0 and not self.breaks("W-4.3-4")) or self.breaks("W-4.3-5"):
            self.bd("close", issue_id)
        self.answer("" if status == 0 else self.ending or f"exit status {status}")


def _is_whole(message: dict[str, Any]) -> bool:
    priority, issue_id = message.get("priority"), message.get("issue_id")
    number = isinstance(priority, int | float) and not isinstance(priority, bool)
    return (
        number
        and priority in range(5)
        and isinstance(issue_id, str)
        and issue_id != ""
        and isinstance(message.get("title"), str)
        and isinstance(message.get("worker_id"), str)
        and isinstance(message.get("timestamp"), int | float)
    )


def main() -> None:
    """Read the command line, and work."""
    words = sys.argv[1:]
    options = dict(zip(words[: words.index("--") : 2], words[1::2], strict=False))
    features = [name for name in options.get("--features", "").split(",") if name]
    prefetch = int(options.get("--prefetch", "0"))
    Worker(words[words.index("--") + 1 :], features, prefetch, options.get("--break", "")).run()


if __name__ == "__main__":
    main()
