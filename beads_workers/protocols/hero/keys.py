"""What everything is called in Redis: templates, so that another naming is a setting.

``{id}`` and ``{worker}`` are replaced; ``{{`` and ``}}`` are braces, which mark the hash tag of a
cluster. Source: docs/PROTOCOL.md, "Hero over Redis".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from beads_workers.core.values import value

ID_CHARS_MAX = 500
"""Of a job's or a worker's id: they stand in key names and in every record; real ones are UUIDs."""


@value
class Keys:
    """The names of all keys. ``job`` and ``reply`` hold ``{id}``, ``work`` and ``stop``
    ``{worker}``.

    ``own``: what we keep beside the text's keys begins so; it may hold ``{worker}``.
    """

    job: str = "hero:job:{id}"
    work: str = "hero:work_queue:{worker}"
    stop: str = "hero:stop_queue:{worker}"
    reply: str = "hero:reply:{id}"
    own: str = "hero:beads_workers:{worker}:"

    def __post_init__(self) -> None:
        """Raises ``ValueError``, with the name of the template."""
        for name in ("job", "reply"):
            _check(name, getattr(self, name), "id", needed=True)
        for name in ("work", "stop"):
            _check(name, getattr(self, name), "worker", needed=True)
        _check("own", self.own, "worker", needed=False)
        if len({getattr(self, field.name) for field in fields(self)}) < len(fields(self)):
            raise ValueError("two of the key names are the same")

    def job_key(self, job_id: str) -> str:
        """The hash of a job."""
        return _fill(self.job, "id", job_id)

    def reply_key(self, job_id: str) -> str:
        """The list in which whoever waits for a job finds its result."""
        return _fill(self.reply, "id", job_id)

    def work_key(self, worker_id: str) -> str:
        """The queue of a worker: ids of jobs, pushed on the left."""
        return _fill(self.work, "worker", worker_id)

    def stop_key(self, worker_id: str) -> str:
        """The stop requests of a worker: ids of jobs."""
        return _fill(self.stop, "worker", worker_id)

    def own_key(self, worker_id: str, name: str) -> str:
        """A key of ours, for all that serve this worker's queue."""
        return _fill(self.own, "worker", worker_id) + name

    def jobs_pattern(self) -> str:
        """What SCAN is told to find the hashes of all jobs."""
        before, after = self.around_job_id()
        return f"{escaped(before)}*{escaped(after)}"

    def job_id_of(self, key: str) -> str | None:
        """The id in the name of a job's hash; None for another key."""
        before, after = self.around_job_id()
        if not (key.startswith(before) and key.endswith(after)):
            return None
        return key[len(before) : len(key) - len(after)] or None

    def around_job_id(self) -> tuple[str, str]:
        """What stands before the id in the key of a job, and what behind it."""
        return _around(self.job)

    def around_reply_id(self) -> tuple[str, str]:
        """The same for the key of a reply."""
        return _around(self.reply)


def keys_of(naming: str = "text", templates: Mapping[str, str] | None = None) -> Keys:
    """A naming, with some of its templates replaced by others. Raises ``ValueError``."""
    known = NAMINGS.get(naming)
    if known is None:
        raise ValueError(f"no such naming: {naming[:40]!r}; known: {', '.join(NAMINGS)}")
    made = {field.name: str(getattr(known, field.name)) for field in fields(known)}
    for name, template in (templates or {}).items():
        if name not in made:
            raise ValueError(f"no such key: {name[:40]!r}; known: {', '.join(made)}")
        made[name] = template
    return Keys(**made)


def is_id(text: str) -> bool:
    """Whether it can be a job's or a worker's id: printable, and of a sensible length."""
    return 0 < len(text) <= ID_CHARS_MAX and text.isprintable()


def _fill(template: str, name: str, value: str) -> str:
    # Values are put in last: one that holds braces stays what it is.
    parts = template.replace("{{", "\1").replace("}}", "\2").split("{" + name + "}")
    return value.join(part.replace("\1", "{").replace("\2", "}") for part in parts)


def _around(template: str) -> tuple[str, str]:
    # A mark that no template holds: ``_fill`` knows what is a brace and what a placeholder.
    before, _, after = _fill(template, "id", "\0").partition("\0")
    return before, after


def escaped(text: str) -> str:
    """For a pattern of SCAN: nothing in it means more than itself."""
    return "".join("\\" + c if c in "*?[]^\\" else c for c in text)


def _check(name: str, template: str, wanted: str, *, needed: bool) -> None:
    if not template or not template.isprintable():
        raise ValueError(f"the key name {name} is empty, or not printable")
    rest = template.replace("{{", "").replace("}}", "")
    count = rest.count("{" + wanted + "}")
    if count > 1 or (needed and not count):
        raise ValueError(f"the key name {name} holds {{{wanted}}} once: {template[:80]!r}")
    left = rest.replace("{" + wanted + "}", "")
    if "{" in left or "}" in left:
        raise ValueError(f"the key name {name} has a stray brace: {template[:80]!r}")


DEFAULT = Keys()
"""The naming of the text."""

LATER = Keys(
    work="hero:q:work:type:{worker}",
    stop="hero:q:ctl:type:{worker}",
    reply="hero:q:reply:{id}",
)
"""The naming that later programs use."""

CLUSTER = Keys(
    job="{{hero}}:job:{id}",
    work="{{hero}}:work_queue:{worker}",
    stop="{{hero}}:stop_queue:{worker}",
    reply="{{hero}}:reply:{id}",
    own="{{hero}}:beads_workers:{worker}:",
)
"""The text's names behind one hash tag: what goes together lies on one node of a cluster."""

NAMINGS = {"text": DEFAULT, "later": LATER, "cluster": CLUSTER}
