"""A headless Chromium that opens pages, for tests; spoken to by pipe, so that nothing is needed."""

from __future__ import annotations

import base64
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
from typing import Any

__all__ = ["Browser", "find_chromium"]

_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
_LIMIT_SECS = 60.0


def find_chromium() -> str | None:
    """Finds a Chromium; None if there is none."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page in one browser, and all that it asked for and complained about."""

    def __init__(self, executable: str) -> None:
        """Starts the browser.

        Args:
            executable: as `find_chromium` finds it.
        """
        # Its helpers may write there a moment longer than it lives.
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        self._process = subprocess.Popen(
            [
                # Chromium reads from descriptor 3 and writes to 4. Other shells know no descriptor
                # above 9.
                *("bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "", executable),
                *("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"),
                *("--no-first-run", "--disable-background-networking", "--disable-sync"),
                *("--disable-component-update", "--hide-scrollbars", "--disable-dev-shm-usage"),
                f"--user-data-dir={self._profile.name}",
                "about:blank",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(to_browser, from_browser),
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = next(
            each for each in self.call("Target.getTargets")["targetInfos"] if each["type"] == "page"
        )
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the browser."""
        os.close(self._write)
        os.close(self._read)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._profile.cleanup()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Calls a method of the DevTools protocol and waits for its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def open(self, path: str | os.PathLike[str], *, width: int, dark: bool = False) -> None:
        """Opens a file and waits until the page says that it is ready."""
        self.complaints.clear()
        self.requests.clear()
        self.resize(width)
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        self.call("Page.navigate", url=pathlib.Path(path).absolute().as_uri())
        self.wait("document.documentElement?.dataset.ready === 'yes'")

    def resize(self, width: int, height: int = 900) -> None:
        """Makes the window so wide, in pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def wait(self, condition: str) -> None:
        """Waits until an expression is true."""
        start_secs = time.monotonic()
        while not self.evaluate(condition):
            if time.monotonic() - start_secs > _LIMIT_SECS:
                raise TimeoutError(f"{condition}; {self.complaints}")
            time.sleep(0.05)

    def evaluate(self, expression: str) -> Any:
        """Evaluates an expression in the page."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"]))
        return result["result"].get("value")

    def move_mouse(self, x: float, y: float) -> None:
        """Moves the mouse to a place in the window."""
        for step in (3, 2, 1, 0):
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x - step, y=y)

    def screenshot(self, path: str | os.PathLike[str], *, whole: bool = True) -> None:
        """Writes a picture of the page (.png)."""
        image = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(image))

    def _next(self) -> dict[str, Any]:
        """Reads the next message, and keeps what it says of complaints and requests."""
        while b"\0" not in self._buffer:
            part = os.read(self._read, 1 << 16)
            if not part:
                raise RuntimeError("the browser has ended")
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(params["exceptionDetails"])[:2000])
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.complaints.append(json.dumps(params["args"])[:2000])
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.complaints.append(params["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
        return message
