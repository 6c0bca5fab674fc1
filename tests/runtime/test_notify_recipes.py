"""The recipes of docs/CLI.md for ``--notify``, against a server of our own."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from beads_workers.options import KEYS

CLI = Path(__file__).parents[2] / "docs" / "CLI.md"
RECIPES = [
    str(KEYS["notify"].read(tomllib.loads(block)["notify"]))
    for block in re.findall(r"```toml\n(notify = .*?)```", CLI.read_text(), re.DOTALL)
]
TEXT = 'bw-1 asks: "euros" or $cents?'


class Heard(HTTPServer):
    """Keeps the path, the title and the body of each request."""

    requests: list[tuple[str, str | None, bytes]]


class Handler(BaseHTTPRequestHandler):
    server: Heard

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.requests.append((self.path, self.headers["title"], body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[Heard]:
    with Heard(("127.0.0.1", 0), Handler) as made:
        made.requests = []
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


def tell(recipe: str, server: Heard, folder: Path, event: str = "question") -> None:
    address = f"http://127.0.0.1:{server.server_port}"
    sent = folder / "notify-send"
    sent.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >>{folder}/shown\n')
    sent.chmod(0o755)
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "BW_EVENT": event, "BW_TEXT": TEXT}
    line = recipe.replace("https://ntfy.sh", address)
    told = environment | {"SLACK_WEBHOOK": f"{address}/hook"}
    subprocess.run(["/bin/sh", "-c", line], env=told, check=True, timeout=30)


def test_the_recipes_send_the_text_as_it_is(server: Heard, tmp_path: Path) -> None:
    phone, slack, desktop = RECIPES
    tell(phone, server, tmp_path)
    tell(slack, server, tmp_path)
    assert server.requests[0] == ("/TOPIC", "question", TEXT.encode())
    assert server.requests[1][0] == "/hook"
    assert json.loads(server.requests[1][2]) == {"text": TEXT}
    tell(desktop, server, tmp_path)
    tell(desktop, server, tmp_path, "landing_resumed")
    assert (tmp_path / "shown").read_text().splitlines() == ["question", TEXT]
