"""A Hero queue served, as a client sees it that follows the protocol's text with redis-cli."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.end_to_end.conftest import StartFleet
from tests.support.fleet import until
from tests.support.hero_client import HeroPlace, TextbookClient
from tests.support.peers import Redis


@pytest.fixture
def place(tmp_path: Path, redis: Redis) -> HeroPlace:
    return HeroPlace(tmp_path, redis)


def test_a_client_gets_its_reply_in_every_way_in_which_a_job_can_end(
    place: HeroPlace, redis: Redis, start: StartFleet
) -> None:
    client = TextbookClient(redis)
    fleet = start(place, *place.arguments("-n", "2")).started()
    client.submit("done", 'echo "$GREETING"', env_vars=json.dumps({"GREETING": "hello"}))
    assert client.reply("done") == "hello"
    assert client.field("done", "status") == "finished"
    assert client.field("done", "output") == "hello"
    assert client.field("done", "updated_at") > client.field("done", "created_at")
    assert int(redis.command("TTL", "hero:job:done")) == -1, "the job itself is kept"

    client.submit("bad", "echo no such shop >&2; exit 3")
    assert client.reply("bad") == "no such shop"
    assert client.field("bad", "status") == "error"

    client.submit("slow", "sleep 60", timeout="1")
    assert client.reply("slow") == client.field("slow", "error") == "timeout"

    client.submit("stopped", "touch there; sleep 60")
    until((place.folder / "there").exists)
    assert client.field("stopped", "status") == "started"
    client.stop("stopped")
    assert client.reply("stopped") == client.field("stopped", "error") == "stopped_by_request"

    client.submit("wrong", "echo", retries="often")
    assert client.reply("wrong").startswith("wrong job: retries:")
    client.submit("orphan", "echo", prerequisites='["bad"]')
    assert client.reply("orphan") == "prerequisite bad failed"

    client.submit("killed", "kill -9 $$")
    assert client.reply("killed").startswith("killed by signal KILL")
    assert client.left() == {}
    assert fleet.call("stop").returncode == 0
    assert fleet.wait() == 0
    fleet.leaves_nothing()
    assert redis.command("KEYS", "hero:beads_workers:*").strip() == ""


def test_jobs_run_in_the_order_in_which_they_came(
    place: HeroPlace, redis: Redis, start: StartFleet
) -> None:
    client = TextbookClient(redis)
    names = [f"j{n}" for n in range(20)]
    client.submit_many({name: f"echo {name} >>order" for name in names})
    start(place, *place.arguments("-n", "1", "--until-empty")).wait()
    assert place.ran("order") == names
    assert [client.replies(name) for name in names] == [1] * 20


def test_a_stop_reaches_a_job_that_waits_and_one_for_another_is_not_lost(
    place: HeroPlace, redis: Redis, start: StartFleet
) -> None:
    client = TextbookClient(redis)
    client.submit("first", "touch there; while [ ! -e go ]; do sleep 0.2; done")
    client.submit("second", "touch second-ran")
    fleet = start(place, *place.arguments("-n", "1")).started()
    until((place.folder / "there").exists)
    client.stop("elsewhere")
    client.stop("second")
    assert client.reply("second") == "stopped_by_request"
    assert redis.command("LRANGE", "hero:stop_queue:w1", "0", "-1").split() == ["elsewhere"]
    (place.folder / "go").touch()
    assert client.reply("first") == ""
    fleet.call("stop")
    assert not (place.folder / "second-ran").exists()
    assert redis.command("LRANGE", "hero:stop_queue:w1", "0", "-1").split() == ["elsewhere"]


def test_a_job_waits_for_those_that_it_names_or_that_name_it(
    place: HeroPlace, redis: Redis, start: StartFleet
) -> None:
    client = TextbookClient(redis)
    client.submit("roof", "echo roof >>order", prerequisites='["walls"]')
    client.submit("walls", "echo walls >>order", dependencies='["ground"]')
    client.create("garden", "echo garden >>order")
    client.submit("ground", "echo ground >>order", dependents='["garden"]')
    client.queue("garden")
    start(place, *place.arguments("-n", "4")).started()
    for name in ("roof", "walls", "garden"):
        assert client.reply(name) == ""
    order = place.ran("order")
    assert order.index("ground") == 0
    assert order.index("walls") < order.index("roof")
    assert json.loads(client.field("walls", "dependents")) == ["roof"]
    assert set(json.loads(client.field("ground", "dependents"))) == {"garden", "walls"}
    assert json.loads(client.field("garden", "prerequisites")) == ["ground"]


def test_people_are_told_why_a_job_does_not_run(
    place: HeroPlace, redis: Redis, start: StartFleet
) -> None:
    client = TextbookClient(redis)
    fleet = start(place, *place.arguments("-n", "1")).started()
    client.submit("walls", "touch there; sleep 60")
    client.submit("roof", "echo", prerequisites='["walls"]')
    until((place.folder / "there").exists)
    until(lambda: fleet.status()["queue"]["blocked"] == 1)
    assert "it waits for walls, which is in progress with W1" in fleet.call("why", "roof").stdout
    assert "it runs now: W1 has had it for" in fleet.call("why", "walls").stdout
    assert json.loads(fleet.call("why", "--json").stdout)["running"] is True


def test_jobs_that_wait_for_each_other_are_an_error(
    place: HeroPlace, redis: Redis, start: StartFleet
) -> None:
    client = TextbookClient(redis)
    start(place, *place.arguments("-n", "1")).started()
    client.submit("a", "echo", prerequisites='["b"]')
    client.submit("b", "echo", dependencies='["c"]')
    client.submit("c", "echo", prerequisites='["a"]')
    said = {name: client.reply(name) for name in "abc"}
    assert any(text.startswith("these jobs wait for each other: ") for text in said.values()), said
    assert client.ended("abc") == dict.fromkeys("abc", "error")


def test_an_attempt_that_fails_is_made_again_as_often_as_was_asked_for(
    place: HeroPlace, redis: Redis, start: StartFleet
) -> None:
    client = TextbookClient(redis)
    options = ("-n", "2", "--retry-delay", "0.2s")
    start(place, *place.arguments(*options)).started()
    client.submit("never", "echo x >>never; exit 1", retries="2")
    client.submit("third", "echo x >>third; [ $(wc -l <third) = 3 ]", retries="5")
    assert client.reply("never") == "exit status 1"
    assert client.reply("third") == ""
    assert (len(place.ran("never")), len(place.ran("third"))) == (3, 3)
    assert client.left() == {}


def test_jobs_that_do_not_run_beside_others_of_their_context_run_one_at_a_time(
    place: HeroPlace, redis: Redis, start: StartFleet
) -> None:
    client = TextbookClient(redis)
    alone = "mkdir only && sleep 0.1 && rmdir only"
    client.submit_many({f"a{n}": alone for n in range(5)}, concurrent="false", context_id="shop")
    client.submit("beside", "mkdir other && echo free", concurrent="false", context_id="bank")
    start(place, *place.arguments("-n", "4", "--until-empty")).wait()
    assert client.reply("beside") == "free"
    ended = client.ended([f"a{n}" for n in range(5)])
    assert set(ended.values()) == {"finished"}


def test_several_thousand_jobs_in_one_pipeline_are_taken_without_loss(
    place: HeroPlace, redis: Redis, start: StartFleet
) -> None:
    client = TextbookClient(redis)
    start(place, *place.arguments("-n", "2")).started()
    # What is not to be run is over soonest: it is the claim scheduler that is looked at.
    jobs = {f"j{n}": "true" for n in range(5000)}
    client.submit_many(jobs, timeout="never")
    until(lambda: client.redis.command("LLEN", "hero:work_queue:w1").strip() == "0")
    until(lambda: client.left() == {})
    replies = client.redis.command("EVAL", _COUNT, "0").strip()
    assert replies == "5000"


_COUNT = """
local count = 0
for n = 0, 4999 do count = count + redis.call('LLEN', 'hero:reply:j' .. n) end
return count
"""
