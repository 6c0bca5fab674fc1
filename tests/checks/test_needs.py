"""What a new worktree needs, by a project's files and the variables that its code reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from beads_workers.checks import needs
from beads_workers.checks.needs import Needs, find_needs
from tests.support.repository import git, make_repository

COMPOSE = 'services:\n  db:\n    ports:\n      - "{}:5432"\n'


def found(folder: Path, files: dict[str, str], ignored: str = "") -> Needs:
    top = make_repository(folder)
    (top / ".gitignore").write_text(ignored)
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    git(top, "add", "-A")
    return find_needs(top)


@pytest.mark.parametrize(
    ("files", "settings"),
    [
        ({}, {}),
        ({"package.json": '{"scripts": {"test": "x"}}', "pnpm-lock.yaml": ""}, "pnpm install"),
        ({"uv.lock": "", "pyproject.toml": ""}, {"setup": "uv sync"}),
        ({"poetry.lock": "", "tests/test_a.py": ""}, {"setup": "poetry install"}),
        ({"Gemfile.lock": ""}, {"setup": "bundle install"}),
        ({"go.mod": "", "Cargo.toml": ""}, {}),
    ],
)
def test_packages_are_set_up(tmp_path: Path, files: dict[str, str], settings: object) -> None:
    seen = found(tmp_path, files).settings
    if isinstance(settings, str):
        assert seen["setup"].startswith(settings)
    else:
        assert seen == settings


def test_what_git_ignores_is_copied_and_what_it_has_is_not(tmp_path: Path) -> None:
    files = dict.fromkeys((".env", ".env.test", ".claude/settings.local.json", ".mcp.json"), "")
    seen = found(tmp_path, files, ".env\n.claude/*.local.json\n")
    assert seen.settings == {"copy": (".claude/settings.local.json", ".env")}


@pytest.mark.parametrize(
    "code",
    [
        "process.env.PORT",
        "os.environ['PORT']",
        'os.environ.get("PORT", "1")',
        'os.getenv("PORT")',
        'os.Getenv("PORT")',
        'std::env::var("PORT")',
        'ENV.fetch("PORT")',
        'System.getenv("PORT")',
        'System.get_env("PORT")',
        "port: ${PORT:-3000}",
    ],
)
def test_a_port_that_code_reads_is_its_own(tmp_path: Path, code: str) -> None:
    seen = found(tmp_path, {"code": code})
    assert (seen.env, seen.why) == ({"PORT": "{port}"}, {"PORT": "the code reads it"})


def test_each_port_has_a_number_and_those_of_servers_stay(tmp_path: Path) -> None:
    values = "PORT=3000\nADMIN_PORT=3001\nDB_PORT=5432\nREDIS_PORT=6379\nEXPORT=1\nPGPORT=1\n"
    assert found(tmp_path / "a", {".env.example": values}).env == {
        "PORT": "{port}",
        "ADMIN_PORT": "{port+1}",
    }
    compose = {"compose.yaml": COMPOSE.format("${DB_PORT:-5432}")}
    published = found(tmp_path / "b", {".env.example": values, **compose})
    assert published.env["DB_PORT"] == "{port+2}", "a compose file starts that server"


def test_a_variable_that_no_project_may_set_is_left_out(tmp_path: Path) -> None:
    assert found(tmp_path, {"code": "process.env.BW_PORT process.env.GITHUB_PORT"}).env == {}


@pytest.mark.parametrize(
    ("url", "own", "world", "teardown"),
    [
        ("postgres:///app", "postgres:///app_{slot}", "createdb ", "dropdb --if-exists --force "),
        (
            "postgresql+psycopg://me@db:55/app?sslmode=off",
            "postgresql+psycopg://me@db:55/app_{slot}?sslmode=off",
            "createdb --maintenance-db=postgres://me@db:55/postgres ",
            "dropdb --if-exists --force --maintenance-db=postgres://me@db:55/postgres ",
        ),
    ],
)
def test_a_database_of_postgresql_is_made_and_ended(
    tmp_path: Path, url: str, own: str, world: str, teardown: str
) -> None:
    seen = found(tmp_path, {".env.example": f"DATABASE_URL={url}\n"})
    assert seen.env == {"DATABASE_URL": own}
    assert seen.settings == {
        "world": f"{world}app_$BW_SLOT",
        "teardown": f"{teardown}app_$BW_SLOT",
    }


def test_the_schema_is_loaded_and_redis_has_sixteen(tmp_path: Path) -> None:
    values = 'export DB="postgres:///app" # ours\nREDIS_URL=redis://localhost:6379/0\n'
    seen = found(tmp_path, {".env.example": values, "db/schema.rb": ""})
    assert seen.env == {
        "DB": "postgres:///app_{slot}",
        "REDIS_URL": "redis://localhost:6379/{slot}",
    }
    assert seen.settings["world"] == "createdb app_$BW_SLOT && bin/rails db:schema:load"
    assert seen.settings["teardown"].endswith('_$BW_SLOT; redis-cli -u "$REDIS_URL" flushdb')
    assert seen.settings["slots"] == (0, 15)


def test_a_password_that_git_ignores_is_not_copied(tmp_path: Path) -> None:
    line = "DATABASE_URL=postgres://me:secret@db/app\n"
    seen = found(tmp_path / "a", {".env": line}, ".env\n")
    assert "secret" not in f"{seen.settings} {seen.env} {seen.notes}"
    assert seen.env == {} and "DATABASE_URL in .env has a password" in seen.notes[0]
    assert "DATABASE_URL" in found(tmp_path / "b", {".env.example": line}).env


def test_compose_has_a_name_of_its_own_and_what_no_variable_moves_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = COMPOSE.format("5432") + "    container_name: x\n"
    files = {"compose.yaml": text, "vite.config.ts": "server: { port: 5173 }"}
    monkeypatch.setattr(needs, "DOCKER", tmp_path / "no")
    seen = found(tmp_path / "My App", files)
    assert seen.env == {"COMPOSE_PROJECT_NAME": "my-app_{slot}"} and seen.settings == {}
    assert [note.partition(":")[0] for note in seen.notes] == [
        "compose.yaml publishes port 5432",
        "compose.yaml",
        "vite.config.ts names port 5173, which every worktree would bind",
    ]
    monkeypatch.setattr(needs, "DOCKER", tmp_path)
    seen = found(tmp_path / "b", files)
    assert seen.settings["teardown"] == "docker compose down --volumes --timeout 10"
