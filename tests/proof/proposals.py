"""Projects as public ones are laid out: does a proposal for verify say what it leaves out?

    scripts/prove proposals
    python -m tests.proof.proposals [--cases N] [--json] [--progress]

Each has manifests and CI files only, in words of our own; nothing is run. If CI names a command
that tests, the proposal is that, or says why not.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from beads_workers.checks.verify import propose

PROMISE = "a proposal is what CI runs, or says why not, and names what it leaves out"
CI = ".github/workflows/ci.yml"


@dataclass(frozen=True)
class Project:
    """``files``: each with its text; ``line``: the proposal, "" for none; ``left_out``: all that it
    names."""

    files: dict[str, str]
    line: str
    left_out: tuple[str, ...] = ()

    def wrong(self, folder: Path) -> str:
        """What is wrong with the proposal for this project, made in ``folder``; "" for nothing."""
        for name, text in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        found = propose(folder)
        line, left_out = (found.line, found.left_out) if found else ("", ())
        if (line, left_out) == (self.line, self.left_out):
            return ""
        return f"{line!r} leaves out {left_out}, not {self.line!r} and {self.left_out}"


def steps(*lines: str, on: str = "[push, pull_request]") -> str:
    """A workflow of GitHub: each line is a step, or a whole one if it begins with a key."""
    made = (line if ": " in line.split("\n")[0][:20] else f"run: {line}" for line in lines)
    rows = "".join(f"      - {each}\n" for each in made)
    return f"name: CI\non: {on}\njobs:\n  test:\n    runs-on: ubuntu-latest\n    steps:\n{rows}"


def scripts(**texts: str) -> str:
    """A package.json."""
    return json.dumps({"scripts": {name.replace("__", ":"): each for name, each in texts.items()}})


def crates(*names: str) -> dict[str, str]:
    return {f"{name}/Cargo.toml": f"[package]\nname = '{Path(name).name}'\n" for name in names}


NO_VALUE = f"({CI}: it needs values or the shell of CI)"
ALSO = f"({CI}: also run there)"
SOME = f"({CI}: it tests a part)"
NINE = ["app", "cli", "core", "db", "http", "lib", "log", "net", "util"]
WORKSPACE = "[workspace]\nmembers = ['crates/*']\n"
TEST = {"tests/test_it.py": ""}
PACKAGES = {f"packages/{n}/package.json": scripts(test="vitest") for n in ("core", "ui")}

PROJECTS: dict[str, Project] = {
    "a workspace whose CI tests all of it (like a formatter in Rust)": Project(
        {
            "Cargo.toml": f"[workspace]\nmembers = {NINE}\ndefault-members = ['app']\n",
            **crates(*NINE),
            CI: steps("uses: actions/checkout@v4", "cargo test --workspace"),
        },
        "cargo test --workspace",
    ),
    "the same without CI": Project(
        {
            "Cargo.toml": f"[workspace]\nmembers = {NINE}\ndefault-members = ['app']\n",
            **crates(*NINE),
        },
        "cargo test",
        tuple(f"cargo test in {name}" for name in NINE if name != "app"),
    ),
    "a search tool in Rust that cross-compiles": Project(
        {
            "Cargo.toml": "[package]\nname = 'rg'\n" + WORKSPACE,
            **crates("crates/cli", "crates/grep"),
            CI: steps("${{ env.CARGO }} test --workspace ${{ env.FLAGS }}"),
        },
        "cargo test --workspace",
        (f"${{{{env.CARGO}}}} test --workspace ${{{{env.FLAGS}}}} {NO_VALUE}",),
    ),
    "a package manager in Rust that uses nextest": Project(
        {
            "Cargo.toml": WORKSPACE,
            **crates("crates/a"),
            CI: steps(
                "run: |\n          cargo nextest run \\\n            --workspace \\\n"
                "            --profile ci-linux",
                "cargo test --no-run",
                "cargo install cargo-nextest",
            ),
        },
        "cargo nextest run --workspace --profile ci-linux",
    ),
    "a serializer in Rust whose tests are in a folder": Project(
        {
            "Cargo.toml": "[workspace]\nmembers = ['ser', 'test_suite']\n",
            **crates("ser", "test_suite"),
            CI: steps("cd test_suite && cargo test --features unstable", "cd ser && cargo build"),
        },
        "(cd test_suite && cargo test --features unstable)",
        ("cargo test",),
    ),
    "a web framework in Python with tox": Project(
        {
            "pyproject.toml": "[tool.pytest.ini_options]\ntestpaths = ['tests']\n",
            "uv.lock": "",
            **TEST,
            CI: steps(
                "uv run --locked --group dev tox run -e ${{ matrix.tox }}",
                "uv run --locked --group dev tox run -e typing",
            ),
        },
        "uv run pytest",
        (
            f"uv run --locked --group dev tox run -e ${{{{matrix.tox}}}} {NO_VALUE}",
            f"uv run --locked --group dev tox run -e typing {SOME}",
        ),
    ),
    "an HTTP client in Python with scripts": Project(
        {**TEST, CI: steps("scripts/install", '"scripts/check"', '"scripts/test"')},
        "scripts/test",
        ("python3 -m pytest",),
    ),
    "a library in Python whose CI calls pytest": Project(
        {
            **TEST,
            "src/lib/__init__.py": "",
            CI: steps('python -m pip install ".[test]"', "run: pytest -q --strict-markers"),
        },
        'PYTHONPATH="$BW_WORKTREE/src" python3 -m pytest -q --strict-markers',
    ),
    "a framework in Python with a runner of its own": Project(
        {"tests/runtests.py": "", CI: steps("python -Wall tests/runtests.py -v2", "npm publish")},
        "python -Wall tests/runtests.py -v2",
    ),
    "a workspace of uv": Project(
        {
            "pyproject.toml": "[tool.uv.workspace]\nmembers = ['packages/*']\n"
            "[tool.pytest.ini_options]\ntestpaths = ['tests']\n",
            "uv.lock": "",
            "packages/core/tests/test_core.py": "",
            "packages/web/pytest.ini": "",
        },
        "uv run pytest",
        ("python3 -m pytest in packages/core", "python3 -m pytest in packages/web"),
    ),
    "a workspace of pnpm": Project(
        {
            "pnpm-workspace.yaml": "packages:\n  - packages/*\n",
            "pnpm-lock.yaml": "",
            "package.json": scripts(test="node check.js"),
            **PACKAGES,
        },
        "pnpm test",
        ("CI=true npm test in packages/core", "CI=true npm test in packages/ui"),
    ),
    "a workspace of pnpm whose script tests all": Project(
        {"pnpm-lock.yaml": "", "package.json": scripts(test="pnpm -r test"), **PACKAGES},
        "pnpm test",
    ),
    "a bundler in TypeScript": Project(
        {
            "pnpm-lock.yaml": "",
            "package.json": scripts(
                test_unit="vitest run", test="pnpm test-unit && pnpm test-docs"
            ).replace("test_unit", "test-unit"),
            CI: steps("pnpm install", "pnpm run test-unit", "pnpm run test-serve"),
        },
        "pnpm run test-unit",
        (f"pnpm run test-serve {ALSO}", "pnpm run test"),
    ),
    "an editor in TypeScript with one test in Python": Project(
        {
            **TEST,
            "package.json": scripts(
                build="tsc",
                test__unit="mocha",
                test__e2e="playwright test",
                test__watch="mocha --watch",
            ),
        },
        "python3 -m pytest",
        ("npm run test:unit", "npm run test:e2e"),
    ),
    "a page in React whose script never ends": Project(
        {"package.json": scripts(test="jest --watchAll", test__ci="jest --ci")},
        "",
        ("npm test ('jest --watchAll' never ends)", "npm run test:ci"),
    ),
    "the same, and CI knows better": Project(
        {
            "package.json": scripts(test="jest --watchAll", test__ci="jest --ci"),
            "package-lock.json": "",
            CI: steps("npm ci", "npm run test:ci"),
        },
        "npm run test:ci",
    ),
    "a server in JavaScript": Project(
        {
            "package.json": scripts(test="mocha", test__ci="nyc npm test", lint="eslint ."),
            CI: steps(
                "npm run lint", "npm run test:ci -- --exit  # with coverage", "npm run build"
            ),
        },
        "npm run test:ci -- --exit",
    ),
    "a web framework in Go": Project(
        {
            "go.mod": "",
            "tools/go.mod": "",
            CI: steps("go vet ./...", "go test -race ./... | tee log", "go test ./binding"),
        },
        "go test -race ./...",
        ("go test ./... in tools", f"go test ./binding {SOME}"),
    ),
    "a runner of jobs in Go, on GitLab": Project(
        {
            "go.mod": "",
            ".gitlab-ci.yml": "test:\n  before_script:\n  - make deps\n  script:\n  - make lint\n"
            '  - "go test -v ./..."\ndeploy:\n  script:\n    - make deploy\n',
        },
        "go test -v ./...",
    ),
    "version managers in shell": Project(
        {
            "Makefile": "test:\n",
            "test/versions.bats": "",
            "tests/test_shim.py": "",
            ".travis.yml": "script:\n  - make test\n",
        },
        "make test",
        ("python3 -m pytest", "bats -r test"),
    ),
    "bats beside Python": Project(
        {**TEST, "tests/shell/run.bats": ""}, "python3 -m pytest && bats -r tests"
    ),
    "a parser in Java": Project(
        {"pom.xml": "", CI: steps("run: >-\n          mvn --batch-mode\n          verify")},
        "mvn --batch-mode verify",
    ),
    "an app of two folders": Project(
        {
            "backend/pyproject.toml": "[tool.pytest]\n",
            "frontend/package.json": scripts(test="vitest"),
            CI: steps(
                "name: back\n        working-directory: backend\n        env:\n          A: 1\n"
                "        run: uv run pytest",
                "docker push app",
            )
            + "  front:\n    defaults:\n      run:\n        working-directory: frontend\n"
            "    steps:\n      - run: (npm ci && npm test)\n"
            "  last:\n    steps:\n      - run: make release\n",
        },
        "(cd backend && uv run pytest) && (cd frontend && CI=true npm test)",
    ),
    "other folders than those of the project": Project(
        {**TEST, CI: steps("cd ../other && pytest", "cd gone && pytest", "cd / && pytest -x")},
        "python3 -m pytest",
        (
            f"pytest in ../other ({CI}: its folder is not here)",
            f"pytest in gone ({CI}: its folder is not here)",
            f"pytest -x in / ({CI}: it needs values or the shell of CI)",
        ),
    ),
    "a command that only its shell can run": Project(
        {"Makefile": "all:\n", CI: steps("pytest $(curl example.org)", "pytest `id`")},
        "",
        (f"pytest $(curl example.org) {NO_VALUE}", f"pytest `id` {NO_VALUE}"),
    ),
}


def main(argv: list[str] | None = None) -> int:
    """Try the first ``--cases`` projects; print what is wrong."""
    parser = argparse.ArgumentParser(prog="tests.proof.proposals")
    parser.add_argument("--cases", type=int, default=len(PROJECTS))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--progress", action="store_true")
    options = parser.parse_args(argv)
    chosen = list(PROJECTS.items())[: options.cases]
    broken = []
    for name, project in chosen:
        with tempfile.TemporaryDirectory() as folder:
            if wrong := project.wrong(Path(folder)):
                broken.append(f"{name}: {wrong}")
    promise = {"text": PROMISE, "broken": broken, "seconds": None}
    print(
        json.dumps({"cases": len(chosen), "promises": [promise]})
        if options.json
        else "\n".join(broken)
    )
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
