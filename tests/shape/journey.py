"""From DONE to the next TASK: which functions of ours a real orchestrator calls, and in how many
files.

The orchestrator is started as ``start`` does it, only with a profile function set before its loop
(``python -m tests.shape.journey FD FILE``).
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from beads_workers.core.base.policy import Policy
from beads_workers.core.base.settings import EndRules, FleetSettings, Work
from beads_workers.core.base.wire import Done, Task, encode
from beads_workers.runtime.zygote import start_zygote

ROOT = Path(__file__).parents[2]
PACKAGE = str(ROOT / "beads_workers") + os.sep
ISSUES = 40
UNUSED = {
    "agents": ("AgentWork.choose", "AgentWork.ended"),
    "batch": ("Queueing.behind",),
    "followers": ("ControlServer.publish", "Followers.publish", "_Share.add"),
    "heartbeats": ("Connection.silent_from", "Heartbeats.announced"),
    "pause": ("Connection.is_paused",),
    "prefetch": ("Queueing.prefetch",),
    "priority": ("ClaimScheduler.note_free",),
    "receipts": ("read_receipt",),
    "strangers": ("Connections._reregistered", "Tasks.orphaned"),
    "traces": ("Traces.begin", "headers_of", "read_headers"),
}
"""Functions that this run calls only to find that it does not use a feature; found by reading.
``strangers``: workers that we have not started, or that claim by themselves."""
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Journey:
    """``functions``: different ones, as ``file:name``; ``calls``: how many in all."""

    functions: tuple[str, ...]
    calls: int

    @property
    def files(self) -> tuple[str, ...]:
        """In which they stand."""
        return tuple(sorted({name.partition(":")[0] for name in self.functions}))


def feature_of(function: str) -> str:
    """The unused feature that this function (``file:name``) is called for; "" for none."""
    name = function.partition(":")[2].partition(".<locals>")[0]
    return next((feature for feature, names in UNUSED.items() if name in names), "")


class Traced:
    """A profile function: gathers what is called from the reading of a DONE on, and writes it down
    when a TASK becomes bytes."""

    def __init__(self, told: Path) -> None:
        self._told = told
        self._calls: list[CodeType] | None = None

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "return" and isinstance(argument, Done):
            self._calls = self._calls or [frame.f_code]
        elif event == "call" and self._calls and frame.f_code.co_filename.startswith(PACKAGE):
            self._calls.append(frame.f_code)
            if frame.f_code is encode.__code__ and isinstance(frame.f_locals["message"], Task):
                self._arrived(self._calls)
                self._calls = None

    def _arrived(self, calls: list[CodeType]) -> None:
        names = [f"{c.co_filename.removeprefix(PACKAGE)}:{c.co_qualname}" for c in calls]
        with self._told.open("a", encoding="utf-8") as file:
            file.write(json.dumps([sorted(set(names)), len(names)]) + "\n")


def serve(fd: int, told: Path) -> int:
    """``beads_workers.runtime.main``, seen."""
    zygote = start_zygote()
    client = socket.socket(fileno=fd)
    client.set_inheritable(False)
    from beads_workers.runtime.fleet import run_fleet

    sys.setprofile(Traced(told))
    return run_fleet(client, zygote)


def travel() -> Journey:
    """The journey of a short task as it is most of the time, in a fleet of two workers."""
    with tempfile.TemporaryDirectory(prefix="bw-shape-") as name:
        folder = Path(name)
        run = [sys.executable, "-m", "beads_workers"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run([*run, "init"], cwd=folder, env=environment, check=True, capture_output=True)
        issues = "".join(
            json.dumps({"id": f"s-{n}", "title": "go", "status": "open"}) + "\n"
            for n in range(ISSUES)
        )
        subprocess.run(
            [*run, "import", "-"], cwd=folder, env=environment, check=True, capture_output=True,
            input=issues.encode(),
        )  # fmt: skip
        told = folder / "journeys"
        told.touch()
        _run(folder, told, environment)
        lines = [json.loads(line) for line in told.read_text(encoding="utf-8").splitlines()]
    assert lines, "no turn of the loop has heard a DONE and sent a TASK"
    middle = sorted(lines, key=lambda line: len(line[0]))[len(lines) // 2]
    return Journey(tuple(middle[0]), middle[1])


def _run(folder: Path, told: Path, environment: dict[str, str]) -> None:
    state = folder / ".beads-workers"
    settings = FleetSettings(
        workers=1,
        source="sqlite",
        tracker=str(state / "tracker.db"),
        project=str(folder),
        state_directory=str(state),
        work=Work(command=("true",)),
        policy=Policy(),
        ending=EndRules(until_empty=True),
        owned=True,
        folder=str(folder),
    )
    ours, theirs = socket.socketpair()
    with ours, theirs:
        argv = [sys.executable, "-m", "tests.shape.journey", str(theirs.fileno()), str(told)]
        served = subprocess.Popen(
            argv, cwd=ROOT, env=environment, pass_fds=(theirs.fileno(),), start_new_session=True
        )
        theirs.close()
        ours.sendall(json.dumps(asdict(settings)).encode() + b"\n")
        ours.settimeout(PATIENCE_SECONDS)
        while ours.recv(1 << 16):
            pass  # Until it has ended.
        served.wait(PATIENCE_SECONDS)


if __name__ == "__main__":
    sys.exit(serve(int(sys.argv[1]), Path(sys.argv[2])))
