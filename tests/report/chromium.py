"""A headless Chromium driven over its DevTools pipe: no driver program, no port, nothing beyond the standard library.

The browser reads commands from file descriptor 3 and writes answers to 4, each one JSON object ended by a NUL byte.
Every request of the page, every console message and every uncaught error is kept for the tests to look at.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
    "--hide-scrollbars",
)


def chromium_program() -> str | None:
    """Where Chromium is on this machine, if anywhere."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One page of a headless Chromium, with what it asked of the network and what it complained about."""

    def __init__(self, program: str, empty_folder: Path) -> None:
        commands_in, self._commands = (_out_of_the_way(end) for end in os.pipe())
        self._answers, answers_out = (_out_of_the_way(end) for end in os.pipe())
        # the shell puts the two pipes where Chromium looks for them, whatever numbers they have here
        plumbing = f'exec "$0" "$@" 3<&{commands_in} 4>&{answers_out}'
        arguments = [program, *FLAGS, f"--user-data-dir={empty_folder}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", plumbing, *arguments],
            pass_fds=(commands_in, answers_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands_in), os.close(answers_out)
        self._unread, self._last, self._session = b"", 0, None
        self.requests: list[str] = []
        self.console: list[str] = []
        target = next(t for t in self._targets() if t["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def _targets(self) -> list[dict[str, Any]]:
        for _ in range(100):
            targets = self.call("Target.getTargets")["targetInfos"]
            if any(target["type"] == "page" for target in targets):
                break
            time.sleep(0.05)
        return targets

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command and wait for its answer, keeping the events that arrive meanwhile."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next(timeout=60)
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def _next(self, timeout: float) -> dict[str, Any]:
        while b"\0" not in self._unread:
            if not select.select([self._answers], [], [], timeout)[0]:
                raise TimeoutError(f"no answer from Chromium within {timeout:g} s")
            chunk = os.read(self._answers, 1 << 20)
            if not chunk:
                raise ConnectionError("Chromium ended")
            self._unread += chunk
        text, self._unread = self._unread.split(b"\0", 1)
        message = json.loads(text)
        self._keep(message.get("method"), message.get("params", {}))
        return message

    def _keep(self, event: str | None, detail: dict[str, Any]) -> None:
        if event == "Network.requestWillBeSent":
            self.requests.append(detail["request"]["url"])
        elif event == "Runtime.consoleAPICalled":
            said = " ".join(str(argument.get("value", argument.get("description"))) for argument in detail["args"])
            self.console.append(f"{detail['type']}: {said}")
        elif event == "Runtime.exceptionThrown":
            thrown = detail["exceptionDetails"]
            self.console.append(f"error: {thrown.get('exception', {}).get('description', thrown['text'])}")
        elif event == "Log.entryAdded":
            self.console.append(f"{detail['entry']['level']}: {detail['entry']['text']}")

    def open(self, address: str) -> None:
        """Load a page and wait until its figures say they are drawn."""
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page; promises are awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", str(answer)))
        return answer["result"].get("value")

    def wait(self, expression: str, seconds: float = 20.0) -> Any:
        """Wait until an expression is true, or fail with the expression."""
        until = time.monotonic() + seconds
        while not (value := self.run(expression)):
            if time.monotonic() > until:
                raise TimeoutError(f"never true within {seconds:g} s: {expression}; console: {self.console}")
            time.sleep(0.05)
        return value

    def move_mouse(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key])

    def resize(self, width: int, height: int, *, mobile: bool = False) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def prefer(self, scheme: str) -> None:
        """Light or dark, as the person's system says."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, file: Path, *, whole: bool = False) -> Path:
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(answer["data"]))
        return file

    def print_to(self, file: Path) -> Path:
        """What the print dialogue would save as PDF."""
        file.write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"]))
        return file

    def close(self) -> None:
        self._session = None
        try:
            self.call("Browser.close")
        except (ConnectionError, TimeoutError, BrokenPipeError):
            pass
        finally:
            os.close(self._commands), os.close(self._answers)
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()


def _out_of_the_way(descriptor: int) -> int:
    """The same pipe under a number well above 3 and 4, which the browser needs for itself."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 20)
    os.close(descriptor)
    return moved


KEYS = {"ArrowRight": 39, "ArrowLeft": 37, "Home": 36, "End": 35, "Tab": 9, "Enter": 13}
