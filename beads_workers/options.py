"""The options of ``start`` as one table: name, type, default, help and scope.

Generated from the table: the parameters of the command line (``cli.parameters``), the keys of
``beads-workers.toml`` and of its tables, the environment variables, ``config show`` and completion.
An option that is only passed on is a field of its group in ``core.base.settings``, and nothing
else; one that is converted is a field of ``Options``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Generic, TypeVar

from beads_workers import registry
from beads_workers.core.base import commit_form, limits, worlds
from beads_workers.core.base.budget import Budget, read_budget
from beads_workers.core.base.model import Filters, is_module_name, value
from beads_workers.core.base.option import (
    AGENTS,
    ATTEMPTS,
    BOOLEAN,
    BOTH,
    ENDING,
    FLEET,
    FUNCTIONS,
    LANDING,
    OPTION,
    REF,
    START,
    TEXT,
    TEXTS,
    WATCH,
    choice,
    duration,
    flag,
    in_file,
    option,
    whole,
)
from beads_workers.core.base.policy import Policy
from beads_workers.core.base.settings import (
    EndRules,
    LandingRules,
    ProbePace,
    TrackerRules,
    Upkeep,
    Work,
    WorktreeRules,
)
from beads_workers.core.base.times import parse_duration
from beads_workers.core.schedule.hours import read_moment

T = TypeVar("T")

FILE_NAME = "beads-workers.toml"

WORKERS_DEFAULT = 4
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
    """A kind of value: how it is read, and how the command line parses its words."""

    read: Reader[T]
    # The type of one word.
    word: type = str
    # Converts the word, and then ``metavar`` names it.
    parse: Callable[[Any], Any] | None = None
    metavar: str | None = None
    # The option may be given several times.
    many: bool = False
    # All possible values, if there are few.
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


def read_nonempty(value: Any) -> str:
    """Read a text that is not empty; raise ``ValueError``."""
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


KINDS: Mapping[str, Callable[..., ValueKind[Any]]] = {
    "text": lambda: ValueKind(read_nonempty),
    "texts": lambda: _several(ValueKind(read_nonempty)),
    "integer": _integer,
    "integers": lambda low, high: _several(_integer(low, high)),
    "duration": _duration,
    "duration or never": _duration_or_never,
    "moment": lambda: ValueKind(read_moment, metavar="TIME"),
    "boolean": lambda: ValueKind(_boolean, bool),
    "choice": _choice,
    "bytes": lambda low: ValueKind(read_bytes(low)),
    "ref": lambda: ValueKind(_ref),
    "inside": lambda: _several(ValueKind(_inside)),
    "modules": lambda: _several(ValueKind(_module)),
    "command": lambda: ValueKind(read_command),
    "budget": lambda: ValueKind(_budget),
    "issue budget": lambda: ValueKind(_issue_budget),
    "port": lambda shown: ValueKind(read_port, int, read_port, shown),
    "source": lambda: ValueKind(read_source),
    "place": lambda: _several(ValueKind(_read_on)),
    "executors": lambda: _several(ValueKind(_read_executor)),
    "subject": lambda: ValueKind(commit_form.read_subject),
    "types": lambda: ValueKind(commit_form.read_types),
    "slots": lambda: ValueKind(worlds.read_slots),
    "variables": lambda: ValueKind(worlds.read_variables),
    "co-author": lambda: ValueKind(commit_form.read_co_author),
    "trust": lambda: ValueKind(_trust, metavar="[agent=no]", names=(TRUST_ALL, TRUST_NO_AGENT)),
}
"""Makers of the kinds, by the names that ``core.base.option`` uses."""

# --- the table --------------------------------------------------------------------------------


@value
class Option:
    """An option: how it is read, its default, and where it applies."""

    kind: ValueKind[Any]
    default: Any = None
    # The fields of ``Options`` that lead to its value.
    place: tuple[str, ...] = ()
    help: str | None = None
    # The commands that have it; every option is also a key of the file.
    at: tuple[str, ...] = (START,)
    # The words to type, if they differ from the name.
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    # The value is a path: in the file relative to its folder, else to the current one.
    path: bool = False
    # The environment variable.
    variable: str = ""
    # The table of ``beads-workers.toml`` and the key in it that are equivalent to the name.
    table: tuple[str, str] | None = None
    # The group of ``--help`` that shows it; None: the first group.
    panel: str | None = None
    # It is a key of ``beads-workers.toml``.
    in_file: bool = True
    # ``--help`` leaves it out; docs/CLI.md has it.
    rare: bool = False

    @property
    def read(self) -> Reader[Any]:
        """Reader of the option's values; raises ``ValueError`` with the allowed values."""
        return self.kind.read


PORT_MAX = 65_535
PORT_FORMS = "it must be a port of this machine: 9464, 127.0.0.1:9464, or 0 for any that is free"


def read_port(value: Any) -> int:
    """Return a local port; raise ``ValueError`` with the allowed forms."""
    if isinstance(value, str) and (form := re.fullmatch(r"(?:127\.0\.0\.1:)?([0-9]{1,5})", value)):
        value = int(form[1])
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= PORT_MAX:
        raise ValueError(PORT_FORMS)
    return value


def _read_on(value: object) -> str:
    return str(registry.need("places").read_on(value))


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


@value
class Options:
    """Every option in force. Durations are in seconds, paths are text.

    A group is a part of the settings of a fleet, whose fields are options; what they say is used as
    it is. The other options are converted (``checks``). The order is that of ``config show`` and,
    except for options that a command moves, of ``--help``.
    """

    workers: int = option(
        WORKERS_DEFAULT,
        whole(0, WORKERS_MAX),
        "How many work side by side; default 4.",
        at=BOTH,
        flags=("-n", "--workers"),
        variable="BEADS_WORKERS_COUNT",
    )
    on: tuple[str, ...] = option(
        (),
        ("place",),
        "Run attempts there: local:2, ssh:HOST:8, or a place of the file; several times.",
        at=BOTH,
        flags=("--on",),
        metavar="PLACE[:N]",
        panel=FLEET,
    )
    source: str | None = option(
        None,
        ("source",),
        "bd, sqlite, github:OWNER/REPO, gitea:URL, dispatcherd:CONFIG or a URL.",
        at=BOTH,
    )
    issues_from: str = option(
        "writers",
        choice("writers", "labelled", "anyone"),
        "On a forge, agents read what these wrote: writers (default), labelled or anyone.",
        at=BOTH,
        flags=("--from",),
        table=("forge", "from"),
        panel=FLEET,
        rare=True,
    )
    trusted: tuple[str, ...] = in_file((), TEXTS, table=("forge", "trusted"))
    # Variables with tokens of the forge that agents get all the same.
    passed: tuple[str, ...] = in_file((), TEXTS, table=("forge", "pass"))
    filters: Filters = field(default_factory=Filters)
    policy: Policy = field(default_factory=Policy)
    questions: int = option(
        limits.QUESTIONS_MAX,
        whole(0, 1000),
        "Questions that an issue may ask of you; 0: none; default 3.",
        panel=ATTEMPTS,
    )
    work: Work = field(default_factory=Work)
    agent: str | None = option(
        None,
        TEXT,
        "claude, codex, or one of your own. Of several (claude,codex) the next takes over "
        "at a usage limit.",
        at=BOTH,
        metavar="NAME[,NAME]",
    )
    prompt: str | None = option(
        None, TEXT, "File with the agent's prompt.", metavar="FILE", path=True, panel=AGENTS
    )
    review: str | None = option(
        None,
        TEXT,
        "This agent looks at the work of the others.",
        at=BOTH,
        metavar="AGENT",
        panel=AGENTS,
    )
    skip_base_check: bool = flag(
        "--skip-base-check",
        "Do not run --verify first where attempts begin.",
        False,
        panel=AGENTS,
    )
    skip_check: tuple[str, ...] = option(
        (),
        TEXTS,
        "Start although this condition fails; docs/CONDITIONS.md has their names.",
        at=BOTH,
        flags=("--skip-check",),
        metavar="NAME",
        panel=FLEET,
    )
    retry: str = option(
        "continue",
        choice("continue", "fresh"),
        "The next attempt continues the last one, or begins fresh.",
        panel=AGENTS,
        rare=True,
    )
    discovered: str = option(
        "hold",
        choice("hold", "take"),
        "Issues that agents file: hold them for you, or take them.",
        panel=AGENTS,
        rare=True,
    )
    budget: str | None = option(
        None,
        ("budget",),
        "Begin nothing more once the night has cost this: 20 (dollars), 5Mtok; 20/run.",
        metavar="AMOUNT",
    )
    issue_budget: str | None = option(
        None, ("issue budget",), "As --budget, for each issue.", metavar="AMOUNT", panel=AGENTS
    )
    new_night: bool | None = flag(
        "--new-night",
        "Begin another night: a report and a budget of its own.",
        None,
        panel=FLEET,
        in_file=False,
    )
    night_gap: float = in_file(limits.NIGHT_GAP_SECONDS, duration(1), table=("night", "gap"))
    pace: ProbePace = field(default_factory=ProbePace)
    ending: EndRules = field(default_factory=EndRules)
    until: str | None = option(
        None,
        ("moment",),
        "Begin nothing from 07:00 on, or after 8h; drain, and end.",
        panel=ENDING,
    )
    start_at: str | None = option(
        None,
        ("moment",),
        "Wait until 23:00, or for 2h, before the first attempt.",
        panel=ENDING,
    )
    tracking: TrackerRules = field(default_factory=TrackerRules)
    state_dir: str | None = option(
        None, TEXT, "Run directory.", at=BOTH, metavar="DIR", path=True, panel=FLEET
    )
    # Command that is run for each issue; on the command line, the words after ``--``.
    command: tuple[str, ...] | None = in_file(None, ("command",))
    orphan_grace: str = option(
        f"{limits.ORPHAN_GRACE_SECONDS:g}s",
        ("duration or never", limits.GRACE_SECONDS_MIN),
        "How long an outside worker keeps its issue without a connection; default 30s, or never.",
        panel=ATTEMPTS,
        rare=True,
    )
    worktree: bool | None = flag(
        "--worktree/--no-worktree",
        "A git worktree for each attempt; the default for agents, and with --on.",
        None,
        at=BOTH,
        table=("worktree", "enabled"),
        panel=ATTEMPTS,
    )
    worktree_base: str | None = in_file(None, REF, table=("worktree", "base"))
    worktree_folder: str | None = in_file(None, TEXT, path=True, table=("worktree", "folder"))
    worktree_reuse: bool = in_file(True, BOOLEAN, table=("worktree", "reuse"))
    worktrees: WorktreeRules = field(default_factory=WorktreeRules)
    land: bool | None = flag(
        "--land/--no-land",
        "Merge finished branches behind a gate; the default with worktrees.",
        None,
        table=("landing", "enabled"),
        panel=LANDING,
    )
    land_on: str | None = option(
        None,
        REF,
        "Land on bw-landing/BRANCH; default: what is checked out.",
        metavar="BRANCH",
        table=("landing", "on"),
        panel=LANDING,
    )
    landing: LandingRules = field(default_factory=LandingRules)
    landing_co_author: str = in_file(
        commit_form.CO_AUTHOR, ("co-author",), table=("landing", "co_author")
    )
    shared_checkout: bool = flag(
        "--shared-checkout",
        "Let several agents work in one folder.",
        False,
        at=BOTH,
        panel=ATTEMPTS,
    )
    upkeep: Upkeep = field(default_factory=Upkeep)
    issue_commands: bool = flag(
        "--issue-commands",
        "Run issues' own commands although the tracker is committed to git.",
        False,
        panel=FUNCTIONS,
    )
    executor: tuple[str, ...] = option(
        (),
        ("executors",),
        "Drive this RRQ executor; or rrq-tcp:, rrq2:.",
        metavar="[NAME=]rrq:CMD",
        panel=FUNCTIONS,
    )
    web: int | None = option(
        None,
        ("port", "[PORT]"),
        "Serve a live page on this machine; prints its address.",
        at=(START, WATCH),
        table=("web", "port"),
        panel=FLEET,
    )
    web_hosts: tuple[str, ...] = in_file((), TEXTS, table=("web", "hosts"))
    web_control: bool = flag(
        "--web-control",
        "The page may also pause, scale, stop, retry and release.",
        False,
        at=(START, WATCH),
        panel=FLEET,
    )
    trust: str | None = option(
        None,
        ("trust",),
        "Run what the repository brings, unasked; 'agent=no': agents leave out its settings.",
        at=BOTH,
        variable="BEADS_WORKERS_TRUST",
        panel=FLEET,
        in_file=False,
    )
    trace: bool | None = flag(
        "--trace/--no-trace", "Send a span for each attempt, by OTLP.", None, panel=FLEET
    )
    # Tables that kinds of sources read by themselves, by the name of the table.
    tables: Mapping[str, Any] = field(default_factory=dict, hash=False)


Typed = Mapping[str, Any]
"""What was typed, or is in a file: values by the names of options. Groups exist once all is
resolved."""


def given(values: Typed) -> Typed:
    """Return the options that were given; Typer and JSON have lists for tuples."""
    plain = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    return {name: value for name, value in plain.items() if value is not None and value != ()}


def _keys() -> Iterator[tuple[str, Option]]:
    yield from _keys_of(Options, ())
    for name in registry.TABLES:
        yield name, Option(ValueKind(_table(name)), at=(), place=("tables", name))


def _keys_of(group: type, place: tuple[str, ...]) -> Iterator[tuple[str, Option]]:
    for each in fields(group):
        here = (*place, each.name)
        if data := dict(each.metadata.get(OPTION, {})):
            kind, *bounds = data.pop("kind")
            name = data.pop("name") or each.name.removesuffix("_seconds")
            yield name, Option(KINDS[kind](*bounds), each.default, here, **data)
        elif is_dataclass(inner := each.default_factory):
            yield from _keys_of(inner, here)


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
    place = KEYS[key].place
    if place[0] == "tables":
        return options.tables.get(key)
    return reduce(getattr, place, options)


def options_of(values: Typed) -> Options:
    """Return the options with these values; all others hold their defaults."""
    tree: dict[str, Any] = {}
    for key, given in values.items():
        *groups, name = KEYS[key].place
        inside = tree
        for group in groups:
            inside = inside.setdefault(group, {})
        inside[name] = given
    made: Options = _filled(Options, tree)
    return made


def _filled(group: type, tree: Mapping[str, Any]) -> Any:
    """Return a group with these values of its fields; a mapping is for a group inside it."""
    inner = {each.name: each.default_factory for each in fields(group)}
    return group(
        **{
            name: _filled(made, value) if is_dataclass(made := inner[name]) else value
            for name, value in tree.items()
        }
    )


TABLES: dict[str, dict[str, str]] = {}
"""Tables of ``beads-workers.toml``: their keys, and the equivalent options."""

for _name, _each in KEYS.items():
    if _each.table:
        TABLES.setdefault(_each.table[0], {})[_each.table[1]] = _name


# --- together -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AgentTable:
    """``[agents.NAME]``: how an agent is called; see ``core.base.settings.Agent``."""

    # The whole command; with an ``adapter``, only the program.
    argv: tuple[str, ...] = ()
    # The text of the template.
    prompt: str | None = None
    adapter: str | None = None
    model: str | None = None
    arguments: tuple[str, ...] | None = None
    prices: Mapping[str, tuple[float, ...]] | None = None
    at_once: int | None = None
    # A model or an agent for the last attempt.
    escalate: str | None = None


@value
class RiskyLine:
    """A line of a project that, if trusted, runs something or weakens a protection."""

    # The project for which trust is kept.
    folder: Path
    # The line as shown to people.
    text: str
    # Hash of everything that counts in the line.
    digest: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """Every option with its default filled in, and the origin of each value."""

    # A value is None only if the option has no default. Paths are absolute.
    options: Options
    # ``command line``, the environment variable's name, the file's path or ``default``.
    origin: Mapping[str, str]
    agents: Mapping[str, AgentTable]
    file: Path | None = None
    # The lines of the file that run something and are in force.
    trusted: tuple[RiskyLine, ...] = ()
    # The lines that are left out.
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
