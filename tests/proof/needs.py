"""Projects of ten kinds, each built by its own tool: is what ``config worktree`` proposes enough?

    scripts/prove needs
    python -m tests.proof.needs [NAME ...] [--cases N] [--json] [--progress]

Each binds a port, and some make a database or need a file that git ignores. First ``doctor
--worktree`` must say what two worktrees of it share; once the proposal is written, the check must
pass in both, also side by side, and nothing is shared. The check runs in the project's own runner.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.proof.sees import CARGO_APP, IGNORED, _tools
from tests.support.postgres import USER, PostgresServer, _programs
from tests.support.repository import IDENTITY, git

PROMISE = "what is proposed for worktrees is enough, and nothing is shared"
PORTS = "listen on port 34"
NODE_TEST = """const test = require("node:test"), net = require("node:net");
const pad = require("left-pad");
test("it", (t, done) => {
  if (pad("1", 3) !== "  1") throw new Error("no");
  const server = net.createServer();
  server.listen(Number(process.env.PORT || 3401), () => setTimeout(() => server.close(done), 200));
});
"""
BINDS = """import os, socket, time


def test_it():
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", int(os.environ.get("APP_PORT", "3402"))))
        bound.listen()
        time.sleep(0.2)
"""
PYPROJECT = """[project]
name = "app"
version = "1"
requires-python = ">=3.10"
dependencies = [{more}]

[dependency-groups]
dev = ["pytest"]

[tool.pytest.ini_options]
testpaths = ["tests"]
"""
POETRY = """[tool.poetry]
name = "app"
version = "1"
description = ""
authors = []
package-mode = false

[tool.poetry.dependencies]
python = ">=3.10"

[tool.poetry.group.dev.dependencies]
pytest = "*"

[tool.pytest.ini_options]
testpaths = ["tests"]
"""
RUST_TEST = """#[test]
fn it() {
    let port = std::env::var("APP_PORT").unwrap_or("3403".to_string());
    let _bound = std::net::TcpListener::bind(format!("127.0.0.1:{port}")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
}
"""
GO_TEST = """package app

import (
\t"net"
\t"os"
\t"testing"
\t"time"
)

func TestIt(t *testing.T) {
\tport := os.Getenv("APP_PORT")
\tif port == "" {
\t\tport = "3404"
\t}
\tbound, err := net.Listen("tcp", "127.0.0.1:"+port)
\tif err != nil {
\t\tt.Fatal(err)
\t}
\ttime.Sleep(200 * time.Millisecond)
\tbound.Close()
}
"""
GRADLE = """task binds(type: JavaExec) {
    dependsOn 'classes'
    main = 'App'
    classpath = sourceSets.main.runtimeClasspath
}
test.dependsOn binds
"""
JAVA = """public class App {
    public static void main(String[] words) throws Exception {
        String port = System.getenv("APP_PORT") == null ? "3405" : System.getenv("APP_PORT");
        java.net.ServerSocket bound = new java.net.ServerSocket(Integer.parseInt(port));
        Thread.sleep(200);
        bound.close();
    }
}
"""
RUBY_TEST = """require "minitest/autorun"
require "socket"

class AppTest < Minitest::Test
  def test_it
    assert File.exist?("config/master.key")
    bound = TCPServer.new("127.0.0.1", Integer(ENV.fetch("PORT", "3406")))
    sleep 0.2
    bound.close
  end
end
"""
RAKEFILE = """require "rake/testtask"
Rake::TestTask.new { |t| t.pattern = "test/*_test.rb" }
"""
DJANGO = {
    "manage.py": "import os, sys\n"
    'os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")\n'
    "from django.core.management import execute_from_command_line\n"
    "execute_from_command_line(sys.argv)\n",
    "settings.py": "import os\nfrom urllib.parse import urlsplit\n"
    'url = urlsplit(os.environ["DATABASE_URL"])\n'
    'SECRET_KEY = "x"\nINSTALLED_APPS = ["shop"]\nUSE_TZ = True\n'
    'DEFAULT_AUTO_FIELD = "django.db.models.AutoField"\n'
    'DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": url.path[1:]}}\n',
    "shop/__init__.py": "",
    "shop/models.py": "from django.db import models\n\n\n"
    "class Item(models.Model):\n    name = models.CharField(max_length=9)\n",
    "shop/tests.py": "import time\nfrom django.test import TestCase\n"
    "from shop.models import Item\n\n\nclass Items(TestCase):\n    def test_it(self):\n"
    '        Item.objects.create(name="a")\n        time.sleep(0.3)\n'
    "        self.assertEqual(Item.objects.count(), 1)\n",
}
COMPOSE = """services:
  web:
    image: web
    ports:
      - "${WEB_PORT:-3408}:80"
"""
COMPOSE_TEST = (
    BINDS.replace("APP_PORT", "WEB_PORT")
    .replace("3402", "3408")
    .replace(
        "        time",
        '        assert os.environ.get("COMPOSE_PROJECT_NAME", "x") != "app"\n        time',
    )
)
PACKAGE = json.dumps({"scripts": {"test": "node --test"}, "dependencies": {"left-pad": "1.3.0"}})


@dataclass(frozen=True)
class Kind:
    """``before``: what its user did in the checkout; ``verify``: what the user has set, or what
    ``config verify`` finds; ``ignored``: files that git ignores; ``shares``: what two worktrees
    share before the proposal, "" if the check does not even pass there."""

    files: Mapping[str, str]
    before: str = ""
    verify: str = ""
    ignored: Mapping[str, str] | None = None
    shares: str = PORTS


KINDS: dict[str, Kind] = {
    "npm": Kind({"package.json": PACKAGE, "it.test.js": NODE_TEST}, "npm install", shares=""),
    "pnpm": Kind({"package.json": PACKAGE, "it.test.js": NODE_TEST}, "pnpm install", shares=""),
    "uv": Kind({"pyproject.toml": PYPROJECT.format(more=""), "tests/test_it.py": BINDS}, "uv sync"),
    "poetry": Kind({"pyproject.toml": POETRY, "tests/test_it.py": BINDS}, "poetry lock", shares=""),
    "cargo": Kind(
        {"Cargo.toml": CARGO_APP, "src/lib.rs": "", "tests/it.rs": RUST_TEST}, "cargo build"
    ),
    "go": Kind({"go.mod": "module example.com/app\n\ngo 1.19\n", "it_test.go": GO_TEST}),
    "gradle": Kind(
        {"gradle.properties": "org.gradle.daemon=false\n",
         "build.gradle": f"apply plugin: 'java'\n{GRADLE}",
         "src/main/java/App.java": JAVA},
    ),
    "rails-like": Kind(
        {"Gemfile": 'gem "rake"\ngem "minitest"\n', "Rakefile": RAKEFILE,
         "test/app_test.rb": RUBY_TEST},
        "bundle lock --local",
        "bundle exec rake test",
        {"config/master.key": "secret"},
        shares="",
    ),
    "django": Kind(
        {"pyproject.toml": PYPROJECT.format(more='"django", "psycopg[binary]"'), **DJANGO,
         ".env.example": "DATABASE_URL=postgres:///shop\n"},
        "uv sync",
        "uv run manage.py test --noinput",
        {".env": "DATABASE_URL=postgres:///shop\n"},
        shares="",
    ),
    "compose": Kind(
        {"compose.yaml": COMPOSE, "tests/test_it.py": COMPOSE_TEST}, shares="listen on port 3408"
    ),
}  # fmt: skip


class Tried:
    """A project of a kind in a repository in ``folder``, as its user has it."""

    def __init__(self, folder: Path, kind: Kind) -> None:
        self.kind, self.folder = kind, folder / "app"
        self._write(kind.files)
        self.folder.joinpath(".gitignore").write_text(
            f"{IGNORED}.gradle\nbuild\nbeads-workers.toml\n" + "\n".join(kind.ignored or ())
        )
        git(self.folder, "init", "-q", "-b", "main")
        if kind.before:
            self._shell(kind.before)
        git(self.folder, "add", "-A")
        git(self.folder, "commit", "-qm", "base")
        self._write(kind.ignored or {})
        self._shell("beads-workers init")

    def _write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text)

    def _shell(self, line: str) -> str:
        done = subprocess.run(
            ["sh", "-c", line], cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout

    def live(self) -> str:
        """Try it; say what was written. Raises ``AssertionError``."""
        settings = self.folder / "beads-workers.toml"
        if self.kind.verify:
            settings.write_text(f"verify = {json.dumps(self.kind.verify)}\n")
        else:
            self._shell("beads-workers config verify --write")
        if self.kind.shares:
            # What ``config verify`` writes is what it needs; but not yet ports of its own.
            before = self._beside()
            assert any(self.kind.shares in said for said in before), before
        wanted = json.loads(self._shell("beads-workers config worktree --json"))["proposal"]
        self._shell("beads-workers config worktree --write")
        after = self._beside()
        assert len(after) == 1 and after[0].startswith("ok"), f"{wanted}: {after}"
        assert "nothing but" in self._shell("beads-workers config worktree") or wanted
        return json.dumps(wanted)

    def _beside(self) -> list[str]:
        """Say what ``doctor`` says of two worktrees."""
        command = ["beads-workers", "doctor", "--worktree", "--trust", "--json", "--", "true"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        checks = json.loads(done.stdout)["checks"]
        return [f"{each['status']}: {each['text']}" for each in checks if each["name"] == "beside"]


@contextmanager
def tools(folder: Path) -> Iterator[None]:
    """Have the tools on PATH, and a server that is nobody else's."""
    server = PostgresServer()
    pnpm = folder / "of-pnpm"
    subprocess.run(
        ["npm", "install", "--silent", "--prefix", str(pnpm), "pnpm@10.12.1"], check=True
    )
    own = [str(Path(sys.executable).parent), *_tools(), f"{pnpm}/node_modules/.bin"]
    os.environ["PATH"] = os.pathsep.join([*own, str(_programs()), os.environ["PATH"]])
    os.environ |= {"PGHOST": str(server.folder), "PGUSER": USER, **IDENTITY}
    os.environ |= {"BW_SLOTS_FOLDER": str(folder / "slots"), "XDG_CONFIG_HOME": str(folder / "c")}
    os.environ |= {"POETRY_VIRTUALENVS_PATH": f"{folder}/poetry"}
    for name in ("VIRTUAL_ENV", "DATABASE_URL", "PORT"):
        os.environ.pop(name, None)
    try:
        yield
    finally:
        server.stop()


def main(arguments: Sequence[str]) -> int:
    """Try so many of them; prints figures for ``scripts/prove``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--cases", type=int, default=len(KINDS))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--progress", action="store_true")
    options = parser.parse_args(arguments)
    for name in [each for each in os.environ if each.startswith("GIT_")]:
        del os.environ[name]
    chosen = options.names or list(KINDS)[: options.cases]
    violations, began = list[str](), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bw-", dir="/tmp") as place, tools(Path(place)):
        for number, name in enumerate(chosen, 1):
            folder = Path(place, name)
            folder.mkdir()
            try:
                said = Tried(folder, KINDS[name]).live()
            except AssertionError as error:
                said = f"{error}"
                violations.append(f"{name}: {error}"[:2000])
            if options.progress:
                text = f"{number} of {len(chosen)} cases ({name}: {said})"
                print(text, file=sys.stderr, flush=True)
    seconds = round(time.monotonic() - began, 1)
    print(json.dumps({"cases": len(chosen), "seconds": seconds, "violations": violations}))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
