"""What a Redis that holds queues should be like: rules for what it says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beads_workers.core.checks import Check, fail, ok, warn

VERSION_MIN = (6, 2)
"""From here on a job can be moved from a queue to those that are worked on in one step."""

NAME = "redis"


def version(said: str) -> Check:
    """Whether it can do what is needed."""
    numbers = tuple(int(part) for part in said.split(".")[:2] if part.isascii() and part.isdigit())
    needed = ".".join(map(str, VERSION_MIN))
    if len(numbers) < len(VERSION_MIN):
        return warn(NAME, f"it calls its version {said[:40]!r}; {needed} or later is needed")
    if numbers < VERSION_MIN:
        return fail(NAME, f"version {said[:40]} is too old: {needed} or later is needed")
    return ok(NAME, f"version {said[:40]}")


def eviction(info: Mapping[str, Any], cli: str) -> Check:
    """Whether it would throw jobs away when its memory is full. ``cli``: how it is called."""
    policy, most = str(info.get("maxmemory_policy", "")), info.get("maxmemory")
    if not policy:
        return warn(NAME, "it does not say what it does when its memory is full")
    if policy == "noeviction":
        return ok(NAME, "it throws nothing away: maxmemory-policy is noeviction")
    remedy = f"{cli} CONFIG SET maxmemory-policy noeviction && {cli} CONFIG REWRITE"
    if most == 0:
        # Without a limit of memory nothing is evicted yet; one day somebody sets one.
        text = f"maxmemory-policy is {policy}: with a maxmemory, jobs would be thrown away"
        return warn(NAME, text, remedy)
    return fail(NAME, f"maxmemory-policy is {policy}: jobs are thrown away when it is full", remedy)


def persistence(info: Mapping[str, Any], cli: str) -> Check:
    """Whether jobs survive its restart."""
    if "aof_enabled" not in info:
        return warn(NAME, "it does not say whether it keeps anything on disk")
    if info["aof_enabled"] == 1:
        if str(info.get("aof_last_write_status", "ok")) != "ok":
            remedy = f"{cli} INFO persistence"
            return fail(NAME, "its append-only file cannot be written", remedy)
        return ok(NAME, "jobs survive its restart: appendonly is on")
    remedy = f"{cli} CONFIG SET appendonly yes && {cli} CONFIG REWRITE"
    text = "appendonly is off: jobs of the last minutes are lost when it ends"
    return warn(NAME, text, remedy)


def role(info: Mapping[str, Any]) -> Check | None:
    """Whether it is the one that may be written."""
    if str(info.get("role", "master")) == "master":
        return None
    host, port = info.get("master_host"), info.get("master_port")
    return fail(NAME, f"it is a replica, which cannot be written; {host}:{port} is what it follows")
