"""Integrations can be left out: all at once here, one by one in ``scripts/prove rooms``."""

from __future__ import annotations

import ast
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.support.real_agents import cache
from tests.test_tidy import PACKAGE, ROOT, imports

pytestmark = pytest.mark.daily(3)

ROOMS = tuple(
    sorted(p.name for p in (PACKAGE / "integrations").iterdir() if (p / "__init__.py").exists())
)

THEIRS = ("benchmarks", "fuzz", "integrations", "oracles", "proof")
"""Folders of tests that go with them, all or in part: tables of all parsers and of all commands."""

KEPT = (
    *("cli/test_app.py", "cli/test_application.py", "cli/test_mistakes.py", "contracts"),
    "cli/test_completion.py::test_issues_runs_workers_and_agents_are_proposed",
    *(f"executors/test_{name}.py" for name in ("calling", "command", "resolving")),
)
"""What is run in the copy here, beside importing all: whatever asks the registry, and calls out of
the warm process. The tracker of the tests is no entry of the registry: a process for each call, and
the same calls as in the whole tree.
The whole quick suite: ``scripts/prove rooms``."""

IMPORT_ALL = """
import importlib, pathlib, sys
for files in ("beads_workers/**/*.py", "tests/**/test_*.py"):
    for path in sorted(pathlib.Path().glob(files)):
        if path.name not in ("__main__.py", "ray_helper.py"):  # That one runs beside Ray only.
            importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
print(len(sys.modules))
"""


CORE = [
    path
    for path in sorted(PACKAGE.rglob("*.py"))
    if "integrations" not in path.parts and path.name != "registry.py"
]
"""What serves every kind of source, and may name no integration."""


def test_nobody_names_an_integration_but_the_registry() -> None:
    names = re.compile("hero|dispatcher|rrq|integrations", re.IGNORECASE)
    found = {path: [name for name in _identifiers(path) if names.search(name)] for path in CORE}
    assert {path: named for path, named in found.items() if named} == {}


def _identifiers(path: Path) -> list[str]:
    """Names, attributes, arguments and imported modules."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                found.append(name)
            case ast.keyword(arg=str(name)) | ast.FunctionDef(name=name) | ast.alias(name=name):
                found.append(name)
            case ast.ImportFrom(module=str(name)):
                found.append(name)
    return found


def copy_without(rooms: Iterable[str], copy: Path) -> list[str]:
    """A copy of the tree without these rooms and the tests that import them; returns what went."""
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT, copy, ignore=ignored)
    for room in rooms:
        shutil.rmtree(copy / "beads_workers/integrations" / room)
        shutil.rmtree(copy / "tests/integrations" / room)
    gone = {f"beads_workers.integrations.{room}" for room in rooms}
    files = {_module(path, copy): path for path in sorted((copy / "tests").rglob("*.py"))}
    needs = {name: _imported(path) for name, path in files.items()}
    while lost := {
        name for name in needs.keys() - gone if any(_below(n, gone) for n in needs[name])
    }:
        gone |= lost
    went = sorted(gone & files.keys())
    for name in went:
        files[name].unlink()
        if files[name].name == "__init__.py":
            shutil.rmtree(files[name].parent)
    return went


def _module(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def _imported(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    # What a function imports is asked for where it is called, if it is.
    return {
        name
        for node in tree.body
        for name, _ in imports(node)
        if not isinstance(node, ast.FunctionDef)
    }


def _below(name: str, gone: set[str]) -> bool:
    pieces = name.split(".")
    return any(".".join(pieces[:n]) in gone for n in range(2, len(pieces) + 1))


def run_quick(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The quick suite in that copy, which finds no other one."""
    plugins = ("-p", "tests.support.quick", "-p", "no:cacheprovider")
    return run_python(copy, "-m", "pytest", "-q", "-x", *plugins, *arguments)


def run_python(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python there, which finds that package and no other one."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copy() -> Iterator[Path]:
    """Where a copy is put: in the same place each time, so that it is compiled only once."""
    digest = hashlib.sha256(bytes(ROOT)).hexdigest()[:16]
    place = cache() / f"rooms-{digest}"
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(place, ignore_errors=True)
        yield place
        shutil.rmtree(place)


@pytest.mark.timeout(600)
def test_without_any_integration_the_rest_stays_green(copy: Path) -> None:
    went = copy_without(ROOMS, copy)
    beside = {name.split(".")[1] for name in went} - set(THEIRS)
    assert beside <= {"contracts", "end_to_end", "simulation", "support"}, went
    loaded = run_python(copy, "-c", IMPORT_ALL)
    assert loaded.returncode == 0 and int(loaded.stdout) > 700, loaded.stderr[-2000:]
    done = run_quick(copy, "-k", "not github", *(f"tests/{name}" for name in KEPT))
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed and int(passed[1]) > 200, done.stdout


def main(count: int) -> int:
    """The whole quick suite without each room, and without any; prints one JSON object, and on
    stderr how far it is."""
    broken = []
    without = [*((room,) for room in ROOMS), ROOMS][:count]
    for done, rooms in enumerate(without):
        print(f"{done} of {count}, now without {' '.join(rooms)}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="bw-rooms-") as folder:
            copy = Path(folder) / "copy"
            copy_without(rooms, copy)
            # Goldens, fuzz tables and the registry's tests name all rooms: whoever leaves one out
            # makes them anew.
            for named in (copy / "tests/integrations").glob("test_*.py"):
                named.unlink()
            kept = sorted(
                f"tests/{path.name}"
                for path in (copy / "tests").iterdir()
                if path.is_dir() and path.name not in {*THEIRS, "__pycache__"} - {"integrations"}
            )
            # Its tests wait for most of their time.
            ran = run_quick(copy, "-n", "3", "--dist", "loadfile", *kept)
            if ran.returncode:
                broken.append(f"without {' '.join(rooms)}: {ran.stdout[-300:]}")
    print(json.dumps({"faults": len(without), "violations": broken}))
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
