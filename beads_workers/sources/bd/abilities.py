"""What the running ``bd`` can do, asked of itself: its version and its help texts."""

from __future__ import annotations

import re

from beads_workers.core.source import SourceError
from beads_workers.core.values import value
from beads_workers.sources.bd.answers import failed
from beads_workers.sources.bd.calls import Answer, BdCalls, plain

VERSION_BYTES_MAX = 1000
"""A program that says more to ``--version`` is none that we know."""

WHOLE = ("help", "--all")
"""Prints every help text at once, where this ``bd`` has it: four calls less in every start."""

_HEADING = re.compile(r"(?m)^#{2,3} (?:bd )?(.+)$")
_COMMAND = re.compile(r"(?m)^  ([a-z][a-z-]*)\s")
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


@value
class _Helps:
    """Options of all commands and of three of them, and the names of all."""

    everywhere: str
    update: str
    ready: str
    listing: str
    commands: frozenset[str]


def detect(calls: BdCalls) -> Abilities:
    """Ask; raises ``SourceError`` when there is no ``bd``, or one that cannot claim."""
    version = version_in(calls.run(["--version"]))
    helps = _whole(calls) or _one_by_one(calls)
    if not _has(helps.update, "--claim") or not _has(helps.update, "--json"):
        raise SourceError(
            f"bd {version} is too old: it cannot claim an issue",
            "install beads 0.44.0 or later",
        )
    hidden = ("--include-gates", "--include-templates", "--include-infra")
    return Abilities(
        version=version,
        compare_and_swap=_has(helps.update, "--if-assignee") and _has(helps.update, "--if-status"),
        batch="batch" in helps.commands,
        leases="heartbeat" in helps.commands,
        daemon=_has(helps.everywhere, "--no-daemon"),
        append_notes=_has(helps.update, "--append-notes"),
        brief=_has(helps.ready, "--brief"),
        brief_list=_has(helps.listing, "--brief"),
        exclude_type=_has(helps.ready, "--exclude-type"),
        exclude_label=_has(helps.ready, "--exclude-label"),
        readonly=_has(helps.everywhere, "--readonly"),
        hidden=tuple(option for option in hidden if _has(helps.listing, option)),
    )


def _whole(calls: BdCalls) -> _Helps | None:
    """From one call; None where this ``bd`` has no such reference, or one of another form."""
    answer = calls.run(WHOLE)
    if answer.status != 0:
        return None
    sections = _sections(answer.stdout.decode("utf-8", "replace"))
    found = [sections.get(name) for name in ("Global Flags", "update", "ready", "list")]
    if not all(found):
        return None
    everywhere, update, ready, listing = (text or "" for text in found)
    return _Helps(everywhere, update + everywhere, ready, listing, frozenset(sections))


def _sections(text: str) -> dict[str, str]:
    _, *parts = _HEADING.split(text)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _one_by_one(calls: BdCalls) -> _Helps:
    overview = _help(calls)
    return _Helps(
        everywhere=overview,
        update=_help(calls, "update"),
        ready=_help(calls, "ready"),
        listing=_help(calls, "list"),
        commands=frozenset(_COMMAND.findall(overview)),
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
