"""The command that checks the work in this project, recognised from its files.

Nothing is run. A wrong proposal costs a night, so only explicit signs count: a target, a script
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
"""Largest file that is read: a larger one was not written by hand."""
ENTRIES_MAX = 2000
"""Number of entries of a folder that are looked at; the rest is ignored."""
PARTS_MAX = 4
"""Number of folders below that are joined; of more none is: their order would be a guess."""

PASSED_OVER = frozenset(
    {"build", "dist", "docs", "example", "examples", "node_modules", "target", "testdata"}
    | {"third_party", "vendor", "venv"}
)
"""Folders whose tests are not those of the project."""


@value
class Suite:
    """A way to test. ``line``: for ``sh -c``; ``found``: where it was recognised.

    ``setup``: commands that a new git worktree needs first, as it has only committed files.
    """

    line: str
    found: str
    setup: str = ""


@value
class VerifyProposal:
    """A proposal for ``--verify``.

    ``line``: the command; ``why``: its origin in words; ``setup``: for ``[worktree] setup``, or "".
    ``left_out``: recognised commands that are not in the line.
    """

    line: str
    why: str
    setup: str = ""
    left_out: tuple[str, ...] = ()


def propose(folder: Path) -> VerifyProposal | None:
    """Return a proposal for ``--verify`` in this project; None if nothing was recognised.

    A Makefile's target is the project's own choice and stands alone. Otherwise all suites of the
    folder are joined; suites of the folders below count if the folder has none itself.
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
    """Return all suites recognised in this folder alone, a Makefile's first."""
    return [found for look in _LOOKS if (found := look(folder)) is not None]


def shown(proposal: VerifyProposal) -> str:
    """Return the proposal in one line: ``'make test' (target of Makefile)``."""
    more = f"; not in it: {', '.join(proposal.left_out)}" if proposal.left_out else ""
    return f"'{proposal.line}' ({proposal.why}{more})"


def _joined(parts: list[Suite], left_out: tuple[str, ...]) -> VerifyProposal:
    why = " and ".join(part.found for part in parts)
    setup = " && ".join(dict.fromkeys(part.setup for part in parts if part.setup))
    return VerifyProposal(" && ".join(part.line for part in parts), why, setup, left_out)


def _inside(name: str, suite: Suite) -> Suite:
    def in_folder(line: str) -> str:
        inside = line.replace("$BW_CHECKOUT/", f"$BW_CHECKOUT/{name}/")
        inside = inside.replace("$BW_WORKTREE/", f"$BW_WORKTREE/{name}/")
        return f"(cd {name} && {inside})" if line else ""

    return Suite(in_folder(suite.line), f"{name}: {suite.found}", in_folder(suite.setup))


# --- one look for each kind of project -----------------------------------------------------------


MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
"""Names of makefiles, in the order in which make tries them."""
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
    # Without the option, cargo tests only the package of this folder, if there is one.
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
"""Package managers, by the name in ``packageManager`` of package.json.

Without that name, the first with a lock file is taken; without lock files, the last.
"""
PLACEHOLDER = "no test specified"
"""Text of the script that ``npm init`` writes, which always fails."""


def _node(folder: Path) -> Suite | None:
    package = _json(folder / "package.json")
    script = _at(package, "scripts", "test")
    if not isinstance(script, str) or not script.strip() or PLACEHOLDER in script:
        return None
    manager_name = str(_at(package, "packageManager") or "").partition("@")[0]
    named = [MANAGERS[manager_name]] if manager_name in MANAGERS else list(MANAGERS.values())
    locked = [(each, lock) for each in named for lock in each.locks if (folder / lock).is_file()]
    manager, lock = locked[0] if locked else (named[-1], "")
    keys = ("dependencies", "devDependencies", "workspaces")
    needs_more = any(_at(package, key) for key in keys)
    setup = manager.locked if lock else manager.install if needs_more else ""
    line = manager.test
    if "react-scripts test" in script:
        line = f"CI=true {line}"  # Otherwise it waits for changes for ever.
    where = f"package.json with {lock}" if lock else "package.json"
    return Suite(line, f"script of {where}", setup)


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
        return None  # An unreadable file counts as missing; a user who runs it will see why.


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
    # A name with special characters of the shell is never joined into a line.
    plain = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
    return sorted(name for name in names if plain.fullmatch(name) and name not in PASSED_OVER)


def _entries(folder: Path) -> Iterator[Path]:
    try:
        for number, entry in enumerate(folder.iterdir()):
            if number >= ENTRIES_MAX:
                return
            yield entry
    except OSError:
        return  # The folder does not exist, or is a file.
