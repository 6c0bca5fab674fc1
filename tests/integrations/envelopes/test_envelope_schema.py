"""The schema says what the code reads: as a file, and for whatever anybody may send."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from beads_workers.core.base.framing import ProtocolError
from beads_workers.integrations.envelopes.wire import KNOWN, from_fields, schema
from tests.integrations.envelopes.test_envelope import ENQUEUED, ERROR, EXAMPLES

DOCS = Path(__file__).parents[3] / "docs"
VALIDATOR = Draft202012Validator(schema())


def reads(fields: Any) -> bool:
    try:
        from_fields(fields)
    except ProtocolError:
        return False
    return True


def test_the_file_for_other_programs_is_the_schema_of_the_code() -> None:
    Draft202012Validator.check_schema(schema())
    written = (DOCS / "envelope.schema.json").read_text()
    assert written == json.dumps(schema(), indent=2) + "\n", "beads-workers submit --schema"


def test_the_schema_names_every_key_that_means_something() -> None:
    assert schema()["properties"].keys() == KNOWN


def test_the_page_shows_the_four_examples_and_names_every_key() -> None:
    retry_entry = (DOCS / "ENVELOPE.md").read_text()
    fences = re.findall(r"^```json\n(.*?)^```$", retry_entry, re.MULTILINE | re.DOTALL)
    shown = [json.dumps(json.loads(fence)) for fence in fences]
    assert shown == [json.dumps(each) for each in EXAMPLES]
    assert {key for key in KNOWN if f"| `{key}` |" in retry_entry} == KNOWN


@pytest.mark.parametrize("fields", EXAMPLES)
def test_the_examples_pass(fields: dict[str, Any]) -> None:
    VALIDATOR.validate(fields)


ODD = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3)
    | st.lists(st.none() | st.text(max_size=2) | st.integers(), max_size=2)
    | st.dictionaries(st.text(max_size=2), st.integers(), max_size=2)
    | st.sampled_from(["enqueued", "running", "done", "error", 2**53 - 1, 2**53, 253402300800])
)


@given(
    st.sampled_from(EXAMPLES),
    st.dictionaries(st.sampled_from(sorted(KNOWN)) | st.text(max_size=2), ODD, max_size=4),
    st.sets(st.sampled_from(sorted(KNOWN)), max_size=2),
)
@example(ENQUEUED, {"ts_enqueued": 1672531200.0, "attempt": 1.0}, set())
@example(ERROR, {"error": None}, set())
@example(ENQUEUED, {"error": ""}, set())
@example(ENQUEUED, {"ts_enqueued": 10**400}, set())
@example(ENQUEUED, {"ts_started": -0.0}, set())
def test_the_schema_accepts_exactly_what_is_read(
    fields: dict[str, Any], changed: dict[str, Any], left_out: set[str]
) -> None:
    sent = {k: v for k, v in (fields | changed).items() if k not in left_out}
    assert VALIDATOR.is_valid(sent) == reads(sent), sent
