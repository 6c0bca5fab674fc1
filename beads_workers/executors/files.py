"""Paths of a task's files: the issue as JSON, one log per attempt, and others.

Ids come from trackers and are untrusted; they become file names here and nowhere else.
"""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import replace

from beads_workers.core.base.model import Outcome, OutcomeKind

NAME_CHARS_MAX = 120
"""With ``.999.log`` and a temporary suffix this stays far below the 255 bytes of a name."""


def file_name(issue_id: str) -> str:
    """Return a file name for an id: one per id, with no slash, no leading dot or dash, and bounded.

    A character that is not a letter, digit, ``.``, ``_`` or ``-`` is percent-encoded (UTF-8). A
    name that gets too long ends in a hash of the whole id.
    """
    name = _UNSAFE.sub(_percent, issue_id)
    if name[:1] in (".", "-"):
        name = f"%{ord(name[0]):02X}{name[1:]}"
    if len(name) > NAME_CHARS_MAX:
        # Imported here: every worker would pay for the import, and such ids are rare.
        from hashlib import sha256

        whole = sha256(issue_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        name = f"{name[: NAME_CHARS_MAX - 33]}~{whole}"
    return name


def log_file(run_directory: str, issue_id: str, attempt: int) -> str:
    """Return the path of an attempt's log; a free retry has the same number, and adds to it."""
    return f"{run_directory}/logs/{file_name(issue_id)}.{attempt}.log"


def result_file(run_directory: str, issue_id: str, attempt: int) -> str:
    """Return the path of a function's result (JSON), if that is too long to be sent."""
    return f"{run_directory}/results/{file_name(issue_id)}.{attempt}.json"


def output_file(run_directory: str, worker_id: str) -> str:
    """Return the path of the output of a worker's running step, until the step has ended.

    The file then becomes the attempt's log; a step that prints nothing costs no file.
    """
    return f"{run_directory}/logs/.{file_name(worker_id)}.out"


def issue_file(run_directory: str, worker_id: str) -> str:
    """Return the path of the issue as JSON: ``BW_ISSUE_FILE``.

    There is one per worker, which has one task at a time. Beside a journal that is synced all the
    time, a new file for each task costs more than the task's own start.
    """
    return f"{run_directory}/issues/{file_name(worker_id)}.json"


def progress_file(run_directory: str, worker_id: str) -> str:
    """Return the path at which a task may report its progress: ``BW_PROGRESS``. One per worker; the
    task creates the file, and an older one is ignored."""
    return f"{run_directory}/issues/{file_name(worker_id)}.progress"


def place_file(run_directory: str, worker_id: str) -> str:
    """Return the path at which a PREPARE step names the folder of its worker's next steps.

    While its run lives, the worktree that the file names is in use.
    """
    return f"{run_directory}/issues/{file_name(worker_id)}.place"


def guards_folder(run_directory: str, worker_id: str) -> str:
    """Return the folder of the guards that an agent's worker puts before the tracker's program on
    ``PATH``."""
    return f"{run_directory}/guards/{file_name(worker_id)}"


def line_socket(run_directory: str, place: str) -> str:
    """Return the socket of the process that speaks to the hosts of a place."""
    return f"{run_directory}/places/{file_name(place)}"


def usage_file(run_directory: str, request_id: str) -> str:
    """Return the path at which an agent's attempt writes its usage, as it is reported."""
    return f"{run_directory}/usage/{file_name(request_id)}.jsonl"


def branch_part(issue_id: str) -> str:
    """Return one component of a branch's name for an id: one per id, and valid for git."""
    # ``~`` stands only before the hash of a name that was too long; git does not allow it.
    name = file_name(issue_id).replace("~", "+").replace("..", ".%2E")
    if name.endswith((".", ".lock")):
        dot = name.rindex(".")
        name = f"{name[:dot]}%2E{name[dot + 1 :]}"
    return name


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))


_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


RESULT_BYTES_MAX = 16 << 20
"""Bytes of a result in a file: the largest frame of RRQ, and more than any script's output."""


def with_result(outcome: Outcome | None) -> Outcome | None:
    """Return the outcome with the result itself, if that is in a file; any worker may have named
    the file."""
    if outcome is None or not outcome.result_file:
        return outcome
    try:
        return replace(outcome, result=_read(outcome.result_file), result_file="")
    except (OSError, ValueError, RecursionError) as error:
        return Outcome(OutcomeKind.ERROR, f"its result cannot be read: {error}"[:500])


def _read(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, encoding="utf-8") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > RESULT_BYTES_MAX:
            raise ValueError(f"no file, or longer than {RESULT_BYTES_MAX} bytes")
        text = file.read()
    json.dumps(json.loads(text), allow_nan=False)  # Only Python reads NaN, and 1e999 as infinity.
    return text
