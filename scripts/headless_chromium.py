"""A headless Chromium driven over its DevTools pipe: what a page logs, requests and looks like.

The protocol: JSON messages that end in a zero byte, to the browser on its descriptor 3, from it on 4.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
ANSWER_S = 300


def chromium() -> str | None:
    """The browser's path, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """One page of one browser; a context manager. `events` are the protocol's messages that nobody asked for."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._profile = tempfile.mkdtemp(prefix="chromium-")
        self._count, self._unread, self._session = 0, b"", None

    def __enter__(self) -> "Browser":
        to_browser, self._send_fd = os.pipe()
        self._receive_fd, from_browser = os.pipe()
        # The shell puts the pipe's ends where the browser looks for them, whatever their numbers are here.
        script = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        command = ["bash", "-c", script, chromium() or "", *FLAGS, f"--user-data-dir={self._profile}", "about:blank"]
        null = subprocess.DEVNULL
        self._process = subprocess.Popen(command, pass_fds=(to_browser, from_browser), stdin=null, stdout=null, stderr=null)
        os.close(to_browser)
        os.close(from_browser)
        target = next(t for t in self._targets() if t["type"] == "page")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self._session = None
        self.call("Browser.close")
        self._process.wait(ANSWER_S)
        os.close(self._send_fd)
        os.close(self._receive_fd)
        shutil.rmtree(self._profile, ignore_errors=True)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The browser's answer to one command."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._send_fd, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._count:
                assert "error" not in answer, (method, answer)
                return answer["result"]
            self.events.append(answer)

    def open(self, path: Path) -> None:
        """Show a file and wait until it is loaded."""
        self.visit(path.as_uri())

    def visit(self, url: str) -> None:
        """Show a page and wait until it is loaded."""
        self.events.clear()
        answer = self.call("Page.navigate", url=url)
        assert "errorText" not in answer, answer
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; DevTools may evaluate it even where the page itself may run no script."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def look(self, width: int = 1200, scheme: str = "light", media: str = "screen", scale: float = 1.0) -> None:
        """A window width in CSS pixels, a preferred colour scheme, screen or print, and screen pixels per CSS pixel."""
        mobile = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=scale, mobile=mobile)
        self.call("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path: Path, top: float = 0, height: float | None = None) -> None:
        """The whole page as PNG, or `height` CSS pixels of it from `top` on."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": top, "width": size["width"], "height": height or size["height"] - top, "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self, path: Path) -> None:
        """The page as it is printed, on A4."""
        self.call("Emulation.setEmulatedMedia", media="print")
        paper = self.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=True)
        path.write_bytes(base64.b64decode(paper["data"]))

    def complaints(self) -> list[str]:
        """What a developer would see in the console: errors, warnings, exceptions, anything printed."""
        kinds = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
        return [json.dumps(event["params"]) for event in self.events if event.get("method") in kinds]

    def requests(self) -> list[str]:
        """The addresses that the page has asked for, its own first; `data:` is no request."""
        asked = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith("data:")]

    def _targets(self) -> list[dict[str, Any]]:
        deadline_s = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline_s:
            targets = self.call("Target.getTargets")["targetInfos"]
            if any(target["type"] == "page" for target in targets):
                return targets
            time.sleep(0.05)
        raise TimeoutError("Chromium shows no page")

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            if not select.select([self._receive_fd], [], [], ANSWER_S)[0]:
                raise TimeoutError(f"Chromium says nothing for {ANSWER_S} s")
            part = os.read(self._receive_fd, 1 << 20)
            assert part, f"Chromium has ended with exit code {self._process.wait(ANSWER_S)}"
            self._unread += part
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)
