"""What ``doctor`` says of a Redis, of contexts, and of where the logs of jobs go."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.doctor_support import Patient, patient
from tests.support.peers import Redis


@pytest.fixture
def project(tmp_path: Path, redis: Redis) -> Patient:
    """A project whose settings name a queue, and a root for logs."""
    found = patient(tmp_path)
    (found.folder / "logs").mkdir(mode=0o700)
    (found.folder / "beads-workers.toml").write_text(f"""
source = "hero"
[hero]
url = "{redis.url}"
worker = "w1"
log_root = "{found.folder}/logs"
[hero.contexts.sh]
command = ["sh"]
validator = ["./check"]
cpu_seconds = 5
""")
    check = found.folder / "check"
    check.write_text("#!/bin/sh\n")
    check.chmod(0o755)
    return found


def test_a_sound_queue_is_described_and_left_as_it_is(project: Patient, redis: Redis) -> None:
    redis.command("config", "set", "appendonly", "yes")
    redis.command("lpush", "hero:work_queue:w1", "a")
    found = project.doctor()
    assert (found.status, found.problems() - {"git"}) == (0, set())
    assert found.all("redis")[0]["text"].endswith("1 job in hero:work_queue:w1")
    context = found.one("contexts")["text"]
    assert context.startswith("sh: sh; validated by ") and context.endswith("at most 5 s of CPU")
    assert redis.command("dbsize").strip() == "1"


def test_what_is_missing_is_made_by_the_remedy(project: Patient) -> None:
    (project.folder / "logs").rmdir()
    found = project.doctor()
    assert found.status == 1
    assert project.type(found.one("logs")["remedy"]).returncode == 0
    assert "logs" not in project.doctor().problems()
    (project.folder / "logs").chmod(0o777)
    assert project.type(project.doctor().one("logs")["remedy"]).returncode == 0
    assert "logs" not in project.doctor().problems()


def test_a_validator_that_is_not_there_fails(project: Patient) -> None:
    (project.folder / "check").unlink()
    assert "was not found" in project.doctor().one("contexts")["text"]


def test_a_redis_that_is_away_is_the_tracker_in_trouble(project: Patient, redis: Redis) -> None:
    redis.close()
    found = project.doctor()
    assert found.status == 6
    assert "does not answer" in found.one("redis")["text"]


def test_a_queue_that_nobody_named_fails(project: Patient, redis: Redis) -> None:
    settings = project.folder / "beads-workers.toml"
    settings.write_text(settings.read_text().replace('worker = "w1"\n', ""))
    assert "whose queue" in project.doctor().one("redis")["text"]


def test_keys_that_hold_something_else_are_named_with_what_removes_them(
    project: Patient, redis: Redis
) -> None:
    redis.command("lpush", "hero:work_queue:w1", "good", "bad", "ugly")
    waits = ("prerequisites", '["done", "first"]', "dependencies", "then")
    redis.command("hset", "hero:job:good", "status", "dispatched", *waits)
    redis.command("hset", "hero:job:ugly", "prerequisites", "[1]")
    redis.command("hset", "hero:job:done", "status", "finished")
    redis.command("lpush", "hero:job:first", "x")
    redis.command("set", "hero:job:then", "x")
    redis.command("set", "hero:job:bad", "x")
    redis.command("sadd", "hero:reply:ugly", "x")
    redis.command("set", "hero:stop_queue:w1", "x")
    redis.command("set", "hero:beads_workers:w1:holders", "x")
    said = {check["text"]: check["remedy"] for check in project.doctor().all("redis")}
    assert {text for text in said if " holds " in text} == {
        "hero:job:bad holds a string, not a hash",
        "hero:job:first holds a list, not a hash",
        "hero:job:then holds a string, not a hash",
        "hero:reply:ugly holds a set, not a list",
        "hero:stop_queue:w1 holds a string, not a list",
        "hero:beads_workers:w1:holders holds a string, not a hash",
    }
    assert said["hero:job:bad holds a string, not a hash"].endswith(" DEL hero:job:bad")
    redis.command("del", "hero:work_queue:w1")
    redis.command("set", "hero:work_queue:w1", "x")
    found = project.doctor()
    assert found.status == 6
    assert [c["text"] for c in found.all("redis")] == [
        "hero:work_queue:w1 holds a string, not a list"
    ]
