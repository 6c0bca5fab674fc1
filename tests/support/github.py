"""A GitHub of our own on loopback: what the real ``gh`` finds behind ``GH_HOST``, over TLS.

It has one repository, and answers as GitHub's public descriptions say: ``test_descriptions`` holds
it to them. Comments are seen up to ``late`` seconds after they were written, and in another order
than that of their ids.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import http.server
import json
import random
import re
import shutil
import ssl
import subprocess
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs, unquote, urlsplit

from graphql import OperationDefinitionNode, parse

from tests.support.github_pulls import Pulls, actor, chosen

OWNER, NAME = "team", "shop"
PATH = f"/repos/{OWNER}/{NAME}"
LINKS = "https://localhost/api/v3"
"""Where the links in answers lead: nobody follows them."""
MADE_AT = "2026-01-01T00:00:00Z"

Json = dict[str, Any]

# --- what answers have beside what matters here --------------------------------------------------

_PERSON_LINKS = (
    "avatar", "events", "followers", "following", "gists", "organizations", "received_events",
    "repos", "starred", "subscriptions",
)  # fmt: skip
_REPOSITORY_LINKS = (
    "archive", "assignees", "blobs", "branches", "clone", "collaborators", "comments", "commits",
    "compare", "contents", "contributors", "deployments", "downloads", "events", "forks",
    "git_commits", "git_refs", "git_tags", "git", "hooks", "issue_comment", "issue_events",
    "issues", "keys", "labels", "languages", "merges", "milestones", "notifications", "pulls",
    "releases", "ssh", "stargazers", "statuses", "subscribers", "subscription", "svn", "tags",
    "teams", "trees",
)  # fmt: skip
_ISSUE_LINKS = ("comments", "events", "labels", "timeline")
_ACCOUNT: Json = {
    "bio": None, "blog": "", "company": None, "created_at": MADE_AT, "email": None, "followers": 0,
    "following": 0, "hireable": None, "location": None, "name": None, "public_gists": 0,
    "public_repos": 0, "updated_at": MADE_AT, "user_view_type": "public",
}  # fmt: skip
_REPOSITORY: Json = {
    "archived": False, "created_at": MADE_AT, "default_branch": "main", "description": None,
    "disabled": False, "fork": False, "forks": 0, "forks_count": 0, "has_discussions": False,
    "has_issues": True, "has_pages": False, "has_projects": True, "has_wiki": True,
    "homepage": None, "language": None, "license": None, "mirror_url": None, "network_count": 0,
    "open_issues": 0, "open_issues_count": 0, "private": True, "pushed_at": MADE_AT, "size": 0,
    "stargazers_count": 0, "subscribers_count": 0, "updated_at": MADE_AT, "watchers": 0,
    "watchers_count": 0,
}  # fmt: skip
_ISSUE: Json = {
    "active_lock_reason": None, "author_association": "MEMBER", "milestone": None,
    "performed_via_github_app": None,
}  # fmt: skip
_RIGHTS = ("pull", "triage", "push", "maintain", "admin")
_RANKS = {"read": 1, "triage": 2, "write": 3, "maintain": 4, "admin": 5}


def _number(text: str) -> int:
    """A number that stands for a text, always the same."""
    return zlib.crc32(text.encode()) & 0x7FFFFFFF


def _named(place: str, links: tuple[str, ...] = (), key: int | None = None) -> Json:
    """What all things have: ids, and links to themselves and to more of them."""
    url = f"{LINKS}{place}"
    ids = {"id": _number(place) if key is None else key, "node_id": f"N_{_number(place)}"}
    return {
        **ids,
        "url": url,
        "html_url": url,
        **{f"{name}_url": f"{url}/{name}" for name in links},
    }


def person(login: str) -> Json:
    """Somebody, as the REST API shows them."""
    return {
        **_named(f"/users/{login}", _PERSON_LINKS),
        "login": login,
        "type": "Bot" if login.endswith("[bot]") else "User",
        "site_admin": False,
        "gravatar_id": "",
    }


def repository(right: str) -> Json:
    """The repository, as the REST API shows it to somebody."""
    rank = _RANKS[right]
    return {
        **_named(PATH, _REPOSITORY_LINKS),
        **_REPOSITORY,
        "name": NAME,
        "full_name": f"{OWNER}/{NAME}",
        "owner": person(OWNER) | {"type": "Organization"},
        "permissions": {name: at < rank for at, name in enumerate(_RIGHTS)},
    }


def label(name: str) -> Json:
    """A label, as the REST API shows it."""
    about = {"name": name, "description": None, "color": "ededed", "default": False}
    shown = _named(f"{PATH}/labels/{name}")
    return {**{each: shown[each] for each in ("id", "node_id", "url")}, **about}


class Exchange(NamedTuple):
    """A request, and what was answered. ``path``: without that of the API."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    status: int
    found: Any


@functools.cache
def certificate() -> tuple[Path, Path]:
    """Return a certificate for localhost, which is its own authority, and its key."""
    folder = Path(tempfile.mkdtemp(prefix="beads-workers-tls-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made, key = folder / "certificate.pem", folder / "key.pem"
    words = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    about = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    files = ("-keyout", str(key), "-out", str(made))
    subprocess.run([*words, *about, *files], check=True, capture_output=True)
    return made, key


class GitHubServer(http.server.ThreadingHTTPServer):
    """The server, and what people see and do in its web pages."""

    daemon_threads = True

    def __init__(self, *, late: float = 0.0, clock: Callable[[], float] = time.time) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        made, key = certificate()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(made, key)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.host = f"localhost:{self.server_address[1]}"
        self.late, self.chance = late, random.Random(3)
        self.clock = clock
        self.lock = threading.RLock()
        self.rights: dict[str, str] = {"root": "admin"}
        self.rows: dict[int, Json] = {}
        self.asked: list[tuple[str, str]] = []
        self.comment_ids_from = 0
        """Those of GitHub today do not fit in 32 bits."""
        self.asks: Callable[[str], None] = lambda said: None
        """Is told of each request before it is carried out."""
        self.heard: Callable[[Exchange], None] = lambda exchange: None
        """Is told of each request that was answered."""
        self.not_modified = 0
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        """What comes instead of the next answers."""
        self._ids = 0
        self.pulls = Pulls(self._id)
        self.scopes, self.parent = "", ""
        """Of its tokens; the repository that ours is a fork of."""

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()

    def environment(self, login: str) -> dict[str, str]:
        """Return what a ``gh`` of somebody needs."""
        return {
            "GH_HOST": self.host,
            "GH_ENTERPRISE_TOKEN": f"token-of-{login}",
            "SSL_CERT_FILE": str(certificate()[0]),
            "GH_CONFIG_DIR": "/nonexistent",
        }

    def requests(self, login: str) -> list[str]:
        """Return what somebody has asked the API for so far."""
        return [said for who, said in self.asked if who == login]

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass

    # --- what people do -----------------------------------------------------------------------

    def issue(self, title: str, body: str = "", *labels: str, by: str = "root") -> int:
        with self.lock:
            number = self._id()
            self.rows[number] = {
                "number": number, "id": 1000 + number, "title": title, "body": body, "user": by,
                "state": "open", "labels": [], "assignees": [], "comments": [], "events": [],
                "blocked_by": [], "blocked_elsewhere": [], "below": [], "created_at": self.now(),
                "updated_at": self.now(), "closed_at": None, "edited_at": None, "locked": False,
                "state_reason": None,
            }  # fmt: skip
            self.mark(number, *labels)
            return number

    def mark(self, number: int, *labels: str, by: str = "root") -> None:
        self._set_labels(number, [*self.rows[number]["labels"], *labels], by)

    def unmark(self, number: int, label: str, by: str = "root") -> None:
        self._set_labels(number, [e for e in self.rows[number]["labels"] if e != label], by)

    def edit(self, number: int, by: str = "root", **fields: Any) -> None:
        with self.lock:
            row = self.rows[number]
            if "body" in fields and fields["body"] != row["body"]:
                row["edited_at"] = self.now()
            if "title" in fields and fields["title"] != row["title"]:
                row["events"].append({"__typename": "RenamedTitleEvent", "createdAt": self.now()})
            if "state" in fields:
                is_closed = fields["state"] == "closed"
                row["closed_at"] = self.now() if is_closed else None
                row["state_reason"] = "completed" if is_closed else "reopened"
            if "labels" in fields:
                self._set_labels(number, fields.pop("labels"), by)
            row |= {k: v for k, v in fields.items() if k in row}
            row["updated_at"] = self.now()

    def comment(self, number: int, text: str, by: str = "root") -> int:
        with self.lock:
            seen_at = self.clock() + self.chance.uniform(0.0, self.late)
            key = self.comment_ids_from + self._id()
            made = {"id": key, "body": text, "user": by, "seen_at": seen_at}
            made |= {"created_at": self.now(), "updated_at": self.now()}
            self.rows[number]["comments"].append(made)
            self.rows[number]["updated_at"] = self.now()
            return key

    def comments(self, number: int) -> list[Json]:
        rows = self.rows[number]["comments"]
        return [{**each, "user": {"login": each["user"]}} for each in rows]

    def remove_comment(self, comment_id: int, by: str = "root") -> None:
        with self.lock:
            for row in self.rows.values():
                row["comments"] = [e for e in row["comments"] if e["id"] != comment_id]

    def edit_comment(self, comment_id: int, text: str) -> bool:
        for row in self.rows.values():
            for each in row["comments"]:
                if each["id"] == comment_id:
                    each["body"] = text
                    each["updated_at"] = row["updated_at"] = self.now()
                    return True
        return False

    def depend(self, number: int, *needed: int) -> None:
        self.rows[number]["blocked_by"] += needed
        self.rows[number]["updated_at"] = self.now()

    def depend_elsewhere(self, number: int, place: str, needed: int) -> None:
        """Let an issue wait for one of another repository, which is open."""
        self.rows[number]["blocked_elsewhere"].append((place, needed))
        self.rows[number]["updated_at"] = self.now()

    def nest(self, number: int, *below: int) -> None:
        """Put issues below another one."""
        self.rows[number]["below"] += below
        self.rows[number]["updated_at"] = self.now()

    def read(self, number: int) -> Json:
        return self.shown(self.rows[number])

    def all(self) -> list[Json]:
        return [self.shown(row) for row in self.rows.values()]

    # --- what the API shows -------------------------------------------------------------------

    def now(self) -> str:
        """The server's time, as it writes it."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.clock()))

    def shown(self, row: Json) -> Json:
        """An issue, as the REST API shows it."""
        keep = (
            "number", "title", "body", "state", "state_reason", "locked", "created_at",
            "updated_at", "closed_at",
        )  # fmt: skip
        people = [person(each) for each in row["assignees"]]
        return {
            **_named(f"{PATH}/issues/{row['number']}", _ISSUE_LINKS, row["id"]),
            **_ISSUE,
            **{name: row[name] for name in keep},
            "repository_url": f"{LINKS}{PATH}",
            "user": person(row["user"]),
            "labels": [label(each) for each in row["labels"]],
            "assignee": next(iter(people), None),
            "assignees": people,
            "comments": len(self.seen(row)),
            "issue_dependencies_summary": self._dependencies(row),
            "sub_issues_summary": self._below(row),
        }

    def remark(self, comment_id: int) -> Json | None:
        """A comment, as the REST API shows it; None if there is none."""
        for row in self.rows.values():
            for each in row["comments"]:
                if each["id"] == comment_id:
                    return {
                        **_named(f"{PATH}/issues/comments/{comment_id}", (), comment_id),
                        "issue_url": f"{LINKS}{PATH}/issues/{row['number']}",
                        "user": person(each["user"]),
                        "author_association": "MEMBER",
                        **{name: each[name] for name in ("body", "created_at", "updated_at")},
                    }
        return None

    def _open(self, numbers: list[int]) -> int:
        return sum(self.rows[each]["state"] == "open" for each in numbers)

    def _dependencies(self, row: Json) -> Json:
        waiting = [n for n, each in self.rows.items() if row["number"] in each["blocked_by"]]
        elsewhere = len(row["blocked_elsewhere"])
        return {
            "blocked_by": self._open(row["blocked_by"]) + elsewhere,
            "total_blocked_by": len(row["blocked_by"]) + elsewhere,
            "blocking": self._open(waiting),
            "total_blocking": len(waiting),
        }

    def _below(self, row: Json) -> Json:
        total = len(row["below"])
        completed = total - self._open(row["below"])
        percent = 100 * completed // total if total else 0
        return {"total": total, "completed": completed, "percent_completed": percent}

    def seen(self, row: Json) -> list[Json]:
        return [each for each in row["comments"] if each["seen_at"] <= self.clock()]

    def _set_labels(self, number: int, labels: list[str], by: str) -> None:
        with self.lock:
            row, wanted = self.rows[number], list(dict.fromkeys(labels))
            for kind, names in (
                ("LabeledEvent", [e for e in wanted if e not in row["labels"]]),
                ("UnlabeledEvent", [e for e in row["labels"] if e not in wanted]),
            ):
                row["events"] += [
                    {
                        "__typename": kind,
                        "createdAt": self.now(),
                        "actor": actor(by),
                        "label": {"name": e},
                    }
                    for e in names
                ]
            row["labels"], row["updated_at"] = wanted, self.now()

    def _id(self) -> int:
        self._ids += 1
        return self._ids


class _Handler(http.server.BaseHTTPRequestHandler):
    server: GitHubServer

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        url = urlsplit(self.path)
        path = url.path.removeprefix("/api/v3").removeprefix("/api")
        login = (self.headers.get("Authorization") or "").rpartition("token-of-")[2]
        query = {name: texts[-1] for name, texts in parse_qs(url.query).items()}
        with self.server.lock:
            self.server.asked.append((login, f"{self.command} {path}?{url.query}"))
            self.server.asks(f"{self.command} {path}")
            if self.server.answers:
                status, headers, data = self.server.answers.pop(0)
                self._send(status, headers, data)
                return
            status, found, headers = self._answer(path, query, body, login)
            self.server.heard(Exchange(self.command, path, query, body, status, found))
        data = b"" if found is None else json.dumps(found).encode()
        if self.command == "GET" and status == 200:
            tag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
            headers["ETag"] = tag
            if self.headers.get("If-None-Match") == tag:
                self.server.not_modified += 1
                status, data = 304, b""
        self._send(status, headers, data)

    do_GET = do_POST = do_PATCH = do_DELETE = _serve

    def _send(self, status: int, headers: dict[str, str], data: bytes) -> None:
        self.send_response(status)
        for name, text in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string(self.server.clock() if timestamp is None else timestamp)

    def log_message(self, *arguments: Any) -> None:
        pass

    def _answer(
        self, path: str, query: Json, body: Json, login: str
    ) -> tuple[int, Any, dict[str, str]]:
        server = self.server
        none: tuple[int, Any, dict[str, str]] = (404, {"message": "Not Found"}, {})
        if match := re.fullmatch(r"/logs/(\d+)", path):
            return 200, server.pulls.logs[int(match[1])], {"Content-Type": "text/plain"}
        if login not in server.rights:
            return 401, {"message": "Bad credentials"}, {}
        if path == "/user":
            return 200, person(login) | _ACCOUNT, {}
        if path == "/graphql":
            return 200, self._graphql(body["query"], body["variables"], login), {}
        if not path.lower().startswith(PATH):
            return none
        if match := re.fullmatch(r"/actions/jobs/(\d+)/logs", path[len(PATH) :]):
            return 302, None, {"Location": f"https://{self.server.host}/logs/{match[1]}"}
        rest = path[len(PATH) :]
        if rest == "":
            found = repository(server.rights[login])
            parent = {"fork": True, "parent": found | {"full_name": server.parent}}
            scopes = {"X-OAuth-Scopes": server.scopes} if server.scopes else {}
            return 200, found | (parent if server.parent else {}), scopes
        if rest == "/assignees":
            writers = [who for who, right in server.rights.items() if right in ("write", "admin")]
            return 200, [person(who) for who in writers], {}
        if match := re.fullmatch(r"/collaborators/([^/]+)/permission", rest):
            who = unquote(match[1])
            right = server.rights.get(who, "read")
            asked = person(who) | {"role_name": right}
            return 200, {"permission": right, "role_name": right, "user": asked}, {}
        if match := re.fullmatch(r"/issues/comments/(\d+)", rest):
            if server.remark(int(match[1])) is None:
                return none
            if self.command == "DELETE":
                server.remove_comment(int(match[1]))
                return 204, None, {}
            server.edit_comment(int(match[1]), body["body"])
            return 200, server.remark(int(match[1])), {}
        if rest == "/issues" and self.command == "POST":
            number = server.issue(body["title"], body.get("body") or "", by=login)
            server.mark(number, *body.get("labels", ()), by=login)
            server.edit(number, assignees=body.get("assignees", []))
            return 201, server.read(number), {}
        if rest == "/issues":
            return self._list(query)
        if (answer := self._of_pulls(rest, body)) is not None:
            return answer
        match = re.fullmatch(r"/issues/(\d+)(/.*)?", rest)
        if match is not None and match[2] == "/comments" and int(match[1]) in server.pulls.rows:
            server.pulls.rows[int(match[1])]["comments"].append(body["body"])
            key = server.comment(server.issue("a pull request"), body["body"], by=login)
            return 201, server.remark(key), {}
        if match is None or int(match[1]) not in server.rows:
            return none
        return self._issue(int(match[1]), match[2] or "", body, login)

    def _issue(
        self, number: int, what: str, body: Json, login: str
    ) -> tuple[int, Any, dict[str, str]]:
        server, row = self.server, self.server.rows[number]
        if what == "" and self.command == "PATCH":
            server.edit(number, by=login, **body)
            return 200, server.read(number), {}
        if what == "":
            return 200, server.read(number), {}
        if what == "/comments":
            return 201, server.remark(server.comment(number, body["body"], by=login)), {}
        if what == "/sub_issues":
            return 200, [server.read(each) for each in row["below"]], {}
        if what == "/dependencies/blocked_by" and self.command == "POST":
            server.depend(number, body["issue_id"] - 1000)
            return 201, server.read(number), {}
        if what == "/dependencies/blocked_by":
            elsewhere = [
                server.read(number)
                | _named(f"/repos/{place}/issues/{needed}")
                | {"number": needed, "state": "open", "repository_url": f"{LINKS}/repos/{place}"}
                for place, needed in row["blocked_elsewhere"]
            ]
            return 200, [server.read(each) for each in row["blocked_by"]] + elsewhere, {}
        if match := re.fullmatch(r"/dependencies/blocked_by/(\d+)", what):
            row["blocked_by"].remove(int(match[1]) - 1000)
            row["updated_at"] = self.server.now()
            return 200, server.read(number), {}
        return 404, {"message": "Not Found"}, {}

    def _list(self, query: Json) -> tuple[int, Any, dict[str, str]]:
        wanted, since = query.get("state", "open"), query.get("since", "")
        rows = [row for row in self.server.rows.values() if row["updated_at"] >= since]
        rows = [row for row in rows if wanted in ("all", row["state"])]
        size, page = int(query.get("per_page", 30)), int(query.get("page", 1))
        part = rows[(page - 1) * size : page * size]
        more = {"Link": f'<{LINKS}{PATH}/issues?page={page + 1}>; rel="next"'}
        shown = [self.server.shown(row) for row in part]
        return 200, shown, more if len(rows) > page * size else {}

    def _of_pulls(self, rest: str, body: Json) -> tuple[int, Any, dict[str, str]] | None:
        pulls = self.server.pulls
        if match := re.fullmatch(r"/actions/jobs/(\d+)/rerun", rest):
            pulls.run_again(int(match[1]))
            return 201, {}, {}
        if match := re.fullmatch(r"/pulls/(\d+)/requested_reviewers", rest):
            pulls.rows[int(match[1])]["asked"] = body
            return 201, {"number": int(match[1])}, {}
        match = re.fullmatch(r"/issues/(\d+)/labels", rest)
        if match is not None and int(match[1]) in pulls.rows:
            pulls.rows[int(match[1])]["labels"] = body["labels"]
            return 200, [label(each) for each in body["labels"]], {}
        return None

    def _graphql(self, query: str, variables: Json, login: str) -> Json:
        (asked,) = parse(query).definitions
        assert isinstance(asked, OperationDefinitionNode)
        if "number" not in variables:
            return self.server.pulls.answer(asked, variables, login)
        row = self.server.rows.get(variables["number"])
        if row is None:
            place = ["repository", "issue"]
            error = {"type": "NOT_FOUND", "message": "Could not resolve to an Issue", "path": place}
            return {"data": {"repository": {"issue": None}}, "errors": [error]}
        comments = [
            {
                # An Int has 32 bits, a BigInt is a text.
                "databaseId": each["id"] if each["id"] < 1 << 31 else None,
                "fullDatabaseId": str(each["id"]),
                "url": f"{LINKS}{PATH}/issues/{row['number']}#issuecomment-{each['id']}",
                "body": each["body"],
                "createdAt": each["created_at"],
                "author": actor(each["user"]),
            }
            for each in self.server.seen(row)
        ]
        begin = int(variables["after"] or 0)
        issue = {
            "number": row["number"], "title": row["title"], "body": row["body"],
            "state": row["state"].upper(), "locked": row["locked"],
            "createdAt": row["created_at"], "updatedAt": row["updated_at"],
            "closedAt": row["closed_at"], "lastEditedAt": row["edited_at"],
            "author": actor(row["user"]),
            "labels": {"nodes": [{"name": each} for each in row["labels"]]},
            "assignees": {"nodes": [actor(each) for each in row["assignees"]]},
            "comments": {
                "pageInfo": {
                    "hasNextPage": len(comments) > begin + 100,
                    "endCursor": str(begin + 100),
                },
                "nodes": comments[begin : begin + 100],
            },
            "timelineItems": {"nodes": row["events"]},
        }  # fmt: skip
        return {"data": chosen(asked.selection_set, {"repository": {"issue": issue}})}
