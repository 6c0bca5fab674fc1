"""What the running ``bd`` can do, asked of itself: its version and its help texts."""

from __future__ import annotations

import re

from beads_workers.core.source import SourceError
from beads_workers.core.values import value
from beads_workers.sources.bd.answers import failed
from beads_workers.sources.bd.calls import Answer, BdCalls, plain

VERSION_BYTES_MAX = 1000
"""A program that says more to ``--version`` is none that we know."""

_VERSION = re.compile(r"([0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}[\w.+-]{0,60})", re.ASCII)


@value
class Abilities:
    """``compare_and_swap``: ``update --if-assignee --if-status``, and atomic claims with it.

    ``batch``: one transaction for many closes. ``leases``: a claim expires unless it is renewed.
    ``daemon``: a background process may hold the database. The rest are single options.
    """

    version: str
    compare_and_swap: bool
    batch: bool
    leases: bool
    daemon: bool
    append_notes: bool
    brief: bool
    brief_list: bool
    exclude_type: bool
    exclude_label: bool
    readonly: bool
    hidden: tuple[str, ...]
    """Options of ``list`` without which some kinds of issues are left out."""


def detect(calls: BdCalls) -> Abilities:
    """Ask; raises ``SourceError`` when there is no ``bd``, or one that cannot claim."""
    version = version_in(calls.run(["--version"]))
    update = _help(calls, "update")
    if not _has(update, "--claim") or not _has(update, "--json"):
        raise SourceError(
            f"bd {version} is too old: it cannot claim an issue",
            "install beads 0.44.0 or later",
        )
    overview = _help(calls)
    ready = _help(calls, "ready")
    listing = _help(calls, "list")
    hidden = ("--include-gates", "--include-templates", "--include-infra")
    return Abilities(
        version=version,
        compare_and_swap=_has(update, "--if-assignee") and _has(update, "--if-status"),
        batch=_has_command(overview, "batch"),
        leases=_has_command(overview, "heartbeat"),
        daemon=_has(update, "--no-daemon"),
        append_notes=_has(update, "--append-notes"),
        brief=_has(ready, "--brief"),
        brief_list=_has(listing, "--brief"),
        exclude_type=_has(ready, "--exclude-type"),
        exclude_label=_has(ready, "--exclude-label"),
        readonly=_has(overview, "--readonly"),
        hidden=tuple(option for option in hidden if _has(listing, option)),
    )


def version_in(answer: Answer) -> str:
    """What ``bd --version`` says; raises ``SourceError`` where it says none."""
    text = answer.stdout[:VERSION_BYTES_MAX].decode("utf-8", "replace")
    found = _VERSION.search(text)
    if answer.status != 0:
        raise failed(answer)
    if found is None:
        raise SourceError(
            f"bd --version says no version: {plain(text)[:80]}", "is this bd really beads?"
        )
    return found[1]


def _help(calls: BdCalls, *command: str) -> str:
    answer = calls.run([*command, "--help"])
    if answer.status != 0:
        raise failed(answer)
    return answer.stdout.decode("utf-8", "replace")


def _has(text: str, option: str) -> bool:
    return re.search(rf"(?m)^ .*{re.escape(option)}(?![\w-])", text) is not None


def _has_command(overview: str, command: str) -> bool:
    return re.search(rf"(?m)^  {command}\s", overview) is not None
