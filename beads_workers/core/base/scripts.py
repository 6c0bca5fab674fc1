"""Scripts that come with jobs: the context in which each runs, and the checks before.

A context is what the user who starts the fleet allows: the program that runs its scripts, a command
that may refuse one, a wrapper around it, and its share of the machine. A job only names its
context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, field
from typing import Any

from beads_workers.core.base.model import Call, Script, value

ANY_CONTEXT = "*"
"""Name of the context for jobs whose own context is missing."""

SCRIPT_BYTES_MAX = 1 << 20
"""Maximum of a script unless a context says otherwise: people write by hand a thousandth of it."""

AUDIT_PATH = "hero.script"
"""Name of the work of a script in the journal and in envelopes."""


@value
class ResourceLimits:
    """Limits of one process of a command; None: as much as its worker."""

    # Seconds of processor time.
    cpu_seconds: int | None = None
    # Bytes of address space.
    memory_bytes: int | None = None
    # The size of each file that it writes, its output's too.
    file_bytes: int | None = None


@value
class Context:
    """The way to run scripts of one context."""

    name: str
    # It finds the script on its stdin.
    command: tuple[str, ...]
    # A program with its options that is given the command as its last arguments, and confines it.
    sandbox: tuple[str, ...] = ()
    # A command that finds the script on its stdin before it is run, and refuses it by any exit
    # status but 0.
    validator: tuple[str, ...] = ()
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    script_bytes_max: int = SCRIPT_BYTES_MAX
    # Variables that its jobs may set, names or beginnings of names with a ``*`` behind; None: not
    # specified.
    env: tuple[str, ...] | None = None

    def may_set(self, name: str) -> bool:
        """Return whether a job may set this variable.
        With ``env``, a job may set those named there. Without, it may set any if its script may do
        anything, and none if it is confined. Many programs run what a variable of their own
        says."""
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
    """Return the context of this name, or the one for all others; None: there is neither."""
    named = {context.name: context for context in contexts}
    return named.get(name) or named.get(ANY_CONTEXT)


def to_payload(script: Script) -> dict[str, Any]:
    """Return a script as it is in a TASK."""
    return {**asdict(script), "environment": dict(script.environment)}


def from_payload(value: Any) -> Script | None:
    """Read the script of a TASK; None if it has none that is whole."""
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
    """Return the journal's record of a script: the caller, the SHA-256, the variables by name.

    A job has it as ``named``, so that its ``Claimed`` says it, and its envelopes do.
    """
    from hashlib import sha256  # Workers load this module, and have no use for it.

    digest = sha256(script.text.encode("utf-8", "surrogatepass")).hexdigest()
    kwargs = {"caller_id": script.caller, "context_id": script.context, "script_sha256": digest}
    names = {"env_vars": sorted(script.environment)} if script.environment else {}
    return Call(AUDIT_PATH, kwargs=kwargs | names)
