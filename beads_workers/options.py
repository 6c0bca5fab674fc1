"""The options of ``start`` as one table: name, type, default, help and scope.

Generated from the table: the parameters of the command line (``cli.parameters``), the keys of
``beads-workers.toml`` and of its tables, the environment variables, ``config show`` and completion.
To add an option, add a field of ``Options``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from beads_workers import registry
from beads_workers.core import commit_form, limits
from beads_workers.core.budget import Budget, read_budget
from beads_workers.core.hours import read_moment
from beads_workers.core.model import PRIORITY_LEAST_URGENT, is_module_name, value
from beads_workers.core.settings import LANDING_STYLES
from beads_workers.core.times import parse_duration

T = TypeVar("T")

FILE_NAME = "beads-workers.toml"

WORKERS_DEFAULT = 4
IN_FLIGHT_MAX = 1000
WORKERS_MAX = limits.LISTEN_BACKLOG
POLL_PUSH_SECONDS = 3600.0
"""Poll interval of a push source, in seconds: polling finds nothing there."""
SECONDS_MAX = 366 * 86_400.0
"""Longest duration, in seconds: a year and a day is longer than any run."""

# --- kinds of values --------------------------------------------------------------------------


Reader = Callable[[Any], T]
"""A function that reads a value from TOML or the command line.

It raises ``ValueError`` with the values that are allowed.
"""


@value
class ValueKind(Generic[T]):
    """A kind of value: how it is read, and how the command line parses its words.

    ``word``: the type of one word; ``parse`` converts the word, and then ``metavar`` names it.
    ``many``: the option may be given several times. ``names``: all possible values, if there are
    few.
    """

    read: Reader[T]
    word: type = str
    parse: Callable[[Any], Any] | None = None
    metavar: str | None = None
    many: bool = False
    names: tuple[str, ...] = ()

    def from_text(self, text: str) -> Any:
        """Return the text of an environment variable in the type that ``read`` accepts."""
        return int(text) if self.word is int and text.isdecimal() else text


def _integer(low: int, high: int) -> ValueKind[int]:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return value

    return ValueKind(read, int)


def _duration(low: float) -> ValueKind[float]:
    allowed = f"a duration of {low:g} s or more: 90, 90s, 5m or 2h" if low else _FROM_NOUGHT

    def read(value: Any) -> float:
        try:
            seconds = parse_duration(value) if isinstance(value, str) else value
        except ValueError:
            raise ValueError(allowed) from None
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise ValueError(allowed)
        if not low <= seconds <= SECONDS_MAX:  # False for NaN, too
            raise ValueError(allowed)
        return float(seconds)

    return ValueKind(read, float, parse_duration, "DURATION")


_FROM_NOUGHT = "a duration: 0, 90, 90s, 5m or 2h"

NEVER = "never"


def _duration_or_never(low: float) -> ValueKind[str]:
    """Return a kind that keeps the value as text: ``seconds_or_never`` parses it again."""
    one = _duration(low)

    def read(value: Any) -> str:
        if value == NEVER:
            return NEVER
        try:
            return f"{one.read(value):g}s"
        except ValueError as error:
            raise ValueError(f'{error}; or "{NEVER}"') from None

    return ValueKind(read, metavar="DURATION")


def seconds_or_never(text: str) -> float | None:
    """Return the seconds of such an option; None for never."""
    return None if text == NEVER else parse_duration(text)


MOMENT = ValueKind(read_moment, metavar="TIME")


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError("a text that is not empty")
    return value


def _choice(*names: str) -> ValueKind[str]:
    def read(value: Any) -> str:
        if value not in names:
            raise ValueError(" or ".join(f'"{name}"' for name in names))
        return str(value)

    return ValueKind(read, names=names)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _several(one: ValueKind[T]) -> ValueKind[tuple[T, ...]]:
    """Return the kind for a list of such values; a single value is a list of one."""

    def read(value: Any) -> tuple[T, ...]:
        values = value if isinstance(value, list | tuple) else [value]
        return tuple(one.read(each) for each in values)

    return ValueKind(read, one.word, many=True)


def read_command(value: Any) -> tuple[str, ...]:
    """Read a program and its arguments: ``command``, and an agent's ``argv``."""
    is_list = isinstance(value, list | tuple) and value
    if not is_list or not all(isinstance(each, str) and "\0" not in each for each in value):
        raise ValueError("a list of texts, the program first")
    return tuple(value)


def _inside(value: Any) -> str:
    """Read a file or pattern inside the project: nothing outside it is ever copied."""
    if (
        not isinstance(value, str)
        or not value.strip("/. ")
        or "\0" in value
        or value.startswith(("/", "~"))
        or ".." in value.split("/")
    ):
        raise ValueError('files or patterns inside the project: [".env", "config/*.local"]')
    return value


def read_bytes(low: int) -> Reader[int]:
    """Return a reader of sizes in bytes, also given with a unit; ``low`` is the least."""
    least = f"of {low >> 10} KiB or more" if low else "0"

    def read(value: Any) -> int:
        allowed = f'a size: {least}, "500MB" or "2GB"'
        if isinstance(value, str):
            match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kKMGT]i?)?B?", value.strip(), re.ASCII)
            if match is None:
                raise ValueError(allowed)
            base, power = (
                (1024 if match[2] and "i" in match[2] else 1000),
                (match[2] or "").replace("K", "k"),
            )
            number = float(match[1]) * base ** " kMGT".index(power[:1] or " ")
            value = int(number) if number < 1 << 63 else None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value < 1 << 63:
            raise ValueError(allowed)
        return value

    return read


def _ref(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or value.startswith("-") or "\0" in value:
        raise ValueError("a branch, a tag or a commit")
    return value


def _module(value: Any) -> str:
    if not isinstance(value, str) or not is_module_name(value):
        raise ValueError("the name of a module or package: tasks, shop.tasks")
    return value


AMOUNTS = 'dollars (20), or tokens ("5Mtok")'


def _budget(value: Any) -> str:
    return str(_read_budget(value, f'{AMOUNTS}; "20/run" is for each run'))


def _issue_budget(value: Any) -> str:
    budget = _read_budget(value, AMOUNTS)
    if budget.per_run:
        raise ValueError(AMOUNTS)
    return str(budget)


def _read_budget(value: Any, forms: str) -> Budget:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number and not isinstance(value, str):
        raise ValueError(forms)
    try:
        return read_budget(str(value))
    except ValueError:
        raise ValueError(forms) from None


TRUST_ALL, TRUST_NO_AGENT = "yes", "agent=no"


def _trust(value: Any) -> str:
    text = TRUST_ALL if value == 1 or value == "1" else value
    if text not in (TRUST_ALL, TRUST_NO_AGENT):
        raise ValueError(f'"1", "{TRUST_ALL}" or "{TRUST_NO_AGENT}"')
    return str(text)


TEXT = ValueKind(_text)
BUDGET = ValueKind(_budget)
BOOLEAN = ValueKind(_boolean, bool)
TEXTS = _several(TEXT)

FORM = commit_form.CommitForm()

# --- the table --------------------------------------------------------------------------------

START, DOCTOR, WATCH = "start", "doctor", "watch"
BOTH = (START, DOCTOR)

PANELS = (
    *("Which issues", "Attempts", "Agents", "Landing", "The end of the run"),
    *("Functions and executors", "The fleet"),
)
"""Groups in which ``start --help`` shows options, below the most important ones."""
ISSUES, ATTEMPTS, AGENTS, LANDING, ENDING, FUNCTIONS, FLEET = PANELS


@value
class Option:
    """An option: how it is read, its default, and where it applies.

    ``at``: the commands that have it; every option is also a key of the file. ``flags``: the words
    to type, if they differ from the name. ``variable``: the environment variable. ``table``: the
    table of ``beads-workers.toml`` and the key in it that are equivalent to the name. ``panel``:
    the group of ``--help`` that shows it; None: the first group.
    """

    kind: ValueKind[Any]
    default: Any = None
    help: str | None = None
    at: tuple[str, ...] = (START,)
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    path: bool = False
    """Whether the value is a path: in the file relative to its folder, else to the current one."""
    variable: str = ""
    table: tuple[str, str] | None = None
    panel: str | None = None
    in_file: bool = True
    """Whether the option is a key of ``beads-workers.toml``."""

    @property
    def read(self) -> Reader[Any]:
        """Reader of the option's values; raises ``ValueError`` with the allowed values."""
        return self.kind.read


def _option(kind: ValueKind[T], default: T | None = None, help: str = "", **more: Any) -> T | None:
    """Return the field of an option; see ``Option``."""
    made = Option(kind, default, help or None, **more)
    return cast("T | None", field(default=None, metadata={"option": made}))


def _in_file(kind: ValueKind[T], default: T | None = None, **more: Any) -> T | None:
    """Return the field of an option that is set only in the file or in a variable."""
    return _option(kind, default, at=(), **more)


def _flag(help: str, flags: str, default: bool | None = False, **more: Any) -> bool | None:
    """Return the field of a yes-or-no option; ``flags``: its flag, maybe with a ``--no-`` form."""
    return _option(BOOLEAN, default, help, flags=(flags,), **more)


PORT_MAX = 65_535
PORT_FORMS = "it must be a port of this machine: 9464, 127.0.0.1:9464, or 0 for any that is free"


def read_port(value: Any) -> int:
    """Return a local port; raise ``ValueError`` with the allowed forms."""
    if isinstance(value, str) and (form := re.fullmatch(r"(?:127\.0\.0\.1:)?([0-9]{1,5})", value)):
        value = int(form[1])
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= PORT_MAX:
        raise ValueError(PORT_FORMS)
    return value


def _read_executor(value: object) -> str:
    found = registry.service("executor_option")
    if found is None:
        raise ValueError("left out: this installation has no such integration")
    return str(found.read_executor(value))


def read_source(value: object) -> str:
    """Return a valid text of ``--source``; raise ``ValueError`` with the allowed forms."""
    from beads_workers.kinds import KindMissing

    try:
        if isinstance(value, str) and ("://" in value or registry.recognise(value)):
            return value
    except KindMissing:
        return str(value)  # The code that uses the source reports the missing kind.
    forms = ", ".join(f'"{kind.forms[0]}"' for kind in registry.kinds() if kind.forms)
    raise ValueError(f"{forms} or a URL")


@dataclass(frozen=True, slots=True)
class Options:
    """Every option; None means "not given". Durations are in seconds, paths are text.

    The order is that of ``config show`` and, except for options that a command moves, of
    ``--help``.
    """

    workers: int | None = _option(
        _integer(0, WORKERS_MAX),
        WORKERS_DEFAULT,
        "How many work side by side; default 4.",
        at=BOTH,
        flags=("-n", "--workers"),
        variable="BEADS_WORKERS_COUNT",
    )
    source: str | None = _option(
        ValueKind(read_source), help="bd, sqlite, dispatcherd:CONFIG or a URL.", at=BOTH
    )
    label: tuple[str, ...] | None = _option(
        TEXTS, (), "Only issues with all of these labels.", panel=ISSUES
    )
    label_any: tuple[str, ...] | None = _option(
        TEXTS, (), "Only issues with any of these labels.", panel=ISSUES
    )
    exclude_label: tuple[str, ...] | None = _option(
        TEXTS, (), "No issues with any of these labels.", panel=ISSUES
    )
    type: tuple[str, ...] | None = _option(TEXTS, (), "Only issues of these types.", panel=ISSUES)
    priority: tuple[int, ...] | None = _option(
        _several(_integer(0, PRIORITY_LEAST_URGENT)), (), "Only these, 0 to 4.", panel=ISSUES
    )
    parent: str | None = _option(TEXT, help="Only below this epic.", panel=ISSUES)
    timeout: float | None = _option(
        _duration(0.001), help="Time limit of one attempt: 90s, 30m, 2h."
    )
    max_attempts: int | None = _option(
        _integer(1, 1000),
        limits.ATTEMPTS_MAX,
        "Tries before an issue is quarantined; default 3.",
        panel=ATTEMPTS,
    )
    questions: int | None = _option(
        _integer(0, 1000),
        limits.QUESTIONS_MAX,
        "Questions that an issue may ask of you; 0: none; default 3.",
        panel=ATTEMPTS,
    )
    retry_delay: float | None = _option(
        _duration(0),
        limits.RETRY_DELAY_SECONDS,
        "Wait before the next try, doubled each time; default 10s.",
        panel=ATTEMPTS,
    )
    verify: str | None = _option(
        TEXT, help="Shell line that must succeed before an issue is closed.", at=BOTH, metavar="CMD"
    )
    bd_calls: str | None = _option(
        _choice("grouped", "worker"),
        "grouped",
        "Calls to bd: grouped (by the fleet), or worker (by each worker).",
        panel=ATTEMPTS,
    )
    bd_timeout: float | None = _option(
        _duration(1),
        limits.BD_SECONDS,
        "End a call of bd that takes longer, 2s more for each issue in it; default 1m.",
        panel=FLEET,
    )
    agent: str | None = _option(
        TEXT,
        help="claude, codex, or one of your own. Of several (claude,codex) the next takes over "
        "at a usage limit.",
        at=BOTH,
        metavar="NAME[,NAME]",
    )
    prompt: str | None = _option(
        TEXT, help="File with the agent's prompt.", metavar="FILE", path=True, panel=AGENTS
    )
    review: str | None = _option(
        TEXT,
        help="This agent looks at the work of the others.",
        at=BOTH,
        metavar="AGENT",
        panel=AGENTS,
    )
    skip_base_check: bool | None = _flag(
        "Do not run --verify first where attempts begin.",
        "--skip-base-check",
        panel=AGENTS,
    )
    skip_check: tuple[str, ...] | None = _option(
        _several(TEXT),
        (),
        "Start although this condition fails; docs/CONDITIONS.md has their names.",
        at=BOTH,
        flags=("--skip-check",),
        metavar="NAME",
        panel=FLEET,
    )
    fix_rounds: int | None = _option(
        _integer(0, 20),
        2,
        "How often a failed check goes back to the agent; default 2.",
        panel=AGENTS,
    )
    retry: str | None = _option(
        _choice("continue", "fresh"),
        "continue",
        "The next attempt continues the last one, or begins fresh.",
        panel=AGENTS,
    )
    comments: str | None = _option(
        _choice("all", "owner", "none"),
        "all",
        "Comments that agents see: all, owner, none.",
        panel=AGENTS,
    )
    discovered: str | None = _option(
        _choice("hold", "take"),
        "hold",
        "Issues that agents file: hold them for you, or take them.",
        panel=AGENTS,
    )
    stall: float | None = _option(
        _duration(1),
        limits.STALL_SECONDS,
        "End an agent that prints nothing for this long; default 15m.",
        panel=AGENTS,
    )
    budget: str | None = _option(
        BUDGET,
        help="Begin nothing more once the night has cost this: 20 (dollars), 5Mtok; 20/run.",
        metavar="AMOUNT",
    )
    issue_budget: str | None = _option(
        ValueKind(_issue_budget),
        help="As --budget, for each issue.",
        metavar="AMOUNT",
        panel=AGENTS,
    )
    new_night: bool | None = _flag(
        "Begin another night: a report and a budget of its own.",
        "--new-night",
        None,
        panel=FLEET,
        in_file=False,
    )
    night_gap: float | None = _in_file(
        _duration(1), limits.NIGHT_GAP_SECONDS, table=("night", "gap")
    )
    reset_grace: float | None = _option(
        _duration(0),
        limits.RESET_GRACE_SECONDS,
        "Wait after a limit's reset; default 30s.",
        panel=AGENTS,
    )
    probe: float | None = _option(
        _duration(1),
        limits.PROBE_SECONDS,
        "How often a closed account is tried; default 15m.",
        panel=AGENTS,
    )
    overage: bool | None = _flag(
        "Go on beyond limits where that is paid for.", "--overage", panel=AGENTS
    )
    person_wait: float | None = _option(
        _duration(0),
        limits.PERSON_WAIT_SECONDS,
        "Wait this long for a person: a login, a landing that is paused; default 12h.",
        panel=AGENTS,
    )
    limit: int | None = _option(
        _integer(1, 1_000_000_000), help="End after this many issues.", panel=ENDING
    )
    max_runtime: float | None = _option(_duration(0.001), help="End after this long.", panel=ENDING)
    until: str | None = _option(
        MOMENT,
        help="Begin nothing from 07:00 on, or after 8h; drain, and end.",
        panel=ENDING,
    )
    start_at: str | None = _option(
        MOMENT, help="Wait until 23:00, or for 2h, before the first attempt.", panel=ENDING
    )
    idle_timeout: float | None = _option(
        _duration(0.001), help="End when idle for this long.", panel=ENDING
    )
    poll: float | None = _option(
        _duration(0.05),
        limits.POLL_SECONDS,
        "How often to look for new issues; default 5s.",
        panel=FLEET,
    )
    state_dir: str | None = _option(
        TEXT, help="Run directory.", at=BOTH, metavar="DIR", path=True, panel=FLEET
    )
    log_dir: str | None = _in_file(TEXT, path=True, variable="BEADS_WORKERS_LOG_DIR")
    until_empty: bool | None = _flag("End when nothing is left to do.", "--until-empty")
    command: tuple[str, ...] | None = _in_file(ValueKind(read_command))
    """Command that is run for each issue; on the command line, the words after ``--``."""
    term_grace: float | None = _option(
        _duration(0),
        limits.TERM_GRACE_SECONDS,
        "Time between TERM and KILL; default 5s.",
        panel=ATTEMPTS,
    )
    stop_timeout: float | None = _option(
        _duration(0),
        limits.STOP_SECONDS,
        "Time that workers have to leave; default 10s.",
        panel=ENDING,
    )
    suspend: bool | None = _flag(
        "'pause W1' stops its command too (SIGSTOP).", "--suspend", panel=ATTEMPTS
    )
    orphan_grace: str | None = _option(
        _duration_or_never(limits.GRACE_SECONDS_MIN),
        f"{limits.ORPHAN_GRACE_SECONDS:g}s",
        "How long an outside worker keeps its issue without a connection; default 30s, or never.",
        panel=ATTEMPTS,
    )
    worktree: bool | None = _flag(
        "A git worktree for each attempt; the default for agents.",
        "--worktree/--no-worktree",
        None,
        at=BOTH,
        table=("worktree", "enabled"),
        panel=ATTEMPTS,
    )
    worktree_base: str | None = _in_file(ValueKind(_ref), table=("worktree", "base"))
    worktree_setup: str | None = _in_file(TEXT, table=("worktree", "setup"))
    worktree_copy: tuple[str, ...] | None = _in_file(
        _several(ValueKind(_inside)), (), table=("worktree", "copy")
    )
    worktree_folder: str | None = _in_file(TEXT, path=True, table=("worktree", "folder"))
    worktree_disk_floor: int | None = _in_file(
        ValueKind(read_bytes(0)), limits.DISK_FLOOR_BYTES, table=("worktree", "disk_floor")
    )
    worktree_pool: int | None = _in_file(_integer(0, 64), 0, table=("worktree", "pool"))
    worktree_setup_reads: tuple[str, ...] | None = _in_file(
        _several(ValueKind(_inside)), (), table=("worktree", "setup_reads")
    )
    worktree_reuse: bool | None = _in_file(BOOLEAN, True, table=("worktree", "reuse"))
    land: bool | None = _flag(
        "Merge finished branches behind a gate; the default with worktrees.",
        "--land/--no-land",
        None,
        table=("landing", "enabled"),
        panel=LANDING,
    )
    land_on: str | None = _option(
        ValueKind(_ref),
        help="Land on bw-landing/BRANCH; default: what is checked out.",
        metavar="BRANCH",
        table=("landing", "on"),
        panel=LANDING,
    )
    approve: bool | None = _flag(
        "A finished branch lands once you have approved it.",
        "--approve",
        table=("landing", "approve"),
        panel=LANDING,
    )
    land_into: str | None = _option(
        ValueKind(_ref),
        help="Fast-forward this branch after each landing.",
        metavar="BRANCH",
        table=("landing", "into"),
        panel=LANDING,
    )
    land_jobs: int | None = _option(
        _integer(1, 64),
        limits.LAND_JOBS,
        "Gates side by side; default 2.",
        table=("landing", "jobs"),
        panel=LANDING,
    )
    landing_style: str | None = _in_file(
        _choice(*LANDING_STYLES), "squash", table=("landing", "style")
    )
    landing_after: str | None = _in_file(TEXT, table=("landing", "after"))
    landing_tools: tuple[str, ...] | None = _in_file(_several(TEXT), (), table=("landing", "tools"))
    landing_remote: str | None = _in_file(ValueKind(_ref), table=("landing", "remote"))
    landing_subject: str | None = _in_file(
        ValueKind(commit_form.read_subject), FORM.subject, table=("landing", "subject")
    )
    landing_subject_max: int | None = _in_file(
        _integer(*commit_form.SUBJECT_MAX), FORM.subject_max, table=("landing", "subject_max")
    )
    landing_types: tuple[tuple[str, str], ...] | None = _in_file(
        ValueKind(commit_form.read_types), FORM.types, table=("landing", "types")
    )
    landing_signoff: bool | None = _in_file(BOOLEAN, FORM.signoff, table=("landing", "signoff"))
    landing_trailers: str | None = _in_file(
        _choice(*commit_form.TRAILERS_KEPT), FORM.trailers, table=("landing", "trailers")
    )
    landing_co_author: str | None = _in_file(
        ValueKind(commit_form.read_co_author),
        commit_form.CO_AUTHOR,
        table=("landing", "co_author"),
    )
    landing_submodules: str | None = _in_file(
        _choice("refuse", "push"), "refuse", table=("landing", "submodules")
    )
    repairs: int | None = _in_file(
        _integer(0, 100), limits.REPAIRS_MAX, table=("landing", "repairs")
    )
    gate_timeout: float | None = _in_file(
        _duration(1), limits.GATE_TIMEOUT_SECONDS, table=("landing", "gate_timeout")
    )
    gate_retry: float | None = _in_file(
        _duration(1), limits.GATE_RETRY_SECONDS, table=("landing", "gate_retry")
    )
    shared_checkout: bool | None = _flag(
        "Let several agents work in one folder.", "--shared-checkout", at=BOTH, panel=ATTEMPTS
    )
    notify: str | None = _option(
        TEXT,
        help="sh -c line run when an issue is quarantined, the fleet pauses or has ended, or the "
        "tracker fails; or 'desktop'.",
        metavar="CMD",
        panel=FLEET,
    )
    keep_runs: int | None = _in_file(_integer(1, 1_000_000), limits.KEEP_RUNS)
    log_max: int | None = _in_file(
        ValueKind(read_bytes(limits.LOG_BYTES_MIN)), limits.LOG_BYTES_MAX
    )
    journal_max: int | None = _in_file(
        ValueKind(read_bytes(limits.JOURNAL_BYTES_MIN)), limits.JOURNAL_BYTES_MAX
    )
    shared: bool | None = _flag(
        "Share the tracker with other orchestrators; each has its own --state-dir.",
        "--shared",
        panel=FLEET,
    )
    allow_module: tuple[str, ...] | None = _option(
        _several(ValueKind(_module)),
        (),
        "Issues may call what is in this module or package.",
        at=BOTH,
        metavar="NAME",
        panel=FUNCTIONS,
    )
    issue_commands: bool | None = _flag(
        "Run issues' own commands although the tracker is committed to git.",
        "--issue-commands",
        panel=FUNCTIONS,
    )
    executor: tuple[str, ...] | None = _option(
        _several(ValueKind(_read_executor)),
        (),
        "Drive this RRQ executor; or rrq-tcp:, rrq2:.",
        metavar="[NAME=]rrq:CMD",
        panel=FUNCTIONS,
    )
    in_flight: int | None = _option(
        _integer(1, IN_FLIGHT_MAX),
        1,
        "Requests at once in each executor; default 1.",
        panel=FUNCTIONS,
    )
    function: str | None = _option(
        TEXT, help="Called for issues that name no function.", metavar="NAME", panel=FUNCTIONS
    )
    metrics: int | None = _option(
        ValueKind(read_port, int, read_port, "PORT"),
        help="Serve Prometheus metrics; 0: any free port.",
        panel=FLEET,
    )
    web: int | None = _option(
        ValueKind(read_port, int, read_port, "[PORT]"),
        help="Serve a live page on this machine; prints its address.",
        at=(START, WATCH),
        panel=FLEET,
    )
    web_control: bool | None = _flag(
        "The page may also pause, scale, stop, retry and release.",
        "--web-control",
        at=(START, WATCH),
        panel=FLEET,
    )
    trust: str | None = _option(
        ValueKind(_trust, metavar="[agent=no]", names=(TRUST_ALL, TRUST_NO_AGENT)),
        help="Run what the repository brings, unasked; 'agent=no': agents leave out its settings.",
        at=BOTH,
        variable="BEADS_WORKERS_TRUST",
        panel=FLEET,
        in_file=False,
    )
    tables: Mapping[str, Any] = field(default_factory=dict)
    """Tables that kinds of sources read by themselves, by the name of the table."""
    trace: bool | None = _flag(
        "Send a span for each attempt, by OTLP.", "--trace/--no-trace", None, panel=FLEET
    )


def _keys() -> Iterator[tuple[str, Option]]:
    for each in fields(Options):
        if each.name != "tables":
            yield each.name, each.metadata["option"]
            continue
        for name in registry.TABLES:
            yield name, Option(ValueKind(_table(name)), at=())


def _table(name: str) -> Reader[Any]:
    def read(value: Any) -> Any:
        module, _, function = registry.TABLES[name].partition(":")
        if (found := registry.load(module)) is None:
            raise ValueError("left out: this installation has no such kind of source")
        return getattr(found, function)(value)

    return read


KEYS: Mapping[str, Option] = dict(_keys())
"""Every option by its name, which is its key in ``beads-workers.toml``."""


def value_of(options: Options, key: str) -> Any:
    """Return the value of a key."""
    return options.tables.get(key) if key in registry.TABLES else getattr(options, key)


def form_of(options: Options) -> commit_form.CommitForm:
    """Return the settings for messages of landed commits."""
    return commit_form.CommitForm(
        subject=options.landing_subject or FORM.subject,
        subject_max=options.landing_subject_max or FORM.subject_max,
        types=options.landing_types or FORM.types,
        signoff=options.landing_signoff or False,
        trailers=options.landing_trailers or FORM.trailers,
    )


TABLES: dict[str, dict[str, str]] = {}
"""Tables of ``beads-workers.toml``: their keys, and the equivalent options."""

for _name, _each in KEYS.items():
    if _each.table:
        TABLES.setdefault(_each.table[0], {})[_each.table[1]] = _name


# --- together -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AgentTable:
    """``[agents.NAME]``: how an agent is called; see ``core.settings.Agent``.

    ``argv``: the whole command; with an ``adapter``, only the program. ``prompt``: the text of the
    template. ``escalate``: a model or an agent for the last attempt.
    """

    argv: tuple[str, ...] = ()
    prompt: str | None = None
    adapter: str | None = None
    model: str | None = None
    arguments: tuple[str, ...] | None = None
    prices: Mapping[str, tuple[float, ...]] | None = None
    at_once: int | None = None
    escalate: str | None = None


@value
class RiskyLine:
    """A line of a project that, if trusted, runs something or weakens a protection.

    ``folder``: the project for which trust is kept. ``text``: the line as shown to people.
    ``digest``: hash of everything that counts in the line.
    """

    folder: Path
    text: str
    digest: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """Every option with its default filled in, and the origin of each value.

    ``origin``: ``command line``, the environment variable's name, the file's path or ``default``. A
    value is None only if the option has no default. Paths are absolute. ``trusted``: the lines of
    the file that run something and are in force; ``untrusted``: the lines that are left out.
    """

    options: Options
    origin: Mapping[str, str]
    agents: Mapping[str, AgentTable]
    file: Path | None = None
    trusted: tuple[RiskyLine, ...] = ()
    untrusted: tuple[RiskyLine, ...] = ()


def as_toml(value: Any) -> str:
    """Return a value as it is written in ``beads-workers.toml``."""
    import json

    if (as_table := getattr(value, "as_table", None)) is not None:
        value = as_table()  # A table of a kind of source.
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        value = dict(value)
    if isinstance(value, Mapping):
        pairs = (f"{json.dumps(key)} = {as_toml(each)}" for key, each in value.items())
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    # Texts, numbers and booleans are the same in JSON and TOML, except a delete character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
