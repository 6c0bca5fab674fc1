"""Spans of attempts, made from the journal and exported by a process of their own.

The orchestrator only writes its journal, as ever; ``exporting`` is a process that reads it as it
grows, and talks to the collector. ``tracer`` is its parent's end. So nothing that a collector does,
or does not do, is ever waited for by the loop, and no other process loads OpenTelemetry.

Source: docs/TRACING.md.
"""
