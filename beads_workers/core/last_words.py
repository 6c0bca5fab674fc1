"""What a worker has said last, and leaves word of where its orchestrator may not have read it.

Source: docs/PROTOCOL.md, "Last words".
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from beads_workers.core.message_types import NOT_BEGUN, Done, Failed
from beads_workers.core.worker_events import LeaveWord, Send


class LastWords:
    """``is_alone``: the connection is lost, and nobody reads what is said from now on."""

    def __init__(self, ahead: int) -> None:
        """``ahead``: so many tasks its worker keeps; no more than these and one can be answered
        before the orchestrator has read any of the answers."""
        self.is_alone = False
        self._said: deque[tuple[str, Done | Failed]] = deque(maxlen=ahead + 1)

    def say(self, answer: Done | Failed, request_id: str) -> Send | LeaveWord:
        """What becomes of an answer to the TASK with this ``request_id``.

        A failure that nobody hears is none: its task is begun again.
        """
        if isinstance(answer, Failed) and answer.error_detail != NOT_BEGUN:
            return Send(answer)
        if self.is_alone:
            return LeaveWord(replace(answer, request_id=request_id))
        # What is made of it here is made for each task: no more than has to be.
        self._said.append((request_id, answer))
        return Send(answer)

    def leave(self) -> list[LeaveWord]:
        """The connection is lost: word of what may not have been read."""
        self.is_alone = True
        said = [LeaveWord(replace(answer, request_id=named)) for named, answer in self._said]
        self._said.clear()
        return said
