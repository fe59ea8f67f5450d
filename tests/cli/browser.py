"""A real browser for tests without a driver package: Chromium spoken to through --remote-debugging-pipe.

The protocol is JSON with a NUL after each message, over two pipes that the browser has as descriptors 3 and 4. Every
event is kept, so that a test can ask afterwards what was logged, thrown, requested or opened.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--mute-audio",
    "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--force-color-profile=srgb", "--remote-debugging-pipe",
)  # fmt: skip
LOCAL = ("data:", "blob:", "about:")


def binary() -> str | None:
    """The path of a Chromium or Chrome, if this machine has one."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One browser process with one tab."""

    def __init__(self) -> None:
        path = binary()
        assert path, "no Chromium on this machine"
        self.folder = tempfile.mkdtemp(prefix="assay-browser-")
        to_read, self.to_browser = os.pipe()
        self.from_browser, to_write = os.pipe()
        # the shell moves the two ends to descriptors 3 and 4, where the browser looks for them
        script = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
        flags = (*FLAGS, f"--user-data-dir={self.folder}", "about:blank")
        self.process = subprocess.Popen(
            ["bash", "-c", script, path, *flags],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self.rest, self.count, self.session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the browser."""
        try:
            self.session = ""
            self.call("Browser.close", within=5)
        except (OSError, TimeoutError):
            self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.to_browser)
        os.close(self.from_browser)
        shutil.rmtree(self.folder, ignore_errors=True)

    # ------------------------------------------------------------------------------------------------ protocol
    def call(self, method: str, *, within: float = 60, **options: Any) -> dict[str, Any]:
        """One command and its answer; events that come before it are kept."""
        self.count += 1
        wanted = self.count
        message = {"id": wanted, "method": method, "params": options}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self.to_browser, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + within
        while True:
            answer = self.receive(end - time.monotonic())
            if answer is None:
                raise TimeoutError(f"the browser did not answer {method} within {within} s")
            if answer.get("id") == wanted:
                assert "error" not in answer, (method, answer["error"])
                return dict(answer["result"])

    def receive(self, within: float) -> dict[str, Any] | None:
        """The next message, or None when none came in time."""
        end = time.monotonic() + within
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.from_browser], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                return None
            block = os.read(self.from_browser, 1 << 20)
            if not block:
                raise BrokenPipeError("the browser has gone")
            self.rest += block
        line, _, self.rest = self.rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self.events.append(message)
            if message["method"] == "Page.javascriptDialogOpening":
                self.count += 1
                close = {"id": self.count, "method": "Page.handleJavaScriptDialog", "params": {"accept": False}}
                os.write(self.to_browser, json.dumps(close | {"sessionId": self.session}).encode() + b"\0")
        return message

    # ------------------------------------------------------------------------------------------------ page
    def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> float:
        """Loads a page and waits until its script has set data-ready; the seconds that took."""
        self.size(width, height)
        self.dark(dark)
        self.call("Page.navigate", url="about:blank")  # a live page would go on asking a server that has gone
        self.until("location.href === 'about:blank'")
        self.events.clear()
        begun = time.monotonic()
        self.call("Page.navigate", url=url)
        self.until("document.documentElement?.dataset.ready !== undefined && location.href !== 'about:blank'")
        return time.monotonic() - begun

    def size(self, width: int, height: int) -> None:
        """The size of the window; a narrow one is a phone."""
        options: dict[str, Any] = {"deviceScaleFactor": 2 if width < 500 else 1, "mobile": width < 500}
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, **options)

    def dark(self, on: bool, media: str = "") -> None:
        """What the system prefers, and the medium: `print` shows the page as on paper."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if on else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature], media=media)

    def run(self, script: str) -> Any:
        """The value of an expression, promises awaited."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, script: str, within: float = 60) -> None:
        """Waits until an expression is true."""
        end = time.monotonic() + within
        while not self.run(f"Boolean({script})"):
            assert time.monotonic() < end, f"never true: {script}"
            time.sleep(0.05)

    def key(self, key: str) -> None:
        """Presses one key."""
        text: dict[str, Any] = {"text": key} if len(key) == 1 else {}
        codes = {
            "ArrowDown": 40,
            "ArrowUp": 38,
            "ArrowLeft": 37,
            "ArrowRight": 39,
            "End": 35,
            "Home": 36,
            "Tab": 9,
            "Escape": 27,
        }
        code: dict[str, Any] = {"windowsVirtualKeyCode": codes[key]} if key in codes else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text, **code)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **code)

    def settle(self, seconds: float = 0.3) -> None:
        """Lets events arrive."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.receive(left)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """A PNG of the page."""
        options: dict[str, Any] = {"captureBeyondViewport": whole}
        if whole:
            box = self.call("Page.getLayoutMetrics")["cssContentSize"]
            options["clip"] = {"x": 0, "y": 0, "width": box["width"], "height": box["height"], "scale": 1}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", **options)["data"]))

    # ------------------------------------------------------------------------------------------------ what happened
    def complaints(self) -> list[str]:
        """Exceptions, console errors and warnings, log entries and dialogs."""
        self.settle()
        found = []
        for event in self.events:
            options = event["params"]
            is_console = event["method"] == "Runtime.consoleAPICalled" and options["type"] in (
                "error",
                "warning",
                "assert",
            )
            is_bad = event["method"] in ("Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening")
            found += [json.dumps(options)[:500]] if is_console or is_bad else []
        return found

    def requests(self) -> list[str]:
        """The addresses asked for, without what stays inside the page."""
        self.settle()
        sent = [
            event["params"]["request"]["url"] for event in self.events if event["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in sent if not url.startswith(LOCAL)]
