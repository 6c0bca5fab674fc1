"""``doctor``: everything that a fleet needs, looked at before it is started. Changes nothing."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from beads_workers.cli.doctor_remedies import edit, mend_apart, mend_file, sentence, settle_on_bd
from beads_workers.cli.errors import EXIT_ERROR, EXIT_TRACKER, EXIT_USAGE, CommandError
from beads_workers.cli.kinds import need
from beads_workers.cli.options import Options
from beads_workers.cli.parameters import takes
from beads_workers.cli.preparation import check_modules
from beads_workers.cli.start import CommandAfterDashes, command_of
from beads_workers.core.text import counted, printable
from beads_workers.doctor.rules import Check, Grade, any_failed, fail, ok

# --- doctor text ---------------------------------------------------------------------------------
# How the checks of ``doctor`` look: aligned and coloured on a terminal, plain in a pipe.


WORDS = {Grade.OK: "ok", Grade.WARN: "warn", Grade.FAIL: "FAIL"}
COLOURS = {Grade.OK: "32", Grade.WARN: "33", Grade.FAIL: "1;31"}
INDENT = " " * 17
WIDTH_MIN = 40
CLEAR_LINE = "\r\x1b[K"


class Printer:
    """Prints each check as it comes. ``fancy``: the stream is a terminal that can do more."""

    def __init__(self, stream: TextIO, *, silent: bool) -> None:
        self._stream = stream
        self._silent = silent
        terminal = stream.isatty()
        self._fancy = terminal and os.environ.get("TERM", "dumb") != "dumb"
        self._colour = self._fancy and not os.environ.get("NO_COLOR")
        self._width = max(shutil.get_terminal_size().columns, WIDTH_MIN) if terminal else 0

    def waiting(self, name: str) -> None:
        """Says what is waited for, where that can be taken away again."""
        if self._fancy and not self._silent:
            self._write(f"{CLEAR_LINE}...   {name}", end="")

    def check(self, check: Check) -> None:
        """One line, wrapped on a terminal, and the remedy below it, never wrapped: it is copied."""
        if self._silent:
            return
        clear = CLEAR_LINE if self._fancy else ""
        self._write(clear + self._first(check))
        if check.remedy:
            self._write(f"{INDENT}{self._paint('fix:', '36')} {check.remedy}")

    def end(self, checks: Sequence[Check]) -> None:
        """The sum of it."""
        count = {grade: sum(c.status is grade for c in checks) for grade in Grade}
        problems = [
            counted(count[grade], word)
            for grade, word in ((Grade.FAIL, "failure"), (Grade.WARN, "warning"))
            if count[grade]
        ]
        verdict = "not ready" if any_failed(checks) else "ready"
        self._write(f"{verdict}: {', '.join(problems) or 'all fine'}")

    def _first(self, check: Check) -> str:
        text = printable(check.text)
        lead = f"{WORDS[check.status]:<6}{check.name:<11}"
        line = lead + text
        if self._width:
            line = textwrap.fill(
                text,
                self._width,
                initial_indent=lead,
                subsequent_indent=INDENT,
                break_long_words=False,
                break_on_hyphens=False,
            )
        mark = WORDS[check.status]
        return self._paint(mark, COLOURS[check.status]) + line[len(mark) :]

    def _paint(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colour else text

    def _write(self, text: str, end: str = "\n") -> None:
        self._stream.write(text + end)
        self._stream.flush()


def printer(stream: TextIO, *, as_json: bool) -> Printer:
    """For this stream; silent where one JSON object is to come at the end."""
    return Printer(stream, silent=as_json)


def as_object(checks: Sequence[Check]) -> dict[str, Any]:
    """``{"ok": bool, "checks": [{"name", "status", "text", "remedy"}...]}``."""
    listed = [{**asdict(check), "status": check.status.value} for check in checks]
    return {"ok": not any_failed(checks), "checks": listed}


# --- doctor work ---------------------------------------------------------------------------------
# What ``doctor`` says of functions that issues and tasks may call.


def functions(options: Options, folder: Path) -> Check:
    """Whether the modules of ``--allow-module`` are there; none of them is imported."""
    try:
        check_modules(options, folder)
    except CommandError as error:
        return fail("command", sentence(error))
    modules = ", ".join(options.allow_module or ())
    return ok("command", f"functions of {modules}, which are there")


# --- doctor --------------------------------------------------------------------------------------


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command(
        "doctor",
        cls=CommandAfterDashes,
        epilog="Example: beads-workers doctor --agent claude",
    )(doctor)


@takes(
    "doctor",
    first=("workers", "source", "agent", "verify", "allow_module"),
    last=("state_dir", "as_json"),
    words={
        "source": "bd, sqlite, hero, dispatcherd:CONFIG or a URL.",
        "allow_module": "Where functions are that are called.",
        "state_dir": "Run directory.",
    },
)
def doctor(
    ctx: typer.Context,
    said: Options,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Check what a fleet needs, and say how to mend it.

    It takes the options and the command of 'start'. Nothing is changed, claimed or paid for.
    """
    from beads_workers.core.text import json_line
    from beads_workers.doctor.rules import Grade, any_failed
    from beads_workers.doctor.runner import carry_out

    said = replace(said, command=command_of(ctx))
    here = Situation(said)
    jobs = plan(here, said)
    show = printer(sys.stdout, as_json=as_json)
    checks = []
    for check in carry_out(jobs, show.waiting):
        checks.append(check)
        show.check(check)
    if as_json:
        print(json_line(as_object(checks)))
    else:
        show.end(checks)
    broken = any(
        c.name in ("tracker", here.kind and here.kind.checked) and c.status is Grade.FAIL
        for c in checks
    )
    raise typer.Exit(EXIT_TRACKER if broken else EXIT_ERROR if any_failed(checks) else 0)


def plan(here: Situation, said: Options) -> list[Any]:
    """The checks for these options, in the order in which they are shown."""
    from beads_workers.doctor import leftovers, machine
    from beads_workers.doctor import work as git
    from beads_workers.doctor.runner import ScheduledCheck

    workers, folder, root = here.workers, here.folder, here.state
    agent = here.agent is not None
    typed = f" --state-dir {shlex.quote(str(root))}" if said.state_dir else ""
    places = [(root, "the run directory"), (here.place or folder, "the tracker")]
    places.append((leftovers.TMP, str(leftovers.TMP)))
    looks: list[tuple[str, Callable[[], Any]]] = [
        ("python", machine.python),
        ("kernel", machine.kernel),
        ("settings", lambda: here.found),
        ("tracker", lambda: _source(here)),
        ("work", lambda: _work(here, said)),
        *_agents(here),
        ("verify", lambda: _verify(here)),
        ("worktree", lambda: _apart(here)),
        ("landing", lambda: _landing(here)),
        ("git", lambda: git.git(folder, agent=agent, apart=here.apart)),
        ("disk", lambda: machine.disk(places)),
        ("files", lambda: machine.file_limit(workers)),
        ("processes", lambda: machine.processes(workers, agent=agent)),
        ("memory", lambda: machine.memory(workers, agent=agent)),
        ("state", lambda: leftovers.state(root)),
        ("sockets", leftovers.sockets),
        ("leftovers", lambda: leftovers.leftovers(root, typed)),
        ("fleet", lambda: _fleet(here)),
        ("clock", lambda: machine.clock(leftovers.last_seen(root) or 0.0)),
    ]
    return [ScheduledCheck(name, look) for name, look in looks]


class Situation:
    """What ``start`` would find here with these options; ``found`` says what it would not.

    Raises ``CommandError`` only for what was typed; what the surroundings say wrongly is a check.
    """

    def __init__(self, said: Options) -> None:
        from beads_workers.cli import preparation
        from beads_workers.cli.kinds import kind_said
        from beads_workers.core.settings import Work
        from beads_workers.kinds import Looked
        from beads_workers.registry import kind_of
        from beads_workers.runtime.project import STATE_FOLDER

        self.found: list[Any] = []
        self.resolved = resolved = self._resolve(said)
        self.kind = kind_said(resolved.options.source)
        self.options = resolved.options
        self.file = resolved.file
        self.workers: int = resolved.options.workers or 0
        if self.kind and self.kind.workers:
            self.workers = self.kind.workers(resolved)
        self.verify = resolved.options.verify
        self.command, self.agents = self._choose(resolved)
        self.agent = self.agents[0] if self.agents else None
        self.review = self._find_review(resolved) if self.agents else None
        push = self.kind is not None and self.kind.capabilities.push
        self.tracker = None if push else self._find_tracker()
        if self.tracker is not None:
            self.kind = kind_of(self.tracker.source)
        self.folder = self.tracker.folder if self.tracker else Path.cwd()
        self.place = self.tracker.place if self.tracker else None
        self.state = Path(resolved.options.state_dir or self.folder / STATE_FOLDER)
        self.fleet = None
        if self.tracker:
            work = Work(command=self.command, agents=self.agents, verify=self.verify)
            self.fleet = preparation.settings_of(resolved, self.tracker, work, (), owned=False)
        self.looked = Looked(resolved, self.state, self.fleet)

    @property
    def apart(self) -> bool:
        """Whether attempts are to have worktrees of their own; agents have, unless told not to."""
        if self.options.worktree is not None:
            return bool(self.options.worktree)
        return any(a.adapter for a in self.agents) and not self.options.shared_checkout

    def _resolve(self, said: Options) -> Any:
        from beads_workers.cli.config import FILE_NAME, combine, find_file
        from beads_workers.core.text import counted
        from beads_workers.doctor.rules import fail, ok

        folder = Path.cwd()
        plain = combine(said, folder, {}, None)  # Raises for what was typed.
        file: Path | None = None
        try:
            file = find_file(folder)
            plain = combine(said, folder, {}, file)
        except CommandError as error:
            self.found.append(fail("settings", sentence(error), mend_file(file, folder)))
        else:
            where = f"{file}" if file else f"no {FILE_NAME} here or above"
            self.found.append(
                ok("settings", f"{where}; {counted(plain.options.workers or 0, 'worker')}")
            )
        try:
            return combine(said, folder, os.environ, plain.file)
        except CommandError as error:
            name = error.message.split()[0]
            self.found.append(fail("settings", sentence(error), f"unset {name}"))
            return plain

    def _choose(self, resolved: Any) -> tuple[tuple[str, ...] | None, tuple[Any, ...]]:
        from beads_workers.cli.preparation import choose_work
        from beads_workers.doctor.rules import fail

        try:
            return choose_work(resolved)
        except CommandError as error:
            if "command line" in (resolved.origin["agent"], resolved.origin["prompt"]):
                raise
            remedy = edit(resolved.file) if resolved.file else ""
            self.found.append(fail("settings", sentence(error), remedy))
            return None, ()

    def _find_review(self, resolved: Any) -> Any:
        from beads_workers.cli.agents import find_agent
        from beads_workers.doctor.rules import fail

        name = resolved.options.review
        try:
            return find_agent(resolved, name) if name else None
        except CommandError as error:
            if resolved.origin["review"] == "command line":
                raise
            remedy = edit(resolved.file) if resolved.file else ""
            self.found.append(fail("settings", sentence(error), remedy))
            return None

    def _find_tracker(self) -> Any:
        from beads_workers.cli.preparation import find_tracker
        from beads_workers.doctor.rules import fail, warn
        from beads_workers.runtime.project import Strangers, find_project

        try:
            find_project(Path.cwd())
        except Strangers as strangers:
            init = "beads-workers init"  # A tracker of one's own, and nearer, is found first.
            self.found.append(fail("tracker", str(strangers), init))
            return None
        try:
            found = find_tracker(self.options.source)
        except CommandError as error:
            if error.exit_code == EXIT_USAGE:
                raise
            kind = "bd init" if self.options.source == "bd" else "beads-workers init"
            self.found.append(fail("tracker", error.message, kind))
            return None
        if found.passed_over:
            text = "both trackers are here, a .beads and an embedded one: 'start' takes bd"
            self.found.append(warn("tracker", text, settle_on_bd(self.file, found.folder)))
        return found


def _source(here: Situation) -> Any:
    from beads_workers.doctor.tracker import tracker

    push = here.kind is not None and here.kind.capabilities.push
    if here.kind is None or not (here.fleet or push):
        return None
    return (here.kind.checks or tracker)(here.looked)


def _work(here: Situation, said: Options) -> Any:
    from beads_workers.agents.presets import find_agents
    from beads_workers.cli.preparation import commands_of_issues
    from beads_workers.doctor import work
    from beads_workers.doctor.rules import ok, warn

    if here.kind is not None and here.kind.work_checks is not None:
        return here.kind.work_checks(here.looked)
    if here.options.executor:
        remedy = mend_file(here.file, here.folder)
        commands = need("executors").commands_of(here.options)
        return [work.executor(argv, here.folder, remedy) for argv in commands]
    if here.command is not None:
        remedy = "" if said.command or here.file is None else edit(here.file)
        return work.command(here.command, here.folder, remedy)
    if here.agent is not None:
        return None  # Each has its lines.
    if here.options.allow_module:
        return functions(here.options, here.folder)
    try:
        own = here.tracker is not None and commands_of_issues(here.tracker) > 0
    except CommandError:
        own = False  # The tracker has a line of its own.
    if own:
        return ok("command", "each issue's own command")
    agents = find_agents(os.environ.get("PATH", ""))
    more = f"--agent {agents[0]}" if agents else "-- ./do-issue.sh {id}"
    text = "no command and no agent was named, so none was checked"
    return warn("command", text, f"beads-workers doctor {more}")


def _agents(here: Situation) -> list[Any]:
    from beads_workers.cli.doctor_agents import looks

    special = here.kind is not None and here.kind.work_checks is not None
    if special or here.options.executor or not here.agents:
        return []
    return looks(here.agents, here.review, here.folder)


def _verify(here: Situation) -> Any:
    from beads_workers.cli.doctor_agents import unverified
    from beads_workers.doctor import work

    if here.verify:
        return work.verify(here.verify, here.folder)
    if here.tracker is None or here.command is not None or here.options.executor:
        return None
    return unverified(
        here.folder,
        agents=any(each.adapter for each in here.agents),
        review=here.review.name if here.review else "",
        edit=mend_file(here.file, here.folder),
    )


def _apart(here: Situation) -> Any:
    """Whether attempts are kept out of each other's way, where that matters."""
    from beads_workers.cli.preparation import apart
    from beads_workers.doctor.machine import below_floor
    from beads_workers.doctor.rules import fail, ok

    if here.fleet is None or (here.agent is None and not here.options.worktree):
        return None
    try:
        work = apart(here.fleet, replace(here.options, land=False)).work
    except CommandError as error:
        return fail("worktree", sentence(error), mend_apart(here.options, here.folder))
    if work.worktrees is None:
        return ok("worktree", "none: what runs, runs in the project's own folder")
    base, folder = work.worktrees.base_name, work.worktrees.folder
    if (short := below_floor(Path(folder), work.worktrees.disk_floor_bytes)) is not None:
        return short
    return ok("worktree", f"each attempt gets one of its own, from {base}, in {folder}")


def _landing(here: Situation) -> Any:
    """Where finished branches land; None where they do not, or ``worktree`` says why."""
    from beads_workers.cli.preparation import apart
    from beads_workers.doctor.rules import fail, ok, warn
    from beads_workers.worktrees.git import GitError, git
    from beads_workers.worktrees.remote import RemoteTrouble, remote_heads

    if here.fleet is None or not here.apart or here.options.land is False:
        return None
    try:
        worktrees = apart(here.fleet, replace(here.options, land=False)).work.worktrees
    except CommandError:
        return None
    if worktrees is None:
        return None
    try:
        landing = apart(here.fleet, here.options).landing
        assert landing is not None, "branches do not stay, and there are worktrees"
        asked = ("for-each-ref", "--format=%(worktreepath)", f"refs/heads/{landing.branch}")
        held = git(worktrees.common, *asked).strip()
        if landing.remote is not None:
            remote_heads(worktrees.checkout, landing.remote, (f"refs/heads/{landing.branch}",))
    except RemoteTrouble as error:
        remedy = f"git ls-remote {here.options.landing_remote}"
        return fail("landing", f"nothing lands: {error}", remedy)
    except CommandError as error:
        return fail("landing", sentence(error))
    except GitError as error:
        return fail("landing", f"git: {error}")
    if held:
        text = f"{landing.branch} is checked out in {held}: nothing lands while it is"
        return fail("landing", text, f"git -C {shlex.quote(held)} switch --detach")
    where = f"{landing.branch} of {landing.remote}" if landing.remote else landing.branch
    if here.verify is None:
        text = f"whatever merges lands on {where}: there is no --verify"
        return warn("landing", f"{text}, and nothing is tested")
    return ok("landing", f"finished branches that pass verify land on {where}")


def _fleet(here: Situation) -> Any:
    from beads_workers.doctor.leftovers import elsewhere, living
    from beads_workers.doctor.rules import ok
    from beads_workers.runtime.run_directory import tracker_folder

    if (running := living(here.state)) is not None:
        return running
    if here.place is not None and (other := elsewhere(tracker_folder(str(here.place)))) is not None:
        return other
    return ok("fleet", "none is running here")
