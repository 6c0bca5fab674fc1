"""The fields of a hash, as the text has them."""

from __future__ import annotations

from beads_workers.integrations.hero import wire

NOON = 1751371200.0


def test_a_job_is_written_in_texts() -> None:
    job = wire.HeroJob(
        "j",
        "me",
        "rhai",
        "shop",
        "print(1)",
        timeout_seconds=30.0,
        created_at=NOON,
        updated_at=NOON,
        env_vars={"A": "ü"},
        prerequisites=("a", "b"),
    )
    assert wire.write_job(job) == {
        "id": "j",
        "caller_id": "me",
        "worker_id": "rhai",
        "context_id": "shop",
        "script": "print(1)",
        "timeout": "30",
        "retries": "0",
        "concurrent": "false",
        "created_at": "2025-07-01T12:00:00Z",
        "updated_at": "2025-07-01T12:00:00Z",
        "status": "dispatched",
        "env_vars": '{"A":"ü"}',
        "prerequisites": '["a","b"]',
    }


def test_half_a_second_stays_half_a_second() -> None:
    assert wire.write_job(wire.HeroJob("j", timeout_seconds=0.5))["timeout"] == "0.5"


def test_every_change_of_state_says_when() -> None:
    assert wire.status_fields(wire.JobStatus.STARTED, NOON) == {
        "status": "started",
        "updated_at": "2025-07-01T12:00:00Z",
    }


def test_ids_are_a_json_array() -> None:
    assert wire.write_ids(("a", 'b"')) == r'["a","b\""]'
