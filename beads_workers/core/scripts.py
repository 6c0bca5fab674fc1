"""Scripts that come with jobs: in which context each runs, and what is asked of it before.

A context is what the user who starts the fleet allows: the program that runs its scripts, what may
refuse one, what is wrapped around it, how much of the machine it may use. A job only names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, field
from typing import Any

from beads_workers.core.model import Call, Script, value

ANY_CONTEXT = "*"
"""The name of the context for jobs whose own has none."""

SCRIPT_BYTES_MAX = 1 << 20
"""Unless a context says otherwise: what people write by hand is a thousandth of it."""

AUDIT_PATH = "hero.script"
"""What the journal and envelopes call the work of a script."""


@value
class ResourceLimits:
    """What one process of a command may use; None: as much as its worker.

    ``cpu_seconds``: of processor time. ``memory_bytes``: of address space. ``file_bytes``: the
    size of each file that it writes, its output's too.
    """

    cpu_seconds: int | None = None
    memory_bytes: int | None = None
    file_bytes: int | None = None


@value
class Context:
    """How scripts of one context are run.

    ``command`` finds the script on its stdin. ``sandbox``: a program with its options that is given
    the command as its last arguments, and confines it. ``validator``: a command that finds the
    script on its stdin before it is run, and refuses it by any exit status but 0. ``env``: which
    variables its jobs may set, names or beginnings of names with a ``*`` behind; None: nobody said.
    """

    name: str
    command: tuple[str, ...]
    sandbox: tuple[str, ...] = ()
    validator: tuple[str, ...] = ()
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    script_bytes_max: int = SCRIPT_BYTES_MAX
    env: tuple[str, ...] | None = None

    def may_set(self, name: str) -> bool:
        """Whether a job may set this variable: any where its script may do anything all the same,
        and otherwise what was named. Many a program runs what a variable of its own says."""
        confined = self.validator or self.sandbox
        allowed = self.env if self.env is not None else (() if confined else ("*",))
        return any(
            name.startswith(each[:-1]) if each.endswith("*") else name == each for each in allowed
        )


@value
class LogRoot:
    """The one folder below which jobs may have their output written, with ``log_path``.

    A log that would grow beyond ``bytes_max`` is renamed to ``NAME.1``, that to ``NAME.2``, and so
    on; ``keep`` of these are kept.
    """

    path: str
    bytes_max: int = 8 << 20
    keep: int = 3


def context_of(contexts: Sequence[Context], name: str) -> Context | None:
    """The context of this name, or the one for all others; None: there is neither."""
    named = {context.name: context for context in contexts}
    return named.get(name) or named.get(ANY_CONTEXT)


def to_payload(script: Script) -> dict[str, Any]:
    """How it travels in a TASK."""
    return {**asdict(script), "environment": dict(script.environment)}


def from_payload(value: Any) -> Script | None:
    """The script of a TASK, if it has one that is whole."""
    if not isinstance(value, dict) or not isinstance(value.get("text"), str):
        return None
    texts = {name: value.get(name) for name in ("text", "context", "caller", "log_path")}
    environment = value.get("environment")
    return Script(
        **{name: text for name, text in texts.items() if isinstance(text, str)},
        environment={
            name: text
            for name, text in (environment.items() if isinstance(environment, dict) else ())
            if isinstance(text, str)
        },
    )


def audit_of(script: Script) -> Call:
    """Who wants what run, for the journal: the script by its SHA-256, its variables by name.

    A job has it as ``named``, so that its ``Claimed`` says it, and its envelopes do.
    """
    from hashlib import sha256  # Workers load this module, and have no use for it.

    digest = sha256(script.text.encode("utf-8", "surrogatepass")).hexdigest()
    kwargs = {"caller_id": script.caller, "context_id": script.context, "script_sha256": digest}
    names = {"env_vars": sorted(script.environment)} if script.environment else {}
    return Call(AUDIT_PATH, kwargs=kwargs | names)
