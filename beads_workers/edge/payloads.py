"""Payloads that are too large for a line: read from the file that the TASK names."""

from __future__ import annotations

import os
from dataclasses import replace

from beads_workers.core.json_fields import ProtocolError
from beads_workers.core.message_types import Task
from beads_workers.core.messages import parse_object


def with_payload(task: Task) -> Task:
    """Read a large payload from its file, which then goes: it may hold secrets, and each attempt
    gets one of its own. One that cannot be read stays named in the task."""
    if task.payload_file is None:
        return task
    try:
        with open(task.payload_file, "rb") as file:
            payload = parse_object(file.read())
    except (OSError, ValueError, ProtocolError):
        return task
    try:
        os.unlink(task.payload_file)  # noqa: PTH108 - no Path here
    except OSError:
        pass  # A folder that cannot be written: it goes with the run.
    return replace(task, payload=payload, payload_file=None)
