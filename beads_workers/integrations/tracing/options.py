"""``--trace``: whether spans are made, by the options and the standard variables."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from beads_workers.core.base.settings import Tracing
from beads_workers.errors import CommandError
from beads_workers.executors.functions import is_there
from beads_workers.exits import EXIT_USAGE

EXPORTER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
PROTOCOL = "http/protobuf"
ENDPOINT_DEFAULT = "http://localhost:4318"

_SAMPLERS: Mapping[str, tuple[float | None, bool]] = {
    "always_on": (1.0, False),
    "always_off": (0.0, False),
    "traceidratio": (None, False),
    "parentbased_always_on": (1.0, True),
    "parentbased_always_off": (0.0, True),
    "parentbased_traceidratio": (None, True),
}
"""Values of ``OTEL_TRACES_SAMPLER``: the ratio, None for that of ``OTEL_TRACES_SAMPLER_ARG``;
and whether a parent span decides."""


def tracing(asked: bool | None, environment: Mapping[str, str]) -> Tracing | None:
    """Return how spans are made; None if they are not. ``asked``: None if no option says so.

    ``OTEL_TRACES_EXPORTER=otlp`` also asks for spans, if the extra is installed.
    ``OTEL_SDK_DISABLED=true`` overrides everything. Raises ``CommandError``.
    """
    if _of(environment, "OTEL_SDK_DISABLED").lower() == "true":
        return None
    installed = is_there(EXPORTER, str(Path.cwd()))
    if asked is None:
        asked = _of(environment, "OTEL_TRACES_EXPORTER") == "otlp" and installed
    if not asked:
        return None
    if not installed:
        hint = "pip install 'beads-workers[otel]'"
        raise CommandError("--trace needs OpenTelemetry, which is not installed", hint, EXIT_USAGE)
    spoken = _traces(environment, "PROTOCOL")
    if spoken and spoken != PROTOCOL:
        message = f"OTEL_EXPORTER_OTLP_PROTOCOL is {spoken[:40]!r}: spans are sent as {PROTOCOL}"
        raise CommandError(message, f"OTEL_EXPORTER_OTLP_PROTOCOL={PROTOCOL}", EXIT_USAGE)
    ratio, follows_parent = _sampler(environment)
    return Tracing(secrets.token_hex(16), ratio, follows_parent)


def endpoint(environment: Mapping[str, str]) -> str:
    """Return the URL that spans are sent to, for people."""
    if own := _of(environment, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        return own
    base = _of(environment, "OTEL_EXPORTER_OTLP_ENDPOINT") or ENDPOINT_DEFAULT
    return f"{base.removesuffix('/')}/v1/traces"


def lines(settings: Tracing | None) -> list[tuple[str, str]]:
    """Return the lines that ``start`` prints about tracing."""
    return [("trace", f"spans to {endpoint(os.environ)}")] if settings else []


def _sampler(environment: Mapping[str, str]) -> tuple[float, bool]:
    name = _of(environment, "OTEL_TRACES_SAMPLER") or "parentbased_always_on"
    if name not in _SAMPLERS:
        known = ", ".join(_SAMPLERS)
        raise CommandError(f"no such OTEL_TRACES_SAMPLER: {name[:40]!r}", known, EXIT_USAGE)
    ratio, follows_parent = _SAMPLERS[name]
    if ratio is None:
        text = _of(environment, "OTEL_TRACES_SAMPLER_ARG") or "1"
        try:
            ratio = float(text)
        except ValueError:
            ratio = -1.0
        if not 0 <= ratio <= 1:
            message = f"OTEL_TRACES_SAMPLER_ARG is {text[:40]!r}"
            raise CommandError(message, "a number from 0 to 1", EXIT_USAGE)
    return ratio, follows_parent


def _traces(environment: Mapping[str, str], what: str) -> str:
    own = _of(environment, f"OTEL_EXPORTER_OTLP_TRACES_{what}")
    return own or _of(environment, f"OTEL_EXPORTER_OTLP_{what}")


def _of(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name, "").strip()
