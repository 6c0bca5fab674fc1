"""The real dispatcherd: its server, its publisher and its ``dispatcherctl``.

``scripts/setup-peers`` installs it; without it tests fail rather than skip. A configuration is
JSON, which is YAML as well.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.support.fleet import until
from tests.support.postgres import Postgres

VERSION = "2026.5.27"
HANDLERS_FOLDER = Path(__file__).parent / "handlers"
PATIENCE_SECONDS = 60.0

_PUBLISH = """
import json, sys
import dispatcherd.config
dispatcherd.config.setup(file_path=sys.argv[1])
import dispatched
"""

_CALL_EACH = """
import contextlib, io, json, sys
from dispatcherd.cli import control
found = []
for sys.argv in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        control()
    found.append(said.getvalue())
print(json.dumps(found))
"""
_QUIET = ("--log-level", "CRITICAL")


class Dispatcherd:
    """The installed package; ``python`` has it."""

    def __init__(self) -> None:
        cache = os.environ.get("BW_CACHE") or str(Path.home() / ".cache" / "beads-workers")
        self.folder = Path(cache, "peers", f"dispatcherd-{VERSION}")
        if not (self.folder / "complete").is_file():
            raise RuntimeError(f"{self.folder} is missing: run scripts/setup-peers")

    @property
    def python(self) -> Path:
        """Of its environment."""
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        """For the ``PYTHONPATH`` of a worker's Python, which is the same version."""
        (found,) = (self.folder / "lib").glob("python3.*/site-packages")
        return found

    @property
    def environment(self) -> dict[str, str]:
        """In which it finds the tasks of ``dispatched``."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("DISPATCHERD_", "BW_"))}
        return kept | {"PYTHONPATH": str(HANDLERS_FOLDER)}

    def control(
        self, config: Path, command: str, *options: str
    ) -> subprocess.CompletedProcess[str]:
        """Call the real ``dispatcherctl``; its stdout is YAML, a list of replies."""
        program = self.folder / "bin" / "dispatcherctl"
        return self._run([program, command, "--config", str(config), *_QUIET, *options])

    def replies(self, config: Path, command: str, *options: str) -> list[dict[str, Any]]:
        """What ``dispatcherctl`` shows; fails where it got no answer."""
        done = self.control(config, command, *options)
        assert done.returncode == 0, done.stdout + done.stderr
        replies: list[dict[str, Any]] = yaml.safe_load(done.stdout)
        return replies

    def reply(self, config: Path, command: str, *options: str) -> dict[str, Any]:
        """The only one."""
        (reply,) = self.replies(config, command, *options)
        return reply

    def replies_of(self, config: Path, *calls: Sequence[str]) -> list[dict[str, Any]]:
        """What ``dispatcherctl`` shows for each of these commands with their options.

        Its own function, called once for each: loading it is nearly all that a call costs.
        """
        argv = [["dispatcherctl", *call, "--config", str(config), *_QUIET] for call in calls]
        done = self._run(["-c", _CALL_EACH, json.dumps(argv)])
        assert done.returncode == 0, done.stdout + done.stderr
        found = [yaml.safe_load(text) for text in json.loads(done.stdout)]
        assert [len(replies) for replies in found] == [1] * len(calls)
        return [reply for (reply,) in found]

    def script(self, config: Path, source: str, *arguments: str) -> Any:
        """Run a few lines with a configured dispatcherd and its tasks in ``dispatched``.

        What they leave in ``out`` comes back, by way of JSON.
        """
        whole = f"{_PUBLISH}\nout = None\n{source}\nprint(json.dumps(out))"
        done = self._run(["-c", whole, str(config), *arguments])
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Call its Python."""
        return subprocess.run(
            [self.python, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    def _run(self, command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
        first = [] if isinstance(command[0], Path) else [self.python]
        return subprocess.run(
            [*first, *command],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )


def configuration(
    *,
    socket: Path | None = None,
    postgres: Postgres | None = None,
    channels: Sequence[str] = ("test_channel",),
    workers: int = 2,
    **more: object,
) -> dict[str, Any]:
    """What a user writes: the brokers given, that many workers, and whatever section comes."""
    brokers: dict[str, object] = {}
    if socket is not None:
        brokers["socket"] = {"socket_path": str(socket)}
    if postgres is not None:
        brokers["pg_notify"] = {
            "config": {"conninfo": postgres.conninfo},
            "channels": list(channels),
            "default_publish_channel": channels[0],
        }
    pool = {"min_workers": workers, "max_workers": workers}
    service = {"pool_kwargs": pool, "main_kwargs": {"node_id": "the-node"}}
    first = next(iter(brokers), "socket")
    publish = {"default_broker": first, "default_control_broker": first}
    return {
        "version": 2,
        "service": service,
        "brokers": brokers,
        "producers": {"ControlProducer": {}},
        "publish": publish,
        **more,
    }


def write(config: Mapping[str, object], folder: Path, name: str = "dispatcherd.yml") -> Path:
    """Where it lies then."""
    path = folder / name
    path.write_text(json.dumps(config))
    return path


class Server:
    """A real ``dispatcherd`` that serves ``config``; ``close`` ends it with its workers."""

    def __init__(self, dispatcherd: Dispatcherd, config: Path) -> None:
        self._log = config.with_suffix(".log")
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [dispatcherd.folder / "bin" / "dispatcherd", "--config", str(config)],
                env=dispatcherd.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        settings = json.loads(config.read_text())
        self._sockets = [
            Path(broker["socket_path"])
            for broker in settings["brokers"].values()
            if "socket_path" in broker
        ]
        self._listens = sum(len(b.get("channels", ())) for b in settings["brokers"].values())
        self._workers = settings["service"]["pool_kwargs"]["min_workers"]
        until(self._is_up, PATIENCE_SECONDS, "dispatcherd did not start")

    def _is_up(self) -> bool:
        assert self.process.poll() is None, self.said()
        said = self.said()
        return (
            said.count("Set up socket server") == len(self._sockets)
            and said.count("Set up pg_notify listening") >= self._listens
            and "running forever" in said
        )

    def said(self) -> str:
        """Its whole log."""
        return self._log.read_text()

    def close(self) -> None:
        """End it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
