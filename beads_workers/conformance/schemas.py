"""The messages as JSON Schema 2020-12, made from the dataclasses of ``core.base.wire``.

``python -m beads_workers.conformance.schemas FOLDER`` writes one file for each kind of message. The
keys of a message and their order are those that ``encode`` writes; the types are those of the
dataclasses. ``RANGES`` has the other limits. The schemas describe written messages: readers accept
more (docs/PROTOCOL.md, section 8).
"""

from __future__ import annotations

import json
import re
import sys
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend

from beads_workers.core.base import limits, wire
from beads_workers.core.base.model import IssueId, OutcomeKind

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"

RANGES: dict[tuple[str, str], Schema] = {
    ("READY", "prefetch_count"): {"minimum": 1},
    ("READY", "heartbeat_seconds"): {
        "minimum": limits.HEARTBEAT_SECONDS_MIN,
        "maximum": limits.HEARTBEAT_SECONDS_MAX,
    },
    ("READY", "batch_size"): {"minimum": 2, "maximum": limits.BATCH_MAX},
    ("DONE", "duration_ms"): {"minimum": 0},
    ("FAILED", "duration_ms"): {"minimum": 0},
    ("FAILED", "outcome"): {"enum": ["error", "retry", "timeout", "cancelled", "not_found"]},
    ("FAILED", "retry_after_seconds"): {"minimum": 0},
    ("PROGRESS", "percent"): {"type": ["number", "null"], "minimum": 0, "maximum": 100},
    ("PROGRESS", "tokens"): {"minimum": 0},
    ("PROGRESS", "money"): {"minimum": 0},
    ("PROGRESS", "utilization"): {"minimum": 0, "maximum": 1},
    ("STATUS", "state"): {"enum": list(wire.STATUS_STATES)},
    ("PRIORITY", "priorities"): {"items": {"type": "integer", "minimum": 0, "maximum": 4}},
    ("TASK", "priority"): {"minimum": 0, "maximum": 4},
    ("TASK", "title"): {"maxLength": limits.TITLE_CHARS_SHORT},
    ("TASK", "full_title"): {"type": "string", "maxLength": limits.TITLE_CHARS_MAX},
    ("TASK", "claims"): {"enum": [wire.CLAIMS_WORKER, wire.CLAIMS_ORCHESTRATOR]},
    ("TASK", "attempt"): {"minimum": 1},
    ("TASK", "timeout_seconds"): {"exclusiveMinimum": 0},
    ("BATCH", "tasks"): {"minItems": 2, "maxItems": limits.BATCH_MAX},
    ("WAIT", "wait_seconds"): {
        "minimum": limits.WAIT_SECONDS_MIN,
        "maximum": limits.WAIT_SECONDS_MAX,
    },
}
"""Limits of a (message, key) that its type does not express."""

OPTIONAL = {("READY", "features"), ("FAILED", "outcome")}
"""Keys that we always write, and that other peers of 1.1 may leave out."""

_BASE: dict[str, Schema] = {
    "worker_id": {"type": "string", "minLength": 1},
    "timestamp": {"type": "number"},
}


def schema_of(kind: type[wire.Message]) -> Schema:
    """Return the whole schema of one kind of message."""
    name = wire.NAMES[kind]
    plain, full = _keys(kind, v1=True), _keys(kind, v1=False)
    additions = [key for key in full if key not in plain and key != "version"]
    always = [key for key in additions if key in _keys(kind, v1=False, bare=True)]
    required = ["type", *_BASE, *plain]
    if kind not in _VERSION_1:
        required = ["type", *_BASE, "version", *[key for key in plain if key in always]]
        required += [k for k in _keys(kind, v1=False, bare=True) if k not in required]
    properties: dict[str, Schema] = {"type": {"const": name}, **_BASE}
    for key in [*plain, *full]:
        properties.setdefault(key, _property(kind, name, key))
    made: Schema = {
        "$schema": DIALECT,
        "$id": f"{file_name(kind)}",
        "title": name,
        "description": _sentence(kind),
        "type": "object",
        "properties": properties,
        "required": required,
    }
    due = [key for key in always if (name, key) not in OPTIONAL]
    if kind in _VERSION_1 and due:
        made["dependentRequired"] = {"version": due}
    return made


_VERSION_1 = (wire.Ready, wire.Done, wire.Failed, wire.Task, wire.Wait, wire.Shutdown)


def file_name(kind: type[wire.Message]) -> str:
    """Return the file name of a kind: ``control_asked.schema.json`` for ``ControlAsked``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower() + ".schema.json"


def all_schemas() -> dict[str, str]:
    """Return the text of each file by its name, for every kind of message."""
    return {
        file_name(kind): json.dumps(schema_of(kind), indent=2) + "\n" for kind in sorted(
            wire.NAMES, key=lambda each: each.__name__
        )
    }  # fmt: skip


# --- from classes to keys and types ---------------------------------------------------------------


def _keys(kind: type[Any], *, v1: bool, bare: bool = False) -> list[str]:
    """Return the keys that ``encode`` writes behind the common fields.

    ``bare``: of a message with its required fields only.
    """
    found: list[str] = []
    for without in [("payload_file", "result_file"), ("payload", "result")]:
        message = _sample(kind, bare=bare, without=without)
        written = list(json.loads(wire.encode(message, "W1", 1.0, v1=v1)))[3:]
        for before, key in zip([None, *written], written, strict=False):
            if key not in found:
                found.insert(found.index(before) + 1 if before in found else len(found), key)
    return found


def _sample(kind: type[Any], *, bare: bool, without: tuple[str, ...]) -> Any:
    """Return a message of this kind with all fields set, or with its required fields only."""
    values: dict[str, Any] = {}
    hints = get_type_hints(kind)
    for name in kind.__dataclass_fields__:
        has_default = name in _defaults(kind)
        if name in ("warnings", "v1") or name in without or (bare and has_default):
            continue
        long = name == "title" and not bare
        values[name] = "x" * (limits.TITLE_CHARS_SHORT + 1) if long else _value(hints[name])
    return kind(**values)


def _defaults(kind: type[Any]) -> set[str]:
    from dataclasses import MISSING

    return {
        each.name
        for each in fields(kind)
        if each.default is not MISSING or each.default_factory is not MISSING
    }


def _value(hint: Any) -> Any:
    """Return a value of this type that is not its default."""
    hint = _without_none(hint)
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (tuple, frozenset):
        return origin([_value(inner[0])])
    if isinstance(hint, type) and is_dataclass(hint):
        return _sample(hint, bare=False, without=("payload_file",))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return OutcomeKind.RETRY
    if origin is not None or hint is Any:
        return {"key": 1}
    return {str: "x", int: 2, float: 2.5, bool: True, IssueId: "x"}[hint]


def _property(kind: type[Any], name: str, key: str) -> Schema:
    ranged = RANGES.get((name, key), {})
    if key == "version":
        return {"type": "string"}
    hints = get_type_hints(kind)
    return {**(_type(hints[key]) if key in hints else {}), **ranged}


def _type(hint: Any) -> Schema:
    hint = _without_none(hint)
    origin, inner = get_origin(hint), get_args(hint)
    if hint is IssueId:
        return {"type": "string", "minLength": 1}
    if origin in (tuple, frozenset):
        return {"type": "array", "items": _type(inner[0])}
    if hint is wire.Task:
        whole = schema_of(wire.Task)
        own = {k: v for k, v in whole["properties"].items() if k not in ("type", *_BASE, "version")}
        due = [*whole["required"][3:], *whole["dependentRequired"]["version"]]
        return {"type": "object", "properties": own, "required": due}
    if isinstance(hint, type) and is_dataclass(hint):
        own = {name: _type(each) for name, each in get_type_hints(hint).items()}
        return {"type": "object", "properties": own}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"type": "string"}
    if hint is Any:
        return {}
    if origin is not None:
        return {"type": "object"}
    return {"type": {str: "string", int: "integer", float: "number", bool: "boolean"}[hint]}


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        return next(each for each in get_args(hint) if each is not type(None))
    return hint


def _sentence(kind: type[Any]) -> str:
    text = " ".join((kind.__doc__ or "").split("\n\n")[0].split()).replace("``", "")
    text = text.removeprefix("1.1: ")
    return text[:1].upper() + text[1:]


# --- checking a message --------------------------------------------------------------------------


@cache
def by_name(*, from_worker: bool) -> dict[str, list[Schema]]:
    """Return the schemas of one side's messages; a name on the wire may stand for several."""
    union = get_args(wire.FromWorker if from_worker else wire.ToWorker)
    asked = wire.ControlAsked if from_worker else wire.ControlReply
    found: dict[str, list[Schema]] = {}
    for kind, name in wire.NAMES.items():
        if issubclass(kind, (*union, asked)):
            found.setdefault(name, []).append(schema_of(kind))
    return found


def faults(message: Mapping[str, Any], *, from_worker: bool) -> list[str]:
    """Return the faults of a message from this side; a message of unknown type has none."""
    name = message.get("type")
    if not isinstance(name, str) or not name:
        return ["type: missing"]
    if known := _validators(from_worker).get(name):
        return min(([_told(each) for each in one.iter_errors(message)] for one in known), key=len)
    other = name in by_name(from_worker=not from_worker)
    return [f"only the other side says {name}"] if other else []


@cache
def _validators(from_worker: bool) -> dict[str, list[Draft202012Validator]]:
    named = by_name(from_worker=from_worker)
    return {name: [_FINITE(each) for each in schemas] for name, schemas in named.items()}


def _told(fault: ValidationError) -> str:
    return f"{fault.json_path.lstrip('$.') or 'the message'}: {fault.message}"


def _is_finite(_: object, value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(cast("float", value)) <= sys.float_info.max


def _is_integer(_: object, value: object) -> bool:
    return _is_finite(_, value) and cast("float", value) == int(cast("float", value))


_FINITE = extend(  # type: ignore[no-untyped-call] # its stubs lack the types
    Draft202012Validator,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine_many(
        {"number": _is_finite, "integer": _is_integer}
    ),
)
"""JSON has no infinity, but a number with a large exponent, or of 400 digits, is read as one; what
is no number passes every limit."""


def main(folder: Path) -> None:
    """Write all schemas into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in all_schemas().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
