"""The job envelope as a JSON Schema (2020-12): what ``envelope.from_fields`` reads, for others.

``docs/envelope.schema.json`` is this, written by ``beads-workers submit --schema``; a test holds
both, and ``from_fields``, to the same.
"""

from __future__ import annotations

from typing import Any

from beads_workers.protocols.envelope import ATTEMPT_MAX, SECONDS_MAX, VERSION, State

_SECONDS = {"minimum": 0, "maximum": SECONDS_MAX}


def schema() -> dict[str, Any]:
    """The schema as a JSON object. Keys that it does not name are allowed, whatever they hold."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:beads-workers:job-envelope:{VERSION}",
        "title": f"Job envelope, version {VERSION}",
        "type": "object",
        "required": ["job_id", "job_path", "args", "kwargs", "state", "ts_enqueued"],
        "properties": {
            "job_id": _text("Unique in its queue or tracker."),
            "job_path": _text("The callable, fully qualified; or what else runs for it."),
            "args": {"type": "array", "description": "Positional arguments."},
            "kwargs": {"type": "object", "description": "Keyword arguments."},
            "state": {"enum": [state.value for state in State]},
            "ts_enqueued": {"type": "integer", **_SECONDS, "description": _epoch("put in")},
            "ts_started": _optional("integer", _epoch("begun"), **_SECONDS),
            "ts_finished": _optional("integer", _epoch("at its end"), **_SECONDS),
            "error": _optional("string", "What went wrong: with state error, and only there."),
            "attempt": _optional(
                "integer",
                "Which attempt runs, ran or is next, from 1.",
                minimum=1,
                maximum=ATTEMPT_MAX,
            ),
            "next_retry_at": _optional("integer", _epoch("tried again"), **_SECONDS),
            "reason": _optional(
                "string", "Of an error: cancelled, timeout, lost or not_found.", minLength=1
            ),
            "result": {"description": "What came of it, any JSON."},
            "result_file": _optional(
                "string", "Where a result lies that is too long.", minLength=1
            ),
            "omitted": {
                "type": ["array", "null"],
                "items": {"type": "string"},
                "description": "Fields that are empty because they were too long to be kept.",
            },
        },
        "if": {"properties": {"state": {"const": State.ERROR.value}}},
        "then": {"required": ["error"], "properties": {"error": {"type": "string"}}},
        "else": {"properties": {"error": {"type": "null"}}},
    }


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "description": description}


def _optional(kind: str, description: str, **more: int) -> dict[str, Any]:
    return {"type": [kind, "null"], **more, "description": description}


def _epoch(what: str) -> str:
    return f"When it was {what}, in whole seconds since 1970."
