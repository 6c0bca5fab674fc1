"""The command that checks the work in this project, recognised from its files.

Nothing is run. A wrong proposal costs a night, so only explicit signs count: a target, a script
that is no placeholder, a section of settings, a folder with tests.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from beads_workers.checks.ci import PART, Key, Suite, tests_of
from beads_workers.core.base.model import value
from beads_workers.landing.sees.leads import installed

FILE_BYTES_MAX = 1 << 20
"""Largest file that is read: a larger one was not written by hand."""
ENTRIES_MAX = 2000
"""Number of entries of a folder that are looked at; the rest is ignored."""
PARTS_MAX = 4
"""Number of folders below that are joined; of more none is: their order would be a guess."""

NAMED_MAX = 20
"""Number of commands that a proposal names as left out."""

CI_FILES = (".github/workflows/*.y*ml", ".gitlab-ci.yml", ".circleci/config.yml", ".travis.yml")
PASSED_OVER = frozenset(
    {"build", "dist", "docs", "example", "examples", "fixtures", "node_modules", "target"}
    | {"testdata"}
    | {"third_party", "vendor", "venv"}
)
"""Folders whose tests are not those of the project."""


Suites = dict[Key, Suite]
Runs = Sequence[tuple[Key, Suite]]
"""Commands of CI, of which there may be several for one key."""


@value
class VerifyProposal:
    """A proposal for ``--verify``."""

    # The command; "" if all is left out.
    line: str
    # Its origin in words.
    why: str
    # The commands for ``[worktree] setup``, or "".
    setup: str = ""
    # Recognised commands that are not in the line.
    left_out: tuple[str, ...] = ()


def propose(folder: Path) -> VerifyProposal | None:
    """Return a proposal for ``--verify`` in this project; None if nothing was recognised.

    If CI runs tests, it is what CI runs. A Makefile's target is the project's own choice and stands
    alone. Otherwise all suites of the folder are joined; suites of the folders below count if the
    folder has none itself.
    """
    places = ("", *_folders(folder))
    found = {(at, tool): each for at in places for tool, each in suites(folder / at).items()}
    runs = [((key, run.line), (key, run)) for key, run in _of_ci(folder, found)]
    of_ci = list(dict(reversed(runs)).values())[::-1]
    chosen = _by_ci(of_ci, found) or _by_files(found)
    left_out = list(dict.fromkeys(_left_out(folder, chosen, found, of_ci)))
    if (more := len(left_out) - NAMED_MAX) > 0:
        left_out[NAMED_MAX:] = [f"{more} more"]
    parts = [_inside(at, suite) if at else suite for (at, _), suite in chosen.items()]
    why = " and ".join(dict.fromkeys(part.found for part in parts))
    setup = " && ".join(dict.fromkeys(part.setup for part in parts if part.setup))
    line = " && ".join(part.line for part in parts)
    return VerifyProposal(line, why, setup, tuple(left_out)) if line or left_out else None


def suites(folder: Path) -> dict[str, Suite]:
    """Return all suites recognised in this folder alone by what tests, a Makefile's first."""
    return {tool: found for tool, look in _LOOKS.items() if (found := look(folder)) is not None}


def shown(proposal: VerifyProposal) -> str:
    """Return the proposal in one line: ``'make test' (target of Makefile)``."""
    more = f"; not in it: {', '.join(proposal.left_out)}" if proposal.left_out else ""
    return f"'{proposal.line}' ({proposal.why}{more})" if proposal.line else f"nothing{more}"


# --- what is chosen ------------------------------------------------------------------------------


def _of_ci(folder: Path, found: Suites) -> Iterator[tuple[Key, Suite]]:
    """Yield the tests of CI, those of files that check each change first."""
    texts = {file: text_of(file) or "" for each in CI_FILES for file in folder.glob(each)}
    for file in sorted(texts, key=lambda file: ("pull_request" not in texts[file], file)):
        for key, test in tests_of(texts[file]):
            here, line = folder / key[0], test.line
            own = found.get(key, Suite("", "", _manager(here)[1] if key[1] == "node" else ""))
            if own.line and (plain := re.fullmatch(r"(?:python3? -m )?pytest( .*)?", line)):
                line = own.line + (plain[1] or "")  # With the Python and the sources of this place.
            elif own.line.endswith(f" {line}"):
                line = own.line
            gone = "" if here.is_dir() else "its folder is not here"
            why_not = gone or test.why_not or _never_ends(here, line)
            yield key, Suite(line, file.relative_to(folder).as_posix(), own.setup, why_not)


def _by_ci(of_ci: Runs, found: Suites) -> Suites:
    """Return the widest command of CI for each folder and tool; ours if none can be proposed."""
    chosen: Suites = {}
    # What is added to a command restricts it, but for some options.
    for key, run in sorted(
        of_ci, key=lambda e: (e[1].why_not, not _WHOLE.search(e[1].line), len(e[1].line))
    ):
        best = found.get(key, run) if run.why_not else run
        if best.why_not in ("", PART) and len(chosen) < PARTS_MAX:
            chosen.setdefault(key, best)
    return chosen


def _by_files(found: Suites) -> Suites:
    good = {key: suite for key, suite in found.items() if not suite.why_not}
    if here := {key: suite for key, suite in good.items() if not key[0]}:
        return {MAKE: good[MAKE]} if MAKE in good else here
    first = {at: (at, tool) for at, tool in reversed(good) if "/" not in at}
    return {key: good[key] for key in sorted(first.values())} if len(first) <= PARTS_MAX else {}


def _left_out(folder: Path, chosen: Suites, found: Suites, of_ci: Runs) -> Iterator[str]:
    """Yield every suite that the chosen ones do not run."""
    here = {key: suite for key, suite in found.items() if not key[0]}
    over = [
        (f"{at}/{each}".lstrip("/"), tool)
        for (at, tool), suite in (here | chosen).items()
        for each in _below(folder / at, tool, suite.line)
    ]
    rest = [
        (key, suite, suite.why_not)
        for key, suite in found.items()
        if key not in chosen
        and (not key[0] or not any(fnmatchcase(key[0], at) for at, of in over if of == key[1]))
    ]
    for key, run in of_ci:
        if key not in chosen or run.line != chosen[key].line:
            rest.append((key, run, f"{run.found}: {run.why_not or 'also run there'}"))
    for (at, _), suite, why in rest:
        yield suite.line + (f" in {at}" if at else "") + (f" ({why})" if why else "")
    said = [suite.line for suite in (*chosen.values(), *(suite for _, suite, _ in rest))]
    ran = _ran(folder, " ".join(said))
    for name in _scripts(folder):
        if name not in ran and IS_TEST.match(name) and not _never_ends(folder, name):
            yield f"{_manager(folder)[0].test.split()[0]} run {name}"


_WHOLE = re.compile(r" --(?:workspace|all)(?= |$)")
"""Options of cargo that widen what is tested."""


def _below(folder: Path, tool: str, line: str) -> list[str]:
    """Return patterns of the folders below whose suites this line runs, too."""
    match tool:
        case "cargo":
            manifest = _toml(folder / "Cargo.toml")
            narrow = _at(manifest, "package") or _at(manifest, "workspace", "default-members")
            key = "default-members" if narrow and not _WHOLE.search(line) else "members"
            return _texts(_at(manifest, "workspace", key))
        case "node" if _EVERYWHERE.search(" ".join((line, *_ran(folder, line).values()))):
            return ["*"]
        case "python":
            settings = _at(_toml(folder / "pyproject.toml"), "tool", "pytest", "ini_options")
            return [f"{each}*" for each in _texts(_at(settings, "testpaths")) or [""]]
    return ["*"] if tool == "bats" else []


def _inside(name: str, suite: Suite) -> Suite:
    def in_folder(line: str) -> str:
        inside = line.replace("$BW_CHECKOUT/", f"$BW_CHECKOUT/{name}/")
        inside = inside.replace("$BW_WORKTREE/", f"$BW_WORKTREE/{name}/")
        return f"(cd {name} && {inside})" if line else ""

    return Suite(in_folder(suite.line), f"{name}: {suite.found}", in_folder(suite.setup))


# --- one look for each kind of project -----------------------------------------------------------


MAKE = ("", "make")
MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
"""Names of makefiles, in the order in which make tries them."""
TARGETS = ("test", "tests", "check")
_RULE = re.compile(r"^([^\s#:=][^#:=]*?)\s*::?(?![:=])")


def _make(folder: Path) -> Suite | None:
    for name in MAKEFILES:
        if (text := text_of(folder / name)) is None:
            continue
        rules = (match[1] for line in text.splitlines() if (match := _RULE.match(line)))
        targets = {target for rule in rules for target in rule.split()}
        target = next((target for target in TARGETS if target in targets), None)
        return Suite(f"make {target}", f"target of {name}") if target else None
    return None


CARGO = "cargo test"


def _cargo(folder: Path) -> Suite | None:
    if not (folder / "Cargo.toml").is_file():
        return None
    manifest = _toml(folder / "Cargo.toml")
    members = _at(manifest, "workspace")
    # Without the option, cargo tests only the package of this folder, if there is one.
    narrow = _at(manifest, "package") is not None and members is not None
    option = " --workspace" if narrow and _at(members, "default-members") is None else ""
    return Suite(f"{CARGO}{option}", "Cargo.toml")


def _go(folder: Path) -> Suite | None:
    return Suite("go test ./...", "go.mod") if (folder / "go.mod").is_file() else None


@value
class Manager:
    """A package manager: its test command, its install command with a lock, and its locks."""

    test: str
    locked: str
    locks: tuple[str, ...]


MANAGERS: dict[str, Manager] = {
    "pnpm": Manager("pnpm test", "pnpm install --frozen-lockfile", ("pnpm-lock.yaml",)),
    "yarn": Manager("yarn test", "yarn install", ("yarn.lock",)),
    "bun": Manager("bun run test", "bun install --frozen-lockfile", ("bun.lock", "bun.lockb")),
    "npm": Manager("npm test", "npm ci", ("package-lock.json",)),
}
"""Package managers, by the name in ``packageManager`` of package.json.

Without that name, the first with a lock file is taken; without lock files, the last.
"""
PLACEHOLDER = "no test specified"
"""Text of the script that ``npm init`` writes, which always fails."""


IS_TEST = re.compile(r"tests?(?:[:/_.-].*)?$")
"""Name of a script, or of a folder, that tests."""
_NEVER_ENDS = re.compile(
    r"(?<![-\w])(?:--watch(?:All)?|watch|nodemon)(?![-\w]|[= ]false)"
    r"|\bkarma start\b(?!.*--single-run)|\bng test\b(?!.*--(?:no-watch|watch[= ]false))"
)
_VITEST_WATCHES = re.compile(r"\bvitest\b(?!.*\b(?:run|related|bench|list)\b)(?!.*--run\b)")
"""Vitest before version 3 waits for changes unless it is told to run once."""
_EVERYWHERE = re.compile(
    r"\b(?:turbo|nx|lerna|jest|vitest|workspaces|foreach)\b| -r\b|--recursive| -ws\b"
)
"""Signs of a command that tests all packages below."""


def _scripts(folder: Path) -> dict[str, str]:
    found = _at(_json(folder / "package.json"), "scripts")
    rows = found.items() if isinstance(found, dict) else ()
    return {k: v for k, v in rows if isinstance(v, str) and v.strip() and PLACEHOLDER not in v}


def _ran(folder: Path, line: str) -> dict[str, str]:
    """Return the scripts of package.json that a command runs, also through each other."""
    scripts, ran, texts = _scripts(folder), dict[str, str](), [line]
    for text in texts:
        words = set(re.findall(r"[\w@][^\s\"';&|()]*", text))
        new = {n: scripts[n] for n in scripts.keys() - ran if any(fnmatchcase(n, w) for w in words)}
        ran |= new
        texts += new.values()
    return ran


def _never_ends(folder: Path, line: str) -> str:
    texts = (line, *_ran(folder, line).values())
    return next((f"'{text}' never ends" for text in texts if _NEVER_ENDS.search(text)), "")


def _manager(folder: Path) -> tuple[Manager, str, str]:
    """Return what manages the packages of this folder, its set-up or "", its lock file or ""."""
    package = _json(folder / "package.json")
    name = str(_at(package, "packageManager") or "").partition("@")[0]
    named = [MANAGERS[name]] if name in MANAGERS else list(MANAGERS.values())
    locked = [(each, lock) for each in named for lock in each.locks if (folder / lock).is_file()]
    manager, lock = locked[0] if locked else (named[-1], "")
    keys = ("dependencies", "devDependencies", "workspaces")
    install = f"{manager.test.split()[0]} install" if any(_at(package, k) for k in keys) else ""
    return manager, manager.locked if lock else install, lock


def _node(folder: Path) -> Suite | None:
    if (script := _scripts(folder).get("test")) is None:
        return None
    manager, setup, lock = _manager(folder)
    line = manager.test
    if "react-scripts test" in script or _VITEST_WATCHES.search(script):
        line = f"CI=true {line}"  # Otherwise it waits for changes for ever.
    where = f"package.json with {lock}" if lock else "package.json"
    return Suite(line, f"script of {where}", setup, _never_ends(folder, "test"))


RUNNERS = {
    "uv.lock": Suite("uv run pytest", ""),
    "poetry.lock": Suite("poetry run pytest", "", "poetry install"),
}
PYTEST = "{python} -m pytest"
"""Test command: ``-m`` puts the code of this folder before installed code."""
OF_CHECKOUT = '"${{BW_CHECKOUT:+$BW_CHECKOUT/}}{python}"'
"""Python of the user's checkout: files that git ignores are not in an attempt's worktree."""


SOURCES_FIRST = 'PYTHONPATH="$BW_WORKTREE/src" '
"""Absolute path of sources: tests start programs in other folders, which need it too."""
EXTRAS = ("test", "tests", "testing", "dev")
"""Names that projects give to their test dependencies."""


def _pytest(folder: Path) -> Suite | None:
    if not (found := _pytest_said(folder)):
        return None
    for lock, runner in RUNNERS.items():
        if (folder / lock).is_file():
            return Suite(runner.line, f"{found} with {lock}", runner.setup)
    first = SOURCES_FIRST if _has_src(folder) else ""
    for name in (".venv", "venv"):
        python = f"{name}/bin/python"
        if not (folder / python).exists():
            continue
        if any(installed(folder / name, folder.resolve())):
            return _own_environment(folder, name, found)
        return Suite(first + PYTEST.format(python=OF_CHECKOUT.format(python=python)), found)
    return Suite(first + PYTEST.format(python="python3"), found)


def _own_environment(folder: Path, name: str, found: str) -> Suite:
    """Return a suite that makes an environment per worktree.

    The checkout's environment has the checkout installed, and would test that.
    """
    project = _toml(folder / "pyproject.toml")
    extras = [e for e in EXTRAS if _at(project, "project", "optional-dependencies", e)]
    what = f"-e '.[{extras[0]}]'" if extras else "-e . pytest"
    setup = f"python3 -m venv {name} && {name}/bin/python -m pip install --quiet {what}"
    why = f"{found}, in an environment of its own: {name} has the checkout installed"
    return Suite(f"{name}/bin/python -m pytest", why, setup)


def _has_src(folder: Path) -> bool:
    """Return whether sources are imported from ``src``."""
    inner = list(_entries(folder / "src"))
    return any(e.suffix == ".py" or (e / "__init__.py").is_file() for e in inner)


def _pytest_said(folder: Path) -> str:
    """Return where the project says that it has tests for pytest; "" for nowhere."""
    project = _toml(folder / "pyproject.toml")
    if _at(project, "tool", "pytest") is not None:
        return "pytest in pyproject.toml"
    for name in ("pytest.ini", ".pytest.ini"):
        if (folder / name).is_file():
            return name
    for name, section in (("setup.cfg", "[tool:pytest]"), ("tox.ini", "[pytest]")):
        if section in (text_of(folder / name) or ""):
            return f"pytest in {name}"
    for name in ("tests", "test"):
        if any(_is_test(entry) for entry in _entries(folder / name)):
            return f"{name}/"
    return ""


def _is_test(entry: Path) -> bool:
    if entry.is_dir():
        return entry.name != "__pycache__" and any(map(_is_test_file, _entries(entry)))
    return _is_test_file(entry)


def _is_test_file(entry: Path) -> bool:
    return re.fullmatch(r"test_.*\.py|.*_test\.py", entry.name) is not None


def _bats(folder: Path) -> Suite | None:
    names = (name for name in ("test", "tests") if any((folder / name).glob("**/*.bats")))
    return next((Suite(f"bats -r {name}", f"*.bats in {name}/") for name in names), None)


def _jvm(folder: Path) -> Suite | None:
    for files, wrapper, line in (
        (("build.gradle", "build.gradle.kts"), "gradlew", "gradle test"),
        (("pom.xml",), "mvnw", "mvn -B test"),
    ):
        if found := [name for name in files if (folder / name).is_file()]:
            own = (folder / wrapper).is_file()
            return Suite(f"./{wrapper} {line.partition(' ')[2]}" if own else line, found[0])
    return None


_LOOKS: dict[str, Callable[[Path], Suite | None]] = {
    "make": _make,
    "cargo": _cargo,
    "go": _go,
    "node": _node,
    "python": _pytest,
    "bats": _bats,
    "other": _jvm,
}

# --- files ---------------------------------------------------------------------------------------


def text_of(file: Path) -> str | None:
    """Return the text of a file that was written by hand; None for none."""
    try:
        if not file.is_file() or file.stat().st_size > FILE_BYTES_MAX:
            return None
        return file.read_text("utf-8", "replace")
    except OSError:
        return None  # An unreadable file counts as missing; a user who runs it will see why.


def _json(file: Path) -> Any:
    try:
        return json.loads(text_of(file) or "null")
    except (ValueError, RecursionError):
        return None


def _toml(file: Path) -> Any:
    try:
        return tomllib.loads(text_of(file) or "")
    except (ValueError, RecursionError):
        return None


def _at(found: Any, *names: str) -> Any:
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _texts(found: Any) -> list[str]:
    found = found.split() if isinstance(found, str) else found
    return [str(each) for each in found] if isinstance(found, list) else []


def _folders(folder: Path, above: str = "") -> Iterator[str]:
    """Yield the folders one and two levels down, but for those below folders of tests."""
    entries = sorted(entry for entry in _entries(folder) if not entry.is_symlink())
    # A name with special characters of the shell is never joined into a line.
    plain = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
    for entry in entries:
        if entry.is_dir() and plain.fullmatch(entry.name) and entry.name not in PASSED_OVER:
            yield f"{above}{entry.name}"
            if not above and not IS_TEST.match(entry.name):
                yield from _folders(entry, f"{entry.name}/")


def _entries(folder: Path) -> Iterator[Path]:
    try:
        for number, entry in enumerate(folder.iterdir()):
            if number >= ENTRIES_MAX:
                return
            yield entry
    except OSError:
        return  # The folder does not exist, or is a file.
