"""What others' queues rely on, with real programs: RRQ's orchestrators, a Redis with Hero's jobs.

    scripts/prove queues
    python -m tests.proof.queues [--cases N] [--only NAME] [--json] [--progress]

``parents``: an executor whose orchestrator is killed, at each 50 ms after its first line, is gone
within 3 s. ``first``: the first request after its port accepts takes 10 ms more than the tenth at
most, or is no more times as slow as with rrq's own executor beside it. ``deadlines``: with
deadlines of 2 s no job is in the dead letter queue, on a machine with ten busy processes.
``hosts``: eight processes for functions there are started once. ``dependents`` and ``stops``:
Hero's jobs, their queue and their stop requests in every order.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from beads_workers.integrations.rrq.wire import V1, V2
from tests.proof.upstream import busy
from tests.support.fleet import Fleet
from tests.support.hero_client import HeroPlace, TextbookClient
from tests.support.peers import HANDLERS_FOLDER, OLD, VERSIONS, Redis, rrq_of
from tests.support.rrq_client import Client, connected, request
from tests.support.rrq_orchestrator import OUR_EXECUTOR, Orchestrator

GONE_SECONDS = 3.0
STEP_SECONDS = 0.05
BUSY = 10
"""Processes that only compute, where a loaded machine is asked for."""
DEADLINE_SECONDS = 2
JOBS = 40
HOSTS = 8
CALLS = 10
PATIENCE_SECONDS = 120.0
CONNECT_SECONDS = 15.0
"""What an orchestrator of RRQ gives an executor for its start."""
MORE_SECONDS = 0.01
"""So much more than the tenth may the first request take, whatever rrq's own does."""


@dataclass(slots=True)
class Account:
    """What ``--json`` prints. ``figures``: for people."""

    cases: int = 0
    figures: dict[str, str] = field(default_factory=dict)
    broken: dict[str, list[str]] = field(default_factory=dict)

    def note(self, what: str, wrong: str = "") -> None:
        """One case more of this, and what is wrong with it."""
        self.cases += 1
        found = self.broken.setdefault(what, [])
        if wrong:
            found.append(wrong)

    def told(self) -> dict[str, Any]:
        """As ``scripts/prove`` reads it."""
        promises = [{"text": k, "broken": v, "seconds": None} for k, v in self.broken.items()]
        return {"cases": self.cases, "figures": self.figures, "promises": promises}


# --- RRQ's executor, started by hand -------------------------------------------------------------


def free_port() -> int:
    """One that nobody has now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def place_of(version: str, folder: Path, number: int) -> Path | int:
    """Where an executor of that version listens."""
    return folder / f"{number}.sock" if version == OLD else free_port()


def told(version: str, place: Path | int) -> tuple[list[str], dict[str, str]]:
    """How an orchestrator of that version names the place: arguments and environment."""
    if version == OLD:
        return [], {"RRQ_EXECUTOR_SOCKET": str(place)}
    return ["--tcp-socket", f"127.0.0.1:{place}"], {}


def mark(number: int) -> dict[str, str]:
    """By which whatever an executor has started is found."""
    return {"BW_PROOF_OF_QUEUES": f"{os.getpid()}-{number}"}


def marked(with_mark: dict[str, str]) -> list[int]:
    """The processes that have it."""
    ((name, text),) = with_mark.items()
    wanted, found = f"{name}={text}".encode(), []
    for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        try:
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(int(pid))
        except OSError:
            continue  # It has just ended.
    return found


FIRST_LINE = (
    "import os, beads_workers; os.write(1, b'!'); from beads_workers.cli import app; app.main()"
)


def parents(account: Account, cases: int, folder: Path) -> None:
    """Its orchestrator is killed at each 50 ms after the first line, up to 2 s."""
    took = []
    for number in range(cases):
        seconds = STEP_SECONDS * (number % 40)
        version = VERSIONS[number % 2]
        place = place_of(version, folder, number)
        after = killed_parent(folder, version, place, number, seconds)
        took.append(after)
        late = f"{version}: killed {seconds:.2f} s after its first line, gone after {after:.1f} s"
        what = "whose orchestrator is killed is gone within 3 s"
        account.note(what, late if after > GONE_SECONDS else "")
    worst = f"gone after {statistics.median(took):.2f} s, {max(took):.2f} s at most"
    account.figures["parents"] = f"{sum(t <= GONE_SECONDS for t in took)} of {cases}; {worst}"


def killed_parent(
    folder: Path, version: str, place: Path | int, number: int, seconds: float
) -> float:
    """How long after its orchestrator it was gone, with all that it had started."""
    shutil.copy(HANDLERS_FOLDER / "work.py", folder)
    more, variables = told(version, place)
    command = [sys.executable, "-c", FIRST_LINE, "rrq-executor", "-n", "4"]
    command += ["--allow-module", "work", "--prefix", "work", *more]
    ours = mark(number)
    with subprocess.Popen(
        ["sh", "-c", '"$@" 2>/dev/null & wait', "sh", *command],
        cwd=folder,
        env={**os.environ, **variables, **ours},
        stdout=subprocess.PIPE,
    ) as parent:
        assert parent.stdout is not None and parent.stdout.read(1) == b"!"
        time.sleep(seconds)
        parent.kill()
        parent.wait()
        began = time.monotonic()
        while left := marked(ours):
            if time.monotonic() > began + PATIENCE_SECONDS:
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
                break
            time.sleep(0.02)
        return time.monotonic() - began


@contextmanager
def serving(
    folder: Path, version: str, command: Sequence[str], number: int, environment: dict[str, str]
) -> Iterator[Path | int]:
    """That executor, from its start on, until it ends."""
    place = place_of(version, folder, number)
    more, variables = told(version, place)
    with (folder / f"{number}.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, *more],
            cwd=folder,
            env={**environment, **variables},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield place
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def latencies(version: str, place: Path | int) -> list[float]:
    """Of the first requests after the port accepts, one after another."""
    connected(place).close()
    client, found = Client(place), []
    wire = V1 if version == OLD else V2
    for number in range(CALLS):
        began = time.monotonic()
        assert client.ask(request("add", version=wire, a=number, b=1)).result == number + 1
        found.append(time.monotonic() - began)
    client.close()
    return found


def first(account: Account, cases: int, folder: Path) -> None:
    """The first request and the tenth, of ours and of rrq's own executor in turn."""
    shutil.copy(HANDLERS_FOLDER / "work.py", folder)
    found: dict[tuple[str, str], list[list[float]]] = {}
    for number in range(cases):
        version = VERSIONS[number % 2]
        rrq, workers = rrq_of(version), (1, 2, 4, 8)[number // 2 % 4]
        ours = [*OUR_EXECUTOR, "-n", str(workers)]
        for name, command, environment in (
            ("ours", ours, dict(os.environ)),
            ("rrq", rrq.serve(), rrq.environment),
        ):
            with serving(folder, version, command, number, environment) as place:
                found.setdefault((version, name), []).append(latencies(version, place))
        account.note("the first request")
    for version in VERSIONS:
        ratios = {}
        for name in ("rrq", "ours"):
            runs = found.get((version, name), [])
            if not runs:
                break
            begins, later = (statistics.median(each[n] for each in runs) for n in (0, -1))
            ratios[name] = begins / later
            most = 1000 * max(each[0] for each in runs)
            account.figures[f"first, {version}, {name}"] = (
                f"{1000 * begins:.1f} ms, the tenth {1000 * later:.1f} ms:"
                f" {ratios[name]:.1f} times;"
                f" at most {most:.0f} ms, {len(runs)} starts"
            )
        else:
            slow = begins - later > MORE_SECONDS and ratios["ours"] > ratios["rrq"]
            wrong = f"{version}: {1000 * begins:.0f} ms, the tenth {1000 * later:.0f} ms"
            account.broken["the first request"] += [wrong] if slow else []


# --- under the real orchestrators ----------------------------------------------------------------


def orchestrator(folder: Path, version: str, command: Sequence[str], flight: int) -> Orchestrator:
    """One of that version with a Redis of its own."""
    folder.mkdir()
    shutil.copy(HANDLERS_FOLDER / "work.py", folder)
    return Orchestrator(
        rrq_of(version),
        Redis(folder),
        folder,
        command,
        port=free_port(),
        environment=rrq_of(version).environment,
        max_in_flight=flight,
        default_poll_delay_seconds=0.05,
    )


def run_jobs(folder: Path, version: str, command: Sequence[str], flight: int) -> dict[str, int]:
    """What came of jobs that were there before the orchestrator: states, and starts of ours."""
    rrq = orchestrator(folder, version, command, flight)
    try:
        options = {"job_timeout_seconds": DEADLINE_SECONDS, "max_retries": 1}
        ids = rrq.enqueue(*[("add", {"a": n, "b": 1}, options) for n in range(JOBS)])
        rrq.start("--burst")
        rrq.wait(PATIENCE_SECONDS)
        starts = len(list(folder.glob(".beads-workers/rrq/*/runs/*")))
        return {**rrq.states(ids), "dead": len(rrq.dead()), "starts": starts}
    finally:
        rrq.end()
        rrq._redis.close()


def deadlines(account: Account, cases: int, folder: Path) -> None:
    """Jobs with deadlines of 2 s at a load of ten, ours and rrq's own executor in turn."""
    under_load(account, cases, folder, "deadlines", 4)


def hosts(account: Account, cases: int, folder: Path) -> None:
    """Eight processes for functions at that load: the executor is started once."""
    under_load(account, cases, folder, "hosts", HOSTS)


def under_load(account: Account, cases: int, folder: Path, name: str, workers: int) -> None:
    """``cases`` runs, with as many requests at once as there are workers."""
    dead = {"ours": 0, "rrq": 0}
    what = f"{name}: no job is dead, and nothing is started twice, at a load of {BUSY} or more"
    with busy(max(0, BUSY - round(os.getloadavg()[0]))):
        for number in range(cases):
            version = VERSIONS[number % 2]
            ours = (*OUR_EXECUTOR, "-n", str(workers))
            for side, command in (("ours", ours), ("rrq", rrq_of(version).serve())):
                where = folder / f"{name}-{number}-{side}"
                came = run_jobs(where, version, command, workers)
                dead[side] += came["dead"]
                print(f"{name}, {version}, {side}: {came}", file=sys.stderr, flush=True)
                if side == "ours":
                    fine = came == {"COMPLETED": JOBS, "dead": 0, "starts": 1}
                    account.note(what, "" if fine else f"{version}: {came}")
    account.figures[name] = (
        f"{cases} runs of {JOBS} jobs, {workers} workers: dead {dead['ours']};"
        f" with rrq's own executor {dead['rrq']}"
    )


# --- Hero's jobs in every order ------------------------------------------------------------------


ORDERS = (
    "create A, create B, queue A, queue B",
    "create A, create B, queue B, queue A",
    "create B, create A, queue A, queue B",
    "create B, create A, queue B, queue A",
    "create A, queue A, create B, queue B",
)
STOPS = ("stop, create, queue", "create, stop, queue", "create, queue, stop")


@contextmanager
def hero(folder: Path) -> Iterator[tuple[TextbookClient, HeroPlace]]:
    """A fleet that serves a queue, and its client."""
    (folder / "redis").mkdir()
    redis = Redis(folder / "redis")
    place = HeroPlace(folder / "hero", redis)
    fleet = Fleet(place, *place.arguments("-n", "4")).started()
    try:
        yield TextbookClient(redis), place
    finally:
        fleet.end()
        redis.close()


def dependents(account: Account, cases: int, folder: Path) -> None:
    """A names B in ``dependents``, and B names nobody: B begins once A is over."""
    rng, what = random.Random(1), "dependents hold in every order"
    with hero(folder) as (client, place):
        for number in range(cases):
            names = {"A": f"a{number}", "B": f"b{number}"}
            for step in ORDERS[number % len(ORDERS)].split(", "):
                does, which = step.split()
                job = names[which]
                named = {"dependents": json.dumps([names["B"]])} if which == "A" else {}
                script = f"echo {job}+ >>ran; sleep 0.1; echo {job}- >>ran"
                client.create(job, script, **named) if does == "create" else client.queue(job)
                time.sleep(rng.choice((0.0, 0.0, 0.02, 0.3)))
            client.ended(list(names.values()))
            ran = [line for line in place.ran("ran") if line[:-1] in names.values()]
            wanted = [f"{names[which]}{sign}" for which in "AB" for sign in "+-"]
            wrong = f"{ORDERS[number % len(ORDERS)]}: {ran}"
            account.note(what, "" if ran == wanted else wrong)
    account.figures["dependents"] = f"{cases - len(account.broken[what])} of {cases} held"


def stops(account: Account, cases: int, folder: Path) -> None:
    """A stop that is there before its job is queued: it does not begin."""
    rng, what = random.Random(2), "a stop stops in every order"
    with hero(folder) as (client, place):
        for number in range(cases):
            job, order = f"s{number}", STOPS[number % len(STOPS)]
            for step in order.split(", "):
                if step == "create":
                    client.create(job, f"echo {job} >>ran; sleep 20")
                elif step == "queue":
                    client.queue(job)
                else:
                    client.stop(job)
                time.sleep(rng.choice((0.0, 0.0, 0.02, 0.3)))
            client.ended([job])
            began = job in place.ran("ran") and order != STOPS[-1]
            said = client.field(job, "error")
            fine = said == "stopped_by_request" and client.replies(job) == 1 and not began
            account.note(what, "" if fine else f"{order}: {said}, began: {began}")
    account.figures["stops"] = f"{cases - len(account.broken[what])} of {cases} stopped"


PROOFS: dict[str, tuple[Callable[[Account, int, Path], None], int]] = {
    "parents": (parents, 40),
    "first": (first, 16),
    "deadlines": (deadlines, 6),
    "hosts": (hosts, 4),
    "dependents": (dependents, 200),
    "stops": (stops, 200),
}
"""With how many cases each is whole."""
CASES = sum(cases for _, cases in PROOFS.values())


def main(arguments: list[str]) -> int:
    """0 when all held."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.queues", description=__doc__)
    parser.add_argument("--cases", type=int, default=CASES, help=f"so many of the {CASES}")
    parser.add_argument("--only", choices=list(PROOFS))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--progress", action="store_true")
    asked = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    account, chosen = Account(), [asked.only] if asked.only else list(PROOFS)
    for name in chosen:
        prove, whole = PROOFS[name]
        with tempfile.TemporaryDirectory(prefix="beads-workers-proof-") as folder:
            of = whole if asked.only else CASES
            prove(account, -(-whole * asked.cases // of), Path(folder))  # Rather one more.
        if asked.progress:
            print(f"{account.cases} of {asked.cases} cases ({name})", file=sys.stderr, flush=True)
    if asked.json:
        print(json.dumps(account.told()))
    else:
        print("\n".join(f"{name}: {text}" for name, text in account.figures.items()))
        print("\n".join(f"BROKEN {k}: {v}" for k, found in account.broken.items() for v in found))
    return int(any(account.broken.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
