"""Contexts, and how a script travels and is remembered."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.base import scripts
from beads_workers.core.base.model import Script

TEXT = st.text(max_size=20)
SCRIPTS = st.builds(
    Script, TEXT, TEXT, TEXT, st.dictionaries(TEXT, TEXT, max_size=3), log_path=TEXT
)


@given(SCRIPTS)
def test_a_script_survives_its_way_to_a_worker(script: Script) -> None:
    assert scripts.from_payload(json.loads(json.dumps(scripts.to_payload(script)))) == script


def test_what_is_wrong_in_a_payload_is_left_out_and_no_text_is_no_script() -> None:
    assert scripts.from_payload({"text": "x", "context": 7, "environment": {"A": 1}}) == Script("x")
    assert scripts.from_payload({"text": "x", "environment": []}) == Script("x")
    assert scripts.from_payload({"context": "x"}) is None
    assert scripts.from_payload("x") is None


def test_a_context_is_found_by_name_before_the_one_for_all() -> None:
    sh, every = scripts.Context("sh", ("sh",)), scripts.Context(scripts.ANY_CONTEXT, ("cat",))
    assert scripts.context_of((every, sh), "sh") is sh
    assert scripts.context_of((every, sh), "other") is every
    assert scripts.context_of((sh,), "other") is None


def test_the_audit_names_caller_context_and_script_and_holds_no_secret() -> None:
    script = Script("rm -r x", "sh", "ann", {"TOKEN": "hunter2", "A": "b"})
    call = scripts.audit_of(script)
    assert call.path == scripts.AUDIT_PATH
    assert call.kwargs == {
        "caller_id": "ann",
        "context_id": "sh",
        "script_sha256": hashlib.sha256(b"rm -r x").hexdigest(),
        "env_vars": ["A", "TOKEN"],
    }
    assert "env_vars" not in scripts.audit_of(replace(script, environment={})).kwargs
