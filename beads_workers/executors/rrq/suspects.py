"""Jobs that were in a process together with others when it died: one of them may be why."""

from __future__ import annotations

SUSPECTS_MAX = 1000
"""More are forgotten, oldest first: they run among others again."""


class Suspects:
    """By job id. Each is to run alone, until it has been answered."""

    def __init__(self) -> None:
        self._jobs: dict[str, None] = {}

    def add(self, job_id: str) -> None:
        """It may be guilty of a death."""
        self._jobs[job_id] = None
        if len(self._jobs) > SUSPECTS_MAX:
            del self._jobs[next(iter(self._jobs))]

    def clear_of(self, job_id: str) -> None:
        """It was answered: it is none any more."""
        self._jobs.pop(job_id, None)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._jobs

    def __bool__(self) -> bool:
        return bool(self._jobs)
