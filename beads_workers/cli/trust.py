"""``trust``, and the question of a start about untrusted lines of the project."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from beads_workers.checks.conditions.trust import refused
from beads_workers.checks.plan import FleetPlan
from beads_workers.checks.rules import Check, Grade
from beads_workers.checks.trust import store_of, trust
from beads_workers.checks.untrusted_lines import everything, untrusted, untrusted_hooks
from beads_workers.cli.arguments import Json
from beads_workers.cli.config import resolve
from beads_workers.cli.kinds import kind_said
from beads_workers.cli.refusals import refuse
from beads_workers.core.base.text import printable
from beads_workers.errors import CommandError
from beads_workers.options import KEYS, Resolved, RiskyLine, Typed, given


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command("trust", epilog="Example: beads-workers trust")(trust_command)


def trust_command(
    forget: Annotated[bool, typer.Option("--forget", help="Trust nothing here any more.")] = False,
    as_json: Json = False,
) -> None:
    """Trust what this project brings and a start would run.

    Its lines are printed. They are trusted until they change; see docs/TRUST.md.
    """
    plan = _plan(resolve({}, Path.cwd(), os.environ))
    lines, folders = everything(plan), _folders(plan)
    new = [line for line in lines if not store_of(line.folder).trusts(line.digest)]
    try:
        if forget:
            for folder in {*folders, *(line.folder for line in lines)}:
                store_of(folder).forget()
        else:
            trust(lines, *folders)
    except OSError as error:
        raise CommandError(f"what is trusted cannot be kept: {error}") from None
    if as_json:
        print(json.dumps({"trusted": [] if forget else [line.text for line in lines]}))
        return
    for line in [] if forget else new:
        print(printable(line.text))
    if forget:
        print("nothing is trusted here")
    else:
        print("trusted" if new else "nothing new here runs anything")


def settle(options: Typed, *, may_ask: bool = True) -> Resolved:
    """Do the same as ``resolve`` for a command that runs something, and ask about untrusted lines.

    It asks on a terminal only; a condition refuses the lines that stay untrusted. The variable that
    trusts everything is removed from the environment: no program inherits it.
    """
    environment = dict(os.environ)
    os.environ.pop(KEYS["trust"].variable, None)
    resolved = resolve(options, Path.cwd(), environment)
    asks = may_ask and _somebody_sits()
    while asks and (lines := untrusted(_plan(resolved))) and _agrees(lines):
        try:
            trust(lines)
        except OSError as error:
            raise CommandError(f"what is trusted cannot be kept: {error}", "--trust") from None
        resolved = resolve(options, Path.cwd(), environment)
    return resolved


def refuse_untrusted(resolved: Resolved, *, tells: bool = False) -> None:
    """Raise ``CommandError`` for untrusted lines, for a command without the plan of a start.

    ``tells``: see ``tell_refused``.
    """
    check = refused(untrusted(_plan(resolved)))
    if tells and check is not None:
        tell_refused(check, resolved.options.upkeep.notify)
    refuse(check)


def tell_refused(check: Check, notify: str | None) -> None:
    """Send ``--notify`` that no fleet begins, if there is no terminal: a service, or cron."""
    if notify is None or check.status is not Grade.FAIL or _somebody_sits():
        return
    from beads_workers.runtime.notifications import tell
    from beads_workers.ui.notices import Notice

    text, why = printable(f"no fleet begins: {check.text}"), printable(check.text)
    notice = Notice("refused", text, time.time(), "", str(Path.cwd()))
    notice = replace(notice, error=why, exit_code=check.exit_code, todo=check.remedy)
    tell(notify, notice)


def refuse_hooks(source: str | None) -> None:
    """Raise ``CommandError`` for untrusted hooks, for a command that only changes issues."""
    resolved = resolve(given({"source": source}), Path.cwd(), os.environ)
    refuse(refused(untrusted_hooks(_plan(resolved))))


def trust_here(written: Callable[[RiskyLine], bool]) -> None:
    """Trust the lines of the settings that this process has written.

    If no other line is untrusted, also register the folders as known.
    """
    plan = _plan(resolve({}, Path.cwd(), {}))
    lines = everything(plan)
    ours = [line for line in lines if written(line)]
    others = [e for e in lines if e not in ours and not store_of(e.folder).trusts(e.digest)]
    with suppress(OSError):  # Then the first start asks.
        trust(ours, *([] if others else _folders(plan)))


def _plan(resolved: Resolved) -> FleetPlan:
    return FleetPlan(resolved, kind_said(resolved.options.source))


def _folders(plan: FleetPlan) -> list[Path]:
    file = plan.resolved.file
    return [plan.folder, *([file.parent] if file else [])]


def _somebody_sits() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _agrees(lines: Sequence[RiskyLine]) -> bool:
    print("these lines came with this project, and would be run:", file=sys.stderr)
    for line in lines:
        print(f"  {printable(line.text)}", file=sys.stderr)
    print("trust them? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
