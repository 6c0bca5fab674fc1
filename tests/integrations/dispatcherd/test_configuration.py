"""Where publishers bring their tasks: the real configuration, and short URLs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.base.plain import from_plain, to_plain
from beads_workers.integrations.dispatcherd import configuration

CONFIG = {
    "version": 2,
    "service": {
        "pool_kwargs": {"min_workers": 1, "max_workers": 4},
        "main_kwargs": {"node_id": "node-1", "chunk_message_timeout_seconds": 60},
    },
    "brokers": {
        "pg_notify": {
            "config": {"conninfo": "dbname=x user=y"},
            "channels": ["a", "b", "a"],
            "default_publish_channel": "a",
            "max_connection_idle_seconds": 5,
        },
        "socket": {"socket_path": "/run/d.sock"},
    },
    "producers": {"ControlProducer": None},
    "publish": {"default_broker": "socket"},
}


def test_a_real_configuration_is_read() -> None:
    postgres = configuration.Postgres({"conninfo": "dbname=x user=y"}, ("a", "b"), 5.0)
    assert configuration.from_config(CONFIG) == configuration.Brokers(
        ("/run/d.sock",), (postgres,), 60.0, "node-1"
    )
    assert configuration.workers_of(CONFIG) == 4


def test_what_may_be_left_out_has_the_defaults_of_the_real_one() -> None:
    brokers = configuration.from_config(
        {"version": 2, "brokers": {"socket": {"socket_path": "d.sock"}}}
    )
    assert brokers == configuration.Brokers((str(Path("d.sock").absolute()),), (), 1800.0)
    assert configuration.workers_of({"version": 2}) is None


def test_the_timeout_of_chunks_may_stand_in_the_service_itself() -> None:
    service = {"chunk_message_timeout_seconds": 7}
    brokers = {"dispatcherd.brokers.socket": {"socket_path": "/d"}}
    assert (
        configuration.from_config(
            {"version": 2, "brokers": brokers, "service": service}
        ).chunk_seconds
        == 7
    )


def test_brokers_survive_json() -> None:
    brokers = configuration.from_config(CONFIG)
    assert from_plain(configuration.Brokers, to_plain(brokers)) == brokers


def test_urls_name_one_broker() -> None:
    assert configuration.from_url("dispatcherd+unix:///run/a%20b.sock") == configuration.Brokers(
        ("/run/a b.sock",)
    )
    url = "postgresql://me@db.example:5433/jobs?channel=a&sslmode=require&channel=b"
    conninfo = "postgresql://me@db.example:5433/jobs?sslmode=require"
    assert configuration.from_url(url) == configuration.Brokers(
        postgres=(configuration.Postgres({"conninfo": conninfo}, ("a", "b")),)
    )


def test_what_people_are_shown_holds_no_secret() -> None:
    shown = configuration.Brokers(
        ("/d.sock",), (configuration.Postgres({"password": "secret"}, ("a",)),)
    ).describe()
    assert shown == "/d.sock, PostgreSQL (a)"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("dispatcherd+unix://run/d.sock", "three slashes"),
        ("dispatcherd+unix:///" + "x" * 200, "107 bytes at most"),
        ("postgresql://me:secret@db/jobs?channel=a", "PGPASSWORD"),
        ("postgresql://me@db/jobs", "no channel"),
        ("postgresql://me@db/jobs?channel=", "1 to 63 bytes"),
        ("postgresql://me@db/jobs?channel=" + "é" * 32, "1 to 63 bytes"),
    ],
)
def test_a_wrong_url_says_what_is_wrong(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        configuration.from_url(url)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 1}, "version: 2"),
        ({"brokers": {}}, "no brokers"),
        ({"brokers": []}, "brokers is no table"),
        ({"brokers": {"socket": None}}, "brokers.socket is no table"),
        ({"brokers": {"socket": {}}}, "socket_path is missing"),
        ({"brokers": {"redis": {}}}, "'redis' is not known"),
        ({"brokers": {"pg_notify": {"channels": ["a"]}}}, "config is missing"),
        ({"brokers": {"pg_notify": {"config": {"a": 1}, "channels": "a"}}}, "no list"),
        ({"brokers": {"pg_notify": {"config": {"a": 1}, "channels": []}}}, "no channel"),
        ({"service": {"chunk_message_timeout_seconds": "1", "main_kwargs": {}}}, "no number"),
    ],
)
def test_a_wrong_configuration_says_what_is_wrong(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        configuration.from_config(
            {"version": 2, "brokers": {"socket": {"socket_path": "/d"}}} | change
        )


PRODUCERS = {
    "ScheduledProducer": {
        "task_schedule": {"shop.tasks.clean": {"schedule": 2.5, "kwargs": {"deep": True}}}
    },
    "OnStartProducer": {"task_list": {"shop.tasks.warm": {}, "shop.tasks.tell": {"args": [1]}}},
}


def test_producers_bring_tasks_as_their_publishers_would() -> None:
    brokers = configuration.from_config(CONFIG | {"producers": PRODUCERS})
    assert brokers.produced == (
        configuration.Produced({"kwargs": {"deep": True}, "task": "shop.tasks.clean"}, 2.5),
        configuration.Produced({"task": "shop.tasks.warm"}),
        configuration.Produced({"args": [1], "task": "shop.tasks.tell"}),
    )
    assert from_plain(configuration.Brokers, to_plain(brokers)) == brokers


@pytest.mark.parametrize(
    ("producers", "reason"),
    [
        ({"ScheduledProducer": {"task_schedule": {"a.b": {}}}}, "'schedule' of a.b is no number"),
        ({"ScheduledProducer": {"task_schedule": {"a.b": {"schedule": 0}}}}, "'schedule' of a.b"),
        ({"ScheduledProducer": {"task_schedule": {"a.b": 5}}}, "a.b is no task"),
        ({"OnStartProducer": {"task_list": ["a.b"]}}, "task_list is no table"),
        ({"OnStartProducer": {"task_list": {7: {}}}}, "7 is no task"),
        ([], "producers is no table"),
    ],
)
def test_what_no_producer_could_bring_is_refused(producers: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        configuration.from_config(CONFIG | {"producers": producers or ["x"]})


def test_settings_that_nothing_goes_by_are_named() -> None:
    assert configuration.ignored(CONFIG) == ["service.pool_kwargs.min_workers"]
    config = {
        "version": 2,
        "brokers": {"dispatcherd.brokers.socket": {"socket_path": "/x", "soket": 1}},
        "producer": {},
        "producers": PRODUCERS | {"MyProducer": {"a": {"b": 1}}},
        "service": {"pool_kwargs": {"max_worker": 3}, "main_kwargs": {}, "pool_cls": "x"},
        "publish": {"anything": 1},
        "worker": {"worker_cls": "x", "worker_kwargs": {"a": 1}, "worker_class": "y"},
    }
    assert configuration.ignored(config) == [
        "brokers.dispatcherd.brokers.socket.soket",
        "producer",
        "producers.MyProducer",
        "service.pool_kwargs.max_worker",
        "service.pool_cls",
        "worker.worker_class",
    ]
    assert configuration.ignored([]) == configuration.ignored({"brokers": 7}) == []
