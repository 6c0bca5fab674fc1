"""State of the agents' accounts that all fleets of a user share: one small file.

``$XDG_STATE_HOME/beads-workers/accounts.json``, else below ``~/.local/state``. A limit that one
fleet hits holds for the next fleet, in any project and after any crash. The file names accounts by
hash only. A damaged file, or one of another user, counts as empty.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from beads_workers.core.base.framing import as_integer, as_number
from beads_workers.core.records.journal import AccountClosed, AccountOpened
from beads_workers.core.records.receipts import AccountId, AccountRefusal, AccountTrouble, Closed
from beads_workers.core.schedule.events import AccountTold, Event, Warned

FILE_BYTES_MAX = 1 << 20
KEPT_SECONDS = 86_400.0
"""Seconds after its probe time at which an entry expires, if no fleet has opened the account."""

ByAccount = dict[AccountId, list[Closed]]


def state_home(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of beads-workers in the user's state directory."""
    configured = environment.get("XDG_STATE_HOME", "")
    base = Path(configured) if configured.startswith("/") else Path.home() / ".local" / "state"
    return base / "beads-workers"


class AccountFile:
    """The shared file of accounts, as one run sees it."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self._folder = folder
        self._path = folder / "accounts.json"
        self._run_id = run_id
        self._seen: tuple[int, int] | None = None

    def tell(self, account: AccountId, closed: list[Closed]) -> None:
        """Write how an account stands now, as this run has found out.

        Raises ``OSError``; ``BlockingIOError`` while another fleet writes.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._locked():
            known = self._read()
            known[account] = closed
            self._write({each: rows for each, rows in known.items() if rows})

    def changed(self) -> ByAccount | None:
        """Return what the file says if it has changed since the last call; None: no change, or no
        file."""
        try:
            status = self._path.lstat()
        except OSError:
            return None
        mark = (status.st_mtime_ns, status.st_ino)
        if mark == self._seen:
            return None
        self._seen = mark
        return self._read()

    # --- inside -----------------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[None]:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        lock = os.open(self._folder / "accounts.lock", flags, 0o600)
        try:
            # The holder of the lock may be stopped: do not wait for it.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(lock)

    def _read(self) -> ByAccount:
        try:
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(self._path, flags)
        except OSError:
            return {}
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid()
            data = file.read(FILE_BYTES_MAX) if ours else b""
        try:
            accounts = json.loads(data)
        except (ValueError, RecursionError):
            return {}
        if not isinstance(accounts, dict):
            return {}
        now = time.time()
        return {
            AccountId(account): closed
            for account, rows in accounts.items()
            if (closed := [c for c in _read_rows(rows) if c.probe_at + KEPT_SECONDS > now])
        }

    def _write(self, accounts: ByAccount) -> None:
        rows = {account: [self._row(c) for c in closed] for account, closed in accounts.items()}
        fresh = self._folder / f"accounts.{os.getpid()}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        fresh.unlink(missing_ok=True)
        try:
            with open(os.open(fresh, flags, 0o600), "w", encoding="ascii") as file:
                json.dump(rows, file, indent=1)
            fresh.replace(self._path)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise

    def _row(self, closed: Closed) -> dict[str, Any]:
        refusal = closed.refusal
        return {
            "trouble": refusal.trouble.value,
            "why": refusal.why,
            "model": refusal.model,
            "until": refusal.until,
            "since": closed.since,
            "probe_at": closed.probe_at,
            "refusals": closed.refusals,
            "run": closed.told_by or self._run_id,
        }


class SharedAccounts:
    """The loop's use of the file: ``record`` for each journaled change, ``flush`` in each turn,
    ``look`` now and then and before the first claim."""

    def __init__(
        self,
        file: AccountFile,
        run_id: str,
        accounts: Iterable[AccountId],
        tell: Callable[[Event], None],
    ) -> None:
        """``accounts``: accounts of this fleet's agents. ``tell``: the loop's ``tell``."""
        self._file = file
        self._run_id = run_id
        self._accounts = frozenset(accounts)
        self._tell = tell
        self._known: dict[AccountId, dict[str, Closed]] = {}
        self._read: ByAccount = {}
        self._unwritten: set[AccountId] = set()
        self._has_warned = False

    def record(self, record: AccountClosed | AccountOpened) -> None:
        """Record how an account stands, as the core found out itself or learned from another
        fleet."""
        account = AccountId(record.account)
        closed = self._known.setdefault(account, {})
        if isinstance(record, AccountOpened):
            closed.pop(record.model, None)
        else:
            trouble = AccountTrouble(record.trouble)
            refusal = AccountRefusal(trouble, record.why, record.until or None, record.model)
            learned = self._read.get(account, [])
            told_by = next((c.told_by for c in learned if _stands(c) == _place(record)), "")
            closed[record.model] = Closed(
                refusal, record.since, record.probe_at, record.refusals, told_by
            )
        self._unwritten.add(account)

    def flush(self) -> None:
        """Write what is new for other fleets. While another fleet writes, keep it for the next
        call."""
        for account in list(self._unwritten):
            ours = list(self._known[account].values())
            theirs = self._read.get(account, [])
            try:
                if set(map(_stands, ours)) != set(map(_stands, theirs)):
                    self._file.tell(account, ours)
                    self._read = {**self._read, account: ours}
            except BlockingIOError:
                return
            except OSError as error:
                self._warn(error)
            self._unwritten.discard(account)

    def look(self) -> None:
        """Tell the core what other fleets have found out since the last look."""
        found = self._file.changed()
        if found is None:
            return
        for account in sorted(self._accounts & (found.keys() | self._read.keys())):
            theirs = [c for c in found.get(account, []) if c.told_by != self._run_id]
            self._tell(AccountTold(account, tuple(theirs)))
        self._read = found

    def _warn(self, error: OSError) -> None:
        if not self._has_warned:
            self._has_warned = True
            text = f"other fleets are not told of limits: {error.strerror}: {error.filename}"
            self._tell(Warned(text))


def _stands(closed: Closed) -> tuple[str, float]:
    return closed.refusal.model, round(closed.probe_at, 3)


def _place(record: AccountClosed) -> tuple[str, float]:
    return record.model, round(record.probe_at, 3)


def _read_rows(rows: object) -> Iterator[Closed]:
    for row in rows if isinstance(rows, list) else ():
        if not isinstance(row, dict):
            continue
        since, probe_at = as_number(row.get("since")), as_number(row.get("probe_at"))
        try:
            trouble = AccountTrouble(row.get("trouble"))
        except ValueError:
            continue
        texts = [row.get(name, "") for name in ("why", "model", "run")]
        if since is None or probe_at is None or not all(isinstance(t, str) for t in texts):
            continue
        why, model, run = texts
        refusal = AccountRefusal(trouble, why, as_number(row.get("until")), model)
        yield Closed(refusal, since, probe_at, max(0, as_integer(row.get("refusals")) or 0), run)
