"""The rules of the code as a test: what may import what, sizes, docstrings, and what is banned."""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "beads_workers"
MODULES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

FUNCTION_LINES_MAX = 60

ALLOWED: dict[tuple[str, str], str] = {
    (
        "runtime/function_host.py",
        "os._exit",
    ): "a fork that a function let go on is not this process",
    ("landing/gate.py", "os._exit"): "a forked gate must not run the lander's exit handlers",
    ("worktrees/git.py", "git"): "the one place that makes a command line of git",
    ("attempts/guards.py", "git"): "the names of the programs that stand before those of agents",
    ("chaos/workspace.py", "git"): "makes a project as its user does; its agents call git, too",
    ("chaos/gate.py", "git"): "a command of a user, which runs without the package",
    ("runtime/loop.py", "print"): "the journal cannot be written: stderr is the run's log file",
    ("runtime/zygote.py", "os._exit"): "a forked child must not run its parent's exit handlers",
    ("places/host.py", "os._exit"): "a forked worker must not run on as its orchestrator",
    ("places/ray_helper.py", "os._exit"): "threads may hang in Ray",
    ("runtime/warm_steps.py", "os._exit"): "a forked step must not run on as its worker",
    (
        "runtime/zygote_loop.py",
        "os._exit",
    ): "a forked child must not run its parent's exit handlers",
}
"""Exceptions from a rule: (file, what) and the reason. Nothing else is excepted."""

TABLE = ("registry", "kinds", "exits")
"""What a kind of source is, and the one table of them and of all integrations."""
PLUGS = ("trackers", "executors", "agents", "ui")
ENGINE = ("core", *TABLE, *PLUGS, "options", "runtime", "worktrees", "checks")
ROOMS: dict[str, tuple[str, ...]] = {
    "registry": ("kinds",),
    "kinds": ("core",),
    "exits": (),
    "options": ("core", *TABLE),
    "core": (),
    "trackers": ("core", *TABLE),
    "executors": ("core", *TABLE),
    "agents": ("core",),
    "ui": ("core",),
    "runtime": ("core", *TABLE, *PLUGS),
    "worktrees": ("core", "executors", "runtime"),
    "attempts": ("core", "agents", "executors", "runtime", "worktrees"),
    "landing": ("core", "registry", "executors", "runtime", "worktrees"),
    "places": ("core", *TABLE, "options", "executors", "runtime", "worktrees"),
    "checks": ("core", *TABLE, *PLUGS, "options", "runtime", "worktrees", "attempts", "landing"),
    "views": ("core", "executors", "agents", "ui", "runtime", "worktrees", "errors", "exits"),
    "errors": ("core", "exits"),
    "integrations": (*ENGINE, "errors"),
    "cli": (*ENGINE, "attempts", "landing", "views", "errors"),
    "demo": (*ENGINE, "cli", "errors"),
    "chaos": (*ENGINE, "cli", "errors", "views"),
    "conformance": ("core", "exits", "errors"),
}
"""Which rooms of the package each room may import, beside itself. No integration imports another
one, and nobody imports an integration but by the registry."""

DOORS = frozenset({"checks", "commands", "fleet_settings", "options", "view"})
"""Modules of an integration that the command line calls: they may import ``cli``."""

# fmt: off
IMPURE = frozenset({
    "asyncio", "concurrent", "ctypes", "fcntl", "getpass", "glob", "http", "logging", "mmap",
    "multiprocessing", "os", "pathlib", "platform", "random", "resource", "secrets", "select",
    "selectors", "shutil", "signal", "socket", "socketserver", "sqlite3", "ssl", "subprocess",
    "tempfile", "termios", "threading", "time", "urllib", "uuid",
})
# fmt: on
"""No socket, file, process, clock or randomness in the pure parts: they are told."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "base": (),
    "records": ("base",),
    "views": ("base", "records"),
    "schedule": ("base", "records"),
    "workers": ("base", "records", "schedule"),
}
"""The groups of the core, and the groups that each may import. The modules beside them, which put
the parts together and answer people, may import them all."""

IMPURE_CALLS = frozenset({"open", "input", "print", "exec", "eval", "compile", "__import__"})
IMPURE_NAMES = frozenset({"datetime.now", "datetime.utcnow", "datetime.today", "date.today"})


def place(path: Path) -> str:
    """The file as the reader of a failure wants it."""
    return str(path.relative_to(ROOT))


def part(path: Path) -> str:
    """The room of the package that a module is in; empty for the package's own two modules."""
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "" if first.startswith("__") else first


def is_pure(path: Path) -> bool:
    """Whether it may do nothing but compute: the core, and each integration's wire format."""
    room = part(path)
    return room == "core" or (room == "integrations" and path.name.startswith("wire"))


def is_door(path: Path) -> bool:
    """Whether people come in here: the command line, and what of other rooms it calls."""
    room = part(path)
    with_doors = room in ("integrations", "conformance")
    return room in ("cli", "demo", "chaos") or (with_doors and path.stem in DOORS)


def tree(path: Path) -> ast.Module:
    """The module's syntax tree."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@functools.lru_cache(maxsize=8)
def nodes(module: ast.AST) -> tuple[ast.AST, ...]:
    """All of it, in the order of ``ast.walk``: each rule looks at them all."""
    return tuple(ast.walk(module))


def imports(module: ast.AST) -> Iterator[tuple[str, int]]:
    """Every module imported anywhere in it, inside of functions too, with its line."""
    for node in nodes(module):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ".", node.lineno
            # ``from beads_workers import cli`` imports the part ``cli``.
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno


def dotted(node: ast.AST) -> str:
    """``a.b.c`` for such an expression, else an empty text."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = dotted(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return ""


def layer_faults(path: Path, module: ast.AST) -> list[str]:
    """Imports of rooms of the package that this module may not know."""
    room, faults = part(path), []
    allowed = {room, *ROOMS[room], *(("cli",) if is_door(path) else ())}
    own = path.relative_to(PACKAGE).parts[1:2]
    for name, line in imports(module):
        pieces = name.split(".")
        if pieces[0] != "beads_workers" or len(pieces) == 1 or pieces[1] not in ROOMS:
            continue
        if name.startswith(KERNEL) and room != "core":
            continue  # Whatever runs, runs on it.
        stranger = pieces[1] == "integrations" == room and pieces[2:3] not in ([], list(own))
        if pieces[1] not in allowed or stranger:
            faults.append(f"{line}: {room} may not import {name}")
        group = own[0] if room == pieces[1] == "core" else ""
        known = (group, *GROUPS.get(group, ()))
        if group in GROUPS and (pieces[2:] and pieces[2] not in known):
            faults.append(f"{line}: the group {group} of the core may not import {name}")
    return faults


KERNEL = "beads_workers.runtime.kernel"
ON_HOSTS = "places/guard.py"
"""Sent to hosts as a text of its own, where it has no package; hosts run Linux."""
OF_SYSTEMS = frozenset({
    "pidfd_open", "pidfd_send_signal", "waitid", "pipe2", "memfd_create", "fdatasync", "O_TMPFILE",
    "O_PATH", "SO_PEERCRED", "CLOCK_BOOTTIME", "sched_getaffinity", "sys.platform",
    "platform.system", "epoll", "kqueue", "eventfd", "posix_fadvise", "splice", "sendfile",
})  # fmt: skip
"""What some systems lack, and what tells which one this is."""


def names_of_systems(module: ast.AST) -> list[str]:
    """What only ``runtime.kernel`` may ask the system."""
    faults = [f"{line}: imports {name}" for name, line in imports(module) if name == "ctypes"]
    for node in nodes(module):
        if isinstance(node, ast.Constant) and str(node.value).startswith(("/proc", "/sys/kernel")):
            faults.append(f"{node.lineno}: reads {node.value}")
        elif isinstance(node, ast.Attribute) and not OF_SYSTEMS.isdisjoint(
            (node.attr, dotted(node))
        ):
            faults.append(f"{node.lineno}: asks {dotted(node)}")
    return faults


def impurities(module: ast.AST) -> list[str]:
    """What a pure part may not touch."""
    faults = [
        f"{line}: imports {name}" for name, line in imports(module) if name.split(".")[0] in IMPURE
    ]
    for node in nodes(module):
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            tail = ".".join(name.split(".")[-2:])
            if name in IMPURE_CALLS or tail in IMPURE_NAMES:
                faults.append(f"{node.lineno}: calls {name}")
    return faults


EXITS = frozenset({"print", "exit", "quit", "sys.exit", "os._exit", "os.abort"})


def talk_and_exits(module: ast.AST) -> list[tuple[str, str]]:
    """(what, line) of everything that prints or ends the process."""
    found = []
    for node in nodes(module):
        if isinstance(node, ast.Call) and dotted(node.func) in EXITS:
            found.append((dotted(node.func), str(node.lineno)))
        if isinstance(node, ast.Raise) and node.exc is not None:
            raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            if dotted(raised) == "SystemExit":
                found.append(("SystemExit", str(node.lineno)))
    return found


def calls_of_git(module: ast.AST) -> list[str]:
    """Lines of command lines that name git themselves: lists of words, and shell lines."""
    found = []
    for node in ast.walk(module):
        if isinstance(node, ast.List | ast.Tuple):
            words = [w.value if isinstance(w, ast.Constant) else None for w in node.elts]
            scripts = [after for word, after in pairwise(words) if word == "-c"]
            shell = words[:1] in (["sh"], ["bash"]) and any(map(_is_git_script, scripts))
            found += [str(node.lineno)] * (shell or any(map(_is_git, words[:1])))
        elif isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in STARTERS:
            scripts = [w.value for w in node.args[:1] if isinstance(w, ast.Constant)]
            found += [str(node.lineno)] * any(map(_is_git_script, scripts))
    return found


STARTERS = frozenset({"run", "Popen", "call", "check_call", "check_output", "system", "popen"})
"""Functions that start a program, named by their first argument."""


def _is_git(word: object) -> bool:
    return isinstance(word, str) and word.rpartition("/")[2] == "git"


def _is_git_script(word: object) -> bool:
    return isinstance(word, str) and _is_git(word.split(None, 1)[0] if word.split() else "")


def answers_taken_apart(module: ast.AST) -> list[str]:
    """Lines that split what git said by themselves: ``worktrees/git`` reads its answers."""
    found = []
    for function in (node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)):
        assigned = [node for node in ast.walk(function) if isinstance(node, ast.Assign)]
        told = {dotted(n.targets[0]) for n in assigned if _asks_git(_said(n.value))}
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                said = _said(node.func.value)
                if node.func.attr in SPLITS and (_asks_git(said) or dotted(said) in told):
                    found.append(str(node.lineno))
    return found


SPLITS = frozenset({"split", "rsplit", "splitlines", "partition", "rpartition"})
GIT_CALLS = frozenset({"git", "_git", "at_top", "call", "ask", "once"})
"""What calls of ours are named in modules that import ``worktrees/git``."""


def _asks_git(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in GIT_CALLS


def _said(node: ast.AST) -> ast.AST:
    """Without what only trims it, or takes it out of a result."""
    if isinstance(node, ast.Attribute) and node.attr in ("output", "stdout"):
        return _said(node.value)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return node
    return _said(node.func.value) if node.func.attr in TRIMS else node


TRIMS = frozenset({"strip", "rstrip", "removesuffix", "removeprefix"})


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def is_main_guard(node: ast.AST) -> bool:
    """``if __name__ == "__main__":``"""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


def undocumented(module: ast.Module) -> list[str]:
    """Public modules, classes, functions and methods without a docstring."""
    missing = [] if ast.get_docstring(module) or not module.body else ["1: the module"]

    def look(body: list[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, Definition) and not node.name.startswith("_"):
                if not ast.get_docstring(node):
                    missing.append(f"{node.lineno}: {node.name}")
                if isinstance(node, ast.ClassDef):
                    look(node.body)

    look(module.body)
    return missing


def broad_excepts(module: ast.AST, lines: list[str]) -> list[str]:
    """Handlers for everything that have no comment beside them saying why."""
    faults = []
    for node in nodes(module):
        if not isinstance(node, ast.ExceptHandler):
            continue
        names = ["bare"] if node.type is None else [dotted(n) for n in ast.walk(node.type)]
        around = lines[node.lineno - 2 : node.lineno + 1]
        if {"bare", "Exception", "BaseException"} & set(names) and not any(
            "# " in line for line in around
        ):
            faults.append(f"{node.lineno}: except without a type or a reason")
    return faults


def function_lines(node: ast.FunctionDef, *, in_cli: bool) -> int:
    """How long a function is; a command's options are a table, so only its body counts."""
    start = node.body[0].lineno if in_cli else node.lineno
    return (node.end_lineno or start) - start + 1


def is_main_call(module: ast.Module, fault: str) -> bool:
    """What a module does as a program of its own (``python -m``): under its main guard only."""
    guards = [node for node in module.body if is_main_guard(node)]
    line = int(fault.split(":")[0])
    return any(node.lineno <= line <= (node.end_lineno or 0) for node in guards)


def module_faults(path: Path, module: ast.Module) -> list[str]:
    """What only the package promises: layers, purity, who prints or exits, docstrings."""
    faults = undocumented(module)
    if where := part(path):
        assert where in ROOMS, f"{where} is a new room: give it a place in ROOMS"
        faults += layer_faults(path, module)
    if is_pure(path):
        faults += [f for f in impurities(module) if not is_main_call(module, f)]
    if not is_door(path) and path.name != "__main__.py":
        file = str(path.relative_to(PACKAGE))
        said = [f"{n}: {what}" for what, n in talk_and_exits(module) if (file, what) not in ALLOWED]
        faults += [fault for fault in said if not is_main_call(module, fault)]
    if not path.is_relative_to(PACKAGE / "runtime/kernel") and path != PACKAGE / ON_HOSTS:
        faults += names_of_systems(module)
    if (str(path.relative_to(PACKAGE)), "git") not in ALLOWED:
        faults += [f"{line}: names git past worktrees/git.argv" for line in calls_of_git(module)]
        if "beads_workers.worktrees.git" in ast.unparse(module):
            faults += [f"{n}: splits an answer of git" for n in answers_taken_apart(module)]
    return faults


def long_functions(path: Path, module: ast.Module) -> list[str]:
    """Functions of more than ``FUNCTION_LINES_MAX`` lines."""
    functions = [n for n in nodes(module) if isinstance(n, ast.FunctionDef)]
    in_cli = path in MODULES and is_door(path)
    lengths = ((node.name, function_lines(node, in_cli=in_cli)) for node in functions)
    return [f"{name}: {length} lines" for name, length in lengths if length > FUNCTION_LINES_MAX]


def left_for_later(lines: list[str]) -> list[str]:
    """Lines whose comment says that something is still to be done."""
    marks = re.compile("#.*\\b(TO" + "DO|FIX" + "ME|X" + "XX)\\b")
    return [f"{n}: {line}" for n, line in enumerate(lines, 1) if marks.search(line)]


def faults_of(path: Path) -> list[str]:
    """Every rule that the file breaks."""
    module, lines = tree(path), path.read_text(encoding="utf-8").splitlines()
    faults = long_functions(path, module) + left_for_later(lines) + broad_excepts(module, lines)
    return faults + (module_faults(path, module) if path in MODULES else [])


FOLDERS = sorted({path.parent for path in (*MODULES, *TESTS)})


@pytest.mark.parametrize("folder", FOLDERS, ids=place)
def test_every_file_keeps_the_rules(folder: Path) -> None:
    faults = {path.name: faults_of(path) for path in sorted(folder.glob("*.py"))}
    assert {name: found for name, found in faults.items() if found} == {}


def test_every_exception_from_a_rule_has_its_reason() -> None:
    assert all(reason.strip() for reason in ALLOWED.values())


# --- each checker catches a planted fault -----------------------------------------------------


def planted(source: str) -> ast.Module:
    """A module with something wrong in it."""
    return ast.parse(source)


@pytest.mark.parametrize(
    "source",
    [
        "from beads_workers.runtime import loop",
        "from beads_workers import cli",
        "def f():\n    import beads_workers.trackers.bd",
    ],
)
def test_the_layer_checker_catches_a_forbidden_import(source: str) -> None:
    assert layer_faults(PACKAGE / "core/base/limits.py", planted(source))


@pytest.mark.parametrize(
    ("group", "name"),
    [
        ("base", "records.journal"), ("records", "views.status"), ("schedule", "workers.sender"),
        ("views", "schedule.claims"), ("workers", "orchestrator"),
    ],
)  # fmt: skip
def test_the_layer_checker_catches_an_import_from_a_later_group(group: str, name: str) -> None:
    source = f"from beads_workers.core.{name} import something"
    assert layer_faults(PACKAGE / "core" / group / "x.py", planted(source))
    assert not layer_faults(PACKAGE / "core" / "orchestrator.py", planted(source))


@pytest.mark.parametrize(
    "source",
    ["import os", "from time import monotonic", "import os.path", "datetime.datetime.now()",
     "print(1)", "open('x')", "def f():\n    import random"],
)  # fmt: skip
def test_the_purity_checker_catches_the_world(source: str) -> None:
    assert impurities(planted(source))


@pytest.mark.parametrize(
    "source",
    ["import ctypes", "open(f'/proc/{pid}/stat')", "os.pidfd_open(1)", "x = socket.SO_PEERCRED",
     "if sys.platform == 'darwin': pass", "os.waitid(*asked)"],
)  # fmt: skip
def test_the_checker_of_systems_catches_who_asks_past_the_kernel(source: str) -> None:
    assert names_of_systems(planted(source))


@pytest.mark.parametrize("source", ["print()", "sys.exit(1)", "raise SystemExit", "os._exit(0)"])
def test_the_exit_checker_catches_talk_and_exits(source: str) -> None:
    assert talk_and_exits(planted(source))


@pytest.mark.parametrize(
    "source",
    ["run(['git', 'status'])", "Popen(('/usr/bin/git', *words))", "x = ['git']",
     "os.system('git gc')", "subprocess.run('git gc', shell=True)", "['sh', '-c', 'git gc']"],
)  # fmt: skip
def test_the_checker_of_git_catches_a_call_past_the_table(source: str) -> None:
    assert calls_of_git(planted(source))


@pytest.mark.parametrize(
    "source",
    ["git('a', 'x').split()", "told = self.git('x').strip()\n  told.splitlines()",
     "done = objects.call('x')\n  done.output.rstrip().partition('/')"],
)  # fmt: skip
def test_the_checker_of_answers_catches_who_splits_one(source: str) -> None:
    assert answers_taken_apart(planted(f"def f():\n  {source}"))


@pytest.mark.parametrize("source", ["x = 1", '"""m"""\ndef f(): ...', '"""m"""\nclass A: ...'])
def test_the_docstring_checker_catches_what_is_undocumented(source: str) -> None:
    assert undocumented(planted(source))


@pytest.mark.parametrize(
    "handler", ["except:", "except Exception:", "except (OSError, Exception):"]
)
def test_the_except_checker_catches_a_broad_handler(handler: str) -> None:
    source = f"try:\n    f()\n{handler}\n    pass\n"
    assert broad_excepts(planted(source), source.splitlines())


def test_the_length_checker_catches_a_long_function() -> None:
    source = "def f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX
    assert long_functions(PACKAGE / "core/base/limits.py", planted(source)) == ["f: 61 lines"]


def test_the_checker_of_comments_catches_what_is_left_for_later() -> None:
    assert left_for_later(["x = 1", "y = 2  # FIX" + "ME"]) == ["2: y = 2  # FIX" + "ME"]


# --- start-up: what a process has loaded ------------------------------------------------------


def loaded(code: str) -> set[str]:
    """The modules that a fresh process has after this code."""
    script = f"import sys, json\n{code}\nprint(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


HEAVY = {"rich", "redis", "psycopg", "asyncio", "pydantic"}


def test_a_worker_process_loads_nothing_that_it_does_not_need() -> None:
    """A hundred workers pay for every module; fork and memory stay cheap without these."""
    modules = loaded("import beads_workers.runtime.worker")
    assert not modules & (HEAVY | {"typer", "click", "sqlite3", "tomllib", "logging", "email"})


def test_the_version_is_told_without_anything_heavy() -> None:
    code = """
sys.argv = ["beads-workers", "--version"]
try:
    from beads_workers.cli.app import main
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
"""
    assert not loaded(code) & (HEAVY | {"sqlite3", "tomllib", "beads_workers.cli.config"})
