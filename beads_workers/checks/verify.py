"""Which command checks the work in this project: recognised from its files. Nothing is run.

A wrong proposal costs a night, so only what a project says of itself counts: a target, a script
that is no placeholder, a section of settings, a folder with tests.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from beads_workers.core.model import value
from beads_workers.landing.sees.leads import installed

FILE_BYTES_MAX = 1 << 20
"""A larger file is not read: nobody wrote it by hand."""
ENTRIES_MAX = 2000
"""Of a folder; in a larger one the rest is not looked at."""
PARTS_MAX = 4
"""So many folders below are joined; of more of them none is: their order would be a guess."""

PASSED_OVER = frozenset(
    {"build", "dist", "docs", "example", "examples", "node_modules", "target", "testdata"}
    | {"third_party", "vendor", "venv"}
)
"""Folders whose tests are not those of the project."""


@value
class Suite:
    """One way to test: ``line`` is for ``sh -c``, ``found`` says where it was recognised.

    ``setup``: what a new git worktree needs before it, which has only what is committed.
    """

    line: str
    found: str
    setup: str = ""


@value
class VerifyProposal:
    """``line``: for ``--verify``; ``why``: in words; ``setup``: for ``[worktree] setup``, or "".

    ``left_out``: what else was recognised, and is not in the line.
    """

    line: str
    why: str
    setup: str = ""
    left_out: tuple[str, ...] = ()


def propose(folder: Path) -> VerifyProposal | None:
    """What to verify with in this project; None where nothing was recognised.

    A Makefile's target is the project's own word and stands alone. Otherwise all suites of the
    folder are joined; those of the folders below count where it has none itself.
    """
    here = suites(folder)
    below = [(name, found) for name in _folders(folder) if (found := suites(folder / name))]
    if here:
        chosen = here[:1] if here[0].line.startswith("make ") else here
        rest = [each.line for each in here[len(chosen) :]]
        members = _at(_toml(folder / "Cargo.toml"), "workspace") is not None
        others = [(name, found[0].line) for name, found in below]
        rest += [f"{each} in {name}" for name, each in others if not (members and CARGO in each)]
        return _joined(chosen, tuple(rest))
    parts = [_inside(name, found[0]) for name, found in below]
    if not parts or len(parts) > PARTS_MAX:
        return None
    return _joined(parts, ())


def suites(folder: Path) -> list[Suite]:
    """All that is recognised in this folder alone, a Makefile's first."""
    return [found for look in _LOOKS if (found := look(folder)) is not None]


def shown(proposal: VerifyProposal) -> str:
    """In one line: ``'make test' (target of Makefile)``."""
    more = f"; not in it: {', '.join(proposal.left_out)}" if proposal.left_out else ""
    return f"'{proposal.line}' ({proposal.why}{more})"


def _joined(parts: list[Suite], left_out: tuple[str, ...]) -> VerifyProposal:
    why = " and ".join(part.found for part in parts)
    setup = " && ".join(dict.fromkeys(part.setup for part in parts if part.setup))
    return VerifyProposal(" && ".join(part.line for part in parts), why, setup, left_out)


def _inside(name: str, suite: Suite) -> Suite:
    def there(line: str) -> str:
        inside = line.replace("$BW_CHECKOUT/", f"$BW_CHECKOUT/{name}/")
        inside = inside.replace("$BW_WORKTREE/", f"$BW_WORKTREE/{name}/")
        return f"(cd {name} && {inside})" if line else ""

    return Suite(there(suite.line), f"{name}: {suite.found}", there(suite.setup))


# --- one look for each kind of project -----------------------------------------------------------


MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
"""In the order in which make takes them."""
TARGETS = ("test", "tests", "check")
_RULE = re.compile(r"^([^\s#:=][^#:=]*?)\s*::?(?![:=])")


def _make(folder: Path) -> Suite | None:
    for name in MAKEFILES:
        if (text := _text(folder / name)) is None:
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
    # Without the option, cargo only tests the package of this folder, if there is one.
    narrow = _at(manifest, "package") is not None and members is not None
    option = " --workspace" if narrow and _at(members, "default-members") is None else ""
    return Suite(f"{CARGO}{option}", "Cargo.toml")


def _go(folder: Path) -> Suite | None:
    return Suite("go test ./...", "go.mod") if (folder / "go.mod").is_file() else None


@value
class Manager:
    """A package manager: its test command, and its install commands with and without a lock."""

    test: str
    locked: str
    install: str
    locks: tuple[str, ...]


MANAGERS: dict[str, Manager] = {
    "pnpm": Manager(
        "pnpm test", "pnpm install --frozen-lockfile", "pnpm install", ("pnpm-lock.yaml",)
    ),
    "yarn": Manager("yarn test", "yarn install", "yarn install", ("yarn.lock",)),
    "bun": Manager(
        "bun run test",
        "bun install --frozen-lockfile",
        "bun install",
        ("bun.lock", "bun.lockb"),
    ),
    "npm": Manager("npm test", "npm ci", "npm install", ("package-lock.json",)),
}
"""By the name in ``packageManager`` of package.json. If there is none, the first with a lock file
is taken, and the last one without any."""
PLACEHOLDER = "no test specified"
"""Of the script that ``npm init`` writes, which always fails."""


def _node(folder: Path) -> Suite | None:
    package = _json(folder / "package.json")
    script = _at(package, "scripts", "test")
    if not isinstance(script, str) or not script.strip() or PLACEHOLDER in script:
        return None
    said = str(_at(package, "packageManager") or "").partition("@")[0]
    named = [MANAGERS[said]] if said in MANAGERS else list(MANAGERS.values())
    locked = [(each, lock) for each in named for lock in each.locks if (folder / lock).is_file()]
    manager, lock = locked[0] if locked else (named[-1], "")
    keys = ("dependencies", "devDependencies", "workspaces")
    needs_more = any(_at(package, key) for key in keys)
    setup = manager.locked if lock else manager.install if needs_more else ""
    line = manager.test
    if "react-scripts test" in script:
        line = f"CI=true {line}"  # It waits for changes for ever otherwise.
    where = f"package.json with {lock}" if lock else "package.json"
    return Suite(line, f"script of {where}", setup)


RUNNERS = {
    "uv.lock": Suite("uv run pytest", ""),
    "poetry.lock": Suite("poetry run pytest", "", "poetry install"),
}
PYTEST = "{python} -m pytest"
"""With ``-m`` the code of this folder comes first, and not what is installed from elsewhere."""
OF_CHECKOUT = '"${{BW_CHECKOUT:+$BW_CHECKOUT/}}{python}"'
"""What git ignores is in the user's checkout only, and not in the worktree of an attempt."""


SOURCES_FIRST = 'PYTHONPATH="$BW_WORKTREE/src" '
"""Absolute: tests start programs in other folders, which would import what is installed."""
EXTRAS = ("test", "tests", "testing", "dev")
"""What projects call their needs for tests."""


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
    """One for each worktree: what is installed in the checkout's is the checkout."""
    project = _toml(folder / "pyproject.toml")
    extras = [e for e in EXTRAS if _at(project, "project", "optional-dependencies", e)]
    what = f"-e '.[{extras[0]}]'" if extras else "-e . pytest"
    setup = f"python3 -m venv {name} && {name}/bin/python -m pip install --quiet {what}"
    why = f"{found}, in an environment of its own: {name} has the checkout installed"
    return Suite(f"{name}/bin/python -m pytest", why, setup)


def _has_src(folder: Path) -> bool:
    """Whether sources are imported from ``src``."""
    inner = list(_entries(folder / "src"))
    return any(e.suffix == ".py" or (e / "__init__.py").is_file() for e in inner)


def _pytest_said(folder: Path) -> str:
    """Where the project says that it has tests for pytest; "" for nowhere."""
    project = _toml(folder / "pyproject.toml")
    if _at(project, "tool", "pytest") is not None:
        return "pytest in pyproject.toml"
    for name in ("pytest.ini", ".pytest.ini"):
        if (folder / name).is_file():
            return name
    for name, section in (("setup.cfg", "[tool:pytest]"), ("tox.ini", "[pytest]")):
        if section in (_text(folder / name) or ""):
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


_LOOKS: tuple[Callable[[Path], Suite | None], ...] = (_make, _cargo, _go, _node, _pytest)

# --- files ---------------------------------------------------------------------------------------


def _text(file: Path) -> str | None:
    try:
        if not file.is_file() or file.stat().st_size > FILE_BYTES_MAX:
            return None
        return file.read_text("utf-8", "replace")
    except OSError:
        return None  # What cannot be read says nothing; whoever runs it will see why.


def _json(file: Path) -> Any:
    try:
        return json.loads(_text(file) or "null")
    except (ValueError, RecursionError):
        return None


def _toml(file: Path) -> Any:
    try:
        return tomllib.loads(_text(file) or "")
    except (ValueError, RecursionError):
        return None


def _at(found: Any, *names: str) -> Any:
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _folders(folder: Path) -> list[str]:
    names = (entry.name for entry in _entries(folder) if entry.is_dir() and not entry.is_symlink())
    # A name that a shell would take apart is none that anybody joins lines with.
    plain = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
    return sorted(name for name in names if plain.fullmatch(name) and name not in PASSED_OVER)


def _entries(folder: Path) -> Iterator[Path]:
    try:
        for number, entry in enumerate(folder.iterdir()):
            if number >= ENTRIES_MAX:
                return
            yield entry
    except OSError:
        return  # None, or no folder.
