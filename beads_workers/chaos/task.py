"""The command of every issue of ``chaos``: ``python -I -S task.py FOLDER``.

Runs alone, without the package: it must start fast. It logs its start, behaves as its issue's title
says, and logs its end, each with one line that is appended whole. While it lives it holds a lock
named after its issue, so that a second one beside it is noticed. In a worktree it leaves a file,
which is to land.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time

LEFT_BEHIND_SECONDS = 120.0
EXIT_TEMPFAIL = 75


def main(folder: str) -> int:
    """Make one attempt; return its exit status."""
    issue_id = os.environ["BW_ISSUE_ID"]
    kind, seconds = os.environ["BW_ISSUE_TITLE"].split()
    if kind == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    lock = os.open(f"{folder}/locks/{issue_id}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _write(folder, "overlap", issue_id)
    _write(folder, "begin", issue_id)
    if kind == "escapes":
        _leave_behind(lock)
    time.sleep(float(seconds))
    if kind == "hopeless" or (kind == "fails-once" and _first_time(folder, issue_id)):
        _write(folder, "fail", issue_id)
        print("it does not work")
        return 1
    if kind == "later-once" and _first_time(folder, issue_id):
        _write(folder, "later", issue_id)
        return EXIT_TEMPFAIL
    if worktree := os.environ.get("BW_WORKTREE"):
        name = f"{worktree}/{'broken' if kind == 'breaks' else 'done'}-{issue_id}"
        with open(name, "w") as file:
            file.write(f"{issue_id}\n")
    _write(folder, "done", issue_id)
    return 0


def _write(folder: str, word: str, issue_id: str) -> None:
    line = {
        "word": word,
        "issue": issue_id,
        "run": os.environ["BW_RUN_ID"],
        "worker": os.environ["BW_WORKER_ID"],
        "attempt": int(os.environ["BW_ATTEMPT"]),
        "pid": os.getpid(),
        "at": round(time.time(), 3),
    }
    log = os.open(f"{folder}/tasks.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(log, json.dumps(line).encode("ascii") + b"\n")
    os.close(log)


def _first_time(folder: str, issue_id: str) -> bool:
    try:
        os.close(os.open(f"{folder}/locks/{issue_id}.once", os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True


def _leave_behind(lock: int) -> None:
    """Leave a process that cannot be found by group, session or parent, and ignores TERM."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.close(lock)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(LEFT_BEHIND_SECONDS)
        os._exit(0)
    os.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
