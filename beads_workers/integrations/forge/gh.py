"""Requests by the user's own ``gh``: its login, its hosts, its tokens.

It has no time limit of its own, so we have one. A list that has not changed costs nothing of
GitHub's limit: its tag is sent along, page by page.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from beads_workers.core.base.source import Calls
from beads_workers.integrations.forge.api import ForgeDown, ForgeError
from beads_workers.integrations.forge.web import (
    ANSWER_BYTES_MAX,
    CALL_SECONDS,
    HttpAnswer,
    Patience,
    date_of,
    parsed,
)
from beads_workers.kinds import CallLog
from beads_workers.runtime import sessions

KEPT_MAX = 200
"""Answers that are kept with their tags."""


class Gh:
    """``Transport``. ``host``: as ``GH_HOST`` has it."""

    def __init__(self, host: str, environ: Mapping[str, str], call_log: CallLog | None) -> None:
        program = shutil.which("gh", path=environ.get("PATH"))
        if program is None:
            hint = "install it, and log in: gh auth login"
            raise ForgeError("GitHub is asked through gh, which is not installed", hint)
        self._program, self._call_log = program, call_log
        self._environment = {**environ, "GH_HOST": host, "NO_COLOR": "1"}
        self._environment |= {"GH_NO_UPDATE_NOTIFIER": "1", "GH_PROMPT_DISABLED": "1"}
        self._patience = Patience()
        self._kept: dict[str, tuple[str, HttpAnswer]] = {}
        self.calls = Calls()
        self.said_at = ""

    def ask(self, method: str, path: str, body: Any = None) -> HttpAnswer:
        """See ``Transport``."""
        what = f"{method} {path.partition('?')[0]}"
        self._patience.check()
        words = ["api", "-i", "--method", method, path.lstrip("/")]
        tag, kept = self._kept.get(path, ("", None)) if method == "GET" else ("", None)
        if tag:
            words += ["-H", f"If-None-Match: {tag}"]
        answer = self._answer(words, body, what)
        self.said_at = date_of(answer.headers) or self.said_at
        if answer.status == 304 and kept is not None:
            return kept
        answer = self._patience.judge(answer, what)
        if method == "GET" and (tag := answer.headers.get("etag", "")):
            if len(self._kept) >= KEPT_MAX:
                self._kept.pop(next(iter(self._kept)))
            self._kept[path] = tag, answer
        return answer

    def text(self, path: str) -> str:
        """Return a plain text, to which GitHub leads by another address; "" if there is none.
        Raises ``ForgeDown``."""
        self._patience.check()
        answer = self._answer(["api", "-i", path.lstrip("/")], None, f"GET {path}", is_text=True)
        return answer.data if answer.status == 200 else ""

    def _answer(
        self, words: list[str], body: Any, what: str, *, is_text: bool = False
    ) -> HttpAnswer:
        began = time.monotonic()
        with ExitStack() as stack:
            if body is not None:
                # A file of this user's alone: never an option, which could name another file.
                file = stack.enter_context(tempfile.NamedTemporaryFile("w", encoding="utf-8"))
                json.dump(body, file)
                file.flush()
                words = [*words, "--input", file.name]
            out = stack.enter_context(tempfile.TemporaryFile())
            err = stack.enter_context(tempfile.TemporaryFile())
            try:
                self._run([self._program, *words], out, err, what)
            finally:
                self.calls.count += 1
                self.calls.seconds += time.monotonic() - began
            out.seek(0)
            err.seek(0)
            said, complaint = out.read(ANSWER_BYTES_MAX + 1), err.read(2000)
        head, _, data = said.replace(b"\r\n", b"\n").partition(b"\n\n")
        lines = head.decode("utf-8", "replace").split("\n")
        first = lines[0].split()
        if len(first) < 2 or not first[0].startswith("HTTP/") or not first[1].isdigit():
            why = " ".join(complaint.decode("utf-8", "replace").split())[:200]
            hint = "gh auth status" if "auth" in why else ""
            raise ForgeDown(f"{what}: gh says: {why or 'nothing'}", hint)
        if len(said) > ANSWER_BYTES_MAX:
            raise ForgeDown(f"{what}: the answer is too long")
        pairs = (line.partition(":") for line in lines[1:])
        headers = {name.strip().lower(): text.strip() for name, _, text in pairs}
        status = int(first[1])
        if is_text:
            return HttpAnswer(status, headers, data.decode("utf-8", "replace"))
        is_json = status < 300 or data[:1] in (b"{", b"[")
        return HttpAnswer(status, headers, parsed(data, what) if is_json else "")

    def _run(self, argv: list[str], out: Any, err: Any, what: str) -> None:
        try:
            process = subprocess.Popen(
                argv, env=self._environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )
        except OSError as error:
            raise ForgeDown(f"{what}: gh cannot be run: {os.strerror(error.errno or 0)}") from None
        if self._call_log is not None:  # A later run waits for its end.
            self._call_log.started(process.pid, sessions.start_time(process.pid) or 0, argv)
        try:
            process.wait(CALL_SECONDS)
        except subprocess.TimeoutExpired:
            raise ForgeDown(f"{what}: the forge has not answered for {CALL_SECONDS:g} s") from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            if self._call_log is not None:
                self._call_log.ended(process.pid)
