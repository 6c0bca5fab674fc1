"""Which command checks the work of a project, by its files."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from beads_workers.checks.verify import ENTRIES_MAX, propose, shown
from tests.proof.proposals import PROJECTS


def project(folder: Path, files: dict[str, str]) -> Path:
    """A folder with these files."""
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def line(folder: Path, files: dict[str, str]) -> str | None:
    found = propose(project(folder, files))
    return found.line if found else None


LOCKS = {"bun.lock": "", "pnpm-lock.yaml": ""}
CRATE = "[package]\nname = 'a'\n"


def package(script: str, **more: object) -> str:
    return json.dumps({"scripts": {"test": script}, **more})


PLACEHOLDER = 'echo "Error: no test specified" && exit 1'


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"pyproject.toml": "[tool.pytest.ini_options]\n"}, "python3 -m pytest"),
        ({"pytest.ini": ""}, "python3 -m pytest"),
        ({"setup.cfg": "[tool:pytest]\n"}, "python3 -m pytest"),
        ({"tox.ini": "[pytest]\n"}, "python3 -m pytest"),
        ({"tests/test_cart.py": ""}, "python3 -m pytest"),
        ({"tests/unit/cart_test.py": ""}, "python3 -m pytest"),
        ({"tests/test_a.py": "", "uv.lock": ""}, "uv run pytest"),
        ({"tests/test_a.py": "", "poetry.lock": ""}, "poetry run pytest"),
        ({"package.json": package("vitest run")}, "npm test"),
        ({"package.json": package("jest"), "package-lock.json": ""}, "npm test"),
        ({"package.json": package("vitest run"), "pnpm-lock.yaml": ""}, "pnpm test"),
        ({"package.json": package("vitest run"), "yarn.lock": ""}, "yarn test"),
        ({"package.json": package("vitest run"), "bun.lock": ""}, "bun run test"),
        ({"package.json": package("react-scripts test")}, "CI=true npm test"),
        ({"package.json": package("vitest")}, "CI=true npm test"),
        ({"package.json": package("vitest --run")}, "npm test"),
        ({"pom.xml": ""}, "mvn -B test"),
        ({"pom.xml": "", "mvnw": ""}, "./mvnw -B test"),
        ({"build.gradle": "", "gradlew": ""}, "./gradlew test"),
        ({"build.gradle.kts": ""}, "gradle test"),
        ({"package.json": package("x", packageManager="bun@1.3"), **LOCKS}, "bun run test"),
        ({"package.json": package("x", packageManager="npm@11.1+sha"), **LOCKS}, "npm test"),
        ({"package.json": package("x", packageManager="odd"), "yarn.lock": ""}, "yarn test"),
        ({"Cargo.toml": ""}, "cargo test"),
        ({"Cargo.toml": "[workspace]\nmembers = ['a']"}, "cargo test"),
        ({"Cargo.toml": CRATE + "[workspace]\nmembers = ['a']"}, "cargo test --workspace"),
        ({"Cargo.toml": CRATE + "[workspace]\ndefault-members = ['.']"}, "cargo test"),
        ({"Makefile": "tests: lint\n\ttrue\ncheck:\n"}, "make tests"),
        ({"go.mod": ""}, "go test ./..."),
        ({"Makefile": "all: test\n\ntest: build\n\tpytest\n"}, "make test"),
        ({"GNUmakefile": "lint check:: x\n"}, "make check"),
    ],
)
def test_each_kind_of_project_is_recognised(
    tmp_path: Path, files: dict[str, str], expected: str
) -> None:
    assert line(tmp_path, files) == expected


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"package.json": package(PLACEHOLDER)},
        {"package.json": package(" ")},
        {"package.json": '{"scripts": ["test"]}'},
        {"package.json": "[" * 100_000},
        {"package.json": "{"},
        {"pyproject.toml": "[project]\nname = 'x'\n", "tests/data.txt": ""},
        {"pyproject.toml": "tool = ["},
        {"Makefile": "test := 1\ncheck ::= 2\n.PHONY: test\n\ttest: not a rule\n"},
        {"setup.cfg": "[metadata]\n"},
        {"node_modules/x/package.json": package("jest")},
        {".venv/pytest.ini": ""},
        {"we; ird/go.mod": ""},
    ],
)
def test_what_says_nothing_is_no_proposal(tmp_path: Path, files: dict[str, str]) -> None:
    assert propose(project(tmp_path, files)) is None


@pytest.mark.parametrize("name", PROJECTS)
def test_a_proposal_is_what_ci_runs_and_names_what_it_leaves_out(tmp_path: Path, name: str) -> None:
    assert PROJECTS[name].wrong(tmp_path) == ""


def test_a_target_of_the_makefile_stands_alone_and_the_rest_is_named(tmp_path: Path) -> None:
    files = {"Makefile": "test:\n", "go.mod": "", "web/package.json": package("vitest run")}
    found = propose(project(tmp_path, files))
    assert found is not None and found.line == "make test"
    assert found.left_out == ("go test ./...", "npm test in web")
    assert shown(found) == (
        "'make test' (target of Makefile; not in it: go test ./..., npm test in web)"
    )


def test_several_suites_of_one_folder_are_joined(tmp_path: Path) -> None:
    found = propose(project(tmp_path, {"Cargo.toml": "", "package.json": package("vitest run")}))
    assert found is not None and found.line == "cargo test && npm test"
    assert found.why == "Cargo.toml and script of package.json"


def test_members_of_a_workspace_are_tested_with_it(tmp_path: Path) -> None:
    files = {"Cargo.toml": "[workspace]\nmembers = ['a']", "a/Cargo.toml": "", "b/go.mod": ""}
    found = propose(project(tmp_path, files))
    assert found is not None
    assert found.left_out == ("go test ./... in b",)


def test_folders_below_count_where_the_top_has_none_and_the_line_runs_there(tmp_path: Path) -> None:
    files = {"api/Makefile": "test:\n\t@pwd >>../ran\n", "web/Makefile": "test:\n\t@pwd >>../ran\n"}
    found = propose(project(tmp_path, files))
    assert found is not None and found.line == "(cd api && make test) && (cd web && make test)"
    subprocess.run(["sh", "-c", found.line], cwd=tmp_path, check=True)
    ran = (tmp_path / "ran").read_text().split()
    assert [Path(each).name for each in ran] == ["api", "web"]


def test_with_many_folders_below_none_is_guessed_at(tmp_path: Path) -> None:
    found = propose(project(tmp_path, {f"part{n}/go.mod": "" for n in range(5)}))
    assert found is not None and not found.line
    assert found.left_out == tuple(f"go test ./... in part{n}" for n in range(5))


def test_what_a_new_worktree_needs_first_is_named(tmp_path: Path) -> None:
    files = {
        "package.json": package("vitest", devDependencies={"vitest": "3"}),
        "pnpm-lock.yaml": "",
    }
    found = propose(project(tmp_path, files))
    assert found is not None and found.setup == "pnpm install --frozen-lockfile"


@pytest.mark.parametrize("below", ["", "api/"])
def test_a_virtual_environment_is_that_of_the_checkout_also_from_a_worktree(
    tmp_path: Path, below: str
) -> None:
    checkout = project(tmp_path / "checkout", {f"{below}tests/test_a.py": "def test(): pass\n"})
    python = checkout / below / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$0 $*" >>"$RAN"\n')
    python.chmod(0o755)
    worktree = project(tmp_path / "worktree", {f"{below}tests/test_a.py": ""})
    found = propose(checkout)
    assert found is not None
    for folder, variables in ((worktree, {"BW_CHECKOUT": str(checkout)}), (checkout, {})):
        ran = tmp_path / "ran"
        ran.unlink(missing_ok=True)
        environment = {"RAN": str(ran), "PATH": "/usr/bin:/bin", **variables}
        subprocess.run(["sh", "-c", found.line], cwd=folder, env=environment, check=True)
        assert ran.read_text().endswith("python -m pytest\n")


def test_a_huge_folder_and_a_huge_file_hold_nobody_up(tmp_path: Path) -> None:
    for number in range(ENTRIES_MAX + 10):
        (tmp_path / f"f{number}").touch()
    (tmp_path / "Makefile").write_text("test:\n" + "#" * 2_000_000)
    assert propose(tmp_path) is None


SRC = {"src/cart/__init__.py": "", "tests/test_cart.py": ""}


def test_a_src_layout_is_imported_from_the_worktree_also_by_programs_elsewhere(
    tmp_path: Path,
) -> None:
    first = 'PYTHONPATH="$BW_WORKTREE/src" '
    assert line(tmp_path / "a", SRC) == f"{first}python3 -m pytest"
    inside = {f"api/{name}": text for name, text in SRC.items()}
    found = line(tmp_path / "b", inside)
    assert found == '(cd api && PYTHONPATH="$BW_WORKTREE/api/src" python3 -m pytest)'
    own = line(tmp_path / "c", {**SRC, ".venv/bin/python": ""})
    assert own is not None and own.startswith(first) and "$BW_CHECKOUT" in own


@pytest.mark.parametrize(
    ("pyproject", "installs"),
    [("", "-e . pytest"), ("[project.optional-dependencies]\ntest = ['pytest']\n", "-e '.[test]'")],
)
def test_an_environment_that_has_the_checkout_installed_is_not_proposed(
    tmp_path: Path, pyproject: str, installs: str
) -> None:
    path = ".venv/lib/python3.11/site-packages/_cart.pth"
    files = {**SRC, ".venv/bin/python": "", path: f"{tmp_path}/src\n", "pyproject.toml": pyproject}
    found = propose(project(tmp_path, files))
    assert found is not None and found.line == ".venv/bin/python -m pytest"
    assert (
        found.setup
        == f"python3 -m venv .venv && .venv/bin/python -m pip install --quiet {installs}"
    )


def test_links_of_workspaces_are_made_in_each_worktree(tmp_path: Path) -> None:
    found = propose(project(tmp_path, {"package.json": package("x", workspaces=["a"])}))
    assert found is not None and found.setup == "npm install"
