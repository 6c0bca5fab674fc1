"""A real browser for tests: Debian's chromium without its windows, over its DevTools pipe.

``chromium-headless-shell`` is the same engine without what shows windows: it computes half as long.

One JSON object per message, ended by a zero byte, on descriptors 3 and 4 of the browser.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 30.0
PROGRAM = "chromium-headless-shell"


class Browser:
    """Started with a profile of its own in ``folder``; ended by ``close``."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which(PROGRAM)
        assert program, f"{PROGRAM} is missing: scripts/test installs it, or apt-get install it"
        to_us, theirs_out = os.pipe()
        theirs_in, from_us = os.pipe()
        root = ["--no-sandbox"] if os.getuid() == 0 else []
        command = [
            program, "--headless", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-extensions", "--hide-scrollbars",
            f"--user-data-dir={folder / 'profile'}", "--remote-debugging-pipe",
            "--renderer-process-limit=1", *root,
        ]  # fmt: skip
        # What the pipe is to be, 3 and 4, may be taken in this process; the shell renumbers.
        renumber = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        with (folder / "chromium.log").open("wb") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", renumber, "bash", *command],
                pass_fds=(theirs_in, theirs_out),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        os.close(theirs_in)
        os.close(theirs_out)
        self._in, self._out = to_us, from_us
        self._rest = b""
        self._last = 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """One command and its result; events that come meanwhile are kept."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self.read()).get("id") != self._last:
            self.events.append(answer)
        assert "error" not in answer, (method, answer)
        result: dict[str, Any] = answer["result"]
        return result

    def read(self) -> dict[str, Any]:
        """The next message."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], deadline - time.monotonic())
            data = os.read(self._in, 1 << 20) if ready else b""
            assert data, "the browser went away, or said nothing for too long"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def open(self, what: Path | str, width: int, height: int = 900, **options: bool) -> Page:
        """A file or an address in a window of this size; see ``Page``."""
        address = what if isinstance(what, str) else what.as_uri()
        return Page(self, address, width, height, **options)

    def close(self) -> None:
        """End it and all of its processes."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._in)
        os.close(self._out)


class Page:
    """One tab. ``dark``: as on a screen that prefers it; without ``script`` none is run.

    ``alone``: as in a browser of its own, which shares no connection with the others.
    """

    def __init__(
        self,
        browser: Browser,
        address: str,
        width: int,
        height: int,
        *,
        dark: bool = False,
        script: bool = True,
        alone: bool = False,
    ) -> None:
        self._browser = browser
        context = browser.call("Target.createBrowserContext") if alone else {}
        target = browser.call("Target.createTarget", url="about:blank", **context)["targetId"]
        self._target = target
        attached = browser.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self._width, self._height = width, height
        self._resize(height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        if not script:
            self.call("Emulation.setScriptExecutionDisabled", value=True)
        self.call("Page.navigate", url=address)
        while not self._happened("Page.loadEventFired"):
            browser.events.append(browser.read())

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A command for this tab."""
        return self._browser.call(method, self._session, **params)

    def value(self, expression: str) -> Any:
        """What an expression is, as JSON; run beside the page's own policy."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until an expression is true in the page."""
        deadline = time.monotonic() + seconds
        while not self.value(expression):
            assert time.monotonic() < deadline, f"never true: {expression}"
            time.sleep(0.05)

    def close(self) -> None:
        """Leave the tab."""
        self._browser.call("Target.closeTarget", targetId=self._target)

    def click(self, selector: str) -> None:
        """The left button on the middle of an element, once that stands still."""
        node = f"document.querySelector({json.dumps(selector)})"
        to = f"{node}.scrollIntoView({{block: 'center', behavior: 'instant'}})"
        middle = f"(r => [r.x + r.width / 2, r.y + r.height / 2])({node}.getBoundingClientRect())"
        place = self.value(f"{to}; {middle}")
        while True:
            self._mouse("mouseMoved", *place)
            time.sleep(0.03)
            if self.value(middle) == place:
                break
            place = self.value(f"{to}; {middle}")
        for kind in ("mousePressed", "mouseReleased"):
            self._mouse(kind, *place, button="left", clickCount=1)

    def _mouse(self, kind: str, x: float, y: float, **button: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def type(self, text: str) -> None:
        """Letters, into whatever has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """A key that is no letter, like ArrowRight."""
        # A button is pressed by the character that Enter types.
        typed = {"text": "\r", "windowsVirtualKeyCode": 13} if key == "Enter" else {}
        for kind in ("keyDown" if typed else "rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, **typed)

    def complaints(self) -> list[dict[str, Any]]:
        """Exceptions, errors in the console, and whatever the policy has stopped."""
        return [
            event
            for event in self._mine()
            if event["method"] == "Runtime.exceptionThrown"
            or (event["method"] == "Log.entryAdded")
            or event["method"] == "Runtime.consoleAPICalled"
        ]

    def requests(self) -> list[str]:
        """Every address that was asked for."""
        sent = (e for e in self._mine() if e["method"] == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in sent]

    def picture(self, file: Path) -> None:
        """All of the page, as PNG, in a window as high as that needs."""
        height = self.value("document.documentElement.scrollHeight")
        self._resize(height)
        shot = self.call("Page.captureScreenshot")
        self._resize(self._height)
        file.write_bytes(base64.b64decode(shot["data"]))

    def _resize(self, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=self._width, height=height,
                  deviceScaleFactor=1, mobile=False)  # fmt: skip

    def _mine(self) -> list[dict[str, Any]]:
        return [e for e in self._browser.events if e.get("sessionId") == self._session]

    def _happened(self, method: str) -> bool:
        return any(event["method"] == method for event in self._mine())
