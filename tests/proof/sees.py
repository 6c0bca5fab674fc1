"""Projects as people lay them out, each made with its own tool: does a check see the branch?

``scripts/prove sees`` runs all of them; what needs nothing installed is in
``tests/landing/test_sees``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from beads_workers.checks.verify import propose
from beads_workers.core.base.settings import Sight
from beads_workers.landing.gate import GateOrder, Verdicts, start_gate
from beads_workers.landing.queue import GateVerdict
from beads_workers.landing.repository import landing_folder
from beads_workers.landing.sees.proof import Proof
from beads_workers.landing.sees.run import prove
from tests.landing.world import LandingWorld
from tests.support.repository import IDENTITY
from tests.support.worktrees import ruled

ROOT = Path(__file__).parents[2]
TOOLS = ("uv-", "hatch-", "poetry-")
IGNORED = ".venv\n.beads-workers\nnode_modules\n__pycache__\n*.egg-info\ntarget\n.pytest_cache\n"
CALC = "def add(a, b):\n    return a + b\n"
TEST = "from calc import add\n\n\ndef test_it():\n    assert add(1, 2) == 3\n"
ELSEWHERE = """import subprocess
import sys


def test_it():
    code = "from calc import add; assert add(1, 2) == 3"
    subprocess.run([sys.executable, "-c", code], cwd="/", check=True)
"""
PYPROJECT = """[build-system]
requires = ["{backend}"]
build-backend = "{module}"

[project]
name = "calc"
version = "1"
requires-python = ">=3.10"

[project.optional-dependencies]
test = ["pytest"]

[dependency-groups]
dev = ["pytest"]

[tool.pytest.ini_options]
testpaths = ["tests"]
"""
HATCH_ENVIRONMENT = '[tool.hatch.envs.default]\ndependencies = ["pytest"]\n'
POETRY = """[build-system]
requires = ["poetry-core"]
build-backend = "poetry.core.masonry.api"

[project]
name = "calc"
version = "1"
requires-python = ">=3.10"
"""
SETUPTOOLS = PYPROJECT.format(backend="setuptools>=64", module="setuptools.build_meta")
HATCHLING = PYPROJECT.format(backend="hatchling", module="hatchling.build")
TESTS = {"tests/test_calc.py": TEST, "tests/test_elsewhere.py": ELSEWHERE}
SRC = {"src/calc/__init__.py": CALC, **TESTS}
FLAT = {"calc/__init__.py": CALC, **TESTS}
PIP = "python3 -m venv .venv && .venv/bin/python -m pip install --quiet -e '.[test]'"
STRICT = f"{PIP} --config-settings editable_mode=strict"
OURS = '"$BW_CHECKOUT/.venv/bin/python" -m pytest -q'
SOURCES_FIRST = 'PYTHONPATH="$BW_WORKTREE/src" '

NPM = {
    "package.json": '{"private": true, "workspaces": ["lib", "app"],'
    ' "scripts": {"test": "node app/test.js"}}',
    "lib/package.json": '{"name": "lib", "version": "1.0.0", "main": "index.js"}',
    "lib/index.js": "exports.add = (a, b) => a + b;\n",
    "app/package.json": '{"name": "app", "version": "1.0.0", "dependencies": {"lib": "1.0.0"}}',
    "app/test.js": 'if (require("lib").add(1, 2) !== 3) throw new Error("no");\n',
}
GO_TEST = """package app

import (
\t"testing"

\t"example.com/lib"
)

func TestIt(t *testing.T) {
\tif lib.Add(1, 2) != 3 {
\t\tt.Fatal("no")
\t}
}
"""
GO_APP = "module example.com/app\n\ngo 1.21\n\nrequire example.com/lib v0.0.0\n"
GO = {
    "lib/go.mod": "module example.com/lib\n\ngo 1.21\n",
    "lib/lib.go": "package lib\n\nfunc Add(a, b int) int { return a + b }\n",
    "app/go.mod": GO_APP,
    "app/app.go": "package app\n",
    "app/app_test.go": GO_TEST,
}
GO_WORK = {"go.work": "go 1.21\n\nuse ./app\nuse ./lib\n"}
CARGO = {
    "lib/Cargo.toml": '[package]\nname = "lib"\nversion = "1.0.0"\nedition = "2021"\n',
    "lib/src/lib.rs": "pub fn add(a: i32, b: i32) -> i32 { a + b }\n",
    "app/src/lib.rs": "",
    "app/tests/it.rs": "#[test]\nfn it() { assert_eq!(lib::add(1, 2), 3); }\n",
}
CARGO_APP = '[package]\nname = "app"\nversion = "1.0.0"\nedition = "2021"\n[dependencies]\n'
SERVER = """import http.server
import sys
from calc import add


class Adds(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(add(1, 2)).encode())


server = http.server.HTTPServer(("127.0.0.1", 0), Adds)
open("port", "w").write(str(server.server_port))
server.serve_forever()
"""
ASKS = """import os, urllib.request
port = open(os.path.join(os.environ["BW_CHECKOUT"], "port")).read()
assert urllib.request.urlopen(f"http://127.0.0.1:{port}/").read() == b"3"
"""


@dataclass(frozen=True)
class Layout:
    """``files`` may name the checkout as ``{top}``. ``before``: what its user did in the checkout;
    ``verify`` and ``setup``: of the fleet, None for what we propose; ``sight``: what is right;
    ``served``: its user has a server running from the checkout."""

    files: dict[str, str]
    verify: str | None
    sight: Sight
    before: str = ""
    setup: str | None = None
    served: bool = False


def _python(pyproject: str, files: dict[str, str]) -> dict[str, str]:
    return {"pyproject.toml": pyproject, **files}


SETUPTOOLS_SRC = _python(SETUPTOOLS, SRC)
SETUPTOOLS_FLAT = _python(SETUPTOOLS, FLAT)
HATCHLING_SRC = _python(HATCHLING, SRC)
ABSOLUTE_GO = {**GO, "app/go.mod": GO_APP + "\nreplace example.com/lib => {top}/lib\n"}
RELATIVE_GO = {**GO, "app/go.mod": GO_APP + "\nreplace example.com/lib => ../lib\n"}
LINKED = 'ln -sfn "$BW_CHECKOUT/node_modules" node_modules'

LAYOUTS: dict[str, Layout] = {
    "pip -e, src": Layout(SETUPTOOLS_SRC, OURS, Sight.CHECKOUT, PIP),
    "pip -e, src, sources first": Layout(SETUPTOOLS_SRC, SOURCES_FIRST + OURS, Sight.BRANCH, PIP),
    "pip -e, src, relative path": Layout(
        SETUPTOOLS_SRC, f"PYTHONPATH=src {OURS}", Sight.CHECKOUT, PIP
    ),
    "pip -e, src, a linter first": Layout(
        SETUPTOOLS_SRC, f"python3 -m compileall -q src && {OURS}", Sight.CHECKOUT, PIP
    ),
    "pip -e, src, proposed": Layout(SETUPTOOLS_SRC, None, Sight.BRANCH, PIP),
    "pip -e, flat, programs elsewhere": Layout(SETUPTOOLS_FLAT, OURS, Sight.CHECKOUT, PIP),
    "pip -e strict, flat": Layout(
        SETUPTOOLS_FLAT, f'PYTHONPATH="$BW_WORKTREE" {OURS}', Sight.BRANCH, STRICT
    ),
    "pip -e, hatchling": Layout(HATCHLING_SRC, OURS, Sight.CHECKOUT, PIP),
    "uv": Layout(HATCHLING_SRC, "uv run pytest -q", Sight.BRANCH, "uv sync --quiet"),
    "uv, proposed": Layout(HATCHLING_SRC, None, Sight.BRANCH, "uv sync --quiet"),
    "uv, the checkout's": Layout(HATCHLING_SRC, OURS, Sight.CHECKOUT, "uv sync --quiet"),
    "uv, the checkout's project": Layout(
        HATCHLING_SRC,
        'uv run --project "$BW_CHECKOUT" pytest -q',
        Sight.CHECKOUT,
        "uv sync --quiet",
    ),
    "hatch": Layout(
        _python(HATCHLING + HATCH_ENVIRONMENT, SRC),
        "hatch -q run python -m pytest -q",
        Sight.BRANCH,
    ),
    "poetry": Layout(
        _python(POETRY, SRC),
        "poetry run python -c 'from calc import add; assert add(1, 2) == 3'",
        Sight.BRANCH,
        setup="poetry install --quiet",
    ),
    "poetry, the checkout's": Layout(
        _python(POETRY, SRC),
        """poetry -P "$BW_CHECKOUT" run python -c 'from calc import add; assert add(1, 2) == 3'""",
        Sight.CHECKOUT,
        "poetry install --quiet",
    ),
    "npm workspaces": Layout(NPM, "npm test", Sight.BRANCH, "npm install", "npm install"),
    "npm workspaces, linked": Layout(NPM, "npm test", Sight.CHECKOUT, "npm install", LINKED),
    "go.work": Layout({**GO, **GO_WORK}, "go test ./app/...", Sight.BRANCH),
    "go replace": Layout(RELATIVE_GO, "cd app && go test ./...", Sight.BRANCH),
    "go replace, absolute": Layout(ABSOLUTE_GO, "cd app && go test ./...", Sight.CHECKOUT),
    "cargo path": Layout(
        {**CARGO, "app/Cargo.toml": CARGO_APP + 'lib = {{ path = "../lib" }}\n'},
        "cd app && cargo test -q --offline",
        Sight.BRANCH,
    ),
    "cargo path, absolute": Layout(
        {**CARGO, "app/Cargo.toml": CARGO_APP + 'lib = {{ path = "{top}/lib" }}\n'},
        "cd app && cargo test -q --offline",
        Sight.CHECKOUT,
    ),
    "a server of the checkout": Layout(
        {"calc.py": CALC, "tests/server.py": SERVER, "tests/asks.py": ASKS},
        "python3 tests/asks.py",
        Sight.NOTHING,
        served=True,
    ),
    "true": Layout(FLAT, "true", Sight.NOTHING),
    "a linter": Layout(FLAT, "python3 -m compileall -q calc", Sight.NOTHING),
}


class Laid:
    """A layout in a repository below ``folder``."""

    def __init__(self, folder: Path, layout: Layout) -> None:
        self.layout = layout
        self.world = LandingWorld(folder)
        top = self.world.top
        filled = {
            name: text.replace("{top}", str(top)).replace("{{", "{").replace("}}", "}")
            if name.endswith((".mod", "Cargo.toml"))
            else text
            for name, text in layout.files.items()
        }
        self.world.main({".gitignore": IGNORED, **filled})
        if layout.before:
            self._shell(layout.before)
            locks = [each for each in ("uv.lock", "package-lock.json") if (top / each).exists()]
            if locks:  # Without a name, all would be committed, .venv too.
                self.world.main({each: (top / each).read_text() for each in locks})

    def _shell(self, line: str) -> None:
        done = subprocess.run(
            ["sh", "-c", line], cwd=self.world.top, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"

    def live(self) -> tuple[Proof, float]:
        """Prove it; gives the proof, and the seconds of one check. Raises ``AssertionError``."""
        verify, setup = self.layout.verify, self.layout.setup
        if verify is None:
            found = propose(self.world.top)
            assert found is not None, "nothing is proposed"
            verify, setup = found.line, found.setup or None
        server = self._serve() if self.layout.served else None
        try:
            base = self._gate(verify, setup)
            proof = self._prove(verify, setup)
            assert proof.sight is self.layout.sight, f"{verify}: {proof}"
            if proof.sight is Sight.CHECKOUT:
                assert proof.found and proof.remedy, proof
                self._mended(proof, setup)
            return proof, base
        finally:
            if server is not None:
                server.kill()
                server.wait()

    def _mended(self, proof: Proof, setup: str | None) -> None:
        """If the refusal has a line, it is right."""
        if proof.remedy.startswith("verify = '"):
            line = proof.remedy.removeprefix("verify = '").removesuffix("'")
            again = self._prove(line, setup)
            assert again.sight is Sight.BRANCH, f"{line}: {again}"

    def _prove(self, verify: str, setup: str | None) -> Proof:
        settings = self.world.settings(verify)
        settings = replace(settings, worktrees=ruled(settings.worktrees, setup=setup))
        return prove(settings, self.world.start, 2)

    def _gate(self, verify: str, setup: str | None) -> float:
        """What the base check would do first; it must be green."""
        settings = self.world.settings(verify)
        settings = replace(settings, worktrees=ruled(settings.worktrees, setup=setup))
        folder = landing_folder(settings.worktrees)
        folder.mkdir(parents=True, exist_ok=True)
        verdicts = Verdicts(settings, folder)
        result = start_gate(
            settings, folder, GateOrder(2, self.world.start, "", self.world.start), verdicts
        ).result()
        assert result.verdict is GateVerdict.GREEN, f"{verify}: {result}"
        return result.seconds

    def _serve(self) -> subprocess.Popen[bytes]:
        top = self.world.top
        server = subprocess.Popen(
            [sys.executable, "tests/server.py"],
            cwd=top,
            env=os.environ | {"PYTHONPATH": str(top)},
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + 20
        while not (top / "port").exists() or not (top / "port").read_text():
            assert time.monotonic() < until, "the server has not begun"
            time.sleep(0.05)
        return server


def _tools() -> list[str]:
    """The folders of uv, hatch and poetry."""
    setup = subprocess.run(
        [str(ROOT / "scripts" / "setup-peers"), "layouts"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    folders = [line for line in setup.stdout.splitlines() if Path(line).name.startswith(TOOLS)]
    return [f"{folder}/bin" for folder in folders]


def main(arguments: Sequence[str]) -> int:
    """Run so many of them; prints figures for ``scripts/prove``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--cases", type=int, default=len(LAYOUTS))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--progress", action="store_true")
    options = parser.parse_args(arguments)
    for name in [each for each in os.environ if each.startswith("GIT_")]:
        del os.environ[name]
    os.environ["PATH"] = os.pathsep.join([*_tools(), os.environ["PATH"]])
    os.environ |= IDENTITY
    os.environ.pop("VIRTUAL_ENV", None)
    chosen = options.names or list(LAYOUTS)[: options.cases]
    violations, began = list[str](), time.monotonic()
    for number, name in enumerate(chosen, 1):
        said = ""
        with tempfile.TemporaryDirectory(prefix="bw-", dir="/tmp") as folder:
            os.environ |= {"HATCH_DATA_DIR": folder, "POETRY_VIRTUALENVS_PATH": f"{folder}/poetry"}
            try:
                proof, base = Laid(Path(folder), LAYOUTS[name]).live()
                said = f"{proof.sight} in {proof.seconds:.1f} s, its check takes {base:.1f} s"
            except AssertionError as error:
                said = str(error)
                violations.append(f"{name}: {error}"[:2000])
        if options.progress:
            print(f"{number} of {len(chosen)} cases ({name}: {said})", file=sys.stderr, flush=True)
    seconds = round(time.monotonic() - began, 1)
    print(json.dumps({"cases": len(chosen), "seconds": seconds, "violations": violations}))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
