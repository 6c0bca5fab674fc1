"""One project's ``bd``: what is asked of it, with the quirks of its generations held here."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from beads_workers.core.jobs import Filters, IssueId
from beads_workers.core.source import SourceError
from beads_workers.sources.bd.abilities import Abilities, detect
from beads_workers.sources.bd.answers import (
    IN_PROGRESS,
    OPEN,
    Row,
    is_out_of_sync,
    object_of,
    rows,
)
from beads_workers.sources.bd.calls import Answer, BdCalls, plain
from beads_workers.sources.bd.listing import ready_arguments

DAEMON_WAIT_SECONDS = 5.0
"""How long ``bd`` 0.x waits, on every call, for a daemon that does not come up."""
IDS_PER_CALL_MAX = 100
"""Keeps the command line and the time of one call small."""


class Tracker:
    """Reads issues through ``calls``; learns the abilities of the running ``bd`` when first used.

    ``known``: another one has learned them already, of the same ``bd``. Every method may raise
    ``SourceError``; then nothing is known.
    """

    def __init__(self, calls: BdCalls, known: Abilities | None = None) -> None:
        self.calls = calls
        self._abilities = known

    @property
    def abilities(self) -> Abilities:
        """What this ``bd`` can do; asked once."""
        if self._abilities is None:
            self._abilities = detect(self.calls)
        return self._abilities

    def ask(
        self, arguments: Sequence[str], *, ids: int = 0, text: str = "", actor: str = ""
    ) -> Answer:
        """One call, or two when this ``bd`` turns out to need an option that it was not given."""
        has_daemon = self.abilities.daemon
        answer = self.calls.run(arguments, ids=ids, text=text, actor=actor)
        if not has_daemon:
            return answer
        if b"Daemon failed to start" in answer.stderr or answer.seconds >= DAEMON_WAIT_SECONDS:
            self._always("--no-daemon")
        if is_out_of_sync(answer) and self._always("--allow-stale"):
            # It looks before it does anything, so nothing has been written yet.
            return self.calls.run(arguments, ids=ids, text=text, actor=actor)
        return answer

    def ready(self, filters: Filters, rows_max: int) -> list[Row]:
        """What ``bd ready`` shows, unfiltered where this ``bd`` cannot filter."""
        return rows(self.ask(ready_arguments(filters, self.abilities, rows_max)))

    def look(self, issue_ids: Sequence[IssueId]) -> dict[IssueId, Row]:
        """These issues as they are now, closed ones too; what is missing does not exist."""
        seen: dict[IssueId, Row] = {}
        for start in range(0, len(issue_ids), IDS_PER_CALL_MAX):
            part = issue_ids[start : start + IDS_PER_CALL_MAX]
            answer = self.ask([*self._list(), "--all", f"--id={','.join(part)}"], ids=len(part))
            seen |= {row.issue_id: row for row in rows(answer)}
        return seen

    def in_progress(self) -> list[Row]:
        """Everything in progress, whoever holds it; leases included."""
        return rows(self.ask([*self._list(), f"--status={IN_PROGRESS}"]))

    def under_way(self, actor: str) -> list[Row]:
        """Everything in progress, and what is open but still assigned to ``actor``."""
        started = self.in_progress()
        left = rows(self.ask([*self._list(), f"--status={OPEN}", f"--assignee={actor}"]))
        return started + left

    def place(self) -> str:
        """Mode, path and prefix, for people; checks that the database answers."""
        info = object_of(self.ask(["info", "--json"]))
        config = info.get("config")
        prefix = config.get("issue_prefix") if isinstance(config, dict) else None
        if self.abilities.daemon:
            mode = "with its daemon" if info.get("daemon_connected") is True else "without daemon"
        else:
            mode = self._dolt_mode()
        path = Path(str(info.get("database_path") or self.calls.folder / ".beads")).parent
        return plain(f"{mode}, {path}" + (f" (prefix {prefix})" if prefix else ""))

    def literal_argv(self) -> tuple[str, ...]:
        """Program and fixed options for a worker that calls ``bd`` by itself, beside others."""
        environment = self.calls.environment
        path = environment.get("PATH") if environment is not None else None
        program = shutil.which(self.calls.program, path=path) or self.calls.program
        if self.abilities.daemon and not self.daemon_runs():
            # Several writers without a daemon: each would find the others' JSON Lines newer.
            return (program, "--no-daemon", "--allow-stale")
        return (program, *self.calls.fixed)

    def daemon_runs(self) -> bool:
        """Whether the process named in ``.beads/daemon.pid`` lives and is a ``bd``."""
        try:
            pid = int((self.calls.folder / ".beads" / "daemon.pid").read_text())
            name = Path(f"/proc/{pid}/comm").read_text().strip()
        except (OSError, ValueError):
            return False
        return name.startswith("bd")

    def flush(self) -> None:
        """``bd`` 0.x: write the JSON Lines once more, from the database alone.

        Each call writes them by itself, but of two at the same moment one may write last with
        less. Where a daemon runs, it does this every few seconds.
        """
        if self.abilities.daemon and not self.daemon_runs():
            self.ask(["sync", "--flush-only"])

    def _list(self) -> list[str]:
        brief = self.abilities.brief_list and self.abilities.append_notes
        return ["list", "--json", "--limit=0", *self.abilities.hidden, *["--brief"][: int(brief)]]

    def _dolt_mode(self) -> str:
        try:
            mode = object_of(self.ask(["context", "--json"])).get("dolt_mode")
        except SourceError:
            # Only for show, and not every version has the command.
            return "dolt"
        return mode if isinstance(mode, str) else "dolt"

    def _always(self, option: str) -> bool:
        """From now on, with this option; False when that is so already."""
        if option in self.calls.fixed:
            return False
        self.calls.fixed.append(option)
        return True
