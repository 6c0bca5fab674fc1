"""The real peers are installed, and start: what other tests need is there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.dispatcherd import Dispatcherd, Server, configuration, write
from tests.support.fleet import until
from tests.support.peers import HANDLERS, VERSIONS, Redis, rrq_of
from tests.support.postgres import Postgres


@pytest.mark.parametrize("version", VERSIONS)
def test_the_real_rrq_is_there_in_the_wanted_version_with_our_handlers(version: str) -> None:
    rrq = rrq_of(version)
    module, _, name = HANDLERS.rpartition(".")
    script = f"import importlib.metadata as m, {module}; print(m.version('rrq'), {module}.{name})"
    done = subprocess.run(
        [rrq.python, "-c", script], env=rrq.environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(version)


def test_a_redis_of_its_own_answers(redis: Redis) -> None:
    assert redis.command("ping").strip() == "PONG"


def test_a_postgres_of_its_own_answers_and_is_not_root(postgres: Postgres) -> None:
    assert postgres.sql("select current_database()").strip() == postgres.name
    assert postgres.server.folder.stat().st_uid != 0


def test_a_postgres_comes_back_after_it_was_killed(lonely_postgres: Postgres) -> None:
    lonely_postgres.sql("create table t as select 1 as a")
    lonely_postgres.server.kill()
    lonely_postgres.server.start()
    assert lonely_postgres.sql("select a from t").strip() == "1"


@pytest.mark.parametrize("broker", ["socket", "pg_notify"])
def test_the_real_dispatcherd_runs_tasks_and_is_controlled(
    broker: str, postgres: Postgres, tmp_path: Path
) -> None:
    dispatcherd = Dispatcherd()
    over = (
        configuration(socket=tmp_path / "socket")
        if broker == "socket"
        else configuration(postgres=postgres)
    )
    config = write(over, tmp_path)
    trace = tmp_path / "trace"
    server = Server(dispatcherd, config)
    try:
        dispatcherd.script(config, "dispatched.write_down.delay(sys.argv[2])", str(trace))
        until(trace.exists)
        assert dispatcherd.reply(config, "alive") == {"node_id": "the-node"}
    finally:
        server.close()
