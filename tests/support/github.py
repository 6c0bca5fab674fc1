"""A GitHub of our own on loopback: what the real ``gh`` finds behind ``GH_HOST``, over TLS.

It has one repository, and answers as GitHub's public descriptions say. Comments are seen up to
``late`` seconds after they were written, and in another order than that of their ids.
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
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

OWNER, NAME = "team", "shop"
PATH = f"/repos/{OWNER}/{NAME}"

Json = dict[str, Any]


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

    def __init__(self, *, late: float = 0.0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        made, key = certificate()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(made, key)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.host = f"localhost:{self.server_address[1]}"
        self.late, self.chance = late, random.Random(3)
        self.lock = threading.RLock()
        self.rights: dict[str, str] = {"root": "admin"}
        self.rows: dict[int, Json] = {}
        self.asked: list[tuple[str, str]] = []
        self.not_modified = 0
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        """What comes instead of the next answers."""
        self._ids = 0

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
                "blocked_by": [], "created_at": now(), "updated_at": now(), "closed_at": None,
                "edited_at": None, "locked": False,
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
                row["edited_at"] = now()
            if "title" in fields and fields["title"] != row["title"]:
                row["events"].append({"__typename": "RenamedTitleEvent", "createdAt": now()})
            if "state" in fields:
                row["closed_at"] = now() if fields["state"] == "closed" else None
            if "labels" in fields:
                self._set_labels(number, fields.pop("labels"), by)
            row |= {k: v for k, v in fields.items() if k in row}
            row["updated_at"] = now()

    def comment(self, number: int, text: str, by: str = "root") -> int:
        with self.lock:
            seen_at = time.time() + self.chance.uniform(0.0, self.late)
            key = self._id()
            made = {"id": key, "body": text, "user": by, "created_at": now(), "seen_at": seen_at}
            self.rows[number]["comments"].append(made)
            self.rows[number]["updated_at"] = now()
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
                    each["body"], row["updated_at"] = text, now()
                    return True
        return False

    def depend(self, number: int, *needed: int) -> None:
        self.rows[number]["blocked_by"] += needed
        self.rows[number]["updated_at"] = now()

    def read(self, number: int) -> Json:
        return self.shown(self.rows[number])

    def all(self) -> list[Json]:
        return [self.shown(row) for row in self.rows.values()]

    # --- what the API shows -------------------------------------------------------------------

    def shown(self, row: Json) -> Json:
        keep = ("number", "id", "title", "body", "state", "created_at", "updated_at", "closed_at")
        return {
            **{name: row[name] for name in keep},
            "user": person(row["user"]),
            "labels": [{"name": each} for each in row["labels"]],
            "assignees": [person(each) for each in row["assignees"]],
            "locked": row["locked"],
            "issue_dependencies_summary": {"total_blocked_by": len(row["blocked_by"])},
            "sub_issues_summary": {"total": 0},
        }

    def seen(self, row: Json) -> list[Json]:
        return [each for each in row["comments"] if each["seen_at"] <= time.time()]

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
                        "createdAt": now(),
                        "actor": {"login": by},
                        "label": {"name": e},
                    }
                    for e in names
                ]
            row["labels"], row["updated_at"] = wanted, now()

    def _id(self) -> int:
        self._ids += 1
        return self._ids


def now() -> str:
    """The server's time, as it writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def person(login: str) -> Json:
    """Somebody, as the REST API shows them."""
    return {"login": login, "type": "Bot" if login.endswith("[bot]") else "User"}


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
            if self.server.answers:
                status, headers, data = self.server.answers.pop(0)
                self._send(status, headers, data)
                return
            status, found, headers = self._answer(path, query, body, login)
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

    def log_message(self, *arguments: Any) -> None:
        pass

    def _answer(
        self, path: str, query: Json, body: Json, login: str
    ) -> tuple[int, Any, dict[str, str]]:
        server = self.server
        none: tuple[int, Any, dict[str, str]] = (404, {"message": "Not Found"}, {})
        if login not in server.rights:
            return 401, {"message": "Bad credentials"}, {}
        if path == "/user":
            return 200, person(login), {}
        if path == "/graphql":
            return 200, self._graphql(body["variables"]), {}
        if not path.lower().startswith(PATH):
            return none
        rest = path[len(PATH) :]
        if rest == "":
            may = server.rights[login] in ("write", "admin")
            return 200, {"archived": False, "permissions": {"push": may}}, {}
        if match := re.fullmatch(r"/collaborators/([^/]+)/permission", rest):
            return 200, {"permission": server.rights.get(match[1], "read")}, {}
        if match := re.fullmatch(r"/issues/comments/(\d+)", rest):
            known = {e["id"] for row in server.rows.values() for e in row["comments"]}
            if int(match[1]) not in known:
                return none
            if self.command == "DELETE":
                server.remove_comment(int(match[1]))
                return 204, None, {}
            server.edit_comment(int(match[1]), body["body"])
            return 200, {"id": int(match[1]), "body": body["body"], "user": person(login)}, {}
        if rest == "/issues" and self.command == "POST":
            number = server.issue(body["title"], body.get("body") or "", by=login)
            server.mark(number, *body.get("labels", ()), by=login)
            server.edit(number, assignees=body.get("assignees", []))
            return 201, server.read(number), {}
        if rest == "/issues":
            return self._list(query)
        match = re.fullmatch(r"/issues/(\d+)(/.*)?", rest)
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
            made = server.comment(number, body["body"], by=login)
            found = {"id": made, "body": body["body"], "user": person(login), "created_at": now()}
            return 201, found, {}
        if what == "/sub_issues":
            return 200, [], {}
        if what == "/dependencies/blocked_by" and self.command == "POST":
            server.depend(number, body["issue_id"] - 1000)
            return 201, server.read(number), {}
        if what == "/dependencies/blocked_by":
            return 200, [server.read(each) for each in row["blocked_by"]], {}
        if match := re.fullmatch(r"/dependencies/blocked_by/(\d+)", what):
            row["blocked_by"].remove(int(match[1]) - 1000)
            row["updated_at"] = now()
            return 200, server.read(number), {}
        return 404, {"message": "Not Found"}, {}

    def _list(self, query: Json) -> tuple[int, Any, dict[str, str]]:
        wanted, since = query.get("state", "open"), query.get("since", "")
        rows = [row for row in self.server.rows.values() if row["updated_at"] >= since]
        rows = [row for row in rows if wanted in ("all", row["state"])]
        size, page = int(query.get("per_page", 30)), int(query.get("page", 1))
        part = rows[(page - 1) * size : page * size]
        more = {"Link": f'<https://h{PATH}/issues?page={page + 1}>; rel="next"'}
        shown = [self.server.shown(row) for row in part]
        return 200, shown, more if len(rows) > page * size else {}

    def _graphql(self, variables: Json) -> Json:
        row = self.server.rows.get(variables["number"])
        if row is None:
            error = {"type": "NOT_FOUND", "message": "Could not resolve to an Issue"}
            return {"data": {"repository": {"issue": None}}, "errors": [error]}
        comments = [
            {
                "databaseId": each["id"],
                "body": each["body"],
                "createdAt": each["created_at"],
                "author": {"__typename": "User", "login": each["user"]},
            }
            for each in self.server.seen(row)
        ]
        begin = int(variables["after"] or 0)
        issue = {
            "number": row["number"], "title": row["title"], "body": row["body"],
            "state": row["state"].upper(), "locked": row["locked"],
            "createdAt": row["created_at"], "updatedAt": row["updated_at"],
            "closedAt": row["closed_at"], "lastEditedAt": row["edited_at"],
            "author": {"login": row["user"]},
            "labels": {"nodes": [{"name": each} for each in row["labels"]]},
            "assignees": {"nodes": [{"login": each} for each in row["assignees"]]},
            "comments": {
                "pageInfo": {
                    "hasNextPage": len(comments) > begin + 100,
                    "endCursor": str(begin + 100),
                },
                "nodes": comments[begin : begin + 100],
            },
            "timelineItems": {"nodes": row["events"]},
        }  # fmt: skip
        return {"data": {"repository": {"issue": issue}}}
