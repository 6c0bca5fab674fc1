"""The tests of dispatcherd's own source, with a fleet in place of its service.

    scripts/prove upstream
    python -m tests.proof.upstream [--cases N] [--busy N] [--pairs] [--json] [--progress]

``upstream_dispatcherd`` is what stands in for the service. They run in whole rounds, until so many
have run. ``--busy``: so many processes compute beside it all the time. ``--pairs``: before each
round the same one with the real service in its own place, whose count stands beside. Whatever tests
a service as a whole is run; what a fleet has not is left out, each with its reason.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.support.dispatcherd import VERSION, Dispatcherd
from tests.support.fleet import PROGRAM
from tests.support.postgres import USER, PostgresServer

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("asyncio_tests/integration", "tests/integration")
"""Those of a service as a whole. The others try its parts, which a fleet has not."""
ASYNC = "asyncio_tests/integration"
LEFT_OUT: Mapping[str, str] = {
    f"{ASYNC}/brokers": "clients alone: no service takes part",
    "tests/integration/publish": "clients alone: no service takes part",
    f"{ASYNC}/test_disruptions.py": "turns the service's own loop; numbers workers in its own log",
    f"{ASYNC}/test_metrics_use.py": "figures of other names, by a server of its own",
    f"{ASYNC}/test_producers.py": "makes a service of its parts, without a broker",
    f"{ASYNC}/test_worker_callbacks.py": "hands the service's object a task, without a broker",
    f"{ASYNC}/test_worker_signals.py": "signals the processes of a pool, without a broker",
    f"{ASYNC}/test_main.py::test_aio_tasks": "no asyncio here: 'aio_tasks' is empty",
    f"{ASYNC}/test_main.py::test_tasks_are_named": "the names of asyncio's tasks",
    f"{ASYNC}/test_main.py::test_scale_up": "the pool does not grow by itself",
    f"{ASYNC}/test_pool.py::test_workers_retire": "nor does a worker retire with its age",
}
"""A folder, a file, or how the name of a test begins."""
LEAVES_SECONDS = 50.0
"""Less than ``scripts/prove`` waits for what it ends."""
OTHER_STARTS = ("forkserver", "spawn")
"""Each test comes once for each way the service starts its processes; a fleet has one."""
NOT_PASSED = ("failure", "error", "skipped")


@dataclass(slots=True)
class Account:
    """What ``--json`` prints."""

    version: str = VERSION
    rounds: int = 0
    busy: int = 0
    cases: int = 0
    passed: int = 0
    seconds: float = 0.0
    stuck: bool = False
    left_out: dict[str, str] = field(default_factory=lambda: dict(LEFT_OUT))
    broken: list[str] = field(default_factory=list)
    real: Account | None = None

    @property
    def promises(self) -> list[dict[str, Any]]:
        """As ``scripts/prove`` reads them."""
        text = "dispatcherd's own tests pass with a fleet in place of its service"
        return [{"text": text, "broken": self.broken, "seconds": None}]


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many of them, which only compute."""
    running = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)
    ]
    try:
        yield
    finally:
        for each in running:
            each.kill()
            each.wait()


def environment(
    server: PostgresServer, database: str, source: Path, *, real: bool
) -> dict[str, str]:
    """What the plugin goes by; the fleet finds the tests' tasks and dispatcherd itself."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DISPATCHERD_", "BW_"))}
    parts = {"host": str(server.folder), "user": USER, "dbname": database}
    named = {**parts, "application_name": "apg_test_server"}
    paths = [str(source), str(Dispatcherd().packages)]
    fleet = ["env", f"PYTHONPATH={os.pathsep.join(paths)}", *PROGRAM]
    return {
        **kept,
        **({} if real else {"UPSTREAM_FLEET": json.dumps(fleet)}),
        "PYTHONPATH": str(Path(__file__).parent),
        "TMPDIR": str(source.parent),
        "UPSTREAM_CONNINFO": " ".join(f"{key}={text}" for key, text in named.items()),
        "DISPATCHERD_SUBPROCESS_COVERAGE": "0",
    }


def round_of(
    account: Account, installed: Path, server: PostgresServer, folder: Path, *, real: bool = False
) -> None:
    """All of them, once; ``real``: with dispatcherd's own service."""
    source = folder / "source"
    shutil.copytree(installed / "source", source)
    report = folder / "report.xml"
    database = f"upstream_{account.rounds}_{real}".lower()
    server.sql("postgres", f'create database "{database}" strategy file_copy')
    starts = " and ".join(f"not {name}" for name in OTHER_STARTS)
    left_out = [f"--{'deselect' if '::' in each else 'ignore'}={each}" for each in LEFT_OUT]
    command = [
        str(installed / "bin" / "python"),
        "-m",
        "pytest",
        "-q",
        "-p",
        "upstream_dispatcherd",
    ]
    command += ["-p", "no:cacheprovider", "-k", starts, f"--junitxml={report}"]
    with subprocess.Popen(
        [*command, *left_out, *FOLDERS],
        cwd=source,
        env=environment(server, database, source, real=real),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        try:
            said, _ = running.communicate(timeout=3600)
        except BaseException:
            running.send_signal(signal.SIGINT)  # It ends its fleets, which KILL would leave.
            with suppress(subprocess.TimeoutExpired):
                running.wait(LEAVES_SECONDS)
            running.kill()
            raise
    if not read_report(account, report):
        account.stuck = True
        account.broken.append(f"no test was run: {said[-4000:]}")


def read_report(account: Account, report: Path) -> bool:
    """Count what pytest says of each test; False where it says nothing. What is skipped is not
    passed."""
    before = account.cases
    if report.exists():
        for case in ElementTree.parse(report).iter("testcase"):
            account.cases += 1
            found = next((each for each in case if each.tag in NOT_PASSED), None)
            if found is None:
                account.passed += 1
                continue
            why = (found.get("message") or "").splitlines()
            account.broken.append(f"{case.get('name')}: {found.tag}: {''.join(why[:1])}")
    return account.cases > before


def main(arguments: Sequence[str]) -> int:
    """Exits 0 where all of them passed each time."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.upstream", description=__doc__)
    parser.add_argument("--cases", type=int, default=170)
    parser.add_argument("--busy", type=int, default=4)
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--progress", action="store_true")
    asked = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    installing = [str(ROOT / "scripts" / "setup-peers"), "dispatcherd-tests"]
    subprocess.run(installing, stdout=sys.stderr, check=True)
    installed = Dispatcherd().folder.with_name(f"dispatcherd-tests-{VERSION}")
    account, began, server = Account(busy=asked.busy), time.monotonic(), PostgresServer()
    account.real = Account(busy=asked.busy) if asked.pairs else None
    try:
        with busy(asked.busy):
            while account.cases < asked.cases and not account.stuck:
                for each in filter(None, (account.real, account)):
                    with tempfile.TemporaryDirectory(prefix="bw-upstream-") as folder:
                        real = each is account.real
                        round_of(each, installed, server, Path(folder), real=real)
                    each.rounds += 1
                if asked.progress:
                    print(f"{account.cases} of {asked.cases} tests", file=sys.stderr, flush=True)
    finally:
        server.close()
    account.seconds = round(time.monotonic() - began, 1)
    if asked.json:
        print(json.dumps({**asdict(account), "promises": account.promises}))
    else:
        for each in filter(None, (account.real, account)):
            name = "the real service" if each is account.real else "a fleet"
            print(f"{name}: {each.passed} of {each.cases} passed in {each.rounds} rounds")
            print("\n".join(each.broken))
    return int(bool(account.broken))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
