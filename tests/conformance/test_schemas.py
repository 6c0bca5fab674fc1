"""docs/protocol: schemas and vectors against the code that reads and writes messages."""

from __future__ import annotations

import base64
import json
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from beads_workers.conformance.schemas import all_schemas, by_name, faults
from beads_workers.core.base.framing import ProtocolError
from beads_workers.core.base.wire import NAMES, ControlAsked, FromWorker, Task, UnknownType, parse

FOLDER = Path(__file__).parent.parent.parent / "docs" / "protocol"
VECTORS = [json.loads(line) for line in (FOLDER / "vectors.jsonl").read_text("utf-8").splitlines()]
FROM_WORKER = FromWorker | ControlAsked
SCHEMAS = [json.loads(text) for text in all_schemas().values()]


def raw(vector: dict[str, Any]) -> bytes:
    """The bytes of a vector's line."""
    return base64.b64decode(vector["base64"]) if "base64" in vector else vector["line"].encode()


def is_valid(message: dict[str, Any], *, from_worker: bool) -> bool:
    """What a JSON Schema validator says of it."""
    named = by_name(from_worker=from_worker)[message["type"]]
    return any(Draft202012Validator(each).is_valid(message) for each in named)


def of(verdict: str) -> list[Any]:
    """The vectors with it, as parameters."""
    chosen = [each for each in VECTORS if each["verdict"] == verdict]
    return [pytest.param(each, id=f"{n}-{each['what'][:50]}") for n, each in enumerate(chosen)]


def test_the_schemas_are_those_of_the_code() -> None:
    written = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.schema.json")}
    assert written == all_schemas(), "python -m beads_workers.conformance.schemas docs/protocol"
    for schema in SCHEMAS:
        Draft202012Validator.check_schema(schema)


def test_every_kind_of_message_has_a_vector() -> None:
    assert {type(parse(raw(each))) for each in VECTORS if each["verdict"] == "valid"} == {*NAMES}


def test_every_vector_has_a_verdict_and_says_what_happens() -> None:
    assert {each["verdict"] for each in VECTORS} == {"valid", "tolerated", "refused"}
    assert all(each["what"] for each in VECTORS)


@pytest.mark.parametrize("vector", of("valid"))
def test_a_valid_line_is_read_without_a_warning(vector: dict[str, Any]) -> None:
    message = parse(raw(vector))
    assert not getattr(message, "warnings", ())
    assert read(message, vector) == vector["read"]
    said, worker = json.loads(raw(vector)), isinstance(message, FROM_WORKER)
    assert is_valid(said, from_worker=worker)
    assert faults(said, from_worker=worker) == []


@pytest.mark.parametrize("vector", of("tolerated"))
def test_a_tolerated_line_is_read_and_not_what_anybody_should_write(vector: dict[str, Any]) -> None:
    message = parse(raw(vector))
    assert read(message, vector) == vector["read"]
    said, worker = json.loads(raw(vector)), isinstance(message, FROM_WORKER)
    assert not is_valid(said, from_worker=worker)
    assert faults(said, from_worker=worker) != []


@pytest.mark.parametrize("vector", of("refused"))
def test_a_refused_line_is_no_message(vector: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError) as refused:
        parse(raw(vector))
    assert isinstance(refused.value, UnknownType) is not vector.get("counted", True)


def read(message: object, vector: dict[str, Any]) -> dict[str, Any]:
    """What the code has read of what the vector tells."""
    return {name: _plain(getattr(message, name)) for name in vector["read"]}


def _plain(value: Any) -> Any:
    match value:
        case Enum():
            return value.value
        case frozenset():
            return sorted(value)
        case tuple():
            return [_plain(each) for each in value]
        case Task():
            return value.issue_id
        case _:
            return value


def test_a_fault_names_its_place_and_infinity_is_no_number() -> None:
    progress = next(json.loads(raw(v)) for v in VECTORS if '"PROGRESS"' in v.get("line", ""))
    assert faults({**progress, "timestamp": json.loads("1e999")}, from_worker=True) == [
        "timestamp: inf is not of type 'number'"
    ]
    assert faults({}, from_worker=True) == ["type: missing"]
    assert faults({"type": "WAIT"}, from_worker=True) == ["only the other side says WAIT"]
    assert faults({"type": "NEWER"}, from_worker=True) == []


@pytest.mark.parametrize("seconds", [10**318, 1e308 * 10, -(10**400), 2.5, True, "5"])
def test_a_number_that_nobody_can_read_is_a_fault(seconds: object) -> None:
    message = {"type": "WAIT", "worker_id": "a", "timestamp": 5, "wait_seconds": seconds}
    assert faults(message, from_worker=False)
    assert not faults({**message, "wait_seconds": 5}, from_worker=False)
