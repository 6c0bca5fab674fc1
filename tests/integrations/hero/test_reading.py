"""The hash of a job: what is written is read again, and what is wrong is named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.integrations.hero import wire

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
IDS = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=12)
SOME_IDS = st.lists(IDS, max_size=4).map(tuple)
TIMES = st.none() | st.integers(0, 4_000_000_000_000).map(lambda ms: ms / 1000)
NAMES = st.text(st.characters(exclude_characters="=\0", exclude_categories=("Cs",)), min_size=1)
VALUES = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)))

JOBS = st.builds(
    wire.HeroJob,
    id=IDS,
    caller_id=TEXTS,
    worker_id=TEXTS,
    context_id=TEXTS,
    script=TEXTS,
    timeout_seconds=st.none() | st.integers(1, int(wire.TIMEOUT_SECONDS_MAX)).map(float),
    retries=st.integers(0, 1000),
    concurrent=st.booleans(),
    log_path=st.none() | TEXTS.filter(bool),
    created_at=TIMES,
    updated_at=TIMES,
    status=st.sampled_from(wire.JobStatus),
    env_vars=st.dictionaries(NAMES, VALUES, max_size=3),
    prerequisites=SOME_IDS,
    dependents=SOME_IDS,
    output=st.none() | TEXTS,
    error=st.none() | TEXTS,
    dependencies=SOME_IDS,
)


def stored(fields: dict[str, str]) -> dict[bytes, bytes]:
    """As Redis brings it."""
    return {name.encode(): value.encode() for name, value in fields.items()}


@given(JOBS)
def test_what_is_written_is_read_again(job: wire.HeroJob) -> None:
    assert wire.read_job(job.id, stored(wire.write_job(job))) == job


def test_every_field_of_the_text_is_read() -> None:
    job = wire.read_job(
        "6f1c",
        stored(
            {
                "id": "6f1c",
                "caller_id": "client",
                "worker_id": "rhai",
                "context_id": "shop",
                "script": "print(1)",
                "timeout": "300",
                "retries": "2",
                "concurrent": "true",
                "log_path": "/var/log/hero/6f1c.log",
                "created_at": "2025-07-01T12:00:00Z",
                "updated_at": "2025-07-01T12:00:00.5+02:00",
                "status": "started",
                "env_vars": '{"A": "1"}',
                "prerequisites": '["x"]',
                "dependents": '["y"]',
                "output": "o",
                "error": "e",
                "dependencies": '["z"]',
            }
        ),
    )
    assert job == wire.HeroJob(
        id="6f1c",
        caller_id="client",
        worker_id="rhai",
        context_id="shop",
        script="print(1)",
        timeout_seconds=300.0,
        retries=2,
        concurrent=True,
        log_path="/var/log/hero/6f1c.log",
        created_at=1751371200.0,
        updated_at=1751364000.5,
        status=wire.JobStatus.STARTED,
        env_vars={"A": "1"},
        prerequisites=("x",),
        dependents=("y",),
        output="o",
        error="e",
        dependencies=("z",),
    )


def test_a_hash_with_nothing_but_a_script_has_defaults() -> None:
    assert wire.read_job("j", {b"script": b"x"}) == wire.HeroJob("j", script="x")


def test_unknown_fields_are_passed_over() -> None:
    assert wire.read_job("j", {b"shoe_size": b"\xff"}) == wire.HeroJob("j")


@pytest.mark.parametrize(
    ("said", "ids"),
    [
        ("", ()),
        ("null", ()),
        ("[]", ()),
        ('["a", "b"]', ("a", "b")),
        ("a", ("a",)),
        ("a, b", ("a", "b")),
    ],
)
def test_ids_may_stand_in_an_array_or_between_commas(said: str, ids: tuple[str, ...]) -> None:
    assert wire.read_ids({b"dependencies": said.encode()}, "dependencies") == ids


@pytest.mark.parametrize("said", ["", "DISPATCHED", " dispatched "])
def test_a_state_is_read_whatever_its_letters(said: str) -> None:
    assert wire.read_status({b"status": said.encode()}) is wire.JobStatus.DISPATCHED


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", b"another"),
        ("script", b"\xff"),
        ("timeout", b"soon"),
        ("timeout", b"-1"),
        ("timeout", b"nan"),
        ("timeout", b"inf"),
        ("retries", b"1.5"),
        ("retries", b"-1"),
        ("retries", b"99999999999999999999"),
        ("concurrent", b"maybe"),
        ("created_at", b"yesterday"),
        ("updated_at", b"2025-13-01T00:00:00Z"),
        ("status", b"sleeping"),
        ("env_vars", b"{"),
        ("env_vars", b"[1]"),
        ("env_vars", b'{"A": 1}'),
        ("env_vars", b'{"A=B": "x"}'),
        ("env_vars", b'{"A": "\\u0000"}'),
        ("prerequisites", b"[1]"),
        ("prerequisites", b"[" * 5000),
        ("dependents", b'{"a": "b"}'),
        ("dependencies", b"a,,b"),
    ],
)
def test_what_is_wrong_is_named(field: str, value: bytes) -> None:
    with pytest.raises(wire.WrongField, match=f"^{field}: ") as raised:
        wire.read_job("j", {field.encode(): value})
    assert raised.value.field == field
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("job_id", ["", "a\nb", "x" * 501])
def test_a_name_that_cannot_be_shown_is_refused(job_id: str) -> None:
    with pytest.raises(wire.WrongField, match=r"^id: "):
        wire.read_job(job_id, {})
