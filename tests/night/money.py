"""Money: what the ledger says against the meter of the stub, over kills and resumed sessions.

Attempts end in five ways: well; by a failed check, which a second attempt in the same session
mends; by a kill of the agent in the middle of a tool call; by a kill of its worker; by a kill of
everything at once, after which another fleet goes on. What a killed worker had not said stands in
the file of its usage (``usage_found`` in the journal); a file that no record has is read here.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from beads_workers.core.records.receipts import Receipt, Tokens, read_receipt
from beads_workers.runtime import sessions
from beads_workers.runtime.usage_file import read_usage
from tests.agents_api import Tokens as Metered
from tests.night.figures import Row, Rows
from tests.night.ground import Ground, ground, say, wait_until
from tests.support.agent_projects import CODEX_KEY

ATTEMPTS_EACH = 5
"""So many attempts for each issue of a night."""
CODEX_SHARE = 0.6
MONEY_OFF = 0.01
FULL_ATTEMPTS = 60
"""Of an agent. Where there are fewer, the answers that a kill cut off are a large share."""
BETWEEN_KILLS = 6
PATIENCE = 400.0
DIE = """\
#!/bin/sh
# Kills the agent that called it, once for each issue.
flag="$FLAGS/$BW_ISSUE_ID"
test -e "$flag" && exit 0
touch "$flag"
pid=$PPID
while [ "$pid" -gt 1 ]; do
  case $(readlink "/proc/$pid/exe") in
    */claude | */codex) kill -9 "$pid" && exit ;;
  esac
  pid=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$pid/status")
done
echo "no agent above" >&2
exit 1
"""
SETTINGS = """\
[agents.claude]
prices = { "claude-*" = [2.0, 10.0, 0.1] }
"""
"""For what a killed claude does not say; as the stub counts."""


@dataclass(slots=True)
class Said:
    """Sums by agent."""

    tokens: Counter[str] = field(default_factory=Counter)
    money: Counter[str] = field(default_factory=Counter)

    def add(self, receipt: Receipt) -> None:
        """An attempt's."""
        self.tokens[receipt.agent] += _prompt(receipt.tokens) + receipt.tokens.output
        self.money[receipt.agent] += receipt.money or 0.0


def prove(size: int, folder: Path, *, exact: bool = False) -> list[Row]:
    """Five attempts for each of ``size``, three of them by codex. ``exact``: workers are killed in
    the middle of attempts that have used something, which only ``usage_found`` can tell."""
    rows = Rows("money")
    attempts = ATTEMPTS_EACH * size
    codex = round(CODEX_SHARE * attempts)
    for agent, count in (("codex", codex), ("claude", attempts - codex)):
        with ground(folder, f"money-{agent}") as place:
            _agent(place, rows, agent, count, exact=exact)
    return rows.rows


def _agent(place: Ground, rows: Rows, agent: str, attempts: int, *, exact: bool) -> None:
    flags = place.folder / "flags"
    flags.mkdir()
    tool = place.folder / "tools" / "die-once"
    tool.write_text(DIE)
    tool.chmod(0o755)
    place.project.environment |= {"FLAGS": str(flags)}
    place.settings(SETTINGS)
    issues = max(4, round(attempts / 1.4))
    place.project.create_many([{"description": _script(n)} for n in range(issues)])
    options = ["-n", "6", "--agent", agent, "--until-empty", "--retry-delay", "0"]
    options += ["--max-attempts", "6"]
    # Of all issues, as the gate asks the same of what has landed.
    verify = 'for f in second-*; do test ! -e "$f" || test -e "mended-${f#second-}" || exit 1; done'
    place.start(*options, "--fix-rounds", "0", "--verify", verify)
    killed = _kill_workers(place, max(1, attempts // 40), exact=exact)
    unsaid = _kill_everything(place, rows, agent, issues // 2)
    if unsaid is not None:
        place.start(*options, "--fix-rounds", "0", "--verify", verify)
    status = place.finish()
    rows.equal(f"{agent}: exit status", status, 0)
    allowed = agent == "codex" or attempts < FULL_ATTEMPTS
    _compare(place, rows, agent, killed, (unsaid or 0.0) if allowed else 0.0)


def _script(number: int) -> str:
    """Each with amounts of its own; every fifth fails its check once, every eighth is killed."""
    amounts = f"tokens {1000 + 37 * number} {5 + number % 10} {300 * (number % 3)}"
    again = f'; write second-{number} "1"' if number % 5 == 1 else ""
    dies = "; run die-once" if number % 8 == 3 else ""
    script = f'[[stub: {amounts}; write a{number}.py "1"{dies}{again}]]'
    if again:
        script += f' [[stub when "verify failed": {amounts}; write mended-{number} "1"]]'
    return script


def _kill_workers(place: Ground, count: int, *, exact: bool) -> int:
    """Kill workers while their agents work, and with them everything that has not been said."""
    fleet, killed = place.fleets[-1], 0
    for number in range(count):
        wanted = len(place.ends()) + BETWEEN_KILLS
        wait_until(partial(_goes_on, place, wanted), 60, "some attempts end")
        worker_id = f"W{1 + number % 6}"
        if exact:
            wait_until(partial(_used_by, place), 30, "an attempt has used something")
            worker_id = _used_by(place) or worker_id
        if fleet.process.poll() is not None:
            break
        pid = int(fleet.wait_for("worker_started", worker_id=worker_id)["pid"])
        started = sessions.start_time(pid)
        killed += started is not None and sessions.kill(pid, started, signal.SIGKILL)
    say(f"killed {killed} workers")
    return killed


def _kill_everything(place: Ground, rows: Rows, agent: str, wanted: int) -> float | None:
    """All processes of the fleet in one moment, once so many attempts have ended; what is known
    then lacks no more than the answers that came in that moment: so many tokens of codex, or
    dollars of claude. None where it ended before."""
    fleet = place.fleets[-1]
    wait_until(partial(_goes_on, place, wanted), PATIENCE, f"{wanted} attempts end")
    wait_until(lambda: fleet.process.poll() is not None or _used_by(place), 30, "one is used")
    if fleet.process.poll() is not None:
        return None
    pids = [fleet.pid, *fleet.token_holders()]
    for pid, started in [(pid, sessions.start_time(pid)) for pid in pids]:
        if started is not None:
            sessions.kill(pid, started, signal.SIGKILL)
    fleet.process.wait()
    say(f"killed everything, {len(pids)} processes")
    over = {row["request_id"] for row in place.ends()}
    under_way = {
        session
        for row in fleet.journal("started")
        if row["request_id"] not in over
        for line in _usage_rows(place, row["request_id"])
        if isinstance(session := line.get("session"), str)
    }
    said, _ = _said(place)
    meter = place.api.accounts.total(account=_account(place, agent))
    what = (
        f"{agent}: right after kill -9 of everything, {len(under_way)} attempts under way: off by"
    )
    # The answer that came while it was killed.
    unsaid = sum(_dearest(place, agent, session) for session in under_way)
    if agent == "codex":
        rows.at_most(f"{what}, tokens", abs(_tokens(meter.tokens) - said.tokens[agent]), unsaid)
    else:
        rows.at_most(f"{what}, dollars", abs(meter.dollars - said.money[agent]), unsaid)
    return unsaid


def _dearest(place: Ground, agent: str, session: str) -> float:
    with place.api.accounts.lock:
        charges = [each for each in place.api.accounts.charges if each.session == session]
    if agent == "codex":
        return max((_tokens(each.tokens) for each in charges), default=0)
    return max((each.dollars for each in charges), default=0.0)


def _used_by(place: Ground) -> str:
    """A worker whose attempt goes on and has used something; "" where there is none."""
    fleet = place.fleets[-1]
    over = {row["request_id"] for row in place.ends()}
    for row in fleet.journal("started"):
        file = fleet.run_folder / "usage" / f"{row['request_id']}.jsonl"
        if row["request_id"] in over or not file.exists():
            continue
        if any("used" in json.loads(line) for line in file.read_text().splitlines()):
            return str(row["worker_id"])
    return ""


def _add_file(place: Ground, said: Said, request_id: str) -> bool:
    """What an attempt without a receipt had used, as the next fleet reads it from its file."""
    file = _usage_file(place, request_id)
    receipt = read_usage(file) if file is not None else None
    if receipt is not None:
        said.add(receipt)
    return receipt is not None and bool(receipt.usage)


def _usage_file(place: Ground, request_id: str) -> Path | None:
    files = (f.run_folder / "usage" / f"{request_id}.jsonl" for f in place.fleets)
    return next((file for file in files if file.exists()), None)


def _usage_rows(place: Ground, request_id: str) -> list[dict[str, Any]]:
    file = _usage_file(place, request_id)
    return [] if file is None else [json.loads(line) for line in file.read_text().splitlines()]


def _goes_on(place: Ground, wanted: int) -> bool:
    return place.fleets[-1].process.poll() is not None or len(place.ends()) >= wanted


def _compare(place: Ground, rows: Rows, agent: str, workers_killed: int, unsaid: float) -> None:
    """``unsaid``: dollars of claude that may be missing beside the promised share, or tokens of
    codex: see ``_kill_everything``."""
    attempts, found = place.journal("started"), place.journal("usage_found")
    said, files = _said(place)
    ends = Counter(row["outcome"] for row in place.ends())
    again = sum(row["attempt"] > 1 for row in attempts)
    what = f"{len(attempts)}, {again} of them not the first; {dict(ends)}"
    rows.count(f"{agent}: attempts", what)
    what = f"{agent}: workers killed; usage found; files of usage that no record has yet"
    rows.count(what, f"{workers_killed}; {len(found)}; {files}")
    meter = place.api.accounts.total(account=_account(place, agent))
    if agent == "codex":
        tokens = _tokens(meter.tokens)
        rows.count("codex: tokens, ours and the meter's", f"{said.tokens[agent]}, {tokens}")
        rows.at_most("codex: the difference, tokens", abs(said.tokens[agent] - tokens), unsaid)
        return
    off = abs(said.money[agent] - meter.dollars) / meter.dollars
    shown = f"${said.money[agent]:.4f}, ${meter.dollars:.4f}"
    rows.count("claude: dollars, ours and the meter's", shown)
    most = MONEY_OFF + unsaid / meter.dollars
    rows.at_most("claude: the difference", 100 * off, 100 * most, " %")
    left = [i for i, (status, _) in place.project.read_all().items() if status != "closed"]
    rows.none("claude: issues not closed", left)


def _said(place: Ground) -> tuple[Said, int]:
    """What receipts and files say, and how many files no record has yet."""
    said = Said()
    for _, receipt in place.receipts():
        said.add(receipt)
    found = place.journal("usage_found")
    for row in found:
        if (receipt_found := read_receipt(row.get("receipt"))) is not None:
            said.add(receipt_found)
    told = {row["request_id"] for row, _ in place.receipts()}
    told |= {row["request_id"] for row in found}
    files = sum(
        _add_file(place, said, row["request_id"])
        for row in place.journal("started")
        if row["request_id"] not in told
    )
    return said, files


def _account(place: Ground, agent: str) -> str:
    return CODEX_KEY if agent == "codex" else place.home.key


def _prompt(tokens: Tokens) -> int:
    return tokens.input + tokens.cached_read + tokens.cached_write


def _tokens(tokens: Metered) -> int:
    return tokens.input + tokens.cache_read + tokens.cache_write + tokens.output
