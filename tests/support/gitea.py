"""A real Gitea on loopback, with users, tokens and repositories: issues as a team has them.

``scripts/setup-gitea`` builds it; without it tests fail rather than skip.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import urllib3

from tests.support.peers import free_port
from tests.support.real_agents import cache

VERSION = "1.26.0"
PATIENCE_SECONDS = 60.0
PASSWORD = "correct horse battery"
TEAM = "team"
"""The organisation whose repositories tests have."""

_CONFIGURATION = """\
APP_NAME = tests
RUN_MODE = prod
RUN_USER = {user}
WORK_PATH = {folder}
I_AM_BEING_UNSAFE_RUNNING_AS_ROOT = true
[server]
HTTP_ADDR = 127.0.0.1
HTTP_PORT = {port}
ROOT_URL = http://127.0.0.1:{port}/
STATIC_ROOT_PATH = {static}
OFFLINE_MODE = true
DISABLE_SSH = true
[database]
DB_TYPE = sqlite3
PATH = {folder}/gitea.db
SQLITE_JOURNAL_MODE = WAL
[repository]
ROOT = {folder}/repositories
[security]
INSTALL_LOCK = true
PASSWORD_HASH_ALGO = pbkdf2$1$10
[service]
REQUIRE_SIGNIN_VIEW = false
[log]
MODE = file
ROOT_PATH = {folder}/log
LEVEL = Warn
logger.access.MODE = requests
[log.requests]
MODE = file
LEVEL = Info
FILE_NAME = {folder}/requests.log
BUFFER_LEN = 0
[mailer]
ENABLED = false
[indexer]
ISSUE_INDEXER_TYPE = db
[cron]
ENABLED = false
"""


def need_gitea() -> Path:
    """Return the folder with the program, and what it reads."""
    folder = cache() / f"gitea-{VERSION}"
    if not (folder / "complete").exists():
        raise RuntimeError(f"{folder}: not found: run scripts/setup-gitea")
    return folder


class User:
    """Somebody with an account; ``token``: of all rights that the account has."""

    def __init__(self, server: Gitea, name: str, token: str) -> None:
        self._server, self.name, self.token = server, name, token

    def ask(self, method: str, path: str, body: Any = None, *, fails: bool = False) -> Any:
        """Call the API as this user; ``path`` begins behind ``/api/v1``."""
        reply = self._server.pool.request(
            method,
            f"{self._server.url}/api/v1{path}",
            json=body,
            headers={"Authorization": f"token {self.token}"},
            redirect=False,
        )
        assert fails or reply.status < 300, (method, path, reply.status, reply.data)
        return reply.json() if reply.data else None


class Gitea:
    """The server; ``kill`` and ``start`` it as often as you like."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._program = need_gitea()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.pool = urllib3.PoolManager(timeout=30.0, retries=False)
        self._process: subprocess.Popen[bytes] | None = None
        self.users: dict[str, User] = {}

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "app.ini").write_text(
            _CONFIGURATION.format(
                user=os.environ.get("USER", "root"),
                folder=self.folder,
                port=self.port,
                static=self._program / "static",
            )
        )
        self._call("migrate")
        self.start()
        root = self._made("root", "--admin")
        root.ask("POST", "/orgs", {"username": TEAM})
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it unless it runs, and wait until it answers."""
        if self._process is not None and self._process.poll() is None:
            return
        self._process = subprocess.Popen(
            # It ends with this process, however that ends.
            ["setpriv", "--pdeathsig", "KILL", *self._command("web")],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=(self.folder / "out").open("ab"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._answers():
            assert self._process.poll() is None, (self.folder / "out").read_text()[-2000:]
            assert time.monotonic() < deadline, "Gitea does not answer"
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill it, as a crash would."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def requests(self, login: str) -> list[str]:
        """Return what somebody has asked the API for so far: method and path of each."""
        said = (self.folder / "requests.log").read_text()
        found = re.findall(r'- (\S+) \[[^]]*\] "(\S+) /api/v1(\S*) ', said)
        return [f"{method} {path}" for who, method, path in found if who.strip('"') == login]

    def user(self, name: str) -> User:
        """Return somebody, who is made if need be."""
        if name not in self.users:
            self.users[name] = self._made(name)
        return self.users[name]

    def repository(self, name: str, *writers: str) -> Repository:
        """Make a repository of the team, to which these may write."""
        root = self.users["root"]
        root.ask("POST", f"/orgs/{TEAM}/repos", {"name": name, "auto_init": True})
        for writer in writers:
            self.user(writer)
            path = f"/repos/{TEAM}/{name}/collaborators/{writer}"
            root.ask("PUT", path, {"permission": "write"})
        return Repository(self, TEAM, name)

    def _made(self, name: str, *options: str) -> User:
        words = ("--username", name, "--password", PASSWORD, "--email", f"{name}@example.org")
        self._call("admin", "user", "create", *words, "--must-change-password=false", *options)
        asked = ("--username", name, "--token-name", "t", "--scopes", "all", "--raw")
        said = self._call("admin", "user", "generate-access-token", *asked)
        (token,) = re.findall(r"(?m)^[0-9a-f]{40}$", said)  # Beside what it logs.
        self.users[name] = made = User(self, name, token)
        return made

    def _answers(self) -> bool:
        try:
            return self.pool.request("GET", f"{self.url}/api/v1/version").status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def _command(self, *words: str) -> list[str]:
        return [str(self._program / "gitea"), "--config", f"{self.folder}/app.ini", *words]

    def _environment(self) -> Mapping[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.folder), "USER": "root"}

    def _call(self, *words: str) -> str:
        done = subprocess.run(
            self._command(*words), env=self._environment(), capture_output=True, text=True
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout


class Repository:
    """One repository, as people see it. ``by``: who does it."""

    def __init__(self, server: Gitea, owner: str, name: str) -> None:
        self.server, self.owner, self.name = server, owner, name
        self.path = f"/repos/{owner}/{name}"

    def label(self, name: str, by: str = "root") -> int:
        """Return the id of a label, which is made if need be."""
        user = self.server.user(by)
        for each in user.ask("GET", f"{self.path}/labels?limit=100"):
            if each["name"] == name:
                return int(each["id"])
        made = user.ask("POST", f"{self.path}/labels", {"name": name, "color": "#ededed"})
        return int(made["id"])

    def issue(self, title: str, body: str = "", *labels: str, by: str = "root") -> int:
        """Open an issue, and have ``root`` put the labels on it; return its number."""
        user = self.server.user(by)
        number = user.ask("POST", f"{self.path}/issues", {"title": title, "body": body})["number"]
        self.mark(number, *labels)
        return int(number)

    def mark(self, number: int, *labels: str, by: str = "root") -> None:
        """Put labels on an issue."""
        ids = [self.label(each) for each in labels]
        if ids:
            path = f"{self.path}/issues/{number}/labels"
            self.server.user(by).ask("POST", path, {"labels": ids})

    def unmark(self, number: int, label: str, by: str = "root") -> None:
        """Take a label off."""
        path = f"{self.path}/issues/{number}/labels/{self.label(label)}"
        self.server.user(by).ask("DELETE", path)

    def edit(self, number: int, by: str = "root", **fields: Any) -> None:
        """Change an issue: ``title``, ``body``, ``state``, ``assignees``."""
        self.server.user(by).ask("PATCH", f"{self.path}/issues/{number}", fields)

    def comment(self, number: int, text: str, by: str = "root") -> int:
        """Write a comment; return its id."""
        path = f"{self.path}/issues/{number}/comments"
        return int(self.server.user(by).ask("POST", path, {"body": text})["id"])

    def depend(self, number: int, *needed: int) -> None:
        """Let an issue wait for others."""
        for other in needed:
            body = {"owner": self.owner, "repo": self.name, "index": other}
            path = f"{self.path}/issues/{number}/dependencies"
            self.server.user("root").ask("POST", path, body)

    def read(self, number: int) -> dict[str, Any]:
        """Return an issue."""
        found: dict[str, Any] = self.server.user("root").ask("GET", f"{self.path}/issues/{number}")
        return found

    def all(self) -> list[dict[str, Any]]:
        """Return all issues, closed ones too; fifty at most."""
        path = f"{self.path}/issues?state=all&limit=50"
        found: list[dict[str, Any]] = self.server.user("root").ask("GET", path)
        return found

    def comments(self, number: int) -> list[dict[str, Any]]:
        """Return the comments of an issue."""
        path = f"{self.path}/issues/{number}/comments"
        found: list[dict[str, Any]] = self.server.user("root").ask("GET", path)
        return found

    def remove_comment(self, comment_id: int, by: str = "root") -> None:
        """Delete a comment."""
        path = f"{self.path}/issues/comments/{comment_id}"
        self.server.user(by).ask("DELETE", path)
