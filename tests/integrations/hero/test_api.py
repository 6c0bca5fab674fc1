"""``beads_workers.integrations.hero.api`` as docs/HERO.md shows it."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from beads_workers.integrations.hero.api import connect
from beads_workers.integrations.hero.wire import HeroJob
from tests.support.peers import Redis
from tests.test_tidy import HEAVY, loaded

DOCUMENT = Path(__file__).parents[3] / "docs" / "HERO.md"


def serve(redis: Redis, count: int) -> None:
    """What a worker does, by the text."""
    for _ in range(count):
        job_id = redis.command("brpop", "hero:work_queue:w1", "60").split()[1]
        redis.command("hset", f"hero:job:{job_id}", "status", "finished", "output", "hello")
        redis.command("lpush", f"hero:reply:{job_id}", "hello")


def test_the_example_of_the_document_runs(redis: Redis) -> None:
    fence = r"^```python\n(from beads_workers\.integrations\.hero\.api .*?)^```$"
    found = re.search(fence, DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    example = found[1].replace("redis://localhost/0", redis.url)
    worker = threading.Thread(target=serve, args=(redis, 1))
    worker.start()
    done = subprocess.run(
        [sys.executable, "-c", example], capture_output=True, text=True, timeout=90, check=False
    )
    worker.join()
    assert (done.returncode, done.stdout) == (0, "JobStatus.FINISHED hello None\n"), done.stderr
    assert redis.command("llen", "hero:work_queue:w1").strip() == "1000"
    assert redis.command("llen", "hero:stop_queue:w1").strip() == "1"


def test_redis_py_is_loaded_when_it_is_used() -> None:
    assert not loaded("import beads_workers.integrations.hero.api") & (HEAVY | {"typer"})


def test_a_wrong_url_or_naming_is_told_before_anything_is_connected_to() -> None:
    with pytest.raises(ValueError, match="password_file"):
        connect("redis://:hunter2@localhost/0")
    with pytest.raises(ValueError, match="no such naming"):
        connect(naming="older")


def test_keys_and_naming_are_those_of_the_fleet(redis: Redis) -> None:
    with connect(redis.url, naming="later", keys={"job": "j:{id}"}) as client:
        (job_id,) = client.submit([HeroJob(worker_id="w1", script="x")])
    assert redis.command("exists", f"j:{job_id}", "hero:q:work:type:w1").strip() == "2"


@pytest.mark.parametrize("verb", ["list", "status", "run", "submit"])
def test_without_redis_py_a_command_says_how_to_get_it(verb: str, tmp_path: Path) -> None:
    words = ["beads-workers", "hero", verb, "--worker", "w1", "--url", "redis://127.0.0.1:1/0"]
    words += ["-e", "x"] if verb in ("run", "submit") else []
    code = (
        f"import sys; sys.modules['redis'] = None; sys.argv = {words!r}\n"
        "from beads_workers.cli.app import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 6, done.stderr
    assert done.stderr == (
        f"error: redis-py is not installed here\nhint: {sys.executable} -m pip install 'redis>=5'\n"
    )
