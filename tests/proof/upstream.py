"""The tests of dispatcherd's own source, with a fleet in place of its service.

    scripts/prove upstream
    python -m tests.proof.upstream [--cases N] [--busy N] [--json] [--progress]

``upstream_dispatcherd`` is what stands in for the service. They run in whole rounds, until so many
have run. ``--busy``: so many processes compute
beside it all the time. Those of the tests that look at what a fleet has not are left out, each with
its reason.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.support.dispatcherd import VERSION, Dispatcherd
from tests.support.fleet import PROGRAM
from tests.support.postgres import USER, PostgresServer

ROOT = Path(__file__).resolve().parents[2]
FILES = (
    "asyncio_tests/integration/test_main.py",
    "asyncio_tests/integration/test_callable_queues.py",
    "asyncio_tests/integration/test_bind.py",
    "asyncio_tests/integration/test_pool.py",
    "asyncio_tests/integration/test_socket_use.py",
    "tests/integration/test_control_tasks.py",
)
LEFT_OUT: Mapping[str, str] = {
    "test_aio_tasks": "no asyncio here: 'aio_tasks' is empty",
    "test_tasks_are_named": "the names of asyncio's tasks",
    "test_scale_up": "the pool does not grow by itself",
    "test_workers_retire_when_exceeding_max_lifetime": "nor does a worker retire with its age",
}
OTHER_STARTS = ("forkserver", "spawn")
"""Each test comes once for each way the service starts its processes; a fleet has one."""


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


def environment(server: PostgresServer, database: str, source: Path) -> dict[str, str]:
    """What the plugin goes by; the fleet finds the tests' tasks and dispatcherd itself."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DISPATCHERD_", "BW_"))}
    parts = {"host": str(server.folder), "user": USER, "dbname": database}
    named = {**parts, "application_name": "apg_test_server"}
    paths = [str(source), str(Dispatcherd().packages)]
    fleet = ["env", f"PYTHONPATH={os.pathsep.join(paths)}", *PROGRAM]
    return {
        **kept,
        "PYTHONPATH": str(Path(__file__).parent),
        "TMPDIR": str(source.parent),
        "UPSTREAM_FLEET": json.dumps(fleet),
        "UPSTREAM_CONNINFO": " ".join(f"{key}={text}" for key, text in named.items()),
        "DISPATCHERD_SUBPROCESS_COVERAGE": "0",
    }


def round_of(account: Account, installed: Path, server: PostgresServer, folder: Path) -> None:
    """All of them, once."""
    source = folder / "source"
    shutil.copytree(installed / "source", source)
    report = folder / "report.xml"
    database = f"upstream_{account.rounds}"
    server.sql("postgres", f'create database "{database}" strategy file_copy')
    left_out = " and ".join(f"not {name}" for name in (*OTHER_STARTS, *LEFT_OUT))
    command = [installed / "bin" / "python", "-m", "pytest", "-q", "-p", "upstream_dispatcherd"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-k", left_out, f"--junitxml={report}", *FILES],
        cwd=source,
        env=environment(server, database, source),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    if not report.exists():
        account.stuck = True
        account.broken.append(f"no report: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return
    for case in ElementTree.parse(report).iter("testcase"):
        account.cases += 1
        if (found := case.find("failure")) is None and (found := case.find("error")) is None:
            account.passed += 1
            continue
        why = (found.get("message") or "").splitlines()
        account.broken.append(f"{case.get('name')}: {''.join(why[:1])}")


def main(arguments: Sequence[str]) -> int:
    """Exits 0 where all of them passed each time."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.upstream", description=__doc__)
    parser.add_argument("--cases", type=int, default=165)
    parser.add_argument("--busy", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--progress", action="store_true")
    asked = parser.parse_args(arguments)
    installing = [ROOT / "scripts" / "setup-peers", "dispatcherd-tests"]
    subprocess.run(installing, stdout=sys.stderr, check=True)
    installed = Dispatcherd().folder.with_name(f"dispatcherd-tests-{VERSION}")
    account, began, server = Account(busy=asked.busy), time.monotonic(), PostgresServer()
    try:
        with busy(asked.busy):
            while account.cases < asked.cases and not account.stuck:
                with tempfile.TemporaryDirectory(prefix="bw-upstream-") as folder:
                    round_of(account, installed, server, Path(folder))
                account.rounds += 1
                if asked.progress:
                    print(f"{account.cases}/{asked.cases}", file=sys.stderr, flush=True)
    finally:
        server.close()
    account.seconds = round(time.monotonic() - began, 1)
    if asked.json:
        print(json.dumps({**asdict(account), "promises": account.promises}))
    else:
        print(f"{account.passed} of {account.cases} passed in {account.rounds} rounds")
        print("\n".join(account.broken))
    return int(bool(account.broken))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
